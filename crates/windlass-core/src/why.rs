//! Why is this task not running? One sentence for a person, made from the task's
//! row and what is known about its queue and the nodes. Whoever asks reads those
//! first; this file only finds the words. It changes nothing and asks no store.

use crate::clock::{Timestamp, format_duration};
use crate::outcome::WaitingOn;
use crate::read::{NodeInfo, QueueInfo};
use crate::state::State;
use crate::store::Stage;
use crate::task::Task;
use std::time::Duration;

/// What was seen around a task. Fill in the task's `standing.children` from the
/// store to hear how many children have ended.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Some node has a handler for the task's kind.
    pub kind_served: bool,
    /// The task's queue, when the store lists it.
    pub queue: Option<&'a QueueInfo>,
    /// All nodes, those whose lease has ended too.
    pub nodes: &'a [NodeInfo],
}

/// Says in one sentence why a task is where it is.
pub fn why(task: &Task, seen: &Seen<'_>, now: Timestamp) -> String {
    let standing = &task.standing;
    match standing.state {
        _ if standing.leased => held(task, seen, now),
        State::RollingBack if standing.due_at > now => backs_off(task, "Its rollback", now),
        State::Queued | State::Running | State::RollingBack => ready(task, seen, now),
        State::Retrying => backs_off(task, &format!("Attempt {}", standing.attempt), now),
        State::Scheduled | State::Waiting => waits(task, now),
        State::Paused => paused(task),
        _ => ended(task),
    }
}

/// A time as people read it: the instant, and how far away it is.
fn until(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("{at} (in {})", roughly(at.since(now)))
    } else {
        format!("{at}, which has passed: it is queued in a moment")
    }
}

/// Milliseconds only matter below a second.
fn roughly(d: Duration) -> String {
    let whole = Duration::from_secs(d.as_secs());
    format_duration(if whole.is_zero() { d } else { whole })
}

fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn held(task: &Task, seen: &Seen<'_>, now: Timestamp) -> String {
    let standing = &task.standing;
    let node = seen.nodes.iter().find(|n| Some(n.id) == standing.node);
    let name = match (node, standing.node) {
        (Some(node), _) => format!("node `{}`", node.name),
        (None, Some(id)) => format!("node {id}"),
        (None, None) => "a node".to_owned(),
    };
    let doing = if standing.state == State::RollingBack { "rolling back" } else { "running" };
    match node {
        Some(node) if node.lease_until > now => {}
        _ => {
            return format!(
                "It was {doing} on {name}, whose lease has ended: another node will take it over."
            );
        }
    }
    let since = standing.started_at.unwrap_or(standing.updated_at);
    let asked = match standing.requests {
        r if r.rollback => "; a rollback is requested",
        r if r.cancel => "; a cancel is requested",
        r if r.pause => "; a pause is requested",
        _ => "",
    };
    format!("It is {doing} on {name} since {since} (for {}){asked}.", roughly(now.since(since)))
}

/// Nothing about the task itself holds it back: its surroundings do.
fn ready(task: &Task, seen: &Seen<'_>, now: Timestamp) -> String {
    let (kind, queue) = (&task.kind, &task.queue);
    if !seen.kind_served {
        return format!("No node serves the kind `{kind}`: start one that has a handler for it.");
    }
    if seen.queue.is_some_and(|q| q.paused) {
        return format!("Its queue `{queue}` is paused: resume the queue to let it run.");
    }
    let serving: Vec<_> = seen.nodes.iter().filter(|n| n.queues.contains(queue)).collect();
    if serving.is_empty() {
        return format!("No node serves the queue `{queue}`: start one that does.");
    }
    if serving.iter().all(|n| unable(n, now).is_some()) {
        let reasons: Vec<_> = serving.iter().filter_map(|n| unable(n, now)).collect();
        return format!("No node can take it now: {}.", reasons.join(", "));
    }
    in_line(task, seen.queue)
}

/// Why a node takes no tasks.
fn unable(node: &NodeInfo, now: Timestamp) -> Option<String> {
    let name = &node.name;
    match node.stage {
        _ if node.lease_until <= now => Some(format!("the lease of node `{name}` has ended")),
        Stage::Draining => Some(format!("node `{name}` is draining")),
        Stage::Leaving => Some(format!("node `{name}` is leaving")),
        Stage::Serving if node.paused => Some(format!("node `{name}` is paused")),
        Stage::Serving => None,
    }
}

