//! What ranks of a parallel job cost, beside each other: a line of the report, and a page with a plot over the ranks, the procedures
//! and the call paths by which they differ.

use std::io::{self, BufWriter, Write};

use callpath_db::{OverRanks, Profile, RankCosts, RankRow, Spread};

use super::label::scope_label;
use super::options::TextOptions;
use super::page::Page;
use super::paint::Ink;
use super::printable::{columns, cut_end, printable};
use super::quantity::{count, value};
use super::{groups, head, levels};
use crate::ViewError;

/// Rows of each table.
const MOST_ROWS: usize = 15;
/// Rows of the plot; where there are more ranks, a row has several.
const MOST_BARS: usize = 32;
/// Columns of a plot in a row of a table.
const SMALL: usize = 16;
/// What differs by less than this share of what a rank costs on average is not listed.
const LEAST_SHARE: f64 = 0.01;
/// So many standard deviations of a count of samples (Poisson's) the costliest of thousands of ranks is seldom off by chance.
const CHANCE: f64 = 4.0;
/// A context that has most of its excess from one that it calls is not listed beside that.
const FROM_ONE: f64 = 0.9;

/// One line of the report: the least, the mean and the most that a rank costs.
pub(super) fn line(page: Page<'_>, out: &mut dyn Write) -> Result<(), ViewError> {
    let Page { profile, options } = page;
    let Some(metric) = OverRanks::metric_of(profile) else { return Ok(()) };
    let Some(over) = OverRanks::of_whole(profile, &options.query, metric)? else { return Ok(()) };
    let spread = over.spread(&over.contexts[0].inclusive);
    let mut facts = spread_words(&spread, &profile.metrics[metric].unit);
    facts[0].insert_str(0, "ranks: ");
    facts.push("--ranks shows what they differ in".into());
    Ok(head::wrapped(&facts, ", ", page, out)?)
}

fn spread_words(spread: &Spread, unit: &str) -> Vec<String> {
    let mut words = vec![
        format!("{} at least (rank {})", value(spread.min.0, unit), spread.min.1),
        format!("{} on average", value(spread.mean.round() as u64, unit)),
        format!("{} at most (rank {})", value(spread.max.0, unit), spread.max.1),
    ];
    if spread.mean > 0.0 {
        words.push(format!("which is {:.1}% more than the average", 100.0 * spread.excess() / spread.mean));
    }
    words
}

/// Writes the page of the ranks. `along`: names of procedures that call each other, whose costs are plotted; without any, it is
/// what the query selects.
pub fn ranks(profile: &Profile, options: &TextOptions, along: &[String], out: &mut dyn Write) -> Result<(), ViewError> {
    let options = levels::without_single_levels(profile, options, callpath_db::ViewKind::Context);
    let page = Page { profile, options: &options };
    let metric = OverRanks::metric_of(profile).ok_or(ViewError::NoRanks)?;
    let over = OverRanks::of(profile, &options.query, metric)?.ok_or(ViewError::NoRanks)?;
    let mut out = BufWriter::new(out);
    head::what_ran(page, &mut out)?;
    head::quality(page, &mut out)?;
    groups::found(page, &mut out)?;
    let table = Table { over: &over, page, unit: &profile.metrics[metric].unit };
    let name = printable(&profile.metrics[metric].name);
    let selected = options.selected().map_or(String::new(), |selected| format!(" of {}", printable(&selected)));
    let (what, costs) = match (along, &options.query.procedure) {
        ([], None) => (format!("Ranks{selected} by {name}"), over.contexts[0].inclusive.clone()),
        ([], Some(procedure)) => {
            (format!("{} in each rank{selected} by {name}", printable(procedure)), over.contexts[0].inclusive.clone())
        }
        (names, _) => {
            let chain = names.iter().map(|name| printable(name)).collect::<Vec<_>>().join(" › ");
            (format!("{chain} in each rank{selected} by {name}"), over.along(profile, names)?)
        }
    };
    writeln!(out, "\n{}", page.ink(Ink::Bold, &what))?;
    if costs.is_empty() {
        writeln!(out, "  nothing was measured there")?;
    } else {
        head::wrapped(&spread_words(&over.spread(&costs), table.unit), ", ", page, &mut out)?;
        table.plot(&costs, &mut out)?;
    }
    let procedures = over.procedures.iter().map(|row| (row, &row.self_cost, label(row, profile)));
    table.write(
        ["Procedures by what the costliest rank takes itself beyond the average", "procedure"],
        procedures,
        &mut out,
    )?;
    let contexts = table.contexts();
    let contexts = contexts.into_iter().map(|at| (&over.contexts[at], &over.contexts[at].inclusive, table.path(at)));
    table.write(
        ["Call paths by what the costliest rank takes beyond the average, with what they call", "call path"],
        contexts,
        &mut out,
    )?;
    out.flush()?;
    Ok(())
}

