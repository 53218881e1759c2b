//! `cargo xtask bench-infer`: what samples without a walk cost the suite's programs, and how often maps tell their call paths (the tables of
//! Mytkowicz, Coughlin and Diwan 2009).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::infer_pairs;
use crate::arguments::Arguments;
use crate::suite::prepared::Prepared;
use crate::{build, suite};

/// `cargo xtask bench-infer [--programs NAME,...] [--runs N] [--five-pairs]`. Each program has two inputs: those of the suite's sizes 5 and 2.
/// `runs`: pairs for the cost. With `--five-pairs`, only what maps of one input answer for another is measured, in [`infer_pairs`].
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["programs", "runs", "five-pairs", "callpath"])?;
    let runs = arguments.number("runs", 5)?;
    let bench = Bench { callpath: build::command(arguments)?, place: suite::work_directory()?, runs };
    if arguments.flag("five-pairs") {
        infer_pairs::print(&bench, &suite::chosen(Some(arguments.text("programs").unwrap_or(infer_pairs::PROGRAMS)))?)?;
        std::fs::remove_dir_all(&bench.place)?;
        return Ok(ExitCode::SUCCESS);
    }
    let [mut cost, mut maps, mut resized, mut checks, mut walks] = [const { Vec::new() }; 5];
    for program in suite::chosen(arguments.text("programs"))? {
        match bench.measured(program) {
            Ok(rows) => {
                cost.push(format!("| {} | {} |", program.name, rows.cost));
                maps.push(format!("| {} | {} |", program.name, rows.map));
                resized.push(format!("| {} | {} |", program.name, rows.resized));
                checks.extend(rows.checks.map(|row| format!("| {} | {row} |", program.name)));
                walks.extend(rows.walks.map(|row| format!("| {} | {row} |", program.name)));
            }
            Err(error) => println!("{}: SKIPPED: {error:#}", program.name),
        }
    }
    println!("\nCPU time over bare (median of {runs} pairs, least to most), 1,000 samples a second\n");
    println!(
        "| program | --unwind=infer | --unwind=infer --plan | --on-ambiguous=walk | --unwind=walk |\n|---|---|---|---|---|"
    );
    cost.iter().for_each(|row| println!("{row}"));
    println!("\nMaps of one run each. Precise: no other call path that was seen has the identifier\n");
    println!(
        "| program | training over bare | map, KB | call paths | precise | of calls | up to 5 paths | look-up, ns |\n|---|---|---|---|---|---|---|---|"
    );
    maps.iter().for_each(|row| println!("{row}"));
    println!(
        "\nThe same maps when frames are larger and procedures are cloned (callpath map resize, 10% of stack at most)\n"
    );
    println!(
        "| program | frames larger | clones | precise | of calls | highest stack | search, s |\n|---|---|---|---|---|---|---|"
    );
    resized.iter().for_each(|row| println!("{row}"));
    println!(
        "\nWhat maps answer for samples whose path a walk knows: percent of distinct paths, in brackets of samples\n"
    );
    println!(
        "| program | trained on | precise | likely | ambiguous | missing | no height | precise, wrong | likely, wrong | ambiguous, wrong |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    checks.iter().for_each(|row| println!("{row}"));
    println!("{WALKS_HEAD}");
    walks.iter().for_each(|row| println!("{row}"));
    std::fs::remove_dir_all(&bench.place)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) struct Bench {
    callpath: PathBuf,
    pub(super) place: PathBuf,
    runs: usize,
}

/// A program's rows.
struct Rows {
    cost: String,
    map: String,
    resized: String,
    checks: [String; 3],
    walks: [String; 2],
}

