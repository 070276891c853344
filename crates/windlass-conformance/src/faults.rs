//! A store that fails on purpose. [`FaultyStore`] stands before any other store
//! and decides for each writing call: pass it on, fail before it, let it commit
//! and lose the answer, send it twice, or hold it until the test lets go.
//! Decisions come from a script, then from seeded odds. It counts what really
//! happened, so that a test can fail when its fault did not.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use windlass_core::access::AccessToken;
use windlass_core::batch::Batch;
use windlass_core::checkpoint::Checkpoint;
use windlass_core::children::Totals;
use windlass_core::clock::{Now, Timestamp};
use windlass_core::control::Changed;
use windlass_core::event::{Event, Position};
use windlass_core::id::{BatchId, TaskId};
use windlass_core::json::Json;
use windlass_core::limits::Limit;
use windlass_core::schedule::Schedule;
use windlass_core::store::{
    Actor, Attempt, AuditRow, Batches, BoxFuture, Capabilities, Change, Claim, Claimed, DeadLetter,
    Job, Joined, Migrated, NewNode, NodeInfo, OutboxOp, OutboxRow, Page, Query, QueueInfo, Reader,
    Renewal, Renewed, Setting, Stats, Store, Submit, Submitted, Upkept, Write, Written,
};
use windlass_core::task::{Kind, QueueName, Task};
use windlass_core::{Error, Result};

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    Pass,
    /// The store is not called; the caller gets `Unavailable`.
    Before,
    /// The store commits; the answer is lost and the caller gets `Unavailable`.
    After,
    /// The store gets the call twice; the caller gets the second answer. Only
    /// for [`Call::repeats`]; others pass.
    Repeat,
    /// Waits for [`FaultyStore::release`], then goes on to the store.
    Hold,
    /// The store commits; the answer waits for [`FaultyStore::release`].
    HoldAnswer,
}

/// The calls that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    Join,
    Submit,
    Claim,
    Renew,
    Record,
    Change,
    Upkeep,
    Put,
    Outbox,
}

impl Call {
    /// May arrive twice at the store without the caller's doing.
    pub fn repeats(self) -> bool {
        matches!(self, Call::Submit | Call::Renew | Call::Record)
    }
}

/// Percentages for calls the script says nothing about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Odds {
    pub before: u32,
    pub after: u32,
    pub repeat: u32,
}

/// What became of a call, for a test that must know more than its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Happened {
    pub call: Call,
    pub fault: Fault,
    /// How many times the store really got it.
    pub reached: usize,
}

#[derive(Debug)]
struct Plan {
    rng: SmallRng,
    odds: Odds,
    script: VecDeque<Fault>,
    by_call: BTreeMap<Call, VecDeque<Fault>>,
    counts: BTreeMap<(Call, Fault), u64>,
    last: Option<Happened>,
}

/// A store with faults before it. Reads pass untouched.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    /// While true, every writing call waits before it reaches the store.
    closed: watch::Sender<bool>,
    /// How many times held calls were let go.
    released: watch::Sender<u64>,
    waiting: watch::Sender<usize>,
}

