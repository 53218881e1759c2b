//! Tells a cost that moved between procedures from one that grew: a procedure was split, renamed, or inlined where nothing
//! says so.

use super::answer::ProcedureChange;
use super::comparison::Comparison;
use super::statistics::estimate;

/// A sum whose interval is wider than this share of what moved may hide a change.
const LARGEST_HALF_WIDTH: f64 = 0.5;
/// A procedure with less than this share of its cost on the other side came or went.
const GONE: f64 = 0.1;

/// Procedures with the others that their change of own cost went to or came from, all by their numbers.
///
/// A change has moved if opposite changes of procedures beside it (of the same caller, its caller or its callees)
/// cancel it: the sum of all of them is within noise of what it was. One of them came or went; without that, one merely
/// got faster and the other slower.
pub(super) fn moves(
    comparison: &Comparison<'_>,
    own: &[Vec<f64>],
    procedures: &[ProcedureChange],
) -> Vec<(usize, Vec<usize>)> {
    let heaviest = heaviest_contexts(comparison);
    let above = |procedure: usize| {
        let mut node = comparison.joined.nodes[heaviest[procedure]].parent;
        while node != 0 && comparison.joined.nodes[node].procedure.is_none() {
            node = comparison.joined.nodes[node].parent;
        }
        node
    };
    let is_beside = |p: usize, q: usize| above(p) == above(q) || above(p) == heaviest[q] || heaviest[p] == above(q);
    let by_size = |order: &mut Vec<usize>| {
        let size = |number: &usize| procedures[*number].own.difference().abs();
        order.sort_by(|a, b| size(b).total_cmp(&size(a)));
    };
    let mut order: Vec<usize> = (0..procedures.len()).filter(|&number| procedures[number].own.is_found).collect();
    by_size(&mut order);
    let mut is_taken = vec![false; procedures.len()];
    let mut found = Vec::new();
    for &procedure in &order {
        let size = procedures[procedure].own.difference();
        if is_taken[procedure] {
            continue;
        }
        let is_opposite = |other: &usize| procedures[*other].own.difference() * size < 0.0;
        let is_free = |other: &&usize| !is_taken[**other] && is_opposite(other) && is_beside(procedure, **other);
        let mut group = vec![procedure];
        let mut sum = size;
        for &other in order.iter().filter(is_free) {
            let with = sum + procedures[other].own.difference();
            if with.abs() < sum.abs() {
                sum = with;
                group.push(other);
            }
        }
        let came_or_went = |number: &usize| {
            let change = &procedures[*number].own;
            change.a.min(change.b) < GONE * change.a.max(change.b)
        };
        if group.len() < 2 || !group.iter().any(came_or_went) {
            continue;
        }
        let costs: Vec<f64> = (0..own[procedure].len()).map(|run| group.iter().map(|&of| own[of][run]).sum()).collect();
        let (a, b) = comparison.sides(&costs, &comparison.errors);
        let (difference, half_width) = (b.mean() - a.mean(), estimate(comparison.test, a, b).half_width());
        if difference.abs() <= half_width && half_width <= LARGEST_HALF_WIDTH * size.abs() {
            group.iter().for_each(|&member| is_taken[member] = true);
            for (at, &member) in group.iter().enumerate() {
                // The first gave to, or took from, all others.
                found.push((member, if at == 0 { group[1..].to_vec() } else { vec![group[0]] }));
            }
        }
    }
    found
}

/// By procedure, the context in which its own body costs most.
fn heaviest_contexts(comparison: &Comparison<'_>) -> Vec<usize> {
    let joined = &comparison.joined;
    let mut heaviest = vec![(0.0, 0); joined.procedures.len()];
    for (number, node) in joined.nodes.iter().enumerate() {
        let Some(procedure) = node.procedure else { continue };
        let cost: f64 = joined.own.iter().map(|run| run[number]).sum();
        if cost > heaviest[procedure].0 || heaviest[procedure].1 == 0 {
            heaviest[procedure] = (cost, number);
        }
    }
    heaviest.into_iter().map(|(_, number)| number).collect()
}
