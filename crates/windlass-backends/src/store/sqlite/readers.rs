//! A few threads that read, each with a read-only connection of its own. Reads
//! wait in one bounded line and never touch the writer.

use super::error::{closed, sql};
use super::options::SqliteOptions;
use super::rows::Lanes;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use windlass_core::{Error, Result};

/// How many reads run at once.
const READERS: usize = 2;
/// Reads that may wait; callers wait beyond that.
const WAITING_MAX: usize = 1024;

type Job = Box<dyn FnOnce(&Connection, &mut Lanes) + Send>;

/// The way to the readers.
#[derive(Clone)]
pub(super) struct Readers {
    jobs: mpsc::Sender<Job>,
}

impl Readers {
    /// Opens the connections and starts the threads.
    pub(super) fn start(options: &SqliteOptions) -> Result<(Readers, Vec<JoinHandle<()>>)> {
        let (jobs, line) = mpsc::channel::<Job>(WAITING_MAX);
        let line = Arc::new(Mutex::new(line));
        let mut threads = vec![];
        for _ in 0..READERS {
            let conn = options.connect_reader()?;
            let line = line.clone();
            let thread = std::thread::Builder::new()
                .name("windlass-read".to_owned())
                .spawn(move || run(&conn, &line))
                .map_err(|e| Error::unavailable("open", "cannot start a thread").because(e))?;
            threads.push(thread);
        }
        Ok((Readers { jobs }, threads))
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &mut Lanes) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (caller, answer) = oneshot::channel();
        let job: Job = Box::new(move |conn, lanes| {
            // One read transaction, so that several statements see one state.
            let answer = conn
                .unchecked_transaction()
                .map_err(sql("read"))
                .and_then(|_until_the_end| work(conn, lanes));
            // A caller that went away does not want to know.
            let _ = caller.send(answer);
        });
        self.jobs.send(job).await.map_err(|_| closed("read"))?;
        answer.await.map_err(|_| closed("read"))?
    }
}

fn run(conn: &Connection, line: &Mutex<mpsc::Receiver<Job>>) {
    let mut lanes = Lanes::default();
    loop {
        // One thread waits in the line, the others for the lock.
        let job = line.lock().blocking_recv();
        let Some(job) = job else { return };
        job(conn, &mut lanes);
    }
}
