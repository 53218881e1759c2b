//! What attribution is told besides the measurement.

use std::path::PathBuf;

/// The preload object's file name begins so; its frames are ours, not the program's.
pub const PRELOAD_PREFIX: &str = "callpath-preload-";

/// Where names come from besides the modules themselves.
#[derive(Clone, Debug)]
pub struct AttributeOptions {
    /// Directories of separate debug files.
    pub debug_roots: Vec<PathBuf>,
    /// The kernel's own object as this machine has it; it is used only if it is the one that was measured.
    pub vdso: Option<Vec<u8>>,
    /// Where structures are cached between reports.
    pub cache: Option<PathBuf>,
}

/// Called now and then with the number of modules that have been read, and their number.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);
