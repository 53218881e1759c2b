//! The command line: one file for each subcommand, wired to the crates that do the work.

mod command;
mod memory;
mod outcome;
mod output;
mod preload;
mod screen;
mod surroundings;
mod wrapped;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use command::Command;
use outcome::Outcome;

/// Which call paths cost what, for fully optimized, stripped, real programs.
#[derive(Parser)]
#[command(name = "callpath", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Prints the help that was asked for, or what is wrong with the arguments in a line like our own errors. `record` then
/// ends with 125: smaller statuses are the program's.
fn no_command(error: &clap::Error) -> Outcome {
    if !error.use_stderr() {
        return Ok(error.print().map(|()| 0).map_err(output::explained)?);
    }
    match error.kind() {
        // The help of a command that needs a subcommand. If it cannot be printed, the status shows it.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => drop(error.print()),
        _ => output::say(in_a_line(&error.render().to_string())),
    }
    match is_record() {
        true => Ok(command::RECORD_FAILED),
        false => Ok(u8::try_from(error.exit_code()).unwrap_or(1)),
    }
}

/// clap's error as a line: what is wrong and what similar names exist, then the command that prints help.
fn in_a_line(said: &str) -> String {
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let is_left_out =
        |line: &str| ["Usage:", "For more information", "tip: to pass"].iter().any(|w| line.starts_with(w));
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty() && !is_left_out(line));
    let parts: Vec<String> = lines.map(|line| line.replace("tip: ", "; ")).collect();
    let subcommand = std::env::args_os().nth(1).filter(|word| Arguments::command().find_subcommand(word).is_some());
    let help = subcommand.map_or(String::new(), |word| format!("{} ", word.display()));
    format!("{}; see: callpath {help}--help", parts.join(" ").replace(" ; ", "; "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_stands_in_the_way_of_another() {
        Arguments::command().debug_assert();
    }
}
