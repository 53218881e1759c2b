//! Joins the runs of two sides in one tree of calling contexts, matched by what their scopes are called in the source.
//!
//! A context is a chain of procedures, whether called or inlined: inlining that came or went changes nothing. A call of a
//! procedure that is active already leads back to it (Ammons, Ball and Larus 1997). Loops are no part of the chain; they
//! divide the cost of a procedure's own body.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::error::DiffError;
use super::identity::{Identities, Identity, is_program};
use super::units::{self, Units, real};
use crate::{Metric, MetricId, MetricKind, MetricSource, MetricType, Name, Profile, Query, ScopeKind, Strings, View};

/// A side of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Side {
    A,
    B,
}

/// A context that either side has; a parent stands before its children, the root first.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: usize,
    /// The procedure, by its number.
    pub(super) procedure: Option<usize>,
    /// Of what is no procedure, what it is.
    pub(super) other: Option<(ScopeKind, Name)>,
    /// A loop of the procedure that its parent is, by its number in that procedure. It holds only its own body's cost.
    pub(super) loop_number: Option<usize>,
    /// By side, whether it is called there: it has a frame of its own, and is not inlined everywhere.
    pub(super) is_called: [bool; 2],
}

impl Node {
    fn new(parent: usize) -> Self {
        Node { parent, procedure: None, other: None, loop_number: None, is_called: [false; 2] }
    }
}

/// Costs by run, those of side A first.
pub(super) struct Joined {
    pub(super) strings: Strings,
    pub(super) nodes: Vec<Node>,
    pub(super) procedures: Vec<Identity>,
    /// How many runs side A has.
    pub(super) runs_of_a: usize,
    /// By run, by node: cost of the procedure's own body with its loops; of a loop its own.
    pub(super) own: Vec<Vec<f64>>,
    /// By run, by procedure: how often it returned; empty where no run counted that.
    pub(super) returns: Vec<Vec<f64>>,
    /// By run, what a sample costs.
    pub(super) sample_costs: Vec<f64>,
    /// By run, what shared its work.
    pub(super) units: Vec<Units>,
    /// By procedure and number of a loop, its line; side B's where both have it.
    pub(super) loop_lines: FxHashMap<(usize, usize), Option<u32>>,
    /// By procedure, the module and file in which most of its cost is: on side B, if that has it.
    pub(super) homes: Vec<Home>,
    /// The program's name on side B.
    pub(super) program: String,
}

/// Where a loop stands in its procedure, as one side knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum LoopPlace {
    /// Lines behind the one in which the procedure is defined.
    Line(i64),
    /// Where no line is known.
    Address(u64),
}

pub(super) struct LoopCost {
    side: Side,
    run: usize,
    pub(super) node: usize,
    place: LoopPlace,
    cost: f64,
}

/// The loops of a procedure on one side, in order, with their lines.
pub(super) type Places = BTreeMap<LoopPlace, Option<u32>>;

pub(super) struct Joining<'a> {
    metric: &'a Metric,
    pub(super) joined: Joined,
    /// Child by parent and identity.
    pub(super) index: FxHashMap<(usize, Identity), usize>,
    pub(super) numbers: FxHashMap<Identity, usize>,
    pub(super) loops: Vec<LoopCost>,
    pub(super) places: FxHashMap<(usize, Side), Places>,
    /// By procedure and side, where it is defined: all places that were met.
    pub(super) defined: FxHashMap<(usize, Side), Vec<(Name, u32)>>,
    /// By procedure and side, the modules and files that its code is of, with its own cost there.
    pub(super) homes: FxHashMap<(usize, Side), BTreeMap<Home, f64>>,
}

/// A module and a file.
pub(super) type Home = (Name, Name);

impl<'a> Joining<'a> {
    pub(super) fn new(metric: &'a Metric) -> Self {
        let root = Node { other: Some((ScopeKind::Root, Name::EMPTY)), ..Node::new(0) };
        let joined = Joined {
            strings: Strings::default(),
            nodes: vec![root],
            procedures: Vec::new(),
            runs_of_a: 0,
            own: Vec::new(),
            returns: Vec::new(),
            sample_costs: Vec::new(),
            units: Vec::new(),
            loop_lines: FxHashMap::default(),
            homes: Vec::new(),
            program: String::new(),
        };
        let (index, numbers, places, defined, homes) = Default::default();
        Joining { metric, joined, index, numbers, loops: Vec::new(), places, defined, homes }
    }

