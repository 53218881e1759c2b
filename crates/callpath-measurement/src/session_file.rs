//! The session file: what was recorded, by which metrics, how it ended.

use std::path::Path;

use callpath_schema::{Formula, Metric, MetricId, MetricKind, MetricSource, MetricType};

use crate::bytes::{KIND_SESSION, Reader, Writer};
use crate::error::MeasurementError;
use crate::{SessionEnd, SessionFile};

/// No measurement has more metrics.
pub(crate) const MOST_METRICS: usize = 4096;

/// The bytes of a session file.
pub fn encode_session(session: &SessionFile) -> Vec<u8> {
    let mut w = Writer::new(KIND_SESSION);
    w.path(&session.program);
    w.strings(&session.command);
    w.path(&session.working_directory);
    w.string(&session.host);
    w.string(&session.recorder);
    w.number(session.started_unix_ns);
    w.number(session.duration_ns);
    w.number(u64::from(session.ended.is_some()));
    if let Some(end) = session.ended {
        w.number(end.status as u64 & 0xffff);
        w.number(end.user_ns);
        w.number(end.kernel_ns);
    }
    w.number(session.metrics.len() as u64);
    for metric in &session.metrics {
        encode_metric(&mut w, metric);
    }
    w.number(session.period_ns);
    w.strings(&session.notes);
    w.number(session.lost_processes);
    w.number(session.recorder_cpu_ns);
    w.number(session.processes);
    w.finish()
}

/// A session file from its bytes; `path` is for errors only.
pub(crate) fn decode_session(bytes: &[u8], path: &Path) -> Result<SessionFile, MeasurementError> {
    let mut r = Reader::open(bytes, path, KIND_SESSION)?;
    let mut session = SessionFile {
        program: r.path()?,
        command: r.strings()?,
        working_directory: r.path()?,
        host: r.string()?,
        recorder: r.string()?,
        started_unix_ns: r.number()?,
        duration_ns: r.number()?,
        ..SessionFile::default()
    };
    if r.number()? != 0 {
        session.ended =
            Some(SessionEnd { status: r.number()? as u16 as i32, user_ns: r.number()?, kernel_ns: r.number()? });
    }
    for _ in 0..r.count(8)? {
        session.metrics.push(decode_metric(&mut r)?);
    }
    if session.metrics.is_empty() || session.metrics.len() > MOST_METRICS {
        return Err(r.error("number of metrics"));
    }
    session.period_ns = r.number()?;
    session.notes = r.strings()?;
    session.lost_processes = r.number()?;
    session.recorder_cpu_ns = r.number()?;
    session.processes = r.number()?;
    r.finish()?;
    Ok(session)
}

/// A row of the registry, as it was when the measurement was made: a reader need not know the metric.
fn encode_metric(w: &mut Writer, metric: &Metric) {
    w.number(metric.id.map_or(0, |id| u64::from(id.0)));
    w.string(&metric.name);
    w.string(&metric.unit);
    let (value, bin) = match metric.value {
        MetricType::Integer => (0, None),
        MetricType::Signed => (1, None),
        MetricType::Real => (2, None),
        MetricType::Histogram { bin } => (3, Some(bin)),
    };
    w.number(value);
    if let Some(bin) = bin {
        w.number(u64::from(bin));
    }
    w.number(metric.source.number());
    w.number(u64::from(metric.is_of_procedure));
    w.string(metric.note.as_deref().unwrap_or_default());
    match &metric.kind {
        MetricKind::Sum => w.number(0),
        MetricKind::Max => w.number(1),
        MetricKind::Derived(Formula::PerOwn { cost, count }) => {
            w.number(2);
            w.string(cost);
            w.string(count);
        }
        MetricKind::Derived(Formula::Ratio { numerator, denominator, scale }) => {
            w.number(3);
            w.string(numerator);
            w.string(denominator);
            w.number(*scale);
        }
    }
}

fn decode_metric(r: &mut Reader<'_>) -> Result<Metric, MeasurementError> {
    let number = |r: &mut Reader<'_>, what| u32::try_from(r.number()?).map_err(|_| r.error(what));
    let id = number(r, "metric")?;
    let (name, unit) = (r.string()?, r.string()?);
    let value = match r.number()? {
        0 => MetricType::Integer,
        1 => MetricType::Signed,
        2 => MetricType::Real,
        3 => MetricType::Histogram { bin: number(r, "bin of a histogram")? },
        _ => return Err(r.error("type of a metric")),
    };
    let source = MetricSource::from_number(r.number()?).ok_or_else(|| r.error("source of a metric"))?;
    let is_of_procedure = r.number()? != 0;
    let note = Some(r.string()?).filter(|note| !note.is_empty());
    let kind = match r.number()? {
        0 => MetricKind::Sum,
        1 => MetricKind::Max,
        2 => MetricKind::Derived(Formula::PerOwn { cost: r.string()?, count: r.string()? }),
        3 => {
            let (numerator, denominator) = (r.string()?, r.string()?);
            MetricKind::Derived(Formula::Ratio { numerator, denominator, scale: r.number()? })
        }
        _ => return Err(r.error("kind of a metric")),
    };
    let id = Some(MetricId(id)).filter(|id| id.0 != 0);
    Ok(Metric { id, name, unit, kind, value, source, is_of_procedure, note })
}
