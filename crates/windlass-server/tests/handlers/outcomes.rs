//! What the end of a process means: exit codes, signals, every kind of output,
//! programs that cannot be started.

use crate::rig::{AT_ONCE, Folder, Rig, once, why};
use serde_json::{Value, json};
use windlass::core::checkpoint::StepOutcome;
use windlass::prelude::*;
use windlass::{State, UnknownErrors};
use windlass_server::handlers::ExecSpec;

/// Reason, class and message of the failure of a script.
async fn fails(script: &str) -> (&'static str, &'static str, String) {
    let task = Rig::sh(script).await.run(json!({})).await;
    let (reason, class, message) = why(&task);
    (reason, class, message.to_owned())
}

#[tokio::test]
async fn zero_is_done() {
    assert_eq!(Rig::sh("true").await.output(json!({})).await, json!({}));
    assert_eq!(Rig::sh("echo '{\"a\":1}'").await.output(json!({})).await, json!({"a": 1}));
    assert_eq!(
        Rig::sh("echo 5").await.output(json!({})).await,
        json!({}),
        "no part of the context"
    );
}

#[tokio::test]
async fn sixty_five_is_fatal() {
    let options = KindOptions::new().step_retry(AT_ONCE).retry(AT_ONCE);
    let script = "echo x >> $DIR/tries; echo noise >&2; echo 'bad page 3' >&2; exit 65";
    let rig = Rig::with(script, options, |h| h).await;
    let task = rig.run(json!({})).await;
    assert_eq!(why(&task), ("fatal", "fatal", "bad page 3"));
    assert_eq!(rig.folder.read("tries"), "x\n", "no retry");
    let detail = task.standing.failure.expect("a failure").error.detail;
    assert_eq!(detail.as_deref(), Some("noise\nbad page 3"));
}

#[tokio::test]
async fn seventy_five_is_tried_again() {
    let script = "echo x >> $DIR/tries; [ $(wc -l < $DIR/tries) -gt 2 ] && exit 0; exit 75";
    let options = KindOptions::new().step_retry(AT_ONCE).unknown_errors(UnknownErrors::Fail);
    let rig = Rig::with(script, options, |h| h).await;
    rig.output(json!({})).await;
    assert_eq!(rig.folder.read("tries"), "x\nx\nx\n");
    assert_eq!(fails("exit 75").await, ("exhausted", "retryable", "exit code 75".to_owned()));
}

#[tokio::test]
async fn seventy_seven_skips() {
    let rig = Rig::sh("echo 'no faces in it' >&2; exit 77").await;
    let task = rig.run(json!({})).await;
    assert_eq!(task.state(), State::Completed);
    let attempts = rig.engine.reader().attempts(task.id).await.expect("read");
    let step = &attempts[0].steps[0].record;
    assert_eq!(
        (step.outcome, step.reason.as_deref()),
        (StepOutcome::Skipped, Some("no faces in it"))
    );
}

#[tokio::test]
async fn other_ends_say_nothing_about_themselves() {
    let unknown = |message: &str| ("exhausted", "unknown", message.to_owned());
    assert_eq!(fails("exit 3").await, unknown("exit code 3"));
    assert_eq!(fails("echo oh >&2; exit 1").await, unknown("exit code 1: oh"));
    assert_eq!(fails("kill -9 $$").await, unknown("killed by signal 9"));
    assert_eq!(fails("echo half >&2; kill -SEGV $$").await, unknown("killed by signal 11: half"));
}

#[tokio::test]
async fn anything_else_on_stdout_is_fatal() {
    let (reason, class, message) = fails("echo '{\"a\":1}'; echo done").await;
    assert_eq!((reason, class), ("fatal", "output"));
    assert!(message.contains("line 2 column 1"), "{message}");
    assert_eq!(fails("printf '\\377'").await.1, "output");
    assert_eq!(fails("echo '{\"_x\":1}'").await.1, "output", "a reserved name");
    let (_, class, message) = fails("echo '{\"children\":[{\"kind\":\"a\"}]}'").await;
    assert_eq!((class, &*message), ("output", "children are not supported by this version yet"));
}

#[tokio::test]
async fn output_has_a_limit() {
    let string = |n| format!("printf '\"'; head -c {n} /dev/zero | tr '\\0' a; printf '\"'");
    let rig = Rig::sh(&format!("printf '{{\"s\":'; {}; printf '}}'", string(1_048_568))).await;
    let whole = rig.output(json!({})).await;
    assert_eq!(whole["s"].as_str().map(str::len), Some(1_048_568), "exactly 1 MiB is taken");
    let (reason, class, message) = fails(&string(1_048_575)).await;
    assert_eq!((reason, class), ("fatal", "output"), "one byte more is not");
    assert!(message.contains("1048576 bytes"), "{message}");
    let endless = Rig::sh("echo $$ > $DIR/pid; exec yes").await;
    assert_eq!(why(&endless.run(json!({})).await).1, "output");
    crate::rig::until_gone(endless.folder.pid("pid").await).await;
}

#[tokio::test]
async fn a_snooze_gives_the_slot_back() {
    let script = "if [ -f $DIR/came ]; then echo '{\"late\":true}'; else
        touch $DIR/came; echo '{\"snooze\":\"50ms\"}'; fi";
    let rig = Rig::sh(script).await;
    let task = rig.run(json!({})).await;
    assert_eq!(task.state(), State::Completed);
    assert_eq!((task.standing.attempt, task.standing.retries), (2, 0), "nothing is burnt");
}

#[tokio::test]
async fn programs_that_cannot_start_say_what_to_do() {
    let options = || KindOptions::new().step_retry(AT_ONCE).retry(AT_ONCE);
    let of = async |argv: Vec<String>| {
        let spec = ExecSpec { argv, ..ExecSpec::default() };
        let rig = Rig::of(Folder::new(), spec, options(), |h| h).await;
        let task = rig.run(json!({})).await;
        assert_eq!((why(&task).0, task.standing.attempt), ("fatal", 1), "no retry");
        why(&task).2.to_owned()
    };
    let message = of(vec!["no-such-program-here".to_owned()]).await;
    assert!(message.contains("`no-such-program-here`") && message.contains("PATH"), "{message}");
    let plain = Folder::new();
    std::fs::write(plain.file("plain"), "text").expect("written");
    let message = of(vec![plain.file("plain").display().to_string()]).await;
    assert!(message.contains("plain`") && message.contains("set its mode"), "{message}");
    assert!(of(vec![]).await.contains("names no program"));
}

#[tokio::test]
async fn a_chain_shares_its_context() {
    let folder = Folder::new();
    let host = folder.host();
    let shell = |script: &str| ExecSpec {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..ExecSpec::default()
    };
    let handler =
        |script: &str| windlass_server::handlers::ExecHandler::new(shell(script), host.clone());
    let engine = Windlass::in_memory()
        .await
        .expect("a store")
        .handler("first", handler("echo '{\"n\":1}'"))
        .handler("second", handler("printf '{\"saw\":'; cat; printf '}'"))
        .plan_with("chain", ["first", "second"], once())
        .start()
        .await
        .expect("an engine");
    let handle = engine.submit_named("chain", &json!({"p": 2})).await.expect("submitted");
    let result: Value = handle.result().await.expect("a result");
    assert_eq!((&result["n"], &result["saw"]["context"]), (&json!(1), &json!({"n": 1})));
    assert_eq!(
        (&result["saw"]["payload"], &result["saw"]["step"]),
        (&json!({"p": 2}), &json!("second"))
    );
}
