//! What a batch of submissions means, decided without a row: a store looks up
//! what it has about each task's keys, this file turns that, together with the
//! keys that earlier tasks of the same batch take, into what will become of the
//! task. Every store plans a whole batch before it writes the first row.

use crate::store::guards::Guards;
use crate::store::{no_such, same_submission};
use std::collections::HashMap;
use windlass_core::clock::Timestamp;
use windlass_core::id::TaskId;
use windlass_core::state::State;
use windlass_core::store::Submitted;
use windlass_core::task::{NewTask, Task};
use windlass_core::{Code, Error, Result};

/// What will become of one task of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plan {
    Insert,
    Answer(Submitted),
    /// Another task is the answer; the key, if one was given, will repeat it.
    Existing(TaskId),
}

/// What a store has about the keys of one task. Only what the task names is
/// looked up.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Body and answer of its idempotency key, while that lives.
    pub(crate) answered: Option<(u128, TaskId)>,
    /// Who holds its unique key.
    pub(crate) holder: Option<TaskId>,
    pub(crate) parent: Option<State>,
    /// Who has its place under its parent.
    pub(crate) child: Option<TaskId>,
}

/// Keys that the tasks of one batch take.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    guards: Guards,
    ids: HashMap<TaskId, &'a NewTask>,
    idempotency: HashMap<&'a str, (u128, TaskId)>,
    unique: HashMap<&'a str, TaskId>,
    children: HashMap<(TaskId, &'a str), TaskId>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(guards: Guards) -> Self {
        Batch {
            guards,
            ids: HashMap::new(),
            idempotency: HashMap::new(),
            unique: HashMap::new(),
            children: HashMap::new(),
        }
    }

    /// The answer to an id that stands in the batch before.
    pub(crate) fn twin(&mut self, new: &'a NewTask, now: Timestamp) -> Result<Option<Plan>> {
        let Some(twin) = self.ids.insert(new.id, new) else { return Ok(None) };
        same_submission(&Task::born(twin, now), new)?;
        let state = twin.birth(now).0;
        Ok(Some(Plan::Answer(Submitted::New { id: new.id, state })))
    }

    /// Decides about a task whose id is not in the store.
    pub(crate) fn plan(
        &mut self,
        new: &'a NewTask,
        stored: &Stored,
        now: Timestamp,
    ) -> Result<Plan> {
        if let Some(answer) = self.replay(new, stored)? {
            return Ok(Plan::Answer(answer));
        }
        if let Some(unique) = new.unique().filter(|_| self.guards.unique) {
            let here = self.unique.get(unique.key.as_str()).copied();
            if let Some(id) = stored.holder.or(here) {
                return Ok(self.existing(new, id));
            }
        }
        if let Some(child) = &new.child_of {
            let parent = stored.parent.ok_or_else(|| no_such("parent", child.parent))?;
            if parent.is_ended() {
                let message = format!("parent {} has ended", child.parent);
                return Err(Error::conflict("submit", message));
            }
            let here = self.children.get(&(child.parent, child.key.as_str())).copied();
            if let Some(id) = stored.child.or(here) {
                return Ok(self.existing(new, id));
            }
        }
        self.take(new, now);
        Ok(Plan::Insert)
    }

    fn replay(&self, new: &NewTask, stored: &Stored) -> Result<Option<Submitted>> {
        let Some(idem) = &new.idempotency else { return Ok(None) };
        let here = self.idempotency.get(idem.key.as_str()).copied();
        match stored.answered.or(here) {
            Some((body, id)) if body == idem.body => Ok(Some(Submitted::Replayed { id })),
            Some(_) => {
                let message =
                    format!("idempotency key `{}` was used for another submission", idem.key);
                Err(Error::new(Code::KeyReused, "submit", message))
            }
            None => Ok(None),
        }
    }

    /// Another task is the answer, also to later tasks with the same key.
    fn existing(&mut self, new: &'a NewTask, id: TaskId) -> Plan {
        if let Some(idem) = &new.idempotency {
            self.idempotency.insert(&idem.key, (idem.body, id));
        }
        Plan::Existing(id)
    }

    /// Keys of a task that will be written.
    fn take(&mut self, new: &'a NewTask, now: Timestamp) {
        if let Some(idem) = &new.idempotency {
            self.idempotency.insert(&idem.key, (idem.body, new.id));
        }
        // A task that is born ended holds no key for its life.
        let lives = !new.birth(now).0.is_ended();
        if let Some(unique) = new.unique().filter(|u| u.for_.is_some() || lives) {
            self.unique.insert(&unique.key, new.id);
        }
        if let Some(child) = &new.child_of {
            self.children.insert((child.parent, &child.key), new.id);
        }
    }
}
