//! Queues and nodes from the command line: what they are, what is set, and that
//! holding one back holds its tasks.

use crate::rig::Server;

#[test]
fn a_queue_is_set_held_and_drained() {
    let server = Server::dev();
    let list = server.run(&["queue", "list"]).ok();
    let titles: Vec<&str> = list.lines()[0].split_whitespace().collect();
    assert_eq!(titles[..4], ["NAME", "STATE", "CONCURRENCY", "DEPTH-MAX"]);
    let set = ["queue", "set", "default", "--concurrency", "3", "--depth-max", "10", "-o", "json"];
    let queue = server.run(&set).ok().json();
    assert_eq!((&queue["concurrency"], &queue["depth_max"]), (&3.into(), &10.into()));
    server.run(&["queue", "set", "default", "--concurrency", "0"]).fails(2);
    let unset = ["queue", "set", "default", "--depth-max", "none", "-o", "json"];
    assert!(server.run(&unset).ok().json()["depth_max"].is_null());

    server.run(&["queue", "pause", "default"]).ok();
    let id = server.submit(&["demo.hello"]);
    let why = server.run(&["task", "why", &id]).ok();
    assert!(why.stdout.contains("queue `default` is paused"), "{why:?}");
    let list = server.run(&["queue", "list"]).ok();
    let row: Vec<&str> = list.lines()[1].split_whitespace().collect();
    assert_eq!(row[..6], ["default", "paused", "3", "none", "0", "1"]);
    let page = server.run(&["queue", "show", "default"]).ok();
    assert!(page.stdout.contains("1 queued"), "{page:?}");
    server.run(&["queue", "resume", "default"]).ok();
    server.run(&["task", "wait", &id]).ok();

    server.run(&["queue", "drain", "default"]).fails(2).said("pass --yes");
    server.run(&["queue", "drain", "default", "--yes"]).ok();
    server.run(&["submit", "demo.hello"]).fails(5).said("draining");
    let list = server.run(&["queue", "list"]).ok();
    assert!(list.lines()[1].contains("draining"), "{list:?}");
    server.run(&["queue", "resume", "default"]).ok();
    server.run(&["submit", "demo.hello", "--wait"]).ok();
}

#[test]
fn a_node_is_held_and_goes_on() {
    let server = Server::dev();
    let nodes = server.run(&["node", "list", "-o", "json"]).ok().json();
    let node = nodes[0]["id"].as_str().unwrap();
    assert_eq!((&nodes[0]["name"], &nodes[0]["stage"]), (&"dev".into(), &"serving".into()));
    server.run(&["node", "pause", "dev"]).ok();
    assert!(server.run(&["node", "list"]).ok().lines()[1].contains("paused"));
    let id = server.submit(&["demo.hello"]);
    server.run(&["task", "wait", &id, "--timeout", "200ms"]).fails(8);
    let doctor = server.run(&["doctor"]).ok();
    assert!(doctor.stdout.contains("warn  node: degraded"), "{doctor:?}");
    server.run(&["node", "resume", &node[node.len() - 8..]]).ok();
    server.run(&["task", "wait", &id]).ok();
    server.run(&["node", "drain", "dev"]).fails(2).said("pass --yes");
    server.run(&["node", "drain", "dev", "--dry-run"]).ok();
    server.run(&["node", "show", "nope"]).fails(3).said("windlass node list");
    let audit = server.run(&["audit", "list", "-o", "json"]).ok().json();
    assert_eq!((&audit[0]["action"], &audit[0]["target"]), (&"resume".into(), &node.into()));
}
