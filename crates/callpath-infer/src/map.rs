//! A map in memory.

use std::ops::Range;
use std::path::PathBuf;

use callpath_format::frame::CloneNumber;
use rustc_hash::FxHashMap;

use crate::clones::Cloned;
use crate::doubt::{Doubt, MOST_CALLS, doubts};

/// A file of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapModule {
    /// Where it was.
    pub path: PathBuf,
    /// Which build of it: equal bytes, equal code.
    pub identity: Vec<u8>,
}

/// A procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapProcedure {
    /// Index in [`PathMap::modules`].
    pub module: u32,
    /// The link-time address of its first instruction.
    pub start: u64,
    /// Its name, for people.
    pub name: String,
}

/// Which stack a context is on. Heights on one say nothing of heights on another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Root {
    /// That of a process's first thread: heights count from where the kernel put the number of arguments.
    Main,
    /// That of a thread that begins in this procedure, an index in [`PathMap::procedures`]: heights count from its CFA.
    Thread(u32),
}

/// How much was seen of something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Weight {
    /// Calls that were counted.
    pub calls: u64,
    /// Samples that were taken.
    pub samples: u64,
}

impl Weight {
    /// Both.
    #[must_use]
    pub fn plus(self, other: Weight) -> Weight {
        Weight { calls: self.calls.saturating_add(other.calls), samples: self.samples.saturating_add(other.samples) }
    }
}

/// An activation of a procedure, in the context of its callers'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextNode {
    /// The caller's, a lower index in [`PathMap::nodes`]; `None`: nobody's.
    pub parent: Option<u32>,
    /// Index in [`PathMap::procedures`].
    pub procedure: u32,
    /// Index in [`PathMap::roots`].
    pub root: u32,
}

/// A procedure, and how high the stack is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identifier {
    /// Index in [`PathMap::roots`].
    pub root: u32,
    /// Index in [`PathMap::procedures`].
    pub procedure: u32,
    /// From the stack's fixed place down to the procedure's CFA, bytes; in a clone of it, with the clone's number ([`CloneNumber::height`]).
    pub height: i64,
}

impl Identifier {
    /// The height alone.
    pub(crate) fn bytes(self) -> i64 {
        CloneNumber::of_height(self.height).1
    }
}

/// A call in the code, of a procedure that is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DirectCall {
    /// Index of the procedure that is called, in [`PathMap::procedures`].
    pub callee: u32,
    /// The same of the caller.
    pub caller: u32,
    /// How far the caller's CFA is above the callee's, bytes.
    pub height: i64,
}

/// A call through a pointer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PointerCall {
    /// Index of the procedure that calls, in [`PathMap::procedures`].
    pub caller: u32,
    /// How far its CFA is above the callee's, bytes.
    pub height: i64,
    /// The registers that may pass arguments, a bit each, of [`Code::REGISTERS`].
    pub passes: u8,
}

/// A procedure that calls through pointers may lead to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pointed {
    /// Its index in [`PathMap::procedures`].
    pub procedure: u32,
    /// The registers that have to pass arguments then, a bit each, of [`Code::REGISTERS`].
    pub takes: u8,
    /// Only what the program starts in has the pointer, and passes it to glibc (`main`): what it calls, or that calls, leads there, and nothing
    /// else does.
    pub is_at_start: bool,
}

/// A call at which the stack is not as high each time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VariableCall {
    /// Index of the procedure that calls, in [`PathMap::procedures`]; `None`: it is in a file that is not known.
    pub caller: Option<u32>,
    /// What it calls.
    pub to: Called,
}

/// What a call leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Called {
    /// To a procedure: its index in [`PathMap::procedures`].
    Procedure(u32),
    /// Where a pointer says: the registers that may pass arguments, a bit each, of [`Code::REGISTERS`].
    Pointer(u8),
}

