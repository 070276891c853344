//! Reading the feed of events: order and numbering under load, going on from a
//! position, wake-ups without a poll, slow readers, and the end. The store's own
//! list of events is what a subscription must give, no more and no less.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

mod bench_of_engines;

use bench_of_engines::{Ground, eventually, job, millis, on_both_stores};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::Subscription;
use windlass::core::event::{Event, EventName, Position};
use windlass::core::id::TaskId;
use windlass::prelude::*;

on_both_stores!(
    events_come_in_order_and_are_numbered_without_gaps,
    a_reader_goes_on_where_it_was_also_in_a_new_engine,
    a_reader_is_woken_without_a_poll,
    a_slow_reader_blocks_nobody_and_misses_nothing,
    pages_give_what_is_there_and_mix_with_single_events,
    the_feed_ends_with_the_engine,
    the_feed_ends_when_the_engine_is_dropped,
);

async fn all(ground: &Ground) -> Vec<Event> {
    let mut all: Vec<Event> = vec![];
    loop {
        let after = all.last().map_or(Position::START, |e| e.position);
        let page = ground.store.events(after, 500).await.expect("events");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

async fn next(feed: &mut Subscription) -> Event {
    feed.next().await.expect("an event").expect("a read")
}

async fn take(feed: &mut Subscription, n: usize) -> Vec<Event> {
    let mut events = vec![];
    while events.len() < n {
        events.push(next(feed).await);
    }
    events
}

async fn run(engine: &Engine, prefix: &str, n: usize) {
    let jobs = (0..n).map(|i| engine.submit(job(format!("{prefix} {i}")).steps(2)));
    for handle in engine.submit_all(jobs).await.expect("written") {
        handle.result().await.expect("a name");
    }
}

async fn events_come_in_order_and_are_numbered_without_gaps(ground: Ground) {
    let engine = ground.builder().queue("default", 16).start().await.expect("an engine");
    let mut feed = engine.events(Position::START);
    let (one, two) = (engine.clone(), engine.clone());
    let work = async { tokio::join!(run(&one, "a", 40), run(&two, "b", 40)) };
    let reading = async {
        let (mut seen, mut completed) = (vec![], 0);
        while completed < 80 {
            let event = next(&mut feed).await;
            completed += usize::from(event.name == EventName::Completed);
            seen.push(event);
        }
        seen
    };
    let (_, seen) = tokio::join!(work, reading);
    assert!(seen.windows(2).all(|pair| pair[0].position < pair[1].position));
    let mut by_task: HashMap<TaskId, Vec<&Event>> = HashMap::new();
    for event in &seen {
        event.task.into_iter().for_each(|id| by_task.entry(id).or_default().push(event));
    }
    assert_eq!(by_task.len(), 80);
    for events in by_task.values() {
        let numbers: Vec<u32> = events.iter().map(|e| e.n).collect();
        assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
        let names: Vec<_> = events.iter().map(|e| e.name.as_str()).collect();
        let step = "task.step_completed";
        assert_eq!(names, ["task.submitted", "task.started", step, step, "task.completed"]);
    }
    assert_eq!(seen, all(&ground).await[..seen.len()]);
}

async fn a_reader_goes_on_where_it_was_also_in_a_new_engine(ground: Ground) {
    let engine = ground.engine().await;
    run(&engine, "a", 5).await;
    let mut feed = engine.events(Position::START);
    let mut seen = take(&mut feed, 7).await;
    let position = feed.position();
    drop(feed);
    let mut feed = engine.events(position);
    seen.extend(take(&mut feed, 6).await);
    let position = feed.position();
    drop(feed);
    engine.shutdown(Duration::ZERO).await.expect("an end");
    // Ids of two nodes that had the same slot differ by their time.
    ground.clock.advance(millis(1));
    let engine = ground.engine().await;
    run(&engine, "b", 2).await;
    let mut feed = engine.events(position);
    let expected = all(&ground).await;
    seen.extend(take(&mut feed, expected.len() - seen.len()).await);
    assert_eq!(seen, expected);
}

async fn a_reader_is_woken_without_a_poll(ground: Ground) {
    let engine = ground.engine().await;
    let newest = all(&ground).await.last().map_or(Position::START, |e| e.position);
    let mut feed = engine.events(newest);
    let reading = tokio::spawn(async move { take(&mut feed, 3).await });
    tokio::task::yield_now().await;
    let handle = engine.submit(job("a").waiting()).await.expect("written");
    ground.floor.until_begun("a").await;
    ground.floor.open_all();
    let names: Vec<_> = reading.await.expect("no panic").iter().map(|e| e.name).collect();
    assert_eq!(names, [EventName::Submitted, EventName::Started, EventName::Completed]);
    handle.result().await.expect("a name");
}

async fn a_slow_reader_blocks_nobody_and_misses_nothing(ground: Ground) {
    let engine = ground.builder().queue("default", 64).start().await.expect("an engine");
    let mut feed = engine.events(Position::START);
    let first = next(&mut feed).await;
    run(&engine, "a", 300).await;
    let expected = all(&ground).await;
    assert!(expected.len() > 1000, "more than one page");
    let mut seen = vec![first];
    seen.extend(take(&mut feed, expected.len() - 1).await);
    assert_eq!(seen, expected);
}

async fn pages_give_what_is_there_and_mix_with_single_events(ground: Ground) {
    let engine = ground.engine().await;
    run(&engine, "a", 4).await;
    let mut feed = engine.events(Position::START);
    let mut seen = vec![next(&mut feed).await];
    let page = feed.page(3).await.expect("a page").expect("a read");
    assert_eq!((page.len(), page.last().map(|e| e.position)), (3, Some(feed.position())));
    seen.extend(page);
    seen.push(next(&mut feed).await);
    let expected = all(&ground).await;
    seen.extend(feed.page(usize::MAX).await.expect("a page").expect("a read"));
    assert_eq!(seen, expected);
    let reading = tokio::spawn(async move {
        let page = feed.page(100).await.expect("a page").expect("a read");
        (page, feed)
    });
    tokio::task::yield_now().await;
    engine.submit(job("b").waiting()).await.expect("written");
    let (page, mut feed) = reading.await.expect("no panic");
    assert_eq!(page.first().map(|e| e.name), Some(EventName::Submitted), "it waited");
    engine.shutdown(Duration::ZERO).await.expect("an end");
    while let Some(page) = feed.page(100).await {
        assert!(!page.expect("a read").is_empty());
    }
}

async fn ends(ground: Ground, stop: impl AsyncFnOnce(Engine)) {
    let engine = ground.engine().await;
    run(&engine, "a", 3).await;
    let mut feed = engine.events(Position::START);
    let there = all(&ground).await.len();
    let read = Arc::new(AtomicUsize::new(0));
    let reads = read.clone();
    let reading = tokio::spawn(async move {
        let mut seen = vec![];
        while let Some(event) = feed.next().await {
            seen.push(event.expect("a read"));
            reads.store(seen.len(), Ordering::Release);
        }
        seen
    });
    // A reader that had not begun would find no engine at all.
    eventually("it has read what is there", || read.load(Ordering::Acquire) >= there).await;
    stop(engine).await;
    assert_eq!(reading.await.expect("no panic"), all(&ground).await);
}

async fn the_feed_ends_with_the_engine(ground: Ground) {
    ends(ground, async |engine| engine.shutdown(Duration::ZERO).await.expect("an end")).await;
}

async fn the_feed_ends_when_the_engine_is_dropped(ground: Ground) {
    ends(ground, async |engine| drop(engine)).await;
}
