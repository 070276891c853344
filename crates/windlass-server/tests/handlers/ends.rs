//! Processes that are ended: by a timeout, a cancel, a shutdown, or because they
//! left something behind. Nothing of a try is alive when the next begins.

use crate::rig::{AT_ONCE, Rig, is_alive, once, until, until_gone, why};
use serde_json::json;
use std::time::{Duration, Instant};
use windlass::State;
use windlass::prelude::*;

/// Long enough for a shell to begin on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// Starts a child that minds no SIGTERM, writes both numbers, and hangs. A second
/// try looks at the first one's processes instead.
const HANGS_ONCE: &str = r#"
    lives() { [ -d /proc/$1 ] && ! grep -q 'State:.Z' /proc/$1/status; }
    if [ -f $DIR/leader ]; then
        for pid in $(cat $DIR/leader $DIR/grandchild); do
            lives $pid && echo $pid >> $DIR/overlap
        done
        echo '{"second":true}'; exit 0
    fi
    (trap '' TERM; exec sleep 1000) &
    echo $! > $DIR/grandchild
    echo $$ > $DIR/leader
    wait; wait; exec sleep 1000"#;

#[tokio::test]
async fn a_timeout_leaves_nothing_alive_before_the_retry() {
    let options = KindOptions::new().step_timeout(SOON).step_retry(AT_ONCE);
    let rig = Rig::with(HANGS_ONCE, options, |h| h).await;
    let task = rig.run(json!({})).await;
    assert_eq!(task.state(), State::Completed, "{:?}", task.standing.failure);
    let reader = rig.engine.reader();
    let attempts = reader.attempts(task.id).await.expect("read");
    let tries: Vec<_> = attempts[0].steps.iter().map(|entry| &entry.record).collect();
    assert!(tries.len() > 1, "the first try timed out");
    for failed in &tries[..tries.len() - 1] {
        assert_eq!(failed.class.map(|c| c.as_str()), Some("timeout"));
        assert_eq!(failed.reason.as_deref(), Some("the step ran longer than 5s"));
    }
    let pids = [rig.folder.pid("leader").await, rig.folder.pid("grandchild").await];
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(rig.folder.read("overlap"), "", "both were gone when the retry began");
}

#[tokio::test]
async fn a_process_has_time_to_end_by_itself() {
    let script = "trap 'echo asked > $DIR/asked; exit 0' TERM
        while :; do sleep 0.02; done";
    let grace = Duration::from_secs(600);
    let rig = Rig::with(script, once().step_timeout(SOON), |h| h.grace(grace)).await;
    // Which has a limit far below the grace: it was not waited for to the end.
    let task = rig.run(json!({})).await;
    assert_eq!((why(&task).1, why(&task).2), ("timeout", "the step ran longer than 5s"));
    assert_eq!(rig.folder.line("asked").await, "asked");
}

#[tokio::test]
async fn a_process_that_minds_no_signal_is_killed() {
    let script = "trap '' TERM; echo $$ > $DIR/leader
        while :; do echo x >> $DIR/beats; sleep 0.02; done";
    let options = once().step_timeout(SOON);
    let rig = Rig::with(script, options, |h| h.grace(Duration::from_millis(700))).await;
    let began = Instant::now();
    let task = rig.run(json!({})).await;
    let took = began.elapsed();
    assert_eq!(why(&task).1, "timeout");
    let least = SOON + Duration::from_millis(700);
    assert!(took >= least, "it had its time and its grace: {took:?}");
    assert!(!is_alive(rig.folder.pid("leader").await), "and was gone before the end was told");
}

#[tokio::test]
async fn the_grace_is_five_seconds() {
    let script = "trap '' TERM; echo $$ > $DIR/leader; while :; do sleep 0.05; done";
    let rig = Rig::with(script, once().step_timeout(SOON), |h| h).await;
    let began = Instant::now();
    rig.run(json!({})).await;
    let took = began.elapsed();
    assert!(took >= SOON + Duration::from_secs(5), "{took:?}");
    assert!(!is_alive(rig.folder.pid("leader").await));
}

