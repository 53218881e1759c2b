//! The rows of a tree: which nodes of a view stand together in one row, and in which order rows come.
//!
//! A chain is a series of nodes of which each but the last has one child worth a row. Frames of a chain that cost next to nothing
//! themselves stand in one row with their neighbours, and frames that recur stand in one row with a count. What was left out along a
//! row stands in one row below it, if it is worth one; what is left then stands in the last row, so that the rows add up.

use callpath_db::{ScopeKind, View, ViewKind};

use super::chain::{self, Repeat, repeats};

/// Of frames that cost less than this share of the threshold, none ends a run: their cost is spread over it.
const SPREAD: f64 = 0.05;

/// One row: the frames of a stretch of a chain, or what was left out in one place or in several.
pub(super) struct Row {
    pub(super) shows: Shows,
    /// From the outermost on; at least one.
    pub(super) steps: Vec<Step>,
    /// What was left out below them, if nothing else is below: it is a part of the row. Pruned nodes.
    pub(super) left_out: Vec<usize>,
    /// What the row costs itself: all rows of a calling context view together come to the total, less the root's own.
    pub(super) own: u64,
    /// Steps from the tree's outermost rows; the row above that is one step further out is its parent.
    pub(super) depth: usize,
    /// No further row has this one's parent.
    pub(super) is_last: bool,
    /// What continues below the last step; `None` where nothing or more than one thing does.
    pub(super) continues: Option<u64>,
}

/// What the steps of a row are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shows {
    /// Frames that call each other.
    Code,
    /// What was left out below the frames of the row that this one hangs on.
    LeftOut,
    /// What was left out in places where it is not worth a row: the last row.
    LeftOutElsewhere,
}

/// A frame of a row, or several equal ones.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) node: usize,
    /// How many equal frames it stands for: in this chain, or on each path that the view has folded.
    pub(super) times: usize,
    /// Frames between this one and the next that the next one's count includes.
    pub(super) frames: usize,
}

/// How rows are found.
pub(super) struct Outline<'v> {
    pub(super) view: &'v View,
    /// What costs less has no row.
    pub(super) threshold: f64,
    /// Each node has a row.
    pub(super) is_whole: bool,
    /// A metric that counts for each frame by itself: a frame that has some of it begins a row.
    pub(super) counted: Option<usize>,
}

