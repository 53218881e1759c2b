//! What attribution is told besides the measurement.

use std::path::{Path, PathBuf};

use callpath_image::identity::ModuleIdentity;
use callpath_measurement::KeptFiles;
use callpath_tables::module::Module;

use crate::names::ModuleNames;

/// The preload object's file name begins so; its frames are ours, not the program's.
pub const PRELOAD_PREFIX: &str = "callpath-preload-";

/// Where names come from besides the modules themselves.
#[derive(Clone, Debug, Default)]
pub struct AttributeOptions {
    /// Directories of separate debug files.
    pub debug_roots: Vec<PathBuf>,
    /// The kernel's own object as this machine has it; it is used only if it is the one that was measured.
    pub vdso: Option<Vec<u8>>,
    /// Where structures are cached between reports.
    pub cache: Option<PathBuf>,
    /// Files that the measurement keeps: they come before what their paths lead to.
    pub kept: KeptFiles,
}

impl AttributeOptions {
    /// What names a module, by where it was and its identity.
    pub fn open(&self, path: &Path, identity: Option<&ModuleIdentity>) -> ModuleNames {
        match &self.vdso {
            Some(vdso) if path.as_os_str() == "[vdso]" => {
                ModuleNames::from_bytes(vdso.clone(), path, identity, &self.debug_roots)
            }
            _ => {
                let kept = identity.and_then(|identity| self.kept.find(identity));
                let module = Module::read(kept.as_deref().unwrap_or(path));
                ModuleNames::from_module(path, module, identity, &self.debug_roots)
            }
        }
    }
}

/// Called now and then with the number of modules that have been read, and their number.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);
