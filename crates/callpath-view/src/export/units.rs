//! The processes and threads of a tree: which nodes belong to which.

use callpath_db::ScopeKind;

use super::exported::Exported;
use crate::text::printable;

/// A thread; or a process, or the whole, for what stands below it and in no thread.
pub(super) struct Unit {
    /// Its node.
    pub(super) node: usize,
    /// The process's name, and its id or 0.
    pub(super) process: (String, u64),
    /// The thread's name, and its id or 0; none where it is no thread.
    pub(super) thread: Option<(String, u64)>,
    /// What it costs, all its nodes together.
    pub(super) cost: u64,
}

/// The units of a tree.
pub(super) struct Units {
    /// In preorder; those without a cost, too.
    pub(super) list: Vec<Unit>,
    /// For each node, the unit it belongs to.
    of: Vec<u32>,
}

impl Units {
    pub(super) fn new(source: &Exported<'_>) -> Units {
        let nodes = &source.view.nodes;
        let mut units = Units { list: Vec::new(), of: Vec::with_capacity(nodes.len()) };
        for (node, shown) in nodes.iter().enumerate() {
            let above = shown.parent.map(|parent| units.of[parent]);
            let scope = &shown.scope;
            let name = |node: usize| match source.kind(node) {
                ScopeKind::Root => printable(&source.view.name(node, source.profile)),
                _ => printable(source.profile.strings.get(nodes[node].scope.name)),
            };
            let process = || match above {
                Some(above) => units.list[above as usize].process.clone(),
                None => (name(0), 0),
            };
            let (process, thread) = match (scope.kind, above) {
                (ScopeKind::Process, _) => ((name(node), scope.unit_id()), None),
                (ScopeKind::Thread, _) => (process(), Some((name(node), scope.unit_id()))),
                (ScopeKind::Rank, _) | (_, None) => (process(), None),
                (_, Some(above)) => {
                    units.list[above as usize].cost += source.exclusive(node);
                    units.of.push(above);
                    continue;
                }
            };
            units.of.push(units.list.len() as u32);
            units.list.push(Unit { node, process, thread, cost: source.exclusive(node) });
        }
        units
    }

    /// The unit that a node belongs to.
    pub(super) fn of(&self, node: usize) -> usize {
        self.of[node] as usize
    }

    /// The nodes of one unit in preorder, its own first.
    pub(super) fn nodes<'a>(&'a self, source: &Exported<'_>, unit: usize) -> impl Iterator<Item = usize> + use<'a> {
        let below = source.view.subtree(self.list[unit].node);
        below.filter(move |node| self.of[*node] as usize == unit)
    }
}
