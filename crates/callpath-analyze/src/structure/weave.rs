//! Loops, as machine code nests them, placed between the calls that were inlined: a tree of static scopes.
//! Knows nothing of how either was found.
//!
//! A loop stands in the source where its test does, but the test may be inlined itself. Where inlined calls are recorded,
//! a loop lies in an inlined call if nearly all of its code does, the tests that end it included. Where they are
//! inferred (Tallent et al. 2009, section 3.3), it is guessed to lie in the context of its test, and in a shallower one if a
//! statement of that is in the loop: nothing is inlined into itself (invariant 4).

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{ProcedureGraph, Terminator};
use callpath_x86::loops::LoopForest;
use callpath_x86::loops::dominators::dominators;
use rustc_hash::FxHashMap;

use super::SourcePlace;
use super::atoms::{Atom, HOST, Source};
use super::head::Head;
use super::same::find_same;

/// A loop lies in an inlined call that so much of its code is in: the compiler moves some from around it into it.
const NEARLY_ALL: f64 = 0.8;

/// A scope of the tree, until numbers are settled.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) key: Key,
    pub(super) children: Vec<u32>,
    /// Of a loop.
    pub(super) is_irreducible: bool,
    /// The lowest address.
    pub(super) address: LinkAddr,
}

/// What a scope is, and what tells it from its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Key {
    /// The procedure.
    Host,
    /// Of [`Source::contexts`].
    Context(u32),
    /// By the line of its test.
    Loop(SourcePlace),
    /// By its header.
    LoopAt(LinkAddr),
}

impl Key {
    pub(super) fn is_loop(self) -> bool {
        matches!(self, Key::Loop(_) | Key::LoopAt(_))
    }
}

/// The tree of scopes, and the scope of each atom.
#[derive(Debug)]
pub(super) struct Woven {
    /// The host first. Nodes that nothing is in any more may be left.
    pub(super) nodes: Vec<Node>,
    /// By the atom's index.
    pub(super) scopes: Vec<u32>,
}

/// Of each loop, where it stands.
pub(super) struct Standing {
    /// The contexts around it, outermost first.
    pub(super) chain: Vec<u32>,
    pub(super) place: Option<SourcePlace>,
    /// The line is that of some code in it, for its tests stand elsewhere.
    is_guess: bool,
    /// The first line of its tests.
    tested: Option<SourcePlace>,
    /// The compiler marked its statement.
    is_marked: bool,
    /// It is the loop around it, by its lines.
    pub(super) is_parent: bool,
    /// The blocks that decide whether it goes on.
    tests: Vec<u32>,
}

impl Standing {
    /// The innermost context around it.
    pub(super) fn context(&self) -> u32 {
        self.chain.last().copied().unwrap_or(HOST)
    }
}

/// The block ends by a choice of where control goes.
pub(super) fn decides(graph: &ProcedureGraph, block: u32) -> bool {
    let end = graph.blocks.get(block as usize).map(|block| block.terminator);
    matches!(end, Some(Terminator::Branch | Terminator::BranchOut(_) | Terminator::Switch(_)))
}

