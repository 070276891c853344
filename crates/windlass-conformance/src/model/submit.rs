//! Submitting in the model: checks, keys, parents, birth. All or nothing is done
//! the naive way: work on a copy of what may change, keep it only at the end.

use super::{Idempotent, Model, Row, UniqueHold, has_ended};
use windlass_core::clock::Timestamp;
use windlass_core::error::Code;
use windlass_core::id::TaskId;
use windlass_core::store::Submitted;
use windlass_core::task::NewTask;

/// What becomes of one task of a batch.
enum Fate {
    Write,
    Answer(Submitted),
    /// Another task stands for it; an idempotency key remembers that answer.
    Existing(TaskId),
}

impl Model {
    pub(super) fn submit(
        &mut self,
        tasks: &[NewTask],
        now: Timestamp,
    ) -> Result<Vec<Submitted>, Code> {
        if let Some(code) = tasks.iter().find_map(fault_of) {
            return Err(code);
        }
        let keys_before = (self.idempotency.clone(), self.unique.clone());
        let mut written = vec![];
        let mut answers = vec![];
        for new in tasks {
            match self.fate(new, now) {
                Ok(Fate::Write) => {
                    written.push(new.id);
                    answers.push(self.write(new, now));
                }
                Ok(Fate::Answer(answer)) => answers.push(answer),
                Ok(Fate::Existing(id)) => {
                    self.keep_key(new, id, now);
                    answers.push(Submitted::Existing { id });
                }
                Err(code) => {
                    written.iter().for_each(|id| self.unwrite(*id));
                    (self.idempotency, self.unique) = keys_before;
                    return Err(code);
                }
            }
        }
        if written.iter().any(|id| self.draining.contains(&self.tasks[id].new.queue)) {
            written.iter().for_each(|id| self.unwrite(*id));
            (self.idempotency, self.unique) = keys_before;
            return Err(Code::StateConflict);
        }
        for id in written {
            self.born_ended(id);
        }
        Ok(answers)
    }

    fn fate(&self, new: &NewTask, now: Timestamp) -> Result<Fate, Code> {
        if let Some(row) = self.tasks.get(&new.id) {
            let again = Fate::Answer(Submitted::New { id: new.id, state: row.state });
            return if row.is_from(new) { Ok(again) } else { Err(Code::StateConflict) };
        }
        if let Some(wish) = &new.idempotency
            && let Some(known) = self.idempotency.get(&wish.key)
            && now < known.until
        {
            let same = known.body == wish.body;
            let answer = Fate::Answer(Submitted::Replayed { id: known.task });
            return if same { Ok(answer) } else { Err(Code::KeyReused) };
        }
        if let Some(id) = self.unique_holder(new, now) {
            return Ok(Fate::Existing(id));
        }
        if let Some(child) = &new.child_of {
            let parent = self.tasks.get(&child.parent).ok_or(Code::NotFound)?;
            if has_ended(parent.state) {
                return Err(Code::StateConflict);
            }
            if let Some(id) = self.child(child.parent, &child.key) {
                return Ok(Fate::Existing(id));
            }
        }
        Ok(Fate::Write)
    }

    fn keep_key(&mut self, new: &NewTask, task: TaskId, now: Timestamp) {
        if let Some(wish) = &new.idempotency {
            let until = now.plus(wish.ttl);
            let row = Idempotent { body: wish.body, task, until };
            self.idempotency.insert(wish.key.clone(), row);
        }
    }

    fn unique_holder(&self, new: &NewTask, now: Timestamp) -> Option<TaskId> {
        let hold = self.unique.get(&new.unique()?.key)?;
        hold.until.is_none_or(|until| now < until).then_some(hold.task)
    }

    fn write(&mut self, new: &NewTask, now: Timestamp) -> Submitted {
        let row = Row::born(new, now);
        let state = row.state;
        self.keep_key(new, new.id, now);
        if let Some(unique) = new.unique() {
            let until = unique.for_.map(|d| now.plus(d));
            if until.is_some() || !has_ended(state) {
                self.unique.insert(unique.key.clone(), UniqueHold { task: new.id, until });
            }
        }
        self.insert(row);
        Submitted::New { id: new.id, state }
    }

    pub(super) fn insert(&mut self, row: Row) {
        self.touched.insert(row.id());
        if let Some(parent) = row.parent() {
            self.children_of.entry(parent).or_default().push(row.id());
        }
        self.tasks.insert(row.id(), row);
    }

    fn unwrite(&mut self, id: TaskId) {
        self.touched.remove(&id);
        let row = self.tasks.remove(&id).expect("written a moment ago");
        if let Some(parent) = row.parent() {
            let siblings = self.children_of.entry(parent).or_default();
            siblings.retain(|child| *child != id);
            if siblings.is_empty() {
                self.children_of.remove(&parent);
            }
        }
    }

    /// A child that is born completed has ended as well.
    pub(super) fn born_ended(&mut self, id: TaskId) {
        let row = &self.tasks[&id];
        if has_ended(row.state)
            && let Some(parent) = row.parent()
        {
            self.parents_due.insert(parent);
        }
    }

    /// Children of a step: what exists under its parent is passed over.
    pub(super) fn write_child(&mut self, new: &NewTask, now: Timestamp) {
        if let Ok(Fate::Write) = self.fate(new, now) {
            self.write(new, now);
            self.born_ended(new.id);
        }
    }
}

/// The wrong fields that histories make.
pub(super) fn fault_of(new: &NewTask) -> Option<Code> {
    let bad_text = |text: &str| text.is_empty() || text.len() > 200;
    let idempotency = new.idempotency.as_ref().is_some_and(|i| bad_text(&i.key));
    let unique = new.unique().is_some_and(|u| bad_text(&u.key));
    let steps = new.extras.as_ref().and_then(|e| e.steps.as_ref());
    let twice = steps.is_some_and(|s| s.iter().enumerate().any(|(i, name)| s[..i].contains(name)));
    let wrong = new.payload.as_str() == "null"
        || !(-10..=10).contains(&new.priority)
        || idempotency
        || unique
        || twice;
    wrong.then_some(Code::InvalidFields)
}
