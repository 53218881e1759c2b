//! The command line: one file for each subcommand, wired to the crates that do the work.
//! Knows no algorithm.

mod command;
mod memory;
mod output;
mod preload;
mod surroundings;

use std::process::ExitCode;

use clap::Parser;
use command::{Command, Outcome};

/// Which call paths cost what, for fully optimized, stripped, real programs.
#[derive(Parser)]
#[command(name = "callpath", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Says what is wrong with the words, or the help that they ask for. Help is no failure; of `record` every failure of
/// ours is 125 to 127, since others are the program's.
fn no_command(error: &clap::Error) -> Outcome {
    let said = error.print();
    match error.use_stderr() {
        // Where nobody can be told, the status tells.
        true if is_record() => Ok(command::RECORD_FAILED),
        true => Ok(u8::try_from(error.exit_code()).unwrap_or(1)),
        false => Ok(said.map(|()| 0).map_err(output::explained)?),
    }
}

fn is_record() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "record")
}

fn main() -> ExitCode {
    memory::begin(if is_record() { command::RECORD_FAILED } else { 1 });
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => arguments.command.run(),
        Err(error) => no_command(&error),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) if output::is_closed_pipe(&failure.error) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say(format_args!("{:#}", failure.error));
            ExitCode::from(failure.status)
        }
    }
}
