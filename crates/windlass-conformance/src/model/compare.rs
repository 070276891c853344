//! Reads a store back and compares it with the model, first difference first.
//! The feed is read on from where the latest comparison stopped; tasks are
//! compared when they changed since then, or all of them at the end.

use super::node::Host;
use super::{Model, Row, Run, Step, has_ended};
use std::collections::BTreeMap;
use std::fmt::Debug;
use windlass_core::checkpoint::{Checkpoint, StepEntry, StepRecord};
use windlass_core::clock::Timestamp;
use windlass_core::error::Result;
use windlass_core::event::Event;
use windlass_core::filter::Filter;
use windlass_core::id::TaskId;
use windlass_core::outcome::{Class, Failure, Reason};
use windlass_core::state::State;
use windlass_core::store::{
    Attempt, AttemptEnd, DeadLetter, NodeInfo, PAGE_MAX, Query, QueueInfo, Reader, Store,
};
use windlass_core::task::Task;

/// How much of a store is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// What changed since the latest comparison.
    Touched,
    Everything,
}

type Verdict = std::result::Result<(), String>;

fn same<T: PartialEq + Debug>(what: &str, store: T, model: T) -> Verdict {
    if store == model {
        return Ok(());
    }
    Err(format!("{what}: the store has {store:?}, the model {model:?}"))
}

fn read<T>(what: &str, answer: Result<T>) -> std::result::Result<T, String> {
    answer.map_err(|e| format!("reading {what}: {e}"))
}

impl Model {
    /// Compares a store with the model; the error names the first difference.
    pub async fn compare(&mut self, store: &dyn Store, now: Timestamp, scope: Scope) -> Verdict {
        let found = self.differences(store, now, scope).await;
        found.map_err(|what| self.complain(&what))
    }

    async fn differences(&mut self, store: &dyn Store, now: Timestamp, scope: Scope) -> Verdict {
        self.read_feed(store).await?;
        let ids: Vec<TaskId> = match scope {
            Scope::Touched => self.touched.iter().copied().collect(),
            Scope::Everything => self.tasks.keys().copied().collect(),
        };
        for id in ids {
            self.compare_task(store, id).await.map_err(|what| format!("{id} {what}"))?;
        }
        self.touched.clear();
        self.compare_nodes(store).await?;
        self.compare_queues(store).await?;
        if scope == Scope::Everything {
            self.compare_dead_letters(store, now).await?;
            self.compare_counts(store).await?;
        }
        Ok(())
    }

    async fn read_feed(&mut self, store: &dyn Reader) -> Verdict {
        loop {
            let events = read("events", store.events(self.seen, PAGE_MAX).await)?;
            for event in &events {
                if event.position <= self.seen {
                    return Err(format!("{event:?} comes after {:?}", self.seen));
                }
                self.seen = event.position;
                self.take_event(event)?;
            }
            if events.is_empty() {
                break;
            }
        }
        same("events of places", self.seen_places, self.places.len())?;
        let missing = self.tasks.values().find(|row| row.fed != row.events.len());
        match missing {
            Some(row) => Err(format!("{} misses events {:?}", row.id(), &row.events[row.fed..])),
            None => Ok(()),
        }
    }

    fn take_event(&mut self, event: &Event) -> Verdict {
        let Some(id) = event.task else {
            let expected = self.places.get(self.seen_places).copied();
            self.seen_places += 1;
            return same("event of a place", Some(event.name), expected);
        };
        let unknown = || format!("{event:?} of an unknown task");
        let row = self.tasks.get_mut(&id).ok_or_else(unknown)?;
        compare_event(row, event).map_err(|what| format!("{id} {what}"))?;
        row.fed += 1;
        Ok(())
    }

    async fn compare_task(&self, store: &dyn Reader, id: TaskId) -> Verdict {
        let row = &self.tasks[&id];
        let task = read("the task", store.task(id).await)?.ok_or("is not in the store")?;
        compare_fields(row, &task)?;
        compare_progress(row, &task)?;
        if row.attempt > 0 {
            compare_checkpoint(row, read("its checkpoint", store.checkpoint(id).await)?)?;
            compare_attempts(row, &read("its attempts", store.attempts(id).await)?)?;
        }
        same("has_children", task.standing.has_children, self.children_of.contains_key(&id))?;
        if self.children_of.contains_key(&id) {
            let totals = read("its children", store.children(id).await)?;
            same("children", totals, self.totals(id))?;
        }
        Ok(())
    }

    async fn compare_nodes(&self, store: &dyn Reader) -> Verdict {
        let mut found = read("nodes", store.nodes().await)?;
        found.sort_by_key(|n| n.id);
        let ids: Vec<_> = found.iter().map(|n| n.id).collect();
        same("nodes", ids, self.nodes.keys().copied().collect())?;
        for info in found {
            let host = &self.nodes[&info.id];
            let active = self.held_by(info.id).len() as u64;
            compare_node(host, active, &info).map_err(|what| format!("{} {what}", info.id))?;
        }
        Ok(())
    }

