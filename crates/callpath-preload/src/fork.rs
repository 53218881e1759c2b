//! fork: the child is a process of the same measurement, with its own slot and tree.

use callpath_collect::syscall::getpid;
use callpath_collect::{Process, refused};
use callpath_format::shared::refused::Calls;
use callpath_format::shared::{ArenaRef, ThreadRecord};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use crate::attach::{self, Beginning, OwnStack};
use crate::hook::real;
use crate::tls::{self, Word};
use crate::{lanes, masks, names, part, sends, sentinel};

static OBJECT: u8 = 0;

/// Asks the C library to call us in every child. `false`: it cannot.
pub fn register() -> bool {
    type Handler = Option<unsafe extern "C" fn()>;
    // LSB 5.0; the last argument identifies the object that owns the handlers.
    let register = real!(fn __register_atfork(Handler, Handler, Handler, *mut c_void) -> c_int);
    // SAFETY: `child` needs nothing but to be called in a child by its only thread, as this is for; our object, which
    // `OBJECT`'s address identifies, is never unloaded.
    register.is_some_and(
        |register| unsafe { register(None, None, Some(child), (&raw const OBJECT).cast_mut().cast()) } == 0,
    )
}

unsafe extern "C" fn child() {
    // A copy: `join` writes over it.
    let Some(parent) = part::process().copied() else { return };
    if refused::has(Calls::GETPID) {
        // It could not be distinguished from its parent.
        part::leave();
        masks::give_back();
        return;
    }
    let begin = Beginning::now();
    let record: Option<&ThreadRecord> = parent.arena.get(ArenaRef(tls::get(Word::Record) as u32));
    let stack = record.map_or(OwnStack::default(), |record| OwnStack {
        bounds: [record.stack[0].load(Relaxed), record.stack[1].load(Relaxed)],
        // A thread's that forks is the stack of the child's first thread then, whose heights count from elsewhere.
        base: if record.start_routine.load(Relaxed) == 0 { record.stack_base.load(Relaxed) } else { 0 },
    });
    tls::set(Word::Record, 0);
    sends::forget();
    if masks::is_blocked() {
        // In truth only as long as one of the parent's waits for it.
        masks::unblock();
    }
    let forked_from = parent.slot_index + 1;
    if parent.stubs.is_some() {
        sentinel::adopt();
    }
    match Process::claim(parent.arena, parent.published, parent.stubs) {
        Some(process) => {
            process.slot.pid.store(getpid(), Relaxed);
            lanes::adopt(&process);
            process.slot.unmarked.store(parent.slot.unmarked.load(Relaxed), Relaxed);
            attach::join(process, stack, forked_from, begin);
            if let (Some(own), Some(before)) = (parent.arena.get(ArenaRef(tls::get(Word::Record) as u32)), record) {
                names::inherit(own, before);
            }
        }
        None => {
            part::leave();
            masks::give_back();
        }
    }
}
