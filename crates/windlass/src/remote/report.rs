//! What a worker says: first its heartbeat, which is also the fence (a worker
//! whose lease has ended writes nothing), then everything it reports in one batch.
//! Each report has its own answer and spoils no other. What a worker was told to
//! stop and did not, and what ran too long, is ended here in its place.

use super::finish::{Ending, invalid, outcome_of, step_record};
use super::known::Given;
use super::{
    Asked, Finish, HELD_MAX, REPORTS_MAX, Report, ReportAnswer, ReportRequest, Said, Wish, Workers,
    by_clock,
};
use crate::record::count;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use windlass_core::error::{Error, Result};
use windlass_core::id::{NodeId, TaskId};
use windlass_core::json::Json;
use windlass_core::lease::{ClaimNo, LeaseKey, Requests, Token};
use windlass_core::outcome::Outcome;
use windlass_core::store::{Renewed, Stage, Write, Written};
use windlass_core::task::{Progress, check_payload_size};

/// Tasks with their tokens.
type Named = HashMap<TaskId, Token>;

/// Most attempts that one call ends in the worker's place, and most leases of
/// other processes that it reads.
const OVERDUE_MAX: usize = 1000;
const READS_MAX: usize = 100;
/// A worker that ends tasks all the time is not renewed more often than this.
const RENEW_EVERY: Duration = Duration::from_millis(100);

/// A write, and what is told when the store has answered.
enum Entry {
    Plain(Box<Write>),
    End(Box<Ending>),
}

impl Entry {
    fn write(&self) -> &Write {
        match self {
            Entry::Plain(write) => write,
            Entry::End(end) => &end.write,
        }
    }
}

/// What becomes of one report.
enum Fate {
    Known(Result<()>),
    /// As the entry at this place goes.
    Written(usize),
    /// Its result is what the steps gave, which must be written first.
    Merged(LeaseKey),
    /// The same in the second batch.
    Later(usize),
}

impl Workers {
    /// Renews everything the worker holds and writes what it reports. `LeaseLost`:
    /// the worker's own lease has ended, and nothing was written.
    pub async fn report(&self, id: NodeId, request: ReportRequest) -> Result<ReportAnswer> {
        check(&request)?;
        if self.parts.remote.known.worker(id, |_| ()).is_none() {
            // A stranger must not be able to speak for a node of another sort.
            self.alive(id).await?;
        }
        let named = named(&request);
        let renewed = self.heartbeat(id, &request, &named).await?;
        let lost: HashSet<TaskId> = renewed.iter().flat_map(|r| r.lost.iter().copied()).collect();
        let finished: HashSet<TaskId> = finished(&request);
        let ReportRequest { held, reports, leaving } = request;

        let (mut entries, mut fates) = (vec![], vec![]);
        for report in reports {
            fates.push(self.weigh(id, report, &lost, &mut entries).await);
        }
        let running = held.into_iter().filter(|(task, _)| !finished.contains(task));
        let running: Vec<_> = running.collect();
        let mut requests = self.requests(id, &renewed, &running, &lost);
        self.end_overdue(id, &running, &lost, &mut entries, &mut requests).await;

        let answers = self.write(id, entries).await?;
        let mut merged = vec![];
        for fate in &mut fates {
            if let Fate::Merged(key) = *fate {
                *fate = self.finish_merged(key, &mut merged).await?;
            }
        }
        let later = self.write(id, merged).await?;
        let results = fates.into_iter().map(|fate| match fate {
            Fate::Known(result) => result,
            Fate::Written(place) => told(&answers, place),
            Fate::Later(place) => told(&later, place),
            Fate::Merged(key) => Err(not_held(&key)),
        });
        let results = results.collect();
        if leaving {
            let running = running.into_iter().filter(|(task, _)| !lost.contains(task)).collect();
            self.renew(id, running, ClaimNo(0), Stage::Leaving).await?;
            self.parts.remote.known.forget(id);
            self.parts.remote.hub.look();
            self.parts.bell.ring(crate::wake::Wake::Work);
        }
        Ok(ReportAnswer { results, requests })
    }

