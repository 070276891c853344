//! Random histories of a thousand operations each, hundreds of them, compared
//! with the plain-data model; the same behind a store that fails before or
//! after its commits. A failing seed is printed and can be run alone:
//! `WINDLASS_SEED=17 cargo test -p windlass-backends --all-features --test histories`.
#![allow(clippy::expect_used, clippy::panic)] // a test tells by panicking

mod shared;

use shared::{Memory, Sqlite};
use windlass_backends::store::sqlite::Synchronous;
use windlass_conformance::harness::Backend;
use windlass_conformance::history::{
    EXPECTED, EXPECTED_FAULTS, Report, run_history, run_with_faults,
};

const OPS: usize = 1000;

/// SQLite without waiting for the disk: histories test rules, not power cuts.
fn quick_sqlite() -> Sqlite {
    Sqlite { synchronous: Synchronous::Normal, ..Sqlite::default() }
}

#[derive(Clone, Copy)]
enum Weather {
    Calm,
    Faults,
}

fn run(backend: &dyn Backend, seeds: std::ops::Range<u64>, weather: Weather) -> Report {
    let chosen = std::env::var("WINDLASS_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let seeds = chosen.map_or(seeds, |seed| seed..seed + 1);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut sum = Report::default();
    for seed in seeds {
        let report = runtime.block_on(async {
            let bed = backend.fresh().await.expect("a fresh store");
            match weather {
                Weather::Calm => run_history(bed.store.clone(), seed, OPS).await,
                Weather::Faults => run_with_faults(bed.store.clone(), seed, OPS).await,
            }
        });
        match report {
            Ok(report) => sum.merge(&report),
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
    }
    sum
}

/// Fails when something the histories mean to prove never happened.
fn saw_everything(report: &Report, weather: Weather) {
    if std::env::var("WINDLASS_SEED").is_ok() {
        return;
    }
    assert_eq!(report.missing(EXPECTED), Vec::<&str>::new(), "{report}");
    if matches!(weather, Weather::Faults) {
        assert_eq!(report.missing(EXPECTED_FAULTS), Vec::<&str>::new(), "{report}");
    }
}

macro_rules! histories {
    ($($name:ident = $backend:expr, $seeds:expr, $weather:ident;)+) => {
        $(#[test]
        fn $name() {
            let report = run(&$backend, $seeds, Weather::$weather);
            saw_everything(&report, Weather::$weather);
        })+
    };
}

histories! {
    on_memory_seeds_0_to_199 = Memory::default(), 0..200, Calm;
    on_memory_with_faults_seeds_1000_to_1099 = Memory::default(), 1000..1100, Faults;
    on_sqlite_seeds_0_to_99 = quick_sqlite(), 0..100, Calm;
    on_sqlite_seeds_100_to_199 = quick_sqlite(), 100..200, Calm;
    on_sqlite_with_faults_seeds_1000_to_1099 = quick_sqlite(), 1000..1100, Faults;
}
