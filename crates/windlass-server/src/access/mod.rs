//! Who is let in: the gate every request goes through. It knows the tokens of the
//! store and of the file, finds the one a request shows, and says who the caller
//! is; what a route asks for is said by `api/rights.rs`. Without sign-in everybody
//! who reaches the loopback address is an administrator.

mod rate;
pub mod secret;
pub mod tokens_file;

use crate::api::problem::{Problem, ProblemCode};
use crate::config::{AuthConfig, AuthMode};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use parking_lot::{Mutex, RwLock};
use rate::Buckets;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokens_file::Stamp;
use windlass::core::access::{AccessToken, Role};
use windlass::{Engine, Error, Reader, Result, Timestamp};

/// How long a token that was revoked elsewhere may still work.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A refused sign-in is told of this often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Who sends a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The token's name.
    pub who: Arc<str>,
    pub role: Role,
    pub origin: IpAddr,
    pub expires_at: Option<Timestamp>,
    /// Which token it showed: another one of the same name is another caller.
    token: Option<Arc<str>>,
}

impl Caller {
    /// Who asks for what everybody may ask for.
    pub(crate) fn nobody(origin: IpAddr) -> Caller {
        Caller {
            who: Arc::from("anonymous"),
            role: Role::Viewer,
            origin,
            expires_at: None,
            token: None,
        }
    }
}

/// Put into each request by the envelope.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(unadmitted)
    }
}

/// A request that came around the gate. There is no such way; nothing is done.
pub(crate) fn unadmitted() -> Problem {
    Problem::new(ProblemCode::Unauthenticated, "the request did not come through the gate")
}

/// Lets requests in, or not.
#[derive(Debug)]
pub struct Gate {
    /// `None`: no sign-in.
    sign_in: Option<SignIn>,
    anonymous: Arc<str>,
}

#[derive(Debug)]
struct SignIn {
    file: PathBuf,
    buckets: Option<Buckets>,
    known: RwLock<Arc<Known>>,
    /// One looks, the others go by what is known.
    looking: tokio::sync::Mutex<()>,
    looked: Mutex<Instant>,
    told: Mutex<Option<Instant>>,
}

/// Where a token is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Store,
    File,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<String, (AccessToken, Arc<str>)>,
    of_file: Vec<AccessToken>,
    of_store: Vec<AccessToken>,
    /// Of the file that these were read from.
    stamp: Stamp,
}

impl Known {
    fn of(of_file: Vec<AccessToken>, of_store: Vec<AccessToken>, stamp: Stamp) -> Known {
        let all = of_store.iter().chain(&of_file).cloned();
        let by_id = all.map(|token| {
            let who = Arc::from(token.name.as_str());
            (token.id.clone(), (token, who))
        });
        Known { by_id: by_id.collect(), of_file, of_store, stamp }
    }
}

impl Gate {
    /// No sign-in; only for loopback.
    pub fn off() -> Gate {
        Gate { sign_in: None, anonymous: Arc::from("anonymous") }
    }

    /// The gate that the configuration asks for. With sign-in there must be a
    /// token, or nobody could ever come in.
    pub async fn open(engine: &Engine, auth: &AuthConfig) -> Result<Gate> {
        if auth.mode == AuthMode::Off {
            return Ok(Gate::off());
        }
        let sign_in = SignIn {
            file: PathBuf::from(&auth.tokens_file),
            buckets: auth.rate.0.map(Buckets::new),
            known: RwLock::default(),
            looking: tokio::sync::Mutex::default(),
            looked: Mutex::new(Instant::now()),
            told: Mutex::default(),
        };
        // What is wrong with it at the start is a reason not to start.
        tokens_file::read(&sign_in.file)?;
        sign_in.look(engine.reader()).await?;
        let now = engine.now();
        if sign_in.known().by_id.values().all(|(token, _)| token.is_expired(now)) {
            let file = &auth.tokens_file;
            return Err(Error::invalid(
                "auth",
                format!(
                    "auth.mode is \"token\" and there is no token that is valid; make one with \
                     `windlass token create admin --role admin --tokens-file {file}`"
                ),
            ));
        }
        Ok(Gate { sign_in: Some(sign_in), ..Gate::off() })
    }

    /// Whether callers have to show a token.
    pub fn asks(&self) -> bool {
        self.sign_in.is_some()
    }

    /// Who the caller is. `unauthenticated` without a valid token, `rate-limited`
    /// when it sends too much.
    pub async fn admit(
        &self,
        reader: &dyn Reader,
        headers: &HeaderMap,
        origin: IpAddr,
        now: Timestamp,
    ) -> Result<Caller, Problem> {
        let Some(sign_in) = &self.sign_in else {
            let who = self.anonymous.clone();
            return Ok(Caller { who, role: Role::Admin, origin, expires_at: None, token: None });
        };
        sign_in.look_if_due(reader).await;
        let found = bearer(headers).and_then(|text| sign_in.find(text, now));
        let (token, who) = found.inspect_err(|_| sign_in.tell_refused(origin))?;
        if let Some(buckets) = &sign_in.buckets
            && let Err(wait) = buckets.take(&token.id, Instant::now())
        {
            return Err(too_fast(&token.name, wait));
        }
        let AccessToken { id, role, expires_at, .. } = token;
        Ok(Caller { who, role, origin, expires_at, token: Some(Arc::from(id)) })
    }

