//! `cargo xtask bench-infer-cost`: what it costs to keep the procedure and the height of the stack, over a recorder that keeps the pc alone and
//! over nothing (Mytkowicz, Coughlin and Diwan 2009, section 9.1).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use callpath_db::diff::students_quantile;
use serde_json::Value;

use super::compile;
use crate::arguments::Arguments;
use crate::suite::inputs::Numbers;
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

/// `cargo xtask bench-infer-cost [--programs NAME,...] [--pairs N] [--setups N]`. Each round is of one set-up: an environment of another length,
/// so that the stack lies elsewhere. With `--setups`, environments and stack offsets are random, and the same for all runs of a round: address
/// space is not randomized (the paper takes 32).
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["programs", "pairs", "setups", "callpath"])?;
    let is_random = arguments.text("setups").is_some();
    let pairs = if is_random { arguments.number("setups", 32)? } else { arguments.number("pairs", 20)? };
    let place = suite::work_directory()?;
    let bench = Bench { callpath: build::command(arguments)?, floor: place.join("floor"), place };
    compile(&build::root().join("xtask/src/bench/floor.c"), &bench.floor)?;
    let set_ups = match is_random {
        true => "each in a random environment and at a random stack offset, without randomized addresses",
        false => "each in an environment of another length",
    };
    println!(
        "{}: {pairs} rounds of bare, pc alone, --unwind=infer, {set_ups}, {RATE} samples a second. CPU time \
         as a ratio: mean, and in brackets the bound that the mean is below with 95%\n",
        suite::machine()?
    );
    let mut tests = Vec::new();
    println!(
        "| program | pc alone over bare | infer over bare | infer over pc alone | by timers over pc alone | with the recorder: infer over pc alone | by timers over pc alone |"
    );
    println!("|---|---|---|---|---|---|---|");
    for program in suite::chosen(Some(arguments.text("programs").unwrap_or(PROGRAMS)))? {
        let set_ups = (0..pairs).map(|pair| if is_random { SetUp::random(pair) } else { SetUp::of_length(pair) });
        match bench.rounds(program, &set_ups.collect::<Vec<_>>()) {
            Ok(rounds) => {
                let test = |of: fn(&Round) -> [f64; 2]| tested(&rounds.iter().map(of).collect::<Vec<_>>());
                tests.push(format!(
                    "| {} | {} | {} | {} |",
                    program.name,
                    test(|round| [round.infer[0], round.bare]),
                    test(|round| [round.infer[0], round.pc_alone[0]]),
                    test(|round| [round.by_timers[0], round.bare]),
                ));
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
    println!(
        "\nStudent's t test of the rounds' differences: t, and the probability of such a one or a larger one, of either sign, if there is none\n"
    );
    println!("| program | infer and bare | infer and pc alone | by timers and bare |\n|---|---|---|---|");
    tests.iter().for_each(|row| println!("{row}"));
    std::fs::remove_dir_all(&bench.place)?;
    Ok(ExitCode::SUCCESS)
}

/// What a round's runs have in common.
struct SetUp {
    environment: Vec<(String, String)>,
    /// The kernel lays out the address space as it always does: the environment alone moves the stack.
    has_fixed_addresses: bool,
}

impl SetUp {
    fn of_length(pair: usize) -> SetUp {
        // Any order of lengths will do that does not grow.
        const STEP: usize = 1237;
        let longer = "x".repeat(pair * STEP % 4096);
        SetUp { environment: vec![("CALLPATH_SET_UP".to_owned(), longer)], has_fixed_addresses: false }
    }

    /// The same one each time for a number.
    fn random(number: usize) -> SetUp {
        const MOST_VARIABLES: u64 = 40;
        const MOST_BYTES: u64 = 300;
        let mut numbers = Numbers::new(number as u64 + 1);
        let environment = (0..numbers.below(MOST_VARIABLES))
            .map(|at| (format!("CALLPATH_SET_UP_{at}"), "x".repeat(numbers.below(MOST_BYTES) as usize)));
        SetUp { environment: environment.collect(), has_fixed_addresses: true }
    }

    fn put(&self, command: &mut Command) {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if self.has_fixed_addresses {
            // SAFETY: one system call between fork and exec.
            unsafe {
                command.pre_exec(|| match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                });
            }
        }
    }
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
    fn rounds(&self, program: &suite::Program, set_ups: &[SetUp]) -> anyhow::Result<Vec<Round>> {
        let inputs = self.place.join(program.name);
        suite::remove_output(&inputs)?;
        std::fs::create_dir_all(&inputs)?;
        let prepared = (program.prepare)(&inputs, 5)?;
        // Tables come into the cache, files into memory.
        for outside in [ALWAYS, NEVER] {
            self.infer(outside, (&prepared, &inputs), &SetUp::of_length(0))?;
        }
        let rounds = set_ups.iter().enumerate();
        rounds.map(|(number, set_up)| self.round((&prepared, &inputs), number, set_up)).collect()
    }

    fn round(&self, (prepared, inputs): (&Prepared, &Path), number: usize, set_up: &SetUp) -> anyhow::Result<Round> {
        let mut bare = prepared.bare(inputs);
        set_up.put(&mut bare);
        let bare = suite::run_once(prepared, bare)?.cpu.as_secs_f64();
        let mut round = Round { bare, pc_alone: [0.0; 2], infer: [0.0; 2], by_timers: [0.0; 2] };
        // None of them is always the one behind the bare run.
        for way in 0..3 {
            match (way + number) % 3 {
                0 => round.pc_alone = self.pc_alone(prepared, inputs, set_up)?,
                1 => round.infer = self.infer(ALWAYS, (prepared, inputs), set_up)?,
                _ => round.by_timers = self.infer(NEVER, (prepared, inputs), set_up)?,
            }
        }
        Ok(round)
    }

    fn pc_alone(&self, prepared: &Prepared, inputs: &Path, set_up: &SetUp) -> anyhow::Result<[f64; 2]> {
        let count = self.place.join("count");
        let mut command = Command::new(&self.floor);
        command.arg(RATE).arg(&count).arg(self.place.join("samples"));
        command.arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
        set_up.put(&mut command);
        let all = suite::run_once(prepared, command)?.cpu.as_secs_f64();
        let text = std::fs::read_to_string(&count).context("the recorder of the pc left no count")?;
        let cpu_us: f64 =
            text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).context("it left no time")?;
        Ok([cpu_us / 1e6, all])
    }

    fn infer(&self, outside: &str, (prepared, inputs): (&Prepared, &Path), set_up: &SetUp) -> anyhow::Result<[f64; 2]> {
        let output = self.place.join("out.callpath");
        suite::remove_output(&output)?;
        let mut command = Command::new(&self.callpath);
        command.args(["record", "--quiet", "--unwind=infer", outside, "-F", RATE, "-o"]).arg(&output).arg("--");
        command.arg(&prepared.program).args(&prepared.arguments).current_dir(inputs);
        set_up.put(&mut command);
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

/// Student's t of pairs, and how probable one at least as far from 0 is if both are alike.
fn tested(pairs: &[[f64; 2]]) -> String {
    let differences = pairs.iter().map(|[one, two]| one - two);
    let count = pairs.len() as f64;
    let mean = differences.clone().sum::<f64>() / count;
    let variance = differences.map(|difference| (difference - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = mean / (variance / count).sqrt();
    // The probability whose quantile is |t|.
    let (mut low, mut high) = (0.5, 1.0 - 1e-9);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let is_low = students_quantile(middle, count - 1.0) < t.abs();
        (low, high) = if is_low { (middle, high) } else { (low, middle) };
    }
    format!("{t:.2} ({:.3})", 2.0 * (1.0 - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_t_test_of_pairs() {
        // 2.262 is the 0.975 quantile of nine degrees of freedom.
        let deviation = 2.262 / 10.0_f64.sqrt();
        let spread = (9.0_f64 / 10.0).sqrt();
        let pairs: Vec<[f64; 2]> =
            (0..10).map(|at| [1.0 * deviation + if at % 2 == 0 { spread } else { -spread }, 0.0]).collect();
        assert_eq!(tested(&pairs), "2.26 (0.050)");
    }

    #[test]
    fn set_ups_differ_and_come_again() {
        let of = |number| SetUp::random(number).environment;
        assert_eq!(of(3), of(3));
        let lengths: std::collections::BTreeSet<usize> =
            (0..32).map(|number| of(number).iter().map(|(_, value)| value.len()).sum()).collect();
        assert!(lengths.len() > 24, "{lengths:?}");
    }

    #[test]
    fn means_and_bounds() {
        // 1.833 is the 0.95 quantile of nine degrees of freedom.
        let ratios: Vec<f64> = (0..10).map(|at| if at % 2 == 0 { 0.9 } else { 1.1 }).collect();
        let deviation = (10.0 * 0.01 / 9.0_f64).sqrt();
        assert_eq!(bounded(&ratios), format!("1.0000 ({:.4})", 1.0 + 1.8331 * deviation / 10.0_f64.sqrt()));
    }
}
