//! Random writes about running tasks: steps, progress, children and every sort
//! of settlement, mixed with stale leases, old versions, writes for the wrong
//! state and exact repetitions.

use super::{History, remember};
use crate::model::Op;
use rand::RngExt;
use std::time::Duration;
use windlass_core::checkpoint::{StepOutcome, StepRecord, Version};
use windlass_core::children::Then;
use windlass_core::error::Code;
use windlass_core::json::Json;
use windlass_core::lease::{LeaseKey, Token};
use windlass_core::outcome::{Class, Outcome, Reason, StepRef, TaskError, WaitingOn};
use windlass_core::retry::{Exponential, Jitter};
use windlass_core::settle::{Attempted, Rules, Settlement, UnknownErrors, settle};
use windlass_core::state::State;
use windlass_core::store::{Write, Written};
use windlass_core::task::{ChildOf, Progress, Unique};

const RETRY: Exponential = Exponential {
    retries: 1,
    first: Duration::from_secs(3),
    factor: 2.0,
    cap: Duration::from_secs(60),
    jitter: 0.1,
};

/// What a write about a task must know of it.
#[derive(Debug, Clone, Copy)]
struct Held {
    run: u32,
    state: State,
    version: u64,
    retries: u32,
}

impl History {
    pub(super) async fn record(&mut self) -> Result<(), String> {
        let len = if self.chance(60) { 1 } else { self.rng.random_range(2..6) };
        let mut writes: Vec<Write> = vec![];
        for _ in 0..len {
            let write = if !self.writes.is_empty() && self.chance(12) {
                let which = self.pick(self.writes.len());
                self.writes[which].clone()
            } else {
                let Some(lease) = self.some_lease() else { continue };
                // Two writes of one batch about one task need rising versions.
                let earlier = writes.iter().filter(|w| w.lease.task == lease.task);
                let newest = earlier.flat_map(|w| &w.steps).map(|s| s.version.0).max();
                self.write(lease, newest)
            };
            writes.push(write);
        }
        if writes.is_empty() {
            return Ok(());
        }
        writes.iter().for_each(|w| remember(&mut self.writes, w.clone()));
        self.perform(Op::Record(writes)).await
    }

    fn some_lease(&mut self) -> Option<LeaseKey> {
        if !self.old_leases.is_empty() && self.chance(8) {
            let which = self.pick(self.old_leases.len());
            return Some(self.old_leases[which]);
        }
        let held = self.nodes.iter().flat_map(|p| p.held.iter().map(|(t, k)| (*t, p.id, *k)));
        let all: Vec<_> = held.map(|(task, node, token)| LeaseKey { task, node, token }).collect();
        if all.is_empty() {
            return None;
        }
        let lease = all[self.pick(all.len())];
        Some(match self.dice(40) {
            0 => LeaseKey { token: Token(lease.token.0 + 1), ..lease },
            1 => LeaseKey { node: self.any_node(), ..lease },
            _ => lease,
        })
    }

    fn write(&mut self, lease: LeaseKey, newest: Option<u64>) -> Write {
        let row = &self.model.tasks[&lease.task];
        let now =
            Held { run: row.run, state: row.state, version: row.version.0, retries: row.retries };
        let mut write = Write::new(lease);
        write.begins = self.chance(20);
        if self.chance(4) {
            write.keep_steps = Some((self.pick(4), "changed plan".to_owned()));
        }
        if self.chance(60) {
            write.steps = self.steps(now, newest);
        }
        if self.chance(10) {
            let total = 10;
            let done = u64::from(self.dice(10));
            write.progress = Some(Progress { done, total, note: None, data: None });
        }
        if self.chance(8) {
            self.add_children(&mut write, now);
        }
        if self.chance(45) {
            let waits = !write.children.is_empty() && self.chance(60);
            write.settle = Some(self.settlement(now, waits));
        }
        write
    }

