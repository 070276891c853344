//! What a process is told and what it may say while it runs: the document, the
//! environment, progress, and payloads that would do harm in a shell.

use crate::rig::{Folder, LIMIT, Rig, logged, once};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;
use windlass::State;
use windlass::prelude::*;

#[tokio::test]
async fn the_document_is_exact() {
    let rig = Rig::sh("cat > $DIR/document").await;
    let submission = rig.engine.submit_named("job", &json!({"file": "a b.png", "n": 1.0}));
    let submission = submission.label("tenant", "acme").correlation_id("c-1").user_id("u-2");
    let handle: Handle<Value> = submission.await.expect("submitted");
    handle.ended().await.expect("an end");
    let id = handle.id();
    let expected = format!(
        "{{\"task\":{{\"id\":\"{id}\",\"kind\":\"job\",\"run\":1,\"attempt\":1,\
         \"labels\":{{\"tenant\":\"acme\"}},\"correlation_id\":\"c-1\",\"user_id\":\"u-2\"}},\
         \"step\":\"h\",\"idempotency_key\":\"{id}:1:h\",\
         \"payload\":{{\"file\":\"a b.png\",\"n\":1.0}},\"context\":{{}},\"input_path\":null}}\n"
    );
    assert_eq!(rig.folder.read("document"), expected);
}

#[tokio::test]
async fn what_a_task_does_not_have_is_null() {
    let rig = Rig::sh("cat > $DIR/document").await;
    rig.output(json!([1])).await;
    let document: Value = serde_json::from_str(&rig.folder.read("document")).expect("JSON");
    let task = &document["task"];
    assert_eq!((&task["correlation_id"], &task["user_id"]), (&Value::Null, &Value::Null));
    assert_eq!((&task["labels"], &document["payload"]), (&json!({}), &json!([1])));
    assert!(document.get("input_path").is_some_and(Value::is_null));
}

/// The environment that the process began with.
async fn environment(env: &[(&str, &str)]) -> (BTreeMap<String, String>, windlass::Task) {
    let folder = Folder::new();
    let mut spec = folder.spec("tr '\\0' '\\n' < /proc/$$/environ > $DIR/environ");
    spec.env.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let rig = Rig::of(folder, spec, once(), |h| h).await;
    let task = rig.run(json!({})).await;
    assert_eq!(task.state(), State::Completed, "{:?}", task.standing.failure);
    let text = rig.folder.read("environ");
    let pair = |line: &str| line.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
    (text.lines().filter_map(pair).collect(), task)
}

#[tokio::test]
async fn the_environment_is_clean() {
    let home = std::env::var("HOME").or(std::env::var("CARGO_MANIFEST_DIR"));
    assert!(home.is_ok(), "there is something that could leak");
    let (env, task) = environment(&[("LANG", "C.UTF-8")]).await;
    let names: Vec<&str> = env.keys().map(String::as_str).collect();
    let expected = [
        "DIR",
        "LANG",
        "PATH",
        "WINDLASS_ATTEMPT",
        "WINDLASS_FENCING_TOKEN",
        "WINDLASS_NODE_PROCESS",
        "WINDLASS_OWNER",
        "WINDLASS_STEP",
        "WINDLASS_TASK_ID",
    ];
    assert_eq!(names, expected);
    assert_eq!((&*env["LANG"], &*env["WINDLASS_STEP"]), ("C.UTF-8", "h"));
    assert_eq!(env["WINDLASS_TASK_ID"], task.id.to_string());
    assert_eq!(
        (&*env["WINDLASS_ATTEMPT"], env["PATH"].clone()),
        ("1", std::env::var("PATH").unwrap())
    );
    assert!(env["WINDLASS_FENCING_TOKEN"].parse::<u64>().expect("a number") >= 1);
}

#[tokio::test]
async fn a_handler_may_set_its_path_but_not_our_names() {
    let path = format!("/nowhere:{}", std::env::var("PATH").expect("a path"));
    let own = [("PATH", &*path), ("WINDLASS_TASK_ID", "x"), ("WINDLASS_INPUT", "y")];
    let (env, task) = environment(&own).await;
    assert_eq!((&env["PATH"], &env["WINDLASS_TASK_ID"]), (&path, &task.id.to_string()));
    assert!(!env.contains_key("WINDLASS_INPUT"), "there is no input");
}

