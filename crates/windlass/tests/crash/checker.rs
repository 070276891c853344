//! Compares the ledger with the store. It gets both as plain data and gives a
//! list of what is wrong, with counts of what happened, so that a test can tell
//! a promise that held from one that was never put to the test. The second half
//! hands it doctored ledgers and stores: it must notice each of them.

use crate::ledger::{Fact, Line, Spot};
use crate::stored::{Stored, StoredTask};
use crate::tasks::{STEPS, value_of};
use crate::worker::key_of;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use windlass_core::id::TaskId;
use windlass_core::state::State;
use windlass_core::store::AttemptEnd;

/// SIGKILL.
pub(crate) const KILLED: i32 = 9;
/// SIGABRT.
pub(crate) const ABORTED: i32 = 6;

/// Problems printed at most.
const LISTED: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) problems: Vec<String>,
    pub(crate) counts: Counts,
}

/// What happened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) starts: usize,
    /// Deaths by signal 9 and 6.
    pub(crate) kills: usize,
    pub(crate) aborts: usize,
    /// Deaths while at least one step was under way.
    pub(crate) deaths_in_steps: usize,
    /// Deaths while at least one submission was under way.
    pub(crate) deaths_in_submits: usize,
    /// Starts in which submissions were answered.
    pub(crate) submitting_starts: usize,
    pub(crate) acked: usize,
    /// Submissions whose answer never came; they were made again.
    pub(crate) unanswered: usize,
    pub(crate) chains: usize,
    pub(crate) steps: usize,
    /// Steps that had to begin more than once, none of them recorded before.
    pub(crate) begun_again: usize,
    /// Attempts lost with their node, and given back by a node that stopped.
    pub(crate) lost: usize,
    pub(crate) released: usize,
    /// Attempts that failed and were tried again.
    pub(crate) retried: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} starts, {} kills, {} aborts; {} deaths inside steps, {} inside submissions; \
             {} submissions answered ({} not), {} tasks, {} steps; {} attempts lost, {} released, \
             {} retried, {} unrecorded steps begun again",
            self.starts,
            self.kills,
            self.aborts,
            self.deaths_in_steps,
            self.deaths_in_submits,
            self.acked,
            self.unanswered,
            self.chains,
            self.steps,
            self.lost,
            self.released,
            self.retried,
            self.begun_again,
        )
    }
}

impl Verdict {
    /// Fails the test when anything is wrong.
    pub(crate) fn must_hold(self) -> Counts {
        let listed: Vec<&str> = self.problems.iter().take(LISTED).map(String::as_str).collect();
        let count = self.problems.len();
        assert!(count == 0, "{count} promises broken:\n  {}\n{}", listed.join("\n  "), self.counts);
        self.counts
    }
}

/// Everything that was promised about chains, after all of them were worked on.
pub(crate) fn check(lines: &[Line], stored: &Stored) -> Verdict {
    let mut verdict = check_so_far(lines, stored);
    for (id, task) in stored.of_kind("chain") {
        check_ended(*id, task, &mut verdict.problems);
    }
    check_ran(lines, stored, &mut verdict.problems);
    verdict
}

/// What must hold at any time: nothing acknowledged is lost, nothing recorded
/// runs again, and each attempt goes on where the one before had come to.
pub(crate) fn check_so_far(lines: &[Line], stored: &Stored) -> Verdict {
    let mut verdict = Verdict { counts: count(lines, stored), problems: vec![] };
    check_submissions(lines, stored, &mut verdict.problems);
    check_ledger(lines, &mut verdict.problems);
    check_begins(lines, stored, &mut verdict.problems);
    verdict
}

fn check_submissions(lines: &[Line], stored: &Stored, problems: &mut Vec<String>) {
    let mut asked = HashSet::new();
    for line in lines {
        match &line.fact {
            Fact::Asked(number) => {
                asked.insert(*number);
            }
            Fact::Acked(number, id) => match stored.tasks.get(id) {
                None => problems.push(format!("{id} was acknowledged and is lost")),
                Some(task) if task.number != Some(*number) => {
                    problems.push(format!("{id} is not the chain {number} it was acknowledged as"));
                }
                Some(_) => {}
            },
            _ => {}
        }
    }
    let mut keyed: BTreeMap<u64, TaskId> = BTreeMap::new();
    for (id, task) in stored.of_kind("chain") {
        let Some(number) = task.number.filter(|number| asked.contains(number)) else {
            problems.push(format!("{id} is in the store, and nobody asked for it"));
            continue;
        };
        if key_of(number).is_some()
            && let Some(other) = keyed.insert(number, *id)
        {
            problems.push(format!("{other} and {id} came of one idempotency key"));
        }
    }
}

