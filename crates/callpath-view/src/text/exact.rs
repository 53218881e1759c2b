//! What was counted exactly as text: the hot paths of a program with the lines that they are on, and which procedures they are in.

use std::collections::BTreeMap;
use std::io::{self, Write};

use callpath_db::Bounds;
use callpath_db::exact::{
    ExactCallers, ExactCost, ExactCounts, ExactFlow, ExactPath, ExactProcedure, ExactQuality, ExactRanking,
    ExactSampling, ExactTiming, RefusedFunction,
};

use super::chain::{Repeat, repeats};
use super::exact_hot::{few_paths, sampled, summary};
use super::exact_timed::{each, timed};
use super::head::lines_of;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, printable};
use super::quantity::{count, percent, thousands, value};
use crate::exact_label::{around, callees, place, trail};

/// So many refused procedures are named.
const REFUSED_NAMED: usize = 5;

/// Below a path, so many of the contexts are named that it was executed in.
const CONTEXTS_SHOWN: usize = 3;
/// Columns that callers have at least.
const LEAST_TRAIL: usize = 24;

/// Behind the columns of what was counted.
const BEHIND_NUMBERS: usize = 43;
/// Columns that what was sampled has at least, and at most.
const SAMPLED_COLUMNS: std::ops::RangeInclusive<usize> = 9..=14;
/// Columns that what was measured has.
const TIMED_COLUMNS: usize = 9;
/// A share, with what stands before and behind it.
const SHARE_COLUMNS: usize = 10;

/// How lines are written.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Columns of the terminal or page.
    pub(super) width: usize,
    /// Whether escape sequences for colour and weight may be used.
    pub(super) color: bool,
}

impl Lines {
    /// Lines of `text`, which is printable, with so many blanks before each.
    pub(super) fn wrapped(self, text: &str, indent: usize, out: &mut dyn Write) -> io::Result<()> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let lines = lines_of(&words, " ", self.width.max(indent + 30) - indent);
        lines.iter().try_for_each(|line| writeln!(out, "{}{line}", " ".repeat(indent)))
    }

    /// What else a reader should know, if there is anything.
    pub(super) fn notes(self, said: &[String], out: &mut dyn Write) -> io::Result<()> {
        if said.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{}", Paint { color: self.color }.with(Ink::Bold, "Notes"))?;
        said.iter().try_for_each(|note| self.wrapped(&printable(note), 2, out))
    }
}

/// That procedures were not counted, the first ones with the reason. `None`: all were.
pub(super) fn not_counted(refused: &[RefusedFunction]) -> Option<String> {
    if refused.is_empty() {
        return None;
    }
    // What their calls alone were counted of says so itself.
    let in_full = if refused.iter().any(RefusedFunction::has_calls) { ", or not in full" } else { "" };
    let mut words =
        format!("{} not counted{in_full}:", count(refused.len() as u64, "procedure was", "procedures were"));
    for refused in refused.iter().take(REFUSED_NAMED) {
        words += &format!(" {} ({});", refused.function, refused.reason);
    }
    words.pop();
    if let more @ 1.. = refused.len().saturating_sub(REFUSED_NAMED) {
        words += &format!("; and {} more, which --json names", thousands(more as u64));
    }
    Some(format!("{words}."))
}

/// What of the counts is shown as text, and how.
#[derive(Clone, Copy)]
pub struct ExactText<'a> {
    /// All that was counted.
    pub counts: &'a ExactCounts,
    /// The procedures that are shown, by their indices.
    pub procedures: &'a [usize],
    /// By what paths are hot, and in order.
    pub ranking: ExactRanking,
    /// The share of all that the ranking is by, from 0 to 1, that makes a path or procedure hot.
    pub hot_share: f64,
    /// What has less than this share is not shown.
    pub min_share: f64,
    /// At most so many paths or blocks are shown.
    pub max_rows: usize,
    /// Columns of the terminal or page.
    pub width: usize,
    /// Whether escape sequences for colour and weight may be used.
    pub color: bool,
}

