//! The subcommands, and what each gives back.

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
    /// List the events that can be sampled
    List(list::Arguments),
    /// Show what a recording measured
    Report(report::Arguments),
    /// Check what this machine allows and what a program needs
    Doctor(doctor::Arguments),
    /// Show the procedures, loops and inlined calls of a program or library
    Structure(structure::Arguments),
    /// Record callpath while it analyses the system's largest libraries, and show the report
    Demo(demo::Arguments),
    /// Look inside: recipes, unwinding, the preloaded object
    #[command(subcommand)]
    Debug(debug::Command),
}

/// A whole number, as an option's value.
fn number<N: std::str::FromStr>(typed: &str) -> Result<N, &'static str> {
    typed.parse().map_err(|_| "must be a whole number")
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
