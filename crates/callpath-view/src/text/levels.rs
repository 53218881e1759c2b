//! Processes and threads as levels of the tree: shown only where there is more than one to tell apart.

use std::collections::{HashMap, HashSet};

use callpath_db::{NodeId, Profile, ScopeKind, ViewKind};

use super::options::TextOptions;

/// `options` for `view`, with the levels folded that have a single entry.
pub(super) fn without_single_levels(profile: &Profile, options: &TextOptions, view: ViewKind) -> TextOptions {
    let mut options = options.clone();
    options.query.view = view;
    let query = &mut options.query;
    let (processes, threads) = count(profile, query.per_thread);
    let one_process = processes <= 1 || query.process.is_some();
    let one_thread = threads <= 1 || (query.thread.is_some() && !query.per_thread);
    if one_process {
        query.fold.push(ScopeKind::Process);
    }
    if one_thread {
        query.fold.push(ScopeKind::Thread);
    }
    options
}

/// Processes, and the greatest number of different threads in one of them: different in name, or with `apart`, in id.
fn count(profile: &Profile, apart: bool) -> (usize, usize) {
    let tree = &profile.tree;
    let mut processes = 0;
    let mut threads: HashMap<NodeId, HashSet<_>> = HashMap::new();
    for node in tree.nodes() {
        let scope = tree.scope(node);
        match scope.kind {
            ScopeKind::Process => processes += 1,
            ScopeKind::Thread => {
                let above = tree.parent(node).unwrap_or(NodeId::ROOT);
                let id = if apart { scope.discriminator } else { 0 };
                threads.entry(above).or_default().insert((scope.name, id));
            }
            _ => {}
        }
    }
    (processes, threads.values().map(HashSet::len).max().unwrap_or(0))
}
