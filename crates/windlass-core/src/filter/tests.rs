//! The language by example, and what must hold for every filter and task. What
//! stores push down must never leave out a task that matches.

use super::*;
use crate::clock::Timestamp;
use crate::error::Code;
use crate::json::Json;
use crate::outcome::{Class, Failure, Reason, TaskError};
use crate::task::{Kind, NewTask, QueueName, Task};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

/// A failed task of media, two hours old, with everything a filter can ask for.
fn task() -> Task {
    let mut new = NewTask::new(TaskId::from_key(7), Kind::trusted("image.resize"), Json::default());
    new.queue = QueueName::trusted("media");
    new.priority = -3;
    let extras = new.extras_mut();
    extras.labels.insert("tenant".into(), "acme".into());
    extras.labels.insert("a:b".into(), "two words".into());
    extras.correlation_id = Some("c-1".into());
    extras.user_id = Some("u*1".into());
    extras.rerun_of = Some(TaskId::from_key(5));
    let mut task = Task::born(&new, NOW.minus(2 * HOUR));
    task.parent = Some(TaskId::from_key(6));
    task.standing.state = State::Failed;
    task.standing.attempt = 4;
    task.standing.retries = 2;
    task.standing.node = Some(NodeId::from_key(9));
    let error = TaskError::new(Class::Timeout, "Connection RESET by peer").at_step("scan", 1);
    task.standing.failure = Some(Failure::ended(Reason::Exhausted, error));
    task
}

fn matches(text: &str) -> bool {
    Filter::parse(text).unwrap().matches(&task(), NOW)
}

#[test]
fn terms_that_hold() {
    let (id, parent, old) = (TaskId::from_key(7), TaskId::from_key(6), TaskId::from_key(5));
    let node = NodeId::from_key(9);
    for text in [
        "",
        "  \t\n ",
        "state:failed,retrying queue:media kind:image.* label.tenant:acme error~\"reset\"",
        "attempt:>=3 age:>1h since:3h -queue:low",
        "attempt:4 attempt:=4 attempt:1,>3 attempt:<5 attempt:<=4 run:1 priority:-3 retries:2",
        "kind:*resize kind:*.* kind:i*ge*size kind:* kind:low,image.resize kind:**",
        "label.tenant:ac* label.tenant:* -label.tenant:x -label.missing:*",
        r#"label."a:b":"two words" label."a:b":"two w*""#,
        "error:Connection* -error:connection* error:*RESET* -error:reset",
        r#"error~"by PEER" error~nothing,reset -error~"r*t""#,
        "reason:exhausted,poisoned class:timeout class:time* step:scan",
        r#"correlation:c-1 user:u* user:"u\*1" -user:"u\*2""#,
        "age:>=2h age:<=2h age:<1h,>90m -age:<1h since:2h -since:1h",
        "-state:queued -state:running,paused",
        &format!("id:{id} parent:{parent} rerun_of:{old} node:{node} id:{old},{id} -parent:{id}"),
    ] {
        assert!(matches(text), "{text}");
    }
}

#[test]
fn terms_that_do_not_hold() {
    for text in [
        "state:failed queue:low",
        "-state:failed",
        "kind:image",
        "kind:resize",
        "kind:image.*x",
        "kind:*image.resize.*",
        "label.Tenant:acme",
        "label.missing:*",
        "label.missing:\"\"",
        "-label.tenant:acme,other",
        "error~refused",
        "attempt:>4",
        "attempt:5,6",
        "retries:=3",
        "age:>2h",
        "since:119m",
        "reason:fatal",
        "parent:tsk_0000000000007",
    ] {
        assert!(!matches(text), "{text}");
    }
}

#[test]
fn absent_values_match_only_negations() {
    let plain =
        Task::born(&NewTask::new(TaskId::from_key(1), Kind::trusted("a"), Json::default()), NOW);
    for field in ["error", "reason", "class", "step", "correlation", "user", "label.x"] {
        let has = Filter::parse(&format!("{field}:*")).unwrap();
        let has_not = Filter::parse(&format!("-{field}:*")).unwrap();
        assert!(!has.matches(&plain, NOW) && has_not.matches(&plain, NOW), "{field}");
    }
    assert!(!Filter::parse("error~\"\"").unwrap().matches(&plain, NOW));
}

