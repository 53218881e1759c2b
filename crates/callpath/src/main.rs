//! The command line: one file for each subcommand, wired to the crates that do the work.

mod command;
mod cut_file;
mod interrupt;
mod memory;
mod outcome;
mod output;
mod preload;
mod screen;
mod surroundings;
mod wrapped;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
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

/// Prints the help that was asked for, or what is wrong with the arguments in a line like our own errors. `record` and
/// `probe` then end with 125: smaller statuses are the program's.
fn no_command(error: &clap::Error) -> Outcome {
    if !error.use_stderr() {
        return Ok(error.print().map(|()| 0).map_err(output::explained)?);
    }
    match error.kind() {
        // The help of a command that needs a subcommand. If it cannot be printed, the status shows it.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => drop(error.print()),
        _ => output::say(in_a_line(&error.render().to_string())),
    }
    match own_failure() {
        command::RECORD_FAILED => Ok(command::RECORD_FAILED),
        _ => Ok(u8::try_from(error.exit_code()).unwrap_or(1)),
    }
}

/// Hidden options mean nothing here: an error of `command` does not suggest them.
fn without_hidden(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    if let Some(ContextValue::String(suggested)) = error.get(ContextKind::SuggestedArg) {
        let suggested = suggested.trim_start_matches('-').to_owned();
        let is_it = |option: &&clap::Arg| option.get_long() == Some(&*suggested);
        if command.get_arguments().find(is_it).is_some_and(clap::Arg::is_hide_set) {
            error.remove(ContextKind::SuggestedArg);
        }
    }
    error
}

/// The subcommand that was typed, else the whole command.
fn typed_command() -> clap::Command {
    let command = Arguments::command();
    let word = std::env::args_os().nth(1);
    let subcommand = word.and_then(|word| command.find_subcommand(word).cloned());
    subcommand.unwrap_or(command)
}

/// clap's error as a line: what is wrong and what similar names exist, then the command that prints help.
fn in_a_line(said: &str) -> String {
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let is_left_out = |line: &str| ["For more information", "tip: to pass"].iter().any(|w| line.starts_with(w));
    // Usage may have several lines, and stands last but for where to find help.
    let lines = said.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.is_empty() && !is_left_out(line));
    let parts: Vec<String> = lines.map(|line| line.replace("tip: ", "; ")).collect();
    let subcommand = std::env::args_os().nth(1).filter(|word| Arguments::command().find_subcommand(word).is_some());
    let help = subcommand.map_or(String::new(), |word| format!("{} ", word.display()));
    format!("{}; see: callpath {help}--help", parts.join(" ").replace(" ; ", "; "))
}

/// The status of a failure of our own: what other commands end with as an answer, no failure may end with.
fn own_failure() -> u8 {
    match std::env::args_os().nth(1) {
        Some(word) if word == "record" || word == "probe" => command::RECORD_FAILED,
        Some(word) if word == "diff" || word == "compare" => command::DIFF_FAILED,
        _ => 1,
    }
}

fn is_record() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "record")
}

fn main() -> ExitCode {
    memory::begin(own_failure());
    if !is_record() {
        cut_file::begin(own_failure());
    }
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => arguments.command.run(Arguments::command),
        Err(error) => no_command(&without_hidden(error, &typed_command())),
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

    #[test]
    fn hidden_options_are_not_suggested() {
        let command = Arguments::command();
        let record = command.find_subcommand("record").expect("a subcommand");
        for (typed, suggested) in [
            ("--call-grpah", None),
            ("--pre-thread", None),
            ("--quite", Some("--quiet")),
            ("--outptu", Some("--output")),
        ] {
            let error = Arguments::try_parse_from(["callpath", "record", typed, "ls"]).err().expect("an error");
            let said = in_a_line(&without_hidden(error, record).render().to_string());
            assert!(said.starts_with(&format!("unexpected argument '{typed}' found")), "{said}");
            let similar = suggested.map(|option| format!("; a similar argument exists: '{option}'"));
            assert_eq!(said.contains("similar"), similar.is_some(), "{said}");
            assert!(similar.is_none_or(|similar| said.contains(&similar)), "{said}");
        }
    }
}
