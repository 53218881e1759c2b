//! What relocation alone costs: runs as copies and bare runs, in turn.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use callpath_oracle::OracleError;
use callpath_oracle::relocation::{Options, Relocation};
use callpath_target::{StepOptions, Stepper};

use crate::statistics::{Spread, median, spread};
use crate::suite;
use crate::suite::prepared::{Prepared, Stdin};

/// User time as copies over bare.
struct Ratio {
    /// Of the pairs.
    spread: Spread,
    /// The least of all runs over the least: others on the machine only add to what a run takes.
    of_least: f64,
    /// The difference of the least ones by calls of procedures, nanoseconds.
    ns_per_call: f64,
}

/// Of one program: prints the ratio of the user times.
pub fn of_program(command: &dyn Fn() -> Command, options: &Options, pairs: usize) -> anyhow::Result<ExitCode> {
    let quiet = || {
        let mut command = command();
        command.stdin(Stdio::null());
        Ok(command)
    };
    let ratio = ratios(&quiet, options, pairs)?;
    println!("{:.3}, least over least {:.3}, {:.2} ns a call", ratio.spread, ratio.of_least, ratio.ns_per_call);
    Ok(ExitCode::SUCCESS)
}

/// Of programs of the suite, all without names: prints a table, and the median of the programs.
pub fn of_suite(names: Option<&str>, options: &Options, pairs: usize) -> anyhow::Result<ExitCode> {
    let chosen = suite::chosen(names)?;
    suite::install_for(&chosen, &[])?;
    let place = suite::work_directory()?;
    println!(
        "user time as copies over bare, median and quartiles of {pairs} pairs, the least over the least, and their difference by calls, ns\n\n\
         | program | over bare | least | a call |\n|---|---|---|---|"
    );
    let (mut medians, mut least, mut has_failed) = (Vec::new(), Vec::new(), false);
    for program in chosen {
        let inputs = place.join(program.name);
        std::fs::create_dir_all(&inputs)?;
        match of_prepared(program.prepare, &inputs, (options, pairs)) {
            Ok(Some(ratio)) => {
                medians.push(ratio.spread.median);
                least.push(ratio.of_least);
                let Ratio { spread, of_least, ns_per_call } = ratio;
                println!("| {} | {spread:.3} | {of_least:.3} | {ns_per_call:.2} |", program.name);
            }
            Ok(None) => println!("| {} | SKIPPED: it has to be talked to | | |", program.name),
            Err(error) if matches!(error.downcast_ref(), Some(OracleError::Threads { .. })) => {
                println!("| {} | SKIPPED: {error:#} | | |", program.name);
            }
            Err(error) => {
                has_failed = true;
                println!("| {} | FAILED: {error:#} | | |", program.name);
            }
        }
    }
    println!("\nMedian of {} programs {:.3}; of the least {:.3}", medians.len(), median(&medians), median(&least));
    std::fs::remove_dir_all(&place)?;
    Ok(if medians.is_empty() || has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn of_prepared(
    prepare: fn(&Path, u32) -> anyhow::Result<Prepared>,
    inputs: &Path,
    (options, pairs): (&Options, usize),
) -> anyhow::Result<Option<Ratio>> {
    /// Of the suite's sizes, one of about a second.
    const SIZE: u32 = 2;
    let prepared = prepare(inputs, SIZE)?;
    if matches!(prepared.stdin, Stdin::Dialogue(_)) {
        return Ok(None);
    }
    suite::run_once(&prepared, prepared.bare(inputs))?;
    let command = || {
        let mut command = prepared.bare(inputs);
        command.envs(prepared.environment.iter().cloned());
        match &prepared.stdin {
            Stdin::File(file) => command.stdin(File::open(file)?),
            Stdin::Nothing | Stdin::Dialogue(_) => command.stdin(Stdio::null()),
        };
        Ok(command)
    };
    ratios(&command, options, pairs).map(Some)
}

/// The user time of runs as copies over that of bare runs.
fn ratios(command: &dyn Fn() -> anyhow::Result<Command>, options: &Options, pairs: usize) -> anyhow::Result<Ratio> {
    let quiet = || {
        let mut command = command()?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        anyhow::Ok(command)
    };
    let mut ratios = Vec::new();
    let mut least = [f64::INFINITY; 2];
    for _ in 0..pairs {
        let before = user_time_of_children()?;
        let status = quiet()?.status().context("failed to run the program")?;
        let between = user_time_of_children()?;
        // Its addresses are as random as the bare run's: some programs are a few per cent faster or slower at fixed ones.
        let random = StepOptions { random_addresses: true, ..StepOptions::default() };
        let copied = Relocation::of(Stepper::start(quiet()?, random)?, options)?
            .run_to_end(|trouble| eprintln!("relocate: {trouble}"))?;
        let after = user_time_of_children()?;
        ensure!(status.code() == Some(copied), "the bare run ended with {status}, that of copies with {copied}");
        let [copied, bare] = [after - between, between - before].map(|time| time.as_secs_f64());
        least = [least[0].min(copied), least[1].min(bare)];
        ratios.push(copied / bare);
    }
    let counted = Options { entries: true, ..options.clone() };
    let mut relocation = Relocation::of(Stepper::start(quiet()?, StepOptions::default())?, &counted)?;
    relocation.run_to_end(|trouble| eprintln!("relocate: {trouble}"))?;
    let calls: u64 = relocation.passes()?.iter().map(|passes| passes.count).sum();
    let ns_per_call = (least[0] - least[1]) * 1e9 / calls as f64;
    Ok(Ratio { spread: spread(&ratios), of_least: least[0] / least[1], ns_per_call })
}

/// Of all that have ended.
fn user_time_of_children() -> std::io::Result<Duration> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel writes one rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled it.
    let time = unsafe { usage.assume_init() }.ru_utime;
    Ok(Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
}
