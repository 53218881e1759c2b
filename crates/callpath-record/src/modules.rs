//! Load modules of the whole measurement: each file is analysed once, however many processes map it. A process's
//! addresses do not belong here: each process maps a module elsewhere.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;

use callpath_format::address::RunAddr;
use callpath_image::elf::Image;
use callpath_image::go::Go;
use callpath_image::identity::ModuleIdentity;
use callpath_image::return_use::ReturnUse;
use callpath_tables::module_memo::{FirstLook, LoadedModule, find};
use callpath_tables::recipes::RecipeOptions;
use callpath_tables::table_cache::TableCache;
use callpath_target::{FileId, MapEntry, Pid, own_vdso};
use rustc_hash::FxHashMap;

use crate::files_apart::FilesApart;
use crate::module::{Awaited, Module, ModuleId, SliceTable, Slicing};
use crate::program::Doorbell;
use crate::publish::Publisher;
use crate::threads;
use crate::worker_pool::{Built, Job, Pace, WorkerPool};

/// Up to this many modules are read one after the other.
const FEW_MODULES: usize = 6;

/// How many samples must want the whole table of a large module, which takes seconds, while the program runs. At its end
/// a share of the samples is enough (`serve/ending.rs`). Fewer samples end where the slices end: most such modules have
/// a few bytes of start-up code without description.
const WORTH_THE_WHOLE: u32 = 50;

/// A file at one state of its content.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    File { id: FileId, len: u64, changed_ns: i128 },
    Vdso,
    Unreadable(PathBuf, Option<FileId>),
}

impl Key {
    fn of(id: FileId, metadata: &Metadata) -> Key {
        let changed_ns = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
        Key::File { id, len: metadata.len(), changed_ns }
    }
}

/// A file that is mapped and not known yet.
#[derive(Clone)]
struct Unread {
    key: Key,
    /// Where it can be opened.
    place: PathBuf,
    /// Where the process has it from.
    path: PathBuf,
}

impl Unread {
    /// Opens the file that was found there. Whoever put it there may have put something else there since.
    fn open(&self) -> Option<File> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&self.place).ok()?;
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        let Key::File { id, .. } = self.key else { return None };
        (Key::of(id, &metadata) == self.key && metadata.ino() == id.inode).then_some(file)
    }
}

/// The executable mappings of a process.
pub(crate) struct MappedCode<'m> {
    pub(crate) pid: Pid,
    pub(crate) entries: Vec<&'m MapEntry>,
}

impl MappedCode<'_> {
    /// Where a mapped file can be opened.
    pub(crate) fn place_of(&self, entry: &MapEntry) -> Option<PathBuf> {
        Some(self.find_file(entry, entry.file?)?.0)
    }

    /// Where a mapped file can be opened, and its state. The path may name another file by now, or
    /// none in our own mount name space.
    pub(crate) fn find_file(&self, entry: &MapEntry, file: FileId) -> Option<(PathBuf, Key)> {
        let pid = self.pid;
        let RunAddr(start) = entry.start;
        let inside = entry.path.strip_prefix("/").unwrap_or(&entry.path);
        let places = [
            (!entry.deleted).then(|| entry.path.clone()),
            (!entry.deleted).then(|| Path::new(&format!("/proc/{pid}/root")).join(inside)),
            Some(PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{:x}", entry.end.0))),
        ];
        places.into_iter().flatten().find_map(|place| {
            let metadata = std::fs::metadata(&place).ok()?;
            // Some file systems give `stat` another device number than the memory map; none gives another inode.
            if metadata.ino() != file.inode || !metadata.is_file() {
                return None;
            }
            Some((place, Key::of(file, &metadata)))
        })
    }
}

/// All modules.
pub(crate) struct Modules {
    worker_pool: WorkerPool,
    known: FxHashMap<Key, ModuleId>,
    modules: Vec<Module>,
    tables_received: u64,
    /// Where it is published what a map tells of call paths, by the module that they lead to.
    told: FxHashMap<ModuleIdentity, u64>,
    apart: FilesApart,
}