fn in_line(task: &Task, info: Option<&QueueInfo>) -> String {
    let queue = &task.queue;
    if let Some(info) = info
        && let Some(limit) = info.concurrency
        && info.leased >= u64::from(limit)
    {
        let running = info.leased;
        return format!(
            "Its queue `{queue}` runs {running} of at most {limit} at once: it waits for a place."
        );
    }
    let itself = u64::from(task.standing.state == State::Queued);
    let others = info.map_or(0, |q| q.count(State::Queued)).saturating_sub(itself);
    if others == 0 {
        return format!("It is the next of queue `{queue}`: a free node will take it.");
    }
    let others = counted(others, "other", "others");
    format!(
        "It is queued with {others} in queue `{queue}`: higher priorities go first, then older tasks."
    )
}

fn waits(task: &Task, now: Timestamp) -> String {
    let standing = &task.standing;
    match &standing.waiting_on {
        Some(WaitingOn::Children { .. }) => match standing.children {
            Some(t) => {
                let over = t.completed + t.failed + t.cancelled;
                let all = counted(t.total, "child", "children");
                format!("It waits for its children: {over} of {all} have ended.")
            }
            None => "It waits for its children to end.".to_owned(),
        },
        Some(WaitingOn::Signal { name }) => format!("It waits for the signal `{name}`."),
        Some(WaitingOn::Limit { name, until: at }) => {
            format!("The limit `{name}` lets it run at {}.", until(*at, now))
        }
        Some(WaitingOn::Handler) => "It waits for its handler to report.".to_owned(),
        Some(WaitingOn::Time { until: at }) => {
            format!("It is scheduled for {}.", until(*at, now))
        }
        Some(WaitingOn::Person { why }) => format!("It waits for a person: {why}."),
        None => format!("It is scheduled for {}.", until(standing.due_at, now)),
    }
}

/// Failed, and tried again later.
fn backs_off(task: &Task, what: &str, now: Timestamp) -> String {
    let standing = &task.standing;
    let message = standing.failure.as_ref().map_or("an error", |f| f.error.message.as_str());
    let next = until(standing.due_at, now);
    // Only a policy that came with the task is known here.
    let policy = task.extras.as_ref().and_then(|e| e.retry).map(|retry| retry.retries);
    let left = policy.map_or(String::new(), |most| {
        let left = u64::from(most.saturating_sub(standing.retries));
        format!("; {} left", counted(left, "retry is", "retries are"))
    });
    format!("{what} failed with \"{message}\"; the next try is at {next}{left}.")
}

fn paused(task: &Task) -> String {
    match &task.standing.waiting_on {
        Some(WaitingOn::Person { why }) if why != "requested" => {
            format!("It is held: {why}. Resume it to let it go on.")
        }
        _ => "It was paused by a person: resume it to let it go on.".to_owned(),
    }
}

