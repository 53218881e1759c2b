//! The loop nesting forest and dominators against other definitions of the same, on thousands of random graphs and on
//! the shapes that are known to be hard.
//!
//! Expected dominators are what remains unreachable when a block is taken away. Expected loops of reducible graphs are
//! the natural loops that dominators give. Of irreducible graphs, Havlak's forest depends on the order of the search;
//! the expected one is found by its definition: strongly connected components, the header taken away, again.

use std::collections::{BTreeMap, BTreeSet};

use callpath_x86::loops::dominators::dominators;
use callpath_x86::loops::{FlowGraph, LoopForest, forest};
use fastrand::Rng;

struct Graph {
    roots: Vec<u32>,
    successors: Vec<Vec<u32>>,
}

impl FlowGraph for Graph {
    fn len(&self) -> u32 {
        self.successors.len() as u32
    }

    fn roots(&self) -> &[u32] {
        &self.roots
    }

    fn successors(&self, block: u32) -> &[u32] {
        &self.successors[block as usize]
    }
}

impl Graph {
    fn new(len: u32, edges: &[(u32, u32)]) -> Graph {
        let mut successors = vec![Vec::new(); len as usize];
        edges.iter().for_each(|&(from, to)| successors[from as usize].push(to));
        Graph { roots: vec![0], successors }
    }

    /// Any edges: most such graphs are irreducible.
    fn random(random: &mut Rng) -> Graph {
        let len = 1 + random.u32(..14);
        let edges: Vec<_> = (0..random.u32(..3 * len + 1)).map(|_| (random.u32(..len), random.u32(..len))).collect();
        Graph::new(len, &edges)
    }

    /// Made by replacing blocks by sequences, branches and loops: always reducible, and deeply nested.
    fn structured(random: &mut Rng) -> Graph {
        let mut graph = Graph { roots: vec![0], successors: vec![Vec::new()] };
        let end = graph.piece(random, 0, 5);
        graph.successors.push(Vec::new());
        let last = graph.successors.len() as u32 - 1;
        graph.successors[end as usize].push(last);
        graph
    }

    fn block(&mut self, after: u32) -> u32 {
        self.successors.push(Vec::new());
        let new = self.successors.len() as u32 - 1;
        self.successors[after as usize].push(new);
        new
    }

    /// Code that begins behind `from`; where it ends.
    fn piece(&mut self, random: &mut Rng, from: u32, depth: u32) -> u32 {
        if depth == 0 {
            return self.block(from);
        }
        match random.u32(..4) {
            0 => {
                let middle = self.piece(random, from, depth - 1);
                self.piece(random, middle, depth - 1)
            }
            1 => {
                let join = self.block(from);
                let end = self.piece(random, from, depth - 1);
                self.successors[end as usize].push(join);
                join
            }
            2 => {
                let head = self.block(from);
                let end = self.piece(random, head, depth - 1);
                self.successors[end as usize].push(head);
                if random.u32(..2) == 0 { end } else { self.block(head) }
            }
            _ => {
                // With a second way back: `continue`.
                let head = self.block(from);
                let middle = self.piece(random, head, depth - 1);
                self.successors[middle as usize].push(head);
                let end = self.piece(random, middle, depth - 1);
                self.successors[end as usize].push(head);
                end
            }
        }
    }

    /// The blocks that are reached without going through `without`.
    fn reached(&self, without: Option<u32>) -> BTreeSet<u32> {
        let mut seen = BTreeSet::new();
        let mut pending = self.roots.clone();
        while let Some(block) = pending.pop() {
            if Some(block) != without && seen.insert(block) {
                pending.extend(&self.successors[block as usize]);
            }
        }
        seen
    }

