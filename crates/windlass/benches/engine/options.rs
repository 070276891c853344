//! What the benchmark is asked to do. Words without a dash select parts; none
//! selects all of them.

use std::path::PathBuf;

pub(crate) struct Options {
    pub(crate) json: bool,
    /// Measure the bare loop as well.
    pub(crate) ceiling: bool,
    pub(crate) rounds: usize,
    /// The large backlog.
    pub(crate) backlog: usize,
    /// How long the steady load lasts.
    pub(crate) seconds: usize,
    pub(crate) parts: Vec<String>,
    pub(crate) dir: PathBuf,
    /// This process only measures its memory, with so many tasks.
    pub(crate) child: Option<usize>,
}

const USAGE: &str = "usage: cargo xtask bench engine [--ceiling] [--rounds N] [--backlog N] \
                     [--seconds N] [--dir DIR] [-o table|json] [PART ...]";

pub(crate) fn parse(args: impl Iterator<Item = String>, parts: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        json: false,
        ceiling: false,
        rounds: 5,
        backlog: 1_000_000,
        seconds: 20,
        parts: vec![],
        dir: std::env::temp_dir(),
        child: None,
    };
    // Cargo passes --bench to every benchmark.
    let mut args = args.filter(|a| a != "--bench");
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number =
            |text: String| text.parse::<usize>().map_err(|_| format!("`{text}` is no number"));
        match arg.as_str() {
            "--ceiling" => options.ceiling = true,
            "--rounds" => options.rounds = number(value()?)?.max(1),
            "--backlog" => options.backlog = number(value()?)?.max(100_000),
            "--seconds" => options.seconds = number(value()?)?.max(1),
            "--dir" => options.dir = value()?.into(),
            "--child" => options.child = Some(number(value()?)?),
            "-o" => match value()?.as_str() {
                "json" => options.json = true,
                "table" => options.json = false,
                other => return Err(format!("-o {other} is not a format\n{USAGE}")),
            },
            part if parts.contains(&part) => options.parts.push(part.to_owned()),
            other => {
                let parts = parts.join(", ");
                return Err(format!("`{other}` is no option\n{USAGE}\nparts: {parts}"));
            }
        }
    }
    Ok(options)
}

impl Options {
    /// A folder of its own for each round, gone afterwards.
    pub(crate) fn fresh(&self) -> tempfile::TempDir {
        tempfile::Builder::new().prefix("windlass-bench").tempdir_in(&self.dir).expect("a folder")
    }
}
