//! What a task is: how it is asked for ([`NewTask`]), what never changes about
//! it, and the whole as readers see it ([`Task`]). What does change lives in
//! [`Standing`], whose rules are in `standing.rs`. This file validates input;
//! it decides nothing about time, retries or leases.

use crate::children::Policy;
use crate::clock::{Timestamp, check_duration, duration_text};
use crate::error::{Code, Error, Result};
use crate::id::TaskId;
use crate::json::Json;
use crate::retry::Exponential;
use crate::standing::Standing;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Longest name, key or label value users may give.
pub const NAME_MAX: usize = 200;
/// Longest address of an input.
pub const URI_MAX: usize = 2048;
/// Most labels on one task.
pub const LABELS_MAX: usize = 32;
/// Most steps in one declared plan.
pub const STEPS_MAX: usize = 256;
/// Most tasks in one submit call.
pub const SUBMIT_MAX: usize = 10_000;
/// Largest payload unless configured otherwise.
pub const PAYLOAD_MAX: usize = 1024 * 1024;
/// The range of priorities; higher runs first.
pub const PRIORITY: std::ops::RangeInclusive<i8> = -10..=10;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: &str) -> Result<Self> {
                check_name($field, text)?;
                Ok($name(text.into()))
            }

            /// For names read back from a store.
            pub fn trusted(text: impl Into<Arc<str>>) -> Self {
                $name(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                $name::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name_type!(
    /// The stable name of what to run, e.g. `image.resize`.
    Kind,
    "kind"
);
name_type!(
    /// A named lane with its own concurrency, limits and pause.
    QueueName,
    "queue"
);

impl Default for QueueName {
    fn default() -> Self {
        static NAME: LazyLock<QueueName> = LazyLock::new(|| QueueName("default".into()));
        NAME.clone()
    }
}

fn check_name(field: &'static str, text: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/');
    if text.is_empty() || text.len() > NAME_MAX || !text.chars().all(good) {
        let shape = "use 1 to 200 letters, digits and . _ - : /";
        return Err(Error::invalid(
            "submit",
            format!("{field} `{text:.40}` is not a name; {shape}"),
        ));
    }
    Ok(())
}

/// A rule about tasks that have not ended, or that were made lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unique {
    pub key: String,
    /// Absent: among tasks that have not ended. Otherwise for this long from
    /// the submission, whether the task has ended or not.
    #[serde(default, rename = "for", with = "duration_text::optional")]
    pub for_: Option<Duration>,
}

/// Repeats of a submission with this key get the first answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// Hash of the whole submission, made by whoever received it.
    pub body: u128,
    pub ttl: Duration,
}

/// An object a task works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Overrides of the kind's timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    #[serde(default, with = "duration_text::optional")]
    pub step: Option<Duration>,
    #[serde(default, with = "duration_text::optional")]
    pub task: Option<Duration>,
}

/// What only some tasks have. Stored as one column that is empty for most.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Extras {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A declared plan; without one the kind's own applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children_policy: Option<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Exponential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<TaskId>,
}

/// When a task may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    #[default]
    Now,
    At(Timestamp),
    After(Duration),
}

/// The parent of a child task, and what makes the child unique under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildOf {
    pub parent: TaskId,
    /// `run:step:index` for children of a step; the child's own id otherwise.
    pub key: String,
}

/// A task that somebody asks for. The id is made before the insert, so that a
/// submit whose answer was lost can be repeated safely.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    pub id: TaskId,
    pub kind: Kind,
    pub queue: QueueName,
    pub payload: Json,
    pub priority: i8,
    pub start: Start,
    /// Not started within this time of being due: expired.
    pub deadline: Option<Duration>,
    pub child_of: Option<ChildOf>,
    pub idempotency: Option<IdempotencyKey>,
    pub extras: Option<Arc<Extras>>,
}

impl NewTask {
    pub fn new(id: TaskId, kind: Kind, payload: Json) -> Self {
        NewTask {
            id,
            kind,
            queue: QueueName::default(),
            payload,
            priority: 0,
            start: Start::Now,
            deadline: None,
            child_of: None,
            idempotency: None,
            extras: None,
        }
    }

