//! `cargo xtask bench-intervals`: how often the intervals that `record --exact=paths -m wall-time` gives hold what was so.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use serde_json::Value;

use crate::arguments::Arguments;
use crate::{build, suite};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/nasty/intervals.c");

/// `cargo xtask bench-intervals [--runs N]`. The program measures 200 procedures itself, bare, before and behind each recorded run.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "callpath"])?;
    let runs = arguments.number("runs", 5)?;
    let callpath = build::command(arguments)?;
    let place = suite::work_directory()?;
    let program = place.join("intervals");
    let built = Command::new("gcc").args(["-O1", "-g", "-o"]).arg(&program).arg(SOURCE).status()?;
    anyhow::ensure!(built.success(), "failed to compile {SOURCE}");
    println!(
        "{}, {runs} runs\n\n| run | held | by chance alone | measured over known, median | interval, median |",
        suite::machine()?
    );
    println!("|---|---|---|---|---|");
    for run in 1..=runs {
        let before = known(&program)?;
        let paths = recorded(&callpath, &place)?;
        let after = known(&program)?;
        let (mut held, mut by_chance, mut over, mut within) = (0, 0, Vec::new(), Vec::new());
        for (name, Measured { estimate, interval, clock }) in &paths {
            let both = [before.get(name), after.get(name)].map(|known| known.copied().unwrap_or(f64::NAN));
            // Two bare runs differ, too: what lies between them is known.
            let [least, most] = [both[0].min(both[1]), both[0].max(both[1])];
            let holds = |interval: f64| estimate - interval <= most && estimate + interval >= least;
            held += usize::from(holds(*interval));
            by_chance += usize::from(holds(*interval - clock));
            over.push(estimate / ((least + most) / 2.0));
            within.push(interval / estimate);
        }
        let of = paths.len();
        println!(
            "| {run} | {held} of {of} | {by_chance} of {of} | {:.3} | {:.1}% |",
            median(&mut over),
            100.0 * median(&mut within)
        );
    }
    std::fs::remove_dir_all(&place)?;
    Ok(ExitCode::SUCCESS)
}

/// What the program says that its procedures took, nanoseconds.
fn known(program: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let output = Command::new(program).output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ').context("a line without a number")?;
        Ok((name.to_owned(), ns.parse()?))
    };
    text.lines().map(line).collect()
}

/// What was measured of a procedure's only path, all its executions together, nanoseconds.
struct Measured {
    estimate: f64,
    interval: f64,
    /// The part of the interval that the clock makes.
    clock: f64,
}

fn recorded(callpath: &Path, place: &Path) -> anyhow::Result<BTreeMap<String, Measured>> {
    let output = place.join("out.callpath");
    suite::remove_output(&output)?;
    let mut record = Command::new(callpath);
    record
        .args(["record", "-q", "--exact=paths", "-m", "wall-time", "-F", "0", "--only", "works_*", "-o"])
        .arg(&output);
    anyhow::ensure!(record.arg("--").arg(place.join("intervals")).output()?.status.success(), "the recording failed");
    let report = Command::new(callpath).arg("report").arg(&output).args(["--view", "paths", "--json"]).output()?;
    let json: Value = serde_json::from_slice(&report.stdout)?;
    let nodes = json["nodes"].as_array().context("no nodes")?;
    let clock = json["timed"]["clock"].as_f64().context("no clock")?;
    let path = |node: &Value| {
        let above = nodes.get(node["parent"].as_u64()? as usize)?;
        let time = &node["wall_time"];
        let executions = node["inclusive"][1].as_f64()?;
        let (estimate, interval) = (time["estimate"].as_f64()?, time["interval"].as_f64()?);
        Some((above["name"].as_str()?.to_owned(), Measured { estimate, interval, clock: clock / 4.0 * executions }))
    };
    Ok(nodes.iter().filter(|node| node["kind"] == "path").filter_map(path).collect())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