    /// Numbers in the order of a depth-first search that takes successors as they come.
    fn preorder(&self) -> BTreeMap<u32, u32> {
        fn visit(graph: &Graph, block: u32, numbers: &mut BTreeMap<u32, u32>) {
            let next = numbers.len() as u32;
            if let std::collections::btree_map::Entry::Vacant(entry) = numbers.entry(block) {
                entry.insert(next);
                for &to in &graph.successors[block as usize] {
                    visit(graph, to, numbers);
                }
            }
        }
        let mut numbers = BTreeMap::new();
        self.roots.iter().for_each(|&root| visit(self, root, &mut numbers));
        numbers
    }

    /// The sets of blocks of `within` that lead to each other, edges to `header` left out; those of one block only if
    /// it leads to itself.
    fn components(&self, within: &BTreeSet<u32>, header: Option<u32>) -> Vec<BTreeSet<u32>> {
        let leads_to = |from: u32| {
            let mut seen = BTreeSet::new();
            let mut pending = vec![from];
            while let Some(block) = pending.pop() {
                for &to in &self.successors[block as usize] {
                    if within.contains(&to) && Some(to) != header && seen.insert(to) {
                        pending.push(to);
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<u32, BTreeSet<u32>> = within.iter().map(|&block| (block, leads_to(block))).collect();
        let mut components = BTreeSet::new();
        for &block in within {
            let same: BTreeSet<u32> =
                reached[&block].iter().copied().filter(|other| reached[other].contains(&block)).collect();
            if !same.is_empty() {
                components.insert(same);
            }
        }
        components.into_iter().collect()
    }

    /// Loops by definition: a component's first block in the search is its header; without the ways back to it, what
    /// still goes round is nested. `(header, blocks, has other ways in)`.
    fn nested(&self) -> BTreeSet<(u32, BTreeSet<u32>, bool)> {
        let order = self.preorder();
        let all: BTreeSet<u32> = order.keys().copied().collect();
        let mut loops = BTreeSet::new();
        let mut pending = vec![(all.clone(), None)];
        while let Some((within, without)) = pending.pop() {
            for blocks in self.components(&within, without) {
                let header = *blocks.iter().min_by_key(|block| order[block]).unwrap();
                let is_irreducible = all
                    .iter()
                    .filter(|from| !blocks.contains(from))
                    .any(|&from| self.successors[from as usize].iter().any(|to| *to != header && blocks.contains(to)));
                pending.push((blocks.clone(), Some(header)));
                loops.insert((header, blocks, is_irreducible));
            }
        }
        loops
    }
}

fn found(forest: &LoopForest) -> BTreeSet<(u32, BTreeSet<u32>, bool)> {
    let blocks = |number: u32| forest.blocks(number).into_iter().collect();
    (0u32..).zip(&forest.loops).map(|(number, l)| (l.header, blocks(number), l.is_irreducible)).collect()
}

/// What must hold of a forest whatever the graph.
fn check_consistency(graph: &Graph, forest: &LoopForest) {
    for (number, l) in (0u32..).zip(&forest.loops) {
        let blocks = forest.blocks(number);
        assert!(blocks.contains(&l.header));
        assert_eq!(forest.innermost[l.header as usize], Some(number));
        if let Some(parent) = l.parent {
            assert!(parent < number);
            assert_eq!(l.depth, forest.loops[parent as usize].depth + 1);
            assert!(blocks.iter().all(|block| forest.blocks(parent).contains(block)));
        }
        assert!(l.back_edges.iter().all(|from| graph.successors[*from as usize].contains(&l.header)));
        assert!(l.back_edges.iter().all(|from| blocks.contains(from)));
        let mut exits = Vec::new();
        for &from in &blocks {
            exits
                .extend(graph.successors[from as usize].iter().filter(|to| !blocks.contains(to)).map(|&to| (from, to)));
        }
        exits.sort_unstable();
        exits.dedup();
        assert_eq!(forest.exits(number), exits);
    }
}

#[test]
fn dominators_of_random_graphs() {
    let mut random = Rng::with_seed(0x1234_5678_9abc_def1);
    for round in 0..4000 {
        let graph = if round % 2 == 0 { Graph::random(&mut random) } else { Graph::structured(&mut random) };
        if graph.successors.len() > 40 {
            continue;
        }
        let dominators = dominators(&graph);
        let reached = graph.reached(None);
        for above in 0..graph.len() {
            let without = graph.reached(Some(above));
            for block in 0..graph.len() {
                let expect = reached.contains(&block) && reached.contains(&above) && !without.contains(&block);
                assert_eq!(dominators.dominates(above, block), expect, "round {round}: {above} {block}");
            }
        }
    }
}

#[test]
fn loops_of_reducible_graphs_are_the_natural_ones() {
    let mut random = Rng::with_seed(0x2345_6789_abcd_ef12);
    let mut deepest = 0;
    for round in 0..3000 {
        let graph = Graph::structured(&mut random);
        let dominators = dominators(&graph);
        let mut natural: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut before = vec![Vec::new(); graph.successors.len()];
        for from in 0..graph.len() {
            graph.successors(from).iter().for_each(|&to| before[to as usize].push(from));
        }
        for from in graph.reached(None) {
            for &header in graph.successors(from).iter().filter(|&&to| dominators.dominates(to, from)) {
                let body = natural.entry(header).or_default();
                body.insert(header);
                let mut pending = vec![from];
                while let Some(block) = pending.pop() {
                    if body.insert(block) {
                        pending.extend(&before[block as usize]);
                    }
                }
            }
        }
        let expect: BTreeSet<_> = natural.into_iter().map(|(header, blocks)| (header, blocks, false)).collect();
        let forest = forest(&graph);
        assert_eq!(found(&forest), expect, "round {round}: {:?}", graph.successors);
        check_consistency(&graph, &forest);
        deepest = deepest.max(forest.loops.iter().map(|l| l.depth).max().unwrap_or(0));
    }
    assert!(deepest >= 4, "{deepest}");
}

#[test]
fn loops_of_any_graph_are_those_of_the_definition() {
    let mut random = Rng::with_seed(0x3456_789a_bcde_f123);
    let (mut loops, mut irreducible) = (0, 0);
    for round in 0..6000 {
        let graph = Graph::random(&mut random);
        let forest = forest(&graph);
        assert_eq!(found(&forest), graph.nested(), "round {round}: {:?}", graph.successors);
        check_consistency(&graph, &forest);
        loops += forest.loops.len();
        irreducible += forest.loops.iter().filter(|l| l.is_irreducible).count();
    }
    assert!(loops > 3000 && irreducible > 500, "{irreducible} of {loops} loops are irreducible");
}

/// Two blocks that lead to each other, entered at both: the loop's header is the one that the search comes to first.
#[test]
fn a_loop_with_two_entries() {
    let forest = forest(&Graph::new(3, &[(0, 1), (0, 2), (1, 2), (2, 1)]));
    assert_eq!(found(&forest), BTreeSet::from([(1, BTreeSet::from([1, 2]), true)]));
}

/// An irreducible loop in a reducible one, and a reducible one in that.
#[test]
fn loops_of_both_kinds_nest() {
    // 1 -> (2 <-> 3), 3 goes round by itself through 4; 2 goes back to 1.
    let graph = Graph::new(6, &[(0, 1), (1, 2), (1, 3), (2, 3), (3, 2), (3, 4), (4, 3), (2, 1), (1, 5)]);
    let expect = BTreeSet::from([
        (1, BTreeSet::from([1, 2, 3, 4]), false),
        (2, BTreeSet::from([2, 3, 4]), true),
        (3, BTreeSet::from([3, 4]), false),
    ]);
    assert_eq!(found(&forest(&graph)), expect);
}

/// Code behind another root leads into a loop: it is unknown how control reaches that code, so it is not a second
/// entry.
#[test]
fn other_roots_enter_no_loop() {
    let mut graph = Graph::new(5, &[(0, 1), (1, 2), (2, 1), (2, 3), (4, 2)]);
    graph.roots = vec![0, 4];
    assert_eq!(found(&forest(&graph)), BTreeSet::from([(1, BTreeSet::from([1, 2]), false)]));
}

/// A nest of so many loops takes no stack, and time in proportion.
#[test]
fn a_deep_nest() {
    const DEPTH: u32 = 100_000;
    let mut edges: Vec<_> = (0..2 * DEPTH).map(|block| (block, block + 1)).collect();
    edges.extend((0..DEPTH).map(|header| (2 * DEPTH - header, header)));
    // And out of the innermost.
    edges.push((DEPTH, 2 * DEPTH + 1));
    let forest = forest(&Graph::new(2 * DEPTH + 2, &edges));
    assert_eq!(forest.loops.len(), DEPTH as usize);
    assert_eq!(forest.loops.last().map(|l| l.depth), Some(DEPTH - 1));
    assert_eq!(forest.exits(0).len(), 1);
    // The same, entered everywhere: each of them is irreducible.
    edges.extend((1..DEPTH).map(|inside| (0, 2 * DEPTH - inside)));
    let forest = callpath_x86::loops::forest(&Graph::new(2 * DEPTH + 2, &edges));
    assert!(forest.loops.iter().filter(|l| l.is_irreducible).count() > DEPTH as usize / 2);
}

/// Code that jumps anywhere nests nearly as deep as it is long: who looks at all that is in each loop would take the square of
/// its length. So much is left out that it is a number for each block, and only there.
#[test]
fn code_that_jumps_anywhere_nests_as_deep_as_there_is_room() {
    let mut random = Rng::with_seed(0x4567_89ab_cdef_1234);
    let mut anywhere = |len: u32| {
        let mut edges: Vec<_> = (0..len - 1).map(|block| (block, block + 1)).collect();
        edges.extend((0..len).map(|block| (block, random.u32(..len))));
        Graph::new(len, &edges)
    };
    let graph = anywhere(1_000);
    let (few, too_deep) = forest(&graph).shallow(&graph, |_| 1);
    assert_eq!((&few, too_deep), (&forest(&graph), None));
    let mut visits = Vec::new();
    for len in [10_000, 20_000, 40_000] {
        let graph = anywhere(len);
        let whole = forest(&graph);
        assert!(whole.loops_around_blocks() > len as usize * len as usize / 40, "{}", whole.loops_around_blocks());
        let (shallow, too_deep) = whole.clone().shallow(&graph, |_| 1);
        let too_deep = too_deep.unwrap();
        assert_eq!(shallow.loops.len() + too_deep.left_out, whole.loops.len());
        assert_eq!(shallow.loops.iter().map(|l| l.depth as usize + 1).max(), Some(too_deep.kept));
        assert_eq!(whole.loops.iter().map(|l| l.depth as usize + 1).max(), Some(too_deep.deepest));
        // What is kept is as it was, and each block is in the innermost loop that is.
        let kept: Vec<_> = whole.loops.iter().enumerate().filter(|(_, l)| (l.depth as usize) < too_deep.kept).collect();
        for (here, (number, before)) in shallow.loops.iter().zip(&kept) {
            assert_eq!((here.header, here.depth, &here.back_edges), (before.header, before.depth, &before.back_edges));
            assert_eq!(here.is_irreducible, before.is_irreducible);
            if before.depth % 16 == 0 {
                let here = shallow.loops.iter().position(|l| l.header == before.header).unwrap() as u32;
                assert_eq!(shallow.blocks(here), whole.blocks(*number as u32));
                assert_eq!(shallow.exits(here), whole.exits(*number as u32));
            }
        }
        visits.push(shallow.loops_around_blocks());
    }
    assert!(visits[2] < 3 * visits[1] && visits[1] < 3 * visits[0], "{visits:?}");
}