/// By the ledger alone: what the engine called recorded never begins again.
fn check_ledger(lines: &[Line], problems: &mut Vec<String>) {
    let mut recorded: HashSet<(TaskId, &str)> = HashSet::new();
    for line in lines {
        match &line.fact {
            Fact::Recorded(spot) => {
                recorded.insert((spot.task, &spot.step));
            }
            Fact::Begin(spot) if recorded.contains(&(spot.task, spot.step.as_str())) => {
                problems.push(format!("{} was recorded and ran again", shown(spot)));
            }
            _ => {}
        }
    }
}

/// By the store as well: a step runs only in an attempt the store knows, after
/// the steps before it were recorded, and never after it was recorded itself.
fn check_begins(lines: &[Line], stored: &Stored, problems: &mut Vec<String>) {
    for line in lines {
        let (Fact::Begin(spot) | Fact::Recorded(spot)) = &line.fact else { continue };
        let Some(task) = stored.tasks.get(&spot.task) else {
            problems.push(format!("{} ran, and its task is not in the store", shown(spot)));
            continue;
        };
        if task.attempts.iter().all(|a| a.attempt != spot.attempt) {
            problems.push(format!("{} ran in an attempt the store has not", shown(spot)));
        }
        let recorded = task.recorded_in(&spot.step);
        if let Fact::Recorded(_) = &line.fact {
            if recorded != Some(spot.attempt) {
                problems.push(format!("{} was recorded, not in the store", shown(spot)));
            }
            continue;
        }
        if recorded.is_some_and(|attempt| attempt < spot.attempt) {
            problems.push(format!("{} is recorded in an earlier attempt", shown(spot)));
        }
        let before = STEPS.iter().take_while(|step| **step != spot.step);
        for step in before.filter(|_| task.kind == "chain") {
            if task.recorded_in(step).is_none_or(|attempt| attempt > spot.attempt) {
                problems.push(format!("{} began before `{step}` was recorded", shown(spot)));
            }
        }
    }
}

/// Completed, each step recorded once and in order, with the right output.
fn check_ended(id: TaskId, task: &StoredTask, problems: &mut Vec<String>) {
    if task.state != State::Completed {
        let why = task.reason.map_or_else(String::new, |reason| format!(" ({})", reason.as_str()));
        problems.push(format!("{id} is {}{why} in the end", task.state));
    }
    let done: Vec<&str> = task.attempts.iter().flat_map(|a| &a.done).map(String::as_str).collect();
    if done != STEPS {
        problems.push(format!("{id} has recorded {done:?}"));
    }
    if task.value != task.number.map(value_of) {
        problems.push(format!("{id} gave {:?}, its number is {:?}", task.value, task.number));
    }
}

/// What the store has as recorded did run: it began and ended in that attempt.
fn check_ran(lines: &[Line], stored: &Stored, problems: &mut Vec<String>) {
    let ended: HashSet<&Spot> = lines
        .iter()
        .filter_map(|line| match &line.fact {
            Fact::End(spot) => Some(spot),
            _ => None,
        })
        .collect();
    for (id, task) in stored.of_kind("chain") {
        for attempt in &task.attempts {
            for step in &attempt.done {
                let spot = Spot { task: *id, step: step.clone(), attempt: attempt.attempt };
                if !ended.contains(&spot) {
                    problems.push(format!("{} is recorded and never ran", shown(&spot)));
                }
            }
        }
    }
}

fn shown(spot: &Spot) -> String {
    format!("step `{}` of {} in attempt {}", spot.step, spot.task, spot.attempt)
}