    /// Adds the runs of a profile.
    pub(super) fn add(&mut self, side: Side, profile: &Profile, renames: &[(String, String)]) -> Result<(), DiffError> {
        let column = column_of(profile, self.metric)?;
        let returns = profile.metrics.iter().position(|metric| metric.id == Some(MetricId::RETURNS));
        let view = profile.view(&Query {
            fold: vec![ScopeKind::Line, ScopeKind::SystemCall, ScopeKind::Thread],
            regions_meet: true,
            ..Query::default()
        })?;
        let first = self.joined.own.len();
        let count = profile.info.more_runs as usize + 1;
        self.joined.units.extend(units::of(profile, column)?);
        for _ in 0..count {
            self.joined.own.push(Vec::new());
            self.joined.returns.push(Vec::new());
        }
        if side == Side::A {
            self.joined.runs_of_a += count;
        } else {
            self.joined.program.clone_from(&profile.info.program);
        }
        let identities = Identities::new(profile, renames);
        let runs = self.enter(&view, Source { side, profile, identities, column, returns, first, count });
        self.sample_costs(profile, column, &runs);
        Ok(())
    }

    /// Puts a view's nodes in their places, with their costs. Gives the run of each node.
    fn enter(&mut self, view: &View, mut source: Source<'_>) -> Vec<(usize, f64)> {
        let metric = &source.profile.metrics[source.column];
        let mut places = Vec::with_capacity(view.nodes.len());
        let mut runs: Vec<usize> = Vec::with_capacity(view.nodes.len());
        // By node, the line in which the procedure around it is defined.
        let mut defined: Vec<Option<u32>> = Vec::with_capacity(view.nodes.len());
        let mut samples = vec![0.0; source.count];
        let samples_at = source.profile.metrics.iter().position(|metric| metric.id == Some(MetricId::SAMPLES));
        for (number, node) in view.nodes.iter().enumerate() {
            let scope = &node.scope;
            let above = node.parent.map_or(0, |parent| places[parent]);
            let run = match scope.kind {
                ScopeKind::Process => scope.run() as usize,
                _ => node.parent.map_or(0, |parent| runs[parent]),
            };
            let run = run.min(source.count - 1);
            let line = if scope.kind.is_frame() { scope.line } else { node.parent.and_then(|parent| defined[parent]) };
            let here = match source.identities.of(scope, &mut self.joined.strings) {
                Some(identity) => self.child(above, identity),
                None => above,
            };
            if let (Some(procedure), Some(line)) = (self.joined.nodes[here].procedure, scope.line)
                && scope.kind.is_frame()
            {
                let path = scope.file.map_or("", |file| source.profile.strings.get(file));
                let file = self.joined.strings.intern(path.rsplit('/').next().unwrap_or(path));
                let known = self.defined.entry((procedure, source.side)).or_default();
                if !known.contains(&(file, line)) {
                    known.push((file, line));
                }
            }
            self.joined.nodes[here].is_called[source.side as usize] |= scope.kind == ScopeKind::Procedure;
            places.push(here);
            runs.push(run);
            defined.push(line);
            let row = view.exclusive(number);
            let cost = real(metric.value(row.get(source.column)));
            if let (Some(procedure), true) = (self.joined.nodes[here].procedure, scope.kind.is_frame()) {
                let path = scope.file.map_or("", |file| source.profile.strings.get(file));
                let home = (source.identities.home(scope, &mut self.joined.strings), self.joined.strings.intern(path));
                *self.homes.entry((procedure, source.side)).or_default().entry(home).or_default() += cost;
            }
            add_to(&mut self.joined.own[source.first + run], here, cost);
            if let (Some(returns), Some(procedure)) = (source.returns, self.joined.nodes[here].procedure) {
                add_to(&mut self.joined.returns[source.first + run], procedure, row.get(returns) as f64);
            }
            samples[run] += samples_at.map_or(0.0, |column| row.get(column) as f64);
            if scope.kind == ScopeKind::Loop
                && let Some(procedure) = self.joined.nodes[here].procedure
            {
                let place = match (scope.line, line) {
                    (Some(line), defined) => LoopPlace::Line(i64::from(line) - i64::from(defined.unwrap_or(0))),
                    (None, _) => LoopPlace::Address(scope.address.unwrap_or(0)),
                };
                self.places.entry((procedure, source.side)).or_default().insert(place, scope.line);
                self.loops.push(LoopCost { side: source.side, run: source.first + run, node: here, place, cost });
            }
        }
        (0..source.count).map(|run| (source.first + run, samples[run])).collect()
    }

