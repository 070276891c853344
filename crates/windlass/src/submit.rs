//! Handing a task over: a builder that collects what is said about it, the
//! checks that need no store, and the call that writes it down before it
//! answers. Calls that come at once share a commit in the store. Dispatch is
//! told right after; nothing here runs a task.

use crate::crash::crash_point;
use crate::engine::Engine;
use crate::handle::{Answer, Handle};
use crate::meters::Pair;
use crate::parts::Parts;
use crate::registry::{Registry, TaskKind};
use crate::settings::UnknownKinds;
use crate::wake::Wake;
use serde::Serialize;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use windlass_backends::CallerTx;
use windlass_core::children::Policy;
use windlass_core::clock::{Now, Timestamp, check_duration};
use windlass_core::error::{Error, Result};
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::retry::Exponential;
use windlass_core::state::State;
use windlass_core::store::{BoxFuture, Submit, Submitted};
use windlass_core::task::{
    ChildOf, IdempotencyKey, Kind, NewTask, QueueName, Start, Task, Unique, trace_id,
};

/// Most places one submission tells workers of.
const PLACES_MAX: usize = 16;

/// What is said about a task before it has an id.
#[derive(Debug)]
pub(crate) struct Draft {
    task: Result<NewTask>,
    /// With the caller's own hash, if it has one.
    idempotency: Option<(String, Option<u128>)>,
    queue: bool,
    priority: bool,
    deadline: bool,
}

impl Draft {
    fn new(registry: &Registry, name: &str, payload: Result<Json>) -> Self {
        let kind = registry.by_name(name).map_or_else(|| Kind::new(name), |k| Ok(k.kind.clone()));
        let task = kind.and_then(|kind| {
            let payload = payload.map_err(|error| {
                let message = format!("the payload of `{kind}` cannot be written as JSON");
                Error::invalid("submit", message).because(error)
            })?;
            Ok(NewTask::new(TaskId::from_key(0), kind, payload))
        });
        Draft { task, idempotency: None, queue: false, priority: false, deadline: false }
    }

    /// A kind without fields is written as an empty object: `null` is no payload.
    fn typed<K: TaskKind>(registry: &Registry, task: &K) -> Self {
        let payload = Json::of(task).and_then(|json| {
            if json.is_null() { Ok(Json::default()) } else { json.reads_back_as::<K>() }
        });
        Draft::new(registry, K::NAME, payload)
    }

    fn set(&mut self, set: impl FnOnce(&mut NewTask) -> Result<()>) {
        if let Ok(task) = &mut self.task
            && let Err(error) = set(task)
        {
            self.task = Err(error);
        }
    }

    /// Fills in what the kind says, checks everything, and gives the id.
    fn finish(self, parts: &Parts, id: TaskId) -> Result<NewTask> {
        let mut task = self.task?;
        task.id = id;
        if let Some(child_of) = &mut task.child_of {
            child_of.key = id.to_string();
        }
        match parts.registry.rules(&task.kind) {
            Some(rules) => {
                if !self.queue {
                    task.queue = rules.queue.clone();
                }
                if !self.priority {
                    task.priority = rules.priority;
                }
                if !self.deadline {
                    task.deadline = rules.deadline;
                }
                let steps = task.extras.as_ref().and_then(|e| e.steps.as_ref());
                if let (Some(kind), Some(steps)) = (parts.registry.get(&task.kind), steps) {
                    parts.registry.check_steps(kind, steps)?;
                }
            }
            None if parts.settings.unknown_kinds == UnknownKinds::Park => {}
            None => return Err(Registry::unknown_kind(&task.kind)),
        }
        if let Some((key, body)) = self.idempotency {
            let body = body.map_or_else(|| body_of(&task), Ok)?;
            task.idempotency =
                Some(IdempotencyKey { key, body, ttl: parts.settings.idempotency_ttl });
        }
        task.validate(parts.settings.payload_max)?;
        if !parts.slots.serves(&task.queue) && parts.registry.get(&task.kind).is_some() {
            tracing::warn!(queue = %task.queue, "this node does not serve the queue; another one must");
        }
        Ok(task)
    }
}

