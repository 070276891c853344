//! The service that fails: it counts its calls and answers by the page's name.
//! Everything it says is fixed, so the lesson goes the same way each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Answer {
    Body(String),
    Down,
    Busy(Duration),
    NoSuchPage,
}

#[derive(Default)]
pub(crate) struct Service {
    /// Calls so far of each page.
    calls: Mutex<HashMap<String, u32>>,
}

impl Service {
    pub(crate) fn get(&self, page: &str) -> Answer {
        let call = self.count(page);
        match (page, call) {
            ("stumbles", 1) | ("sleeps", 1..=3) => Answer::Down,
            ("busy", 1) => Answer::Busy(Duration::from_millis(300)),
            ("missing", 1) => Answer::NoSuchPage,
            _ => Answer::Body(format!("the text of `{page}`")),
        }
    }

    fn count(&self, page: &str) -> u32 {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let count = calls.entry(page.to_owned()).or_default();
        *count += 1;
        *count
    }
}
