//! Loops, as machine code nests them, placed between the calls that were inlined: a tree of static scopes.
//!
//! A loop is located in the source where its test is, but the test may be inlined itself. Where inlined calls are
//! recorded, a loop lies in an inlined call if nearly all of its code does, the tests that end it included. Where they
//! are inferred (Tallent et al. 2009, section 3.3), it is guessed to lie in the context of its test, and in a shallower
//! one if a statement of that is in the loop: nothing is inlined into itself (invariant 4).

use std::cell::Cell;
use std::collections::VecDeque;

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{ProcedureGraph, Terminator};
use callpath_x86::loops::dominators::dominators;
use rustc_hash::{FxHashMap, FxHashSet};

use super::code_ranges::{CodeRange, HOST, ProcedureLoops, Source};
use super::loop_location::LoopLocation;
use super::same::find_same;
use super::same_line::{Located, SameLines};
use super::{SourceLocation, steps};

/// A loop lies in an inlined call that so much of its code is in: the compiler moves some from around it into it.
const NEARLY_ALL: f64 = 0.8;

/// A scope of the tree, until numbers are settled.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) key: Key,
    pub(super) children: VecDeque<u32>,
    /// Of a loop.
    pub(super) is_irreducible: bool,
    /// The lowest address.
    pub(super) address: LinkAddr,
}

/// What a scope is, and what distinguishes it from its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Key {
    /// The procedure.
    Host,
    /// Of [`Source::contexts`].
    Context(u32),
    /// By the line of its test, and by its first column if other loops of the source are beside it on that.
    Loop(SourceLocation, Option<u32>),
    /// By its header.
    LoopAt(LinkAddr),
}

impl Key {
    pub(super) fn is_loop(self) -> bool {
        matches!(self, Key::Loop(..) | Key::LoopAt(_))
    }

    /// Of loops: they have one line, or without lines one header.
    fn is_of_line(self, other: Key) -> bool {
        match (self, other) {
            (Key::Loop(here, _), Key::Loop(there, _)) => here == there,
            _ => self == other,
        }
    }
}

/// The tree of scopes, and the scope of each code range.
#[derive(Debug)]
pub(super) struct ScopeTree {
    /// The host first. Nodes that nothing is in any more may be left.
    pub(super) nodes: Vec<Node>,
    /// By the code range's index.
    pub(super) scopes: Vec<u32>,
    /// The lines with several loops.
    pub(super) same_lines: SameLines,
    /// The child of a node, by what its children are indexed under, that has a key: no two have the same.
    pub(super) known: FxHashMap<(u32, Key), u32>,
    /// For each node, what its children are indexed under.
    pub(super) indexed_under: Vec<u32>,
    /// For each node, the one that it was joined with, or itself.
    pub(super) joined: Vec<Cell<u32>>,
}

/// Where a loop is placed.
pub(super) struct LoopPlacement {
    /// The innermost context around it.
    pub(super) context: u32,
    /// Of inferred contexts, those around it, outermost first.
    chain: Vec<u32>,
    pub(super) location: Option<SourceLocation>,
    /// The line is that of some code in it, for its tests stand elsewhere.
    is_guess: bool,
    /// The first line of its tests.
    tested: Option<SourceLocation>,
    /// The compiler marked its statement.
    is_marked: bool,
    /// It is the loop around it, by its lines.
    pub(super) is_parent: bool,
    /// The blocks that decide whether it continues.
    tests: Vec<u32>,
}

/// The block ends by a choice of where control goes.
pub(super) fn decides(graph: &ProcedureGraph, block: u32) -> bool {
    let end = graph.blocks.get(block as usize).map(|block| block.terminator);
    matches!(end, Some(Terminator::Branch | Terminator::BranchOut(_) | Terminator::Switch(_)))
}

