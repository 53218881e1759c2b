//! Load modules of the whole measurement: each file is analysed once, whichever processes map it.
//! Knows nothing of a process's addresses.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;

use callpath_analyze::module_memo::{Found, LoadedModule, find};
use callpath_analyze::recipes::RecipeOptions;
use callpath_analyze::table_cache::TableCache;
use callpath_format::address::RunAddr;
use callpath_format::shared::load_map::Mapping;
use callpath_image::elf::{Image, Segment};
use callpath_image::identity::ModuleIdentity;
use callpath_image::return_use::ReturnUse;
use callpath_target::{FileId, MapEntry, Pid, own_vdso};
use rustc_hash::FxHashMap;

use crate::program::Doorbell;
use crate::publish::Publisher;
use crate::workshop::Workshop;

/// So many modules are read one after the other.
const FEW_MODULES: usize = 6;

/// A module's number in the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ModuleId(pub(crate) usize);

/// What is known of a module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) path: PathBuf,
    /// `None`: it could not be read.
    pub(crate) identity: Option<ModuleIdentity>,
    /// Where its recipe table is published; 0: it has none.
    pub(crate) table: u64,
    /// Its table is being made.
    pub(crate) is_awaited: bool,
    /// What its code does with return addresses.
    pub(crate) return_use: ReturnUse,
    segments: Vec<Segment>,
}

impl Module {
    /// What a load map says of it.
    pub(crate) fn flags(&self) -> u16 {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        flag(self.return_use.reads, Mapping::KEPT) | flag(self.return_use.catches, Mapping::CATCHES)
    }

    /// The load bias that puts a mapping where it is.
    pub(crate) fn bias(&self, entry: &MapEntry) -> u64 {
        let page = |n: u64| n & !4095;
        let segment = self.segments.iter().find(|s| {
            let first = page(s.file_offset);
            s.executable && first <= entry.file_offset && entry.file_offset < s.file_offset + s.file_len.max(1)
        });
        let link = match segment {
            Some(s) => s.vaddr.0.wrapping_sub(s.file_offset).wrapping_add(entry.file_offset),
            None => entry.file_offset,
        };
        entry.start.0.wrapping_sub(link)
    }
}

/// A file at one state of its content.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    File { id: FileId, len: u64, changed_ns: i128 },
    Vdso,
    Unreadable(PathBuf, Option<FileId>),
}

/// All modules.
pub(crate) struct Modules {
    workshop: Workshop,
    known: FxHashMap<Key, ModuleId>,
    modules: Vec<Module>,
    tables_received: u64,
}

impl Modules {
    /// `doorbell` is rung for tables that are done.
    pub(crate) fn new(cache: Option<PathBuf>, doorbell: Doorbell) -> Modules {
        let workshop = Workshop::new(TableCache::open(cache), doorbell);
        Modules { workshop, known: FxHashMap::default(), modules: Vec::new(), tables_received: 0 }
    }

    /// Why no table is kept for the next time, if a cache was asked for.
    pub(crate) fn cache_trouble(&self) -> Option<String> {
        self.workshop.cache().trouble().map(ToString::to_string)
    }

