//! Writing sections one after the other, each with its checksum.

use std::io::{self, Write};

use callpath_schema::Rule;
use xxhash_rust::xxh3::Xxh3;

use super::layout::{Section, SectionKind};

/// What is written, and the sections so far.
pub(crate) struct SectionsOut<'w, W: Write> {
    pub(crate) out: &'w mut W,
    pub(crate) at: u64,
    pub(crate) sections: Vec<Section>,
}

impl<W: Write> SectionsOut<'_, W> {
    /// Adds zeros up to a multiple of 8.
    pub(crate) fn pad(&mut self) -> io::Result<()> {
        let padding = self.at.next_multiple_of(8) - self.at;
        self.out.write_all(&[0; 8][..padding as usize])?;
        self.at += padding;
        Ok(())
    }

    /// Adds a section.
    pub(crate) fn add(
        &mut self,
        kind: SectionKind,
        metric: usize,
        pieces: impl Iterator<Item = Vec<u8>>,
    ) -> io::Result<()> {
        self.pad()?;
        let (offset, mut checksum) = (self.at, Xxh3::new());
        for piece in pieces {
            self.out.write_all(&piece)?;
            checksum.update(&piece);
            self.at += piece.len() as u64;
        }
        let (len_bytes, checksum) = (self.at - offset, checksum.digest());
        self.sections.push(Section { kind: kind.number(), metric: metric as u32, offset, len_bytes, checksum });
        Ok(())
    }

    /// The same of numbers.
    pub(crate) fn add_u32(
        &mut self,
        kind: SectionKind,
        metric: usize,
        numbers: impl Iterator<Item = u32>,
    ) -> io::Result<()> {
        self.add(kind, metric, in_pieces(numbers, u32::to_le_bytes))
    }

    /// The same.
    pub(crate) fn add_u64(
        &mut self,
        kind: SectionKind,
        metric: usize,
        numbers: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        self.add(kind, metric, in_pieces(numbers, u64::to_le_bytes))
    }

    /// Numbers of both kinds, one after the other: rows and their values.
    pub(crate) fn add_cells(&mut self, kind: SectionKind, metric: usize, cells: &[(u32, u64)]) -> io::Result<()> {
        let rows = in_pieces(cells.iter().map(|cell| cell.0), u32::to_le_bytes);
        self.add(kind, metric, rows.chain(in_pieces(cells.iter().map(|cell| cell.1), u64::to_le_bytes)))
    }

    /// Makes the bytes of each section of kind `of` a section of kind `kind`, too.
    pub(crate) fn share(&mut self, of: SectionKind, kind: SectionKind) {
        let shared: Vec<Section> =
            self.sections.iter().filter(|section| section.kind == of.number()).copied().collect();
        self.sections.extend(shared.into_iter().map(|section| Section { kind: kind.number(), ..section }));
    }

    /// What the nodes of a tree with these parents cost by a metric, if any: `own`, nodes and values in order. Sums of integers as prefix sums.
    pub(crate) fn add_summary(
        &mut self,
        kinds: SummaryKinds,
        (metric, rule): (usize, Rule),
        (own, parents): (&[(u32, u64)], &[u32]),
    ) -> io::Result<()> {
        if own.is_empty() {
            return Ok(());
        }
        self.add_u32(kinds.contexts, metric, own.iter().map(|(context, _)| *context))?;
        if rule.is_integer_sum() {
            let mut sum = 0u64;
            let sums = std::iter::once(0).chain(own.iter().map(|(_, value)| {
                sum = sum.wrapping_add(*value);
                sum
            }));
            return self.add_u64(kinds.sums, metric, sums);
        }
        self.add_u64(kinds.values, metric, own.iter().map(|(_, value)| *value))?;
        let inclusive = inclusive(own, parents, rule);
        self.add_u32(kinds.inclusive_contexts, metric, inclusive.iter().map(|(context, _)| *context))?;
        self.add_u64(kinds.inclusive_values, metric, inclusive.iter().map(|(_, value)| *value))
    }
}

/// The sections that have the costs of one preorder.
#[derive(Clone, Copy)]
pub(crate) struct SummaryKinds {
    pub(crate) contexts: SectionKind,
    pub(crate) sums: SectionKind,
    pub(crate) values: SectionKind,
    pub(crate) inclusive_contexts: SectionKind,
    pub(crate) inclusive_values: SectionKind,
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
fn inclusive(own: &[(u32, u64)], parents: &[u32], rule: Rule) -> Vec<(u32, u64)> {
    let mut all = vec![0u64; parents.len()];
    let mut has = vec![false; parents.len()];
    for (context, value) in own {
        (all[*context as usize], has[*context as usize]) = (*value, true);
    }
    for context in (1..all.len()).rev() {
        if has[context] {
            let parent = parents[context] as usize;
            all[parent] = if has[parent] { rule.combine(all[parent], all[context]) } else { all[context] };
            has[parent] = true;
        }
    }
    (0..all.len()).filter(|at| has[*at]).map(|at| (at as u32, all[at])).collect()
}
