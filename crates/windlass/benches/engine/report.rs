//! What the benchmark prints: a table for people, one line a figure, or one
//! JSON line with all of them. It measures nothing.

use serde_json::json;

/// What a figure should reach.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Of the bare loop.
    Ratio(f64),
    AtLeast(f64),
    Below(f64),
}

/// One measured figure.
pub(crate) struct Line {
    name: String,
    unit: &'static str,
    ours: f64,
    bare: Option<f64>,
    goal: Option<Goal>,
}

impl Line {
    pub(crate) fn new(name: String, unit: &'static str, ours: f64) -> Self {
        Line { name, unit, ours, bare: None, goal: None }
    }

    pub(crate) fn beside(self, bare: Option<f64>) -> Self {
        Line { bare, ..self }
    }

    pub(crate) fn goal(self, goal: Goal) -> Self {
        Line { goal: Some(goal), ..self }
    }

    fn ratio(&self) -> Option<f64> {
        self.bare.map(|bare| self.ours / bare)
    }

    /// The goal in words, and whether it was met; without a ceiling nobody knows.
    fn judged(&self) -> Option<(String, Option<bool>)> {
        Some(match self.goal? {
            Goal::Ratio(least) => (format!(">= {least} bare"), self.ratio().map(|r| r >= least)),
            Goal::AtLeast(least) => (format!(">= {least}"), Some(self.ours >= least)),
            Goal::Below(most) => (format!("< {most}"), Some(self.ours < most)),
        })
    }
}

pub(crate) struct Report {
    json: bool,
    lines: Vec<Line>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        if !json {
            println!(
                "{:<36} {:>12} {:>4} {:>10} {:>6}  {:<13}",
                "what", "windlass", "", "bare", "ratio", "goal"
            );
        }
        Report { json, lines: vec![] }
    }

    pub(crate) fn line(&mut self, line: Line) {
        if !self.json {
            print_row(&line);
        }
        self.lines.push(line);
    }

    pub(crate) fn end(&self) {
        if self.json {
            let figures: Vec<_> = self.lines.iter().map(object).collect();
            println!("{}", json!({ "bench": "engine", "figures": figures }));
        }
    }
}

fn print_row(line: &Line) {
    let ours = match line.ours {
        v if v >= 1000.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    };
    let bare = line.bare.map_or("-".to_owned(), |v| format!("{v:.0}"));
    let ratio = line.ratio().map_or("-".to_owned(), |v| format!("{v:.2}"));
    let (goal, met) = line.judged().unwrap_or_default();
    let met = met.map_or("", |met| if met { "met" } else { "missed" });
    let Line { name, unit, .. } = line;
    let row = format!("{name:<36} {ours:>12} {unit:<4} {bare:>10} {ratio:>6}  {goal:<13} {met}");
    println!("{}", row.trim_end());
}

fn object(line: &Line) -> serde_json::Value {
    let (goal, met) = line.judged().unzip();
    json!({
        "name": line.name,
        "unit": line.unit,
        "ours": line.ours,
        "bare": line.bare,
        "ratio": line.ratio(),
        "goal": goal,
        "met": met.flatten(),
    })
}
