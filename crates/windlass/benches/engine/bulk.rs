//! Throughput: bulk submits and their drain, single submitters, large backlogs,
//! tasks of several steps. Each part alternates its sides round by round and
//! reports medians.

use crate::bare;
use crate::measure::{Phases, median};
use crate::options::Options;
use crate::ours::{Bench, Cost, FiveSteps, Nothing, OneStep, Plain};
use crate::report::{Goal, Line, Report};
use std::sync::Arc;

const TASKS: usize = 100_000;
const BARE_BATCH: usize = 1000;

fn rate(tasks: usize, rounds: &[Cost]) -> f64 {
    tasks as f64 / median(rounds.iter().map(|c| c.wall).collect())
}

/// Microseconds of CPU a task.
fn cpu(tasks: usize, rounds: &[Cost]) -> f64 {
    median(rounds.iter().map(|c| c.cpu).collect()) * 1e6 / tasks as f64
}

/// Seconds of submit and drain of one life.
fn life(options: &Options, batch: usize) -> [Cost; 3] {
    let dir = options.fresh();
    let bench = Bench::paused(&dir.path().join("ours.db"));
    let submit = bench.cost(|b| b.submit::<Nothing>(batch, TASKS));
    let drain = bench.cost(|b| b.drain(TASKS));
    let status = bench.engine.status();
    assert_eq!((status.held, status.consumed), (0, TASKS as u64));
    bench.end();
    [submit, drain, Cost { wall: submit.wall + drain.wall, cpu: submit.cpu + drain.cpu }]
}

/// The same with the engine working from the start.
fn at_once(options: &Options, batch: usize) -> Cost {
    let dir = options.fresh();
    let bench = Bench::running(&dir.path().join("ours.db"));
    let cost = bench.cost(|b| {
        b.submit::<Nothing>(batch, TASKS);
        b.runtime.block_on(b.recorded(TASKS));
    });
    bench.end();
    cost
}

pub(crate) fn bulk(options: &Options, report: &mut Report) {
    for batch in [1000, 10_000] {
        let (mut ours, mut once, mut ceiling) = (vec![], vec![], vec![]);
        for _ in 0..options.rounds {
            ours.push(life(options, batch));
            if options.ceiling {
                let dir = options.fresh();
                ceiling.push(bare::life(&dir.path().join("bare.db"), BARE_BATCH, TASKS));
            }
            once.push(at_once(options, batch));
        }
        let phase = |i: usize| ours.iter().map(|life| life[i]).collect::<Vec<_>>();
        let bare = |pick: fn(&Phases) -> f64| {
            let seconds = || median(ceiling.iter().map(pick).collect());
            options.ceiling.then(|| TASKS as f64 / seconds())
        };
        let whole: fn(&Phases) -> f64 = |p| p.iter().sum();
        let name = |what: &str| format!("bulk {batch} {what}");
        let submit = Line::new(name("submit"), "/s", rate(TASKS, &phase(0)));
        report.line(submit.beside(bare(|p| p[0])));
        let drain = Line::new(name("drain"), "/s", rate(TASKS, &phase(1)));
        report.line(drain.beside(bare(|p| p[1] + p[2])));
        let life = Line::new(name("whole"), "/s", rate(TASKS, &phase(2)));
        report.line(life.beside(bare(whole)).goal(Goal::Ratio(0.5)));
        let once = Line::new(name("submit while draining"), "/s", rate(TASKS, &once));
        report.line(once.beside(bare(whole)));
        report.line(Line::new(name("submit CPU a task"), "us", cpu(TASKS, &phase(0))));
        report.line(Line::new(name("drain CPU a task"), "us", cpu(TASKS, &phase(1))));
    }
}

/// Callers that submit one task at a time.
fn callers(bench: Bench, callers: usize, each: usize) -> Cost {
    let bench = Arc::new(bench);
    let cost = bench.cost(|b| {
        b.runtime.block_on(async {
            let calls: Vec<_> = (0..callers)
                .map(|_| {
                    let engine = b.engine.clone();
                    tokio::spawn(async move {
                        for _ in 0..each {
                            engine.submit(Nothing::new()).await.expect("written");
                        }
                    })
                })
                .collect();
            for call in calls {
                call.await.expect("a caller");
            }
        });
    });
    Arc::into_inner(bench).expect("the callers are gone").end();
    cost
}

pub(crate) fn single(options: &Options, report: &mut Report) {
    for count in [16, 64] {
        let each = 40_000 / count;
        let (mut paused, mut running, mut ceiling) = (vec![], vec![], vec![]);
        for _ in 0..options.rounds {
            let dir = options.fresh();
            paused.push(callers(Bench::paused(&dir.path().join("ours.db")), count, each));
            if options.ceiling {
                ceiling.push(bare::single(&dir.path().join("bare.db"), count, each));
            }
            running.push(callers(Bench::running(&dir.path().join("both.db")), count, each));
        }
        let tasks = count * each;
        let bare = options.ceiling.then(|| tasks as f64 / median(ceiling));
        let line = Line::new(format!("single {count} callers"), "/s", rate(tasks, &paused));
        report.line(line.beside(bare).goal(Goal::Ratio(0.55)));
        let name = format!("single {count} callers, draining");
        report.line(Line::new(name, "/s", rate(tasks, &running)).beside(bare));
    }
}

fn drain(options: &Options, pending: usize, take: usize) -> Cost {
    let dir = options.fresh();
    let bench = Bench::paused(&dir.path().join("ours.db"));
    bench.submit::<Nothing>(1000, pending);
    let cost = bench.cost(|b| b.drain(take));
    bench.end();
    cost
}

pub(crate) fn backlog(options: &Options, report: &mut Report) {
    let sizes = [10_000, TASKS, options.backlog];
    let mut rounds = [vec![], vec![], vec![]];
    for _ in 0..options.rounds.min(3) {
        for (i, pending) in sizes.into_iter().enumerate() {
            rounds[i].push(drain(options, pending, TASKS.min(pending)));
        }
    }
    let mut rates = vec![];
    for (pending, rounds) in sizes.into_iter().zip(&rounds) {
        let take = TASKS.min(pending);
        let name = format!("backlog {take} of {pending}");
        rates.push(rate(take, rounds));
        report.line(Line::new(name.clone(), "/s", rate(take, rounds)));
        report.line(Line::new(format!("{name} CPU a task"), "us", cpu(take, rounds)));
    }
    let large = Line::new("backlog large / small".to_owned(), "", rates[2] / rates[1]);
    report.line(large.goal(Goal::AtLeast(0.75)));
}

fn stepped<K: Plain>(options: &Options, tasks: usize) -> Cost {
    let dir = options.fresh();
    let bench = Bench::paused(&dir.path().join("ours.db"));
    bench.submit::<K>(1000, tasks);
    let cost = bench.cost(|b| b.drain(tasks));
    bench.end();
    cost
}

pub(crate) fn steps(options: &Options, report: &mut Report) {
    let tasks = 20_000;
    let (mut one, mut five) = (vec![], vec![]);
    for _ in 0..options.rounds {
        one.push(stepped::<OneStep>(options, tasks));
        five.push(stepped::<FiveSteps>(options, tasks));
    }
    let (one, five) = (rate(tasks, &one), rate(5 * tasks, &five));
    report.line(Line::new("steps: tasks of one".to_owned(), "/s", one));
    report.line(Line::new("steps: steps of five".to_owned(), "/s", five));
    let ratio = Line::new("steps: five / one".to_owned(), "", five / one);
    report.line(ratio.goal(Goal::AtLeast(0.7)));
}
