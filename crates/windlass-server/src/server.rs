//! One node from its start to its end: the store is opened (and owned), what an
//! earlier start left running is ended, the engine takes over, the API answers;
//! a signal lets it all end in good order. Which parts there are is said by the
//! configuration; each part does its own work.

use crate::access::Gate;
use crate::api::{self, App, Limits, Terms};
use crate::boot::{apply_queues, engine_builder, redactor};
use crate::config::{Config, UiMode};
use crate::handlers::{ExecHost, end_leftovers, owner_of};
use crate::listen::{self, Bounds, Door};
use crate::makers::Makers;
use crate::tls::{Certificates, Hangup};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use windlass::{Builder, Engine, Error, Result};

const DIGEST_EVERY: Duration = Duration::from_secs(5);
/// Wanted beside those of connections.
const FILES_BESIDE: u64 = 6_384;
/// Files that connections never take: the store, logs and handlers need some.
const FILES_KEPT: u64 = 512;

/// A node that works.
#[derive(Debug)]
pub struct Server {
    pub engine: Engine,
    /// Where it listens.
    pub at: SocketAddr,
    /// The same with http or https before it.
    pub url: String,
    grace: Duration,
    close: oneshot::Sender<()>,
    listening: tokio::task::JoinHandle<()>,
    /// What goes on beside until the end.
    beside: Vec<tokio::task::JoinHandle<()>>,
}

/// What asks the process to end: SIGTERM and SIGINT. They are heard from the
/// moment this is made, so that one that comes while a node starts is not lost
/// and does not kill it.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn hear() -> Result<Signals> {
        let hear = |kind| {
            signal(kind).map_err(|e| Error::invalid("start", "signals cannot be heard").because(e))
        };
        Ok(Signals {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// How a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything finished or was given back.
    InGoodOrder,
    /// A second signal came.
    AtOnce,
}

impl Server {
    /// Starts a node. `more` may add kinds of its own.
    pub async fn start(config: &Config, more: impl FnOnce(Builder) -> Builder) -> Result<Server> {
        let hangup = Hangup::hear()?;
        let files = take_more_files(config.server.connections_max);
        let certificates = certificates(config)?;
        let meter = api::install_meter()?;
        let digesting = tokio::spawn(digest(meter.clone()));
        let listener = bind(config.server.listen.0).await?;
        let at = listener.local_addr().map_err(|e| cannot_listen(config.server.listen.0, &e))?;
        let url = config.store.url.expose();
        let host = host(config, url)?;
        let redactor = redactor(config)?;
        let makers = Makers::new(config, host.clone(), redactor.clone())?;
        let builder = engine_builder(config, |name, handler| makers.make(name, handler)).await?;
        // The store is ours now, so whoever still works for it is a leftover.
        if host.is_some() {
            end_leftovers(&owner_of(url)).map_err(|e| {
                let message = "processes of an earlier start could not be looked for";
                Error::invalid("start", message).because(e)
            })?;
        }
        let engine = more(builder).start().await?;
        apply_queues(&engine, config).await?;
        let limits = Limits {
            body_max: config.server.body_max.as_usize(),
            bulk_max: config.server.bulk_max.as_usize(),
        };
        let page = match config.ui.mode {
            UiMode::Off => api::Page::Off,
            UiMode::Full => api::Page::On,
            UiMode::ReadOnly => api::Page::ReadOnly,
        };
        let gate = match Gate::open(&engine, &config.auth).await {
            Ok(gate) => gate,
            Err(refused) => {
                // Work may have begun: it goes back before the process ends.
                engine.shutdown(Duration::ZERO).await?;
                return Err(refused);
            }
        };
        let terms = Terms { limits, gate, page, redactor };
        let app = App::new(engine.clone(), at, terms, meter).await?;
        let (close, closed) = oneshot::channel::<()>();
        let closed = async { closed.await.unwrap_or_default() };
        let url = format!("{}://{at}", if certificates.is_some() { "https" } else { "http" });
        let bounds = Bounds::of(connections(config.server.connections_max, files));
        let watching = match certificates.clone() {
            Some(certificates) => tokio::spawn(certificates.watch(hangup)),
            None => tokio::spawn(hangup.ignore()),
        };
        let door = Door { bounds, certificates };
        let router = api::router(app);
        let listening = tokio::spawn(listen::serve_at(listener, router, door, closed));
        tracing::info!(listen = %at, url, node = %engine.status().node, "ready");
        let grace = config.shutdown.grace;
        let beside = vec![digesting, watching];
        Ok(Server { engine, at, url, grace, close, listening, beside })
    }

    /// Works until a signal comes, then ends: running tasks may finish for the
    /// grace period, while the API still answers. A second signal ends it at once.
    pub async fn run(self, mut signals: Signals) -> Result<Ended> {
        signals.next().await;
        tracing::info!(grace = ?self.grace, active = self.engine.status().active, "stopping");
        self.stop(signals.next()).await
    }

    /// Ends it; `hurry` ends it at once.
    pub async fn stop(self, hurry: impl Future<Output = ()>) -> Result<Ended> {
        let stopping = self.engine.shutdown(self.grace);
        let (result, ended) = tokio::select! {
            result = stopping => (result, Ended::InGoodOrder),
            () = hurry => (self.engine.shutdown(Duration::ZERO).await, Ended::AtOnce),
        };
        // Whoever waits for an answer gets it; the receiver is there until then.
        let _ = self.close.send(());
        let _ = self.listening.await;
        self.beside.iter().for_each(tokio::task::JoinHandle::abort);
        tracing::info!("stopped");
        result.map(|()| ended)
    }
}

/// Connections and handlers need files, and the usual limit is far below what
/// the system allows. Gives the limit that holds then; `None`: there is none.
fn take_more_files(connections: usize) -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + FILES_BESIDE;
    let wanted = maximum.map_or(wanted, |most| most.min(wanted));
    if current.is_some_and(|now| now < wanted) {
        let limit = Rlimit { current: Some(wanted), maximum };
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit on open files stays at {current:?}");
        }
    }
    getrlimit(Resource::Nofile).current
}

