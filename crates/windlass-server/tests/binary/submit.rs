//! Submitting and waiting against `windlass dev`: results on stdout, what happens
//! meanwhile on stderr, and an exit code that says how the task ended.

use crate::rig::{Folder, Process, Server, free_port, until};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

#[test]
fn results_are_the_data() {
    let server = Server::dev();
    let hello = server.run(&["submit", "demo.hello", "name=Ada", "--wait"]).ok();
    assert_eq!(hello.stdout, "\"Hello Ada\"\n");
    let id = hello.stderr.lines().find_map(|line| line.strip_prefix("submitted ")).unwrap();
    assert_eq!(server.run(&["task", "result", id]).ok().stdout, hello.stdout);
    assert_eq!(server.run(&["task", "wait", id]).ok().stdout, hello.stdout);

    let chain = server.run(&["submit", "demo.chain", "step_seconds=0.01", "--wait"]).ok();
    let chain = chain.json();
    assert_eq!(chain["notify"], "done at attempt 1");
    assert_eq!(chain.as_object().unwrap().len(), 5);

    let quiet = server.run(&["submit", "demo.hello", "--wait", "-q"]).ok();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("\"Hello world\"\n", ""));
}

#[test]
fn every_format() {
    let server = Server::dev();
    let task = server.run(&["submit", "demo.hello", "--wait", "-o", "json"]).ok().json();
    assert_eq!((&task["state"], &task["result"]), (&"completed".into(), &"Hello world".into()));
    let id = task["id"].as_str().unwrap();
    assert!(id.starts_with("tsk_") && id.len() == 17, "{id}");
    let second = server.run(&["submit", "demo.hello", "--wait", "-o", "id"]).ok();
    assert!(second.stdout.starts_with("tsk_") && second.stdout.lines().count() == 1);

    let table = server.run(&["task", "list"]).ok();
    assert!(table.stdout.starts_with("ID "), "{table:?}");
    assert_eq!(table.lines().len(), 3);
    assert!(!table.stdout.contains('\u{1b}'), "colours without a terminal");
    assert_eq!(
        server.run(&["task", "list", "-o", "json"]).ok().json().as_array().unwrap().len(),
        2
    );
    let lines = server.run(&["task", "list", "-o", "jsonl"]).ok();
    assert!(lines.lines().iter().all(|line| line.starts_with('{')) && lines.lines().len() == 2);
    let ids = server.run(&["task", "list", "-o", "id"]).ok();
    assert_eq!(ids.lines(), [second.stdout.trim_end(), id]);
    for arguments in [["task", "history", id], ["task", "why", id], ["task", "logs", id]] {
        let shown = server.run(&[&arguments[..], &["-o", "json"]].concat()).ok().json();
        assert!(shown.is_array() || shown.is_object(), "{arguments:?}: {shown}");
    }
    let history = server.run(&["task", "history", id]).ok();
    for what in ["task.submitted", "task.started", "task.completed"] {
        assert!(history.stdout.contains(what), "{history:?}");
    }
    let page = server.run(&["task", "show", id]).ok();
    assert!(page.stdout.starts_with(&format!("{id}  completed\n")), "{page:?}");
}

#[test]
fn retries_are_told_on_the_way() {
    let server = Server::dev();
    // It must not start before it is followed.
    server.run(&["queue", "pause", "default"]).ok();
    let mut waiting = server.command(&["submit", "demo.flaky", "fails=1", "--wait"]);
    let mut waiting = Process(waiting.spawn().unwrap());
    let mut said = BufReader::new(waiting.0.stderr.take().unwrap()).lines();
    let followed = said.by_ref().map(Result::unwrap).find(|line| line == "queued");
    assert!(followed.is_some(), "it ended before it was followed");
    server.run(&["queue", "resume", "default"]).ok();
    let said: Vec<String> = said.map(Result::unwrap).collect();
    assert_eq!(waiting.ended(), 0, "{said:?}");
    let mut result = String::new();
    waiting.0.stdout.take().unwrap().read_to_string(&mut result).unwrap();
    assert_eq!(result, "\"worked at try 2\"\n");
    let failed = "attempt 1 failed: connection reset (try 1), next try in ";
    assert_eq!(said.iter().filter(|line| line.starts_with(failed)).count(), 1, "{said:?}");
}