/// Builds the tree. `is_inferred`: contexts are flat.
pub(super) fn build_scope_tree(of: ProcedureLoops<'_>, is_inferred: bool) -> ScopeTree {
    let ProcedureLoops { graph, forest, source } = of;
    let inner_of = |code_range: &CodeRange| forest.innermost.get(code_range.block as usize).copied().flatten();
    let mut code_ranges_of: Vec<Vec<u32>> = vec![Vec::new(); forest.loops.len()];
    for (index, code_range) in (0u32..).zip(&source.code_ranges) {
        let mut next = inner_of(code_range);
        while let Some(number) = next {
            steps::take(1);
            code_ranges_of[number as usize].push(index);
            next = forest.loops.get(number as usize).and_then(|around| around.parent).filter(|parent| *parent < number);
        }
    }
    let exits_of: Vec<Vec<(u32, u32)>> = (0..forest.loops.len() as u32).map(|number| forest.exits(number)).collect();
    let within = source.code_ranges_within();
    let dominators = if forest.loops.is_empty() { None } else { Some(dominators(graph)) };
    let mut placements: Vec<LoopPlacement> = Vec::with_capacity(forest.loops.len());
    for (number, here) in (0u32..).zip(&forest.loops) {
        let around = here.parent.and_then(|parent| placements.get(parent as usize));
        let (around, chain) = around.map_or((HOST, &[][..]), |around| (around.context, &around.chain));
        let number_of = number as usize;
        let looped = Looped::of(of, number, (&code_ranges_of[number_of], &exits_of[number_of], &within));
        let chain = if is_inferred { looped.inferred(chain) } else { Vec::new() };
        let context = if is_inferred { chain.last().copied().unwrap_or(HOST) } else { looped.recorded(around) };
        let LoopLocation { location, is_guess, tested, is_marked } = looped.loop_location(context, dominators.as_ref());
        placements.push(LoopPlacement {
            context,
            chain,
            location,
            is_guess,
            tested,
            is_marked,
            is_parent: false,
            tests: looped.test_blocks,
        });
    }
    find_same(of, &code_ranges_of, &mut placements);
    let located = (0u32..).zip(&placements).filter_map(|(number, placement)| {
        let &LoopPlacement { context, location, is_guess, .. } = placement;
        Some(Located { number, location: location?, context, is_guess })
    });
    let same_lines = SameLines::of(of, &code_ranges_of, located.collect());
    let mut builder = Builder::new(graph, source, same_lines);
    let mut loop_nodes: Vec<u32> = Vec::with_capacity(forest.loops.len());
    for (number, (here, placement)) in (0u32..).zip(forest.loops.iter().zip(&placements)) {
        let header = graph.blocks.get(here.header as usize).map_or(graph.entry, |block| block.code.start);
        let around = here.parent.and_then(|parent| placements.get(parent as usize));
        let mut node = here.parent.map_or(0, |parent| loop_nodes[parent as usize]);
        if is_inferred {
            for &context in placement.chain.get(around.map_or(0, |around| around.chain.len())..).unwrap_or(&[]) {
                node = builder.child(node, Key::Context(context), header);
            }
        } else {
            let within = Within { node, context: around.map_or(HOST, |around| around.context) };
            node = builder.context(within, placement.context, header);
        }
        // A loop inside of one of the same line is another one, the source's or
        // the compiler's, unless they have one test.
        let column = builder.tree.same_lines.column(number);
        let key = placement.location.map_or(Key::LoopAt(header), |location| Key::Loop(location, column));
        let is_around = builder.tree.nodes[node as usize].key;
        let is_same = here.parent.is_some_and(|parent| {
            let exits = exits_of.get(parent as usize).map_or(&[][..], |exits| exits);
            let ends = |test: &u32| ends_with(exits, *test);
            let is_guess = is_around.is_loop() && placement.is_guess && placement.tests.iter().all(ends);
            let around = &placements[parent as usize];
            let is_tested = is_around.is_loop() && !around.is_marked && around.tested == placement.tested;
            let is_one = key.is_of_line(is_around) || is_tested && placement.tested.is_some();
            placement.is_parent
                || is_guess
                || is_one && placement.tests.iter().any(ends)
                || (is_inferred || placement.location.is_none())
                    && is_around.is_loop()
                    && is_continue(of, (parent, exits), here.header, &placement.tests)
        });
        if !is_same {
            node = builder.child(node, key, header);
        }
        builder.tree.nodes[node as usize].is_irreducible |= here.is_irreducible;
        loop_nodes.push(node);
    }
    for code_range in &source.code_ranges {
        let inner = inner_of(code_range);
        let around = inner.and_then(|number| placements.get(number as usize));
        let mut node = inner.map_or(0, |number| loop_nodes[number as usize]);
        if !is_inferred {
            // But code that the compiler moved here from around the loop's context is in none.
            let within = Within { node, context: around.map_or(HOST, |around| around.context) };
            node = builder.context(within, code_range.context, code_range.code.start);
        } else if code_range.context != HOST && !around.is_some_and(|around| around.chain.contains(&code_range.context))
        {
            // Inferred contexts are flat: it is inlined into wherever the loop is.
            node = builder.child(node, Key::Context(code_range.context), code_range.code.start);
        }
        builder.tree.scopes.push(node);
    }
    builder.finish()
}

