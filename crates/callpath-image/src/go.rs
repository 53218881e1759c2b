//! Whether a program is Go's without C: its runtime then asks the kernel for each signal itself, without the C library.

use std::path::Path;

use crate::outline::Outline;

/// Go's linker leaves a note of this owner.
const OWNER: &[u8] = b"Go\0\0";

/// With C, threads are made by the C library: a name that ends so is imported, or the runtime's own around it.
const OF_C: &[u8] = b"pthread_create";

/// Whether the dynamic ELF file at `path` is built by Go, without any C in it. A file that cannot be read is not.
pub fn is_go_without_c(path: &Path) -> bool {
    let has_c = |names: &[u8]| names.split(|byte| *byte == 0).any(|name| name.ends_with(OF_C));
    let Ok(outline) = Outline::open(path) else { return false };
    outline.has_note_of(OWNER).unwrap_or(false)
        && outline.dynamic_names().is_ok_and(|names| names.is_some_and(|names| !has_c(&names)))
}