impl FaultyStore {
    /// Passes everything until told otherwise.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        FaultyStore::seeded(inner, 0, Odds::default())
    }

    /// Decides by seed and odds.
    pub fn seeded(inner: Arc<dyn Store>, seed: u64, odds: Odds) -> Arc<Self> {
        let plan = Plan {
            rng: SmallRng::seed_from_u64(seed),
            odds,
            script: VecDeque::new(),
            by_call: BTreeMap::new(),
            counts: BTreeMap::new(),
            last: None,
        };
        Arc::new(FaultyStore {
            inner,
            plan: Mutex::new(plan),
            closed: watch::Sender::new(false),
            released: watch::Sender::new(0),
            waiting: watch::Sender::new(0),
        })
    }

    /// The next writing calls get these, one each.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.plan().script.extend(faults);
    }

    /// The next calls of this sort get these, one each; goes before the script.
    pub fn script_for(&self, call: Call, faults: impl IntoIterator<Item = Fault>) {
        self.plan().by_call.entry(call).or_default().extend(faults);
    }

    pub fn set_odds(&self, odds: Odds) {
        self.plan().odds = odds;
    }

    /// From now on every writing call waits for [`FaultyStore::release`].
    pub fn hold(&self) {
        self.closed.send_replace(true);
    }

    /// Lets every held call go on, and later ones pass.
    pub fn release(&self) {
        self.closed.send_replace(false);
        self.released.send_modify(|n| *n += 1);
    }

    /// Resolves when at least `n` calls are held back at once.
    pub async fn until_held(&self, n: usize) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives in self, so this cannot fail.
        let _ = waiting.wait_for(|w| *w >= n).await;
    }

    /// How many calls of this sort met this fault.
    pub fn count(&self, call: Call, fault: Fault) -> u64 {
        self.plan().counts.get(&(call, fault)).copied().unwrap_or(0)
    }

    /// How many calls met this fault.
    pub fn total(&self, fault: Fault) -> u64 {
        self.plan().counts.iter().filter(|((_, f), _)| *f == fault).map(|(_, n)| n).sum()
    }

    /// What became of the latest call that came to its end.
    pub fn last(&self) -> Option<Happened> {
        self.plan().last
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, call: Call) -> Fault {
        let mut plan = self.plan();
        let scripted = plan.by_call.get_mut(&call).and_then(VecDeque::pop_front);
        let fault = scripted.or_else(|| plan.script.pop_front()).unwrap_or_else(|| {
            let Odds { before, after, repeat } = plan.odds;
            match plan.rng.random_range(0..100u32) {
                dice if dice < before => Fault::Before,
                dice if dice < before + after => Fault::After,
                dice if dice < before + after + repeat => Fault::Repeat,
                _ => Fault::Pass,
            }
        });
        if fault == Fault::Repeat && !call.repeats() { Fault::Pass } else { fault }
    }

    fn note(&self, call: Call, fault: Fault, reached: usize) {
        let mut plan = self.plan();
        *plan.counts.entry((call, fault)).or_default() += 1;
        plan.last = Some(Happened { call, fault, reached });
    }

    async fn wait_at_the_gate(&self) {
        let mut closed = self.closed.subscribe();
        if *closed.borrow_and_update() {
            let _counted = Waiting::begin(&self.waiting);
            let _ = closed.wait_for(|closed| !*closed).await;
        }
    }

    async fn wait_for_release(&self) {
        let mut released = self.released.subscribe();
        released.mark_unchanged();
        let _counted = Waiting::begin(&self.waiting);
        let _ = released.changed().await;
    }

    fn through<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        go: impl Fn() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let fault = self.decide(call);
            self.wait_at_the_gate().await;
            let (reached, answer) = match fault {
                Fault::Before => (0, Err(unavailable("before the commit"))),
                Fault::After => {
                    drop(go().await);
                    (1, Err(unavailable("after the commit")))
                }
                Fault::Repeat => {
                    drop(go().await);
                    (2, go().await)
                }
                Fault::Pass => (1, go().await),
                Fault::Hold => {
                    self.wait_for_release().await;
                    (1, go().await)
                }
                Fault::HoldAnswer => {
                    let answer = go().await;
                    self.wait_for_release().await;
                    (1, answer)
                }
            };
            self.note(call, fault, reached);
            answer
        })
    }
}

fn unavailable(when: &str) -> Error {
    Error::unavailable("fault", format!("a fault of the test, {when}"))
}

/// Counts a held call for as long as it waits, also when its future is dropped.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn begin(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|n| *n += 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

