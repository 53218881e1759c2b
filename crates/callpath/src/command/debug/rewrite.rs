//! `callpath debug rewrite`: how procedures run as copies with code inserted, and which of them cannot.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use callpath_analyze::names::ModuleNames;
use callpath_db::AskedName;
use callpath_format::address::LinkAddr;
use callpath_tables::copies::{Copies, Made, behind, copy_all, copyable};
use callpath_tables::module::Module;
use callpath_view::text::printable;
use callpath_x86::graph::{ModuleFlow, ProcedureGraph};
use callpath_x86::listing::{Listed, listing};
use callpath_x86::rewrite::{Cell, Operation, Place, Plan, exits};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::super::code::expect_code;
use super::super::procedure_name::{self, Wanted};
use super::{Json, SCHEMA};
use crate::outcome::Outcome;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An ELF file
    file: PathBuf,
    /// A procedure: its name as a report prints it, a part of it, a pattern (*, ?), or an address (0x1234)
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    procedure: Option<String>,
    /// What to insert
    #[arg(long, value_enum, default_value_t = PlanKind::Nothing)]
    plan: PlanKind,
    /// List all procedures, with the reason where one cannot be copied
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    json: Json,
}

/// What is inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PlanKind {
    /// No code: the copy alone
    Nothing,
    /// Count how often the procedure is entered
    CountCalls,
    /// Count how often the procedure is entered, and how often it is left by each exit
    CountExits,
    /// Call a routine at the address 0x1000 at the entry and at each exit
    CallRoutine,
    /// Count how often each block runs
    CountBlocks,
    /// Count how often control passes each edge between blocks
    CountEdges,
    /// Overwrite what is not live before each block; the program must not notice
    OverwriteDead,
}

/// The plan for a procedure. Counters are words of the thread; the first of them is for a value that has to wait.
fn plan(kind: PlanKind, flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> Plan {
    const WORD_BYTES: i32 = 8;
    let counter = |number: i32| Cell::OfThread(-WORD_BYTES * (number + 2));
    let mut plan = Plan::new(Some(Cell::OfThread(-WORD_BYTES)));
    let starts = graph.blocks.iter().map(|block| block.code.start);
    match kind {
        PlanKind::Nothing => {}
        PlanKind::CountCalls => plan.insert(Place::Entry, Operation::Add(counter(0), 1)),
        PlanKind::CountExits => {
            let places = std::iter::once(Place::Entry).chain(exits(flow, graph).found.into_iter().map(|e| e.place));
            (0..).zip(places).for_each(|(n, place)| plan.insert(place, Operation::Add(counter(n), 1)));
        }
        PlanKind::CallRoutine => {
            const ROUTINE: LinkAddr = LinkAddr(0x1000);
            let places = std::iter::once(Place::Entry).chain(exits(flow, graph).found.into_iter().map(|e| e.place));
            places.for_each(|place| plan.insert(place, Operation::Call(ROUTINE)));
        }
        PlanKind::CountBlocks => {
            (0..).zip(starts).for_each(|(n, at)| plan.insert(Place::Before(at), Operation::Add(counter(n), 1)));
        }
        PlanKind::CountEdges => {
            let edges = (0u32..).zip(&graph.blocks).flat_map(|(number, from)| {
                let to = graph.edges_of(number).filter_map(|(to, _)| graph.blocks.get(to as usize));
                to.map(|to| Place::Edge(from.code.start, to.code.start)).collect::<Vec<_>>()
            });
            (0..).zip(edges).for_each(|(n, edge)| plan.insert(edge, Operation::Add(counter(n), 1)));
        }
        PlanKind::OverwriteDead => starts.for_each(|at| plan.insert(Place::Before(at), Operation::OverwriteDead)),
    }
    plan
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let module = Module::read(&arguments.file).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
    expect_code(&module, &arguments.file)?;
    if arguments.list && arguments.plan == PlanKind::Nothing {
        let rows = copyable(&module).into_iter();
        let rows =
            rows.map(|one| (one.entry, (one.len_bytes, one.refusal.map(|refusal| refusal.to_string())))).collect();
        let names = ModuleNames::from_module(&arguments.file, Ok(module), None, &surroundings::debug_roots());
        return list(&rows, &names, arguments.json.json);
    }
    let copies = copy_all(&module, behind(module.image()), |flow, graph| plan(arguments.plan, flow, graph));
    let names = ModuleNames::from_module(&arguments.file, Ok(module), None, &surroundings::debug_roots());
    match &arguments.procedure {
        Some(procedure) => show(arguments, &copies, (&names, procedure)),
        None => list(&rows(&copies), &names, arguments.json.json),
    }
}

/// Procedures by entry: the length, bytes, and why it cannot be copied.
type Rows = BTreeMap<LinkAddr, (u64, Option<String>)>;

fn rows(copies: &Copies) -> Rows {
    let mut rows: Rows = copies.made.iter().map(|made| (made.copy.entry, (made.len_bytes, None))).collect();
    rows.extend(copies.refused.iter().map(|r| (r.entry, (r.len_bytes, Some(r.refusal.to_string())))));
    rows
}

/// A line for each procedure, and the counts.
fn list(rows: &Rows, names: &ModuleNames, json: bool) -> Outcome {
    let mut lines = super::Lines::begin(json, "rewritable", "procedures")?;
    for (entry, (len_bytes, reason)) in rows {
        let name = names.procedure(*entry).name;
        let text = reason.as_deref().unwrap_or("can be copied");
        lines.line(
            || format!("{:#x}\t{len_bytes}\t{text}\t{}", entry.0, printable(&name)),
            || {
                let address = format!("{:#x}", entry.0);
                json!({"address": address, "name": name, "len_bytes": len_bytes, "refused": reason})
            },
        )?;
    }
    lines.end()?;
    output::say(format_args!(
        "{} of {} procedures can be copied; columns: address, bytes, whether it can be copied, name",
        rows.values().filter(|(_, reason)| reason.is_none()).count(),
        rows.len()
    ));
    Ok(0)
}

/// Old and new code of the procedures that are named.
fn show(arguments: &Arguments, copies: &Copies, (names, procedure): (&ModuleNames, &str)) -> Outcome {
    let asked = AskedName::new(procedure);
    let wanted = match procedure_name::find(names, procedure, &asked)? {
        Wanted::At(addresses) => addresses,
        Wanted::CalledInDwarf => Vec::new(),
    };
    let is_wanted = |entry: &LinkAddr| wanted.contains(entry);
    let made: Vec<&Made> = copies.made.iter().filter(|made| is_wanted(&made.copy.entry)).collect();
    if made.is_empty() {
        let refused = copies.refused.iter().find(|refused| is_wanted(&refused.entry));
        return Err(match refused {
            Some(refused) => anyhow::anyhow!("{procedure} cannot be copied: {}", refused.refusal),
            None => procedure_name::unknown(names, &arguments.file, (procedure, &asked)),
        }
        .into());
    }
    let mut out = output::stdout();
    if arguments.json.json {
        let shown: Vec<Value> = made.iter().map(|made| as_json(made, names)).collect();
        writeln!(out, "{}", json!({"schema": SCHEMA, "kind": "rewrite", "procedures": shown}))?;
        return Ok(0);
    }
    for (number, made) in made.into_iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        side_by_side(&mut out, made, names)?;
    }
    out.flush()?;
    Ok(0)
}