impl<'a> ExactText<'a> {
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        Paint { color: self.color }.with(ink, text)
    }

    pub(super) fn shown(self) -> impl Iterator<Item = &'a ExactProcedure> {
        self.procedures.iter().filter_map(|at| self.counts.procedures.get(*at))
    }

    /// What was sampled, if a sample is in any procedure that was counted.
    pub(super) fn sampling(self) -> Option<&'a ExactSampling> {
        self.counts.sampling.as_ref().filter(|sampling| sampling.samples > 0)
    }

    /// What was measured of paths.
    pub(super) fn timings(self) -> &'a [ExactTiming] {
        &self.counts.timings
    }

    /// Columns of all numbers that were measured, with their shares.
    fn timed_columns(self) -> usize {
        self.timings().iter().map(|timing| Self::columns_of(timing) + SHARE_COLUMNS).sum()
    }

    fn columns_of(timing: &ExactTiming) -> usize {
        columns(&Self::heading_of(timing)).max(TIMED_COLUMNS)
    }

    /// Instructions that were counted are not those that the blocks have.
    fn heading_of(timing: &ExactTiming) -> String {
        /// More of a name says nothing.
        const MOST_COLUMNS: usize = 24;
        let name = if timing.name == "instructions" { "instructions:u" } else { &timing.name };
        cut_end(&printable(name), MOST_COLUMNS)
    }

    /// Columns of the numbers that were sampled.
    fn sampled_columns(sampling: &ExactSampling) -> usize {
        columns(&sampling.metric.name).clamp(*SAMPLED_COLUMNS.start(), *SAMPLED_COLUMNS.end())
    }

    /// The columns before the path.
    fn behind_numbers(self) -> usize {
        let timed = self.timed_columns();
        let sampled = self.sampling().map_or(0, |sampling| Self::sampled_columns(sampling) + SHARE_COLUMNS);
        BEHIND_NUMBERS + timed + sampled
    }

    /// What stands above [`ExactText::numbers`].
    fn heading(self) -> String {
        let sampled = self.sampling().map_or(String::new(), |sampling| {
            let width = Self::sampled_columns(sampling);
            format!("{:>width$}  {:>6}  ", cut_end(&printable(&sampling.metric.name), width), "share")
        });
        let timed = |timing: &ExactTiming| {
            let width = Self::columns_of(timing);
            format!("{:>width$}  {:>6}  ", Self::heading_of(timing), "share")
        };
        let timed: String = self.timings().iter().map(timed).collect();
        format!("{timed}{sampled}{:>12}  {:>6}  {:>10}  {:>6}  ", "instructions", "share", "executions", "share")
    }

    fn share(self, part: u64, whole: u64) -> String {
        self.ink(Paint::heat(part, whole), &format!("{:>6}", percent(part, whole)))
    }

    /// `1.21 s  92.1%  `: what was sampled with its share, if anything was.
    fn sampled_numbers(self, sampled: u64) -> String {
        self.sampling().map_or(String::new(), |sampling| {
            let (number, width) = (value(sampled, &sampling.metric.unit), Self::sampled_columns(sampling));
            format!("{number:>width$}  {}  ", self.share(sampled, sampling.total))
        })
    }

    /// `1.21 s  92.1%  `: each metric that was measured with its share.
    fn timed_numbers(self, cost: ExactCost, total: ExactCost) -> String {
        let of = |((timing, its), whole): ((&ExactTiming, u64), u64)| {
            let width = Self::columns_of(timing);
            format!("{:>width$}  {}  ", value(its, &timing.unit), self.share(its, whole))
        };
        self.timings().iter().zip(cost.timed).zip(total.timed).map(of).collect()
    }

    /// `1.21 s  92.1%  12,345  45.2%  1,234  31.0%  `: what was measured and what was sampled, if anything was, instructions, and executions, with their shares: of all
    /// that was sampled, of the total.
    pub(super) fn numbers(self, cost: ExactCost, total: ExactCost) -> String {
        format!(
            "{}{}{:>12}  {}  {:>10}  {:>6}  ",
            self.timed_numbers(cost, total),
            self.sampled_numbers(cost.sampled),
            value(cost.instructions, "count"),
            self.share(cost.instructions, total.instructions),
            value(cost.executions, "count"),
            percent(cost.executions, total.executions)
        )
    }

    /// Lines of `text`, which is printable, with so many blanks before each.
    pub(super) fn wrapped(self, text: &str, indent: usize, out: &mut dyn Write) -> io::Result<()> {
        Lines { width: self.width, color: self.color }.wrapped(text, indent, out)
    }

    /// What was not counted, and notes.
    pub(super) fn foot(self, out: &mut dyn Write) -> io::Result<()> {
        let ExactCounts { quality, notes, .. } = self.counts;
        let ExactQuality { refused, cut_short, lost, .. } = quality;
        let mut said = Vec::new();
        if self.counts.is_of_edges() {
            said.extend(self.cut_short_edges());
        } else if *cut_short > 0 {
            let words = match cut_short {
                1 => "path was begun and not ended: it has",
                _ => "paths were begun and not ended: they have",
            };
            said.push(format!(
                "{} {words} no number, and what was executed of them is not counted: where that may have been, executions are \
                 the least that there were. Exceptions, longjmp and exits cut paths short.",
                thousands(*cut_short)
            ));
        }
        if *lost > 0 {
            let why = match self.counts.callers {
                None => "a thread had no memory for them",
                Some(_) => {
                    "there was no memory for their contexts, or those were not known, as where a fork's child goes on with what its \
                            parent began"
                }
            };
            said.push(format!("{} missing: {why}.", count(*lost, "count is", "counts are")));
        }
        said.extend(not_counted(refused));
        said.extend(self.counts.info.losses.iter().chain(&self.counts.info.notes).chain(notes).cloned());
        Lines { width: self.width, color: self.color }.notes(&said, out)
    }

    /// What is to be said of activations that were cut short where edges were counted.
    fn cut_short_edges(self) -> Vec<String> {
        let flows = || self.counts.procedures.iter().filter_map(|procedure| procedure.flow.as_ref());
        let unknown = flows().filter(|flow| flow.cut_short.is_none()).count() as u64;
        let mut said = Vec::new();
        if self.counts.quality.cut_short > 0 {
            let words = match self.counts.quality.cut_short {
                1 => "1 activation was cut short: it came into its procedure and did not leave".to_owned(),
                cut_short => format!(
                    "{} activations were cut short: they came into their procedures and did not leave",
                    thousands(cut_short)
                ),
            };
            said.push(format!(
                "{words} (exceptions, longjmp, exits). It is not known where: of blocks and edges behind, the least and the greatest \
                 number is shown.",
            ));
        }
        if unknown > 0 {
            said.push(format!(
                "Of {} it is not known how often blocks and edges without a counter were passed: activations went on in a fork, or a call \
                 returned twice.",
                count(unknown, "procedure", "procedures")
            ));
        }
        said
    }

    /// That nothing was executed, if that is so.
    pub(super) fn nothing(self, out: &mut dyn Write) -> io::Result<bool> {
        let is_nothing = self.counts.procedures.is_empty();
        if is_nothing {
            let counted =
                count(self.counts.quality.counted, "procedure that was counted", "procedures that were counted");
            writeln!(out, "Nothing was executed: there are {counted}")?;
        }
        Ok(is_nothing)
    }
}

