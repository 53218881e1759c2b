//! Loops that share a header, told apart.

use crate::loops::copies::Joined;
use crate::loops::{FlowGraph, Loop, LoopForest};

impl LoopForest {
    /// The same forest, where each of some loops is two: the blocks from which control goes back to the header by these back edges,
    /// without passing the header, are a loop in the other. `inner`: a loop and some of its back edges, each loop once. A loop whose
    /// other back edges would be in it, too, stays as it is.
    pub fn split(mut self, graph: &impl FlowGraph, inner: &[(u32, Vec<u32>)]) -> LoopForest {
        let mut bodies = Bodies::new(graph, usize::MAX);
        // What is in which loop is known before any is split.
        let body_of = |(outer, back_edges): &(u32, Vec<u32>)| {
            bodies.find(&self, LoopPart { number: *outer, back_edges }, |_| false)
        };
        let found: Vec<Option<Vec<u32>>> = inner.iter().map(body_of).collect();
        let mut order: Vec<(u32, bool)> = (0..self.loops.len() as u32).map(|number| (number, false)).collect();
        for ((outer, back_edges), body) in inner.iter().zip(found) {
            let Some(body) = body else { continue };
            let new = self.loops.len() as u32;
            order.push((*outer, true));
            for &block in &body {
                let innermost = &mut self.innermost[block as usize];
                if *innermost == Some(*outer) {
                    *innermost = Some(new);
                }
            }
            let whole = &mut self.loops[*outer as usize];
            let (header, end) = (whole.header, whole.end);
            let mut inner = back_edges.clone();
            inner.sort_unstable();
            whole.back_edges.retain(|latch| inner.binary_search(latch).is_err());
            let mut next = *outer + 1;
            while next < end {
                let child = &mut self.loops[next as usize];
                next = child.end.max(next + 1);
                if body.binary_search(&child.header).is_ok() {
                    child.parent = Some(new);
                }
            }
            self.loops.push(Loop {
                header,
                parent: Some(*outer),
                depth: 0,
                end: 0,
                is_irreducible: false,
                is_dispatch: false,
                own_blocks: Vec::new(),
                back_edges: inner,
                exits: Vec::new(),
            });
        }
        self.in_order(graph, &order)
    }

    /// Numbers the loops anew, outer ones just before those in them, at one level as `order` has them, and tells what follows.
    fn in_order(self, graph: &impl FlowGraph, order: &[(u32, bool)]) -> LoopForest {
        let LoopForest { loops, innermost } = self;
        let mut inner: Vec<Vec<u32>> = vec![Vec::new(); loops.len() + 1];
        for number in 0..loops.len() as u32 {
            let parent = loops[number as usize].parent.map_or(loops.len(), |parent| parent as usize);
            inner[parent].push(number);
        }
        for children in &mut inner {
            children.sort_by_key(|&child| order.get(child as usize).copied());
        }
        let mut numbers: Vec<u32> = vec![0; loops.len()];
        let mut sorted: Vec<Loop> = Vec::with_capacity(loops.len());
        let mut pending: Vec<u32> = inner[loops.len()].iter().rev().copied().collect();
        while let Some(number) = pending.pop() {
            numbers[number as usize] = sorted.len() as u32;
            let known = &loops[number as usize];
            // A parent was numbered before.
            let parent = known.parent.map(|parent| numbers[parent as usize]);
            let depth = parent.and_then(|parent| sorted.get(parent as usize)).map_or(0, |parent| parent.depth + 1);
            let own = Loop { parent, depth, end: 0, own_blocks: Vec::new(), exits: Vec::new(), ..known.clone() };
            sorted.push(own);
            pending.extend(inner[number as usize].iter().rev());
        }
        let innermost = innermost.into_iter().map(|inner| inner.map(|inner| numbers[inner as usize])).collect();
        let mut forest = LoopForest { loops: sorted, innermost };
        forest.derive(graph);
        forest
    }
}

/// Some of a loop's back edges.
#[derive(Clone, Copy, Debug)]
pub struct LoopPart<'e> {
    /// The loop, by its index in the forest.
    pub number: u32,
    /// The blocks that they come from.
    pub back_edges: &'e [u32],
}

/// Finds the blocks of a loop from which control goes back to its header by some of its back edges.
pub struct Bodies {
    /// For each block, and behind the blocks for each copied jump, what leads to it.
    before: Vec<Vec<u32>>,
    len: u32,
    /// The last search that came to each.
    seen: Vec<u32>,
    searches: u32,
    left: usize,
}

impl Bodies {
    /// At most `steps` blocks and edges are looked at, by all searches together.
    pub fn new(graph: &impl FlowGraph, steps: usize) -> Bodies {
        let before = match Joined::of(graph) {
            Some(joined) => predecessors(&joined),
            None => predecessors(graph),
        };
        Bodies { seen: vec![0; before.len()], before, len: graph.len(), searches: 0, left: steps }
    }

