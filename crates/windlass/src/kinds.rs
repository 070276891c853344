//! What a node says about the kinds it serves, for lists and for whoever shows a
//! task's plan. Read from the registry as it was at the start; nothing here
//! changes anything.

use crate::engine::Engine;
use crate::registry::{Body, KindEntry};
use crate::settings::Pool;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::retry::RetryPolicy;
use windlass_core::task::{Kind, QueueName, Task};

/// A kind as this node serves it: its options over the engine's defaults.
#[derive(Debug, Clone)]
pub struct KindInfo {
    pub name: Kind,
    pub queue: QueueName,
    pub priority: i8,
    /// The plan; `None` for a kind in Rust, which names its steps as it goes.
    pub steps: Option<Vec<String>>,
    pub step_timeout: Duration,
    pub task_timeout: Duration,
    pub deadline: Option<Duration>,
    /// At most so many at once on this node; `None`: as its queues allow.
    pub concurrency: Option<usize>,
    pub pool: Pool,
    /// Shown by its `Debug`; it may be the user's own.
    pub retry: Arc<dyn RetryPolicy>,
    pub step_retry: Arc<dyn RetryPolicy>,
}

impl KindInfo {
    /// How many retries a task has, where the policy counts them.
    pub fn retries(&self) -> Option<u32> {
        self.retry.retries()
    }

    fn of(kind: &KindEntry) -> Self {
        let rules = &kind.rules;
        KindInfo {
            name: kind.kind.clone(),
            queue: rules.queue.clone(),
            priority: rules.priority,
            steps: plan(kind),
            step_timeout: rules.step_timeout,
            task_timeout: rules.task_timeout,
            deadline: rules.deadline,
            concurrency: rules.concurrency,
            pool: rules.pool,
            retry: rules.retry.clone(),
            step_retry: rules.step_retry.clone(),
        }
    }
}

fn plan(kind: &KindEntry) -> Option<Vec<String>> {
    match &kind.body {
        Body::Plan(steps) => Some(steps.to_vec()),
        Body::Typed(_) => None,
    }
}

impl Engine {
    /// The kinds this node serves, by name.
    pub fn kinds(&self) -> Vec<KindInfo> {
        let mut kinds: Vec<KindInfo> =
            self.parts.kinds.iter().map(|kind| KindInfo::of(kind)).collect();
        kinds.sort_by(|a, b| a.name.cmp(&b.name));
        kinds
    }

    /// Whether somebody runs tasks of this kind: this node, or a worker in another
    /// process that asked this node for them and is alive.
    pub fn serves(&self, kind: &str) -> bool {
        self.parts.registry.by_name(kind).is_some()
            || self.parts.remote.serves(kind, self.parts.clock.uptime())
    }

    /// How many retries tasks of this kind have, where the policy counts them.
    pub fn retries_of(&self, kind: &Kind) -> Option<u32> {
        self.parts.registry.rules_or_usual(kind).retry.retries()
    }

    /// The steps a task goes through: its own, or its kind's. `None` for kinds
    /// in Rust and for kinds that this node does not serve.
    pub fn plan_of(&self, task: &Task) -> Option<Vec<String>> {
        let own = task.steps().map(<[String]>::to_vec);
        own.or_else(|| plan(self.parts.registry.get(&task.kind)?))
    }
}
