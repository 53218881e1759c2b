//! Names of a process's generated code, from its perf map or its jitdump, read while it
//! runs and after its end. `perf_map` reads the lines, `jit_dump` the records.
//!
//! Programs write the same addresses again with other code, and some write their map once, when they
//! end. So a line names a frame only if the code around the frame is still what it was when samples met
//! it. The code is compared whenever the trees are copied out, the last time at most a second before
//! the end. Code that cannot be compared has no name.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::jit_dump::JitDump;
use crate::perf_map::PerfMap;
use callpath_format::address::RunAddr;
use callpath_format::frame::FrameKey;
use callpath_measurement::{
    MeasurementError, NamedCode, NamesFile, encode_names, nameless, nameless_mapping, names_file_name, write_file,
};
use callpath_target::{PerfMapFile, Pid};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::generated::{Bounds, CodeState, GeneratedCode};
use crate::kernel::Kernel;

/// How much of a map is read, bytes.
const MOST_BYTES: u64 = 64 << 20;
/// How many frames are watched until they have names.
const MOST_WATCHED: usize = 1 << 15;
/// How much of the end of the part that was read is compared again, bytes.
const TAIL_BYTES: u64 = 256;

/// Walks need what it says of code that was written since.
const DUMP_IS_OLD: Duration = Duration::from_millis(100);
/// So long is read at a time: samples wait meanwhile. A process that is attached to late may have written gigabytes.
const READ_DUMP_AT_MOST: Duration = Duration::from_millis(20);
/// The same once its process has ended.
const READ_DUMP_AT_END: Duration = Duration::from_secs(10);

/// A process's names.
pub(crate) struct GeneratedNames {
    pid: Pid,
    since: SystemTime,
    file: Option<PerfMapFile>,
    map: PerfMap,
    reading: Reading,
    /// Its jitdump, if it has mapped one, and how far that has been read.
    dump: Option<(File, JitDump)>,
    dump_read: Option<Instant>,
    /// It has more than has been read.
    dump_has_more: bool,
    /// Frames whose code can be compared.
    watched: FxHashMap<FrameKey, Watched>,
    /// Frames whose code could not: they keep their name as long as no other code has been there.
    trusted: FxHashMap<FrameKey, NamedCode>,
    /// Names of frames without one, by where their procedure begins.
    bounds: FxHashMap<FrameKey, NamedCode>,
    /// Names of the kernel's procedures, by frames in them.
    kernel: FxHashMap<FrameKey, NamedCode>,
    written: Vec<u8>,
}

/// A frame in generated code.
struct Watched {
    /// What the code around it was when it was first looked at; nothing once it has been something
    /// else, for good: samples of both are one frame's.
    hash: Option<u64>,
    procedure: Option<NamedCode>,
}

/// How far a map has been read.
#[derive(Default)]
struct Reading {
    inode: u64,
    len_bytes: u64,
    tail: Vec<u8>,
    /// The map grows while the program runs: its lines come with the code.
    is_live: bool,
}

impl GeneratedNames {
    /// For a process that came at `since`.
    pub(crate) fn new(pid: Pid, since: SystemTime) -> GeneratedNames {
        GeneratedNames {
            pid,
            since,
            file: None,
            map: PerfMap::default(),
            reading: Reading::default(),
            dump: None,
            dump_read: None,
            dump_has_more: false,
            watched: FxHashMap::default(),
            trusted: FxHashMap::default(),
            bounds: FxHashMap::default(),
            kernel: FxHashMap::default(),
            written: Vec::new(),
        }
    }

    /// The process generates code: remembers where its map would be, for the time after its end.
    pub(crate) fn expect_map(&mut self) {
        if self.file.is_none() {
            self.file = PerfMapFile::of(self.pid, self.since);
        }
    }

    /// The process has mapped a jitdump, which can be opened there.
    pub(crate) fn expect_dump(&mut self, place: &Path) {
        if self.dump.is_none() {
            self.dump = File::open(place).ok().map(|file| (file, JitDump::default()));
        }
    }

