//! The page at `/`: a plain overview of queues, recent tasks and dead letters,
//! made on the server, without scripts. The dashboard will take its place.

use super::App;
use super::problem::Answer;
use super::sight::Sight;
use super::tasks::{filter_of, page};
use crate::access::Caller;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use std::sync::Arc;
use windlass::core::clock::format_duration;
use windlass::core::store::{QueueInfo, Stats};
use windlass::{DeadLetter, Query, State as TaskState, Task, Timestamp};

const RECENT: usize = 20;

/// Nothing from elsewhere, no script at all, no framing.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
);

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --dim: #8a8a8a; --bad: #c0392b; --good: #1e8449 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; width: 100% }
th { text-align: left; font-weight: 600; color: var(--dim); font-size: .85rem }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.n, th.n { text-align: right } code { font-size: .9em } .dim { color: var(--dim) }
.failed, .cancelled { color: var(--bad) } .completed { color: var(--good) }
.scroll { overflow-x: auto } .state { margin-right: 1.5rem } p.links a { margin-right: 1.2rem }
";

pub(super) async fn overview(State(app): State<Arc<App>>, caller: Caller) -> Answer<Response> {
    let queues = app.reader().queues().await?;
    let stats = app.reader().stats().await?;
    let sight = Sight::of(&app, &caller);
    let (tasks, _) = page(&app, &filter_of("")?, None, RECENT).await?;
    let dead = app.engine.dead_letters(Query { limit: RECENT, ..Query::default() }).await?;
    let now = app.engine.now();
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Windlass" }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { "Windlass " span.dim { (env!("CARGO_PKG_VERSION")) } }
                p.dim {
                    "Node " code { (app.engine.status().node) } " on " (app.engine.store_name())
                    ", up " (format_duration(whole(app.started.elapsed())))
                    ". This page is a still picture: load it again for news."
                }
                p.links {
                    a href="/v1/tasks" { "tasks" } a href="/v1/dead-letters" { "dead letters" }
                    a href="/v1/queues" { "queues" } a href="/v1/nodes" { "nodes" }
                    a href="/v1/kinds" { "kinds" } a href="/v1/events" { "events" }
                    a href="/metrics" { "metrics" } a href="/readyz?verbose" { "health" }
                    a href="/v1/openapi.json" { "API" }
                }
                (counts(&stats))
                (queue_table(&queues))
                (task_table(&tasks, &sight, now))
                (dead_table(&dead.items, &sight, now))
            }
        }
    };
    let policy = (HeaderName::from_static("content-security-policy"), POLICY);
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Ok(([policy, kind], body.into_string()).into_response())
}

fn whole(d: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_secs(d.as_secs())
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", format_duration(whole(now.since(at))))
}

fn counts(stats: &Stats) -> Markup {
    html! {
        h2 { "Tasks by state" }
        @if stats.states.is_empty() {
            p.dim { "No tasks yet. Try: " code { "windlass submit demo.hello name=Ada --wait" } }
        } @else {
            p {
                @for (state, n) in &stats.states {
                    span.state class=(state.as_str()) { (state.as_str()) " " strong { (n) } }
                }
            }
        }
    }
}

fn queue_table(queues: &[QueueInfo]) -> Markup {
    html! {
        h2 { "Queues" }
        @if queues.is_empty() { p.dim { "No task has been in a queue yet." } } @else {
            div.scroll { table {
                tr { th { "queue" } th { "" } th.n { "queued" } th.n { "running" } th.n { "later" } th.n { "dead letters" } }
                @for queue in queues {
                    tr {
                        td { (queue.name) }
                        td.dim {
                            @if queue.paused { "paused " } @if queue.draining { "draining" }
                        }
                        td.n { (of(queue, &[TaskState::Queued])) }
                        td.n { (of(queue, &[TaskState::Running, TaskState::RollingBack])) }
                        td.n { (of(queue, &[TaskState::Scheduled, TaskState::Retrying, TaskState::Waiting, TaskState::Paused])) }
                        td.n { (queue.dead_letters) }
                    }
                }
            } }
        }
    }
}

fn of(queue: &QueueInfo, states: &[TaskState]) -> u64 {
    states.iter().filter_map(|s| queue.states.get(s)).sum()
}

fn task_table(tasks: &[Task], sight: &Sight, now: Timestamp) -> Markup {
    html! {
        h2 { "Newest tasks" }
        @if tasks.is_empty() { p.dim { "None." } } @else {
            div.scroll { table {
                tr { th { "task" } th { "kind" } th { "queue" } th { "state" } th.n { "attempt" } th { "made" } th { "last error" } }
                @for task in tasks {
                    tr {
                        td { a href={ "/v1/tasks/" (task.id) } { code { (task.id) } } }
                        td { (task.kind) } td { (task.queue) }
                        td class=(task.state().as_str()) { (task.state().as_str()) }
                        td.n { (task.standing.attempt) }
                        td.dim { (ago(task.created_at, now)) }
                        td.dim { @if let Some(failure) = &task.standing.failure { (short(&sight.words(&task.payload).clean(failure.error.message.clone()))) } }
                    }
                }
            } }
        }
    }
}

fn dead_table(letters: &[DeadLetter], sight: &Sight, now: Timestamp) -> Markup {
    html! {
        h2 { "Dead letters" }
        @if letters.is_empty() { p.dim { "None: nothing waits for a person." } } @else {
            div.scroll { table {
                tr { th { "task" } th { "kind" } th { "reason" } th { "step" } th { "message" } th { "failed" } }
                @for letter in letters {
                    tr {
                        td { a href={ "/v1/dead-letters/" (letter.id) } { code { (letter.id) } } }
                        td { (letter.kind) } td { (letter.reason) }
                        td { (letter.step.as_deref().unwrap_or("")) }
                        td { (short(&sight.words(&letter.payload).clean(letter.message.clone()))) }
                        td.dim { (ago(letter.at, now)) }
                    }
                }
            } }
            p.dim { "Send one again with " code { "windlass dead requeue ID" } "." }
        }
    }
}

fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= 120 {
        line.to_owned()
    } else {
        format!("{}…", line.chars().take(119).collect::<String>())
    }
}
