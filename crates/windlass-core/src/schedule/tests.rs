//! Schedules by example and by property: both clock changes in several zones,
//! catch-up, and that each instant fires at most once.

use super::*;
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn schedule(when: When) -> Schedule {
    Schedule {
        name: "nightly".into(),
        when,
        catch_up: CatchUp::Skip,
        overlap: Overlap::Allow,
        template: Json::trusted(r#"{"kind":"report"}"#),
        paused: false,
        next_at: None,
        last_at: None,
    }
}

fn cron(expr: &str, zone: &str) -> Schedule {
    schedule(When::Cron { expr: expr.into(), zone: zone.into() })
}

fn every(period: &str, anchor: &str) -> Schedule {
    let period = crate::clock::parse_duration(period).unwrap();
    schedule(When::Every { period, anchor: at(anchor) })
}

/// The instants after `from`, up to `to`, as text.
fn between(schedule: &Schedule, from: &str, to: &str) -> Vec<String> {
    let shown = schedule.preview(at(from), PREVIEW_MAX).unwrap();
    shown.into_iter().take_while(|t| *t <= at(to)).map(|t| t.to_string()).collect()
}

#[test]
fn expressions_people_write() {
    let from = "2026-01-31T12:34:56.5Z"; // a Saturday
    let table = [
        ("* * * * *", "2026-01-31T12:35:00Z"),
        ("*/15 * * * * *", "2026-01-31T12:35:00Z"),
        ("57 34 12 * * *", "2026-01-31T12:34:57Z"),
        ("56 34 12 * * *", "2026-02-01T12:34:56Z"),
        ("30 2 * * MON-FRI", "2026-02-02T02:30:00Z"),
        ("30 2 * * mon", "2026-02-02T02:30:00Z"),
        ("0 0 1 JAN,jul *", "2026-07-01T00:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 0 L * *", "2026-02-28T00:00:00Z"),
        ("0 0 * * 7", "2026-02-01T00:00:00Z"),
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@monthly", "2026-02-01T00:00:00Z"),
        ("@weekly", "2026-02-01T00:00:00Z"),
        ("@daily", "2026-02-01T00:00:00Z"),
        (" @Midnight ", "2026-02-01T00:00:00Z"),
        ("@hourly", "2026-01-31T13:00:00Z"),
    ];
    for (expr, expected) in table {
        let schedule = cron(expr, "UTC");
        schedule.validate().unwrap();
        let next = schedule.next_after(at(from)).unwrap().unwrap();
        assert_eq!(next, at(expected), "{expr}");
        assert_eq!(schedule.instants().unwrap().newest(next).unwrap(), Some(next), "{expr}");
    }
}

#[test]
fn mistakes_are_named() {
    type Spoil = fn(&mut Schedule);
    fn expr(schedule: &mut Schedule, text: &str) {
        schedule.when = When::Cron { expr: text.into(), zone: "UTC".into() };
    }
    let table: [(Spoil, &str); 17] = [
        (|s| s.name.clear(), "name `` is not a name"),
        (|s| s.name = "a b".into(), "name `a b` is not a name"),
        (|s| s.name = "x".repeat(NAME_MAX + 1), "use 1 to 120"),
        (|s| s.catch_up = CatchUp::All { max: 0 }, "catch_up.all.max 0"),
        (|s| s.catch_up = CatchUp::All { max: 10_001 }, "1..10000"),
        (|s| s.template = Json::trusted("[1]"), "an object with a `kind`"),
        (|s| s.template = Json::default(), "an object with a `kind`"),
        (
            |s| {
                s.when = When::Every { period: Duration::from_millis(999), anchor: Timestamp::ZERO }
            },
            "every.period",
        ),
        (
            |s| s.when = When::Every { period: Duration::MAX, anchor: Timestamp::ZERO },
            "every.period",
        ),
        (
            |s| s.when = When::Cron { expr: "@daily".into(), zone: "Europe/Bremen".into() },
            "zone `Europe/Bremen`",
        ),
        (|s| expr(s, "* * * *"), "4 fields, five or"),
        (|s| expr(s, "0 0 0 1 1 * 2030"), "7 fields"),
        (
            |s| expr(s, "61 * * * *"),
            "cron `61 * * * *`: Component error: Number out of bounds; write",
        ),
        (|s| expr(s, "1,,2 * * * *"), "a comma without a value"),
        (|s| expr(s, "@fortnightly"), "no such name"),
        (|s| expr(s, "0 0 30 2 *"), "never fires"),
        (|s| expr(s, &"1,".repeat(200)), "too long"),
    ];
    for (spoil, expected) in table {
        let mut schedule = cron("@daily", "Europe/Berlin");
        schedule.validate().unwrap();
        spoil(&mut schedule);
        let error = schedule.validate().unwrap_err();
        assert!(error.message().contains(expected), "{error}");
    }
}

#[test]
fn the_json_people_write() {
    let text = r#"{"name":"a","when":{"cron":{"expr":"@daily"}},"template":{"kind":"report"}}"#;
    let read: Schedule = serde_json::from_str(text).unwrap();
    assert_eq!(read, Schedule { name: "a".into(), ..cron("@daily", "UTC") });

    let text = r#"{"when":{"every":{"period":"90s"}},"catch_up":{"all":{"max":5}},"overlap":"skip","template":{"kind":"x"}}"#;
    let read: Schedule = serde_json::from_str(text).unwrap();
    assert_eq!(read.when, When::Every { period: Duration::from_secs(90), anchor: Timestamp::ZERO });
    assert_eq!((read.catch_up, read.overlap), (CatchUp::All { max: 5 }, Overlap::Skip));
    let again = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&again).unwrap(), read);

    for unknown in [
        r#"{"when":{"cron":{"expr":"@daily","tz":"UTC"}},"template":{}}"#,
        r#"{"when":{"every":{"period":"1m"}},"template":{},"catchup":"one"}"#,
        r#"{"when":{"every":{"period":"1m"}},"template":{},"catch_up":{"all":{"max":1,"min":1}}}"#,
    ] {
        assert!(serde_json::from_str::<Schedule>(unknown).is_err(), "{unknown}");
    }
}

