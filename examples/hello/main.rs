//! The shortest program: one kind, one task, one answer. The store is in memory,
//! so nothing is left behind; the other lessons use a file.

#![allow(clippy::print_stdout)] // an example talks to a person

use std::time::Duration;
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl TaskKind for Greet {
    const NAME: &'static str = "greet";
    type Output = String;

    async fn run(self, _cx: Cx) -> Result<String, TaskError> {
        Ok(format!("Hello, {}!", self.name))
    }
}

#[tokio::main]
async fn main() -> windlass::Result<()> {
    let engine = Windlass::in_memory().await?.register::<Greet>().start().await?;
    let handle = engine.submit(Greet { name: "Ada".into() }).await?;
    println!("{} is written down", handle.id());
    println!("{}", handle.result().await?);
    engine.shutdown(Duration::from_secs(5)).await
}