/// A hash of everything that was submitted, so that one key with another body
/// is noticed. It is stored: its shape must not change between versions.
fn body_of(task: &NewTask) -> Result<u128> {
    let start = match task.start {
        Start::Now => String::new(),
        Start::At(at) => format!("at {}", at.as_micros()),
        Start::After(delay) => format!("after {}", delay.as_micros()),
    };
    let deadline = task.deadline.map_or_else(String::new, |d| d.as_micros().to_string());
    // A caller that asks again does so in another trace.
    let mut extras = task.extras.as_deref().cloned();
    extras.iter_mut().for_each(|extras| extras.trace = None);
    let extras = extras.as_ref().map(Json::of).transpose()?.unwrap_or_default();
    let parent = task.child_of.as_ref().map(|child| child.parent.to_string());
    let (kind, queue) = (task.kind.as_str(), task.queue.as_str());
    let priority = task.priority.to_string();
    let payload = task.payload.as_str();
    let mut parts = vec![kind, queue, payload, &priority, &start, &deadline, extras.as_str()];
    parts.extend(parent.as_deref());
    let hash = blake3::hash(parts.join("\0").as_bytes());
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    Ok(u128::from_be_bytes(half))
}

fn some_time(field: &str, time: Duration) -> Result<()> {
    match time {
        Duration::ZERO => {
            Err(Error::invalid("submit", format!("{field} of 0 leaves no time at all")))
        }
        _ => Ok(()),
    }
}