#[test]
fn how_a_task_ended_is_the_exit_code() {
    let server = Server::dev();
    let fatal = server.run(&["submit", "demo.flaky", "fatal=true", "--wait"]).fails(10);
    assert!(fatal.stdout.is_empty(), "{fatal:?}");
    fatal.said("failed (fatal): this can never work").said("windlass dead requeue tsk_");
    let late = server.run(&["submit", "demo.sleep", "--wait", "--timeout", "200ms"]).fails(8);
    late.said("after 200ms").said("windlass task wait tsk_");

    let mut waiting = server.command(&["submit", "demo.sleep", "seconds=60", "--wait"]);
    let mut waiting = Process(waiting.spawn().unwrap());
    let mut said = BufReader::new(waiting.0.stderr.take().unwrap()).lines();
    let id = said.next().unwrap().unwrap().replace("submitted ", "");
    until("its start", || (said.next()?.unwrap() == "running").then_some(()));
    server.run(&["task", "cancel", &id]).ok();
    assert_eq!(waiting.ended(), 11);
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    assert_eq!(rest[0], format!("error: {id} was cancelled"));
    assert!(rest.last().unwrap().starts_with("hint: "), "{rest:?}");
}

#[test]
fn mistakes_have_their_own_exit_codes() {
    let server = Server::dev();
    server.run(&["submit", "no.such"]).fails(2).said("no.such");
    server.run(&["submit", "demo.hello", "--priority", "99"]).fails(2).said("priority 99");
    server.run(&["task", "list", "foo:bar"]).fails(2).said("no such field");
    server.run(&["task", "frob"]).fails(2);
    server.run(&["task", "show", "tsk_0000000000000"]).fails(3).said("windlass task list");
    server.run(&["task", "show", "zzzzzz"]).fails(3);
    server.run(&["queue", "show", "nope"]).fails(3).said("windlass queue list");
    let done = server.run(&["submit", "demo.hello", "--wait", "-o", "id"]).ok();
    server.run(&["task", "cancel", done.stdout.trim_end()]).fails(5).said("completed");
    let waiting = server.submit(&["demo.hello", "--delay", "1h"]);
    server.run(&["task", "result", &waiting]).fails(5).said("windlass task wait");

    let folder = server.kill();
    let gone = format!("http://{}", free_port());
    folder.run(&["task", "list", "--server", &gone]).fails(6).said("windlass dev");
    folder.run(&["submit", "demo.hello", "--server", &gone]).fails(6).said("windlass dev");
}

#[test]
fn keys_keep_a_task_from_being_submitted_twice() {
    let server = Server::dev();
    let key = ["demo.hello", "--idempotency-key", "k1"];
    assert_eq!(server.submit(&key), server.submit(&key));
    let other = server.run(&["submit", "demo.hello", "x=1", "--idempotency-key", "k1"]);
    other.fails(5);
    let unique = ["demo.hello", "--unique", "only", "--delay", "1h"];
    let first = server.submit(&unique);
    let second = server.run(&[&["submit"], &unique[..]].concat()).ok();
    assert!(second.said("unique").stdout.starts_with(&first));
}

#[test]
fn many_lines_of_a_file() {
    const MANY: usize = 2_500;
    let server = Server::dev();
    // They wait, so that a list of them is large enough to break a pipe.
    let text = (0..MANY).fold(String::new(), |mut text, n| {
        writeln!(text, r#"{{"kind":"demo.hello","delay":"1h","payload":{{"n":{n}}}}}"#).unwrap();
        text
    });
    server.folder.write("many.jsonl", &text);
    let sent = server.run(&["submit", "--from", "many.jsonl", "-o", "id"]).ok();
    assert_eq!(sent.lines().len(), MANY);
    sent.said(&format!("submitted {MANY} tasks"));
    let all = server.run(&["task", "list", "state:scheduled", "--all", "-o", "id"]).ok();
    assert_eq!(all.lines().len(), MANY);

    // As with `| head -1`: whoever reads takes a line and goes.
    let mut list = server.command(&["task", "list", "--all", "-o", "jsonl"]);
    let mut list = Process(list.stderr(Stdio::piped()).spawn().unwrap());
    let mut reader = BufReader::new(list.0.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with('{'));
    drop(reader);
    assert_eq!(list.ended(), 0);
    let mut said = String::new();
    list.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");

    let bad = "{\"kind\":\"demo.hello\"}\nnonsense\n";
    server.run_with(&["submit", "--from", "-"], bad).fails(2).said("line 2").said("nothing was");
}

#[test]
fn no_server_is_needed_to_be_told_of_one() {
    Folder::new().run(&["task", "list", "--server", "localhost"]).fails(2).said("not a URL");
}