    /// The rare fields, made on first use.
    pub fn extras_mut(&mut self) -> &mut Extras {
        Arc::make_mut(self.extras.get_or_insert_with(Arc::default))
    }

    pub fn unique(&self) -> Option<&Unique> {
        self.extras.as_ref()?.unique.as_ref()
    }

    pub fn correlation_id(&self) -> Option<&str> {
        self.extras.as_ref()?.correlation_id.as_deref()
    }

    /// The state a task is born in, and when it is due. An empty plan is
    /// finished work; a start in the future waits for its time.
    pub fn birth(&self, now: Timestamp) -> (State, Timestamp) {
        let due = match self.start {
            Start::Now => now,
            Start::At(at) => at,
            Start::After(delay) => now.plus(delay),
        };
        let plan = self.extras.as_ref().and_then(|e| e.steps.as_ref());
        match plan {
            Some(steps) if steps.is_empty() => (State::Completed, now),
            _ if due > now => (State::Scheduled, due),
            _ => (State::Queued, now),
        }
    }

    /// Checks every field; the error names the field and what to do.
    pub fn validate(&self, payload_max: usize) -> Result<()> {
        let refuse = |message: String| Err(Error::invalid("submit", message));
        check_payload(&self.payload, payload_max)?;
        if !PRIORITY.contains(&self.priority) {
            return refuse(format!("priority {} is not within -10..10", self.priority));
        }
        if let Some(idem) = &self.idempotency {
            check_text("idempotency_key", &idem.key)?;
        }
        self.extras.as_ref().map_or(Ok(()), |extras| extras.validate())
    }
}

impl Extras {
    fn validate(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::invalid("submit", message));
        if self.labels.len() > LABELS_MAX {
            return refuse(format!("{} labels, at most {LABELS_MAX}", self.labels.len()));
        }
        for (name, value) in &self.labels {
            check_name("label", name)?;
            check_text("label value", value)?;
        }
        if let Some(unique) = &self.unique {
            check_text("unique.key", &unique.key)?;
            check_duration("unique.for", unique.for_)?;
        }
        if let Some(retry) = &self.retry {
            retry.validate()?;
        }
        if let Some(timeouts) = &self.timeouts {
            check_duration("timeouts.step", timeouts.step)?;
            check_duration("timeouts.task", timeouts.task)?;
        }
        for (field, text) in [
            ("correlation_id", &self.correlation_id),
            ("user_id", &self.user_id),
            ("trace", &self.trace),
            ("limit_key", &self.limit_key),
        ] {
            text.as_ref().map_or(Ok(()), |text| check_text(field, text))?;
        }
        if self.input.as_ref().is_some_and(|i| i.uri.is_empty() || i.uri.len() > URI_MAX) {
            return refuse(format!("input.uri must have 1 to {URI_MAX} characters"));
        }
        let Some(steps) = &self.steps else { return Ok(()) };
        if steps.len() > STEPS_MAX {
            return refuse(format!("{} steps, at most {STEPS_MAX}", steps.len()));
        }
        for (i, step) in steps.iter().enumerate() {
            check_name("step", step)?;
            if steps[..i].contains(step) {
                return refuse(format!("step `{step}` stands twice in steps"));
            }
        }
        Ok(())
    }
}

/// The trace's id in a W3C `traceparent`: `00-<32 hex>-<16 hex>-<2 hex>`, not
/// all zeros.
pub fn trace_id(traceparent: &str) -> Option<&str> {
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let id = |part: &str, len: usize| hex(part, len) && part.bytes().any(|b| b != b'0');
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let fits = version == "00" && id(trace, 32) && id(span, 16) && hex(flags, 2);
    (fits && parts.next().is_none()).then_some(trace)
}

/// Refuses a payload that is too large, and `null`, which is none.
pub fn check_payload(payload: &Json, payload_max: usize) -> Result<()> {
    check_payload_size(payload.as_str().len(), payload_max)?;
    if payload.is_null() {
        let message = "payload is null; leave it out or give a JSON value";
        return Err(Error::invalid("submit", message));
    }
    Ok(())
}

/// The same before a payload is copied for the first time.
pub fn check_payload_size(size: usize, payload_max: usize) -> Result<()> {
    if size <= payload_max {
        return Ok(());
    }
    let message = format!(
        "payload has {size} bytes, at most {payload_max} are allowed; \
         keep large data elsewhere and pass its address"
    );
    Err(Error::new(Code::PayloadTooLarge, "submit", message))
}

