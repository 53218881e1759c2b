//! Writing a database: values as they come, one profile after the other, then what they are of.

use std::io::{self, Seek, SeekFrom, Write};

use callpath_schema::{Metric, MetricType, Rule, leb128};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::facts::{Facts, Member, ProfileColumn, ProfileEntry, Run};
use super::layout::{HEADER_BYTES, Section, SectionKind, closing, unfinished};
use super::scope_record;
use super::union::{Order, Union};
use crate::rows::Rows;

/// The values of one profile: for each metric that it has, contexts in ascending order with their values, which are not
/// 0.
pub(crate) type Columns = Vec<(u32, Vec<(u32, u64)>)>;

/// A database that is being written. What is written first is its header as that of an unfinished file.
pub(crate) struct Assembly<W: Write + Seek> {
    out: W,
    at: u64,
    metrics: Vec<Metric>,
    profiles: Vec<ProfileEntry>,
    /// What each context costs itself, over all profiles.
    sums: Rows,
    block: Vec<u8>,
}

impl<W: Write + Seek> Assembly<W> {
    /// Of so many contexts.
    pub(crate) fn new(mut out: W, metrics: Vec<Metric>, contexts: usize) -> io::Result<Self> {
        out.write_all(&unfinished())?;
        let sums = Rows::new(metrics.iter().map(Metric::rule)).zeros_like(contexts);
        Ok(Assembly { out, at: HEADER_BYTES as u64, metrics, profiles: Vec::new(), sums, block: Vec::new() })
    }

    /// Adds a profile.
    pub(crate) fn profile(&mut self, member: Member, columns: &Columns) -> io::Result<()> {
        self.block.clear();
        let mut entries = Vec::new();
        for (metric, facts) in columns.iter().filter(|(_, facts)| !facts.is_empty()) {
            let of = &self.metrics[*metric as usize];
            let rule = of.rule();
            let (mut total, mut last) = (0, 0);
            for (context, value) in facts {
                leb128::put(&mut self.block, u64::from(context - last));
                leb128::put(&mut self.block, packed(*value, of.value));
                last = *context;
                total = rule.combine(total, *value);
                self.sums.add(*context as usize, *metric as usize, *value);
            }
            entries.push(ProfileColumn { metric: *metric, facts: facts.len() as u64, total });
        }
        self.profiles.push(ProfileEntry {
            member,
            columns: entries,
            offset: self.at - HEADER_BYTES as u64,
            len_bytes: self.block.len() as u64,
            checksum: xxh3_64(&self.block),
        });
        self.out.write_all(&self.block)?;
        self.at += self.block.len() as u64;
        Ok(())
    }

