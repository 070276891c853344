//! The decisions about a batch, as tables: what may be ordered, how much may
//! happen now, what is counted as what, when it ends or gives up.

use super::*;
use crate::json::Json;
use crate::task::{Kind, NewTask};

const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn order(action: Action) -> Order {
    Order::new(BatchId::from_key(1), action, Filter::parse("state:failed").unwrap())
}

fn batch(change: impl FnOnce(&mut Order)) -> Batch {
    let mut order = order(Action::Requeue);
    change(&mut order);
    Batch::new(order, &Actor::engine(), T)
}

fn id(n: i64) -> TaskId {
    TaskId::from_key(n)
}

fn step(batch: &Batch, tasks: impl IntoIterator<Item = i64>, walk: Walk) -> BatchStep {
    let targets = tasks.into_iter().map(|n| Target { task: id(n), again: None }).collect();
    let (version, verdicts) = (batch.version, vec![]);
    BatchStep { batch: batch.id(), version, verdicts, targets, skipped: 0, walk }
}

fn done(n: usize) -> Vec<Result<Changed>> {
    (0..n).map(|_| Ok(Changed::Done)).collect()
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Makes an order wrong.
type Spoil = fn(&mut Order);

#[test]
fn orders_that_make_no_sense_are_refused() {
    let wrong: [(Action, Spoil); 7] = [
        (Action::Cancel, |o| o.filter = Filter::default()),
        (Action::Cancel, |o| o.from_step = Some("scan".to_owned())),
        (Action::Requeue, |o| o.from_step = Some(String::new())),
        (Action::Cancel, |o| o.stop_above = Some(20)),
        (Action::Requeue, |o| o.stop_above = Some(100)),
        (Action::Discard, |o| o.among = Among::Tasks),
        (Action::Pause, |o| o.among = Among::DeadLetters),
    ];
    for (action, spoil) in wrong {
        let mut order = order(action);
        order.validate().unwrap();
        spoil(&mut order);
        assert!(order.validate().is_err(), "{order:?}");
    }
    let all = Filter::parse("age:>=0s").unwrap();
    Order::new(BatchId::from_key(1), Action::Cancel, all).validate().unwrap();
}

#[test]
fn only_what_was_there_and_matches_is_taken() {
    let mut task = Task::born(&NewTask::new(id(1), Kind::trusted("k"), Json::default()), T);
    let mut batch = batch(|_| {});
    assert!(!batch.takes(&task, false), "queued");
    task.standing.state = State::Failed;
    assert!(batch.takes(&task, false));
    batch.order.among = Among::DeadLetters;
    assert!(!batch.takes(&task, false) && batch.takes(&task, true));
    task.created_at = T.plus(ms(1));
    assert!(!batch.takes(&task, true), "made later");
}

#[test]
fn the_state_decides_who_is_eligible() {
    let eligible = |action: Action| -> Vec<State> {
        let allowed = |state: &State| {
            let mut task = Task::born(&NewTask::new(id(1), Kind::trusted("k"), Json::default()), T);
            task.standing.state = *state;
            order(action).allows(&task, T)
        };
        State::ALL.into_iter().filter(allowed).collect()
    };
    use State::*;
    assert_eq!(eligible(Action::Requeue), [Failed, Cancelled]);
    assert_eq!(eligible(Action::Resume), [Paused]);
    assert_eq!(eligible(Action::Discard), [Failed]);
    assert!(eligible(Action::Rerun).iter().all(|s| s.is_ended()));
    assert!(!eligible(Action::Cancel).contains(&Completed));
}

#[test]
fn a_rate_is_kept_in_small_pieces() {
    for (rate, tasks, gap) in
        [("5/s", 1, 200), ("100/m", 1, 600), ("1000/s", 250, 250), ("100000/s", 500, 5)]
    {
        let mut batch = batch(|o| o.rate = Some(rate.parse().unwrap()));
        assert_eq!(batch.room(T), Room::Tasks(tasks), "{rate}");
        let step = step(&batch, (0..tasks).map(|n| n as i64), Walk::To(id(1)));
        batch.took(&step, &done(tasks), T);
        assert_eq!(batch.room(T), Room::At(T.plus(ms(gap))), "{rate}");
        assert_eq!(batch.room(T.plus(ms(gap))), Room::Tasks(tasks), "{rate}");
    }
}

#[test]
fn what_was_not_changed_costs_no_time() {
    let mut batch = batch(|o| o.rate = Some("1/h".parse().unwrap()));
    let step = step(&batch, [1], Walk::To(id(1)));
    batch.took(&step, &[Err(Error::conflict("requeue", "it runs"))], T);
    assert_eq!(batch.room(T), Room::Tasks(1));
    assert_eq!(batch.counts, Counts { matched: 1, skipped: 1, ..Counts::default() });
}

#[test]
fn a_long_pause_is_not_made_up_for() {
    let mut batch = batch(|o| o.rate = Some("10/s".parse().unwrap()));
    let later = T.plus(Duration::from_secs(3600));
    let step = step(&batch, [1, 2], Walk::To(id(1)));
    batch.took(&step, &done(2), later);
    assert!(batch.next_at >= later.minus(SLICE) && batch.next_at <= later.plus(SLICE));
}

#[test]
fn every_answer_is_counted_once() {
    let mut batch = batch(|_| {});
    let mut step = step(&batch, 1..=6, Walk::To(id(1)));
    step.skipped = 4;
    let answers = [
        Ok(Changed::Done),
        Ok(Changed::Requested),
        Ok(Changed::Already),
        Err(Error::conflict("requeue", "no")),
        Err(Error::not_found("task", "gone")),
        Err(Error::invalid("requeue", "the task has no step `x`")),
    ];
    batch.took(&step, &answers, T);
    let counts =
        Counts { matched: 10, changed: 1, requested: 1, already: 1, skipped: 6, failed: 1 };
    assert_eq!((batch.counts, batch.before, batch.version), (counts, Some(id(1)), 1));
    assert_eq!((batch.errors[0].task, batch.errors[0].code.as_str()), (id(6), "invalid-fields"));
    assert!(batch.is_running() && batch.again.watched.is_empty());
}

#[test]
fn a_step_counts_once() {
    let mut batch = batch(|_| {});
    let first = step(&batch, [1], Walk::To(id(1)));
    batch.check(&first).unwrap();
    batch.took(&first, &done(1), T);
    assert_eq!(batch.check(&first).unwrap_err().code(), Code::VersionConflict);
    let last = step(&batch, [], Walk::End);
    batch.check(&last).unwrap();
    batch.took(&last, &[], T);
    assert_eq!((batch.state, batch.finished_at), (BatchState::Done, Some(T)));
    assert_eq!(batch.check(&step(&batch, [], Walk::End)).unwrap_err().code(), Code::StateConflict);
    assert!(batch.stop(&Actor::engine(), T).is_err());
    let many = step(&Batch { state: BatchState::Running, ..batch }, 0..501, Walk::Stay);
    assert!(super::tests::batch(|_| {}).check(&many).is_err());
}

#[test]
fn a_person_stops_it_once() {
    let mut batch = batch(|_| {});
    let before = step(&batch, [1], Walk::End);
    assert_eq!(batch.stop(&Actor::engine(), T).unwrap(), Changed::Done);
    assert_eq!(batch.stop(&Actor::engine(), T).unwrap(), Changed::Already);
    assert_eq!(batch.reason.as_deref(), Some("stopped by windlass"));
    assert!(batch.check(&before).is_err(), "a step on its way comes too late");
}

/// Takes a step that does these and has heard of those.
fn sent_and_heard(
    batch: &mut Batch,
    sent: std::ops::Range<i64>,
    heard: std::ops::Range<i64>,
    verdict: Verdict,
) {
    let count = sent.clone().count();
    let mut step = step(batch, sent, Walk::Stay);
    step.verdicts = heard.map(|n| (id(n), verdict)).collect();
    batch.took(&step, &done(count), T);
}

#[test]
fn with_a_rule_a_few_go_ahead() {
    let mut batch = batch(|o| o.stop_above = Some(50));
    assert_eq!(batch.room(T), Room::Tasks(FIRST));
    sent_and_heard(&mut batch, 0..10, 0..0, Verdict::Well);
    assert_eq!(batch.room(T), Room::Answers);
    sent_and_heard(&mut batch, 0..0, 0..9, Verdict::Failed);
    assert_eq!(batch.room(T), Room::Answers);
    assert!(batch.is_running(), "nine are too few to judge by");
    sent_and_heard(&mut batch, 0..0, 9..10, Verdict::Gone);
    assert_eq!(batch.room(T), Room::Tasks(1), "one that is gone is replaced");
    sent_and_heard(&mut batch, 10..11, 0..0, Verdict::Well);
    sent_and_heard(&mut batch, 0..0, 10..11, Verdict::Well);
    assert_eq!(batch.state, BatchState::Stopped);
    let reason = "9 of 10 tasks failed again, which is more than 50 %";
    assert_eq!(batch.reason.as_deref(), Some(reason));
}

#[test]
fn a_rule_lets_go_on_what_goes_well() {
    let mut batch = batch(|o| o.stop_above = Some(50));
    sent_and_heard(&mut batch, 0..10, 0..0, Verdict::Well);
    sent_and_heard(&mut batch, 0..0, 0..5, Verdict::Failed);
    sent_and_heard(&mut batch, 0..0, 5..10, Verdict::Well);
    assert!(batch.is_running(), "half is not more than half");
    assert_eq!(batch.room(T), Room::Tasks(WATCHED_MAX));
    sent_and_heard(&mut batch, 10..11, 0..0, Verdict::Well);
    assert_eq!(batch.room(T), Room::Tasks(WATCHED_MAX - 1));
    // What is told of a task that is not watched does not count.
    sent_and_heard(&mut batch, 0..0, 0..10, Verdict::Failed);
    assert!(batch.is_running());
    sent_and_heard(&mut batch, 0..0, 10..11, Verdict::Failed);
    assert_eq!((batch.again.answered, batch.state), (11, BatchState::Stopped));
}

#[test]
fn the_first_failed_attempt_is_an_answer() {
    let mut task = Task::born(&NewTask::new(id(1), Kind::trusted("k"), Json::default()), T);
    assert_eq!(Verdict::of(Some(&task)), None);
    assert_eq!(Verdict::of(None), Some(Verdict::Gone));
    for (state, retries, verdict) in [
        (State::Running, 0, None),
        (State::Retrying, 1, Some(Verdict::Failed)),
        (State::Failed, 0, Some(Verdict::Failed)),
        (State::Completed, 0, Some(Verdict::Well)),
        (State::Cancelled, 0, Some(Verdict::Well)),
    ] {
        (task.standing.state, task.standing.retries) = (state, retries);
        assert_eq!(Verdict::of(Some(&task)), verdict, "{state}");
    }
}

#[test]
fn a_batch_reads_back() {
    let mut batch = batch(|o| {
        o.rate = Some("5/s".parse().unwrap());
        (o.from_step, o.stop_above) = (Some("scan".to_owned()), Some(20));
    });
    let step = step(&batch, [1, 2], Walk::To(id(1)));
    batch.took(&step, &[Ok(Changed::Done), Err(Error::invalid("requeue", "no"))], T);
    assert_eq!(Json::of(&batch).unwrap().to::<Batch>().unwrap(), batch);
}

#[test]
fn a_preview_adds_up() {
    let mut preview = Preview::default();
    for (state, eligible) in [(State::Failed, true), (State::Failed, true), (State::Running, false)]
    {
        preview.add(state, eligible);
    }
    assert_eq!(preview.total(), Allowed { eligible: 2, ineligible: 1 });
    assert_eq!(preview.states[&State::Failed], Allowed { eligible: 2, ineligible: 0 });
}
