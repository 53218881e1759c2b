//! Times of paths that were measured: a part of what was counted in a process ([`crate::PathCounts`]).

use callpath_schema::MeasuredTime;

use crate::bytes::{Reader, Writer};
use crate::error::MeasurementError;
use crate::path_file::CountedProcedure;

/// For each path of these procedures, in the order of the file, 0 or what was measured.
pub(crate) fn write(w: &mut Writer, procedures: &[&CountedProcedure]) {
    for path in procedures.iter().flat_map(|procedure| procedure.in_order()) {
        let MeasuredTime { measured, weight, time_ns, spread } = path.time;
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

/// Fills in the times of procedures that were read before.
pub(crate) fn read(r: &mut Reader<'_>, procedures: &mut [CountedProcedure]) -> Result<(), MeasurementError> {
    for path in procedures.iter_mut().flat_map(|procedure| &mut procedure.paths) {
        let measured = r.number()?;
        if measured == 0 {
            continue;
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
        path.time = MeasuredTime { measured, weight, time_ns, spread };
    }
    Ok(())
}
