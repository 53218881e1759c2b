//! `callpath doctor`: what this machine allows, what a program needs, and what to do about what is missing.

mod finding;
mod machine;
mod modules;
mod program;
mod report;
mod shown;
mod trial_recording;

use std::ffi::OsString;
use std::io::Write;

use callpath_target::find_program;

use crate::outcome::{Failure, Outcome};
use crate::screen::ScreenOptions;
use crate::{output, surroundings};
pub(super) use program::executed;
use report::Report;

/// `record` cannot work here, or not with this program.
const CANNOT_RECORD: u8 = 1;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
    /// Program to check
    program: Option<OsString>,
    #[command(flatten)]
    screen: ScreenOptions,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let program = match &arguments.program {
        None => None,
        Some(name) => {
            let path = find_program(name).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
            if !path.is_file() {
                let error = anyhow::anyhow!("failed to look at {}: not a file, or it does not exist", path.display());
                return Err(Failure { error, status: CANNOT_RECORD });
            }
            Some(path)
        }
    };
    let report = Report { machine: machine::look()?, program: program.map(|path| program::look(&path)) };
    if arguments.json {
        let mut out = output::stdout();
        shown::json(&report, &mut out)?;
        out.flush()?;
    } else {
        let mut out = arguments.screen.open();
        shown::text(&report, surroundings::width(), arguments.screen.color(), &mut out)?;
        out.end()?;
    }
    Ok(if report.is_hopeless() { CANNOT_RECORD } else { 0 })
}