/// Builds the tree. `is_inferred`: contexts are flat.
pub(super) fn weave(graph: &ProcedureGraph, forest: &LoopForest, source: &Source, is_inferred: bool) -> Woven {
    let inner_of = |atom: &Atom| forest.innermost.get(atom.block as usize).copied().flatten();
    let mut atoms_of: Vec<Vec<u32>> = vec![Vec::new(); forest.loops.len()];
    for (index, atom) in (0u32..).zip(&source.atoms) {
        let mut next = inner_of(atom);
        while let Some(number) = next {
            atoms_of[number as usize].push(index);
            next = forest.loops.get(number as usize).and_then(|around| around.parent).filter(|parent| *parent < number);
        }
    }
    let exits_of: Vec<Vec<(u32, u32)>> = (0..forest.loops.len() as u32).map(|number| forest.exits(number)).collect();
    let within = source.atoms_within();
    let dominators = if forest.loops.is_empty() { None } else { Some(dominators(graph)) };
    let mut standings: Vec<Standing> = Vec::with_capacity(forest.loops.len());
    for (number, here) in (0u32..).zip(&forest.loops) {
        let around = here.parent.and_then(|parent| standings.get(parent as usize));
        let around = around.map_or(&[][..], |around| &around.chain);
        let number_of = number as usize;
        let looped = Looped::of(graph, forest, source, number, (&atoms_of[number_of], &exits_of[number_of], &within));
        let chain = if is_inferred { looped.inferred(around) } else { looped.recorded(around) };
        let context = chain.last().copied().unwrap_or(HOST);
        let Head { place, is_guess, tested, is_marked } = looped.head(graph, forest, context, dominators.as_ref());
        standings.push(Standing {
            chain,
            place,
            is_guess,
            tested,
            is_marked,
            is_parent: false,
            tests: looped.test_blocks,
        });
    }
    find_same(graph, forest, source, &atoms_of, &mut standings);
    let mut woven = Woven { nodes: Vec::new(), scopes: Vec::with_capacity(source.atoms.len()) };
    woven.nodes.push(Node {
        parent: 0,
        key: Key::Host,
        children: Vec::new(),
        is_irreducible: false,
        address: graph.entry,
    });
    let mut builder = Builder { woven: &mut woven, children: FxHashMap::default() };
    let mut loop_nodes: Vec<u32> = Vec::with_capacity(forest.loops.len());
    for (here, standing) in forest.loops.iter().zip(&standings) {
        let header = graph.blocks.get(here.header as usize).map_or(graph.entry, |block| block.code.start);
        let (mut node, depth) = match here.parent {
            Some(parent) => (loop_nodes[parent as usize], standings[parent as usize].chain.len()),
            None => (0, 0),
        };
        for &context in standing.chain.get(depth..).unwrap_or(&[]) {
            node = builder.child(node, Key::Context(context), header);
        }
        // A loop inside of one of the same line is another one, the source's or the compiler's, unless they have one test.
        let key = standing.place.map_or(Key::LoopAt(header), Key::Loop);
        let is_around = builder.woven.nodes[node as usize].key;
        let is_same = here.parent.is_some_and(|parent| {
            let exits = exits_of.get(parent as usize).map_or(&[][..], |exits| exits);
            let ends = |test: &u32| ends_with(exits, *test);
            let is_guess = is_around.is_loop() && standing.is_guess && standing.tests.iter().all(ends);
            let around = &standings[parent as usize];
            let is_tested = is_around.is_loop() && !around.is_marked && around.tested == standing.tested;
            let is_one = key == is_around || is_tested && standing.tested.is_some();
            standing.is_parent
                || is_guess
                || is_one && standing.tests.iter().any(ends)
                || (is_inferred || standing.place.is_none())
                    && is_around.is_loop()
                    && is_continue(graph, forest, (parent, exits), here.header, &standing.tests)
        });
        if !is_same {
            node = builder.child(node, key, header);
        }
        builder.woven.nodes[node as usize].is_irreducible |= here.is_irreducible;
        loop_nodes.push(node);
    }
    for atom in &source.atoms {
        let inner = inner_of(atom);
        let around = inner.map_or(&[][..], |number| &standings[number as usize].chain);
        let mut node = inner.map_or(0, |number| loop_nodes[number as usize]);
        let chain = source.chain(atom.context);
        let more = match chain.strip_prefix(around) {
            Some(more) => more.to_vec(),
            // Inferred contexts are flat: it is inlined into wherever the loop is.
            None if is_inferred && !around.contains(&atom.context) => chain,
            // Code that the compiler moved here from around the loop's context.
            None => Vec::new(),
        };
        for context in more {
            node = builder.child(node, Key::Context(context), atom.code.start);
        }
        builder.woven.scopes.push(node);
    }
    woven
}

/// A test that ends a loop ends the one around it, too, which has these exits: machine code nests where a loop's test was copied, or where it is
/// entered elsewhere, too.
fn ends_with(exits: &[(u32, u32)], test: u32) -> bool {
    exits.binary_search_by_key(&test, |exit| exit.0).is_ok()
}

/// A loop around another that has no test of its own, and begins with the other: its code is behind a `continue`. Only where
/// lines do not tell: `for (;;)` around a loop that leaves both looks the same.
fn is_continue(
    graph: &ProcedureGraph,
    forest: &LoopForest,
    (outer, exits): (u32, &[(u32, u32)]),
    header: u32,
    tests: &[u32],
) -> bool {
    let begins = forest.loops.get(outer as usize).is_some_and(|outer| *graph.successors(outer.header) == [header]);
    begins && !exits.is_empty() && exits.iter().all(|exit| tests.binary_search(&exit.0).is_ok())
}

struct Builder<'a> {
    woven: &'a mut Woven,
    children: FxHashMap<(u32, Key), u32>,
}

impl Builder<'_> {
    fn child(&mut self, parent: u32, key: Key, address: LinkAddr) -> u32 {
        let nodes = &mut self.woven.nodes;
        if let Some(&child) = self.children.get(&(parent, key)) {
            let known = &mut nodes[child as usize];
            known.address = known.address.min(address);
            return child;
        }
        let child = nodes.len() as u32;
        nodes.push(Node { parent, key, children: Vec::new(), is_irreducible: false, address });
        nodes[parent as usize].children.push(child);
        self.children.insert((parent, key), child);
        child
    }
}

