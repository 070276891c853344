//! What a log line from inside a handler carries: the fields of its task and of
//! its step, on the runtime and on threads, in code and in plans. The listener
//! is the process's own, and ids repeat with the clocks, so scenarios take turns.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, eventually, on_both_stores, secs};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};
use tokio::sync::MutexGuard;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use windlass::prelude::*;

on_both_stores!(
    lines_from_inside_code_carry_its_task,
    lines_from_threads_carry_their_task,
    lines_from_plans_carry_their_step,
    an_ended_attempt_is_one_line,
);

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

type Fields = BTreeMap<String, String>;

/// One line: its level, and its fields over those of the spans around it.
#[derive(Debug, Clone)]
struct Line {
    level: Level,
    fields: Fields,
}

impl Line {
    fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }
}

static LINES: Mutex<Vec<Line>> = Mutex::new(vec![]);

struct Listener;

#[derive(Default)]
struct Collects(Fields);

impl Visit for Collects {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn on_new_span(&self, attrs: &span::Attributes<'_>, id: &span::Id, cx: Context<'_, S>) {
        let mut fields = Collects::default();
        attrs.record(&mut fields);
        fields.0.insert(format!("in_{}", attrs.metadata().name()), "yes".to_owned());
        let span = cx.span(id).expect("the span that is new");
        span.extensions_mut().insert(fields.0);
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut fields = Fields::new();
        for span in cx.event_scope(event).into_iter().flatten() {
            if let Some(around) = span.extensions().get::<Fields>() {
                for (name, value) in around {
                    fields.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        let mut own = Collects::default();
        event.record(&mut own);
        fields.extend(own.0);
        let line = Line { level: *event.metadata().level(), fields };
        LINES.lock().expect("no panic in here").push(line);
    }
}

/// One scenario listens at a time.
async fn listen() -> MutexGuard<'static, ()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    static ONCE: Once = Once::new();
    let turn = TURN.lock().await;
    ONCE.call_once(|| {
        let listener = tracing_subscriber::registry().with(Listener);
        tracing::subscriber::set_global_default(listener).expect("the only one");
    });
    LINES.lock().expect("no panic in here").clear();
    turn
}

/// The lines with this text inside this task.
fn lines<T>(handle: &Handle<T>, text: &str) -> Vec<Line> {
    let (id, lines) = (handle.id().to_string(), LINES.lock().expect("no panic in here"));
    let ours = |l: &&Line| l.get("task") == Some(&id) && l.get("message") == Some(text);
    lines.iter().filter(ours).cloned().collect()
}

/// The one line with this text.
fn line<T>(handle: &Handle<T>, text: &str) -> Line {
    let mut lines = lines(handle, text);
    assert_eq!(lines.len(), 1, "{text}: {lines:?}");
    lines.remove(0)
}

/// Speaks outside and inside a step.
#[derive(Serialize, Deserialize)]
struct Speaks {}

/// The same on a thread.
#[derive(Serialize, Deserialize)]
struct SpeaksAloud {}

async fn speak(cx: Cx) -> Result<(), TaskError> {
    tracing::warn!("before");
    cx.step("say", || async {
        tracing::info!("inside");
        tokio::task::yield_now().await;
        tracing::info!("still inside");
        Ok::<_, TaskError>(())
    })
    .await?;
    tracing::info!("after");
    Ok(())
}

impl TaskKind for Speaks {
    const NAME: &'static str = "speaks";
    type Output = ();
    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        speak(cx).await
    }
}

impl TaskKind for SpeaksAloud {
    const NAME: &'static str = "speaks.aloud";
    type Output = ();
    fn options() -> KindOptions {
        KindOptions::new().pool(Pool::Cpu).queue("loud")
    }
    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        speak(cx).await
    }
}

