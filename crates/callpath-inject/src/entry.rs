//! Where the recorder begins: the object's only routine that it calls.

use callpath_collect::{Process, clock, refused};
use callpath_format::shared::load_map::Published;
use callpath_format::shared::probe::{Admission, Admitted};
use callpath_format::shared::refused::Calls;
use callpath_format::shared::{Arena, Session};
use core::sync::atomic::Ordering::Relaxed;

use crate::{areas, contexts, join, routines, times};

/// Begins: called once, on a thread that stands still, as all others do.
#[unsafe(no_mangle)]
extern "C" fn callpath_join(admission: &mut Admission) {
    admission.admitted = begin(admission) as u64;
}

fn begin(admission: &mut Admission) -> Admitted {
    if admission.magic != Admission::MAGIC {
        return Admitted::OtherSession;
    }
    // SAFETY: the recorder has mapped both, and nothing unmaps them.
    let (arena, published) = unsafe {
        (
            Arena::new(admission.arena as *mut u8, admission.arena_len_bytes as usize),
            Published::new(admission.published as *const u8, admission.published_len_bytes as usize),
        )
    };
    let head = arena.at_offset::<Session>(0).map(Session::head).filter(|head| head.magic == Session::MAGIC);
    let Some(head) = head else { return Admitted::OtherSession };
    refused::remember_time(0, 0, head.settings.ticks_per_ms);
    refused::set(Calls(head.settings.refused_calls));
    refused::remember_time(clock::monotonic_ns(), clock::ticks(), head.settings.ticks_per_ms);
    if !areas::begin() || admission.contexts != 0 && !contexts::begin() {
        return Admitted::NoMemory;
    }
    let process = match (admission.slot as usize).checked_sub(1) {
        Some(taken) => Process::in_slot(arena, published, taken),
        None => Process::claim(arena, published, None),
    };
    let Some(process) = process else { return Admitted::NoSlot };
    let session = &process.session;
    let context_at = session.context_column.map_or(0, |column| column.wrapping_sub(session.first_of_probes) * 8);
    routines::CONTEXT_AT.store(context_at as u64, Relaxed);
    times::begin();
    admission.routines = routines::addresses();
    join::begin(process, admission);
    Admitted::Yes
}