/// A test that ends a loop ends the one around it, too, which has these exits: machine code nests where a loop's test
/// was copied, or where it is entered elsewhere, too.
fn ends_with(exits: &[(u32, u32)], test: u32) -> bool {
    exits.binary_search_by_key(&test, |exit| exit.0).is_ok()
}

/// A loop around another that has no test of its own, and begins with the other: its code is behind a `continue`. Only
/// where lines do not tell: `for (;;)` around a loop that leaves both looks the same.
fn is_continue(of: ProcedureLoops<'_>, (outer, exits): (u32, &[(u32, u32)]), header: u32, tests: &[u32]) -> bool {
    let begins =
        of.forest.loops.get(outer as usize).is_some_and(|outer| *of.graph.successors(outer.header) == [header]);
    begins && !exits.is_empty() && exits.iter().all(|exit| tests.binary_search(&exit.0).is_ok())
}

/// A node, and the context that it is in.
#[derive(Clone, Copy)]
struct Within {
    node: u32,
    context: u32,
}

struct Builder<'a> {
    tree: ScopeTree,
    source: &'a Source,
    /// The node of a context in a node.
    contexts: FxHashMap<(u32, u32), u32>,
}

impl<'a> Builder<'a> {
    fn new(graph: &ProcedureGraph, source: &'a Source, same_lines: SameLines) -> Builder<'a> {
        let host =
            Node { parent: 0, key: Key::Host, children: VecDeque::new(), is_irreducible: false, address: graph.entry };
        let tree = ScopeTree {
            nodes: vec![host],
            scopes: Vec::with_capacity(source.code_ranges.len()),
            same_lines,
            known: FxHashMap::default(),
            indexed_under: vec![0],
            joined: vec![Cell::new(0)],
        };
        Builder { tree, source, contexts: FxHashMap::default() }
    }

    fn child(&mut self, parent: u32, key: Key, address: LinkAddr) -> u32 {
        steps::take(1);
        let ScopeTree { nodes, known, indexed_under, joined, .. } = &mut self.tree;
        if let Some(&child) = known.get(&(parent, key)) {
            let known = &mut nodes[child as usize];
            known.address = known.address.min(address);
            return child;
        }
        let child = nodes.len() as u32;
        nodes.push(Node { parent, key, children: VecDeque::new(), is_irreducible: false, address });
        nodes[parent as usize].children.push_back(child);
        known.insert((parent, key), child);
        indexed_under.push(child);
        joined.push(Cell::new(child));
        child
    }

    /// The node of a recorded context within another node; that node itself if the context is not in its context. Its
    /// address is known to it alone, until all are there.
    fn context(&mut self, within: Within, context: u32, address: LinkAddr) -> u32 {
        let Within { node, context: around } = within;
        if !self.source.nest.is_in(context, around) {
            return node;
        }
        let mut missing = Vec::new();
        let (mut at, mut next) = (node, context);
        while next != around {
            if let Some(&known) = self.contexts.get(&(node, next)) {
                at = known;
                break;
            }
            missing.push(next);
            next = self.source.nest.parent(next);
        }
        if missing.is_empty() && at != node {
            steps::take(1);
            let known = &mut self.tree.nodes[at as usize];
            known.address = known.address.min(address);
        }
        for context in missing.into_iter().rev() {
            at = self.child(at, Key::Context(context), address);
            self.contexts.insert((node, context), at);
        }
        at
    }

    /// With all nodes: an inlined call begins where the calls in it do, or before.
    fn finish(mut self) -> ScopeTree {
        let nodes = &mut self.tree.nodes;
        for index in (1..nodes.len()).rev() {
            let Node { parent, key, address, .. } = nodes[index];
            let around = &mut nodes[parent as usize];
            if matches!((key, around.key), (Key::Context(_), Key::Context(_))) {
                around.address = around.address.min(address);
            }
        }
        self.tree
    }
}

/// A loop and the code in it.
pub(super) struct Looped<'a> {
    /// What it is a loop of.
    pub(super) of: ProcedureLoops<'a>,
    pub(super) number: u32,
    pub(super) header: u32,
    pub(super) latches: &'a [u32],
    pub(super) is_irreducible: bool,
    /// Control goes round through copies of one jump.
    pub(super) is_dispatch: bool,
    /// Exceptions that are thrown in it land in it.
    pub(super) handles: bool,
    pub(super) code_ranges: Vec<&'a CodeRange>,
    /// The last code ranges of the blocks that decide whether it continues, and of those that count.
    pub(super) tests: Vec<&'a CodeRange>,
    pub(super) test_blocks: Vec<u32>,
    /// Those of them that decide, ascending; where there are none, nothing at its top or its bottom does.
    pub(super) deciding: Vec<u32>,
    /// See [`Source::code_ranges_within`].
    within: &'a [usize],
}

