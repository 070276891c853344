//! What a case sees of a store, and how it compares. Everything is read
//! through [`Reader`](windlass_core::store::Reader), as any user of the store
//! would; a [`Snapshot`] of all of it proves that a refusal changed nothing.

use super::world::World;
use std::collections::BTreeMap;
use std::fmt::Debug;
use windlass_core::checkpoint::Checkpoint;
use windlass_core::clock::Timestamp;
use windlass_core::error::{Code, ErrorKind, Result};
use windlass_core::event::{Event, Position};
use windlass_core::filter::Filter;
use windlass_core::id::TaskId;
use windlass_core::limits::Limit;
use windlass_core::schedule::Schedule;
use windlass_core::state::State;
use windlass_core::store::{
    Attempt, AuditRow, DeadLetter, NodeInfo, PAGE_MAX, Query, QueueInfo, Stats,
};
use windlass_core::task::Task;

/// More pages than any case fills; a cursor that never ends must not hang it.
const PAGES: usize = 1000;

/// All that readers can see, without the audit list.
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    pub tasks: Vec<Task>,
    pub attempts: Vec<Vec<Attempt>>,
    pub checkpoints: Vec<Option<Checkpoint>>,
    pub dead_letters: Vec<DeadLetter>,
    pub events: Vec<Event>,
    pub queues: Vec<QueueInfo>,
    pub nodes: Vec<NodeInfo>,
    pub schedules: Vec<Schedule>,
    pub limits: Vec<Limit>,
    pub stats: Stats,
    pub next_due: Option<Timestamp>,
}

/// Checks the code of a refusal.
#[track_caller]
pub fn refused<T: Debug>(answer: Result<T>, code: Code) {
    let error = answer.expect_err("a refusal");
    assert_eq!(error.code(), code, "{error}");
}

/// Checks the kind of a refusal, where the contract names no code.
#[track_caller]
pub fn refused_as<T: Debug>(answer: Result<T>, kind: ErrorKind) {
    let error = answer.expect_err("a refusal");
    assert_eq!(error.kind(), kind, "{error}");
}

/// The condition of a list.
pub fn filter(text: &str) -> Filter {
    if text.is_empty() { Filter::default() } else { Filter::parse(text).expect("a filter") }
}

pub fn query(text: &str) -> Query {
    Query { filter: filter(text), before: None, limit: PAGE_MAX }
}

impl World {
    pub async fn get(&self, id: TaskId) -> Task {
        self.find(id).await.expect("a stored task")
    }

    pub async fn find(&self, id: TaskId) -> Option<Task> {
        self.store().task(id).await.expect("a read task")
    }

    pub async fn state(&self, id: TaskId) -> State {
        self.get(id).await.state()
    }

    pub async fn states(&self, ids: &[TaskId]) -> Vec<State> {
        let mut states = vec![];
        for &id in ids {
            states.push(self.state(id).await);
        }
        states
    }

    pub async fn attempts(&self, id: TaskId) -> Vec<Attempt> {
        self.store().attempts(id).await.expect("read attempts")
    }

    pub async fn checkpoint(&self, id: TaskId) -> Option<Checkpoint> {
        self.store().checkpoint(id).await.expect("a read checkpoint")
    }

    /// The names of the finished steps in the checkpoint.
    pub async fn finished(&self, id: TaskId) -> Vec<String> {
        let checkpoint = self.checkpoint(id).await.unwrap_or_default();
        checkpoint.finished().map(|e| e.record.name.clone()).collect()
    }

    /// The whole feed, in order.
    pub async fn feed(&self) -> Vec<Event> {
        self.feed_after(Position::START).await
    }

    pub async fn feed_after(&self, after: Position) -> Vec<Event> {
        let mut events: Vec<Event> = vec![];
        for _ in 0..PAGES {
            let from = events.last().map_or(after, |e| e.position);
            let page = self.store().events(from, PAGE_MAX).await.expect("read events");
            if page.is_empty() {
                let rising = events.windows(2).all(|pair| pair[0].position < pair[1].position);
                assert!(rising, "positions rise through the feed");
                return events;
            }
            events.extend(page);
        }
        panic!("the feed never ends");
    }

    /// The events of one task, checked to be numbered from 1 without gaps.
    pub async fn events_of(&self, id: TaskId) -> Vec<Event> {
        let events: Vec<Event> =
            self.feed().await.into_iter().filter(|e| e.task == Some(id)).collect();
        let numbers: Vec<u32> = events.iter().map(|e| e.n).collect();
        let dense: Vec<u32> = (1..).take(events.len()).collect();
        assert_eq!(numbers, dense, "events of {id} are numbered without gaps");
        events
    }

