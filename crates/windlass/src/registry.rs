//! The kinds a node knows. Typed kinds are Rust code with a payload and an
//! output type; plans are chains of named handlers that share a context. Both
//! are erased here to one shape, a function from JSON to JSON, so that nothing
//! after this file knows a user's types.

use crate::cx::Cx;
use crate::said::TaskError;
use crate::settings::{KindOptions, KindRules, Settings};
use crate::tried::{Shared, StepLog};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::error::{Code, Error, Result};
use windlass_core::json::Json;
use windlass_core::outcome::Class;
use windlass_core::store::BoxFuture;
use windlass_core::task::Kind;

/// A kind of task in Rust: its value is the payload, `run` is the work.
///
/// The work may run more than once between a step's begin and its record, so
/// what it does outside must bear repetition: see [`Cx::idempotency_key`].
pub trait TaskKind: Serialize + DeserializeOwned + Send + 'static {
    /// The stable name, e.g. `image.resize`. Tasks in the store are found by it.
    const NAME: &'static str;
    /// What the task gives; read back by [`crate::Handle::result`].
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Retries, timeouts, queue; see [`KindOptions`].
    fn options() -> KindOptions {
        KindOptions::new()
    }

    /// One attempt. Called again from the start after a failure or a crash;
    /// steps that were recorded then answer at once.
    fn run(self, cx: Cx) -> impl Future<Output = Result<Self::Output, TaskError>> + Send;
}

/// One named step of a plan, in Rust or outside. Closures that take a
/// [`StepCall`] are handlers too.
pub trait StepHandler: Send + Sync + 'static {
    /// Does the step. An object merges into the context of the following steps;
    /// any other value is only the step's result.
    fn run(&self, call: StepCall) -> BoxFuture<'static, Result<Value, TaskError>>;

    /// Longest run, if it differs from the kind's.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// How long it needs, after [`StepCall::stop`] was ready, to end what it
    /// started outside. The slot is not free and no retry begins before it has
    /// ended, or this time is over and its future is dropped.
    fn stopping(&self) -> Duration {
        Duration::ZERO
    }
}

impl<F, Fut> StepHandler for F
where
    F: Fn(StepCall) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, TaskError>> + Send + 'static,
{
    fn run(&self, call: StepCall) -> BoxFuture<'static, Result<Value, TaskError>> {
        Box::pin(self(call))
    }
}

/// What a handler gets.
#[derive(Debug, Clone)]
pub struct StepCall {
    pub cx: Cx,
    pub step: String,
    pub payload: Json,
    /// The outputs of the steps before, merged.
    pub context: Map<String, Value>,
    /// The end of what the work wrote, for whoever asks later what it did.
    pub log: StepLog,
    pub(crate) shared: Arc<Shared>,
}

impl StepCall {
    /// Ready when the step should stop: its time is over, the task was
    /// cancelled, or its node lost it. A handler with a
    /// [`StepHandler::stopping`] time then ends what it started; what it says
    /// after a timeout is not heard.
    pub async fn stop(&self) {
        tokio::select! {
            () = self.cx.cancelled() => {}
            () = self.shared.over() => {}
        }
    }
}

pub(crate) type Ran = Result<Option<Json>, TaskError>;

/// How a kind is run.
pub(crate) enum Body {
    Typed(fn(Json, Cx) -> BoxFuture<'static, Ran>),
    /// Names of handlers, in order.
    Plan(Arc<[String]>),
}

/// One kind that this node serves.
pub(crate) struct KindEntry {
    pub(crate) kind: Kind,
    /// Its place in the registry, for counters.
    pub(crate) index: usize,
    pub(crate) rules: KindRules,
    pub(crate) body: Body,
}

impl fmt::Debug for KindEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindEntry").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Everything that was registered before the start.
#[derive(Default)]
pub(crate) struct Draft {
    kinds: BTreeMap<String, (Body, KindOptions)>,
    /// Rules for kinds that others serve.
    remote: BTreeMap<String, KindOptions>,
    handlers: HashMap<String, Arc<dyn StepHandler>>,
    states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("kinds", &self.kinds.keys()).finish_non_exhaustive()
    }
}

impl Draft {
    pub(crate) fn typed<K: TaskKind>(&mut self, options: KindOptions) -> Result<()> {
        self.add(K::NAME, Body::Typed(run_typed::<K>), options)
    }

    pub(crate) fn plan(
        &mut self,
        name: &str,
        steps: Vec<String>,
        options: KindOptions,
    ) -> Result<()> {
        for (i, step) in steps.iter().enumerate() {
            if steps[..i].contains(step) {
                let message = format!("plan `{name}` has the step `{step}` twice");
                return Err(Error::invalid("register", message));
            }
        }
        self.add(name, Body::Plan(steps.into()), options)
    }

    pub(crate) fn handler(&mut self, name: &str, handler: Arc<dyn StepHandler>) -> Result<()> {
        Kind::new(name)?;
        if self.handlers.insert(name.to_owned(), handler).is_some() {
            return Err(twice("handler", name));
        }
        Ok(())
    }

