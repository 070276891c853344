//! From a configuration to a running engine: what the tables say is what the
//! engine does. Handlers here are closures; programs are tested where they are
//! run. Stores are real.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use windlass::{Code, Engine, StepCall, StepHandler, TaskError};
use windlass_server::boot::{apply_queues, engine_builder};
use windlass_server::config::{Config, FileFlags, HandlerConfig, Surroundings, load};

fn configured(dir: &TempDir, text: &str) -> Config {
    let store = format!("[store]\nurl = \"sqlite://{}/w.db\"\n", dir.path().display());
    std::fs::write(dir.path().join("windlass.toml"), store + text).unwrap();
    let around = Surroundings { dir: dir.path().to_owned(), ..Surroundings::default() };
    load(&FileFlags::default(), &around).unwrap_or_else(|error| panic!("{error}")).config
}

/// Tells its own name and how it was configured.
fn named(name: &str, handler: &HandlerConfig) -> windlass::Result<Arc<dyn StepHandler>> {
    let (name, argv) = (name.to_owned(), handler.exec.clone());
    Ok(Arc::new(move |call: StepCall| {
        let (name, argv) = (name.clone(), argv.clone());
        async move {
            if argv[0] == "hang" {
                std::future::pending::<()>().await;
            }
            drop(call);
            Ok::<Value, TaskError>(json!({ name: argv }))
        }
    }))
}

async fn start(config: &Config) -> Engine {
    let engine = engine_builder(config, named).await.unwrap().start().await.unwrap();
    apply_queues(&engine, config).await.unwrap();
    engine
}

async fn stop(engine: Engine) {
    engine.shutdown(Duration::from_secs(5)).await.unwrap();
}

const CHAIN: &str = r#"
[node]
name = "here"
[defaults]
deadline = "1h"
[queues.media]
concurrency = 2
depth_max = 5
[kinds."file.ingest"]
queue = "media"
steps = ["scan", "index"]
priority = 3
[kinds.scan]
queue = "side"
deadline = "none"
[handlers.scan]
exec = ["sh"]
[handlers.index]
exec = ["sh", "x"]
"#;

async fn run(engine: &Engine, kind: &str) -> windlass::Task {
    let handle = engine.submit_named(kind, &json!({})).await.unwrap();
    handle.ended().await.unwrap()
}

#[tokio::test]
async fn kinds_and_defaults_are_those_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(&configured(&dir, CHAIN)).await;

    let chain = run(&engine, "file.ingest").await;
    assert_eq!((chain.queue.as_str(), chain.priority), ("media", 3));
    assert_eq!(chain.deadline, Some(chain.created_at.plus(Duration::from_secs(3600))));
    let result = engine.handle::<Value>(chain.id).result().await.unwrap();
    assert_eq!(result, json!({ "scan": ["sh"], "index": ["sh", "x"] }));

    // A kind without steps is one step, with options; no deadline is one, too.
    let single = run(&engine, "scan").await;
    assert_eq!((single.queue.as_str(), single.deadline), ("side", None));
    let result = engine.handle::<Value>(single.id).result().await.unwrap();
    assert_eq!(result, json!({ "scan": ["sh"] }));

    // A handler without a kind is one.
    let bare = run(&engine, "index").await;
    assert_eq!((bare.queue.as_str(), bare.state().as_str()), ("default", "completed"));

    let unknown = engine.submit_named("nobody", &json!({})).await;
    assert_eq!(unknown.unwrap_err().code(), Code::UnknownKind);
    let queues: Vec<(String, usize)> = engine
        .status()
        .queues
        .into_iter()
        .map(|(name, slots, _)| (name.as_str().to_owned(), slots))
        .collect();
    let slots = |name: &str, slots| (name.to_owned(), slots);
    assert_eq!(queues, [slots("default", 4), slots("media", 2), slots("side", 4)]);
    let nodes = engine.reader().nodes().await.unwrap();
    assert!(nodes.iter().any(|node| node.name == "here"), "{nodes:?}");
    stop(engine).await;
}

async fn depth_max(engine: &Engine, queue: &str) -> Option<u64> {
    let queues = engine.reader().queues().await.unwrap();
    queues.iter().find(|info| info.name.as_str() == queue).and_then(|info| info.depth_max)
}

#[tokio::test]
async fn depth_limits_go_to_the_store_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(&configured(&dir, CHAIN)).await;
    assert_eq!(depth_max(&engine, "media").await, Some(5));
    let written = engine.reader().audit(None, 100).await.unwrap().len();
    // What is the same already is not written again.
    apply_queues(&engine, &configured(&dir, CHAIN)).await.unwrap();
    assert_eq!(engine.reader().audit(None, 100).await.unwrap().len(), written);
    apply_queues(&engine, &configured(&dir, "[queues.media]\n")).await.unwrap();
    assert_eq!(depth_max(&engine, "media").await, Some(5));
    apply_queues(&engine, &configured(&dir, "[queues.media]\ndepth_max = 7\n")).await.unwrap();
    assert_eq!(depth_max(&engine, "media").await, Some(7));
    stop(engine).await;
}

#[tokio::test]
async fn a_handlers_timeout_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[defaults]\nretry = { retries = 0 }\nstep_retry = { retries = 0 }\n
        [handlers.slow]\nexec = [\"hang\"]\ntimeout = \"20ms\"\n";
    let engine = start(&configured(&dir, text)).await;
    let ended = run(&engine, "slow").await;
    let failure = ended.standing.failure.expect("it failed");
    assert_eq!(failure.error.class.as_str(), "timeout");
    stop(engine).await;
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_the_store_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = configured(&dir, "");
    config.handlers.insert("x".to_owned(), HandlerConfig::default());
    let error = engine_builder(&config, named).await.unwrap_err();
    assert!(error.message().contains("handler `x` has neither `exec` nor `http`"), "{error}");
    assert!(!dir.path().join("w.db").exists());
}