fn check_text(field: &'static str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > NAME_MAX || text.chars().any(char::is_control) {
        let shape = "use 1 to 200 characters without control characters";
        return Err(Error::invalid(
            "submit",
            format!("{field} `{text:.40}` is not usable; {shape}"),
        ));
    }
    Ok(())
}

/// How far a task has come, as it says itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Hash)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

/// A task as readers see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub id: TaskId,
    pub kind: Kind,
    pub queue: QueueName,
    pub payload: Json,
    pub priority: i8,
    pub parent: Option<TaskId>,
    pub extras: Option<Arc<Extras>>,
    pub created_at: Timestamp,
    /// Not started by then: expired.
    pub deadline: Option<Timestamp>,
    pub standing: Standing,
}

impl Task {
    /// A task at the moment of its birth.
    pub fn born(new: &NewTask, now: Timestamp) -> Task {
        let (state, due) = new.birth(now);
        Task {
            id: new.id,
            kind: new.kind.clone(),
            queue: new.queue.clone(),
            payload: new.payload.clone(),
            priority: new.priority,
            parent: new.child_of.as_ref().map(|c| c.parent),
            extras: new.extras.clone(),
            created_at: now,
            deadline: new.deadline.map(|d| due.plus(d)),
            standing: Standing::born(state, due, now),
        }
    }

    pub fn state(&self) -> State {
        self.standing.state
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.extras.iter().flat_map(|e| e.labels.iter()).map(|(k, v)| (k.as_str(), v.as_str()))
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.extras.as_ref()?.labels.get(name).map(String::as_str)
    }

    /// The trace it belongs to.
    pub fn trace_id(&self) -> Option<&str> {
        trace_id(self.extras.as_ref()?.trace.as_deref()?)
    }

    /// The declared plan, if the task was submitted with one.
    pub fn steps(&self) -> Option<&[String]> {
        self.extras.as_ref()?.steps.as_deref()
    }

    pub fn card(&self) -> Card {
        Card {
            id: self.id,
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            parent: self.parent,
            unique: self.extras.as_ref().is_some_and(|e| e.unique.is_some()),
            correlation_id: self
                .extras
                .as_ref()
                .and_then(|e| e.correlation_id.as_deref())
                .map(Arc::from),
        }
    }

    /// A new task that does the same work again, linked to this one. Keys are
    /// not copied: they belong to the first submission.
    pub fn rerun(&self, id: TaskId) -> NewTask {
        let mut again = NewTask::new(id, self.kind.clone(), self.payload.clone());
        again.queue = self.queue.clone();
        again.priority = self.priority;
        again.extras = self.extras.clone();
        let extras = again.extras_mut();
        extras.unique = None;
        extras.rerun_of = Some(self.id);
        again
    }
}