    /// Completes the file; gives back what it was written to.
    pub(crate) fn finish(mut self, union: &Union, order: &Order, runs: Vec<Run>) -> io::Result<W> {
        let mut sections = Vec::new();
        let (kind, offset) = (SectionKind::Values.number(), HEADER_BYTES as u64);
        sections.push(Section { kind, metric: 0, offset, len_bytes: self.at - offset, checksum: 0 });
        let (out, at) = (&mut self.out, &mut self.at);
        let mut section = |kind: SectionKind, metric: usize, pieces: &mut dyn Iterator<Item = Vec<u8>>| {
            let padding = at.next_multiple_of(8) - *at;
            out.write_all(&[0; 8][..padding as usize])?;
            *at += padding;
            let (offset, mut checksum) = (*at, Xxh3::new());
            for piece in pieces {
                out.write_all(&piece)?;
                checksum.update(&piece);
                *at += piece.len() as u64;
            }
            let (len_bytes, checksum) = (*at - offset, checksum.digest());
            sections.push(Section { kind: kind.number(), metric: metric as u32, offset, len_bytes, checksum });
            io::Result::Ok(())
        };
        let (scope_of, scopes, strings) = union.scopes_in(order);
        let mut end = 0u64;
        let ends = strings.iter().map(|text| {
            end += text.len() as u64;
            end
        });
        section(SectionKind::StringEnds, 0, &mut in_pieces(ends, u64::to_le_bytes))?;
        section(SectionKind::StringBytes, 0, &mut strings.iter().map(|text| text.as_bytes().to_vec()))?;
        section(SectionKind::Scopes, 0, &mut scopes.iter().map(|scope| scope_record::bytes(scope).to_vec()))?;
        let ids = order.members.iter().map(|member| union.ids()[*member as usize]);
        section(SectionKind::Ids, 0, &mut in_pieces(ids, u64::to_le_bytes))?;
        let arrays = [
            (SectionKind::Parents, &order.parents),
            (SectionKind::Ends, &order.ends),
            (SectionKind::Depths, &order.depths),
            (SectionKind::ScopeOf, &scope_of),
        ];
        for (kind, array) in arrays {
            section(kind, 0, &mut in_pieces(array.iter().copied(), u32::to_le_bytes))?;
        }
        for (metric, of) in self.metrics.iter().enumerate() {
            let own = self.sums.column(metric);
            if own.is_empty() {
                continue;
            }
            let contexts = own.iter().map(|(context, _)| *context);
            section(SectionKind::SummaryContexts, metric, &mut in_pieces(contexts, u32::to_le_bytes))?;
            if of.rule().is_integer_sum() {
                let mut sum = 0u64;
                let sums = std::iter::once(0).chain(own.iter().map(|(_, value)| {
                    sum = sum.wrapping_add(*value);
                    sum
                }));
                section(SectionKind::SummarySums, metric, &mut in_pieces(sums, u64::to_le_bytes))?;
                continue;
            }
            let values = own.iter().map(|(_, value)| *value);
            section(SectionKind::SummaryValues, metric, &mut in_pieces(values, u64::to_le_bytes))?;
            let inclusive = inclusive(&own, order, of.rule());
            let contexts = inclusive.iter().map(|(context, _)| *context);
            section(SectionKind::InclusiveContexts, metric, &mut in_pieces(contexts, u32::to_le_bytes))?;
            let values = inclusive.iter().map(|(_, value)| *value);
            section(SectionKind::InclusiveValues, metric, &mut in_pieces(values, u64::to_le_bytes))?;
        }
        let facts = Facts { metrics: self.metrics, runs, profiles: self.profiles }.write();
        section(SectionKind::Facts, 0, &mut std::iter::once(facts))?;
        let padding = at.next_multiple_of(8) - *at;
        out.write_all(&[0; 8][..padding as usize])?;
        let (header, table) = closing(&sections, *at + padding);
        out.write_all(&table)?;
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&header)?;
        out.flush()?;
        Ok(self.out)
    }
}

/// Numbers as bytes, many at once.
fn in_pieces<T, const N: usize>(
    mut numbers: impl Iterator<Item = T>,
    bytes: impl Fn(T) -> [u8; N],
) -> impl Iterator<Item = Vec<u8>> {
    const AT_ONCE: usize = 8192;
    std::iter::from_fn(move || {
        let mut piece = Vec::with_capacity(AT_ONCE * N);
        numbers.by_ref().take(AT_ONCE).for_each(|number| piece.extend_from_slice(&bytes(number)));
        (!piece.is_empty()).then_some(piece)
    })
}

/// The contexts that have something of their own or below, with its combination.
fn inclusive(own: &[(u32, u64)], order: &Order, rule: Rule) -> Vec<(u32, u64)> {
    let mut all = vec![0u64; order.parents.len()];
    let mut has = vec![false; order.parents.len()];
    for (context, value) in own {
        (all[*context as usize], has[*context as usize]) = (*value, true);
    }
    for context in (1..all.len()).rev().filter(|context| *context > 0) {
        if has[context] {
            let parent = order.parents[context] as usize;
            all[parent] = if has[parent] { rule.combine(all[parent], all[context]) } else { all[context] };
            has[parent] = true;
        }
    }
    (0..all.len()).filter(|at| has[*at]).map(|at| (at as u32, all[at])).collect()
}

/// A value as a number that is small where the value is near 0.
#[inline]
pub(crate) fn packed(value: u64, value_type: MetricType) -> u64 {
    match value_type {
        MetricType::Signed => value << 1 ^ ((value as i64) >> 63) as u64,
        MetricType::Real => value.swap_bytes(),
        MetricType::Integer | MetricType::Histogram { .. } => value,
    }
}

/// What [`packed`] was given.
#[inline]
pub(crate) fn unpacked(number: u64, value_type: MetricType) -> u64 {
    match value_type {
        MetricType::Signed => number >> 1 ^ (number & 1).wrapping_neg(),
        MetricType::Real => number.swap_bytes(),
        MetricType::Integer | MetricType::Histogram { .. } => number,
    }
}