impl Store for FaultyStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn migrate(&self) -> BoxFuture<'_, Result<Migrated>> {
        self.inner.migrate()
    }

    fn join(&self, node: NewNode, now: Now) -> BoxFuture<'_, Result<Joined>> {
        self.through(Call::Join, move || self.inner.join(node.clone(), now))
    }

    fn submit(&self, batch: Submit, now: Now) -> BoxFuture<'_, Result<Vec<Submitted>>> {
        self.through(Call::Submit, move || self.inner.submit(batch.clone(), now))
    }

    fn claim(&self, claim: Claim, now: Now) -> BoxFuture<'_, Result<Vec<Claimed>>> {
        self.through(Call::Claim, move || self.inner.claim(claim.clone(), now))
    }

    fn renew(&self, renewal: Renewal, now: Now) -> BoxFuture<'_, Result<Renewed>> {
        self.through(Call::Renew, move || self.inner.renew(renewal.clone(), now))
    }

    fn record(&self, writes: Vec<Write>, now: Now) -> BoxFuture<'_, Result<Vec<Result<Written>>>> {
        self.through(Call::Record, move || self.inner.record(writes.clone(), now))
    }

    fn change(
        &self,
        change: Change,
        by: Actor,
        now: Now,
    ) -> BoxFuture<'_, Result<Vec<Result<Changed>>>> {
        self.through(Call::Change, move || self.inner.change(change.clone(), by.clone(), now))
    }

    fn upkeep(&self, job: Job, limit: usize, now: Now) -> BoxFuture<'_, Result<Upkept>> {
        self.through(Call::Upkeep, move || self.inner.upkeep(job, limit, now))
    }

    fn put(&self, setting: Setting, by: Actor, now: Now) -> BoxFuture<'_, Result<()>> {
        self.through(Call::Put, move || self.inner.put(setting.clone(), by.clone(), now))
    }

    fn outbox(&self, op: OutboxOp, now: Now) -> BoxFuture<'_, Result<Vec<OutboxRow>>> {
        self.through(Call::Outbox, move || self.inner.outbox(op.clone(), now))
    }
}

impl Reader for FaultyStore {
    fn task(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>>> {
        self.inner.task(id)
    }

    fn tasks(&self, query: Query, now: Timestamp) -> BoxFuture<'_, Result<Page<Task>>> {
        self.inner.tasks(query, now)
    }

    fn checkpoint(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        self.inner.checkpoint(id)
    }

    fn attempts(&self, id: TaskId) -> BoxFuture<'_, Result<Vec<Attempt>>> {
        self.inner.attempts(id)
    }

    fn children(&self, parent: TaskId) -> BoxFuture<'_, Result<Totals>> {
        self.inner.children(parent)
    }

    fn dead_letters(
        &self,
        query: Query,
        now: Timestamp,
    ) -> BoxFuture<'_, Result<Page<DeadLetter>>> {
        self.inner.dead_letters(query, now)
    }

    fn events(&self, after: Position, limit: usize) -> BoxFuture<'_, Result<Vec<Event>>> {
        self.inner.events(after, limit)
    }

    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueInfo>>> {
        self.inner.queues()
    }

    fn ready_kinds(&self) -> BoxFuture<'_, Result<Vec<(QueueName, Kind)>>> {
        self.inner.ready_kinds()
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeInfo>>> {
        self.inner.nodes()
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.inner.next_due()
    }

    fn audit(&self, before: Option<i64>, limit: usize) -> BoxFuture<'_, Result<Vec<AuditRow>>> {
        self.inner.audit(before, limit)
    }

    fn setting(&self, key: String) -> BoxFuture<'_, Result<Option<Json>>> {
        self.inner.setting(key)
    }

    fn schedules(&self) -> BoxFuture<'_, Result<Vec<Schedule>>> {
        self.inner.schedules()
    }

    fn limits(&self) -> BoxFuture<'_, Result<Vec<Limit>>> {
        self.inner.limits()
    }

    fn tokens(&self) -> BoxFuture<'_, Result<Vec<AccessToken>>> {
        self.inner.tokens()
    }

    fn batch(&self, id: BatchId) -> BoxFuture<'_, Result<Option<Batch>>> {
        self.inner.batch(id)
    }

    fn batches(
        &self,
        which: Batches,
        before: Option<BatchId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Batch>>> {
        self.inner.batches(which, before, limit)
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.inner.stats()
    }
}
