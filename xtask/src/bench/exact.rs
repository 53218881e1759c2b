//! `cargo xtask bench-exact`: what it costs the suite's programs to be counted exactly.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use serde_json::Value;

use crate::arguments::Arguments;
use crate::suite::prepared::Prepared;
use crate::{build, suite};

/// `cargo xtask bench-exact [--kinds KIND,...] [--programs NAME,...] [--runs N]`. A kind that is two is written `calls+paths`; with `+guide`
/// behind, counters are placed by a sampled run before; with `+m` what paths or calls take is measured, too, with `+m+full` all of them.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["kinds", "programs", "runs", "callpath"])?;
    let runs = arguments.number("runs", 5)?;
    let callpath = build::command(arguments)?;
    let place = suite::work_directory()?;
    for kind in arguments.text("kinds").unwrap_or("paths,calls").split(',') {
        let kind = Kind::new(kind);
        let guided = if kind.is_guided { " --guide" } else { kind.times_as_typed() };
        println!(
            "\n`record --exact={}{guided}`: CPU time of the program over bare (median of {runs} pairs, least to most)\n",
            kind.exact
        );
        let Kind { exact: name, .. } = &kind;
        println!("| program | over bare | procedures | not counted | {name} counted | at | planning and recorder, s |");
        println!("|---|---|---|---|---|---|---|");
        let mut ratios = Vec::new();
        for program in suite::chosen(arguments.text("programs"))? {
            match measured(program, &kind, &callpath, (&place, runs)) {
                Ok((ratio, row)) => {
                    ratios.push(ratio);
                    println!("| {} | {row} |", program.name);
                }
                Err(error) => println!("| {} | SKIPPED: {error:#} | | | | | |", program.name),
            }
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        println!("\nMedian of {} programs {:.2}, mean {mean:.2}", ratios.len(), median(&mut ratios));
    }
    std::fs::remove_dir_all(&place)?;
    Ok(ExitCode::SUCCESS)
}

/// What is counted, and how it is placed.
struct Kind {
    /// As `record` takes it.
    exact: String,
    /// By a sampled run before.
    is_guided: bool,
    /// What it takes is measured, too: of some executions, or of all.
    times: Option<Times>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    OfSome,
    OfAll,
}

impl Kind {
    fn new(typed: &str) -> Kind {
        let (of_all, of_some, unguided) =
            (typed.strip_suffix("+m+full"), typed.strip_suffix("+m"), typed.strip_suffix("+guide"));
        let kinds = of_all.or(of_some).or(unguided).unwrap_or(typed);
        let times = of_all.map(|_| Times::OfAll).or(of_some.map(|_| Times::OfSome));
        Kind { exact: kinds.replace('+', ","), is_guided: unguided.is_some(), times }
    }

    fn options(&self) -> &'static [&'static str] {
        match self.times {
            None => &[],
            Some(Times::OfSome) => &["-m", "wall-time"],
            Some(Times::OfAll) => &["-m", "wall-time", "--full"],
        }
    }

    fn times_as_typed(&self) -> &'static str {
        match self.times {
            None => "",
            Some(Times::OfSome) => " -m wall-time",
            Some(Times::OfAll) => " -m wall-time --full",
        }
    }
}