    pub(crate) fn get(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// The module that a mapping of `pid` belongs to; `None` for memory that is no module.
    pub(crate) fn of_mapping(&mut self, pid: Pid, entry: &MapEntry, publisher: &mut Publisher) -> Option<ModuleId> {
        if entry.path.as_os_str() == "[vdso]" {
            return Some(self.known.get(&Key::Vdso).copied().unwrap_or_else(|| {
                let image = own_vdso().and_then(|bytes| Image::from_bytes(bytes, &entry.path).ok());
                let loaded = image.map(|image| LoadedModule {
                    identity: image.identity(),
                    segments: image.segments().to_vec(),
                    return_use: ReturnUse::default(),
                    table: self.workshop.cache().table_for(&image, &RecipeOptions::default()).bytes,
                });
                self.enter(Key::Vdso, published(entry.path.clone(), loaded, publisher))
            }));
        }
        let file = entry.file?;
        let Some((place, key)) = find_file(pid, entry, file) else {
            let key = Key::Unreadable(entry.path.clone(), entry.file);
            let known = self.known.get(&key).copied();
            return Some(known.unwrap_or_else(|| self.enter(key, published(entry.path.clone(), None, publisher))));
        };
        Some(self.known.get(&key).copied().unwrap_or_else(|| {
            let found = find(self.workshop.cache(), &place, &RecipeOptions::default()).ok();
            self.enter_found(key, entry.path.clone(), found, publisher)
        }))
    }

    /// Reads the files of many mappings that are not known yet, on all processors, and has their tables made; `beat` counts
    /// them.
    pub(crate) fn read_all(&mut self, pid: Pid, entries: &[&MapEntry], publisher: &mut Publisher, beat: &AtomicU32) {
        let mut wanted: Vec<(Key, PathBuf, PathBuf)> = Vec::new();
        for entry in entries {
            let Some((place, key)) = entry.file.and_then(|file| find_file(pid, entry, file)) else { continue };
            if !self.known.contains_key(&key) && !wanted.iter().any(|(k, ..)| *k == key) {
                wanted.push((key, place, entry.path.clone()));
            }
        }
        if wanted.is_empty() {
            return;
        }
        let (next, cache) = (AtomicUsize::new(0), self.workshop.cache());
        let work = || {
            let mut done = Vec::new();
            while let Some(index) = Some(next.fetch_add(1, Relaxed)).filter(|i| *i < wanted.len()) {
                done.push((index, find(cache, &wanted[index].1, &RecipeOptions::default()).ok()));
                beat.fetch_add(1, Relaxed);
            }
            done
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from).min(wanted.len());
        // A thread costs as much as reading a small module from memory.
        let mut found = if wanted.len() < FEW_MODULES || processors < 2 {
            work()
        } else {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
                workers.into_iter().filter_map(|w| w.join().ok()).flatten().collect()
            })
        };
        found.sort_by_key(|(index, _)| *index);
        for ((_, found), (key, _, path)) in found.into_iter().zip(wanted) {
            self.enter_found(key, path, found, publisher);
        }
        self.receive(publisher);
    }

    /// Publishes the tables that have been made since.
    pub(crate) fn receive(&mut self, publisher: &mut Publisher) {
        while self.receive_next(publisher, Duration::ZERO) {}
    }

    /// Waits for all tables that are being made.
    pub(crate) fn receive_all(&mut self, publisher: &mut Publisher) {
        while self.workshop.under_way() > 0 {
            self.receive_next(publisher, Duration::from_secs(1));
        }
    }

    /// Samples wait for this module's table.
    pub(crate) fn hurry(&self, id: ModuleId) {
        self.workshop.hurry(id);
    }

    /// Waits a moment for the next table that is being made.
    pub(crate) fn receive_one(&mut self, publisher: &mut Publisher) {
        self.receive_next(publisher, Duration::from_millis(100));
    }

    /// How many tables have come after their modules.
    pub(crate) fn tables_received(&self) -> u64 {
        self.tables_received
    }

    fn receive_next(&mut self, publisher: &mut Publisher, patience: Duration) -> bool {
        let Some((ModuleId(at), made)) = self.workshop.next(patience) else { return false };
        self.tables_received += 1;
        let path = std::mem::take(&mut self.modules[at].path);
        let (identity, segments) = (self.modules[at].identity.take(), std::mem::take(&mut self.modules[at].segments));
        self.modules[at] = match made {
            Some(loaded) => published(path, Some(loaded), publisher),
            // A module without a table.
            None => Module { path, identity, table: 0, is_awaited: false, return_use: ReturnUse::default(), segments },
        };
        true
    }

    fn enter(&mut self, key: Key, module: Module) -> ModuleId {
        let id = ModuleId(self.modules.len());
        self.modules.push(module);
        self.known.insert(key, id);
        id
    }

    fn enter_found(&mut self, key: Key, path: PathBuf, found: Option<Found>, publisher: &mut Publisher) -> ModuleId {
        match found {
            None => self.enter(key, published(path, None, publisher)),
            Some(Found::Known(loaded)) => self.enter(key, published(path, Some(loaded), publisher)),
            Some(Found::New(unfinished)) => {
                let LoadedModule { identity, segments, return_use, .. } = unfinished.module().clone();
                let module =
                    Module { path, identity: Some(identity), table: 0, is_awaited: true, return_use, segments };
                let id = self.enter(key, module);
                self.workshop.begin(id, *unfinished);
                id
            }
        }
    }
}

fn published(path: PathBuf, loaded: Option<LoadedModule>, publisher: &mut Publisher) -> Module {
    let Some(loaded) = loaded else {
        let (return_use, segments) = (ReturnUse::default(), Vec::new());
        return Module { path, identity: None, table: 0, is_awaited: false, return_use, segments };
    };
    Module {
        path,
        identity: Some(loaded.identity),
        table: if loaded.table.is_empty() { 0 } else { publisher.append(&loaded.table).unwrap_or(0) },
        is_awaited: false,
        return_use: loaded.return_use,
        segments: loaded.segments,
    }
}

/// Where the file that a process has mapped can be opened, and its state. The path may name another file by now, or
/// none in our own mount name space.
fn find_file(pid: Pid, entry: &MapEntry, file: FileId) -> Option<(PathBuf, Key)> {
    let RunAddr(start) = entry.start;
    let inside = entry.path.strip_prefix("/").unwrap_or(&entry.path);
    let places = [
        (!entry.deleted).then(|| entry.path.clone()),
        (!entry.deleted).then(|| Path::new(&format!("/proc/{pid}/root")).join(inside)),
        Some(PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{:x}", entry.end.0))),
    ];
    places.into_iter().flatten().find_map(|place| {
        let metadata = std::fs::metadata(&place).ok()?;
        // Some file systems tell `stat` another device than they tell the map; none has another inode.
        if metadata.ino() != file.inode || !metadata.is_file() {
            return None;
        }
        let changed_ns = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
        Some((place, Key::File { id: file, len: metadata.len(), changed_ns }))
    })
}
