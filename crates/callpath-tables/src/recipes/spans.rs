//! Intervals of code with one recipe each: resolves overlaps, and combines sources.

use std::ops::Range;

/// The recipe with an index, from `start` up to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) recipe: u32,
}

/// The rows of one FDE, or of one procedure's analysis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Contribution {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Rows `(start, recipe)` in ascending order: a range of a list that all contributions share.
    pub(super) rows: Range<usize>,
}

/// The spans of contributions from one source, sorted and disjoint, without those with the recipe `unknown`.
///
/// Where contributions overlap, the one that begins last wins; of those that begin together, the first in the list.
/// (That is the one that the loader's binary search of `.eh_frame_hdr` finds.)
pub(super) fn flatten(mut contributions: Vec<Contribution>, rows: &[(u64, u32)], unknown: u32) -> Vec<Span> {
    if !contributions.is_sorted_by(|a, b| a.start < b.start) {
        // Reversed before a stable sort: of those that begin together, the first in the list comes last, and so on top.
        contributions.reverse();
        contributions.sort_by_key(|contribution| contribution.start);
    }
    let mut out = Vec::with_capacity(rows.len());
    let mut emit = |contribution: &Contribution, from: u64, to: u64| {
        let rows = rows.get(contribution.rows.clone()).unwrap_or(&[]);
        let first = rows.partition_point(|row| row.0 <= from).saturating_sub(1);
        for (index, &(start, recipe)) in rows.iter().enumerate().skip(first) {
            let end = rows.get(index + 1).map_or(to, |next| next.0.min(to));
            let start = start.max(from);
            if start >= to {
                break;
            }
            if start < end && recipe != unknown {
                out.push(Span { start, end, recipe });
            }
        }
    };
    // The contributions that are open at `at`; the one that began last is on top.
    let mut open: Vec<&Contribution> = Vec::new();
    let mut at = 0;
    for contribution in contributions.iter().filter(|contribution| contribution.start < contribution.end) {
        at = close(&mut open, at, contribution.start, &mut emit);
        open.push(contribution);
    }
    close(&mut open, at, u64::MAX, &mut emit);
    out
}

/// Emits the rows of the open contributions from `at` up to `to`, and drops those that end before it.
fn close(open: &mut Vec<&Contribution>, mut at: u64, to: u64, emit: &mut impl FnMut(&Contribution, u64, u64)) -> u64 {
    while let Some(top) = open.last() {
        let from = at.max(top.start);
        let end = top.end.min(to);
        if from < end {
            emit(top, from, end);
            at = end;
        }
        if top.end > to {
            break;
        }
        open.pop();
    }
    to
}

/// `base`, with its gaps filled from `filler`. Both are sorted and disjoint, and so is the result.
pub(super) fn overlay(base: Vec<Span>, filler: Vec<Span>) -> Vec<Span> {
    if base.is_empty() || filler.is_empty() {
        return if base.is_empty() { filler } else { base };
    }
    let mut out = Vec::with_capacity(base.len() + filler.len());
    let mut fillers = filler.into_iter().peekable();
    let mut covered = 0;
    let mut fill = |out: &mut Vec<Span>, from: u64, to: u64| {
        while let Some(span) = fillers.peek() {
            let (start, end) = (span.start.max(from), span.end.min(to));
            if start < end {
                out.push(Span { start, end, recipe: span.recipe });
            }
            if span.end > to {
                break;
            }
            fillers.next();
        }
    };
    for span in base {
        fill(&mut out, covered, span.start);
        covered = span.end;
        out.push(span);
    }
    fill(&mut out, covered, u64::MAX);
    out
}

