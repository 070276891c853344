//! `cargo xtask <command>`: the project's own commands. This file holds the
//! table of commands and turns their result into an exit code; it knows nothing
//! about what a command does. A new command is one module and one line here.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks there")]

mod bench;
mod crash;
mod deny;
mod fuzz;
mod programs;
mod root;
mod slow;
mod stop;
mod test;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use stop::Stop;

/// Gets the workspace root and the words after the command's name.
type Run = fn(root: &Path, args: &[String]) -> Result<(), Stop>;

const COMMANDS: &[(&str, &str, Run)] = &[
    ("test", "formatting, lints and every test, with totals", test::run),
    ("tidy", "the house rules (--ratchet: rewrite the size exceptions)", tidy::run),
    ("bench", "a benchmark: bench store [--ceiling] [-o json]", bench::run),
    ("crash", "processes die: [--rounds|--points|--sigterm|--server N]... [--seed S]", crash::run),
    ("fuzz", "random requests from the API's own document: [--cases N] [--seed S]", fuzz::run),
    ("slow", "what slow connections cost others: [--connections N] [--seconds S]", slow::run),
    ("deny", "licences, advisories and sources of dependencies", deny::run),
    ("help", "this list", help),
];
const HINT: &str = "`cargo xtask help` lists the commands";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Err(stop) = dispatch(&args) else { return ExitCode::SUCCESS };
    if let Some(message) = stop.message() {
        eprintln!("error: {message}");
    }
    ExitCode::from(stop.exit_code())
}

fn dispatch(args: &[String]) -> Result<(), Stop> {
    let Some((name, rest)) = args.split_first() else {
        return Err(Stop::Usage(format!("no command given; {HINT}")));
    };
    let name = if name == "-h" || name == "--help" { "help" } else { name };
    let Some((_, _, run)) = COMMANDS.iter().find(|(known, _, _)| *known == name) else {
        return Err(Stop::Usage(format!("unknown command `{name}`; {HINT}")));
    };
    run(&root::find()?, rest)
}

fn help(_root: &Path, args: &[String]) -> Result<(), Stop> {
    stop::no_arguments("help", args)?;
    println!("usage: cargo xtask <command>\n");
    COMMANDS.iter().for_each(|(name, about, _)| println!("  {name:<7} {about}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_words_are_usage_errors_with_a_hint() {
        for line in [
            "",
            "tset",
            "test --fast",
            "tidy --rachet",
            "tidy --ratchet x",
            "help x",
            "bench",
            "bench x",
            "crash 200",
            "crash --rounds",
            "crash --rounds 0",
            "crash --rounds many",
            "crash --server 0",
            "crash --seed",
            "crash --signals 3",
            "fuzz --cases 0",
            "fuzz --cases",
            "slow --connections",
            "slow --seconds none",
        ] {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let stop = dispatch(&args).expect_err("must be refused");
            assert_eq!(stop.exit_code(), 2, "{line}");
            assert!(stop.message().is_some_and(|m| m.contains("`cargo xtask ")), "{line}");
        }
    }
}
