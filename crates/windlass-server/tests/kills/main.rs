//! The server is killed with SIGKILL, over and over, while clients submit. Every
//! answer must stay true, no key may become two tasks, and the server must be
//! ready again in time. `cargo xtask crash --server N` runs the long form; the
//! seed repeats the choice of the moments, not what the machine does in them.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking
#![allow(clippy::print_stdout)] // the figures of a run are shown

mod batch;
mod checker;
mod clients;
#[path = "../process/mod.rs"]
mod process;

use checker::{Row, check};
use clients::Traffic;
use process::{Home, PATIENCE, Process, pause};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server that was killed is ready again within this time, with full
/// optimisation; that is the long form.
const READY_WITHIN: Duration = Duration::from_secs(3);
/// In the short form, which runs without it and beside other tests.
const READY_WITHIN_SHORT: Duration = Duration::from_secs(15);
/// A kill that hit no request does not count; so many in a row are too many.
const MISSES_MAX: u32 = 5;

/// How long the test is; the defaults are the short form.
#[derive(Debug)]
struct Plan {
    kills: u64,
    submits: u64,
    seed: u64,
    ready_within: Duration,
}

impl Plan {
    fn from_env() -> Plan {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().expect("a number"))
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let kills = number("WINDLASS_TEST_KILLS");
        Plan {
            kills: kills.unwrap_or(20).max(1),
            ready_within: kills.map_or(READY_WITHIN_SHORT, |_| READY_WITHIN),
            submits: number("WINDLASS_TEST_SUBMITS").unwrap_or(4000),
            seed: number("WINDLASS_TEST_SEED").unwrap_or(u64::from(since.subsec_nanos())),
        }
    }
}

/// What the kills did.
#[derive(Debug, Default)]
struct Hits {
    hits: u64,
    /// Kills that no request noticed.
    misses: u64,
    /// Requests under way at the kills that hit.
    under_way: u64,
    slowest: Duration,
}

/// Kills at moments spread over the submissions, and starts the server again.
struct Killer<'a> {
    home: &'a Home,
    traffic: &'a Traffic,
    server: Process,
    rng: StdRng,
    hits: Hits,
}

impl Killer<'_> {
    async fn kill(&mut self, plan: &Plan) {
        let piece = (plan.submits / (plan.kills + 1)).max(2);
        for kill in 0..plan.kills {
            let target = kill * piece + self.rng.random_range(piece / 2..piece);
            let then = Duration::from_micros(self.rng.random_range(0..3000));
            self.wait_answered(target).await;
            pause(then).await;
            for miss in 0.. {
                assert!(miss < MISSES_MAX, "kills hit no requests: {:?}", self.hits);
                let answered = self.traffic.answered.load(SeqCst);
                assert!(answered < plan.submits, "everything was answered before the kill");
                if self.kill_once(plan).await {
                    break;
                }
                // Not again before the clients have found the new server.
                self.wait_answered(answered + 1).await;
            }
        }
    }

    async fn wait_answered(&self, target: u64) {
        let began = Instant::now();
        while self.traffic.answered.load(SeqCst) < target {
            assert!(began.elapsed() < PATIENCE, "submissions do not go on");
            pause(Duration::from_micros(500)).await;
        }
    }

    /// Whether the kill cut off a request.
    async fn kill_once(&mut self, plan: &Plan) -> bool {
        let cut_off = self.traffic.cut_off.load(SeqCst);
        let under_way = self.traffic.under_way.load(SeqCst);
        self.server.kill();
        self.server = self.home.start();
        let took = self.home.wait_ready(&mut self.server).await;
        self.hits.slowest = self.hits.slowest.max(took);
        assert!(took <= plan.ready_within, "ready again only after {took:?}");
        let hit = under_way > 0 && self.traffic.cut_off.load(SeqCst) > cut_off;
        self.hits.hits += u64::from(hit);
        self.hits.misses += u64::from(!hit);
        self.hits.under_way += if hit { under_way } else { 0 };
        hit
    }
}

/// Waits until no task is left to be run.
async fn all_ended(home: &Home) {
    let began = Instant::now();
    loop {
        let queues = home.get("/v1/queues").await;
        let queues = queues["items"].as_array().expect("queues");
        let live = |q: &Value| -> u64 {
            q["tasks"].as_object().expect("counts").values().filter_map(Value::as_u64).sum()
        };
        match queues.iter().map(live).sum::<u64>() {
            0 => return,
            n => assert!(began.elapsed() < PATIENCE, "{n} tasks do not end"),
        }
        pause(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submits_survive_kills_of_the_server() {
    let plan = Plan::from_env();
    println!("{plan:?}");
    let began = Instant::now();
    let home = Home::new("");
    let server = home.ready().await;
    let traffic = Traffic::new(home.url("/v1/tasks"), home.client.clone(), plan.submits);
    let clients = traffic.begin();
    let rng = StdRng::seed_from_u64(plan.seed);
    let mut killer = Killer { home: &home, traffic: &traffic, server, rng, hits: Hits::default() };
    killer.kill(&plan).await;
    clients.join_all().await;
    let submitted = began.elapsed();
    all_ended(&home).await;

    let replays = traffic.replayed.load(SeqCst);
    traffic.ask_again().await;
    let rows: Vec<Row> = home.tasks().await.iter().map(Row::of).collect();
    let told = traffic.told();
    let wrong = check(plan.submits, &told, &rows);
    assert!(wrong.is_empty(), "seed {}: {} things: {wrong:#?}", plan.seed, wrong.len());

    let hits = &killer.hits;
    println!(
        "{} kills under {} submits ({} answers, {} rows): {} requests under way at the kills, {} \
         cut off, {} refused, {replays} replayed; {} kills hit nothing; ready again after {:?} at \
         the latest; submitted in {:.1} s, all ended and checked after {:.1} s; seed {}",
        hits.hits,
        plan.submits,
        told.len(),
        rows.len(),
        hits.under_way,
        traffic.cut_off.load(SeqCst),
        traffic.refused.load(SeqCst),
        hits.misses,
        hits.slowest,
        submitted.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        plan.seed,
    );
    // The faults must have been where they hurt.
    assert_eq!(hits.hits, plan.kills, "kills that cut off a request");
    assert!(replays > 0, "no request had been written before it was cut off");
}
