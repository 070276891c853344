//! Moves bulk jobs on, on every node at once and without a leader: a step is
//! made from the job as it was read, and the store takes only the first one.
//! What a job may do now is core's to say; here tasks are found, the step is
//! written, and whoever waits for one of the tasks is told. A job goes on by
//! itself after a restart, because nothing about it is kept here.

use crate::control::tell_holders;
use crate::parts::{Parts, Phase};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::batch::{
    Among, Batch, BatchStep, Preview, RUNNING_MAX, Room, Target, Verdict, Walk,
};
use windlass_core::clock::Timestamp;
use windlass_core::control::Changed;
use windlass_core::error::{ErrorKind, Result};
use windlass_core::id::TaskId;
use windlass_core::state::State;
use windlass_core::store::{Batches, Change, Query};
use windlass_core::task::{Kind, QueueName};

/// Tasks that are read at once: each may be megabytes.
const AT_ONCE: usize = 50;
/// Reads for one step; a filter that hardly matches goes on with the next.
const LOOKS_MAX: usize = 20;
/// How often tasks that were sent again are looked at.
const ANSWERS_EVERY: Duration = Duration::from_millis(250);
/// A preview counts so many tasks, and for so long.
const COUNTED_MAX: u64 = 100_000;
const COUNTING_TIME: Duration = Duration::from_secs(5);

/// Runs until the engine stops.
pub(crate) async fn batches(parts: Arc<Parts>) {
    loop {
        let wait = match parts.phase() {
            Phase::Serving if !parts.is_fenced() => turn(&parts).await,
            _ => parts.settings.poll,
        };
        let until = parts.clock.uptime() + wait;
        tokio::select! {
            biased;
            () = parts.reached(Phase::Stopped) => return,
            () = parts.batches_now.notified() => {}
            () = parts.clock.sleep_until(until) => {}
        }
    }
}

/// One step of each job that runs; how long nothing has to be done.
async fn turn(parts: &Parts) -> Duration {
    let poll = parts.settings.poll;
    let running = match parts.store.batches(Batches::Running, None, RUNNING_MAX).await {
        Ok(running) => running,
        Err(error) => {
            tracing::warn!(%error, "cannot read which batches run");
            return poll;
        }
    };
    let mut wait = poll;
    for batch in running {
        if parts.phase() != Phase::Serving {
            break;
        }
        let rest = match advance(parts, &batch).await {
            Ok(rest) => rest,
            // Another node did it, or a person stopped it: look again.
            Err(error) if error.kind() == ErrorKind::Conflict => Duration::ZERO,
            Err(error) => {
                tracing::warn!(batch = %batch.id(), %error, "a batch cannot go on now");
                poll
            }
        };
        wait = wait.min(rest);
    }
    wait
}

/// Does the next step; how long the one after has to wait.
async fn advance(parts: &Parts, batch: &Batch) -> Result<Duration> {
    let now = parts.clock.now();
    if let Room::At(at) = batch.room(now) {
        return Ok(at.since(now));
    }
    let verdicts = verdicts(parts, batch).await?;
    let mut judged = batch.clone();
    judged.judge(&verdicts);
    let found = match judged.room(now) {
        _ if judged.gives_up().is_some() => Found::default(),
        Room::Tasks(most) => find(parts, batch, most, now).await?,
        _ if verdicts.is_empty() => return Ok(ANSWERS_EVERY),
        _ => Found::default(),
    };
    write(parts, batch, verdicts, found).await?;
    Ok(Duration::ZERO)
}

async fn verdicts(parts: &Parts, batch: &Batch) -> Result<Vec<(TaskId, Verdict)>> {
    let mut verdicts = vec![];
    for &id in &batch.again.watched {
        let task = parts.store.task(id).await?;
        verdicts.extend(Verdict::of(task.as_ref()).map(|verdict| (id, verdict)));
    }
    Ok(verdicts)
}

/// What a step will be about.
#[derive(Debug)]
struct Found {
    targets: Vec<Match>,
    skipped: u64,
    walk: Walk,
}

