//! Loops that share a header, told apart.
//! Knows nothing of how anybody knows that they are two.

use crate::loops::{FlowGraph, Loop, LoopForest};

impl LoopForest {
    /// The same forest, where each of some loops is two: the blocks from which control goes back to the header by these back edges,
    /// without passing the header, are a loop in the other. `inner`: a loop and some of its back edges. A loop whose other
    /// back edges would be in it, too, stays as it is.
    pub fn split(mut self, graph: &impl FlowGraph, inner: &[(u32, Vec<u32>)]) -> LoopForest {
        let before = predecessors(graph);
        let mut order: Vec<(u32, bool)> = (0..self.loops.len() as u32).map(|number| (number, false)).collect();
        for (outer, back_edges) in inner {
            let Some(body) = self.body(&before, *outer, back_edges) else { continue };
            let new = self.loops.len() as u32;
            order.push((*outer, true));
            for &block in &body {
                let innermost = &mut self.innermost[block as usize];
                if *innermost == Some(*outer) {
                    *innermost = Some(new);
                }
            }
            let whole = &mut self.loops[*outer as usize];
            let header = whole.header;
            whole.back_edges.retain(|latch| !back_edges.contains(latch));
            self.loops.push(Loop {
                header,
                parent: Some(*outer),
                depth: 0,
                end: 0,
                is_irreducible: false,
                own_blocks: Vec::new(),
                back_edges: back_edges.clone(),
                exits: Vec::new(),
            });
            for number in 0..new as usize {
                let child = &mut self.loops[number];
                if child.parent == Some(*outer) && body.binary_search(&child.header).is_ok() {
                    child.parent = Some(new);
                }
            }
        }
        self.in_order(graph, &order)
    }

    /// The blocks of a loop from which control goes back to the header by some of its back edges, the header among them, ascending;
    /// none if they are all, or its other back edges are among them.
    pub fn body_of(&self, graph: &impl FlowGraph, number: u32, back_edges: &[u32]) -> Option<Vec<u32>> {
        self.body(&predecessors(graph), number, back_edges)
    }

    fn body(&self, before: &[Vec<u32>], number: u32, back_edges: &[u32]) -> Option<Vec<u32>> {
        let whole = self.loops.get(number as usize)?;
        let is_in = |block: u32| {
            let mut inside = self.innermost.get(block as usize).copied().flatten();
            while let Some(at) = inside.filter(|&at| at != number) {
                inside = self.loops.get(at as usize).and_then(|inner| inner.parent);
            }
            inside.is_some()
        };
        let mut body = std::collections::BTreeSet::from([whole.header]);
        let mut pending: Vec<u32> =
            back_edges.iter().copied().filter(|latch| whole.back_edges.contains(latch)).collect();
        while let Some(block) = pending.pop() {
            if is_in(block) && body.insert(block) {
                pending.extend(before.get(block as usize).into_iter().flatten());
            }
        }
        let is_other = |latch: &&u32| !back_edges.contains(latch);
        let others: Vec<&u32> = whole.back_edges.iter().filter(is_other).collect();
        let is_part = !back_edges.is_empty() && !others.is_empty() && others.iter().all(|other| !body.contains(other));
        (is_part && back_edges.len() + others.len() == whole.back_edges.len()).then(|| body.into_iter().collect())
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
    use crate::loops::forest;
    use crate::loops::listed::Graph;

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
        assert_eq!(whole.body_of(&graph, 0, &[2]), Some(vec![1, 2]));
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