    /// The child of a context, or the context above that is the same procedure.
    pub(super) fn child(&mut self, parent: usize, identity: Identity) -> usize {
        let Joined { nodes, procedures, .. } = &mut self.joined;
        let (procedure, other) = match identity {
            Identity::Other { kind, name } => (None, Some((kind, name))),
            frame => {
                let number = *self.numbers.entry(frame).or_insert_with(|| {
                    procedures.push(frame);
                    procedures.len() - 1
                });
                (Some(number), None)
            }
        };
        let mut above = parent;
        while above != 0 {
            if procedure.is_some() && nodes[above].procedure == procedure {
                return above;
            }
            above = nodes[above].parent;
        }
        *self.index.entry((parent, identity)).or_insert_with(|| {
            nodes.push(Node { procedure, other, ..Node::new(parent) });
            nodes.len() - 1
        })
    }

    /// Of each run, what one sample of the metric costs on average.
    fn sample_costs(&mut self, profile: &Profile, column: usize, runs: &[(usize, f64)]) {
        // Each event has samples of its own, and only their sum is known.
        let events = profile.metrics.iter().filter(|metric| metric.is_sampled()).count().max(1) as f64;
        let of_samples = profile.metrics[column].source == MetricSource::Samples;
        for (run, samples) in runs {
            let total: f64 = self.joined.own[*run].iter().sum();
            let samples = match samples {
                samples if *samples > 0.0 => *samples,
                _ => profile.quality.taken as f64 / runs.len() as f64,
            };
            let cost = match of_samples {
                true => 1.0,
                false if samples > 0.0 => total * events / samples,
                false => 0.0,
            };
            self.joined.sample_costs.push(cost.min(total));
        }
    }

    /// Once all runs are there: joins what is called otherwise on either side, and frames that one side lacks; pairs the
    /// loops of both sides, and makes all rows equally long.
    pub(super) fn finish(mut self) -> Joined {
        self.resize();
        self.join_procedures();
        self.skip_frames();
        let Joining { mut joined, loops, places, homes, .. } = self;
        let home = |procedure: usize| {
            let most = |side: Side| {
                let of_side = homes.get(&(procedure, side))?;
                of_side.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(home, _)| *home)
            };
            most(Side::B).or_else(|| most(Side::A)).unwrap_or((Name::EMPTY, Name::EMPTY))
        };
        joined.homes = (0..joined.procedures.len()).map(home).collect();
        // By procedure, side and place, the loop's number.
        let mut numbers: FxHashMap<(usize, Side, LoopPlace), usize> = FxHashMap::default();
        for procedure in 0..joined.procedures.len() {
            let none = Places::new();
            let of = |side| places.get(&(procedure, side)).unwrap_or(&none);
            for (number, pair) in aligned(of(Side::A), of(Side::B)).into_iter().enumerate() {
                for (side, place) in [Side::A, Side::B].into_iter().zip(pair) {
                    if let Some(place) = place {
                        numbers.insert((procedure, side, place), number);
                        joined.loop_lines.insert((procedure, number), of(side).get(&place).copied().flatten());
                    }
                }
            }
        }
        let mut index: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        for LoopCost { side, run, node, place, cost } in loops {
            let number = joined.nodes[node].procedure.and_then(|procedure| numbers.get(&(procedure, side, place)));
            let Some(&number) = number else { continue };
            let here = *index.entry((node, number)).or_insert_with(|| {
                joined.nodes.push(Node { loop_number: Some(number), ..Node::new(node) });
                joined.nodes.len() - 1
            });
            add_to(&mut joined.own[run], here, cost);
        }
        let nodes = joined.nodes.len();
        joined.own.iter_mut().for_each(|costs| costs.resize(nodes, 0.0));
        joined
    }

    /// Makes all rows equally long.
    fn resize(&mut self) {
        let Joined { nodes, procedures, own, returns, .. } = &mut self.joined;
        own.iter_mut().for_each(|costs| costs.resize(nodes.len(), 0.0));
        let has_returns = returns.iter().all(|returns| !returns.is_empty());
        returns.iter_mut().for_each(|returns| returns.resize(if has_returns { procedures.len() } else { 0 }, 0.0));
    }
}

