//! Proof that the suite can fail: each guard of a store is broken on purpose,
//! one at a time, and the suite or the model must notice. A guard whose loss
//! nobody sees would be a guard nobody tests.
#![allow(clippy::expect_used, clippy::panic)] // a test tells by panicking
#![allow(clippy::print_stdout)] // shows who noticed

mod shared;

use shared::{Memory, Sqlite};
use std::sync::{Arc, Once};
use windlass_backends::store::guards::{Broken, Guards};
use windlass_backends::store::sqlite::Synchronous;
use windlass_conformance::harness::{Backend, Ran};
use windlass_conformance::history::run_history;
use windlass_conformance::store::all_cases;

/// The cases that fail on this backend.
fn failing(backend: &Arc<dyn Backend>) -> Vec<String> {
    let broken = |case: &windlass_conformance::harness::Case| {
        matches!(case.try_on(backend.clone()), Ran::Failed(_))
    };
    all_cases().iter().filter(|c| broken(c)).map(|c| format!("{}::{}", c.module, c.name)).collect()
}

/// Whether a few random histories part from the model.
fn model_notices(backend: &Arc<dyn Backend>) -> bool {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    (0..5).any(|seed| {
        runtime.block_on(async {
            let bed = backend.fresh().await.expect("a fresh store");
            run_history(bed.store.clone(), seed, 1000).await.is_err()
        })
    })
}

/// Broken promises are expected here: only this file's own panics are shown.
fn hide_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.location().is_some_and(|at| at.file().ends_with("sabotage.rs")) {
                usual(info);
            }
        }));
    });
}

fn check(name: &str, make: impl Fn(Guards) -> Arc<dyn Backend>) {
    hide_expected_panics();
    let sound = failing(&make(Guards::default()));
    let seen: Vec<(Broken, Vec<String>, bool)> = Broken::ALL
        .into_iter()
        .map(|broken| {
            let backend = make(Guards::without(broken));
            (broken, failing(&backend), model_notices(&backend))
        })
        .collect();
    assert_eq!(sound, Vec::<String>::new(), "with every guard on, nothing fails");
    for (broken, cases, model) in seen {
        println!("{name} without {broken:?}: {} cases fail, model notices: {model}", cases.len());
        assert!(!cases.is_empty() || model, "{name}: nobody misses the {broken:?} guard");
    }
}

#[test]
fn a_memory_store_without_a_guard_is_found_out() {
    check("memory", |guards| Arc::new(Memory { guards }));
}

#[test]
fn a_sqlite_store_without_a_guard_is_found_out() {
    let synchronous = Synchronous::Normal;
    check("sqlite", |guards| Arc::new(Sqlite { guards, synchronous }));
}
