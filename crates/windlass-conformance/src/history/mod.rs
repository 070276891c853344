//! Seeded random histories: a few imaginary nodes submit, claim, renew, record
//! and die, people change things, the clock jumps, and after every call the
//! store's answer is compared with the model's. The same history can run behind
//! faults: a call whose answer was lost is sent again, as an engine would. A
//! seed gives the same history on every store.

mod claims;
mod people;
mod report;
mod submits;
mod writes;

pub use report::{EXPECTED, EXPECTED_FAULTS, Report};

use crate::faults::{FaultyStore, Odds};
use crate::model::{Answer, Model, Op, Scope, Took};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::Code;
use windlass_core::clock::{Now, Timestamp};
use windlass_core::id::{IdMint, NodeId, TaskId};
use windlass_core::lease::{LeaseKey, Token};
use windlass_core::store::{Actor, Job, NewNode, OutboxRule, Setting, Store, Submit, Write};
use windlass_core::task::NewTask;

/// 2027-01-15T08:00:00Z: when every history begins.
const BEGIN: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// Operations between two comparisons of everything that changed.
const STRIDE: usize = 50;
/// Earlier calls that may be repeated.
const REMEMBERED: usize = 40;
/// A job that is not done after so many calls never will be.
const CALLS_MAX: usize = 10_000;

/// Runs `ops` random operations on an empty store and compares as it goes.
pub async fn run_history(store: Arc<dyn Store>, seed: u64, ops: usize) -> Result<Report, String> {
    History::new(store, None, seed).run(ops).await
}

/// The same behind faults: calls fail before and after their commit, or arrive
/// twice, and are sent again until they succeed.
pub async fn run_with_faults(
    store: Arc<dyn Store>,
    seed: u64,
    ops: usize,
) -> Result<Report, String> {
    let odds = Odds { before: 6, after: 8, repeat: 6 };
    let faulty = FaultyStore::seeded(store, seed, odds);
    History::new(faulty.clone(), Some(faulty), seed).run(ops).await
}

/// A node as it knows itself.
#[derive(Debug)]
struct Player {
    id: NodeId,
    /// The number of its latest claim.
    claims: u64,
    /// What it thinks it holds.
    held: Vec<(TaskId, Token)>,
    /// It has stopped renewing; it may still write.
    silent: bool,
    consumed: u64,
}

struct History {
    store: Arc<dyn Store>,
    faults: Option<Arc<FaultyStore>>,
    rng: SmallRng,
    model: Model,
    now: Timestamp,
    mints: [IdMint; 3],
    nodes: Vec<Player>,
    submits: VecDeque<Vec<NewTask>>,
    writes: VecDeque<Write>,
    /// Leases that somebody once had.
    old_leases: VecDeque<LeaseKey>,
    named: u64,
    report: Report,
}

impl History {
    fn new(store: Arc<dyn Store>, faults: Option<Arc<FaultyStore>>, seed: u64) -> Self {
        History {
            store,
            faults,
            rng: SmallRng::seed_from_u64(seed),
            model: Model::new(seed),
            now: BEGIN,
            mints: [1001, 1002, 1003].map(IdMint::new),
            nodes: vec![],
            submits: VecDeque::new(),
            writes: VecDeque::new(),
            old_leases: VecDeque::new(),
            named: 0,
            report: Report::default(),
        }
    }

    async fn run(mut self, ops: usize) -> Result<Report, String> {
        self.begin().await?;
        for n in 0..ops {
            if self.nodes.iter().filter(|node| !node.silent).count() < 3 {
                self.join().await?;
            }
            self.one().await?;
            if n % STRIDE == STRIDE - 1 {
                self.model.compare(&*self.store, self.now, Scope::Touched).await?;
            }
        }
        for job in [Job::Promote, Job::Expire, Job::Children, Job::Keys, Job::Nodes] {
            self.perform(Op::Exhaust { job, limit: 50 }).await?;
        }
        self.model.compare(&*self.store, self.now, Scope::Everything).await?;
        self.sum_up();
        Ok(self.report)
    }

