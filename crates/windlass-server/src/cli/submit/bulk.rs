//! `windlass submit --from FILE`: one submission per line, sent in batches that
//! the server takes whole or not at all. A bad line stops before its batch is
//! sent and is told by its number. Reading happens on a thread of its own and is
//! never more than two batches ahead of sending.

use crate::cli::client::{Call, Client, Repeat};
use crate::cli::failure::{Exit, Failure};
use crate::cli::fields;
use crate::cli::global::{Format, Global};
use crate::cli::output::Out;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use tokio::sync::mpsc;

/// Most tasks in one request.
const BATCH: usize = 1_000;
/// Most bytes in one request, well below the server's limit.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Lines that are sent together.
#[derive(Debug, Default)]
struct Batch {
    tasks: Vec<Value>,
    /// The number of each task's line, from 1.
    lines: Vec<usize>,
    bytes: usize,
}

pub(super) async fn submit(global: &Global, out: &Out, path: &Path) -> Result<Exit, Failure> {
    let client = Client::new(global)?;
    let reader = open(path)?;
    let (give, mut take) = mpsc::channel(2);
    let reading = tokio::task::spawn_blocking(move || read_all(reader, &give));
    let (mut sent, mut ids) = (0, Vec::new());
    while let Some(batch) = take.recv().await {
        let size = batch.as_ref().map_or(0, |batch: &Batch| batch.tasks.len());
        let answer = match batch {
            Ok(batch) if global.dry_run => show(out, &batch),
            Ok(batch) => send(&client, batch).await,
            Err(failure) => Err(failure),
        };
        let new = answer.map_err(|failure| told(failure, sent))?;
        if out.format == Format::Json {
            ids.extend(new);
        } else {
            print(out, &new)?;
        }
        sent += size;
    }
    // A reader that panicked must not look like the end of the file.
    reading.await.map_err(|e| told(unreadable(&e.to_string()), sent))?;
    if global.dry_run {
        out.say(&format!("dry run: {sent} submissions were read, none was sent"));
        return Ok(Exit::Ok);
    }
    if out.format == Format::Json {
        out.json(&json!({"ids": ids}))?;
    }
    out.say(&format!("submitted {sent} tasks"));
    Ok(Exit::Ok)
}

fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|e| {
        let message = format!("cannot read {}: {e}", path.display());
        Failure::usage(message, "--from names a file of JSON lines, or - for stdin")
    })?;
    Ok(Box::new(BufReader::new(file)))
}

fn unreadable(why: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("cannot read the lines: {why}"),
        "see whether the file is whole",
    )
}

/// Says how far it came: what was sent stays sent.
fn told(failure: Failure, sent: usize) -> Failure {
    let before = match (sent, failure.code) {
        // No answer is no refusal.
        (_, Exit::Unreachable) => {
            format!("{sent} tasks were submitted before; those of the last request may be, too")
        }
        (0, _) => "nothing was submitted".to_owned(),
        _ => format!("{sent} tasks were submitted before"),
    };
    let message = format!("{}\n{before}", failure.message);
    Failure { message, code: if sent == 0 { failure.code } else { Exit::Partly }, ..failure }
}

fn read_all(reader: impl BufRead, give: &mpsc::Sender<Result<Batch, Failure>>) {
    let mut batch = Batch::default();
    for (index, line) in reader.split(b'\n').enumerate() {
        let task = match line {
            Ok(line) => read_line(&line, index + 1).map(|task| task.map(|t| (t, line.len()))),
            Err(e) => Err(unreadable(&e.to_string())),
        };
        match task {
            Ok(None) => continue,
            Ok(Some((task, bytes))) => {
                batch.tasks.push(task);
                batch.lines.push(index + 1);
                batch.bytes += bytes;
            }
            Err(failure) => {
                // The one who takes may have stopped for a failure of its own.
                let _ = give.blocking_send(Err(failure));
                return;
            }
        }
        let full = batch.tasks.len() == BATCH || batch.bytes >= BATCH_BYTES;
        if full && give.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
            return;
        }
    }
    if !batch.tasks.is_empty() {
        let _ = give.blocking_send(Ok(batch));
    }
}

