//! `callpath probe`: what was counted is what the program has counted itself (tests/nasty/truth.h), by call path, and the
//! program does what it does bare.

mod attached;
mod beside_samples;
mod cases;
mod contexts;
mod executed;
mod exits;
mod gauges;
mod heights;
mod libraries;
mod paths;
mod processes;
mod refused;
mod signals;
mod single_steps;
mod systems;
mod threads;
mod time;

use callpath_end_to_end::{Profile, Recorded, Truth};

/// The truth of a run that callpath has started.
fn truth(recorded: &Recorded) -> Truth {
    Truth::in_directory(recorded.surroundings())
}

/// Asserts that just these functions' calls were counted, each where it was called. Gives the profile.
#[track_caller]
fn assert_counted(recorded: &Recorded, functions: &[&str], modules: &[&str]) -> Profile {
    let profile = recorded.profile();
    let truth = truth(recorded).of(functions);
    truth.assert_counted(&profile.calls(modules));
    assert_eq!(profile.total("calls"), truth.total(), "the sum of all calls");
    profile
}
