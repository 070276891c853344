//! `cargo xtask crash`: the long forms of the tests in which processes die, with
//! full optimisation. The tests live with the engine and with the server; this
//! file reads how long they shall be and passes it on. The short forms are part
//! of `cargo test`.

use std::path::Path;
use std::process::Command;

use crate::root;
use crate::stop::Stop;

/// Kills when nothing else is asked for.
const ROUNDS: u64 = 200;
const USAGE: &str = "`cargo xtask crash` takes --rounds N (kill -9), --points N (at each named \
                     point), --sigterm N, --server N (kill -9 of the server under submissions), \
                     --batch N (the same in the middle of a batch over N tasks), each at least 1, and --seed S";

const PROGRAM: &[&str] =
    &["test", "--release", "-p", "windlass", "--features", "crash-points", "--test", "crash", "--"];

/// Option here, option of the test program, the tests it is about.
const FORMS: &[(&str, &str, &str)] = &[
    ("--rounds", "--rounds", "kills::"),
    ("--points", "--points", "points::"),
    ("--sigterm", "--sigterms", "sigterm::"),
];

const SERVER: &str = "--server";
const BATCH: &str = "--batch";
const SERVER_PROGRAM: &[&str] =
    &["test", "--release", "-p", "windlass-server", "--test", "kills", "--", "--nocapture"];
/// The tests of that program.
const SUBMITS: &str = "submits_survive";
const BATCHES: &str = "batch::";
/// Submissions for each kill of the server.
const SUBMITS_A_KILL: u64 = 200;

/// What is run.
#[derive(Debug, PartialEq, Eq, Default)]
struct Asked {
    /// What the engine's test program is told, if it is run.
    engine: Vec<String>,
    /// Kills of the server.
    server: Option<u64>,
    /// Tasks of a batch in which it is killed.
    batch: Option<u64>,
    seed: Option<u64>,
}

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    let asked = asked(args)?;
    if !asked.engine.is_empty() {
        finish(root::cargo(root, PROGRAM).args(&asked.engine))?;
    }
    if let Some(kills) = asked.server {
        let submits = kills * SUBMITS_A_KILL;
        let numbers = [("WINDLASS_TEST_KILLS", kills), ("WINDLASS_TEST_SUBMITS", submits)];
        server(root, SUBMITS, &numbers, asked.seed)?;
    }
    if let Some(tasks) = asked.batch {
        server(root, BATCHES, &[("WINDLASS_TEST_BATCH", tasks)], asked.seed)?;
    }
    Ok(())
}

fn server(root: &Path, test: &str, told: &[(&str, u64)], seed: Option<u64>) -> Result<(), Stop> {
    let mut command = root::cargo(root, SERVER_PROGRAM);
    command.arg(test);
    let seed = seed.map(|seed| ("WINDLASS_TEST_SEED", seed));
    for (name, number) in told.iter().copied().chain(seed) {
        command.env(name, number.to_string());
    }
    finish(&mut command)
}

fn finish(command: &mut Command) -> Result<(), Stop> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Stop::Failed),
        Err(error) => Err(Stop::Error(format!("cargo test: {error}"))),
    }
}

fn asked(args: &[String]) -> Result<Asked, Stop> {
    let usage = || Stop::Usage(USAGE.to_owned());
    let (mut tests, mut options) = (Vec::new(), Vec::new());
    let mut asked = Asked::default();
    for pair in args.chunks(2) {
        let [name, number] = pair else { return Err(usage()) };
        let number: u64 = number.parse().map_err(|_| usage())?;
        match FORMS.iter().find(|(known, _, _)| known == name) {
            Some((_, option, test)) if number > 0 => {
                tests.push((*test).to_owned());
                options.extend([(*option).to_owned(), number.to_string()]);
            }
            None if name == SERVER && number > 0 => asked.server = Some(number),
            None if name == BATCH && number > 0 => asked.batch = Some(number),
            None if name == "--seed" => asked.seed = Some(number),
            _ => return Err(usage()),
        }
    }
    if tests.is_empty() && asked.server.is_none() && asked.batch.is_none() {
        tests.push(FORMS[0].2.to_owned());
        options.extend(["--rounds".to_owned(), ROUNDS.to_string()]);
    }
    if !tests.is_empty() {
        let seed = asked.seed.map(|seed| ["--seed".to_owned(), seed.to_string()]);
        options.extend(seed.into_iter().flatten());
    }
    asked.engine = tests.into_iter().chain(options).collect();
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Asked {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        asked(&args).expect("must be understood")
    }

    fn engine(line: &str) -> String {
        told(line).engine.join(" ")
    }

    #[test]
    fn each_form_chooses_its_tests() {
        assert_eq!(engine("--rounds 20"), "kills:: --rounds 20");
        assert_eq!(engine("--points 5 --seed 7"), "points:: --points 5 --seed 7");
        let both = "points:: sigterm:: --points 5 --sigterms 30";
        assert_eq!(engine("--points 5 --sigterm 30"), both);
    }

    #[test]
    fn kills_are_the_usual_form() {
        assert_eq!(engine(""), "kills:: --rounds 200");
        assert_eq!(engine("--seed 7"), "kills:: --rounds 200 --seed 7");
    }

    #[test]
    fn the_server_is_killed_when_it_is_asked_for() {
        let alone = Asked { server: Some(50), seed: Some(7), ..Asked::default() };
        assert_eq!(told("--server 50 --seed 7"), alone);
        let both = told("--rounds 20 --server 50");
        assert_eq!(
            (both.engine.join(" ").as_str(), both.server),
            ("kills:: --rounds 20", Some(50))
        );
        assert_eq!(told("--rounds 20").server, None);
        let batch = Asked { batch: Some(1000), ..Asked::default() };
        assert_eq!(told("--batch 1000"), batch);
    }
}
