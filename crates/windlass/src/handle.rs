//! What a submitter holds: the id of its task, and a way to wait for the end.
//! Waiting is woken by what this process writes and asks the store now and then
//! for what others write; the store's word is what counts.

use crate::parts::{Parts, Phase};
use crate::wake::Wake;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use windlass_core::error::{Code, Error, Result};
use windlass_core::id::TaskId;
use windlass_core::json::Json;
use windlass_core::state::State;
use windlass_core::task::Task;

/// Those who wait for the end of a task.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    count: AtomicUsize,
    by_task: Mutex<HashMap<TaskId, (usize, Arc<Notify>)>>,
}

impl Waiters {
    /// The task may have ended.
    pub(crate) fn tell(&self, id: TaskId) {
        if self.count.load(Ordering::Acquire) > 0
            && let Some((_, waiter)) = self.by_task.lock().get(&id)
        {
            waiter.notify_waiters();
        }
    }

    /// Any task may have ended.
    pub(crate) fn tell_all(&self) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.by_task.lock().values().for_each(|(_, waiter)| waiter.notify_waiters());
        }
    }
}

/// One waiting caller; leaves the list when dropped.
struct Waiting<'a> {
    waiters: &'a Waiters,
    id: TaskId,
    notify: Arc<Notify>,
}

impl<'a> Waiting<'a> {
    fn new(waiters: &'a Waiters, id: TaskId) -> Self {
        waiters.count.fetch_add(1, Ordering::AcqRel);
        let mut list = waiters.by_task.lock();
        let (count, notify) = list.entry(id).or_default();
        *count += 1;
        Waiting { waiters, id, notify: notify.clone() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.count.fetch_sub(1, Ordering::AcqRel);
        let mut list = self.waiters.by_task.lock();
        if let Some((count, _)) = list.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                list.remove(&self.id);
            }
        }
    }
}

/// How a submission was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A new task was written.
    New,
    /// The idempotency key had been answered before: this is that task.
    Replayed,
    /// The unique key is held by this task.
    Existing,
}

/// A submitted task and its awaited output. It does not keep the engine: when
/// that has stopped, a handle answers that it has.
pub struct Handle<T> {
    parts: Weak<Parts>,
    id: TaskId,
    answer: Answer,
    output: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle { parts: self.parts.clone(), output: PhantomData, ..*self }
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("id", &self.id).field("answer", &self.answer).finish()
    }
}

impl<T> Handle<T> {
    pub(crate) fn new(parts: &Arc<Parts>, id: TaskId, answer: Answer) -> Self {
        Handle { parts: Arc::downgrade(parts), id, answer, output: PhantomData }
    }

    fn parts(&self) -> Result<Arc<Parts>> {
        self.parts.upgrade().ok_or_else(|| stopped(format!("the engine of {} stopped", self.id)))
    }

    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The task was committed elsewhere; this node looks for it now. A delay of
    /// its own is found by the timer's next look.
    pub(crate) fn wake(&self) {
        if let Some(parts) = self.parts.upgrade() {
            parts.bell.ring(Wake::Work);
            parts.remote.hub.look();
            parts.due.look();
            parts.feed.changed();
        }
    }

    /// Whether the submission made a task or found one.
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// The task as it is now.
    pub async fn task(&self) -> Result<Task> {
        let task = self.parts()?.store.task(self.id).await?;
        task.ok_or_else(|| Error::not_found("task", format!("{} does not exist", self.id)))
    }

    /// Waits until the task has ended, however it ends.
    pub async fn ended(&self) -> Result<Task> {
        let parts = self.parts()?;
        let waiting = Waiting::new(&parts.waiters, self.id);
        loop {
            let told = waiting.notify.notified();
            let task = self.task().await?;
            if task.state().is_ended() {
                return Ok(task);
            }
            if parts.phase() == Phase::Stopped {
                return Err(stopped(format!(
                    "the engine stopped; {} is {}",
                    self.id,
                    task.state()
                )));
            }
            tokio::select! {
                () = told => {}
                () = parts.clock.sleep_until(parts.clock.uptime() + parts.settings.poll) => {}
                () = parts.reached(Phase::Stopped) => {}
            }
        }
    }
}

fn stopped(message: String) -> Error {
    Error::new(Code::Draining, "result", message)
}

impl<T: DeserializeOwned> Handle<T> {
    /// Waits for the task's output. A task that failed or was cancelled is an
    /// error of kind `Conflict` that says why; [`Handle::ended`] gives the task
    /// itself.
    pub async fn result(&self) -> Result<T> {
        let task = self.ended().await?;
        match task.state() {
            State::Completed | State::CompletedWithErrors => {
                let output = task.standing.result;
                let text = output.as_ref().map_or("null", Json::as_str);
                serde_json::from_str(text).map_err(|e| match &output {
                    Some(_) => {
                        let message = format!("the output of {} has another type: {e}", self.id);
                        Error::invalid("result", message)
                    }
                    None => {
                        let message = format!("{} was skipped and has no output", self.id);
                        Error::conflict("result", message)
                    }
                })
            }
            state => {
                let why = task.standing.failure.as_ref().map_or_else(String::new, |failure| {
                    let reason = failure.reason.map_or("error", |r| r.as_str());
                    let step = failure.error.step.as_ref();
                    let at = step.map_or_else(String::new, |s| format!(" in step `{}`", s.name));
                    format!(" ({reason}{at}): {}", failure.error.message)
                });
                Err(Error::conflict("result", format!("{} is {state}{why}", self.id)))
            }
        }
    }
}
