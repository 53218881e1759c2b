//! `cargo xtask bench-ranks`: a parallel job of many ranks, rehearsed by short processes with a launcher's variables: what it takes to
//! record them into one measurement, how long that is, and how long reports take.

use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};

use super::compile;
use crate::arguments::Arguments;
use crate::build;
use crate::suite;

/// How much work a rank does: 1 is about half a millisecond, and as much again for each rank before it.
const WORK: &str = "1";

/// Prints the figures.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "ranks"])?;
    let count = arguments.number("ranks", 1000)?;
    ensure!(count > 1, "one rank is none");
    let callpath = build::command(arguments)?;
    let directory = suite::work_directory()?;
    let program = directory.join("ranks");
    compile(&build::root().join("tests/nasty/ranks.c"), &program)?;
    let command = |words: &[&str]| {
        let mut command = Command::new(&callpath);
        command.args(words).current_dir(&directory).env("CALLPATH_CACHE_DIR", directory.join("cache"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let rank = |rank: usize| {
        let mut command = command(&["record", "-o", "all", "--"]);
        command.arg(&program).arg(WORK).env("RANK", (rank % 64).to_string());
        command.env("CALLPATH_RANK", format!("{rank}/{count}")).env("CALLPATH_JOB", "rehearsal").stdout(Stdio::null());
        command
    };
    let at_once = 4 * std::thread::available_parallelism()?.get();
    println!("{}\n\n{count} ranks, {at_once} at once\n\n| | |\n|---|---|", suite::machine()?);
    let recorded = timed(|| all(count, at_once, rank))?;
    println!("| recorded | {recorded:.2} s, {:.1} ms a rank |", 1e3 * recorded / count as f64);
    let bare = timed(|| {
        all(count, at_once, |number| {
            let mut bare = Command::new(&program);
            bare.arg(WORK).env("RANK", (number % 64).to_string()).stdout(Stdio::null());
            bare
        })
    })?;
    println!("| bare | {bare:.2} s |");
    let all_ranks = directory.join("all");
    println!("| bytes | {} |", suite::length(&all_ranks)?);
    let named = |words: &[&str], what: &str| -> anyhow::Result<Vec<u8>> {
        let mut answer = Vec::new();
        let seconds = timed(|| {
            let output = command(words).output().context("failed to run callpath")?;
            ensure!(output.status.success(), "callpath {} ended with {}", words.join(" "), output.status);
            answer = output.stdout;
            Ok(())
        })?;
        println!("| {what} | {seconds:.3} s |");
        Ok(answer)
    };
    named(&["report", "all"], "report")?;
    named(&["report", "all", "--ranks"], "report --ranks")?;
    named(&["merge", "all", "-o", "one"], "merge")?;
    named(&["report", "one", "--ranks"], "report --ranks of the database")?;
    println!("| bytes of the database | {} |", std::fs::metadata(directory.join("one"))?.len());
    let answer = named(&["report", "all", "--ranks", "--json"], "report --ranks --json")?;
    let answer: serde_json::Value = serde_json::from_slice(&answer).context("no JSON")?;
    let there = answer["ranks"].as_array().map_or(0, Vec::len);
    let missing = answer["jobs"][0]["missing"].as_array().map_or(0, Vec::len);
    ensure!((there, missing) == (count, 0), "{there} ranks of {count} are there");
    std::fs::remove_dir_all(&directory)?;
    Ok(ExitCode::SUCCESS)
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

/// Runs so many commands, some at once; all must succeed.
fn all(count: usize, at_once: usize, command: impl Fn(usize) -> Command + Sync) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            let mut command = command(number);
            let status = command.status().context("failed to run a rank")?;
            ensure!(status.success(), "{command:?} ended with {status}");
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })
}
