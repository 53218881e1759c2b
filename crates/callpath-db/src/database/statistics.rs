//! Statistics across profiles, on demand: what a context costs, with all below it, in each of a database's profiles. A profile that
//! has no value there counts as 0.

use std::ops::Range;

use callpath_schema::{Metric, Rule, Value};
use rustc_hash::FxHashMap;

use super::costs::Costs;
use super::error::DatabaseError;
use super::facts::{Member, ProfileEntry};
use super::layout::{SectionKind, u32_at};
use super::{ContextTable, Database};
use crate::{Scope, ScopeKind};

/// Of one metric, how what some contexts cost together is distributed over the profiles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Statistics {
    /// All profiles combined by the metric's rule, in its bits: exact.
    pub total: u64,
    /// The mean over all profiles.
    pub mean: f64,
    /// The least of a profile.
    pub min: f64,
    /// The greatest of a profile.
    pub max: f64,
    /// The standard deviation of all profiles (divided by their number: they are not a sample of others).
    pub deviation: f64,
    /// How many profiles have a value that is not 0.
    pub present: usize,
    /// The profile with `max`, the first of several, by its number; `None`: no profile has a value.
    pub greatest: Option<usize>,
}

/// What is asked of [`Database::statistics_tree`].
#[derive(Clone, PartialEq, Debug)]
pub struct StatisticsQuery {
    /// The metric's number.
    pub metric: usize,
    /// Contexts that cost less than this share of the total are left out.
    pub min_share: f64,
    /// Levels below the root that are shown at most.
    pub max_depth: usize,
    /// Scopes of these kinds are no rows; what they cost belongs to what contains them.
    pub fold: Vec<ScopeKind>,
}

/// The costliest contexts with their statistics.
#[derive(Clone, PartialEq, Debug)]
pub struct StatisticsTree {
    /// The metric.
    pub metric: Metric,
    /// Whose the profiles are, in the order of their numbers.
    pub members: Vec<Member>,
    /// In preorder, the root first; children by what they cost, in descending order.
    pub rows: Vec<StatisticsRow>,
}

/// A row of it: one context, or several that became one where scopes between them were folded.
#[derive(Clone, PartialEq, Debug)]
pub struct StatisticsRow {
    /// The row above; none of the root.
    pub parent: Option<usize>,
    /// What sort of scope it is.
    pub kind: ScopeKind,
    /// Its name; empty for loops and lines.
    pub name: String,
    /// The load module's name.
    pub module: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// Link-time address where it begins.
    pub address: Option<u64>,
    /// How its cost, with all below it, is distributed.
    pub statistics: Statistics,
}

impl Database {
    /// Statistics of one metric for each of `sets`, which are contexts of which none is below another. Reads the values of all profiles
    /// once.
    pub fn statistics(&self, metric: usize, sets: &[Vec<u32>]) -> Result<Vec<Statistics>, DatabaseError> {
        let Some(of) = self.facts.metrics.get(metric) else { return Ok(Vec::new()) };
        let ends = self.bytes_of_kind(SectionKind::Ends, 0)?;
        let range = |context: &u32| *context..u32_at(ends, *context as usize).max(*context);
        let sets: Vec<Vec<Range<u32>>> = sets.iter().map(|set| set.iter().map(range).collect()).collect();
        let mut gathered = vec![Gathered::default(); sets.len()];
        for (number, profile) in self.facts.profiles.iter().enumerate() {
            let values = Values::of(self, profile, metric, of.rule())?;
            for (set, gathered) in sets.iter().zip(&mut gathered) {
                gathered.add(number, values.of_ranges(set), of);
            }
        }
        let profiles = self.facts.profiles.len();
        Ok(gathered.into_iter().map(|gathered| gathered.finish(profiles)).collect())
    }

