//! `callpath compare`: two commands are recorded in turn, and what changed is printed.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use callpath_db::Profile;

use super::diff::{Shown, Sides, failed};
use super::profile::load;
use super::record::NO_RANK;
use crate::outcome::Outcome;
use crate::surroundings::Progress;

/// What stands between the two commands.
const BETWEEN: &str = ":::";

#[derive(clap::Args)]
#[command(override_usage = "callpath compare [OPTIONS] -- OLD [ARGUMENT]... ::: NEW [ARGUMENT]...")]
pub(crate) struct Arguments {
    /// Runs of each command
    #[arg(short = 'n', long, value_name = "RUNS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    runs: u32,
    /// Samples a second of each thread; a procedure that costs little needs many
    #[arg(short = 'F', long = "freq", value_name = "RATE", default_value_t = 5000)]
    rate: u64,
    /// Event to sample, as in `callpath record`
    #[arg(short, long, value_name = "EVENT")]
    event: Vec<String>,
    /// Keep the measurements in this new directory, as a-1, b-1, a-2, ... [default: they are removed]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown,
    /// The commands
    #[arg(last = true, required = true, value_name = "OLD ::: NEW")]
    commands: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    compare(arguments).map_err(failed)
}

fn compare(arguments: &Arguments) -> anyhow::Result<u8> {
    let mut sides = arguments.commands.split(|word| word == BETWEEN);
    let (Some(old), Some(new), None) = (sides.next(), sides.next(), sides.next()) else {
        anyhow::bail!("there must be two commands: -- OLD [ARGUMENT]... {BETWEEN} NEW [ARGUMENT]...");
    };
    anyhow::ensure!(!old.is_empty() && !new.is_empty(), "a command is missing before or after {BETWEEN}");
    let picture = arguments.shown.new_picture()?;
    let temporary = tempfile::Builder::new().prefix("callpath-compare-").tempdir()?;
    let directory = match &arguments.output {
        Some(directory) => {
            std::fs::create_dir(directory).with_context(|| format!("failed to create {}", directory.display()))?;
            directory
        }
        None => temporary.path(),
    };
    let mut progress = Progress::new("recording");
    let mut profiles: [Vec<Profile>; 2] = Default::default();
    for round in 0..arguments.runs {
        // ABBA: neither side always comes first, and what changes steadily is the same for both.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let output = directory.join(format!("{}-{}", ["a", "b"][side], round + 1));
            record(arguments, [old, new][side], &output)?;
            profiles[side].push(load(Some(&output))?);
            progress.step(profiles[0].len() + profiles[1].len(), 2 * arguments.runs as usize);
        }
    }
    drop(progress);
    let [a, b] = profiles;
    arguments.shown.show(&Sides { a, b, paired: true }, picture)
}

/// Records a command by a process of its own: a recorder has one program. What the program prints is dropped: standard
/// output is for the difference.
fn record(arguments: &Arguments, command: &[OsString], output: &Path) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("failed to find callpath's own file")?;
    let log_path = output.with_extension("log");
    let log = std::fs::File::create(&log_path).with_context(|| format!("failed to write {}", log_path.display()))?;
    let mut recorder = Command::new(own);
    // What is compared are runs, also where this is a rank itself.
    recorder.env(NO_RANK.0, NO_RANK.1);
    recorder.args(["record", "--quiet", "-F"]).arg(arguments.rate.to_string());
    for event in &arguments.event {
        recorder.arg("-e").arg(event);
    }
    recorder.arg("-o").arg(output).arg("--").args(command);
    let said = Stdio::from(log.as_fd().try_clone_to_owned()?);
    let status = recorder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).status()?;
    if !status.success() {
        let said = std::fs::read_to_string(&log_path).unwrap_or_default();
        let last = said.trim_end().lines().last().map_or(String::new(), |line| format!(": {line}"));
        anyhow::bail!("{} ended with {status}{last}", command[0].display());
    }
    std::fs::remove_file(&log_path).with_context(|| format!("failed to remove {}", log_path.display()))
}
