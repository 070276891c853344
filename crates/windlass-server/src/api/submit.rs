//! Submitting over HTTP: one task or many. A submission document is turned into
//! the engine's own words, which check everything; what the engine refuses
//! changes nothing. Idempotency keys come in the `Idempotency-Key` header.

use super::App;
use super::few::{Few, FewTexts};
use super::input::{self, Object, parse, read};
use super::problem::{Answer, Problem, ProblemBody};
use super::room::Text;
use super::view::{self, TaskView};
use crate::access::{Caller, unadmitted};
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;
use windlass::core::children::Policy;
use windlass::core::clock::{duration_text, parse_duration};
use windlass::core::task::{LABELS_MAX, STEPS_MAX, SUBMIT_MAX, Timeouts, check_payload_size};
use windlass::{Answer as Known, Error, Exponential, Handle, TaskId, Timestamp};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const EXISTING: HeaderName = HeaderName::from_static("windlass-existing");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What a view takes beside its payload, mostly.
const VIEW_BYTES: usize = 1024;
const TRACEPARENT: &str = "traceparent";

/// A task that somebody asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Submission<'a> {
    /// What to run; GET /v1/kinds lists them.
    #[schema(max_length = 200, pattern = "^[A-Za-z0-9._:/-]+$", example = "demo.hello")]
    kind: String,
    /// Any JSON but null; absent means {}.
    #[serde(borrow, default, deserialize_with = "present")]
    #[schema(schema_with = not_null)]
    payload: Option<&'a RawValue>,
    #[schema(max_length = 200, pattern = "^[A-Za-z0-9._:/-]+$")]
    queue: Option<String>,
    /// Higher runs first.
    #[schema(minimum = -10, maximum = 10)]
    priority: Option<i8>,
    /// Not before this instant.
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<Timestamp>,
    /// Not before this much later, e.g. `90s`.
    #[serde(default, with = "duration_text::optional")]
    #[schema(value_type = Option<String>, example = "90s")]
    delay: Option<Duration>,
    /// Not started within this time of being due: failed as expired.
    #[serde(default, with = "duration_text::optional")]
    #[schema(value_type = Option<String>, example = "1h")]
    deadline: Option<Duration>,
    /// Other steps than the kind's; an empty list completes at once.
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    steps: Option<Few<String, STEPS_MAX>>,
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    labels: Option<FewTexts<LABELS_MAX>>,
    #[schema(value_type = Option<Unique>)]
    unique: Option<Object<Unique>>,
    #[schema(value_type = Option<String>, example = "tsk_07fjctf1g0400")]
    parent: Option<TaskId>,
    /// all, allow_errors, fail_fast or at_least(n)
    #[schema(value_type = Option<String>)]
    children_policy: Option<Policy>,
    #[schema(max_length = 200)]
    correlation_id: Option<String>,
    #[schema(max_length = 200)]
    user_id: Option<String>,
    /// Not supported by this version yet.
    #[schema(value_type = Option<serde_json::Value>)]
    input: Option<serde::de::IgnoredAny>,
    /// Not supported by this version yet.
    #[schema(value_type = Option<String>)]
    limit_key: Option<serde::de::IgnoredAny>,
    /// Another retry policy than the kind's.
    #[schema(value_type = Option<Retry>)]
    retry: Option<Object<Retry>>,
    #[schema(value_type = Option<TimeoutsIn>)]
    timeouts: Option<Object<Timeouts>>,
}

/// At most one task with this key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Unique {
    #[schema(max_length = 200)]
    key: String,
    /// `live` (among tasks that have not ended), or a duration from the submission.
    #[serde(rename = "for", default)]
    #[schema(example = "live")]
    for_: Option<String>,
}

/// Delay of the n-th retry: first x factor^(n-1), at most cap, spread by jitter.
/// What is left out is as usual: 15 retries, 5s, 2.0, 1h, 0.1.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Retry {
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    retries: Option<u32>,
    #[serde(default, with = "duration_text::optional")]
    #[schema(value_type = Option<String>, example = "5s")]
    first: Option<Duration>,
    factor: Option<f64>,
    #[serde(default, with = "duration_text::optional")]
    #[schema(value_type = Option<String>, example = "1h")]
    cap: Option<Duration>,
    #[schema(minimum = 0, maximum = 1)]
    jitter: Option<f64>,
}

impl From<Retry> for Exponential {
    fn from(retry: Retry) -> Self {
        let usual = Exponential::TASK;
        Exponential {
            retries: retry.retries.unwrap_or(usual.retries),
            first: retry.first.unwrap_or(usual.first),
            factor: retry.factor.unwrap_or(usual.factor),
            cap: retry.cap.unwrap_or(usual.cap),
            jitter: retry.jitter.unwrap_or(usual.jitter),
        }
    }
}

