//! Asks a person before something that is hard to take back. Without a terminal
//! there is nobody to ask, and the command fails instead of guessing. What is
//! about to happen was shown before.

use super::failure::{Exit, Failure};
use super::global::Global;
use std::io::{self, IsTerminal, Write};

/// Ends well when `--yes` was given or the person agrees.
pub(crate) async fn confirm(global: &Global, question: &str) -> Result<(), Failure> {
    if global.yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let message = format!("{question} needs confirmation, and there is no terminal to ask on");
        return Err(Failure::usage(message, "pass --yes"));
    }
    let prompt = format!("{question}? [y/N] ");
    // On a thread of its own, so that an interrupt is still heard.
    let answer = tokio::task::spawn_blocking(move || ask(&prompt)).await.unwrap_or_default();
    if matches!(answer.trim(), "y" | "Y" | "yes" | "Yes") {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, "not confirmed; nothing was changed", "answer y, or pass --yes"))
}

fn ask(prompt: &str) -> String {
    let mut answer = String::new();
    let _ = write!(io::stderr().lock(), "{prompt}");
    let _ = io::stdin().read_line(&mut answer);
    answer
}
