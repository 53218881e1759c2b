//! `callpath map explain`: a place and a height in, call paths out.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use callpath_analyze::names::ModuleNames;
use callpath_db::nearest;
use callpath_format::address::LinkAddr;
use callpath_infer::{Certainty, ContextNode, Identifier, PathMap, Root, Search, Told};
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
    let is_seen = |number: u32| map.nodes().iter().any(|node| node.root == number);
    let is_asked = |(number, root): (u32, &Root)| match (&begins, root) {
        (None, _) => is_seen(number),
        (Some(begins), Root::Thread(start)) => begins.contains(start),
        (Some(_), Root::Main) => false,
    };
    let mut search = Search::new(&map);
    let mut answers: Vec<Found<'_>> = Vec::new();
    let asked: Vec<(u32, &Root)> =
        (0u32..).zip(map.roots()).filter(|(number, root)| is_asked((*number, root))).collect();
    for &(number, root) in &asked {
        for &procedure in &procedures {
            let told = search.tell(Identifier { root: number, procedure, height: arguments.height });
            if told.certainty != Certainty::Missing {
                let is_met =
                    !map.seen_paths(Identifier { root: number, procedure, height: arguments.height }).is_empty();
                answers.push(Found { root: *root, procedure, is_met, told });
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
        let heights = known_heights(&map, &procedures, |root| asked.iter().any(|(number, _)| *number == root));
        if !heights.is_empty() {
            let shown: Vec<String> = heights.iter().take(12).map(i64::to_string).collect();
            let more = if heights.len() > shown.len() { ", ..." } else { "" };
            writeln!(out, "It knows paths there with {}{more}.", shown.join(", "))?;
        }
    }
    for found in &answers {
        found.write(&map, &mut out)?;
    }
    out.end()?;
    Ok(0)
}

/// What the map has of one stack.
struct Found<'m> {
    root: Root,
    /// What was asked for.
    procedure: u32,
    /// Whether runs were there.
    is_met: bool,
    told: Told<'m>,
}

impl Found<'_> {
    /// How many paths there are.
    fn degree(&self) -> u64 {
        match self.told.certainty {
            Certainty::Ambiguous(count) => count,
            Certainty::Missing | Certainty::Undetermined => 0,
            Certainty::Precise | Certainty::Likely | Certainty::Static => 1,
        }
    }

    /// The procedures of the paths, outermost first.
    fn paths(&self) -> Vec<Vec<u32>> {
        let mut paths = self.told.callers();
        paths.iter_mut().for_each(|path| path.push(self.procedure));
        paths
    }

    fn write(&self, map: &PathMap, out: &mut impl Write) -> std::io::Result<()> {
        let of = match &self.root {
            Root::Main => "the first thread".to_owned(),
            Root::Thread(start) => format!("threads that begin in {}", called(map, *start)),
        };
        let (count, paths) = (self.degree(), self.paths());
        if self.told.certainty == Certainty::Undetermined {
            return writeln!(out, "The code of {of} has too many paths to search.");
        }
        let more = match self.told.is_whole() {
            false => format!(", {} of them", paths.len()),
            true if count > 1 && self.told.is_seen() => ", those seen most first".to_owned(),
            true => String::new(),
        };
        let many = if count == u64::MAX { format!("more than {}", u64::MAX) } else { count.to_string() };
        writeln!(out, "{many} call path{} of {of}{more}:", if count == 1 { "" } else { "s" })?;
        for path in paths {
            writeln!(out)?;
            for procedure in path {
                writeln!(out, "  {}", called(map, procedure))?;
            }
        }
        let remark = match (self.told.certainty, self.told.is_seen(), self.told.is_new()) {
            (Certainty::Likely, true, _) => {
                "It may be another path: the code has other calls, never seen, that lead there with as much stack, or the procedure was also met at \
                 unknown heights."
            }
            (Certainty::Likely, false, true) => {
                "No run has taken it. The code has other paths there, too: this one continues what runs have done."
            }
            (Certainty::Static, ..) => "No run has taken it. The code has no other path there.",
            (Certainty::Ambiguous(_), false, true) => "No run has taken any of them: the code has them.",
            (Certainty::Likely, false, false) if self.is_met => {
                "Samples have seen it. Calls of its last procedure were not counted: there may be others."
            }
            (Certainty::Ambiguous(_), false, false) if self.is_met => {
                "Samples have seen some of them, the code has the others. Calls of their last procedure were not counted: there may be more."
            }
            (Certainty::Likely | Certainty::Ambiguous(_), false, false) => {
                "No sample has seen its last call, which the code has. Calls of the procedure were not counted: there may be others."
            }
            _ => return Ok(()),
        };
        writeln!(out)?;
        writeln!(out, "{remark}")
    }
}

fn value(map: &PathMap, answers: &[Found<'_>]) -> Value {
    let of_root = |found: &Found<'_>| {
        let thread = match found.root {
            Root::Main => None,
            Root::Thread(start) => Some(called(map, start)),
        };
        let path = |path: Vec<u32>| -> Vec<String> { path.into_iter().map(|at| called(map, at)).collect() };
        json!({
            "thread": thread,
            "certainty": found.told.certainty.name(),
            "degree": found.degree(),
            "paths": found.paths().into_iter().map(path).collect::<Vec<_>>(),
        })
    };
    json!({ "schema": 1, "kind": "map-explain", "answers": answers.iter().map(of_root).collect::<Vec<_>>() })
}

/// The heights of procedures on the stacks that are asked for.
fn known_heights(map: &PathMap, procedures: &[u32], is_asked: impl Fn(u32) -> bool) -> Vec<i64> {
    let is_one = |node: &ContextNode| procedures.contains(&node.procedure) && is_asked(node.root);
    let of = |node: u32| map.nodes().get(node as usize).is_some_and(is_one);
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
