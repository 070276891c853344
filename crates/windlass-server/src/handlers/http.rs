//! A step that is done by a server elsewhere: one POST for each try, through the
//! guarded client. This file is the life of that request; what is told is in
//! `request.rs`, what the answer means in `answer.rs`. A try that is to end is
//! dropped, and its connection with it.

use super::answer::{DETAIL_MAX, done, failed};
use super::document::document;
use super::pipes::OUTPUT_MAX;
use super::request::HttpSpec;
use crate::outbound::{Outbound, Trouble};
use crate::redact::Hidden;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windlass::core::store::BoxFuture;
use windlass::{StepCall, StepHandler, TaskError, bad_output, fatal, retryable};

/// How long the reason of a refusal may take to come.
const REASON_WITHIN: Duration = Duration::from_secs(2);

/// Sends a request for each try of a step.
#[derive(Debug, Clone)]
pub struct HttpHandler {
    spec: Arc<HttpSpec>,
    outbound: Outbound,
}

impl HttpHandler {
    pub fn new(spec: HttpSpec, outbound: Outbound) -> HttpHandler {
        HttpHandler { spec: Arc::new(spec), outbound }
    }
}

impl StepHandler for HttpHandler {
    fn run(&self, call: StepCall) -> BoxFuture<'static, Result<Value, TaskError>> {
        Box::pin(self.clone().run_once(call))
    }

    fn timeout(&self) -> Option<Duration> {
        self.spec.timeout
    }
}

impl HttpHandler {
    async fn run_once(self, call: StepCall) -> Result<Value, TaskError> {
        tokio::select! {
            biased;
            said = self.ask(&call) => said.map_err(|error| self.discreet(error)),
            () = call.stop() => {
                // Whoever cancelled hears of the cancel, not of a broken request.
                call.cx.check()?;
                Err(retryable("the request was dropped"))
            }
        }
    }

    /// A receiver may send back what it was sent; our secrets stay ours.
    fn discreet(&self, error: TaskError) -> TaskError {
        let values = self.spec.headers.values().filter_map(|value| value.to_str().ok());
        let parts = values.flat_map(|value| [value, value.rsplit(' ').next().unwrap_or(value)]);
        let parts: Vec<String> = parts.map(str::to_owned).chain(self.spec.target.keys()).collect();
        let hidden = Hidden::of(parts.iter());
        error.reworded(|text| hidden.scrub(text).into_owned())
    }

    async fn ask(&self, call: &StepCall) -> Result<Value, TaskError> {
        let began = Instant::now();
        let body = Bytes::from(document(call)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let headers = self.spec.headers(call, &body, now.as_secs())?;
        let answer = self.outbound.post(&self.spec.target, &headers, body).await;
        let (host, ms) = (self.spec.target.host(), began.elapsed().as_millis());
        let answer = match answer {
            Ok(answer) => answer,
            Err(trouble) => {
                tracing::debug!(step = call.step, host, ms, %trouble, "no answer");
                return Err(no_answer(&trouble));
            }
        };
        let status = answer.status();
        tracing::debug!(step = call.step, host, ms, status = status.as_u16(), "answered");
        let headers = answer.headers().clone();
        if status.is_success() {
            let body = answer.whole(OUTPUT_MAX).await.map_err(|trouble| no_answer(&trouble))?;
            return done(&headers, &body);
        }
        let body = answer.beginning(DETAIL_MAX, REASON_WITHIN).await;
        Err(failed(status, &headers, &body, SystemTime::now()))
    }
}

fn no_answer(trouble: &Trouble) -> TaskError {
    match trouble {
        Trouble::Refused(_) | Trouble::Redirected(_) => fatal(trouble),
        Trouble::Broken(_) => retryable(trouble),
        Trouble::TooLarge { .. } => bad_output(trouble),
    }
}