/// Instructions of the copy that belong to one at home.
struct Group {
    origin: LinkAddr,
    /// The instruction's own copy, not what is inserted before it or on the way to it.
    is_own: bool,
    copied: Vec<Listed>,
}

fn groups(made: &Made) -> Vec<Group> {
    let copy = &made.copy;
    let mut found: Vec<Group> = Vec::new();
    let mut shown = std::collections::BTreeSet::new();
    for (index, &(from, origin)) in copy.origins.iter().enumerate() {
        let next = copy.origins.get(index + 1);
        let to = next.map_or(copy.words_at as usize, |next| next.0 as usize);
        let bytes = copy.code.get(from as usize..to).unwrap_or(&[]);
        let copied = listing(bytes, LinkAddr(copy.at.0 + u64::from(from)));
        let is_own = next.is_none_or(|next| next.1 != origin) && shown.insert(origin);
        found.push(Group { origin, is_own, copied });
    }
    found
}

/// The instruction at home.
fn at_home(names: &ModuleNames, at: LinkAddr) -> String {
    /// The longest instruction, bytes; at the code's end fewer are there.
    const LONGEST: usize = 15;
    let bytes = (1..=LONGEST).rev().find_map(|len| names.bytes(at, len)).unwrap_or(&[]);
    listing(bytes, at).into_iter().next().map_or_else(String::new, |listed| listed.text)
}

fn side_by_side(out: &mut impl Write, made: &Made, names: &ModuleNames) -> io::Result<()> {
    let copy = &made.copy;
    let name = names.procedure(copy.entry).name;
    writeln!(out, "{}: {} bytes, copy {}", printable(&name), made.len_bytes, copy.code.len())?;
    writeln!(out, "  {:<10} {:<46}  {:<10} copy", "", "original", "")?;
    for Group { origin, is_own, copied } in groups(made) {
        let mut old = if is_own { at_home(names, origin) } else { String::new() };
        let mut address = if is_own { format!("{:#x}", origin.0) } else { String::new() };
        for Listed { address: at, text, .. } in copied {
            let (old, address) = (std::mem::take(&mut old), std::mem::take(&mut address));
            writeln!(out, "  {address:<10} {old:<46}  {:<10} {text}", format!("{:#x}", at.0))?;
        }
    }
    let words = copy.code.len().saturating_sub(copy.words_at as usize);
    if words > 0 {
        writeln!(out, "  {words} bytes of constants and jump tables follow")?;
    }
    writeln!(out, "  what changes in the original")?;
    for patch in &copy.patches {
        for Listed { address, text, .. } in listing(&patch.new, patch.at) {
            writeln!(out, "  {:<10} {text}", format!("{:#x}", address.0))?;
        }
    }
    let unused: u64 = copy.unused.iter().map(|unused| unused.end.0 - unused.start.0).sum();
    writeln!(out, "  {unused} bytes of it are not executed any more; {} instructions stay besides calls", copy.at_home)
}

fn as_json(made: &Made, names: &ModuleNames) -> Value {
    let hex = |address: LinkAddr| format!("{:#x}", address.0);
    let copy = &made.copy;
    let instructions: Vec<Value> = groups(made)
        .into_iter()
        .map(|group| {
            let copied: Vec<Value> =
                group.copied.iter().map(|l| json!({"address": hex(l.address), "text": l.text})).collect();
            let original = group.is_own.then(|| at_home(names, group.origin));
            json!({"origin": hex(group.origin), "original": original, "copied": copied})
        })
        .collect();
    let changes = copy.patches.iter().flat_map(|patch| listing(&patch.new, patch.at));
    let changes: Vec<Value> = changes.map(|l| json!({"address": hex(l.address), "text": l.text})).collect();
    json!({
        "name": names.procedure(copy.entry).name,
        "address": hex(copy.entry),
        "copy_address": hex(copy.at),
        "len_bytes": made.len_bytes,
        "copy_len_bytes": copy.code.len(),
        "instructions": instructions,
        "changes": changes,
        "stay": copy.at_home,
    })
}
