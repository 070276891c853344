//! The configuration as types, one per table of `windlass.toml`, with the
//! contract's defaults. `layers.rs` makes a [`Config`] of files, environment and
//! flags; `check.rs` looks whether its parts fit together; `show.rs` prints it;
//! the server and `boot.rs` read it. Nothing here acts on a setting.

mod check;
mod choices;
mod file;
mod flags;
mod layers;
mod locate;
mod schema;
mod shape;
mod show;
mod suggest;
mod values;

pub use check::{Finding, Findings};
pub use choices::{
    AuthMode, CheckpointHome, OnMismatch, Pool, UiMode, UnknownErrors, UnknownKinds,
};
pub use flags::{FileFlags, Role};
pub use layers::{Loaded, Surroundings, load};
pub use locate::{ConfigError, Origin, Problem};
pub use show::{Origins, default_text, json, text};
pub use values::{Deadline, Listen, RateLimit, Secret, SecretUrl, Size, redact};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use windlass::{Exponential, QUEUE_SLOTS, Settings};
use windlass_core::clock::duration_text;
use windlass_core::limits::Rate;
use windlass_core::store::Retention;

/// Everything that can be set, with its value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: ServerConfig,
    pub store: StoreConfig,
    pub transport: TransportConfig,
    pub redis: RedisConfig,
    pub checkpoints: CheckpointConfig,
    pub defaults: DefaultsConfig,
    pub node: NodeConfig,
    pub shutdown: ShutdownConfig,
    pub retention: RetentionConfig,
    pub queues: BTreeMap<String, QueueConfig>,
    pub kinds: BTreeMap<String, KindConfig>,
    pub handlers: BTreeMap<String, HandlerConfig>,
    pub auth: AuthConfig,
    pub redact: RedactConfig,
    pub ui: UiConfig,
    /// What this process does; only a flag says so.
    #[serde(skip)]
    pub role: Role,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    pub listen: Listen,
    /// Largest body of a request.
    pub body_max: Size,
    /// Largest body of a bulk submission.
    pub bulk_max: Size,
    pub unknown_kinds: UnknownKinds,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: Listen(([127, 0, 0, 1], 7450).into()),
            body_max: Size::mib(16),
            bulk_max: Size::mib(64),
            unknown_kinds: UnknownKinds::Refuse,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    pub url: SecretUrl,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig { url: SecretUrl::new("sqlite://windlass.db") }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportConfig {
    pub url: SecretUrl,
}

impl Default for TransportConfig {
    fn default() -> Self {
        TransportConfig { url: SecretUrl::new("store:") }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Empty: none.
    pub url: SecretUrl,
}

impl Default for RedisConfig {
    fn default() -> Self {
        RedisConfig { url: SecretUrl::new("") }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    pub home: CheckpointHome,
    pub on_mismatch: OnMismatch,
}

/// What holds for every kind that says nothing itself, and for the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultsConfig {
    pub retry: Exponential,
    pub step_retry: Exponential,
    #[serde(with = "duration_text")]
    pub step_timeout: Duration,
    #[serde(with = "duration_text")]
    pub task_timeout: Duration,
    pub deadline: Deadline,
    #[serde(with = "duration_text")]
    pub idempotency_ttl: Duration,
    pub unknown_errors: UnknownErrors,
    pub payload_max: Size,
    #[serde(with = "duration_text")]
    pub cancel_grace: Duration,
    pub poison_limit: u32,
}

impl Default for DefaultsConfig {
    fn default() -> Self {
        let settings = Settings::default();
        DefaultsConfig {
            retry: Exponential::TASK,
            step_retry: Exponential::STEP,
            step_timeout: Duration::from_secs(5 * 60),
            task_timeout: Duration::from_secs(30 * 60),
            deadline: Deadline(None),
            idempotency_ttl: settings.idempotency_ttl,
            unknown_errors: UnknownErrors::Retry,
            payload_max: Size::bytes(settings.payload_max as u64),
            cancel_grace: settings.cancel_grace,
            poison_limit: settings.poison_limit,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    pub name: String,
    #[serde(with = "duration_text")]
    pub lease: Duration,
    #[serde(with = "duration_text")]
    pub poll: Duration,
    pub claim_max: usize,
    /// 0: one for each core.
    pub cpu_threads: usize,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let Settings { node_name, lease, poll, claim_max, cpu_threads, .. } = Settings::default();
        NodeConfig { name: node_name, lease, poll, claim_max, cpu_threads }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long running tasks may go on after SIGTERM.
    #[serde(with = "duration_text")]
    pub grace: Duration,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        ShutdownConfig { grace: Duration::from_secs(30) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    #[serde(with = "duration_text")]
    pub ended: Duration,
    #[serde(with = "duration_text")]
    pub dead_letters: Duration,
    #[serde(with = "duration_text")]
    pub events: Duration,
    #[serde(with = "duration_text")]
    pub audit: Duration,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        let Retention { ended, dead_letters, events, audit } = Retention::default();
        RetentionConfig { ended, dead_letters, events, audit }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Slots on this node.
    pub concurrency: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_max: Option<u64>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig { concurrency: QUEUE_SLOTS, depth_max: None }
    }
}

/// What a kind says itself; the rest is `[defaults]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KindConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Absent: one step, the handler of the kind's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    /// At most so many at once on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Exponential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_retry: Option<Exponential>,
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub step_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub task_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_errors: Option<UnknownErrors>,
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandlerConfig {
    /// Program and arguments; empty when it is `http`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exec: Vec<String>,
    /// The kind's step timeout when absent.
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub timeout: Option<Duration>,
    /// All the environment it gets, beside PATH and WINDLASS_*.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "show::shown_env")]
    pub env: BTreeMap<String, String>,
    /// Where each try is posted to.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "show::shown_http")]
    pub http: Option<SecretUrl>,
    /// Whether that may be loopback or a private address.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_private: bool,
    /// Signs what is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Sent with each request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "show::shown_headers")]
    pub headers: BTreeMap<String, String>,
}

/// Serde wants a reference.
fn is_false(flag: &bool) -> bool {
    !flag
}

impl fmt::Debug for HandlerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerConfig")
            .field("exec", &self.exec)
            .field("timeout", &self.timeout)
            .field("env", &show::env(&self.env))
            .field("http", &self.http.as_ref().map(show::http))
            .field("allow_private", &self.allow_private)
            .field("secret", &self.secret)
            .field("headers", &show::headers(&self.headers))
            .finish()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    pub mode: AuthMode,
    /// Where hashes of tokens are; the store has some too.
    pub tokens_file: String,
    /// Requests of one token.
    pub rate: RateLimit,
}

impl Default for AuthConfig {
    fn default() -> Self {
        let rate = Rate { count: 5000, per: Duration::from_secs(1) };
        AuthConfig {
            mode: AuthMode::Off,
            tokens_file: "tokens.toml".to_owned(),
            rate: RateLimit(Some(rate)),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedactConfig {
    /// Fields whose values only operators see.
    pub fields: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UiConfig {
    pub mode: UiMode,
}
