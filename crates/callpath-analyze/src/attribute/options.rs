//! What attribution is told besides the measurement.

use std::path::{Path, PathBuf};

use callpath_image::elf::Image;
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
    /// Files that the measurement keeps, for modules that are not where they were.
    pub kept: KeptFiles,
}

impl AttributeOptions {
    /// What names a module, by where it was and its identity: from there, or else from the file that the measurement keeps.
    pub fn open(&self, path: &Path, identity: Option<&ModuleIdentity>) -> ModuleNames {
        match &self.vdso {
            Some(vdso) if path.as_os_str() == "[vdso]" => {
                ModuleNames::from_bytes(vdso.clone(), path, identity, &self.debug_roots)
            }
            _ => {
                let open = |module| ModuleNames::from_module(path, module, identity, &self.debug_roots);
                let names = open(Module::read(path));
                if names.is_usable() {
                    return names;
                }
                let kept = identity.and_then(|identity| self.kept.find(identity));
                let kept = kept.map(|kept| open(Image::read_as(&kept, path).map(Module::from)));
                kept.filter(ModuleNames::is_usable).unwrap_or(names)
            }
        }
    }
}

/// Called now and then with the number of modules that have been read, and their number.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_stands_in_for_one_that_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let (directory, path) = (place.path().join("m"), place.path().join("program"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::copy("/bin/true", &path).unwrap();
        let identity = Image::read(&path).unwrap().identity();
        let options = AttributeOptions { kept: KeptFiles::of(&directory), ..AttributeOptions::default() };
        let is_usable = || options.open(&path, Some(&identity)).is_usable();
        // What is kept of this build is not asked while the file is where it was.
        let garbage = std::fs::File::open("/etc/passwd").unwrap();
        KeptFiles::keep(&directory, &identity, (&garbage, 1 << 20)).unwrap();
        assert!(is_usable());
        // Another build has its place.
        std::fs::copy("/bin/false", &path).unwrap();
        assert!(!is_usable());
        std::fs::remove_file(options.kept.find(&identity).unwrap()).unwrap();
        let file = std::fs::File::open("/bin/true").unwrap();
        KeptFiles::keep(&directory, &identity, (&file, 1 << 20)).unwrap();
        assert!(is_usable());
        std::fs::remove_file(&path).unwrap();
        let names = options.open(&path, Some(&identity));
        assert!(names.is_usable() && names.path() == path);
        let other = Image::read(Path::new("/bin/false")).unwrap().identity();
        assert!(!options.open(&path, Some(&other)).is_usable());
    }
}