    /// Counts what a caller says within one request that lasts.
    pub fn take_one(&self, caller: &Caller) -> Result<(), Problem> {
        let Some(sign_in) = &self.sign_in else { return Ok(()) };
        let Some(buckets) = &sign_in.buckets else { return Ok(()) };
        let known = sign_in.known();
        let shown = known.by_id.values().find(|(_, who)| **who == *caller.who);
        let taken = shown.map_or(Ok(()), |(token, _)| buckets.take(&token.id, Instant::now()));
        taken.map_err(|wait| too_fast(&caller.who, wait))
    }

    /// What was changed in the store by this process counts at once.
    pub async fn refresh(&self, reader: &dyn Reader) -> Result<()> {
        match &self.sign_in {
            Some(sign_in) => {
                // A look that began before the change must not have the last word.
                let _looking = sign_in.looking.lock().await;
                sign_in.look(reader).await
            }
            None => Ok(()),
        }
    }

    /// The tokens of the file, as far as they are known.
    pub fn of_file(&self) -> Vec<AccessToken> {
        self.sign_in.as_ref().map_or_else(Vec::new, |sign_in| sign_in.known().of_file.clone())
    }

    /// Whether what a caller showed is still good; for answers that last.
    pub async fn still_admits(&self, reader: &dyn Reader, caller: &Caller, now: Timestamp) -> bool {
        let Some(sign_in) = &self.sign_in else { return true };
        sign_in.look_if_due(reader).await;
        let known = sign_in.known();
        let shown = caller.token.as_ref().and_then(|id| known.by_id.get(&**id));
        shown.is_some_and(|(token, _)| token.role == caller.role && !token.is_expired(now))
    }
}

impl SignIn {
    fn known(&self) -> Arc<Known> {
        self.known.read().clone()
    }

    fn find(&self, text: &str, now: Timestamp) -> Result<(AccessToken, Arc<str>), Problem> {
        let known = self.known();
        let found = secret::id_of(text).and_then(|id| known.by_id.get(id));
        let fits = secret::is_token(text, found.map(|(token, _)| token.hash.as_str()));
        match found.filter(|_| fits) {
            Some((token, _)) if token.is_expired(now) => {
                Err(stranger(format!("the token `{}` has expired", token.name)))
            }
            Some((token, who)) => Ok((token.clone(), who.clone())),
            None => Err(stranger("this token is not known here; it may have been revoked")),
        }
    }

    async fn look_if_due(&self, reader: &dyn Reader) {
        if self.looked.lock().elapsed() < LOOK_EVERY {
            return;
        }
        let Ok(_looking) = self.looking.try_lock() else { return };
        if let Err(error) = self.look(reader).await {
            tracing::error!(%error, "tokens of the store cannot be read; those that are known stay");
        }
    }

    /// The file and the store do not depend on each other: one that cannot be read
    /// keeps nobody from hearing of the other.
    async fn look(&self, reader: &dyn Reader) -> Result<()> {
        *self.looked.lock() = Instant::now();
        let before = self.known();
        let stamp = tokens_file::stamp(&self.file);
        let of_file = match stamp == before.stamp {
            true => before.of_file.clone(),
            false => tokens_file::read(&self.file).unwrap_or_else(|error| {
                tracing::error!(%error, "the file of tokens cannot be read; its tokens stay as they were");
                before.of_file.clone()
            }),
        };
        let (of_store, read) = match reader.tokens().await {
            Ok(tokens) => (tokens, Ok(())),
            Err(error) => (before.of_store.clone(), Err(error)),
        };
        *self.known.write() = Arc::new(Known::of(of_file, of_store, stamp));
        read
    }

    /// Somebody tries tokens: said, but not as often as they try.
    fn tell_refused(&self, origin: IpAddr) {
        let mut told = self.told.lock();
        if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(%origin, "a request without a valid token was refused");
        }
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Err(stranger("this server asks for a token, and the request has none"));
    };
    if given.next().is_some() {
        return Err(stranger("the request has more than one Authorization header"));
    }
    let text = value.to_str().ok().and_then(|text| text.split_once(' '));
    let text = text.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    text.map(|(_, token)| token.trim())
        .ok_or_else(|| stranger("the Authorization header is not `Bearer` and a token"))
}

fn stranger(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemCode::Unauthenticated, detail)
}

fn too_fast(name: &str, wait: Duration) -> Problem {
    let detail = format!("the token `{name}` sends more requests than auth.rate allows");
    Problem::new(ProblemCode::RateLimited, detail)
        .retry_after(wait)
        .hint("wait as long as Retry-After says; auth.rate is in the server's configuration")
}
