//! `callpath annotate`: a procedure's source, by line with what each costs.

mod sources;

use std::num::NonZeroU16;
use std::path::PathBuf;

use callpath_analyze::instructions::{AskedCosts, Instruction, ProcedureInstructions, instructions};
use callpath_analyze::names::SourceLine;
use callpath_analyze::structure::{ProcedureStructure, StaticKind, StaticScope};
use callpath_db::{Profile, Query, ScopeKind, ViewKind};
use callpath_view::text::{self, AnnotatedCode, Assembly, AssemblyScope, AssemblyText, InstructionText, TextOptions};
use sources::Sources;

use super::profile::{analysis_options_of, code_costs, load, need_samples, shown};
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
    #[arg(long, conflicts_with_all = ["process", "thread", "focus", "ignore", "hide", "prune_from"])]
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
    need_samples(&profile)?;
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
    let assembly = match arguments.asm {
        true => Some(assembly(arguments, &profile, &options)?),
        false => None,
    };
    let sources = Sources::new(&arguments.source_dir, &profile.info);
    let mut source = |file: &str| sources.text(file);
    let code = AnnotatedCode { source: &mut source, assembly: assembly.as_ref() };
    if arguments.json {
        let mut out = output::stdout();
        text::annotate_json(&profile, &options, code, &mut out).map_err(shown)?;
    } else {
        let mut out = arguments.screen.open();
        text::annotate(&profile, &options, code, &mut out).map_err(shown)?;
        out.end()?;
    }
    Ok(0)
}

/// The code of the procedures that are asked for.
fn assembly(arguments: &Arguments, profile: &Profile, options: &TextOptions) -> anyhow::Result<Assembly> {
    let (costs, metric) = code_costs(arguments.measurement.as_deref(), profile)?;
    let procedures = text::annotated_procedures(profile, &options.query).map_err(shown)?;
    let options = analysis_options_of(profile.info.directory.as_ref());
    let mut found = instructions(&AskedCosts { costs: &costs, metric }, profile, &procedures, &options);
    if costs.lacks_some() {
        found.missing.push(
            "Some of what was merged has no instructions (it was merged by an earlier callpath): they lack its part."
                .into(),
        );
    }
    found.missing.iter().for_each(output::say);
    if found.procedures.is_empty() && found.missing.is_empty() {
        output::say(
            "no instructions: nothing was measured in the code of a procedure of that name, or it is inlined everywhere",
        );
    }
    let procedures = found.procedures.into_iter().map(assembly_text).collect();
    Ok(Assembly { procedures, missing: found.missing })
}

fn assembly_text(procedure: ProcedureInstructions) -> AssemblyText {
    let structure = procedure.structure.as_ref();
    let place = |line: SourceLine| (line.file.to_string(), line.line);
    let scope = |of: &ProcedureStructure, scope: &StaticScope| AssemblyScope {
        parent: scope.parent.map(|parent| parent as usize),
        inlined: match scope.kind {
            StaticKind::Loop { .. } => None,
            StaticKind::Inlined | StaticKind::Alien => Some(scope.name.clone().unwrap_or_default()),
        },
        place: scope.location.map(|location| place(of.source_line(location))),
        column: scope.column.map(NonZeroU16::get),
        call_site: scope.call_site.map(|location| place(of.source_line(location))),
        address: scope.address.0,
    };
    let scopes = structure.map_or_else(Vec::new, |of| of.scopes.iter().map(|its| scope(of, its)).collect());
    let innermost = |address| structure.and_then(|of| of.scoped_range_at(address)).and_then(|range| range.scope);
    let instruction = |instruction: Instruction| InstructionText {
        address: instruction.address.0,
        text: instruction.text,
        line: instruction.line.map(place),
        scope: innermost(instruction.address).map(|scope| scope as usize),
        cost: instruction.cost,
    };
    let path = procedure.path.display().to_string();
    let instructions = procedure.instructions.into_iter().map(instruction).collect();
    AssemblyText { name: procedure.name, path, scopes, instructions }
}
