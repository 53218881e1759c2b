//! `callpath map explain`: a place and a height in, call paths out.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use callpath_analyze::names::ModuleNames;
use callpath_db::nearest;
use callpath_format::address::LinkAddr;
use callpath_infer::{Answer, Identifier, PathMap, Root};
use serde_json::{Value, json};

use super::show::called;
use crate::command::path_map;
use crate::outcome::Outcome;
use crate::screen::ScreenOptions;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The map
    #[arg(value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    map: PathBuf,
    /// The program counter: FILE+0xADDRESS (a link-time address), or the name of the procedure, as FILE!NAME where several have it
    #[arg(value_name = "PC")]
    place: String,
    /// How high the stack was: from the fixed place of the thread's stack down to the procedure's CFA, bytes
    #[arg(value_name = "HEIGHT", value_parser = height, allow_negative_numbers = true)]
    height: i64,
    /// Of a thread that began in this procedure [default: of the first thread, and of any]
    #[arg(long, value_name = "PROCEDURE")]
    thread: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    screen: ScreenOptions,
}

fn height(typed: &str) -> Result<i64, String> {
    let (digits, radix) = typed.strip_prefix("0x").map_or((typed, 10), |digits| (digits, 16));
    i64::from_str_radix(digits, radix).map_err(|_| "must be a number of bytes".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let map = path_map::read(&arguments.map)?;
    let procedures = procedures(&map, &arguments.place)?;
    let begins = arguments.thread.as_deref().map(|typed| procedures_called(&map, typed)).transpose()?;
    let is_asked = |root: &Root| match (&begins, root) {
        (None, _) => true,
        (Some(begins), Root::Thread(start)) => begins.contains(start),
        (Some(_), Root::Main) => false,
    };
    let mut answers = Vec::new();
    for (root, number) in map.roots().iter().zip(0u32..).filter(|(root, _)| is_asked(root)) {
        for &procedure in &procedures {
            let identifier = Identifier { root: number, procedure, height: arguments.height };
            match map.answer(identifier) {
                Answer::Precise(path) => answers.push(Found::of(*root, vec![path])),
                Answer::Likely(path) => answers.push(Found { is_likely: true, ..Found::of(*root, vec![path]) }),
                Answer::Ambiguous(paths) => answers.push(Found::of(*root, paths.to_vec())),
                Answer::ByCode(paths) => {
                    answers.push(Found { called: Some(procedure), is_likely: true, ..Found::of(*root, paths) })
                }
                Answer::Missing => {}
            }
        }
    }
    if arguments.json {
        let mut out = output::stdout();
        serde_json::to_writer(&mut out, &value(&map, &answers))?;
        out.write_all(b"\n")?;
        out.flush()?;
        return Ok(0);
    }
    let mut out = arguments.screen.open();
    if answers.is_empty() {
        writeln!(out, "The map knows no call path to {} with {} bytes of stack.", arguments.place, arguments.height)?;
        let heights = known_heights(&map, &procedures);
        if !heights.is_empty() {
            let shown: Vec<String> = heights.iter().take(12).map(i64::to_string).collect();
            let more = if heights.len() > shown.len() { ", ..." } else { "" };
            writeln!(out, "It knows paths there with {}{more}.", shown.join(", "))?;
        }
    }
    for found in &answers {
        let paths = &found.paths;
        let of = match &found.root {
            Root::Main => "the first thread".to_owned(),
            Root::Thread(start) => format!("threads that begin in {}", called(&map, *start)),
        };
        let (count, s) = (paths.len(), if paths.len() == 1 { "" } else { "s" });
        writeln!(out, "{count} call path{s} of {of}{}:", if count > 1 { ", those seen most first" } else { "" })?;
        for path in paths {
            writeln!(out)?;
            for procedure in found.procedures(&map, *path) {
                writeln!(out, "  {}", called(&map, procedure))?;
            }
        }
        if found.is_likely && found.called.is_none() {
            writeln!(out)?;
            writeln!(out, "The code has another call that leads there with as much stack, which was never seen.")?;
        }
        if found.called.is_some() {
            writeln!(out)?;
            writeln!(
                out,
                "The last call is one that the code has there: it was not counted. Calls by pointers may come from elsewhere, too."
            )?;
        }
    }
    out.end()?;
    Ok(0)
}

/// What the map has of one stack.
struct Found {
    root: Root,
    /// The innermost nodes.
    paths: Vec<u32>,
    /// What they call then, as the code says.
    called: Option<u32>,
    /// Other paths are possible.
    is_likely: bool,
}

impl Found {
    fn of(root: Root, paths: Vec<u32>) -> Found {
        Found { root, paths, called: None, is_likely: false }
    }

    /// The procedures of one of the paths, outermost first.
    fn procedures(&self, map: &PathMap, path: u32) -> Vec<u32> {
        let nodes = map.path(path).filter_map(|node| map.nodes().get(node as usize));
        let mut procedures: Vec<u32> = nodes.map(|node| node.procedure).collect();
        procedures.reverse();
        procedures.extend(self.called);
        procedures
    }
}

fn value(map: &PathMap, answers: &[Found]) -> Value {
    let of_root = |found: &Found| {
        let thread = match found.root {
            Root::Main => None,
            Root::Thread(start) => Some(called(map, start)),
        };
        let path = |path: &u32| -> Vec<String> {
            found.procedures(map, *path).into_iter().map(|procedure| called(map, procedure)).collect()
        };
        let certainty = match (found.paths.len(), found.is_likely) {
            (1, false) => "precise",
            (1, true) => "likely",
            _ => "ambiguous",
        };
        json!({
            "thread": thread,
            "certainty": certainty,
            "degree": found.paths.len(),
            "paths": found.paths.iter().map(path).collect::<Vec<_>>(),
        })
    };
    json!({ "schema": 1, "kind": "map-explain", "answers": answers.iter().map(of_root).collect::<Vec<_>>() })
}

fn known_heights(map: &PathMap, procedures: &[u32]) -> Vec<i64> {
    let of = |node: u32| map.nodes().get(node as usize).is_some_and(|node| procedures.contains(&node.procedure));
    let mut heights: Vec<i64> =
        map.heights().iter().filter(|(node, _, _)| of(*node)).map(|(_, height, _)| *height).collect();
    heights.sort_unstable();
    heights.dedup();
    heights
}

/// The map's procedures at a place that was typed.
fn procedures(map: &PathMap, place: &str) -> anyhow::Result<Vec<u32>> {
    if let Some((file, digits)) = place.rsplit_once("+0x") {
        let address = u64::from_str_radix(digits, 16).map_err(|_| anyhow!("{place}: no address behind +0x"))?;
        return at_address(map, file, address);
    }
    procedures_called(map, place)
}

/// The one at an address of a file: as the file says, if it can be read, else by where known procedures begin.
fn at_address(map: &PathMap, file: &str, address: u64) -> anyhow::Result<Vec<u32>> {
    let is_it = |path: &Path| path == Path::new(file) || path.file_name().is_some_and(|name| name == file);
    let Some(module) = map.modules().iter().position(|module| is_it(&module.path)) else {
        let names: Vec<String> =
            map.modules().iter().map(|module| module.path.to_string_lossy().into_owned()).collect();
        anyhow::bail!("{file}: the map has no such file; it has {}", names.join(", "));
    };
    let names = ModuleNames::open(&map.modules()[module].path, None, &surroundings::debug_roots());
    let start = if names.is_usable() { Some(names.procedure(LinkAddr(address)).start.0) } else { None };
    let known = map.procedures().iter().zip(0u32..).filter(|(known, _)| known.module as usize == module);
    let before = known.filter(|(known, _)| known.start <= address).max_by_key(|(known, _)| known.start);
    match before.filter(|(known, _)| start.is_none_or(|start| start == known.start)) {
        Some((_, number)) => Ok(vec![number]),
        None => anyhow::bail!("{file}+{address:#x}: the map has no paths to the procedure there"),
    }
}

/// Those of a name.
fn procedures_called(map: &PathMap, typed: &str) -> anyhow::Result<Vec<u32>> {
    let (file, name) = match typed.split_once('!') {
        Some((file, name)) => (Some(file), name),
        None => (None, typed),
    };
    let is_in = |module: u32| {
        let path = map.modules().get(module as usize).map(|module| module.path.as_path());
        file.is_none_or(|file| path.is_some_and(|path| path.file_name().is_some_and(|name| name == file)))
    };
    let is_called = |known: &str| known == name || known.split_once('(').is_some_and(|(short, _)| short == name);
    let found = map.procedures().iter().zip(0u32..).filter(|(known, _)| is_in(known.module) && is_called(&known.name));
    let found: Vec<u32> = found.map(|(_, number)| number).collect();
    if found.is_empty() {
        let near = nearest(name, map.procedures().iter().map(|known| known.name.as_str()));
        let similar = if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
        anyhow::bail!("{typed}: the map has no such procedure{similar}");
    }
    Ok(found)
}
