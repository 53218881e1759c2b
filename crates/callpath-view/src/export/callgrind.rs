//! Callgrind's format, version 1: <https://valgrind.org/docs/manual/cl-format.html>.
//!
//! It knows functions and calls, no paths: the tree is added up. A call's inclusive cost is that of its outermost activation on a path, so
//! that recursion is not counted twice. Inlined code counts for the procedure that it is in, at its own file and line (`fi`, `fe`).
//! A loop is a function of its own, `loop at f.c:12 in PROCEDURE`, called by what it is in.

use std::io::{self, Write};

use callpath_db::{Name, ScopeKind};
use rustc_hash::FxHashMap;

use super::exported::{CREATOR, Exported};
use super::frames::Open;
use crate::text::printable;

/// Module, file, name.
type Function = (Option<Name>, Option<Name>, String);

/// A file and a line in it; 0 is not known.
type Place = (Option<Name>, u32);

/// The cost of calls from a place.
#[derive(Default)]
struct Calls {
    contexts: u64,
    inclusive: u64,
}

#[derive(Default)]
struct Graph {
    numbers: FxHashMap<Function, u32>,
    functions: Vec<Function>,
    own: FxHashMap<(u32, Place), u64>,
    /// Of calls from one function to another, how many contain the node at which the walk stands.
    active: FxHashMap<(u32, u32), u32>,
    /// Caller, place in it, callee.
    places: FxHashMap<(u32, Place, u32), Calls>,
}

pub(super) fn write(source: &Exported<'_>, out: &mut dyn Write) -> io::Result<()> {
    let graph = graph(source);
    let mut out = io::BufWriter::new(out);
    writeln!(out, "# callgrind format\nversion: 1\ncreator: {CREATOR}")?;
    let info = &source.profile.info;
    if let [process] = &info.processes[..] {
        writeln!(out, "pid: {}", process.pid)?;
    }
    writeln!(out, "cmd: {}", printable(&info.command.join(" ")))?;
    let event = source.metric_name();
    // Events are told apart by spaces.
    let word = printable(event).replace(' ', "-");
    writeln!(out, "positions: line\nevent: {word} : {} ({})", printable(event), printable(source.unit()))?;
    writeln!(out, "events: {word}\nsummary: {}", source.total())?;
    let mut text = Text { source, written: Default::default(), home: None, current: None };
    let mut own: Vec<_> = graph.own.iter().map(|(key, cost)| (*key, *cost)).collect();
    own.sort_unstable();
    let mut places: Vec<_> = graph.places.iter().map(|(key, calls)| (*key, calls)).collect();
    places.sort_unstable_by_key(|(key, _)| *key);
    let (mut own, mut places) = (own.into_iter().peekable(), places.into_iter().peekable());
    for (number, function) in graph.functions.iter().enumerate() {
        let number = number as u32;
        let (module, file, name) = function;
        writeln!(out, "\nob={}\nfl={}\nfn={}", text.module(*module), text.file(*file), text.function(name))?;
        (text.home, text.current) = (*file, *file);
        while let Some(((_, place), cost)) = own.next_if(|((of, _), _)| *of == number) {
            text.go(&mut out, place)?;
            writeln!(out, "{} {cost}", place.1)?;
        }
        while let Some(((_, place, callee), calls)) = places.next_if(|((of, ..), _)| *of == number) {
            text.go(&mut out, place)?;
            let (module, file, name) = &graph.functions[callee as usize];
            writeln!(out, "cob={}\ncfi={}\ncfn={}", text.module(*module), text.file(*file), text.function(name))?;
            writeln!(out, "calls={} 0\n{} {}", calls.contexts, place.1, calls.inclusive)?;
        }
    }
    writeln!(out, "\ntotals: {}", source.total())?;
    out.flush()
}

