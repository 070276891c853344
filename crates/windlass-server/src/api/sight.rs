//! What a caller may see. Operators see everything; for everybody below, the
//! fields that the configuration names are hidden in every answer, and their
//! values are taken out of messages. Views go through here on their way out.

use super::App;
use super::problem::{Answer, Problem, ProblemCode};
use super::view::{AttemptView, CheckpointView, FailureView, TaskView};
use crate::access::Caller;
use crate::redact::{HIDDEN, Hidden, Redactor};
use serde_json::{Map, Value};
use windlass::core::access::Role;
use windlass::core::filter::{Filter, Test, TextField};
use windlass::core::id::BatchId;
use windlass::core::store::DeadLetter;
use windlass::{Event, Json, Task};

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
        let context = Json::of(&view.context).unwrap_or_default();
        let words = self.words(&view.payload).and(self.words(&context));
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
        if let Some(waits) = &mut view.waiting_on {
            waits.name = waits.name.take().map(|name| words.clean(name));
        }
        view
    }

    /// Refuses a filter that would tell by what it finds what may not be seen.
    pub(super) fn check(&self, filter: &Filter) -> Answer<()> {
        let Some(redactor) = &self.redactor else { return Ok(()) };
        match hidden_label(filter, redactor) {
            Some(name) => {
                let detail = format!("the label `{name:.100}` is hidden from this token's role");
                Err(Problem::new(ProblemCode::Forbidden, detail).hint("ask an operator"))
            }
            None => Ok(()),
        }
    }

    /// A filter that somebody else used.
    pub(super) fn filter(&self, filter: String) -> String {
        let Some(redactor) = &self.redactor else { return filter };
        let open = |filter: &Filter| {
            let tells =
                |test: &Test| matches!(test, Test::Text(TextField::Error, _) | Test::ErrorHas(_));
            hidden_label(filter, redactor).is_none()
                && !filter.terms().iter().any(|term| tells(&term.test))
        };
        match Filter::parse(&filter) {
            Ok(read) if open(&read) => filter,
            _ => HIDDEN.to_owned(),
        }
    }

    /// What somebody acted on: a batch is named with its filter.
    pub(super) fn target(&self, target: String) -> String {
        match target.split_once(' ').filter(|(id, _)| id.starts_with(BatchId::PREFIX)) {
            Some((id, filter)) => format!("{id} {}", self.filter(filter.to_owned())),
            None => target,
        }
    }

    /// The data of an event. Its texts were cleaned when they were written; what
    /// was written before, or by code in this process, is cleaned here.
    pub(super) async fn event(&self, app: &App, event: &Event) -> Json {
        let data = event.data.to_json();
        let Some(redactor) = &self.redactor else { return data };
        let mut value = data.to().unwrap_or_else(|_| Value::from(HIDDEN));
        redactor.hide(&mut value);
        if has_texts(&value) {
            let task = match event.task {
                Some(id) => app.engine.task(id).await.ok().flatten(),
                None => None,
            };
            let words = task.map(|task| self.words(&task.payload));
            clean_texts(&mut value, words.as_ref());
        }
        Json::of(&value).unwrap_or_default()
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

fn hidden_label<'f>(filter: &'f Filter, redactor: &Redactor) -> Option<&'f str> {
    filter.terms().iter().find_map(|term| match &term.test {
        Test::Text(TextField::Label(name), _) if redactor.names(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Fields of events that hold words of somebody's code.
const TEXTS: [&str; 5] = ["message", "detail", "reason", "note", "why"];

fn has_texts(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            (TEXTS.contains(&key.as_str()) && value.is_string()) || has_texts(value)
        }),
        _ => false,
    }
}

/// Without the task there is nothing to go by, and the words are hidden.
fn clean_texts(value: &mut Value, words: Option<&Words>) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        match value {
            Value::String(text) if TEXTS.contains(&key.as_str()) => {
                let old = std::mem::take(text);
                *text = words.map_or_else(|| HIDDEN.to_owned(), |words| words.clean(old));
            }
            inner => clean_texts(inner, words),
        }
    }
}

/// Takes values of hidden fields out of text.
#[derive(Debug)]
pub(super) struct Words(Option<Hidden>);

impl Words {
    fn and(self, others: Words) -> Words {
        Words(match (self.0, others.0) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        })
    }

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