impl Bench {
    fn measured(&self, program: &suite::Program) -> anyhow::Result<Rows> {
        let of_size = |size: u32| {
            let inputs = self.place.join(format!("{}-{size}", program.name));
            suite::remove_output(&inputs)?;
            std::fs::create_dir_all(&inputs)?;
            anyhow::Ok(((program.prepare)(&inputs, size)?, inputs))
        };
        let (other, (prepared, inputs)) = (of_size(2)?, of_size(5)?);
        let output = self.place.join("out.callpath");
        let [mut infer, mut larger, mut until_told, mut walk] = [const { Vec::new() }; 4];
        let (map, plan) = (self.place.join("own.map"), self.place.join("own.plan"));
        let began = Instant::now();
        suite::run_once(&prepared, prepared.bare(&inputs))?;
        let bare_s = began.elapsed().as_secs_f64();
        let began = Instant::now();
        self.train(&map, &prepared, &inputs)?;
        let training = began.elapsed().as_secs_f64() / bare_s;
        let began = Instant::now();
        let said = Command::new(&self.callpath).args(["map", "resize"]).arg(&map).arg("-o").arg(&plan).output()?;
        let (said, search_s) = (String::from_utf8_lossy(&said.stderr).into_owned(), began.elapsed().as_secs_f64());
        let planned = [OsStr::new("--plan"), plan.as_os_str()];
        let walking = ["--on-ambiguous=walk", "--map"].map(OsStr::new);
        let walking = [&walking[..], &[map.as_os_str()]].concat();
        for _ in 0..self.runs {
            let bare = suite::run_once(&prepared, prepared.bare(&inputs))?.cpu.as_secs_f64();
            let ways = [
                ("--unwind=infer", &[][..], &mut infer),
                ("--unwind=infer", &planned[..], &mut larger),
                ("--unwind=infer", &walking[..], &mut until_told),
                ("--unwind=walk", &[], &mut walk),
            ];
            for (unwind, options, ratios) in ways {
                suite::remove_output(&output)?;
                suite::run_once(&prepared, self.recording((unwind, options), &prepared, (&inputs, &output)))?;
                let report = self.json(&["report", "--json"], &[&output])?;
                let cpu_ns = report["run"]["cpu_time_by_kernel_ns"].as_f64().context("its CPU time is not known")?;
                ratios.push(cpu_ns / 1e9 / bare);
            }
        }
        let other_map = self.place.join("other.map");
        self.train(&other_map, &other.0, &other.1)?;
        let record = |options: &[&OsStr]| {
            suite::remove_output(&output)?;
            suite::run_once(&prepared, self.recording(("--unwind=both", options), &prepared, (&inputs, &output)))
        };
        record(&[])?;
        let check = |name: &str, map: &Path| {
            let checked = self.json(&["map", "check", "--json"], &[map, &output])?;
            let cell = |verdict: &str| {
                format!("{} ({})", share(&checked["paths"], verdict), share(&checked["samples"], verdict))
            };
            let verdicts =
                ["precise", "likely", "ambiguous", "missing", "undetermined", "wrong", "unlikely", "incorrect"];
            let walks = format!("{name} | {}", walks(&checked));
            anyhow::Ok((format!("{name} | {}", verdicts.map(cell).join(" | ")), walks))
        };
        let [(own, own_walks), (other, other_walks)] = [check("this input", &map)?, check("another", &other_map)?];
        record(&planned)?;
        let checks = [own, other, check("this input, with a plan", &map)?.0];
        let walks = [own_walks, other_walks];
        let shown = self.json(&["map", "show", "--json"], &[&map])?;
        let inferred = &shown["inferred"];
        let few = inferred["degree"].as_object().into_iter().flatten();
        let few = few.filter(|(degree, _)| degree.parse::<u64>().is_ok_and(|degree| degree <= 5));
        let few: u64 = few.filter_map(|(_, count)| count.as_u64()).sum();
        let [precise, ambiguous] = ["precise", "ambiguous"].map(|name| inferred[name].as_u64().unwrap_or(0));
        let percent = |part: u64| format!("{:.1}%", 100.0 * part as f64 / (precise + ambiguous).max(1) as f64);
        let row = format!(
            "{training:.1} | {} | {} | {} | {}% | {} | {}",
            std::fs::metadata(&map)?.len() / 1024,
            precise + ambiguous,
            percent(precise),
            // One path that was seen, whatever the code has besides.
            single_share(&inferred["calls"]),
            percent(precise + few),
            look_up(&map)?
        );
        let cost = [infer, larger, until_told, walk].map(|mut ratios| spread(&mut ratios)).join(" | ");
        Ok(Rows { cost, map: row, resized: format!("{} | {search_s:.1}", as_said(&said)?), checks, walks })
    }

