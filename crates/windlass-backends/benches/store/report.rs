//! What the benchmark prints: a table for people, or one JSON line per row. It
//! measures nothing.

/// One measured figure.
pub(crate) struct Line {
    name: String,
    size: usize,
    ours: f64,
    bare: Option<f64>,
}

impl Line {
    pub(crate) fn new(name: &str, size: usize, ours: f64, bare: Option<f64>) -> Self {
        Line { name: name.to_owned(), size, ours, bare }
    }
}

pub(crate) struct Report {
    json: bool,
    ratios: Vec<(String, f64)>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        if !json {
            println!(
                "{:<18} {:>9} {:>12} {:>12} {:>7}",
                "what", "size", "windlass/s", "bare/s", "ratio"
            );
        }
        Report { json, ratios: vec![] }
    }

    pub(crate) fn line(&mut self, line: Line) {
        let ratio = line.bare.map(|bare| line.ours / bare);
        if self.json {
            let optional = |v: Option<f64>| v.map_or("null".to_owned(), |v| format!("{v:.3}"));
            println!(
                r#"{{"bench":"{}","size":{},"windlass_per_s":{:.0},"bare_per_s":{},"ratio":{}}}"#,
                line.name,
                line.size,
                line.ours,
                optional(line.bare),
                optional(ratio)
            );
            return;
        }
        let bare = line.bare.map_or("-".to_owned(), |v| format!("{v:.0}"));
        let ratio = ratio.map_or("-".to_owned(), |v| format!("{v:.2}"));
        println!(
            "{:<18} {:>9} {:>12.0} {:>12} {:>7}",
            line.name, line.size, line.ours, bare, ratio
        );
    }

    pub(crate) fn ratio(&mut self, name: &str, value: f64) {
        self.ratios.push((name.to_owned(), value));
    }

    pub(crate) fn end(&self) {
        for (name, value) in &self.ratios {
            if self.json {
                println!(r#"{{"bench":"{name}","ratio":{value:.3}}}"#);
            } else {
                println!("{name}: {value:.2}");
            }
        }
    }
}