/// A program's median over bare, and its row.
fn measured(
    program: &suite::Program,
    kind: &Kind,
    callpath: &Path,
    (place, runs): (&Path, usize),
) -> anyhow::Result<(f64, String)> {
    let inputs = place.join(program.name);
    suite::remove_output(&inputs)?;
    std::fs::create_dir_all(&inputs)?;
    let prepared = (program.prepare)(&inputs, 5)?;
    let output = place.join("out.callpath");
    let sampled = place.join("sampled.callpath");
    let exact = format!("--exact={}", kind.exact);
    let guide = ["--guide".as_ref(), sampled.as_os_str()];
    let (mut ratios, mut over_unguided) = (Vec::new(), Vec::new());
    let mut last = Value::Null;
    let mut last_bare = f64::NAN;
    suite::run_once(&prepared, prepared.bare(&inputs))?;
    if kind.is_guided {
        suite::remove_output(&sampled)?;
        suite::run_once(&prepared, recording(callpath, &[], &prepared, (&inputs, &sampled)))?;
    }
    let mut counted = |options: &[&OsStr]| {
        suite::remove_output(&output)?;
        suite::run_once(&prepared, recording(callpath, options, &prepared, (&inputs, &output)))?;
        last = report(callpath, &output, &["--view", "flat"])?;
        last["run"]["cpu_time_by_kernel_ns"].as_f64().context("its CPU time is not known")
    };
    for _ in 0..runs {
        let bare = suite::run_once(&prepared, prepared.bare(&inputs))?.cpu.as_secs_f64();
        let options: Vec<&OsStr> =
            std::iter::once(exact.as_ref()).chain(kind.options().iter().map(OsStr::new)).collect();
        let unguided = counted(&options)? / 1e9;
        last_bare = bare;
        if kind.is_guided {
            let guided = counted(&[exact.as_ref(), guide[0], guide[1]])? / 1e9;
            ratios.push(guided / bare);
            over_unguided.push(guided / unguided);
        } else {
            ratios.push(unguided / bare);
        }
    }
    let recorder = last["run"]["recorder_cpu_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
    let view = match kind.exact.as_str() {
        "calls" => "flat",
        "edges" => "blocks",
        _ => "paths",
    };
    let exact = report(callpath, &output, &["--view", view])?;
    let quality = &exact["quality"]["exact"];
    // Of the last pair: what was measured of all is as many times the program's time.
    let perturbed = match (kind.times, kind.exact.as_str()) {
        (None, _) => String::new(),
        (Some(_), "calls") => {
            let contexts = report(callpath, &output, &["--view", "context", "--columns", "wall-time"])?;
            let all = contexts["nodes"][0]["inclusive"][0].as_f64().unwrap_or(f64::NAN);
            format!("; measured over bare {:.2}", all / 1e9 / last_bare)
        }
        (Some(_), _) => {
            let all = exact["timed"]["estimate"].as_f64().unwrap_or(f64::NAN);
            format!("; measured over bare {:.2}", all / 1e9 / last_bare)
        }
    };
    let refused = quality["refused"].as_array().map_or(0, Vec::len);
    let (counted, places) = match kind.exact.as_str() {
        "calls" => {
            let contexts = report(callpath, &output, &["--view", "context", "--columns", "calls"])?;
            let nodes = contexts["nodes"].as_array().context("no nodes")?;
            let calls = |node: &Value| node["exclusive"][0].as_u64().unwrap_or(0);
            let here = nodes.iter().map(calls).filter(|calls| *calls > 0).count();
            (nodes.iter().map(calls).sum::<u64>(), format!("{here} contexts"))
        }
        "edges" => {
            let nodes = exact["nodes"].as_array().context("no nodes")?;
            let blocks = nodes.iter().filter(|node| node["kind"] == "block");
            let edges = blocks.clone().filter_map(|block| block["edges"].as_array()).map(Vec::len).sum::<usize>();
            (blocks.count() as u64, format!("{edges} edges"))
        }
        _ => {
            let nodes = exact["nodes"].as_array().context("no nodes")?;
            let executed = nodes.iter().filter(|node| node["kind"] == "path").count();
            let possible: u64 = nodes.iter().filter_map(|node| node["possible"].as_u64()).sum();
            (executed as u64, format!("{possible} possible"))
        }
    };
    let mut over = spread(&mut ratios);
    if kind.is_guided {
        let notes = last["run"]["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let increments = notes.filter_map(|note| note.strip_prefix("--guide: ")).next().unwrap_or_default();
        over = format!("{over}; over unguided {}; {increments}", spread(&mut over_unguided));
    }
    over += &perturbed;
    let row = format!("{over} | {} | {refused} | {counted} | {places} | {recorder:.1}", quality["procedures"]);
    Ok((median(&mut ratios), row))
}

/// The median, the least and the greatest.
fn spread(ratios: &mut [f64]) -> String {
    let median = median(ratios);
    let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
    format!("{median:.2} ({:.2} to {:.2})", at(0), at(ratios.len().saturating_sub(1)))
}

/// Puts them in order.
fn median(ratios: &mut [f64]) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
}

fn recording(callpath: &Path, options: &[&OsStr], prepared: &Prepared, (inputs, output): (&Path, &Path)) -> Command {
    let mut command = Command::new(callpath);
    command.args(["record", "--quiet", "-o"]).arg(output).args(options);
    command.arg("--").arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
    command
}

fn report(callpath: &Path, output: &Path, options: &[&str]) -> anyhow::Result<Value> {
    let report = Command::new(callpath).arg("report").arg(output).args(options).arg("--json").output()?;
    serde_json::from_slice(&report.stdout).with_context(|| String::from_utf8_lossy(&report.stderr).into_owned())
}