/// The words of a submission, the same for each way to submit.
macro_rules! words {
    () => {
        /// At most one task with this key that has not ended: a second
        /// submission gets the first one's handle. Keys are shared by all kinds;
        /// put the kind's name into the key if they should not be.
        pub fn unique(self, key: impl Into<String>) -> Self {
            self.with(|t| {
                t.extras_mut().unique = Some(Unique { key: key.into(), for_: None });
                Ok(())
            })
        }

        /// At most one task with this key within `time`, ended or not.
        pub fn unique_for(self, key: impl Into<String>, time: Duration) -> Self {
            self.with(|t| {
                t.extras_mut().unique = Some(Unique { key: key.into(), for_: Some(time) });
                Ok(())
            })
        }

        /// A repeated submission with this key gets the first answer; with
        /// another body it is an error.
        pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
            self.draft.idempotency = Some((key.into(), None));
            self
        }

        /// Like `idempotency_key`, with the caller's own hash of the body:
        /// for callers whose request is more than this one task.
        pub fn idempotency(mut self, key: impl Into<String>, body: u128) -> Self {
            self.draft.idempotency = Some((key.into(), Some(body)));
            self
        }

        /// The task is a child of this one, which must not have ended.
        pub fn parent(self, parent: TaskId) -> Self {
            self.with(|t| {
                // The key is the child's own id, which it does not have yet.
                t.child_of = Some(ChildOf { parent, key: String::new() });
                Ok(())
            })
        }

        /// What becomes of the task when its own children end.
        pub fn children_policy(self, policy: Policy) -> Self {
            self.with(|t| {
                t.extras_mut().children_policy = Some(policy);
                Ok(())
            })
        }

        /// The trace it belongs to, as a W3C `traceparent`.
        pub fn traceparent(self, traceparent: impl Into<String>) -> Self {
            let traceparent = traceparent.into();
            self.with(|t| {
                if trace_id(&traceparent).is_none() {
                    let shape = "use 00-<32 hex>-<16 hex>-<2 hex>";
                    let message = format!("traceparent `{traceparent:.60}` is none; {shape}");
                    return Err(Error::invalid("submit", message));
                }
                t.extras_mut().trace = Some(traceparent);
                Ok(())
            })
        }

        /// Which share of a named limit it counts against.
        pub fn limit_key(self, key: impl Into<String>) -> Self {
            self.with(|t| {
                t.extras_mut().limit_key = Some(key.into());
                Ok(())
            })
        }

        pub fn label(self, name: impl Into<String>, value: impl Into<String>) -> Self {
            self.with(|t| {
                t.extras_mut().labels.insert(name.into(), value.into());
                Ok(())
            })
        }

        /// Not before this much later.
        pub fn delay(self, delay: Duration) -> Self {
            self.with(|t| {
                t.start = Start::After(delay);
                check_duration("delay", Some(delay))
            })
        }

        /// Not before this instant.
        pub fn run_at(self, at: Timestamp) -> Self {
            self.with(|t| {
                t.start = Start::At(at);
                Ok(())
            })
        }

        /// -10 to 10, higher first.
        pub fn priority(mut self, priority: i8) -> Self {
            self.draft.priority = true;
            self.with(|t| {
                t.priority = priority;
                Ok(())
            })
        }

        pub fn queue(mut self, name: &str) -> Self {
            self.draft.queue = true;
            self.with(|t| {
                t.queue = QueueName::new(name)?;
                Ok(())
            })
        }

        /// Not started within this time of being due: failed as `expired`.
        pub fn deadline(mut self, within: Duration) -> Self {
            self.draft.deadline = true;
            self.with(|t| {
                t.deadline = Some(within);
                check_duration("deadline", Some(within))
            })
        }

        /// Follows the task through events and logs.
        pub fn correlation_id(self, id: impl Into<String>) -> Self {
            self.with(|t| {
                t.extras_mut().correlation_id = Some(id.into());
                Ok(())
            })
        }

        pub fn user_id(self, id: impl Into<String>) -> Self {
            self.with(|t| {
                t.extras_mut().user_id = Some(id.into());
                Ok(())
            })
        }

        /// Another retry policy than the kind's.
        pub fn retry(self, policy: Exponential) -> Self {
            self.with(|t| {
                t.extras_mut().retry = Some(policy);
                Ok(())
            })
        }

        /// Another step timeout than the kind's.
        pub fn step_timeout(self, longest: Duration) -> Self {
            self.with(|t| {
                t.extras_mut().timeouts.get_or_insert_default().step = Some(longest);
                some_time("step_timeout", longest)
            })
        }

        /// Another task timeout than the kind's.
        pub fn task_timeout(self, longest: Duration) -> Self {
            self.with(|t| {
                t.extras_mut().timeouts.get_or_insert_default().task = Some(longest);
                some_time("task_timeout", longest)
            })
        }

        /// Other steps than the kind's plan; an empty list completes at once.
        pub fn steps<S: Into<String>>(self, steps: impl IntoIterator<Item = S>) -> Self {
            let steps = steps.into_iter().map(Into::into).collect();
            self.with(|t| {
                t.extras_mut().steps = Some(steps);
                Ok(())
            })
        }

        fn with(mut self, set: impl FnOnce(&mut NewTask) -> Result<()>) -> Self {
            self.draft.set(set);
            self
        }
    };
}

/// A task about to be submitted; `.await` submits it.
#[derive(Debug)]
#[must_use = "a submission does nothing until it is awaited"]
pub struct Submission<'e, T> {
    engine: &'e Engine,
    draft: Draft,
    output: PhantomData<fn() -> T>,
}

impl<'e, T> Submission<'e, T> {
    words!();

    /// Submits it and gives the task as it was born, without reading it back.
    /// `None` when it was there before, or when only the store knows the time.
    pub async fn written(self) -> Result<(Handle<T>, Option<Task>)> {
        let parts = &self.engine.parts;
        parts.check_open("submit")?;
        let task = self.draft.finish(parts, parts.mint(1)?[0])?;
        let (copy, now) = (task.clone(), parts.now());
        let answers = write(parts, vec![task], now).await?;
        let answer = answers.first().copied();
        let answer = answer.ok_or_else(|| Error::corrupt("submit", "no answer"))?;
        let born = match (answer, now) {
            (Submitted::New { .. }, Now::At(at)) => Some(Task::born(&copy, at)),
            _ => None,
        };
        Ok((handle_of(parts, answer), born))
    }
}

