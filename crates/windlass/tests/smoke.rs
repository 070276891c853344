//! The shortest ways through the engine, on both stores. What each part
//! promises in detail is tested in the files named after the parts.

#![allow(clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::time::Duration;
use windlass::prelude::*;
use windlass::testing;

#[derive(Serialize, Deserialize)]
struct Add {
    a: u32,
    b: u32,
}

impl TaskKind for Add {
    const NAME: &'static str = "add";
    type Output = u32;
    async fn run(self, cx: Cx) -> Result<u32, TaskError> {
        let a = cx.step("first", || async { Ok::<_, TaskError>(self.a) }).await?;
        cx.progress(1, 2);
        let b = cx.step("second", || async { Ok::<_, TaskError>(self.b) }).await?;
        Ok(a + b)
    }
}

async fn adds(url: &str) {
    let engine = Windlass::open(url).await.expect("a store").register::<Add>().start().await;
    let engine = engine.expect("an engine");
    let handles = engine.submit_all((0..100).map(|i| engine.submit(Add { a: i, b: 1 })));
    for (i, handle) in handles.await.expect("written").into_iter().enumerate() {
        assert_eq!(handle.result().await.expect("a sum"), i as u32 + 1);
    }
    engine.shutdown(Duration::from_secs(5)).await.expect("a quiet end");
}

#[tokio::test]
async fn tasks_run_in_memory() {
    adds("memory:").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_run_on_sqlite() {
    let dir = tempfile::tempdir().expect("a folder");
    adds(&format!("sqlite://{}", dir.path().join("t.db").display())).await;
}

#[tokio::test]
async fn a_trial_resumes_after_its_node_died() {
    let ran = testing::trial(Add { a: 2, b: 3 }).crash_after_step("first").run().await;
    let ran = ran.expect("a run");
    assert_eq!(ran.output.as_ref().expect("a sum"), &5);
    assert_eq!((ran.crashes, ran.steps()), (1, vec!["first", "second"]));
    assert_eq!(ran.attempts.len(), 2);
}
