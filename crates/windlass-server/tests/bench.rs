//! `windlass bench` in its short form, as a process: every figure is there and is
//! a figure. How large they are is nobody's business here.
#![allow(clippy::expect_used)] // a test fails by panicking

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const FIGURES: [&str; 26] = [
    "bulk_submit",
    "drain",
    "drain_steps",
    "drain_cpu",
    "drain_memory",
    "remote_64",
    "remote_64_server_cpu",
    "remote_64_worker_cpu",
    "single_16",
    "single_16_p50",
    "single_16_p99",
    "single_64",
    "single_64_p50",
    "single_64_p99",
    "http_64",
    "http_64_p50",
    "http_64_p99",
    "single_64_cpu",
    "http_64_server_cpu",
    "http_64_client_cpu",
    "start_p50",
    "start_p99",
    "start_max",
    "events_memory",
    "events_memory_each",
    "events_reach",
];

fn bench(temporary: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["bench", "--tasks", "500"])
        .args(more)
        .env("TMPDIR", temporary)
        .output()
        .expect("windlass starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn every_figure_is_there() {
    let temporary = tempfile::tempdir().expect("a folder");
    let output = bench(temporary.path(), &["--steps", "2", "--backlog", "1500", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 1, "one JSON line: {lines:?}");
    let report: Value = serde_json::from_str(lines[0]).expect("JSON");
    assert_eq!(report["facts"]["store"], "sqlite");
    assert_eq!(report["facts"]["backlog"], 1500);
    let figures = report["figures"].as_array().expect("figures");
    let names: Vec<&str> = figures.iter().filter_map(|f| f["name"].as_str()).collect();
    assert_eq!(names, FIGURES);
    for figure in figures {
        assert!(figure["value"].as_f64().is_some_and(|value| value > 0.0), "{figure}");
    }
    let of = |name: &str| figures.iter().find(|f| f["name"] == name).expect("a figure");
    let http = of("http_64");
    assert_eq!(http["beside"], "single_64");
    let ratio = http["ratio"].as_f64().expect("a ratio");
    assert!(ratio > 0.0 && http["met"] == (ratio >= 0.5), "{http}");
    let steps = of("drain_steps")["value"].as_f64().unwrap();
    assert!((steps - 2.0 * of("drain")["value"].as_f64().unwrap()).abs() < 1e-6);
    let left = std::fs::read_dir(temporary.path()).expect("the folder").count();
    assert_eq!(left, 0, "the store of its own is gone");
}

#[test]
fn a_store_that_cannot_be_opened_is_said() {
    let temporary = tempfile::tempdir().expect("a folder");
    let output = bench(temporary.path(), &["--store", "carrier-pigeon://x"]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("carrier-pigeon") && said.contains("hint:"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn people_get_a_table() {
    let temporary = tempfile::tempdir().expect("a folder");
    let output = bench(temporary.path(), &["--store", "memory:"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(FIGURES.iter().all(|name| table.contains(name)), "{table}");
    assert!(table.contains("of single_64") && table.contains("store memory"), "{table}");
}
