//! What a task has finished so far. A checkpoint is kept as one appended row
//! per step and read as a whole; here are its words, the compare-and-set on its
//! version, and the rules by which a checkpoint is believed, cut or held when a
//! task resumes under a plan that may have changed. Nothing here stores.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::NodeId;
use crate::json::Json;
use crate::outcome::Class;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Grows with every write to a task's checkpoint. Zero: nothing written yet.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Version(pub u64);

impl Version {
    #[must_use]
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }

    /// A write needs a version strictly greater than the stored one.
    pub fn check(self, stored: Version) -> Result<()> {
        if self > stored {
            return Ok(());
        }
        let message = format!("version {} is not newer than the stored {}", self.0, stored.0);
        Err(Error::new(Code::VersionConflict, "record", message))
    }
}

/// Longest log kept of one try of a step; the beginning of a longer one is cut.
pub const LOG_MAX: usize = 16 * 1024;

/// The end of a text: at most `max` bytes of it, whole characters.
pub fn tail(text: &str, max: usize) -> &str {
    let cut = text.len().saturating_sub(max);
    let start = (cut..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    &text[start..]
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    Done,
    Skipped,
    /// One failed try; the step is not finished.
    Failed,
    /// The step's compensation has run: it no longer counts as finished.
    Undone,
}

impl StepOutcome {
    pub const ALL: [StepOutcome; 4] =
        [StepOutcome::Done, StepOutcome::Skipped, StepOutcome::Failed, StepOutcome::Undone];

    pub const fn code(self) -> i64 {
        match self {
            StepOutcome::Done => 0,
            StepOutcome::Skipped => 1,
            StepOutcome::Failed => 2,
            StepOutcome::Undone => 3,
        }
    }

    pub fn from_code(code: i64) -> Result<Self> {
        StepOutcome::ALL
            .into_iter()
            .find(|o| o.code() == code)
            .ok_or_else(|| Error::corrupt("step", format!("{code} is no step outcome")))
    }

    /// Advances the task.
    pub fn is_finished(self) -> bool {
        matches!(self, StepOutcome::Done | StepOutcome::Skipped)
    }
}

/// One step as its attempt reports it.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct StepRecord {
    pub name: String,
    pub outcome: StepOutcome,
    pub version: Version,
    /// What the step gave; merged into the context when it is an object.
    pub output: Option<Json>,
    /// Why it was skipped or failed.
    pub reason: Option<String>,
    /// Of a failed try.
    pub class: Option<Class>,
    pub duration: Duration,
    /// The end of what a handler outside Rust wrote to its stderr in this try.
    /// Stores keep the last [`LOG_MAX`] bytes and give them out with the
    /// attempts only: in a checkpoint it is always `None`.
    pub log: Option<String>,
}

/// One step as the store keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEntry {
    pub record: StepRecord,
    pub run: u32,
    pub attempt: u32,
    pub node: NodeId,
    pub at: Timestamp,
    /// Still part of the checkpoint. Steps dropped, undone, or of a completed
    /// task stay as history.
    pub live: bool,
}

/// What a task resumes from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checkpoint {
    pub version: Version,
    /// All live entries in the order of their versions, failed tries included.
    pub entries: Vec<StepEntry>,
}

impl Checkpoint {
    /// The finished steps, in order.
    pub fn finished(&self) -> impl Iterator<Item = &StepEntry> {
        self.entries.iter().filter(|e| e.live && e.record.outcome.is_finished())
    }

    /// Failed tries, oldest first.
    pub fn failures(&self) -> impl Iterator<Item = &StepEntry> {
        self.entries.iter().filter(|e| e.record.outcome == StepOutcome::Failed)
    }

    /// The outputs of the finished steps merged, later ones winning. Only
    /// objects merge; other outputs are the step's result alone.
    pub fn context(&self) -> Result<serde_json::Map<String, serde_json::Value>> {
        let mut context = serde_json::Map::new();
        for output in self.finished().filter_map(|e| e.record.output.as_ref()) {
            if let serde_json::Value::Object(fields) = output.to()? {
                context.extend(fields);
            }
        }
        Ok(context)
    }
}

/// What to do with a checkpoint that does not fit the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnMismatch {
    /// Keep the part that fits; hold the task when nothing does.
    #[default]
    KeepPrefix,
    /// Start from the first step.
    Discard,
    /// Pause for an operator.
    Hold,
}

/// What a resumed task starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validated {
    /// Everything fits.
    Whole,
    /// The first `keep` finished steps stay, the rest is dropped and announced.
    Cut { keep: usize, why: String },
    /// Paused until a person decides.
    Held { why: String },
}