    fn steps(&mut self, row: Held, newest: Option<u64>) -> Vec<StepRecord> {
        let mut version = newest.unwrap_or(row.version);
        if version > 0 && self.chance(5) {
            version -= 1;
        }
        let len = self.rng.random_range(1..4);
        let step = |_| {
            version += 1 + u64::from(self.chance(10));
            let outcome = match self.dice(10) {
                0..6 if row.state == State::RollingBack => StepOutcome::Undone,
                0..6 => StepOutcome::Done,
                6..7 => StepOutcome::Skipped,
                _ => StepOutcome::Failed,
            };
            let failed = outcome == StepOutcome::Failed;
            StepRecord {
                name: format!("s{}", self.rng.random_range(1..6)),
                outcome,
                version: Version(version),
                output: self.chance(50).then(|| Json::trusted(format!(r#"{{"v":{version}}}"#))),
                reason: (outcome != StepOutcome::Done).then(|| "because".to_owned()),
                class: failed.then_some(Class::Retryable),
                duration: Duration::from_millis(u64::from(self.dice(1000))),
                log: self.log(),
            }
        };
        (0..len).map(step).collect()
    }

    /// Seldom one, and seldom longer than stores keep.
    fn log(&mut self) -> Option<String> {
        let lines = match self.dice(100) {
            0..10 => 1,
            10 => 2000,
            _ => return None,
        };
        Some(format!("é{} failed\n", self.dice(1000)).repeat(lines))
    }

    fn add_children(&mut self, write: &mut Write, row: Held) {
        for index in 0..self.rng.random_range(1..4) {
            let mut child = self.plain_task();
            let key = format!("{}:s{}:{index}", row.run, self.rng.random_range(1..3));
            child.child_of = Some(ChildOf { parent: write.lease.task, key });
            if self.chance(10) {
                child.extras_mut().steps = Some(vec![]);
            }
            if self.chance(5) {
                let key = format!("live-{}", self.dice(4));
                child.extras_mut().unique = Some(Unique { key, for_: None });
            }
            write.children.push(child);
        }
        if self.chance(5) {
            self.spoil(&mut write.children[0]);
        }
    }

    fn settlement(&mut self, row: Held, waits: bool) -> Settlement {
        let wait = Outcome::Wait(WaitingOn::Children { then: Then::End });
        let outcome = if waits { wait } else { self.outcome() };
        let state = match (row.state, self.chance(4)) {
            (State::RollingBack, false) | (State::Running, true) => State::RollingBack,
            _ => State::Running,
        };
        let unknown_errors =
            if self.chance(20) { UnknownErrors::Fail } else { UnknownErrors::Retry };
        let retry = Exponential { retries: self.dice(3), ..RETRY };
        let rules = Rules { retry: &retry, unknown_errors };
        let jitter = Jitter::new(f64::from(self.dice(100)) / 100.0);
        settle(outcome, rules, Attempted { state, retries: row.retries }, self.now, jitter)
    }

    fn outcome(&mut self) -> Outcome {
        let until = self.now.plus(Duration::from_millis(u64::from(self.dice(30_000))));
        let step = self.chance(30).then(|| StepRef { name: "s1".to_owned(), index: 0 });
        match self.dice(100) {
            0..24 => Outcome::Done {
                output: self.chance(50).then(|| Json::trusted(format!("[{}]", self.dice(99)))),
            },
            24..32 => Outcome::Fail { reason: "gave up".to_owned(), step },
            32..52 => {
                let class = Class::ALL[self.pick(Class::ALL.len())];
                let mut error = TaskError::new(class, "it broke");
                error.retry_after = self.chance(20).then_some(Duration::from_secs(9));
                error.reason = self.chance(5).then_some(Reason::Undecodable);
                Outcome::Error(error)
            }
            52..55 => Outcome::Timeout { step },
            55..61 => Outcome::Snooze { until },
            61..64 => Outcome::Limited { name: "openai".to_owned(), until },
            64..80 => {
                let then = if self.chance(40) { Then::Resume } else { Then::End };
                Outcome::Wait(WaitingOn::Children { then })
            }
            80..81 => Outcome::Wait(WaitingOn::Signal { name: "go".to_owned() }),
            81..88 => Outcome::Release,
            88..91 => Outcome::Pause { why: "checkpoint".to_owned() },
            91..94 => Outcome::Cancelled,
            94..98 => Outcome::RollBack,
            _ => Outcome::RolledBack,
        }
    }

    pub(super) fn learn_record(
        &mut self,
        writes: &[Write],
        answer: &Result<Vec<Result<Written, Code>>, Code>,
    ) {
        let Ok(items) = answer else { return };
        for (write, item) in writes.iter().zip(items) {
            let word = match item {
                Ok(written) if written.repeated => "record.repeated",
                Ok(_) => "record.written",
                Err(code) => {
                    self.note(&format!("record.{}", code.as_str()));
                    ""
                }
            };
            if !word.is_empty() {
                self.note(word);
                self.report.add("record.steps", write.steps.len() as u64);
                self.report.add("record.children", write.children.len() as u64);
            }
            let lost = matches!(item, Err(Code::LeaseLost));
            let settled = item.is_ok() && write.settle.is_some();
            if lost || settled {
                self.drop_lease(write.lease);
            }
        }
    }

    fn drop_lease(&mut self, lease: LeaseKey) {
        let player = self.nodes.iter_mut().find(|p| p.id == lease.node);
        if let Some(player) = player {
            player.held.retain(|held| *held != (lease.task, lease.token));
        }
        remember(&mut self.old_leases, lease);
    }
}
