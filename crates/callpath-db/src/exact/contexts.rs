//! The calling contexts whose calls were counted exactly, as a tree, and its shape: Table 3 of Ammons, Ball and Larus 1997.

use rustc_hash::{FxHashMap, FxHashSet};

use super::ExactQuality;
use crate::RunInfo;

/// A procedure of the tree.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ContextProcedure {
    /// Its name.
    pub name: String,
    /// The file of its module.
    pub module: String,
    /// Its first instruction, as the file counts.
    pub address: u64,
    /// How many call sites its code has. `None`: the code cannot be read.
    pub sites: Option<u32>,
}

/// What a node takes where contexts are kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeBytes {
    /// Without slots, bytes.
    pub node: u64,
    /// Each slot, bytes: it leads to the callees of a call site.
    pub slot: u64,
}

impl NodeBytes {
    fn of(self, slots: u64) -> u64 {
        self.node.saturating_add(self.slot.saturating_mul(slots))
    }
}

/// Where a context was called from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalledFrom {
    /// The context that called it: its number.
    pub caller: u32,
    /// The call site, an address in the caller's code. `None`: it is none, as where a signal has interrupted the caller.
    pub site: Option<u64>,
}

/// A procedure, as it was called from one place of one context.
#[derive(Clone, Copy, Debug)]
struct CountedContext {
    procedure: u32,
    from: Option<CalledFrom>,
    calls: u64,
}

/// The calling context tree of a run, all its processes and threads together, call sites apart.
#[derive(Clone, Default, Debug)]
pub struct ContextTree {
    /// What ran.
    pub info: RunInfo,
    /// What a node takes in the program's memory.
    pub node_bytes: NodeBytes,
    /// How it was counted.
    pub quality: ExactQuality,
    /// What else a reader should know, a sentence each.
    pub notes: Vec<String>,
    procedures: Vec<ContextProcedure>,
    /// Callers before callees.
    contexts: Vec<CountedContext>,
    /// If paths were counted in contexts: by context and call site, how many executed paths of the procedure lead there in this context.
    paths_to: Option<FxHashMap<(u32, u64), u64>>,
}

/// How many contexts a procedure has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replication {
    /// The procedure: its number.
    pub procedure: u32,
    /// How many contexts it was called in.
    pub contexts: u64,
    /// How often it was called in all of them.
    pub calls: u64,
}

/// Call sites that one path led to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OnePath {
    /// Used sites that exactly one executed path of the procedure leads to in that context.
    pub sites: u64,
    /// Used sites of which that is not known: no path that was ended leads there, or none was counted in that context.
    pub unknown: u64,
}

/// A tree's size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TreeSize {
    /// Nodes.
    pub contexts: u64,
    /// What they take, bytes.
    pub bytes: u64,
}

/// The shape of a [`ContextTree`]. Its nodes are contexts that were counted. Code between them that is not counted is no node: the nearest
/// counted context outside is the parent. What stands above the outermost contexts is no node, either.
#[derive(Clone, PartialEq, Debug)]
pub struct ContextShape {
    /// The tree, call sites apart.
    pub size: TreeSize,
    /// The same if contexts that differ only in the call site within the same caller are one. A node then has one slot for all
    /// call sites of its procedure, if there are any.
    pub sites_together: TreeSize,
    /// How often procedures were called in all contexts.
    pub calls: u64,
    /// Nodes that have children.
    pub inner: u64,
    /// Nodes that are somebody's child.
    pub children: u64,
    /// The heights of all leaves, added up. That of a node: nodes from the outermost one to it, both counted.
    pub leaf_heights: u64,
    /// The greatest height.
    pub max_height: u64,
    /// Call sites of the procedures of all contexts, each context with those of its procedure.
    pub sites: u64,
    /// Those of them that a counted context was called from, or code that is not counted and led to one.
    pub used_sites: u64,
    /// Those of them that one path led to. `None`: paths were not counted in contexts.
    pub one_path: Option<OnePath>,
    /// Contexts of procedures whose call sites are not known; they are not in `sites`, and have no slots.
    pub without_sites: u64,
    /// Contexts that code called which is not counted.
    pub gaps: u64,
    /// Procedures with contexts, the one with most of them first.
    pub procedures: Vec<Replication>,
}

