//! `callpath completions`: what completes our options in a shell, made from the command line's own definition.

use std::io::Write;

use clap_complete::Shell;

use crate::outcome::Outcome;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: ShellArgument,
}

/// The shells that we complete in.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum ShellArgument {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(arguments: &Arguments, whole: &clap::Command) -> Outcome {
    let mut out = output::stdout();
    out.write_all(&completions(arguments.shell, whole))?;
    out.flush()?;
    Ok(0)
}

/// The script that a shell reads to complete the `whole` command line.
pub(crate) fn completions(shell: ShellArgument, whole: &clap::Command) -> Vec<u8> {
    let shell = match shell {
        ShellArgument::Bash => Shell::Bash,
        ShellArgument::Zsh => Shell::Zsh,
        ShellArgument::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(whole), "callpath", &mut script);
    script
}

/// A command without what its help does not show: the generators would offer hidden options, too.
fn shown(command: &clap::Command) -> clap::Command {
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).map(shown);
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    clap::Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().unwrap_or_default().to_owned())
        .subcommands(subcommands)
        .args(arguments)
}
