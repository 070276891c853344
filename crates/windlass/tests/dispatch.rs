//! What is started when, and how much at once: wake-ups instead of polls, slots,
//! concurrency of kinds and of the cluster, priorities, pauses, orphans. The
//! clock stands still unless a test moves it, so whatever would wait for a poll
//! waits for ever and fails.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, Job, Other, job, millis, on_both_stores, other, secs, settle};
use windlass::core::clock::Clock;
use windlass::core::state::State;
use windlass::core::store::QueueChange;
use windlass::prelude::*;
use windlass::{Code, Pool, UnknownKinds};

on_both_stores!(
    a_submitted_task_starts_at_once,
    a_delayed_task_starts_exactly_at_its_time,
    a_queue_never_has_more_than_its_slots,
    a_kind_never_has_more_than_its_concurrency_in_all_its_queues,
    a_limited_kind_starts_at_once_in_whichever_queue_it_is,
    a_computing_kind_starts_at_once_in_whichever_queue_it_is,
    computing_kinds_share_one_thread_in_all_queues,
    higher_priority_goes_first,
    a_flooded_queue_leaves_the_others_their_slots,
    queues_take_turns_when_a_claim_is_small,
    a_full_kind_does_not_block_the_others_of_its_queue,
    a_paused_queue_starts_nothing_and_resumes_at_once,
    unknown_kinds_are_refused,
    unknown_kinds_are_parked_until_somebody_serves_them,
    a_queue_nobody_serves_waits,
    cluster_concurrency_holds_for_two_nodes_and_waits_for_no_poll,
    more_orphans_than_slots_are_all_taken_over,
);

async fn a_submitted_task_starts_at_once(ground: Ground) {
    let engine = ground.engine().await;
    let before = ground.clock.now();
    for i in 0..20 {
        let handle = engine.submit(job(format!("{i}")).steps(2)).await.expect("written");
        assert_eq!(handle.result().await.expect("a name"), format!("{i}"));
    }
    assert_eq!(ground.clock.now(), before);
}

async fn a_delayed_task_starts_exactly_at_its_time(ground: Ground) {
    let engine = ground.engine().await;
    let due = ground.clock.now().plus(secs(10));
    let later = engine.submit(job("later")).delay(secs(10)).await.expect("written");
    let at = engine.submit(job("at")).run_at(due).await.expect("written");
    ground.pass(secs(10) - millis(1), &[&engine]).await;
    engine.submit(job("now")).await.expect("written").result().await.expect("a name");
    settle().await;
    assert_eq!(ground.floor.log().began, ["now"]);
    assert_eq!(ground.task(&later).await.state(), State::Scheduled);
    ground.clock.advance(millis(1));
    for handle in [later, at] {
        handle.result().await.expect("a name");
        assert_eq!(ground.task(&handle).await.standing.started_at, Some(due));
    }
}

async fn a_queue_never_has_more_than_its_slots(ground: Ground) {
    let engine = ground.builder().queue("narrow", 3).start().await.expect("an engine");
    let jobs = (0..20).map(|i| engine.submit(job(format!("{i}")).waiting()).queue("narrow"));
    let handles = engine.submit_all(jobs).await.expect("written");
    ground.floor.until_running("queue:narrow", 3).await;
    settle().await;
    assert_eq!(ground.floor.log().running("queue:narrow"), 3);
    let narrow = engine.status().queues.into_iter().find(|(name, ..)| name.as_str() == "narrow");
    assert_eq!(narrow.map(|(_, slots, used)| (slots, used)), Some((3, 3)));
    ground.floor.open_all();
    for handle in handles {
        handle.result().await.expect("a name");
    }
    assert_eq!(ground.floor.log().most("queue:narrow"), 3);
}

async fn a_kind_never_has_more_than_its_concurrency_in_all_its_queues(ground: Ground) {
    let builder = ground.fit(Windlass::on(ground.store.clone()));
    let builder = builder.register_with::<Job>(KindOptions::new().concurrency(2));
    let engine = builder.queue("a", 8).queue("b", 8).start().await.expect("an engine");
    let queue = |i: usize| ["a", "b"][i % 2];
    let jobs = (0..20).map(|i| engine.submit(job(format!("{i}")).waiting()).queue(queue(i)));
    let handles = engine.submit_all(jobs).await.expect("written");
    ground.floor.until_running("kind:job", 2).await;
    settle().await;
    assert_eq!(ground.floor.log().running("kind:job"), 2);
    ground.floor.open_all();
    for handle in handles {
        handle.result().await.expect("a name");
    }
    assert_eq!(ground.floor.log().most("kind:job"), 2);
}

