//! `windlass dev --crash-demo`: a real SIGKILL in the middle of a task, and the
//! task going on where it was. It starts a node as a child process, watches it
//! through the API like anybody else, kills it in step three, and starts it
//! again on the same file.

use super::failure::{Exit, Failure};
use super::global::Global;

pub(super) async fn run(_global: &Global) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "the demo is not built yet", "use a later version"))
}