    async fn compare_queues(&self, store: &dyn Reader) -> Verdict {
        let found = read("queues", store.queues().await)?;
        let mut names: Vec<_> = self.tasks.values().map(|r| &r.new.queue).collect();
        names.extend(self.paused.iter().chain(&self.draining));
        names.sort();
        names.dedup();
        for name in names {
            let info = found.iter().find(|q| q.name == *name);
            let info = info.ok_or_else(|| format!("queue {name} is not listed"))?;
            self.compare_queue(info).map_err(|what| format!("queue {name} {what}"))?;
        }
        Ok(())
    }

    fn compare_queue(&self, info: &QueueInfo) -> Verdict {
        let name = &info.name;
        let rows = || self.tasks.values().filter(|r| r.new.queue == *name);
        same("paused", info.paused, self.paused.contains(name))?;
        same("draining", info.draining, self.draining.contains(name))?;
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        for row in rows().filter(|r| !has_ended(r.state)) {
            *states.entry(row.state).or_default() += 1;
        }
        same("states", &info.states, &states)?;
        same("leased", info.leased, rows().filter(|r| r.leased).count() as u64)?;
        let dead = self.dead.iter().filter(|id| self.tasks[id].new.queue == *name);
        same("dead letters", info.dead_letters, dead.count() as u64)?;
        let ready: Vec<_> = rows().filter(|r| r.is_ready()).map(|r| r.due_at).collect();
        // A store may tell of another ready task than the one that waits longest.
        match info.oldest_ready {
            None => same("ready tasks", 0, ready.len()),
            Some(since) if ready.contains(&since) => Ok(()),
            Some(since) => Err(format!("has no task that is ready since {since}: {ready:?}")),
        }
    }

    async fn compare_dead_letters(&self, store: &dyn Reader, now: Timestamp) -> Verdict {
        let mut found = vec![];
        let mut before = None;
        loop {
            let query = Query { filter: Filter::default(), before, limit: PAGE_MAX };
            let page = read("dead letters", store.dead_letters(query, now).await)?;
            found.extend(page.items);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let ids: Vec<_> = found.iter().filter_map(|d| d.task).collect();
        same("dead letters", ids, self.dead.iter().rev().copied().collect())?;
        for letter in found {
            let row = letter.task.map(|id| &self.tasks[&id]).ok_or("no task")?;
            compare_letter(row, &letter).map_err(|what| format!("{} {what}", row.id()))?;
        }
        Ok(())
    }

    async fn compare_counts(&self, store: &dyn Reader) -> Verdict {
        let stats = read("stats", store.stats().await)?;
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        for row in self.tasks.values() {
            *states.entry(row.state).or_default() += 1;
        }
        same("tasks by state", stats.states, states)?;
        same("number of dead letters", stats.dead_letters, self.dead.len() as u64)?;
        same("outbox", stats.outbox, self.outbox_len() as u64)?;
        same("newest event", stats.newest_event, self.seen)?;
        let due = self.tasks.values().filter(|r| r.waits_for_time()).map(|r| r.due_at).min();
        same("next due", read("next due", store.next_due().await)?, due)
    }
}

fn compare_fields(row: &Row, task: &Task) -> Verdict {
    let standing = &task.standing;
    same("state", standing.state, row.state)?;
    same("leased", standing.leased, row.leased)?;
    same("token", standing.token, row.token)?;
    same("version", standing.version, row.version)?;
    same("run", standing.run, row.run)?;
    same("attempt", standing.attempt, row.attempt)?;
    same("retries", standing.retries, row.retries)?;
    same("crashes", standing.crashes, row.crashes)?;
    same("requests", standing.requests, row.requests)?;
    same("held_from", standing.held_from, row.held_from)?;
    same("node", standing.node, row.node)?;
    same("events", standing.event_n as usize, row.events.len())?;
    same("started_at", standing.started_at, row.started_at)?;
    same("finished_at", standing.finished_at, row.finished_at)?;
    same("waiting_on", &standing.waiting_on, &row.waiting_on)?;
    if !row.leased && !has_ended(row.state) {
        same("due_at", standing.due_at, row.due_at)?;
    }
    same("kind", &task.kind, &row.new.kind)?;
    same("queue", &task.queue, &row.new.queue)?;
    same("priority", task.priority, row.new.priority)?;
    same("payload", &task.payload, &row.new.payload)?;
    same("parent", task.parent, row.parent())?;
    same("extras", &task.extras, &row.new.extras)?;
    same("created_at", task.created_at, row.created_at)?;
    same("deadline", task.deadline, row.deadline)
}

/// While a node holds the task, absent means unchanged.
fn compare_progress(row: &Row, task: &Task) -> Verdict {
    let standing = &task.standing;
    let known = |absent: bool| !(row.leased && absent);
    if known(standing.result.is_none()) {
        same("result", &standing.result, &row.result)?;
    }
    if known(standing.progress.is_none()) {
        same("progress", &standing.progress, &row.progress)?;
    }
    if known(standing.failure.is_none()) {
        same("failure", failure_words(&standing.failure), failure_words(&row.failure))?;
    }
    same("frozen totals", standing.children, row.totals)
}

fn failure_words(failure: &Option<Failure>) -> Option<(Option<Reason>, Class)> {
    failure.as_ref().map(|f| (f.reason, f.error.class))
}

type StepWords<'a> = (&'a str, u64, i64, bool);

