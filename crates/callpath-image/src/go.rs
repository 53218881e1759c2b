//! Whether Go has built a program, and with C. Its runtime starts programs by system calls of its own; without C, it asks the kernel
//! for each signal itself, too.

use std::path::Path;

use crate::outline::Outline;

/// Go's linker leaves a note of this owner.
const OWNER: &[u8] = b"Go\0\0";

/// With C, threads are made by the C library: a name that ends so is imported, or the runtime's own around it.
const OF_C: &[u8] = b"pthread_create";

/// What Go has built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// With C: its threads are the C library's.
    WithC,
    /// Without any C.
    WithoutC,
}

impl Go {
    /// How Go has built the dynamic ELF file at `path`. `None`: something else has, or it cannot be read.
    pub fn of(path: &Path) -> Option<Go> {
        let outline = Outline::open(path).ok()?;
        if !outline.has_note_of(OWNER).unwrap_or(false) {
            return None;
        }
        let names = outline.dynamic_names().ok()??;
        let has_c = names.split(|byte| *byte == 0).any(|name| name.ends_with(OF_C));
        Some(if has_c { Go::WithC } else { Go::WithoutC })
    }
}
