//! Stored settings: values, limits and schedules, each write with its audit
//! row; and the firing of a schedule, which happens once per instant.

use crate::harness::make::{HOUR, MINUTE, json};
use crate::harness::world::{ann, only};
use crate::harness::{World, refused_as};
use std::time::Duration;
use windlass_core::access::{AccessToken, Role};
use windlass_core::clock::Timestamp;
use windlass_core::error::ErrorKind;
use windlass_core::limits::Limit;
use windlass_core::schedule::{CatchUp, Overlap, Schedule, When};
use windlass_core::store::{Fire, Setting, Submit, Submitted};

fn schedule(name: &str, period: Duration) -> Schedule {
    Schedule {
        name: name.to_owned(),
        when: When::Every { period, anchor: Timestamp::ZERO },
        catch_up: CatchUp::One,
        overlap: Overlap::Skip,
        template: json(r#"{"kind":"report"}"#),
        paused: false,
        next_at: None,
        last_at: None,
    }
}

fn limit(burst: u32) -> Limit {
    Limit { name: "openai".to_owned(), rate: "5/s".parse().unwrap(), burst, concurrency: 3 }
}

async fn schedules(w: &World) -> Vec<Schedule> {
    w.store().schedules().await.unwrap()
}

pub async fn values_are_put_read_and_deleted(w: World) {
    let read = async |key: &str| w.store().setting(key.to_owned()).await.unwrap();
    let put = async |key: &str, value: Option<&str>| {
        let key = key.to_owned();
        w.put(Setting::Value { key, value: value.map(json) }).await;
    };
    assert_eq!(read("a").await, None);
    put("a", Some(r#"{"x":1}"#)).await;
    put("A", Some("2")).await;
    assert_eq!(read("a").await, Some(json(r#"{"x":1}"#)));
    put("a", Some("3")).await;
    assert_eq!((read("a").await, read("A").await), (Some(json("3")), Some(json("2"))));
    put("a", None).await;
    put("never", None).await;
    assert_eq!((read("a").await, read("A").await), (None, Some(json("2"))));
}

pub async fn limits_are_put_read_and_deleted(w: World) {
    let read = async || w.store().limits().await.unwrap();
    w.put(Setting::Limit(limit(10))).await;
    assert_eq!(read().await, [limit(10)]);
    w.put(Setting::Limit(limit(20))).await;
    assert_eq!(read().await, [limit(20)]);
    assert_eq!(w.told("limit.changed").await, 2);
    w.put(Setting::DeleteLimit("openai".to_owned())).await;
    assert!(read().await.is_empty());
}

pub async fn a_bad_limit_or_schedule_is_refused(w: World) {
    let before = (w.snapshot().await, w.store().limits().await.unwrap());
    let bad = [Setting::Limit(limit(0)), Setting::Schedule(schedule("a name", HOUR))];
    for setting in bad {
        refused_as(w.store().put(setting, ann(), w.now()).await, ErrorKind::Invalid);
    }
    w.unchanged_since(&before.0).await;
}

fn token(name: &str) -> AccessToken {
    AccessToken {
        name: name.to_owned(),
        id: format!("id-{name}"),
        role: Role::Operator,
        hash: "c0ffee".to_owned(),
        created_at: Timestamp::ZERO,
        expires_at: None,
    }
}

pub async fn tokens_are_put_read_and_revoked(w: World) {
    let read = async || w.store().tokens().await.unwrap();
    let until = Some(w.at().plus(MINUTE));
    let short = AccessToken { expires_at: until, role: Role::Worker, ..token("b") };
    w.put(Setting::Token(short.clone())).await;
    w.put(Setting::Token(token("a"))).await;
    assert_eq!(read().await, [token("a"), short]);
    w.put(Setting::RevokeToken("a".to_owned())).await;
    assert_eq!(read().await.len(), 1);
    // An expired one makes way for another of its name.
    w.advance(HOUR);
    w.put(Setting::Token(token("b"))).await;
    assert_eq!(read().await, [token("b")]);
    let audit = w.store().audit(None, 10).await.unwrap();
    let told: Vec<_> = audit.iter().map(|row| format!("{} {}", row.action, row.target)).collect();
    let expected = [
        "create token b (operator)",
        "revoke token a",
        "create token a (operator)",
        "create token b (worker)",
    ];
    assert_eq!(told, expected);
}

pub async fn a_bad_or_second_token_is_refused(w: World) {
    w.put(Setting::Token(token("a"))).await;
    let before = (w.snapshot().await, w.store().tokens().await.unwrap());
    let again = AccessToken { hash: "other".to_owned(), ..token("a") };
    let refused = [
        (Setting::Token(again), ErrorKind::Conflict),
        (Setting::Token(token("a name")), ErrorKind::Invalid),
        (Setting::RevokeToken("nobody".to_owned()), ErrorKind::NotFound),
    ];
    for (setting, kind) in refused {
        refused_as(w.store().put(setting, ann(), w.now()).await, kind);
    }
    w.unchanged_since(&before.0).await;
    assert_eq!(w.store().tokens().await.unwrap(), before.1);
}

pub async fn schedules_are_put_read_and_deleted(w: World) {
    let mut nightly = schedule("nightly", HOUR);
    nightly.when = When::Cron { expr: "0 2 * * *".to_owned(), zone: "Europe/Berlin".to_owned() };
    nightly.catch_up = CatchUp::All { max: 7 };
    nightly.next_at = Some(w.at().plus(HOUR));
    w.put(Setting::Schedule(nightly.clone())).await;
    w.put(Setting::Schedule(schedule("hourly", HOUR))).await;
    let mut all = schedules(&w).await;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(all, [schedule("hourly", HOUR), nightly]);
    w.put(Setting::DeleteSchedule("hourly".to_owned())).await;
    assert_eq!(only(schedules(&w).await).name, "nightly");
}

pub async fn a_schedule_keeps_its_place_while_its_times_stay(w: World) {
    let mut stored = schedule("hourly", HOUR);
    (stored.next_at, stored.last_at) = (Some(w.at().plus(MINUTE)), Some(w.at()));
    w.put(Setting::Schedule(stored.clone())).await;
    let mut edited = schedule("hourly", HOUR);
    edited.paused = true;
    edited.template = json(r#"{"kind":"other"}"#);
    w.put(Setting::Schedule(edited.clone())).await;
    (edited.next_at, edited.last_at) = (stored.next_at, stored.last_at);
    assert_eq!(schedules(&w).await, [edited]);
    let mut other_times = schedule("hourly", MINUTE);
    other_times.next_at = Some(w.at().plus(HOUR));
    w.put(Setting::Schedule(other_times.clone())).await;
    assert_eq!(only(schedules(&w).await).next_at, other_times.next_at);
}

pub async fn settings_are_in_the_audit_list(w: World) {
    let puts = [
        (Setting::Value { key: "theme".to_owned(), value: Some(json("1")) }, "theme"),
        (Setting::Limit(limit(1)), "openai"),
        (Setting::Schedule(schedule("hourly", HOUR)), "hourly"),
        (Setting::DeleteSchedule("hourly".to_owned()), "hourly"),
    ];
    for (i, (setting, target)) in puts.into_iter().enumerate() {
        w.put(setting).await;
        let audit = w.audit().await;
        assert_eq!(audit.len(), i + 1);
        assert!(audit[0].target.contains(target), "{:?}", audit[0]);
        assert_eq!((&audit[0].by, audit[0].at), (&ann(), w.at()));
    }
}

/// A stored schedule that is due, and a submission that fires it.
async fn due(w: &World) -> Submit {
    let mut stored = schedule("hourly", HOUR);
    stored.next_at = Some(w.at());
    w.put(Setting::Schedule(stored)).await;
    let fires = Fire {
        schedule: "hourly".to_owned(),
        expected: Some(w.at()),
        next_at: Some(w.at().plus(HOUR)),
        last_at: Some(w.at()),
    };
    Submit { tasks: vec![w.task()], fires: Some(fires) }
}

pub async fn a_schedule_fires_with_its_task(w: World) {
    let submit = due(&w).await;
    let id = submit.tasks[0].id;
    let answers = w.store().submit(submit, w.now()).await.unwrap();
    assert!(matches!(answers[..], [Submitted::New { id: made, .. }] if made == id));
    let moved = only(schedules(&w).await);
    assert_eq!((moved.next_at, moved.last_at), (Some(w.at().plus(HOUR)), Some(w.at())));
    assert_eq!(w.told("schedule.fired").await, 1);
    assert!(w.find(id).await.is_some());
}

pub async fn each_instant_fires_once(w: World) {
    let submit = due(&w).await;
    let other = Submit { tasks: vec![w.task()], ..submit.clone() };
    w.store().submit(submit, w.now()).await.unwrap();
    let before = w.snapshot().await;
    refused_as(w.store().submit(other, w.now()).await, ErrorKind::Conflict);
    w.unchanged_since(&before).await;
}

pub async fn an_unknown_schedule_fires_nothing(w: World) {
    let mut submit = due(&w).await;
    submit.fires.as_mut().unwrap().schedule = "nightly".to_owned();
    let before = w.snapshot().await;
    assert!(w.store().submit(submit, w.now()).await.is_err());
    w.unchanged_since(&before).await;
}

pub async fn a_refused_task_does_not_move_the_schedule(w: World) {
    let mut submit = due(&w).await;
    submit.tasks[0].priority = 99;
    let before = w.snapshot().await;
    refused_as(w.store().submit(submit, w.now()).await, ErrorKind::Invalid);
    w.unchanged_since(&before).await;
}

pub async fn a_schedule_may_move_on_without_a_task(w: World) {
    let submit = Submit { tasks: vec![], ..due(&w).await };
    assert!(w.store().submit(submit, w.now()).await.unwrap().is_empty());
    assert_eq!(only(schedules(&w).await).next_at, Some(w.at().plus(HOUR)));
}