#[tokio::test]
async fn progress_goes_through_descriptor_three() {
    let script = r#"
        echo '{"progress":{"done":1,"total":10}}' >&3
        echo 'not progress' >&3
        head -c 70000 /dev/zero | tr '\0' x >&3; echo >&3
        echo '{"progress":{"done":3,"total":10,"note":"half","data":{"a":[1]}}}' >&3
        echo ready > $DIR/ready
        until [ -f $DIR/go ]; do sleep 0.01; done
        printf '{"progress":{"done":10,"total":10}}' >&3"#;
    let rig = Rig::sh(script).await;
    let handle = rig.submit(json!({})).await;
    rig.folder.line("ready").await;
    let (mut seen, began) = (None, Instant::now());
    while seen.as_ref().is_none_or(|p: &windlass::Progress| p.done != 3) {
        let task = rig.engine.task(handle.id()).await.expect("read").expect("the task");
        assert_eq!(task.state(), State::Running, "it waits for us");
        assert!(began.elapsed() < LIMIT, "no progress in time");
        seen = task.standing.progress;
        tokio::task::yield_now().await;
    }
    let progress = seen.expect("progress");
    assert_eq!((progress.total, progress.note.as_deref()), (10, Some("half")));
    assert_eq!(progress.data.map(|d| d.as_str().to_owned()).as_deref(), Some("{\"a\":[1]}"));
    std::fs::write(rig.folder.file("go"), "").expect("written");
    let task = handle.ended().await.expect("an end");
    assert_eq!(task.state(), State::Completed, "bad lines harm nothing");
    assert_eq!(task.standing.progress.map(|p| p.done), Some(10), "a line without an end counts");
}

#[tokio::test]
async fn big_pipes_do_not_wait_for_each_other() {
    let script = "head -c 1048576 /dev/zero | tr '\\0' e >&2; wc -c > $DIR/size";
    let rig = Rig::sh(script).await;
    let big = "x".repeat(1_048_000);
    rig.output(json!(big)).await;
    let size: usize = rig.folder.line("size").await.trim().parse().expect("a number");
    assert!(size > big.len(), "the whole document came");
}

#[tokio::test]
async fn a_document_may_stay_unread() {
    let rig = Rig::sh("exec 0<&-; echo '{\"ok\":1}'").await;
    assert_eq!(rig.output(json!("x".repeat(1_000_000))).await, json!({"ok": 1}));
}

/// Words that a shell, a C program or an option parser would take for more than
/// text.
fn nasty(n: usize, canary: &str) -> String {
    let touch = format!("touch {canary}");
    let forms = [
        format!("; {touch}"),
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("| {touch}"),
        format!("&& {touch} &"),
        format!("\n{touch}\n"),
        format!("\0;{touch}\0"),
        format!("'; {touch}; '"),
        format!("\"; {touch}; \""),
        format!("--exec={touch}"),
        format!("-c {touch}"),
        format!("${{IFS}}{touch}$IFS"),
        format!("\\\n{touch}\u{2028}\u{7f}\r"),
        format!("> {canary}"),
        format!("é\u{202e}{{}}[]*?~%s%n {touch}"),
    ];
    format!("{}{n}", forms[n % forms.len()])
}

#[tokio::test]
async fn no_payload_is_ever_a_command() {
    // The document comes back as the output, by way of a shell script.
    let rig = Rig::sh("printf '{\"echo\":'; cat; printf '}'").await;
    let canary = rig.folder.file("canary");
    let payloads: Vec<Value> = (0..200)
        .map(|n| json!({"text": nasty(n, &canary.display().to_string()), "n": n}))
        .collect();
    let mut handles = vec![];
    for payload in &payloads {
        handles.push(rig.submit(payload.clone()).await);
    }
    for (payload, handle) in payloads.iter().zip(handles) {
        let result = handle.result().await.expect("a result");
        assert_eq!(&result["echo"]["payload"], payload);
    }
    assert!(!canary.exists(), "nothing of it was run");
    // The canary works: a shell that did run it would have been seen.
    let touch = format!("touch {}", canary.display());
    std::process::Command::new("sh").args(["-c", &touch]).status().expect("a shell");
    assert!(canary.exists());
}

#[tokio::test]
async fn stderr_goes_to_the_log_with_the_task_it_is_about() {
    let script = "echo 'page 1' >&2; printf 'a\\033[31mb' >&2; echo no >&3; echo no >&3; echo >&2
        head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2; exit 65";
    let task = Rig::sh(script).await.run(json!({})).await;
    let log = logged(task.id);
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("windlass::handler")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines[0].contains("INFO") && lines[0].contains("page 1"), "{log}");
    assert!(lines[1].contains("a\u{FFFD}[31mb"), "no control characters: {}", lines[1]);
    let xs = lines[2].matches('x').count();
    assert!((4096..4200).contains(&xs) && lines[2].contains("x…"), "a long line is cut: {xs}");
    assert_eq!(log.matches("is no progress").count(), 1, "told once");
    let failure = task.standing.failure.expect("a failure").error;
    assert_eq!(failure.message.chars().count(), 501, "the end of the line");
    assert!(failure.detail.is_some_and(|detail| detail.chars().count() == 4001));
}