    pub(crate) fn state<T: Send + Sync + 'static>(&mut self, state: Arc<T>) -> Result<()> {
        if self.states.insert(TypeId::of::<T>(), state).is_some() {
            return Err(twice("state", std::any::type_name::<T>()));
        }
        Ok(())
    }

    /// Rules for a kind that only workers in other processes serve.
    pub(crate) fn remote(&mut self, name: &str, options: KindOptions) -> Result<()> {
        Kind::new(name)?;
        if self.remote.insert(name.to_owned(), options).is_some() {
            return Err(twice("kind", name));
        }
        Ok(())
    }

    fn add(&mut self, name: &str, body: Body, options: KindOptions) -> Result<()> {
        Kind::new(name)?;
        if self.kinds.insert(name.to_owned(), (body, options)).is_some() {
            return Err(twice("kind", name));
        }
        Ok(())
    }

    /// Checks that everything fits together.
    pub(crate) fn finish(mut self, settings: &Settings) -> Result<Registry> {
        // A handler without a kind of its name is a kind of one step.
        for name in self.handlers.keys() {
            if !self.kinds.contains_key(name) {
                let body = Body::Plan([name.clone()].into());
                self.kinds.insert(name.clone(), (body, KindOptions::new()));
            }
        }
        let mut kinds = HashMap::new();
        for (index, (name, (body, options))) in self.kinds.into_iter().enumerate() {
            if let Body::Plan(steps) = &body {
                let missing = steps.iter().find(|s| !self.handlers.contains_key(*s));
                if let Some(step) = missing {
                    let message = format!(
                        "kind `{name}` names the step `{step}`, which has no handler; call .handler(\"{step}\", ..)"
                    );
                    return Err(Error::invalid("register", message));
                }
            }
            if self.remote.contains_key(&name) {
                return Err(twice("kind", &name));
            }
            let rules = rules_of(&name, &options, settings)?;
            let kind = Kind::new(&name)?;
            kinds.insert(kind.clone(), Arc::new(KindEntry { kind, index, rules, body }));
        }
        let remote = self.remote.into_iter();
        let remote = remote
            .map(|(name, options)| Ok((Kind::new(&name)?, rules_of(&name, &options, settings)?)));
        Ok(Registry {
            kinds,
            remote: remote.collect::<Result<_>>()?,
            usual: KindOptions::new().over(&settings.defaults)?,
            handlers: self.handlers,
            states: Mutex::new(self.states),
        })
    }
}

fn rules_of(name: &str, options: &KindOptions, settings: &Settings) -> Result<KindRules> {
    let named = |e: Error| Error::invalid("register", format!("kind `{name}`: {}", e.message()));
    options.over(&settings.defaults).map_err(named)
}

fn twice(what: &str, name: &str) -> Error {
    Error::conflict("register", format!("{what} `{name}` is registered twice; remove one"))
}

/// The kinds, handlers and shared states of a started engine.
pub(crate) struct Registry {
    kinds: HashMap<Kind, Arc<KindEntry>>,
    /// Rules of kinds that this node does not serve.
    remote: HashMap<Kind, KindRules>,
    /// Rules of kinds that nobody said anything about.
    usual: KindRules,
    handlers: HashMap<String, Arc<dyn StepHandler>>,
    states: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("kinds", &self.kinds.keys()).finish_non_exhaustive()
    }
}

impl Registry {
    pub(crate) fn get(&self, kind: &Kind) -> Option<&Arc<KindEntry>> {
        self.kinds.get(kind)
    }

    pub(crate) fn by_name(&self, kind: &str) -> Option<&Arc<KindEntry>> {
        self.kinds.get(kind)
    }

    /// What is said about a kind here, whoever serves it.
    pub(crate) fn rules(&self, kind: &Kind) -> Option<&KindRules> {
        self.kinds.get(kind).map(|entry| &entry.rules).or_else(|| self.remote.get(kind))
    }

    pub(crate) fn rules_or_usual(&self, kind: &Kind) -> &KindRules {
        self.rules(kind).unwrap_or(&self.usual)
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Arc<KindEntry>> {
        self.kinds.values()
    }

    pub(crate) fn handler(&self, step: &str) -> Option<&Arc<dyn StepHandler>> {
        self.handlers.get(step)
    }

    pub(crate) fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.states.lock().get(&TypeId::of::<T>()).cloned()?.downcast().ok()
    }

    /// The engine has stopped: what it was given goes back.
    pub(crate) fn forget_states(&self) {
        // Dropped outside the lock: a state may ask for another one then.
        let states = std::mem::take(&mut *self.states.lock());
        drop(states);
    }

    /// Refuses steps that nobody can run.
    pub(crate) fn check_steps(&self, kind: &KindEntry, steps: &[String]) -> Result<()> {
        if let Body::Typed(_) = kind.body
            && !steps.is_empty()
        {
            let message = format!("kind `{}` is Rust code; leave `steps` out", kind.kind);
            return Err(Error::invalid("submit", message));
        }
        match steps.iter().find(|step| !self.handlers.contains_key(*step)) {
            Some(step) => {
                let message = format!("no handler is registered for the step `{step}`");
                Err(Error::invalid("submit", message))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn unknown_kind(kind: &Kind) -> Error {
        let hint = "register it, or accept unknown kinds with UnknownKinds::Park";
        Error::new(Code::UnknownKind, "submit", format!("kind `{kind}` is not served here; {hint}"))
    }
}

fn decode<K: TaskKind>(payload: &Json) -> Result<K, TaskError> {
    serde_json::from_str(payload.as_str()).or_else(|error| {
        // What a kind without fields was written as.
        let unit = if payload.as_str() == "{}" { serde_json::from_str("null").ok() } else { None };
        unit.ok_or_else(|| {
            TaskError::undecodable(format!("the payload is no {}: {error}", K::NAME))
        })
    })
}

fn run_typed<K: TaskKind>(payload: Json, cx: Cx) -> BoxFuture<'static, Ran> {
    Box::pin(async move {
        let value: K = decode(&payload)?;
        let output = value.run(cx).await?;
        let json = Json::of(&output).and_then(Json::reads_back_as::<K::Output>);
        let json = json.map_err(|e| TaskError::class(Class::Persistence, e.to_string()))?;
        Ok(Some(json))
    })
}