    /// `None`: it was renewed just now.
    async fn heartbeat(
        &self,
        id: NodeId,
        request: &ReportRequest,
        named: &Named,
    ) -> Result<Option<Renewed>> {
        let parts = &self.parts;
        let (now, grace) = (parts.clock.uptime(), parts.settings.times().heartbeat());
        let every = RENEW_EVERY.min(grace / 3);
        let ends = request.reports.iter().any(|r| matches!(r.said, Said::Finish(_)));
        let fresh = parts.remote.known.worker(id, |w| {
            w.alive_until > now && w.renewed.is_some_and(|at| now.saturating_sub(at) < every)
        });
        if ends && fresh == Some(true) && !request.leaving {
            return Ok(None);
        }
        let held = named.iter().map(|(task, token)| (*task, *token)).collect();
        // What was claimed later may still be on its way to the worker.
        let answered = ClaimNo(by_clock(parts.clock.now().minus(grace)));
        let renewed = self.renew(id, held, answered, Stage::Serving).await?;
        parts.remote.known.worker(id, |w| {
            let over = |since: Duration| now.saturating_sub(since) >= grace;
            w.alone.take_if(|a| !named.contains_key(&a.task) && over(a.since));
        });
        if renewed.given_back > 0 {
            tracing::info!(node = %id, tasks = renewed.given_back, "tasks of a lost lease answer went back");
            parts.bell.ring(crate::wake::Wake::Work);
            parts.remote.hub.look();
        }
        Ok(Some(renewed))
    }

    /// What one report writes.
    async fn weigh(
        &self,
        id: NodeId,
        report: Report,
        lost: &HashSet<TaskId>,
        entries: &mut Vec<Entry>,
    ) -> Fate {
        let key = LeaseKey { task: report.task, node: id, token: report.token };
        match report.said {
            Said::Step(step) => match step_record(&self.parts, step) {
                Ok(record) => {
                    entries.push(plain(Write { steps: vec![record], ..Write::new(key) }));
                    Fate::Written(entries.len() - 1)
                }
                Err(error) => Fate::Known(Err(error)),
            },
            Said::Progress(_) if lost.contains(&key.task) => Fate::Known(Err(not_held(&key))),
            Said::Progress(progress) => self.progressed(key, progress, entries),
            Said::Finish(Finish::Done { output: None }) => Fate::Merged(key),
            Said::Finish(finish) => {
                let of = |given: &Given| outcome_of(&self.parts, given, finish);
                let place = self.finish(key, of, entries).await;
                place.map_or_else(|error| Fate::Known(Err(error)), Fate::Written)
            }
        }
    }

    fn progressed(&self, key: LeaseKey, progress: Progress, entries: &mut Vec<Entry>) -> Fate {
        if let Err(error) = check_progress(&progress, self.parts.settings.payload_max) {
            return Fate::Known(Err(error));
        }
        let now = self.parts.clock.uptime();
        let known = &self.parts.remote.known;
        let copy = progress.clone();
        let due = known.given(key, |given| given.progressed(copy, now));
        // A lease that another process gave: nobody here knows when the last was written.
        match due.unwrap_or(Some(progress)) {
            Some(progress) => {
                let write = Write { progress: Some(progress), ..Write::new(key) };
                entries.push(plain(write));
                Fate::Written(entries.len() - 1)
            }
            None => Fate::Known(Ok(())),
        }
    }

    /// The place of the write that ends the attempt.
    async fn finish(
        &self,
        key: LeaseKey,
        outcome: impl FnOnce(&Given) -> Result<Outcome>,
        to: &mut Vec<Entry>,
    ) -> Result<usize> {
        let mut given = self.load(key).await?;
        let outcome = outcome(&given)?;
        // A write of its own, so that a repeated finish is the same write again.
        if let Some(progress) = given.last_progress(self.parts.clock.uptime()) {
            to.push(plain(Write { progress: Some(progress), ..Write::new(key) }));
        }
        to.push(Entry::End(Box::new(self.ending(key, given, outcome))));
        Ok(to.len() - 1)
    }

