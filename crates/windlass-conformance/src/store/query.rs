//! What readers see: lists by filter in pages, the feed from any position,
//! counts that agree with the rows. Every read is bounded.

use crate::harness::look::{filter, query};
use crate::harness::make::{HOUR, MINUTE, SECOND, done, retryable};
use crate::harness::world::only;
use crate::harness::{Shape, World};
use std::collections::BTreeMap;
use windlass_core::control::TaskChange;
use windlass_core::event::Position;
use windlass_core::id::TaskId;
use windlass_core::outcome::{Outcome, WaitingOn};
use windlass_core::state::State;
use windlass_core::store::{PAGE_MAX, Query, QueueChange};

pub async fn filters_find_what_they_say(w: World) {
    let node = w.node("a").await;
    let parent = w.submit(w.task().kind("image.scan").queue("media").label("tenant", "acme")).await;
    let child = w.submit(w.task().kind("image.resize").under(parent, "1")).await;
    let other = w.submit(w.task().kind("mail.send").label("tenant", "other")).await;
    w.finish(&w.claim_id(&node, child).await).await;
    let failed = w.failed(&node).await;
    let parent_is = format!("parent:{parent}");
    let table: [(&str, &[TaskId]); 10] = [
        ("", &[failed, other, child, parent]),
        ("state:completed", &[child]),
        ("state:completed,failed", &[failed, child]),
        ("queue:media", &[parent]),
        ("-queue:media", &[failed, other, child]),
        ("kind:image.*", &[child, parent]),
        ("label.tenant:acme", &[parent]),
        ("state:queued label.tenant:other", &[other]),
        (&parent_is, &[child]),
        ("state:cancelled", &[]),
    ];
    for (text, expected) in table {
        assert_eq!(w.list_ids(text).await, expected, "{text}");
    }
}

pub async fn filters_know_time_attempts_and_errors(w: World) {
    let node = w.tireless("a").await;
    let old = w.running(&node).await;
    w.settle(&old, retryable()).await;
    w.advance(2 * HOUR);
    let young = w.submit(w.task()).await;
    w.advance(MINUTE);
    let table: [(&str, &[TaskId]); 5] = [
        ("age:>1h", &[old.task.id]),
        ("since:1h", &[young]),
        ("attempt:>=1", &[old.task.id]),
        ("error~busy", &[old.task.id]),
        ("age:>1h error~reset", &[]),
    ];
    for (text, expected) in table {
        assert_eq!(w.list_ids(text).await, expected, "{text}");
    }
}

pub async fn age_counts_from_the_submission(w: World) {
    let early = w.task();
    let id = early.id;
    w.advance(2 * HOUR);
    w.submit(early).await;
    w.advance(MINUTE);
    assert_eq!(w.list_ids("since:1h").await, [id], "the id was made long before");
    assert!(w.list_ids("age:>1h").await.is_empty());
}

pub async fn pages_are_newest_first_without_gap_or_repeat(w: World) {
    let mut ids = w.submit_all(w.many(25)).await;
    ids.reverse();
    let mut query = Query { filter: filter(""), before: None, limit: 10 };
    let mut found = vec![];
    for _ in 0..10 {
        let page = w.store().tasks(query.clone(), w.at()).await.unwrap();
        assert!(page.items.len() <= 10);
        found.extend(page.items.iter().map(|t| t.id));
        query.before = page.next;
        if page.next.is_none() {
            break;
        }
        // What comes meanwhile is newer, and harms no page.
        w.submit(w.task()).await;
    }
    assert_eq!(found, ids);
}

