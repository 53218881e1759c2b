//! The modules of a program that waits at its beginning.

use callpath_tables::module::Module;
use callpath_tables::paths;

use crate::probe::Loaded;

/// A module of the program.
pub(super) struct Analysed {
    pub(super) loaded: Loaded,
    pub(super) bias: u64,
    pub(super) module: Module,
}

impl Analysed {
    /// How much memory its copies may take, bytes.
    pub(super) fn room(&self) -> u64 {
        paths::room(self.code_bytes())
    }

    /// The length of its code, bytes.
    pub(super) fn code_bytes(&self) -> u64 {
        self.module.file().code().iter().map(|code| code.end.0.saturating_sub(code.start.0)).sum()
    }
}
