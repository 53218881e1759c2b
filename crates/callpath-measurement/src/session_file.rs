//! The session file: what was recorded, by which metrics, how it ended.

use std::path::Path;

use callpath_schema::{Metric, ProbeAccount};

use crate::bytes::{KIND_SESSION, Reader, finished, started};
use crate::error::MeasurementError;
use crate::{EndKind, SessionEnd, SessionFile};

/// The note of a measurement whose samples walked no stack.
pub const NOT_WALKED: &str =
    "stacks were not walked (--unwind=infer): callpath report --map MAP finds the call paths of most samples";

/// The note of a measurement whose stacks were walked up to a frame of which a map tells the rest of the call path, without the map.
const WALKED_UNTIL_TOLD: &str =
    "stacks were walked until the map tells the rest of the call path (--on-ambiguous=walk); checksum of the map: ";

/// The note of such a measurement; `map`: the checksum of its map, since no other tells the same.
pub fn walked_until_told(map: u64) -> String {
    format!("{WALKED_UNTIL_TOLD}{map:016x}")
}

/// Of a note that [`walked_until_told`] has made, the checksum of the map.
pub fn told_by(note: &str) -> Option<u64> {
    u64::from_str_radix(note.strip_prefix(WALKED_UNTIL_TOLD)?, 16).ok()
}

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
    w.number(session.ended.map_or(0, |end| match end.kind {
        EndKind::Known => 1,
        EndKind::Unknown => 2,
        EndKind::GoesOn => 3,
    }));
    if let Some(end) = session.ended.filter(|end| end.kind == EndKind::Known) {
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
    session.ended = match r.number()? {
        0 => None,
        1 => {
            let status = r.number()? as u16 as i32;
            Some(SessionEnd { kind: EndKind::Known, status, user_ns: r.number()?, kernel_ns: r.number()? })
        }
        2 => Some(SessionEnd { kind: EndKind::Unknown, ..SessionEnd::default() }),
        3 => Some(SessionEnd { kind: EndKind::GoesOn, ..SessionEnd::default() }),
        _ => return Err(r.error("end")),
    };
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

#[cfg(test)]
mod tests {
    use callpath_schema::MetricId;

    use super::*;

    #[test]
    fn each_way_to_end_is_read_as_it_was_written() {
        let known = SessionEnd { kind: EndKind::Known, status: 137, user_ns: 5, kernel_ns: 6 };
        let others = [EndKind::Unknown, EndKind::GoesOn].map(|kind| SessionEnd { kind, ..SessionEnd::default() });
        for ended in [None, Some(known), Some(others[0]), Some(others[1])] {
            let metrics = vec![Metric::of(MetricId::CALLS)];
            let session = SessionFile { ended, metrics, processes: 3, ..SessionFile::default() };
            assert_eq!(decode_session(&encode_session(&session), Path::new("F")).unwrap(), session);
        }
    }
}