impl Default for Found {
    fn default() -> Self {
        Found { targets: vec![], skipped: 0, walk: Walk::Stay }
    }
}

/// A task as far as a batch needs to know it.
#[derive(Debug)]
struct Match {
    id: TaskId,
    kind: Kind,
    queue: QueueName,
    state: State,
    eligible: bool,
}

async fn find(parts: &Parts, batch: &Batch, most: usize, now: Timestamp) -> Result<Found> {
    let mut found = Found::default();
    let mut before = batch.before;
    for _ in 0..LOOKS_MAX {
        let (page, next) = look(parts, batch, before, now).await?;
        for task in page {
            before = Some(task.id);
            match task.eligible {
                true => found.targets.push(task),
                false => found.skipped += 1,
            }
            if found.targets.len() == most {
                found.walk = before.map_or(Walk::Stay, Walk::To);
                return Ok(found);
            }
        }
        before = next;
        let Some(next) = next else {
            found.walk = Walk::End;
            return Ok(found);
        };
        found.walk = Walk::To(next);
    }
    Ok(found)
}

/// Tasks that match, newest first, and where to go on.
async fn look(
    parts: &Parts,
    batch: &Batch,
    before: Option<TaskId>,
    now: Timestamp,
) -> Result<(Vec<Match>, Option<TaskId>)> {
    let order = &batch.order;
    let query = Query { filter: order.filter.clone(), before, limit: AT_ONCE };
    if order.among == Among::DeadLetters {
        let page = parts.store.dead_letters(query, batch.created_at).await?;
        // A letter does not say when its task was made: the store looks again.
        let letters = page.items.into_iter().filter_map(|letter| {
            let (id, state) = (letter.task?, State::Failed);
            Some(Match { id, kind: letter.kind, queue: letter.queue, state, eligible: true })
        });
        return Ok((letters.collect(), page.next));
    }
    let page = parts.store.tasks(query, batch.created_at).await?;
    let meant = page.items.into_iter().filter(|task| batch.takes(task, false));
    let meant = meant.map(|task| Match {
        id: task.id,
        eligible: order.allows(&task, now),
        state: task.state(),
        kind: task.kind,
        queue: task.queue,
    });
    Ok((meant.collect(), page.next))
}

async fn write(
    parts: &Parts,
    batch: &Batch,
    verdicts: Vec<(TaskId, Verdict)>,
    found: Found,
) -> Result<()> {
    let change = batch.order.change();
    let new = match &change {
        Some(_) => vec![],
        None => parts.mint(found.targets.len())?,
    };
    let mut new = new.into_iter();
    let target = |task: &Match| Target { task: task.id, again: new.next() };
    let targets: Vec<Target> = found.targets.iter().map(target).collect();
    let step = BatchStep {
        batch: batch.id(),
        version: batch.version,
        verdicts,
        targets,
        skipped: found.skipped,
        walk: found.walk,
    };
    let answers = parts.store.change(Change::Step(Box::new(step)), batch.by(), parts.now()).await?;
    if let Some(change) = change {
        let ids = found.targets.iter().map(|task| task.id);
        tell_holders(parts, &change, ids.zip(&answers));
    } else {
        for (task, answer) in found.targets.iter().zip(&answers) {
            if matches!(answer, Ok(Changed::Done)) {
                parts.meters.pair(&task.kind, &task.queue).submitted(State::Queued);
            }
        }
    }
    parts.changed();
    Ok(())
}

/// What a batch would meet if it began now.
pub(crate) async fn preview(parts: &Parts, batch: &Batch) -> Result<Preview> {
    let until = parts.clock.uptime() + COUNTING_TIME;
    let (mut preview, mut before, mut counted) = (Preview::default(), None, 0);
    loop {
        let (page, next) = look(parts, batch, before, batch.created_at).await?;
        counted += page.len() as u64;
        page.iter().for_each(|task| preview.add(task.state, task.eligible));
        before = next;
        if before.is_none() {
            return Ok(preview);
        }
        if counted >= COUNTED_MAX || parts.clock.uptime() >= until {
            preview.more = true;
            return Ok(preview);
        }
    }
}