/// A profile, and where it has what is compared.
struct Source<'a> {
    side: Side,
    profile: &'a Profile,
    identities: Identities<'a>,
    column: usize,
    returns: Option<usize>,
    /// The number of its first run.
    first: usize,
    count: usize,
}

impl Joined {
    /// The number of runs on both sides.
    pub(super) fn runs(&self) -> usize {
        self.own.len()
    }

    /// By run, by node: the cost with everything below. Loops stand beside it: their cost is in their procedure's.
    pub(super) fn inclusive(&self) -> Vec<Vec<f64>> {
        let below = |own: &Vec<f64>| {
            let mut costs = own.clone();
            for node in (1..costs.len()).rev().filter(|&node| self.nodes[node].loop_number.is_none()) {
                costs[self.nodes[node].parent] += costs[node];
            }
            costs
        };
        self.own.iter().map(below).collect()
    }

    /// What a module or process is called.
    pub(super) fn module(&self, name: Name) -> String {
        match self.strings.get(name) {
            text if is_program(text) => self.program.clone(),
            text => text.to_owned(),
        }
    }
}

/// Pairs two lists in order: what stands at the same place, and between such pairs one by one.
fn aligned(a: &Places, b: &Places) -> Vec<[Option<LoopPlace>; 2]> {
    let mut pairs = Vec::new();
    let (mut left_a, mut left_b) = (Vec::new(), Vec::new());
    let flush = |left_a: &mut Vec<LoopPlace>, left_b: &mut Vec<LoopPlace>, pairs: &mut Vec<_>| {
        for at in 0..left_a.len().max(left_b.len()) {
            pairs.push([left_a.get(at).copied(), left_b.get(at).copied()]);
        }
        left_a.clear();
        left_b.clear();
    };
    let mut places: Vec<LoopPlace> = a.keys().chain(b.keys()).copied().collect();
    places.sort_unstable();
    places.dedup();
    for place in places {
        match (a.contains_key(&place), b.contains_key(&place)) {
            (true, true) => {
                flush(&mut left_a, &mut left_b, &mut pairs);
                pairs.push([Some(place); 2]);
            }
            (true, false) => left_a.push(place),
            (false, _) => left_b.push(place),
        }
    }
    flush(&mut left_a, &mut left_b, &mut pairs);
    pairs
}

/// The column of a metric that adds up.
fn column_of(profile: &Profile, metric: &Metric) -> Result<usize, DiffError> {
    let found = profile.metrics.iter().position(|own| own.name == metric.name && own.unit == metric.unit);
    let column = found.ok_or_else(|| DiffError::NoSuchMetric {
        wanted: metric.name.clone(),
        there: profile.metrics.iter().map(|metric| metric.name.clone()).collect(),
    })?;
    let metric = &profile.metrics[column];
    if metric.kind != MetricKind::Sum || matches!(metric.value, MetricType::Histogram { .. }) {
        return Err(DiffError::DoesNotAddUp { metric: metric.name.clone() });
    }
    Ok(column)
}

fn add_to(costs: &mut Vec<f64>, at: usize, cost: f64) {
    if at >= costs.len() {
        costs.resize(at + 1, 0.0);
    }
    costs[at] += cost;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_paired_in_order() {
        let of = |lines: &[i64]| -> Places { lines.iter().map(|line| (LoopPlace::Line(*line), None)).collect() };
        let line = |line: i64| Some(LoopPlace::Line(line));
        // The one at line 3 moved to 4, the last is new.
        let found = aligned(&of(&[1, 3, 8]), &of(&[1, 4, 8, 12]));
        let expected = [[line(1); 2], [line(3), line(4)], [line(8); 2], [None, line(12)]];
        assert_eq!(found, expected);
    }
}
