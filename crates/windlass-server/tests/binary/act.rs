//! Verbs on tasks: one by id or ending, many by filter, with a preview and
//! without a terminal to ask on; and the feed of what they did.

use crate::rig::{Process, Server, until};
use std::io::{BufRead, BufReader};

fn three_that_wait(server: &Server) -> Vec<String> {
    (0..3).map(|_| server.submit(&["demo.hello", "--delay", "1h"])).collect()
}

fn count(server: &Server, filter: &str) -> usize {
    server.run(&["task", "list", filter, "-o", "id"]).ok().lines().len()
}

#[test]
fn a_filter_is_shown_asked_and_done() {
    let server = Server::dev();
    three_that_wait(&server);
    let refused = server.run(&["task", "cancel", "state:scheduled"]).fails(2);
    assert!(refused.said("cancel 3 tasks").stderr.ends_with("hint: pass --yes\n"));
    let dry = server.run(&["task", "cancel", "state:scheduled", "--dry-run"]).ok();
    dry.said("dry run: nothing was changed");
    assert_eq!(count(&server, "state:scheduled"), 3);
    let ids = server.run(&["task", "cancel", "state:scheduled", "--dry-run", "-o", "id"]).ok();
    assert_eq!(ids.lines().len(), 3);
    let done = server.run(&["task", "cancel", "state:scheduled", "--yes"]).ok();
    assert_eq!(done.stdout, "cancel: 3 of 3 tasks done\n");
    assert_eq!(count(&server, "state:cancelled"), 3);
    let none = server.run(&["task", "cancel", "state:scheduled", "--yes"]).ok();
    assert_eq!(none.stdout, "");
    none.said("no tasks match");
    let none = server.run(&["task", "cancel", "state:scheduled", "--yes", "-o", "json"]).ok();
    assert_eq!(none.json()["matched"], 0);
    let again = server.run(&["task", "requeue", "state:cancelled", "-y", "-o", "json"]).ok();
    assert_eq!(again.json()["changed"], 3);
}

#[test]
fn a_batch_is_begun_looked_at_and_stopped() {
    let server = Server::dev();
    three_that_wait(&server);
    let slow = ["task", "pause", "state:scheduled", "--rate", "1/h", "--yes", "--detach"];
    let begun = server.run(&[&slow[..], &["-o", "id"]].concat()).ok();
    let id = begun.stdout.trim_end();
    assert!(id.starts_with("bat_"), "{begun:?}");
    until("the first change", || (count(&server, "state:paused") == 1).then_some(()));
    let shown = server.run(&["batch", "show", id]).ok();
    assert!(shown.stdout.contains("state:scheduled") && shown.stdout.contains("1/h"), "{shown:?}");
    let stopped = server.run(&["batch", "stop", id]).ok();
    assert_eq!(stopped.stdout, format!("{id}  stopped  pause: 1 of 1 task done\n"));
    server.run(&["batch", "watch", id]).fails(7).said("stopped by");
    let list = server.run(&["batch", "list"]).ok();
    assert!(list.stdout.contains(id) && list.stdout.contains("stopped"), "{list:?}");
    assert_eq!(count(&server, "state:scheduled"), 2);
    server.run(&["batch", "show", "bat_0000000000000"]).fails(3);
    let none = server.run(&["task", "resume", "state:scheduled", "--yes"]).ok();
    none.said("the state of none lets you resume it");
}

#[test]
fn a_payload_is_edited() {
    let server = Server::dev();
    let id = server.submit(&["demo.hello", "name=Ann", "--delay", "1h"]);
    server.run(&["task", "edit", &id]).fails(2).said("--data");
    let edited = server.run(&["task", "edit", &id, "--data", r#"{"name":"Bob"}"#]).ok();
    assert!(edited.stdout.starts_with(&format!("{id}  scheduled")), "{edited:?}");
    assert_eq!(server.task(&id)["payload"]["name"], "Bob");
    server.run(&["task", "cancel", &id]).ok();
    server.run(&["task", "requeue", &id]).ok();
    server.run(&["task", "wait", &id]).ok();
    server.run(&["task", "edit", &id, "--data", "1"]).fails(5);
}

#[test]
fn some_done_and_some_not_is_partly() {
    let server = Server::dev();
    let ids = three_that_wait(&server);
    let partly = server.run(&["task", "cancel", &ids[0], "tsk_0000000000000", "-o", "json"]);
    let partly = partly.fails(7).said("1 of 2 failed");
    assert_eq!((&partly.json()["done"], &partly.json()["failed"]), (&1.into(), &1.into()));
    assert_eq!(server.task(&ids[0])["state"], "cancelled");
    assert_eq!(server.task(&ids[1])["state"], "scheduled");
}

#[test]
fn endings_name_tasks() {
    let server = Server::dev();
    let id = server.submit(&["demo.hello", "--delay", "1h"]);
    let ending = &id[id.len() - 8..];
    assert_eq!(server.task(ending)["id"], id.as_str());
    assert_eq!(server.task(&id[4..])["id"], id.as_str());
    let held = server.run(&["task", "pause", ending]).ok();
    assert_eq!(held.stdout, format!("{id}  paused\n"));
    server.run(&["task", "resume", &ending.to_uppercase()]).ok();
    server.run(&["task", "show", "12345"]).fails(2).said("neither");
}

#[test]
fn again_as_a_new_task() {
    let server = Server::dev();
    let done = server.run(&["submit", "demo.hello", "--wait", "-o", "id"]).ok();
    let id = done.stdout.trim_end();
    let new = server.run(&["task", "rerun", id, "-o", "json"]).ok().json();
    assert_eq!(new["rerun_of"], id);
    let asked = server.submit(&["demo.sleep", "seconds=60"]);
    server.until_state(&asked, "running");
    server.run(&["task", "cancel", &asked]).ok().said("the node that runs it was asked");
    server.until_state(&asked, "cancelled");
    server.run(&["task", "requeue", &asked, "--dry-run"]).ok();
    assert_eq!(server.task(&asked)["state"], "cancelled");
}

#[test]
fn events_are_shown_as_they_happen() {
    let server = Server::dev();
    let mut tail = server.command(&["event", "tail", "--type", "task.completed"]);
    let mut tail = Process(tail.spawn().unwrap());
    let mut lines = BufReader::new(tail.0.stdout.take().unwrap()).lines();
    // Nothing says when the feed is open, so something happens until it is seen.
    let (seen, told) = std::sync::mpsc::channel();
    // The thread keeps its end: a tail that nobody reads would end.
    let reader = std::thread::spawn(move || lines.try_for_each(|line| seen.send(line.unwrap())));
    let line = until("an event", || {
        server.run(&["submit", "demo.hello", "--wait", "-q"]).ok();
        told.try_recv().ok()
    });
    assert!(line.contains("task.completed") && line.contains("demo.hello"), "{line}");
    assert!(tail.0.try_wait().unwrap().is_none(), "a tail has no end");
    drop(tail);
    reader.join().unwrap().unwrap();
}
