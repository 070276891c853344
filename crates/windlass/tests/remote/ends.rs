//! How attempts end in a worker's words: the same words again, results that are
//! merged from steps, and outputs that cannot be kept.

use super::{bench, done, join, node, one, report, step, submit, words};
use crate::shared::{On, failure, on_both, secs};
use serde_json::json;
use windlass::core::outcome::Class;
use windlass::remote::Said;
use windlass::{Json, State};

on_both!(
    the_same_end_again_is_no_news,
    the_same_end_without_an_output_is_no_news,
    an_output_that_cannot_be_kept_ends_the_task,
    what_the_steps_gave_is_kept_however_large,
);

async fn the_same_end_again_is_no_news(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let id = submit(&b).await;
    let lease = one(&b.engine, worker).await;
    let reports = || vec![step(&lease, "a", 1), done(&lease, Some(json!({"x": 1})))];
    for _ in 0..3 {
        b.advance(secs(1));
        assert_eq!(words(&report(&b.engine, worker, &[&lease], reports()).await)[1], "ok");
    }
    assert_eq!(b.told(id).await, ["submitted", "started", "step_completed", "completed"]);
    b.advance(secs(1));
    report(&b.engine, worker, &[], vec![]).await;
    assert_eq!(node(&b, worker).await.unwrap().consumed, 1);
}

async fn the_same_end_without_an_output_is_no_news(on: On) {
    let b = bench(on).await;
    let (worker, stranger) = (join(&b.engine).await, join(&b.engine).await);
    for steps in [vec!["a", "b"], vec![]] {
        let id = submit(&b).await;
        let lease = one(&b.engine, worker).await;
        let said = (1..).zip(&steps).map(|(version, name)| step(&lease, name, version)).collect();
        report(&b.engine, worker, &[&lease], said).await;
        for _ in 0..3 {
            b.advance(secs(1));
            let answer = report(&b.engine, worker, &[&lease], vec![done(&lease, None)]).await;
            assert_eq!(words(&answer), ["ok"], "{steps:?}");
        }
        let foreign = report(&b.engine, stranger, &[], vec![done(&lease, None)]).await;
        assert_eq!(words(&foreign), ["lease-lost"]);
        assert_eq!(b.told(id).await.iter().filter(|told| **told == "completed").count(), 1);
    }
}

async fn an_output_that_cannot_be_kept_ends_the_task(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    for output in [json!({"children": []}), json!({"_x": 1}), json!("x".repeat(2 << 20))] {
        let id = submit(&b).await;
        let lease = one(&b.engine, worker).await;
        for _ in 0..2 {
            b.advance(secs(1));
            let said = vec![done(&lease, Some(output.clone()))];
            assert_eq!(words(&report(&b.engine, worker, &[&lease], said).await), ["ok"]);
        }
        let task = b.task(id).await;
        assert_eq!((task.state(), failure(&task).error.class), (State::Failed, Class::Output));
        assert!(failure(&task).error.message.contains("finish.output"), "{task:?}");
    }
}

async fn what_the_steps_gave_is_kept_however_large(on: On) {
    let b = bench(on).await;
    let worker = join(&b.engine).await;
    let id = submit(&b).await;
    let lease = one(&b.engine, worker).await;
    let mut said = vec![];
    for (version, name) in (1..).zip(["a", "b", "c"]) {
        let mut report = step(&lease, name, version);
        if let Said::Step(step) = &mut report.said {
            step.output = Some(Json::of(&json!({name: "x".repeat(400 << 10)})).unwrap());
        }
        said.push(report);
    }
    said.push(done(&lease, None));
    let answer = report(&b.engine, worker, &[&lease], said).await;
    assert_eq!(words(&answer), ["ok", "ok", "ok", "ok"]);
    let task = b.task(id).await;
    assert_eq!(task.state(), State::Completed);
    assert!(task.standing.result.unwrap().as_str().len() > 1 << 20);
}
