//! Recordings from outside: of processes that run already, and of programs that load no preloaded object.

mod attached;
mod launched;

use callpath_target::find_program;

use crate::error::RecordError;
use crate::serve::{Recorded, record_as};
use crate::settings::RecordOptions;
use crate::suitable::{WayIn, way_in};
pub use attached::{AttachOptions, attach};
use launched::record_from_outside;

/// Runs the program and records it until it ends: from inside, or, if it loads no preloaded object, from outside. Before the program is
/// started an error means that it never ran.
pub fn record(options: &RecordOptions) -> Result<Recorded, RecordError> {
    let program = find_program(&options.program)?;
    match way_in(&program)? {
        WayIn::Inside(_) if options.outside => record_from_outside(options, &program, "asked for (--outside)"),
        WayIn::Inside(_) => record_as(options, |program, _| program),
        WayIn::Outside(what) => record_from_outside(options, &program, &what),
    }
}
