//! `cargo xtask bench-infer-cost`: what it costs to keep the procedure and the height of the stack, over a recorder that keeps the pc alone and
//! over nothing (Mytkowicz, Coughlin and Diwan 2009, section 9.1).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use callpath_db::diff::students_quantile;
use serde_json::Value;

use super::compile;
use crate::arguments::Arguments;
use crate::suite::prepared::Prepared;
use crate::{build, suite};

/// Programs of one thread: the recorder of the pc samples no other.
const PROGRAMS: &str = "bzip2,sqlite3,perl,openssl,python3";

/// Samples a second.
const RATE: &str = "1000";

/// By the kernel's rings, and by timers.
const ALWAYS: &str = "--outside=always";
const NEVER: &str = "--outside=never";

/// What the paper gives its bound for.
const PROBABILITY: f64 = 0.95;

/// `cargo xtask bench-infer-cost [--programs NAME,...] [--pairs N]`. Each round is of one set-up: an environment of another length, so that
/// the stack lies elsewhere.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["programs", "pairs", "callpath"])?;
    let pairs = arguments.number("pairs", 20)?;
    let place = suite::work_directory()?;
    let bench = Bench { callpath: build::command(arguments)?, floor: place.join("floor"), place };
    compile(&build::root().join("xtask/src/bench/floor.c"), &bench.floor)?;
    println!(
        "{}: {pairs} rounds of bare, pc alone, --unwind=infer, each in an environment of another length, {RATE} samples a second. CPU time \
         as a ratio: mean, and in brackets the bound that the mean is below with 95%\n",
        suite::machine()?
    );
    println!(
        "| program | pc alone over bare | infer over bare | infer over pc alone | by timers over pc alone | with the recorder: infer over pc alone | by timers over pc alone |"
    );
    println!("|---|---|---|---|---|---|---|");
    for program in suite::chosen(Some(arguments.text("programs").unwrap_or(PROGRAMS)))? {
        match bench.rounds(program, pairs) {
            Ok(rounds) => {
                let cell = |of: fn(&Round) -> f64| bounded(&rounds.iter().map(of).collect::<Vec<_>>());
                println!(
                    "| {} | {} | {} | {} | {} | {} | {} |",
                    program.name,
                    cell(|round| round.pc_alone[0] / round.bare),
                    cell(|round| round.infer[0] / round.bare),
                    cell(|round| round.infer[0] / round.pc_alone[0]),
                    cell(|round| round.by_timers[0] / round.pc_alone[0]),
                    cell(|round| round.infer[1] / round.pc_alone[1]),
                    cell(|round| round.by_timers[1] / round.pc_alone[1]),
                );
            }
            Err(error) => println!("{}: SKIPPED: {error:#}", program.name),
        }
    }
    std::fs::remove_dir_all(&bench.place)?;
    Ok(ExitCode::SUCCESS)
}

/// CPU time in seconds: of the program, and with the recorder.
struct Round {
    bare: f64,
    pc_alone: [f64; 2],
    infer: [f64; 2],
    /// The same by signals inside the program.
    by_timers: [f64; 2],
}

struct Bench {
    callpath: PathBuf,
    floor: PathBuf,
    place: PathBuf,
}

impl Bench {
    fn rounds(&self, program: &suite::Program, pairs: usize) -> anyhow::Result<Vec<Round>> {
        let inputs = self.place.join(program.name);
        suite::remove_output(&inputs)?;
        std::fs::create_dir_all(&inputs)?;
        let prepared = (program.prepare)(&inputs, 5)?;
        // Tables come into the cache, files into memory.
        self.infer(ALWAYS, (&prepared, &inputs), 0)?;
        self.infer(NEVER, (&prepared, &inputs), 0)?;
        (0..pairs).map(|pair| self.round(&prepared, &inputs, pair)).collect()
    }

    fn round(&self, prepared: &Prepared, inputs: &Path, pair: usize) -> anyhow::Result<Round> {
        // Any order of lengths will do that does not grow.
        const STEP: usize = 1237;
        let longer = pair * STEP % 4096;
        let mut bare = prepared.bare(inputs);
        bare.env("CALLPATH_SET_UP", "x".repeat(longer));
        let bare = suite::run_once(prepared, bare)?.cpu.as_secs_f64();
        let mut round = Round { bare, pc_alone: [0.0; 2], infer: [0.0; 2], by_timers: [0.0; 2] };
        // None of them is always the one behind the bare run.
        for way in 0..3 {
            match (way + pair) % 3 {
                0 => round.pc_alone = self.pc_alone(prepared, inputs, longer)?,
                1 => round.infer = self.infer(ALWAYS, (prepared, inputs), longer)?,
                _ => round.by_timers = self.infer(NEVER, (prepared, inputs), longer)?,
            }
        }
        Ok(round)
    }

    fn pc_alone(&self, prepared: &Prepared, inputs: &Path, longer: usize) -> anyhow::Result<[f64; 2]> {
        let count = self.place.join("count");
        let mut command = Command::new(&self.floor);
        command.arg(RATE).arg(&count).arg(self.place.join("samples"));
        command.arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
        command.env("CALLPATH_SET_UP", "x".repeat(longer));
        let all = suite::run_once(prepared, command)?.cpu.as_secs_f64();
        let text = std::fs::read_to_string(&count).context("the recorder of the pc left no count")?;
        let cpu_us: f64 =
            text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).context("it left no time")?;
        Ok([cpu_us / 1e6, all])
    }

    fn infer(&self, outside: &str, (prepared, inputs): (&Prepared, &Path), longer: usize) -> anyhow::Result<[f64; 2]> {
        let output = self.place.join("out.callpath");
        suite::remove_output(&output)?;
        let mut command = Command::new(&self.callpath);
        command.args(["record", "--quiet", "--unwind=infer", outside, "-F", RATE, "-o"]).arg(&output).arg("--");
        command.arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
        command.env("CALLPATH_SET_UP", "x".repeat(longer));
        let all = suite::run_once(prepared, command)?.cpu.as_secs_f64();
        let report = Command::new(&self.callpath).args(["report", "--json"]).arg(&output).output()?;
        let report: Value = serde_json::from_slice(&report.stdout).context("the report is no JSON")?;
        let cpu_ns = report["run"]["cpu_time_by_kernel_ns"].as_f64().context("its CPU time is not known")?;
        Ok([cpu_ns / 1e9, all])
    }
}

/// The mean, and the bound that it is below with this probability.
fn bounded(ratios: &[f64]) -> String {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let bound = mean + students_quantile(PROBABILITY, count - 1.0) * (variance / count).sqrt();
    format!("{mean:.4} ({bound:.4})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_bounds() {
        // 1.833 is the 0.95 quantile of nine degrees of freedom.
        let ratios: Vec<f64> = (0..10).map(|at| if at % 2 == 0 { 0.9 } else { 1.1 }).collect();
        let deviation = (10.0 * 0.01 / 9.0_f64).sqrt();
        assert_eq!(bounded(&ratios), format!("1.0000 ({:.4})", 1.0 + 1.8331 * deviation / 10.0_f64.sqrt()));
    }
}