fn read_line(line: &[u8], number: usize) -> Result<Option<Value>, Failure> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let wrong = |why: String| {
        let hint = "each line is a submission: {\"kind\":\"mail.send\",\"payload\":{}}";
        Failure::usage(format!("line {number}: {why}"), hint)
    };
    let task: Value =
        serde_json::from_slice(line).map_err(|e| wrong(format!("not valid JSON: {e}")))?;
    if !task.is_object() {
        return Err(wrong("not a JSON object".to_owned()));
    }
    if fields::text(&task, "kind").is_empty() {
        return Err(wrong("`kind` is missing".to_owned()));
    }
    Ok(Some(task))
}

async fn send(client: &Client, batch: Batch) -> Result<Vec<String>, Failure> {
    // A repeat of the request must not become a second thousand of tasks.
    let key = format!("cli-{:032x}", rand::random::<u128>());
    let call = Call::post(&["v1", "tasks", "bulk"])
        .body(json!({"tasks": batch.tasks}))
        .header("idempotency-key", &key)
        .repeat(Repeat::Safe);
    let answer = client.body(call).await.map_err(|f| name_lines(f, &batch.lines))?;
    let ids = answer.get("ids").and_then(Value::as_array).into_iter().flatten();
    Ok(ids.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// The server points at `/tasks/17/kind`; people look for a line of their file.
fn name_lines(failure: Failure, lines: &[usize]) -> Failure {
    let name = |part: &str| {
        let rest = part.trim_start().strip_prefix("/tasks/")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let line = lines.get(rest[..end].parse::<usize>().ok()?)?;
        Some(format!("  line {line}: {}", rest[end..].trim_start_matches(':').trim()))
    };
    let named = |part: &str| name(part).unwrap_or_else(|| part.to_owned());
    let message = failure.message.split('\n').map(named).collect::<Vec<_>>().join("\n");
    Failure { message, ..failure }
}

fn show(out: &Out, batch: &Batch) -> Result<Vec<String>, Failure> {
    match out.format {
        Format::Table | Format::Id => {
            out.line(&format!("POST /v1/tasks/bulk ({} tasks)", batch.tasks.len()))?;
        }
        Format::Json | Format::Jsonl => batch.tasks.iter().try_for_each(|task| out.json(task))?,
    }
    Ok(Vec::new())
}

fn print(out: &Out, ids: &[String]) -> Result<(), Failure> {
    ids.iter().try_for_each(|id| match out.format {
        Format::Jsonl => out.json(&json!({"id": id})),
        _ => out.line(id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<Batch, Failure>> {
        let (give, mut take) = mpsc::channel(100);
        read_all(text.as_bytes(), &give);
        drop(give);
        std::iter::from_fn(|| take.blocking_recv()).collect()
    }

    #[test]
    fn lines_become_batches() {
        let line = "{\"kind\":\"a\"}\n";
        let batches = read(&format!("\n{}", line.repeat(2_500)));
        let sizes: Vec<usize> = batches.iter().map(|b| b.as_ref().unwrap().tasks.len()).collect();
        assert_eq!(sizes, [1_000, 1_000, 500]);
        assert_eq!(batches[1].as_ref().unwrap().lines[0], 1_002);
    }

    #[test]
    fn a_bad_line_is_named_and_its_batch_is_not_given() {
        let good = "{\"kind\":\"a\"}\n".repeat(1_200);
        for (bad, says) in [
            ("{", "not valid JSON"),
            ("[1]", "not a JSON object"),
            ("{\"payload\":{}}", "`kind`"),
            ("{\"kind\":7}", "`kind`"),
        ] {
            let batches = read(&format!("{good}{bad}\n"));
            assert_eq!(batches.len(), 2);
            assert_eq!(batches[0].as_ref().unwrap().tasks.len(), 1_000);
            let failure = batches[1].as_ref().unwrap_err();
            assert!(failure.message.starts_with("line 1201: "), "{}", failure.message);
            assert!(failure.message.contains(says), "{}", failure.message);
        }
    }

    #[test]
    fn what_was_sent_before_is_told() {
        let failure = Failure::usage("line 3: x", "h");
        assert_eq!(told(failure.clone(), 0).code, Exit::Usage);
        let partly = told(failure, 1_000);
        assert_eq!(partly.code, Exit::Partly);
        assert!(partly.message.ends_with("1000 tasks were submitted before"));
    }

    #[test]
    fn pointers_become_lines() {
        let failure = Failure::usage("2 fields are wrong\n  /tasks/1/kind: unknown", "h");
        let named = name_lines(failure, &[4, 9]);
        assert_eq!(named.message, "2 fields are wrong\n  line 9: /kind: unknown");
    }
}
