//! The pipes of a handler process: the document goes in, output, log and progress
//! come out, all at once, so that neither side waits for the other. What was
//! heard is kept within bounds and can be read at any time, also when a pipe
//! never ends. It judges nothing.

use super::tail::{Line, Lines, Tail, clean};
use crate::redact::Hidden;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Notify;
use windlass::{Json, Progress, StepCall, StepLog};

/// Most bytes of standard output.
pub(crate) const OUTPUT_MAX: usize = 1024 * 1024;
/// How much of the end of the log is kept.
const LOG_MAX: usize = 16 * 1024;
/// Longest line of the log that is passed on.
const LOG_LINE_MAX: usize = 4 * 1024;
/// Longest line of progress.
const PROGRESS_LINE_MAX: usize = 64 * 1024;

/// The ends that the node holds.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    pub(crate) progress: pipe::Receiver,
}

/// What a process has said so far. When it is dropped, however that came, the end
/// of the log goes to the step.
#[derive(Debug)]
pub(crate) struct Heard {
    output: Mutex<Vec<u8>>,
    flooded: Notify,
    log: Mutex<Tail>,
    kept: StepLog,
    /// What must not stand in the log.
    hidden: Hidden,
}

impl Heard {
    pub(crate) fn new(kept: StepLog, hidden: Hidden) -> Heard {
        let log = Mutex::new(Tail::new(LOG_MAX));
        Heard { output: Mutex::default(), flooded: Notify::new(), log, kept, hidden }
    }

    /// Ready when there is more output than is taken.
    pub(crate) async fn flooded(&self) {
        self.flooded.notified().await;
    }

    pub(crate) fn is_flooded(&self) -> bool {
        self.output.lock().len() > OUTPUT_MAX
    }

    pub(crate) fn take_output(&self) -> Vec<u8> {
        std::mem::take(&mut self.output.lock())
    }

    /// The end of the log.
    pub(crate) fn log(&self) -> String {
        self.hidden.scrub(&self.log.lock().text()).into_owned()
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let log = self.log();
        if !log.is_empty() {
            self.kept.set(log);
        }
    }
}

/// Serves all pipes until each has ended.
pub(crate) async fn serve(pipes: Pipes, document: Vec<u8>, call: &StepCall, heard: &Heard) {
    let Pipes { stdin, stdout, stderr, progress } = pipes;
    tokio::join!(
        feed(stdin, document),
        collect(stdout, heard),
        follow(stderr, &call.step, heard),
        hear_progress(progress, call, heard),
    );
}

/// A process that does not want to know may leave the document unread.
async fn feed(stdin: Option<ChildStdin>, document: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&document).await;
    }
}

async fn collect(stdout: Option<ChildStdout>, heard: &Heard) {
    read(stdout, |bytes| {
        let mut output = heard.output.lock();
        // One byte too many says that there were more.
        let room = OUTPUT_MAX + 1 - output.len();
        output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if output.len() > OUTPUT_MAX {
            heard.flooded.notify_one();
        }
    })
    .await;
}

async fn follow(stderr: Option<ChildStderr>, step: &str, heard: &Heard) {
    let mut lines = Lines::new(LOG_LINE_MAX);
    let pass_on = |line: Line<'_>| {
        let (text, more) = (clean(line.bytes), if line.is_cut { "…" } else { "" });
        let text = heard.hidden.scrub(&text);
        tracing::info!(target: "windlass::handler", step, "{text}{more}");
    };
    read(stderr, |bytes| {
        heard.log.lock().push(bytes);
        lines.push(bytes, pass_on);
    })
    .await;
    lines.finish(pass_on);
}

#[derive(Deserialize)]
struct Said {
    progress: SaidProgress,
}

#[derive(Deserialize)]
struct SaidProgress {
    #[serde(default)]
    done: u64,
    #[serde(default)]
    total: u64,
    #[serde(default)]
    note: Option<String>,
    #[serde(default)]
    data: Option<Json>,
}

async fn hear_progress(progress: pipe::Receiver, call: &StepCall, heard: &Heard) {
    let mut lines = Lines::new(PROGRESS_LINE_MAX);
    let mut has_warned = false;
    let mut hear = |line: Line<'_>| match read_progress(&line) {
        Ok(Some(Progress { done, total, note, data })) => {
            let note = note.map(|note| heard.hidden.scrub(&note).into_owned());
            call.cx.progress_with(Progress { done, total, note, data });
        }
        Ok(None) => {}
        Err(error) if !has_warned => {
            has_warned = true;
            let shape = r#"{"progress":{"done":1,"total":2}}"#;
            let step = &call.step;
            tracing::warn!(step, error, "a line on descriptor 3 is no progress; write {shape}");
        }
        Err(_) => {}
    };
    read(Some(progress), |bytes| lines.push(bytes, &mut hear)).await;
    lines.finish(&mut hear);
}

/// `None`: an empty line.
fn read_progress(line: &Line<'_>) -> Result<Option<Progress>, String> {
    if line.is_cut {
        return Err(format!("the line is longer than {PROGRESS_LINE_MAX} bytes"));
    }
    if line.bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let said: Said = serde_json::from_slice(line.bytes).map_err(|e| e.to_string())?;
    let SaidProgress { done, total, note, data } = said.progress;
    Ok(Some(Progress { done, total, note, data: data.filter(|data| !data.is_null()) }))
}

/// Reads until the other side closes. A pipe that breaks has ended too.
async fn read(from: Option<impl AsyncRead + Unpin>, mut heard: impl FnMut(&[u8])) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        heard(&buffer[..n]);
    }
}
