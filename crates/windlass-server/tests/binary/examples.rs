//! The examples of handlers in other languages, as their pages say they are
//! used: `windlass serve` in the folder, `windlass submit` beside it.

use crate::rig::{Folder, Process, Server, free_port, until};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

/// A server in a copy of an example's folder.
fn example(name: &str) -> Server {
    Server::serve(copy(name))
}

fn copy(name: &str) -> Folder {
    let folder = Folder::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.file(entry.file_name().to_str().unwrap())).unwrap();
    }
    folder
}

#[test]
fn a_handler_in_python() {
    let server = example("exec_python");
    assert_eq!(children(&server), ["windlass guard"]);
    let scan = server.run(&["submit", "scan", "path=sample.txt", "--wait"]).ok();
    assert_eq!(scan.json(), json!({"lines": 2, "words": 20, "bytes": 97}));
    let task = server.submit(&["scan", "path=sample.txt", "--wait"]);
    let progress = &server.task(&task)["progress"];
    assert_eq!((&progress["done"], &progress["note"]), (&json!(97), &json!("done")));
    let empty = server.submit(&["scan", "path=empty.txt", "--wait"]);
    let history = server.run(&["task", "history", &empty]).ok();
    assert!(history.stdout.contains("empty.txt is empty"), "a skip: {history:?}");
    let fatal = server.run(&["submit", "scan", "--wait"]).fails(10);
    fatal.said("the payload has no \"path\"");
    let later = server.submit(&["scan", "path=later.txt"]);
    until("a try without the file", || {
        let logs = server.run(&["task", "logs", &later]).ok();
        logs.stdout.contains("later.txt is not there yet").then_some(())
    });
    server.folder.write("later.txt", "here now\n");
    let scan = server.run(&["task", "wait", &later]).ok();
    assert_eq!(scan.json()["words"], 2);
}

#[test]
fn a_chain_of_programs() {
    let server = example("exec_chain");
    let ingest = server.run(&["submit", "file.ingest", "path=sample.txt", "--wait"]).ok();
    let context = ingest.json();
    assert_eq!((&context["indexed"], &context["entries"]), (&true.into(), &1.into()));
    assert_eq!(context["bytes"], 97);
    let read = |name: &str| fs::read_to_string(server.folder.file(name)).unwrap();
    let index: Value = serde_json::from_str(&read("out/index.json")).unwrap();
    let entry = &index[context["digest"].as_str().unwrap()];
    assert!(ingest.stderr.contains(entry["task"].as_str().unwrap()), "{entry}");
    let thumbnail = entry["thumbnail"].as_str().unwrap();
    assert_eq!(read(thumbnail), read("sample.txt"), "both lines");
    let fatal = server.run(&["submit", "file.ingest", "path=nothing", "--wait"]).fails(10);
    fatal.said("(fatal): no file 'nothing'");
}

#[test]
fn a_handler_that_is_a_server() {
    let folder = copy("http_handler");
    // The page says 3000; here others may have it.
    let at = free_port();
    let config = fs::read_to_string(folder.file("windlass.toml")).unwrap();
    assert!(config.contains("127.0.0.1:3000"));
    folder.write("windlass.toml", &config.replace("127.0.0.1:3000", &at));
    let port = at.rsplit(':').next().unwrap();
    let mut receiver = std::process::Command::new("python3");
    receiver.args(["receiver.py", port]).current_dir(folder.path());
    receiver.stdout(Stdio::null()).stderr(Stdio::null());
    let _receiver = Process(receiver.spawn().unwrap());
    until("the receiver", || std::net::TcpStream::connect(&at).ok());
    let server = Server::serve(folder);
    assert!(children(&server).is_empty(), "no program, no guard");
    let count = server.run(&["submit", "count", "path=sample.txt", "--wait"]).ok();
    assert_eq!(count.json(), json!({"lines": 2, "words": 20}));
    let empty = server.submit(&["count", "path=empty.txt", "--wait"]);
    let history = server.run(&["task", "history", &empty]).ok();
    assert!(history.stdout.contains("empty.txt is empty"), "a skip: {history:?}");
    let fatal = server.run(&["submit", "count", "--wait"]).fails(10);
    fatal.said("422 Unprocessable Entity: the payload has no path");
    let later = server.submit(&["count", "path=later.txt"]);
    until("a try without the file", || {
        let story = server.run(&["task", "history", &later]).ok();
        story.stdout.contains("later.txt is not there yet").then_some(())
    });
    server.folder.write("later.txt", "here now\n");
    assert_eq!(server.run(&["task", "wait", &later]).ok().json()["words"], 2);
    let stranger = post(&at, "/count", r#"{"payload":{"path":"sample.txt"}}"#);
    assert!(stranger.starts_with("HTTP/1.1 401"), "{stranger}");
}

/// The command lines of a server's processes, without the path of the program.
fn children(server: &Server) -> Vec<String> {
    let parent = format!("PPid:\t{}\n", server.process.0.id());
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let ours = processes.filter(|process| {
        fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains(&parent))
    });
    let line = |process: std::path::PathBuf| {
        let line = fs::read_to_string(process.join("cmdline")).unwrap();
        let words = line.trim_end_matches('\0').replace('\0', " ");
        words.rsplit('/').next().unwrap_or_default().to_owned()
    };
    ours.map(line).collect()
}

fn post(at: &str, path: &str, body: &str) -> String {
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_api_with_curl_alone() {
    let server = Server::dev();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/curl/run.sh");
    let mut command = std::process::Command::new("sh");
    let ran = command.arg(script).env("WINDLASS_SERVER", &server.url).output().expect("sh runs");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "is curl installed?\n{out}\n{err}");
    assert!(out.contains("1. submit") && out.lines().count() > 5, "{out}");
}