/// A loop and the code in it.
pub(super) struct Looped<'a> {
    pub(super) source: &'a Source,
    pub(super) number: u32,
    pub(super) header: u32,
    pub(super) latches: &'a [u32],
    pub(super) is_irreducible: bool,
    /// Exceptions that are thrown in it land in it.
    pub(super) handles: bool,
    pub(super) atoms: Vec<&'a Atom>,
    /// The last atoms of the blocks that decide whether it goes on, and of those that count.
    pub(super) tests: Vec<&'a Atom>,
    pub(super) test_blocks: Vec<u32>,
    /// Those of them that decide, ascending; where there are none, nothing at its top or its bottom does.
    pub(super) deciding: Vec<u32>,
    /// See [`Source::atoms_within`].
    within: &'a [usize],
}

impl<'a> Looped<'a> {
    fn of(
        graph: &ProcedureGraph,
        forest: &'a LoopForest,
        source: &'a Source,
        number: u32,
        (atoms, exits, within): (&[u32], &[(u32, u32)], &'a [usize]),
    ) -> Looped<'a> {
        let atoms: Vec<&Atom> = atoms.iter().filter_map(|&atom| source.atoms.get(atom as usize)).collect();
        let ends: FxHashMap<u32, &Atom> =
            atoms.iter().filter(|atom| atom.ends_block).map(|atom| (atom.block, *atom)).collect();
        let (header, latches, is_irreducible) = match forest.loops.get(number as usize) {
            Some(here) => (here.header, &here.back_edges[..], here.is_irreducible),
            None => (0, &[][..], false),
        };
        let is_in = |block: &u32| forest.contains(number, forest.innermost.get(*block as usize).copied().flatten());
        let lands = |block: u32, to: u32| {
            let start = graph.blocks.get(to as usize).map(|to| to.code.start);
            graph.blocks.get(block as usize).is_some_and(|block| start.is_some_and(|start| start != block.code.end))
        };
        let handles = atoms.iter().filter(|atom| atom.ends_block && !decides(graph, atom.block)).any(|atom| {
            let to = graph.successors(atom.block);
            to.len() > 1 && to.iter().any(|&to| is_in(&to) && lands(atom.block, to))
        });
        let leaves = |block: u32| exits.binary_search_by_key(&block, |exit| exit.0).is_ok();
        let tests = |block: &u32| decides(graph, *block) && leaves(*block);
        // The continuation test stands at the top or at the bottom, where also is what counts; others are breaks.
        let mut blocks: Vec<u32> = latches.iter().copied().filter(tests).collect();
        if tests(&header) {
            if blocks.is_empty() {
                blocks.extend(latches);
            }
            blocks.push(header);
        }
        let mut deciding: Vec<u32> = blocks.iter().copied().filter(tests).collect();
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
            source,
            number,
            header,
            latches,
            is_irreducible,
            handles,
            atoms,
            tests,
            test_blocks: blocks,
            deciding,
            within,
        }
    }

    /// The chain of recorded contexts that it lies in; `around` is that of the loop around it.
    fn recorded(&self, around: &[u32]) -> Vec<u32> {
        let mut chain = around.to_vec();
        loop {
            let here = chain.last().copied().unwrap_or(HOST);
            // By the context one further in: bytes of code, HOST those that are in none.
            let next_of = |atom: &Atom| {
                let inner = self.source.chain(atom.context);
                inner.strip_prefix(&chain[..]).and_then(|more| more.first()).copied().unwrap_or(HOST)
            };
            let mut bytes: FxHashMap<u32, u64> = FxHashMap::default();
            for atom in &self.atoms {
                *bytes.entry(next_of(atom)).or_default() += atom.code.end.0 - atom.code.start.0;
            }
            let all: u64 = bytes.values().sum();
            let Some((&most, &its)) =
                bytes.iter().filter(|(next, _)| **next != HOST).max_by_key(|(next, n)| (**n, **next))
            else {
                return chain;
            };
            let tested = self.tests.iter().all(|test| next_of(test) == most);
            let direct = bytes.get(&HOST).copied().unwrap_or(0);
            let is_in = its as f64 >= NEARLY_ALL * all as f64 && tested && (direct == 0 || self.reaches_out(most));
            if !is_in || most == here {
                return chain;
            }
            chain.push(most);
        }
    }

    /// Code of the context lies outside of the loop: not the call is in the loop, but the loop in what was called.
    fn reaches_out(&self, context: u32) -> bool {
        let inside = self.atoms.iter().filter(|atom| self.source.is_within(atom.context, context)).count();
        self.within.get(context as usize).is_some_and(|&all| all > inside)
    }

    /// The chain of inferred contexts.
    fn inferred(&self, around: &[u32]) -> Vec<u32> {
        let has = |context: u32| self.atoms.iter().any(|atom| atom.place.is_some() && atom.context == context);
        if has(HOST) {
            return Vec::new();
        }
        if let Some(shallowest) = around.iter().position(|&context| has(context)) {
            return around[..=shallowest].to_vec();
        }
        let tested = self.tests.iter().find(|test| test.place.is_some()).map(|test| test.context);
        around.iter().copied().chain(tested.filter(|&context| context != HOST)).collect()
    }
}
