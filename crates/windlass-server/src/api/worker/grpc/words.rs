//! Messages of gRPC and the engine's words. What comes in goes through the same
//! structs as the JSON of `worker.rs`, which know what fits together; what goes out
//! is made from the same views. JSON is text here, and is checked like a body.

use super::super::{
    AskedOut, ErrorIn, FinishIn, FinishWord, LeaseView, OneReport, ProgressIn, StepIn, StepWord,
    TroubleIn, worker_id,
};
use super::proto;
use crate::api::input::{Object, parse};
use crate::api::problem::{Answer, Problem};
use crate::api::view::CheckpointView;
use proto::report::Said;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as Mistake, StrDeserializer};
use std::time::Duration;
use windlass::core::clock::parse_duration;
use windlass::core::lease::Token;
use windlass::remote::{LeaseRequest, ReportRequest};
use windlass::{Json, TaskId};

pub(super) fn lease(wish: proto::LeaseRequest) -> Answer<LeaseRequest> {
    let id = wish.worker_id.as_deref().map(worker_id).transpose()?;
    Ok(LeaseRequest {
        worker: wish.worker,
        id,
        kinds: names("/kinds", &wish.kinds)?,
        queues: names("/queues", &wish.queues)?,
        max: usize::try_from(wish.max).unwrap_or(usize::MAX),
        wait: duration("/wait", wish.wait.as_deref())?.unwrap_or_default(),
        version: wish.version,
    })
}

/// Who says hello, as a request for work; its `max` is what was granted.
pub(super) fn hello(hello: &proto::Hello) -> Answer<LeaseRequest> {
    lease(proto::LeaseRequest {
        worker: hello.worker.clone(),
        worker_id: hello.worker_id.clone(),
        version: hello.version.clone(),
        kinds: hello.kinds.clone(),
        queues: hello.queues.clone(),
        max: hello.grant,
        wait: None,
    })
}

pub(super) fn report(
    held: &[proto::Held],
    reports: Vec<proto::Report>,
    leaving: bool,
) -> Answer<ReportRequest> {
    let reports = reports.into_iter().enumerate().map(|(i, report)| one(i, report)?.words(i));
    let reports = reports.collect::<Answer<_>>()?;
    Ok(ReportRequest { held: self::held(held)?, reports, leaving })
}

pub(super) fn held(held: &[proto::Held]) -> Answer<Vec<(TaskId, Token)>> {
    let read = |(i, one): (usize, &proto::Held)| {
        Ok((word(&format!("/held/{i}/task"), &one.task)?, Token(one.token)))
    };
    held.iter().enumerate().map(read).collect()
}

fn names<'a, T: Deserialize<'a>>(at: &str, names: &'a [String]) -> Answer<Vec<T>> {
    names.iter().enumerate().map(|(i, name)| word(&format!("{at}/{i}"), name)).collect()
}

/// Reads a text by the rules that it has in JSON.
fn word<'a, T: Deserialize<'a>>(pointer: &str, text: &'a str) -> Answer<T> {
    let reader: StrDeserializer<'a, Mistake> = text.into_deserializer();
    T::deserialize(reader).map_err(|e| Problem::field(pointer, e.to_string()))
}

fn duration(pointer: &str, text: Option<&str>) -> Answer<Option<Duration>> {
    let read = |text| parse_duration(text).map_err(|e| Problem::field(pointer, e.message()));
    text.map(read).transpose()
}

fn json(pointer: &str, text: Option<&str>) -> Answer<Option<Json>> {
    let read = |text| parse(text).map_err(|e| e.at(pointer, "this field is JSON as text"));
    text.map(read).transpose()
}

fn one(place: usize, report: proto::Report) -> Answer<OneReport> {
    let at = |field: &str| format!("/reports/{place}{field}");
    let (task, token) = (word(&at("/task"), &report.task)?, report.token);
    let mut one = OneReport { task, token, step: None, progress: None, finish: None };
    match report.said {
        Some(Said::Step(said)) => one.step = Some(Object(step(&at("/step"), said)?)),
        Some(Said::Progress(said)) => {
            let data = json(&at("/progress/data"), said.data.as_deref())?;
            let proto::Progress { done, total, note, .. } = said;
            one.progress = Some(Object(ProgressIn { done, total, note, data }));
        }
        Some(Said::Finish(said)) => one.finish = Some(Object(finish(&at("/finish"), said)?)),
        None => {}
    }
    Ok(one)
}