/// What the code of whole files has: each call, so that paths can be searched that no run took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Code {
    /// The files, as indices in [`PathMap::modules`], ascending.
    pub modules: Vec<u32>,
    /// Calls through pointers, ascending.
    pub pointer_calls: Vec<PointerCall>,
    /// The procedures whose addresses the files have, and what those jump to, ascending.
    pub pointed: Vec<Pointed>,
    /// Calls at which the stack is not as high each time, ascending. Paths through these are not sought; where one may lead, no path is known to
    /// be the only one.
    pub variable: Vec<VariableCall>,
}

impl Code {
    /// So many registers pass arguments.
    pub const REGISTERS: u32 = 6;
}

/// Which paths have an identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<'m> {
    /// One: the index of its innermost node.
    Precise(u32),
    /// One was seen: the index of its innermost node. The code has other calls that lead there from a context that was seen, with as much stack:
    /// these were never seen, whether they are one or several in a row. Or the procedure was also met at an unknown height, which may be this one: below a call at which the
    /// stack is not as high each time, or in a handler of a signal.
    Likely(u32),
    /// Several: the same of each, those seen most first.
    Ambiguous(&'m [u32]),
    /// Not all calls of the procedure could be counted, or none was seen. These contexts, of which there is at least one, may call it, as the code
    /// has direct calls of it there: the indices of the nodes of its callers. Calls by pointers may come from others.
    ByCode(Vec<u32>),
    /// None that the map knows.
    Missing,
}

/// Call paths and their identifiers.
#[derive(Clone, Debug, Default)]
pub struct PathMap {
    pub(crate) modules: Vec<MapModule>,
    pub(crate) procedures: Vec<MapProcedure>,
    pub(crate) roots: Vec<Root>,
    pub(crate) nodes: Vec<ContextNode>,
    /// Of each node, the heights that it was met at, with how much was seen: by ascending node and height.
    pub(crate) heights: Vec<(u32, i64, Weight)>,
    /// Procedures that have calls at which the stack is not as high each time, ascending: paths through those have no identifier.
    pub(crate) variable: Vec<u32>,
    /// Procedures whose calls could not be counted, ascending: samples have seen them alone.
    pub(crate) uncounted: Vec<u32>,
    /// Direct calls, by callee.
    pub(crate) calls: Vec<DirectCall>,
    /// What files have that were read as a whole.
    pub(crate) code: Code,
    /// What was seen in contexts that have no identifier.
    pub(crate) unidentified: Weight,
    /// By node, whether a process cannot take its path ([`PathMap::of_modules`]); empty: it can take all.
    left_out: Vec<bool>,
    /// Clones of procedures in the program that it is the map of.
    pub(crate) cloned: Cloned,
    index: FxHashMap<Identifier, Seen>,
    paths: Vec<u32>,
}

/// What was seen with an identifier.
#[derive(Clone, Debug)]
struct Seen {
    /// Its paths, in [`PathMap::paths`]: those that are meant to have it, then those that may have it if calls do not lead to clones.
    paths: Range<u32>,
    /// How many are meant to.
    meant: u32,
    /// Whether there may be others.
    doubt: Doubt,
}

impl PathMap {
    /// Heights are below this, bytes: no others fit into a sample. Above it are the numbers of clones.
    pub const MOST_HIGH: u64 = 1 << 39;

    /// The files of code.
    pub fn modules(&self) -> &[MapModule] {
        &self.modules
    }

    /// The procedures.
    pub fn procedures(&self) -> &[MapProcedure] {
        &self.procedures
    }

    /// The stacks.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// The contexts, callers before callees.
    pub fn nodes(&self) -> &[ContextNode] {
        &self.nodes
    }

    /// Of each node, the heights that it was met at, and how often: by ascending node and height.
    pub fn heights(&self) -> &[(u32, i64, Weight)] {
        &self.heights
    }

    /// Procedures with calls at which the stack is not as high each time.
    pub fn variable(&self) -> &[u32] {
        &self.variable
    }

    /// Procedures whose calls could not be counted.
    pub fn uncounted(&self) -> &[u32] {
        &self.uncounted
    }

    /// Direct calls of the procedures that were met, in the order of callees.
    pub fn calls(&self) -> &[DirectCall] {
        &self.calls
    }

