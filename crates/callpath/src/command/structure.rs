//! `callpath structure`: the loops and inlined calls of a file's procedures, for study.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use callpath_analyze::names::ModuleNames;
use callpath_analyze::structure::{
    ModuleStructure, ProcedureStructure, SourceLocation, StaticKind, StaticScope, cached_structure,
};
use callpath_db::{AskedName, Way};
use callpath_format::address::LinkAddr;
use callpath_tables::module::Module;
use callpath_tables::table_cache::TableCache;
use callpath_view::text::printable;
use serde_json::{Value, json};

use super::code::expect_code;
use super::procedure_name::{self, Wanted};
use crate::outcome::Outcome;
use crate::screen::ScreenOptions;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An ELF file: a program or a shared library
    file: PathBuf,
    /// Print JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
    /// Show only procedures with this name: as a report prints it, whole or shortened; a part of it; a pattern (*, ?);
    /// or an address (0x1234, or FILE+0x1234)
    #[arg(long, value_name = "NAME")]
    procedure: Option<String>,
    /// Show the source line of each stretch of code
    #[arg(long)]
    lines: bool,
    /// Analyse everything again; neither read nor write the cache
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    screen: ScreenOptions,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let module = Module::read(&arguments.file).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
    let with_code = expect_code(&module, &arguments.file);
    let names = ModuleNames::from_module(&arguments.file, Ok(module), None, &surroundings::debug_roots());
    for diagnostic in names.diagnostics() {
        output::say(diagnostic);
    }
    with_code?;
    let Some(source) = names.structure_source() else {
        return Err(anyhow::anyhow!("failed to read {}", arguments.file.display()).into());
    };
    let asked = arguments.procedure.as_deref().map(AskedName::new);
    let named = arguments.procedure.as_deref().zip(asked.as_ref());
    let wanted = named.map(|(text, asked)| procedure_name::find(&names, text, asked)).transpose()?;
    let cache = TableCache::open(if arguments.no_cache { None } else { surroundings::cache_directory() });
    let progress = Mutex::new(surroundings::Progress::new("procedures"));
    let step = |done, of| progress.lock().unwrap_or_else(PoisonError::into_inner).step(done, of);
    let at = match &wanted {
        Some(Wanted::At(addresses)) => Some(&**addresses),
        Some(Wanted::CalledInDwarf) | None => None,
    };
    let mut found = cached_structure(&source, at, &cache, &step);
    drop(progress);
    for diagnostic in &found.diagnostics {
        output::say(diagnostic);
    }
    if let Some(asked) = &asked {
        keep_asked(&mut found, asked, &names, matches!(wanted, Some(Wanted::CalledInDwarf)));
    }
    if let Some((asked, text)) = asked.zip(arguments.procedure.as_ref()).filter(|_| found.procedures.is_empty()) {
        let file = arguments.file.display();
        if matches!(wanted, Some(Wanted::At(_))) {
            return Err(anyhow::anyhow!("no code of {file} is at {text}").into());
        }
        return Err(procedure_name::unknown(&names, &arguments.file, (text, &asked)).into());
    }
    if arguments.json {
        let mut out = output::stdout();
        write!(out, "{{\"kind\":\"structure\",\"file\":{},\"procedures\":[", json!(arguments.file.to_string_lossy()))?;
        // One at a time: of a large file, all of them as JSON take more memory than all else.
        for (number, procedure) in found.procedures.iter().enumerate() {
            write!(out, "{}{}", if number > 0 { "," } else { "" }, procedure_json(procedure, &names, arguments.lines))?;
        }
        writeln!(out, "],\"schema\":1}}")?;
        out.flush()?;
    } else {
        let mut out = arguments.screen.open();
        text(&mut out, &found, &names, arguments.lines)?;
        out.end()?;
    }
    Ok(0)
}

/// Leaves the procedures that are asked for, by the names that they have with DWARF: where `by_dwarf`, those only and those
/// that such a one is inlined into, else those found by their symbols if DWARF's say no more.
fn keep_asked(found: &mut ModuleStructure, asked: &AskedName, names: &ModuleNames, by_dwarf: bool) {
    let is = |procedure: &ProcedureStructure, way| asked.is(&names.of_structure(procedure).name, way);
    let inlines = |procedure: &ProcedureStructure, way| {
        let mut inlined = procedure.scopes.iter().filter_map(|scope| scope.name.as_deref());
        inlined.any(|name| asked.is(name, way))
    };
    for way in Way::ALL {
        if found.procedures.iter().any(|procedure| is(procedure, way)) {
            return found.procedures.retain(|procedure| is(procedure, way));
        }
    }
    for way in Way::ALL.into_iter().filter(|_| by_dwarf) {
        if found.procedures.iter().any(|procedure| inlines(procedure, way)) {
            return found.procedures.retain(|procedure| inlines(procedure, way));
        }
    }
    if by_dwarf {
        found.procedures.clear();
    }
}

