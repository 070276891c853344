//! `/metrics` of a real server after a known workload, compared with what the
//! API says about tasks, attempts and dead letters: every counter, every number
//! of samples and every gauge. Names and labels are those of the list here,
//! which also says what comes with later features.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)] // a test fails by panicking

mod process;

use process::{Home, PATIENCE, pause};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Programs that end as their names say.
const CONFIG: &str = r#"
[defaults]
step_retry = { retries = 0 }
retry = { retries = 1, first = "20ms", factor = 1.0, cap = "20ms", jitter = 0.0 }
[queues.work]
concurrency = 6
[kinds."file.ingest"]
queue = "work"
steps = ["good", "later", "good2"]
[kinds.good]
queue = "work"
[handlers.good]
exec = ["sh", "-c", "cat >/dev/null; echo '{\"good\":1}'"]
[handlers.good2]
exec = ["sh", "-c", "cat >/dev/null"]
[handlers.later]
exec = ["sh", "-c", "read -r doc; case $doc in *'\"attempt\":1,'*) exit 75;; esac; echo '{}'"]
[handlers.nap]
exec = ["sh", "-c", "read -r doc; case $doc in *'\"attempt\":1,'*) echo '{\"snooze\":\"20ms\"}';; esac"]
[handlers.bad]
exec = ["sh", "-c", "cat >/dev/null; echo secret-of-the-payload >&2; exit 65"]
[handlers.busy]
exec = ["sh", "-c", "cat >/dev/null; exit 75"]
[handlers.skip]
exec = ["sh", "-c", "cat >/dev/null; exit 77"]
[handlers.odd]
exec = ["sh", "-c", "cat >/dev/null; exit 3"]
"#;

/// Every name that can be there, with its labels.
const NAMES: &[(&str, &[&str])] = &[
    ("windlass_tasks_submitted_total", &["kind", "queue"]),
    ("windlass_task_attempts_total", &["kind", "queue", "outcome"]),
    ("windlass_task_run_duration_seconds", &["kind", "queue", "outcome"]),
    ("windlass_task_wait_duration_seconds", &["kind", "queue"]),
    ("windlass_task_total_duration_seconds", &["kind", "queue", "outcome"]),
    ("windlass_task_retries_total", &["kind", "queue", "reason"]),
    ("windlass_dead_letters_entered_total", &["kind", "queue", "reason"]),
    ("windlass_dead_letters", &["queue"]),
    ("windlass_store_operations_total", &["store", "operation", "outcome"]),
    ("windlass_store_operation_duration_seconds", &["store", "operation"]),
    ("windlass_queue_tasks", &["queue", "state"]),
    ("windlass_queue_oldest_ready_seconds", &["queue"]),
    ("windlass_queue_paused", &["queue"]),
    ("windlass_tasks_running", &["queue"]),
    ("windlass_node_slots", &["queue", "state"]),
    ("windlass_checkpoint_operations_total", &["operation", "outcome"]),
    ("windlass_leases_expired_total", &["queue"]),
    ("windlass_stale_writes_refused_total", &[]),
    ("windlass_outbox_pending", &[]),
    ("windlass_degraded", &["part"]),
    ("windlass_build_info", &["version"]),
];

/// Their features are not there yet. Whoever adds one moves its names up.
const LATER: &[&str] = &[
    "windlass_events_published_total",
    "windlass_events_processed_total",
    "windlass_transport_lag",
    "windlass_transport_publish_duration_seconds",
    "windlass_limit_waiting",
    "windlass_stream_messages_total",
    "windlass_stream_lag",
    "windlass_stream_batch_size",
    "windlass_stream_paused",
];

/// A kind of call to a store.
const STORE_CALL: [&str; 2] = ["store", "operation"];

/// One line of `/metrics`.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Values by what the labels say, as `kind/queue/outcome`.
type Counts = BTreeMap<String, u64>;

struct Scrape(Vec<Sample>);

impl Scrape {
    async fn of(home: &Home) -> Scrape {
        let answer = home.client.get(home.url("/metrics")).send().await.expect("an answer");
        let text = answer.text().await.expect("text");
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Scrape(lines.map(sample).collect())
    }