/// The kind's room is shared by its queues; none may be left out for a poll.
async fn starts_in_each_queue(ground: &Ground, options: KindOptions) {
    let builder = ground.fit(Windlass::on(ground.store.clone()));
    let builder = builder.register_with::<Job>(options).queue("a", 4).queue("b", 4);
    let engine = builder.start().await.expect("an engine");
    for queue in ["b", "b", "a", "b", "default", "default", "b", "a", "a"] {
        let handle = engine.submit(job(queue)).queue(queue).await.expect("written");
        handle.result().await.expect("a name");
    }
}

async fn a_limited_kind_starts_at_once_in_whichever_queue_it_is(ground: Ground) {
    starts_in_each_queue(&ground, KindOptions::new().concurrency(1)).await;
}

async fn a_computing_kind_starts_at_once_in_whichever_queue_it_is(ground: Ground) {
    starts_in_each_queue(&ground, KindOptions::new().pool(Pool::Cpu)).await;
}

async fn computing_kinds_share_one_thread_in_all_queues(ground: Ground) {
    let cpu = || KindOptions::new().pool(Pool::Cpu);
    let builder = ground.fit(Windlass::on(ground.store.clone())).settings(|s| s.cpu_threads = 1);
    let builder = builder.register_with::<Job>(cpu()).register_with::<Other>(cpu());
    let engine = builder.queue("a", 4).start().await.expect("an engine");
    for (i, queue) in ["a", "default", "a", "a", "default"].into_iter().enumerate() {
        let name = format!("{i}");
        let one = engine.submit(job(name.clone())).queue(queue).await.expect("written");
        let two = engine.submit(other(name)).queue(queue).await.expect("written");
        two.result().await.expect("a name");
        one.result().await.expect("a name");
    }
    assert_eq!(ground.floor.log().most("all"), 1);
}

async fn higher_priority_goes_first(ground: Ground) {
    let engine = ground.builder().queue("one", 1).start().await.expect("an engine");
    let first = engine.submit(job("first").waiting()).queue("one").await.expect("written");
    ground.floor.until_begun("first").await;
    let ranked = [("low", -10), ("plain", 0), ("top", 10), ("high", 5), ("later high", 5)];
    let jobs = ranked.map(|(name, p)| engine.submit(job(name)).queue("one").priority(p));
    let handles = engine.submit_all(jobs).await.expect("written");
    ground.floor.open_all();
    for handle in handles.iter().chain([&first]) {
        handle.result().await.expect("a name");
    }
    let order = ["first", "top", "high", "later high", "plain", "low"];
    assert_eq!(ground.floor.log().began, order);
}

async fn a_flooded_queue_leaves_the_others_their_slots(ground: Ground) {
    let builder = ground.builder().queue("flood", 2).queue("quiet", 2);
    let engine = builder.settings(|s| s.claim_max = 2).start().await.expect("an engine");
    let flood = (0..50).map(|i| engine.submit(job(format!("{i}")).waiting()).queue("flood"));
    engine.submit_all(flood).await.expect("written");
    ground.floor.until_running("queue:flood", 2).await;
    for i in 0..10 {
        let quiet = engine.submit(job(format!("quiet {i}"))).queue("quiet");
        quiet.await.expect("written").result().await.expect("a name");
    }
    assert_eq!(ground.floor.log().most("queue:flood"), 2);
}

async fn queues_take_turns_when_a_claim_is_small(ground: Ground) {
    let builder = ground.builder().queue("flood", 100).queue("quiet", 100);
    let engine = builder.settings(|s| s.claim_max = 1).start().await.expect("an engine");
    engine.pause_node().await.expect("a pause");
    let flood = (0..60).map(|i| engine.submit(job(format!("flood {i}"))).queue("flood"));
    let mut handles = engine.submit_all(flood).await.expect("written");
    let quiet = (0..5).map(|i| engine.submit(job(format!("quiet {i}"))).queue("quiet"));
    handles.extend(engine.submit_all(quiet).await.expect("written"));
    settle().await;
    assert!(ground.floor.log().began.is_empty(), "a paused node takes nothing");
    engine.resume_node().await.expect("a resume");
    for handle in handles {
        handle.result().await.expect("a name");
    }
    let began = ground.floor.log().began;
    let last_quiet = began.iter().rposition(|name| name.starts_with("quiet")).expect("it ran");
    assert!(last_quiet < 30, "the quiet queue had to wait for the flood: {began:?}");
}

async fn a_full_kind_does_not_block_the_others_of_its_queue(ground: Ground) {
    let builder = ground.fit(Windlass::on(ground.store.clone())).register::<Other>();
    let builder = builder.register_with::<Job>(KindOptions::new().concurrency(1));
    let engine = builder.start().await.expect("an engine");
    let jobs = (0..6).map(|i| engine.submit(job(format!("{i}")).waiting()));
    let full = engine.submit_all(jobs).await.expect("written");
    ground.floor.until_running("kind:job", 1).await;
    let free = engine.submit(other("free")).priority(-10).await.expect("written");
    free.result().await.expect("a name");
    assert_eq!(ground.floor.log().running("kind:job"), 1);
    ground.floor.open_all();
    for handle in full {
        handle.result().await.expect("a name");
    }
    assert_eq!(ground.floor.log().most("kind:job"), 1);
}