    /// The costliest contexts with the statistics of each.
    pub fn statistics_tree(&self, query: &StatisticsQuery) -> Result<StatisticsTree, DatabaseError> {
        let texts = self.strings()?;
        let scopes = self.scopes(texts.len())?;
        let summary = Summary::of(self, query.metric)?;
        let least = query.min_share * number(&summary.metric, summary.of_set(&[0])).abs();
        let mut chosen = vec![Chosen {
            parent: None,
            depth: 0,
            scope: Scope::new(ScopeKind::Root, crate::Name::EMPTY),
            set: vec![0],
        }];
        let (mut rows, mut sets) = (Vec::new(), Vec::new());
        while let Some(row) = chosen.pop() {
            let at = rows.len();
            if row.depth < query.max_depth {
                let mut below = summary.below(&row.set, &scopes, &query.fold);
                below.retain(|(_, _, total)| total.abs() >= least && *total != 0.0);
                // The last is taken first; equal ones keep their order.
                below.reverse();
                below.sort_by(|a, b| a.2.total_cmp(&b.2));
                let depth = row.depth + 1;
                chosen.extend(below.into_iter().map(|(scope, set, _)| Chosen { parent: Some(at), depth, scope, set }));
            }
            rows.push((row.parent, row.scope));
            sets.push(row.set);
        }
        let text = |name: crate::Name| texts.get(name.index()).copied().unwrap_or_default().to_owned();
        let statistics = self.statistics(query.metric, &sets)?;
        let rows = rows.into_iter().zip(statistics).map(|((parent, scope), statistics)| StatisticsRow {
            parent,
            kind: scope.kind,
            name: text(scope.name),
            module: scope.module.map(text),
            file: scope.file.map(text),
            line: scope.line,
            address: scope.address,
            statistics,
        });
        let members = self.facts.profiles.iter().map(|profile| profile.member.clone()).collect();
        Ok(StatisticsTree { metric: summary.metric.clone(), members, rows: rows.collect() })
    }
}

/// A value as a number.
fn number(metric: &Metric, bits: u64) -> f64 {
    match metric.value(bits) {
        Value::Integer(value) => value as f64,
        Value::Signed(value) => value as f64,
        Value::Real(value) => value,
    }
}

/// A row that is to be made.
struct Chosen {
    parent: Option<usize>,
    depth: usize,
    scope: Scope,
    set: Vec<u32>,
}

/// The values of one profile and metric.
struct Values {
    facts: Vec<(u32, u64)>,
    /// Of integers that add up: before each value, and behind the last, the sum of all before it.
    sums: Option<Vec<u64>>,
    rule: Rule,
}

impl Values {
    fn of(database: &Database, profile: &ProfileEntry, metric: usize, rule: Rule) -> Result<Values, DatabaseError> {
        let mut columns = database.values(profile)?.into_iter();
        let facts = columns.find(|(column, _)| *column as usize == metric).map_or(Vec::new(), |(_, facts)| facts);
        let sums = rule.is_integer_sum().then(|| {
            let mut sum = 0u64;
            let before = facts.iter().map(|(_, value)| {
                sum = sum.wrapping_add(*value);
                sum
            });
            std::iter::once(0).chain(before).collect()
        });
        Ok(Values { facts, sums, rule })
    }

    fn of_ranges(&self, ranges: &[Range<u32>]) -> u64 {
        ranges.iter().fold(0, |all, range| {
            let place = |context| self.facts.partition_point(|(at, _)| *at < context);
            let (start, end) = (place(range.start), place(range.end));
            let one = match &self.sums {
                Some(sums) => sums[end].wrapping_sub(sums[start]),
                None => self.facts[start..end]
                    .iter()
                    .map(|(_, value)| *value)
                    .reduce(|a, b| self.rule.combine(a, b))
                    .unwrap_or(0),
            };
            combined(self.rule, all, one)
        })
    }
}

/// Two values, of which 0 is none.
fn combined(rule: Rule, a: u64, b: u64) -> u64 {
    if a == 0 || b == 0 { a | b } else { rule.combine(a, b) }
}

/// What is known of the profiles with a value so far (Welford 1962).
#[derive(Clone, Default)]
struct Gathered {
    total: u64,
    present: usize,
    mean: f64,
    /// The sum of squares of differences from the mean.
    squares: f64,
    min: f64,
    max: f64,
    greatest: Option<usize>,
}

