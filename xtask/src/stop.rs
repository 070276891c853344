//! Why a command ends without success, and the exit code that goes with it.
//! Commands return this; only `main` turns it into a process exit, so every
//! command can be called from a test.

/// The three ways to end badly.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// The check did not pass and has already said why: exit code 1.
    Failed,
    /// The command could not do its work: exit code 1.
    Error(String),
}

impl Stop {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Stop::Usage(_) => 2,
            Stop::Failed | Stop::Error(_) => 1,
        }
    }

    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Stop::Usage(message) | Stop::Error(message) => Some(message),
            Stop::Failed => None,
        }
    }
}

/// Refuses anything after the name of a command that takes nothing.
pub(crate) fn no_arguments(command: &str, args: &[String]) -> Result<(), Stop> {
    match args.first() {
        None => Ok(()),
        Some(word) => Err(Stop::Usage(format!(
            "`cargo xtask {command}` takes no arguments, but got `{word}`"
        ))),
    }
}