    /// Takes steps for what else is looked at; nothing if there are not so many.
    pub fn spend(&mut self, steps: usize) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }

    /// The search comes here for the first time.
    fn enter(&mut self, block: u32) -> bool {
        let seen = self.seen.get_mut(block as usize);
        seen.is_some_and(|seen| std::mem::replace(seen, self.searches) != self.searches)
    }

    /// The blocks of a loop from which control goes back to the header by some of its back edges, the header among them, ascending;
    /// none if they are all, if its other back edges or what `is_out` says are among them, or if no steps are left.
    pub fn find(&mut self, forest: &LoopForest, part: LoopPart<'_>, is_out: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
        let LoopPart { number, back_edges } = part;
        let whole = forest.loops.get(number as usize)?;
        let is_known = |latch: &u32| whole.back_edges.binary_search(latch).is_ok();
        if back_edges.is_empty() || whole.back_edges.len() <= back_edges.len() || !back_edges.iter().all(is_known) {
            return None;
        }
        let mut inner = back_edges.to_vec();
        inner.sort_unstable();
        let is_other = |latch: &u32| is_known(latch) && inner.binary_search(latch).is_err();
        self.searches += 1;
        self.enter(whole.header);
        let mut body = vec![whole.header];
        if is_out(whole.header) || is_other(&whole.header) {
            return None;
        }
        let mut pending = inner.clone();
        while let Some(block) = pending.pop() {
            self.spend(1)?;
            if block < self.len && !forest.contains(number, forest.inner_of(block)) || !self.enter(block) {
                continue;
            }
            if block < self.len {
                if is_other(&block) || is_out(block) {
                    return None;
                }
                body.push(block);
            }
            self.spend(self.before.get(block as usize).map_or(0, Vec::len))?;
            pending.extend(self.before.get(block as usize).into_iter().flatten());
        }
        body.sort_unstable();
        Some(body)
    }
}

fn predecessors(graph: &impl FlowGraph) -> Vec<Vec<u32>> {
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); graph.len() as usize];
    for block in 0..graph.len() {
        for &to in graph.successors(block) {
            if let Some(before) = before.get_mut(to as usize) {
                before.push(block);
            }
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use crate::loops::listed::Graph;
    use crate::loops::{Bodies, LoopPart, forest};

    /// ```text
    /// 0 -> 1 -> 2 -> 1, 2 -> 2; 1 -> 3 -> 4 -> 1, 4 -> 5
    /// ```
    fn shared() -> Graph {
        Graph(vec![vec![1], vec![2, 3], vec![1, 2], vec![4], vec![1, 5], vec![]])
    }

    #[test]
    fn loops_with_one_header_are_told_apart() {
        let graph = shared();
        let whole = forest(&graph);
        assert_eq!(whole.loops.len(), 2);
        let body =
            |steps: usize| Bodies::new(&graph, steps).find(&whole, LoopPart { number: 0, back_edges: &[2] }, |_| false);
        assert_eq!((body(100), body(1)), (Some(vec![1, 2]), None));
        assert_eq!(
            Bodies::new(&graph, 100).find(&whole, LoopPart { number: 0, back_edges: &[2] }, |block| block == 2),
            None
        );
        let split = whole.split(&graph, &[(0, vec![2])]);
        let shapes: Vec<_> = split.loops.iter().map(|l| (l.header, l.parent, l.depth, l.end)).collect();
        assert_eq!(shapes, [(1, None, 0, 3), (1, Some(0), 1, 3), (2, Some(1), 2, 3)]);
        assert_eq!(split.innermost, [None, Some(1), Some(2), Some(0), Some(0), None]);
        assert_eq!((&*split.loops[0].back_edges, &*split.loops[1].back_edges), (&[4][..], &[2][..]));
        assert_eq!((&*split.loops[0].own_blocks, &*split.loops[1].own_blocks), (&[3, 4][..], &[1][..]));
        assert_eq!((split.exits(0), split.exits(1)), (vec![(4, 5)], vec![(1, 3)]));
    }

    #[test]
    fn what_is_no_part_stays() {
        let graph = shared();
        // All back edges; none of the loop's; and of one whose other back edge is on the way back, too.
        for back_edges in [vec![2, 4], vec![3], vec![]] {
            let whole = forest(&graph);
            assert_eq!(whole.clone().split(&graph, &[(0, back_edges)]), whole);
        }
        let graph = Graph(vec![vec![1], vec![2], vec![1, 3], vec![1]]);
        let whole = forest(&graph);
        assert_eq!(whole.loops[0].back_edges, [2, 3]);
        assert_eq!(whole.clone().split(&graph, &[(0, vec![3])]), whole);
    }
}