impl Gathered {
    fn add(&mut self, profile: usize, bits: u64, metric: &Metric) {
        if bits == 0 {
            return;
        }
        let value = number(metric, bits);
        self.total = combined(metric.rule(), self.total, bits);
        self.present += 1;
        let from_mean = value - self.mean;
        self.mean += from_mean / self.present as f64;
        self.squares += from_mean * (value - self.mean);
        if self.present == 1 || value < self.min {
            self.min = value;
        }
        if self.present == 1 || value > self.max {
            (self.max, self.greatest) = (value, Some(profile));
        }
    }

    /// With the profiles that have no value, of `profiles` in all.
    fn finish(self, profiles: usize) -> Statistics {
        let (n, present) = (profiles.max(1) as f64, self.present as f64);
        let absent = n - present;
        let squares = self.squares + self.mean * self.mean * present * absent / n;
        let with_zero = |bound: f64, least: fn(f64, f64) -> f64| if absent > 0.0 { least(bound, 0.0) } else { bound };
        Statistics {
            total: self.total,
            mean: self.mean * present / n,
            min: with_zero(self.min, f64::min),
            max: with_zero(self.max, f64::max),
            deviation: (squares / n).sqrt(),
            present: self.present,
            greatest: self.greatest,
        }
    }
}

/// What contexts cost over all profiles.
struct Summary<'a> {
    metric: Metric,
    table: ContextTable<'a>,
    ends: &'a [u8],
    costs: Costs<'a>,
}

impl Summary<'_> {
    fn of(database: &Database, metric: usize) -> Result<Summary<'_>, DatabaseError> {
        let of = database.facts.metrics.get(metric).cloned();
        let of = of.ok_or_else(|| database.nonsense(0, "number of a metric"))?;
        let rule = of.rule();
        let values = if rule.is_integer_sum() { SectionKind::SummarySums } else { SectionKind::SummaryValues };
        let bytes = |kind| database.bytes_of_kind(kind, metric);
        let costs = Costs {
            rule,
            contexts: bytes(SectionKind::SummaryContexts)?,
            values: bytes(values)?,
            inclusive: (bytes(SectionKind::InclusiveContexts)?, bytes(SectionKind::InclusiveValues)?),
        };
        let ends = database.bytes_of_kind(SectionKind::Ends, 0)?;
        Ok(Summary { table: database.contexts()?, ends, costs, metric: of })
    }

    fn end(&self, context: u32) -> u32 {
        // Behind it, so that no damage makes this go round.
        u32_at(self.ends, context as usize).clamp(context + 1, self.table.len as u32)
    }

    fn of_set(&self, set: &[u32]) -> u64 {
        let one = |context: &u32| self.costs.with_below(*context, self.end(*context));
        set.iter().fold(0, |all, context| combined(self.metric.rule(), all, one(context)))
    }

    /// The scopes below a set of contexts, each with the contexts that it is there and what these cost; of folded scopes what is below
    /// them.
    fn below(&self, set: &[u32], scopes: &[Scope], fold: &[ScopeKind]) -> Vec<(Scope, Vec<u32>, f64)> {
        let mut found: Vec<(Scope, Vec<u32>)> = Vec::new();
        let mut places: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for context in set {
            let (mut child, end) = (context + 1, self.end(*context));
            while child < end {
                let Some(scope) = scopes.get(self.table.scope(child as usize) as usize) else { break };
                if fold.contains(&scope.kind) {
                    // Into it.
                    child += 1;
                    continue;
                }
                let alike = places.entry(scope.hash_under(0)).or_default();
                match alike.iter().copied().find(|at| found[*at].0.same(scope)) {
                    Some(at) => {
                        found[at].0.agree(scope);
                        found[at].1.push(child);
                    }
                    None => {
                        alike.push(found.len());
                        found.push((*scope, vec![child]));
                    }
                }
                child = self.end(child);
            }
        }
        let with_total = |(scope, set): (Scope, Vec<u32>)| {
            let total = number(&self.metric, self.of_set(&set));
            (scope, set, total)
        };
        found.into_iter().map(with_total).collect()
    }
}