/// Writes the paths that cost most, then what is hot.
///
/// # Errors
/// If the output takes no more.
pub fn paths(text: ExactText<'_>, out: &mut dyn Write) -> io::Result<()> {
    if text.nothing(out)? {
        return text.foot(out);
    }
    let total = text.counts.cost();
    let executed = text.shown().map(|procedure| procedure.paths.len() as u64).fold(0, u64::saturating_add);
    let possible = text.shown().map(|procedure| procedure.possible).fold(0, u64::saturating_add);
    let title = format!(
        "Paths by {}: {} of {} paths of {} were executed",
        match (text.ranking, text.sampling()) {
            (ExactRanking::Sampled, Some(sampling)) => &sampling.metric.name,
            (ExactRanking::Timed(number), _) => text.timings().get(number).map_or("", |timing| &timing.name),
            _ => "instructions",
        },
        thousands(executed),
        value(possible, "count"),
        count(text.procedures.len() as u64, "procedure", "procedures"),
    );
    writeln!(out, "{}", text.ink(Ink::Bold, &cut_end(&title, text.width)))?;
    writeln!(out, "{}", text.ink(Ink::Bold, &format!("{}path", text.heading())))?;
    let least = text.min_share * text.ranking.whole(text.counts) as f64;
    let rows = || {
        let of = |procedure: &'_ ExactProcedure| procedure.paths.len();
        text.shown().flat_map(move |procedure| (0..of(procedure)).map(move |path| (procedure, &procedure.paths[path])))
    };
    let mut shown: Vec<(&ExactProcedure, &ExactPath, ExactCost)> = rows()
        .map(|(procedure, path)| (procedure, path, procedure.cost_of(path)))
        .filter(|(_, _, cost)| text.ranking.of(*cost) as f64 >= least)
        .collect();
    shown.sort_by_key(|(_, _, cost)| std::cmp::Reverse((text.ranking.of(*cost), cost.instructions)));
    let mut left_out = (executed, ExactCost::default());
    for (procedure, path, cost) in shown.iter().take(text.max_rows) {
        row(text, (procedure, path), total, out)?;
        left_out = (left_out.0 - 1, left_out.1 + *cost);
    }
    if left_out.0 > 0 {
        let all: ExactCost = text.shown().map(ExactProcedure::cost).sum();
        let words = count(left_out.0, "more path", "more paths");
        writeln!(out, "{}{}", text.numbers(all - left_out.1, total), text.ink(Ink::Dim, &words))?;
    }
    let undivided = text.shown().map(ExactProcedure::sampled_undivided).fold(0, u64::saturating_add);
    if undivided > 0 && text.sampling().is_some() {
        let words = text.ink(Ink::Dim, "on no path");
        let before = " ".repeat(text.timed_columns());
        writeln!(out, "{before}{}{}{words}", text.sampled_numbers(undivided), " ".repeat(BEHIND_NUMBERS))?;
    }
    timed(text, out)?;
    if let Some(sampling) = text.sampling() {
        sampled(text, sampling, out)?;
        few_paths(text, sampling, out)?;
    }
    summary(text, out)?;
    text.foot(out)
}

