//! What is measured about the tasks of one kind in one queue. Each handle is
//! made when it is first needed and kept, so that counting builds no key. The
//! parts of the engine call it where the store's answer is known; this file
//! knows neither.

use super::names;
use metrics::{Counter, Histogram, counter, histogram};
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;
use windlass_core::outcome::{Class, Reason};
use windlass_core::settle::Settlement;
use windlass_core::state::State;
use windlass_core::store::AttemptEnd;

/// Handles by the place of a word in its list.
type Row<T, const N: usize> = [OnceLock<T>; N];

const STATES: usize = State::ALL.len();
/// Beside the states: lost, given back.
const ENDS: usize = STATES + 2;

pub(crate) struct Pair {
    kind: String,
    queue: String,
    submitted: OnceLock<Counter>,
    waited: OnceLock<Histogram>,
    taken_over: OnceLock<Counter>,
    attempts: Row<(Counter, Histogram), ENDS>,
    whole: Row<Histogram, STATES>,
    retries: Row<Counter, { Class::ALL.len() }>,
    dead: Row<Counter, { Reason::ALL.len() }>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("kind", &self.kind)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Pair {
    pub(super) fn new(kind: &str, queue: &str) -> Self {
        Pair {
            kind: kind.to_owned(),
            queue: queue.to_owned(),
            submitted: OnceLock::new(),
            waited: OnceLock::new(),
            taken_over: OnceLock::new(),
            attempts: [const { OnceLock::new() }; ENDS],
            whole: [const { OnceLock::new() }; STATES],
            retries: [const { OnceLock::new() }; Class::ALL.len()],
            dead: [const { OnceLock::new() }; Reason::ALL.len()],
        }
    }

    fn labels(&self) -> [(&'static str, String); 2] {
        [("kind", self.kind.clone()), ("queue", self.queue.clone())]
    }

    fn labels_and(&self, name: &'static str, word: &str) -> [(&'static str, String); 3] {
        let [kind, queue] = self.labels();
        [kind, queue, (name, word.to_owned())]
    }

    /// Shows the counters that need no other label, at zero.
    pub(super) fn begin(&self) {
        self.submissions();
        self.takeovers();
    }

    fn submissions(&self) -> &Counter {
        self.submitted.get_or_init(|| counter!(names::TASKS_SUBMITTED, &self.labels()))
    }

    fn takeovers(&self) -> &Counter {
        let made = || counter!(names::LEASES_EXPIRED, "queue" => self.queue.clone());
        self.taken_over.get_or_init(made)
    }

    /// A task was newly written. One without work has ended by that.
    pub(crate) fn submitted(&self, state: State) {
        self.submissions().increment(1);
        if state.is_ended() {
            self.lived(state, Duration::ZERO);
        }
    }

    /// A claim found a task that was due for so long.
    pub(crate) fn waited(&self, time: Duration) {
        let made = || histogram!(names::TASK_WAIT_DURATION, &self.labels());
        self.waited.get_or_init(made).record(time);
    }

    pub(crate) fn taken_over(&self) {
        self.takeovers().increment(1);
    }

    /// An attempt was lost with its lease.
    pub(crate) fn lost(&self, took: Duration) {
        self.ended(AttemptEnd::Lost, took);
    }

    /// The end of an attempt is in the store, which chose `state` among what
    /// the settlement offered. `age`: of the task.
    pub(crate) fn settled(
        &self,
        settlement: &Settlement,
        state: State,
        took: Duration,
        age: Duration,
    ) {
        self.ended(AttemptEnd::Settled(state), took);
        if state.is_ended() {
            self.lived(state, age);
        }
        let Some(verdict) = settlement.verdicts().find(|v| v.to == state) else { return };
        let Some(failure) = &verdict.failure else { return };
        if verdict.burns_retry {
            self.retried(failure.error.class);
        }
        if let (State::Failed, Some(reason)) = (state, failure.reason) {
            self.buried(reason);
        }
    }

    fn ended(&self, end: AttemptEnd, took: Duration) {
        let (place, word) = match end {
            AttemptEnd::Settled(state) => (state as usize, state.as_str()),
            AttemptEnd::Lost => (STATES, "lost"),
            AttemptEnd::GivenBack => (STATES + 1, "given_back"),
        };
        let (count, times) = self.attempts[place].get_or_init(|| {
            let labels = self.labels_and("outcome", word);
            let count = counter!(names::TASK_ATTEMPTS, &labels);
            (count, histogram!(names::TASK_RUN_DURATION, &labels))
        });
        count.increment(1);
        times.record(took);
    }

    fn lived(&self, state: State, age: Duration) {
        let labels = || self.labels_and("outcome", state.as_str());
        let made = || histogram!(names::TASK_TOTAL_DURATION, &labels());
        self.whole[state as usize].get_or_init(made).record(age);
    }

    fn retried(&self, class: Class) {
        let labels = || self.labels_and("reason", class.as_str());
        let made = || counter!(names::TASK_RETRIES, &labels());
        self.retries[class as usize].get_or_init(made).increment(1);
    }

    fn buried(&self, reason: Reason) {
        let labels = || self.labels_and("reason", reason.as_str());
        let made = || counter!(names::DEAD_LETTERS_ENTERED, &labels());
        self.dead[reason as usize].get_or_init(made).increment(1);
    }
}
