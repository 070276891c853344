//! How requests are read: bodies within their limit and within time, JSON with
//! the place of a mistake, unknown fields by name, query parameters and ids.
//! Every refusal is a [`Problem`]; nothing here knows what a request is for.

use super::App;
use super::problem::{Answer, Problem, ProblemCode};
use super::room::{Room, Text};
use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde_json::error::Category;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass::core::id::DeadId;
use windlass::{NodeId, TaskId};

/// A body that sends nothing for this long is given up.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// After that it must have come with so many bytes a second on average: one byte
/// now and then is no body.
const BODY_RATE: f64 = 1024.0;
/// However steadily it comes, a body must have come within this time.
const BODY_TIME: Duration = Duration::from_secs(120);
/// Deepest nesting of a JSON document. What is stored is wrapped a few levels
/// deeper when it is shown, and common parsers stop at 128.
const DEPTH_MAX: usize = 100;

/// Smaller bodies grow as they come.
const SMALL: usize = 1024 * 1024;
/// Allocators give a buffer of this size pages of its own and return them at its
/// end; glibc keeps what is smaller for the next one, in each of its arenas.
const OWN_PAGES: usize = 33 * 1024 * 1024;
/// How long the rest of a refused body is taken and thrown away.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A whole body of text, at most `max` bytes.
pub(super) async fn read(headers: &HeaderMap, body: Body, max: usize) -> Answer<Text> {
    let (bytes, room) = read_bytes(headers, body, max).await?;
    String::from_utf8(bytes).map(|text| Text::new(text, room)).map_err(|e| {
        let place = e.utf8_error().valid_up_to();
        Problem::new(ProblemCode::BadJson, format!("byte {} of the body is not UTF-8", place + 1))
    })
}

/// A whole body, with the room it takes.
pub(super) async fn read_bytes(
    headers: &HeaderMap,
    mut body: Body,
    max: usize,
) -> Answer<(Vec<u8>, Room)> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|how| how != "identity") {
        let detail = "bodies are taken as they are; send it without Content-Encoding";
        return Err(Problem::field("header content-encoding", detail));
    }
    let said = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    let said: Option<usize> = said.and_then(|v| v.parse().ok());
    if said.is_some_and(|length| length > max) {
        // Whoever asks before sending is answered before sending.
        if !headers.contains_key(header::EXPECT) {
            drain(&mut body, max).await;
        }
        return Err(too_large(max));
    }
    // Not more than was announced, so that large announcements cost nothing.
    let mut bytes = Vec::with_capacity(said.unwrap_or(0).min(64 * 1024));
    let (began, mut room) = (Instant::now(), Room::new());
    loop {
        let (until, limit) = next_limit(began, Instant::now(), bytes.len());
        let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await else {
            return Err(too_slow(limit));
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Problem::new(ProblemCode::BadJson, "the body broke off"))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > max {
                drop(bytes);
                drain(&mut body, max).await;
                return Err(too_large(max));
            }
            room.more(data.len()).await?;
            if bytes.len() + data.len() > SMALL && bytes.capacity() < OWN_PAGES {
                // Once and for all of it, so that it is never copied while it grows;
                // pages that nothing is written to cost nothing.
                let whole = said.unwrap_or(max).max(OWN_PAGES);
                let _ = bytes.try_reserve_exact(whole - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok((bytes, room))
}

/// What a slow body runs into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Slow {
    Silent,
    Drips,
    Late,
}

/// Until when more of a body must have come, and what it runs into otherwise.
fn next_limit(began: Instant, now: Instant, so_far: usize) -> (Instant, Slow) {
    let earned = Duration::from_secs_f64(so_far as f64 / BODY_RATE);
    let silent = (now + BODY_PATIENCE, Slow::Silent);
    let drips = (began + BODY_PATIENCE + earned, Slow::Drips);
    silent.min(drips).min((began + BODY_TIME, Slow::Late))
}

fn too_slow(limit: Slow) -> Problem {
    let detail = match limit {
        Slow::Silent => format!("nothing more of the body came for {BODY_PATIENCE:?}"),
        Slow::Drips => format!("the body came with less than {BODY_RATE} bytes a second"),
        Slow::Late => format!("the body was not there within {BODY_TIME:?}"),
    };
    Problem::new(ProblemCode::BadJson, detail).status(StatusCode::REQUEST_TIMEOUT)
}

fn too_large(max: usize) -> Problem {
    let detail = format!("the body has more than the {max} bytes that are allowed here");
    Problem::new(ProblemCode::PayloadTooLarge, detail)
}

/// Throws away the rest of a body, up to a limit. A client that is still sending
/// when the connection is closed sees that, and not the answer.
async fn drain(body: &mut Body, most: usize) {
    let all = async {
        let mut left = most;
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, |data| data.len())) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // The answer is the same however much of it came.
    let _ = tokio::time::timeout(DRAIN_TIME, all).await;
}