impl Modules {
    /// `doorbell` is rung for tables that are done.
    pub(crate) fn new(cache: Option<PathBuf>, doorbell: Doorbell) -> Modules {
        let worker_pool = WorkerPool::new(TableCache::open(cache), doorbell);
        Modules {
            worker_pool,
            known: FxHashMap::default(),
            modules: Vec::new(),
            tables_received: 0,
            told: FxHashMap::default(),
            apart: FilesApart::default(),
        }
    }

    /// Publishes what a map tells of call paths, a block for each module. `false`: there is no room.
    pub(crate) fn publish_told(&mut self, told: &[(ModuleIdentity, Vec<u8>)], publisher: &mut Publisher) -> bool {
        let published = told.iter().map(|(module, block)| Some((module.clone(), publisher.append(block)?)));
        published.collect::<Option<_>>().map(|published| self.told = published).is_some()
    }

    /// Where it is published what a map tells of paths to a module, bytes; 0: it tells nothing.
    pub(crate) fn told(&self, id: ModuleId) -> u64 {
        let identity = self.get(id).identity.as_ref();
        identity.and_then(|identity| self.told.get(identity)).copied().unwrap_or(0)
    }

    /// Why no table is cached for the next time, if a cache was asked for.
    pub(crate) fn cache_trouble(&self) -> Option<String> {
        self.worker_pool.cache().trouble().map(ToString::to_string)
    }

    pub(crate) fn get(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// The modules that a process's mappings belong to, in their order; `None` for memory that is no module. Those that
    /// are not known yet are read on all processors, and their tables built; `beat` counts them.
    pub(crate) fn of_mappings(
        &mut self,
        mapped: &MappedCode<'_>,
        publisher: &mut Publisher,
        beat: &AtomicU32,
    ) -> Vec<Option<ModuleId>> {
        let entries = &mapped.entries;
        let places: Vec<_> =
            entries.iter().map(|entry| entry.file.and_then(|file| mapped.find_file(entry, file))).collect();
        let mut wanted: Vec<Unread> = Vec::new();
        for (entry, found) in entries.iter().zip(&places) {
            let Some((place, key)) = found else { continue };
            if !self.known.contains_key(key) && !wanted.iter().any(|unread| unread.key == *key) {
                wanted.push(Unread { key: key.clone(), place: place.clone(), path: entry.path.clone() });
            }
        }
        if !wanted.is_empty() {
            self.read_all(wanted, publisher, beat);
        }
        let modules = entries.iter().zip(places);
        modules.map(|(entry, found)| self.of_mapping(entry, found.map(|(_, key)| key), publisher)).collect()
    }

    /// The recipe table of an object that no process has as a file. Empty: it cannot be read.
    pub(crate) fn table_of_object(&self, object: &[u8], name: &str) -> Vec<u8> {
        let image = Image::from_bytes(object.to_vec(), Path::new(name));
        let table = |image: Image| self.worker_pool.cache().table_for(&image.into(), &RecipeOptions::default()).bytes;
        image.map(table).unwrap_or_default()
    }

    fn of_mapping(&mut self, entry: &MapEntry, key: Option<Key>, publisher: &mut Publisher) -> Option<ModuleId> {
        if entry.path.as_os_str() == "[vdso]" {
            return Some(self.known.get(&Key::Vdso).copied().unwrap_or_else(|| {
                let image = own_vdso().and_then(|bytes| Image::from_bytes(bytes, &entry.path).ok());
                let loaded = image.map(|image| LoadedModule {
                    identity: image.identity(),
                    segments: image.segments().to_vec(),
                    return_use: ReturnUse::default(),
                    table: self.worker_pool.cache().table_for(&image.into(), &RecipeOptions::default()).bytes,
                });
                let path = entry.path.clone();
                let module = match loaded {
                    Some(loaded) => Module::published(path, loaded, publisher),
                    None => Module::unreadable(path),
                };
                self.enter(Key::Vdso, module)
            }));
        }
        entry.file?;
        let key = key.unwrap_or_else(|| Key::Unreadable(entry.path.clone(), entry.file));
        let known = self.known.get(&key).copied();
        Some(known.unwrap_or_else(|| self.enter(key, Module::unreadable(entry.path.clone()))))
    }

    fn read_all(&mut self, wanted: Vec<Unread>, publisher: &mut Publisher, beat: &AtomicU32) {
        let (next, cache) = (AtomicUsize::new(0), self.worker_pool.cache());
        let work = || {
            let mut done = Vec::new();
            while let Some(index) = Some(next.fetch_add(1, Relaxed)).filter(|i| *i < wanted.len()) {
                let place = &wanted[index].place;
                done.push((index, find(cache, place, &RecipeOptions::default()).ok(), Go::of(place)));
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
                let workers: Vec<_> = (1..processors).filter_map(|_| threads::start_in(scope, work)).collect();
                let own = work();
                workers.into_iter().filter_map(|w| w.join().ok()).chain([own]).flatten().collect()
            })
        };
        found.sort_by_key(|(index, ..)| *index);
        for ((_, found, go), unread) in found.into_iter().zip(wanted) {
            let apart = (unread.place != unread.path).then(|| unread.clone());
            let id = self.enter_first_look(unread, found, publisher);
            self.modules[id.0].go = go;
            if let (Some(unread), Some(identity)) = (apart, &self.modules[id.0].identity) {
                self.apart.hold(identity, &unread.path, || unread.open());
            }
        }
        self.receive(publisher);
    }

