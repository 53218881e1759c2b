//! How often control passed from block to block, from how often it took each path.
//!
//! On a path, a block is followed by the next one. Where a path ends at a back edge, its number does not say which one it was: it is
//! one that is on no path, and leads to where other paths begin. Usually there is one only.

use std::collections::{BTreeMap, BTreeSet};

use callpath_schema::Bounds;

use super::ExactProcedure;

/// How often control passed from one block to another, or out of the procedure.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExactEdge {
    /// The block that it comes from, by its index.
    pub from: u32,
    /// The block that it leads to. Several: to these together. None: out of the procedure, or control does not continue.
    pub to: Vec<u32>,
    /// Whether paths end there to begin anew: a back edge, or one at which the graph was cut. Of counted edges, a back edge.
    pub is_back: bool,
    /// How often.
    pub executions: Bounds,
}

impl ExactProcedure {
    /// The edges that were passed, by block and target.
    pub fn edges(&self) -> Vec<ExactEdge> {
        if let Some(flow) = &self.flow {
            return flow.edges.clone();
        }
        let mut inner: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut ends: BTreeMap<(u32, bool), u64> = BTreeMap::new();
        let mut heads: BTreeSet<u32> = BTreeSet::new();
        for path in &self.paths {
            let add = |sum: &mut u64| *sum = sum.saturating_add(path.executions);
            path.blocks.windows(2).for_each(|pair| add(inner.entry((pair[0], pair[1])).or_default()));
            if let Some(&last) = path.blocks.last() {
                add(ends.entry((last, path.category.is_to_exit())).or_default());
            }
            heads.extend(path.blocks.first().filter(|_| !path.category.is_from_entry()));
        }
        let back = |from: u32| {
            let successors = self.blocks.get(from as usize).map_or(&[][..], |block| &block.successors);
            let at = |address: &u64| self.blocks.binary_search_by_key(address, |block| block.code.start).ok();
            let targets: Vec<u32> = successors.iter().filter_map(at).map(|block| block as u32).collect();
            let not_inner = targets.into_iter().filter(|to| !inner.contains_key(&(from, *to)) && heads.contains(to));
            not_inner.collect::<Vec<u32>>()
        };
        let of_inner = inner.iter().map(|(&(from, to), &executions)| ExactEdge {
            from,
            to: vec![to],
            is_back: false,
            executions: Bounds::exactly(executions),
        });
        let of_ends = ends.iter().map(|(&(from, is_exit), &executions)| ExactEdge {
            from,
            to: if is_exit { Vec::new() } else { back(from) },
            is_back: !is_exit,
            executions: Bounds::exactly(executions),
        });
        let mut edges: Vec<ExactEdge> = of_inner.chain(of_ends).collect();
        edges.sort();
        edges
    }
}