/// Compares the finished steps with a declared plan. Tasks without a plan
/// (`cx.step`) look steps up by name: there only a name used twice is wrong.
pub fn validate(finished: &[&str], plan: Option<&[String]>, policy: OnMismatch) -> Validated {
    let (keep, why) = match plan {
        Some(plan) => fitting_prefix(finished, plan),
        None => distinct_prefix(finished),
    };
    let Some(why) = why else { return Validated::Whole };
    match policy {
        OnMismatch::Hold => Validated::Held { why },
        OnMismatch::Discard => Validated::Cut { keep: 0, why },
        OnMismatch::KeepPrefix if keep == 0 => Validated::Held { why },
        OnMismatch::KeepPrefix => Validated::Cut { keep, why },
    }
}

fn fitting_prefix(finished: &[&str], plan: &[String]) -> (usize, Option<String>) {
    let same = finished.iter().zip(plan).take_while(|(done, planned)| **done == planned.as_str());
    let keep = same.count();
    if keep == finished.len() {
        return (keep, None);
    }
    let why = match plan.get(keep) {
        Some(planned) => {
            format!("step {} was `{}`, the plan now says `{planned}`", keep + 1, finished[keep])
        }
        None => format!("{} steps are finished, the plan has {}", finished.len(), plan.len()),
    };
    (keep, Some(why))
}

fn distinct_prefix(finished: &[&str]) -> (usize, Option<String>) {
    for (i, name) in finished.iter().enumerate() {
        if finished[..i].contains(name) {
            return (i, Some(format!("step `{name}` is recorded twice")));
        }
    }
    (finished.len(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(names: &[&str]) -> Vec<String> {
        names.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn every_rule_under_every_policy() {
        use OnMismatch::{Discard, Hold, KeepPrefix};
        let abc = plan(&["a", "b", "c"]);
        let keep_of = |finished: &[&str], p, policy| match validate(finished, p, policy) {
            Validated::Whole => "whole".to_owned(),
            Validated::Cut { keep, .. } => format!("cut {keep}"),
            Validated::Held { .. } => "held".to_owned(),
        };
        type Row<'a> = (&'a [&'a str], Option<&'a [String]>, [&'a str; 3]);
        let table: [Row<'_>; 8] = [
            (&[], Some(&abc), ["whole", "whole", "whole"]),
            (&["a", "b"], Some(&abc), ["whole", "whole", "whole"]),
            (&["a", "b", "c"], Some(&abc), ["whole", "whole", "whole"]),
            (&["a", "x"], Some(&abc), ["cut 1", "cut 0", "held"]),
            (&["x", "b"], Some(&abc), ["held", "cut 0", "held"]),
            (&["a", "b", "c", "d"], Some(&abc), ["cut 3", "cut 0", "held"]),
            (&["q", "r", "s"], None, ["whole", "whole", "whole"]),
            (&["q", "r", "q"], None, ["cut 2", "cut 0", "held"]),
        ];
        for (finished, p, expected) in table {
            let got = [KeepPrefix, Discard, Hold].map(|policy| keep_of(finished, p, policy));
            assert_eq!(got, expected, "{finished:?}");
        }
    }

    #[test]
    fn a_tail_is_the_end_in_whole_characters() {
        for (text, max, expected) in [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "bcd"),
            ("abc", 0, ""),
            ("aéé", 4, "éé"),
            ("aéé", 3, "é"),
            ("é", 1, ""),
        ] {
            assert_eq!(tail(text, max), expected, "{text} {max}");
        }
    }

    #[test]
    fn versions_must_rise() {
        assert!(Version(2).check(Version(1)).is_ok());
        for stale in [0, 1] {
            assert_eq!(Version(stale).check(Version(1)).unwrap_err().code(), Code::VersionConflict);
        }
    }

    fn entry(name: &str, outcome: StepOutcome, output: Option<&str>, live: bool) -> StepEntry {
        let record = StepRecord {
            name: name.to_owned(),
            outcome,
            version: Version(1),
            output: output.map(Json::trusted),
            reason: None,
            class: None,
            duration: Duration::ZERO,
            log: None,
        };
        let (node, at) = (NodeId::from_key(1), Timestamp::ZERO);
        StepEntry { record, run: 1, attempt: 1, node, at, live }
    }

    #[test]
    fn context_merges_live_objects_later_ones_winning() {
        use StepOutcome::{Done, Failed, Skipped};
        let checkpoint = Checkpoint {
            version: Version(5),
            entries: vec![
                entry("a", Done, Some(r#"{"x":1,"y":1}"#), true),
                entry("b", Done, Some("[1,2]"), true),
                entry("c", Failed, Some(r#"{"bad":1}"#), true),
                entry("d", Skipped, None, true),
                entry("e", Done, Some(r#"{"y":2}"#), true),
                entry("f", Done, Some(r#"{"x":9}"#), false),
            ],
        };
        let context = serde_json::Value::Object(checkpoint.context().unwrap());
        assert_eq!(context, serde_json::json!({"x": 1, "y": 2}));
        assert_eq!(checkpoint.finished().count(), 4);
        assert_eq!(checkpoint.failures().count(), 1);
    }
}
