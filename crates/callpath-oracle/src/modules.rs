//! The modules of a process at a moment: what of which file is mapped where.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_image::elf::Image;
use callpath_target::{FileId, MapEntry, Maps};

/// The name of the kernel's own object.
pub const VDSO: &str = "[vdso]";

/// A mapping of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Where in the file it begins, bytes.
    pub file_offset: u64,
    /// May be read.
    pub readable: bool,
    /// May be executed.
    pub executable: bool,
}

/// A loaded file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Run-time address minus link-time address.
    pub bias: u64,
    /// The file.
    pub path: PathBuf,
    /// Its mappings, in order; at least one.
    pub mappings: Vec<Mapping>,
}

impl Module {
    /// Its lowest address.
    pub fn start(&self) -> u64 {
        self.mappings.first().map_or(0, |mapping| mapping.start)
    }

    /// One past its highest.
    pub fn end(&self) -> u64 {
        self.mappings.last().map_or(0, |mapping| mapping.end)
    }
}

/// All modules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Modules {
    /// In order of address.
    pub modules: Vec<Module>,
}

impl Modules {
    /// The module whose code is at `addr`, by its index, and the link-time address there.
    pub fn code_at(&self, addr: RunAddr) -> Option<(usize, LinkAddr)> {
        self.modules.iter().enumerate().find_map(|(index, module)| {
            let mut code = module.mappings.iter().filter(|mapping| mapping.executable);
            code.any(|mapping| (mapping.start..mapping.end).contains(&addr.0))
                .then(|| (index, addr.to_link(module.bias)))
        })
    }
}

/// Images that were read once.
#[derive(Default)]
pub struct Images {
    by_path: HashMap<PathBuf, Option<Arc<Image>>>,
    vdso: Option<Vec<u8>>,
}

impl Images {
    /// With the bytes of the program's vdso, which has no file.
    pub fn with_vdso(vdso: Option<Vec<u8>>) -> Images {
        Images { by_path: HashMap::new(), vdso }
    }

    /// The image of a file, if it can be read and is one.
    pub fn get(&mut self, path: &Path) -> Option<Arc<Image>> {
        if let Some(known) = self.by_path.get(path) {
            return known.clone();
        }
        let image = match (&self.vdso, path.as_os_str() == VDSO) {
            (Some(vdso), true) => Image::from_bytes(vdso.clone(), path),
            _ => Image::read(path),
        };
        // What is no image has no code of interest: data files are mapped, too.
        let image = image.ok().map(Arc::new);
        self.by_path.insert(path.to_owned(), image.clone());
        image
    }

    /// The modules of a memory map. `vdso_path` is what the kernel's own object is to be called.
    pub fn modules(&mut self, maps: &Maps, vdso_path: &Path) -> Modules {
        let mut modules: Vec<Module> = Vec::new();
        let mut last: Option<FileId> = None;
        for entry in &maps.entries {
            let is_vdso = entry.path.as_os_str() == VDSO;
            let path = if is_vdso { vdso_path } else { &entry.path };
            if !is_vdso && (entry.file.is_none() || entry.deleted || !path.is_absolute()) {
                last = entry.file.filter(|_| entry.file == last);
                continue;
            }
            let mapping = Mapping {
                start: entry.start.0,
                end: entry.end.0,
                file_offset: entry.file_offset,
                readable: entry.readable,
                executable: entry.executable,
            };
            match modules.last_mut() {
                Some(module) if last == entry.file && module.path == path && entry.file_offset > 0 => {
                    module.mappings.push(mapping);
                }
                _ => modules.push(Module { bias: 0, path: path.to_owned(), mappings: vec![mapping] }),
            }
            last = entry.file;
        }
        modules.retain_mut(|module| {
            if !module.mappings.iter().any(|mapping| mapping.executable) {
                return false;
            }
            let name = if module.path == vdso_path { Path::new(VDSO) } else { &module.path };
            match self.get(name).and_then(|image| bias(&image, &module.mappings)) {
                Some(bias) => module.bias = bias,
                None => return false,
            }
            true
        });
        Modules { modules }
    }
}

/// Where the code's mapping and the program header that asked for it agree.
fn bias(image: &Image, mappings: &[Mapping]) -> Option<u64> {
    const PAGE: u64 = 4096;
    mappings.iter().filter(|mapping| mapping.executable).find_map(|mapping| {
        let segment = image.segments().iter().find(|segment| {
            let first = segment.file_offset / PAGE * PAGE;
            segment.executable && (first..segment.file_offset + segment.file_len).contains(&mapping.file_offset)
        })?;
        let link = segment.vaddr.0.wrapping_sub(segment.file_offset).wrapping_add(mapping.file_offset);
        Some(mapping.start.wrapping_sub(link))
    })
}

/// Executable mappings, and what each maps.
pub fn executable(maps: &Maps) -> impl Iterator<Item = &MapEntry> {
    maps.entries.iter().filter(|entry| entry.executable)
}
