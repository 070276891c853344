//! From a host's name to addresses that may be connected to. The client connects
//! to what comes out of here and to nothing else, so there is no moment between
//! the look and the connection in which a name could change its meaning. How
//! names are looked up is a seam: tests bring a name server of their own.

use super::address::{Place, Reach};
use super::trouble::Refused;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use windlass::core::store::BoxFuture;

/// Longest wait for a name server.
const WITHIN: Duration = Duration::from_secs(10);
/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// How names are looked up.
pub trait Lookup: Send + Sync + 'static {
    /// All addresses of a name, judged by nobody yet.
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// As every program on this machine does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNames;

impl Lookup for SystemNames {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// What a client asks for addresses.
#[derive(Clone)]
pub(super) struct GuardedNames {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) reach: Reach,
    /// Addresses that count as public.
    pub(super) except: Arc<[IpAddr]>,
}

impl GuardedNames {
    /// Why an address may not be connected to, if so.
    pub(super) fn refuses(&self, ip: IpAddr) -> Option<Place> {
        self.reach.refuses(ip).filter(|_| !self.except.contains(&ip))
    }

    /// The addresses that may be connected to; an error when there is none.
    async fn addresses(
        self,
        name: String,
    ) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
        let found = tokio::time::timeout(WITHIN, self.lookup.lookup(name.clone()));
        let found = found.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let (open, closed): (Vec<IpAddr>, Vec<IpAddr>) =
            found.into_iter().partition(|ip| self.refuses(*ip).is_none());
        if let (true, Some(ip)) = (open.is_empty(), closed.first().copied())
            && let Some(place) = self.refuses(ip)
        {
            return Err(Box::new(Refused { host: name, ip, place }));
        }
        if open.is_empty() {
            return Err("the name has no address".into());
        }
        // The port is the URL's.
        Ok(Box::new(open.into_iter().take(ADDRESSES_MAX).map(|ip| SocketAddr::new(ip, 0))))
    }
}

impl Resolve for GuardedNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(self.clone().addresses(name.as_str().to_owned()))
    }
}
