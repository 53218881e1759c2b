//! Times of paths that were measured: a part of what was counted in a process ([`crate::PathCounts`]).
//!
//! What was measured of the first metric stands first, which is `wall-time` unless more follows: the number of metrics, their names, and what was
//! measured of the second one.

use callpath_schema::{MeasuredTime, Metric, MetricId, PATH_METRICS, PathMetric, PathTime, TimesAccount};

use crate::bytes::{Reader, Writer};
use crate::error::MeasurementError;
use crate::path_file::CountedProcedure;

/// What is measured if nothing is said of it.
fn usual() -> String {
    Metric::of(MetricId::TIMED).name
}

/// What was measured of paths of these procedures, in the order of the file; at least one metric was.
pub(crate) fn write(w: &mut Writer, metrics: &[PathMetric], procedures: &[&CountedProcedure]) {
    for (number, metric) in metrics.iter().enumerate() {
        if number == 1 {
            write_names(w, metrics);
        }
        write_metric(w, (number, metric.account), procedures);
    }
    if let [metric] = metrics
        && metric.name != usual()
    {
        write_names(w, metrics);
    }
}

fn write_names(w: &mut Writer, metrics: &[PathMetric]) {
    w.number(metrics.len() as u64);
    metrics.iter().for_each(|metric| w.string(&metric.name));
}

/// For each path: 0 or what was measured, of usual and of long executions.
fn write_metric(w: &mut Writer, (number, account): (usize, TimesAccount), procedures: &[&CountedProcedure]) {
    w.number(account.lost);
    w.number(account.clock_ns);
    for path in procedures.iter().flat_map(|procedure| procedure.in_order()) {
        let time = path.times.get(number).copied().unwrap_or_default();
        for MeasuredTime { measured, weight, time_ns, spread } in [time.usual, time.long] {
            w.number(measured);
            if measured > 0 {
                w.number(weight);
                w.number(time_ns);
                for sum in spread {
                    w.number(sum as u64);
                    w.number((sum >> u64::BITS) as u64);
                }
            }
        }
    }
}

/// Fills in the times of procedures that were read before, and says what was measured.
pub(crate) fn read(
    r: &mut Reader<'_>,
    procedures: &mut [CountedProcedure],
) -> Result<Vec<PathMetric>, MeasurementError> {
    let mut metrics = vec![PathMetric { name: usual(), account: read_metric(r, 0, procedures)? }];
    if r.is_at_end() {
        return Ok(metrics);
    }
    let count = r.count(1)?;
    if count == 0 || count > PATH_METRICS {
        return Err(r.error("number of metrics"));
    }
    metrics[0].name = r.string()?;
    let others: Vec<String> = (1..count).map(|_| r.string()).collect::<Result<_, _>>()?;
    for (number, name) in (1..).zip(others) {
        metrics.push(PathMetric { name, account: read_metric(r, number, procedures)? });
    }
    Ok(metrics)
}

fn read_metric(
    r: &mut Reader<'_>,
    number: usize,
    procedures: &mut [CountedProcedure],
) -> Result<TimesAccount, MeasurementError> {
    let account = TimesAccount { lost: r.number()?, clock_ns: r.number()? };
    for path in procedures.iter_mut().flat_map(|procedure| &mut procedure.paths) {
        let time = PathTime { usual: read_time(r)?, long: read_time(r)? };
        path.times.iter_mut().skip(number).take(1).for_each(|place| *place = time);
    }
    Ok(account)
}

fn read_time(r: &mut Reader<'_>) -> Result<MeasuredTime, MeasurementError> {
    let measured = r.number()?;
    if measured == 0 {
        return Ok(MeasuredTime::default());
    }
    let (weight, time_ns) = (r.number()?, r.number()?);
    if weight < measured {
        return Err(r.error("weight of times"));
    }
    let mut spread = [0u128; 3];
    for sum in &mut spread {
        let low = r.number()?;
        *sum = u128::from(low) | u128::from(r.number()?) << u64::BITS;
    }
    Ok(MeasuredTime { measured, weight, time_ns, spread })
}