#[derive(ToSchema)]
#[schema(as = Timeouts)]
#[allow(dead_code)] // Only its schema is used.
struct TimeoutsIn {
    #[schema(example = "5m")]
    step: Option<String>,
    #[schema(example = "30m")]
    task: Option<String>,
}

/// The schema of a payload: any JSON value but null.
pub(super) fn not_null() -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
    let any = [Type::Object, Type::Array, Type::String, Type::Number, Type::Boolean];
    let about = "Any JSON value but null.";
    ObjectBuilder::new().schema_type(SchemaType::from_iter(any)).description(Some(about)).build()
}

/// `null` is told apart from nothing, so that it can be refused.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(d: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// Many tasks, written together or not at all.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bulk<'a> {
    #[serde(borrow)]
    #[schema(max_items = 10_000, value_type = Vec<Submission>)]
    tasks: Few<Object<Submission<'a>>, SUBMIT_MAX>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ids {
    ids: Vec<String>,
}

type Words<'e> = windlass::Submission<'e, serde_json::Value>;

impl Submission<'_> {
    /// The submission in the engine's words. `at` is where it stands in the body.
    fn words<'e>(self, app: &'e App, at: &str, trace: Option<&str>) -> Answer<Words<'e>> {
        let refuse = |field: &str, detail: &str| Problem::field(format!("{at}/{field}"), detail);
        for (field, given) in
            [("input", self.input.is_some()), ("limit_key", self.limit_key.is_some())]
        {
            if given {
                let detail = format!("`{field}` is not supported by this version yet");
                return Err(refuse(field, &detail));
            }
        }
        if self.run_at.is_some() && self.delay.is_some() {
            return Err(refuse("delay", "give run_at or delay, not both"));
        }
        let empty = RawValue::from_string("{}".to_owned());
        let empty = empty.map_err(|e| refuse("payload", &e.to_string()))?;
        let payload = self.payload.unwrap_or(&empty);
        check_payload_size(payload.get().len(), app.engine.settings().payload_max)
            .map_err(|e| Problem::from(e).at(format!("{at}/payload"), "too large"))?;
        let mut words = app.engine.submit_named(&self.kind, payload);
        macro_rules! say {
            ($($field:ident),*) => {
                $(if let Some(value) = self.$field { words = words.$field(value); })*
            };
        }
        say!(priority, run_at, delay, deadline, parent, children_policy);
        say!(correlation_id, user_id);
        if let Some(Object(retry)) = self.retry {
            words = words.retry(retry.into());
        }
        if let Some(Few(steps)) = self.steps {
            words = words.steps(steps);
        }
        if let Some(queue) = &self.queue {
            words = words.queue(queue);
        }
        for (name, value) in self.labels.map(|FewTexts(labels)| labels).unwrap_or_default() {
            words = words.label(name, value);
        }
        if let Some(Object(unique)) = self.unique {
            words = match unique.for_.as_deref() {
                None | Some("live") => words.unique(unique.key),
                Some(time) => {
                    let time = parse_duration(time)
                        .map_err(|e| refuse("unique/for", &format!("live, or {}", e.message())))?;
                    words.unique_for(unique.key, time)
                }
            };
        }
        if let Some(Object(timeouts)) = self.timeouts {
            if let Some(step) = timeouts.step {
                words = words.step_timeout(step);
            }
            if let Some(task) = timeouts.task {
                words = words.task_timeout(task);
            }
        }
        Ok(match trace {
            Some(trace) => words.traceparent(trace),
            None => words,
        })
    }
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Answer<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let detail = format!("the header {name} stands there more than once");
        return Err(Problem::field(format!("header {name}"), detail));
    }
    let text = value.to_str().map_err(|_| {
        Problem::field(format!("header {name}"), format!("the header {name} is not plain text"))
    })?;
    Ok(Some(text))
}

/// A trace context that does not follow the rules is left out, as W3C asks.
fn trace_of(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    windlass::trace_id(text).map(|_| text)
}