/// Reads JSON: mistakes of form are `bad-json` with their place, mistakes of
/// content `invalid-fields` with a pointer.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Answer<T> {
    check_depth(text)?;
    check_escapes(text)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let value = T::deserialize(serde_path_to_error::Deserializer::new(&mut reader, &mut track));
    value.map_err(|e| refusal(&e, &track.path())).and_then(|value| match reader.end() {
        Ok(()) => Ok(value),
        Err(e) => Err(not_json(&e)),
    })
}

/// Reads an optional body: none at all is the default.
pub(super) fn parse_or_default<T: DeserializeOwned + Default>(text: &str) -> Answer<T> {
    if text.trim().is_empty() { Ok(T::default()) } else { parse(text) }
}

fn refusal(error: &serde_json::Error, path: &serde_path_to_error::Path) -> Problem {
    match error.classify() {
        Category::Data => {
            let text = error.to_string();
            let detail = text.split(" at line ").next().unwrap_or(&text).to_owned();
            Problem::field(pointer(path, &detail), detail)
        }
        _ => not_json(error),
    }
}

fn not_json(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    let (line, column) = (error.line(), error.column());
    Problem::new(ProblemCode::BadJson, format!("line {line}, column {column}: {what}"))
}

/// `/tasks/3/kind`; an unknown field is named itself, not its parent.
fn pointer(path: &serde_path_to_error::Path, detail: &str) -> String {
    use serde_path_to_error::Segment;
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("/{index}")),
            Segment::Map { key } => {
                text.push('/');
                text.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let unknown = detail.strip_prefix("unknown field `").and_then(|d| d.split('`').next());
    match unknown {
        Some(name) if !text.ends_with(&format!("/{name}")) => format!("{text}/{name}"),
        _ => text,
    }
}

/// Counts brackets outside of strings; the document may still be wrong.
fn check_depth(text: &str) -> Answer<()> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    let detail = format!(
                        "byte {}: nested deeper than {DEPTH_MAX} levels, which is the most",
                        place + 1
                    );
                    return Err(Problem::new(ProblemCode::BadJson, detail));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Payloads are carried as they came, and nobody decodes their strings here.
/// Half of a surrogate pair is no character, so no reader could do it later.
fn check_escapes(text: &str) -> Answer<()> {
    let unit = |at: usize| {
        let escape = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|b| *b == b'\\') {
        at += next;
        let whole = match unit(at) {
            Some(0xd800..=0xdbff) => matches!(unit(at + 6), Some(0xdc00..=0xdfff)).then_some(12),
            Some(0xdc00..=0xdfff) => None,
            // Another escape; the parser knows whether it is a good one.
            _ => Some(2),
        };
        let Some(length) = whole else {
            let detail = format!("byte {}: half of a surrogate pair is no character", at + 1);
            return Err(Problem::new(ProblemCode::BadJson, detail));
        };
        at = (at + length).min(bytes.len());
    }
    Ok(())
}