    /// What the code of files has that were read as a whole, whatever was met of it.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// What was seen in contexts without an identifier.
    pub fn unidentified(&self) -> Weight {
        self.unidentified
    }

    /// How many identifiers there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Which paths have this identifier.
    pub fn answer(&self, identifier: Identifier) -> Answer<'_> {
        let found = self.index.get(&identifier);
        let doubt = found.map_or(Doubt::Uncounted, |seen| seen.doubt);
        match (found.map_or(&[][..], |seen| self.meant(seen)), doubt) {
            (seen @ [], _) | (seen, Doubt::Uncounted) => {
                let callers = self.callers_by_code(identifier, seen);
                if callers.is_empty() { Answer::Missing } else { Answer::ByCode(callers) }
            }
            (&[only], Doubt::Code | Doubt::Open) => Answer::Likely(only),
            (&[only], Doubt::None) => Answer::Precise(only),
            _ => Answer::Ambiguous(self.seen(identifier)),
        }
    }

    /// The paths that were seen with an identifier, whatever else the code has: all that the paper's maps know.
    pub fn seen_paths(&self, identifier: Identifier) -> &[u32] {
        self.seen(identifier)
    }

    /// The paths that were seen with this identifier.
    fn seen(&self, identifier: Identifier) -> &[u32] {
        self.index.get(&identifier).map_or(&[], |seen| self.paths_of(seen))
    }

    fn paths_of(&self, seen: &Seen) -> &[u32] {
        self.paths.get(seen.paths.start as usize..seen.paths.end as usize).unwrap_or(&[])
    }

    /// Those that are meant to have an identifier; if there are none, those that may.
    fn meant(&self, seen: &Seen) -> &[u32] {
        let paths = self.paths_of(seen);
        if seen.meant == 0 { paths } else { paths.get(..seen.meant as usize).unwrap_or(paths) }
    }

    /// The contexts that have called a procedure there, or may have by a direct call.
    fn callers_by_code(&self, identifier: Identifier, seen: &[u32]) -> Vec<u32> {
        let parent = |node: &u32| self.nodes.get(*node as usize)?.parent;
        let mut callers: Vec<u32> = seen.iter().filter_map(parent).collect();
        for by in self.direct_callers(identifier) {
            callers.extend(self.seen(by).iter().filter(|caller| !callers.contains(caller)).collect::<Vec<_>>());
        }
        callers
    }

    /// The identifiers, each with its paths, in no order.
    pub fn answers(&self) -> impl Iterator<Item = (Identifier, &[u32])> {
        self.index.iter().map(|(identifier, seen)| (*identifier, self.paths_of(seen)))
    }

    /// The same, each with the number of paths that are meant to have it: these come first. The others may have it if calls do not lead to clones.
    pub(crate) fn meant_answers(&self) -> impl Iterator<Item = (Identifier, &[u32], usize)> {
        self.index.iter().map(|(identifier, seen)| (*identifier, self.paths_of(seen), seen.meant as usize))
    }

    /// The identifiers that walks may end at, which compare the path with the stack, in no order: those at which one path was seen, with the
    /// index of its innermost node. The code may have others; but the procedure was met at known heights alone.
    pub fn told(&self) -> impl Iterator<Item = (Identifier, u32)> {
        self.index.iter().filter_map(|(identifier, seen)| match (self.paths_of(seen), seen.doubt) {
            (&[only], Doubt::None | Doubt::Code) => Some((*identifier, only)),
            _ => None,
        })
    }

    /// The nodes of a path, the innermost first.
    pub fn path(&self, innermost: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(innermost), |&node| self.nodes.get(node as usize)?.parent)
    }

    /// The outermost nodes that several paths have in common, innermost first; empty if there are none.
    pub fn common(&self, paths: &[u32]) -> Vec<u32> {
        let Some((first, others)) = paths.split_first() else { return Vec::new() };
        let outwards = |node: u32| {
            let mut path: Vec<u32> = self.path(node).collect();
            path.reverse();
            path
        };
        let mut common = outwards(*first);
        for other in others {
            let other = outwards(*other);
            let same = common.iter().zip(&other).take_while(|(one, two)| one == two).count();
            common.truncate(same);
        }
        common.reverse();
        common
    }

    /// What the map knows of a process that has not all its modules: `is_there` says of each whether the process has it.
    /// Numbers of modules, procedures, nodes and roots stay as they are; nodes of paths through other modules have no heights.
    #[must_use]
    pub fn of_modules(&self, is_there: &[bool]) -> PathMap {
        let has = |procedure: u32| {
            let module = self.procedures.get(procedure as usize).map(|procedure| procedure.module as usize);
            module.and_then(|module| is_there.get(module)).is_some_and(|is_there| *is_there)
        };
        let mut is_whole: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let above =
                node.parent.is_none_or(|parent| is_whole.get(parent as usize).is_some_and(|is_whole| *is_whole));
            is_whole.push(above && has(node.procedure));
        }
        let mut map = self.clone();
        map.left_out = is_whole.iter().map(|is_whole| !is_whole).collect();
        map.heights.retain(|(node, ..)| is_whole.get(*node as usize).is_some_and(|is_whole| *is_whole));
        map.calls.retain(|call| has(call.callee) && has(call.caller));
        map.code.modules.retain(|module| is_there.get(*module as usize).is_some_and(|is_there| *is_there));
        map.code.pointer_calls.retain(|call| has(call.caller));
        map.code.pointed.retain(|pointed| has(pointed.procedure));
        map.code.variable.retain(|call| {
            call.caller.is_none_or(has) && !matches!(call.to, Called::Procedure(procedure) if !has(procedure))
        });
        map.finish();
        map
    }

    /// Whether a process cannot take a node's path.
    pub(crate) fn is_left_out(&self, node: usize) -> bool {
        self.left_out.get(node).is_some_and(|is_out| *is_out)
    }

    /// What has direct calls of a procedure in the code, and where it would have to stand.
    pub(crate) fn direct_callers(&self, identifier: Identifier) -> impl Iterator<Item = Identifier> {
        let (clone, bytes) = CloneNumber::of_height(identifier.height);
        let from = self.calls.partition_point(|call| call.callee < identifier.procedure);
        let calls = self.calls.get(from..).unwrap_or(&[]).iter();
        calls.take_while(move |call| call.callee == identifier.procedure).flat_map(move |call| {
            let bytes = bytes.checked_sub(call.height);
            let height = move |from: CloneNumber| {
                bytes.and_then(|bytes| from.height(bytes.checked_sub(self.cloned.larger_by(from))?))
            };
            let of = move |height: i64| Identifier { procedure: call.caller, height, ..identifier };
            self.cloned.callers((identifier.procedure, clone), call.caller).filter_map(height).map(of)
        })
    }

    /// Finds out which paths each identifier has, and whether the code has others. Heights must be in order.
    pub(crate) fn finish(&mut self) {
        let identified = self.heights.iter().filter_map(|&(node, height, weight)| {
            let of = self.nodes.get(node as usize)?;
            let is_alternative = self.cloned.alternatives.contains(&(node, height));
            let identifier = Identifier { root: of.root, procedure: of.procedure, height };
            Some((identifier, is_alternative, std::cmp::Reverse(weight), node))
        });
        let mut identified: Vec<_> = identified.collect();
        identified.sort_unstable();
        self.index = FxHashMap::default();
        self.paths = Vec::with_capacity(identified.len());
        for group in identified.chunk_by(|one, two| one.0 == two.0) {
            let start = self.paths.len() as u32;
            self.paths.extend(group.iter().map(|(.., node)| *node));
            if let Some((identifier, ..)) = group.first() {
                let meant = group.iter().take_while(|(_, is_alternative, ..)| !is_alternative).count() as u32;
                let paths = start..self.paths.len() as u32;
                self.index.insert(*identifier, Seen { paths, meant, doubt: Doubt::None });
            }
        }
        for (identifier, doubt) in doubts(self, MOST_CALLS) {
            if let Some(seen) = self.index.get_mut(&identifier) {
                seen.doubt = doubt;
            }
        }
    }
}
