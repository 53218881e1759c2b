//! A process's memory map as the kernel reports it.

use callpath_format::address::RunAddr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::TargetError;
use crate::listed::living_thread;
use crate::pid::Pid;
use crate::proc_file::read_rest;

/// A file as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileId {
    /// Device, major and minor.
    pub device: (u32, u32),
    /// Inode.
    pub inode: u64,
}

/// One line of the map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapEntry {
    /// First address.
    pub start: RunAddr,
    /// One past the last.
    pub end: RunAddr,
    /// May be executed.
    pub executable: bool,
    /// May be read.
    pub readable: bool,
    /// Where in the file it begins, bytes.
    pub file_offset: u64,
    /// The file; `None` for memory without one.
    pub file: Option<FileId>,
    /// The path, or what the kernel says in its place (`[vdso]`); empty if nothing.
    pub path: PathBuf,
    /// The path names another file now, or none.
    pub deleted: bool,
}

/// All lines, in order of address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Maps {
    /// The lines.
    pub entries: Vec<MapEntry>,
}

impl Maps {
    /// Reads a process's map: all of it, or nothing of a process that is ending.
    pub fn read(pid: Pid) -> Result<Maps, TargetError> {
        let path = PathBuf::from(format!("/proc/{pid}/maps"));
        let mut text = read_to_its_end(&path).map_err(|source| TargetError::Read { path, source })?;
        if text.is_empty() {
            // Its first thread may have ended before the others.
            let living = living_thread(pid).filter(|living| *living != pid);
            let of_living = living.and_then(|living| read_to_its_end(Path::new(&format!("/proc/{living}/maps"))).ok());
            text = of_living.unwrap_or_default();
        }
        Ok(Maps::parse(&text))
    }

    /// Free memory of `len` bytes, in whole pages, from which all of `near` is reached by 32 bits: below it as near as
    /// possible, else above it, as far as possible: what is just above a program is its heap's.
    pub fn free_near(&self, near: std::ops::Range<u64>, len: u64) -> Option<u64> {
        /// A signed distance of 32 bits, less what an instruction takes.
        const REACH: u64 = (1 << 31) - 4096;
        /// The kernel gives nothing below, whatever its setting.
        const LOWEST: u64 = 0x11_0000;
        const HIGHEST: u64 = 0x7fff_ffff_f000;
        const PAGE: u64 = 4096;
        let len = len.next_multiple_of(PAGE);
        let lowest = near.end.saturating_sub(REACH).max(LOWEST).next_multiple_of(PAGE);
        let highest = near.start.saturating_add(REACH).min(HIGHEST) / PAGE * PAGE;
        let fits = |gap: &std::ops::Range<u64>| gap.start.saturating_add(len) <= gap.end;
        let clipped = |from: u64, to: u64| from.max(lowest)..to.min(highest);
        let starts = self.entries.iter().map(|entry| entry.start.0).chain([HIGHEST]);
        let ends = [0].into_iter().chain(self.entries.iter().map(|entry| entry.end.0));
        let gaps: Vec<_> = ends.zip(starts).map(|(from, to)| clipped(from, to)).filter(fits).collect();
        let below = gaps.iter().rfind(|gap| gap.end <= near.start).map(|gap| gap.end - len);
        below.or_else(|| gaps.iter().rfind(|gap| gap.start >= near.end).map(|gap| gap.end - len))
    }

    /// Notes that memory is to be used: it is no longer found to be free.
    pub fn take(&mut self, at: u64, len: u64) {
        let taken = MapEntry {
            start: RunAddr(at),
            end: RunAddr(at.saturating_add(len)),
            executable: false,
            readable: false,
            file_offset: 0,
            file: None,
            path: PathBuf::new(),
            deleted: false,
        };
        let behind = self.entries.partition_point(|entry| entry.start.0 <= at);
        self.entries.insert(behind, taken);
    }

    /// Free memory of `len` bytes, in whole pages, far from everything: where nothing grows to, and nothing else is mapped that could be
    /// mapped elsewhere.
    pub fn free_apart(&self, len: u64) -> Option<u64> {
        /// The kernel gives nothing below.
        const LOWEST: u64 = 0x11_0000;
        const HIGHEST: u64 = 0x7fff_ffff_f000;
        const PAGE: u64 = 4096;
        let len = len.next_multiple_of(PAGE);
        let starts = self.entries.iter().map(|entry| entry.start.0.min(HIGHEST)).chain([HIGHEST]);
        let ends = [LOWEST].into_iter().chain(self.entries.iter().map(|entry| entry.end.0));
        let largest = ends.zip(starts).max_by_key(|(from, to)| to.saturating_sub(*from))?;
        let left = largest.1.checked_sub(largest.0)?.checked_sub(len)?;
        Some((largest.0 + left / 2) / PAGE * PAGE)
    }