#[test]
fn a_key_names_schedule_and_instant() {
    let key = cron("@daily", "UTC").unique_key(at("2026-01-31T02:30:00+01:00"));
    assert_eq!(key, "schedule:nightly:2026-01-31T01:30:00Z");
}

/// Clocks go from 2:00 to 3:00 in both places, at 01:00Z and at 07:00Z.
#[test]
fn skipped_times_fire_once_after_the_gap() {
    let berlin = |expr| {
        between(&cron(expr, "Europe/Berlin"), "2026-03-28T12:00:00Z", "2026-03-30T03:00:00Z")
    };
    assert_eq!(berlin("30 2 * * *"), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    assert_eq!(
        berlin("15,30 2,3 29 3 *"),
        ["2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z", "2026-03-29T01:30:00Z"]
    );
    assert_eq!(berlin("0 2,3 29 3 *"), ["2026-03-29T01:00:00Z"]);
    assert_eq!(berlin("30 2,14 29 3 *"), ["2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z"]);
    assert_eq!(berlin("59 59 1 29 3 *"), ["2026-03-29T00:59:59Z"]);
    assert_eq!(berlin("*/30 2 29 3 *"), [""; 0]);

    let york = |expr| {
        between(&cron(expr, "America/New_York"), "2026-03-08T00:00:00Z", "2026-03-09T06:30:00Z")
    };
    assert_eq!(york("30 2 * * *"), ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]);
    assert_eq!(
        york("*/30 1-3 8 3 *"),
        [
            "2026-03-08T06:00:00Z",
            "2026-03-08T06:30:00Z",
            "2026-03-08T07:00:00Z",
            "2026-03-08T07:30:00Z",
        ]
    );
}