fn count(lines: &[Line], stored: &Stored) -> Counts {
    let mut counts = Counts::default();
    let mut begun: HashMap<(TaskId, &str), usize> = HashMap::new();
    let mut under_way: BTreeSet<&Spot> = BTreeSet::new();
    let (mut asked, mut acked) = (0_usize, BTreeSet::new());
    let (mut open, mut submits) = (0_usize, false);
    for line in lines {
        match &line.fact {
            Fact::Ready => counts.starts += 1,
            Fact::Asked(_) => {
                asked += 1;
                open += 1;
            }
            Fact::Acked(number, _) => {
                acked.insert(*number);
                open = open.saturating_sub(1);
                submits = true;
            }
            Fact::Begin(spot) => {
                *begun.entry((spot.task, &spot.step)).or_default() += 1;
                under_way.insert(spot);
            }
            Fact::Recorded(spot) => {
                under_way.remove(spot);
            }
            Fact::Died(signal) => {
                counts.kills += usize::from(*signal == KILLED);
                counts.aborts += usize::from(*signal == ABORTED);
                counts.deaths_in_steps += usize::from(!under_way.is_empty());
                counts.deaths_in_submits += usize::from(open > 0);
            }
            Fact::End(_) | Fact::Failed(_) | Fact::Stopping | Fact::Exited(_) => {}
        }
        if let Fact::Died(_) | Fact::Exited(_) = &line.fact {
            counts.submitting_starts += usize::from(submits);
            (open, submits) = (0, false);
            under_way.clear();
        }
    }
    let ends = |wanted: AttemptEnd| stored.attempts().filter(|a| a.end == Some(wanted)).count();
    counts.acked = acked.len();
    counts.unanswered = asked.saturating_sub(acked.len());
    counts.chains = stored.of_kind("chain").count();
    counts.steps = stored.attempts().map(|a| a.done.len()).sum();
    counts.begun_again = begun.values().filter(|n| **n > 1).count();
    counts.lost = ends(AttemptEnd::Lost);
    counts.retried = ends(AttemptEnd::Settled(State::Retrying));
    counts.released = ends(AttemptEnd::Settled(State::Queued)) + ends(AttemptEnd::GivenBack);
    counts
}

pub(crate) mod doctored {
    //! Ledgers and stores with one thing wrong. Each starts from the same good
    //! one, which must pass, so that what is noticed is what was doctored.

    use super::{Verdict, check};
    use crate::ledger::{Fact, Line, Spot};
    use crate::stored::{Stored, StoredTask, Try};
    use crate::tasks::{STEPS, value_of};
    use std::collections::BTreeMap;
    use windlass_core::id::TaskId;
    use windlass_core::state::State;
    use windlass_core::store::AttemptEnd;

    const ID: TaskId = TaskId::from_key(7);
    const NUMBER: u64 = 4;

    fn spot(step: &str, attempt: u32) -> Spot {
        Spot { task: ID, step: step.to_owned(), attempt }
    }

    fn line(fact: Fact) -> Line {
        Line::new(1, fact)
    }

    /// Killed inside its second step, resumed there, completed.
    fn good() -> (Vec<Line>, Stored) {
        let mut facts = vec![Fact::Ready, Fact::Asked(NUMBER), Fact::Acked(NUMBER, ID)];
        let run = |step: &str, attempt| {
            let here = spot(step, attempt);
            [Fact::Begin(here.clone()), Fact::End(here.clone()), Fact::Recorded(here)]
        };
        facts.extend(run(STEPS[0], 1));
        facts.extend([Fact::Begin(spot(STEPS[1], 1)), Fact::Died(9), Fact::Ready]);
        facts.extend(run(STEPS[1], 2));
        facts.extend(run(STEPS[2], 2));
        facts.push(Fact::Exited(0));
        let task = StoredTask {
            kind: "chain".to_owned(),
            number: Some(NUMBER),
            state: State::Completed,
            retries: 0,
            crashes: 0,
            reason: None,
            value: Some(value_of(NUMBER)),
            attempts: vec![
                Try { attempt: 1, end: Some(AttemptEnd::Lost), done: vec![STEPS[0].to_owned()] },
                Try {
                    attempt: 2,
                    end: Some(AttemptEnd::Settled(State::Completed)),
                    done: vec![STEPS[1].to_owned(), STEPS[2].to_owned()],
                },
            ],
        };
        let tasks = BTreeMap::from([(ID, task)]);
        (facts.into_iter().map(line).collect(), Stored { tasks, ..Stored::default() })
    }

    /// The verdict after `change`.
    fn verdict(change: impl FnOnce(&mut Vec<Line>, &mut Stored)) -> Verdict {
        let (mut lines, mut stored) = good();
        change(&mut lines, &mut stored);
        check(&lines, &stored)
    }

