//! What a filter means: [`Filter::matches`] is the truth for every store. The
//! other functions answer what a match must at least be, so that a store can
//! load fewer rows; they may allow too much, never too little.

use super::{Comparison, Filter, NumberField, Op, Pattern, Term, Test, TextField};
use crate::clock::Timestamp;
use crate::id::TaskId;
use crate::state::State;
use crate::task::Task;
use std::time::Duration;

/// When matching tasks were made, both ends included; absent is open.
type Range = (Option<Timestamp>, Option<Timestamp>);

impl Filter {
    /// Whether every term holds for `task`.
    pub fn matches(&self, task: &Task, now: Timestamp) -> bool {
        self.terms.iter().all(|term| term.negated != term.test.holds(task, now))
    }

    /// The states a match can be in; `None` for any.
    pub fn states(&self) -> Option<Vec<State>> {
        let terms = self.terms.iter().filter_map(|t| match &t.test {
            Test::State(states) => Some((t.negated, states)),
            _ => None,
        });
        let terms: Vec<(bool, &Vec<State>)> = terms.collect();
        let allowed =
            |s: &State| terms.iter().all(|(negated, states)| *negated != states.contains(s));
        (!terms.is_empty()).then(|| State::ALL.into_iter().filter(allowed).collect())
    }

    /// The tasks a match can be; `None` for any.
    pub fn ids(&self) -> Option<Vec<TaskId>> {
        self.common(|test| if let Test::Id(ids) = test { Some(ids) } else { None })
    }

    /// The tasks whose child a match can be; `None` for any, or none at all.
    pub fn parents(&self) -> Option<Vec<TaskId>> {
        self.common(|test| if let Test::Parent(ids) = test { Some(ids) } else { None })
    }

    /// What all terms of one sort have in common, negated ones left aside.
    fn common<'a>(
        &'a self,
        pick: impl Fn(&'a Test) -> Option<&'a Vec<TaskId>>,
    ) -> Option<Vec<TaskId>> {
        let mut lists = self.terms.iter().filter(|t| !t.negated).filter_map(|t| pick(&t.test));
        let mut common = lists.next()?.clone();
        for list in lists {
            common.retain(|id| list.contains(id));
        }
        common.sort_unstable();
        common.dedup();
        Some(common)
    }

    /// The first and the last instant at which a match can have been made.
    pub fn created_range(&self, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
        self.terms.iter().fold((None, None), |range, term| both(range, term.created_range(now)))
    }
}

impl Term {
    fn created_range(&self, now: Timestamp) -> Range {
        let since = |op, value| age_range(&Comparison { op, value }, now);
        match (&self.test, self.negated) {
            (Test::Age(any), false) => {
                any.iter().map(|c| age_range(c, now)).reduce(either).unwrap_or_default()
            }
            (Test::Age(none), true) => {
                let ranges = none.iter().map(|c| since(c.op.opposite(), c.value));
                ranges.reduce(both).unwrap_or_default()
            }
            (Test::Since(d), false) => since(Op::AtMost, *d),
            (Test::Since(d), true) => since(Op::Greater, *d),
            _ => (None, None),
        }
    }
}

/// A task from the future has age zero: `>= 0s` bounds nothing.
fn age_range(age: &Comparison<Duration>, now: Timestamp) -> Range {
    let micros = i64::try_from(age.value.as_micros()).ok();
    let cut = micros.and_then(|us| now.as_micros().checked_sub(us)).map(Timestamp::from_micros);
    match age.op {
        Op::AtLeast if age.value.is_zero() => (None, None),
        Op::Greater | Op::AtLeast => (None, cut),
        Op::Less | Op::AtMost => (cut, None),
        Op::Equal => (None, None),
    }
}

fn both(a: Range, b: Range) -> Range {
    let from = a.0.max(b.0);
    let to = match (a.1, b.1) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    (from, to)
}

