//! The handlers in `examples/`, run as their `windlass.toml` names them, each on a
//! copy of its folder.

use crate::rig::{Folder, once};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use windlass::core::checkpoint::StepOutcome;
use windlass::prelude::*;
use windlass::{State, Task};
use windlass_server::handlers::{ExecHandler, ExecSpec};

/// An engine with the handlers and kinds of an example.
async fn example(name: &str) -> (Engine, Folder) {
    let folder = Folder::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    for entry in fs::read_dir(from).expect("the example") {
        let entry = entry.expect("read");
        fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a plain file");
    }
    let text = folder.read("windlass.toml");
    let config: Value = toml::from_str(&text).expect("TOML");
    let host = folder.host();
    let mut builder = Windlass::in_memory().await.expect("a store");
    for (name, handler) in config["handlers"].as_object().expect("handlers") {
        // Handlers run in the folder of the server, which here is another one.
        let enter =
            ["sh", "-c", "cd \"$0\" && exec \"$@\"", folder.path().to_str().expect("UTF-8")];
        let exec = handler["exec"].as_array().expect("exec").iter().filter_map(Value::as_str);
        let argv = enter.into_iter().chain(exec).map(str::to_owned).collect();
        let spec = ExecSpec { argv, ..ExecSpec::default() };
        builder = builder.handler(name, ExecHandler::new(spec, host.clone()));
    }
    let kinds = config.get("kinds").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, kind) in kinds {
        let steps = kind["steps"].as_array().expect("steps").iter().filter_map(Value::as_str);
        builder = builder.plan_with(&name, steps, once());
    }
    (builder.start().await.expect("an engine"), folder)
}

async fn run(engine: &Engine, kind: &str, payload: Value) -> Task {
    let handle: Handle<Value> = engine.submit_named(kind, &payload).await.expect("submitted");
    handle.ended().await.expect("an end")
}

fn result(task: &Task) -> Value {
    assert_eq!(task.state(), State::Completed, "{:?}", task.standing.failure);
    task.standing.result.as_ref().expect("a result").to().expect("JSON")
}

#[tokio::test]
async fn a_handler_in_python() {
    let (engine, folder) = example("exec_python").await;
    let task = run(&engine, "scan", json!({"path": "sample.txt"})).await;
    assert_eq!(result(&task), json!({"lines": 2, "words": 20, "bytes": 97}));
    let progress = task.standing.progress.expect("progress");
    assert_eq!((progress.done, progress.note.as_deref()), (97, Some("done")));
    let task = run(&engine, "scan", json!({"path": "empty.txt"})).await;
    let attempts = engine.reader().attempts(task.id).await.expect("read");
    let step = &attempts[0].steps[0].record;
    assert_eq!(
        (step.outcome, step.reason.as_deref()),
        (StepOutcome::Skipped, Some("empty.txt is empty"))
    );
    let task = run(&engine, "scan", json!({})).await;
    assert_eq!(crate::rig::why(&task), ("fatal", "fatal", "the payload has no \"path\""));
    let submitted = engine.submit_named("scan", &json!({"path": "later.txt"})).await;
    let late: Handle<Value> = submitted.expect("submitted");
    let seen = async || {
        let attempts = engine.reader().attempts(late.id()).await.expect("read");
        attempts
            .iter()
            .flat_map(|a| &a.steps)
            .any(|s| s.record.reason.as_deref() == Some("later.txt is not there yet"))
    };
    while !seen().await {
        tokio::task::yield_now().await;
    }
    fs::write(folder.file("later.txt"), "here now\n").expect("written");
    assert_eq!(result(&late.ended().await.expect("an end"))["words"], json!(2));
}

#[tokio::test]
async fn a_chain_of_programs() {
    let (engine, folder) = example("exec_chain").await;
    let task = run(&engine, "file.ingest", json!({"path": "sample.txt"})).await;
    let context = result(&task);
    let digest = context["digest"].as_str().expect("a digest");
    assert_eq!((&context["bytes"], &context["entries"]), (&json!(97), &json!(1)));
    let index: Value = serde_json::from_str(&folder.read("out/index.json")).expect("JSON");
    assert_eq!(index[digest]["task"], json!(task.id.to_string()));
    let thumbnail = index[digest]["thumbnail"].as_str().expect("a file");
    assert_eq!(folder.read(thumbnail), folder.read("sample.txt"), "both lines");
    let task = run(&engine, "file.ingest", json!({"path": "nothing"})).await;
    assert_eq!(crate::rig::why(&task), ("fatal", "fatal", "no file 'nothing'"));
}
