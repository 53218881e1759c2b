//! The subcommands, and what each gives back.
//! Knows nothing of how they work.

mod debug;
mod demo;
mod doctor;
mod list;
mod record;
mod recursion;
mod report;
mod structure;

use clap::Subcommand;
pub(crate) use record::FAILED as RECORD_FAILED;

/// Why a subcommand ended without doing its work.
pub(crate) struct Failure {
    /// What is said, after "callpath: ".
    pub(crate) error: anyhow::Error,
    /// The exit status.
    pub(crate) status: u8,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { error: error.into(), status: 1 }
    }
}

/// The exit status, or why there is none.
pub(crate) type Outcome = Result<u8, Failure>;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a program and record its call paths
    Record(record::Arguments),
    /// Name the events that can be sampled, here and elsewhere
    List(list::Arguments),
    /// Show what a recording measured
    Report(report::Arguments),
    /// What this machine allows and a program needs, and what to do about what is missing
    Doctor(doctor::Arguments),
    /// Show the procedures, loops and inlined calls of a program or library
    Structure(structure::Arguments),
    /// Record callpath itself at work on the system's largest libraries, and show the report
    Demo(demo::Arguments),
    /// For those who work on callpath
    #[command(subcommand)]
    Debug(debug::Command),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Command::Record(arguments) => record::run(&arguments),
            Command::List(arguments) => list::run(&arguments),
            Command::Report(arguments) => report::run(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments),
            Command::Structure(arguments) => structure::run(&arguments),
            Command::Demo(arguments) => demo::run(&arguments),
            Command::Debug(command) => debug::run(command),
        }
    }
}