    /// The names of a task's events.
    pub async fn story(&self, id: TaskId) -> Vec<&'static str> {
        self.events_of(id).await.iter().map(|e| e.name.as_str()).collect()
    }

    /// How many events of this name are in the feed.
    pub async fn told(&self, name: &str) -> usize {
        self.feed().await.iter().filter(|e| e.name.as_str() == name).count()
    }

    /// All tasks that match, newest first, page by page.
    pub async fn list(&self, text: &str) -> Vec<Task> {
        let mut query = query(text);
        let mut tasks = vec![];
        for _ in 0..PAGES {
            let page = self.store().tasks(query.clone(), self.at()).await.expect("a page");
            tasks.extend(page.items);
            match page.next {
                Some(next) => query.before = Some(next),
                None => return tasks,
            }
        }
        panic!("the list never ends");
    }

    pub async fn list_ids(&self, text: &str) -> Vec<TaskId> {
        self.list(text).await.iter().map(|t| t.id).collect()
    }

    pub async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.dead_letters_of("").await
    }

    pub async fn dead_letters_of(&self, text: &str) -> Vec<DeadLetter> {
        let mut query = query(text);
        let mut letters = vec![];
        for _ in 0..PAGES {
            let page = self.store().dead_letters(query.clone(), self.at()).await.expect("a page");
            letters.extend(page.items);
            match page.next {
                Some(next) => query.before = Some(next),
                None => return letters,
            }
        }
        panic!("the list of dead letters never ends");
    }

    pub async fn dead_letter(&self, id: TaskId) -> Option<DeadLetter> {
        self.dead_letters().await.into_iter().find(|d| d.task == Some(id))
    }

    pub async fn stats(&self) -> Stats {
        self.store().stats().await.expect("read stats")
    }

    /// A queue as readers see it; nothing of it when it is not listed.
    pub async fn queue(&self, name: &str) -> QueueInfo {
        let queues = self.store().queues().await.expect("read queues");
        let found = queues.into_iter().find(|q| q.name.as_str() == name);
        found.unwrap_or_else(|| QueueInfo::empty(super::make::queue(name)))
    }

    /// All nodes the store knows, in the order they joined.
    pub async fn nodes(&self) -> Vec<NodeInfo> {
        let mut nodes = self.store().nodes().await.expect("read nodes");
        nodes.sort_by_key(|n| (n.joined_at, n.id));
        nodes
    }

    pub async fn node_info(&self, node: &super::Node) -> Option<NodeInfo> {
        self.nodes().await.into_iter().find(|n| n.id == node.id)
    }

    /// The newest rows of the audit list, newest first.
    pub async fn audit(&self) -> Vec<AuditRow> {
        self.store().audit(None, PAGE_MAX).await.expect("the audit list")
    }

    pub async fn snapshot(&self) -> Snapshot {
        let tasks = self.list("").await;
        let (mut attempts, mut checkpoints) = (vec![], vec![]);
        for task in &tasks {
            attempts.push(self.attempts(task.id).await);
            checkpoints.push(self.checkpoint(task.id).await);
        }
        let mut queues = self.store().queues().await.expect("read queues");
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        let mut schedules = self.store().schedules().await.expect("read schedules");
        schedules.sort_by(|a, b| a.name.cmp(&b.name));
        let mut limits = self.store().limits().await.expect("read limits");
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        Snapshot {
            tasks,
            attempts,
            checkpoints,
            dead_letters: self.dead_letters().await,
            events: self.feed().await,
            queues,
            nodes: self.nodes().await,
            schedules,
            limits,
            stats: self.stats().await,
            next_due: self.store().next_due().await.expect("read next due"),
        }
    }

    /// Nothing that readers can see has changed.
    pub async fn unchanged_since(&self, before: &Snapshot) {
        let after = self.snapshot().await;
        assert_eq!(after.tasks, before.tasks, "tasks changed");
        assert_eq!(after.events, before.events, "events changed");
        assert_eq!(&after, before, "something changed");
    }

    /// What must hold in any store at any time: dense event numbers, counts
    /// that agree with the rows, a dead letter only for failed tasks.
    pub async fn sound(&self) {
        let tasks = self.list("").await;
        let mut events: BTreeMap<TaskId, Vec<u32>> = BTreeMap::new();
        for event in self.feed().await {
            let Some(task) = event.task else { continue };
            events.entry(task).or_default().push(event.n);
        }
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        for task in &tasks {
            let numbers = events.remove(&task.id).unwrap_or_default();
            let dense: Vec<u32> = (1..=task.standing.event_n).collect();
            assert_eq!(numbers, dense, "events of {}", task.id);
            let held = task.standing.leased;
            assert!(!held || task.state().is_leasable(), "{} is leased", task.state());
            *states.entry(task.state()).or_default() += 1;
        }
        let stats = self.stats().await;
        assert_eq!(stats.states, states, "counts by state agree with the rows");
        let letters = self.dead_letters().await;
        assert_eq!(stats.dead_letters, letters.len() as u64);
        for letter in letters {
            let task = tasks.iter().find(|t| Some(t.id) == letter.task);
            assert_eq!(task.map(Task::state), Some(State::Failed), "{letter:?}");
        }
    }
}
