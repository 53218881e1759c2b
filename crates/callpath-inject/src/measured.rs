//! The general routines: all that can be measured of a call. Where its context is known and nothing was left without an
//! exit, they hold no signals back, which would take two system calls.

use callpath_format::shared::probe::Reading;
use core::sync::atomic::Ordering::Relaxed;

use crate::activations::{Activations, Entered, pop_quickly, push_quickly};
use crate::areas;
use crate::gauges::{self, Values, active};
use crate::hit::{self, Saved, found};
use crate::undisturbed::Undisturbed;
use crate::wait::{self, end_left};

/// `callpath_measure`: no exit is probed.
pub unsafe extern "C" fn measured(saved: &Saved) {
    if measured_quickly(saved).is_some() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let Some((values, ..)) = found(saved.call()) else { return };
    let Some((process, _, area)) = areas::own() else { return };
    // SAFETY: of a node; the area is the calling thread's.
    let (values, area) = unsafe { (Values::at(values), &*area) };
    gauges::at_entry(area, process, values, &saved.arguments());
}

fn measured_quickly(saved: &Saved) -> Option<()> {
    let (process, _, area) = areas::known()?;
    let [values, ..] = hit::known(area, saved.call())?;
    // SAFETY: of a node; the area is the calling thread's.
    let (values, area) = unsafe { (Values::at(values), &*area) };
    gauges::at_entry(area, process, values, &saved.arguments());
    Some(())
}

/// `callpath_begin`
pub unsafe extern "C" fn begun(saved: &Saved) {
    if begun_quickly(saved).is_some() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let context = found(saved.call()).map(|(values, base, _)| (values, base));
    let Some((process, thread, area)) = areas::own() else { return };
    let (values, base) = context.unwrap_or((0, 0));
    let rsp = saved.rsp_at_entry();
    // SAFETY: the calling thread's own.
    let interrupted = unsafe {
        end_left(area, &thread, rsp);
        wait::interrupt(area)
    };
    // SAFETY: as above.
    let (mut activations, table) = unsafe { (Activations::of(area, &thread), &*area) };
    if context.is_none() {
        // Its exit belongs to something all the same.
        let reading = Reading { interrupted, ..Reading::NONE };
        return activations.enter(Entered { rsp, values, base, is_timed: true, reading });
    }
    // SAFETY: of a node.
    gauges::at_entry(table, process, unsafe { Values::at(values) }, &saved.arguments());
    let reading = gauges::at_begin(table, active(process), interrupted);
    activations.enter(Entered { rsp, values, base, is_timed: true, reading });
}

fn begun_quickly(saved: &Saved) -> Option<()> {
    let (process, thread, area) = areas::known()?;
    let [values, base, _] = hit::known(area, saved.call())?;
    let rsp = saved.rsp_at_entry();
    // SAFETY: the area is the calling thread's, and the values are a node's.
    unsafe {
        end_left(area, &thread, rsp);
        let at = push_quickly(area, &Entered { rsp, values, base, is_timed: true, reading: Reading::NONE })?;
        gauges::at_entry(&*area, process, Values::at(values), &saved.arguments());
        let interrupted = wait::interrupt(area);
        at.set(area, gauges::at_begin(&*area, active(process), interrupted));
    }
    Some(())
}

/// `callpath_end`: at a return.
pub unsafe extern "C" fn ended(saved: &Saved) {
    end(saved.rsp_at_exit(), Some(saved.rax));
}

/// `callpath_end_by_jump`: what the procedure that is jumped to returns is not known yet.
pub unsafe extern "C" fn ended_by_jump(saved: &Saved) {
    end(saved.rsp_at_exit(), None);
}

fn end(rsp: u64, result: Option<u64>) {
    let quickly = areas::known().and_then(|(_, thread, area)| {
        // SAFETY: the area is the calling thread's.
        unsafe {
            end_left(area, &thread, rsp);
            pop_quickly((area, &thread), rsp, result)
        }
    });
    if quickly.is_some() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let Some((_, thread, area)) = areas::own() else { return };
    // SAFETY: the calling thread's own.
    if !unsafe { Activations::of(area, &thread) }.leave(rsp, result) {
        let count = &thread.record.unmatched_exits;
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }
}
