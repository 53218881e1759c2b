//! Times of paths that were measured: a part of what was counted in a process ([`crate::PathCounts`]).

use callpath_schema::{MeasuredTime, PathTime};

use crate::bytes::{Reader, Writer};
use crate::error::MeasurementError;
use crate::path_file::CountedProcedure;

/// For each path of these procedures, in the order of the file: 0 or what was measured, of usual and of long executions.
pub(crate) fn write(w: &mut Writer, procedures: &[&CountedProcedure]) {
    for path in procedures.iter().flat_map(|procedure| procedure.in_order()) {
        for MeasuredTime { measured, weight, time_ns, spread } in [path.time.usual, path.time.long] {
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

/// Fills in the times of procedures that were read before.
pub(crate) fn read(r: &mut Reader<'_>, procedures: &mut [CountedProcedure]) -> Result<(), MeasurementError> {
    for path in procedures.iter_mut().flat_map(|procedure| &mut procedure.paths) {
        path.time = PathTime { usual: read_time(r)?, long: read_time(r)? };
    }
    Ok(())
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