async fn lines_from_inside_code_carry_its_task(ground: Ground) {
    let _turn = listen().await;
    let engine = ground.builder().register::<Speaks>().start().await.expect("an engine");
    let submission = engine.submit(Speaks {}).correlation_id("order 7").user_id("ada");
    let trace = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let handle = submission.traceparent(trace).await.expect("written");
    handle.result().await.expect("an end");
    let said = line(&handle, "before");
    let node = engine.status().node.to_string();
    for (field, value) in [
        ("kind", "speaks"),
        ("queue", "default"),
        ("attempt", "1"),
        ("run", "1"),
        ("node", node.as_str()),
        ("correlation_id", "order 7"),
        ("user_id", "ada"),
        ("trace_id", TRACE),
    ] {
        assert_eq!(said.get(field), Some(value), "{field}");
    }
    assert_eq!((said.level, said.get("step")), (Level::WARN, None));
    for text in ["inside", "still inside"] {
        let inside = line(&handle, text);
        assert_eq!((inside.get("step"), inside.get("in_step")), (Some("say"), Some("yes")));
        assert_eq!(inside.get("correlation_id"), Some("order 7"));
    }
    assert_eq!(line(&handle, "after").get("step"), None);
    let plain = engine.submit(Speaks {}).await.expect("written");
    plain.result().await.expect("an end");
    let said = line(&plain, "before");
    assert!(["correlation_id", "user_id", "trace_id"].iter().all(|f| said.get(f).is_none()));
}

async fn lines_from_threads_carry_their_task(ground: Ground) {
    let _turn = listen().await;
    let engine = ground.builder().register::<SpeaksAloud>().start().await.expect("an engine");
    let handle = engine.submit(SpeaksAloud {}).user_id("ada").await.expect("written");
    handle.result().await.expect("an end");
    let said = line(&handle, "before");
    assert_eq!((said.get("kind"), said.get("queue")), (Some("speaks.aloud"), Some("loud")));
    assert_eq!((said.get("user_id"), said.get("step")), (Some("ada"), None));
    assert_eq!(line(&handle, "still inside").get("step"), Some("say"));
}

async fn lines_from_plans_carry_their_step(ground: Ground) {
    let _turn = listen().await;
    let speaks = |call: StepCall| async move {
        tracing::info!("planned {}", call.step);
        Ok(serde_json::Value::Null)
    };
    let builder = ground.builder().handler("one", speaks).handler("two", speaks);
    let engine = builder.plan("both", ["one", "two"]).start().await.expect("an engine");
    let handle = engine.submit_named("both", &serde_json::json!({})).await.expect("written");
    handle.result().await.expect("an end");
    for step in ["one", "two"] {
        let said = line(&handle, &format!("planned {step}"));
        assert_eq!((said.get("kind"), said.get("step")), (Some("both"), Some(step)));
    }
}

/// Is tried again, then fails.
#[derive(Serialize, Deserialize)]
struct Fails {}

impl TaskKind for Fails {
    const NAME: &'static str = "fails";
    type Output = ();
    async fn run(self, cx: Cx) -> Result<(), TaskError> {
        if cx.attempt() == 1 { Err(retryable("busy")) } else { Err(fatal("broken")) }
    }
}

async fn an_ended_attempt_is_one_line(ground: Ground) {
    let _turn = listen().await;
    let builder = ground.builder().register::<Fails>().register::<Speaks>();
    let engine = builder.start().await.expect("an engine");
    let handle = engine.submit(Fails {}).user_id("ada").await.expect("written");
    let fine = engine.submit(Speaks {}).await.expect("written");
    fine.result().await.expect("an end");
    while !ground.task(&handle).await.state().is_ended() {
        ground.pass(secs(1), &[&engine]).await;
    }
    let text = "the attempt ended";
    eventually("the lines are written", || lines(&handle, text).len() >= 2).await;
    let ends = lines(&handle, text);
    let told = |line: &Line| {
        let field = |name| line.get(name).unwrap_or("").to_owned();
        (line.level, field("outcome"), field("error"), field("attempt"), field("user_id"))
    };
    let expected = [(Level::INFO, "retrying", "busy", "1"), (Level::WARN, "failed", "broken", "2")];
    let expected = expected.map(|(level, outcome, error, attempt)| {
        (level, outcome.to_owned(), error.to_owned(), attempt.to_owned(), "ada".to_owned())
    });
    assert_eq!(ends.iter().map(told).collect::<Vec<_>>(), expected);
    eventually("that line as well", || lines(&fine, text).len() == 1).await;
    assert_eq!(line(&fine, text).level, Level::DEBUG);
}