async fn a_paused_queue_starts_nothing_and_resumes_at_once(ground: Ground) {
    let engine = ground.builder().queue("q", 4).start().await.expect("an engine");
    engine.pause_queue("q").await.expect("a pause");
    let handle = engine.submit(job("held")).queue("q").await.expect("written");
    engine.submit(job("free")).await.expect("written").result().await.expect("a name");
    ground.pass(secs(5), &[&engine]).await;
    assert_eq!(ground.task(&handle).await.state(), State::Queued);
    assert_eq!(ground.floor.log().began, ["free"]);
    engine.resume_queue("q").await.expect("a resume");
    handle.result().await.expect("a name");
}

async fn unknown_kinds_are_refused(ground: Ground) {
    let engine = ground.engine().await;
    let refused = engine.submit_named("nobody.knows", &()).await.expect_err("no such kind");
    assert_eq!(refused.code(), Code::UnknownKind);
    assert!(refused.message().contains("`nobody.knows`"), "{refused}");
    assert!(refused.message().contains("register it"), "{refused}");
    assert_eq!(ground.tasks().await, 0);
}

async fn unknown_kinds_are_parked_until_somebody_serves_them(ground: Ground) {
    let builder = ground.fit(Windlass::on(ground.store.clone())).register::<Job>();
    let parks = builder.unknown_kinds(UnknownKinds::Park).start().await.expect("an engine");
    let parked = parks.submit_named("other", &other("parked")).await.expect("accepted");
    parks.submit(job("known")).await.expect("written").result().await.expect("a name");
    ground.pass(secs(3), &[&parks]).await;
    let task = ground.task(&parked).await;
    assert_eq!((task.state(), task.standing.attempt), (State::Queued, 0));
    let serves = ground.engine().await;
    let ended = serves.handle::<String>(parked.id()).result().await.expect("a name");
    assert_eq!(ended, "parked");
}

async fn a_queue_nobody_serves_waits(ground: Ground) {
    let engine = ground.engine().await;
    let handle = engine.submit(job("far")).queue("elsewhere").await.expect("accepted");
    engine.submit(job("near")).await.expect("written").result().await.expect("a name");
    ground.pass(secs(3), &[&engine]).await;
    assert_eq!(ground.task(&handle).await.state(), State::Queued);
    let serves = ground.builder().queue("elsewhere", 1).start().await.expect("an engine");
    serves.handle::<String>(handle.id()).result().await.expect("a name");
}

async fn cluster_concurrency_holds_for_two_nodes_and_waits_for_no_poll(ground: Ground) {
    let (one, two) = (ground.engine().await, ground.engine().await);
    let limit = QueueChange::Concurrency(Some(2));
    one.change_queue("default", limit).await.expect("a limit");
    let half = |engine: &Engine, part: &'static str| {
        let jobs: Vec<_> = (0..15).map(|i| job(format!("{part} {i}")).waiting()).collect();
        let engine = engine.clone();
        async move {
            let jobs = jobs.into_iter().map(|job| engine.submit(job));
            engine.submit_all(jobs).await.expect("written")
        }
    };
    let handles = [half(&one, "one").await, half(&two, "two").await].concat();
    ground.floor.until_running("all", 2).await;
    settle().await;
    assert_eq!(ground.floor.log().running("all"), 2);
    ground.floor.open_all();
    // Whoever ran the last one: each node's end makes room for both.
    ground.floor.until(|log| log.finished.len() == 30).await;
    assert_eq!(ground.floor.log().most("all"), 2);
    assert_eq!(handles.len(), 30);
}

async fn more_orphans_than_slots_are_all_taken_over(ground: Ground) {
    let wide = ground.builder().queue("q", 20).start().await.expect("an engine");
    let jobs =
        (0..20).map(|i| wide.submit(job(format!("{i}")).steps(2).waiting_in(1, 1)).queue("q"));
    let ids: Vec<_> =
        wide.submit_all(jobs).await.expect("written").iter().map(|h| h.id()).collect();
    ground.floor.until(|log| log.steps.len() == 40).await;
    drop(wide);
    ground.floor.until_running("all", 0).await;
    ground.clock.advance(secs(31));
    let narrow = ground.builder().queue("q", 3).start().await.expect("an engine");
    for id in ids {
        let handle = narrow.handle::<String>(id);
        let name = handle.result().await.expect("a name");
        assert_eq!(ground.task(&handle).await.standing.attempt, 2);
        assert_eq!(ground.floor.log().tries(&name, 0), 1, "a recorded step runs once");
    }
}
