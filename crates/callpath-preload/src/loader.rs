//! `dlclose`: libraries that are unloaded.
//!
//! Loading a library needs no hook: the first sample in unknown code makes the recorder read the memory map. A library
//! that is unloaded must be removed before another takes its place.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::hook::{hook, real};
use crate::libc::DlPhdrInfo;
use crate::{part, recorder};

/// How long a call of dlclose waits for the recorder.
const PATIENCE_NS: u64 = 1_000_000_000;

hook! {
    /// `dlclose(3)`. When it returns, the recorder has removed the libraries that were unloaded.
    fn dlclose(handle: *mut c_void) -> c_int, or -1;
    |next| {
        let Some(process) = part::own_process() else { return next.original() };
        process.slot.unloading.fetch_add(1, AcqRel);
        if process.slot.raw_pending.load(Acquire) != 0 {
            // Raw samples wait that may lie in the library.
            sync_map(process);
        }
        let before = unloads();
        let result = next.original();
        if unloads() != before {
            sync_map(process);
        }
        process.slot.unloading.fetch_sub(1, AcqRel);
        result
    }
}

/// Asks the recorder to read the memory map again, and waits until it has.
fn sync_map(process: &callpath_collect::Process<'_>) {
    let wanted = process.slot.map_wanted.fetch_add(1, AcqRel).wrapping_add(1);
    process.ring();
    let is_served = |served| wanted.wrapping_sub(served) as i32 <= 0;
    recorder::wait(process, &process.slot.map_served, PATIENCE_NS, is_served);
}

/// How many libraries the loader has unloaded so far.
fn unloads() -> u64 {
    type Visit = unsafe extern "C" fn(*const DlPhdrInfo, usize, *mut c_void) -> c_int;
    let Some(iterate) = real!(fn dl_iterate_phdr(Visit, *mut c_void) -> c_int) else { return 0 };
    unsafe extern "C" fn first(info: *const DlPhdrInfo, size: usize, count: *mut c_void) -> c_int {
        if size >= size_of::<DlPhdrInfo>() {
            // SAFETY: the loader passes a record of that size, and with it the address of
            // `count`, which `unloads` does not touch meanwhile.
            unsafe { *count.cast::<u64>() = (*info).subs };
        }
        1
    }
    let mut count = 0u64;
    // SAFETY: `first` is of the type that is called with each object, and `count` lives until this returns. Its lock
    // may be taken: no signal handler of ours calls this.
    unsafe { iterate(first, core::ptr::from_mut(&mut count).cast()) };
    count
}
