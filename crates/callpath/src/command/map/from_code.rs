//! `callpath map static`: a program's files in, a map of all calls in their code out. The program does not run.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use callpath_analyze::infer::{ProgramFiles, from_code};
use callpath_infer::MapBuilder;
use callpath_view::text::shell_word;

use crate::command::path_map;
use crate::command::profile::analysis_options;
use crate::command::program_files::{self, as_mapped};
use crate::outcome::Outcome;
use crate::surroundings::Progress;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The map to write; one that is there is replaced
    #[arg(short, long, value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    /// A map whose paths the new one has, too: what runs have done. Code of libraries that were loaded then is read as well; may be repeated
    #[arg(long, value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    from: Vec<PathBuf>,
    /// Say only what went wrong
    #[arg(short, long)]
    quiet: bool,
    /// The program: its code and that of the libraries that it starts with is read
    #[arg(value_name = "PROGRAM", value_hint = clap::ValueHint::CommandName)]
    program: OsString,
}

/// How many procedures of a kind are named.
const NAMED: usize = 10;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let say = |line: &dyn std::fmt::Display| {
        if !arguments.quiet {
            output::say(line)
        }
    };
    let found = program_files::find(&arguments.program, |_| Ok(())).map_err(|error| anyhow!("failed to {error}"))?;
    found.notes.iter().for_each(|note| say(note));
    let mut builder = MapBuilder::default();
    for path in &arguments.from {
        let other = path_map::read(path)?;
        builder.add(&other).map_err(|other| {
            anyhow!("failed to learn from {}: {other}; make a map of its own for each build", path.display())
        })?;
    }
    let mut files: Vec<PathBuf> = vec![as_mapped(&found.file)];
    for library in found.libraries.iter().map(|library| as_mapped(library)) {
        if !files.contains(&library) {
            files.push(library);
        }
    }
    // What the program has loaded in the runs of these maps.
    let is_library = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
    let loaded = builder.modules().iter().map(|module| &module.path);
    let loaded: Vec<PathBuf> = loaded.filter(|path| is_library(path) && path.exists()).cloned().collect();
    for library in loaded {
        if !files.contains(&library) {
            files.push(library);
        }
    }
    let program = ProgramFiles { files, loader: found.loader.as_deref().map(as_mapped) };
    let mut progress = Progress::new("reading modules");
    let made = from_code(&program, builder, &analysis_options(), &mut |done, of| progress.step(done, of));
    drop(progress);
    let made = made.map_err(|other| {
        anyhow!("failed to read {}: {other} than it is now; train the map anew", found.file.display())
    })?;
    made.notes.iter().for_each(|note| say(note));
    if made.procedures == 0 {
        return Err(anyhow!(
            "failed to read {}: it has no code that can be read, and no map was written",
            found.file.display()
        )
        .into());
    }
    made.map.write(&arguments.output).map_err(|error| anyhow!("failed to {error}"))?;
    let (code, file) = (made.map.code(), shell_word(&arguments.output.to_string_lossy()));
    say(&format_args!(
        "wrote {file}: {} procedures of {} files, {} calls that name what they call, {} through pointers to any of {}",
        made.procedures,
        code.modules.len(),
        made.map.calls().len(),
        code.pointer_calls.len(),
        code.pointed.len()
    ));
    for (names, what) in [
        (
            &made.variable,
            "have calls below memory of a computed length on the stack: paths through these are not known",
        ),
        (&made.unfollowed, "have jumps that cannot be followed: calls behind them are not known"),
    ] {
        if !names.is_empty() {
            let more = names.len().saturating_sub(NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let named: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
            say(&format_args!("{} procedures {what}: {}{more}", names.len(), named.join(", ")));
        }
    }
    let typed = surroundings::typed_command();
    say(&format_args!("use it with: {typed} record --unwind=infer PROGRAM, then {typed} report --map {file}"));
    Ok(0)
}
