//! The dynamic loader: real definitions behind ours, and libraries that go away.
//! Knows nothing of what is in a library.
//!
//! Libraries that come need no hook: the first sample in unknown code makes the recorder look. One that goes must be
//! struck off before another takes its place.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::libc::{DlPhdrInfo, next};
use crate::{attach, recorder};

/// How long a call of dlclose waits for the recorder.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A definition behind ours, looked up by name.
#[repr(C)]
pub struct Real {
    name: &'static CStr,
    address: AtomicUsize,
}

/// Looked up, and not there.
const MISSING: usize = 1;

impl Real {
    pub const fn new(name: &'static CStr) -> Real {
        Real { name, address: AtomicUsize::new(0) }
    }

    /// Its address. `None`: there is none.
    pub fn get(&self) -> Option<usize> {
        match self.address.load(Relaxed) {
            // What was not there may have come with a library since: before glibc 2.34 threads are in one of their own.
            0 | MISSING => self.look_up(),
            address => Some(address),
        }
    }

    #[cold]
    fn look_up(&self) -> Option<usize> {
        let address = next(self.name) as usize;
        self.address.store(if address == 0 { MISSING } else { address }, Relaxed);
        (address != 0).then_some(address)
    }
}

/// The address of the definition of this name behind ours. All of them stand in one section, so that the constructor can
/// look them up (`resolve_all`).
macro_rules! real {
    ($name:expr) => {{
        #[used]
        #[unsafe(link_section = "callpath_reals")]
        static REAL: $crate::loader::Real = $crate::loader::Real::new($name);
        REAL.get()
    }};
}
pub(crate) use real;

/// Looks all of them up while nothing else runs: later it would take the loader's lock, perhaps inside a signal handler
/// of the program's, and disturb what its `dlerror` says.
pub fn resolve_all() {
    unsafe extern "C" {
        #[link_name = "__start_callpath_reals"]
        static FIRST: u8;
        #[link_name = "__stop_callpath_reals"]
        static END: u8;
    }
    let (mut at, end) = ((&raw const FIRST).cast::<Real>(), (&raw const END).cast::<Real>());
    while at < end {
        // SAFETY: the linker puts the statics of the section one after the other, and names its bounds.
        unsafe {
            (*at).get();
            at = at.add(1);
        }
    }
    // What was not there has left an error that is not the program's.
    if let Some(dlerror) = real!(c"dlerror") {
        // SAFETY: `dlerror` of the C library.
        unsafe {
            let dlerror: extern "C" fn() -> *const core::ffi::c_char = core::mem::transmute(dlerror);
            dlerror();
        }
    }
}

/// `dlclose`, after which the recorder has struck off what is gone.
///
/// # Safety
/// As for `dlclose(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = real!(c"dlclose") else { return -1 };
    // SAFETY: `dlclose` of the C library.
    let real: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { core::mem::transmute(real) };
    let Some(process) = attach::own_process() else {
        // SAFETY: the caller's own argument.
        return unsafe { real(handle) };
    };
    process.slot.unloading.fetch_add(1, AcqRel);
    if process.slot.raw_pending.load(Acquire) != 0 {
        // Samples wait that may lie in what goes away.
        sync_map(process);
    }
    let before = unloads();
    // SAFETY: the caller's own argument.
    let result = unsafe { real(handle) };
    if unloads() != before {
        sync_map(process);
    }
    process.slot.unloading.fetch_sub(1, AcqRel);
    result
}

/// Asks the recorder for a new look at the memory map and waits until it has taken it.
fn sync_map(process: &callpath_collect::Process<'_>) {
    let wanted = process.slot.map_wanted.fetch_add(1, AcqRel).wrapping_add(1);
    process.ring();
    let is_served = |served| wanted.wrapping_sub(served) as i32 <= 0;
    recorder::wait(process, &process.slot.map_served, PATIENCE_NS, is_served);
}

/// How many libraries the loader has taken away so far.
fn unloads() -> u64 {
    let Some(iterate) = real!(c"dl_iterate_phdr") else { return 0 };
    type Visit = unsafe extern "C" fn(*const DlPhdrInfo, usize, *mut c_void) -> c_int;
    // SAFETY: `dl_iterate_phdr` of the C library.
    let iterate: unsafe extern "C" fn(Visit, *mut c_void) -> c_int = unsafe { core::mem::transmute(iterate) };
    unsafe extern "C" fn first(info: *const DlPhdrInfo, size: usize, count: *mut c_void) -> c_int {
        if size >= size_of::<DlPhdrInfo>() {
            // SAFETY: the loader passes a valid record of that size, and what `unloads` gave it.
            unsafe { *count.cast::<u64>() = (*info).subs };
        }
        1
    }
    let mut count = 0u64;
    // SAFETY: `first` follows the protocol; called outside of handlers.
    unsafe { iterate(first, core::ptr::from_mut(&mut count).cast()) };
    count
}
