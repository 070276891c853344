//! A declared plan: named handlers, one after another, sharing a context. Each
//! is a step of the same journal that `cx.step` uses, so a plan resumes where
//! it was like any other task. Its result is the merged context.

use crate::cx::Cx;
use crate::registry::{Ran, StepCall};
use crate::said::TaskError;
use crate::tried::Limit;
use serde_json::{Map, Value};
use std::sync::Arc;
use windlass_core::json::Json;
use windlass_core::outcome::Class;
use windlass_core::store::BoxFuture;

pub(crate) fn run_plan(
    cx: Cx,
    payload: Json,
    kind_steps: Arc<[String]>,
) -> BoxFuture<'static, Ran> {
    Box::pin(async move {
        let steps = cx.run.task.steps().map_or_else(|| kind_steps.to_vec(), <[String]>::to_vec);
        let mut context = Map::new();
        for step in steps {
            let handler = cx.run.parts.registry.handler(&step).cloned().ok_or_else(|| {
                TaskError::class(Class::Fatal, format!("no handler is registered for `{step}`"))
            })?;
            let limit = Limit {
                timeout: cx.run.step_timeout(handler.timeout()),
                stopping: handler.stopping(),
            };
            let (cx, name) = (&cx, step.clone());
            let output: Value = cx
                .step_within(step, limit, |this| {
                    let shared = this.share();
                    let call = StepCall {
                        cx: cx.clone(),
                        step: name.clone(),
                        payload: payload.clone(),
                        context: context.clone(),
                        log: shared.log.clone(),
                        shared,
                    };
                    let handler = handler.clone();
                    async move { checked(handler.run(call).await?) }
                })
                .await?;
            if let Value::Object(fields) = output {
                context.extend(fields);
            }
        }
        let result =
            Json::of(&context).map_err(|e| TaskError::class(Class::Persistence, e.to_string()))?;
        Ok(Some(result))
    })
}

/// Keys that start with `_` belong to Windlass.
fn checked(output: Value) -> Result<Value, TaskError> {
    let reserved = output.as_object().and_then(|o| o.keys().find(|k| k.starts_with('_')));
    match reserved {
        Some(key) => {
            let message = format!("output key `{key}`: names that start with `_` are reserved");
            Err(TaskError::class(Class::Output, message))
        }
        None => Ok(output),
    }
}
