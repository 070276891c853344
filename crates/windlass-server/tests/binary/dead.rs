//! Dead letters from the command line: look, group, run again, mend, drop and
//! write them out.

use crate::rig::Server;
use serde_json::Value;

fn failed(server: &Server) -> String {
    let failed = server.run(&["submit", "demo.flaky", "fatal=true", "--wait", "-o", "id"]);
    failed.fails(10).stdout.trim_end().to_owned()
}

fn letters(server: &Server) -> Vec<String> {
    let list = server.run(&["dead", "list", "-o", "id"]).ok();
    list.lines().iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn a_letter_is_seen_mended_and_runs_again() {
    let server = Server::dev();
    let (first, second) = (failed(&server), failed(&server));
    let table = server.run(&["dead", "list"]).ok();
    assert!(table.stdout.contains("this can never work"), "{table:?}");
    let groups = server.run(&["dead", "list", "--group", "error", "-o", "json"]).ok().json();
    assert_eq!((groups.as_array().unwrap().len(), &groups[0]["count"]), (1, &2.into()));
    let letter = server.run(&["dead", "show", &first, "-o", "json"]).ok().json();
    assert_eq!(
        (&letter["task"], &letter["payload"]["fatal"]),
        (&first.clone().into(), &true.into())
    );

    let export = server.run(&["dead", "export"]).ok();
    let tasks: Vec<Value> =
        export.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(tasks.iter().any(|letter| letter["task"] == second.as_str()), "{tasks:?}");
    assert_eq!(tasks.len(), 2);

    server.run(&["dead", "edit", &first]).fails(2).said("--data");
    server.run(&["dead", "edit", &first, "--data", r#"{"fails":0}"#]).ok();
    let mended = server.run(&["task", "wait", &first]).ok();
    assert!(mended.stdout.contains("worked at try"), "{mended:?}");
    assert_eq!(letters(&server).len(), 1);

    server.run(&["dead", "requeue", &second]).ok();
    server.run(&["task", "wait", &second]).fails(10);
    assert_eq!(server.task(&second)["run"], 2);
}

#[test]
fn many_are_requeued_and_dropped_by_filter() {
    let server = Server::dev();
    let ids = [failed(&server), failed(&server)];
    let filter = "error~can never work";
    server.run(&["dead", "requeue", filter]).fails(2).said("pass --yes");
    let done = server.run(&["dead", "requeue", filter, "--rate", "50/s", "--yes"]).ok();
    assert_eq!(done.stdout, "requeue: 2 of 2 dead letters done\n");
    for id in &ids {
        server.run(&["task", "wait", id]).fails(10);
    }
    assert_eq!(letters(&server).len(), 2);
    server.run(&["dead", "discard", "kind:demo.*", "--dry-run"]).ok();
    assert_eq!(letters(&server).len(), 2);
    server.run(&["dead", "discard", "kind:demo.*", "--yes"]).ok();
    assert!(letters(&server).is_empty());
    assert_eq!(server.task(&ids[0])["state"], "failed");
    server.run(&["dead", "show", &ids[0]]).fails(3);
}
