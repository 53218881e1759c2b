//! A difference as text: the whole, the procedures that changed, the contexts that changed.
//! What is within noise is one line.

use std::io::{self, Write};

use callpath_db::diff::{Change, Diff, Expectation, ProcedureChange, RowChange, Test};
use callpath_db::{ScopeKind, ViewKind};

use super::paint::{Ink, Paint};
use super::printable::printable;
use super::quantity::{count, value};
use super::shorten::shorten;

/// How a difference is shown.
#[derive(Clone, Copy, Debug)]
pub struct DiffTextOptions {
    /// Columns of the page.
    pub width: usize,
    /// Whether escape sequences for colour may be used.
    pub color: bool,
    /// Procedures that are listed at most.
    pub top: usize,
    /// One view in full, in place of procedures and call paths.
    pub view: Option<ViewKind>,
}

/// Columns before a name.
const NUMBERS: usize = 62;
/// Columns that a name has at least.
const LEAST_NAME: usize = 24;

/// Writes a difference.
pub fn diff(diff: &Diff, options: DiffTextOptions, out: &mut dyn Write) -> io::Result<()> {
    let page = Page { diff, options };
    page.head(out)?;
    match options.view {
        None => {
            page.procedures(out)?;
            page.rows(ViewKind::Context, out)?;
        }
        Some(view) => page.rows(view, out)?,
    }
    page.regressions(out)
}

struct Page<'a> {
    diff: &'a Diff,
    options: DiffTextOptions,
}

