//! What came out: named figures with their units, some beside another figure of
//! the same run, some with a goal. Only ratios within one run say something on a
//! machine that does other things too.

use serde_json::{Value, json};

/// What a figure should reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// Of the figure it is compared with.
    Ratio(f64),
    Below(f64),
}

/// One measured thing.
#[derive(Debug, Clone)]
pub struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// The figure of this run that it is compared with, and the ratio to it: the
    /// median of the rounds, since two rounds next to each other have the same
    /// neighbours on the machine and two medians may not.
    pub beside: Option<(&'static str, f64)>,
    pub goal: Option<Goal>,
    /// What it is, in a few words.
    pub meaning: String,
}

impl Figure {
    pub(super) fn new(
        name: &'static str,
        value: f64,
        unit: &'static str,
        meaning: impl Into<String>,
    ) -> Figure {
        Figure { name, value, unit, beside: None, goal: None, meaning: meaning.into() }
    }

    pub(super) fn beside(self, name: &'static str, ratio: f64) -> Figure {
        Figure { beside: Some((name, ratio)), ..self }
    }

    pub(super) fn goal(self, goal: Goal) -> Figure {
        Figure { goal: Some(goal), ..self }
    }

    pub fn ratio(&self) -> Option<f64> {
        self.beside.map(|(_, ratio)| ratio)
    }

    /// Whether the goal was reached, where there is one.
    pub fn met(&self) -> Option<bool> {
        match self.goal? {
            Goal::Ratio(least) => self.ratio().map(|ratio| ratio >= least),
            Goal::Below(most) => Some(self.value < most),
        }
    }

    fn json(&self) -> Value {
        let goal = self.goal.map(|goal| match goal {
            Goal::Ratio(least) => json!({"ratio_at_least": least}),
            Goal::Below(most) => json!({"below": most}),
        });
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "beside": self.beside.map(|(name, _)| name),
            "ratio": self.ratio(),
            "goal": goal,
            "met": self.met(),
        })
    }
}

/// Everything of one run.
#[derive(Debug)]
pub struct Report {
    pub figures: Vec<Figure>,
    /// What was measured, on what.
    pub facts: Value,
}

impl Report {
    pub fn json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        json!({ "bench": "windlass", "facts": self.facts, "figures": figures })
    }
}

/// The middle one; of an even count the upper one of the two.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged() {
        let figure = Figure::new("a", 40.0, "/s", "").beside("b", 0.4);
        assert_eq!(figure.clone().goal(Goal::Ratio(0.5)).met(), Some(false));
        assert_eq!(figure.clone().goal(Goal::Ratio(0.4)).met(), Some(true));
        assert_eq!(figure.clone().goal(Goal::Below(50.0)).met(), Some(true));
        assert_eq!(figure.met(), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([]), 0.0);
    }
}
