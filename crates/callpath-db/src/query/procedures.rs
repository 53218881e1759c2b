//! The list of procedures by what they cost, whoever called them and wherever they were inlined.
//! Modules, files and discriminators only tell procedures of one name apart.

use rustc_hash::FxHashMap;

use crate::metric::{Counts, fill_derived};
use crate::rows::{Moves, Row};
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

/// The procedures of a tree without loops and lines, in descending order of self cost. A procedure and its inlined
/// copies, if the tree has them, are one when name, module, file and discriminator are equal, and for one without a name,
/// address.
pub(super) fn procedures(profile: &Profile, tree: &Tree) -> Vec<ProcedureCost> {
    let total = super::costs::sum_up(tree, tree.own());
    let mut found: Vec<Scope> = Vec::new();
    let (mut own, mut outermost) = (Moves::new(), Moves::new());
    let mut index = FxHashMap::default();
    // Of each node the procedure it is, if any.
    let mut place = vec![usize::MAX; tree.len()];
    for node in tree.nodes().filter(|&node| tree.scope(node).kind.is_frame()) {
        let scope = Scope { call_site: None, ..*tree.scope(node) };
        let unnamed = if scope.name == Name::EMPTY { scope.address } else { None };
        let key = (scope.name, scope.module, scope.file, scope.discriminator, unnamed);
        let here = *index.entry(key).or_insert_with(|| {
            found.push(scope);
            found.len() - 1
        });
        place[node.index()] = here;
        let procedure = &mut found[here];
        if procedure.kind == ScopeKind::Inlined && scope.kind == ScopeKind::Procedure {
            *procedure = scope;
        }
        own.push((node.index() as u32, here as u32));
    }
    let mut active = vec![0u32; found.len()];
    tree.walk(|node, entering| {
        let here = place[node.index()];
        let Some(depth) = active.get_mut(here) else { return };
        if entering {
            if *depth == 0 {
                outermost.push((node.index() as u32, here as u32));
            }
            *depth += 1;
        } else {
            *depth -= 1;
        }
    });
    let mut self_cost = total.zeros_like(found.len());
    self_cost.take(tree.own(), &own);
    let mut inclusive = total.zeros_like(found.len());
    inclusive.take(&total, &outermost);
    let counts = Counts::of(&profile.metrics, Some(&self_cost), found.iter().map(|procedure| procedure.kind));
    let totals = total.row(NodeId::ROOT.index()).to_vec();
    fill_derived(&profile.metrics, &mut [&mut self_cost, &mut inclusive], &totals, &counts);
    let costs = self_cost.iter().zip(inclusive.iter());
    let with_costs = |(scope, (own, inclusive)): (Scope, (Row<'_>, Row<'_>))| ProcedureCost {
        scope,
        self_cost: own.to_vec(),
        inclusive: inclusive.to_vec(),
    };
    let mut found: Vec<ProcedureCost> = found.into_iter().zip(costs).map(with_costs).collect();
    let name = |procedure: &ProcedureCost| profile.strings.get(procedure.scope.name);
    found.sort_by(|a, b| b.self_cost.first().cmp(&a.self_cost.first()).then_with(|| name(a).cmp(name(b))));
    found
}