impl Outline<'_> {
    /// All rows, from top to bottom. The root has one only where it holds several together, and only in the context view.
    pub(super) fn rows(&self) -> Vec<Row> {
        let tops = self.shown_children(0);
        let mut rows = Vec::new();
        let mut unshown = Vec::new();
        let mut stack = match (self.view.kind, tops.as_slice()) {
            (ViewKind::Context, [_, _, ..]) => vec![Next::Chain(Head { node: 0, depth: 0, is_last: true })],
            _ => self.below(&tops, self.left_out(&[0], 0, &mut unshown), 0),
        };
        while let Some(next) = stack.pop() {
            match next {
                Next::Chain(head) => {
                    let (mut chain, below) = self.chain(head, &mut unshown);
                    rows.append(&mut chain);
                    stack.extend(below);
                }
                Next::Row(row) => rows.push(row),
            }
        }
        if self.view.kind == ViewKind::Context {
            rows.extend(self.row_of_left_out(Shows::LeftOutElsewhere, &unshown, 0));
        }
        rows
    }

    /// The rows of the chain that begins with `head`, and what begins below it. What was left out and has no row is added to `unshown`.
    fn chain(&self, head: Head, unshown: &mut Vec<usize>) -> (Vec<Row>, Vec<Next>) {
        let mut nodes = vec![head.node];
        let children = loop {
            let node = nodes[nodes.len() - 1];
            let children = self.shown_children(node);
            match children.as_slice() {
                [only] if self.is_in_chain(node) && self.is_in_chain(*only) => nodes.push(*only),
                _ => break children,
            }
        };
        let keys = nodes.iter().map(|&node| chain::key(&self.view.nodes[node].scope)).collect::<Vec<_>>();
        let found = if self.is_whole { (0..nodes.len()).map(Repeat::once).collect() } else { repeats(&keys) };
        let mut rows: Vec<Row> = Vec::new();
        // The nodes of each row.
        let mut nodes_of: Vec<Vec<usize>> = Vec::new();
        // The row above is a run that may go on.
        let mut is_open = false;
        let count = found.len();
        for (index, repeat) in found.into_iter().enumerate() {
            let here: Vec<usize> = (0..repeat.times).map(|i| nodes[repeat.first + i * repeat.period]).collect();
            let own = here.iter().map(|&node| self.own(node)).fold(0, u64::saturating_add);
            let node = nodes[repeat.first];
            let times = repeat.times.max(self.view.nodes[node].recursion as usize);
            let step = Step { node, times, frames: repeat.times };
            let may_fold = !self.is_whole && self.may_fold(node);
            let is_counted = self.counted.is_some_and(|metric| self.view.own_count(node, metric) > 0);
            // One that costs something itself ends a run, and so does one with several rows below it, unless the row would not tell what
            // it costs with all below it.
            let is_dull = own as f64 <= self.threshold;
            let is_inside = is_dull && (index + 1 < count || children.len() == 1);
            let costs_as_much = |row: &Row| {
                let first = self.cost(row.steps[0].node);
                first.saturating_sub(self.cost(node)) as f64 <= self.threshold
            };
            match rows.last_mut().filter(|row| is_open && may_fold && !is_counted && (is_inside || costs_as_much(row)))
            {
                Some(row) => {
                    row.steps.push(step);
                    row.own = row.own.saturating_add(own);
                }
                None => {
                    let depth = head.depth + rows.len();
                    let is_last = head.is_last || !rows.is_empty();
                    let steps = vec![step];
                    let left_out = Vec::new();
                    rows.push(Row { shows: Shows::Code, steps, left_out, own, depth, is_last, continues: None });
                    nodes_of.push(Vec::new());
                }
            }
            if let (Some(row), Some(nodes_of_row)) = (rows.last(), nodes_of.last_mut()) {
                nodes_of_row.extend(here);
                // Together, the frames of a run must not hide more than one may.
                let is_spread = is_dull && (own as f64) < SPREAD * self.threshold;
                is_open = may_fold && (is_spread || row.own as f64 <= self.threshold);
            }
        }
        // What continues below each row: the next one's cost.
        let below = match children.as_slice() {
            [only] if !self.is_pruned(*only) => Some(self.cost(*only)),
            _ => None,
        };
        for index in 0..rows.len() {
            rows[index].continues = rows.get(index + 1).map(|row| self.cost(row.steps[0].node)).or(below);
        }
        let depth = head.depth + rows.len();
        let mut left_out: Vec<Option<Row>> = Vec::new();
        for (row, nodes) in rows.iter().zip(&nodes_of) {
            left_out.push(self.left_out(nodes, row.depth + 1, unshown));
        }
        let mut innermost = left_out.pop().flatten();
        // Nothing else is below: no row of its own.
        if let Some(row) = rows.last_mut()
            && !self.is_whole
            && self.counted.is_none()
            && row.own as f64 <= self.threshold
            && row.steps.iter().all(|step| self.may_fold(step.node))
            && children.iter().all(|&child| self.is_pruned(child))
            && let Some(all) = innermost.take()
        {
            row.left_out = all.steps.iter().map(|step| step.node).collect();
            row.own = row.own.saturating_add(all.own);
        }
        // What was left out along a row comes after everything else that hangs on it.
        for (row, left_out) in rows.iter_mut().skip(1).zip(&left_out) {
            row.is_last = left_out.is_none();
        }
        let mut next: Vec<Next> = left_out.into_iter().flatten().map(Next::Row).collect();
        next.extend(self.below(&children, innermost, depth));
        (rows, next)
    }

    /// What hangs on one row, to be taken from the end.
    fn below(&self, children: &[usize], left_out: Option<Row>, depth: usize) -> Vec<Next> {
        let children: Vec<usize> = children.iter().copied().filter(|&child| !self.is_pruned(child)).collect();
        let count = children.len() + usize::from(left_out.is_some());
        let head = |(index, &node): (usize, &usize)| Next::Chain(Head { node, depth, is_last: index + 1 == count });
        left_out.into_iter().map(Next::Row).chain(children.iter().enumerate().rev().map(head)).collect()
    }

    /// The row of what was left out below the frames of one row; `None` where it is not worth one: then it is added to `unshown`.
    fn left_out(&self, nodes: &[usize], depth: usize, unshown: &mut Vec<usize>) -> Option<Row> {
        let pruned = nodes.iter().flat_map(|&node| self.view.children(node)).filter(|&child| self.is_pruned(child));
        let pruned: Vec<usize> = pruned.collect();
        let row = self.row_of_left_out(Shows::LeftOut, &pruned, depth).filter(|row| self.is_worth_a_row(row.own));
        if row.is_none() {
            unshown.extend(pruned);
        }
        row
    }

    fn row_of_left_out(&self, shows: Shows, pruned: &[usize], depth: usize) -> Option<Row> {
        let steps: Vec<Step> = pruned.iter().map(|&node| Step { node, times: 1, frames: 1 }).collect();
        let own = pruned.iter().map(|&node| self.cost(node)).fold(0, u64::saturating_add);
        let left_out = Vec::new();
        (own > 0).then_some(Row { shows, steps, left_out, own, depth, is_last: true, continues: None })
    }

    /// Calls and bodies form chains; processes, threads and what was pruned do not. In the flat view nothing does, and in the
    /// callers view the procedures that costs are of do not.
    fn is_in_chain(&self, node: usize) -> bool {
        let node = &self.view.nodes[node];
        let is_code = node.scope.kind.is_frame() || node.scope.kind.is_body();
        match self.view.kind {
            ViewKind::Context => is_code,
            ViewKind::Callers => is_code && node.parent != Some(0),
            ViewKind::Flat => false,
        }
    }

    /// Lines stand by themselves: whoever asks for them wants them.
    fn may_fold(&self, node: usize) -> bool {
        self.is_in_chain(node) && self.view.nodes[node].scope.kind != ScopeKind::Line
    }

    /// Children worth a row, most costly first; what was pruned comes last, if it is worth one.
    fn shown_children(&self, node: usize) -> Vec<usize> {
        let (rest, mut shown): (Vec<_>, Vec<_>) = self.view.children(node).partition(|&child| self.is_pruned(child));
        shown.extend(rest.into_iter().filter(|&rest| self.is_worth_a_row(self.cost(rest))));
        shown
    }

    fn is_pruned(&self, node: usize) -> bool {
        self.view.nodes[node].scope.kind == ScopeKind::Pruned
    }

    /// Whether so much that was left out has a row of its own.
    fn is_worth_a_row(&self, cost: u64) -> bool {
        cost as f64 >= self.threshold.max(1.0)
    }

    fn cost(&self, node: usize) -> u64 {
        self.view.inclusive(node).get(0)
    }

    /// The cost that no child has.
    fn own(&self, node: usize) -> u64 {
        self.view.exclusive(node).get(0)
    }
}

