//! The ledger: what really happened, written by the process that may die, apart
//! from the store it is compared with. A line is on the disk before whoever
//! wrote it goes on; one that a death tore apart counts as never written. The
//! process appends, the driver reads along and adds each death, the checker
//! gets all lines.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use windlass_core::id::TaskId;

/// Closes each line, so that a torn one is known.
const CLOSE: &str = " .";

/// One try of one step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spot {
    pub(crate) task: TaskId,
    pub(crate) step: String,
    pub(crate) attempt: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The engine has started.
    Ready,
    /// The task of this number is about to be submitted.
    Asked(u64),
    /// The submission was answered with this id.
    Acked(u64, TaskId),
    /// The step's code has begun.
    Begin(Spot),
    /// The step's code has done what it does.
    End(Spot),
    /// The engine said that the step is recorded.
    Recorded(Spot),
    /// The attempt is about to fail.
    Failed(Spot),
    /// The process was asked to stop.
    Stopping,
    /// The process was seen dead, by this signal. Written by the driver.
    Died(i32),
    /// The process has ended by itself with this code. Written by the driver.
    Exited(i32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) pid: u32,
    pub(crate) fact: Fact,
}

impl Line {
    pub(crate) fn new(pid: u32, fact: Fact) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Line {
            at: u64::try_from(since.as_millis()).expect("before the year 500 million"),
            pid,
            fact,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at, self.pid)?;
        let mut spot =
            |word: &str, s: &Spot| write!(f, "{word} {} {} {}", s.task, s.step, s.attempt);
        match &self.fact {
            Fact::Begin(s) => spot("begin", s)?,
            Fact::End(s) => spot("end", s)?,
            Fact::Recorded(s) => spot("recorded", s)?,
            Fact::Failed(s) => spot("failed", s)?,
            Fact::Ready => f.write_str("ready")?,
            Fact::Asked(number) => write!(f, "asked {number}")?,
            Fact::Acked(number, id) => write!(f, "acked {number} {id}")?,
            Fact::Stopping => f.write_str("stopping")?,
            Fact::Died(signal) => write!(f, "died {signal}")?,
            Fact::Exited(code) => write!(f, "exited {code}")?,
        }
        f.write_str(CLOSE)
    }
}

/// A line as it was written; `None`: it is torn.
pub(crate) fn parse(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.strip_suffix(CLOSE)?.split(' ').collect();
    let (at, pid, words) = match words.as_slice() {
        [at, pid, words @ ..] => (at.parse().ok()?, pid.parse().ok()?, words),
        _ => return None,
    };
    let fact = match words {
        ["ready"] => Fact::Ready,
        ["stopping"] => Fact::Stopping,
        ["asked", number] => Fact::Asked(number.parse().ok()?),
        ["acked", number, id] => Fact::Acked(number.parse().ok()?, id.parse().ok()?),
        ["died", signal] => Fact::Died(signal.parse().ok()?),
        ["exited", code] => Fact::Exited(code.parse().ok()?),
        [word, task, step, attempt] => {
            let (task, attempt) = (task.parse().ok()?, attempt.parse().ok()?);
            let spot = Spot { task, step: (*step).to_owned(), attempt };
            match *word {
                "begin" => Fact::Begin(spot),
                "end" => Fact::End(spot),
                "recorded" => Fact::Recorded(spot),
                "failed" => Fact::Failed(spot),
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(Line { at, pid, fact })
}

fn append_to(path: &Path) -> File {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path);
    let file = file.as_mut().expect("the ledger");
    // What a death tore apart must not swallow the next line.
    if file.seek(SeekFrom::End(-1)).is_ok() {
        let mut last = [0];
        file.read_exact(&mut last).expect("the ledger's last byte");
        if last != [b'\n'] {
            file.write_all(b"\n").expect("an end of line");
        }
    }
    file.try_clone().expect("the ledger")
}

/// Adds one line from outside, while no process writes.
pub(crate) fn add(path: &Path, line: &Line) {
    let mut file = append_to(path);
    writeln!(file, "{line}").and_then(|()| file.sync_data()).expect("a line in the ledger");
}

type Waiting = (String, oneshot::Sender<()>);

/// The writing end. Lines that come at once share a sync.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    lines: mpsc::Sender<Waiting>,
}

impl Ledger {
    pub(crate) fn open(path: &Path) -> Ledger {
        let mut file = append_to(path);
        let (lines, waiting) = mpsc::channel::<Waiting>();
        std::thread::spawn(move || {
            while let Ok(first) = waiting.recv() {
                let group: Vec<Waiting> =
                    std::iter::once(first).chain(waiting.try_iter()).collect();
                let text: String = group.iter().map(|(line, _)| line.as_str()).collect();
                file.write_all(text.as_bytes()).expect("a line in the ledger");
                file.sync_data().expect("a synced ledger");
                // An attempt that was aborted meanwhile does not wait.
                for (_, done) in group {
                    let _ = done.send(());
                }
            }
        });
        Ledger { lines }
    }

    /// Ready when the line is on the disk.
    pub(crate) async fn write(&self, fact: Fact) {
        let (done, synced) = oneshot::channel();
        let line = Line::new(std::process::id(), fact);
        self.lines.send((format!("{line}\n"), done)).expect("the ledger's thread");
        synced.await.expect("the ledger's thread");
    }
}

/// The reading end: follows the file while it grows.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    read: u64,
    rest: Vec<u8>,
    pub(crate) lines: Vec<Line>,
    pub(crate) torn: usize,
}

impl Tail {
    pub(crate) fn follow(&mut self, path: &Path) {
        // Before the first start there is none.
        let Ok(mut file) = File::open(path) else { return };
        file.seek(SeekFrom::Start(self.read)).expect("the ledger");
        let new = file.read_to_end(&mut self.rest).expect("the ledger");
        self.read += new as u64;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        for line in String::from_utf8_lossy(&whole).lines() {
            match parse(line) {
                Some(line) => self.lines.push(line),
                None => self.torn += 1,
            }
        }
    }
}

/// Everything in a ledger that nobody writes any more.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    let mut tail = Tail::default();
    tail.follow(path);
    tail.lines
}

pub(crate) fn lines_read_as_they_were_written() {
    let (task, step) = (TaskId::from_key(77), "store".to_owned());
    let spot = Spot { task, step, attempt: 3 };
    let facts = [
        Fact::Ready,
        Fact::Asked(5),
        Fact::Acked(5, task),
        Fact::Begin(spot.clone()),
        Fact::End(spot.clone()),
        Fact::Recorded(spot.clone()),
        Fact::Failed(spot),
        Fact::Stopping,
        Fact::Died(9),
        Fact::Exited(0),
    ];
    for fact in facts {
        let line = Line::new(42, fact);
        let text = line.to_string();
        assert_eq!(parse(&text), Some(line));
        for cut in 0..text.len() {
            assert_eq!(parse(&text[..cut]), None, "torn after {cut}: {text}");
        }
    }
}

pub(crate) fn a_torn_line_does_not_swallow_the_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("ledger");
    std::fs::write(&path, "1 2 ready .\n1 2 asked 5").expect("a ledger");
    let line = Line::new(7, Fact::Died(9));
    add(&path, &line);
    let mut tail = Tail::default();
    tail.follow(&path);
    assert_eq!((tail.lines.len(), tail.torn), (2, 1));
    assert_eq!(tail.lines[1], line);
}