pub async fn a_filter_holds_across_pages(w: World) {
    let tasks = (0..60).map(|i| w.task().kind(if i % 7 == 0 { "rare" } else { "common" }));
    let rare: Vec<TaskId> = {
        let all = w.submit_all(tasks.collect()).await;
        all.into_iter().step_by(7).rev().collect()
    };
    let mut query = Query { limit: 2, ..query("kind:rare") };
    let mut found = vec![];
    for _ in 0..100 {
        let page = w.store().tasks(query.clone(), w.at()).await.unwrap();
        assert!(page.items.len() <= 2);
        found.extend(page.items.iter().map(|t| t.id));
        query.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(found, rare);
}

pub async fn a_page_has_its_bounds(w: World) {
    w.submit_all(w.many(PAGE_MAX + 10)).await;
    for (limit, expected) in [(0, 1), (1, 1), (PAGE_MAX, PAGE_MAX), (usize::MAX, PAGE_MAX)] {
        let query = Query { limit, ..query("") };
        let page = w.store().tasks(query, w.at()).await.unwrap();
        assert_eq!(page.items.len(), expected, "limit {limit}");
        assert!(page.next.is_some());
    }
}

pub async fn an_unknown_task_is_nothing(w: World) {
    let id = w.id();
    assert_eq!(w.find(id).await, None);
    assert_eq!(w.store().children(id).await.unwrap().total, 0);
}

pub async fn dead_letters_are_listed_by_filter_and_page(w: World) {
    let node = w.node("a").await;
    let mut ids = vec![];
    for i in 0..7 {
        let new = w.task().kind(["image.scan", "mail.send"][i % 2]);
        let claimed = w.claim_id(&node, w.submit(new).await).await;
        w.settle(&claimed, crate::harness::make::fails()).await;
        ids.push(claimed.task.id);
    }
    w.submit(w.task().kind("mail.send")).await;
    ids.reverse();
    let found: Vec<_> = w.dead_letters().await.iter().filter_map(|d| d.task).collect();
    assert_eq!(found, ids);
    let mails = w.dead_letters_of("kind:mail.*").await;
    assert_eq!(mails.iter().filter_map(|d| d.task).collect::<Vec<_>>(), [ids[1], ids[3], ids[5]]);
    let mut query = Query { limit: 3, ..query("") };
    let page = w.store().dead_letters(query.clone(), w.at()).await.unwrap();
    assert_eq!(page.items.iter().filter_map(|d| d.task).collect::<Vec<_>>(), ids[..3]);
    query.before = page.next;
    let page = w.store().dead_letters(query, w.at()).await.unwrap();
    assert_eq!(page.items.iter().filter_map(|d| d.task).collect::<Vec<_>>(), ids[3..6]);
}

pub async fn the_feed_resumes_at_any_position(w: World) {
    let node = w.node("a").await;
    for _ in 0..10 {
        w.finish(&w.running(&node).await).await;
    }
    let all = w.feed().await;
    assert_eq!(all.len(), 31);
    for (i, event) in all.iter().enumerate() {
        assert_eq!(w.feed_after(event.position).await, all[i + 1..]);
        let next = w.store().events(event.position, 1).await.unwrap();
        assert_eq!(next, all[i + 1..].iter().take(1).cloned().collect::<Vec<_>>());
    }
    let first = w.store().events(Position::START, 7).await.unwrap();
    assert_eq!(first, all[..7]);
    assert_eq!(w.stats().await.newest_event, all[30].position);
    let ahead = Position(all[30].position.0 + 1000);
    assert!(w.feed_after(ahead).await.is_empty());
}

pub async fn stats_count_what_is_there(w: World) {
    let node = w.node("a").await;
    assert!(w.stats().await.states.is_empty());
    w.running(&node).await;
    w.failed(&node).await;
    w.settle(&w.running(&node).await, done()).await;
    w.submit_all(vec![w.task(), w.task(), w.task().after(HOUR)]).await;
    let paused = w.submit(w.task()).await;
    w.change(paused, TaskChange::Pause).await;
    let expected: BTreeMap<State, u64> = [
        (State::Running, 1),
        (State::Failed, 1),
        (State::Completed, 1),
        (State::Queued, 2),
        (State::Scheduled, 1),
        (State::Paused, 1),
    ]
    .into();
    let stats = w.stats().await;
    assert_eq!(stats.states, expected);
    assert_eq!((stats.dead_letters, stats.outbox), (1, 0));
}

pub async fn queues_count_what_they_hold(w: World) {
    let node = w.node("a").await;
    w.submit_all(vec![w.task(), w.task(), w.task().after(HOUR), w.task().queue("q")]).await;
    let claimed = w.claim(&node, 1).await.remove(0);
    let counts = async |name| {
        let info = w.queue(name).await;
        let later = info.count(State::Scheduled) + info.count(State::Retrying);
        (info.count(State::Queued), info.count(State::Running), later)
    };
    assert_eq!(counts("default").await, (1, 1, 1));
    assert_eq!(counts("q").await, (1, 0, 0));
    w.settle(&claimed, retryable()).await;
    assert_eq!(counts("default").await, (1, 0, 2));
    w.advance(MINUTE / 4);
    w.promote().await;
    assert_eq!(counts("default").await, (2, 0, 1));
    assert_eq!(w.store().queues().await.unwrap().len(), 2);
}

pub async fn ready_kinds_are_those_a_claim_would_find(w: World) {
    let node = w.tireless("a").await;
    let seen = async || {
        let mut pairs = w.store().ready_kinds().await.unwrap();
        pairs.sort();
        pairs.into_iter().map(|(q, k)| format!("{q}/{k}")).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!(seen().await, none);
    let later = w.task().kind("later").after(HOUR);
    w.submit_all(vec![w.task(), w.task(), w.task().kind("b"), w.task().queue("q"), later]).await;
    assert_eq!(seen().await, ["default/b", "default/work", "q/work"]);
    w.change_queue("q", QueueChange::Pause).await;
    assert_eq!(seen().await, ["default/b", "default/work"]);
    assert_eq!(w.claim(&node, 2).await.len(), 2);
    assert_eq!(seen().await, ["default/b"]);
    w.claim(&node, 1).await;
    assert_eq!(seen().await, none);
    w.change_queue("q", QueueChange::Resume).await;
    w.advance(2 * HOUR);
    w.promote().await;
    assert_eq!(seen().await, ["default/later", "q/work"]);
}

pub async fn queues_count_every_state_once(w: World) {
    let node = w.tireless("a").await;
    w.submit_all(vec![w.task(), w.task().kind("other"), w.task().after(HOUR)]).await;
    w.change(w.submit(w.task()).await, TaskChange::Pause).await;
    w.settle(&w.running(&node).await, retryable()).await;
    w.settle(&w.running(&node).await, Outcome::Wait(WaitingOn::Signal { name: "s".into() })).await;
    w.settle(&w.running(&node).await, done()).await;
    w.cancel(w.submit(w.task()).await).await;
    w.failed(&node).await;
    w.running(&node).await;
    // Two rollbacks: one waits in line, one is held.
    for _ in 0..2 {
        w.settle(&w.running(&node).await, Outcome::RollBack).await;
    }
    let rolling = w.list("state:rolling_back").await[0].id;
    w.claim_id(&node, rolling).await;
    let expected: BTreeMap<State, u64> = [
        (State::Scheduled, 1),
        (State::Queued, 2),
        (State::Running, 1),
        (State::Retrying, 1),
        (State::Waiting, 1),
        (State::Paused, 1),
        (State::RollingBack, 2),
    ]
    .into();
    let info = w.queue("default").await;
    assert_eq!(info.states, expected);
    assert_eq!((info.leased, info.dead_letters), (2, 1));
    let mut stats = w.stats().await.states;
    stats.retain(|state, _| !state.is_ended());
    assert_eq!(stats, expected);
}

pub async fn queues_with_nothing_but_a_dead_letter_or_a_setting_are_listed(w: World) {
    let node = w.tireless("a").await;
    w.failed(&node).await;
    let kept = w.failed(&node).await;
    w.change_queue("q", QueueChange::Concurrency(Some(3))).await;
    let listed = w.store().queues().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|q| q.name.as_str()).collect();
    assert_eq!(names, ["default", "q"]);
    assert_eq!((listed[0].dead_letters, listed[1].dead_letters), (2, 0));
    assert!(listed.iter().all(|q| q.states.is_empty() && q.oldest_ready.is_none()));
    let failed: Vec<_> = w.list("state:failed").await.iter().map(|t| t.id).collect();
    w.change(failed[1], TaskChange::Discard).await;
    assert_eq!(w.queue("default").await.dead_letters, 1);
    w.change(kept, crate::harness::make::requeue()).await;
    let info = w.queue("default").await;
    assert_eq!((info.dead_letters, info.count(State::Queued)), (0, 1));
}

pub async fn the_longest_wait_of_a_queue_is_told(w: World) {
    let node = w.tireless("a").await;
    let since = async |name| w.queue(name).await.oldest_ready;
    let born = w.at();
    w.submit(w.task().after(MINUTE)).await;
    assert_eq!(since("default").await, None);
    w.advance(SECOND);
    let low = w.submit(w.task().priority(-5)).await;
    w.advance(SECOND);
    let high = w.submit(w.task().priority(5).kind("other")).await;
    w.submit(w.task().queue("q")).await;
    assert_eq!(since("default").await, Some(born.plus(SECOND)));
    assert_eq!(since("q").await, Some(born.plus(2 * SECOND)));
    w.claim_id(&node, low).await;
    assert_eq!(since("default").await, Some(born.plus(2 * SECOND)));
    w.advance(MINUTE);
    w.promote().await;
    w.claim_id(&node, high).await;
    assert_eq!(since("default").await, Some(born.plus(MINUTE)), "ready since it was due");
}

pub async fn the_next_due_time_is_the_earliest(w: World) {
    let due = async || w.store().next_due().await.unwrap();
    assert_eq!(due().await, None);
    w.submit(w.task().after(HOUR)).await;
    let soon = w.submit(w.task().after(MINUTE)).await;
    assert_eq!(due().await, Some(w.at().plus(MINUTE)));
    w.cancel(soon).await;
    assert_eq!(due().await, Some(w.at().plus(HOUR)));
    w.advance(HOUR + SECOND);
    w.promote().await;
    assert_eq!(due().await, None);
}

pub async fn the_audit_list_is_read_in_pages(w: World) {
    let id = w.submit(w.task()).await;
    for _ in 0..5 {
        w.change(id, TaskChange::Pause).await;
        w.change(id, TaskChange::Resume).await;
    }
    let all = w.audit().await;
    assert_eq!(all.len(), 10);
    assert!(all.windows(2).all(|pair| pair[0].seq > pair[1].seq), "newest first");
    let mut found = w.store().audit(None, 3).await.unwrap();
    for _ in 0..10 {
        let page = w.store().audit(found.last().map(|r| r.seq), 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found, all);
}

pub async fn both_handles_see_the_same(w: World) {
    let node = w.node("a").await;
    let claimed = w.running(&node).await;
    let seen = w.second().task(claimed.task.id).await.unwrap();
    assert_eq!(seen, Some(claimed.task.clone()));
    w.second().record(vec![w.settling(&claimed, done())], w.now()).await.unwrap();
    assert_eq!(w.state(claimed.task.id).await, State::Completed);
    assert_eq!(only(w.list("").await).id, claimed.task.id);
    assert_eq!(w.second().events(Position::START, 100).await.unwrap(), w.feed().await);
}