    /// Dead letters leave the store in every history.
    async fn begin(&mut self) -> Result<(), String> {
        let rule = OutboxRule { dead_letters: true, events: false };
        while let Err(error) =
            self.store.put(Setting::Outbox(rule), Actor::engine(), Now::At(self.now)).await
        {
            if self.faults.is_none() {
                return Err(format!("the outbox rule was refused: {error}"));
            }
        }
        self.model.switch_outbox_on();
        Ok(())
    }

    async fn one(&mut self) -> Result<(), String> {
        match self.dice(100) {
            0..14 => self.submit().await,
            14..28 => self.claim_ready().await,
            28..32 => self.claim_ids().await,
            32..37 => self.claim_expired().await,
            37..47 => self.renew().await,
            47..75 => self.record().await,
            75..83 => self.change_tasks().await,
            83..84 => self.rerun().await,
            84..85 => self.change_queue().await,
            85..86 => self.change_node().await,
            86..88 => self.outbox().await,
            88..94 => self.upkeep().await,
            _ => {
                self.advance();
                Ok(())
            }
        }
    }

    /// Mostly small steps; now and then long enough to lose every lease.
    fn advance(&mut self) {
        let ms = match self.dice(100) {
            0..10 => 0,
            10..60 => self.rng.random_range(1..500),
            60..92 => self.rng.random_range(500..10_000),
            _ => self.rng.random_range(10_000..120_000),
        };
        self.now = self.now.plus(Duration::from_millis(ms));
        self.note("clock");
    }

    async fn upkeep(&mut self) -> Result<(), String> {
        let limit = self.rng.random_range(1..6);
        let op = match self.dice(10) {
            0..4 => Op::Upkeep { job: Job::Promote, limit },
            4..5 => Op::Exhaust { job: Job::Expire, limit },
            5..8 => Op::Exhaust { job: Job::Children, limit },
            8..9 => Op::Exhaust { job: Job::Keys, limit },
            _ => Op::Exhaust { job: Job::Nodes, limit },
        };
        self.perform(op).await
    }

    async fn join(&mut self) -> Result<(), String> {
        self.named += 1;
        let seconds = [20, 30, 60][self.pick(3)];
        let new = NewNode {
            name: format!("node-{}", self.named),
            remote: self.chance(20),
            queues: submits::queues(),
            version: "0".to_owned(),
            lease: Duration::from_secs(seconds),
            sole: false,
            instead_of: None,
        };
        loop {
            let answer = self.store.join(new.clone(), Now::At(self.now)).await;
            let joined = match answer {
                Ok(joined) => joined,
                Err(_) if self.reached() == Some(0) => continue,
                Err(_) if self.reached().is_some() => {
                    self.mirror_lost_join(&new).await?;
                    continue;
                }
                Err(error) => return Err(self.model.complain(&format!("join: {error}"))),
            };
            let op = Op::Join { node: new, id: joined.node, slot: joined.slot };
            let expected = self.model.apply(&op, self.now);
            let got = Answer::Joined(joined.lease_until, true);
            if got != expected {
                return Err(self.differ(&got, &expected));
            }
            let id = joined.node;
            self.nodes.push(Player { id, claims: 0, held: vec![], silent: false, consumed: 0 });
            self.note("join");
            return Ok(());
        }
    }

    /// The node exists, and nobody knows that it is theirs: it will expire.
    async fn mirror_lost_join(&mut self, new: &NewNode) -> Result<(), String> {
        let nodes = self.store.nodes().await.map_err(|e| e.to_string())?;
        let ghost = nodes.iter().find(|n| !self.model.nodes.contains_key(&n.id));
        let ghost = ghost.ok_or_else(|| self.model.complain("a join that left no node"))?;
        let op = Op::Join { node: new.clone(), id: ghost.id, slot: ghost.slot };
        self.model.apply(&op, self.now);
        self.note("fault.join.lost");
        Ok(())
    }