impl Page<'_> {
    fn ink(&self, ink: Ink, text: &str) -> String {
        Paint { color: self.options.color }.with(ink, text)
    }

    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let Diff { metric, runs, test, total, matched, .. } = self.diff;
        let runs = runs.map(|runs| count(runs as u64, "run", "runs"));
        let title = format!("Difference in {}: A ({}) -> B ({})", printable(&metric.name), runs[0], runs[1]);
        writeln!(out, "{}", self.ink(Ink::Bold, &title))?;
        let expected = match self.diff.expectation {
            Expectation::Same => String::new(),
            Expectation::Strong(times) => {
                format!(" (a process or thread; expected: 1/{times} of A's, as {times} times as many share the work)")
            }
            Expectation::Weak => " (a process or thread; expected: as much as A's)".to_owned(),
        };
        let noise = if total.is_found { "" } else { ", within noise" };
        writeln!(out, "Total: {}{noise}{expected}", change_in_words(total, &self.diff.metric.unit))?;
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        let both = matched.both.map(percent);
        let mut line = format!("Matched: {} of A's cost and {} of B's is in contexts that both have", both[0], both[1]);
        if matched.at_caller != [0.0; 2] {
            let [a, b] = matched.at_caller.map(percent);
            line += &format!("; {a} and {b} is in inlined calls that one side lacks, and is compared at their callers");
        }
        let [a, b] = matched.by_chance.map(percent);
        match test {
            Test::Counted => writeln!(out, "{line}")?,
            _ => writeln!(out, "{line}. Of equal programs, sampling alone would leave {a} and {b} unmatched")?,
        }
        let how = match test {
            Test::Welch => "Welch's t test between runs",
            Test::Paired => "Student's t test on the differences of paired runs",
            Test::Counted => {
                "one run on a side, in which everything was counted: no error of sampling; several runs (--a, --b, compare) tell \
                 how they vary"
            }
            Test::Sampling => {
                "one run on a side: the noise of sampling, not that between runs; several (--a, --b, compare) tell more"
            }
        };
        let rate = self.diff.false_discovery_rate * 100.0;
        let about = match test {
            Test::Counted => format!("Differences: {how}."),
            _ => format!(
                "Intervals: 95%. Test: {how}. Of what is reported, {rate}% is false on average (Benjamini-Hochberg)."
            ),
        };
        writeln!(out, "{}", self.ink(Ink::Dim, &about))
    }

    fn procedures(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n{}", self.ink(Ink::Bold, "Procedures by the change of their own cost (self)"))?;
        let found: Vec<&ProcedureChange> =
            self.diff.procedures.iter().filter(|procedure| procedure.own.is_found).collect();
        if !found.is_empty() {
            writeln!(out, "{}", self.ink(Ink::Dim, &heading("procedure")))?;
        }
        for procedure in found.iter().take(self.options.top) {
            writeln!(out, "{} {}", self.numbers(&procedure.own), self.name(&procedure.name, 0))?;
            for line in self.asides(procedure) {
                writeln!(out, "{:NUMBERS$} {}", "", self.ink(Ink::Dim, &line))?;
            }
        }
        if found.len() > self.options.top {
            writeln!(out, "({} more)", found.len() - self.options.top)?;
        }
        let noise: Vec<&ProcedureChange> =
            self.diff.procedures.iter().filter(|procedure| !procedure.own.is_found).collect();
        let sum = |of: fn(&Change) -> f64| self.cost(noise.iter().map(|procedure| of(&procedure.own)).sum());
        let few = match self.diff.too_small {
            0 => String::new(),
            few => format!("; {few} of them have too few samples to be tested"),
        };
        let noun = count(noise.len() as u64, "procedure", "procedures");
        writeln!(out, "Within noise: {noun}, together {} -> {}{few}", sum(|change| change.a), sum(|change| change.b))
    }

    /// What else is known of a procedure that changed.
    fn asides(&self, procedure: &ProcedureChange) -> Vec<String> {
        let mut lines = Vec::new();
        if !procedure.moved.is_empty() {
            let names: Vec<String> = procedure.moved.iter().map(|name| printable(name)).collect();
            let way = if procedure.own.difference() < 0.0 { "to" } else { "from" };
            lines.push(format!("moved {way} {}: their sum is unchanged", names.join(", ")));
        }
        if let Some(calls) = procedure.calls {
            let [before, after] = calls.cost_each.map(|each| self.cost(each));
            let returns = &calls.returns;
            let often = match returns.relative() {
                Some(relative) if returns.is_found => format!("called {:.2} times as often", 1.0 + relative),
                _ => "called as often".to_owned(),
            };
            lines
                .push(format!("{often} ({:.0} -> {:.0} returns); each call {before} -> {after}", returns.a, returns.b));
        }
        lines
    }

    /// The rows of a view that changed, and the way to them.
    fn rows(&self, view: ViewKind, out: &mut dyn Write) -> io::Result<()> {
        let (rows, what, title, how): (&[RowChange], _, _, _) = match view {
            ViewKind::Context => (
                &self.diff.contexts,
                ("call path", "context", "contexts"),
                "Call paths by the change of their inclusive cost",
                "A row is called by the row above it that is indented less; ~ is within noise.",
            ),
            ViewKind::Callers => (
                &self.diff.callers,
                ("procedure and callers", "row", "rows"),
                "Procedures by the change of their own cost, by callers",
                "A row calls the row above it that is indented less, and has the own cost of the outermost one on calls from there; ~ is within noise.",
            ),
            ViewKind::Flat => (
                &self.diff.flat,
                ("module, file, procedure, loop", "row", "rows"),
                "Code by the change of its own cost",
                "A row is a part of the row above it that is indented less; ~ is within noise.",
            ),
        };
        let shown_change = |row: &RowChange| if view == ViewKind::Context { row.inclusive } else { row.own };
        let mut is_shown: Vec<bool> = rows.iter().map(|row| shown_change(row).is_found).collect();
        for (number, row) in rows.iter().enumerate().rev() {
            if let Some(parent) = row.parent.filter(|_| is_shown[number]) {
                is_shown[parent] = true;
            }
        }
        let is_process = |row: &&RowChange| row.kind == ScopeKind::Process;
        let processes = self.diff.contexts.iter().filter(is_process).count();
        is_shown.iter_mut().zip(rows).for_each(|(is_shown, row)| {
            *is_shown &= row.kind != ScopeKind::Root && (row.kind != ScopeKind::Process || processes > 1);
        });
        let is_any_shown = is_shown.contains(&true);
        if !is_any_shown && self.options.view.is_none() {
            return Ok(());
        }
        writeln!(out, "\n{}", self.ink(Ink::Bold, title))?;
        if is_any_shown {
            writeln!(out, "{}", self.ink(Ink::Dim, how))?;
            writeln!(out, "{}", self.ink(Ink::Dim, &heading(what.0)))?;
        }
        let mut levels = vec![0; rows.len()];
        for (number, row) in rows.iter().enumerate() {
            let level = row.parent.map_or(0, |parent| levels[parent] + usize::from(is_shown[parent]));
            levels[number] = level;
            if is_shown[number] {
                let name = if row.name.is_empty() { "(file unknown)" } else { &row.name };
                let (numbers, aside) = (self.numbers(&shown_change(row)), aside(row, view));
                writeln!(out, "{numbers} {}{aside}", self.name(name, level))?;
            }
        }
        let left_out = is_shown.iter().filter(|is_shown| !**is_shown).count().saturating_sub(1);
        writeln!(out, "Within noise: {}", count(left_out as u64, what.1, what.2))
    }

    fn regressions(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(share) = self.diff.fail_above else { return Ok(()) };
        let mut slower: Vec<String> = Vec::new();
        if self.diff.total_is_regression {
            slower.push("the total".into());
        }
        slower.extend(self.diff.procedures.iter().filter(|p| p.is_regression).map(|p| printable(&p.name)));
        let percent = share * 100.0;
        match slower.is_empty() {
            true => writeln!(out, "\nNothing is slower by more than {percent}% beyond noise."),
            false => {
                let line = format!("Slower by more than {percent}% beyond noise: {}", slower.join(", "));
                writeln!(out, "\n{}", self.ink(Ink::Hot, &line))
            }
        }
    }

    /// The numbers of a row, in [`NUMBERS`] columns.
    fn numbers(&self, change: &Change) -> String {
        let noise = if change.is_found { ' ' } else { '~' };
        let relative = match change.relative() {
            Some(relative) => format!("{:+.1}%", relative * 100.0),
            None => "new".into(),
        };
        let relative = if change.b == 0.0 && change.a > 0.0 { "gone".into() } else { relative };
        let interval = change
            .relative_interval()
            .filter(|(low, high)| low < high)
            .map_or(String::new(), |(low, high)| format!("{:+.1} to {:+.1}", low * 100.0, high * 100.0));
        let costs = format!("{} -> {}", self.cost(change.a), self.cost(change.b));
        let text = format!("{noise}{:>10} {relative:>8} {interval:>17} {costs:>23}", self.signed(change.difference()));
        match change.is_found {
            true if change.difference() > 0.0 => self.ink(Ink::Hot, &text),
            true => self.ink(Ink::Plain, &text),
            false => self.ink(Ink::Dim, &text),
        }
    }

    fn cost(&self, cost: f64) -> String {
        amount(cost, &self.diff.metric.unit)
    }

    fn signed(&self, cost: f64) -> String {
        signed(cost, &self.diff.metric.unit)
    }

    fn name(&self, name: &str, level: usize) -> String {
        let indent = level.min(30);
        let room = self.options.width.saturating_sub(NUMBERS + 1 + indent).max(LEAST_NAME);
        format!("{:indent$}{}", "", shorten(&printable(name), room))
    }
}