    /// Ends an attempt whose result is what its steps gave, however large.
    async fn finish_merged(&self, key: LeaseKey, to: &mut Vec<Entry>) -> Result<Fate> {
        let output = Some(self.merged(key).await?);
        let place = self.finish(key, |_| Ok(Outcome::Done { output }), to).await;
        Ok(place.map_or_else(|error| Fate::Known(Err(error)), Fate::Later))
    }

    async fn merged(&self, key: LeaseKey) -> Result<Json> {
        let store = &self.parts.store;
        if let Some(checkpoint) = store.checkpoint(key.task).await? {
            return Json::of(&checkpoint.context()?);
        }
        // Said before, perhaps: the steps went with the task's end, into its result.
        let task = store.task(key.task).await?.filter(|t| t.standing.token == key.token);
        Ok(task.and_then(|t| t.standing.result).unwrap_or_else(|| Json::trusted("null")))
    }

    /// What is known of a lease; read when another process gave it. One that has
    /// ended is read too: the store knows whether this very report ended it.
    async fn load(&self, key: LeaseKey) -> Result<Given> {
        let known = &self.parts.remote.known;
        if let Some(given) = known.given(key, |given| given.clone()) {
            return Ok(given);
        }
        let task = self.parts.store.task(key.task).await?.ok_or_else(|| not_held(&key))?;
        let given = self.given_of(&task);
        let standing = &task.standing;
        if standing.leased && standing.token == key.token && standing.node == Some(key.node) {
            known.give(key.task, given.clone());
        }
        Ok(given)
    }

    async fn write(&self, id: NodeId, entries: Vec<Entry>) -> Result<Vec<Result<Written>>> {
        if entries.is_empty() {
            return Ok(vec![]);
        }
        let parts = &self.parts;
        let writes = entries.iter().map(|entry| entry.write().clone()).collect();
        let answers = parts.store.record(writes, parts.now()).await?;
        for (entry, answer) in entries.iter().zip(&answers) {
            match entry {
                Entry::Plain(write) => count(parts, write, answer),
                Entry::End(end) => self.ended(id, end, answer),
            }
        }
        self.told();
        Ok(answers)
    }

    /// What the worker should do about what it holds.
    fn requests(
        &self,
        id: NodeId,
        renewed: &Option<Renewed>,
        running: &[(TaskId, Token)],
        lost: &HashSet<TaskId>,
    ) -> Vec<Asked> {
        let Some(renewed) = renewed else { return vec![] };
        let held: Named = running.iter().copied().collect();
        let now = self.parts.clock.uptime();
        let mut asked = vec![];
        for (task, requests) in &renewed.requests {
            let Some(token) = held.get(task) else { continue };
            asked.push(Asked { task: *task, what: wish(*requests) });
            let key = LeaseKey { task: *task, node: id, token: *token };
            self.parts.remote.known.given(key, |given| {
                let since = given.asked.map_or(now, |(_, since)| since);
                given.asked = Some((*requests, since));
            });
        }
        for (task, token) in running.iter().filter(|(task, _)| lost.contains(task)) {
            asked.push(Asked { task: *task, what: Wish::Lost });
            let key = LeaseKey { task: *task, node: id, token: *token };
            if let Some(given) = self.parts.remote.known.take(key) {
                self.lost(&given);
            }
        }
        asked
    }