fn either(a: Range, b: Range) -> Range {
    (a.0.zip(b.0).map(|(a, b)| a.min(b)), a.1.zip(b.1).map(|(a, b)| a.max(b)))
}

impl Test {
    fn holds(&self, task: &Task, now: Timestamp) -> bool {
        let standing = &task.standing;
        let extras = task.extras.as_deref();
        let among = |ids: &[TaskId], id: Option<TaskId>| id.is_some_and(|id| ids.contains(&id));
        match self {
            Test::State(states) => states.contains(&standing.state),
            Test::Id(ids) => ids.contains(&task.id),
            Test::Parent(ids) => among(ids, task.parent),
            Test::RerunOf(ids) => among(ids, extras.and_then(|e| e.rerun_of)),
            Test::Node(ids) => standing.node.is_some_and(|node| ids.contains(&node)),
            Test::Text(field, patterns) => {
                field.of(task).is_some_and(|text| patterns.iter().any(|p| p.matches(text)))
            }
            Test::ErrorHas(texts) => TextField::Error.of(task).is_some_and(|message| {
                let message = folded(message);
                texts.iter().any(|text| message.contains(&folded(text)))
            }),
            Test::Number(field, any) => any.iter().any(|c| c.op.holds(&field.of(task), &c.value)),
            Test::Age(any) => {
                let age = now.since(task.created_at);
                any.iter().any(|c| c.op.holds(&age, &c.value))
            }
            Test::Since(d) => now.since(task.created_at) <= *d,
        }
    }
}

impl TextField {
    fn of<'a>(&self, task: &'a Task) -> Option<&'a str> {
        let extras = task.extras.as_deref();
        let failure = task.standing.failure.as_ref();
        match self {
            TextField::Queue => Some(task.queue.as_str()),
            TextField::Kind => Some(task.kind.as_str()),
            TextField::Label(name) => task.label(name),
            TextField::Error => Some(failure?.error.message.as_str()),
            TextField::Reason => Some(failure?.reason?.as_str()),
            TextField::Class => Some(failure?.error.class.as_str()),
            TextField::Step => Some(failure?.error.step.as_ref()?.name.as_str()),
            TextField::Correlation => extras?.correlation_id.as_deref(),
            TextField::User => extras?.user_id.as_deref(),
        }
    }
}

impl NumberField {
    fn of(self, task: &Task) -> i64 {
        match self {
            NumberField::Attempt => i64::from(task.standing.attempt),
            NumberField::Run => i64::from(task.standing.run),
            NumberField::Priority => i64::from(task.priority),
            NumberField::Retries => i64::from(task.standing.retries),
        }
    }
}

impl Op {
    fn holds<T: PartialOrd>(self, left: &T, right: &T) -> bool {
        match self {
            Op::Greater => left > right,
            Op::AtLeast => left >= right,
            Op::Less => left < right,
            Op::AtMost => left <= right,
            Op::Equal => left == right,
        }
    }

    /// What holds when this does not. Ages are never compared with `=`.
    fn opposite(self) -> Op {
        match self {
            Op::Greater => Op::AtMost,
            Op::AtLeast => Op::Less,
            Op::Less => Op::AtLeast,
            Op::AtMost => Op::Greater,
            Op::Equal => Op::Equal,
        }
    }
}

impl Pattern {
    /// Taking the first place where each inner part fits is enough: a later one
    /// leaves less room for the parts after it.
    pub fn matches(&self, text: &str) -> bool {
        let [first, inner @ .., last] = self.parts.as_slice() else {
            return self.exact() == Some(text);
        };
        let Some(rest) = text.strip_prefix(first.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
        for part in inner {
            let Some(i) = rest.find(part.as_str()) else { return false };
            rest = &rest[i + part.len()..];
        }
        true
    }
}

/// Letter by letter, unlike `str::to_lowercase`, whose final sigma would make a
/// part of a word differ from the word.
fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}