/// The tree, added up by function and call.
fn graph(source: &Exported<'_>) -> Graph {
    let nodes = &source.view.nodes;
    let mut graph = Graph::default();
    // By node: the function whose code it is, and the file that inlined code is from.
    let mut function_of: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
    let mut file_of: Vec<Option<Name>> = Vec::with_capacity(nodes.len());
    // The function of the procedure that it is a part of.
    let mut procedure_of: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
    let mut open: Open<Option<(u32, u32)>> = Open::default();
    for (node, shown) in nodes.iter().enumerate() {
        open.close_for(shown.parent, |_, call| {
            if let Some(active) = call.and_then(|key| graph.active.get_mut(&key)) {
                *active -= 1;
            }
        });
        let scope = &shown.scope;
        let caller = shown.parent.and_then(|parent| function_of[parent]);
        let file_above = shown.parent.and_then(|parent| file_of[parent]);
        let cost = source.exclusive(node);
        let is_above_frames =
            matches!(scope.kind, ScopeKind::Root | ScopeKind::Process | ScopeKind::Rank | ScopeKind::Thread);
        let (function, file) = match scope.kind {
            ScopeKind::Line | ScopeKind::Inlined if caller.is_some() => (caller, scope.file.or(file_above)),
            _ if is_above_frames && cost == 0 => (None, None),
            ScopeKind::Loop => {
                let procedure = shown.parent.and_then(|parent| procedure_of[parent]);
                let above = procedure.map(|procedure| &graph.functions[procedure as usize]);
                let name = match above {
                    Some((.., procedure)) => format!("{} in {procedure}", source.marked_name(node)),
                    None => source.marked_name(node),
                };
                let module = scope.module.or_else(|| above.and_then(|(module, ..)| *module));
                let file = scope.file.or(file_above);
                (Some(graph.function((module, file, name))), file)
            }
            _ => (Some(graph.function((scope.module, scope.file, source.marked_name(node)))), scope.file),
        };
        let mut entered = None;
        if let (Some(caller), Some(callee)) = (caller, function)
            && !matches!(scope.kind, ScopeKind::Line | ScopeKind::Inlined)
        {
            let place = match (scope.kind, scope.call_site) {
                (ScopeKind::Loop, _) => (file, scope.line.unwrap_or(0)),
                (_, Some(site)) => (Some(site.file), site.line),
                (_, None) => (file_above, 0),
            };
            let active = graph.active.entry((caller, callee)).or_default();
            *active += 1;
            let is_outermost = *active == 1;
            let calls = graph.places.entry((caller, place, callee)).or_default();
            calls.contexts += u64::from(shown.contexts);
            if is_outermost {
                calls.inclusive += source.inclusive(node);
            }
            entered = Some((caller, callee));
        }
        if let (1.., Some(function)) = (cost, function) {
            let of_body = matches!(scope.kind, ScopeKind::Line | ScopeKind::Loop);
            let line = scope.line.filter(|_| of_body).unwrap_or(0);
            *graph.own.entry((function, (file, line))).or_default() += cost;
        }
        let is_part = matches!(scope.kind, ScopeKind::Line | ScopeKind::Inlined | ScopeKind::Loop) && caller.is_some();
        procedure_of.push(match is_part {
            true => shown.parent.and_then(|parent| procedure_of[parent]),
            false => function.filter(|_| !is_above_frames),
        });
        function_of.push(if is_above_frames { None } else { function });
        file_of.push(file);
        open.push(node, entered);
    }
    graph
}

impl Graph {
    fn function(&mut self, function: Function) -> u32 {
        if let Some(&known) = self.numbers.get(&function) {
            return known;
        }
        let number = self.functions.len() as u32;
        self.functions.push(function.clone());
        self.numbers.insert(function, number);
        number
    }
}

/// Names, which are written in full once: `(1) main`, then `(1)`.
struct Text<'a> {
    source: &'a Exported<'a>,
    /// Of modules, files and functions: the numbers of those that were written.
    written: [FxHashMap<String, u32>; 3],
    /// The file of the function that is written, and the one that the next line is from.
    home: Option<Name>,
    current: Option<Name>,
}

impl Text<'_> {
    /// Says that what follows is from `place`'s file, if that is not the current one.
    fn go(&mut self, out: &mut dyn Write, place: Place) -> io::Result<()> {
        if self.current != place.0 {
            self.current = place.0;
            let word = if place.0 == self.home { "fe" } else { "fi" };
            writeln!(out, "{word}={}", self.file(place.0))?;
        }
        Ok(())
    }

    fn module(&mut self, module: Option<Name>) -> String {
        self.named(0, module)
    }

    fn file(&mut self, file: Option<Name>) -> String {
        self.named(1, file)
    }

    fn function(&mut self, name: &str) -> String {
        self.numbered(2, name)
    }

    fn named(&mut self, table: usize, name: Option<Name>) -> String {
        // As valgrind writes what is not known.
        let text = self.source.text(name).map_or_else(|| "???".into(), printable);
        self.numbered(table, &text)
    }

    fn numbered(&mut self, table: usize, text: &str) -> String {
        let written = &mut self.written[table];
        if let Some(number) = written.get(text) {
            return format!("({number})");
        }
        let number = written.len() as u32 + 1;
        written.insert(text.to_owned(), number);
        format!("({number}) {text}")
    }
}
