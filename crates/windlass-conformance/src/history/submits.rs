//! Random submissions: single tasks and batches, keys from small pools so that
//! they meet, delays, deadlines, parents, repetitions, and wrong ones.

use super::{History, remember};
use crate::model::{Op, has_ended};
use rand::RngExt;
use std::time::Duration;
use windlass_core::children::Policy;
use windlass_core::error::Code;
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::store::Submitted;
use windlass_core::task::{ChildOf, IdempotencyKey, Kind, NewTask, QueueName, Start, Unique};

pub(super) fn queues() -> Vec<QueueName> {
    ["default", "mail", "media"].map(QueueName::trusted).to_vec()
}

pub(super) fn kinds() -> Vec<Kind> {
    ["a.one", "a.two", "b.one", "b.two"].map(Kind::trusted).to_vec()
}

impl History {
    pub(super) async fn submit(&mut self) -> Result<(), String> {
        let repeat = !self.submits.is_empty() && self.chance(10);
        let tasks = if repeat {
            let which = self.pick(self.submits.len());
            self.note("submit.again");
            self.submits[which].clone()
        } else {
            self.batch()
        };
        if tasks.iter().any(|new| self.model.draining.contains(&new.queue)) {
            self.note("submit.into_draining");
        }
        remember(&mut self.submits, tasks.clone());
        self.perform(Op::Submit(tasks)).await
    }

    fn batch(&mut self) -> Vec<NewTask> {
        let len = match self.dice(100) {
            0..2 => 0,
            2..60 => 1,
            60..95 => self.rng.random_range(2..5),
            _ => self.rng.random_range(5..12),
        };
        let mut tasks: Vec<NewTask> = (0..len).map(|_| self.new_task()).collect();
        if len > 0 && self.chance(6) {
            let bad = self.pick(len);
            self.spoil(&mut tasks[bad]);
        }
        tasks
    }

    pub(super) fn plain_task(&mut self) -> NewTask {
        let id = self.mint();
        let (kinds, queues) = (kinds(), queues());
        let kind = kinds[self.pick(kinds.len())].clone();
        let payload = Json::trusted(format!(r#"{{"n":{}}}"#, self.dice(1000)));
        let mut new = NewTask::new(id, kind, payload);
        new.queue = queues[self.pick(queues.len())].clone();
        new.priority = [0, 0, 0, 0, -10, -3, 5, 10][self.pick(8)];
        if self.chance(25) {
            let policies = [Policy::All, Policy::AllowErrors, Policy::FailFast, Policy::AtLeast(2)];
            new.extras_mut().children_policy = Some(policies[self.pick(4)]);
        }
        new
    }

    fn new_task(&mut self) -> NewTask {
        let mut new = self.plain_task();
        if self.chance(15) {
            new.start = match self.dice(3) {
                0 => Start::After(self.up_to(60_000)),
                1 => Start::At(self.now.minus(Duration::from_secs(5))),
                _ => Start::At(self.now.plus(self.up_to(30_000))),
            };
        }
        if self.chance(15) {
            new.deadline = Some(self.up_to(40_000));
        }
        if self.chance(12) {
            let steps = [vec![], vec!["s1", "s2"], vec!["s1", "s2", "s3"]];
            let steps = steps[self.pick(3)].iter().map(|s| (*s).to_owned()).collect();
            new.extras_mut().steps = Some(steps);
        }
        if self.chance(12) {
            new.idempotency = Some(IdempotencyKey {
                key: format!("idem-{}", self.dice(6)),
                body: u128::from(self.dice(20) / 19),
                ttl: Duration::from_secs(40),
            });
        }
        if self.chance(14) {
            let (pool, for_) = match self.chance(30) {
                true => ("for", Some(Duration::from_secs(50))),
                false => ("live", None),
            };
            let key = format!("{pool}-{}", self.dice(4));
            new.extras_mut().unique = Some(Unique { key, for_ });
        }
        if self.chance(12) {
            self.give_parent(&mut new);
        }
        new
    }

    fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(1..=ms))
    }

    fn give_parent(&mut self, new: &mut NewTask) {
        let parent = match self.dice(20) {
            0 => Some(TaskId::from_key(7)),
            1..3 => self.any_task(),
            _ => self.any_task().filter(|id| !has_ended(self.model.tasks[id].state)),
        };
        if let Some(parent) = parent {
            let key = match self.dice(4) {
                0 => format!("1:s1:{}", self.dice(3)),
                _ => new.id.to_string(),
            };
            new.child_of = Some(ChildOf { parent, key });
        }
    }

    pub(super) fn spoil(&mut self, new: &mut NewTask) {
        match self.dice(4) {
            0 => new.payload = Json::trusted("null"),
            1 => new.priority = 11,
            2 => new.extras_mut().unique = Some(Unique { key: String::new(), for_: None }),
            _ => new.extras_mut().steps = Some(vec!["s1".to_owned(), "s1".to_owned()]),
        }
    }

    pub(super) fn learn_submit(
        &mut self,
        tasks: &[NewTask],
        answer: &Result<Vec<Submitted>, Code>,
    ) {
        match answer {
            Err(code) => self.note(&format!("submit.{}", code.as_str())),
            Ok(items) => {
                for (item, new) in items.iter().zip(tasks) {
                    let child = if new.child_of.is_some() { ".child" } else { "" };
                    self.note(&match item {
                        Submitted::New { .. } => format!("submit.new{child}"),
                        Submitted::Replayed { .. } => "submit.replayed".to_owned(),
                        Submitted::Existing { .. } => format!("submit.existing{child}"),
                    });
                }
            }
        }
    }
}
