//! What a person sees while a task is followed: a progress bar on a terminal,
//! one line per change elsewhere. It turns events and tasks into words and knows
//! neither HTTP nor when a task has ended.

use super::fields::{at, clean, number, text};
use super::follow::Detail;
use super::output::{Out, Tone};
use super::times;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::time::Duration;
use windlass_core::clock::Timestamp;

/// The view of one task.
pub(crate) struct Stage<'a> {
    out: &'a Out,
    detail: Detail,
    bar: Option<ProgressBar>,
    state: String,
    attempt: u64,
    /// The attempt whose failure was told last.
    told: u64,
}

/// What an event means for the view.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// The task is in this state now.
    State(String),
    /// Worth a line of its own, whatever is shown.
    Line(String, Tone),
    /// Worth a line when steps are shown.
    Step(String),
    Progress {
        done: u64,
        total: u64,
        note: String,
    },
    Nothing,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(out: &'a Out, detail: Detail) -> Self {
        let bar = out.draws().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Stage { out, detail, bar, state: String::new(), attempt: 0, told: 0 }
    }

    pub(crate) fn state(&self) -> &str {
        if self.state.is_empty() { "not known" } else { &self.state }
    }

    /// The task as it is now.
    pub(crate) fn task(&mut self, task: &Value) {
        self.attempt = number(task, "attempt").unwrap_or(self.attempt);
        if text(task, "state") == "retrying" {
            // It may have failed before anybody listened to its events.
            let (failure, until) = (at(task, "failure"), text(task, "due_at"));
            self.retry(failure, until);
        }
        self.enter(text(task, "state"));
        if at(task, "progress").is_object() {
            self.show(progress(at(task, "progress")));
        }
    }

    /// Something happened to it.
    pub(crate) fn event(&mut self, event: &Value) {
        if text(event, "type") == "task.started" {
            self.attempt = number(event, "data.attempt").unwrap_or(self.attempt + 1);
        }
        match text(event, "type") {
            "task.retrying" => {
                self.retry(at(event, "data.failure"), text(event, "data.until"));
            }
            _ => self.show(news(event)),
        }
        if let Some(state) = state_after(text(event, "type")) {
            self.enter(state);
        }
    }

    /// Tells of a failed attempt, once.
    fn retry(&mut self, failure: &Value, until: &str) {
        let attempt = self.attempt.max(1);
        if self.told != attempt {
            self.told = attempt;
            let line = retry_line(failure, until, attempt, times::now());
            self.show(News::Line(line, Tone::Held));
        }
    }

    pub(crate) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn enter(&mut self, state: &str) {
        if state != self.state {
            state.clone_into(&mut self.state);
            self.show(News::State(state.to_owned()));
        }
    }

    fn show(&self, news: News) {
        match (news, &self.bar) {
            (News::Nothing, _) => {}
            (News::Line(line, tone), _) => self.line(&self.out.paint_talk(&line, tone)),
            (News::State(state), Some(bar)) => bar.set_message(state),
            (News::State(state), None) => self.line(&state),
            (News::Step(line), _) if self.detail == Detail::Steps => self.line(&line),
            (News::Step(_), _) => {}
            (News::Progress { done, total, note }, Some(bar)) => draw(bar, done, total, &note),
            (News::Progress { done, total, note }, None) if self.detail == Detail::Steps => {
                self.line(format!("{done}/{total} {note}").trim_end());
            }
            (News::Progress { .. }, None) => {}
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.out.say(text)),
            None => self.out.say(text),
        }
    }
}

fn draw(bar: &ProgressBar, done: u64, total: u64, note: &str) {
    let template = match total {
        0 => "{spinner} {msg}",
        _ => "{spinner} {wide_bar} {pos}/{len} {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_length(total);
    bar.set_position(done);
    if !note.is_empty() {
        bar.set_message(note.to_owned());
    }
}

fn progress(progress: &Value) -> News {
    let count = |key| number(progress, key).unwrap_or(0);
    News::Progress {
        done: count("done"),
        total: count("total"),
        note: clean(text(progress, "note")),
    }
}

/// The state an event leads to, where it says one.
fn state_after(name: &str) -> Option<&'static str> {
    match name {
        "task.started" => Some("running"),
        "task.scheduled" => Some("scheduled"),
        "task.retrying" => Some("retrying"),
        "task.waiting" => Some("waiting"),
        "task.paused" => Some("paused"),
        "task.requeued" | "task.lease_lost" => Some("queued"),
        "task.rolling_back" => Some("rolling_back"),
        _ => None,
    }
}

fn news(event: &Value) -> News {
    let data = at(event, "data");
    let step = clean(text(data, "step"));
    match text(event, "type") {
        "task.progress" => progress(data),
        "task.lease_lost" => {
            News::Line("its node is gone; another takes over".to_owned(), Tone::Held)
        }
        "task.step_completed" => News::Step(format!("✓ {step}")),
        "task.step_skipped" => News::Step(with_reason(&format!("- {step} skipped"), data)),
        "task.step_failed" => News::Step(with_reason(&format!("✗ {step}"), data)),
        "checkpoint.discarded" => {
            News::Line("saved steps did not fit the plan and were dropped".to_owned(), Tone::Held)
        }
        _ => News::Nothing,
    }
}

fn with_reason(line: &str, data: &Value) -> String {
    match clean(text(data, "reason")) {
        reason if reason.is_empty() => line.to_owned(),
        reason => format!("{line}: {reason}"),
    }
}

fn retry_line(failure: &Value, until: &str, attempt: u64, now: Timestamp) -> String {
    let message = clean(text(failure, "message"));
    let mut line = format!("attempt {attempt} failed");
    if !message.is_empty() {
        line.push_str(&format!(": {message}"));
    }
    if let Ok(until) = Timestamp::parse(until) {
        line.push_str(&format!(", next try in {}", times::wait(until.since(now))));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn retries_tell_attempt_error_and_time() {
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        let failure = json!({"message": "connection reset"});
        let line = "attempt 2 failed: connection reset, next try in 4.1s";
        assert_eq!(retry_line(&failure, "2026-01-01T00:00:04.12Z", 2, now), line);
    }

    #[test]
    fn a_failure_is_told_once_by_task_or_event() {
        let out = crate::cli::output::plain_out();
        let mut stage = Stage::new(&out, Detail::States);
        let failure = json!({"message": "reset"});
        stage.task(&json!({"state": "retrying", "attempt": 1, "failure": failure}));
        assert_eq!(stage.told, 1);
        stage.event(&json!({"type": "task.started", "data": {"attempt": 2}}));
        assert_eq!(stage.told, 1);
        stage.event(&json!({"type": "task.retrying", "data": {"failure": failure}}));
        assert_eq!((stage.told, stage.state()), (2, "retrying"));
    }

    #[test]
    fn progress_and_steps() {
        let event = json!({"type": "task.progress", "data": {"done": 3, "total": 10, "note": "x"}});
        let expected = News::Progress { done: 3, total: 10, note: "x".to_owned() };
        assert_eq!(news(&event), expected);
        let event = json!({"type": "task.step_failed", "data": {"step": "scan", "reason": "no"}});
        assert_eq!(news(&event), News::Step("✗ scan: no".to_owned()));
        assert_eq!(news(&json!({"type": "task.new"})), News::Nothing);
    }
}
