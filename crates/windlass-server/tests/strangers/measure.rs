//! The long form: what slow strangers cost others. Windows with and without them
//! take turns, because the machine is shared and no two minutes are alike; the
//! medians are compared. `cargo xtask slow` builds everything with optimisation
//! and says how many strangers and how long.

use super::process::{Home, PATIENCE};
use super::slow::{self, Sort};
use reqwest::Client;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CLIENTS: usize = 16;
const ROUNDS: usize = 3;
/// The p99 with strangers is at most so many times that without.
const RATIO_MAX: f64 = 2.0;

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// How many strangers were there.
#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    cut: AtomicU64,
}

/// Strangers that come back whenever they are cut off, until they are dropped.
fn strangers(number: usize, at: SocketAddr, counts: &Arc<Counts>) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for n in 0..number {
        let (sort, counts) = (Sort::PLAIN[n % Sort::PLAIN.len()], counts.clone());
        all.spawn(async move {
            loop {
                counts.open.fetch_add(1, SeqCst);
                slow::one(sort, at).await.unwrap_or_else(|e| panic!("{sort:?}: {e}"));
                counts.cut.fetch_add(1, SeqCst);
            }
        });
    }
    all
}

/// Submits and reads in turn for so long; gives every time it took.
async fn client(http: Client, url: String, time: Duration) -> Vec<Duration> {
    let (began, mut times) = (Instant::now(), vec![]);
    let task = json!({ "kind": "demo.hello", "payload": { "name": "Ada" } });
    while began.elapsed() < time {
        let asked = Instant::now();
        let answer = http.post(&url).json(&task).send().await.expect("an answer");
        assert_eq!(answer.status(), 201);
        let written: serde_json::Value = answer.json().await.expect("JSON");
        times.push(asked.elapsed());
        let one = format!("{url}/{}", written["id"].as_str().expect("an id"));
        let asked = Instant::now();
        let answer = http.get(one).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.bytes().await.expect("a body");
        times.push(asked.elapsed());
    }
    times
}

/// Requests and p99 of all clients together.
async fn window(home: &Home, time: Duration) -> (usize, Duration) {
    let url = home.url("/v1/tasks");
    let one = || tokio::spawn(client(home.client.clone(), url.clone(), time));
    let clients: Vec<_> = (0..CLIENTS).map(|_| one()).collect();
    let mut times = vec![];
    for client in clients {
        times.extend(client.await.expect("a client"));
    }
    times.sort();
    (times.len(), times[times.len() * 99 / 100])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_strangers_cost_others_little() {
    let (Some(number), Some(seconds)) =
        (asked("WINDLASS_TEST_SLOW"), asked("WINDLASS_TEST_SLOW_SECONDS"))
    else {
        println!("measured only by `cargo xtask slow`");
        return;
    };
    super::take_files();
    let home = Home::new("");
    let server = home.ready().await;
    let time = Duration::from_secs(seconds);
    window(&home, Duration::from_secs(5)).await;
    let idle = server.memory("VmRSS");
    let (mut without, mut with) = (vec![], vec![]);
    for round in 1..=ROUNDS {
        let (requests, p99) = window(&home, time / 2).await;
        println!("round {round}: {p99:>10.2?} p99 of {requests} requests without strangers");
        without.push(p99);
        let counts = Arc::new(Counts::default());
        let crowd = strangers(number as usize, home.at, &counts);
        super::until("all strangers are there", || counts.open.load(SeqCst) >= number).await;
        let (requests, p99) = window(&home, time).await;
        let (cut, memory) = (counts.cut.load(SeqCst), server.memory("VmRSS"));
        println!(
            "round {round}: {p99:>10.2?} p99 of {requests} requests with {number} strangers, \
             {cut} times one was cut off; memory {} MiB",
            memory / 1024 / 1024
        );
        let mut crowd = crowd;
        if let Some(ended) = crowd.try_join_next() {
            ended.expect("a stranger that stays");
        }
        crowd.shutdown().await;
        assert!(time < PATIENCE / 2 || cut > 0, "nobody was cut off in {time:?}");
        with.push(p99);
    }
    let (without, with) = (median(without), median(with));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!(
        "medians: {without:.2?} without, {with:.2?} with {number} strangers: ratio {ratio:.2}"
    );
    println!("memory: {} MiB before the first stranger", idle / 1024 / 1024);
    assert!(ratio <= RATIO_MAX, "p99 is {ratio:.2} times that without strangers");
}