    /// Keeps files with the measurement that a report would not find under their paths. Gives notes on what is missing.
    pub(crate) fn keep_files(&mut self, directory: &Path) -> Vec<String> {
        self.apart.keep(directory)
    }

    /// Publishes the tables that have been built since.
    pub(crate) fn receive(&mut self, publisher: &mut Publisher) {
        while self.receive_next(publisher, Duration::ZERO) {}
    }

    /// Samples wait for this table.
    pub(crate) fn hurry(&mut self, awaited: Awaited) {
        let Awaited { module: id, slice } = awaited;
        let Some(slicing) = self.modules.get_mut(id.0).and_then(|module| module.slicing.as_mut()) else {
            return self.worker_pool.hurry(id);
        };
        match slice.map(|index| (index, slicing.tables.get_mut(index as usize))) {
            Some((index, Some(table))) if *table == SliceTable::Absent => {
                *table = SliceTable::Asked;
                let slices = Arc::clone(&slicing.slices);
                self.worker_pool.begin(id, Job::Slice(slices, index), Pace::Now);
            }
            Some(_) => {}
            None => {
                slicing.whole_wanted = slicing.whole_wanted.saturating_add(1);
                if slicing.whole_wanted == WORTH_THE_WHOLE {
                    let whole = slicing.slices.whole();
                    self.worker_pool.begin(id, Job::Table(Box::new(whole)), Pace::Slow);
                }
            }
        }
    }

    /// Nothing is measured any more: what is built at a low priority is built at the usual one.
    pub(crate) fn hasten(&mut self) {
        self.worker_pool.hasten();
    }

    /// Begins to build all of the table of a module, as large as it may be, unless that has begun.
    pub(crate) fn want_whole(&mut self, id: ModuleId, pace: Pace) {
        let Some(slicing) = self.modules.get_mut(id.0).and_then(|module| module.slicing.as_mut()) else { return };
        if slicing.whole_wanted < WORTH_THE_WHOLE {
            slicing.whole_wanted = WORTH_THE_WHOLE;
            let whole = slicing.slices.whole();
            self.worker_pool.begin(id, Job::Table(Box::new(whole)), pace);
        }
    }

    /// Whether all of its table is being built.
    pub(crate) fn is_whole_being_built(&self, id: ModuleId) -> bool {
        let module = self.get(id);
        let is_begun = |slicing: &Slicing| slicing.whole_wanted >= WORTH_THE_WHOLE && !slicing.has_no_whole;
        module.is_awaited && module.slicing.as_ref().is_none_or(is_begun)
    }

