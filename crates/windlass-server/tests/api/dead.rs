//! Dead letters: listed, grouped by cause, shown, exported, sent again,
//! discarded.

use crate::place::Place;
use serde_json::{Value, json};
use std::collections::HashSet;

async fn failed(place: &Place, why: &str) -> String {
    let task = place.ended(json!({"kind": "obey", "payload": {"do": "fail", "why": why}})).await;
    assert_eq!(task["state"], "failed");
    task["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn letters_are_grouped_by_their_cause() {
    let place = Place::new().await;
    for n in 1..=3 {
        failed(&place, &format!("timeout after {n}00 ms at host-{n}.example")).await;
    }
    let other = failed(&place, "no such bucket").await;
    let groups = place.get("/v1/dead-letters?group_by=error").await;
    let groups = groups.is(200).json["groups"].as_array().expect("groups").clone();
    let counts: Vec<&Value> = groups.iter().map(|g| &g["count"]).collect();
    assert_eq!(counts, [&json!(3), &json!(1)], "{groups:?}");
    assert_eq!(groups[1]["cause"], "no such bucket");

    let list = place.get("/v1/dead-letters?limit=2").await;
    assert_eq!(list.is(200).items().len(), 2);
    let next = list.json["next_cursor"].as_str().expect("a cursor");
    let rest = place.get(&format!("/v1/dead-letters?limit=2&cursor={next}")).await;
    assert_eq!(rest.is(200).items().len(), 2);
    let found = place.get("/v1/dead-letters?q=error~bucket").await;
    let letter = &found.is(200).items()[0];
    assert_eq!(letter["task"], other);
    for field in "id task kind queue reason class message step attempts node at correlation_id trace_id message_id source payload".split(' ') {
        assert!(letter.get(field).is_some(), "{field} is missing: {letter}");
    }
    let id = letter["id"].as_str().unwrap();
    assert!(id.starts_with("dl_"));
    assert_eq!(place.get(&format!("/v1/dead-letters/{id}")).await.is(200).json["task"], other);
    assert_eq!(place.get(&format!("/v1/dead-letters/{other}")).await.is(200).json["id"], id);
    place.get("/v1/dead-letters?group_by=kind").await.problem(422, "invalid-fields");

    let export = place.get("/v1/dead-letters/export").await;
    assert_eq!(export.is(200).text.lines().count(), 4);
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    for line in export.text.lines() {
        serde_json::from_str::<Value>(line).expect("a JSON line");
    }
}

#[tokio::test]
async fn a_letter_is_sent_again_or_discarded() {
    let place = Place::new().await;
    let id = failed(&place, "a").await;
    let dead = id.replace("tsk_", "dl_");
    let body = json!({"payload": {"value": 5}});
    let got = place.post(&format!("/v1/dead-letters/{dead}/requeue"), body).await;
    assert_eq!(got.is(200).json["id"], id);
    place.until(&id, "completed").await;
    place.get(&format!("/v1/dead-letters/{dead}")).await.problem(404, "not-found");

    let id = failed(&place, "b").await;
    place.ask(&format!("/v1/dead-letters/{id}/discard")).await.is(200);
    assert!(place.get("/v1/dead-letters").await.is(200).items().is_empty());
    assert_eq!(place.get(&format!("/v1/tasks/{id}")).await.json["state"], "failed");
}

#[tokio::test]
async fn an_export_goes_on_piece_by_piece() {
    let place = Place::new().await;
    for size in [10, 400_000].repeat(10) {
        let payload = json!({"do": "fail", "value": "x".repeat(size)});
        place.ended(json!({"kind": "obey", "payload": payload})).await;
    }
    let export = place.get("/v1/dead-letters/export").await;
    let ids: HashSet<String> = export
        .is(200)
        .text
        .lines()
        .map(|line| {
            let letter: Value = serde_json::from_str(line).expect("JSON");
            letter["id"].to_string()
        })
        .collect();
    assert_eq!((ids.len(), export.text.lines().count()), (20, 20));
}