/// A path: its numbers, procedure and category; below, its lines, loop and callees.
fn row(
    text: ExactText<'_>,
    (procedure, path): (&ExactProcedure, &ExactPath),
    total: ExactCost,
    out: &mut dyn Write,
) -> io::Result<()> {
    let which = format!("  #{} {}", path.number, path.category.word());
    let room = text.width.saturating_sub(text.behind_numbers() + columns(&which)).max(12);
    let name = super::shorten::shorten(&printable(&procedure.name), room);
    writeln!(out, "{}{name}{}", text.numbers(procedure.cost_of(path), total), text.ink(Ink::Dim, &which))?;
    let mut words = trail(procedure, path);
    words.extend(around(procedure, path).map(|around| format!(" [{around}]")));
    let callees = callees(procedure, path);
    if !callees.is_empty() {
        words += &format!(", calls {}", callees.join(", "));
    }
    text.wrapped(&printable(&words), BEHIND_NUMBERS + 2, out)?;
    for each in text.timings().iter().enumerate().filter_map(|timing| each(timing, procedure, path)) {
        text.wrapped(&each, BEHIND_NUMBERS + 2, out)?;
    }
    text.counts.callers.as_ref().map_or(Ok(()), |callers| contexts(text, (callers, path), out))
}

/// How many contexts a path was executed in, and the callers in those in which it was most often.
fn contexts(text: ExactText<'_>, (callers, path): (&ExactCallers, &ExactPath), out: &mut dyn Write) -> io::Result<()> {
    let indent = BEHIND_NUMBERS + 2;
    let known = path.contexts.iter().fold(0u64, |sum, its| sum.saturating_add(its.executions));
    let words = match path.contexts.len() {
        0 => "in contexts that are not known".to_owned(),
        number => format!("in {}:", count(number as u64, "context", "contexts")),
    };
    writeln!(out, "{}{words}", " ".repeat(indent))?;
    for its in path.contexts.iter().take(CONTEXTS_SHOWN) {
        let share = format!("{:>6}", percent(its.executions, path.executions));
        let room = text.width.saturating_sub(indent + 2 + columns(&share) + 1).max(LEAST_TRAIL);
        let trail = caller_trail(callers, its.callers, room);
        writeln!(out, "{}{share} {trail}", " ".repeat(indent + 2))?;
    }
    let unknown = path.executions.saturating_sub(known);
    if unknown > 0 && known > 0 {
        let share = format!("{:>6}", percent(unknown, path.executions));
        writeln!(out, "{}{share} in contexts that are not known", " ".repeat(indent + 2))?;
    }
    Ok(())
}

/// The callers of a chain in at most `room` columns, the innermost last; outer ones that have no room are an ellipsis. Those that recur
/// stand there once, with how often.
fn caller_trail(callers: &ExactCallers, chain: u32, room: usize) -> String {
    const ARROW: &str = " > ";
    let names: Vec<&str> = callers.names(chain).collect();
    let mut trail = String::new();
    let mut is_cut = callers.is_partial(chain);
    let numbers: BTreeMap<&str, u64> = names.iter().copied().zip(0..).collect();
    let keys: Vec<u64> = names.iter().filter_map(|name| numbers.get(name).copied()).collect();
    for Repeat { first, times, .. } in repeats(&keys).into_iter().rev() {
        let name = printable(names[first]);
        let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
        // The ellipsis that stands for the others has to have room, too.
        let left = room.saturating_sub(columns("…") + columns(ARROW) + columns(&times));
        if trail.is_empty() {
            trail = super::shorten::shorten(&name, left) + &times;
            continue;
        }
        if columns(&trail) + columns(&name) + columns(ARROW) > left {
            is_cut = true;
            break;
        }
        trail = format!("{name}{times}{ARROW}{trail}");
    }
    match (trail.is_empty(), is_cut) {
        (true, false) => "by no caller".to_owned(),
        (true, true) => "…".to_owned(),
        (false, true) => format!("…{ARROW}{trail}"),
        (false, false) => trail,
    }
}

