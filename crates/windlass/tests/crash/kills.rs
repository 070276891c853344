//! `kill -9` at random moments, over and over, while the process submits and
//! works. The seed repeats the choice of the moments; what the process is doing
//! at each of them is up to the machine.

use crate::driver::{Driver, Process, pause};
use crate::tasks::STEPS;
use crate::{Plan, say};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::{Duration, Instant};

/// Chains per round at the least; one round uses up fewer.
const CHAINS_A_ROUND: u64 = 25;

/// When to kill.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// During the start, or the recovery in it: so long after the birth.
    Early(Duration),
    /// So long after so many recorded steps.
    Busy { steps: usize, then: Duration },
}

/// Chooses moments.
///
/// Three deaths inside the same step, the last one alone on its node, are what
/// the poison rule calls proof. Kills from outside must not look like that, so a
/// hasty one is followed by one that comes when everything the dead had held is
/// through.
pub(crate) struct Moments {
    rng: StdRng,
    /// Recorded steps a round should have at most.
    busy: usize,
    /// Steps that can be held at a start.
    held: usize,
    hasty: bool,
}

impl Moments {
    pub(crate) fn new(seed: u64, busy: usize, slots: usize) -> Moments {
        let held = slots * STEPS.len();
        Moments { rng: StdRng::seed_from_u64(seed), busy, held, hasty: false }
    }

    fn next(&mut self, startup: Duration) -> Moment {
        let then = Duration::from_micros(self.rng.random_range(0..4000));
        let more = self.rng.random_range(0..self.busy);
        let early = self.rng.random_bool(0.25);
        if self.must_wait() {
            return Moment::Busy { steps: self.held + more / 4, then };
        }
        if early {
            Moment::Early(startup.mul_f64(self.rng.random_range(0.0..2.0)))
        } else {
            Moment::Busy { steps: more, then }
        }
    }

    pub(crate) fn must_wait(&self) -> bool {
        self.hasty
    }

    /// So many steps were recorded before the death.
    pub(crate) fn died(&mut self, recorded: usize) {
        self.hasty = recorded < self.held;
    }

    /// Starts and kills once.
    pub(crate) fn kill_once(&mut self, driver: &mut Driver) {
        // In some lives the periodic work is always under way.
        driver.work.poll = Duration::from_millis(if self.rng.random_bool(0.5) { 5 } else { 1000 });
        let process = driver.start();
        let moment = self.next(driver.startup);
        let process = wait(driver, process, moment);
        self.died(driver.kill(process));
    }

    /// A life long enough to bring everything through that the dead had held.
    #[cfg(feature = "crash-points")]
    pub(crate) fn kill_late(&mut self, driver: &mut Driver) {
        let process = driver.start();
        let moment = Moment::Busy { steps: self.held, then: Duration::ZERO };
        let process = wait(driver, process, moment);
        self.died(driver.kill(process));
    }
}

fn wait(driver: &mut Driver, mut process: Process, moment: Moment) -> Process {
    match moment {
        Moment::Early(time) => pause(time),
        Moment::Busy { steps, then } => {
            assert!(driver.wait_recorded(&mut process, steps), "the work ended before the kill");
            pause(then);
        }
    }
    process
}

/// The test: so many kills, then the process may finish.
pub(crate) fn run(plan: &Plan) {
    let rounds = plan.rounds;
    let chains = plan.tasks.max(CHAINS_A_ROUND * rounds as u64);
    say(&format!("kill -9: {rounds} rounds over {chains} tasks, seed {}", plan.seed));
    let began = Instant::now();
    let mut driver = Driver::new(chains);
    driver.work.step_ms = vec![0, 1, 0, 3];
    driver.work.fails = 9;
    let busy = usize::try_from(chains).expect("few") * STEPS.len() / rounds;
    let mut moments = Moments::new(plan.seed, busy, driver.work.slots);
    for _ in 0..rounds {
        moments.kill_once(&mut driver);
    }
    driver.finish();
    let counts = driver.verdict().must_hold();
    say(&format!("kill -9: {counts}; {:.1} s, seed {}", began.elapsed().as_secs_f64(), plan.seed));
    assert_eq!(counts.kills, rounds, "kills that happened");
    assert_eq!(counts.acked as u64, chains, "submissions that were answered");
    // The faults must have been where they hurt.
    assert!(counts.deaths_in_steps * 2 >= rounds, "too few kills inside steps: {counts}");
    assert!(counts.deaths_in_submits > 0, "no kill inside a submission: {counts}");
    assert!(counts.submitting_starts * 3 >= rounds, "submissions did not go on: {counts}");
    assert!(counts.lost >= rounds && counts.begun_again > 0, "nothing was recovered: {counts}");
    assert!(counts.retried > 0, "no task was retried: {counts}");
}
