//! `/metrics` for Prometheus. What happens is counted by the engine through the
//! `metrics` facade and kept by the exporter; how things stand (depths, ages,
//! slots) is read from the store when somebody asks. Label values are bounded:
//! queues beyond the first five hundred share the label `other`.

use super::App;
use super::problem::Answer;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use windlass::core::store::{QueueInfo, Stats};
use windlass::{Error, State as TaskState, Status, Timestamp};

/// From a millisecond to an hour: queues wait, tasks run long.
const BUCKETS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0, 3600.0,
];
const QUEUES_MAX: usize = 500;
const OTHER: &str = "other";

/// Where the process's counters are.
#[derive(Clone)]
pub struct Meter(PrometheusHandle);

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meter")
    }
}

impl Meter {
    /// Digests what was counted since the last time. Somebody must do it now and
    /// then: without it, samples that nobody asks for pile up.
    pub fn digest(&self) {
        self.0.run_upkeep();
    }
}

/// Makes this process count. Once, before the engine starts.
pub fn install() -> windlass::Result<Meter> {
    let failed = |e: &dyn std::fmt::Display| {
        Error::invalid("metrics", format!("the counters cannot be set up: {e}"))
    };
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &BUCKETS)
        .map_err(|e| failed(&e))?;
    let handle = builder.install_recorder().map_err(|e| failed(&e))?;
    Ok(Meter(handle))
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Answer<Response> {
    let queues = app.reader().queues().await?;
    let stats = app.reader().stats().await?;
    let status = app.engine.status();
    let degraded = !app.engine.is_ready() || status.overrun > 0;
    let mut text = app.meter.0.render();
    Gauges::of(&queues, &stats, &status, degraded, app.engine.now()).write(&mut text);
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, text).into_response())
}

/// Name and help of each gauge, with its values by labels.
#[derive(Default)]
struct Gauges(BTreeMap<(&'static str, &'static str), BTreeMap<String, f64>>);

impl Gauges {
    fn of(
        queues: &[QueueInfo],
        stats: &Stats,
        status: &Status,
        degraded: bool,
        now: Timestamp,
    ) -> Gauges {
        let mut gauges = Gauges::default();
        for (i, queue) in queues.iter().enumerate() {
            let name = if i < QUEUES_MAX { queue.name.as_str() } else { OTHER };
            gauges.queue(name, queue, now);
        }
        for (i, (name, slots, used)) in status.queues.iter().enumerate() {
            let name = if i < QUEUES_MAX { name.as_str() } else { OTHER };
            for (state, n) in [("used", *used), ("free", slots.saturating_sub(*used))] {
                let labels = format!("{{queue=\"{}\",state=\"{state}\"}}", escaped(name));
                gauges.add("windlass_node_slots", "Slots of this node", labels, n as f64);
            }
        }
        let labels = "{queue=\"\",state=\"overrun\"}".to_owned();
        gauges.add("windlass_node_slots", "Slots of this node", labels, status.overrun as f64);
        let help = "Facts on their way out of the store";
        gauges.add("windlass_outbox_pending", help, String::new(), stats.outbox as f64);
        let help = "Whether a part works with less than it should";
        let labels = "{part=\"node\"}".to_owned();
        gauges.add("windlass_degraded", help, labels, f64::from(u8::from(degraded)));
        gauges
    }

    fn queue(&mut self, name: &str, queue: &QueueInfo, now: Timestamp) {
        let name = escaped(name);
        let labels = || format!("{{queue=\"{name}\"}}");
        for (state, n) in &queue.states {
            let labels = format!("{{queue=\"{name}\",state=\"{state}\"}}");
            self.add("windlass_queue_tasks", "Tasks that have not ended", labels, *n as f64);
        }
        let running = queue.states.get(&TaskState::Running).copied().unwrap_or(0);
        let help = "Tasks that some node holds";
        self.add("windlass_tasks_running", help, labels(), running as f64);
        let help = "Failed tasks that wait for a person";
        self.add("windlass_dead_letters", help, labels(), queue.dead_letters as f64);
        let oldest = queue.oldest_ready.map_or(0.0, |at| now.since(at).as_secs_f64());
        let help = "How long the oldest ready task has been waiting";
        self.add("windlass_queue_oldest_ready_seconds", help, labels(), oldest);
        let paused = f64::from(u8::from(queue.paused));
        self.add("windlass_queue_paused", "1 while a queue is paused", labels(), paused);
    }

    fn add(&mut self, name: &'static str, help: &'static str, labels: String, value: f64) {
        *self.0.entry((name, help)).or_default().entry(labels).or_default() += value;
    }

    fn write(&self, text: &mut String) {
        for ((name, help), values) in &self.0 {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        }
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
