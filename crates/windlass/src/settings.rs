//! What can be set about an engine and about a kind. Options of a kind are all
//! optional; when the engine starts, each kind gets its [`KindRules`]: its own
//! options over the engine's defaults. Nothing here acts on a setting.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::checkpoint::OnMismatch;
use windlass_core::clock::check_duration;
use windlass_core::error::{Error, Result};
use windlass_core::lease::{LeaseTimes, PoisonRule};
use windlass_core::retry::{Exponential, RetryPolicy};
use windlass_core::settle::UnknownErrors;
use windlass_core::store::{CLAIM_MAX, Retention};
use windlass_core::task::{PAYLOAD_MAX, PRIORITY, QueueName};

/// Slots of a queue nobody said anything about.
pub const QUEUE_SLOTS: usize = 4;
/// Most slots of one queue on one node.
pub const SLOTS_MAX: usize = 100_000;

/// What to do with a kind that this node does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownKinds {
    /// Refuse the submission: this node's registry is complete.
    #[default]
    Refuse,
    /// Accept it; the task stays `queued` until a node serves its kind.
    Park,
}

/// Where a kind's code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pool {
    /// On the async runtime: code that waits.
    #[default]
    Io,
    /// On threads of its own, at most `cpu_threads`: code that computes or blocks.
    Cpu,
}

/// Settings of one engine. [`Settings::default`] is the contract's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Shown in lists of nodes.
    pub node_name: String,
    pub lease: Duration,
    /// How often the store is asked for work nobody announced.
    pub poll: Duration,
    pub claim_max: usize,
    /// Threads for [`Pool::Cpu`]; 0: one per core.
    pub cpu_threads: usize,
    /// How long a cancelled handler may take to stop by itself.
    pub cancel_grace: Duration,
    /// Crashes after which a task is poisoned; 0: never.
    pub poison_limit: u32,
    /// A task whose nodes died twice inside it waits until this node has lived
    /// so long without it: a node that dies earlier did not die of it.
    pub suspects_wait: Duration,
    pub payload_max: usize,
    pub unknown_kinds: UnknownKinds,
    pub idempotency_ttl: Duration,
    pub retention: Retention,
    /// For kinds that say nothing themselves.
    pub defaults: KindOptions,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            node_name: "windlass".to_owned(),
            lease: LeaseTimes::default().lease,
            poll: Duration::from_secs(1),
            claim_max: CLAIM_MAX,
            cpu_threads: 0,
            cancel_grace: Duration::from_secs(10),
            poison_limit: PoisonRule::default().limit,
            suspects_wait: Duration::from_secs(10),
            payload_max: PAYLOAD_MAX,
            unknown_kinds: UnknownKinds::Refuse,
            idempotency_ttl: Duration::from_secs(24 * 3600),
            retention: Retention::default(),
            defaults: KindOptions::default(),
        }
    }
}

impl Settings {
    pub(crate) fn times(&self) -> LeaseTimes {
        LeaseTimes { lease: self.lease }
    }

    pub(crate) fn cpu_slots(&self) -> usize {
        match self.cpu_threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid("settings", what.to_owned()));
        for (field, d) in [
            ("lease", self.lease),
            ("poll", self.poll),
            ("cancel_grace", self.cancel_grace),
            ("idempotency_ttl", self.idempotency_ttl),
        ] {
            check_duration(field, Some(d))?;
        }
        if self.lease < Duration::from_millis(30) {
            return refuse("lease is shorter than 30ms; a heartbeat needs a third of it");
        }
        if self.poll < Duration::from_millis(1) {
            return refuse("poll is shorter than 1ms");
        }
        if self.claim_max == 0 || self.claim_max > CLAIM_MAX {
            return refuse("claim_max must be 1 to 1000");
        }
        self.defaults.validate()
    }
}

/// Options of one kind; what is not set is the engine's default.
#[derive(Debug, Clone, Default)]
pub struct KindOptions {
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<i8>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) retry: Option<Arc<dyn RetryPolicy>>,
    pub(crate) step_retry: Option<Arc<dyn RetryPolicy>>,
    pub(crate) step_timeout: Option<Duration>,
    pub(crate) task_timeout: Option<Duration>,
    /// Said at all, and if so whether there is one.
    pub(crate) deadline: Option<Option<Duration>>,
    pub(crate) unknown_errors: Option<UnknownErrors>,
    pub(crate) pool: Option<Pool>,
    pub(crate) on_mismatch: Option<OnMismatch>,
}

impl KindOptions {
    pub fn new() -> Self {
        KindOptions::default()
    }

