//! The first half of every query: selects processes and threads, merges equal ones, folds kinds of scopes.
//! It must not depend on which view will be built from the result.

use callpath_schema::Rule;

use super::question::{Query, QueryError};
use super::regions::{self, Regions};
use super::select::{Selected, select};
use crate::rows::Moves;
use crate::{CallSite, NodeId, Profile, Scope, ScopeKind, Tree};

/// A tree, and what each of its nodes stands for.
pub(crate) struct Counted {
    pub(crate) tree: Tree,
    /// For every node how many scopes of the profile's tree became this one.
    pub(crate) contexts: Vec<u32>,
    /// For every node how many of these are active at once, at most.
    pub(crate) recursion: Vec<u32>,
    /// For every node of the tree that it was made of, which node has its cost; empty where nobody asks.
    pub(crate) places: Vec<NodeId>,
    /// What became of the regions that workers executed.
    pub(crate) regions: Regions,
    /// How many nodes with a cost of their own stand here in others that are as one for the callers view.
    pub(crate) origins_left_out: usize,
}

impl Counted {
    pub(super) fn new(like: &Tree) -> Self {
        Self::by_rules(like.own().rules())
    }

    /// The root alone, for costs by these rules.
    pub(crate) fn by_rules(rules: impl IntoIterator<Item = Rule>) -> Self {
        let tree = Tree::with_rules(rules);
        let regions = Regions::default();
        Counted { tree, contexts: vec![1], recursion: vec![1], places: Vec::new(), regions, origins_left_out: 0 }
    }

    /// [`Tree::child`], counting.
    pub(super) fn child(&mut self, parent: NodeId, scope: Scope) -> NodeId {
        let node = self.place(parent, scope);
        self.contexts[node.index()] += 1;
        node
    }

    /// [`Tree::append`], without counting it.
    pub(crate) fn append(&mut self, parent: NodeId, scope: Scope) -> NodeId {
        self.contexts.push(0);
        self.recursion.push(1);
        self.tree.append(parent, scope)
    }

    /// [`Tree::child`], without counting it.
    pub(super) fn place(&mut self, parent: NodeId, scope: Scope) -> NodeId {
        let node = self.tree.child(parent, scope);
        if node.index() == self.contexts.len() {
            self.contexts.push(0);
            self.recursion.push(1);
        }
        node
    }
}

/// The tree that `query` is about. Nodes of the kinds in `query.fold` and `fold` vanish: their own cost goes to the
/// node above, their children move there, and equal siblings merge. A call that moves up from a line is called from
/// there: the line becomes its call site (unknown again where several merge).
pub(super) fn reshape(
    profile: &Profile,
    query: &Query,
    collapse: bool,
    fold: &[ScopeKind],
) -> Result<Counted, QueryError> {
    let Some(met) = met(profile, query)? else {
        return selected(Source { profile, tree: &profile.tree, contexts: None }, query, collapse, fold);
    };
    let source = Source { profile, tree: &met.tree, contexts: Some(&met.contexts) };
    let asked = selected(source, &of_paths(query), collapse, fold)?;
    Ok(Counted { regions: met.regions, ..asked })
}

/// The whole tree of the processes and threads that `query` is about, with regions where they are called from; none if
/// that is not asked for, or changes nothing. Regions meet before paths are selected, so that a path goes through what
/// called the region, whoever executed it.
pub(super) fn met(profile: &Profile, query: &Query) -> Result<Option<Counted>, QueryError> {
    let (strings, tree) = (&profile.strings, &profile.tree);
    if !query.regions_meet || !query.fold.contains(&ScopeKind::Thread) || !regions::are_there(tree, strings) {
        return Ok(None);
    }
    let levels =
        [ScopeKind::Rank, ScopeKind::Process, ScopeKind::Thread].into_iter().filter(|level| query.fold.contains(level));
    let of_processes = Query {
        process: query.process.clone(),
        thread: query.thread.clone(),
        merge_processes: query.merge_processes,
        fold: levels.collect(),
        ..Query::default()
    };
    let whole = selected(Source { profile, tree, contexts: None }, &of_processes, false, &[])?;
    Ok(Some(regions::meet(whole, strings)).filter(|met| met.regions != Regions::default()))
}

/// What `query` asks of a tree that has only its processes and threads.
pub(super) fn of_paths(query: &Query) -> Query {
    Query { process: None, thread: None, ..query.clone() }
}

/// A tree that was made of a profile, or its own.
struct Source<'a> {
    profile: &'a Profile,
    tree: &'a Tree,
    /// For each node how many of the profile's it stands for, if not for itself alone.
    contexts: Option<&'a [u32]>,
}