/// Writes how often each block was executed, and where control went from there: by procedure, blocks in the order of their code.
///
/// # Errors
/// If the output takes no more.
pub fn blocks(text: ExactText<'_>, out: &mut dyn Write) -> io::Result<()> {
    if text.nothing(out)? {
        return text.foot(out);
    }
    let total = text.counts.cost();
    let executed = text.shown().map(|procedure| procedure.blocks.len() as u64).fold(0, u64::saturating_add);
    let procedures = count(text.procedures.len() as u64, "procedure", "procedures");
    let title = format!(
        "{} of {procedures} {}",
        count(executed, "block", "blocks"),
        if executed == 1 { "was executed" } else { "were executed" }
    );
    writeln!(out, "{}", text.ink(Ink::Bold, &cut_end(&title, text.width)))?;
    let (mut rows, mut left_out) = (0usize, 0usize);
    for procedure in text.shown() {
        let cost = procedure.cost();
        if (cost.instructions as f64) < text.min_share * total.instructions as f64 || rows >= text.max_rows {
            left_out += 1;
            continue;
        }
        rows += procedure.blocks.len();
        blocks_of(text, procedure, total, out)?;
    }
    if left_out > 0 {
        let words = format!("{} with fewer instructions", count(left_out as u64, "more procedure", "more procedures"));
        writeln!(out, "\n{}", text.ink(Ink::Dim, &words))?;
    }
    text.foot(out)
}

fn blocks_of(text: ExactText<'_>, procedure: &ExactProcedure, total: ExactCost, out: &mut dyn Write) -> io::Result<()> {
    let at = procedure.place.as_ref().map_or(String::new(), |declared| format!("  {}", place(declared)));
    let (at_least, end) = match &procedure.flow {
        Some(ExactFlow { cut_short: None | Some(0), .. }) => ("", String::new()),
        Some(ExactFlow { cut_short: Some(cut_short), .. }) => {
            ("", format!(", cut short {}", count(*cut_short, "time", "times")))
        }
        None => {
            let is_known = procedure.activations.is_some() || text.counts.quality.cut_short == 0;
            let cut_short = procedure.activations.and_then(|activations| activations.cut_short).unwrap_or(0);
            let cut_short = match cut_short {
                0 => String::new(),
                cut_short => format!(", cut short {}", count(cut_short, "time", "times")),
            };
            let paths = thousands(procedure.paths.len() as u64);
            (
                if is_known { "" } else { "at least " },
                format!("{cut_short}, {paths} of {} paths", value(procedure.possible, "count")),
            )
        }
    };
    let facts = format!(
        "{at}  [{}], {} of all instructions, entered {at_least}{}{end}",
        procedure.module,
        percent(procedure.cost().instructions, total.instructions),
        count(procedure.entries(), "time", "times"),
    );
    let name = text.ink(Ink::Bold, &printable(&procedure.name));
    writeln!(out, "\n{name}{}", text.ink(Ink::Dim, &printable(&facts)))?;
    let heading = format!("{:>12}  {:>6}  {:>10}  block", "instructions", "share", "executions");
    writeln!(out, "{}", text.ink(Ink::Bold, &heading))?;
    let edges = procedure.edges();
    let start = |block: &u32| procedure.blocks.get(*block as usize).map(|block| format!("{:#x}", block.code.start));
    let executions = procedure.block_executions();
    let blocks = procedure.blocks.iter().zip(procedure.block_costs()).zip(executions);
    for (number, ((block, cost), executions)) in (0u32..).zip(blocks) {
        let share = format!("{:>6}", percent(cost.instructions, total.instructions));
        let lines = crate::exact_label::lines(&block.lines);
        let row = format!(
            "{:>12}  {}  {:>10}  {:#x}{}  {}",
            thousands(cost.instructions),
            text.ink(Paint::heat(cost.instructions, total.instructions), &share),
            thousands(cost.executions),
            block.code.start,
            beyond(executions),
            printable(&lines)
        );
        writeln!(out, "{}", row.trim_end())?;
        let from = edges.iter().filter(|edge| edge.from == number).map(|edge| {
            let to: Vec<String> = edge.to.iter().filter_map(start).collect();
            let to = match (&to[..], edge.is_back) {
                ([], false) => "out".to_owned(),
                ([], true) => "back".to_owned(),
                (to, true) => format!("back to {}", to.join(" or ")),
                (to, false) => to.join(" or "),
            };
            format!("{to} {}{}", thousands(edge.executions.least), beyond(edge.executions))
        });
        let words = from.collect::<Vec<_>>().join(", ");
        if !words.is_empty() {
            text.wrapped(&format!("-> {words}"), 36, out)?;
        }
    }
    Ok(())
}

