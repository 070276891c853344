//! Submitting inside a transaction of the caller: tasks and the caller's own
//! rows are committed together or not at all. The engine sees only this trait;
//! each backend implements it for its driver's transactions, beside its store.
//! Waking the engine after the commit is the engine's part.

use std::future::Future;
use std::pin::Pin;
use windlass_core::Result;
use windlass_core::clock::Now;
use windlass_core::id::NodeId;
use windlass_core::store::{Submit, Submitted};

/// A future that stays on its thread, because some drivers' transactions do.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An open transaction of the caller, on the database of the engine's store.
///
/// With the feature `sqlite` this is `rusqlite::Transaction`, on any connection
/// to the store's file. Things to know there:
///
/// - Begin it with `TransactionBehavior::Immediate`. A deferred transaction that
///   has read anything before another one wrote can never write again
///   (`SQLITE_BUSY_SNAPSHOT`), and waits for nobody: `submit` then answers
///   `Unavailable`, and the transaction has to be rolled back and begun again.
/// - SQLite has one writer at a time: until the transaction ends the engine
///   cannot write, not even renew its lease; its calls fail as `Unavailable`
///   after 5 s. Keep the transaction short, and await nothing of the engine in it.
/// - Call `store::sqlite::take_turns` once for the connection, or under load its
///   transactions wait for seconds before they can begin.
/// - The connection's `last_insert_rowid` is another one afterwards.
pub trait CallerTx {
    /// [`Capabilities::name`](windlass_core::store::Capabilities::name) of the
    /// stores this transaction can belong to.
    fn backend(&self) -> &'static str;

    /// Like [`Store::submit`](windlass_core::store::Store::submit), but written
    /// when the caller commits and forgotten when the caller rolls back. Nothing
    /// happens before the future is polled.
    ///
    /// All or nothing, and after any error the transaction goes on as if this
    /// had not been called, but for an error that says that it cannot. A taken
    /// unique key and an answered idempotency key are answers, not errors.
    ///
    /// `node` is the engine's: `Invalid` when the transaction's database does
    /// not know it, for then it is not the engine's database. `Unsupported` for
    /// children and for batches that fire a schedule. `Unavailable` when the
    /// database is busy. All other errors are those of `submit`.
    fn submit(
        &mut self,
        node: NodeId,
        batch: Submit,
        now: Now,
    ) -> LocalFuture<'_, Result<Vec<Submitted>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trait_is_object_safe() {
        fn backend_of(tx: &mut dyn CallerTx) -> &'static str {
            tx.backend()
        }
        let _ = backend_of;
    }
}
