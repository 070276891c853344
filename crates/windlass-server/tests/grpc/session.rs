//! The session: grants, results, requests, and what a broken stream leaves. That a
//! worker is silent, late or does not read is made to happen here, and seen.

use crate::client::{Session, client, done, finish, held, hello, id, says, step, wish, word};
use crate::place::Place;
use crate::unary::task;
use crate::worker::place;
use serde_json::json;
use std::time::{Duration, Instant};
use tonic::Code;
use windlass_server::api::worker_proto as proto;
use windlass_server::api::worker_proto::session_request::Said as Say;
use windlass_server::api::worker_proto::session_response::Said as Told;

const LEASE: Duration = Duration::from_secs(30);

async fn submit(place: &Place) -> String {
    place.submit(json!({"kind": "far"})).await
}

#[tokio::test]
async fn leases_are_pushed_as_far_as_they_are_granted() {
    let place = place(LEASE).await;
    let client = client(&place).await;
    let mut session = Session::open(&client, hello(2)).await;
    for _ in 0..4 {
        submit(&place).await;
    }
    let (a, b) = (session.lease().await, session.lease().await);
    let progress = proto::Progress { done: 1, ..Default::default() };
    let reports = vec![
        says(&a, step("s", 1)),
        says(&a, done("{\"x\":1}")),
        says(&b, proto::report::Said::Progress(progress)),
    ];
    let say = proto::Say { number: 7, held: vec![held(&b)], reports, ..Default::default() };
    session.say(say).await;
    assert_eq!(session.results(7).await, ["ok", "ok", "ok"]);
    assert_eq!(task(&place, id(&a)).await["result"], json!({"x": 1}));
    // Finished is not granted: the worker says when it has room.
    let queued = place.get("/v1/tasks?q=state:queued").await;
    assert_eq!(queued.items().len(), 2);
    session
        .say(proto::Say { number: 8, held: vec![held(&b)], grant: 1, ..Default::default() })
        .await;
    assert_eq!(session.results(8).await, [""; 0]);
    let c = session.lease().await;
    assert_eq!(task(&place, id(&c)).await["node"], json!(session.id));
    assert_eq!(place.get("/v1/tasks?q=state:queued").await.items().len(), 1);

    let said = proto::Say { number: 9, leaving: true, ..Default::default() };
    session.say(said).await;
    assert_eq!(session.results(9).await, [""; 0]);
    assert_eq!(session.next().await.unwrap_err().code(), Code::Ok, "it ends well");
    assert_eq!(task(&place, id(&c)).await["state"], "queued", "given back at once");
    place.get(&format!("/v1/nodes/{}", session.id)).await.problem(404, "not-found");
}

#[tokio::test]
async fn a_broken_stream_leaves_the_task_to_a_new_session_or_a_report() {
    let place = place(LEASE).await;
    let mut client = client(&place).await;
    let (a, b) = (submit(&place).await, submit(&place).await);
    let mut session = Session::open(&client, hello(2)).await;
    let leases = [session.lease().await, session.lease().await];
    let all = leases.each_ref().map(held).to_vec();
    let reports = vec![says(&leases[0], step("one", 1))];
    session.say(proto::Say { number: 1, held: all.clone(), reports, ..Default::default() }).await;
    assert_eq!(session.results(1).await, ["ok"]);
    let worker_id = session.id.clone();
    drop(session);

    // A call in between.
    let said = proto::ReportRequest {
        worker_id: worker_id.clone(),
        held: all.clone(),
        reports: vec![says(&leases[0], step("two", 2))],
        leaving: false,
    };
    assert_eq!(client.report(said).await.unwrap().into_inner().results, ["ok"]);
    let back = proto::Hello { worker_id: Some(worker_id.clone()), held: all, ..hello(0) };
    let mut session = Session::open(&client, back).await;
    assert_eq!(session.id, worker_id);
    let reports = leases.iter().map(|lease| says(lease, done("true"))).collect();
    session.say(proto::Say { number: 2, reports, ..Default::default() }).await;
    assert_eq!(session.results(2).await, ["ok", "ok"]);
    for id in [a, b] {
        let seen = task(&place, &id).await;
        assert_eq!((&seen["state"], &seen["attempt"]), (&json!("completed"), &json!(1)), "{seen}");
    }
}

#[tokio::test]
async fn requests_are_pushed_at_once_and_once() {
    let place = place(LEASE).await;
    let client = client(&place).await;
    let (a, b) = (submit(&place).await, submit(&place).await);
    let mut session = Session::open(&client, hello(2)).await;
    let leases = [session.lease().await, session.lease().await];
    let all = leases.each_ref().map(held).to_vec();
    session.say(proto::Say { number: 1, held: all.clone(), ..Default::default() }).await;
    session.results(1).await;
    for (task, verb) in [(&a, "cancel"), (&b, "pause")] {
        let asked = Instant::now();
        place.ask(&format!("/v1/tasks/{task}/{verb}")).await;
        let request = match session.next().await.unwrap() {
            Told::Request(request) => request,
            other => panic!("not a request: {other:?}"),
        };
        assert!(asked.elapsed() < Duration::from_secs(1), "not at once: {:?}", asked.elapsed());
        let wanted = (task.as_str(), verb == "cancel", verb == "pause");
        assert_eq!((request.task.as_str(), request.cancel, request.pause), wanted);
    }
    // It is not told again, though each heartbeat hears of it.
    let stopped = finish(proto::FinishOutcome::Release, None);
    let reports = vec![says(&leases[0], stopped), says(&leases[1], step("s", 1))];
    session.say(proto::Say { number: 2, held: all, reports, ..Default::default() }).await;
    assert_eq!(session.results(2).await, ["ok", "ok"]);
    assert_eq!(task(&place, &a).await["state"], "cancelled");
}