    /// Of one name, by these labels.
    fn by(&self, name: &str, labels: &[&str]) -> Counts {
        let mut counts = Counts::new();
        for sample in self.0.iter().filter(|s| s.name == name) {
            let words = labels.iter().map(|l| sample.labels[*l].as_str());
            let key = words.collect::<Vec<_>>().join("/");
            *counts.entry(key).or_default() += sample.value as u64;
        }
        counts.retain(|_, n| *n != 0);
        counts
    }

    /// Of the queues with work; and those that no queue has, which must not be.
    fn slots(&self) -> Counts {
        let mut slots = self.by("windlass_node_slots", &["queue", "state"]);
        slots.retain(|key, _| ["work/", "default/", "/"].iter().any(|q| key.starts_with(q)));
        slots
    }

    fn known(name: &str) -> Option<&'static (&'static str, &'static [&'static str])> {
        let plain = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s));
        NAMES.iter().find(|(known, _)| *known == name || Some(*known) == plain)
    }
}

fn sample(line: &str) -> Sample {
    let (key, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
    let labels = labels.strip_suffix('}').expect("labels that end");
    let pairs = labels.split("\",").filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once("=\"").expect("a label");
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    };
    let value = value.parse().expect("a number");
    Sample { name: name.to_owned(), labels: pairs.map(pair).collect(), value }
}

/// What the API says.
struct Known {
    tasks: Vec<Value>,
    /// Each with its task's place.
    attempts: Vec<(usize, Value)>,
    queues: Vec<Value>,
    dead_letters: Vec<Value>,
}

fn word(value: &Value) -> &str {
    value.as_str().expect("a word")
}

