//! The list of procedures by what they cost, whoever called them and wherever they were inlined.
//! Refuses to know modules and files beyond telling two procedures of one name apart.

use rustc_hash::FxHashMap;

use crate::metric::{PerOwn, accumulate, fill_derived};
use crate::{Name, Profile, Scope, ScopeKind, Tree};

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
/// copies are one when name and module are equal, and for one without a name, address.
pub(super) fn procedures(profile: &Profile, tree: &Tree) -> Vec<ProcedureCost> {
    let width = tree.width();
    let total = super::costs::sum_up(tree, tree.own().to_vec());
    let mut found: Vec<ProcedureCost> = Vec::new();
    let mut index = FxHashMap::default();
    // Of each node the procedure it is, if any.
    let mut place = vec![usize::MAX; tree.len()];
    for node in tree.nodes().filter(|&node| tree.scope(node).kind.is_frame()) {
        let scope = Scope { call_site: None, ..*tree.scope(node) };
        let unnamed = if scope.name == Name::EMPTY { scope.address } else { None };
        let here = *index.entry((scope.name, scope.module, unnamed)).or_insert_with(|| {
            found.push(ProcedureCost { scope, self_cost: vec![0; width], inclusive: vec![0; width] });
            found.len() - 1
        });
        place[node.index()] = here;
        let procedure = &mut found[here];
        if procedure.scope.kind == ScopeKind::Inlined && scope.kind == ScopeKind::Procedure {
            procedure.scope = scope;
        }
        accumulate(tree.rules(), &mut procedure.self_cost, tree.values(node));
    }
    let mut active = vec![0u32; found.len()];
    tree.walk(|node, entering| {
        let here = place[node.index()];
        let Some(depth) = active.get_mut(here) else { return };
        if entering {
            if *depth == 0 {
                accumulate(tree.rules(), &mut found[here].inclusive, &total[node.index() * width..][..width]);
            }
            *depth += 1;
        } else {
            *depth -= 1;
        }
    });
    let per_own = PerOwn::all(&profile.metrics);
    for procedure in &mut found {
        if width > 0 {
            fill_derived(&profile.metrics, &mut procedure.self_cost);
            fill_derived(&profile.metrics, &mut procedure.inclusive);
        }
        for per_own in &per_own {
            let count = procedure.self_cost[per_own.count];
            per_own.fill(&mut procedure.self_cost, count);
            per_own.fill(&mut procedure.inclusive, count);
        }
    }
    let name = |procedure: &ProcedureCost| profile.strings.get(procedure.scope.name);
    found.sort_by(|a, b| b.self_cost.first().cmp(&a.self_cost.first()).then_with(|| name(a).cmp(name(b))));
    found
}
