//! Statistics across profiles as text: a tree of contexts, in each row how its cost is distributed.

use std::io::{self, Write};

use callpath_db::ScopeKind;
use callpath_db::database::{Member, StatisticsRow, StatisticsTree};
use callpath_db::{MetricKind, MetricType};

use super::paint::{Ink, Paint};
use super::printable::printable;
use super::quantity::{cell, count};
use super::shorten::shorten;

/// Columns before a name.
const NUMBERS: usize = 62;
/// Columns that a name has at least.
const LEAST_NAME: usize = 20;
/// Deeper rows are indented no further.
const MOST_INDENT: usize = 40;

/// Writes the tree, in lines of `width` columns at most where names can be shortened to that.
pub fn statistics(tree: &StatisticsTree, width: usize, color: bool, out: &mut dyn Write) -> io::Result<()> {
    let StatisticsTree { metric, members, rows } = tree;
    let paint = Paint { color };
    let profiles = members.len();
    let title = format!("{} of {} (threads)", printable(&metric.name), count(profiles as u64, "profile", "profiles"));
    writeln!(out, "{}", paint.with(Ink::Bold, &title))?;
    let all = match metric.kind {
        MetricKind::Max => "max of all",
        MetricKind::Min => "min of all",
        MetricKind::Sum | MetricKind::Derived(_) => "sum",
    };
    let about = [
        format!(
            "Each call path with all below it: {all}, then over the profiles mean, min, max and standard deviation."
        ),
        "A profile without a value counts as 0; in: how many have one.".into(),
    ];
    about.iter().try_for_each(|line| writeln!(out, "{}", paint.with(Ink::Dim, line)))?;
    let header = format!("{:>9} {:>9} {:>9} {:>9} {:>9} {:>7}", "total", "mean", "min", "max", "dev", "in");
    writeln!(out, "\n{}", paint.with(Ink::Bold, &format!("{header:<NUMBERS$}call path")))?;
    let mut depths: Vec<usize> = Vec::with_capacity(rows.len());
    for row in rows {
        let depth = row.parent.map_or(0, |parent| depths[parent] + 1);
        depths.push(depth);
        let of = &row.statistics;
        let number = |value: f64| cell(bits(metric.value, value), metric);
        let numbers = [of.mean, of.min, of.max, of.deviation].map(|value| format!(" {:>9}", number(value)));
        let indent = depth.min(MOST_INDENT);
        let room = width.saturating_sub(NUMBERS + indent).max(LEAST_NAME);
        let numbers = format!("{:>9}{} {:>7}", cell(of.total, metric), numbers.concat(), of.present);
        writeln!(out, "{numbers:<NUMBERS$}{:indent$}{}", "", named(row, room))?;
    }
    if let Some(most) = rows.first().and_then(|row| row.statistics.greatest).and_then(|at| members.get(at)) {
        writeln!(out, "\nThe greatest total has {}.", whose(most))?;
    }
    Ok(())
}

/// A number as the bits of a value of this type, rounded where that is an integer.
fn bits(value_type: MetricType, value: f64) -> u64 {
    match value_type {
        MetricType::Real => value.to_bits(),
        MetricType::Signed => value.round() as i64 as u64,
        MetricType::Integer | MetricType::Histogram { .. } => value.round() as u64,
    }
}

fn named(row: &StatisticsRow, room: usize) -> String {
    let place = || match (&row.file, row.line) {
        (Some(file), Some(line)) => {
            format!("{}:{line}", printable(file.rsplit('/').next().unwrap_or_default()))
        }
        _ => row.address.map_or_else(String::new, |address| format!("{address:#x}")),
    };
    match row.kind {
        ScopeKind::Root => "all".into(),
        ScopeKind::Loop => format!("loop at {}", place()),
        ScopeKind::Line => format!("line {}", place()),
        ScopeKind::Inlined => format!("{} (inlined)", shorten(&printable(&row.name), room.saturating_sub(10))),
        ScopeKind::Partial => "(partial call paths)".into(),
        ScopeKind::Truncated => "(frames left out)".into(),
        _ if row.name.is_empty() => row.kind.word().into(),
        _ => shorten(&printable(&row.name), room),
    }
}

fn whose(member: &Member) -> String {
    let thread = member.thread.as_ref().map(|thread| format!("thread {} ({}) of ", printable(&thread.name), thread.id));
    let process = member.process.as_ref();
    let process = process.map(|process| format!("process {} ({})", printable(&process.name), process.id));
    format!(
        "{}{} in run {}",
        thread.unwrap_or_default(),
        process.unwrap_or_else(|| "no process".into()),
        member.run + 1
    )
}
