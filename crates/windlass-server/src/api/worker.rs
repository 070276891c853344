//! Workers in other processes, over HTTP: lease and report. The bodies are read
//! into the engine's own words and its answers are shown; what a lease is, and what
//! a report may do, is the engine's to say.

mod discreet;
pub(super) mod grpc;

use super::App;
use super::few::Few;
use super::input::{Object, given, node_id, parse, read};
use super::problem::{Answer, Problem, ProblemBody, ProblemCode};
use super::view::{self, CheckpointView};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use discreet::discreet;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;
use windlass::core::checkpoint::StepOutcome;
use windlass::core::clock::{duration_text, format_duration};
use windlass::core::lease::Token;
use windlass::core::outcome::Class;
use windlass::remote::{
    Asked, Finish, HELD_MAX, KINDS_MAX, Lease, LeaseRequest, QUEUES_MAX, REPORTS_MAX, Report,
    ReportAnswer, ReportRequest, Said, Step, Trouble, Wish,
};
use windlass::{Error, Json as Text, Kind, Progress, QueueName, TaskId, Timestamp};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What a lease takes beside its payload, mostly.
const LEASE_BYTES: usize = 700;

/// A worker asks for work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseIn {
    /// Its name in lists of nodes.
    #[schema(max_length = 200, example = "thumbnails-1")]
    worker: String,
    /// From the first answer; null or absent joins as a new node.
    #[serde(default)]
    #[schema(example = "nod_07fjctf1g0400")]
    worker_id: Option<String>,
    /// The kinds it serves.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 256)]
    kinds: Few<Kind, KINDS_MAX>,
    /// Absent or empty: `default`, and the queues configured for its kinds.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 64)]
    queues: Option<Few<QueueName, QUEUES_MAX>>,
    /// How many at the most: its free slots.
    #[schema(minimum = 1, maximum = 1000)]
    max: usize,
    /// Answer when there is work, or after this time; at most 60s, absent is at once.
    #[serde(default, with = "duration_text::optional")]
    #[schema(value_type = Option<String>, example = "20s")]
    wait: Option<Duration>,
    /// Of the worker's program.
    #[schema(max_length = 200)]
    version: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LeaseAnswer)]
pub(super) struct LeaseOut {
    worker_id: String,
    /// How long leases last without a report.
    #[schema(example = "30s")]
    lease: String,
    leases: Vec<LeaseView>,
}

/// A task that the worker holds now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
struct LeaseView {
    task: About,
    /// Goes with every report about it.
    token: u64,
    #[schema(value_type = serde_json::Value)]
    payload: Text,
    /// What it resumes from; version 0: it has recorded nothing.
    checkpoint: CheckpointView,
    timeouts: Times,
    /// Nothing may run beside it: it may have killed its workers before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    alone: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LeasedTask)]
struct About {
    id: String,
    kind: String,
    queue: String,
    priority: i8,
    run: u32,
    attempt: u32,
    labels: BTreeMap<String, String>,
    correlation_id: Option<String>,
    user_id: Option<String>,
    /// The plan, when the task or its kind has one.
    steps: Vec<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    traceparent: Option<String>,
    /// With `:STEP` after it the idempotency key of that step.
    idempotency_prefix: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LeasedTimes)]
struct Times {
    #[schema(example = "5m")]
    step: String,
    #[schema(example = "30m")]
    task: String,
}

/// A worker says what it did and what it holds.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportIn {
    worker_id: String,
    /// Everything it holds; what is not named goes back to its queue.
    #[schema(value_type = Vec<HeldIn>, max_items = 10_000)]
    held: Few<Object<HeldIn>, HELD_MAX>,
    #[serde(default)]
    #[schema(value_type = Option<Vec<OneReport>>, max_items = 1000)]
    reports: Option<Few<Object<OneReport>, REPORTS_MAX>>,
    /// It stops; what it no longer holds goes back at once.
    #[serde(default)]
    leaving: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Held)]
