//! The modules of a process, as probes are put into them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_image::elf::Image;
use callpath_target::{FileId, MapEntry, Maps, Pid, TargetError};

use crate::error::RecordError;
use crate::modules::{Key, MappedCode};
use crate::moved::{MappedModule, MovedCode};

/// Whether nothing of a module is ever probed: the loader, whose procedures may be at work whenever the program stands
/// still, or ours.
pub fn is_left_alone(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["ld-linux", "ld-musl", "callpath-preload"].iter().any(|begin| name.starts_with(begin))
}

/// The modules of a process that could be probed, by their paths there, in the order of their addresses. It is not
/// stopped or changed. Without those whose files are gone or replaced.
///
/// # Errors
/// If its memory map cannot be read, or is empty: it is ending.
pub fn probed_modules(pid: Pid) -> Result<Vec<(PathBuf, Arc<Image>)>, RecordError> {
    let maps = Maps::read(pid)?;
    if maps.entries.is_empty() {
        return Err(TargetError::NoProcess { pid }.into());
    }
    let all = Loaded::all(&maps).into_iter().filter(|loaded| !loaded.is_left_alone());
    Ok(all.filter_map(|loaded| Some((loaded.path.clone(), Arc::new(loaded.image(pid)?.0)))).collect())
}

/// A file whose code a process has mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) file: FileId,
    /// From its first mapping to the end of its last.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Its first executable mapping.
    code: MapEntry,
}

impl Loaded {
    /// All of a process. A part of a file's code that is mapped once more elsewhere, without the file's beginning, is no
    /// module (V8 maps its built-in functions so, near the code that it generates).
    pub(crate) fn all(maps: &Maps) -> Vec<Loaded> {
        let mut all: Vec<Loaded> = Vec::new();
        let mut lowest: BTreeMap<FileId, u64> = BTreeMap::new();
        for entry in &maps.entries {
            let Some(file) = entry.file else { continue };
            let lowest = lowest.entry(file).or_insert(entry.file_offset);
            *lowest = entry.file_offset.min(*lowest);
        }
        let mut first: Option<(FileId, u64)> = None;
        let mut has_begin = false;
        // The file's offset of the mapping before.
        let mut offset = 0;
        for entry in &maps.entries {
            let Some(file) = entry.file.filter(|_| entry.path.is_absolute()) else { continue };
            let is_same = first.is_some_and(|(of, _)| of == file);
            // In another name space the same file may lie right behind itself.
            let is_again = is_same && entry.file_offset < offset;
            if !is_same || is_again {
                first = Some((file, entry.start.0));
                has_begin = lowest.get(&file) == Some(&entry.file_offset);
            }
            offset = entry.file_offset;
            let start = first.map_or(entry.start.0, |(_, start)| start);
            match all.last_mut().filter(|last| last.file == file && last.start >= start) {
                Some(last) => last.end = entry.end.0,
                None if entry.executable && has_begin => {
                    all.push(Loaded { path: entry.path.clone(), file, start, end: entry.end.0, code: entry.clone() })
                }
                None => {}
            }
        }
        all
    }

    /// Its image, and by how much it lies farther up than its file says. `None`: the file is gone, or is another one by
    /// now.
    pub(crate) fn image(&self, pid: Pid) -> Option<(Image, u64)> {
        let place = MappedCode { pid, entries: Vec::new() }.place_of(&self.code)?;
        let image = Image::read(&place).ok()?;
        let bias = self.bias(&image)?;
        Some((image, bias))
    }

    /// Its file's state: as long as that is the same, so is the image. `None`: the file is gone, or is another one by now.
    pub(crate) fn state(&self, pid: Pid) -> Option<Key> {
        Some(MappedCode { pid, entries: Vec::new() }.find_file(&self.code, self.file)?.1)
    }

    /// The same, as code that is moved remembers it.
    pub(crate) fn mapped(&self, bias: u64) -> MappedModule {
        MappedModule { file: self.file, start: self.code.start, bias }
    }

    /// Whether moved code comes from it.
    pub(crate) fn is_home_of(&self, moved: &MovedCode) -> bool {
        moved.from.as_ref().is_some_and(|from| from.file == self.file && from.start == self.code.start)
    }

    /// By how much it lies farther up than its file says.
    pub(crate) fn bias(&self, image: &Image) -> Option<u64> {
        const PAGE: u64 = 4096;
        let offset = self.code.file_offset;
        let segment = image.segments().iter().find(|segment| {
            let first = segment.file_offset / PAGE * PAGE;
            segment.executable && (first..segment.file_offset + segment.file_len).contains(&offset)
        })?;
        let link = segment.vaddr.0.wrapping_sub(segment.file_offset).wrapping_add(offset);
        Some(self.code.start.0.wrapping_sub(link))
    }

    /// Whether it is the loader, whose procedures may be at work whenever the program stands still, or ours.
    pub(crate) fn is_left_alone(&self) -> bool {
        is_left_alone(&self.path)
    }

    /// Whether it is still there in a memory map.
    pub(crate) fn is_in(&self, maps: &Maps) -> bool {
        let is_it = |entry: &MapEntry| entry.start == self.code.start && entry.file == Some(self.file);
        maps.entries.iter().any(is_it)
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_loaded_twice_is_two_modules() {
        let maps = Maps::parse(
            b"7000-8000 r--p 0 fe:0 7 /l\n8000-9000 r-xp 1000 fe:0 7 /l\n9000-a000 r--p 2000 fe:0 7 /l\na000-b000 rw-p 2000 fe:0 7 /l\n\
              b000-c000 r--p 0 fe:0 7 /l\nc000-d000 r-xp 1000 fe:0 7 /l\nd000-e000 rw-p 2000 fe:0 7 /l\ne000-f000 r-xp 0 fe:0 8 /m\n",
        );
        let all: Vec<(u64, u64)> = Loaded::all(&maps).iter().map(|loaded| (loaded.start, loaded.end)).collect();
        assert_eq!(all, [(0x7000, 0xb000), (0xb000, 0xe000), (0xe000, 0xf000)]);
    }

    #[test]
    fn a_part_of_its_code_that_is_mapped_once_more_is_no_module() {
        let maps = Maps::parse(
            b"400000-500000 r--p 0 fe:0 7 /node\n500000-600000 r-xp 100000 fe:0 7 /node\n600000-601000 rw-p 200000 fe:0 7 /node\n\
              700000-701000 r--p 0 fe:0 8 /l\n701000-702000 r-xp 1000 fe:0 8 /l\n800000-880000 r-xp 140000 fe:0 7 /node\n\
              900000-901000 r--p 0 fe:0 9 /m\n901000-902000 r-xp 1000 fe:0 9 /m\n",
        );
        let all: Vec<(u64, u64)> = Loaded::all(&maps).iter().map(|loaded| (loaded.start, loaded.end)).collect();
        assert_eq!(all, [(0x40_0000, 0x60_1000), (0x70_0000, 0x70_2000), (0x90_0000, 0x90_2000)]);
    }
}
