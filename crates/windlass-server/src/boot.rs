//! From a configuration to an engine: opens the store, hands over settings,
//! queues, kinds and handlers, and brings the store's queues up to date. What a
//! handler does is its maker's business; serving the API comes after this.

use crate::config::{Config, Deadline, Finding, HandlerConfig, KindConfig};
use crate::handlers::Scrubbed;
use crate::redact::Redactor;
use std::sync::Arc;
use std::time::Duration;
use windlass::core::store::{BoxFuture, Retention};
use windlass::{
    Builder, Engine, Error, KindOptions, QueueChange, Result, Settings, StepCall, StepHandler,
    TaskError, Windlass,
};

/// An engine with everything the configuration says, not started yet.
/// `handlers` makes the handler of each `[handlers.NAME]`.
pub async fn engine_builder(
    config: &Config,
    handlers: impl Fn(&str, &HandlerConfig) -> Result<Arc<dyn StepHandler>>,
) -> Result<Builder> {
    let found = config.check();
    for warning in &found.warnings {
        tracing::warn!(key = warning.key.join("."), "{}", told(warning));
    }
    if let Some(error) = found.errors.first() {
        return Err(Error::invalid("config", told(error)));
    }
    let redactor = redactor(config)?;
    let mut builder = Windlass::open(config.store.url.expose()).await?;
    builder = builder.settings(|settings| apply(config, settings));
    for (name, queue) in &config.queues {
        builder = builder.queue(name, queue.concurrency);
    }
    for (name, handler) in &config.handlers {
        let made = Scrubbed::new(handlers(name, handler)?, redactor.clone());
        let made = Configured { handler: Arc::new(made), timeout: handler.timeout };
        builder = builder.handler(name, made);
    }
    for (name, kind) in &config.kinds {
        let steps = kind.steps.clone().unwrap_or_else(|| vec![name.clone()]);
        builder = builder.plan_with(name, steps, options(kind));
    }
    Ok(builder)
}

/// Writes the depth limits of configured queues into the store. A queue without
/// `depth_max` keeps what it has: a person may have set it.
pub async fn apply_queues(engine: &Engine, config: &Config) -> Result<()> {
    let stored = engine.reader().queues().await?;
    for (name, queue) in &config.queues {
        let known = stored.iter().find(|info| info.name.as_str() == name);
        if queue.depth_max.is_some() && known.and_then(|info| info.depth_max) != queue.depth_max {
            engine.change_queue(name, QueueChange::DepthMax(queue.depth_max)).await?;
        }
    }
    Ok(())
}

/// What the configuration hides.
pub fn redactor(config: &Config) -> Result<Redactor> {
    Redactor::new(&config.redact.fields).map_err(|wrong| Error::invalid("redact", wrong))
}

fn told(finding: &Finding) -> String {
    format!("{}; {}", finding.message, finding.hint)
}

fn apply(config: &Config, settings: &mut Settings) {
    let Config { defaults, node, retention, .. } = config;
    settings.node_name.clone_from(&node.name);
    settings.lease = node.lease;
    settings.poll = node.poll;
    settings.claim_max = node.claim_max;
    settings.cpu_threads = node.cpu_threads;
    settings.cancel_grace = defaults.cancel_grace;
    settings.poison_limit = defaults.poison_limit;
    settings.payload_max = defaults.payload_max.as_usize();
    settings.unknown_kinds = config.server.unknown_kinds.into();
    settings.idempotency_ttl = defaults.idempotency_ttl;
    settings.retention = Retention {
        ended: retention.ended,
        dead_letters: retention.dead_letters,
        events: retention.events,
        audit: retention.audit,
    };
    let mut options = KindOptions::new()
        .retry(defaults.retry)
        .step_retry(defaults.step_retry)
        .step_timeout(defaults.step_timeout)
        .task_timeout(defaults.task_timeout)
        .unknown_errors(defaults.unknown_errors.into())
        .on_mismatch(config.checkpoints.on_mismatch.into());
    if let Deadline(Some(within)) = defaults.deadline {
        options = options.deadline(within);
    }
    settings.defaults = options;
}

/// What the kind says itself.
fn options(kind: &KindConfig) -> KindOptions {
    let mut options = KindOptions::new();
    if let Some(queue) = &kind.queue {
        options = options.queue(queue);
    }
    if let Some(pool) = kind.pool {
        options = options.pool(pool.into());
    }
    if let Some(priority) = kind.priority {
        options = options.priority(priority);
    }
    if let Some(max) = kind.concurrency {
        options = options.concurrency(max);
    }
    if let Some(policy) = kind.retry {
        options = options.retry(policy);
    }
    if let Some(policy) = kind.step_retry {
        options = options.step_retry(policy);
    }
    if let Some(longest) = kind.step_timeout {
        options = options.step_timeout(longest);
    }
    if let Some(longest) = kind.task_timeout {
        options = options.task_timeout(longest);
    }
    if let Some(rule) = kind.unknown_errors {
        options = options.unknown_errors(rule.into());
    }
    match kind.deadline {
        Some(Deadline(Some(within))) => options.deadline(within),
        Some(Deadline(None)) => options.no_deadline(),
        None => options,
    }
}

/// A handler with the timeout that its table gives.
struct Configured {
    handler: Arc<dyn StepHandler>,
    timeout: Option<Duration>,
}

impl StepHandler for Configured {
    fn run(
        &self,
        call: StepCall,
    ) -> BoxFuture<'static, std::result::Result<serde_json::Value, TaskError>> {
        self.handler.run(call)
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout.or_else(|| self.handler.timeout())
    }

    fn stopping(&self) -> Duration {
        self.handler.stopping()
    }
}