/// Submits a task
///
/// Written down before the answer. A repeated request with the same
/// `Idempotency-Key` gets the first answer with status 200.
#[utoipa::path(
    post, path = "/v1/tasks", tag = "tasks",
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeats get the first answer")),
    request_body = Submission,
    responses(
        (status = 201, body = TaskView, description = "Written"),
        (status = 200, body = TaskView, description = "There already: `idempotency-replayed: true` or `windlass-existing: unique` says why"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn submit(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    // Taken apart here: an extractor of headers would copy them.
    let (Parts { headers, mut extensions, .. }, body) = request.into_parts();
    let caller: Caller = extensions.remove().ok_or_else(unadmitted)?;
    let text = read(&headers, body, app.terms.limits.body_max).await?;
    let Object(submission): Object<Submission<'_>> = parse(&text)?;
    let mut words = submission.words(&app, "", trace_of(&headers))?;
    if let Some(key) = text_of(&headers, IDEMPOTENCY_KEY)? {
        words = words.idempotency_key(key);
    }
    let (handle, task) = words.written().await?;
    drop(text);
    let task = match task {
        Some(task) => task,
        None => handle.task().await?,
    };
    let view = view::task(&app, &caller, task).await?;
    answer(&handle, &view)
}

fn answer<T>(handle: &Handle<T>, view: &TaskView) -> Answer<Response> {
    let location = HeaderValue::from_str(&format!("/v1/tasks/{}", view.id));
    let (status, mark) = match handle.answer() {
        Known::New => (StatusCode::CREATED, None),
        Known::Replayed => (StatusCode::OK, Some((REPLAYED, HeaderValue::from_static("true")))),
        Known::Existing => (StatusCode::OK, Some((EXISTING, HeaderValue::from_static("unique")))),
    };
    // Room for all of it at once: growing step by step is what shows in a profile.
    let mut body = Vec::with_capacity(VIEW_BYTES + view.payload.as_str().len());
    serde_json::to_writer(&mut body, view).map_err(|e| {
        Problem::from(Error::corrupt("submit", "the task cannot be shown").because(e))
    })?;
    let mut response = (status, [(header::CONTENT_TYPE, JSON)], body).into_response();
    let headers = response.headers_mut();
    if let Ok(location) = location {
        headers.insert(header::LOCATION, location);
    }
    if let Some((name, value)) = mark {
        headers.insert(name, value);
    }
    Ok(response)
}

/// Submits up to 10,000 tasks
///
/// All or nothing: one bad task refuses them all.
#[utoipa::path(
    post, path = "/v1/tasks/bulk", tag = "tasks",
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeats get the first answer")),
    request_body = Bulk,
    responses(
        (status = 201, body = Ids, description = "Written, in order"),
        (status = 200, body = Ids, description = "The idempotency key was answered before"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn bulk(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let text = read(&headers, body, app.terms.limits.bulk_max).await?;
    let Object(bulk): Object<Bulk<'_>> = parse(&text)?;
    let Few(tasks) = bulk.tasks;
    let key = text_of(&headers, IDEMPOTENCY_KEY)?;
    // One hash for the whole request: a key must not be answered for a part of it.
    let whole = key.map(|_| hash_of(&text));
    let trace = trace_of(&headers);
    let mut all = Vec::with_capacity(tasks.len());
    for (i, Object(submission)) in tasks.into_iter().enumerate() {
        let mut words = submission.words(&app, &format!("/tasks/{i}"), trace)?;
        if let (Some(key), Some(hash)) = (key, whole) {
            words = words.idempotency(format!("{key}#{i}"), hash);
        }
        all.push(words);
    }
    let handles = app.engine.submit_all(all).await.map_err(in_bulk)?;
    let replayed = !handles.is_empty() && handles.iter().all(|h| h.answer() == Known::Replayed);
    let ids = Ids { ids: handles.iter().map(|h| h.id().to_string()).collect() };
    if !replayed {
        return Ok((StatusCode::CREATED, Json(ids)).into_response());
    }
    let mark = [(REPLAYED, HeaderValue::from_static("true"))];
    Ok((StatusCode::OK, mark, Json(ids)).into_response())
}

/// The engine names the bad one of many as `task 17: …`.
fn in_bulk(error: windlass::Error) -> Problem {
    let message = error.message().to_owned();
    let index = message.strip_prefix("task ").and_then(|m| m.split_once(':'));
    let pointer = index.filter(|(i, _)| i.parse::<usize>().is_ok()).map(|(i, _)| i.to_owned());
    let problem = Problem::from(error);
    match pointer {
        Some(index) => problem.at(format!("/tasks/{index}"), message),
        None => problem,
    }
}

fn hash_of(text: &str) -> u128 {
    let hash = blake3::hash(text.as_bytes());
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_be_bytes(half)
}

/// For verbs with an optional body.
pub(super) async fn small_body(headers: &HeaderMap, body: Body, app: &App) -> Answer<Text> {
    input::read(headers, body, app.terms.limits.body_max).await
}
