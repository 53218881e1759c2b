//! AddressSanitizer: its runtime insists on being loaded before every other library, and we are loaded before it.

use core::ffi::{CStr, c_char};

/// What the runtime does by default. Our functions pass everything on to the next ones of the same name,
/// which are its own: that it is not the first does no harm, so it need not look. ASAN_OPTIONS, and a
/// function of this name in the program, override this.
const OPTIONS: &CStr = c"verify_asan_link_order=0";

/// The runtime calls this if the program does not define it.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    OPTIONS.as_ptr()
}