    /// Enters what the process has mapped, in place of what was there.
    pub fn map(&mut self, entry: MapEntry) {
        if entry.start >= entry.end {
            return;
        }
        let first = self.entries.partition_point(|other| other.end <= entry.start);
        let behind = self.entries.partition_point(|other| other.start < entry.end).max(first);
        let cut: Vec<MapEntry> = self.entries.drain(first..behind).collect();
        let below = cut.first().filter(|other| other.start < entry.start);
        let below = below.map(|other| MapEntry { end: entry.start, ..other.clone() });
        let above = cut.last().filter(|other| other.end > entry.end);
        let above = above.map(|other| {
            let file_offset = other.file_offset.wrapping_add(entry.end.0 - other.start.0);
            MapEntry { start: entry.end, file_offset, ..other.clone() }
        });
        self.entries.splice(first..first, below.into_iter().chain([entry]).chain(above));
    }

    /// Enters what another look has found at addresses where nothing is known. Whether there was anything.
    pub fn add_missing(&mut self, found: Maps) -> bool {
        let mut is_changed = false;
        for entry in found.entries {
            let behind = self.entries.partition_point(|other| other.end <= entry.start);
            if self.entries.get(behind).is_none_or(|next| next.start >= entry.end) {
                self.entries.insert(behind, entry);
                is_changed = true;
            }
        }
        is_changed
    }

    /// From the text of `/proc/PID/maps`. A line that is not of that form is left out.
    pub fn parse(text: &[u8]) -> Maps {
        Maps { entries: text.split(|b| *b == b'\n').filter_map(parse_line).collect() }
    }
}

fn parse_line(line: &[u8]) -> Option<MapEntry> {
    use std::os::unix::ffi::OsStrExt;
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
        let (field, tail) = rest.split_at(end);
        rest = tail.trim_ascii_start();
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?.as_bytes();
    let file_offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    let path = unescape(rest);
    let (path, deleted) = match without_deletion(&path) {
        Some(path) => (path.to_vec(), true),
        None => (path, false),
    };
    Some(MapEntry {
        start: RunAddr(hex(start)?),
        end: RunAddr(hex(end)?),
        readable: permissions.first() == Some(&b'r'),
        executable: permissions.get(2) == Some(&b'x'),
        file_offset: hex(file_offset)?,
        file: (inode != 0).then_some(FileId { device: (hex(major)? as u32, hex(minor)? as u32), inode }),
        path: PathBuf::from(std::ffi::OsStr::from_bytes(&path)),
        deleted,
    })
}

/// The path of a file that is deleted, without what the kernel says of that behind it.
pub(crate) fn without_deletion(path: &[u8]) -> Option<&[u8]> {
    path.strip_suffix(b" (deleted)")
}

/// The kernel writes a line feed in a path as `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