    /// Ends held attempts that ran too long or would not stop; writes progress that
    /// waited.
    async fn end_overdue(
        &self,
        id: NodeId,
        running: &[(TaskId, Token)],
        lost: &HashSet<TaskId>,
        entries: &mut Vec<Entry>,
        requests: &mut Vec<Asked>,
    ) {
        let parts = &self.parts;
        let known = &parts.remote.known;
        let (mut ended, mut reads) = (0, 0);
        for (task, token) in running.iter().filter(|(task, _)| !lost.contains(task)) {
            let key = LeaseKey { task: *task, node: id, token: *token };
            if known.given(key, |_| ()).is_none() {
                reads += 1;
                // What cannot be read now is looked at with the next report.
                if reads > READS_MAX || self.load(key).await.is_err() {
                    continue;
                }
            }
            let now = parts.clock.uptime();
            let look = |given: &mut Given| {
                let late = self.overdue(given).map(|outcome| (outcome, given.clone()));
                (given.due_progress(now), late)
            };
            let Some((due, late)) = known.given(key, look) else { continue };
            if let Some(progress) = due {
                entries.push(plain(Write { progress: Some(progress), ..Write::new(key) }));
            }
            let Some((outcome, given)) = late else { continue };
            if ended == OVERDUE_MAX {
                return;
            }
            ended += 1;
            tracing::warn!(task = %task, node = %id, ?outcome, "an attempt of a worker is ended");
            requests.retain(|asked| asked.task != *task);
            requests.push(Asked { task: *task, what: Wish::Cancel });
            entries.push(Entry::End(Box::new(self.ending(key, given, outcome))));
        }
    }

    fn overdue(&self, given: &Given) -> Option<Outcome> {
        let parts = &self.parts;
        if parts.clock.now().since(given.started_at) >= given.task_timeout {
            return Some(Outcome::Timeout { step: None });
        }
        let (requests, since) = given.asked?;
        if parts.clock.uptime().saturating_sub(since) < parts.settings.cancel_grace {
            return None;
        }
        match requests {
            r if r.rollback => Some(Outcome::RollBack),
            r if r.cancel => Some(Outcome::Cancelled),
            // A worker may finish its step first, however long that takes.
            _ => None,
        }
    }
}

fn plain(write: Write) -> Entry {
    Entry::Plain(Box::new(write))
}

fn wish(requests: Requests) -> Wish {
    if requests.cancel || requests.rollback { Wish::Cancel } else { Wish::Pause }
}

fn told(answers: &[Result<Written>], place: usize) -> Result<()> {
    match answers.get(place) {
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(Error::new(error.code(), "report", error.message())),
        None => Err(Error::corrupt("report", "the store gave no answer")),
    }
}

fn not_held(key: &LeaseKey) -> Error {
    let message = format!("{} is no longer held with token {}", key.task, key.token.0);
    Error::lease_lost("report", message)
}

/// Everything the worker knows of, held or just ended. What it says it holds counts
/// first, then the newest token: an odd report must not give back what is held.
fn named(request: &ReportRequest) -> Named {
    let newest = |mut named: Named, (task, token): (TaskId, Token)| {
        let known = named.entry(task).or_insert(token);
        *known = (*known).max(token);
        named
    };
    let reported = request.reports.iter().map(|report| (report.task, report.token));
    let mut named = reported.fold(Named::new(), newest);
    named.extend(request.held.iter().copied().fold(Named::new(), newest));
    named
}

fn finished(request: &ReportRequest) -> HashSet<TaskId> {
    let ends = request.reports.iter().filter(|r| matches!(r.said, Said::Finish(_)));
    ends.map(|report| report.task).collect()
}

fn check_progress(progress: &Progress, max: usize) -> Result<()> {
    let note = progress.note.as_ref().map_or(0, String::len);
    let data = progress.data.as_ref().map_or(0, |data| data.as_str().len());
    check_payload_size(note + data, max)
        .map_err(|e| Error::new(e.code(), "report", "progress is too large; keep it short"))
}

fn check(request: &ReportRequest) -> Result<()> {
    let (reports, held) = (request.reports.len(), request.held.len());
    if reports > REPORTS_MAX {
        return Err(invalid(format!("{reports} reports in one call, at most {REPORTS_MAX}")));
    }
    if held > HELD_MAX {
        return Err(invalid(format!("{held} held tasks in one call, at most {HELD_MAX}")));
    }
    Ok(())
}