impl ContextShape {
    /// Nodes that have no children.
    pub fn leaves(&self) -> u64 {
        self.size.contexts.saturating_sub(self.inner)
    }

    /// What a node takes, bytes. `None`: there are none.
    pub fn mean_node_bytes(&self) -> Option<f64> {
        mean(self.size.bytes, self.size.contexts)
    }

    /// How many children an inner node has. `None`: there are none.
    pub fn mean_out_degree(&self) -> Option<f64> {
        mean(self.children, self.inner)
    }

    /// The height of a leaf. `None`: there are none.
    pub fn mean_height(&self) -> Option<f64> {
        mean(self.leaf_heights, self.leaves())
    }
}

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

impl ContextTree {
    /// An empty one.
    pub fn new(info: RunInfo, node_bytes: NodeBytes) -> ContextTree {
        ContextTree { info, node_bytes, ..ContextTree::default() }
    }

    /// Adds a procedure. Returns its number.
    pub fn enter_procedure(&mut self, procedure: ContextProcedure) -> u32 {
        self.procedures.push(procedure);
        self.procedures.len() as u32 - 1
    }

    /// Adds a context of a procedure that is there, called from a context that is there; `None`: it is an outermost one. Returns its number.
    pub fn enter(&mut self, procedure: u32, from: Option<CalledFrom>) -> u32 {
        let next = self.contexts.len() as u32;
        assert!(from.is_none_or(|from| from.caller < next), "callers come before callees");
        self.contexts.push(CountedContext { procedure, from, calls: 0 });
        next
    }

    /// Says that the procedure was called in a context that is there.
    pub fn add_calls(&mut self, context: u32, calls: u64) {
        if let Some(context) = self.contexts.get_mut(context as usize) {
            context.calls = context.calls.saturating_add(calls);
        }
    }

    /// Says that paths were counted in contexts. What is not said of a call site ([`ContextTree::say_paths_to`]) then is not known.
    pub fn count_paths(&mut self) {
        self.paths_to.get_or_insert_default();
    }

    /// Says how many executed paths lead to a call site in a context.
    pub fn say_paths_to(&mut self, context: u32, site: u64, paths: u64) {
        self.paths_to.get_or_insert_default().insert((context, site), paths);
    }

    /// The call sites that contexts were called from, each in its context.
    pub fn called_sites(&self) -> impl Iterator<Item = (u32, u64)> {
        self.contexts.iter().filter_map(|context| context.from).filter_map(|from| Some((from.caller, from.site?)))
    }

    /// A procedure by its number.
    pub fn procedure(&self, number: u32) -> Option<&ContextProcedure> {
        self.procedures.get(number as usize)
    }