fn label(row: &RankRow, profile: &Profile) -> String {
    let label = scope_label(&row.scope, profile);
    label.fit(usize::MAX)
}

/// The ranks on a page.
struct Table<'a> {
    over: &'a OverRanks,
    page: Page<'a>,
    unit: &'a str,
}

impl Table<'_> {
    /// A bar for each rank, or for several: up to the mean full, up to the most hatched.
    fn plot(&self, costs: &RankCosts, out: &mut dyn Write) -> io::Result<()> {
        let (every, ranks) = (self.over.every(costs), &self.over.ranks);
        let step = every.len().div_ceil(MOST_BARS);
        let label = |first: usize, last: usize| match first == last {
            true => ranks[first].to_string(),
            false => format!("{} to {}", ranks[first], ranks[last]),
        };
        let rows: Vec<(String, &[u64])> = every
            .chunks(step)
            .enumerate()
            .map(|(row, costs)| (label(row * step, row * step + costs.len() - 1), costs))
            .collect();
        let word = if step == 1 { "rank" } else { "ranks" };
        let wide = rows.iter().map(|(label, _)| label.len()).chain([word.len()]).max().unwrap_or(0);
        let most = every.iter().copied().max().unwrap_or(0).max(1);
        let mut heading = format!("  {word:>wide$} {:>9}", if step == 1 { "cost" } else { "average" });
        if step > 1 {
            heading += &format!(" {:>9}", "most");
        }
        writeln!(out, "{}", self.page.ink(Ink::Bold, &heading))?;
        let room = self.page.options.width.saturating_sub(columns(&heading) + 2).clamp(8, 60);
        for (label, costs) in rows {
            let mean = costs.iter().map(|cost| *cost as f64).sum::<f64>() / costs.len() as f64;
            let top = costs.iter().copied().max().unwrap_or(0);
            let length = |cost: f64| (cost / most as f64 * room as f64).round() as usize;
            let bar = "█".repeat(length(mean));
            let beyond = "░".repeat(length(top as f64).saturating_sub(length(mean)));
            let mut cells = format!("  {label:>wide$} {:>9}", value(mean.round() as u64, self.unit));
            if step > 1 {
                cells += &format!(" {:>9}", value(top, self.unit));
            }
            writeln!(out, "{}", format!("{cells}  {bar}{beyond}").trim_end())?;
        }
        Ok(())
    }

    /// The costs in few columns: the mean of the ranks of each, as an eighth of the most.
    fn small(&self, costs: &RankCosts) -> String {
        const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let every = self.over.every(costs);
        let most = every.iter().copied().max().unwrap_or(0).max(1) as f64;
        let of = |ranks: &[u64]| ranks.iter().map(|cost| *cost as f64).sum::<f64>() / ranks.len() as f64;
        let level = |mean: f64| if mean > 0.0 { ((mean / most * 8.0).round() as usize).clamp(1, 8) } else { 0 };
        every.chunks(every.len().div_ceil(SMALL)).map(|ranks| LEVELS[level(of(ranks))]).collect()
    }

    /// Whether a difference is worth listing: some of what a rank costs, and more than chance makes of samples.
    fn is_listed(&self, spread: &Spread) -> bool {
        let whole = self.over.spread(&self.over.contexts[0].inclusive);
        let samples = self.page.profile.quality.taken.max(1) as f64;
        let sample = whole.mean * self.over.ranks.len() as f64 / samples;
        let by_chance = CHANCE * (spread.mean * sample + sample * sample).sqrt();
        spread.max.0 > 0 && spread.excess() >= (whole.mean * LEAST_SHARE).max(by_chance)
    }

    /// The contexts that are procedures and not explained by one of those that they call.
    fn contexts(&self) -> Vec<usize> {
        let contexts = &self.over.contexts;
        let spreads: Vec<Spread> = contexts.iter().map(|row| self.over.spread(&row.inclusive)).collect();
        let mut is_explained = vec![false; contexts.len()];
        for (at, row) in contexts.iter().enumerate().filter(|(_, row)| row.scope.kind.is_frame()) {
            let is_most = |above: &usize| spreads[at].excess() >= FROM_ONE * spreads[*above].excess();
            let caller = std::iter::successors(row.parent, |&above| contexts[above].parent);
            for above in caller.take_while(is_most) {
                is_explained[above] = true;
            }
        }
        let is_listed = |at: &usize| contexts[*at].scope.kind.is_frame() && !is_explained[*at];
        (0..contexts.len()).filter(is_listed).collect()
    }

    /// The procedures on the way to a context, the outermost first.
    fn path(&self, at: usize) -> String {
        let contexts = &self.over.contexts;
        let up = std::iter::successors(Some(at), |&at| contexts[at].parent);
        let frames = up.map(|at| &contexts[at]).filter(|row| row.scope.kind.is_frame());
        let mut names: Vec<String> = frames.map(|row| label(row, self.page.profile)).collect();
        names.reverse();
        names.join(" › ")
    }

    /// Rows of what ranks differ in, the greatest difference first.
    fn write<'r>(
        &self,
        [title, word]: [&str; 2],
        rows: impl Iterator<Item = (&'r RankRow, &'r RankCosts, String)>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let page = self.page;
        let rows = rows.map(|(_, costs, name)| (self.over.spread(costs), costs, name));
        let mut rows: Vec<_> = rows.filter(|(spread, ..)| self.is_listed(spread)).collect();
        rows.sort_by(|(a, ..), (b, ..)| b.excess().total_cmp(&a.excess()));
        writeln!(out)?;
        for line in head::lines_of(&[title.to_owned()], " ", page.options.width) {
            writeln!(out, "{}", page.ink(Ink::Bold, &line))?;
        }
        if rows.is_empty() {
            return writeln!(out, "  none by more than 1% of what a rank costs on average, beyond chance");
        }
        let plot = SMALL.min(self.over.ranks.len()).max("ranks".len());
        let heading = format!(
            "{:>9} {:>9} {:>9} {:>9} {:>7}  {:<plot$}  ",
            "beyond", "least", "average", "most", "in rank", "ranks"
        );
        writeln!(out, "{}", page.ink(Ink::Bold, &format!("{heading}{word}")))?;
        let room = page.options.width.saturating_sub(columns(&heading)).max(16);
        let more = rows.len().saturating_sub(MOST_ROWS);
        for (spread, costs, name) in rows.into_iter().take(MOST_ROWS) {
            let cell = |number: f64| value(number.round() as u64, self.unit);
            writeln!(
                out,
                "{:>9} {:>9} {:>9} {:>9} {:>7}  {:<plot$}  {}",
                cell(spread.excess()),
                value(spread.min.0, self.unit),
                cell(spread.mean),
                value(spread.max.0, self.unit),
                spread.max.1,
                self.small(costs),
                cut_front(&name, room),
            )?;
        }
        match more {
            0 => Ok(()),
            more => writeln!(out, "{}", page.ink(Ink::Dim, &count(more as u64, "more row", "more rows"))),
        }
    }
}

/// The end of a path, where it is too long for the room: what it ends in matters most.
fn cut_front(path: &str, room: usize) -> String {
    if columns(path) <= room {
        return path.to_owned();
    }
    let starts = path.match_indices(" › ").map(|(at, between)| at + between.len());
    let fitting = starts.map(|at| format!("… {}", &path[at..])).find(|rest| columns(rest) <= room);
    fitting.unwrap_or_else(|| cut_end(path.rsplit(" › ").next().unwrap_or(path), room))
}
