//! Lease and report, call by call, and how refusals look. Fields must be those of
//! the HTTP bodies, and so must what is refused.

use crate::client::{client, done, finish, held, id, says, step, wish, word};
use crate::place::Place;
use crate::worker::place;
use serde_json::{Value, json};
use std::time::Duration;
use tonic::Code;
use windlass_server::api::worker_proto as proto;
use windlass_server::api::worker_proto::report::Said;

const LEASE: Duration = Duration::from_secs(30);

pub(crate) async fn task(place: &Place, id: &str) -> Value {
    place.get(&format!("/v1/tasks/{id}")).await.is(200).json.clone()
}

#[tokio::test]
async fn a_task_goes_through_step_by_step_and_resumes() {
    let place = place(LEASE).await;
    let body = json!({"kind": "far", "payload": {"n": "é"}, "labels": {"a": "b"}, "user_id": "u"});
    let task_id = place.submit(body).await;
    let mut client = client(&place).await;
    let answer = client.lease(wish(5)).await.unwrap().into_inner();
    assert_eq!((answer.lease.as_str(), answer.leases.len()), ("30s", 1));
    let lease = answer.leases[0].clone();
    let about = lease.task.clone().unwrap();
    assert_eq!(about.id, task_id);
    assert_eq!(serde_json::from_str::<Value>(&lease.payload).unwrap(), json!({"n": "é"}));
    assert_eq!((about.kind.as_str(), about.queue.as_str(), about.attempt), ("far", "jobs", 1));
    assert_eq!((about.labels["a"].as_str(), about.user_id.as_deref()), ("b", Some("u")));
    assert_eq!(about.idempotency_prefix, format!("{task_id}:1"));
    let times = lease.timeouts.clone().unwrap();
    assert_eq!((times.step.as_str(), times.task.as_str()), ("5m", "30m"));
    assert_eq!(lease.checkpoint, None);

    let progress = proto::Progress { done: 1, total: 3, note: None, data: Some("[1]".to_owned()) };
    let skip = proto::Step {
        name: "b".to_owned(),
        version: 2,
        outcome: proto::StepOutcome::Skip.into(),
        reason: Some("old".to_owned()),
        ..Default::default()
    };
    let release = finish(proto::FinishOutcome::Release, None);
    let reports = [step("a", 1), Said::Progress(progress), Said::Step(skip), release];
    let said = proto::ReportRequest {
        worker_id: answer.worker_id.clone(),
        held: vec![held(&lease)],
        reports: reports.map(|said| says(&lease, said)).into(),
        leaving: false,
    };
    let told = client.report(said).await.unwrap().into_inner();
    assert_eq!(told.results, ["ok"; 4]);
    assert_eq!(task(&place, &task_id).await["progress"]["data"], json!([1]));

    let again = proto::LeaseRequest { worker_id: Some(answer.worker_id.clone()), ..wish(5) };
    let again = client.lease(again).await.unwrap().into_inner();
    assert_eq!(again.worker_id, answer.worker_id);
    let lease = &again.leases[0];
    let checkpoint = lease.checkpoint.clone().unwrap();
    assert_eq!((checkpoint.version, checkpoint.data.as_str()), (2, r#"{"a":1}"#));
    let steps: Vec<_> = checkpoint.completed.iter().map(|s| (&*s.name, &*s.outcome)).collect();
    assert_eq!(steps, [("a", "done"), ("b", "skipped")]);
    let said = proto::ReportRequest {
        worker_id: answer.worker_id,
        held: vec![held(lease)],
        reports: vec![says(lease, finish(proto::FinishOutcome::Done, None))],
        leaving: true,
    };
    assert_eq!(client.report(said).await.unwrap().into_inner().results, ["ok"]);
    let seen = task(&place, &task_id).await;
    assert_eq!((&seen["state"], &seen["result"]), (&json!("completed"), &json!({"a": 1})));
}

#[tokio::test]
async fn an_old_token_is_refused_alone_and_a_lost_worker_as_a_whole() {
    let place = place(LEASE).await;
    place.submit(json!({"kind": "far"})).await;
    let mut client = client(&place).await;
    let answer = client.lease(wish(1)).await.unwrap().into_inner();
    let lease = &answer.leases[0];
    let stale = proto::Lease { token: lease.token + 1, ..lease.clone() };
    let said = proto::ReportRequest {
        worker_id: answer.worker_id.clone(),
        held: vec![held(lease)],
        reports: vec![says(&stale, step("a", 1)), says(lease, done("1"))],
        leaving: false,
    };
    let results = client.report(said.clone()).await.unwrap().into_inner().results;
    assert_eq!(results, ["lease-lost", "ok"]);
    assert_eq!(task(&place, id(lease)).await["result"], json!(1));

    let stranger = proto::ReportRequest { worker_id: "nod_0000000000001".to_owned(), ..said };
    let refused = client.report(stranger).await.unwrap_err();
    assert_eq!((refused.code(), word(&refused)), (Code::FailedPrecondition, "lease-lost"));
    assert!(refused.message().contains("worker_id null"), "what to do: {refused}");
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let place = place(LEASE).await;
    place.submit(json!({"kind": "far"})).await;
    let mut client = client(&place).await;
    for (wrong, named) in [
        (wish(0), "/max"),
        (proto::LeaseRequest { kinds: vec![], ..wish(1) }, "/kinds"),
        (proto::LeaseRequest { kinds: vec!["a b".to_owned()], ..wish(1) }, "/kinds/0"),
        (proto::LeaseRequest { wait: Some("soon".to_owned()), ..wish(1) }, "/wait"),
        (proto::LeaseRequest { worker_id: Some("me".to_owned()), ..wish(1) }, "/worker_id"),
    ] {
        let refused = client.lease(wrong.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{wrong:?}: {refused}");
        assert!(refused.message().starts_with(&format!("{named}: ")), "{named}: {refused}");
    }
    let answer = client.lease(wish(1)).await.unwrap().into_inner();
    let lease = &answer.leases[0];
    let bad_class = proto::Finish {
        outcome: proto::FinishOutcome::Fail.into(),
        error: Some(proto::Error { class: Some("odd".to_owned()), ..Default::default() }),
        ..Default::default()
    };
    let nothing = proto::Step { name: "a".to_owned(), version: 1, ..Default::default() };
    for (said, named) in [
        (Some(Said::Step(nothing)), "/reports/1/step/outcome"),
        (Some(done("{broken")), "/reports/1/finish/output"),
        (Some(finish(proto::FinishOutcome::Fail, Some("1"))), "/reports/1/finish/output"),
        (Some(finish(proto::FinishOutcome::Snooze, None)), "/reports/1/finish/delay"),
        (Some(Said::Finish(bad_class)), "/reports/1/finish/error/class"),
        (None, "/reports/1"),
    ] {
        let report = proto::Report { said: said.clone(), ..says(lease, done("1")) };
        let said = proto::ReportRequest {
            worker_id: answer.worker_id.clone(),
            held: vec![held(lease)],
            reports: vec![says(lease, done("1")), report],
            leaving: false,
        };
        let refused = client.report(said).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{named}: {refused}");
        assert!(refused.message().starts_with(&format!("{named}: ")), "{named}: {refused}");
    }
    assert_eq!(task(&place, id(lease)).await["state"], "running", "nothing of them was written");
}
