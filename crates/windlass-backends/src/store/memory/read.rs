//! Everything a reader may ask, straight from the maps. Nothing here changes
//! one; lists walk the tasks from the newest and leave matching to the filter.

use super::{Inner, MemoryStore};
use crate::store::attempt_of;
use std::collections::BTreeMap;
use windlass_core::Result;
use windlass_core::access::AccessToken;
use windlass_core::batch::Batch;
use windlass_core::checkpoint::Checkpoint;
use windlass_core::children::Totals;
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, Position};
use windlass_core::id::{BatchId, TaskId};
use windlass_core::json::Json;
use windlass_core::limits::Limit;
use windlass_core::schedule::Schedule;
use windlass_core::standing::Place;
use windlass_core::state::State;
use windlass_core::store::{
    Attempt, AttemptEnd, AuditRow, Batches, BoxFuture, DeadLetter, NodeInfo, PAGE_MAX, Page, Query,
    QueueInfo, Reader, Stats,
};
use windlass_core::task::{Kind, QueueName, Task};

impl Reader for MemoryStore {
    fn task(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>>> {
        self.with(|inner| Ok(inner.tasks.get(&id).map(|row| row.task.clone())))
    }

    fn tasks(&self, query: Query, now: Timestamp) -> BoxFuture<'_, Result<Page<Task>>> {
        self.with(|inner| Ok(inner.page(&query, now, |row| Some(row.task.clone()))))
    }

    fn checkpoint(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        self.with(|inner| Ok(inner.live_checkpoint(id)))
    }

    fn attempts(&self, id: TaskId) -> BoxFuture<'_, Result<Vec<Attempt>>> {
        self.with(|inner| Ok(inner.attempts(id)))
    }

    fn children(&self, parent: TaskId) -> BoxFuture<'_, Result<Totals>> {
        self.with(|inner| Ok(inner.totals(parent)))
    }

    fn dead_letters(
        &self,
        query: Query,
        now: Timestamp,
    ) -> BoxFuture<'_, Result<Page<DeadLetter>>> {
        self.with(|inner| {
            Ok(inner.page(&query, now, |row| {
                if row.dead_letter { DeadLetter::of(&row.task).ok() } else { None }
            }))
        })
    }

    fn events(&self, after: Position, limit: usize) -> BoxFuture<'_, Result<Vec<Event>>> {
        self.with(|inner| {
            let start = inner.events.partition_point(|e| e.position <= after);
            Ok(inner.events.range(start..).take(limit).cloned().collect())
        })
    }

    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueInfo>>> {
        self.with(|inner| Ok(inner.queue_infos()))
    }

    fn ready_kinds(&self) -> BoxFuture<'_, Result<Vec<(QueueName, Kind)>>> {
        self.with(|inner| {
            let paused = |queue| inner.queues.get(queue).is_some_and(|q| q.paused);
            let ready = inner.ready_kinds.keys().filter(|(queue, _)| !paused(queue));
            Ok(ready.cloned().collect())
        })
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeInfo>>> {
        self.with(|inner| Ok(inner.node_infos()))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.with(|inner| Ok(inner.due.first().map(|(at, _)| *at)))
    }

    fn audit(&self, before: Option<i64>, limit: usize) -> BoxFuture<'_, Result<Vec<AuditRow>>> {
        self.with(|inner| {
            let older = |row: &&AuditRow| before.is_none_or(|before| row.seq < before);
            Ok(inner.audit.iter().rev().filter(older).take(limit.min(PAGE_MAX)).cloned().collect())
        })
    }

    fn setting(&self, key: String) -> BoxFuture<'_, Result<Option<Json>>> {
        self.with(|inner| Ok(inner.settings.get(&key).cloned()))
    }

    fn schedules(&self) -> BoxFuture<'_, Result<Vec<Schedule>>> {
        self.with(|inner| Ok(inner.schedules.values().cloned().collect()))
    }

    fn limits(&self) -> BoxFuture<'_, Result<Vec<Limit>>> {
        self.with(|inner| Ok(inner.limits.values().cloned().collect()))
    }

    fn tokens(&self) -> BoxFuture<'_, Result<Vec<AccessToken>>> {
        self.with(|inner| Ok(inner.tokens.values().cloned().collect()))
    }

    fn batch(&self, id: BatchId) -> BoxFuture<'_, Result<Option<Batch>>> {
        self.with(|inner| Ok(inner.batches.get(&id).cloned()))
    }

    fn batches(
        &self,
        which: Batches,
        before: Option<BatchId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Batch>>> {
        self.with(|inner| Ok(inner.batches(which, before, limit.min(PAGE_MAX))))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.with(|inner| {
            let mut stats = Stats { newest_event: inner.newest, ..Stats::default() };
            for row in inner.tasks.values() {
                *stats.states.entry(row.task.state()).or_default() += 1;
                stats.dead_letters += u64::from(row.dead_letter);
            }
            stats.outbox = inner.outbox.len() as u64;
            Ok(stats)
        })
    }
}