    /// The queue its tasks go to unless a submission says otherwise.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = Some(name.into());
        self
    }

    /// -10 to 10, higher first.
    pub fn priority(mut self, priority: i8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// At most so many at once on this node, whatever their queues allow.
    pub fn concurrency(mut self, max: usize) -> Self {
        self.concurrency = Some(max);
        self
    }

    /// When a failed task is tried again, through the store.
    pub fn retry(mut self, policy: impl RetryPolicy + 'static) -> Self {
        self.retry = Some(Arc::new(policy));
        self
    }

    /// The usual policy with another number of retries; 0 is allowed.
    pub fn retries(self, retries: u32) -> Self {
        self.retry(Exponential { retries, ..Exponential::TASK })
    }

    /// When a failed step is tried again at once, within its attempt.
    pub fn step_retry(mut self, policy: impl RetryPolicy + 'static) -> Self {
        self.step_retry = Some(Arc::new(policy));
        self
    }

    /// The usual policy of steps with another number of retries; 0 is allowed.
    pub fn step_retries(self, retries: u32) -> Self {
        self.step_retry(Exponential { retries, ..Exponential::STEP })
    }

    /// Longest run of one step; then it counts as a retryable error.
    pub fn step_timeout(mut self, longest: Duration) -> Self {
        self.step_timeout = Some(longest);
        self
    }

    /// Longest run of one attempt; then the task fails, without a retry.
    pub fn task_timeout(mut self, longest: Duration) -> Self {
        self.task_timeout = Some(longest);
        self
    }

    /// Not started within this time of being due: failed as `expired`.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.deadline = Some(Some(within));
        self
    }

    /// It may start however late it is, whatever the defaults say.
    pub fn no_deadline(mut self) -> Self {
        self.deadline = Some(None);
        self
    }

    /// Whether errors that say nothing about themselves are retried.
    pub fn unknown_errors(mut self, rule: UnknownErrors) -> Self {
        self.unknown_errors = Some(rule);
        self
    }

    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// What to do with a checkpoint that no longer fits the plan.
    pub fn on_mismatch(mut self, policy: OnMismatch) -> Self {
        self.on_mismatch = Some(policy);
        self
    }

    /// These options, and `defaults` where they are silent.
    pub(crate) fn over(&self, defaults: &KindOptions) -> Result<KindRules> {
        self.validate()?;
        let policy = |own: &Option<Arc<dyn RetryPolicy>>, default: &Option<_>, usual| {
            own.clone().or_else(|| default.clone()).unwrap_or_else(|| Arc::new(usual))
        };
        let queue = self.queue.as_ref().or(defaults.queue.as_ref());
        Ok(KindRules {
            queue: queue.map_or_else(|| Ok(QueueName::default()), |q| QueueName::new(q))?,
            priority: self.priority.or(defaults.priority).unwrap_or(0),
            concurrency: self.concurrency.or(defaults.concurrency),
            retry: policy(&self.retry, &defaults.retry, Exponential::TASK),
            step_retry: policy(&self.step_retry, &defaults.step_retry, Exponential::STEP),
            step_timeout: self
                .step_timeout
                .or(defaults.step_timeout)
                .unwrap_or(Duration::from_secs(300)),
            task_timeout: self
                .task_timeout
                .or(defaults.task_timeout)
                .unwrap_or(Duration::from_secs(1800)),
            deadline: self.deadline.or(defaults.deadline).flatten(),
            unknown_errors: self.unknown_errors.or(defaults.unknown_errors).unwrap_or_default(),
            pool: self.pool.or(defaults.pool).unwrap_or_default(),
            on_mismatch: self.on_mismatch.or(defaults.on_mismatch).unwrap_or_default(),
        })
    }

    fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid("register", what.to_owned()));
        if self.priority.is_some_and(|p| !PRIORITY.contains(&p)) {
            return refuse("priority is not within -10..10");
        }
        if self.concurrency == Some(0) {
            return refuse("a concurrency of 0 would never run; pause the queue instead");
        }
        for policy in [&self.retry, &self.step_retry].into_iter().flatten() {
            policy.check()?;
        }
        for (field, d) in [
            ("step_timeout", self.step_timeout),
            ("task_timeout", self.task_timeout),
            ("deadline", self.deadline.flatten()),
        ] {
            check_duration(field, d)?;
            if d == Some(Duration::ZERO) {
                return refuse(&format!("{field} of 0 leaves no time at all"));
            }
        }
        Ok(())
    }
}

/// What holds for a kind once the engine has started.
#[derive(Clone)]
pub(crate) struct KindRules {
    pub(crate) queue: QueueName,
    pub(crate) priority: i8,
    pub(crate) concurrency: Option<usize>,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) step_retry: Arc<dyn RetryPolicy>,
    pub(crate) step_timeout: Duration,
    pub(crate) task_timeout: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) unknown_errors: UnknownErrors,
    pub(crate) pool: Pool,
    pub(crate) on_mismatch: OnMismatch,
}

impl fmt::Debug for KindRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindRules").field("queue", &self.queue).finish_non_exhaustive()
    }
}
