//! Walks through a list of the API page by page. It hides cursors from the
//! commands and keeps every request within the server's limit.

use super::client::{Call, Client};
use super::failure::Failure;
use super::fields;
use serde_json::Value;

/// Most items one request may ask for.
const PAGE: usize = 500;

/// How much of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    AtMost(usize),
    All,
}

/// A walk that can go on later.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    client: &'a Client,
    call: Call,
    cursor: Option<String>,
    ended: bool,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(client: &'a Client, call: Call) -> Self {
        Pages { client, call, cursor: None, ended: false }
    }

    /// Whether the last page was read.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Up to `limit` more items; none when the list has ended.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Value>, Failure> {
        if self.ended || limit == 0 {
            return Ok(Vec::new());
        }
        let mut call = self.call.clone().query("limit", limit.min(PAGE).to_string());
        if let Some(cursor) = &self.cursor {
            call = call.query("cursor", cursor.clone());
        }
        let answer = self.client.body(call).await?;
        self.cursor = answer.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
        self.ended = self.cursor.is_none();
        Ok(fields::items(&answer).to_vec())
    }

    /// As many items as are wanted.
    pub(crate) async fn collect(&mut self, wanted: Wanted) -> Result<Vec<Value>, Failure> {
        let mut found = Vec::new();
        loop {
            let left = match wanted {
                Wanted::AtMost(most) => most.saturating_sub(found.len()),
                Wanted::All => PAGE,
            };
            if left == 0 || self.ended {
                return Ok(found);
            }
            found.extend(self.next(left).await?);
        }
    }
}