/// The spans (sorted, disjoint), with the recipes of those within `ranges` (in any order) replaced.
pub(super) fn change_within(
    spans: Vec<Span>,
    mut ranges: Vec<Range<u64>>,
    mut change: impl FnMut(u32) -> u32,
) -> Vec<Span> {
    ranges.retain(|range| range.start < range.end);
    if ranges.is_empty() {
        return spans;
    }
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    let mut out = Vec::with_capacity(spans.len() + 2 * joined.len());
    let mut ranges = joined.into_iter().peekable();
    for span in spans {
        let mut at = span.start;
        while at < span.end {
            while ranges.next_if(|range| range.end <= at).is_some() {}
            let (end, is_within) = match ranges.peek() {
                Some(range) if range.start <= at => (range.end.min(span.end), true),
                Some(range) => (range.start.min(span.end), false),
                None => (span.end, false),
            };
            let recipe = if is_within { change(span.recipe) } else { span.recipe };
            out.push(Span { start: at, end, recipe });
            at = end;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contributions of one row each.
    fn flat(contributions: &[(u64, u64, u32)]) -> Vec<(u64, u64, u32)> {
        let rows: Vec<_> = contributions.iter().map(|contribution| (contribution.0, contribution.2)).collect();
        let contributions = contributions
            .iter()
            .enumerate()
            .map(|(i, contribution)| Contribution { start: contribution.0, end: contribution.1, rows: i..i + 1 })
            .collect();
        flatten(contributions, &rows, 0).iter().map(|span| (span.start, span.end, span.recipe)).collect()
    }

    #[test]
    fn the_contribution_that_begins_last_holds() {
        assert_eq!(flat(&[(10, 20, 1), (20, 30, 2)]), [(10, 20, 1), (20, 30, 2)]);
        assert_eq!(flat(&[(20, 30, 2), (10, 20, 1)]), [(10, 20, 1), (20, 30, 2)]);
        assert_eq!(flat(&[(10, 40, 1), (20, 30, 2)]), [(10, 20, 1), (20, 30, 2), (30, 40, 1)]);
        assert_eq!(flat(&[(10, 30, 1), (20, 40, 2)]), [(10, 20, 1), (20, 40, 2)]);
        assert_eq!(flat(&[(10, 20, 1), (10, 20, 2)]), [(10, 20, 1)]);
        assert_eq!(flat(&[(10, 20, 1), (10, 30, 2)]), [(10, 20, 1), (20, 30, 2)]);
        assert_eq!(
            flat(&[(10, 50, 1), (20, 50, 2), (30, 50, 3), (40, 45, 4)]),
            [(10, 20, 1), (20, 30, 2), (30, 40, 3), (40, 45, 4), (45, 50, 3)]
        );
        assert_eq!(flat(&[(10, 10, 1), (5, 3, 2)]), []);
    }

    #[test]
    fn the_unknown_is_no_span() {
        assert_eq!(flat(&[(10, 20, 0), (20, 30, 2)]), [(20, 30, 2)]);
    }

    #[test]
    fn a_filler_fills_gaps_only() {
        let spans = |list: &[(u64, u64, u32)]| -> Vec<Span> {
            list.iter().map(|&(start, end, recipe)| Span { start, end, recipe }).collect()
        };
        let merged = overlay(spans(&[(10, 20, 1), (30, 40, 1)]), spans(&[(5, 12, 2), (15, 18, 3), (19, 50, 4)]));
        assert_eq!(merged, spans(&[(5, 10, 2), (10, 20, 1), (20, 30, 4), (30, 40, 1), (40, 50, 4)]));
        assert_eq!(overlay(spans(&[]), spans(&[(1, 2, 3)])), spans(&[(1, 2, 3)]));
        assert_eq!(overlay(spans(&[(1, 2, 3)]), spans(&[])), spans(&[(1, 2, 3)]));
    }

    #[test]
    fn what_is_changed_ends_where_it_is_said_to() {
        let spans = |list: &[(u64, u64, u32)]| -> Vec<Span> {
            list.iter().map(|&(start, end, recipe)| Span { start, end, recipe }).collect()
        };
        let all = || spans(&[(10, 20, 1), (20, 30, 2), (40, 50, 3)]);
        let changed = |ranges: &[Range<u64>]| change_within(all(), ranges.to_vec(), |recipe| recipe + 10);
        assert_eq!(changed(&[]), all());
        assert_eq!(changed(&[0..10, 30..40, 50..60]), all());
        assert_eq!(changed(&[5..22, 7..100]), spans(&[(10, 20, 11), (20, 30, 12), (40, 50, 13)]));
        assert_eq!(
            changed(&[45..46, 15..22, 12..14, 14..15, 42..43]),
            spans(&[
                (10, 12, 1),
                (12, 20, 11),
                (20, 22, 12),
                (22, 30, 2),
                (40, 42, 3),
                (42, 43, 13),
                (43, 45, 3),
                (45, 46, 13),
                (46, 50, 3)
            ])
        );
    }
}