#[serde(deny_unknown_fields)]
struct HeldIn {
    #[schema(value_type = String)]
    task: TaskId,
    token: u64,
}

/// Exactly one of `step`, `progress`, `finish`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Report)]
#[serde(deny_unknown_fields)]
struct OneReport {
    #[schema(value_type = String)]
    task: TaskId,
    token: u64,
    #[schema(value_type = Option<StepIn>)]
    step: Option<Object<StepIn>>,
    #[schema(value_type = Option<ProgressIn>)]
    progress: Option<Object<ProgressIn>>,
    #[schema(value_type = Option<FinishIn>)]
    finish: Option<Object<FinishIn>>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ReportedStep)]
#[serde(deny_unknown_fields)]
struct StepIn {
    #[schema(max_length = 200)]
    name: String,
    outcome: StepWord,
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Text>,
    /// Why it was skipped or failed.
    reason: Option<String>,
    /// Greater than the checkpoint's; the first is one more.
    #[schema(minimum = 1)]
    version: u64,
    #[serde(default)]
    duration_ms: u64,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StepWord {
    Done,
    Skip,
    Fail,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ReportedProgress)]
#[serde(deny_unknown_fields)]
struct ProgressIn {
    done: u64,
    #[serde(default)]
    total: u64,
    note: Option<String>,
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Text>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Finish)]
#[serde(deny_unknown_fields)]
struct FinishIn {
    outcome: FinishWord,
    /// Of `done`. Absent: what the steps gave, merged; null when there were none.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Option<Text>>,
    /// Of `fail` and `retry`: a text, or an object.
    #[schema(value_type = Option<TroubleIn>)]
    error: Option<ErrorIn>,
    /// Of `snooze`, and the least delay of `retry`.
    #[serde(default, with = "duration_text::optional")]
    #[schema(value_type = Option<String>, example = "5m")]
    delay: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FinishWord {
    Done,
    Fail,
    Retry,
    Snooze,
    Release,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ReportedError)]
#[serde(deny_unknown_fields)]
struct TroubleIn {
    message: String,
    /// `fail`: fatal, output; `retry`: retryable, timeout, unknown, panic
    #[schema(value_type = Option<String>)]
    class: Option<Class>,
    detail: Option<String>,
    step: Option<String>,
}

/// A text, or an object with more about it.
#[derive(Debug)]
struct ErrorIn(TroubleIn);

impl<'de> Deserialize<'de> for ErrorIn {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = TroubleIn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or an object with `message`")
            }

            fn visit_str<E>(self, message: &str) -> Result<TroubleIn, E> {
                Ok(TroubleIn { message: message.to_owned(), ..TroubleIn::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TroubleIn, A::Error> {
                TroubleIn::deserialize(MapAccessDeserializer::new(map))
            }
        }
        d.deserialize_any(Either).map(ErrorIn)
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReportAnswer)]
pub(super) struct ReportOut {
    /// `ok`, `lease-lost`, or another code, one for each report.
    results: Vec<&'static str>,
    requests: Vec<AskedOut>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkerRequest)]
struct AskedOut {
    task: String,
    /// Stop working on it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancel: bool,
    /// Stop after this step and release it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pause: bool,
    /// Beside `cancel`: it is not this worker's any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
}