    /// Whether all of its table could be built, as far as is known.
    pub(crate) fn may_have_whole(&self, id: ModuleId) -> bool {
        let module = self.get(id);
        module.is_awaited && module.slicing.as_ref().is_none_or(|slicing| !slicing.has_no_whole)
    }

    /// Whether there is nothing more to wait for.
    pub(crate) fn is_there(&self, awaited: Awaited) -> bool {
        let module = self.get(awaited.module);
        let table = |slicing: &Slicing| slicing.tables.get(awaited.slice? as usize).copied();
        let is_slice_there = module.slicing.as_ref().and_then(table).is_some_and(|t| matches!(t, SliceTable::There(_)));
        !module.is_awaited || is_slice_there
    }

    /// Whether a table that is waited for is being built at all.
    pub(crate) fn is_being_built(&self, awaited: Awaited) -> bool {
        self.is_soon(awaited) || self.is_whole_being_built(awaited.module)
    }

    /// Whether the table of code that a load map lacks is being built: that of a slice only once somebody asked.
    pub(crate) fn is_begun(&self, awaited: Awaited) -> bool {
        let slicing = self.get(awaited.module).slicing.as_ref();
        let is_asked = |index: u32| {
            let table = slicing.and_then(|slicing| slicing.tables.get(index as usize));
            table.is_some_and(|table| *table == SliceTable::Asked)
        };
        awaited.slice.is_none_or(is_asked) || self.is_whole_being_built(awaited.module)
    }

    /// Whether a table that is waited for is soon there: all but the whole ones of large modules.
    pub(crate) fn is_soon(&self, awaited: Awaited) -> bool {
        awaited.slice.is_some() || self.get(awaited.module).slicing.is_none()
    }

    /// Waits a moment for the next table that is being built.
    pub(crate) fn receive_one(&mut self, publisher: &mut Publisher) {
        self.receive_next(publisher, Duration::from_millis(100));
    }

    /// How many tables have come after their modules.
    pub(crate) fn tables_received(&self) -> u64 {
        self.tables_received
    }

    fn receive_next(&mut self, publisher: &mut Publisher, patience: Duration) -> bool {
        let Some((ModuleId(at), built)) = self.worker_pool.next(patience) else { return false };
        self.tables_received += 1;
        let Some(module) = self.modules.get_mut(at) else { return true };
        match built {
            Built::Table(Some(loaded)) => module.take_table(loaded, publisher),
            Built::Table(None) => module.go_without_table(),
            Built::Slice(index, table) => module.take_slice(index, table, publisher),
        }
        true
    }

    fn enter(&mut self, key: Key, module: Module) -> ModuleId {
        let id = ModuleId(self.modules.len());
        self.modules.push(module);
        self.known.insert(key, id);
        id
    }

    fn enter_first_look(&mut self, unread: Unread, found: Option<FirstLook>, publisher: &mut Publisher) -> ModuleId {
        let Unread { key, path, .. } = unread;
        match found {
            None => self.enter(key, Module::unreadable(path)),
            Some(FirstLook::Known(loaded)) => self.enter(key, Module::published(path, loaded, publisher)),
            Some(FirstLook::New(unfinished)) => {
                let id = self.enter(key, Module::awaited(path, unfinished.module().clone(), None));
                self.worker_pool.begin(id, Job::Table(unfinished), Pace::Now);
                id
            }
            Some(FirstLook::Sliced(slices, known)) => {
                let loaded = slices.module().clone();
                let mut tables = vec![SliceTable::Absent; slices.ranges().len()];
                for (index, table) in known {
                    if let Some(place) = tables.get_mut(index as usize) {
                        *place = SliceTable::There(publisher.append(&table).unwrap_or(0));
                    }
                }
                let slicing = Slicing { slices, tables, whole_wanted: 0, has_no_whole: false };
                self.enter(key, Module::awaited(path, loaded, Some(slicing)))
            }
        }
    }
}
