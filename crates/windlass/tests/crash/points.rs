//! The process dies by itself at each named point of the data path, several
//! times at random visits. The test fails when a point was not reached: then the
//! process would have ended in another way.

use crate::checker::ABORTED;
use crate::driver::{Driver, recorded};
use crate::kills::Moments;
use crate::{Plan, say};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Instant;
use windlass::CRASH_POINTS;

/// Chains per death; one uses up fewer, those to recover from it included.
const CHAINS_A_DEATH: usize = 40;

/// The latest visit at which to die: points that are passed once by a batch, a
/// start or an attempt are passed at different rates.
fn latest_visit(point: &str) -> u32 {
    match point {
        "join.answered" => 1,
        "submit.committed" | "claim.answered" => 10,
        point if point.starts_with("record.") => 12,
        _ => 40,
    }
}

pub(crate) fn run(plan: &Plan) {
    let deaths = CRASH_POINTS.len() * plan.points;
    say(&format!("crash points: {} x {}, seed {}", CRASH_POINTS.len(), plan.points, plan.seed));
    let began = Instant::now();
    let mut driver = Driver::new((deaths * CHAINS_A_DEATH) as u64);
    driver.work.fails = 9;
    let mut moments = Moments::new(plan.seed, 1, driver.work.slots);
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut order: Vec<&str> =
        CRASH_POINTS.iter().flat_map(|point| std::iter::repeat_n(*point, plan.points)).collect();
    order.shuffle(&mut rng);
    let mut reached: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kills = 0;
    for point in order {
        if moments.must_wait() {
            moments.kill_late(&mut driver);
            kills += 1;
        }
        let visit = rng.random_range(1..=latest_visit(point));
        let process = driver.start_dying_at(Some(&format!("{point}:{visit}")));
        let (status, lines) = driver.end_of(process);
        assert_eq!(status.signal(), Some(ABORTED), "`{point}` visit {visit} was not reached");
        *reached.entry(point).or_default() += 1;
        moments.died(recorded(&lines));
    }
    driver.finish();
    let counts = driver.verdict().must_hold();
    let took = began.elapsed().as_secs_f64();
    say(&format!("crash points: {reached:?}; {counts}; {took:.1} s, seed {}", plan.seed));
    assert!(CRASH_POINTS.iter().all(|point| reached.get(point) == Some(&plan.points)));
    assert_eq!((counts.aborts, counts.kills), (deaths, kills), "deaths that happened");
    assert!(counts.lost > 0 && counts.begun_again > 0, "nothing was recovered: {counts}");
}