    /// Reads on in the jitdump, unless that was done just before.
    pub(crate) fn follow_dump(&mut self, code: &mut GeneratedCode) {
        let is_old = self.dump_has_more || self.dump_read.is_none_or(|then| then.elapsed() > DUMP_IS_OLD);
        if self.dump.is_some() && is_old {
            self.read_dump(code, READ_DUMP_AT_MOST);
        }
    }

    /// Reads on in the jitdump for about so long. What cannot be read now is read another time.
    fn read_dump(&mut self, code: &mut GeneratedCode, at_most: Duration) {
        let Some((file, dump)) = &mut self.dump else { return };
        self.dump_has_more = dump.read(&*file, (&mut self.map, &mut code.described), at_most).unwrap_or(false);
        self.dump_read = Some(Instant::now());
        // Its records come with the code.
        self.reading.is_live = true;
    }

    /// Names what can be named of some frames in generated code, and learns how its program describes it. `ended`: the process is gone,
    /// and its memory too.
    pub(crate) fn name(&mut self, keys: &FxHashSet<FrameKey>, code: &mut GeneratedCode, ended: bool) {
        self.bound(keys, code);
        // What cannot be read now is read another time.
        if let Some(file) = self.file.as_ref().and_then(PerfMapFile::open) {
            drop(self.reading.read(&file, &mut self.map));
        }
        self.read_dump(code, if ended { READ_DUMP_AT_END } else { READ_DUMP_AT_MOST });
        if self.file.is_none() && self.dump.is_none() {
            return;
        }
        let mut look = code.look();
        for key in keys {
            let addr = RunAddr(key.address());
            let state = if ended { look.after_end(key.module(), addr) } else { look.state(key.module(), addr) };
            if state == CodeState::NotAnalysed {
                self.trust(*key);
                continue;
            }
            let procedure = self.at(*key);
            let is_full = self.watched.len() >= MOST_WATCHED;
            let watched = match self.watched.entry(*key) {
                Entry::Occupied(watched) => watched.into_mut(),
                Entry::Vacant(_) if is_full => continue,
                Entry::Vacant(place) => place.insert(Watched {
                    hash: match state {
                        CodeState::Holds(now) => Some(now),
                        // It has come since the last look, and no other code was seen there later.
                        CodeState::Gone { latest: true } => Some(0),
                        _ => None,
                    },
                    procedure: None,
                }),
            };
            let holds = match state {
                CodeState::Holds(now) => watched.hash == Some(now),
                CodeState::Gone { .. } => watched.hash.is_some(),
                _ => false,
            };
            if !holds {
                *watched = Watched { hash: None, procedure: None };
            } else if procedure.is_some() {
                watched.procedure = procedure;
            }
        }
    }

    /// Names frames of the kernel.
    pub(crate) fn name_kernel(&mut self, keys: impl Iterator<Item = FrameKey>, kernel: &Kernel) {
        for key in keys {
            if !self.kernel.contains_key(&key)
                && let Some(named) = kernel.procedure(key)
            {
                self.kernel.insert(key, named);
            }
        }
    }

    /// Finds out which procedures frames lie in: those of one have one name, if the process gave it none.
    fn bound(&mut self, keys: &FxHashSet<FrameKey>, code: &GeneratedCode) {
        for key in keys {
            if self.bounds.len() >= MOST_WATCHED || self.bounds.contains_key(key) {
                continue;
            }
            let addr = RunAddr(key.address());
            let Some((bounds, module)) = code.bounds(key.module(), addr).zip(code.name_of(addr)) else { continue };
            let (bounds, name) = match bounds {
                Bounds::Procedure(range) => (range.clone(), nameless(module, range.start.0)),
                Bounds::Mapping(range) => (range.clone(), nameless_mapping(module, range.start.0..range.end.0)),
            };
            let len_bytes = bounds.end.0 - bounds.start.0;
            self.bounds.insert(*key, NamedCode { module: key.module().0, start: bounds.start.0, len_bytes, name });
        }
    }

    /// A frame in code that there was no time to look at: a line that came with the
    /// code is believed as long as it is the only one.
    fn trust(&mut self, key: FrameKey) {
        if self.reading.is_live
            && let Some(procedure) = self.at(key)
        {
            self.trusted.insert(key, procedure);
        }
    }