impl<'e, T: 'e> IntoFuture for Submission<'e, T> {
    type Output = Result<Handle<T>>;
    type IntoFuture = BoxFuture<'e, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Submission { engine, draft, .. } = self;
        Box::pin(async move {
            let mut handles = submit(&engine.parts, vec![draft]).await?;
            handles.pop().ok_or_else(|| Error::corrupt("submit", "the store gave no answer"))
        })
    }
}

/// A task about to be submitted inside the caller's own transaction.
#[must_use = "a submission does nothing until it is awaited"]
pub struct SubmissionIn<'e, 't, T> {
    engine: &'e Engine,
    tx: &'t mut dyn CallerTx,
    draft: Draft,
    output: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for SubmissionIn<'_, '_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubmissionIn").field("draft", &self.draft).finish_non_exhaustive()
    }
}

impl<T> SubmissionIn<'_, '_, T> {
    words!();
}

/// Not `Send`: most drivers' transactions are not.
type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

impl<'e, 't, T> IntoFuture for SubmissionIn<'e, 't, T>
where
    'e: 't,
    T: 't,
{
    type Output = Result<Uncommitted<T>>;
    type IntoFuture = LocalFuture<'t, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let SubmissionIn { engine, tx, draft, .. } = self;
        Box::pin(async move {
            let parts = &engine.parts;
            parts.check_open("submit")?;
            let stored = parts.store.capabilities().name;
            if tx.backend() != stored {
                let message = format!(
                    "the engine's store is `{stored}`, the transaction is of `{}`",
                    tx.backend()
                );
                return Err(Error::new(windlass_core::Code::Unsupported, "submit", message));
            }
            let id = parts.mint(1)?[0];
            let task = draft.finish(parts, id)?;
            let pair = parts.meters.pair(&task.kind, &task.queue);
            let answers = tx.submit(parts.node(), vec![task].into(), parts.now()).await?;
            let answer = answers.first().copied();
            let answer = answer.ok_or_else(|| Error::corrupt("submit", "no answer"))?;
            let written = new_state(&answer).map(|state| (pair, state));
            Ok(Uncommitted { handle: handle_of(parts, answer), written })
        })
    }
}

/// A task that exists once the caller's transaction is committed.
#[derive(Debug)]
#[must_use = "call committed() after the commit, or the task starts only at the next poll"]
pub struct Uncommitted<T> {
    handle: Handle<T>,
    /// For the count of new tasks; absent when it is none.
    written: Option<(Arc<Pair>, State)>,
}

impl<T> Uncommitted<T> {
    pub fn id(&self) -> TaskId {
        self.handle.id()
    }

    /// To be called after the commit: wakes this node at once.
    pub fn committed(self) -> Handle<T> {
        if let Some((pair, state)) = self.written {
            pair.submitted(state);
        }
        self.handle.wake();
        self.handle
    }
}

impl Engine {
    /// Submits a task of a typed kind.
    pub fn submit<K: TaskKind>(&self, task: K) -> Submission<'_, K::Output> {
        self.draft(Draft::typed(&self.parts.registry, &task))
    }

    /// Submits a task by the name of its kind; its output is JSON.
    pub fn submit_named<P: Serialize + ?Sized>(
        &self,
        kind: &str,
        payload: &P,
    ) -> Submission<'_, serde_json::Value> {
        self.draft(Draft::new(&self.parts.registry, kind, Json::of(payload)))
    }

    fn draft<T>(&self, draft: Draft) -> Submission<'_, T> {
        Submission { engine: self, draft, output: PhantomData }
    }

    /// Submits up to 10,000 tasks, all or nothing.
    pub async fn submit_all<T>(
        &self,
        submissions: impl IntoIterator<Item = Submission<'_, T>>,
    ) -> Result<Vec<Handle<T>>> {
        submit(&self.parts, submissions.into_iter().map(|s| s.draft).collect()).await
    }

    /// Submits a task inside the caller's own database transaction: it exists
    /// if and only if that transaction commits. Call
    /// [`Uncommitted::committed`] after the commit.
    pub fn submit_in<'e, 't, K: TaskKind>(
        &'e self,
        tx: &'t mut dyn CallerTx,
        task: K,
    ) -> SubmissionIn<'e, 't, K::Output> {
        let draft = Draft::typed(&self.parts.registry, &task);
        SubmissionIn { engine: self, tx, draft, output: PhantomData }
    }
}

