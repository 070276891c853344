//! `cargo xtask crash`: the long forms of the tests in which processes die, with
//! full optimisation. The tests live with the engine; this file reads how long
//! they shall be and passes it on. The short forms are part of `cargo test`.

use std::path::Path;

use crate::root;
use crate::stop::Stop;

/// Kills when nothing else is asked for.
const ROUNDS: u64 = 200;
const USAGE: &str = "`cargo xtask crash` takes --rounds N (kill -9), --points N (at each named \
                     point), --sigterm N, each at least 1, and --seed S";

const PROGRAM: &[&str] =
    &["test", "--release", "-p", "windlass", "--features", "crash-points", "--test", "crash", "--"];

/// Option here, option of the test program, the tests it is about.
const FORMS: &[(&str, &str, &str)] = &[
    ("--rounds", "--rounds", "kills::"),
    ("--points", "--points", "points::"),
    ("--sigterm", "--sigterms", "sigterm::"),
];

pub(crate) fn run(root: &Path, args: &[String]) -> Result<(), Stop> {
    let words = words(args)?;
    match root::cargo(root, PROGRAM).args(words).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Stop::Failed),
        Err(error) => Err(Stop::Error(format!("cargo test: {error}"))),
    }
}

/// What the test program is told.
fn words(args: &[String]) -> Result<Vec<String>, Stop> {
    let usage = || Stop::Usage(USAGE.to_owned());
    let (mut tests, mut options) = (Vec::new(), Vec::new());
    for pair in args.chunks(2) {
        let [name, number] = pair else { return Err(usage()) };
        let number: u64 = number.parse().map_err(|_| usage())?;
        let option = match FORMS.iter().find(|(known, _, _)| known == name) {
            Some((_, option, test)) if number > 0 => {
                tests.push((*test).to_owned());
                option
            }
            None if name == "--seed" => "--seed",
            _ => return Err(usage()),
        };
        options.extend([option.to_owned(), number.to_string()]);
    }
    if tests.is_empty() {
        tests.push(FORMS[0].2.to_owned());
        options.extend(["--rounds".to_owned(), ROUNDS.to_string()]);
    }
    Ok(tests.into_iter().chain(options).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        words(&args).expect("must be understood").join(" ")
    }

    #[test]
    fn each_form_chooses_its_tests() {
        assert_eq!(told("--rounds 20"), "kills:: --rounds 20");
        assert_eq!(told("--points 5 --seed 7"), "points:: --points 5 --seed 7");
        let both = "points:: sigterm:: --points 5 --sigterms 30";
        assert_eq!(told("--points 5 --sigterm 30"), both);
    }

    #[test]
    fn kills_are_the_usual_form() {
        assert_eq!(told(""), "kills:: --rounds 200");
        assert_eq!(told("--seed 7"), "kills:: --seed 7 --rounds 200");
    }
}