/// Clocks go from 3:00 back to 2:00 in Berlin (01:00Z), from 2:00 back to 1:00
/// in New York (06:00Z).
#[test]
fn repeated_times_fire_once_and_real_time_goes_on() {
    let berlin = |expr| {
        between(&cron(expr, "Europe/Berlin"), "2026-10-24T12:00:00Z", "2026-10-26T01:30:00Z")
    };
    assert_eq!(berlin("30 2 * * *"), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    assert_eq!(berlin("15,45 2 25 10 *"), ["2026-10-25T00:15:00Z", "2026-10-25T00:45:00Z"]);
    assert_eq!(berlin("30 2,3 25 10 *"), ["2026-10-25T00:30:00Z", "2026-10-25T02:30:00Z"]);
    assert_eq!(
        berlin("*/30 2 25 10 *"),
        [
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
        ]
    );

    let york = |expr| {
        between(&cron(expr, "America/New_York"), "2026-11-01T00:00:00Z", "2026-11-02T06:30:00Z")
    };
    assert_eq!(york("30 1 * * *"), ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
    assert_eq!(york("30 * 1 11 *").len(), 25);
    assert_eq!(york("30 0-23 1 11 *").len(), 24);

    // Asked from within the second pass, the first pass is over.
    let fixed = cron("30 2 * * *", "Europe/Berlin");
    let next = fixed.next_after(at("2026-10-25T01:10:00Z")).unwrap().unwrap();
    assert_eq!(next, at("2026-10-26T01:30:00Z"));
    let newest = fixed.instants().unwrap().newest(at("2026-10-25T01:10:00Z")).unwrap();
    assert_eq!(newest, Some(at("2026-10-25T00:30:00Z")));
}

#[test]
fn a_whole_day_can_be_skipped() {
    // Samoa had no 30 December 2011.
    let samoa = cron("0 12 * 12 *", "Pacific/Apia");
    assert_eq!(
        between(&samoa, "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z"),
        ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z",]
    );
}

#[test]
fn intervals_count_from_their_anchor() {
    let schedule = every("90m", "2026-01-01T00:10:00Z");
    schedule.validate().unwrap();
    let table = [
        ("2020-01-01T00:00:00Z", "2026-01-01T00:10:00Z"),
        ("2026-01-01T00:09:59Z", "2026-01-01T00:10:00Z"),
        ("2026-01-01T00:10:00Z", "2026-01-01T01:40:00Z"),
        ("2026-01-01T00:10:00.000001Z", "2026-01-01T01:40:00Z"),
    ];
    for (after, expected) in table {
        assert_eq!(schedule.next_after(at(after)).unwrap(), Some(at(expected)), "{after}");
    }
    assert_eq!(schedule.next_after(Timestamp::MAX).unwrap(), None);
    assert_eq!(cron("@daily", "UTC").next_after(Timestamp::MAX).unwrap(), None);
    assert_eq!(cron("@hourly", "UTC").next_after(at("6000-01-01T00:00:00Z")).unwrap(), None);
    assert_eq!(schedule.preview(Timestamp::ZERO, 1000).unwrap().len(), PREVIEW_MAX);
}

/// `next_at` at midnight, looked at `late` after an instant of an hourly
/// schedule, `hours` after midnight.
fn late_by(catch_up: CatchUp, hours: u32, late: Duration) -> Due {
    let midnight = at("2026-01-01T00:00:00Z");
    let mut due = Vec::new();
    for when in [cron("@hourly", "UTC"), every("1h", "2000-01-01T00:00:00Z")] {
        let schedule = Schedule { catch_up, next_at: Some(midnight), ..when };
        due.push(schedule.due(midnight.plus(60 * MINUTE * hours + late)).unwrap());
    }
    assert_eq!(due[0], due[1]);
    due.remove(0)
}

#[test]
fn catching_up_follows_the_policy() {
    use CatchUp::{All, One, Skip};
    let table = [
        (Skip, 0, Duration::ZERO, 1, 0),
        (Skip, 0, MINUTE, 1, 0),
        (Skip, 0, MINUTE + TICK, 0, 1),
        (Skip, 5, MINUTE, 1, 5),
        (Skip, 5, 2 * MINUTE, 0, 6),
        (One, 5, 59 * MINUTE, 1, 5),
        (All { max: 3 }, 5, 59 * MINUTE, 3, 3),
        (All { max: 100 }, 5, 59 * MINUTE, 6, 0),
    ];
    for (catch_up, hours, late, fires, missed) in table {
        let due = late_by(catch_up, hours, late);
        assert_eq!((due.fire.len(), due.missed), (fires, missed), "{catch_up:?} {hours} {late:?}");
        assert!(due.fire.is_sorted());
        let newest = at("2026-01-01T00:00:00Z").plus(60 * MINUTE * hours);
        assert!(due.fire.last().is_none_or(|last| *last == newest));
        assert_eq!(due.next_at, Some(newest.plus(60 * MINUTE)));
    }
}

#[test]
fn how_late_is_too_late_follows_the_period() {
    let table = [
        ("1s", 900, 1),
        ("8s", 5_000, 1),
        ("8s", 5_001, 0),
        ("40s", 20_000, 1),
        ("40s", 20_001, 0),
    ];
    for (period, late_ms, fires) in table {
        let start = at("2026-01-01T00:00:00Z");
        let schedule = Schedule { next_at: Some(start), ..every(period, "2026-01-01T00:00:00Z") };
        let due = schedule.due(start.plus(Duration::from_millis(late_ms))).unwrap();
        assert_eq!(due.fire.len(), fires, "{period} {late_ms}");
    }
}

#[test]
fn new_and_paused_schedules_only_look_ahead() {
    let now = at("2026-01-01T00:30:00Z");
    let next = Some(at("2026-01-01T01:00:00Z"));
    let expected = Due { next_at: next, ..Due::default() };
    let mut schedule = Schedule { catch_up: CatchUp::All { max: 9 }, ..cron("@hourly", "UTC") };
    assert_eq!(schedule.due(now).unwrap(), expected);
    schedule.next_at = Some(at("2025-12-31T00:00:00Z"));
    assert_eq!(schedule.due(now).unwrap().fire.len(), 9);
    schedule.paused = true;
    assert_eq!(schedule.due(now).unwrap(), expected);
}

#[test]
fn a_long_outage_costs_bounded_work() {
    let start = at("2026-01-01T00:00:00Z");
    let now = at("2027-01-01T00:00:00Z");
    for (schedule, missed) in [
        (cron("* * * * * *", "Europe/Berlin"), u64::from(MISSED_MAX)),
        (cron("0-59 0-59 0-23 * * *", "Europe/Berlin"), u64::from(MISSED_MAX)),
        (every("1s", "2000-01-01T00:00:00Z"), 365 * 86_400 + 1 - 10),
    ] {
        let schedule =
            Schedule { catch_up: CatchUp::All { max: 10 }, next_at: Some(start), ..schedule };
        let due = schedule.due(now).unwrap();
        assert_eq!((due.fire.len(), due.missed), (10, missed));
        assert_eq!(due.fire.last(), Some(&now));
    }
}

/// Looks at every minute: what follows real time fires when the wall clock
/// matches, what names times of day when it passes a match for the first time.
fn look_at_every_minute(expr: &str, zone: &str, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let (cron, follows_real_time) = parse_cron(expr).unwrap();
    let zone = TimeZoneDatabase::bundled().get(zone).unwrap();
    let minute = jiff::SignedDuration::from_mins(1);
    let wall_at = |t: Timestamp| zone.to_datetime(t.to_jiff().unwrap());
    // A day before, so that the furthest wall clock time is known.
    let mut t = from.minus(1440 * MINUTE);
    let mut furthest = wall_at(t);
    let mut fires = Vec::new();
    while t < to {
        t = t.plus(MINUTE);
        let wall = wall_at(t);
        let mut matches = follows_real_time && cron.is_time_matching(&wall).unwrap();
        while furthest < wall {
            furthest = furthest.checked_add(minute).unwrap();
            matches |= !follows_real_time && cron.is_time_matching(&furthest).unwrap();
        }
        if matches && t > from {
            fires.push(t);
        }
    }
    fires
}

fn field(stars: bool, range: std::ops::Range<u8>) -> BoxedStrategy<String> {
    let number = range.clone();
    let list = prop::collection::vec(number.clone(), 1..4)
        .prop_map(|n| n.iter().map(u8::to_string).collect::<Vec<_>>().join(","));
    let span = (number.clone(), number).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let step = (1u8..30).prop_map(|n| format!("*/{n}"));
    match stars {
        true => prop_oneof![Just("*".to_owned()), step, list, span].boxed(),
        false => prop_oneof![list, span].boxed(),
    }
}

fn expr() -> impl Strategy<Value = String> {
    let time = |stars| (field(stars, 0..60), field(stars, 0..5));
    (
        prop_oneof![time(true), time(false)],
        prop_oneof![Just("*"), Just("1-7"), Just("20-31"), Just("L")],
    )
        .prop_map(|((minute, hour), day)| format!("{minute} {hour} {day} * *"))
}

/// Instants around changes of the clock, and one with none.
fn near_changes() -> impl Strategy<Value = (&'static str, Timestamp)> {
    let table = vec![
        ("Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00:00Z"),
        ("America/New_York", "2026-03-08T07:00:00Z"),
        ("America/New_York", "2026-11-01T06:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ("Africa/Cairo", "2026-04-23T22:00:00Z"),
        ("Africa/Cairo", "2026-10-29T21:00:00Z"),
        ("UTC", "2026-01-31T12:00:00Z"),
    ];
    (prop::sample::select(table), -300i64..300).prop_map(|((zone, text), minutes)| {
        (zone, Timestamp::from_millis(at(text).as_millis() + minutes * 60_000))
    })
}

fn any_schedule() -> impl Strategy<Value = (Schedule, Timestamp)> {
    let cron = (expr(), near_changes()).prop_map(|(expr, (zone, from))| (cron(&expr, zone), from));
    let every = (1_000u64..10_000_000, -10_000_000i64..10_000_000, near_changes()).prop_map(
        |(ms, shift, (_, from))| {
            let anchor = Timestamp::from_millis(from.as_millis() + shift);
            (schedule(When::Every { period: Duration::from_millis(ms), anchor }), from)
        },
    );
    prop_oneof![cron, every]
}

fn policy() -> impl Strategy<Value = CatchUp> {
    prop_oneof![
        Just(CatchUp::Skip),
        Just(CatchUp::One),
        (1u32..50).prop_map(|max| CatchUp::All { max })
    ]
}

proptest! {
    #[test]
    fn any_expression_is_read_or_refused(expr in "[0-9*,/#LW+?a-z-]{0,6}( [0-9*,/#LW+-]{1,5}){3,5}|\\PC*") {
        let schedule = cron(&expr, "Europe/Berlin");
        if schedule.validate().is_ok() {
            let shown = schedule.preview(at("2026-03-29T00:00:00Z"), 5).unwrap();
            prop_assert!(shown.len() == 5 && shown.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn changes_of_the_clock_go_as_promised(expr in expr(), (zone, from) in near_changes()) {
        let to = from.plus(600 * MINUTE);
        let instants = cron(&expr, zone).instants().unwrap();
        let mut found = Vec::new();
        let mut t = from;
        while let Some(next) = instants.next_after(t).unwrap().filter(|next| *next <= to) {
            found.push(next);
            t = next;
        }
        let expected = look_at_every_minute(&expr, zone, from, to);
        prop_assert_eq!(&found, &expected, "{} in {}", expr, zone);
        let (backwards, more) = instants.passed(from, to, MISSED_MAX).unwrap();
        prop_assert_eq!((&backwards, more), (&found, 0), "{} in {}", expr, zone);
    }

    #[test]
    fn instants_rise((schedule, from) in any_schedule(), micros in 0u64..60_000_000) {
        let from = from.plus(Duration::from_micros(micros));
        let shown = schedule.preview(from, 50).unwrap();
        prop_assert_eq!(shown.len(), 50);
        let instants = schedule.instants().unwrap();
        let mut before = from;
        for at in shown {
            prop_assert!(at > before);
            // Nothing lies between, whether asked from before or from after.
            prop_assert_eq!(instants.next_after(at.minus(TICK)).unwrap(), Some(at));
            prop_assert_eq!(instants.newest(at).unwrap(), Some(at));
            let newest = instants.newest(at.minus(TICK)).unwrap();
            prop_assert!(newest.is_none_or(|newest| newest <= before));
            before = at;
        }
    }

    #[test]
    fn each_instant_fires_at_most_once(
        (mut schedule, from) in any_schedule(),
        catch_up in policy(),
        steps in prop::collection::vec(0u64..7_200_000, 1..20),
    ) {
        schedule.catch_up = catch_up;
        schedule.fired(&schedule.due(from).unwrap());
        let instants = schedule.instants().unwrap();
        let mut now = from;
        let mut fires: Vec<Timestamp> = Vec::new();
        let mut missed = 0;
        for step in steps {
            now = now.plus(Duration::from_millis(step));
            let due = schedule.due(now).unwrap();
            prop_assert!(due.next_at.is_none_or(|next| next > now));
            for at in &due.fire {
                prop_assert!(*at <= now && fires.last().is_none_or(|last| last < at));
                prop_assert_eq!(instants.newest(*at).unwrap(), Some(*at));
                fires.push(*at);
            }
            missed += due.missed;
            schedule.fired(&due);
            prop_assert_eq!(schedule.due(now).unwrap(), Due { next_at: due.next_at, ..Due::default() });
        }
        let (all, more) = instants.passed(from, now, MISSED_MAX).unwrap();
        prop_assert_eq!(fires.len() as u64 + missed, all.len() as u64 + more);
    }
}
