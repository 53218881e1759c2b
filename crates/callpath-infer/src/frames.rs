//! Frames of procedures and of their clones, and the heights that stand on each: what the search for paddings works on.

use std::ops::Range;

use crate::map::PathMap;

/// A procedure that more heights stand on than this is not padded: that shifts nearly all of them alike.
const MOST_BELOW: usize = 1 << 18;
/// The same of all procedures, 8 bytes each.
const MOST_BELOW_ALL: usize = 1 << 25;

/// What has a frame of its own: procedures, and behind them clones of these.
pub(crate) struct Frames {
    /// How many there are.
    pub(crate) count: usize,
    /// By node: of a clone whose frame has to be as large as its procedure's, that.
    pub(crate) of_nodes: Vec<u32>,
    /// By node, what a sample tells of where it was: heights of one are not confused with those of another.
    pub(crate) places: Vec<u32>,
}

impl Frames {
    /// Procedures alone.
    pub(crate) fn of_procedures(map: &PathMap) -> Frames {
        let of_nodes: Vec<u32> = map.nodes.iter().map(|node| node.procedure).collect();
        Frames { count: map.procedures.len(), places: of_nodes.clone(), of_nodes }
    }

    /// That of a node.
    pub(crate) fn of(&self, node: u32) -> u32 {
        self.of_nodes[node as usize]
    }
}

/// By frame, the heights of what its procedure calls, and what that calls.
pub(crate) struct Below {
    firsts: Vec<usize>,
    /// The height's index, and how often the frame is above it.
    pub(crate) heights: Vec<(u32, u32)>,
}

impl Below {
    /// `nodes`: those of all heights, by their indices.
    pub(crate) fn of((map, frames): (&PathMap, &Frames), nodes: &[u32], may_pad: impl Fn(u32) -> bool) -> Below {
        let procedures = Above::of(map);
        let at_nodes = AtNodes::of(map.nodes.len(), nodes);
        let mut counts = vec![0usize; frames.count];
        procedures.each(frames, |node, above| {
            let here = at_nodes.of_node(node).len();
            for procedure in &above.distinct {
                counts[*procedure as usize] += here;
            }
        });
        let (mut firsts, mut all) = (vec![0; counts.len() + 1], 0);
        for (procedure, count) in counts.iter().enumerate() {
            if *count <= MOST_BELOW && all + count <= MOST_BELOW_ALL && may_pad(procedure as u32) {
                all += count;
            }
            firsts[procedure + 1] = all;
        }
        let (mut heights, mut next) = (vec![(0, 0); all], firsts.clone());
        procedures.each(frames, |node, above| {
            for procedure in above.distinct.iter().map(|procedure| *procedure as usize) {
                for at in at_nodes.of_node(node).iter().filter(|_| firsts[procedure] < firsts[procedure + 1]) {
                    heights[next[procedure]] = (*at, above.times[procedure]);
                    next[procedure] += 1;
                }
            }
        });
        // In the order of the lists that they lead to.
        for procedure in 0..counts.len() {
            heights[firsts[procedure]..firsts[procedure + 1]].sort_unstable();
        }
        Below { firsts, heights }
    }

    /// Empty: it may not be padded, calls nothing, or too much is below it.
    pub(crate) fn of_procedure(&self, procedure: u32) -> &[(u32, u32)] {
        &self.heights[self.range(procedure)]
    }

    /// Where those of a frame are in [`Below::heights`].
    pub(crate) fn range(&self, procedure: u32) -> Range<usize> {
        self.firsts[procedure as usize]..self.firsts[procedure as usize + 1]
    }
}

/// By node, the indices of its heights.
struct AtNodes {
    firsts: Vec<usize>,
    heights: Vec<u32>,
}

impl AtNodes {
    fn of(count: usize, nodes: &[u32]) -> AtNodes {
        let mut heights: Vec<u32> = (0..nodes.len() as u32).collect();
        heights.sort_unstable_by_key(|at| (nodes[*at as usize], *at));
        let first = |node| heights.partition_point(|at| (nodes[*at as usize] as usize) < node);
        AtNodes { firsts: (0..=count).map(first).collect(), heights }
    }

    fn of_node(&self, node: u32) -> &[u32] {
        &self.heights[self.firsts[node as usize]..self.firsts[node as usize + 1]]
    }
}

/// The callees of each node, so that all are met with what is above them.
struct Above {
    firsts: Vec<usize>,
    callees: Vec<u32>,
}

/// By frame, whether it was met below itself.
pub(crate) fn recursive(map: &PathMap, frames: &Frames) -> Vec<bool> {
    let mut is_recursive = vec![false; frames.count];
    Above::of(map).each(frames, |node, above| {
        let procedure = frames.of(node) as usize;
        is_recursive[procedure] |= above.times[procedure] > 0;
    });
    is_recursive
}

/// The frames above a node.
struct Stack {
    distinct: Vec<u32>,
    /// By frame.
    times: Vec<u32>,
}

impl Above {
    fn of(map: &PathMap) -> Above {
        let parent = |node: u32| map.nodes[node as usize].parent.map_or(0, |parent| parent as usize + 1);
        let mut callees: Vec<u32> = (0..map.nodes.len() as u32).collect();
        callees.sort_unstable_by_key(|node| (parent(*node), *node));
        let first = |place| callees.partition_point(|node| parent(*node) < place);
        Above { firsts: (0..map.nodes.len() + 2).map(first).collect(), callees }
    }

    /// Each node; in all as much work as they have distinct frames above them, however deep they are.
    fn each(&self, frames: &Frames, mut each: impl FnMut(u32, &Stack)) {
        let mut stack = Stack { distinct: Vec::new(), times: vec![0; frames.count] };
        // Nodes and the next of their callees; the first of all: those that nobody calls.
        let mut open: Vec<(Option<u32>, usize)> = vec![(None, 0)];
        while let Some((node, next)) = open.last_mut() {
            let place = node.map_or(0, |node| node as usize + 1);
            if *next < self.firsts[place + 1] - self.firsts[place] {
                let callee = self.callees[self.firsts[place] + *next];
                *next += 1;
                each(callee, &stack);
                let procedure = frames.of(callee);
                stack.times[procedure as usize] += 1;
                if stack.times[procedure as usize] == 1 {
                    stack.distinct.push(procedure);
                }
                open.push((Some(callee), 0));
                continue;
            }
            if let Some(node) = *node {
                let procedure = frames.of(node);
                stack.times[procedure as usize] -= 1;
                // What came last goes first.
                if stack.times[procedure as usize] == 0 {
                    stack.distinct.pop();
                }
            }
            open.pop();
        }
    }
}