/// What stands behind the least number of executions where that is not all.
fn beyond(executions: Bounds) -> String {
    match executions.most {
        None => " (or more)".to_owned(),
        Some(_) if executions.is_exact() => String::new(),
        Some(most) => format!(" (up to {})", thousands(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact_label::tests::{counts, in_contexts, with_samples, with_times};

    type View = fn(ExactText<'_>, &mut dyn Write) -> io::Result<()>;

    fn shown(min_share: f64, max_rows: usize, view: View) -> String {
        shown_of(&counts(), min_share, (max_rows, view))
    }

    fn shown_of(counts: &ExactCounts, min_share: f64, (max_rows, view): (usize, View)) -> String {
        let text = ExactText {
            counts,
            procedures: &[0, 1],
            ranking: ExactRanking::Instructions,
            hot_share: 0.01,
            min_share,
            max_rows,
            width: 100,
            color: false,
        };
        let mut out = Vec::new();
        view(text, &mut out).expect("room");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn the_costliest_paths_and_what_is_hot() {
        let expected = "\
Paths by instructions: 4 of 213 paths of 2 procedures were executed
instructions   share  executions   share  path
       7,840   96.0%         980   97.4%  work<int>  #5 head-back
                                             main.c:14 -> util.h:3 [loop at main.c:14]
         160    2.0%          10    1.0%  work<int>  #1 entry-back
                                             main.c:12 -> 14 -> util.h:3 [into loop at main.c:14],
                                             calls puts, something indirectly
         165    2.0%          16    1.6%  2 more paths

Hot: 1% of all instructions or more. Dense: at least 8.1 instructions each time, as many as the
average path; sparse: hot because executed often

                   paths  instructions  executions
hot, dense             2          3.7%        1.9%
hot, sparse            1         96.0%       97.4%
cold                   1          0.3%        0.7%

              procedures  paths each  instructions  executions
hot, dense             1         3.0         99.7%       99.3%
hot, sparse            0           -          0.0%        0.0%
cold                   1         1.0          0.3%        0.7%

A block on a hot path is on 2.0 executed paths on average.

Notes
  2 paths were begun and not ended: they have no number, and what was executed of them is not
  counted: where that may have been, executions are the least that there were. Exceptions, longjmp
  and exits cut paths short.
  2 procedures were not counted: jumps (an indirect jump could not be followed); odd (an indirect
  jump could not be followed).
";
        assert_eq!(shown(0.01, 2, paths), expected);
    }

    #[test]
    fn what_samples_say_of_paths() {
        let mut counts = with_samples();
        let expected = "\
Paths by cpu-time: 4 of 213 paths of 2 procedures were executed
 cpu-time   share  instructions   share  executions   share  path
   408 us   40.8%           160    2.0%          10    1.0%  work<int>  #1 entry-back
                                             main.c:12 -> 14 -> util.h:3 [into loop at main.c:14],
                                             calls puts, something indirectly
   364 us   36.4%           144    1.8%           9    0.9%  work<int>  #9 head-exit
                                             main.c:14 -> util.h:3 -> main.c:20 [out of loop at
                                             main.c:14], calls puts, something indirectly
  98.1 us    9.8%         7,840   96.0%         980   97.4%  work<int>  #5 head-back
                                             main.c:14 -> util.h:3 [loop at main.c:14]
  10.0 us    1.0%            21    0.3%           7    0.7%  bare\\x1b[31m  #0 entry-exit
                                             0x20
  20.0 us    2.0%                                             on no path

cpu-time: 1.00 ms in all, 880 us of it on paths, from 900 samples. A sample tells the block, not the
path: what a block costs is divided among the paths through it by their executions, as if it were
equally dear on each. 20.0 us in these procedures is on no path that ended.

work<int>: 86.7% of the 890 us here is on 2 of 212 paths (3 executed)

Hot: 1% of all cpu-time or more. Dense: at least 107.78 ns for each instruction, as much as all
paths together; sparse: hot because of many instructions

                   paths      cpu-time  instructions  executions
hot, dense             3         78.2%          4.0%        2.6%
hot, sparse            1          9.8%         96.0%       97.4%
cold                   0          0.0%          0.0%        0.0%
on no path                        2.0%
elsewhere                        10.0%

              procedures  paths each      cpu-time  instructions  executions
hot, dense             2         2.0         90.0%        100.0%      100.0%
hot, sparse            0           -          0.0%          0.0%        0.0%
cold                   0           -          0.0%          0.0%        0.0%
elsewhere                                    10.0%

A block on a hot path is on 1.8 executed paths on average.
";
        let said =
            shown_of(&counts, 0.01, (30, |text, out| paths(ExactText { ranking: ExactRanking::Sampled, ..text }, out)));
        assert_eq!(said[..said.find("\nNotes").expect("notes")], *expected);
        // By instructions, what was sampled stands beside.
        let said = shown_of(&counts, 0.01, (1, paths));
        let part = "instructions   share  executions   share  path\n  98.1 us    9.8%         7,840   96.0%         980   97.4%  work<int>  #5";
        assert!(said.contains(part) && said.contains("Hot: 1% of all instructions or more."), "{said}");
        // Where no sample is in a procedure that was counted there is nothing to divide.
        if let Some(sampling) = &mut counts.sampling {
            sampling.samples = 0;
        }
        assert_eq!(shown_of(&counts, 0.01, (2, paths)), shown(0.01, 2, paths));
        // A name that is too long is cut.
        if let Some(sampling) = &mut counts.sampling {
            sampling.samples = 900;
            sampling.metric = callpath_db::Metric::sum("a-very-long-event", "count");
        }
        let said = shown_of(&counts, 0.01, (2, paths));
        assert!(said.contains("\na-very-long-e…   share  instructions"), "{said}");
        assert!(said.contains("of the 890,000 a-very-long-event here is on"), "{said}");
    }

    #[test]
    fn what_was_measured_of_paths() {
        let counts = with_times();
        let expected = "\
Paths by wall-time: 4 of 213 paths of 2 procedures were executed
wall-time   share  instructions   share  executions   share  path
  50.0 us   70.0%           160    2.0%          10    1.0%  work<int>  #1 entry-back
                                             main.c:12 -> 14 -> util.h:3 [into loop at main.c:14],
                                             calls puts, something indirectly
                                             takes 5.00 us (95%: 4.98 us to 5.02 us), by all of them
  19.6 us   27.5%         7,840   96.0%         980   97.4%  work<int>  #5 head-back
                                             main.c:14 -> util.h:3 [loop at main.c:14]
                                             takes 20.0 ns (95%: 1.2 ns to 38.8 ns), by 2 of them
  1.80 us    2.5%           144    1.8%           9    0.9%  work<int>  #9 head-exit
                                             main.c:14 -> util.h:3 -> main.c:20 [out of loop at
                                             main.c:14], calls puts, something indirectly
                                             takes 200.0 ns (one alone), by 1 of them
     0 ns    0.0%            21    0.3%           7    0.7%  1 more path

wall-time: 71.4 us on paths, by 13 executions that were measured, chosen by chance. It is what a
path takes by itself, from where all before is done until all of it is: what a processor does at the
same time before and behind is not taken off, so that sums may be more than the time that passed.
What callees take is theirs. One more is left out: what seldom takes more than some 10 us did, so
that something came in between. Nothing was measured of 1 path with 0.7% of the executions: they
have no time here. 2 times found no room.

Hot: 1% of all wall-time or more. Dense: at least 8.74 ns for each instruction, as much as all paths
together; sparse: hot because of many instructions

                   paths     wall-time  instructions  executions
hot, dense             2         72.5%          3.7%        1.9%
hot, sparse            1         27.5%         96.0%       97.4%
cold                   1          0.0%          0.3%        0.7%

              procedures  paths each     wall-time  instructions  executions
hot, dense             1         3.0        100.0%         99.7%       99.3%
hot, sparse            0           -          0.0%          0.0%        0.0%
cold                   1         1.0          0.0%          0.3%        0.7%

A block on a hot path is on 2.0 executed paths on average.
";
        let timed: View = |text, out| paths(ExactText { ranking: ExactRanking::Timed(0), ..text }, out);
        let said = shown_of(&counts, 0.01, (30, timed));
        assert_eq!(said[..said.find("\nNotes").expect("notes")], *expected);
        // By instructions, what was measured stands beside.
        let said = shown_of(&counts, 0.01, (1, paths));
        let part = "path\n  19.6 us   27.5%         7,840   96.0%         980   97.4%  work<int>  #5";
        assert!(said.contains(part) && said.contains("Hot: 1% of all instructions or more."), "{said}");
        // Blocks have no times of their own.
        assert_eq!(shown_of(&counts, 0.0, (100, blocks)), shown(0.0, 100, blocks));
        // What was sampled beside has a column, too, and what is on no path has no time.
        let sampled = ExactCounts { timings: counts.timings.clone(), ..with_samples() };
        let said = shown_of(&sampled, 0.01, (1, paths));
        assert!(said.contains("\nwall-time   share   cpu-time   share  instructions"), "{said}");
        let on_no_path = said.lines().find(|line| line.ends_with("on no path")).expect("a row");
        assert!(on_no_path.starts_with(&format!("{:19}  20.0 us    2.0%", "")), "{said}");
        assert!(said.contains("\n                   paths     wall-time      cpu-time  instructions"), "{said}");
    }

    #[test]
    fn contexts_of_a_path() {
        let counts = in_contexts();
        let said = |width: usize| {
            let text = ExactText {
                counts: &counts,
                procedures: &[0],
                ranking: ExactRanking::Instructions,
                hot_share: 0.01,
                min_share: 0.01,
                max_rows: 2,
                width,
                color: false,
            };
            let mut out = Vec::new();
            paths(text, &mut out).expect("room");
            let said = String::from_utf8(out).expect("UTF-8");
            assert!(said.contains("procedures were not counted, or not in full:"), "{said}");
            said.lines().skip(1).take(11).map(|line| format!("{line}\n")).collect::<String>()
        };
        let expected = "\
instructions   share  executions   share  path
       7,840   96.0%         980   97.4%  work<int>  #5 head-back
                                             main.c:14 -> util.h:3 [loop at main.c:14]
                                             in 4 contexts:
                                                71.4% main > run
                                                27.6% main > other
                                                 0.9% … > down\\x1b[31m > run
         160    2.0%          10    1.0%  work<int>  #1 entry-back
                                             main.c:12 -> 14 -> util.h:3 [into loop at main.c:14],
                                             calls puts, something indirectly
                                             in contexts that are not known
";
        assert_eq!(said(100), expected);
        // 24 columns are what callers have at least.
        let narrow = said(60);
        assert!(narrow.contains("  27.6% main > other\n"), "{narrow}");
    }

    #[test]
    fn callers_that_have_no_room_are_the_outer_ones() {
        let mut callers = ExactCallers::default();
        let names = ["main", "std::vec<int, std::allocator<int> >::insert(int)", "last"];
        let [main, insert, last] = names.map(|name| callers.procedure(name.into(), "app".into()));
        let chain = callers.chain([last, insert, main], true);
        assert_eq!(caller_trail(&callers, chain, 80), format!("main > {} > last", names[1]));
        assert_eq!(caller_trail(&callers, chain, 62), format!("… > {} > last", names[1]));
        assert_eq!(caller_trail(&callers, chain, 30), "… > last");
        let alone = callers.chain([insert, main], true);
        assert_eq!(caller_trail(&callers, alone, 34), "main > std::vec<…>::insert(…)");
        assert_eq!(caller_trail(&callers, alone, 30), "… > std::vec<…>::insert(…)");
        let recursion = callers.chain([last, last, main, insert, insert, insert], false);
        assert_eq!(caller_trail(&callers, recursion, 40), "… > main > last (2 times)");
        assert_eq!(
            caller_trail(&callers, recursion, 99),
            format!("… > {} (3 times) > main > last (2 times)", names[1])
        );
        let none = callers.chain([], true);
        assert_eq!(caller_trail(&callers, none, 30), "by no caller");
    }

    #[test]
    fn blocks_with_their_edges() {
        let expected = "\
6 blocks of 2 procedures were executed

work<int>  main.c:10  [app], 99.7% of all instructions, entered at least 10 times, 3 of 212 paths
instructions   share  executions  block
          40    0.5%          10  0x1000  main.c:12-13
                                    -> 0x1010 10
       3,996   48.9%         999  0x1010  main.c:14-15
                                    -> 0x1020 19, 0x1030 980
          76    0.9%          19  0x1020  main.c:14-15
                                    -> 0x1030 19
       3,996   48.9%         999  0x1030  main.c:3-4
                                    -> back to 0x1010 990, 0x1040 9
          36    0.4%           9  0x1040  main.c:20-21
                                    -> out 9

bare\\x1b[31m  [libx.so], 0.3% of all instructions, entered at least 7 times, 1 of 1 paths
instructions   share  executions  block
          21    0.3%           7  0x20
                                    -> out 7

Notes
  2 paths were begun and not ended: they have no number, and what was executed of them is not
  counted: where that may have been, executions are the least that there were. Exceptions, longjmp
  and exits cut paths short.
  2 procedures were not counted: jumps (an indirect jump could not be followed); odd (an indirect
  jump could not be followed).
";
        assert_eq!(shown(0.0, 100, blocks), expected);
    }

    #[test]
    fn what_costs_less_is_counted() {
        let said = shown(0.5, 100, blocks);
        assert!(said.contains("\n1 more procedure with fewer instructions\n") && !said.contains("bare"), "{said}");
        let said = shown(1.0, 100, paths);
        assert!(said.contains("4 more paths"), "{said}");
    }
}