#[tokio::test]
async fn a_silent_worker_is_not_renewed_and_one_that_speaks_is() {
    let lease = Duration::from_millis(600);
    let place = place(lease).await;
    let client = client(&place).await;
    let (a, b) = (submit(&place).await, submit(&place).await);
    let began = Instant::now();
    let mut silent = Session::open(&client, hello(1)).await;
    let first = silent.lease().await;
    let mut loud = Session::open(&client, hello(1)).await;
    let second = loud.lease().await;
    assert_eq!([id(&first), id(&second)], [&a, &b]);
    let mut number = 0;
    // The silent one is told that its lease has ended.
    let ended = loop {
        number += 1;
        let say = proto::Say { number, held: vec![held(&second)], ..Default::default() };
        loud.say(say).await;
        loud.results(number).await;
        if let Ok(ended) = tokio::time::timeout(lease / 10, silent.next()).await {
            break ended.unwrap_err();
        }
        assert!(began.elapsed() < lease * 20, "it is renewed without a word");
    };
    assert_eq!((ended.code(), word(&ended)), (Code::FailedPrecondition, "lease-lost"));
    assert!(began.elapsed() >= lease, "too early: {:?}", began.elapsed());
    // The other one held its task all the time, and takes what was lost.
    let say = proto::Say { number: 99, held: vec![held(&second)], grant: 1, ..Default::default() };
    loud.say(say).await;
    assert_eq!(loud.results(99).await, [""; 0]);
    let taken = loud.lease().await;
    assert_eq!((id(&taken), taken.token), (&*a, first.token + 1));
    let reports = vec![says(&second, done("1")), says(&taken, done("2"))];
    loud.say(proto::Say { number: 100, reports, ..Default::default() }).await;
    assert_eq!(loud.results(100).await, ["ok", "ok"]);

    // The first holder comes back, too late.
    let back = proto::Hello { worker_id: Some(silent.id.clone()), ..hello(1) };
    let mut late = Session::raw(&client, Say::Hello(back)).await.unwrap();
    assert_eq!(word(&late.next().await.unwrap_err()), "lease-lost");
    assert_eq!(task(&place, &a).await["result"], json!(2));
}

#[tokio::test]
async fn a_session_begins_with_one_hello_and_keeps_to_its_limits() {
    let place = place(LEASE).await;
    let client = client(&place).await;
    let say = Say::Say(proto::Say::default());
    let held = vec![proto::Held { task: "tsk_0000000000001".to_owned(), token: 1 }];
    for (first, named) in [
        (say, "/hello"),
        (Say::Hello(proto::Hello { kinds: vec![], ..hello(1) }), "/kinds"),
        (Say::Hello(hello(0)), "/max"),
        (Say::Hello(hello(1001)), "/grant"),
        (Say::Hello(proto::Hello { held, ..hello(1) }), "/held"),
    ] {
        let mut session = Session::raw(&client, first).await.unwrap();
        let refused = session.next().await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{named}: {refused}");
        assert!(refused.message().starts_with(named), "{named}: {refused}");
    }
    let mut session = Session::open(&client, hello(1)).await;
    session.say(proto::Say { grant: 1000, ..Default::default() }).await;
    let refused = session.next().await.unwrap_err();
    assert!(refused.message().starts_with("/say/grant: at most 1000"), "{refused}");
}

#[tokio::test]
async fn a_worker_that_does_not_read_is_cut_off() {
    const TASKS: u32 = 100;
    let lease = Duration::from_secs(1);
    let place = place(lease).await;
    let client = client(&place).await;
    // More than the windows, the buffers and the channel of a session hold.
    let payload = json!({"text": "x".repeat(200_000)});
    let mut first = None;
    for _ in 0..TASKS {
        let id = place.submit(json!({"kind": "far", "payload": payload})).await;
        first.get_or_insert(id);
    }
    let mut session = Session::open(&client, hello(TASKS)).await;
    place.until(&first.unwrap(), "running").await;
    // It speaks, and what it is told about that fills the channel at last.
    let began = Instant::now();
    while began.elapsed() < lease * 3 {
        let said = Some(Say::Say(proto::Say::default()));
        session.send(said).await;
        // tidy: allow-sleep because not to read for three leases is the fault
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut got = 0;
    let ended = loop {
        match session.next().await {
            Ok(_) => got += 1,
            Err(ended) => break ended,
        }
    };
    assert!(got > 0 && got < TASKS, "{got} leases: nothing was cut off, {ended}");
    assert!(matches!(ended.code(), Code::DeadlineExceeded | Code::Ok), "{ended}");
}

#[tokio::test]
async fn a_stopping_server_ends_its_sessions() {
    let place = place(LEASE).await;
    let client = client(&place).await;
    let mut session = Session::open(&client, hello(1)).await;
    place.engine.shutdown(Duration::ZERO).await.unwrap();
    let ended = session.next().await.unwrap_err();
    assert_eq!((ended.code(), word(&ended)), (Code::Unavailable, "draining"));
    let mut client = client.clone();
    assert!(client.lease(wish(1)).await.is_err());
}
