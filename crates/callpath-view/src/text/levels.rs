//! Processes and threads as levels of the tree: shown only where there is more than one to tell apart.

use std::collections::HashSet;

use callpath_db::{ProcessCost, Profile, ScopeKind, ViewKind};

use super::options::TextOptions;

/// `options` for `view`, without the levels that tell nothing apart: processes where only one (or those of one name,
/// where these are one) has a cost, threads unless each is asked for. The head says what they cost.
pub(super) fn without_single_levels(profile: &Profile, options: &TextOptions, view: ViewKind) -> TextOptions {
    let mut options = options.clone();
    options.query.view = view;
    options.query.regions_meet &= !options.query.per_thread;
    // Why there are none, the query itself says.
    let processes = profile.processes(&options.query).unwrap_or_default();
    let query = &mut options.query;
    let with_cost = processes.iter().filter(|process| process.cost.iter().any(|cost| *cost > 0));
    let key = |process: &ProcessCost| (process.name, if query.merge_processes { 0 } else { process.id });
    if with_cost.map(key).collect::<HashSet<_>>().len() <= 1 {
        query.fold.push(ScopeKind::Process);
    }
    if !query.per_thread || processes.iter().all(|process| process.threads.len() <= 1) {
        query.fold.push(ScopeKind::Thread);
    }
    options
}