fn ended(task: &Task) -> String {
    let standing = &task.standing;
    let at = standing.finished_at.unwrap_or(standing.updated_at);
    match standing.state {
        State::CompletedWithErrors => {
            let totals = standing.children.unwrap_or_default();
            let lost = totals.failed + totals.cancelled;
            format!("It completed at {at}, though {lost} of {} children did not.", totals.total)
        }
        State::Failed => {
            let failure = standing.failure.as_ref();
            let reason = failure.and_then(|f| f.reason).map_or("fatal", |r| r.as_str());
            let message = failure.map_or("an error", |f| f.error.message.as_str());
            format!("It failed at {at} ({reason}) with \"{message}\": requeue it to run it again.")
        }
        State::Cancelled => format!("It was cancelled at {at}: requeue it to run it again."),
        State::RolledBack => format!("It was rolled back at {at}: rerun it to do its work anew."),
        _ => format!("It completed at {at}: it has nothing left to run."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::{Then, Totals};
    use crate::id::{NodeId, TaskId};
    use crate::json::Json;
    use crate::lease::Requests;
    use crate::outcome::{Class, Failure, Reason, TaskError};
    use crate::retry::Exponential;
    use crate::task::{Kind, NewTask, QueueName};

    const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn later(secs: u64) -> Timestamp {
        T.plus(Duration::from_secs(secs))
    }

    fn in_state(state: State) -> Task {
        let new = NewTask::new(TaskId::from_key(1), Kind::trusted("a.b"), Json::default());
        let mut task = Task::born(&new, T);
        task.standing.state = state;
        task
    }

    fn node(name: &str) -> NodeInfo {
        NodeInfo {
            id: NodeId::from_key(5),
            slot: 0,
            name: name.to_owned(),
            remote: false,
            queues: vec![QueueName::default()],
            version: "1".to_owned(),
            joined_at: T,
            heartbeat_at: T,
            lease_until: later(30),
            stage: Stage::Serving,
            paused: false,
            active: 0,
            consumed: 0,
            failed: 0,
        }
    }

    fn queue(queued: u64, leased: u64) -> QueueInfo {
        let states = [(State::Queued, queued), (State::Running, leased)].into();
        QueueInfo { states, leased, ..QueueInfo::empty(QueueName::default()) }
    }

    #[test]
    fn what_holds_a_ready_task_back() {
        let one = [node("a")];
        let paused = NodeInfo { paused: true, ..node("p") };
        let draining = NodeInfo { stage: Stage::Draining, ..node("d") };
        let leaving = NodeInfo { stage: Stage::Leaving, ..node("l") };
        let gone = NodeInfo { lease_until: T, ..node("g") };
        let other = NodeInfo { queues: vec![QueueName::trusted("mail")], ..node("m") };
        let unable = [paused, draining, leaving, gone, other.clone()];
        let stopped = QueueInfo { paused: true, ..queue(1, 0) };
        let full = QueueInfo { concurrency: Some(2), ..queue(9, 2) };
        let open = QueueInfo { concurrency: Some(3), ..queue(2, 2) };
        let cases: [(bool, QueueInfo, &[NodeInfo], &str); 8] = [
            (
                false,
                queue(1, 0),
                &one,
                "No node serves the kind `a.b`: start one that has a handler for it.",
            ),
            (true, stopped, &one, "Its queue `default` is paused: resume the queue to let it run."),
            (
                true,
                queue(1, 0),
                &[other],
                "No node serves the queue `default`: start one that does.",
            ),
            (true, queue(1, 0), &[], "No node serves the queue `default`: start one that does."),
            (
                true,
                queue(1, 0),
                &unable,
                "No node can take it now: node `p` is paused, node `d` is draining, \
                 node `l` is leaving, the lease of node `g` has ended.",
            ),
            (
                true,
                full,
                &one,
                "Its queue `default` runs 2 of at most 2 at once: it waits for a place.",
            ),
            (
                true,
                open,
                &one,
                "It is queued with 1 other in queue `default`: higher priorities go first, \
                 then older tasks.",
            ),
            (
                true,
                queue(1, 0),
                &one,
                "It is the next of queue `default`: a free node will take it.",
            ),
        ];
        for (kind_served, info, nodes, expected) in cases {
            let seen = Seen { kind_served, queue: Some(&info), nodes };
            assert_eq!(why(&in_state(State::Queued), &seen, T), expected);
        }
    }

    const ALONE: Seen<'static> = Seen { kind_served: true, queue: None, nodes: &[] };

    #[test]
    fn what_a_task_waits_for() {
        let until = later(200);
        let totals = Totals { total: 10, completed: 2, failed: 1, cancelled: 0 };
        let person = |why: &str| WaitingOn::Person { why: why.to_owned() };
        let children = WaitingOn::Children { then: Then::End };
        let table = [
            (
                State::Scheduled,
                WaitingOn::Time { until },
                None,
                "It is scheduled for 2027-01-15T08:03:20Z (in 3m20s).",
            ),
            (
                State::Scheduled,
                WaitingOn::Time { until: T },
                None,
                "It is scheduled for 2027-01-15T08:00:00Z, which has passed: it is queued in a moment.",
            ),
            (
                State::Scheduled,
                WaitingOn::Limit { name: "api".to_owned(), until },
                None,
                "The limit `api` lets it run at 2027-01-15T08:03:20Z (in 3m20s).",
            ),
            (
                State::Waiting,
                WaitingOn::Signal { name: "paid".to_owned() },
                None,
                "It waits for the signal `paid`.",
            ),
            (
                State::Waiting,
                children.clone(),
                Some(totals),
                "It waits for its children: 3 of 10 children have ended.",
            ),
            (State::Waiting, children.clone(), None, "It waits for its children to end."),
            (State::Waiting, WaitingOn::Handler, None, "It waits for its handler to report."),
            (
                State::Paused,
                person("requested"),
                None,
                "It was paused by a person: resume it to let it go on.",
            ),
            (
                State::Paused,
                children,
                None,
                "It was paused by a person: resume it to let it go on.",
            ),
            (
                State::Paused,
                person("the plan has changed"),
                None,
                "It is held: the plan has changed. Resume it to let it go on.",
            ),
        ];
        for (state, on, totals, expected) in table {
            let mut task = in_state(state);
            (task.standing.waiting_on, task.standing.children) = (Some(on), totals);
            assert_eq!(why(&task, &ALONE, T), expected);
        }
    }

    #[test]
    fn what_failed_and_when_it_is_tried_again() {
        let mut task = in_state(State::Retrying);
        let standing = &mut task.standing;
        (standing.attempt, standing.retries, standing.due_at) = (3, 2, later(90));
        standing.failure = Some(Failure::latest(TaskError::new(Class::Retryable, "busy")));
        let text = why(&task, &ALONE, T);
        assert_eq!(
            text,
            "Attempt 3 failed with \"busy\"; the next try is at 2027-01-15T08:01:30Z (in 1m30s)."
        );
        for (retries, left) in
            [(5, "; 3 retries are left."), (3, "; 1 retry is left."), (1, "; 0 retries are left.")]
        {
            let retry = Some(Exponential { retries, ..Exponential::TASK });
            task.extras =
                Some(std::sync::Arc::new(crate::task::Extras { retry, ..Default::default() }));
            let text = why(&task, &ALONE, T);
            assert!(text.ends_with(left), "{text}");
        }
        task.standing.state = State::RollingBack;
        assert!(why(&task, &ALONE, T).starts_with("Its rollback failed with \"busy\""));
        task.standing.due_at = T;
        assert!(why(&task, &ALONE, T).starts_with("No node serves the queue"));
    }

    #[test]
    fn who_runs_it() {
        let mut task = in_state(State::Running);
        let standing = &mut task.standing;
        (standing.leased, standing.started_at) = (true, Some(T));
        standing.node = Some(NodeId::from_key(5));
        let nodes = [node("a")];
        let seen = Seen { nodes: &nodes, ..ALONE };
        let running = "It is running on node `a` since 2027-01-15T08:00:00Z (for 7s)";
        assert_eq!(why(&task, &seen, later(7)), format!("{running}."));
        let lost =
            "It was running on node `a`, whose lease has ended: another node will take it over.";
        assert_eq!(why(&task, &seen, later(30)), lost);
        assert!(why(&task, &ALONE, T).contains(&NodeId::from_key(5).to_string()));
        task.standing.requests = Requests { cancel: true, ..Requests::NONE };
        assert_eq!(why(&task, &seen, later(7)), format!("{running}; a cancel is requested."));
        task.standing.state = State::RollingBack;
        assert!(why(&task, &seen, T).starts_with("It is rolling back on node `a`"));
    }

    #[test]
    fn how_it_ended() {
        let failed = Failure::ended(Reason::Exhausted, TaskError::new(Class::Retryable, "busy"));
        let table = [
            (State::Completed, "It completed at 2027-01-15T08:00:00Z: it has nothing left to run."),
            (
                State::CompletedWithErrors,
                "It completed at 2027-01-15T08:00:00Z, though 2 of 5 children did not.",
            ),
            (
                State::Failed,
                "It failed at 2027-01-15T08:00:00Z (exhausted) with \"busy\": requeue it to run it again.",
            ),
            (
                State::Cancelled,
                "It was cancelled at 2027-01-15T08:00:00Z: requeue it to run it again.",
            ),
            (
                State::RolledBack,
                "It was rolled back at 2027-01-15T08:00:00Z: rerun it to do its work anew.",
            ),
        ];
        for (state, expected) in table {
            let mut task = in_state(state);
            task.standing.finished_at = Some(T);
            task.standing.failure = Some(failed.clone());
            task.standing.children =
                Some(Totals { total: 5, completed: 3, failed: 1, cancelled: 1 });
            assert_eq!(why(&task, &ALONE, later(60)), expected);
        }
    }

    #[test]
    fn every_state_has_one_sentence() {
        for state in State::ALL {
            let text = why(&in_state(state), &ALONE, T);
            assert!(text.ends_with('.') && text.len() > 20, "{state}: {text}");
        }
    }
}
