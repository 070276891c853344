//! Events for clients: as a stream (SSE, resumed by `Last-Event-ID`) or page by
//! page. Both can be narrowed to a task, to names and to a filter on kind and
//! queue. Where events come from is `feed.rs`'s business.

use super::App;
use super::feed::Client;
use super::input::{Params, task_id};
use super::problem::{Answer, Problem, ProblemBody, ProblemCode};
use super::sight::Sight;
use super::tasks::{check_limit, filter_of};
use crate::access::Caller;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use windlass::core::filter::{Filter, Test, TextField};
use windlass::core::id::EventId;
use windlass::core::store::PAGE_MAX;
use windlass::{Event, Json as JsonText, Position, TaskId, Timestamp};

const BEAT: Duration = Duration::from_secs(15);
/// A narrow poll looks at so many events at the most before it answers.
const LOOK_MAX: usize = 20;

/// One fact.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub(super) struct EventView {
    id: String,
    position: i64,
    task: Option<String>,
    /// The how-many-eth event of its task.
    n: u32,
    #[serde(rename = "type")]
    kind_of: &'static str,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    kind: Option<String>,
    queue: Option<String>,
    correlation_id: Option<String>,
    #[schema(value_type = serde_json::Value)]
    data: JsonText,
}

impl EventView {
    async fn seen(app: &App, event: &Event, sight: &Sight) -> Self {
        EventView {
            id: event.id().to_string(),
            position: event.position.0,
            task: event.task.map(|t| t.to_string()),
            n: event.n,
            kind_of: event.name.as_str(),
            at: event.at,
            kind: event.kind.as_ref().map(ToString::to_string),
            queue: event.queue.as_ref().map(ToString::to_string),
            correlation_id: event.correlation_id.as_deref().map(str::to_owned),
            data: sight.event(app, event).await,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParams {
    /// Only events after this one: an id or a position
    after: Option<String>,
    #[serde(default = "hundred")]
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: usize,
    /// Only events of this task
    task: Option<String>,
    /// Only these names, e.g. `task.failed,dead_letter.*`
    #[serde(rename = "type")]
    types: Option<String>,
    /// A filter on `kind:` and `queue:`
    #[serde(default)]
    q: String,
}

fn hundred() -> usize {
    100
}

/// A page of events, oldest first. Go on with `after` = `next_cursor`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventPage {
    items: Vec<EventView>,
    /// Always there: the place to go on from, also when nothing came.
    next_cursor: String,
}

/// Which events a client wants.
#[derive(Debug)]
struct Wanted {
    task: Option<TaskId>,
    types: Vec<String>,
    filter: Filter,
}

impl Wanted {
    fn of(params: &EventParams) -> Answer<Wanted> {
        let filter = filter_of(&params.q)?;
        let about = |t: &Test| matches!(t, Test::Text(TextField::Kind | TextField::Queue, _));
        if filter.terms().iter().any(|term| !about(&term.test)) {
            let detail = "events can be filtered by kind: and queue:; use task= and type= beside";
            return Err(Problem::new(ProblemCode::BadFilter, detail).at("?q", detail));
        }
        let task = params.task.as_deref().map(|id| {
            task_id(id).map_err(|_| Problem::field("?task", format!("`{id:.50}` is not an id")))
        });
        let types = params.types.iter().flat_map(|t| t.split(',')).map(str::trim);
        let types = types.filter(|t| !t.is_empty()).map(str::to_owned).collect();
        Ok(Wanted { task: task.transpose()?, types, filter })
    }

    fn wants(&self, event: &Event) -> bool {
        let name = event.name.as_str();
        let named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        let field = |field: &TextField| match field {
            TextField::Kind => event.kind.as_ref().map(|k| k.as_str()),
            _ => event.queue.as_ref().map(|q| q.as_str()),
        };
        let holds = |test: &Test| match test {
            Test::Text(name, patterns) => {
                field(name).is_some_and(|text| patterns.iter().any(|p| p.matches(text)))
            }
            _ => true,
        };
        self.task.is_none_or(|task| event.task == Some(task))
            && (self.types.is_empty() || self.types.iter().any(named))
            && self.filter.terms().iter().all(|term| holds(&term.test) != term.negated)
    }
}

/// An id as clients have it, or a bare position.
fn position_of(text: &str, field: &str) -> Answer<Position> {
    let id = EventId::from_str(text).map(|id| Position(id.key()));
    let position = id.ok().or_else(|| text.parse().ok().filter(|n| *n >= 0).map(Position));
    position
        .ok_or_else(|| Problem::field(field, format!("`{text:.50}` is no event's id or position")))
}

/// Events, live or page by page
///
/// With `Accept: text/event-stream` a stream that begins after `Last-Event-ID`
/// (or `after`, or now); otherwise a page.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(EventParams, ("Last-Event-ID" = Option<String>, Header)),
    responses(
        (status = 200, description = "A page of events, or the stream",
         content((EventPage = "application/json"), (String = "text/event-stream"))),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Answer<Response> {
    check_limit(params.limit)?;
    let wanted = Wanted::of(&params)?;
    let sight = Sight::of(&app, &caller);
    let after = params.after.as_deref().map(|a| position_of(a, "?after")).transpose()?;
    let accept = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    if !accept.contains("text/event-stream") {
        let after = after.unwrap_or(Position::START);
        return Ok(Json(page(&app, &sight, after, &wanted, params.limit).await?).into_response());
    }
    let last = headers.get("last-event-id").and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty());
    let last = last.map(|id| position_of(id, "header Last-Event-ID")).transpose()?;
    let client = app.feed.join(last.or(after)).await?;
    let alive = KeepAlive::new().interval(BEAT).text("alive");
    Ok(Sse::new(sent(client, wanted, app, caller)).keep_alive(alive).into_response())
}

async fn page(
    app: &App,
    sight: &Sight,
    after: Position,
    wanted: &Wanted,
    limit: usize,
) -> Answer<EventPage> {
    let (mut items, mut after) = (vec![], after);
    for _ in 0..LOOK_MAX {
        let events = app.reader().events(after, PAGE_MAX).await?;
        let last = events.len() < PAGE_MAX;
        for event in &events {
            if items.len() >= limit {
                break;
            }
            after = event.position;
            if wanted.wants(event) {
                items.push(EventView::seen(app, event, sight).await);
            }
        }
        if last || items.len() >= limit {
            break;
        }
    }
    Ok(EventPage { items, next_cursor: after.event_id().to_string() })
}

fn sent(
    client: Client,
    wanted: Wanted,
    app: Arc<App>,
    caller: Caller,
) -> impl Stream<Item = Result<Sent, Infallible>> + use<> {
    let sight = Sight::of(&app, &caller);
    let eyes = (app, caller, sight);
    let begin = (client, wanted, eyes, Vec::<Arc<Event>>::new().into_iter());
    stream::unfold(begin, |(mut client, wanted, eyes, mut page)| async move {
        let (app, caller, sight) = &eyes;
        loop {
            if let Some(event) = page.find(|event| wanted.wants(event)) {
                let view = EventView::seen(app, &event, sight).await;
                let data = serde_json::to_string(&view).unwrap_or_default();
                let sent = Sent::default().id(view.id).event(view.kind_of).data(data);
                return Some((Ok(sent), (client, wanted, eyes, page)));
            }
            match client.next().await? {
                Ok(events) => {
                    // A token may be revoked while its stream is open.
                    let now = app.engine.now();
                    if !app.terms.gate.still_admits(app.reader(), caller, now).await {
                        return None;
                    }
                    page = events.into_iter();
                }
                // The client comes back with its Last-Event-ID.
                Err(error) => {
                    tracing::warn!(%error, "a stream of events ends");
                    return None;
                }
            }
        }
    })
}