/// Query parameters; unknown ones are refused by name.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Answer<Self> {
        let Query(params) = Query::<T>::try_from_uri(&parts.uri).map_err(|e| {
            let text = e.body_text();
            let detail = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, d)| d);
            let name = detail.split(['`', ':']).find(|w| !w.is_empty() && !w.contains(' '));
            Problem::field(format!("?{}", name.unwrap_or_default()), detail)
        })?;
        Ok(Params(params))
    }
}

/// A task named in a path, by its own id or its dead letter's.
pub(super) fn task_id(text: &str) -> Answer<TaskId> {
    let dead = || DeadId::from_str(text).map(|id| TaskId::from_key(id.key()));
    TaskId::from_str(text).or_else(|e| dead().map_err(|_| e)).map_err(|e| {
        Problem::not_found(e.message()).hint("GET /v1/tasks lists tasks with their ids")
    })
}

pub(super) fn node_id(text: &str) -> Answer<NodeId> {
    NodeId::from_str(text).map_err(|e| {
        Problem::not_found(e.message()).hint("GET /v1/nodes lists nodes with their ids")
    })
}

/// A JSON object. Derived code would take an array of the fields as well.
#[derive(Debug, Default)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// A field that may be absent, `null` or a value.
pub(super) fn given<'de, T, D>(d: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Option::<T>::deserialize(d).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        n: u8,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        list: Vec<Inner>,
    }

    fn refused(text: &str) -> (ProblemCode, serde_json::Value) {
        let problem = parse::<Outer>(text).map(|o| o.list[0].n).unwrap_err();
        let code = problem.code();
        (code, serde_json::to_value(problem.body("r")).unwrap())
    }

    #[test]
    fn mistakes_have_their_place() {
        let (code, body) = refused("{\"list\": [\n{\"n\": 1,}]}");
        assert_eq!(code, ProblemCode::BadJson);
        assert!(body["detail"].as_str().unwrap().starts_with("line 2, column 9"), "{body}");
        for (text, pointer) in [
            (r#"{"list":[{"n":1},{"n":300}]}"#, "/list/1/n"),
            (r#"{"list":[{"n":1,"m":2}]}"#, "/list/0/m"),
            (r#"{"lst":[]}"#, "/lst"),
            (r#"{"list":[{}]}"#, "/list/0"),
        ] {
            let (code, body) = refused(text);
            assert_eq!(code, ProblemCode::InvalidFields, "{body}");
            assert_eq!(body["errors"][0]["pointer"], pointer, "{body}");
        }
    }

    #[test]
    fn half_a_pair_is_no_character() {
        for bad in [r#""\ud800""#, r#""\udc00 x""#, r#""\ud800\u0041""#, r#""\ud800\\udc00""#] {
            assert!(check_escapes(bad).is_err(), "{bad}");
        }
        for good in [r#""\ud83d\ude00""#, r#""\\ud800""#, r#""\n\"\u00e9""#, r#""\""#, "\\", "é\\u"]
        {
            assert!(check_escapes(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_body_earns_its_time() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        for (now, so_far, until, limit) in [
            (0, 0, 10, Slow::Silent),
            (9, 1024, 11, Slow::Drips),
            (9, 1024 * 1024, 19, Slow::Silent),
            (119, 1024 * 1024, 120, Slow::Late),
        ] {
            let found = next_limit(began, began + now * second, so_far);
            assert_eq!(found, (began + until * second, limit), "{so_far} bytes in {now} s");
        }
    }

    #[test]
    fn depth_is_limited_outside_of_strings() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(check_depth(&deep(DEPTH_MAX)).is_ok());
        assert!(check_depth(&deep(100_000)).is_err());
        assert!(check_depth(&format!("\"{}\\\"[\"", "[".repeat(500))).is_ok());
    }
}