    /// Its shape.
    pub fn shape(&self) -> ContextShape {
        let (is_inner, heights, gaps) = self.heights();
        let counted = || self.contexts.iter().enumerate().filter(|(_, context)| context.calls > 0);
        let used_sites = self.used_sites();
        let mut shape = ContextShape {
            size: TreeSize::default(),
            sites_together: self.folded(),
            calls: 0,
            inner: 0,
            children: 0,
            leaf_heights: 0,
            max_height: 0,
            sites: 0,
            used_sites: used_sites.len() as u64,
            one_path: self.one_path(&used_sites),
            without_sites: 0,
            gaps,
            procedures: Vec::new(),
        };
        let mut replications: FxHashMap<u32, Replication> = FxHashMap::default();
        for (at, context) in counted() {
            let sites = self.sites(context);
            shape.size.contexts += 1;
            shape.size.bytes = shape.size.bytes.saturating_add(self.node_bytes.of(sites.unwrap_or(0)));
            shape.calls = shape.calls.saturating_add(context.calls);
            shape.sites += sites.unwrap_or(0);
            shape.without_sites += u64::from(sites.is_none());
            shape.inner += u64::from(is_inner[at]);
            shape.children += u64::from(heights[at] > 1);
            shape.max_height = shape.max_height.max(heights[at]);
            if !is_inner[at] {
                shape.leaf_heights = shape.leaf_heights.saturating_add(heights[at]);
            }
            let procedure = context.procedure;
            let its = replications.entry(procedure).or_insert(Replication { procedure, contexts: 0, calls: 0 });
            its.contexts += 1;
            its.calls = its.calls.saturating_add(context.calls);
        }
        shape.procedures = replications.into_values().collect();
        shape.procedures.sort_unstable_by_key(|its| {
            let falling = (std::cmp::Reverse(its.contexts), std::cmp::Reverse(its.calls));
            let place = self.procedure(its.procedure).map(|procedure| (&procedure.module, procedure.address));
            (falling, place, its.procedure)
        });
        shape
    }

    fn sites(&self, context: &CountedContext) -> Option<u64> {
        self.procedure(context.procedure)?.sites.map(u64::from)
    }

    fn caller(&self, context: &CountedContext) -> Option<(usize, &CountedContext)> {
        let caller = context.from?.caller as usize;
        self.contexts.get(caller).map(|context| (caller, context))
    }

    /// By context: whether it has a counted one below it; how many counted ones lead to it, itself with them. And how many counted ones
    /// code calls that is not counted.
    fn heights(&self) -> (Vec<bool>, Vec<u64>, u64) {
        let mut is_inner = vec![false; self.contexts.len()];
        let mut heights = vec![0u64; self.contexts.len()];
        // The nearest counted context: itself, or one outside of it.
        let mut nearest: Vec<Option<usize>> = vec![None; self.contexts.len()];
        let mut gaps = 0;
        for (at, context) in self.contexts.iter().enumerate() {
            let outside = self.caller(context).and_then(|(caller, _)| nearest[caller]);
            heights[at] = outside.map_or(0, |outside| heights[outside]);
            nearest[at] = outside;
            if context.calls > 0 {
                heights[at] += 1;
                nearest[at] = Some(at);
                gaps += u64::from(self.caller(context).is_some_and(|(_, caller)| caller.calls == 0));
                if let Some(outside) = outside {
                    is_inner[outside] = true;
                }
            }
        }
        (is_inner, heights, gaps)
    }

    /// By context: whether it is counted, or one below it is.
    fn leads_to_counted(&self) -> Vec<bool> {
        let mut leads: Vec<bool> = self.contexts.iter().map(|context| context.calls > 0).collect();
        for (at, context) in self.contexts.iter().enumerate().rev() {
            if let Some((caller, _)) = self.caller(context).filter(|_| leads[at]) {
                leads[caller] = true;
            }
        }
        leads
    }

    /// Each with its context.
    fn used_sites(&self) -> FxHashSet<(u32, u64)> {
        let leads = self.leads_to_counted();
        let used = self.contexts.iter().zip(leads).filter(|(_, leads)| *leads).filter_map(|(context, _)| {
            let (_, caller) = self.caller(context)?;
            let is_known = caller.calls > 0 && self.sites(caller).is_some();
            context.from.filter(|_| is_known).and_then(|from| Some((from.caller, from.site?)))
        });
        used.collect()
    }

    fn one_path(&self, used_sites: &FxHashSet<(u32, u64)>) -> Option<OnePath> {
        let paths_to = self.paths_to.as_ref()?;
        let mut found = OnePath::default();
        for site in used_sites {
            match paths_to.get(site) {
                None | Some(0) => found.unknown += 1,
                Some(1) => found.sites += 1,
                Some(_) => {}
            }
        }
        Some(found)
    }

