//! Parallel regions: what an OpenMP or TBB runtime's workers execute stands below the context that started it.
//!
//! A runtime runs a region's procedure on the thread that meets the region and on workers. The worker's path is
//! `clone3 > start_thread > (frames of the runtime) > region`, the other `main > ... > (frames of the runtime) > region`.
//! Which context a worker works for is not on its stack. So a region moves only where a single context calls it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::reshape::Counted;
use crate::rows::Moves;
use crate::{Name, NodeId, Scope, ScopeKind, Strings, Tree};

/// How the names of modules begin whose workers execute regions of another module.
const RUNTIME_MODULES: [&str; 4] = ["libgomp.", "libomp.", "libiomp5.", "libtbb."];

/// How their procedures begin, for those that are part of the program itself.
const RUNTIME_PROCEDURES: [&str; 4] = ["gomp_", "GOMP_", "__kmp_", "__kmpc_"];

/// How modules begin, and what procedures are called, that a thread begins in.
const START_MODULES: [&str; 6] = ["libc.so", "libc-2", "libpthread", "ld-linux", "ld-musl", "libc.musl"];
const START_PROCEDURES: [&str; 5] = ["clone", "clone3", "__clone", "__clone3", "start_thread"];

/// What a frame is to a thread that executes regions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Where threads begin.
    Start,
    /// The runtime, by its module.
    Runtime(Option<Name>),
    Program,
}

fn part(scope: &Scope, strings: &Strings) -> Part {
    let module = scope.module.map_or("", |module| strings.get(module));
    let name = strings.get(scope.name);
    let begins = |text: &str, with: &[&str]| with.iter().any(|with| text.starts_with(with));
    if begins(module, &RUNTIME_MODULES) || begins(name, &RUNTIME_PROCEDURES) {
        Part::Runtime(scope.module)
    } else if begins(module, &START_MODULES) || START_PROCEDURES.contains(&name) {
        Part::Start
    } else {
        Part::Program
    }
}

/// Whether a runtime of this kind executes anything in `tree`.
pub(super) fn are_there(tree: &Tree, strings: &Strings) -> bool {
    are_among(tree.nodes().map(|node| tree.scope(node)), strings)
}

/// The same of a tree's scopes.
pub(crate) fn are_among<'s>(scopes: impl Iterator<Item = &'s Scope>, strings: &Strings) -> bool {
    let procedures = scopes.filter(|scope| scope.kind == ScopeKind::Procedure);
    let mut modules_and_names: FxHashSet<(Option<Name>, Name)> = FxHashSet::default();
    let new = procedures.filter(|scope| modules_and_names.insert((scope.module, scope.name)));
    new.map(|scope| part(scope, strings)).any(|part| matches!(part, Part::Runtime(_)))
}

/// What is known of a node from the path to it.
#[derive(Clone, Copy)]
struct Above {
    /// The node of the process or, where that is folded, the root.
    process: NodeId,
    /// The innermost procedure.
    innermost: Part,
    /// Whether it is a worker's path so far: where threads begin, then the runtime.
    is_workers: bool,
    /// Whether the outer end of the path is not known.
    is_partial: bool,
}

/// A region as one runtime calls it in one process: the numbers of these.
type Region = (NodeId, Option<Name>, NodeId);

/// What became of the regions that workers executed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Regions {
    /// Whether any stands where it is called from.
    pub met: bool,
    /// What workers spent, by metric 0, in regions that several contexts call: it stands where they executed it.
    pub several_callers: u64,
}

/// `asked` with regions that workers execute where they are called from; it has no threads.
pub(super) fn meet(mut asked: Counted, strings: &Strings) -> Counted {
    // A region in a region has one context once the outer one has.
    loop {
        let (moves, several_callers) = to_move(&asked.tree, strings);
        if moves.is_empty() {
            asked.regions.several_callers = cost_of(&asked.tree, &several_callers);
            return asked;
        }
        asked = moved(&asked, &moves);
    }
}

/// What nodes cost with all below, by metric 0, each cost once.
fn cost_of(tree: &Tree, nodes: &[NodeId]) -> u64 {
    let Some(rule) = tree.own().rules().next() else { return 0 };
    let mut is_inside = vec![false; tree.len()];
    nodes.iter().for_each(|node| is_inside[node.index()] = true);
    let mut cost = 0;
    for node in tree.nodes() {
        is_inside[node.index()] |= tree.parent(node).is_some_and(|parent| is_inside[parent.index()]);
        if is_inside[node.index()] {
            cost = rule.combine(cost, tree.values(node).get(0));
        }
    }
    cost
}

