//! Recordings from outside: of processes that run already, and of programs that load no preloaded object.

mod attached;
mod launched;

use std::time::Duration;

use callpath_target::{StackSampler, find_program};

use crate::error::RecordError;
use crate::events::Clock;
use crate::rings::{of_started, sees_user_mode_only};
use crate::serve::{Recorded, record_as};
use crate::settings::{FromOutside, RecordOptions, Unwind};
use crate::suitable::{WayIn, way_in};
pub use attached::{AttachOptions, attach};
use launched::record_from_outside;

/// How long a recording waits for what copies deep stacks, at most, before it samples. That has been loading meanwhile, and takes some
/// milliseconds more.
const PATIENCE: Duration = Duration::from_millis(50);

/// Runs the program and records it until it ends: from inside, or, if it loads no preloaded object, from outside. Before the program is
/// started an error means that it never ran.
pub fn record(options: &RecordOptions) -> Result<Recorded, RecordError> {
    let program = find_program(&options.program)?;
    match way_in(&program)? {
        WayIn::Inside(_) if goes_outside(options) => record_from_outside(options, &program, None),
        WayIn::Inside(_) => record_as(options, |program, _| program),
        WayIn::Outside(what) => record_from_outside(options, &program, Some(&what)),
    }
}

/// Whether a program is sampled from outside that can be measured from inside. Where no stack is walked, what is left of a sample is the
/// kernel's record, and a signal would take longer.
fn goes_outside(options: &RecordOptions) -> bool {
    match options.outside {
        FromOutside::Always => true,
        FromOutside::Never => false,
        FromOutside::Auto => {
            options.unwind == Unwind::Infer
                && !options.wait_all
                && !options.uses(Clock::WallTime)
                && attached::check_events(options, "", None).is_ok()
                && !sees_user_mode_only()
                && StackSampler::new(of_started(options.period_ns, false, false)).is_ok()
        }
    }
}