fn text(out: &mut impl Write, found: &ModuleStructure, names: &ModuleNames, lines: bool) -> std::io::Result<()> {
    for procedure in &found.procedures {
        let at = |location: Option<SourceLocation>| location.map(|location| shown(procedure, location));
        write!(out, "{}", printable(&names.of_structure(procedure).name))?;
        if let Some(location) = at(procedure.location) {
            write!(out, "  {location}")?;
        }
        for fragment in &procedure.fragments {
            write!(out, "  {:#x}-{:#x}", fragment.start.0, fragment.end.0)?;
        }
        write!(out, "  by {}", procedure.way.word())?;
        match procedure.unresolved_jumps {
            0 => {}
            1 => write!(out, "  (1 indirect jump could not be followed)")?,
            jumps => write!(out, "  ({jumps} indirect jumps could not be followed)")?,
        }
        writeln!(out)?;
        if lines {
            for scoped_range in procedure.scoped_ranges.iter().filter(|scoped_range| scoped_range.scope.is_none()) {
                write_scoped_range(out, procedure, scoped_range, 1)?;
            }
        }
        for (number, scope) in (0u32..).zip(&procedure.scopes) {
            let depth = procedure.chain(Some(number)).len();
            writeln!(out, "{:1$}{2}", "", 2 * depth, described(procedure, scope))?;
            if lines {
                for scoped_range in
                    procedure.scoped_ranges.iter().filter(|scoped_range| scoped_range.scope == Some(number))
                {
                    write_scoped_range(out, procedure, scoped_range, depth + 1)?;
                }
            }
        }
    }
    Ok(())
}

fn write_scoped_range(
    out: &mut impl Write,
    procedure: &ProcedureStructure,
    scoped_range: &callpath_analyze::structure::ScopedRange,
    depth: usize,
) -> std::io::Result<()> {
    let location = scoped_range.location.map_or("no line".to_owned(), |location| shown(procedure, location));
    writeln!(out, "{:1$}{2:#x}-{3:#x} {location}", "", 2 * depth, scoped_range.code.start.0, scoped_range.code.end.0)
}

fn described(procedure: &ProcedureStructure, scope: &StaticScope) -> String {
    let name = scope.name.as_deref().map_or("[no name]".into(), printable);
    let called = scope.call_site.map_or(String::new(), |site| format!("  called at {}", shown(procedure, site)));
    let declared = scope.location.map_or(String::new(), |location| format!("  {}", shown(procedure, location)));
    match scope.kind {
        StaticKind::Inlined => format!("inlined {name}{declared}{called}"),
        StaticKind::Alien => format!("inlined from {name}{declared}"),
        StaticKind::Loop { is_irreducible } => {
            let range = scope.lines.filter(|(first, last)| first < last);
            let range = range.map_or(String::new(), |(first, last)| format!("  lines {first}-{last}"));
            let many = if is_irreducible { "  (several ways in)" } else { "" };
            let column = scope.column.map_or(String::new(), |column| format!(":{column}"));
            format!("loop{declared}{column}{range}  at {:#x}{many}", scope.address.0)
        }
    }
}

fn shown(procedure: &ProcedureStructure, location: SourceLocation) -> String {
    let path = procedure.file(location);
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
    format!("{}:{}", printable(&name), location.line)
}

fn procedure_json(procedure: &ProcedureStructure, names: &ModuleNames, lines: bool) -> Value {
    let location = |location: SourceLocation| json!({ "file": procedure.file(location), "line": location.line });
    let hex = |address: LinkAddr| format!("{:#x}", address.0);
    let range = |range: &std::ops::Range<LinkAddr>| json!([hex(range.start), hex(range.end)]);
    let scopes = procedure.scopes.iter().map(|scope| {
        let (kind, is_irreducible) = match scope.kind {
            StaticKind::Loop { is_irreducible } => ("loop", is_irreducible),
            StaticKind::Inlined => ("inlined", false),
            StaticKind::Alien => ("alien", false),
        };
        let mut value = json!({ "kind": kind, "address": hex(scope.address) });
        let mut put =
            |key: &str, field: Option<Value>| value.as_object_mut().zip(field).map(|(o, f)| o.insert(key.into(), f));
        put("parent", scope.parent.map(Value::from));
        put("name", scope.name.clone().map(Value::from));
        put("place", scope.location.map(location));
        put("column", scope.column.map(|column| Value::from(column.get())));
        put("call_site", scope.call_site.map(location));
        put("lines", scope.lines.map(|(first, last)| json!([first, last])));
        put("irreducible", is_irreducible.then_some(Value::Bool(true)));
        value
    });
    let mut value = json!({
        "name": names.of_structure(procedure).name,
        "entry": hex(procedure.entry),
        "fragments": procedure.fragments.iter().map(range).collect::<Vec<_>>(),
        "way": procedure.way.word(),
        "unresolved_jumps": procedure.unresolved_jumps,
        "scopes": scopes.collect::<Vec<_>>(),
    });
    let mut put = |key: &str, field: Value| value.as_object_mut().map(|object| object.insert(key.into(), field));
    if let Some(its) = procedure.location {
        put("place", location(its));
    }
    if lines {
        let pieces = procedure
            .scoped_ranges
            .iter()
            .map(|scoped_range| json!({ "code": range(&scoped_range.code), "scope": scoped_range.scope, "place": scoped_range.location.map(location) }));
        put("pieces", pieces.collect());
    }
    value
}
