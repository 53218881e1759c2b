//! Writing a database: values as they come, one profile after the other, then what they are of.

use std::io::{self, Seek, SeekFrom, Write};

use callpath_schema::{Metric, MetricType, leb128};
use xxhash_rust::xxh3::xxh3_64;

use super::code_section;
use super::facts::{Facts, Member, ProfileColumn, ProfileEntry, Run};
use super::layout::{HEADER_BYTES, Section, SectionKind, closing, unfinished};
use super::scope_record;
use super::sections_out::{SectionsOut, SummaryKinds};
use super::union::{Order, Union};
use super::views_out::{self, Whole};
use crate::CodeCosts;
use crate::rows::Rows;

/// The values of one profile: for each metric that it has, contexts in ascending order with their values, which are not
/// 0.
pub type Columns = Vec<(u32, Vec<(u32, u64)>)>;

/// A database that is being written. What is written first is its header as that of an unfinished file.
pub(crate) struct Assembly<W: Write + Seek> {
    out: W,
    at: u64,
    metrics: Vec<Metric>,
    profiles: Vec<ProfileEntry>,
    /// What each context costs itself, over all profiles.
    sums: Rows,
    block: Vec<u8>,
    with_views: bool,
    /// What instructions cost, where anything is known of it.
    code: Option<CodeCosts>,
}

impl<W: Write + Seek> Assembly<W> {
    /// Of so many contexts.
    pub(crate) fn new(mut out: W, metrics: Vec<Metric>, contexts: usize) -> io::Result<Self> {
        out.write_all(&unfinished())?;
        let sums = Rows::new(metrics.iter().map(Metric::rule)).zeros_like(contexts);
        Ok(Assembly {
            out,
            at: HEADER_BYTES as u64,
            metrics,
            profiles: Vec::new(),
            sums,
            block: Vec::new(),
            with_views: false,
            code: None,
        })
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

    /// The same with views: the whole can be shown without loading it.
    pub(crate) fn with_views(self) -> Self {
        Assembly { with_views: true, ..self }
    }

    /// The same with what instructions cost.
    pub(crate) fn with_code(self, code: Option<CodeCosts>) -> Self {
        Assembly { code, ..self }
    }

    /// Completes the file; gives back what it was written to.
    pub(crate) fn finish(mut self, union: &Union, order: &Order, runs: Vec<Run>) -> io::Result<W> {
        let (kind, offset) = (SectionKind::Values.number(), HEADER_BYTES as u64);
        let values = Section { kind, metric: 0, offset, len_bytes: self.at - offset, checksum: 0 };
        let mut out = SectionsOut { out: &mut self.out, at: self.at, sections: vec![values] };
        let (scope_of, scopes, strings) = union.scopes_in(order);
        let mut end = 0u64;
        let ends = strings.iter().map(|text| {
            end += text.len() as u64;
            end
        });
        out.add_u64(SectionKind::StringEnds, 0, ends)?;
        out.add(SectionKind::StringBytes, 0, strings.iter().map(|text| text.as_bytes().to_vec()))?;
        out.add(SectionKind::Scopes, 0, scopes.iter().map(|scope| scope_record::bytes(scope).to_vec()))?;
        out.add_u64(SectionKind::Ids, 0, order.members.iter().map(|member| union.ids()[*member as usize]))?;
        let arrays = [
            (SectionKind::Parents, &order.parents),
            (SectionKind::Ends, &order.ends),
            (SectionKind::Depths, &order.depths),
            (SectionKind::ScopeOf, &scope_of),
        ];
        for (kind, array) in arrays {
            out.add_u32(kind, 0, array.iter().copied())?;
        }
        for (metric, of) in self.metrics.iter().enumerate() {
            let kinds = SummaryKinds {
                contexts: SectionKind::SummaryContexts,
                sums: SectionKind::SummarySums,
                values: SectionKind::SummaryValues,
                inclusive_contexts: SectionKind::InclusiveContexts,
                inclusive_values: SectionKind::InclusiveValues,
            };
            out.add_summary(kinds, (metric, of.rule()), (&self.sums.column(metric), &order.parents))?;
        }
        if self.with_views {
            let (scope_of, scopes, metrics) = (&scope_of[..], &scopes[..], &self.metrics[..]);
            views_out::add(&mut out, Whole { order, scope_of, scopes, sums: self.sums, metrics })?;
        }
        if let Some(code) = &self.code {
            out.add(SectionKind::Code, 0, std::iter::once(code_section::bytes(code, &self.metrics)))?;
        }
        let facts = Facts { metrics: self.metrics, runs, profiles: self.profiles }.write();
        out.add(SectionKind::Facts, 0, std::iter::once(facts))?;
        out.pad()?;
        let (header, table) = closing(&out.sections, out.at);
        self.out.write_all(&table)?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(self.out)
    }
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
