//! The tables of metrics and of profiles.

use callpath_db::database::Database;
use callpath_db::{Formula, Metric, MetricKind, MetricType};

use crate::column::Cell;
use crate::error::ExportError;
use crate::ids::Numbered;
use crate::tables::{METRIC, PROFILE};
use crate::written::Written;

/// Writes the metrics; the id of each.
pub(crate) fn write_metrics(
    metrics: &[Metric],
    export: u64,
    written: &mut Written<'_>,
) -> Result<Vec<u64>, ExportError> {
    let (mut numbered, mut all) = (Numbered::default(), Vec::with_capacity(metrics.len()));
    let mut table = written.begin(&METRIC)?;
    for (position, metric) in metrics.iter().enumerate() {
        let id = numbered.metric(metric);
        let bin = match metric.value {
            MetricType::Histogram { bin } => Some(bin),
            _ => None,
        };
        let formula = formula(metric);
        table.row([
            Cell::bits(export),
            Cell::bits(id),
            Cell::Integer(position as i64),
            Cell::Text(&metric.name),
            Cell::Text(&metric.unit),
            Cell::Text(metric.kind.word()),
            Cell::Text(metric.value.word()),
            Cell::known(bin),
            Cell::Text(metric.source.word()),
            Cell::text(metric.note.as_deref().unwrap_or_default()),
            Cell::text(&formula),
        ])?;
        all.push(id);
    }
    let len_bytes = table.finish()?;
    written.add(len_bytes);
    Ok(all)
}

/// How a metric is computed of others; empty where it is none.
fn formula(metric: &Metric) -> String {
    match &metric.kind {
        MetricKind::Sum | MetricKind::Max | MetricKind::Min => String::new(),
        MetricKind::Derived(Formula::Ratio { numerator, denominator, scale: 1 }) => {
            format!("{numerator} / {denominator}")
        }
        MetricKind::Derived(Formula::Ratio { numerator, denominator, scale }) => {
            format!("{scale} * {numerator} / {denominator}")
        }
        MetricKind::Derived(Formula::PerOwn { cost, count }) => format!("{cost} / {count} of the procedure itself"),
        MetricKind::Derived(Formula::Expression(expression)) => expression.text().to_owned(),
    }
}

/// Writes the profiles; the id of each.
pub(crate) fn write_profiles(
    database: &Database,
    export: u64,
    written: &mut Written<'_>,
) -> Result<Vec<u64>, ExportError> {
    let (runs, mut numbered) = (database.runs(), Numbered::default());
    let run_ids: Vec<u64> = runs.iter().map(|run| numbered.run(run)).collect();
    let (mut numbered, mut all) = (Numbered::default(), Vec::new());
    let mut table = written.begin(&PROFILE)?;
    for entry in database.profiles() {
        // Each profile is of a run that is there: the database was checked.
        let (member, run) = (&entry.member, &runs[entry.member.run as usize]);
        let (process, thread) = (member.process.as_ref(), member.thread.as_ref());
        let id = numbered.profile(run, member);
        let started = Some(run.info.started_unix_ns).filter(|ns| *ns != 0);
        table.row([
            Cell::bits(export),
            Cell::bits(id),
            Cell::bits(run_ids[member.run as usize]),
            Cell::text(&run.info.program),
            Cell::text(&run.info.command.join(" ")),
            Cell::text(&run.info.host),
            Cell::text(&run.info.working_directory),
            started.map_or(Cell::Null, Cell::bits),
            Cell::known(member.rank),
            Cell::text(process.map_or("", |unit| &unit.name)),
            process.map_or(Cell::Null, |unit| Cell::bits(unit.id)),
            Cell::text(thread.map_or("", |unit| &unit.name)),
            thread.map_or(Cell::Null, |unit| Cell::bits(unit.id)),
        ])?;
        all.push(id);
    }
    let len_bytes = table.finish()?;
    written.add(len_bytes);
    Ok(all)
}