async fn submit<T>(parts: &Arc<Parts>, drafts: Vec<Draft>) -> Result<Vec<Handle<T>>> {
    parts.check_open("submit")?;
    let ids = parts.mint(drafts.len())?;
    let many = drafts.len() > 1;
    let finish = |(i, (draft, id)): (usize, (Draft, TaskId))| {
        draft.finish(parts, id).map_err(|e| if many { of_many(i, &e) } else { e })
    };
    let tasks: Result<Vec<NewTask>> = drafts.into_iter().zip(ids).enumerate().map(finish).collect();
    let answers = write(parts, tasks?, parts.now()).await?;
    Ok(answers.into_iter().map(|answer| handle_of(parts, answer)).collect())
}

/// Which one of many is wrong; they are counted from 0.
fn of_many(index: usize, error: &Error) -> Error {
    Error::new(error.code(), "submit", format!("task {index}: {}", error.message()))
}

/// Writes tasks and wakes who waits for them.
async fn write(parts: &Parts, tasks: Vec<NewTask>, now: Now) -> Result<Vec<Submitted>> {
    let pairs = parts.meters.pairs(&tasks);
    let places = places(&tasks);
    let starts = tasks.iter().filter_map(|t| due_at(t, parts.clock.now())).min();
    let answers = parts.store.submit(Submit::from(tasks), now).await?;
    crash_point("submit.committed");
    for (pair, answer) in pairs.iter().zip(&answers) {
        if let Some(state) = new_state(answer) {
            pair.submitted(state);
        }
    }
    if answers.iter().any(|answer| new_state(answer) == Some(State::Queued)) {
        parts.bell.ring(Wake::Work);
        places.iter().for_each(|(queue, kind, tasks)| parts.remote.hub.wake(queue, kind, *tasks));
    }
    if let Some(at) = starts {
        parts.due.note(at);
    }
    parts.feed.changed();
    Ok(answers)
}

/// Where new tasks are, and how many: most batches are of one kind. What is
/// beyond the limit is found by the next look.
fn places(tasks: &[NewTask]) -> Vec<(QueueName, Kind, usize)> {
    let mut places: Vec<(QueueName, Kind, usize)> = vec![];
    for task in tasks {
        let known = places.iter().rposition(|(q, k, _)| *q == task.queue && *k == task.kind);
        match known {
            Some(i) => places[i].2 += 1,
            None if places.len() < PLACES_MAX => {
                places.push((task.queue.clone(), task.kind.clone(), 1));
            }
            None => {}
        }
    }
    places
}

fn due_at(task: &NewTask, now: Timestamp) -> Option<Timestamp> {
    match task.start {
        Start::Now => None,
        Start::At(at) => Some(at),
        Start::After(delay) => Some(now.plus(delay)),
    }
}

/// The state of a task that was newly written.
fn new_state(answer: &Submitted) -> Option<State> {
    match answer {
        Submitted::New { state, .. } => Some(*state),
        Submitted::Replayed { .. } | Submitted::Existing { .. } => None,
    }
}

fn handle_of<T>(parts: &Arc<Parts>, answer: Submitted) -> Handle<T> {
    let (id, how) = match answer {
        Submitted::New { id, .. } => (id, Answer::New),
        Submitted::Replayed { id } => (id, Answer::Replayed),
        Submitted::Existing { id } => (id, Answer::Existing),
    };
    Handle::new(parts, id, how)
}