    fn at(&self, key: FrameKey) -> Option<NamedCode> {
        let found = self.map.procedure(key.address())?;
        let len_bytes = found.end - found.start;
        Some(NamedCode { module: key.module().0, start: found.start, len_bytes, name: found.name })
    }

    /// Writes the names beside the process's file, if there are any and they have changed.
    pub(crate) fn write(&mut self, directory: &Path, sequence: u32) -> Result<(), MeasurementError> {
        let trusted = self.trusted.iter().filter(|(key, _)| !self.map.is_contested(key.address()));
        let mut procedures: Vec<NamedCode> = trusted.map(|(_, procedure)| procedure.clone()).collect();
        procedures.extend(self.watched.values().filter_map(|watched| watched.procedure.clone()));
        procedures.extend(self.bounds.values().cloned());
        procedures.extend(self.kernel.values().cloned());
        if procedures.is_empty() && self.map.bad_lines() == 0 {
            return Ok(());
        }
        procedures.sort();
        procedures.dedup();
        let bytes = encode_names(&NamesFile { sequence, bad_lines: self.map.bad_lines(), procedures });
        if bytes != self.written {
            write_file(directory, &names_file_name(sequence, self.pid.0), &bytes)?;
            self.written = bytes;
        }
        Ok(())
    }
}

impl Reading {
    /// Reads what has been added, or all of it if it is another file or has been written anew.
    fn read(&mut self, file: &File, map: &mut PerfMap) -> std::io::Result<()> {
        let metadata = file.metadata()?;
        let len_bytes = metadata.len().min(MOST_BYTES);
        let tail = read_at(file, self.len_bytes - self.tail.len() as u64, self.tail.len() as u64)?;
        let is_longer = metadata.ino() == self.inode && len_bytes >= self.len_bytes && tail == self.tail;
        if !is_longer {
            *self = Reading { inode: metadata.ino(), ..Reading::default() };
        }
        let mut bytes = read_at(file, self.len_bytes, len_bytes - self.len_bytes)?;
        // A line that is being written is read when it is whole.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        self.is_live |= self.len_bytes > 0 && !bytes.is_empty();
        map.add(&bytes);
        self.len_bytes += bytes.len() as u64;
        self.tail.extend(bytes);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES as usize));
        Ok(())
    }
}

fn read_at(file: &File, offset: u64, len_bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len_bytes as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(reading: &mut Reading, map: &mut PerfMap, path: &Path) {
        reading.read(&File::open(path).unwrap(), map).unwrap();
    }

    fn name(map: &PerfMap, addr: u64) -> Option<String> {
        map.procedure(addr).map(|procedure| procedure.name)
    }

    #[test]
    fn a_map_that_grows_is_read_on_and_one_that_is_written_anew_is_read_anew() {
        let path = std::env::temp_dir().join(format!("callpath-test-map-{}", std::process::id()));
        let (mut reading, mut map) = (Reading::default(), PerfMap::default());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"1000 100 a\n2000 100 b\n3000 1").unwrap();
        read(&mut reading, &mut map, &path);
        assert_eq!((name(&map, 0x1000).as_deref(), name(&map, 0x3000)), (Some("a"), None));
        assert!(!reading.is_live);
        file.write_all(b"00 c\n").unwrap();
        read(&mut reading, &mut map, &path);
        assert_eq!((name(&map, 0x3000).as_deref(), map.bad_lines()), (Some("c"), 0));
        assert!(reading.is_live);
        // As jcmd does it: the same file, longer than before, from its beginning.
        std::fs::write(&path, "1000 100 another a, longer than all before\n2000 100 b\n3000 100 c\n").unwrap();
        read(&mut reading, &mut map, &path);
        assert_eq!(name(&map, 0x1000).as_deref(), Some("another a, longer than all before"));
        assert_eq!((map.bad_lines(), reading.is_live), (0, false));
        std::fs::write(&path, "").unwrap();
        read(&mut reading, &mut map, &path);
        assert_eq!(name(&map, 0x2000).as_deref(), Some("b"), "a name that was read stays");
        std::fs::remove_file(&path).unwrap();
    }
}
