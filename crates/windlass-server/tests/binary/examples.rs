//! The examples of handlers in other languages, as their pages say they are
//! used: `windlass serve` in the folder, `windlass submit` beside it.

use crate::rig::{Folder, Server};
use serde_json::json;
use std::fs;
use std::path::Path;

/// A server in a copy of an example's folder.
fn example(name: &str) -> Server {
    let folder = Folder::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.file(entry.file_name().to_str().unwrap())).unwrap();
    }
    Server::serve(folder)
}

#[test]
fn a_handler_in_python() {
    let server = example("exec_python");
    let scan = server.run(&["submit", "scan", "path=sample.txt", "--wait"]).ok();
    assert_eq!(scan.json(), json!({"lines": 2, "words": 20, "bytes": 97}));
    server.run(&["submit", "scan", "path=empty.txt", "--wait"]).ok();
    let fatal = server.run(&["submit", "scan", "--wait"]).fails(10);
    fatal.said("the payload has no \"path\"");
    let later = server.submit(&["scan", "path=later.txt"]);
    server.until_state(&later, "retrying");
    let logs = server.run(&["task", "logs", &later]).ok();
    assert!(logs.stdout.contains("later.txt is not there yet"), "{logs:?}");
}

#[test]
fn a_chain_of_programs() {
    let server = example("exec_chain");
    let ingest = server.run(&["submit", "file.ingest", "path=sample.txt", "--wait"]).ok();
    let context = ingest.json();
    assert_eq!((&context["indexed"], &context["entries"]), (&true.into(), &1.into()));
    let index = fs::read_to_string(server.folder.file("out/index.json")).unwrap();
    assert!(index.contains(context["digest"].as_str().unwrap()), "{index}");
}