/// What a chain begins with.
struct Head {
    node: usize,
    depth: usize,
    is_last: bool,
}

/// What is still to be done.
enum Next {
    Chain(Head),
    Row(Row),
}

#[cfg(test)]
mod tests {
    use callpath_db::{Metric, NodeId, Profile, Query, Scope};

    use super::*;

    /// Paths of three letters each, one of them often; with loops.
    fn profile(random: &mut fastrand::Rng) -> Profile {
        let mut profile = Profile::new(vec![Metric::sum("cost", "count")]);
        for _ in 0..random.usize(1..40) {
            let mut node = NodeId::ROOT;
            for _ in 0..random.usize(1..30) {
                let letter = if random.u8(..10) < 8 { 'a' } else { random.char('b'..='c') };
                let name = profile.strings.intern(&letter.to_string());
                let kind = if random.u8(..10) == 0 { ScopeKind::Loop } else { ScopeKind::Procedure };
                node = profile.tree.child(node, Scope::new(kind, name));
            }
            profile.tree.add(node, &[random.u64(1..1000)]);
        }
        profile
    }

    #[test]
    fn rows_add_up_and_hide_no_more_than_the_threshold() {
        let mut random = fastrand::Rng::with_seed(15);
        for round in 0..2000 {
            let profile = profile(&mut random);
            let min_share = [0.0, 0.01, 0.1][round % 3];
            let kind = [ViewKind::Context, ViewKind::Callers][round / 3 % 2];
            let view = profile.view(&Query { view: kind, min_share, ..Query::default() }).expect("an answer");
            let total = view.inclusive(0).get(0);
            let threshold = min_share * total as f64;
            let outline = Outline { view: &view, threshold, is_whole: round % 2 == 0, counted: None };
            let rows = outline.rows();
            let shown: u64 = rows.iter().map(|row| row.own).sum();
            let has_root_row = rows.iter().any(|row| row.steps[0].node == 0);
            let of_root = if has_root_row { 0 } else { view.exclusive(0).get(0) };
            if kind == ViewKind::Context {
                assert_eq!(shown + of_root, total, "{round}");
            }
            let is_left_out = |row: &&Row| row.shows != Shows::Code;
            let inside = rows.iter().flat_map(|row| row.left_out.iter().copied());
            let left_out: Vec<usize> = rows
                .iter()
                .filter(is_left_out)
                .flat_map(|row| &row.steps)
                .map(|step| step.node)
                .chain(inside)
                .collect();
            assert_eq!(left_out.iter().collect::<std::collections::HashSet<_>>().len(), left_out.len(), "{round}");
            for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.shows == Shows::LeftOut) {
                let parent = rows[..index].iter().rfind(|above| above.depth < row.depth);
                let expected = parent.map_or(0, |parent| parent.steps[0].node);
                let above = |node: usize| std::iter::successors(Some(node), |&node| view.nodes[node].parent);
                let is_below = |step: &Step| above(step.node).any(|node| node == expected);
                assert!(row.is_last && row.steps.iter().all(is_below), "{round}");
            }
            let code = rows.iter().filter(|row| row.shows == Shows::Code);
            for row in code {
                let hidden = row.steps.iter().rev().skip(1).map(|step| outline.own(step.node));
                let hidden: u64 = hidden.filter(|own| *own as f64 >= SPREAD * threshold).sum();
                assert!(hidden as f64 <= threshold, "{round}");
                let [first, last] = [row.steps[0].node, row.steps[row.steps.len() - 1].node];
                let leaves = outline.cost(first) - outline.cost(last);
                let is_said = row.continues.is_some() || leaves as f64 <= threshold;
                assert!(row.steps.len() == 1 || is_said || row.own as f64 >= leaves as f64, "{round}");
            }
        }
    }

    #[test]
    fn children_hang_on_their_parents_the_heaviest_first() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let profile = profile(&mut random);
            let view = profile.view(&Query::default()).expect("an answer");
            let rows = Outline { view: &view, threshold: 0.0, is_whole: true, counted: None }.rows();
            let cost = |row: &Row| view.inclusive(row.steps[0].node).get(0);
            let mut open: Vec<(usize, &Row)> = Vec::new();
            for row in &rows {
                open.truncate(row.depth + 1);
                let node = row.steps[0].node;
                if let Some((before, sibling)) = open.get(row.depth) {
                    assert!(cost(sibling) >= cost(row) && !sibling.is_last, "{before}");
                    open.truncate(row.depth);
                }
                if let Some((parent, _)) = row.depth.checked_sub(1).and_then(|above| open.get(above)) {
                    assert_eq!(view.nodes[node].parent, Some(*parent));
                }
                open.push((node, row));
            }
            // Each node but the root, which has a row where it has several children.
            let has_root = view.children(0).count() > 1;
            assert_eq!(rows.len(), view.nodes.len() - usize::from(!has_root));
        }
    }
}
