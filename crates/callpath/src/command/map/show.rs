//! `callpath map show`: how precise a map is.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use callpath_infer::{Degrees, PathMap, Precision, Root};
use callpath_view::text::printable;
use serde_json::{Value, json};

use crate::command::path_map;
use crate::outcome::Outcome;
use crate::output;
use crate::screen::ScreenOptions;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The map
    #[arg(value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    map: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    screen: ScreenOptions,
}

/// How many of what is worst are named.
const NAMED: usize = 10;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let map = path_map::read(&arguments.map)?;
    let precision = map.precision();
    if arguments.json {
        let mut out = output::stdout();
        serde_json::to_writer(&mut out, &value(&map, &precision))?;
        out.write_all(b"\n")?;
        out.flush()?;
        return Ok(0);
    }
    let mut out = arguments.screen.open();
    write(&map, &precision, &mut out)?;
    out.end()?;
    Ok(0)
}

fn total(degrees: &Degrees) -> u64 {
    degrees.values().fold(0, |sum: u64, count| sum.saturating_add(*count))
}

/// `likely` of these are no more than that; `unidentified`: so many more have no identifier.
fn counts(degrees: &Degrees, likely: u64, unidentified: u64) -> Value {
    let ambiguous: BTreeMap<String, u64> =
        degrees.iter().filter(|(degree, _)| **degree > 1).map(|(degree, count)| (degree.to_string(), *count)).collect();
    let precise = degrees.get(&1).copied().unwrap_or(0);
    json!({
        "precise": precise,
        "likely": likely,
        "ambiguous": total(degrees) - precise,
        "undetermined": unidentified,
        // A map has all that it knows of.
        "missing": 0,
        "degree": ambiguous,
    })
}

fn value(map: &PathMap, precision: &Precision) -> Value {
    let Precision { likely: (likely_paths, likely), unidentified_paths, unidentified, .. } = precision;
    let mut inferred = counts(&precision.paths, *likely_paths, *unidentified_paths);
    inferred["pairs"] = json!(precision.pairs);
    inferred["calls"] = counts(&precision.calls, likely.calls, unidentified.calls);
    inferred["samples"] = counts(&precision.samples, likely.samples, unidentified.samples);
    let modules: Vec<Value> =
        map.modules().iter().map(|module| json!({ "path": module.path.to_string_lossy() })).collect();
    let variable: Vec<Value> = map.variable().iter().map(|procedure| json!(called(map, *procedure))).collect();
    json!({
        "schema": 1,
        "kind": "map",
        "modules": modules,
        "procedures": map.procedures().len(),
        "contexts": map.nodes().len(),
        "inferred": inferred,
        "variable": variable,
        "code": {
            "modules": map.code().modules.len(),
            "calls": map.calls().len(),
            "pointer_calls": map.code().pointer_calls.len(),
            "pointed": map.code().pointed.len(),
        },
    })
}

/// A procedure, with its module.
pub(super) fn called(map: &PathMap, procedure: u32) -> String {
    let Some(procedure) = map.procedures().get(procedure as usize) else { return String::new() };
    let module = map.modules().get(procedure.module as usize);
    let module = module.and_then(|module| module.path.file_name()).unwrap_or_default().to_string_lossy();
    printable(&format!("{module}!{}", procedure.name))
}

