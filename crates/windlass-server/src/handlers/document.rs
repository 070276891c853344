//! What a handler is told: one JSON document on its standard input, and its whole
//! environment. Text of a payload only ever goes into the document. How the
//! process is started is not known here.

use super::host::ExecHost;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use windlass::{Json, StepCall, TaskError, TaskId};

/// Names that belong to Windlass.
const RESERVED: &str = "WINDLASS_";

#[derive(Serialize)]
struct Document<'a> {
    task: About<'a>,
    step: &'a str,
    idempotency_key: String,
    payload: &'a Json,
    context: &'a Map<String, Value>,
    input_path: Option<&'a str>,
}

#[derive(Serialize)]
struct About<'a> {
    id: TaskId,
    kind: &'a str,
    run: u32,
    attempt: u32,
    labels: BTreeMap<&'a str, &'a str>,
    correlation_id: Option<&'a str>,
    user_id: Option<&'a str>,
}

/// The document for this call, as one line.
pub(crate) fn document(call: &StepCall) -> Result<Vec<u8>, TaskError> {
    let task = call.cx.task();
    let extras = task.extras.as_deref();
    let document = Document {
        task: About {
            id: task.id,
            kind: task.kind.as_str(),
            run: task.standing.run,
            attempt: call.cx.attempt(),
            labels: task.labels().collect(),
            correlation_id: extras.and_then(|e| e.correlation_id.as_deref()),
            user_id: extras.and_then(|e| e.user_id.as_deref()),
        },
        step: &call.step,
        idempotency_key: call.cx.idempotency_key(&call.step),
        payload: &call.payload,
        context: &call.context,
        input_path: None,
    };
    let mut text = serde_json::to_vec(&document)?;
    text.push(b'\n');
    Ok(text)
}

/// All variables of the process. The handler's own table may replace `PATH`,
/// never what belongs to Windlass.
pub(crate) fn environment(
    call: &StepCall,
    host: &ExecHost,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, OsString> {
    let mut all = BTreeMap::new();
    if let Some(path) = std::env::var_os("PATH") {
        all.insert("PATH".to_owned(), path);
    }
    let own = own.iter().filter(|(name, _)| !name.starts_with(RESERVED));
    all.extend(own.map(|(name, value)| (name.clone(), value.into())));
    let mut tell = |name: &str, value: String| drop(all.insert(name.to_owned(), value.into()));
    tell("WINDLASS_TASK_ID", call.cx.id().to_string());
    tell("WINDLASS_STEP", call.step.clone());
    tell("WINDLASS_ATTEMPT", call.cx.attempt().to_string());
    tell("WINDLASS_FENCING_TOKEN", call.cx.fencing_token().to_string());
    host.marks().for_each(|(name, value)| tell(name, value.to_owned()));
    if let Some(trace) = call.cx.task().extras.as_ref().and_then(|e| e.trace.clone()) {
        tell("TRACEPARENT", trace);
    }
    all
}