    /// How many times the store got the latest call; `None` without faults.
    fn reached(&self) -> Option<usize> {
        self.faults.as_ref().and_then(|f| f.last()).map(|happened| happened.reached)
    }

    /// Calls the store until it answers, mirrors every commit in the model, and
    /// compares the answers. A claim whose answer is lost is not sent again.
    async fn perform(&mut self, op: Op) -> Result<(), String> {
        let mut seen = None;
        loop {
            let got = self.call(&op).await?;
            let lost = self.faults.is_some() && is_unavailable(&got);
            let reached = self.reached().filter(|_| !matches!(op, Op::Exhaust { .. })).unwrap_or(1);
            let mut expected = None;
            for _ in 0..reached {
                expected = Some(self.model.apply(&op, self.now));
                let print = (lost || reached > 1 || seen.is_some()) && must_not_change(&op);
                let print = print.then(|| self.model.fingerprint());
                if print.is_some() && seen.is_some() && seen != print {
                    return Err(self.model.complain("the model itself changed by a repetition"));
                }
                seen = print;
            }
            if lost {
                self.note(if reached == 0 { "fault.before" } else { "fault.after" });
                if reached > 0 && matches!(op, Op::Claim(_)) {
                    self.note("fault.claim.lost");
                    return Ok(());
                }
                continue;
            }
            if reached > 1 {
                self.note("fault.repeat");
            }
            match expected {
                _ if matches!(op, Op::Outbox(_)) => self.check_outbox(&op, &got)?,
                Some(expected) if expected != got => return Err(self.differ(&got, &expected)),
                _ => {}
            }
            self.learn(&op, &got);
            return Ok(());
        }
    }

    fn differ(&self, got: &Answer, expected: &Answer) -> String {
        self.model.complain(&format!("the store answers\n  {got:?}\nthe model\n  {expected:?}"))
    }

    async fn call(&mut self, op: &Op) -> Result<Answer, String> {
        let (store, now) = (self.store.clone(), Now::At(self.now));
        Ok(match op.clone() {
            Op::Join { .. } => Answer::Done,
            Op::Submit(tasks) => {
                let answer = store.submit(Submit { tasks, fires: None }, now).await;
                Answer::Submitted(answer.map_err(|e| e.code()))
            }
            Op::Claim(claim) => {
                let answer = store.claim(claim, now).await.map_err(|e| e.code());
                Answer::Claimed(answer.map(|all| all.iter().map(Took::from).collect()))
            }
            Op::Renew(renewal) => Answer::renewed(store.renew(renewal, now).await),
            Op::Record(writes) => {
                let answer = store.record(writes, now).await.map_err(|e| e.code());
                let item = |item: windlass_core::Result<_>| item.map_err(|e| e.code());
                Answer::Recorded(answer.map(|all| all.into_iter().map(item).collect()))
            }
            Op::Change(change) => Answer::changed(store.change(change, person(), now).await),
            Op::Upkeep { job, limit } => Answer::upkept(store.upkeep(job, limit, now).await),
            Op::Exhaust { job, limit } => self.exhaust(job, limit).await?,
            Op::Outbox(op) => Answer::Outbox(store.outbox(op, now).await.map_err(|e| e.code())),
        })
    }

    async fn exhaust(&mut self, job: Job, limit: usize) -> Result<Answer, String> {
        for _ in 0..CALLS_MAX {
            match self.store.upkeep(job, limit, Now::At(self.now)).await {
                Ok(upkept) if upkept.done == 0 && !upkept.more => return Ok(Answer::Done),
                Ok(_) => {}
                Err(e) if self.faults.is_some() && e.code() == Code::StoreUnavailable => {
                    self.note("fault.upkeep");
                }
                Err(e) => return Err(self.model.complain(&format!("{job:?}: {e}"))),
            }
        }
        Err(self.model.complain(&format!("{job:?} never ends")))
    }

