//! How a server ends: in good order at the first signal, giving back what it has
//! no time for, and at once at the second.

use crate::rig::{Folder, Server, until};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A handler that sleeps when it is run for the first time.
fn sleeper(grace: &str) -> Folder {
    let folder = Folder::new();
    let config = format!(
        "[store]\nurl = \"sqlite://x.db\"\n[shutdown]\ngrace = \"{grace}\"\n\
         [handlers.nap]\nexec = [\"sh\", \"nap.sh\"]\n"
    );
    folder.write("windlass.toml", &config);
    folder.write(
        "nap.sh",
        "[ -e began ] && { echo '{\"rested\":true}'; exit 0; }\necho $$ > pid && mv pid began\nexec sleep 300\n",
    );
    folder
}

fn started(folder: Folder) -> (Server, String) {
    let server = Server::serve(folder);
    let id = server.submit(&["nap"]);
    until("the handler", || server.folder.file("began").exists().then_some(()));
    (server, id)
}

fn sleeps_on(folder: &Folder) -> bool {
    let pid = std::fs::read_to_string(folder.file("began")).unwrap();
    // A process that was ended may wait for its parent as a zombie.
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    state.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn what_runs_is_given_back_and_no_attempt_is_burned() {
    let (mut server, id) = started(sleeper("200ms"));
    let retries = server.task(&id)["retries_left"].clone();
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.ended(), 0);
    assert!(server.log().contains("\"message\":\"stopped\""), "{}", server.log());
    let folder = server.kill();
    until("the end of the handler", || (!sleeps_on(&folder)).then_some(()));

    let server = Server::serve(folder);
    assert_eq!(server.run(&["task", "wait", &id]).ok().stdout, "{\"rested\":true}\n");
    let task = server.task(&id);
    assert_eq!((&task["retries_left"], &task["failure"]), (&retries, &Value::Null));
    let history = server.run(&["task", "history", &id]).ok();
    assert!(history.stdout.contains("task.released"), "{history:?}");
    assert!(!history.stdout.contains("task.retrying"), "{history:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (mut server, id) = started(sleeper("5m"));
    server.process.signal(Signal::TERM);
    until("the stopping", || server.log().contains("\"message\":\"stopping\"").then_some(()));
    assert_eq!(server.task(&id)["state"], "running");
    let begun = Instant::now();
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.ended(), 130);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let folder = server.kill();
    until("the end of the handler", || (!sleeps_on(&folder)).then_some(()));
}

#[test]
fn an_idle_server_ends_at_once() {
    // A signal right after readiness must be heard as well.
    for signal in [Signal::INT, Signal::TERM] {
        let mut server = Server::dev();
        let begun = Instant::now();
        server.process.signal(signal);
        assert_eq!(server.process.ended(), 0, "{}", server.log());
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

/// A handler that traps SIGTERM has time to say good-bye before its try ends.
#[test]
fn a_handler_over_its_time_hears_of_it_first() {
    let folder = Folder::new();
    folder.write(
        "slow.sh",
        "trap 'echo bye > said; exit 1' TERM\ntouch began\nwhile :; do sleep 0.05; done\n",
    );
    folder.write(
        "windlass.toml",
        "[handlers.slow]\nexec = [\"sh\", \"slow.sh\"]\ntimeout = \"3s\"\n\
         [kinds.slow]\nretry = { retries = 0, first = \"1s\", factor = 1.0, cap = \"1s\" }\n\
         step_retry = { retries = 0, first = \"1s\", factor = 1.0, cap = \"1s\" }\n",
    );
    let server = Server::serve(folder);
    let id = server.submit(&["slow"]);
    server.run(&["task", "wait", &id]).fails(10);
    assert_eq!(server.task(&id)["failure"]["class"], "timeout");
    assert!(server.folder.file("began").exists(), "it never began");
    assert!(server.folder.file("said").exists(), "it was killed without a word");
}