#[test]
fn errors_name_place_word_and_remedy() {
    let many = "state:failed ".repeat(TERMS_MAX + 1);
    let grows = format!("error~{}a", "a,".repeat(1398));
    let long = "x".repeat(TEXT_MAX + 1);
    let table = [
        (
            "qeue:media",
            "at character 1, `qeue:media`: no such field; did you mean `queue`? the fields are state",
        ),
        ("ü state:failed", "at character 1, `ü`: not a condition"),
        (
            "queue:ü stat:failed",
            "at character 9, `stat:failed`: no such field; did you mean `state`?",
        ),
        ("user_id:1", "did you mean `user`?"),
        ("labels.x:1", "did you mean `label`?"),
        ("xyz:1", "`xyz:1`: no such field; the fields are"),
        ("-foo:1", "at character 2, `foo:1`: no such field"),
        ("--state:failed", "did you mean `state`?"),
        ("failed", "did you mean `state:failed`?"),
        ("tsk_0000000000001", "did you mean `id:tsk_0000000000001`?"),
        ("attempt>3", "not a condition; write field:value"),
        ("queue", "did you mean `queue:...`?"),
        ("queue~x", "did you mean `queue:...`?"),
        ("-", "at character 1, `-`: not a condition"),
        (
            "state:failed,fialed",
            "at character 14, `fialed`: no such state; did you mean `failed`? use one of",
        ),
        ("state:", "at character 7, the end: a value is missing"),
        ("queue:a,,b", "at character 9, `,b`: a value is missing"),
        ("queue: a", "a value is missing"),
        ("label:x", "which label? write label.NAME:value"),
        ("label.:x", "a label's name is missing"),
        ("queue:\"a", "at character 7, `\"a`: the closing quote is missing"),
        ("queue:\"a\"b", "after the closing quote"),
        ("queue:a\"b\"", "quotes around the whole value"),
        (r#"queue:"a\x""#, r"at character 9, `\x"),
        ("attempt:three", "at character 9, `three`: not a number; write one such as 3"),
        ("attempt:>", "not a number"),
        ("attempt:99999999999999999999", "not a number"),
        ("age:1h", "say whether older or younger"),
        ("age:=1h", "say whether older or younger"),
        ("age:>soon", "`soon` is not a duration; write a duration such as"),
        ("since:1h,2h", "since takes one duration"),
        ("id:7", "an id looks like tsk_ and 13 characters"),
        ("node:tsk_0000000000001", "an id looks like nod_"),
        ("reason:exhuasted", "no such reason; did you mean `exhausted`?"),
        ("class:x", "no such class; use one of retryable"),
        (many.as_str(), "more than 64 terms"),
        (long.as_str(), "4097 bytes, at most 4096"),
        (grows.as_str(), "5601 bytes, at most 4096"),
    ];
    for (text, expected) in table {
        let error = Filter::parse(text).unwrap_err();
        assert_eq!(error.code(), Code::BadFilter, "{text}");
        assert!(error.message().contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_canonical_form() {
    let table = [
        (" state:failed   queue:\"media\" ", "state:failed queue:media"),
        ("attempt:=3 attempt:>=3 age:>90m since:PT1H", "attempt:3 attempt:>=3 age:>1h30m since:1h"),
        ("error~reset kind:a**b", "error~\"reset\" kind:a*b"),
        (r#"error~"a*b" user:"a\*b" user:"""#, r#"error~"a\*b" user:"a\*b" user:"""#),
        (
            r#"label."t.x":1 label."a b":"x y*" user:a\b"#,
            r#"label.t.x:1 label."a b":"x y*" user:"a\\b""#,
        ),
        ("id:tsk_000000000000O", "id:tsk_0000000000000"),
    ];
    for (text, expected) in table {
        assert_eq!(Filter::parse(text).unwrap().to_string(), expected);
    }
    let filter = Filter::parse("-state:failed").unwrap();
    let json = serde_json::to_string(&filter).unwrap();
    assert_eq!(json, "\"-state:failed\"");
    assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter);
}

#[test]
fn stores_are_told_what_a_match_must_be() {
    let of = |text: &str| Filter::parse(text).unwrap();
    let key = TaskId::from_key;
    assert_eq!(of("queue:x -id:tsk_0000000000001 -parent:tsk_0000000000001").states(), None);
    assert_eq!(of("-id:tsk_0000000000001").ids(), None);
    assert_eq!(of("-parent:tsk_0000000000001").parents(), None);
    assert_eq!(of("state:failed,queued").states(), Some(vec![State::Queued, State::Failed]));
    assert_eq!(of("state:failed -state:failed").states(), Some(vec![]));
    assert_eq!(of("-state:failed,queued").states().unwrap().len(), 10);
    let ids = format!("id:{},{} id:{1},{}", key(1), key(2), key(3));
    assert_eq!(of(&ids).ids(), Some(vec![key(2)]));
    assert_eq!(of(&ids.replace("id:", "parent:")).parents(), Some(vec![key(2)]));

    let ago = |hours: u32| Some(NOW.minus(hours * HOUR));
    let table = [
        ("", (None, None)),
        ("age:>1h", (None, ago(1))),
        ("since:2h age:>=1h", (ago(2), ago(1))),
        ("-since:2h -age:>=5h", (ago(5), ago(2))),
        ("age:<1h,<3h", (ago(3), None)),
        ("age:<1h,>3h", (None, None)),
        ("-age:<1h,>3h", (ago(3), ago(1))),
        ("age:>=0s", (None, None)),
    ];
    for (text, expected) in table {
        assert_eq!(of(text).created_range(NOW), expected, "{text}");
    }
}

/// Text from few letters, so that patterns meet values, with everything that
/// has to be escaped.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!["a", "b", "A", "*", "\"", "\\", ",", " ", "\n", ":", "ß", "-"]),
        0..5,
    )
    .prop_map(|letters| letters.concat())
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop::collection::vec(text(), 1..4).prop_map(Pattern::of_parts)
}

fn op() -> impl Strategy<Value = Op> {
    prop::sample::select(vec![Op::Greater, Op::AtLeast, Op::Less, Op::AtMost, Op::Equal])
}

fn few<S: Strategy>(item: S) -> impl Strategy<Value = Vec<S::Value>> {
    prop::collection::vec(item, 1..4)
}

fn word_pattern(words: Vec<&'static str>) -> impl Strategy<Value = Pattern> {
    let exact = prop::sample::select(words).prop_map(|w| Pattern::of_parts(vec![w.to_owned()]));
    prop_oneof![exact, Just(Pattern::of_parts(vec!["e".to_owned(), String::new()]))]
}

fn text_test() -> impl Strategy<Value = Test> {
    let fields = vec![
        TextField::Queue,
        TextField::Kind,
        TextField::Error,
        TextField::Step,
        TextField::Correlation,
        TextField::User,
    ];
    let label =
        text().prop_filter("a label has a name", |t| !t.is_empty()).prop_map(TextField::Label);
    let field = prop_oneof![3 => prop::sample::select(fields), 1 => label];
    let reasons = word_pattern(Reason::ALL.iter().map(|r| r.as_str()).collect());
    let classes = word_pattern(Class::ALL.iter().map(|c| c.as_str()).collect());
    prop_oneof![
        4 => (field, few(pattern())).prop_map(|(field, patterns)| Test::Text(field, patterns)),
        1 => few(reasons).prop_map(|p| Test::Text(TextField::Reason, p)),
        1 => few(classes).prop_map(|p| Test::Text(TextField::Class, p)),
    ]
}

fn test() -> impl Strategy<Value = Test> {
    let id = || few((0i64..4).prop_map(TaskId::from_key));
    let number = prop::sample::select(vec![
        NumberField::Attempt,
        NumberField::Run,
        NumberField::Priority,
        NumberField::Retries,
    ]);
    let comparison = (op(), -3i64..3).prop_map(|(op, value)| Comparison { op, value });
    let age = (op().prop_filter("an age is older or younger", |op| *op != Op::Equal), age())
        .prop_map(|(op, value)| Comparison { op, value });
    prop_oneof![
        few(prop::sample::select(State::ALL.to_vec())).prop_map(Test::State),
        id().prop_map(Test::Id),
        id().prop_map(Test::Parent),
        id().prop_map(Test::RerunOf),
        few((0i64..4).prop_map(NodeId::from_key)).prop_map(Test::Node),
        text_test(),
        few(text()).prop_map(Test::ErrorHas),
        (number, few(comparison)).prop_map(|(field, any)| Test::Number(field, any)),
        few(age).prop_map(Test::Age),
        self::age().prop_map(Test::Since),
    ]
}

fn age() -> impl Strategy<Value = Duration> {
    (0u64..4).prop_map(|hours| Duration::from_millis(hours * 3_600_000))
}

fn filter() -> impl Strategy<Value = Filter> {
    let term = (any::<bool>(), test()).prop_map(|(negated, test)| Term { negated, test });
    prop::collection::vec(term, 0..5).prop_map(|terms| Filter { terms })
}

prop_compose! {
    fn any_task()(
        keys in (0i64..4, prop::option::of(0i64..4), prop::option::of(0i64..4), prop::option::of(0i64..4)),
        texts in (text(), text(), text(), text()),
        state in prop::sample::select(State::ALL.to_vec()),
        numbers in (0u32..3, 0u32..3, -3i8..3),
        hours in -2i64..5,
        failed in any::<bool>(),
        reason in prop::option::of(prop::sample::select(Reason::ALL.to_vec())),
        class in prop::sample::select(Class::ALL.to_vec()),
    ) -> Task {
        let mut new = NewTask::new(TaskId::from_key(keys.0), Kind::trusted(texts.0), Json::default());
        new.priority = numbers.2;
        let extras = new.extras_mut();
        extras.labels.insert(texts.1.clone(), texts.2.clone());
        extras.user_id = Some(texts.2.clone());
        extras.rerun_of = keys.1.map(TaskId::from_key);
        let made = Timestamp::from_millis(NOW.as_millis() - hours * 3_600_000);
        let mut task = Task::born(&new, made);
        task.parent = keys.2.map(TaskId::from_key);
        task.standing.node = keys.3.map(NodeId::from_key);
        task.standing.state = state;
        task.standing.attempt = numbers.0;
        task.standing.retries = numbers.1;
        let error = TaskError::new(class, texts.3).at_step(&texts.1, 0);
        task.standing.failure = failed.then_some(Failure { reason, error });
        task
    }
}

/// The slow, obvious way to match.
fn matches_slowly(parts: &[String], text: &str) -> bool {
    match parts {
        [] => text.is_empty(),
        [only] => only == text,
        [first, rest @ ..] => text.strip_prefix(first.as_str()).is_some_and(|tail| {
            (0..=tail.len())
                .filter(|i| tail.is_char_boundary(*i))
                .any(|i| matches_slowly(rest, &tail[i..]))
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn written_filters_read_back(filter in filter()) {
        let text = filter.to_string();
        prop_assert_eq!(Filter::parse(&text).unwrap(), filter, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Filter::parse(&text);
    }

    /// Closer to the language than arbitrary text.
    #[test]
    fn broken_filters_are_read_or_refused(filter in filter(), cut in any::<prop::sample::Index>(), put in text()) {
        let text = filter.to_string();
        let at = cut.index(text.len() + 1);
        let at = (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap();
        let broken = format!("{}{put}{}", &text[..at], &text[at..]);
        for text in [broken.as_str(), &text[..at], &text[at..]] {
            if let Ok(filter) = Filter::parse(text) {
                prop_assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter, "{}", text);
            }
        }
    }

    #[test]
    fn what_stores_are_told_is_true(filter in filter(), task in any_task()) {
        // Also each term alone: a whole filter seldom matches.
        let alone = filter.terms.iter().map(|t| Filter { terms: vec![t.clone()] });
        for filter in std::iter::once(filter.clone()).chain(alone) {
            if !filter.matches(&task, NOW) {
                continue;
            }
            prop_assert!(filter.states().is_none_or(|s| s.contains(&task.state())));
            prop_assert!(filter.ids().is_none_or(|ids| ids.contains(&task.id)));
            prop_assert!(filter.parents().is_none_or(|ids| ids.contains(&task.parent.unwrap())));
            let (from, to) = filter.created_range(NOW);
            prop_assert!(from.is_none_or(|from| from <= task.created_at), "{filter}");
            prop_assert!(to.is_none_or(|to| task.created_at <= to), "{filter}");
        }
    }

    #[test]
    fn a_negated_term_is_the_opposite(test in test(), task in any_task()) {
        let [yes, no] = [false, true].map(|negated| Filter { terms: vec![Term { negated, test: test.clone() }] });
        prop_assert_ne!(yes.matches(&task, NOW), no.matches(&task, NOW));
    }

    #[test]
    fn patterns_match_as_the_slow_way_says(pattern in pattern(), text in text()) {
        prop_assert_eq!(pattern.matches(&text), matches_slowly(&pattern.parts, &text));
        prop_assert!(!pattern.matches(&text) || text.starts_with(pattern.prefix()));
    }
}