/// As many as wanted, while strangers leave the rest of the node files to open.
fn connections(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return wanted };
    let most = files.saturating_sub(FILES_KEPT).max(files / 2);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if most < wanted {
        tracing::warn!("{files} open files are allowed, so at most {most} connections are taken");
    }
    wanted.min(most)
}

fn certificates(config: &Config) -> Result<Option<Arc<Certificates>>> {
    let server = &config.server;
    match (server.tls_cert.as_str(), server.tls_key.as_str()) {
        ("", "") => Ok(None),
        ("", _) | (_, "") => {
            let what = "server.tls_cert and server.tls_key belong together; set both";
            Err(Error::invalid("tls", what))
        }
        (cert, key) => Certificates::read(cert, key).map(Some),
    }
}

/// Samples are digested whether or not somebody scrapes them.
async fn digest(meter: api::Meter) {
    let mut every = tokio::time::interval(DIGEST_EVERY);
    loop {
        every.tick().await;
        meter.digest();
    }
}

async fn bind(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).await.map_err(|e| cannot_listen(at, &e))
}

fn cannot_listen(at: SocketAddr, error: &std::io::Error) -> Error {
    let what = match error.kind() {
        std::io::ErrorKind::AddrInUse => "somebody listens there already; stop it or use --listen",
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need rights; use --listen",
        _ => "use --listen with another address",
    };
    Error::invalid("listen", format!("cannot listen on {at}: {error}; {what}"))
}

/// The guard of handlers' processes, when there are such handlers.
fn host(config: &Config, url: &str) -> Result<Option<Arc<ExecHost>>> {
    if config.handlers.values().all(|handler| handler.exec.is_empty()) {
        return Ok(None);
    }
    let failed = |e: std::io::Error| {
        Error::invalid("start", "the guard of handlers' processes cannot be started").because(e)
    };
    let program = std::env::current_exe().map_err(failed)?;
    let argv = vec![program.display().to_string(), "guard".to_owned()];
    ExecHost::start(argv, owner_of(url)).map(Some).map_err(failed)
}