/// The few words about a task that its events and its ending need. Stores keep
/// them with the lease, so that ending a task does not read its payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    pub id: TaskId,
    pub kind: Kind,
    pub queue: QueueName,
    pub priority: i8,
    pub parent: Option<TaskId>,
    /// Holds a unique key that may have to be given back.
    pub unique: bool,
    pub correlation_id: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> NewTask {
        NewTask::new(TaskId::from_key(1), Kind::new("a.b").unwrap(), Json::default())
    }

    const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn only_a_w3c_traceparent_has_a_trace_id() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let whole = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(trace_id(&whole), Some(trace));
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            trace.to_owned(),
            format!("{whole}-00"),
            whole.to_uppercase(),
            whole.replacen("00-", "ff-", 1),
            whole.replace(trace, &zeros),
            whole.replace("00f067aa0ba902b7", &zeros[..16]),
            whole.replace("-01", "-1"),
        ] {
            assert_eq!(trace_id(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_trace_is_known_by_its_traceparent() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let zero = "0".repeat(32);
        for (trace, expected) in [
            (format!("00-{id}-00f067aa0ba902b7-01"), Some(id)),
            (format!("00-{zero}-00f067aa0ba902b7-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", &id[1..]), None),
            (format!("00-{}z-00f067aa0ba902b7-01", &id[1..]), None),
            (id.to_owned(), None),
            ("x".to_owned(), None),
        ] {
            let mut new = task();
            new.extras_mut().trace = Some(trace.clone());
            assert_eq!(Task::born(&new, T).trace_id(), expected, "{trace}");
        }
        assert_eq!(Task::born(&task(), T).trace_id(), None);
    }

    #[test]
    fn birth_follows_start_and_plan() {
        let mut new = task();
        assert_eq!(new.birth(T), (State::Queued, T));
        new.start = Start::At(T.minus(Duration::from_secs(9)));
        assert_eq!(new.birth(T), (State::Queued, T));
        new.start = Start::After(Duration::from_secs(9));
        assert_eq!(new.birth(T), (State::Scheduled, T.plus(Duration::from_secs(9))));
        new.extras_mut().steps = Some(vec![]);
        assert_eq!(new.birth(T), (State::Completed, T));
    }

    #[test]
    fn every_bad_field_is_named() {
        type Spoil = fn(&mut NewTask);
        let table: [(Spoil, &str); 8] = [
            (|t| t.payload = Json::trusted("null"), "payload is null"),
            (|t| t.payload = Json::trusted("1".repeat(PAYLOAD_MAX + 1)), "payload has"),
            (|t| t.priority = 11, "priority 11"),
            (|t| t.extras_mut().steps = Some(vec!["a".into(), "a".into()]), "stands twice"),
            (|t| t.extras_mut().steps = Some(vec!["a b".into()]), "step `a b`"),
            (|t| drop(t.extras_mut().labels.insert("x".into(), "a\nb".into())), "label value"),
            (|t| drop(t.extras_mut().labels.insert(String::new(), "b".into())), "label ``"),
            (
                |t| t.extras_mut().unique = Some(Unique { key: String::new(), for_: None }),
                "unique.key",
            ),
        ];
        for (spoil, expected) in table {
            let mut new = task();
            assert!(new.validate(PAYLOAD_MAX).is_ok());
            spoil(&mut new);
            let error = new.validate(PAYLOAD_MAX).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
        }
    }

    #[test]
    fn what_is_valid_reads_back() {
        let mut new = task();
        let extras = new.extras_mut();
        extras.unique = Some(Unique { key: "k".into(), for_: Some(crate::clock::DURATION_MAX) });
        extras.retry = Some(Exponential { cap: crate::clock::DURATION_MAX, ..Exponential::TASK });
        let step = Some(Duration::from_millis(1));
        extras.timeouts = Some(Timeouts { step, task: Some(crate::clock::DURATION_MAX) });
        new.validate(PAYLOAD_MAX).unwrap();
        let stored = Json::of(new.extras.as_ref().unwrap()).unwrap();
        assert_eq!(stored.to::<Extras>().unwrap(), **new.extras.as_ref().unwrap());
        for spoil in [
            |e: &mut Extras| e.unique.as_mut().unwrap().for_ = Some(Duration::MAX),
            |e: &mut Extras| e.retry.as_mut().unwrap().factor = f64::NAN,
            |e: &mut Extras| e.timeouts.as_mut().unwrap().task = Some(Duration::MAX),
            |e: &mut Extras| e.correlation_id = Some("x".repeat(NAME_MAX + 1)),
            |e: &mut Extras| e.input = Some(Input { uri: String::new(), sha256: None }),
        ] {
            let mut bad = new.clone();
            spoil(bad.extras_mut());
            assert!(bad.validate(PAYLOAD_MAX).is_err());
        }
    }

    #[test]
    fn names_are_checked() {
        for bad in ["", "a b", "ü", "a\n", &"x".repeat(201)] {
            assert!(Kind::new(bad).is_err(), "{bad}");
        }
        assert!(QueueName::new("media/high:1").is_ok());
    }

    #[test]
    fn a_rerun_is_linked_and_has_no_keys() {
        let mut new = task();
        new.extras_mut().unique = Some(Unique { key: "k".into(), for_: None });
        let again = Task::born(&new, T).rerun(TaskId::from_key(2));
        assert_eq!(again.extras.as_ref().unwrap().rerun_of, Some(new.id));
        assert_eq!(again.unique(), None);
    }
}