impl Inner {
    fn page<T>(
        &self,
        query: &Query,
        now: Timestamp,
        make: impl Fn(&super::Row) -> Option<T>,
    ) -> Page<T> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let end = query.before.unwrap_or(TaskId::from_key(i64::MAX));
        let mut page = Page { items: vec![], next: None };
        for (id, row) in self.tasks.range(..end).rev() {
            if !query.filter.matches(&row.task, now) {
                continue;
            }
            let Some(item) = make(row) else { continue };
            page.items.push(item);
            if page.items.len() == limit {
                page.next = Some(*id);
                break;
            }
        }
        page
    }

    fn attempts(&self, id: TaskId) -> Vec<Attempt> {
        let Some(row) = self.tasks.get(&id) else { return vec![] };
        let mut attempts = row.attempts.clone();
        let standing = &row.task.standing;
        if standing.attempt > 0 && attempts.iter().all(|a| a.token != standing.token) {
            let at = standing.finished_at.unwrap_or(standing.updated_at);
            let ended = (!standing.leased).then_some((AttemptEnd::Settled(standing.state), at));
            let failure = standing.failure.clone().filter(|_| standing.state == State::Failed);
            attempts.push(attempt_of(standing, ended, failure));
        }
        for attempt in &mut attempts {
            let of_it = |e: &&windlass_core::checkpoint::StepEntry| e.attempt == attempt.attempt;
            attempt.steps = row.steps.iter().filter(of_it).cloned().collect();
        }
        attempts
    }

    /// Ready tasks and tasks waiting for a time.
    pub(super) fn depth(&self, queue: &QueueName) -> (u64, u64) {
        let queued = self.ready.iter().filter(|(q, _, _)| q == queue).count();
        let later = self.due.iter().filter(|(_, id)| self.tasks[id].task.queue == *queue).count();
        (queued as u64, later as u64)
    }

    fn queue_infos(&self) -> Vec<QueueInfo> {
        let mut infos: BTreeMap<&QueueName, QueueInfo> = BTreeMap::new();
        for (name, rules) in &self.queues {
            let info = infos.entry(name).or_insert_with(|| QueueInfo::empty(name.clone()));
            (info.paused, info.draining) = (rules.paused, rules.draining);
            (info.concurrency, info.depth_max) = (rules.concurrency, rules.depth_max);
        }
        for row in self.tasks.values() {
            let name = &row.task.queue;
            let info = infos.entry(name).or_insert_with(|| QueueInfo::empty(name.clone()));
            let standing = &row.task.standing;
            if !standing.state.is_ended() {
                *info.states.entry(standing.state).or_default() += 1;
            }
            info.leased += u64::from(standing.leased);
            info.dead_letters += u64::from(row.dead_letter);
            if standing.place() == Place::Ready {
                let since = info.oldest_ready.unwrap_or(standing.due_at);
                info.oldest_ready = Some(since.min(standing.due_at));
            }
        }
        infos.into_values().collect()
    }

    fn node_infos(&self) -> Vec<NodeInfo> {
        let active = |node: &NodeInfo| {
            self.leased
                .iter()
                .filter(|id| self.tasks[id].task.standing.node == Some(node.id))
                .count()
        };
        self.nodes.values().map(|n| NodeInfo { active: active(n) as u64, ..n.clone() }).collect()
    }
}