fn step(at: &str, said: proto::Step) -> Answer<StepIn> {
    let outcome = match said.outcome() {
        proto::StepOutcome::Done => StepWord::Done,
        proto::StepOutcome::Skip => StepWord::Skip,
        proto::StepOutcome::Fail => StepWord::Fail,
        proto::StepOutcome::Unspecified => return Err(no_outcome(at, "DONE, SKIP or FAIL")),
    };
    let output = json(&format!("{at}/output"), said.output.as_deref())?;
    let proto::Step { name, version, reason, duration_ms, .. } = said;
    Ok(StepIn { name, outcome, output, reason, version, duration_ms })
}

fn finish(at: &str, said: proto::Finish) -> Answer<FinishIn> {
    let outcome = match said.outcome() {
        proto::FinishOutcome::Done => FinishWord::Done,
        proto::FinishOutcome::Fail => FinishWord::Fail,
        proto::FinishOutcome::Retry => FinishWord::Retry,
        proto::FinishOutcome::Snooze => FinishWord::Snooze,
        proto::FinishOutcome::Release => FinishWord::Release,
        proto::FinishOutcome::Unspecified => {
            return Err(no_outcome(at, "DONE, FAIL, RETRY, SNOOZE or RELEASE"));
        }
    };
    let output = json(&format!("{at}/output"), said.output.as_deref())?;
    let delay = duration(&format!("{at}/delay"), said.delay.as_deref())?;
    let error = said.error.map(|error| trouble(at, error)).transpose()?;
    Ok(FinishIn { outcome, output: output.map(Some), error, delay })
}

fn trouble(at: &str, error: proto::Error) -> Answer<ErrorIn> {
    let proto::Error { message, class, detail, step } = error;
    let class = class.as_deref().map(|class| word(&format!("{at}/error/class"), class));
    Ok(ErrorIn(TroubleIn { message, class: class.transpose()?, detail, step }))
}

fn no_outcome(at: &str, words: &str) -> Problem {
    Problem::field(format!("{at}/outcome"), format!("say how it ended: {words}"))
}

pub(super) fn leased(view: LeaseView) -> Answer<proto::Lease> {
    let LeaseView { task, token, payload, checkpoint, timeouts, alone } = view;
    let task = proto::Task {
        id: task.id,
        kind: task.kind,
        queue: task.queue,
        priority: task.priority.into(),
        run: task.run,
        attempt: task.attempt,
        steps: task.steps,
        deadline: task.deadline.map(|at| at.to_string()),
        created_at: task.created_at.to_string(),
        idempotency_prefix: task.idempotency_prefix,
        labels: task.labels.into_iter().collect(),
        correlation_id: task.correlation_id,
        user_id: task.user_id,
        traceparent: task.traceparent,
    };
    Ok(proto::Lease {
        task: Some(task),
        token,
        payload: payload.as_str().to_owned(),
        checkpoint: Some(checkpoint).filter(|c| c.version > 0).map(resumed).transpose()?,
        timeouts: Some(proto::Timeouts { step: timeouts.step, task: timeouts.task }),
        alone,
    })
}

fn resumed(view: CheckpointView) -> Answer<proto::Checkpoint> {
    let CheckpointView { version, completed, data, failures, node, saved_at } = view;
    let completed = completed.into_iter().map(|step| proto::FinishedStep {
        name: step.name,
        outcome: step.outcome.as_str().to_owned(),
        duration_ms: step.duration_ms,
        reason: step.reason,
    });
    let failures = failures.into_iter().map(|tried| proto::FailedTry {
        step: tried.step,
        attempt: tried.attempt,
        class: tried.class.map(str::to_owned),
        message: tried.message,
        at: tried.at.to_string(),
        node: tried.node,
    });
    Ok(proto::Checkpoint {
        version,
        completed: completed.collect(),
        data: Json::of(&data)?.as_str().to_owned(),
        failures: failures.collect(),
        node,
        saved_at: saved_at.map(|at| at.to_string()),
    })
}

pub(super) fn request(asked: AskedOut) -> proto::Request {
    let AskedOut { task, cancel, pause, lost } = asked;
    proto::Request { task, cancel, pause, lost }
}
