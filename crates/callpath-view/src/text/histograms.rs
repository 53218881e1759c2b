//! The histograms of a context view, below its tree: for each call path how many values there are, and below what most of
//! them lie.

use std::io::{self, Write};

use callpath_db::{Metric, MetricType, View, ViewKind};

use super::inner_path::inner_path;
use super::page::Page;
use super::paint::Ink;
use super::printable::printable;
use super::quantity::{thousands, value};
use crate::histogram::{groups, quantile};

/// So many call paths have a line.
const MOST: usize = 10;
/// Columns of the numbers, and of the longest bar.
const NUMBERS: usize = 10 + 4 * 11 + 2;
const BAR: usize = 40;

/// Writes those that have values.
pub(super) fn histograms(view: &View, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    if view.kind != ViewKind::Context {
        return Ok(());
    }
    let metrics = &page.profile.metrics;
    for (first, columns) in groups(metrics) {
        if matches!(metrics[first].value, MetricType::Histogram { .. }) {
            Histogram { view, page, first, columns }.write(out)?;
        }
    }
    Ok(())
}

struct Histogram<'a> {
    view: &'a View,
    page: Page<'a>,
    /// Its first column.
    first: usize,
    columns: usize,
}

impl Histogram<'_> {
    fn metric(&self) -> &Metric {
        &self.page.profile.metrics[self.first]
    }

    /// Of a node itself.
    fn bins(&self, node: usize) -> Vec<u64> {
        let row = self.view.exclusive(node);
        (self.first..self.first + self.columns).map(|column| row.get(column)).collect()
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let sum = |bins: &[u64]| bins.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let row = |node| {
            let bins = self.bins(node);
            let values = sum(&bins);
            (node, bins, values)
        };
        let mut rows: Vec<(usize, Vec<u64>, u64)> = (0..self.view.nodes.len()).map(row).collect();
        rows.retain(|(.., values)| *values > 0);
        if rows.is_empty() {
            return Ok(());
        }
        rows.sort_by_key(|(node, _, values)| (std::cmp::Reverse(*values), *node));
        let title = format!("{} by call path: of the values, so many are below", printable(&self.metric().name));
        writeln!(out, "\n{}", self.page.ink(Ink::Bold, &title))?;
        let heading = format!("{:>10} {:>10} {:>10} {:>10} {:>10}  call path", "values", "50%", "90%", "99%", "all");
        writeln!(out, "{}", self.page.ink(Ink::Bold, &heading))?;
        for (node, bins, values) in rows.iter().take(MOST) {
            let below = [500, 900, 990, 1000].map(|of| quantile(bins, of).map_or(String::new(), |bin| self.end(bin)));
            let numbers: String = below.iter().map(|end| format!(" {end:>10}")).collect();
            let room = self.page.options.width.saturating_sub(NUMBERS).max(20);
            let path = inner_path(self.view, self.page.profile, *node, room);
            writeln!(out, "{:>10}{numbers}  {path}", thousands(*values))?;
        }
        if let Some(more) = rows.len().checked_sub(MOST).filter(|more| *more > 0) {
            writeln!(out, "{}", self.page.ink(Ink::Dim, &format!("{more} more call paths have fewer values")))?;
        }
        if let [(_, bins, _)] = &rows[..] {
            self.write_bins(bins, out)?;
        }
        Ok(())
    }

    /// A bar for each bin, where there is one call path alone.
    fn write_bins(&self, bins: &[u64], out: &mut dyn Write) -> io::Result<()> {
        let longest = bins.iter().copied().max().unwrap_or(0).max(1);
        let first = bins.iter().position(|count| *count > 0).unwrap_or(0);
        let last = bins.iter().rposition(|count| *count > 0).unwrap_or(0);
        for (bin, count) in (0u32..).zip(bins).take(last + 1).skip(first) {
            let bar = (u128::from(*count) * BAR as u128).div_ceil(u128::from(longest)) as usize;
            writeln!(out, "{:>10} below {:<10} {}", thousands(*count), self.end(bin), "#".repeat(bar))?;
        }
        Ok(())
    }

    /// What lies above all values of a bin; of the last one the largest value.
    fn end(&self, bin: u32) -> String {
        let end = 1u64.checked_shl(bin + 1).unwrap_or(u64::MAX);
        value(end, &self.metric().unit)
    }
}
