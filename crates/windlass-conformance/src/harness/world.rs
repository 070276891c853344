//! One store under test with a clock that moves only when the case says so.
//! The verbs here act; `look.rs` reads and compares. A verb without `try_`
//! panics when the store refuses, so that a case names refusals only where it
//! means them.

use super::make::{self, HOUR, lease, queue, settled};
use super::{Backend, Bed};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_core::checkpoint::StepRecord;
use windlass_core::clock::{Now, Timestamp};
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::Result;
use windlass_core::id::{IdMint, NodeId, TaskId};
use windlass_core::lease::{ClaimNo, PoisonRule};
use windlass_core::outcome::Outcome;
use windlass_core::store::{
    Actor, Change, Claim, Claimed, Job, NewNode, NodeChange, OutboxOp, OutboxRow, OutboxRule,
    QueueChange, Renewal, Renewed, Setting, Stage, Store, Submitted, Tally, Upkept, Wanted, Write,
    Written,
};
use windlass_core::task::NewTask;

/// 2027-01-15T08:00:00Z.
pub const BIRTH: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// The lease of a [`World::node`].
pub const LEASE: Duration = Duration::from_secs(30);
/// More rounds than any case needs; a job that never ends must not hang it.
const ROUNDS: usize = 200;

/// One store, one clock, one source of ids.
pub struct World {
    backend: Arc<dyn Backend>,
    bed: Bed,
    clock: AtomicI64,
    mint: Mutex<IdMint>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({:?} at {})", self.bed, self.at())
    }
}

/// A node that joined, with the number of its latest claim.
#[derive(Debug)]
pub struct Node {
    pub id: NodeId,
    pub slot: u16,
    pub lease_until: Timestamp,
    claims: AtomicU64,
}

impl Node {
    /// A node the store has never heard of.
    pub fn stranger() -> Node {
        let id = NodeId::from_key(4_242_424_242);
        Node { id, slot: 0, lease_until: BIRTH, claims: AtomicU64::new(0) }
    }

    /// A numbered claim from the default queue.
    pub fn wants(&self, wanted: Wanted, max: usize) -> Claim {
        Claim {
            node: self.id,
            number: ClaimNo(self.claims.fetch_add(1, Ordering::Relaxed) + 1),
            wanted,
            lanes: vec![make::lane("default", usize::MAX)],
            max,
            poison: PoisonRule::default(),
            begins: false,
        }
    }

    pub fn ready(&self, max: usize) -> Claim {
        self.wants(Wanted::Ready, max)
    }

    pub fn ids(&self, ids: &[TaskId]) -> Claim {
        self.wants(Wanted::Ids(ids.to_vec()), ids.len())
    }

    pub fn expired(&self, max: usize) -> Claim {
        self.wants(Wanted::Expired, max)
    }

    pub fn latest_claim(&self) -> ClaimNo {
        ClaimNo(self.claims.load(Ordering::Relaxed))
    }

    /// A heartbeat: all claims were answered, and this is held.
    pub fn renewal(&self, held: &[&Claimed]) -> Renewal {
        Renewal {
            node: self.id,
            lease: LEASE,
            held: held.iter().map(|c| (c.task.id, c.task.standing.token)).collect(),
            answered: self.latest_claim(),
            stage: Stage::Serving,
            consumed: 0,
            failed: 0,
            tally: Tally::Total,
        }
    }
}

/// How a node asks to join.
pub fn new_node(name: &str) -> NewNode {
    NewNode {
        name: name.to_owned(),
        remote: false,
        queues: vec![queue("default")],
        version: "1.2.3".to_owned(),
        lease: LEASE,
        sole: false,
        instead_of: None,
    }
}

/// The person behind the changes of a case.
pub fn ann() -> Actor {
    Actor { who: "ann".to_owned(), origin: "test".to_owned() }
}

impl World {
    pub async fn open(backend: Arc<dyn Backend>) -> Result<World> {
        let bed = backend.fresh().await?;
        let clock = AtomicI64::new(BIRTH.as_micros());
        Ok(World { backend, bed, clock, mint: Mutex::new(IdMint::new(0)) })
    }