fn words_of(step: &Step) -> StepWords<'_> {
    (&step.record.name, step.record.version.0, step.record.outcome.code(), step.live)
}

fn words_of_entry(entry: &StepEntry) -> StepWords<'_> {
    (&entry.record.name, entry.record.version.0, entry.record.outcome.code(), entry.live)
}

/// Of a long log the end is kept, and half a character is not.
fn log_of(step: &Step) -> Option<String> {
    let log = step.record.log.as_ref()?;
    let mut start = log.len().saturating_sub(16 * 1024);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    Some(log[start..].to_owned())
}

fn compare_checkpoint(row: &Row, found: Option<Checkpoint>) -> Verdict {
    let live: Vec<_> = row.steps.iter().filter(|s| s.live).collect();
    let Some(found) = found else {
        return same("steps of its checkpoint", 0, live.len());
    };
    same("its checkpoint's version", found.version, row.version)?;
    let expected: Vec<_> = live.iter().map(|s| words_of(s)).collect();
    same("its checkpoint", found.entries.iter().map(words_of_entry).collect(), expected)?;
    let records = found.entries.iter().map(|e| e.record.clone()).collect::<Vec<_>>();
    let unlogged = |s: &&Step| StepRecord { log: None, ..s.record.clone() };
    same("its checkpoint's data", records, live.iter().map(unlogged).collect())
}

fn compare_attempts(row: &Row, found: &[Attempt]) -> Verdict {
    let tokens: Vec<_> = found.iter().map(|a| a.token).collect();
    same("attempts", tokens, row.attempts.iter().map(|a| a.token).collect())?;
    for (found, own) in found.iter().zip(&row.attempts) {
        let steps = row.steps.iter().filter(|s| s.token == own.token).map(words_of).collect();
        let there: Vec<_> = found.steps.iter().map(words_of_entry).collect();
        let logs = row.steps.iter().filter(|s| s.token == own.token).map(log_of).collect();
        let logs_there: Vec<_> = found.steps.iter().map(|e| e.record.log.clone()).collect();
        compare_attempt(own, found)
            .and_then(|()| same("steps", there, steps))
            .and_then(|()| same("logs", logs_there, logs))
            .map_err(|what| format!("attempt {} {what}", own.token.0))?;
    }
    Ok(())
}

fn compare_attempt(own: &Run, found: &Attempt) -> Verdict {
    same("ended", found.ended, own.ended)?;
    same("node", found.node, own.node)?;
    same("started", found.started_at, own.started_at)?;
    same("(run, attempt)", (found.run, found.attempt), (own.run, own.attempt))?;
    // What a cancelled attempt failed with is not kept apart from the task's.
    if own.ended.map(|(end, _)| end) == Some(AttemptEnd::Settled(State::Cancelled)) {
        return Ok(());
    }
    same("failure", failure_words(&found.failure), failure_words(&own.failure))
}

fn compare_event(row: &Row, event: &Event) -> Verdict {
    let (n, name) = (row.fed + 1, row.events.get(row.fed).copied());
    same("event", (event.n as usize, Some(event.name)), (n, name))?;
    same("event's queue", event.queue.as_ref(), Some(&row.new.queue))?;
    same("event's kind", event.kind.as_ref(), Some(&row.new.kind))
}

fn compare_node(host: &Host, active: u64, info: &NodeInfo) -> Verdict {
    same("lease", info.lease_until, host.lease_until)?;
    same("slot", info.slot, host.slot)?;
    same("name", &info.name, &host.new.name)?;
    same("queues", &info.queues, &host.new.queues)?;
    same("stage", info.stage, host.stage)?;
    same("paused", info.paused, host.paused)?;
    same("active", info.active, active)?;
    same("consumed", info.consumed, host.consumed)?;
    same("failed", info.failed, host.failed)
}

fn compare_letter(row: &Row, letter: &DeadLetter) -> Verdict {
    let words = Some((Some(letter.reason), letter.class));
    same("dead letter", words, failure_words(&row.failure))?;
    same("dead letter's attempts", letter.attempts, row.attempt)?;
    same("dead letter's node", letter.node, row.node)?;
    same("dead letter's time", Some(letter.at), row.finished_at)?;
    same("dead letter's kind", &letter.kind, &row.new.kind)?;
    same("dead letter's queue", &letter.queue, &row.new.queue)
}