    pub(super) fn recording(
        &self,
        (unwind, options): (&str, &[&OsStr]),
        prepared: &Prepared,
        (inputs, output): (&Path, &Path),
    ) -> Command {
        let mut command = Command::new(&self.callpath);
        command.args(["record", "--quiet", unwind, "-o"]).arg(output).args(options).arg("--");
        command.arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
        command
    }

    pub(super) fn train(&self, map: &Path, prepared: &Prepared, inputs: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(&self.callpath);
        command.args(["map", "train", "--quiet", "-o"]).arg(map).arg("--");
        command.arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
        suite::run_once(prepared, command)?;
        ensure!(map.exists(), "no map was written");
        Ok(())
    }

    pub(super) fn json(&self, words: &[&str], places: &[&Path]) -> anyhow::Result<Value> {
        let output = Command::new(&self.callpath).args(words).args(places).output()?;
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The cells of what `map resize` says.
fn as_said(said: &str) -> anyhow::Result<String> {
    let between = |from: &str, to: &str| Some(said.split_once(from)?.1.split_once(to)?.0);
    let cells = || {
        let frames = between("plan: ", " frames")?;
        let clones = between("larger, ", " clones")?;
        let (paths, calls) = between("-> ", " of calls)")?.split_once(" (")?;
        let (low, high) = between("grows from ", " bytes")?.split_once(" to ")?;
        let growth = high.parse::<f64>().ok()? / low.parse::<f64>().ok()?;
        Some(format!("{frames} | {clones} | {paths} | {calls} | {growth:.2}x"))
    };
    cells().with_context(|| said.to_owned())
}

/// What a map takes for one answer, nanoseconds.
fn look_up(map: &Path) -> anyhow::Result<String> {
    let mut command = build::cargo();
    command.args(["run", "--quiet", "--release", "-p", "callpath-infer", "--example", "look_up", "--"]).arg(map);
    let output = command.stderr(Stdio::null()).output()?;
    ensure!(output.status.success(), "the example look_up failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The percentage of what one path was seen for, of what any was.
fn single_share(counts: &Value) -> String {
    let [precise, likely, ambiguous] =
        ["precise", "likely", "ambiguous"].map(|class| counts[class].as_u64().unwrap_or(0));
    let single = precise.saturating_add(likely);
    format!("{:.1}%", 100.0 * single as f64 / single.saturating_add(ambiguous).max(1) as f64)
}

/// The percentage of one class of counts.
pub(super) fn share(counts: &Value, class: &str) -> String {
    let all = counts.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64());
    let all: u64 = all.sum();
    format!("{:.1}", 100.0 * counts[class].as_f64().unwrap_or(0.0) / all.max(1) as f64)
}

/// The head of a table of [`walks`].
pub(super) const WALKS_HEAD: &str = "
Walks that end where the map tells the rest (--on-ambiguous=walk), by the walks of the same samples

| program | map | samples whose walk ends so | frames walked | of frames | walked whole |
|---|---|---|---|---|---|";

/// What walks would be like that end where a map tells the rest.
pub(super) fn walks(checked: &Value) -> String {
    let count = |name: &str| checked["walks"][name].as_f64().unwrap_or(0.0);
    let ended = count("told");
    let percent = |part: f64| 100.0 * part / (ended + count("whole")).max(1.0);
    format!(
        "{:.1}% | {:.1} | {:.1} | {:.1}%",
        percent(ended),
        count("walked_frames") / ended.max(1.0),
        count("frames") / ended.max(1.0),
        percent(count("whole"))
    )
}

/// The median, the least and the greatest.
fn spread(ratios: &mut [f64]) -> String {
    ratios.sort_by(f64::total_cmp);
    let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
    format!("{:.3} ({:.3} to {:.3})", at(ratios.len() / 2), at(0), at(ratios.len().saturating_sub(1)))
}