fn count(words: impl Iterator<Item = String>) -> Counts {
    let mut counts = Counts::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

fn list(mut value: Value) -> Vec<Value> {
    std::mem::take(value["items"].as_array_mut().expect("a list"))
}

impl Known {
    async fn of(home: &Home) -> Known {
        let tasks = home.tasks().await;
        let mut attempts = vec![];
        for (place, task) in tasks.iter().enumerate() {
            let path = format!("/v1/tasks/{}/attempts", word(&task["id"]));
            attempts.extend(list(home.get(&path).await).into_iter().map(|a| (place, a)));
        }
        let queues = list(home.get("/v1/queues").await);
        let dead_letters = list(home.get("/v1/dead-letters?limit=500").await);
        Known { tasks, attempts, queues, dead_letters }
    }

    fn pair(&self, task: usize) -> String {
        let task = &self.tasks[task];
        format!("{}/{}", word(&task["kind"]), word(&task["queue"]))
    }

    fn submitted(&self) -> Counts {
        count((0..self.tasks.len()).map(|i| self.pair(i)))
    }

    fn ended_attempts(&self) -> Counts {
        let ended = self.attempts.iter().filter(|(_, a)| !a["outcome"].is_null());
        count(ended.map(|(i, a)| format!("{}/{}", self.pair(*i), word(&a["outcome"]))))
    }

    /// Every attempt waited to be claimed, those that still run too.
    fn claimed(&self) -> Counts {
        count(self.attempts.iter().map(|(i, _)| self.pair(*i)))
    }

    fn retries(&self) -> Counts {
        let retried = self.attempts.iter().filter(|(_, a)| a["outcome"] == "retrying");
        count(retried.map(|(i, a)| format!("{}/{}", self.pair(*i), word(&a["failure"]["class"]))))
    }

    /// Tasks that an attempt ended, and those that were complete when submitted.
    fn whole_lives(&self) -> Counts {
        let ended = |i: &usize| {
            let state = &self.tasks[*i]["state"];
            let mut attempts = self.attempts.iter().filter(|(task, _)| task == i);
            let by_attempt = attempts.any(|(_, a)| a["outcome"] == *state);
            let at_once = self.tasks[*i]["attempt"] == 0 && state == "completed";
            !self.tasks[*i]["finished_at"].is_null() && (by_attempt || at_once)
        };
        let lives = (0..self.tasks.len()).filter(ended);
        count(lives.map(|i| format!("{}/{}", self.pair(i), word(&self.tasks[i]["state"]))))
    }

    fn failed(&self) -> Counts {
        let failed = (0..self.tasks.len()).filter(|i| self.tasks[*i]["state"] == "failed");
        let reason = |i: usize| word(&self.tasks[i]["failure"]["reason"]).to_owned();
        count(failed.map(|i| format!("{}/{}", self.pair(i), reason(i))))
    }

    fn checkpoints(&self) -> Counts {
        let steps = |a: &Value| a["steps"].as_array().expect("steps").len() as u64;
        let saved = self.attempts.iter().map(|(_, a)| steps(a)).sum();
        let number = |a: &Value| a["attempt"].as_u64().expect("a number");
        let resumed = self.attempts.iter().filter(|(task, attempt)| {
            let before = |(t, a): &&(usize, Value)| t == task && number(a) < number(attempt);
            self.attempts.iter().filter(before).any(|(_, a)| steps(a) > 0)
        });
        let resumed = resumed.count() as u64;
        BTreeMap::from([("save/ok".to_owned(), saved), ("resume/ok".to_owned(), resumed)])
    }

    fn live(&self) -> Counts {
        let live = self.tasks.iter().filter(|t| t["finished_at"].is_null());
        count(live.map(|t| format!("{}/{}", word(&t["queue"]), word(&t["state"]))))
    }

    fn paused(&self) -> Counts {
        let paused = self.queues.iter().filter(|q| q["paused"] == true);
        count(paused.map(|q| word(&q["name"]).to_owned()))
    }

    fn running(&self) -> Counts {
        let running = self.tasks.iter().filter(|t| t["state"] == "running");
        count(running.map(|t| word(&t["queue"]).to_owned()))
    }

    fn dead(&self) -> Counts {
        count(self.dead_letters.iter().map(|d| word(&d["queue"]).to_owned()))
    }
}

/// What must be equal: a name, what is measured, what is known.
fn compared(scrape: &Scrape, known: &Known) -> Vec<(&'static str, Counts, Counts)> {
    let pair = ["kind", "queue"];
    let outcome = ["kind", "queue", "outcome"];
    let reason = ["kind", "queue", "reason"];
    let attempts = known.ended_attempts();
    let timed = scrape.by("windlass_store_operation_duration_seconds_count", &STORE_CALL);
    let rows: [(&'static str, &[&str], Counts); 16] = [
        ("windlass_tasks_submitted_total", &pair, known.submitted()),
        ("windlass_task_attempts_total", &outcome, attempts.clone()),
        ("windlass_task_run_duration_seconds_count", &outcome, attempts),
        ("windlass_task_wait_duration_seconds_count", &pair, known.claimed()),
        ("windlass_task_total_duration_seconds_count", &outcome, known.whole_lives()),
        ("windlass_task_retries_total", &reason, known.retries()),
        ("windlass_dead_letters_entered_total", &reason, known.failed()),
        ("windlass_checkpoint_operations_total", &["operation", "outcome"], known.checkpoints()),
        ("windlass_stale_writes_refused_total", &[], Counts::new()),
        ("windlass_leases_expired_total", &["queue"], Counts::new()),
        ("windlass_queue_tasks", &["queue", "state"], known.live()),
        ("windlass_queue_paused", &["queue"], known.paused()),
        ("windlass_tasks_running", &["queue"], known.running()),
        ("windlass_degraded", &["part"], Counts::new()),
        ("windlass_outbox_pending", &[], Counts::new()),
        // Each answer of the store was timed.
        ("windlass_store_operations_total", &STORE_CALL, timed),
    ];
    let rows = rows.into_iter().map(|(name, labels, known)| (name, scrape.by(name, labels), known));
    let dead =
        ("windlass_dead_letters", scrape.by("windlass_dead_letters", &["queue"]), known.dead());
    let slots = ("windlass_node_slots", scrape.slots(), slots_known());
    rows.chain([dead, slots]).collect()
}

/// All is at rest but one task that runs.
fn slots_known() -> Counts {
    [("work/free", 6), ("default/used", 1), ("default/free", 3)]
        .map(|(slots, n)| (slots.to_owned(), n))
        .into()
}

async fn submit(home: &Home, submission: Value) -> String {
    let (status, task) = home.ask(Method::POST, "/v1/tasks", Some(submission)).await;
    assert!(status == 201 || status == 200, "{task}");
    word(&task["id"]).to_owned()
}

async fn until(home: &Home, id: &str, state: &str) {
    let began = Instant::now();
    loop {
        let task = home.get(&format!("/v1/tasks/{id}")).await;
        if task["state"] == state {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "never {state}: {task}");
        pause(Duration::from_millis(10)).await;
    }
}

async fn act(home: &Home, path: &str) {
    let (status, body) = home.ask(Method::POST, path, None).await;
    assert!(status == 200 || status == 202, "{path}: {body}");
}

/// Every way a task can end, and some that have not ended.
async fn workload(home: &Home) {
    let mut ends = vec![];
    for kind in ["good", "nap", "bad", "busy", "skip", "odd", "file.ingest", "demo.hello"] {
        let hello = json!({ "kind": kind });
        let bulk = json!({ "tasks": [hello, hello] });
        let (status, ids) = home.ask(Method::POST, "/v1/tasks/bulk", Some(bulk)).await;
        assert_eq!(status, 201, "{ids}");
        let ids = ids["ids"].as_array().expect("ids").iter().map(word).map(str::to_owned);
        ends.extend(ids);
    }
    ends.push(submit(home, json!({ "kind": "demo.flaky", "payload": { "fails": 1 } })).await);
    ends.push(submit(home, json!({ "kind": "demo.flaky", "payload": { "fatal": true } })).await);
    ends.push(submit(home, json!({ "kind": "demo.chain", "steps": [] })).await);
    // The same task twice, and one that is there already: neither is a new one.
    let slow = |s: f64| json!({ "kind": "demo.sleep", "payload": { "seconds": s } });
    let mut unique = slow(3000.0);
    unique["unique"] = json!({ "key": "only" });
    let running = submit(home, unique.clone()).await;
    assert_eq!(submit(home, unique).await, running);
    let cancelled = submit(home, slow(3000.0)).await;
    until(home, &cancelled, "running").await;
    act(home, &format!("/v1/tasks/{cancelled}/cancel")).await;
    let mut later = slow(0.0);
    later["delay"] = json!("1h");
    let never = submit(home, later.clone()).await;
    act(home, &format!("/v1/tasks/{never}/cancel")).await;
    submit(home, later).await;
    // Nothing of this queue starts.
    act(home, "/v1/queues/held/pause").await;
    let held = json!({ "kind": "demo.hello", "queue": "held" });
    submit(home, held.clone()).await;
    submit(home, held).await;
    for id in &ends {
        let task = home.get(&format!("/v1/tasks/{id}?wait=60s")).await;
        assert!(!task["finished_at"].is_null(), "{task}");
    }
    until(home, &cancelled, "cancelled").await;
    until(home, &running, "running").await;
    // One that nobody wants to see any more; it had entered all the same.
    let first = list(home.get("/v1/dead-letters").await).remove(0);
    act(home, &format!("/v1/dead-letters/{}/discard", word(&first["id"]))).await;
}

#[tokio::test]
async fn metrics_say_what_the_store_says() {
    let home = Home::new(CONFIG);
    let server = home.ready().await;
    workload(&home).await;
    let known = Known::of(&home).await;
    // What happened last is counted a moment after it can be seen, and a live
    // server asks its store while it writes its counters.
    let began = Instant::now();
    let scrape = loop {
        let scrape = Scrape::of(&home).await;
        let unequal = compared(&scrape, &known).into_iter().any(|(_, is, should)| is != should);
        if !unequal || began.elapsed() > Duration::from_secs(30) {
            break scrape;
        }
        pause(Duration::from_millis(20)).await;
    };
    for (name, measured, known) in compared(&scrape, &known) {
        assert_eq!(measured, known, "{name}");
    }
    workload_was_whole(&known);
    build_waits_and_calls(&scrape);
    names_and_labels(&scrape, &known);
    histograms_go_up_to_an_hour(&scrape);
    drop(server);
}

/// Each part of the comparison had something to compare.
fn workload_was_whole(known: &Known) {
    let last = |counts: Counts| -> BTreeSet<String> {
        counts.keys().filter_map(|k| Some(k.rsplit('/').next()?.to_owned())).collect()
    };
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<BTreeSet<_>>();
    let outcomes = words(&["completed", "failed", "retrying", "scheduled", "cancelled"]);
    assert_eq!(last(known.ended_attempts()), outcomes);
    assert_eq!(last(known.retries()), words(&["retryable", "unknown"]));
    assert!(last(known.failed()).is_superset(&words(&["exhausted", "fatal"])));
    let lives = words(&["completed", "failed", "cancelled"]);
    assert_eq!(last(known.whole_lives()), lives);
    assert_eq!(last(known.live()), words(&["queued", "running", "scheduled"]));
    assert!(known.checkpoints()["resume/ok"] >= 2, "{:?}", known.checkpoints());
    assert!(!known.dead().is_empty() && !known.paused().is_empty());
    let entered: u64 = known.failed().values().sum();
    assert_eq!(known.dead().values().sum::<u64>(), entered - 1, "one was discarded");
}

fn build_waits_and_calls(scrape: &Scrape) {
    assert_eq!(scrape.by("windlass_build_info", &[]).values().sum::<u64>(), 1);
    let waits = scrape
        .0
        .iter()
        .find(|s| s.name == "windlass_queue_oldest_ready_seconds" && s.labels["queue"] == "held");
    assert!(waits.is_some_and(|s| s.value > 0.0 && s.value < 600.0), "{waits:?}");
    let calls = scrape.by("windlass_store_operations_total", &STORE_CALL);
    for call in ["submit", "claim", "record", "renew", "upkeep", "change", "tasks", "attempts"] {
        assert!(calls.contains_key(&format!("sqlite/{call}")), "{call}: {calls:?}");
    }
}

fn names_and_labels(scrape: &Scrape, known: &Known) {
    let names: BTreeSet<&str> = scrape.0.iter().map(|s| s.name.as_str()).collect();
    for (name, _) in NAMES {
        let there = names.contains(name) || names.contains(format!("{name}_count").as_str());
        assert!(there, "{name} is not there: {names:?}");
    }
    for sample in &scrape.0 {
        assert!(!LATER.contains(&sample.name.as_str()), "{} has come: move it up", sample.name);
        let (_, labels) = Scrape::known(&sample.name).unwrap_or_else(|| panic!("{sample:?}"));
        let is: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
        let should: BTreeSet<&str> = labels.iter().copied().collect();
        let is: BTreeSet<&str> = is.into_iter().filter(|l| *l != "le").collect();
        assert_eq!(is, should, "{sample:?}");
    }
    let mut secrets: Vec<&str> = known.tasks.iter().map(|t| word(&t["id"])).collect();
    let failures = known.tasks.iter().filter_map(|t| t["failure"]["message"].as_str());
    secrets.extend(failures);
    assert!(secrets.contains(&"secret-of-the-payload"), "{secrets:?}");
    for value in scrape.0.iter().flat_map(|s| s.labels.values()) {
        let told = secrets.iter().find(|secret| value.contains(**secret));
        assert_eq!(told, None, "in the label {value}");
    }
}

fn histograms_go_up_to_an_hour(scrape: &Scrape) {
    let histograms: Vec<&str> =
        NAMES.iter().map(|(name, _)| *name).filter(|n| n.ends_with("_duration_seconds")).collect();
    assert_eq!(histograms.len(), 4);
    for name in histograms {
        let bucket = format!("{name}_bucket");
        let buckets = scrape.0.iter().filter(|s| s.name == bucket);
        let bounds: BTreeSet<&str> = buckets.map(|s| s.labels["le"].as_str()).collect();
        let last = bounds.iter().filter_map(|b| b.parse::<f64>().ok()).filter(|b| b.is_finite());
        assert_eq!(last.fold(0.0, f64::max), 3600.0, "{name}: {bounds:?}");
        assert!(bounds.contains("+Inf") && bounds.contains("0.001"), "{name}: {bounds:?}");
    }
}
