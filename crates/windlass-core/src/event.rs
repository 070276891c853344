//! Facts about tasks, queues and nodes. An event is written in the transaction
//! of the change it tells of, numbered densely per task, and gets its position
//! in the feed from the store. Rules that change a task push events here; how
//! they are packed and delivered is the store's and the sinks' business.

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{EventId, NodeId, TaskId};
use crate::json::Json;
use crate::task::{Card, Kind, QueueName};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Largest result that travels in `task.completed`.
pub const RESULT_MAX: usize = 64 * 1024;

macro_rules! names {
    ($($variant:ident = $code:literal $word:literal),+ $(,)?) => {
        /// What happened. The number is what stores keep; never renumber.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventName { $($variant),+ }

        impl EventName {
            pub const ALL: &'static [EventName] = &[$(EventName::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(EventName::$variant => $word),+ }
            }

            pub const fn code(self) -> u8 {
                match self { $(EventName::$variant => $code),+ }
            }
        }
    };
}

names! {
    Submitted = 1 "task.submitted",
    Started = 2 "task.started",
    Scheduled = 3 "task.scheduled",
    StepCompleted = 4 "task.step_completed",
    StepSkipped = 5 "task.step_skipped",
    StepFailed = 6 "task.step_failed",
    Progress = 7 "task.progress",
    Retrying = 8 "task.retrying",
    Waiting = 9 "task.waiting",
    Paused = 10 "task.paused",
    Resumed = 11 "task.resumed",
    Completed = 12 "task.completed",
    CompletedWithErrors = 13 "task.completed_with_errors",
    Failed = 14 "task.failed",
    Cancelled = 15 "task.cancelled",
    Requeued = 16 "task.requeued",
    RollingBack = 17 "task.rolling_back",
    RolledBack = 18 "task.rolled_back",
    LeaseLost = 19 "task.lease_lost",
    CheckpointDiscarded = 20 "checkpoint.discarded",
    DeadLetterEntered = 21 "dead_letter.entered",
    DeadLetterRequeued = 22 "dead_letter.requeued",
    DeadLetterDiscarded = 23 "dead_letter.discarded",
    QueuePaused = 24 "queue.paused",
    QueueResumed = 25 "queue.resumed",
    NodeJoined = 26 "node.joined",
    NodePaused = 27 "node.paused",
    NodeResumed = 28 "node.resumed",
    NodeDraining = 29 "node.draining",
    NodeLost = 30 "node.lost",
    LimitChanged = 31 "limit.changed",
    ScheduleFired = 32 "schedule.fired",
}

impl EventName {
    pub fn from_code(code: u8) -> Result<Self> {
        EventName::ALL
            .iter()
            .copied()
            .find(|n| n.code() == code)
            .ok_or_else(|| Error::corrupt("event", format!("{code} is no event's code")))
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        EventName::ALL
            .iter()
            .copied()
            .find(|n| n.as_str() == text)
            .ok_or_else(|| Error::invalid("event", format!("`{text}` is no event's name")))
    }
}

/// A place in the feed. Positions rise in commit order: a reader that has seen
/// one will never find a smaller one appear.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position(pub i64);

impl Position {
    /// Before the first event.
    pub const START: Position = Position(0);

    pub fn event_id(self) -> EventId {
        EventId::from_key(self.0)
    }
}

/// What an event says beside its name. The frequent ones are typed, so that
/// writing them costs no JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum EventData {
    None,
    Started {
        run: u32,
        attempt: u32,
        node: NodeId,
    },
    /// The result of a completed task, when there is one and it is small.
    Result(Json),
    Json(Json),
}

impl EventData {
    /// Text that is a JSON object by construction.
    pub(crate) fn of<T: Serialize>(value: &T) -> EventData {
        Json::of(value).map_or(EventData::None, EventData::Json)
    }

    /// The `data` object users see.
    pub fn to_json(&self) -> Json {
        match self {
            EventData::None => Json::default(),
            EventData::Started { run, attempt, node } => {
                Json::trusted(format!(r#"{{"run":{run},"attempt":{attempt},"node":"{node}"}}"#))
            }
            EventData::Result(result) => {
                Json::trusted(format!(r#"{{"result":{}}}"#, result.as_str()))
            }
            EventData::Json(json) => json.clone(),
        }
    }
}

/// One fact. Its position is given by the store; before that it is `START`.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub position: Position,
    /// `None` for facts about queues, nodes, limits.
    pub task: Option<TaskId>,
    /// The how-many-eth event of its task, from 1, without gaps; 0 without a task.
    pub n: u32,
    pub name: EventName,
    pub at: Timestamp,
    pub kind: Option<Kind>,
    pub queue: Option<QueueName>,
    pub correlation_id: Option<Arc<str>>,
    pub data: EventData,
}

impl Event {
    pub fn of_task(card: &Card, n: u32, name: EventName, at: Timestamp, data: EventData) -> Event {
        Event {
            position: Position::START,
            task: Some(card.id),
            n,
            name,
            at,
            kind: Some(card.kind.clone()),
            queue: Some(card.queue.clone()),
            correlation_id: card.correlation_id.clone(),
            data,
        }
    }

    /// A fact about something that is not a task.
    pub fn of_place(
        name: EventName,
        at: Timestamp,
        queue: Option<QueueName>,
        data: EventData,
    ) -> Event {
        Event {
            position: Position::START,
            task: None,
            n: 0,
            name,
            at,
            kind: None,
            queue,
            correlation_id: None,
            data,
        }
    }

    pub fn id(&self) -> EventId {
        self.position.event_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_codes_are_unique_and_read_back() {
        let codes: BTreeSet<u8> = EventName::ALL.iter().map(|n| n.code()).collect();
        assert_eq!(codes.len(), EventName::ALL.len());
        assert_eq!(EventName::ALL.len(), 32);
        for name in EventName::ALL {
            assert_eq!(EventName::from_code(name.code()).unwrap(), *name);
            assert_eq!(name.as_str().parse::<EventName>().unwrap(), *name);
        }
    }

    #[test]
    fn data_is_always_a_json_object() {
        let node = NodeId::from_key(5);
        for data in [
            EventData::None,
            EventData::Started { run: 1, attempt: 2, node },
            EventData::Result(Json::trusted("[1]")),
        ] {
            let value: serde_json::Value = data.to_json().to().unwrap();
            assert!(value.is_object(), "{value}");
        }
    }
}