/// A change in one line: `1.21 s -> 1.22 s: +16.0 ms +- 6.02 ms, +1.3% (+0.8% to +1.8%)`; where everything was counted,
/// `10 -> 12: +2, +20.0%`.
pub(crate) fn change_in_words(change: &Change, unit: &str) -> String {
    let [a, b, half] = [change.a, change.b, change.half_width].map(|cost| amount(cost, unit));
    let difference = signed(change.difference(), unit);
    if change.half_width == 0.0 {
        let relative = change.relative().map_or(String::new(), |relative| format!(", {:+.1}%", relative * 100.0));
        return format!("{a} -> {b}: {difference}{relative}");
    }
    let relative =
        change.relative().zip(change.relative_interval()).map_or(String::new(), |(relative, (low, high))| {
            format!(", {:+.1}% ({:+.1}% to {:+.1}%)", relative * 100.0, low * 100.0, high * 100.0)
        });
    format!("{a} -> {b}: {difference} +- {half}{relative}")
}

fn amount(cost: f64, unit: &str) -> String {
    value(cost.max(0.0).round() as u64, unit)
}

fn signed(cost: f64, unit: &str) -> String {
    format!("{}{}", if cost < 0.0 { '-' } else { '+' }, amount(cost.abs(), unit))
}

fn aside(row: &RowChange, view: ViewKind) -> &'static str {
    match (row.is_moved, view) {
        (false, _) => "",
        (true, ViewKind::Context) => " (moved: the procedure as a whole did not change)",
        (true, _) => " (moved from or to another procedure)",
    }
}

fn heading(what: &str) -> String {
    format!(" {:>10} {:>8} {:>17} {:>23} {what}", "change", "relative", "interval, %", "A -> B")
}
