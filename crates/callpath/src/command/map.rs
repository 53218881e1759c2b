//! `callpath map`: maps of call paths, by which paths of samples are found that walked no stack (`record --unwind=infer`).

mod check;
mod explain;
mod from_code;
mod resize;
mod show;
mod train;

use crate::outcome::Outcome;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Learn a map from a run of a program, or from measurements
    Train(train::Arguments),
    /// Make a map of the code alone: all calls that a program and its libraries have, without a run
    Static(from_code::Arguments),
    /// Show how precise a map is
    Show(show::Arguments),
    /// Check how often a map is right: against a measurement whose samples were walked, and keep heights (record --unwind=both)
    Check(check::Arguments),
    /// Plan which frames to make larger, so that more call paths have an identifier of their own (record --plan)
    Resize(resize::Arguments),
    /// Show the call paths that a map has for a place in the code and a height of the stack
    Explain(explain::Arguments),
}

pub(crate) fn run(command: &Command) -> Outcome {
    match command {
        Command::Train(arguments) => train::run(arguments),
        Command::Static(arguments) => from_code::run(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Resize(arguments) => resize::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
    }
}
