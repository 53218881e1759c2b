//! The session file: what was recorded, by which metrics, how it ended.

use std::path::Path;

use callpath_schema::{Metric, ProbeAccount};

use crate::bytes::{KIND_SESSION, Reader, finished, started};
use crate::error::MeasurementError;
use crate::{SessionEnd, SessionFile};

/// No measurement has more metrics.
pub(crate) const MOST_METRICS: usize = 4096;

/// The bytes of a session file.
pub fn encode_session(session: &SessionFile) -> Vec<u8> {
    let mut w = started(KIND_SESSION);
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
        metric.write(&mut w);
    }
    w.number(session.period_ns);
    w.strings(&session.notes);
    w.number(session.lost_processes);
    w.number(session.recorder_cpu_ns);
    w.number(session.processes);
    // Measurements without probes are as they were before there were any.
    if let Some(probes) = &session.probes {
        probes.write(&mut w);
    }
    finished(w)
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
        session.metrics.push(r.read(Metric::read)?);
    }
    if session.metrics.is_empty() || session.metrics.len() > MOST_METRICS {
        return Err(r.error("number of metrics"));
    }
    session.period_ns = r.number()?;
    session.notes = r.strings()?;
    session.lost_processes = r.number()?;
    session.recorder_cpu_ns = r.number()?;
    session.processes = r.number()?;
    if !r.is_at_end() {
        session.probes = Some(r.read(ProbeAccount::read)?);
    }
    r.finish()?;
    Ok(session)
}
