//! What one attempt knows about its steps: which are recorded, which names were
//! used, which version comes next. Filled from the checkpoint when the attempt
//! begins; `Run::save` adds to it when the store has written a step.

use crate::said::TaskError;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use windlass_core::checkpoint::{Checkpoint, Version};
use windlass_core::json::Json;
use windlass_core::outcome::{Class, StepRef};

/// Longest name of a step.
const NAME_MAX: usize = windlass_core::task::NAME_MAX;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    inner: Mutex<Pages>,
}

#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Of the latest write that was sent.
    pub(crate) version: Version,
    /// Place and output.
    recorded: HashMap<String, (u32, Option<Json>)>,
    used: HashSet<String>,
    /// Steps that are finished: the index of the next.
    finished: u32,
    current: Option<StepRef>,
}

impl Journal {
    /// Starts from the first `keep` finished steps of a checkpoint.
    pub(crate) fn resume(&self, checkpoint: &Checkpoint, keep: usize) {
        let mut pages = self.inner.lock();
        pages.version = checkpoint.version;
        for entry in checkpoint.finished().take(keep) {
            let page = (pages.finished, entry.record.output.clone());
            pages.recorded.insert(entry.record.name.clone(), page);
            pages.finished += 1;
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pages> {
        self.inner.lock()
    }

    /// Enters a step: its place, and what it gave if it is recorded.
    pub(crate) fn enter(&self, name: String) -> Result<(StepRef, Option<Option<Json>>), TaskError> {
        if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
            let shape = "use 1 to 200 characters without control characters";
            let message = format!("`{name:.40}` is not the name of a step; {shape}");
            return Err(TaskError::class(Class::Fatal, message));
        }
        let mut pages = self.inner.lock();
        if !pages.used.insert(name.clone()) {
            let message = format!("step `{name}` is used twice in one run; give each its own name");
            return Err(TaskError::class(Class::Fatal, message));
        }
        if let Some((index, output)) = pages.recorded.get(&name).cloned() {
            return Ok((StepRef { name, index }, Some(output)));
        }
        let step = StepRef { name, index: pages.finished };
        pages.current = Some(step.clone());
        Ok((step, None))
    }

    /// The step was left, with or without a value.
    pub(crate) fn leave(&self, step: &StepRef) {
        let mut pages = self.inner.lock();
        if pages.current.as_ref() == Some(step) {
            pages.current = None;
        }
    }

    /// The step that is being done.
    pub(crate) fn current(&self) -> Option<StepRef> {
        self.inner.lock().current.clone()
    }
}

impl Pages {
    pub(crate) fn next_version(&mut self) -> Version {
        self.version = Version(self.version.0 + 1);
        self.version
    }

    /// A finished step is in the store.
    pub(crate) fn finish(&mut self) {
        self.finished += 1;
    }
}
