//! The words, rules and contracts of Windlass. A task is a row; a node may
//! touch it only while it holds a lease with a fencing token; user code returns
//! an outcome; the pure code here turns outcome, policy and time into what is
//! written. This crate does no I/O, has no async runtime and never asks what
//! time it is.
//!
//! In reading order: [`task`], [`state`], [`standing`], [`lease`],
//! [`checkpoint`], [`outcome`], [`settle`], [`retry`], [`control`],
//! [`children`], [`schedule`], [`access`], [`event`], [`filter`], [`batch`], [`store`],
//! [`read`]; then what is told to people: [`why`], [`history`], [`cause`].

pub mod access;
pub mod batch;
pub mod cause;
pub mod checkpoint;
pub mod children;
pub mod clock;
pub mod control;
pub mod error;
pub mod event;
pub mod filter;
pub mod hash;
pub mod history;
pub mod id;
pub mod json;
pub mod lease;
pub mod limits;
pub mod outcome;
pub mod read;
pub mod retry;
pub mod schedule;
pub mod settle;
pub mod standing;
pub mod state;
pub mod store;
pub mod task;
pub mod why;

pub use error::{Code, Error, ErrorKind, Result};
