//! The command line: one file for each subcommand, wired to the crates that do the work.
//! Knows no algorithm.

mod command;
mod preload;
mod surroundings;

use std::process::ExitCode;

use clap::Parser;
use command::Command;

/// Which call paths cost what, for fully optimized, stripped, real programs.
#[derive(Parser)]
#[command(name = "callpath", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Whoever reads us has seen enough (`| head`).
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|c| c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe))
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        // Help is no failure; of `record` every failure of ours is 125 to 127, since others are the program's.
        let is_record = std::env::args_os().nth(1).is_some_and(|word| word == "record");
        let status = if error.use_stderr() && is_record { command::RECORD_FAILED.into() } else { error.exit_code() };
        // Where it is said does not matter if it cannot be said.
        drop(error.print());
        std::process::exit(status)
    });
    match arguments.command.run() {
        Ok(status) => ExitCode::from(status),
        Err(failure) if is_closed_pipe(&failure.error) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("callpath: {:#}", failure.error);
            ExitCode::from(failure.status)
        }
    }
}