    /// Closes the store and opens the same data again.
    pub async fn reopen(self) -> World {
        let World { backend, bed, clock, mint } = self;
        let bed = backend.reopen(bed).await.expect("a store that opens again");
        let bed = bed.expect("a durable store keeps its data");
        World { backend, bed, clock, mint }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.bed.store
    }

    pub fn second(&self) -> &Arc<dyn Store> {
        &self.bed.second
    }

    /// The two handles in turn, for cases with many writers.
    pub fn handle(&self, i: usize) -> Arc<dyn Store> {
        Arc::clone(if i.is_multiple_of(2) { self.store() } else { self.second() })
    }

    pub fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.load(Ordering::Relaxed))
    }

    pub fn now(&self) -> Now {
        Now::At(self.at())
    }

    pub fn advance(&self, by: Duration) {
        self.clock.store(self.at().plus(by).as_micros(), Ordering::Relaxed);
    }

    pub fn advance_to(&self, at: Timestamp) {
        assert!(at >= self.at(), "the clock only goes forward");
        self.clock.store(at.as_micros(), Ordering::Relaxed);
    }

    pub fn id(&self) -> TaskId {
        self.mint.lock().expect("the mint").task(self.at())
    }

    /// A plain task of kind `work` in the default queue.
    pub fn task(&self) -> NewTask {
        NewTask::new(self.id(), make::kind("work"), make::json(r#"{"size":1}"#))
    }

    pub fn many(&self, n: usize) -> Vec<NewTask> {
        (0..n).map(|_| self.task()).collect()
    }

    pub async fn submit(&self, task: NewTask) -> TaskId {
        self.submit_all(vec![task]).await[0]
    }

    pub async fn submit_all(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let answers = self.try_submit(tasks).await.expect("an accepted submission");
        answers.into_iter().map(Submitted::id).collect()
    }

    pub async fn try_submit(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>> {
        self.store().submit(tasks.into(), self.now()).await
    }

    /// A node with a lease of [`LEASE`].
    pub async fn node(&self, name: &str) -> Node {
        self.join(new_node(name)).await
    }

    /// A node whose lease outlasts the case.
    pub async fn tireless(&self, name: &str) -> Node {
        self.join(NewNode { lease: 24 * 365 * HOUR, ..new_node(name) }).await
    }

    pub async fn join(&self, node: NewNode) -> Node {
        self.try_join(node).await.expect("a node that joins")
    }

    pub async fn try_join(&self, node: NewNode) -> Result<Node> {
        let joined = self.store().join(node, self.now()).await?;
        Ok(Node {
            id: joined.node,
            slot: joined.slot,
            lease_until: joined.lease_until,
            claims: AtomicU64::new(0),
        })
    }

    pub async fn renew(&self, renewal: Renewal) -> Renewed {
        self.try_renew(renewal).await.expect("a renewed lease")
    }

    pub async fn try_renew(&self, renewal: Renewal) -> Result<Renewed> {
        self.store().renew(renewal, self.now()).await
    }

    pub async fn ask(&self, claim: Claim) -> Vec<Claimed> {
        self.try_ask(claim).await.expect("an answered claim")
    }

    pub async fn try_ask(&self, claim: Claim) -> Result<Vec<Claimed>> {
        self.store().claim(claim, self.now()).await
    }

    /// Claims what is ready in the default queue.
    pub async fn claim(&self, node: &Node, max: usize) -> Vec<Claimed> {
        self.ask(node.ready(max)).await
    }

    /// Claims the one task that is ready.
    pub async fn claim_one(&self, node: &Node) -> Claimed {
        only(self.claim(node, 10).await)
    }

    pub async fn claim_id(&self, node: &Node, id: TaskId) -> Claimed {
        only(self.ask(node.ids(&[id])).await)
    }

    /// Submits a plain task and claims it.
    pub async fn running(&self, node: &Node) -> Claimed {
        let id = self.submit(self.task()).await;
        self.claim_id(node, id).await
    }

    /// A failed task with its dead letter.
    pub async fn failed(&self, node: &Node) -> TaskId {
        let claimed = self.running(node).await;
        self.settle(&claimed, make::fails()).await;
        claimed.task.id
    }

    pub async fn write(&self, write: Write) -> Written {
        self.try_write(write).await.expect("an accepted write")
    }

    pub async fn try_write(&self, write: Write) -> Result<Written> {
        only(self.record(vec![write]).await)
    }

    pub async fn record(&self, writes: Vec<Write>) -> Vec<Result<Written>> {
        let count = writes.len();
        let answers = self.store().record(writes, self.now()).await.expect("an answered record");
        assert_eq!(answers.len(), count, "one answer per write");
        answers
    }

    pub async fn step(&self, claimed: &Claimed, step: StepRecord) -> Written {
        self.write(make::steps(claimed, vec![step])).await
    }

    pub fn settling(&self, claimed: &Claimed, outcome: Outcome) -> Write {
        Write::settling(lease(claimed), settled(claimed, outcome, self.at()))
    }

    pub async fn settle(&self, claimed: &Claimed, outcome: Outcome) -> Written {
        self.write(self.settling(claimed, outcome)).await
    }

    pub async fn try_settle(&self, claimed: &Claimed, outcome: Outcome) -> Result<Written> {
        self.try_write(self.settling(claimed, outcome)).await
    }

    pub async fn finish(&self, claimed: &Claimed) -> Written {
        self.settle(claimed, make::done()).await
    }

    pub async fn change(&self, id: TaskId, change: TaskChange) -> Changed {
        self.try_change(id, change).await.expect("an accepted change")
    }

    pub async fn try_change(&self, id: TaskId, change: TaskChange) -> Result<Changed> {
        only(self.operate(Change::Tasks { ids: vec![id], change }).await)
    }

    pub async fn cancel(&self, id: TaskId) -> Changed {
        self.change(id, TaskChange::Cancel).await
    }

    pub async fn change_queue(&self, name: &str, change: QueueChange) -> Changed {
        let answers = self.operate(Change::Queue { name: queue(name), change }).await;
        only(answers).expect("an accepted change")
    }

    pub async fn change_node(&self, node: &Node, change: NodeChange) -> Changed {
        only(self.operate(Change::Node { id: node.id, change }).await).expect("an accepted change")
    }

    pub async fn operate(&self, change: Change) -> Vec<Result<Changed>> {
        self.store().change(change, ann(), self.now()).await.expect("an answered change")
    }

    pub async fn upkeep(&self, job: Job, limit: usize) -> Upkept {
        self.store().upkeep(job, limit, self.now()).await.expect("a done job")
    }

    /// Repeats a job until it has nothing more to do; tells how much it did.
    pub async fn exhaust(&self, job: Job) -> usize {
        let mut done = 0;
        for _ in 0..ROUNDS {
            let upkept = self.upkeep(job, 100).await;
            done += upkept.done;
            if upkept.done == 0 && !upkept.more {
                return done;
            }
        }
        panic!("{job:?} never comes to an end");
    }

    pub async fn promote(&self) -> usize {
        self.exhaust(Job::Promote).await
    }

    pub async fn judge_children(&self) -> usize {
        self.exhaust(Job::Children).await
    }

    pub async fn put(&self, setting: Setting) {
        self.store().put(setting, ann(), self.now()).await.expect("an accepted setting");
    }

    pub async fn outbox_rule(&self, dead_letters: bool, events: bool) {
        self.put(Setting::Outbox(OutboxRule { dead_letters, events })).await;
    }

    pub async fn outbox(&self, op: OutboxOp) -> Vec<OutboxRow> {
        self.store().outbox(op, self.now()).await.expect("an answered outbox")
    }
}

/// The only item of a list.
#[track_caller]
pub fn only<T>(mut items: Vec<T>) -> T {
    assert_eq!(items.len(), 1, "expected exactly one");
    items.remove(0)
}

/// The ids of claimed tasks, in the order of the answer.
pub fn ids(claimed: &[Claimed]) -> Vec<TaskId> {
    claimed.iter().map(|c| c.task.id).collect()
}
