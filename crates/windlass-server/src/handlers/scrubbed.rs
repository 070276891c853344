//! Around every handler: what it says in errors is recorded, shown and sent as
//! events, so values of hidden fields are taken out before anybody hears of it.
//! The handler itself gets everything.

use crate::redact::{Hidden, Redactor};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass::core::store::BoxFuture;
use windlass::{Json, StepCall, StepHandler, TaskError};

/// A handler whose errors tell no hidden values.
pub struct Scrubbed {
    handler: Arc<dyn StepHandler>,
    redactor: Redactor,
}

impl Scrubbed {
    pub fn new(handler: Arc<dyn StepHandler>, redactor: Redactor) -> Scrubbed {
        Scrubbed { handler, redactor }
    }
}

impl fmt::Debug for Scrubbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrubbed").field("redactor", &self.redactor).finish_non_exhaustive()
    }
}

/// The values of hidden fields that this call is given.
pub(super) fn hidden_of(call: &StepCall, redactor: &Redactor) -> Hidden {
    if redactor.is_empty() {
        return Hidden::default();
    }
    let context = Json::of(&call.context).unwrap_or_default();
    redactor.values(&call.payload).and(redactor.values(&context))
}

impl StepHandler for Scrubbed {
    fn run(&self, call: StepCall) -> BoxFuture<'static, Result<Value, TaskError>> {
        let hidden = hidden_of(&call, &self.redactor);
        let run = self.handler.run(call);
        if hidden.is_empty() {
            return run;
        }
        Box::pin(async move {
            run.await.map_err(|error| error.reworded(|text| hidden.scrub(text).into_owned()))
        })
    }

    fn timeout(&self) -> Option<Duration> {
        self.handler.timeout()
    }

    fn stopping(&self) -> Duration {
        self.handler.stopping()
    }
}
