//! The rows of each view of a difference: contexts, callers, and code.

use rustc_hash::FxHashMap;

use super::answer::{Change, ProcedureChange, RowChange};
use super::comparison::Comparison;
use crate::ScopeKind;

/// A row before it is tested.
#[derive(Clone, Debug)]
struct Raw {
    parent: usize,
    kind: ScopeKind,
    name: String,
    module: String,
    procedure: Option<usize>,
    /// By run.
    inclusive: Vec<f64>,
    /// By run.
    own: Vec<f64>,
}

/// What rows are ordered by.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Inclusive = 0,
    Own = 1,
}

/// Costs of the joined tree by run and node, and the procedures that they add up to.
pub(super) struct Costs<'a> {
    pub(super) inclusive: &'a [Vec<f64>],
    pub(super) procedures: &'a [ProcedureChange],
}

impl Comparison<'_> {
    /// Top down: below each procedure those that it calls, and its loops.
    pub(super) fn contexts(&self, costs: &Costs<'_>) -> Vec<RowChange> {
        let rows = (0..self.joined.nodes.len()).map(|number| {
            let node = &self.joined.nodes[number];
            let (kind, name, module) = self.described(number);
            let (inclusive, own) = (self.rows(costs.inclusive, number), self.rows(&self.joined.own, number));
            Raw { parent: node.parent, kind, name, module, procedure: node.procedure, inclusive, own }
        });
        // The procedure as a whole did not change: it is called here instead of elsewhere.
        let is_moved = |row: &Raw, change: &Change| {
            row.procedure.is_some_and(|procedure| {
                let whole = &costs.procedures[procedure].inclusive;
                !whole.is_found && whole.difference().abs() < change.difference().abs() / 2.0
            })
        };
        self.tested(&rows.collect::<Vec<_>>(), By::Inclusive, is_moved)
    }

    /// Bottom up: every procedure with the cost of its own body, below each those that call it. What has too few samples to be
    /// tested is not unfolded.
    pub(super) fn callers(&self, costs: &Costs<'_>) -> Vec<RowChange> {
        let nodes = &self.joined.nodes;
        let mut rows = vec![self.root(costs)];
        // By row, the nodes whose cost it is, each with the one on its way out at which the row stands.
        let all = (1..nodes.len()).filter(|&node| nodes[node].loop_number.is_none());
        let mut members: Vec<Vec<(usize, usize)>> = vec![all.map(|node| (node, node)).collect()];
        let mut row = 0;
        while row < rows.len() {
            let below = std::mem::take(&mut members[row]);
            if row == 0 || self.is_tested(&rows[row].own) {
                let mut children = FxHashMap::default();
                for (node, at) in below {
                    let at = if row == 0 { at } else { nodes[at].parent };
                    if at == 0 {
                        continue;
                    }
                    let child = *children.entry((nodes[at].procedure, nodes[at].other)).or_insert_with(|| {
                        rows.push(self.empty(row, self.described(at), nodes[at].procedure));
                        members.push(Vec::new());
                        rows.len() - 1
                    });
                    members[child].push((node, at));
                    add(&mut rows[child].own, &self.rows(&self.joined.own, node));
                    add(&mut rows[child].inclusive, &self.rows(costs.inclusive, node));
                }
            }
            row += 1;
        }
        self.tested(&rows, By::Own, |row, _| moved(row, costs))
    }

    /// By code: module, file, procedure and its loops; what is no procedure stands beside the modules.
    pub(super) fn flat(&self, costs: &Costs<'_>) -> Vec<RowChange> {
        let nodes = &self.joined.nodes;
        let mut rows = vec![self.root(costs)];
        let mut index = FxHashMap::default();
        // By node, its rows from the module to the procedure.
        let mut places: Vec<[usize; 3]> = vec![[0; 3]; nodes.len()];
        for (number, node) in nodes.iter().enumerate().skip(1) {
            if node.loop_number.is_some() {
                let above = places[node.parent][2];
                let row = *index.entry((above, None, None, node.loop_number)).or_insert_with(|| {
                    rows.push(self.empty(above, self.described(number), None));
                    rows.len() - 1
                });
                let own = self.rows(&self.joined.own, number);
                add(&mut rows[row].own, &own);
                add(&mut rows[row].inclusive, &own);
                continue;
            }
            let (kind, name, module) = self.described(number);
            let levels = match node.procedure {
                None => vec![(kind, name, module, None)],
                Some(procedure) => {
                    let home = self.joined.homes[procedure];
                    let (of, file) = (self.joined.module(home.0), self.joined.strings.get(home.1).to_owned());
                    vec![
                        (ScopeKind::Module, of.clone(), String::new(), None),
                        (ScopeKind::File, file, of, None),
                        (kind, name, module, Some(procedure)),
                    ]
                }
            };
            let mut above = 0;
            for (level, (kind, name, module, procedure)) in levels.into_iter().enumerate() {
                let key = (above, Some((kind, name)), procedure, None);
                above = match index.get(&key) {
                    Some(row) => *row,
                    None => {
                        let name = key.1.as_ref().map_or(String::new(), |(_, name)| name.clone());
                        rows.push(self.empty(above, (kind, name, module), procedure));
                        index.insert(key, rows.len() - 1);
                        rows.len() - 1
                    }
                };
                places[number][level] = above;
                add(&mut rows[above].own, &self.rows(&self.joined.own, number));
                // What is active already counts once.
                let mut outer = node.parent;
                while outer != 0 && places[outer][level] != above {
                    outer = nodes[outer].parent;
                }
                if outer == 0 {
                    add(&mut rows[above].inclusive, &self.rows(costs.inclusive, number));
                }
            }
        }
        self.tested(&rows, By::Own, |row, _| moved(row, costs))
    }

    fn root(&self, costs: &Costs<'_>) -> Raw {
        let mut root = self.empty(0, (ScopeKind::Root, String::new(), String::new()), None);
        root.inclusive = self.rows(costs.inclusive, 0);
        root.own = self.rows(&self.joined.own, 0);
        root
    }

    fn empty(&self, parent: usize, (kind, name, module): (ScopeKind, String, String), procedure: Option<usize>) -> Raw {
        let none = vec![0.0; self.joined.runs()];
        Raw { parent, kind, name, module, procedure, inclusive: none.clone(), own: none }
    }

    /// What a node is, its name and module.
    fn described(&self, number: usize) -> (ScopeKind, String, String) {
        let node = &self.joined.nodes[number];
        match (node.procedure, node.other) {
            (Some(procedure), _) => {
                let (name, module) = self.named(procedure);
                (ScopeKind::Procedure, name, module)
            }
            (None, Some((kind, name))) => (kind, self.joined.module(name), String::new()),
            (None, None) => {
                let of = self.joined.nodes[node.parent].procedure.zip(node.loop_number);
                let line = of.and_then(|key| self.joined.loop_lines.get(&key).copied().flatten());
                (ScopeKind::Loop, line.map_or("loop".into(), |line| format!("loop at line {line}")), String::new())
            }
        }
    }

    /// Rows with their changes in preorder, children by the size of the difference. False discoveries are controlled over all
    /// rows, once for inclusive costs and once for own.
    fn tested(&self, rows: &[Raw], by: By, is_moved: impl Fn(&Raw, &Change) -> bool) -> Vec<RowChange> {
        let mut changes: Vec<[Change; 2]> =
            rows.iter().map(|row| [self.change(&row.inclusive), self.change(&row.own)]).collect();
        for which in [0, 1] {
            let costs = |row: usize| if which == 0 { &rows[row].inclusive } else { &rows[row].own };
            let family = changes.iter_mut().enumerate();
            self.mark(family.map(|(row, changes)| (&mut changes[which], self.is_tested(costs(row)))).collect());
        }
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
        for (number, row) in rows.iter().enumerate().skip(1) {
            below[row.parent].push(number);
        }
        let shown = |number: usize| &changes[number][by as usize];
        let size = |number: &usize| shown(*number).difference().abs();
        below.iter_mut().for_each(|children| children.sort_by(|a, b| size(a).total_cmp(&size(b)).then(b.cmp(a))));
        let mut done = Vec::with_capacity(rows.len());
        let mut stack = vec![(0, None)];
        while let Some((number, parent)) = stack.pop() {
            let Raw { kind, name, module, .. } = rows[number].clone();
            let change = shown(number);
            let is_moved = change.is_found && is_moved(&rows[number], change);
            let [inclusive, own] = changes[number];
            stack.extend(below[number].iter().map(|&child| (child, Some(done.len()))));
            done.push(RowChange { parent, kind, name, module, inclusive, own, is_moved });
        }
        done
    }
}

fn moved(row: &Raw, costs: &Costs<'_>) -> bool {
    row.procedure.is_some_and(|procedure| !costs.procedures[procedure].moved.is_empty())
}

fn add(sums: &mut [f64], costs: &[f64]) {
    sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
}
