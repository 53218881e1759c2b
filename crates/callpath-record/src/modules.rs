//! Load modules of the whole measurement: each file is analysed once, whichever processes map it.
//! Knows nothing of a process's addresses.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use callpath_analyze::module_memo::{LoadedModule, load};
use callpath_analyze::recipes::RecipeOptions;
use callpath_analyze::table_cache::TableCache;
use callpath_format::address::RunAddr;
use callpath_image::elf::{Image, Segment};
use callpath_image::identity::ModuleIdentity;
use callpath_image::return_use::ReturnUse;
use callpath_target::{FileId, MapEntry, Pid, own_vdso};
use rustc_hash::FxHashMap;

use crate::publish::Publisher;

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
    /// What its code does with return addresses.
    pub(crate) return_use: ReturnUse,
    segments: Vec<Segment>,
}

impl Module {
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
    cache: TableCache,
    known: FxHashMap<Key, ModuleId>,
    modules: Vec<Module>,
}

impl Modules {
    pub(crate) fn new(cache: Option<PathBuf>) -> Modules {
        Modules { cache: TableCache::open(cache), known: FxHashMap::default(), modules: Vec::new() }
    }

    /// Why no table is kept for the next time, if a cache was asked for.
    pub(crate) fn cache_trouble(&self) -> Option<String> {
        self.cache.trouble().map(ToString::to_string)
    }

    pub(crate) fn get(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// The module that a mapping of `pid` belongs to, its table published; `None` for memory that is no module.
    pub(crate) fn of_mapping(&mut self, pid: Pid, entry: &MapEntry, publisher: &mut Publisher) -> Option<ModuleId> {
        if entry.path.as_os_str() == "[vdso]" {
            return Some(self.known_or(Key::Vdso, |cache| {
                let image = own_vdso().and_then(|bytes| Image::from_bytes(bytes, &entry.path).ok());
                let loaded = image.map(|image| LoadedModule {
                    identity: image.identity(),
                    segments: image.segments().to_vec(),
                    return_use: ReturnUse::default(),
                    table: cache.table_for(&image, &RecipeOptions::default()).bytes,
                });
                published(entry.path.clone(), loaded, publisher)
            }));
        }
        let file = entry.file?;
        let Some((place, key)) = find_file(pid, entry, file) else {
            let key = Key::Unreadable(entry.path.clone(), entry.file);
            return Some(self.known_or(key, |_| published(entry.path.clone(), None, publisher)));
        };
        Some(self.known_or(key, |cache| {
            let loaded = load(cache, &place, &RecipeOptions::default()).ok();
            published(entry.path.clone(), loaded, publisher)
        }))
    }

    /// Reads the files of many mappings that are not known yet, on all processors; `beat` counts them.
    pub(crate) fn read_all(&mut self, pid: Pid, entries: &[&MapEntry], publisher: &mut Publisher, beat: &AtomicU32) {
        let mut wanted: Vec<(Key, PathBuf, PathBuf)> = Vec::new();
        for entry in entries {
            let Some((place, key)) = entry.file.and_then(|file| find_file(pid, entry, file)) else { continue };
            if !self.known.contains_key(&key) && !wanted.iter().any(|(k, ..)| *k == key) {
                wanted.push((key, place, entry.path.clone()));
            }
        }
        let (next, cache) = (AtomicUsize::new(0), &self.cache);
        let work = || {
            let mut done = Vec::new();
            while let Some(index) = Some(next.fetch_add(1, Relaxed)).filter(|i| *i < wanted.len()) {
                done.push((index, load(cache, &wanted[index].1, &RecipeOptions::default()).ok()));
                beat.fetch_add(1, Relaxed);
            }
            done
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from).min(wanted.len());
        // A thread costs as much as reading a small module from memory.
        let mut loaded = if wanted.len() < FEW_MODULES || processors < 2 {
            work()
        } else {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
                workers.into_iter().filter_map(|w| w.join().ok()).flatten().collect()
            })
        };
        loaded.sort_by_key(|(index, _)| *index);
        for ((_, module), (key, _, path)) in loaded.into_iter().zip(wanted) {
            self.known_or(key, |_| published(path, module, publisher));
        }
    }

    fn known_or(&mut self, key: Key, make: impl FnOnce(&TableCache) -> Module) -> ModuleId {
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        let id = ModuleId(self.modules.len());
        self.modules.push(make(&self.cache));
        self.known.insert(key, id);
        id
    }
}

fn published(path: PathBuf, loaded: Option<LoadedModule>, publisher: &mut Publisher) -> Module {
    let Some(loaded) = loaded else {
        return Module { path, identity: None, table: 0, return_use: ReturnUse::default(), segments: Vec::new() };
    };
    Module {
        path,
        identity: Some(loaded.identity),
        table: publisher.append(&loaded.table).unwrap_or(0),
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