/// [`reshape`] of a tree, with regions where they are executed.
fn selected(source: Source<'_>, query: &Query, collapse: bool, fold: &[ScopeKind]) -> Result<Counted, QueryError> {
    let Source { profile, tree: from, contexts } = source;
    let chosen = select(profile, from, query)?;
    let selected = &chosen.selected;
    let folded = |kind| kind != ScopeKind::Root && (query.fold.contains(&kind) || fold.contains(&kind));
    let sites = call_sites(from, folded(ScopeKind::Line), |frame| chosen.is_hidden(frame));
    let mut activations = collapse.then(|| Activations::of(from));
    let stands_for = |node: NodeId| contexts.map_or(1, |contexts| contexts[node.index()]);
    let mut to = Counted::new(from);
    let mut here = vec![NodeId::ROOT; from.len()];
    let mut order = vec![NodeId::ROOT];
    from.walk(|node, entering| {
        let Some(parent) = from.parent(node) else {
            return;
        };
        let mut scope = *from.scope(node);
        let skipped = folded(scope.kind) || chosen.vanishes(node) || selected[node.index()] == Selected::No;
        let activations = activations.as_mut().filter(|_| scope.kind == ScopeKind::Procedure && !skipped);
        if !entering {
            return activations.map_or((), |activations| activations.leave(node));
        }
        let above = here[parent.index()];
        scope.call_site = sites[node.index()];
        if let Some((outermost, depth)) = activations.as_ref().and_then(|activations| activations.outermost(node)) {
            here[node.index()] = outermost;
            to.tree.agree(outermost, &scope);
            to.contexts[outermost.index()] += stands_for(node);
            to.recursion[outermost.index()] = to.recursion[outermost.index()].max(depth + 1);
        } else if skipped {
            here[node.index()] = above;
        } else {
            match scope.kind {
                ScopeKind::Thread if !query.per_thread => scope.discriminator = 0,
                ScopeKind::Process if query.merge_processes => scope.discriminator = 0,
                _ => {}
            }
            let place = to.place(above, scope);
            to.contexts[place.index()] += stands_for(node);
            here[node.index()] = place;
        }
        if let Some(activations) = activations {
            activations.enter(node, here[node.index()]);
        }
        order.push(node);
    });
    // In the order of the walk.
    let whole = order.iter().filter(|node| selected[node.index()] == Selected::Whole);
    let moves: Moves = whole.map(|node| (node.index() as u32, here[node.index()].index() as u32)).collect();
    to.tree.take(from.own(), &moves);
    to.places = here;
    Ok(to)
}

/// For each frame where it is called from. The line that it hangs below is that, where lines are folded. What a
/// `hidden` frame calls is called from where that frame is.
fn call_sites(tree: &Tree, lines_folded: bool, hidden: impl Fn(NodeId) -> bool) -> Vec<Option<CallSite>> {
    let mut sites = Vec::with_capacity(tree.len());
    // For each node the frame that it is in, itself if it is one.
    let mut frames: Vec<Option<NodeId>> = Vec::with_capacity(tree.len());
    for node in tree.nodes() {
        let scope = tree.scope(node);
        let parent = tree.parent(node);
        let caller = parent.and_then(|parent| frames[parent.index()]);
        frames.push(match scope.kind {
            kind if kind.is_frame() => Some(node),
            kind if kind.is_body() => caller,
            _ => None,
        });
        let line = parent.map(|parent| tree.scope(parent)).filter(|above| above.kind == ScopeKind::Line);
        sites.push(match (caller.filter(|&caller| hidden(caller)), line) {
            (Some(caller), _) => sites[caller.index()],
            (None, Some(line)) if lines_folded && scope.kind.is_frame() => {
                line.file.zip(line.line).map(|(file, line)| CallSite { file, line })
            }
            _ => scope.call_site,
        });
    }
    sites
}

/// Whether a procedure of a tree is called while it is active.
pub(super) fn is_recursive(tree: &Tree) -> bool {
    let mut activations = Activations::of(tree);
    let mut found = false;
    tree.walk(|node, entering| {
        if found || tree.scope(node).kind != ScopeKind::Procedure {
        } else if entering {
            found = activations.outermost(node).is_some();
            activations.enter(node, node);
        } else {
            activations.leave(node);
        }
    });
    found
}

/// The procedures that are active at one point of a walk over a tree.
struct Activations {
    /// For every node of the tree the procedure that it is: equal scopes have equal numbers.
    procedures: Vec<NodeId>,
    /// For every procedure its outermost activation, and how many there are.
    active: Vec<(NodeId, u32)>,
}

impl Activations {
    fn of(tree: &Tree) -> Self {
        let mut procedures = Tree::with_rules(Vec::new());
        let number = |node| match tree.scope(node) {
            scope if scope.kind == ScopeKind::Procedure => procedures.child(NodeId::ROOT, *scope),
            _ => NodeId::ROOT,
        };
        let numbers = tree.nodes().map(number).collect();
        Activations { procedures: numbers, active: vec![(NodeId::ROOT, 0); procedures.len()] }
    }

    fn outermost(&self, node: NodeId) -> Option<(NodeId, u32)> {
        let active = self.active[self.procedures[node.index()].index()];
        (active.1 > 0).then_some(active)
    }

    fn enter(&mut self, node: NodeId, here: NodeId) {
        let active = &mut self.active[self.procedures[node.index()].index()];
        *active = (if active.1 == 0 { here } else { active.0 }, active.1 + 1);
    }

    fn leave(&mut self, node: NodeId) {
        self.active[self.procedures[node.index()].index()].1 -= 1;
    }
}
