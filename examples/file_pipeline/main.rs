//! Five steps over a file, in a task that survives `kill -9`. Start it, kill it
//! while step 3 runs, start it again: steps 1 and 2 are not repeated. Each start
//! submits with the same idempotency key, so a later one finds the first one's
//! task. Files are written under another name and then renamed, so a step can be
//! repeated safely.

#![allow(clippy::print_stdout)] // an example talks to a person

mod options;

use options::Options;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::Answer;
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Process {
    input: PathBuf,
}

/// What step 1 found; a step may give anything that serde can write.
#[derive(Serialize, Deserialize)]
struct Size {
    lines: usize,
    bytes: usize,
}

impl TaskKind for Process {
    const NAME: &'static str = "file.process";
    type Output = String;

    async fn run(self, cx: Cx) -> Result<String, TaskError> {
        let say = Speaker::new(&cx);
        let output = self.input.with_extension("upper.txt");
        let size = cx
            .step("measure", || async {
                say.step(1, "measure the input");
                let text = fs::read_to_string(&self.input)?;
                Ok::<_, TaskError>(Size { lines: text.lines().count(), bytes: text.len() })
            })
            .await?;
        let before = cx
            .step("checksum", || async {
                say.step(2, "take its checksum");
                Ok::<_, TaskError>(checksum(&fs::read_to_string(&self.input)?))
            })
            .await?;
        cx.step("convert", || async {
            say.step(3, "convert it, slowly");
            cx.state::<Options>()?.in_slow_step().await;
            replace(&output, &fs::read_to_string(&self.input)?.to_uppercase())
        })
        .await?;
        cx.step("verify", || async {
            say.step(4, "verify the copy");
            let after = checksum(&fs::read_to_string(&output)?.to_lowercase());
            if after == before { Ok(()) } else { Err(fatal("the copy is not the input")) }
        })
        .await?;
        let report = self.input.with_extension("report.txt");
        cx.step("report", || async {
            say.step(5, "write the report");
            replace(&report, &format!("{} lines, {} bytes\n", size.lines, size.bytes))
        })
        .await?;
        Ok(format!("{} lines, {} bytes, checksum {before:08x}", size.lines, size.bytes))
    }
}

/// Says which step runs, and where an interrupted task goes on.
struct Speaker {
    attempt: u32,
    silent: AtomicBool,
}

impl Speaker {
    fn new(cx: &Cx) -> Self {
        Speaker { attempt: cx.attempt(), silent: AtomicBool::new(true) }
    }

    fn step(&self, number: u32, what: &str) {
        if self.silent.swap(false, Ordering::Relaxed) && self.attempt > 1 {
            println!("attempt {}: resumes at step {number}", self.attempt);
        }
        println!("step {number}: {what}");
    }
}

fn checksum(text: &str) -> u32 {
    text.bytes().fold(0, |sum, byte| sum.rotate_left(5) ^ u32::from(byte))
}

/// Whoever dies in the middle leaves the old file or the new one, never half.
fn replace(path: &Path, text: &str) -> Result<(), TaskError> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text)?;
    fs::rename(&draft, path)?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_args()?;
    let store = options.store.clone();
    let input = store.with_extension("input.txt");
    if !input.exists() {
        let lines: String = (1..=1000).map(|n| format!("this is line {n}\n")).collect();
        fs::write(&input, lines)?;
    }
    println!("process {}, store {}", std::process::id(), store.display());
    let url = format!("sqlite://{}", store.display());
    let builder = Windlass::open(&url).await?.register::<Process>().state(options);
    let engine = builder.start().await?;
    // The engine works already: an interrupted task goes on while this asks.
    let handle = engine.submit(Process { input }).idempotency_key("file-pipeline").await?;
    match handle.answer() {
        Answer::New => println!("submitted {}", handle.id()),
        _ => println!("found {} of an earlier start", handle.id()),
    }
    println!("result: {}", handle.result().await?);
    engine.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