    fn noticed(word: &str, change: impl FnOnce(&mut Vec<Line>, &mut Stored)) {
        let verdict = verdict(change);
        assert!(verdict.problems.iter().any(|p| p.contains(word)), "{word}: {verdict:?}");
    }

    fn task(stored: &mut Stored) -> &mut StoredTask {
        stored.tasks.get_mut(&ID).expect("the task")
    }

    pub(crate) fn a_good_run_passes() {
        let verdict = verdict(|_, _| {});
        assert_eq!(verdict.problems, Vec::<String>::new());
        let counts = verdict.counts;
        assert_eq!((counts.starts, counts.kills, counts.deaths_in_steps), (2, 1, 1));
        assert_eq!((counts.acked, counts.unanswered, counts.submitting_starts), (1, 0, 1));
        assert_eq!((counts.steps, counts.begun_again, counts.lost), (3, 1, 1));
    }

    pub(crate) fn a_lost_submission_is_noticed() {
        noticed("acknowledged and is lost", |_, stored| stored.tasks.clear());
        noticed("acknowledged and is lost", |lines, _| {
            lines.push(line(Fact::Acked(9, TaskId::from_key(8))));
        });
        noticed("not the chain", |_, stored| task(stored).number = Some(5));
    }

    pub(crate) fn an_unanswered_submission_may_be_there_or_not() {
        let asked = |lines: &mut Vec<Line>, _: &mut Stored| lines.push(line(Fact::Asked(5)));
        assert_eq!(verdict(asked).problems, Vec::<String>::new());
        let written = verdict(|lines, _| lines.retain(|l| !matches!(l.fact, Fact::Acked(..))));
        assert_eq!(written.problems, Vec::<String>::new());
        assert_eq!((written.counts.acked, written.counts.unanswered), (0, 1));
    }

    pub(crate) fn a_second_task_of_one_key_is_noticed() {
        noticed("one idempotency key", |_, stored| {
            let twin = task(stored).clone();
            stored.tasks.insert(TaskId::from_key(8), twin);
        });
        noticed("nobody asked for it", |lines, _| {
            lines.retain(|l| !matches!(l.fact, Fact::Asked(_)));
        });
    }

    pub(crate) fn a_recorded_step_that_ran_again_is_noticed() {
        // The engine had said so.
        noticed("was recorded and ran again", |lines, _| {
            lines.push(line(Fact::Begin(spot(STEPS[0], 2))));
        });
        // Only the store had it when the process died.
        noticed("recorded in an earlier attempt", |lines, stored| {
            lines.retain(|l| l.fact != Fact::Recorded(spot(STEPS[0], 1)));
            lines.push(line(Fact::Begin(spot(STEPS[0], 2))));
            assert_eq!(task(stored).recorded_in(STEPS[0]), Some(1));
        });
        noticed("recorded, not in the store", |_, stored| task(stored).attempts[0].done.clear());
    }

    pub(crate) fn a_step_out_of_order_is_noticed() {
        noticed("began before `convert`", |lines, _| {
            lines.insert(7, line(Fact::Begin(spot(STEPS[2], 1))));
        });
        noticed("an attempt the store has not", |lines, _| {
            lines.push(line(Fact::Begin(spot(STEPS[2], 3))));
        });
        noticed("its task is not in the store", |lines, _| {
            let task = TaskId::from_key(8);
            lines.push(line(Fact::Begin(Spot { task, ..spot(STEPS[0], 1) })));
        });
    }

    pub(crate) fn a_missing_step_is_noticed() {
        noticed("has recorded [\"fetch\", \"convert\"]", |lines, stored| {
            lines.retain(|l| l.fact != Fact::Recorded(spot(STEPS[2], 2)));
            task(stored).attempts[1].done.pop();
        });
        noticed("never ran", |lines, _| {
            lines.retain(|l| l.fact != Fact::End(spot(STEPS[2], 2)));
        });
        noticed("has recorded", |_, stored| {
            task(stored).attempts[1].done.push(STEPS[2].to_owned());
        });
    }

    pub(crate) fn a_task_that_did_not_end_well_is_noticed() {
        for state in [State::Queued, State::Running, State::Failed, State::Retrying] {
            noticed("in the end", |_, stored| task(stored).state = state);
        }
        noticed("gave", |_, stored| task(stored).value = Some(1));
        noticed("gave", |_, stored| task(stored).value = None);
    }
}
