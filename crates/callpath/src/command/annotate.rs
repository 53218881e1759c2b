//! `callpath annotate`: a procedure's source, by line with what each costs.

mod sources;

use std::path::PathBuf;

use callpath_analyze::instructions::{Instruction, ProcedureInstructions, instructions};
use callpath_db::database::is_database;
use callpath_db::{Profile, Query, Scope, ScopeKind, ViewKind};
use callpath_view::text::{self, AssemblyText, InstructionText, TextOptions};
use sources::Sources;

use super::profile::{analysis_options, load, read, shown};
use super::selection::Selection;
use crate::outcome::Outcome;
use crate::screen::ScreenOptions;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Show this procedure: its name, a part of it, or a pattern with * and ?; or all of file:NAME or module:NAME
    #[arg(value_name = "NAME")]
    scope: String,
    /// Measurement directory or database [default: the newest *.callpath in the current directory]
    measurement: Option<PathBuf>,
    /// Look for source files here, too, with as much of their directories as is there; of several, the first that has one
    #[arg(long, value_name = "DIRECTORY")]
    source_dir: Vec<PathBuf>,
    /// Show shares of this metric [default: the first one]
    #[arg(long, value_name = "METRIC")]
    by: Option<String>,
    /// Also show the instructions, each with its own cost. A sample counts for the instruction that was to be executed next.
    /// The program's files must be there
    #[arg(long, conflicts_with_all = ["json", "process", "thread", "focus", "ignore"])]
    asm: bool,
    /// Print JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    selection: Selection,
    /// Width in columns [default: the terminal's, else COLUMNS, else 100]
    #[arg(long, value_name = "COLUMNS", value_parser = super::report::columns, allow_negative_numbers = true)]
    width: Option<usize>,
    #[command(flatten)]
    screen: ScreenOptions,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut profile = load(arguments.measurement.as_deref())?;
    profile.put_first(arguments.by.as_slice())?;
    let selected = arguments.selection.query();
    let options = TextOptions {
        query: Query {
            view: ViewKind::Context,
            procedure: Some(arguments.scope.clone()),
            merge_processes: true,
            regions_meet: true,
            fold: selected.fold.iter().copied().filter(|kind| *kind != ScopeKind::Line).collect(),
            ..selected
        },
        width: arguments.width.unwrap_or_else(surroundings::width),
        color: arguments.screen.color(),
        command: surroundings::typed_command(),
        ..TextOptions::default()
    };
    let sources = Sources::new(&arguments.source_dir, &profile.info);
    let mut source = |file: &str| sources.text(file);
    if arguments.json {
        let mut out = output::stdout();
        text::annotate_json(&profile, &options, &mut source, &mut out).map_err(shown)?;
    } else {
        let mut out = arguments.screen.open();
        text::annotate(&profile, &options, &mut source, &mut out).map_err(shown)?;
        if arguments.asm {
            let found = assembly(arguments, &profile, &options)?;
            text::annotate_assembly(&profile, &options, &found, &mut out).map_err(shown)?;
        }
        out.end()?;
    }
    Ok(0)
}

/// The code of the procedures that are asked for.
fn assembly(arguments: &Arguments, profile: &Profile, options: &TextOptions) -> anyhow::Result<Vec<AssemblyText>> {
    let directory = arguments.measurement.as_deref();
    if directory.is_some_and(is_database) {
        anyhow::bail!("failed to show instructions: a database has none; name the measurement that it was made of");
    }
    let view = profile.view(&options.query)?;
    let procedures: Vec<Scope> = view.children(0).map(|node| view.nodes[node].scope).collect();
    let found = instructions(&read(directory)?, profile, &procedures, &analysis_options());
    found.missing.iter().for_each(output::say);
    if found.procedures.is_empty() && found.missing.is_empty() {
        output::say(
            "no instructions: nothing was measured in the code of a procedure of that name, or it is inlined everywhere",
        );
    }
    let of_instruction = |instruction: Instruction| InstructionText {
        address: instruction.address.0,
        text: instruction.text,
        line: instruction.line.map(|line| (line.file.to_string(), line.line)),
        cost: instruction.cost,
    };
    let of_procedure = |procedure: ProcedureInstructions| AssemblyText {
        title: format!("{}  {}", procedure.name, procedure.path.display()),
        instructions: procedure.instructions.into_iter().map(of_instruction).collect(),
    };
    Ok(found.procedures.into_iter().map(of_procedure).collect())
}