#[tokio::test]
async fn a_cancel_leaves_nothing_alive() {
    let rig = Rig::with(HANGS_ONCE, KindOptions::new(), |h| h).await;
    let handle = rig.submit(json!({})).await;
    let pids = [rig.folder.pid("leader").await, rig.folder.pid("grandchild").await];
    assert!(pids.iter().all(|pid| is_alive(*pid)), "there is something to end");
    rig.engine.cancel(handle.id()).await.expect("asked");
    let task = handle.ended().await.expect("an end");
    assert_eq!((task.state(), task.standing.attempt), (State::Cancelled, 1));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "gone before the end was told: {pids:?}");
}

#[tokio::test]
async fn a_task_timeout_leaves_nothing_alive() {
    let rig = Rig::with(HANGS_ONCE, once().task_timeout(SOON), |h| h).await;
    let handle = rig.submit(json!({})).await;
    let pids = [rig.folder.pid("leader").await, rig.folder.pid("grandchild").await];
    let task = handle.ended().await.expect("an end");
    assert_eq!(why(&task).0, "timeout");
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
}

#[tokio::test]
async fn a_child_in_a_session_of_its_own_is_found() {
    let script =
        "setsid sh -c 'echo $$ > $DIR/stray; trap \"\" TERM; while :; do sleep 0.05; done' &
        echo $$ > $DIR/leader; wait";
    let rig = Rig::with(script, KindOptions::new(), |h| h).await;
    let handle = rig.submit(json!({})).await;
    let (leader, stray) = (rig.folder.pid("leader").await, rig.folder.pid("stray").await);
    let group = |pid| rustix::process::getpgid(rustix::process::Pid::from_raw(pid)).expect("alive");
    assert_ne!(group(leader), group(stray), "it left the group");
    rig.engine.cancel(handle.id()).await.expect("asked");
    assert_eq!(handle.ended().await.expect("an end").state(), State::Cancelled);
    assert!(!is_alive(leader) && !is_alive(stray));
}

#[tokio::test]
async fn a_shutdown_that_does_not_wait_kills() {
    let rig = Rig::with(HANGS_ONCE, KindOptions::new(), |h| h).await;
    rig.submit(json!({})).await;
    let pids = [rig.folder.pid("leader").await, rig.folder.pid("grandchild").await];
    assert!(pids.iter().all(|pid| is_alive(*pid)), "there is something to end");
    rig.engine.shutdown(Duration::ZERO).await.expect("a quiet end");
    until_gone(pids[0]).await;
    until_gone(pids[1]).await;
}

#[tokio::test]
async fn what_a_process_leaves_behind_is_ended() {
    // It holds all pipes, and minds no signal.
    let script = "(trap '' TERM HUP; exec sleep 1000) & echo $! > $DIR/left; echo '{\"a\":1}'";
    let rig = Rig::sh(script).await;
    let began = Instant::now();
    assert_eq!(rig.output(json!({})).await, json!({"a": 1}));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900), "its pipes were read on for a second: {took:?}");
    assert!(!is_alive(rig.folder.pid("left").await));
    let quiet = "sleep 1000 < /dev/null > /dev/null 2>&1 3>&- & echo $! > $DIR/left";
    let rig = Rig::sh(quiet).await;
    rig.output(json!({})).await;
    assert!(!is_alive(rig.folder.pid("left").await));
}

#[tokio::test]
async fn many_at_once_do_not_mix_up() {
    let script = "n=$(sed 's/.*\"payload\":\\([0-9]*\\).*/\\1/'); echo \"{\\\"n\\\":$n}\"; exit 0";
    let rig = Rig::sh(script).await;
    let mut handles = vec![];
    for n in 0..40 {
        handles.push((n, rig.submit(json!(n)).await));
    }
    for (n, handle) in handles {
        assert_eq!(handle.result().await.expect("a result"), json!({"n": n}));
    }
    until("no slot is taken", || rig.engine.status().active == 0).await;
}