    /// The size with the call sites of each context together.
    fn folded(&self) -> TreeSize {
        // By context, the number of the one that it is folded into; of those, whether any is counted, and the procedure.
        let mut into: Vec<u32> = Vec::with_capacity(self.contexts.len());
        let mut folded: Vec<(u32, bool)> = Vec::new();
        let mut index: FxHashMap<(Option<u32>, u32), u32> = FxHashMap::default();
        for context in &self.contexts {
            let caller = self.caller(context).map(|(caller, _)| into[caller]);
            let next = folded.len() as u32;
            let number = *index.entry((caller, context.procedure)).or_insert(next);
            if number == next {
                folded.push((context.procedure, false));
            }
            folded[number as usize].1 |= context.calls > 0;
            into.push(number);
        }
        let mut size = TreeSize::default();
        for (procedure, _) in folded.iter().filter(|(_, is_counted)| *is_counted) {
            let makes_calls = self.procedure(*procedure).and_then(|its| its.sites).is_some_and(|sites| sites > 0);
            size.contexts += 1;
            size.bytes = size.bytes.saturating_add(self.node_bytes.of(u64::from(makes_calls)));
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procedure(name: &str, sites: Option<u32>) -> ContextProcedure {
        ContextProcedure { name: name.into(), module: "app".into(), address: name.len() as u64, sites }
    }

    fn from(caller: u32, site: u64) -> Option<CalledFrom> {
        Some(CalledFrom { caller, site: Some(site) })
    }

    /// ```text
    /// main (4 sites)
    /// ├ 0x10 work (2 sites) ─ 0x100 leaf
    /// │                     └ 0x108 leaf
    /// ├ 0x20 work ─ 0x100 leaf
    /// │           └ 0x100 other (1 site; the call is indirect)
    /// ├ 0x30 [sort, not counted] ─ 0x500 leaf
    /// └ a signal: handler (1 site) ─ 0x900 leaf
    /// thread (no code)
    /// └ 0x700 leaf
    /// [sampled alone]
    /// ```
    fn tree() -> ContextTree {
        let mut tree = ContextTree::new(RunInfo::default(), NodeBytes { node: 32, slot: 8 });
        let sites = [Some(4), Some(2), Some(0), Some(1), None, Some(1), None, Some(9)];
        let names = ["main", "work", "leaf", "other", "sort", "handler", "thread", "sampled"];
        let [main, work, leaf, other, sort, handler, thread, sampled] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|at: usize| tree.enter_procedure(procedure(names[at], sites[at])));
        let mut enter = |procedure, from, calls| {
            let number = tree.enter(procedure, from);
            tree.add_calls(number, calls);
            number
        };
        let root = enter(main, None, 1);
        let first = enter(work, from(root, 0x10), 3);
        enter(leaf, from(first, 0x100), 30);
        enter(leaf, from(first, 0x108), 3);
        let second = enter(work, from(root, 0x20), 5);
        enter(leaf, from(second, 0x100), 50);
        enter(other, from(second, 0x100), 2);
        let between = enter(sort, from(root, 0x30), 0);
        enter(leaf, from(between, 0x500), 7);
        let caught = enter(handler, Some(CalledFrom { caller: root, site: None }), 1);
        enter(leaf, from(caught, 0x900), 1);
        let begun = enter(thread, None, 1);
        enter(leaf, from(begun, 0x700), 4);
        // Samples lead there, and no call was counted.
        enter(sampled, from(root, 0x38), 0);
        tree
    }

    #[test]
    fn figures_are_those_made_by_hand() {
        let shape = tree().shape();
        // main, work twice, other, handler, thread, leaf six times.
        assert_eq!(shape.size.contexts, 12);
        assert_eq!(shape.calls, 1 + 3 + 30 + 3 + 5 + 50 + 2 + 7 + 1 + 1 + 1 + 4);
        // 4 of main, 2 of each work, 1 of other, 1 of handler.
        assert_eq!((shape.sites, shape.without_sites), (10, 1));
        assert_eq!(shape.size.bytes, 12 * 32 + 10 * 8);
        assert_eq!(shape.mean_node_bytes(), Some(464.0 / 12.0));
        // main has 4 children (sort is between it and its leaf), work 2 and 2, handler 1, thread 1.
        assert_eq!((shape.inner, shape.children, shape.mean_out_degree()), (5, 10, Some(2.0)));
        // leaf below work 3 three times, other 3, below sort 2, below handler 3, below thread 2.
        assert_eq!((shape.leaves(), shape.leaf_heights, shape.max_height), (7, 19, 3));
        assert_eq!(shape.mean_height(), Some(19.0 / 7.0));
        // main's at 0x10, 0x20 and 0x30; the first work's two, the second's one; the handler's.
        assert_eq!(shape.used_sites, 7);
        assert_eq!(shape.gaps, 1);
    }

    #[test]
    fn call_sites_that_one_path_leads_to() {
        let mut tree = tree();
        assert_eq!(tree.shape().one_path, None);
        tree.count_paths();
        assert_eq!(tree.shape().one_path, Some(OnePath { sites: 0, unknown: 7 }));
        // main's three, of which the paths to one were cut short; the first work's; one that was not used.
        let said = [(0, 0x10, 1), (0, 0x20, 2), (0, 0x30, 0), (1, 0x100, 1), (1, 0x108, 1), (1, 0x110, 1)];
        said.into_iter().for_each(|(context, site, paths)| tree.say_paths_to(context, site, paths));
        // What is not known: main's third, the second work's, and the handler's.
        assert_eq!(tree.shape().one_path, Some(OnePath { sites: 3, unknown: 3 }));
        assert_eq!(tree.called_sites().filter(|(context, _)| *context == 0).count(), 4);
    }

    #[test]
    fn the_procedure_with_most_contexts_is_first() {
        let tree = tree();
        let shape = tree.shape();
        let of = |its: &Replication| (tree.procedure(its.procedure).unwrap().name.as_str(), its.contexts, its.calls);
        let procedures: Vec<_> = shape.procedures.iter().map(of).collect();
        let expected =
            [("leaf", 6, 95), ("work", 2, 8), ("other", 1, 2), ("main", 1, 1), ("thread", 1, 1), ("handler", 1, 1)];
        assert_eq!(procedures, expected);
    }

    #[test]
    fn call_sites_together() {
        // main, work, leaf below it, other, leaf below sort, handler, leaf below it, thread, leaf below it. Slots: main, work, other, handler.
        let together = tree().shape().sites_together;
        assert_eq!(together, TreeSize { contexts: 9, bytes: 9 * 32 + 4 * 8 });
    }

    #[test]
    fn recursion_has_a_context_for_each_depth() {
        const DEPTH: u64 = 300_000;
        let mut tree = ContextTree::new(RunInfo::default(), NodeBytes { node: 32, slot: 8 });
        let down = tree.enter_procedure(procedure("down", Some(1)));
        let mut caller = None;
        for _ in 0..DEPTH {
            let number = tree.enter(down, caller);
            tree.add_calls(number, 1);
            caller = from(number, 0x10);
        }
        let shape = tree.shape();
        assert_eq!((shape.size.contexts, shape.max_height, shape.mean_height()), (DEPTH, DEPTH, Some(DEPTH as f64)));
        assert_eq!((shape.inner, shape.mean_out_degree(), shape.used_sites), (DEPTH - 1, Some(1.0), DEPTH - 1));
        assert_eq!((shape.sites_together.contexts, shape.procedures[0].contexts), (DEPTH, DEPTH));
    }

    #[test]
    fn of_nothing_there_is_no_mean() {
        let shape = ContextTree::default().shape();
        assert_eq!((shape.size, shape.sites, shape.procedures.len()), (TreeSize::default(), 0, 0));
        assert_eq!((shape.mean_node_bytes(), shape.mean_out_degree(), shape.mean_height()), (None, None, None));
    }
}
