//! The list of procedures by what they cost, whoever called them and wherever they were inlined.
//! Modules, files and discriminators only tell procedures of one name apart.

use rustc_hash::FxHashMap;

use crate::metric::{Counts, fill_derived};
use crate::rows::{Moves, Row, Rows};
use crate::{Name, NodeId, Profile, Scope, ScopeKind, Tree};

/// What inlined calls count for in a list of procedures.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Inlined {
    /// For the procedure whose code they are in.
    #[default]
    InTheirProcedures,
    /// For themselves: a procedure's inlined copies and its own code are one.
    Apart,
}

/// One procedure, all its contexts together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcedureCost {
    /// The procedure as it was first met; a procedure of its own unless it is only ever inlined.
    pub scope: Scope,
    /// Cost of its own body with loops and lines, one value per metric.
    pub self_cost: Vec<u64>,
    /// Cost while it was active, each sample once; one value per metric.
    pub inclusive: Vec<u64>,
}

/// Procedures with what they cost, before anything is computed of it.
pub(crate) struct Tally {
    /// A procedure of its own unless it is only ever inlined; of what its contexts say differently, nothing.
    pub(crate) scopes: Vec<Scope>,
    /// By procedure.
    pub(crate) self_cost: Rows,
    /// By procedure, of its outermost activations.
    pub(crate) inclusive: Rows,
    /// Of the whole tree.
    pub(crate) total: Vec<u64>,
}

/// The procedures of a tree. A procedure and its inlined copies, where these count for themselves, are one when name, module, file and
/// discriminator are equal, and for one without a name, address.
pub(crate) fn tally(tree: &Tree, inlined: Inlined) -> Tally {
    let is_inside = |kind: ScopeKind| match kind {
        ScopeKind::Loop | ScopeKind::Line | ScopeKind::SystemCall => true,
        ScopeKind::Inlined => inlined == Inlined::InTheirProcedures,
        _ => false,
    };
    let total = super::costs::sum_up(tree, tree.own());
    let mut scopes: Vec<Scope> = Vec::new();
    let (mut own, mut outermost) = (Moves::new(), Moves::new());
    let mut index = FxHashMap::default();
    // Of each node the procedure that it is or whose code it is in, if any.
    let mut place = vec![usize::MAX; tree.len()];
    for node in tree.nodes() {
        let kind = tree.scope(node).kind;
        if is_inside(kind) {
            place[node.index()] = tree.parent(node).map_or(usize::MAX, |parent| place[parent.index()]);
        } else if kind.is_frame() {
            let scope = Scope { call_site: None, ..*tree.scope(node) };
            let unnamed = if scope.name == Name::EMPTY { scope.address } else { None };
            let key = (scope.name, scope.module, scope.file, scope.discriminator, unnamed);
            let here = *index.entry(key).or_insert_with(|| {
                scopes.push(scope);
                scopes.len() - 1
            });
            place[node.index()] = here;
            let procedure = &mut scopes[here];
            if procedure.kind == scope.kind {
                procedure.agree(&scope);
            } else if procedure.kind == ScopeKind::Inlined {
                *procedure = scope;
            }
        }
        if let Ok(here) = u32::try_from(place[node.index()]) {
            own.push((node.index() as u32, here));
        }
    }
    let mut active = vec![0u32; scopes.len()];
    tree.walk(|node, entering| {
        let Some(depth) = active.get_mut(place[node.index()]) else { return };
        if is_inside(tree.scope(node).kind) {
            return;
        }
        if entering {
            if *depth == 0 {
                outermost.push((node.index() as u32, place[node.index()] as u32));
            }
            *depth += 1;
        } else {
            *depth -= 1;
        }
    });
    let mut self_cost = total.zeros_like(scopes.len());
    self_cost.take(tree.own(), &own);
    let mut inclusive = total.zeros_like(scopes.len());
    inclusive.take(&total, &outermost);
    Tally { scopes, self_cost, inclusive, total: total.row(NodeId::ROOT.index()).to_vec() }
}

/// The procedures in descending order of self cost, with what is computed of it; equal ones by name, then by what else tells them apart.
pub(crate) fn procedures(profile: &Profile, tally: Tally) -> Vec<ProcedureCost> {
    let Tally { scopes, mut self_cost, mut inclusive, total } = tally;
    let counts = Counts::of(&profile.metrics, Some(&self_cost), scopes.iter().map(|procedure| procedure.kind));
    fill_derived(&profile.metrics, &mut [&mut self_cost, &mut inclusive], &total, &counts);
    let costs = self_cost.iter().zip(inclusive.iter());
    let with_costs = |(scope, (own, inclusive)): (Scope, (Row<'_>, Row<'_>))| ProcedureCost {
        scope,
        self_cost: own.to_vec(),
        inclusive: inclusive.to_vec(),
    };
    let mut found: Vec<ProcedureCost> = scopes.into_iter().zip(costs).map(with_costs).collect();
    let name = |procedure: &ProcedureCost| profile.strings.get(procedure.scope.name);
    found.sort_by(|a, b| {
        let by_cost = b.self_cost.first().cmp(&a.self_cost.first());
        by_cost.then_with(|| name(a).cmp(name(b))).then_with(|| a.scope.order(&b.scope, &profile.strings))
    });
    found
}