impl<'a> Looped<'a> {
    fn of(
        of: ProcedureLoops<'a>,
        number: u32,
        (code_ranges, exits, within): (&[u32], &[(u32, u32)], &'a [usize]),
    ) -> Looped<'a> {
        let ProcedureLoops { graph, forest, source } = of;
        let code_ranges: Vec<&CodeRange> =
            code_ranges.iter().filter_map(|&code_range| source.code_ranges.get(code_range as usize)).collect();
        let ends: FxHashMap<u32, &CodeRange> = code_ranges
            .iter()
            .filter(|code_range| code_range.ends_block)
            .map(|code_range| (code_range.block, *code_range))
            .collect();
        let (header, latches, is_irreducible) = match forest.loops.get(number as usize) {
            Some(here) => (here.header, &here.back_edges[..], here.is_irreducible),
            None => (0, &[][..], false),
        };
        let is_in = |block: &u32| forest.contains(number, forest.innermost.get(*block as usize).copied().flatten());
        let lands = |block: u32, to: u32| {
            let start = graph.blocks.get(to as usize).map(|to| to.code.start);
            graph.blocks.get(block as usize).is_some_and(|block| start.is_some_and(|start| start != block.code.end))
        };
        let handles = code_ranges
            .iter()
            .filter(|code_range| code_range.ends_block && !decides(graph, code_range.block))
            .any(|code_range| {
                let to = graph.successors(code_range.block);
                to.len() > 1 && to.iter().any(|&to| is_in(&to) && lands(code_range.block, to))
            });
        let is_dispatch = forest.loops.get(number as usize).is_some_and(|here| here.is_dispatch);
        let leaves = |block: u32| exits.binary_search_by_key(&block, |exit| exit.0).is_ok();
        let tests = |block: &u32| decides(graph, *block) && leaves(*block);
        // The continuation test stands at the top or at the bottom, where also is what counts; others are breaks.
        let mut blocks: Vec<u32> = latches.iter().copied().filter(tests).collect();
        if is_dispatch {
            // It is its latches that decide.
            blocks = latches.to_vec();
        } else if tests(&header) {
            if blocks.is_empty() {
                blocks.extend(latches);
            }
            blocks.push(header);
        }
        let mut deciding: Vec<u32> = blocks.iter().copied().filter(|block| is_dispatch || tests(block)).collect();
        if blocks.is_empty() {
            // Exceptions leave everywhere.
            let leaving = exits.iter().map(|exit| exit.0).filter(|block| decides(graph, *block));
            blocks = latches.iter().copied().chain([header]).chain(leaving).collect();
        }
        for blocks in [&mut blocks, &mut deciding] {
            blocks.sort_unstable();
            blocks.dedup();
        }
        let tests = blocks.iter().filter_map(|block| ends.get(block).copied()).collect();
        Looped {
            of,
            number,
            header,
            latches,
            is_irreducible,
            is_dispatch,
            handles,
            code_ranges,
            tests,
            test_blocks: blocks,
            deciding,
            within,
        }
    }