/// Leases tasks to a worker in another process
///
/// The first call gets a `worker_id`, later ones must give it. 409 `lease-lost`:
/// the worker's lease has ended; ask again with `worker_id` null.
#[utoipa::path(
    post, path = "/v1/worker/lease", tag = "workers", request_body = LeaseIn,
    responses(
        (status = 200, body = LeaseOut, description = "What it holds now in addition; may be none"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn lease(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let text = read(&headers, body, app.terms.limits.body_max).await?;
    let Object(wish): Object<LeaseIn> = parse(&text)?;
    let id = wish.worker_id.as_deref().map(worker_id).transpose()?;
    let request = LeaseRequest {
        worker: wish.worker,
        id,
        kinds: wish.kinds.0,
        queues: wish.queues.map(|Few(queues)| queues).unwrap_or_default(),
        max: wish.max,
        wait: wish.wait.unwrap_or_default(),
        version: wish.version,
    };
    drop(text);
    let answer = app.engine.workers().lease(request).await.map_err(refused)?;
    let bytes = answer.leases.iter().map(|l| LEASE_BYTES + l.task.payload.as_str().len()).sum();
    let leases: Answer<Vec<LeaseView>> =
        answer.leases.into_iter().map(|lease| shown(&app, lease)).collect();
    let out = LeaseOut {
        worker_id: answer.id.to_string(),
        lease: format_duration(answer.lease),
        leases: leases?,
    };
    let mut body = Vec::with_capacity(bytes);
    serde_json::to_writer(&mut body, &out).map_err(|e| {
        Problem::from(Error::corrupt("lease", "the leases cannot be shown").because(e))
    })?;
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

/// Takes what a worker reports, and its heartbeat
///
/// Each report has its own result. 409 `lease-lost` for the whole call: the
/// worker's lease has ended, and nothing was written.
#[utoipa::path(
    post, path = "/v1/worker/report", tag = "workers", request_body = ReportIn,
    responses(
        (status = 200, body = ReportOut),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn report(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<ReportOut>> {
    let text = read(&headers, body, app.terms.limits.bulk_max).await?;
    let Object(said): Object<ReportIn> = parse(&text)?;
    let id = worker_id(&said.worker_id)?;
    let held = said.held.0.into_iter().map(|Object(held)| (held.task, Token(held.token)));
    let given = said.reports.map(|Few(reports)| reports).unwrap_or_default();
    let reports = given.into_iter().enumerate().map(|(i, Object(report))| report.words(i));
    let mut request = ReportRequest {
        held: held.collect(),
        reports: reports.collect::<Answer<_>>()?,
        leaving: said.leaving,
    };
    drop(text);
    discreet(&app, &mut request).await?;
    let answer = app.engine.workers().report(id, request).await.map_err(refused)?;
    Ok(Json(answered(answer)))
}

fn worker_id(text: &str) -> Answer<windlass::NodeId> {
    node_id(text).map_err(|_| {
        let detail = format!("`{text:.40}` is no id of a worker; give back what the lease said");
        Problem::field("/worker_id", detail)
    })
}

/// A worker is told what to do next, not to look at tasks.
fn refused(error: Error) -> Problem {
    let field = error.message().split([' ', ':']).next().unwrap_or_default();
    let named = ["worker", "kinds", "queues", "max", "wait", "version"].contains(&field);
    let pointer = named.then(|| format!("/{field}"));
    let problem = Problem::from(error);
    match (problem.code(), pointer) {
        (ProblemCode::LeaseLost, _) => {
            problem.hint("stop what this worker_id held, and lease again with worker_id null")
        }
        (ProblemCode::InvalidFields, Some(pointer)) => problem.at(pointer, "see the detail"),
        _ => problem,
    }
}

fn shown(app: &App, lease: Lease) -> Answer<LeaseView> {
    let Lease { task, token, checkpoint, step_timeout, task_timeout, alone } = lease;
    let extras = task.extras.as_deref();
    let about = About {
        id: task.id.to_string(),
        kind: task.kind.to_string(),
        queue: task.queue.to_string(),
        priority: task.priority,
        run: task.standing.run,
        attempt: task.standing.attempt,
        labels: extras.map(|e| e.labels.clone()).unwrap_or_default(),
        correlation_id: extras.and_then(|e| e.correlation_id.clone()),
        user_id: extras.and_then(|e| e.user_id.clone()),
        steps: app.engine.plan_of(&task).unwrap_or_default(),
        deadline: task.deadline,
        created_at: task.created_at,
        traceparent: extras.and_then(|e| e.trace.clone()),
        idempotency_prefix: format!("{}:{}", task.id, task.standing.run),
    };
    Ok(LeaseView {
        task: about,
        token: token.0,
        payload: task.payload,
        // One that has recorded nothing has version 0, so that nobody needs to ask.
        checkpoint: view::checkpoint(&checkpoint.unwrap_or_default())?,
        timeouts: Times {
            step: format_duration(step_timeout),
            task: format_duration(task_timeout),
        },
        alone,
    })
}

impl OneReport {
    fn words(self, place: usize) -> Answer<Report> {
        let at = |field: &str| format!("/reports/{place}{field}");
        let said = match (self.step, self.progress, self.finish) {
            (Some(Object(step)), None, None) => Said::Step(step.into()),
            (None, Some(Object(progress)), None) => Said::Progress(progress.into()),
            (None, None, Some(Object(finish))) => Said::Finish(finish.words(&at("/finish"))?),
            _ => {
                let detail = "a report has exactly one of step, progress, finish";
                return Err(Problem::field(at(""), detail));
            }
        };
        Ok(Report { task: self.task, token: Token(self.token), said })
    }
}

impl From<StepIn> for Step {
    fn from(step: StepIn) -> Step {
        let outcome = match step.outcome {
            StepWord::Done => StepOutcome::Done,
            StepWord::Skip => StepOutcome::Skipped,
            StepWord::Fail => StepOutcome::Failed,
        };
        let StepIn { name, output, reason, version, duration_ms, .. } = step;
        let duration = Duration::from_millis(duration_ms);
        Step { name, outcome, output, reason, version, duration }
    }
}

impl From<ProgressIn> for Progress {
    fn from(progress: ProgressIn) -> Progress {
        let ProgressIn { done, total, note, data } = progress;
        Progress { done, total, note, data }
    }
}

impl From<ErrorIn> for Trouble {
    fn from(ErrorIn(error): ErrorIn) -> Trouble {
        let TroubleIn { message, class, detail, step } = error;
        Trouble { message, class, detail, step }
    }
}

impl FinishIn {
    fn words(self, at: &str) -> Answer<Finish> {
        let FinishIn { outcome, output, error, delay } = self;
        let refuse =
            |field: &str, detail: &str| Err(Problem::field(format!("{at}/{field}"), detail));
        let fails = matches!(outcome, FinishWord::Fail | FinishWord::Retry);
        if outcome != FinishWord::Done && output.is_some() {
            return refuse("output", "only `done` has an output");
        }
        if !fails && error.is_some() {
            return refuse("error", "only `fail` and `retry` have an error");
        }
        if delay.is_some() && !matches!(outcome, FinishWord::Snooze | FinishWord::Retry) {
            return refuse("delay", "only `snooze` and `retry` have a delay");
        }
        let trouble = error.map(Trouble::from).unwrap_or_default();
        Ok(match (outcome, delay) {
            (FinishWord::Done, _) => {
                let null = || Text::trusted("null");
                Finish::Done { output: output.map(|output| output.unwrap_or_else(null)) }
            }
            (FinishWord::Fail, _) => Finish::Fail(trouble),
            (FinishWord::Retry, delay) => Finish::Retry { trouble, delay },
            (FinishWord::Snooze, Some(delay)) => Finish::Snooze { delay },
            (FinishWord::Snooze, None) => return refuse("delay", "say for how long, e.g. \"5m\""),
            (FinishWord::Release, _) => Finish::Release,
        })
    }
}

fn answered(answer: ReportAnswer) -> ReportOut {
    let words = answer.results.into_iter().map(|result| match result {
        Ok(()) => "ok",
        Err(error) => {
            tracing::debug!(%error, "a report of a worker was refused");
            Problem::from(error).code().as_str()
        }
    });
    let asked = answer.requests.into_iter().map(asked_out);
    ReportOut { results: words.collect(), requests: asked.collect() }
}

fn asked_out(asked: Asked) -> AskedOut {
    AskedOut {
        task: asked.task.to_string(),
        cancel: asked.what != Wish::Pause,
        pause: asked.what == Wish::Pause,
        lost: asked.what == Wish::Lost,
    }
}
