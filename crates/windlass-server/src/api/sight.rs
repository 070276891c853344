//! What a caller may see. Operators see everything; for everybody below, the
//! fields that the configuration names are hidden in every answer, and their
//! values are taken out of messages. Views go through here on their way out.

use super::App;
use super::view::{AttemptView, CheckpointView, FailureView, TaskView};
use crate::access::Caller;
use crate::redact::{HIDDEN, Hidden, Redactor};
use serde_json::{Map, Value};
use windlass::core::access::Role;
use windlass::core::store::DeadLetter;
use windlass::{Json, Task};

/// The eyes of one caller.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    /// `None`: sees everything.
    redactor: Option<Redactor>,
}

impl Sight {
    pub(super) fn of(app: &App, caller: &Caller) -> Sight {
        let redactor = &app.terms.redactor;
        let hides = !redactor.is_empty() && !caller.role.includes(Role::Operator);
        Sight { redactor: hides.then(|| redactor.clone()) }
    }

    pub(super) fn json(&self, json: Json) -> Json {
        match &self.redactor {
            Some(redactor) => redactor.hidden(&json),
            None => json,
        }
    }

    fn fields(&self, fields: &mut Map<String, Value>) {
        if let Some(redactor) = &self.redactor {
            let mut value = Value::Object(std::mem::take(fields));
            redactor.hide(&mut value);
            if let Value::Object(hidden) = value {
                *fields = hidden;
            }
        }
    }

    /// For messages about a task with this payload.
    pub(super) fn words(&self, payload: &Json) -> Words {
        Words(self.redactor.as_ref().map(|redactor| redactor.values(payload)))
    }

    pub(super) fn task(&self, mut view: TaskView) -> TaskView {
        let Some(redactor) = &self.redactor else { return view };
        let words = self.words(&view.payload);
        view.payload = redactor.hidden(&view.payload);
        view.result = view.result.map(|result| redactor.hidden(&result));
        self.fields(&mut view.context);
        let labels = view.labels.iter_mut().filter(|(name, _)| redactor.names(name));
        labels.for_each(|(_, value)| *value = HIDDEN.to_owned());
        if let Some(progress) = &mut view.progress {
            progress.data = progress.data.take().map(|data| redactor.hidden(&data));
            progress.note = progress.note.take().map(|note| words.clean(note));
        }
        view.failure = view.failure.map(|failure| words.failure(failure));
        view
    }

    pub(super) fn checkpoint(&self, mut view: CheckpointView, task: &Task) -> CheckpointView {
        let words = self.words(&task.payload);
        self.fields(&mut view.data);
        for failed in &mut view.failures {
            failed.message = failed.message.take().map(|text| words.clean(text));
        }
        for step in &mut view.completed {
            step.reason = step.reason.take().map(|text| words.clean(text));
        }
        view
    }

    pub(super) fn attempt(&self, mut view: AttemptView, words: &Words) -> AttemptView {
        view.failure = view.failure.map(|failure| words.failure(failure));
        for step in &mut view.steps {
            step.output = step.output.take().map(|output| self.json(output));
            step.reason = step.reason.take().map(|text| words.clean(text));
        }
        view
    }

    pub(super) fn dead_letter(&self, letter: &DeadLetter) -> Json {
        let Some(redactor) = &self.redactor else { return letter.to_json() };
        let mut shown = letter.clone();
        shown.message = self.words(&letter.payload).clean(shown.message);
        shown.payload = redactor.hidden(&letter.payload);
        shown.to_json()
    }
}

/// Takes values of hidden fields out of text.
#[derive(Debug)]
pub(super) struct Words(Option<Hidden>);

impl Words {
    pub(super) fn clean(&self, text: String) -> String {
        match &self.0 {
            Some(hidden) => hidden.scrub(&text).into_owned(),
            None => text,
        }
    }

    fn failure(&self, mut failure: FailureView) -> FailureView {
        failure.message = self.clean(failure.message);
        failure.detail = failure.detail.map(|detail| self.clean(detail));
        failure
    }
}