/// For each region of a worker the node that it becomes one with. One that is itself below what moves waits for the next
/// time. Besides, the regions of workers that several contexts call.
fn to_move(tree: &Tree, strings: &Strings) -> (FxHashMap<NodeId, NodeId>, Vec<NodeId>) {
    let mut procedures = Tree::with_rules(Vec::new());
    // By region, where workers execute it, and where else it is called.
    let mut regions: FxHashMap<Region, (Vec<NodeId>, Vec<NodeId>)> = FxHashMap::default();
    let mut paths: Vec<Above> = Vec::with_capacity(tree.len());
    for node in tree.nodes() {
        let scope = tree.scope(node);
        let Some(parent) = tree.parent(node) else {
            paths.push(Above { process: node, innermost: Part::Start, is_workers: true, is_partial: false });
            continue;
        };
        let above = paths[parent.index()];
        paths.push(match scope.kind {
            ScopeKind::Rank | ScopeKind::Process => Above { process: node, ..above },
            ScopeKind::Procedure => {
                let here = part(scope, strings);
                if let (Part::Program, Part::Runtime(runtime)) = (here, above.innermost)
                    && !above.is_partial
                {
                    let procedure = procedures.child(NodeId::ROOT, Scope { call_site: None, ..*scope });
                    let (workers, callers) = regions.entry((above.process, runtime, procedure)).or_default();
                    if above.is_workers { workers.push(node) } else { callers.push(node) }
                }
                let is_workers = above.is_workers
                    && match here {
                        Part::Start => above.innermost == Part::Start,
                        Part::Runtime(_) => above.innermost == Part::Start || above.innermost == here,
                        Part::Program => false,
                    };
                Above { innermost: here, is_workers, ..above }
            }
            ScopeKind::Partial | ScopeKind::Truncated => Above { is_partial: true, ..above },
            _ => above,
        });
    }
    let mut moves: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    let mut several_callers = Vec::new();
    for (workers, callers) in regions.into_values() {
        match callers[..] {
            [] => {}
            [caller] => moves.extend(workers.into_iter().map(|worker| (worker, caller))),
            _ => several_callers.extend(workers),
        }
    }
    let from: Vec<NodeId> = moves.keys().copied().collect();
    let is_below_moved = |node: NodeId| {
        std::iter::successors(Some(node), |&node| tree.parent(node)).any(|node| moves.contains_key(&node))
    };
    let waiting: Vec<NodeId> = from.into_iter().filter(|worker| is_below_moved(moves[worker])).collect();
    for worker in waiting {
        moves.remove(&worker);
    }
    (moves, several_callers)
}

/// `from` with some nodes, and all below them, become one with others. What has no cost left is left out.
fn moved(from: &Counted, moves: &FxHashMap<NodeId, NodeId>) -> Counted {
    let tree = &from.tree;
    let parent = |node: NodeId| tree.parent(node).unwrap_or(NodeId::ROOT);
    let mut goes = vec![false; tree.len()];
    for node in tree.nodes().skip(1) {
        goes[node.index()] = goes[parent(node).index()] || moves.contains_key(&node);
    }
    // Whether there is a cost in a node, or below it one that does not move. What something becomes one with has one.
    let mut remains = tree.own().occupied();
    moves.values().for_each(|caller| remains[caller.index()] = true);
    for node in tree.nodes().rev().filter(|node| !moves.contains_key(node)) {
        remains[parent(node).index()] |= remains[node.index()];
    }
    let (later, first): (Vec<NodeId>, Vec<NodeId>) = tree.nodes().skip(1).partition(|node| goes[node.index()]);
    let mut to = Counted::new(tree);
    let mut here = vec![NodeId::ROOT; tree.len()];
    let mut places: Moves = vec![(0, 0)];
    // Parents come before their children, and what stays before what moves there.
    for node in first.into_iter().filter(|node| remains[node.index()]).chain(later) {
        let place = match moves.get(&node) {
            Some(caller) => here[caller.index()],
            None => to.place(here[parent(node).index()], *tree.scope(node)),
        };
        here[node.index()] = place;
        to.contexts[place.index()] += from.contexts[node.index()];
        to.recursion[place.index()] = to.recursion[place.index()].max(from.recursion[node.index()]);
        places.push((node.index() as u32, place.index() as u32));
    }
    to.tree.take(tree.own(), &places);
    to.places = from.places.iter().map(|place| here[place.index()]).collect();
    to.regions.met = true;
    to
}
