//! Logs of the process: text for people on a terminal, JSON lines otherwise,
//! on stderr. Every line carries the fields of the spans it was written in, so
//! that a line from inside a handler names its task.

mod json;

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The variable that says how much is written, e.g. `debug` or `windlass=trace`.
pub const VARIABLE: &str = "WINDLASS_LOG";

/// Begins to write logs; `usual` counts unless the variable says otherwise.
/// `Err` names a variable that cannot be read; logs are written all the same.
pub fn begin(usual: &str) -> Result<(), String> {
    let said = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let read = said.as_deref().map(EnvFilter::try_new).transpose();
    let wrong = read.as_ref().err().map(|e| format!("{VARIABLE} cannot be read: {e}"));
    let filter = read.ok().flatten().unwrap_or_else(|| EnvFilter::new(usual));
    let registry = tracing_subscriber::registry().with(filter);
    // A second call in one process (tests) keeps the first.
    let _ = if std::io::stderr().is_terminal() {
        let text = fmt::layer().with_writer(std::io::stderr).with_target(false).compact();
        registry.with(text).try_init()
    } else {
        registry.with(json::Lines::to(std::io::stderr)).try_init()
    };
    wrong.map_or(Ok(()), Err)
}
