//! The kinds of `windlass dev`: something to submit before there is anything of
//! one's own. One greets, one fails a few times, one goes through five steps,
//! one takes its time. They are ordinary kinds, as a program would write them.

use serde_json::{Value, json};
use std::time::Duration;
use windlass::prelude::*;
use windlass::{Builder, Progress};

/// The steps of `demo.chain`, each a handler of its own.
pub const CHAIN: [&str; 5] =
    ["demo.fetch", "demo.scan", "demo.resize", "demo.index", "demo.notify"];
/// The longest any of them sleeps.
const LONGEST: Duration = Duration::from_secs(3600);

/// Adds the demo kinds to an engine.
pub fn add(builder: Builder) -> Builder {
    let builder = builder.register::<Hello>().register::<Flaky>().register::<Sleep>();
    let builder = CHAIN.iter().fold(builder, |builder, step| builder.handler(step, link));
    builder.plan("demo.chain", CHAIN)
}

#[derive(Serialize, Deserialize)]
struct Hello {
    #[serde(default = "world")]
    name: String,
}

fn world() -> String {
    "world".to_owned()
}

impl TaskKind for Hello {
    const NAME: &'static str = "demo.hello";
    type Output = String;

    async fn run(self, _: Cx) -> Result<String, TaskError> {
        Ok(format!("Hello {}", self.name))
    }
}

/// Fails `fails` times, or for good.
#[derive(Serialize, Deserialize)]
struct Flaky {
    #[serde(default = "twice")]
    fails: u32,
    #[serde(default)]
    fatal: bool,
}

fn twice() -> u32 {
    2
}

impl TaskKind for Flaky {
    const NAME: &'static str = "demo.flaky";
    type Output = String;

    fn options() -> KindOptions {
        let first = Duration::from_secs(1);
        KindOptions::new().retry(Exponential { first, retries: 5, ..Exponential::TASK })
    }

    async fn run(self, cx: Cx) -> Result<String, TaskError> {
        if self.fatal {
            return Err(fatal("this can never work: it was asked to fail for good"));
        }
        match cx.attempt() {
            n if n <= self.fails => Err(retryable(format!("connection reset (try {n})"))),
            n => Ok(format!("worked at try {n}")),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Sleep {
    #[serde(default = "five")]
    seconds: f64,
}

fn five() -> f64 {
    5.0
}

impl TaskKind for Sleep {
    const NAME: &'static str = "demo.sleep";
    type Output = f64;

    async fn run(self, cx: Cx) -> Result<f64, TaskError> {
        let whole = seconds(self.seconds)?;
        let piece = (whole / 10).max(Duration::from_millis(20));
        let mut slept = Duration::ZERO;
        while slept < whole {
            let next = piece.min(whole - slept);
            tokio::select! {
                () = tokio::time::sleep(next) => slept += next,
                () = cx.cancelled() => {}
            }
            cx.check()?;
            cx.progress(ms(slept), ms(whole));
        }
        Ok(self.seconds)
    }
}

fn ms(d: Duration) -> usize {
    usize::try_from(d.as_millis()).unwrap_or(usize::MAX)
}

fn seconds(n: f64) -> Result<Duration, TaskError> {
    let time = Duration::try_from_secs_f64(n).ok().filter(|d| *d <= LONGEST);
    time.ok_or_else(|| fatal(format!("{n} seconds is not between 0 and 3600")))
}

/// One step of the chain: works a moment and adds a word to the context.
async fn link(call: StepCall) -> Result<Value, TaskError> {
    #[derive(Deserialize)]
    struct Wish {
        #[serde(default = "half")]
        step_seconds: f64,
    }
    fn half() -> f64 {
        0.5
    }
    let wish: Wish = serde_json::from_str(call.payload.as_str()).map_err(fatal)?;
    let place = CHAIN.iter().position(|s| *s == call.step).map_or(0, |i| i + 1);
    let (done, total) = (place.saturating_sub(1) as u64, CHAIN.len() as u64);
    let note = Some(call.step.clone());
    call.cx.progress_with(Progress { done, total, note, data: None });
    tokio::select! {
        () = tokio::time::sleep(seconds(wish.step_seconds)?) => {}
        () = call.cx.cancelled() => {}
    }
    call.cx.check()?;
    let word = call.step.trim_start_matches("demo.");
    Ok(json!({ word: format!("done at attempt {}", call.cx.attempt()) }))
}