    /// The recorded context that it lies in; `around` is that of the loop around it.
    fn recorded(&self, around: u32) -> u32 {
        let nest = &self.of.source.nest;
        steps::take(self.code_ranges.len());
        // Code by its context, nested contexts side by side.
        let len = |code_range: &CodeRange| code_range.code.end.0 - code_range.code.start.0;
        let mut code: Vec<(u32, u32, u64)> = self
            .code_ranges
            .iter()
            .map(|code_range| (nest.first(code_range.context), code_range.context, len(code_range)))
            .collect();
        code.sort_unstable();
        let mut all = 0;
        let mut bytes_before = vec![0];
        bytes_before.extend(code.iter().map(|(_, _, bytes)| {
            all += bytes;
            all
        }));
        // If a context has nearly all, it has the byte in the middle.
        let middle = bytes_before.partition_point(|&before| before <= all / 2).checked_sub(1);
        let Some(&(_, middle, _)) = middle.and_then(|middle| code.get(middle)) else { return around };
        if !nest.is_in(middle, around) {
            return around;
        }
        let before = |first: u32| code.partition_point(|(context, _, _)| *context < first);
        let bytes = |first: u32, end: u32| bytes_before[before(end)] - bytes_before[before(first)];
        let tests = self.tests.iter().map(|test| nest.first(test.context));
        let tests = tests.clone().min().zip(tests.max());
        // A context for which this does not hold has none in it for which it does.
        let lies_in = |context: u32| {
            let (here, first, end) = (nest.parent(context), nest.first(context), nest.end(context));
            let direct = all - bytes(nest.first(here) + 1, nest.end(here));
            // Code of the context lies outside of the loop: not the call is in
            // the loop, but the loop in what was called.
            let inside = || before(end) - before(first);
            let reaches_out = || self.within.get(context as usize).is_some_and(|&all| all > inside());
            bytes(first, end) as f64 >= NEARLY_ALL * all as f64
                && tests.is_none_or(|(least, most)| least >= first && most < end)
                && (direct == 0 || reaches_out())
        };
        let (mut holds, mut fails) = (nest.depth(around), nest.depth(middle) + 1);
        // Most loops lie in all that the code in the middle does.
        let mut depth = nest.depth(middle);
        while holds + 1 < fails {
            if lies_in(nest.at_depth(middle, depth)) {
                holds = depth;
            } else {
                fails = depth;
            }
            depth = holds + (fails - holds) / 2;
        }
        nest.at_depth(middle, holds)
    }

    /// The chain of inferred contexts.
    fn inferred(&self, around: &[u32]) -> Vec<u32> {
        steps::take(self.code_ranges.len() + around.len());
        let with_location = self.code_ranges.iter().filter(|code_range| code_range.location.is_some());
        let contexts: FxHashSet<u32> = with_location.map(|code_range| code_range.context).collect();
        let has = |context: u32| contexts.contains(&context);
        if has(HOST) {
            return Vec::new();
        }
        if let Some(shallowest) = around.iter().position(|&context| has(context)) {
            return around[..=shallowest].to_vec();
        }
        let tested = self.tests.iter().find(|test| test.location.is_some()).map(|test| test.context);
        around.iter().copied().chain(tested.filter(|&context| context != HOST)).collect()
    }
}