fn write(map: &PathMap, precision: &Precision, out: &mut impl Write) -> std::io::Result<()> {
    let mut threads: Vec<u32> = map.nodes().iter().map(|node| node.root).collect();
    threads.sort_unstable();
    threads.dedup();
    threads.retain(|root| matches!(map.roots().get(*root as usize), Some(Root::Thread(_))));
    let threads = threads.len();
    let of_threads =
        if threads == 0 { String::new() } else { format!(", and threads that begin in {threads} procedures") };
    writeln!(
        out,
        "{} identifiers (procedure, height of the stack) of {} procedures in {} files{of_threads}",
        precision.pairs,
        map.procedures().len(),
        map.modules().len()
    )?;
    let code = map.code();
    if !code.modules.is_empty() {
        writeln!(
            out,
            "All code of {} files: {} calls that name what they call, {} through pointers to any of {} procedures",
            code.modules.len(),
            map.calls().len(),
            code.pointer_calls.len(),
            code.pointed.len()
        )?;
    }
    writeln!(out)?;
    writeln!(out, "{:>22} {:>14} {:>14} {:>14}", "paths per identifier", "call paths", "calls", "samples")?;
    let mut degrees: Vec<u64> = [&precision.paths, &precision.calls, &precision.samples]
        .into_iter()
        .flat_map(|degrees| degrees.keys().copied())
        .collect();
    degrees.sort_unstable();
    degrees.dedup();
    // 1, 2, 3, 4, 5, and the rest in one row.
    const APART: u64 = 5;
    let share = |degrees: &Degrees, is_in: &dyn Fn(u64) -> bool| {
        let count =
            degrees.iter().filter(|(degree, _)| is_in(**degree)).fold(0, |sum: u64, (_, n)| sum.saturating_add(*n));
        match total(degrees) {
            0 => "-".to_owned(),
            all => format!("{:.2}%", 100.0 * count as f64 / all as f64),
        }
    };
    let row = |out: &mut dyn Write, name: String, is_in: &dyn Fn(u64) -> bool| {
        let [paths, calls, samples] =
            [&precision.paths, &precision.calls, &precision.samples].map(|degrees| share(degrees, is_in));
        writeln!(out, "{name:>22} {paths:>14} {calls:>14} {samples:>14}")
    };
    for degree in degrees.iter().copied().filter(|degree| *degree <= APART) {
        row(out, degree.to_string(), &|of| of == degree)?;
    }
    if let Some(most) = degrees.last().copied().filter(|most| *most > APART) {
        row(out, format!("{} to {most}", APART + 1), &|of| of > APART)?;
    }
    let all = [&precision.paths, &precision.calls, &precision.samples].map(total);
    writeln!(out, "{:>22} {:>14} {:>14} {:>14}", "all", all[0], all[1], all[2])?;
    let unidentified = precision.unidentified;
    let without = precision.unidentified_paths;
    writeln!(
        out,
        "{:>22} {:>14} {:>14} {:>14}",
        "without identifier", without, unidentified.calls, unidentified.samples
    )?;
    let (paths, likely) = precision.likely;
    if paths > 0 {
        writeln!(out)?;
        writeln!(
            out,
            "Of the paths with an identifier of their own, {paths} are only likely ({} calls, {} samples): the code has other calls that lead there, the procedure was also met at unknown heights, or not all calls could be counted",
            likely.calls, likely.samples
        )?;
    }
    if !map.variable().is_empty() {
        let names: Vec<String> = map.variable().iter().take(NAMED).map(|&procedure| called(map, procedure)).collect();
        let more = map.variable().len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        writeln!(out)?;
        writeln!(
            out,
            "Paths through these have no identifier where they keep memory of a computed length on the stack: {}{more}",
            names.join(", ")
        )?;
    }
    ambiguous(map, out)
}

/// The identifiers that share most.
fn ambiguous(map: &PathMap, out: &mut impl Write) -> std::io::Result<()> {
    let mut shared: Vec<_> = map.answers().filter(|(_, paths)| paths.len() > 1).collect();
    if shared.is_empty() {
        return Ok(());
    }
    shared.sort_by_key(|(identifier, paths)| (std::cmp::Reverse(paths.len()), *identifier));
    writeln!(out)?;
    writeln!(out, "Identifiers of the most paths (callpath map explain MAP PROCEDURE HEIGHT lists these):")?;
    for (identifier, paths) in shared.into_iter().take(NAMED) {
        writeln!(out, "  {:>5} paths  {}  {}", paths.len(), called(map, identifier.procedure), identifier.height)?;
    }
    Ok(())
}
