//! Our two entries in an environment, and an environment without them.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::entries::{OBJECTS, object_of, others, value_of};
pub use crate::entries::{PATH_LEN, SESSION};
use crate::hook::real;
use crate::libc::first;

pub type Words = *const *const c_char;

/// Where the C library keeps the program's environment.
static ENVIRON: AtomicUsize = AtomicUsize::new(0);

/// Finds it, before the program runs.
pub fn find() {
    // The program may have the variable in its own data: not the next definition but the first one.
    ENVIRON.store(first(c"environ") as usize, Relaxed);
}

/// The program's own environment.
pub fn own() -> Words {
    let at = ENVIRON.load(Relaxed) as *const Words;
    // SAFETY: null, or the C library's variable.
    if at.is_null() { core::ptr::null() } else { unsafe { *at } }
}

/// The entries of an environment, up to the null pointer.
fn entries(environment: Words) -> impl Iterator<Item = &'static CStr> {
    let mut at = environment;
    core::iter::from_fn(move || {
        // SAFETY: null, or an array of strings that ends with a null pointer; it lives as long as its readers.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let entry = CStr::from_ptr(*at);
            at = at.add(1);
            Some(entry)
        }
    })
}

/// The value of a variable.
pub fn variable(environment: Words, name: &CStr) -> Option<&'static [u8]> {
    entries(environment).find_map(|entry| value_of(entry, name))
}

/// The path of our object in the list of preloaded ones.
pub fn object(environment: Words) -> Option<&'static [u8]> {
    object_of(variable(environment, OBJECTS)?)
}

/// The most entries of an environment that can be left out of.
const MOST_ENTRIES: usize = 1024;

/// Calls `exec` with the environment without our entries, what else is preloaded left as it is. One
/// that is too large for that is passed on as it is.
#[inline(never)]
pub fn without_ours<R>(environment: Words, exec: impl FnOnce(Words) -> R) -> R {
    let mut objects = [0u8; PATH_LEN];
    let mut kept = [core::ptr::null::<c_char>(); MOST_ENTRIES];
    let mut len = 0;
    for entry in entries(environment) {
        let mut pointer = entry.as_ptr();
        if value_of(entry, SESSION).is_some() {
            continue;
        }
        if let Some(paths) = value_of(entry, OBJECTS)
            && object_of(paths).is_some()
        {
            match others(paths, &mut objects) {
                Some(0) => continue,
                Some(_) => pointer = objects.as_ptr().cast(),
                None => return exec(environment),
            }
        }
        // The last one stays null.
        match kept.get_mut(len).filter(|_| len + 1 < MOST_ENTRIES) {
            Some(place) => *place = pointer,
            None => return exec(environment),
        }
        len += 1;
    }
    exec(kept.as_ptr())
}

/// Takes our entries out of the program's own environment: its children could no longer use them.
pub fn forget() {
    let (Some(unset), Some(set)) =
        (real!(fn unsetenv(*const c_char) -> c_int), real!(fn setenv(*const c_char, *const c_char, c_int) -> c_int))
    else {
        return;
    };
    let mut objects = [0u8; PATH_LEN];
    let Some(paths) = variable(own(), OBJECTS) else { return };
    let left = others(paths, &mut objects);
    // SAFETY: all are strings that end with a zero byte; `others` has written the name, an `=`, the value and a
    // zero byte. The C library copies what it keeps.
    unsafe {
        unset(SESSION.as_ptr());
        match left {
            Some(0) => {
                unset(OBJECTS.as_ptr());
            }
            Some(_) => {
                let value = objects.as_ptr().add(OBJECTS.count_bytes() + 1);
                set(OBJECTS.as_ptr(), value.cast(), 1);
            }
            None => {}
        }
    }
}
