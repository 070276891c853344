//! Events: page by page, as a stream, and resumed without a gap. What comes
//! through one way must be what comes through the other.

use crate::place::Place;
use reqwest::Response;
use serde_json::{Value, json};
use std::time::Duration;

/// Opens a stream and reads it until `enough` of its events are there.
async fn stream(place: &Place, path: &str, last: Option<&str>, enough: usize) -> Vec<Value> {
    read(open(place, path, last).await, enough).await
}

/// A stream that is open: what happens from now on is told.
async fn open(place: &Place, path: &str, last: Option<&str>) -> Response {
    let mut request = place.client.get(place.url(path)).header("accept", "text/event-stream");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status().as_u16(), 200);
    response
}

async fn read(mut response: Response, enough: usize) -> Vec<Value> {
    let mut text = String::new();
    let mut events = vec![];
    while events.len() < enough {
        let chunk = tokio::time::timeout(Duration::from_secs(20), response.chunk());
        let chunk = chunk.await.expect("news in time").expect("no error").expect("no end");
        text.push_str(&String::from_utf8_lossy(&chunk));
        while let Some((event, rest)) =
            text.split_once("\n\n").map(|(e, r)| (e.to_owned(), r.to_owned()))
        {
            text = rest;
            let data = event.lines().find_map(|l| l.strip_prefix("data: "));
            if let Some(data) = data {
                let value: Value = serde_json::from_str(data).expect("JSON");
                assert!(event.contains(&format!("id: {}", value["id"].as_str().unwrap())));
                events.push(value);
            }
        }
    }
    events
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|e| e["type"].as_str()).collect()
}

const LIFE: [&str; 4] = ["task.submitted", "task.started", "task.step_completed", "task.completed"];

#[tokio::test]
async fn a_task_is_told_live_and_page_by_page() {
    let place = Place::new().await;
    // It must not start before somebody listens.
    place.ask("/v1/queues/jobs/pause").await.is(200);
    let id = place.submit(json!({"kind": "obey", "delay": "300ms", "payload": {"value": 1}})).await;
    let path = format!("/v1/events?task={id}&type=task.started,task.step_*,task.completed");
    let live = open(&place, &path, None).await;
    place.ask("/v1/queues/jobs/resume").await.is(200);
    let live = read(live, 3).await;
    assert_eq!(types(&live), LIFE[1..]);
    assert!(live.iter().all(|e| e["task"] == json!(id)));
    let page = place.get(&format!("/v1/events?task={id}")).await;
    let all = page.is(200).items().clone();
    assert_eq!(
        types(&all),
        [
            "task.submitted",
            "task.scheduled",
            "task.started",
            "task.step_completed",
            "task.completed"
        ]
    );
    let numbers: Vec<u64> = all.iter().filter_map(|e| e["n"].as_u64()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    for field in "id position task n type at kind queue correlation_id data".split(' ') {
        assert!(all[0].get(field).is_some(), "{field}");
    }
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_event() {
    let place = Place::new().await;
    for n in 0..5 {
        place.ended(json!({"kind": "obey", "payload": {"value": n}})).await;
    }
    let all = stream(&place, "/v1/events?after=0&q=kind:obey", None, 20).await;
    let seventh = all[6]["id"].as_str().unwrap();
    let rest = stream(&place, "/v1/events?q=kind:obey", Some(seventh), 13).await;
    assert_eq!(rest, all[7..]);
    let (mut paged, mut after) = (vec![], "0".to_owned());
    loop {
        let page = place.get(&format!("/v1/events?q=kind:obey&limit=3&after={after}")).await;
        if page.is(200).items().is_empty() {
            break;
        }
        paged.extend(page.items().clone());
        after = page.json["next_cursor"].as_str().expect("a cursor").to_owned();
    }
    assert_eq!(paged, all);
}

#[tokio::test]
async fn many_listeners_hear_the_same() {
    let place = Place::new().await;
    let listeners =
        (0..20).map(|_| stream(&place, "/v1/events?after=0&q=kind:demo.hello", None, 30));
    let work = async {
        for _ in 0..10 {
            place.ended(json!({"kind": "demo.hello"})).await;
        }
    };
    let (heard, ()) = tokio::join!(futures::future::join_all(listeners), work);
    assert!(heard.iter().all(|events| *events == heard[0]));
    assert_eq!(types(&heard[0])[..3], ["task.submitted", "task.started", "task.completed"]);
}

#[tokio::test]
async fn wrong_wishes_are_refused() {
    let place = Place::new().await;
    for (query, status, code) in [
        ("after=nonsense", 422, "invalid-fields"),
        ("after=-1", 422, "invalid-fields"),
        ("task=nonsense", 422, "invalid-fields"),
        ("limit=0", 422, "invalid-fields"),
        ("q=state:failed", 400, "bad-filter"),
        ("q=(", 400, "bad-filter"),
        ("since=1", 422, "invalid-fields"),
    ] {
        let got = place.get(&format!("/v1/events?{query}")).await;
        got.problem(status, code);
    }
}
