//! The certificate that new connections get. The files are looked at every few
//! seconds and at SIGHUP, and read again when they changed; if that fails, the
//! old certificate stays and the log says so. Connections that are open keep what
//! they began with.

use super::files::{self, Pair};
use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass::{Error, Result};

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// An end that is closer than this is told.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// Certificate and key of the listener.
#[derive(Debug)]
pub struct Certificates {
    cert: PathBuf,
    key: PathBuf,
    now: RwLock<Arc<ServerConfig>>,
    ends: Mutex<Option<i64>>,
    /// Of the files as they were just before they were read last.
    stamp: Mutex<Stamp>,
}

/// What changes when somebody replaces, writes or unlocks a file.
type Stamp = [Option<(u64, u64, i64, i64)>; 2];

/// How long a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Good {
    For(Duration),
    Ended,
    Unknown,
}

impl Good {
    /// What is wrong with it, if something is.
    pub fn warning(self) -> Option<String> {
        match self {
            Good::For(left) if left < SOON => {
                Some(format!("the certificate ends in {} hours", left.as_secs() / 3600))
            }
            Good::Ended => Some("the certificate has ended, clients refuse it".to_owned()),
            Good::For(_) | Good::Unknown => None,
        }
    }
}

impl Certificates {
    /// Reads both files; mistakes are told with the name of the file.
    pub fn read(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Arc<Certificates>> {
        let (cert, key) = (cert.into(), key.into());
        let stamp = Mutex::new(stamp(&cert, &key));
        let Pair { config, ends, warnings } = files::read(&cert, &key)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let (now, ends) = (RwLock::new(config), Mutex::new(ends));
        let read = Certificates { cert, key, now, ends, stamp };
        read.tell_end();
        Ok(Arc::new(read))
    }

    /// What a handshake that begins now uses.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.now.read().clone()
    }

    pub fn good(&self) -> Good {
        let Some(ends) = *self.ends.lock() else { return Good::Unknown };
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(ends.max(0).unsigned_abs());
        ends.duration_since(SystemTime::now()).map_or(Good::Ended, Good::For)
    }

    fn tell_end(&self) {
        if let Some(warning) = self.good().warning() {
            tracing::warn!(file = %self.cert.display(), "{warning}; put a new one in its place");
        }
    }

    /// Reads the files again. An error leaves everything as it was.
    pub fn reload(&self) -> Result<()> {
        // Files that do not fit are not read again before they change, either.
        *self.stamp.lock() = self.found();
        let Pair { config, ends, warnings } = files::read(&self.cert, &self.key)?;
        *self.now.write() = config;
        *self.ends.lock() = ends;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        tracing::info!(file = %self.cert.display(), "new connections get the new certificate");
        self.tell_end();
        Ok(())
    }

    fn reload_or_tell(&self) {
        if let Err(error) = self.reload() {
            let why = error.message();
            tracing::error!("the certificate was NOT reloaded, the old one stays: {why}");
        }
    }

    /// Looks for changes until it is dropped.
    pub async fn watch(self: Arc<Self>, mut hangup: Hangup) {
        let mut last = *self.stamp.lock();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {
                    let found = self.found();
                    // Two looks that agree: nobody is writing just now.
                    let is_settled = found == std::mem::replace(&mut last, found);
                    if found == *self.stamp.lock() || !is_settled {
                        continue;
                    }
                }
                () = hangup.next() => last = self.found(),
            }
            self.reload_or_tell();
        }
    }

    fn found(&self) -> Stamp {
        stamp(&self.cert, &self.key)
    }
}

fn stamp(cert: &Path, key: &Path) -> Stamp {
    let of = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
    };
    [of(cert), of(key)]
}

/// SIGHUP, heard from the moment this is made; without it the process would end.
#[derive(Debug)]
pub struct Hangup(Signal);

impl Hangup {
    pub fn hear() -> Result<Hangup> {
        let heard = signal(SignalKind::hangup());
        heard.map(Hangup).map_err(|e| Error::invalid("tls", "SIGHUP cannot be heard").because(e))
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }

    /// For a server without certificates.
    pub async fn ignore(mut self) {
        loop {
            self.next().await;
            tracing::warn!("SIGHUP changes nothing: there is no certificate to read again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, year: i32) -> (PathBuf, PathBuf) {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let secret = rcgen::KeyPair::generate().unwrap();
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&cert, params.self_signed(&secret).unwrap().pem()).unwrap();
        std::fs::write(&key, secret.serialize_pem()).unwrap();
        (cert, key)
    }

    /// Between reading and watching a server takes over its store.
    #[tokio::test]
    async fn what_changes_before_it_is_watched_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = write(folder.path(), 2100);
        let read = Certificates::read(cert, key).unwrap();
        let first = *read.ends.lock();
        write(folder.path(), 2200);
        let watching = tokio::spawn(read.clone().watch(Hangup::hear().unwrap()));
        let changed = async {
            while *read.ends.lock() == first {
                // tidy: allow-sleep because files are looked at by time
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(10 * LOOK_EVERY, changed).await.unwrap();
        watching.abort();
    }
}
