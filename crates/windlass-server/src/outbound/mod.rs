//! The one way in which the server asks others over HTTP on behalf of tasks. A
//! name is resolved, its addresses are judged, and only those that pass are
//! connected to; a redirect is followed on the same server only. Proxies, cookies
//! and compression are not used. What a request means is its caller's business.

pub mod address;
mod names;
mod signature;
mod target;
mod trouble;

pub use address::Reach;
pub use names::{Lookup, SystemNames};
pub use signature::SigningSecret;
pub use target::Target;
pub use trouble::{Refused, Trouble};

use bytes::Bytes;
use names::GuardedNames;
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, redirect, retry};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use windlass::{Error, Result};

/// Longest wait for a connection, names included.
const CONNECT: Duration = Duration::from_secs(10);
/// Redirects of one request.
const REDIRECTS_MAX: usize = 3;
/// Connections to one server that wait for the next request, and how long.
const IDLE_MAX: usize = 16;
const IDLE_FOR: Duration = Duration::from_secs(30);
/// Headers of an answer; together they have at most some 400 KiB (hyper's).
const HEADERS_MAX: usize = 100;

/// A client with one reach. Clones share their connections.
#[derive(Clone)]
pub struct Outbound {
    client: Client,
    names: GuardedNames,
}

impl Outbound {
    pub fn new(reach: Reach) -> Result<Outbound> {
        Outbound::with(reach, SystemNames, [])
    }

    /// With another way to look up names, and with addresses that count as public
    /// whatever they are.
    pub fn with(
        reach: Reach,
        lookup: impl Lookup,
        except: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Outbound> {
        crate::tls::use_ring();
        let except = except.into_iter().collect();
        let names = GuardedNames { lookup: Arc::new(lookup), reach, except };
        let client = Client::builder()
            .dns_resolver(names.clone())
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .connect_timeout(CONNECT)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_idle_timeout(IDLE_FOR)
            .http1_max_headers(HEADERS_MAX)
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Error::invalid("start", "the HTTP client cannot be made").because(e))?;
        Ok(Outbound { client, names })
    }

    /// Posts `body` and waits for the head of the answer. Dropping the future
    /// closes the connection. How long it may take is the caller's to say.
    pub async fn post(
        &self,
        target: &Target,
        headers: &HeaderMap,
        body: Bytes,
    ) -> std::result::Result<Answer, Trouble> {
        let mut at = target.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(Method::POST, &at, headers, body.clone()).await?;
            let status = response.status();
            let Some(location) = location(&response) else {
                return Ok(Answer { host: at.host().to_owned(), response });
            };
            // Other redirects turn a POST into a GET, which is another request.
            if !matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
                let why = at.follow(&location).err().unwrap_or_else(|| {
                    format!("the answer is {status}, which does not keep a POST; use 307 or 308")
                });
                return Err(Trouble::Redirected(why));
            }
            at = at.follow(&location).map_err(Trouble::Redirected)?;
        }
        let why =
            format!("`{at}` redirects more than {REDIRECTS_MAX} times; name the last address");
        Err(Trouble::Redirected(why))
    }

    /// One request to one server.
    async fn send(
        &self,
        method: Method,
        to: &Target,
        headers: &HeaderMap,
        body: Bytes,
    ) -> std::result::Result<Response, Trouble> {
        // The client connects to an address without asking for names.
        if let Some(ip) = to.address()
            && let Some(place) = self.names.refuses(ip)
        {
            let host = to.host().to_owned();
            return Err(Trouble::Refused(Refused { host, ip, place }));
        }
        let request = self.client.request(method, to.url()).headers(headers.clone()).body(body);
        request.send().await.map_err(|e| Trouble::of(to.host(), &e))
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("reach", &self.names.reach).finish_non_exhaustive()
    }
}

/// Where the answer points to, when it points somewhere.
fn location(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection());
    location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The head of an answer; the body is still on its way.
#[derive(Debug)]
pub struct Answer {
    host: String,
    response: Response,
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The whole body, unless it has more than `max` bytes.
    pub async fn whole(mut self, max: usize) -> std::result::Result<Vec<u8>, Trouble> {
        let mut body = vec![];
        while let Some(part) = self.part().await? {
            if body.len() + part.len() > max {
                return Err(Trouble::TooLarge { max });
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    /// The beginning of the body, as much as came of it within the time.
    pub async fn beginning(mut self, max: usize, within: Duration) -> Vec<u8> {
        let mut body = vec![];
        let until = Instant::now() + within;
        while let Ok(Ok(Some(part))) = timeout_at(until, self.part()).await {
            body.extend_from_slice(&part[..part.len().min(max - body.len())]);
            if body.len() == max {
                break;
            }
        }
        body
    }

    async fn part(&mut self) -> std::result::Result<Option<Bytes>, Trouble> {
        self.response.chunk().await.map_err(|e| Trouble::of(&self.host, &e))
    }
}