/// The text of a map. The kernel writes a page of it at a time, and nothing more once the process has given up its memory, or
/// has another program's: what was read until then looks like a whole map.
fn read_to_its_end(path: &Path) -> io::Result<Vec<u8>> {
    /// More programs in turn than a process executes while its map is read.
    const ROUNDS: u32 = 10;
    for _ in 0..ROUNDS {
        let mut file = File::open(path)?;
        let text = read_rest(&mut file)?;
        if text.is_empty() || file.read_at(&mut [0], 0)? > 0 {
            return Ok(text);
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use crate::memory::{has_memory, read_memory};

    use super::*;

    #[test]
    fn lines_as_the_kernel_writes_them() {
        let maps = Maps::parse(
            b"55d0c0a00000-55d0c0a02000 r--p 00001000 fe:00 1234                       /usr/bin/my prog (deleted)\n\
              7ffd1c9d2000-7ffd1c9d4000 r-xp 00000000 00:00 0                          [vdso]\n\
              7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
              not a line\n",
        );
        assert_eq!(maps.entries.len(), 3);
        let first = &maps.entries[0];
        assert_eq!(first.path, PathBuf::from("/usr/bin/my prog"));
        assert!(first.deleted && first.readable && !first.executable);
        assert_eq!((first.start, first.file_offset), (RunAddr(0x55d0_c0a0_0000), 0x1000));
        assert_eq!(first.file, Some(FileId { device: (0xfe, 0), inode: 1234 }));
        assert_eq!(maps.entries[1].path, PathBuf::from("[vdso]"));
        assert!(maps.entries[2].executable && maps.entries[2].path.as_os_str().is_empty());
    }

    #[test]
    fn what_is_mapped_later_takes_the_place_of_what_was_there() {
        let entry = |start: u64, end: u64, file_offset| MapEntry {
            start: RunAddr(start),
            end: RunAddr(end),
            executable: true,
            readable: true,
            file_offset,
            file: None,
            path: PathBuf::new(),
            deleted: false,
        };
        let mut maps = Maps::default();
        let ranges = |maps: &Maps| -> Vec<(u64, u64, u64)> {
            maps.entries.iter().map(|entry| (entry.start.0, entry.end.0, entry.file_offset)).collect()
        };
        maps.map(entry(0x1000, 0x9000, 0));
        maps.map(entry(0x3000, 0x5000, 0x100));
        assert_eq!(ranges(&maps), [(0x1000, 0x3000, 0), (0x3000, 0x5000, 0x100), (0x5000, 0x9000, 0x4000)]);
        maps.map(entry(0x4000, 0x6000, 0x200));
        maps.map(entry(0xa000, 0xb000, 0x300));
        maps.map(entry(0xc000, 0xc000, 0));
        let expected = [
            (0x1000, 0x3000, 0),
            (0x3000, 0x4000, 0x100),
            (0x4000, 0x6000, 0x200),
            (0x6000, 0x9000, 0x5000),
            (0xa000, 0xb000, 0x300),
        ];
        assert_eq!(ranges(&maps), expected);
        let mut found =
            Maps { entries: vec![entry(0x500, 0x1800, 7), entry(0x9000, 0xa000, 8), entry(0xf000, 0x10000, 9)] };
        assert!(maps.add_missing(found.clone()));
        assert_eq!(ranges(&maps)[4..], [(0x9000, 0xa000, 8), (0xa000, 0xb000, 0x300), (0xf000, 0x10000, 9)]);
        found.entries.truncate(1);
        assert!(!maps.add_missing(found), "part of it is known");
        maps.map(entry(0, 0x10000, 0));
        assert_eq!(ranges(&maps), [(0, 0x10000, 0)]);
    }

    #[test]
    fn own_map_names_the_test() {
        let maps = Maps::read(Pid(std::process::id())).unwrap();
        let here = RunAddr(own_map_names_the_test as *const () as u64);
        let entry = maps.entries.iter().find(|e| e.start <= here && here < e.end).unwrap();
        assert_eq!(entry.path, std::env::current_exe().unwrap());
    }

    #[test]
    fn the_map_of_a_process_that_ends_is_whole_or_empty() {
        // No two pages can become one line: the map is longer than what the kernel writes at a time.
        const PAGES: usize = 400;
        let len_bytes = PAGES * 4096;
        // SAFETY: new memory.
        let pages = unsafe {
            libc::mmap(std::ptr::null_mut(), len_bytes, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(pages, libc::MAP_FAILED);
        for page in (0..PAGES).step_by(2) {
            // SAFETY: a page of what was mapped above.
            assert_eq!(unsafe { libc::mprotect(pages.byte_add(page * 4096), 4096, libc::PROT_NONE) }, 0);
        }
        let of_pages = |maps: &Maps| {
            let range = pages as u64..(pages as u64) + len_bytes as u64;
            maps.entries.iter().filter(|entry| range.contains(&entry.start.0)).count()
        };
        let (mut whole, mut empty) = (0, 0);
        for _ in 0..500 {
            // SAFETY: the child does nothing but end.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            assert!(child > 0);
            let mut is_there = true;
            while is_there {
                let maps = Maps::read(Pid(child as u32)).unwrap();
                is_there = !maps.entries.is_empty();
                assert!(!is_there || of_pages(&maps) == PAGES, "{} of {PAGES}", of_pages(&maps));
                *(if is_there { &mut whole } else { &mut empty }) += 1;
            }
            // SAFETY: a child of this process.
            assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        }
        assert!(whole > 0 && empty == 500, "{whole} whole, {empty} empty");
        // SAFETY: what was mapped above, which nothing refers to.
        unsafe { libc::munmap(pages, len_bytes) };
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_has_its_memory() {
        static WORD: u64 = 0x5eed;
        // SAFETY: the child's two threads make system calls only, and end with the child.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above. The first thread alone ends; a thread of the raw kind needs nothing of the C library's.
            unsafe {
                let flags =
                    libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_FS | libc::CLONE_FILES;
                let mut stack = vec![0_u64; 8192];
                libc::clone(wait_for_ever, stack.as_mut_ptr().add(8192).cast(), flags, std::ptr::null_mut());
                std::mem::forget(stack);
                libc::syscall(libc::SYS_exit, 0);
            }
        }
        assert!(child > 0);
        let pid = Pid(child as u32);
        while living_thread(pid).is_none_or(|living| living == pid) {
            std::thread::yield_now();
        }
        let maps = Maps::read(pid);
        let mut word = [0; 8];
        let (got, has_memory) = (read_memory(pid, (&raw const WORD) as u64, &mut word), has_memory(pid));
        // SAFETY: a child of this process.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let here = RunAddr((&raw const WORD) as u64);
        assert!(maps.unwrap().entries.iter().any(|entry| entry.start <= here && here < entry.end));
        assert_eq!((got, u64::from_ne_bytes(word), has_memory), (8, WORD, true));
        assert!(!crate::memory::has_memory(pid));
    }

    extern "C" fn wait_for_ever(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: touches nothing.
            unsafe { libc::pause() };
        }
    }
}
