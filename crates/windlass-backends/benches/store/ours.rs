//! The store's side of the benchmark: the contract's own calls, nothing else.
//! It knows nothing of the bare side; `main.rs` compares the two.

use crate::measure::{Phases, payload, timed};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_backends::store::sqlite::{SqliteOptions, SqliteStore};
use windlass_core::clock::Now;
use windlass_core::clock::Timestamp;
use windlass_core::id::{IdMint, NodeId};
use windlass_core::json::Json;
use windlass_core::lease::{ClaimNo, LeaseKey, PoisonRule};
use windlass_core::outcome::Outcome;
use windlass_core::retry::{Exponential, Jitter};
use windlass_core::settle::{Attempted, Rules, UnknownErrors, settle};
use windlass_core::store::{Claim, Claimed, Kinds, Lane, NewNode, Store, Wanted, Write};
use windlass_core::task::{Kind, NewTask, QueueName};

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().expect("a runtime")
}

struct Bench {
    store: Arc<SqliteStore>,
    node: NodeId,
    mint: IdMint,
    kind: Kind,
    payload: Json,
    claims: u64,
}

impl Bench {
    async fn open(path: &Path) -> Bench {
        let store = Arc::new(SqliteStore::open(SqliteOptions::at(path)).expect("a store"));
        let node = NewNode {
            name: "bench".to_owned(),
            remote: false,
            queues: vec![],
            version: String::new(),
            lease: Duration::from_secs(3600),
            sole: true,
            instead_of: None,
        };
        let joined = store.join(node, Now::Store).await.expect("a node");
        Bench {
            store,
            node: joined.node,
            mint: IdMint::new(joined.slot),
            kind: Kind::new("bench").expect("a name"),
            payload: Json::trusted(payload()),
            claims: 0,
        }
    }

    fn tasks(&mut self, count: usize) -> Vec<NewTask> {
        let now = now();
        let mut new = || NewTask::new(self.mint.task(now), self.kind.clone(), self.payload.clone());
        (0..count).map(|_| new()).collect()
    }

    async fn submit(&mut self, batch: usize, tasks: usize) {
        for _ in 0..tasks / batch {
            let batch = self.tasks(batch);
            self.store.submit(batch.into(), Now::Store).await.expect("written");
        }
    }

    async fn claim(&mut self, max: usize) -> Vec<Claimed> {
        self.claims += 1;
        let claim = Claim {
            node: self.node,
            number: ClaimNo(self.claims),
            wanted: Wanted::Ready,
            lanes: vec![Lane { queue: QueueName::default(), max, kinds: Kinds::Any }],
            max,
            poison: PoisonRule::default(),
            begins: true,
        };
        self.store.claim(claim, Now::Store).await.expect("leases")
    }

    async fn record(&self, claimed: Vec<Claimed>) {
        let writes = claimed.iter().map(|c| done(c, self.node)).collect();
        for written in self.store.record(writes, Now::Store).await.expect("written") {
            written.expect("written");
        }
    }
}

fn now() -> Timestamp {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("a date"))
}

fn done(claimed: &Claimed, node: NodeId) -> Write {
    let standing = &claimed.task.standing;
    let rules = Rules { retry: &Exponential::TASK, unknown_errors: UnknownErrors::Retry };
    let attempted = Attempted { state: standing.state, retries: standing.retries };
    let outcome = Outcome::Done { output: None };
    let settlement = settle(outcome, rules, attempted, now(), Jitter::NONE);
    Write::settling(LeaseKey { task: claimed.task.id, node, token: standing.token }, settlement)
}

/// Submits all, then claims all, then records all, in batches.
pub(crate) fn life(path: &Path, batch: usize, tasks: usize) -> Phases {
    let runtime = runtime(1);
    let mut bench = runtime.block_on(Bench::open(path));
    let submit = timed(|| runtime.block_on(bench.submit(batch, tasks)));
    let (mut claim, mut record) = (0.0, 0.0);
    for _ in 0..tasks / batch {
        let mut claimed = vec![];
        claim += timed(|| claimed = runtime.block_on(bench.claim(batch)));
        assert_eq!(claimed.len(), batch);
        record += timed(|| runtime.block_on(bench.record(claimed)));
    }
    [submit, claim, record]
}

/// Many callers, one task a call. Ids are made by one mint at the moment of the
/// call, as a node does.
pub(crate) fn single(path: &Path, callers: usize, each: usize) -> f64 {
    let runtime = runtime(2);
    let bench = Arc::new(Mutex::new(runtime.block_on(Bench::open(path))));
    timed(|| {
        runtime.block_on(async {
            let mut calls = vec![];
            for _ in 0..callers {
                let bench = bench.clone();
                let store = bench.lock().expect("a bench").store.clone();
                calls.push(tokio::spawn(async move {
                    for _ in 0..each {
                        let task = bench.lock().expect("a bench").tasks(1);
                        store.submit(task.into(), Now::Store).await.expect("written");
                    }
                }));
            }
            for call in calls {
                call.await.expect("a caller");
            }
        });
    })
}

/// Claims and records `take` tasks out of `pending`.
pub(crate) fn drain(path: &Path, pending: usize, take: usize) -> f64 {
    let runtime = runtime(1);
    let mut bench = runtime.block_on(Bench::open(path));
    runtime.block_on(bench.submit(1000, pending));
    timed(|| {
        runtime.block_on(async {
            for _ in 0..take / 1000 {
                let claimed = bench.claim(1000).await;
                bench.record(claimed).await;
            }
        });
    })
}
