//! Many hands at once, on both handles of the store: each task goes to one, each
//! key to one, each lease ends once, and a reader of the feed misses nothing.

use super::children::family;
use crate::harness::make::{SECOND, done, fails, lease, step, steps};
use crate::harness::world::{LEASE, ann, ids};
use crate::harness::{Shape, World};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::children::{Policy, Then};
use windlass_core::control::{Changed, TaskChange};
use windlass_core::error::{Code, ErrorKind};
use windlass_core::event::{Event, Position};
use windlass_core::id::TaskId;
use windlass_core::state::State;
use windlass_core::store::{
    Change, Claim, ClaimedBy, Job, OutboxOp, Store, Submitted, Write,
};
