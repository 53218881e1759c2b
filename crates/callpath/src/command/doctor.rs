//! `callpath doctor`: what this machine allows, what a program needs, and what to do about what is missing.

mod machine;
mod modules;
mod program;
mod shown;
mod trial;

pub(super) use shown::wrapped;
pub(super) use trial::busy;

use std::ffi::OsString;
use std::io::Write;

use callpath_target::find_program;

use super::{Failure, Outcome};
use crate::{output, surroundings};

/// `record` cannot work here, or not with this program.
const CANNOT_RECORD: u8 = 1;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
    /// Program to check
    program: Option<OsString>,
}

/// How a thing is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    /// As good as it gets.
    Good,
    /// Measuring works, with less than there could be.
    Limited,
    /// Measuring does not work.
    Bad,
}

/// One thing that was looked at.
struct Finding {
    topic: &'static str,
    state: State,
    /// What is so.
    found: String,
    /// What follows for a measurement; empty: nothing.
    meaning: String,
    /// What to do, a command where there is one; empty: nothing.
    remedy: String,
}

impl Finding {
    fn new(topic: &'static str, state: State, found: impl Into<String>) -> Finding {
        Finding { topic, state, found: found.into(), meaning: String::new(), remedy: String::new() }
    }

    fn good(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(topic, State::Good, found)
    }

    fn limited(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(topic, State::Limited, found)
    }

    fn bad(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(topic, State::Bad, found)
    }

    fn means(mut self, meaning: impl Into<String>) -> Finding {
        self.meaning = meaning.into();
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = remedy.into();
        self
    }
}

/// All that was found.
struct Report {
    machine: Vec<Finding>,
    program: Option<program::Program>,
}

impl Report {
    fn is_hopeless(&self) -> bool {
        let of_program = self.program.iter().flat_map(|program| &program.findings);
        self.machine.iter().chain(of_program).any(|finding| finding.state == State::Bad)
    }
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
    let mut out = output::stdout();
    if arguments.json {
        shown::json(&report, &mut out)?;
    } else {
        shown::text(&report, surroundings::width(), surroundings::color(), &mut out)?;
    }
    out.flush()?;
    Ok(if report.is_hopeless() { CANNOT_RECORD } else { 0 })
}