    /// What the imaginary nodes make of an answer, and the counts.
    fn learn(&mut self, op: &Op, got: &Answer) {
        match (op, got) {
            (Op::Submit(tasks), Answer::Submitted(answer)) => self.learn_submit(tasks, answer),
            (Op::Claim(claim), Answer::Claimed(answer)) => self.learn_claim(claim, answer),
            (Op::Renew(renewal), Answer::Renewed(answer)) => self.learn_renew(renewal, answer),
            (Op::Record(writes), Answer::Recorded(answer)) => self.learn_record(writes, answer),
            (Op::Change(change), Answer::Changed(answer)) => self.learn_change(change, answer),
            (Op::Upkeep { job, .. } | Op::Exhaust { job, .. }, _) => {
                self.note(&format!("upkeep.{job:?}").to_lowercase());
            }
            _ => {}
        }
    }

    /// Counts read from the model at the end: events and reasons of failures.
    fn sum_up(&mut self) {
        let mut found: Vec<String> = vec![];
        for row in self.model.tasks.values() {
            found.extend(row.events.iter().map(|name| format!("event.{name}")));
            found.push(format!("state.{}", row.state));
            let reason = row.failure.as_ref().and_then(|f| f.reason);
            found.extend(reason.map(|reason| format!("failed.{reason}")));
            found.extend(row.attempts.iter().filter_map(|a| a.ended).map(|(end, _)| match end {
                windlass_core::store::AttemptEnd::Settled(state) => format!("attempt.{state}"),
                end => format!("attempt.{end:?}").to_lowercase(),
            }));
        }
        found.iter().for_each(|name| self.note(name));
    }

    fn note(&mut self, name: &str) {
        self.report.add(name, 1);
    }

    fn dice(&mut self, sides: u32) -> u32 {
        self.rng.random_range(0..sides)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.dice(100) < percent
    }

    fn pick(&mut self, len: usize) -> usize {
        self.rng.random_range(0..len)
    }

    fn mint(&mut self) -> TaskId {
        let mint = self.pick(self.mints.len());
        self.mints[mint].task(self.now)
    }

    /// A task, newer ones more often.
    fn any_task(&mut self) -> Option<TaskId> {
        let len = self.model.tasks.len();
        if len == 0 {
            return None;
        }
        let reach = if self.chance(75) { len.min(40) } else { len };
        let back = self.pick(reach);
        self.model.tasks.keys().rev().nth(back).copied()
    }
}

fn person() -> Actor {
    Actor { who: "somebody".to_owned(), origin: "history".to_owned() }
}

fn remember<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() == REMEMBERED {
        list.pop_front();
    }
    list.push_back(item);
}

fn is_unavailable(answer: &Answer) -> bool {
    let lost = Err(Code::StoreUnavailable);
    match answer {
        Answer::Submitted(answer) => answer.as_ref().err() == Some(&Code::StoreUnavailable),
        Answer::Claimed(answer) => answer.as_ref().err() == Some(&Code::StoreUnavailable),
        Answer::Renewed(answer) => answer.as_ref().err() == Some(&Code::StoreUnavailable),
        Answer::Recorded(answer) => answer.as_ref().err() == Some(&Code::StoreUnavailable),
        Answer::Outbox(answer) => answer.as_ref().err() == Some(&Code::StoreUnavailable),
        Answer::Upkept(answer) => answer.as_ref().err() == Some(&Code::StoreUnavailable),
        Answer::Changed(items) => items.contains(&lost),
        Answer::Joined(..) | Answer::Done => false,
    }
}

/// Calls whose repetition must leave everything as it is.
fn must_not_change(op: &Op) -> bool {
    match op {
        Op::Submit(_) | Op::Renew(_) => true,
        // A write without step or settlement has nothing to be known by.
        Op::Record(writes) => writes.iter().all(|w| w.settle.is_some() || !w.steps.is_empty()),
        _ => false,
    }
}
