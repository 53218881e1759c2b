//! The loop nesting forest.
//!
//! Havlak 1997, "Nesting of Reducible and Irreducible Loops": depth-first search, then, from the innermost header out,
//! the blocks from which control comes back to the header are collapsed into it. Here with the change of Ramalingam
//! 1999 ("Identifying Loops in Almost Linear Time"): an edge that is neither of the search's tree nor goes back is
//! looked at once, when the nearest common ancestor of its ends is. Nothing recurses.

use crate::loops::copies::Joined;
use crate::loops::{FlowGraph, Loop, LoopForest};

const NONE: u32 = u32::MAX;

/// The search, in its own numbers: 0 is above all roots, the others follow in the order in which they were met.
struct Search {
    /// The block of each number.
    blocks: Vec<u32>,
    /// The number from which each was met.
    parent: Vec<u32>,
    /// For each, the numbers of those from which an edge goes back to it.
    back: Lists,
    /// For each, the edges between numbers below it, in different branches, that are neither of the tree nor go back.
    across: Lists,
    across_edges: Vec<(u32, u32)>,
}

/// Lists of numbers, for each of so many.
struct Lists {
    first: Vec<u32>,
    /// `(value, next)`
    items: Vec<(u32, u32)>,
}

impl Lists {
    fn new(len: usize) -> Lists {
        Lists { first: vec![NONE; len], items: Vec::new() }
    }

    fn push(&mut self, list: u32, value: u32) {
        let next = std::mem::replace(&mut self.first[list as usize], self.items.len() as u32);
        self.items.push((value, next));
    }

    fn of(&self, list: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.first[list as usize];
        std::iter::from_fn(move || {
            let &(value, next) = self.items.get(at as usize)?;
            at = next;
            Some(value)
        })
    }
}

impl Search {
    fn new(graph: &impl FlowGraph) -> Search {
        let len = graph.len() as usize + 1;
        let mut search = Search {
            blocks: vec![NONE],
            parent: vec![NONE],
            back: Lists::new(len),
            across: Lists::new(len),
            across_edges: Vec::new(),
        };
        let mut numbers = vec![NONE; graph.len() as usize];
        let mut is_on_path = vec![false; len];
        // Numbers on the way to the current one, each with how many of its edges were looked at.
        let mut path: Vec<(u32, usize)> = Vec::new();
        let enter = |search: &mut Search, numbers: &mut [u32], block: u32, parent: u32| {
            let number = search.blocks.len() as u32;
            numbers[block as usize] = number;
            search.blocks.push(block);
            search.parent.push(parent);
            number
        };
        for &root in graph.roots() {
            if numbers.get(root as usize) != Some(&NONE) {
                continue;
            }
            let number = enter(&mut search, &mut numbers, root, 0);
            path.push((number, 0));
            is_on_path[number as usize] = true;
            while let Some((from, next)) = path.last_mut() {
                let from = *from;
                let Some(&to) = graph.successors(search.blocks[from as usize]).get(*next) else {
                    is_on_path[from as usize] = false;
                    path.pop();
                    continue;
                };
                *next += 1;
                let Some(&number) = numbers.get(to as usize) else { continue };
                if number == NONE {
                    let number = enter(&mut search, &mut numbers, to, from);
                    is_on_path[number as usize] = true;
                    path.push((number, 0));
                } else if is_on_path[number as usize] {
                    search.back.push(number, from);
                } else {
                    // The deepest on the way that was met before both.
                    let above = path.partition_point(|&(on_path, _)| on_path <= number.min(from));
                    if let Some(&(ancestor, _)) = above.checked_sub(1).and_then(|above| path.get(above)) {
                        search.across.push(ancestor, search.across_edges.len() as u32);
                        search.across_edges.push((from, number));
                    }
                    // Without one, it comes from code behind another root: that makes no loop, and enters none.
                }
            }
        }
        search
    }
}

/// Sets of numbers that were collapsed: each has a representative, the outermost header so far.
struct Sets(Vec<u32>);

impl Sets {
    fn new(len: usize) -> Sets {
        Sets((0..len as u32).collect())
    }

    fn find(&mut self, mut of: u32) -> u32 {
        while self.0[of as usize] != of {
            let above = self.0[self.0[of as usize] as usize];
            self.0[of as usize] = above;
            of = above;
        }
        of
    }
}

