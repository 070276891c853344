//! The parent's side of the node that is measured: starts it, gives it an order
//! and waits for the answer, ends it. What is ordered is decided in `rows.rs`.

use super::orders::{Answer, Begin, Measured, Order, Usage};
use serde::Serialize;
use std::net::SocketAddr;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use windlass::{Error, Result};

/// The hidden command that is the child.
pub(crate) const COMMAND: &str = "bench-node";

#[derive(Debug)]
pub(super) struct Node {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Where its API is.
    pub(super) at: SocketAddr,
    /// The name of its store.
    pub(super) store: String,
}

impl Node {
    pub(super) async fn start(begin: &Begin) -> Result<Node> {
        let failed = |e| Error::invalid("bench", "the measured node cannot be started").because(e);
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(gone());
        };
        let answers = BufReader::new(answers).lines();
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut node = Node { child, orders, answers, at, store: String::new() };
        match node.ask(begin).await? {
            Answer::Ready { at, store } => Ok(Node { at, store, ..node }),
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn order(&mut self, order: Order) -> Result<Measured> {
        match self.ask(&order).await? {
            Answer::Done(measured) => Ok(measured),
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn usage(&mut self) -> Result<Usage> {
        match self.ask(&Order::Usage).await? {
            Answer::Usage(usage) => Ok(usage),
            other => Err(unexpected(other)),
        }
    }

    /// Lets it end in good order.
    pub(super) async fn stop(self) -> Result<()> {
        let Node { mut child, orders, .. } = self;
        drop(orders);
        let status = child.wait().await.map_err(|e| gone().because(e))?;
        if status.success() { Ok(()) } else { Err(gone()) }
    }

    async fn ask(&mut self, order: &impl Serialize) -> Result<Answer> {
        let mut line = serde_json::to_string(order).map_err(|e| gone().because(e))?;
        line.push('\n');
        self.orders.write_all(line.as_bytes()).await.map_err(|e| gone().because(e))?;
        let answer = self.answers.next_line().await.map_err(|e| gone().because(e))?;
        let answer = answer.ok_or_else(gone)?;
        serde_json::from_str(&answer).map_err(|e| gone().because(e))
    }
}

fn gone() -> Error {
    Error::invalid("bench", "the measured node broke off; try again with fewer --tasks")
}

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Failed { message } => Error::invalid("bench", message),
        other => Error::invalid("bench", format!("the measured node answered {other:?}")),
    }
}