/// How the blocks of a graph nest. Control that comes from other roots than the first enters no loop in a second place:
/// nobody knows where it comes from. Takes time nearly in proportion to the number of edges, of which all copies of a jump have
/// one and its cases together.
pub fn forest(graph: &impl FlowGraph) -> LoopForest {
    let mut forest = match Joined::of(graph) {
        Some(joined) => joined.taken_out(nest(&joined)),
        None => nest(graph),
    };
    forest.derive(graph);
    forest.one_for_each_dispatch(graph)
}

/// The same without what follows from parents and innermost loops, but for where loops end.
fn nest(graph: &impl FlowGraph) -> LoopForest {
    let search = Search::new(graph);
    let len = search.blocks.len();
    // For each number, the header of the innermost loop that it is in and does not head.
    let mut header = vec![0u32; len];
    let mut is_header = vec![false; len];
    let mut is_irreducible = vec![false; len];
    let mut collapsed = Sets::new(len);
    let mut marked = Sets::new(len);
    // Besides the tree's edge.
    let mut predecessors = Lists::new(len);
    // The header that a number was put into the body of last.
    let mut in_body = vec![NONE; len];
    let mut body = Vec::new();
    for number in (1..len as u32).rev() {
        for edge in search.across.of(number) {
            let (from, to) = search.across_edges[edge as usize];
            predecessors.push(collapsed.find(to), collapsed.find(from));
            // Who comes from outside of a loop to another place than its header enters it there.
            let mut inside = header[to as usize];
            while inside != 0 {
                let outer = marked.find(inside);
                is_irreducible[outer as usize] = true;
                inside = header[outer as usize];
                if inside != 0 {
                    marked.0[outer as usize] = inside;
                }
            }
        }
        body.clear();
        for from in search.back.of(number) {
            is_header[number as usize] = true;
            let from = collapsed.find(from);
            if from != number && std::mem::replace(&mut in_body[from as usize], number) != number {
                body.push(from);
            }
        }
        let mut next = 0;
        while let Some(&member) = body.get(next) {
            next += 1;
            let tree = search.parent[member as usize];
            for from in predecessors.of(member).chain([tree]) {
                let from = collapsed.find(from);
                if from != number && std::mem::replace(&mut in_body[from as usize], number) != number {
                    body.push(from);
                }
            }
        }
        for &member in &body {
            header[member as usize] = number;
            collapsed.0[member as usize] = number;
        }
    }
    assemble(graph, &search, &Headers { header, is_header, is_irreducible })
}

/// What the search found, for each block by its number.
struct Headers {
    /// The header of the innermost loop that it is in.
    header: Vec<u32>,
    is_header: Vec<bool>,
    /// Control enters the loop that it heads elsewhere, too.
    is_irreducible: Vec<bool>,
}

/// The loops in order, outer ones before those in them.
fn assemble(graph: &impl FlowGraph, search: &Search, found: &Headers) -> LoopForest {
    let Headers { header, is_header, is_irreducible } = found;
    let mut inner = Lists::new(search.blocks.len());
    for number in (1..search.blocks.len() as u32).filter(|&number| is_header[number as usize]) {
        inner.push(header[number as usize], number);
    }
    let mut forest = LoopForest { loops: Vec::new(), innermost: vec![None; graph.len() as usize] };
    // The loop of each header.
    let mut loop_of = vec![None; search.blocks.len()];
    let mut pending: Vec<u32> = inner.of(0).collect();
    while let Some(number) = pending.pop() {
        let parent = loop_of[header[number as usize] as usize];
        let depth = parent.and_then(|p: u32| forest.loops.get(p as usize)).map_or(0, |parent: &Loop| parent.depth + 1);
        loop_of[number as usize] = Some(forest.loops.len() as u32);
        let block = |number: u32| search.blocks[number as usize];
        let mut back_edges: Vec<u32> = search.back.of(number).map(block).collect();
        back_edges.sort_unstable();
        back_edges.dedup();
        forest.loops.push(Loop {
            header: block(number),
            parent,
            depth,
            end: 0,
            is_irreducible: is_irreducible[number as usize],
            is_dispatch: false,
            own_blocks: Vec::new(),
            back_edges,
            exits: Vec::new(),
        });
        pending.extend(inner.of(number));
    }
    for number in 1..search.blocks.len() {
        let of = if is_header[number] { number } else { header[number] as usize };
        forest.innermost[search.blocks[number] as usize] = loop_of[of];
    }
    forest.find_ends();
    forest
}
