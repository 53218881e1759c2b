//! What code a process has, as the recorder knows it: modules, what it has written itself, the load map that is published.
//! Knows nothing of threads and of what they have measured.

use std::time::Instant;

use callpath_analyze::measurement::ModuleRecord;
use callpath_format::address::RunAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_format::shared::load_map::{Mapping, Published};
use callpath_target::{MapEntry, Maps, Pid};
use rustc_hash::FxHashMap;

use crate::modules::{ModuleId, Modules};
use crate::process::Shared;
use crate::publish::{MapPlaces, Publisher};
use crate::raw::{Code, Raw, Walked};
use crate::written::{Witness, WrittenCode};

/// The code of a process.
pub(crate) struct ProcessCode {
    pid: Pid,
    /// What is published, by address.
    pub(crate) mappings: Vec<Mapping>,
    /// Those among them that lie in modules.
    module_mappings: Vec<Mapping>,
    /// Those of modules whose tables are being made, by address. They are not published: samples there are kept raw.
    awaited: Vec<(ModuleId, Mapping)>,
    /// How many tables had come when that was looked at.
    tables_seen: u64,
    pub(crate) written: WrittenCode,
    pub(crate) map_read: Instant,
    places: MapPlaces,
    module_indices: FxHashMap<(ModuleId, u64), ModuleIndex>,
    pub(crate) modules: Vec<ModuleRecord>,
}

impl ProcessCode {
    pub(crate) fn new(pid: Pid) -> ProcessCode {
        ProcessCode {
            pid,
            mappings: Vec::new(),
            module_mappings: Vec::new(),
            awaited: Vec::new(),
            tables_seen: 0,
            written: WrittenCode::new(pid),
            map_read: Instant::now(),
            places: MapPlaces::default(),
            module_indices: FxHashMap::default(),
            modules: Vec::new(),
        }
    }

    /// Publishes the load map of a memory map as it was read just now, with the tables of all its modules that are there.
    pub(crate) fn publish(&mut self, shared: &mut Shared, slot: usize, maps: &Maps) {
        self.map_read = Instant::now();
        let executable: Vec<&MapEntry> = maps.entries.iter().filter(|e| e.executable).collect();
        if executable.is_empty() {
            return;
        }
        let beat = &shared.keeper.session().beat;
        shared.modules.read_all(self.pid, &executable, &mut shared.publisher, beat);
        self.module_mappings.clear();
        self.awaited.clear();
        self.tables_seen = shared.modules.tables_received();
        let mut others = Vec::new();
        let mut walks_itself = false;
        for entry in executable {
            let id = shared.modules.of_mapping(self.pid, entry, &mut shared.publisher);
            match id.filter(|id| shared.modules.get(*id).identity.is_some()) {
                Some(id) => {
                    let mapping = self.mapping_of(&shared.modules, id, entry);
                    let module = shared.modules.get(id);
                    walks_itself |= module.return_use.walks;
                    if module.is_awaited {
                        self.awaited.push((id, mapping));
                    } else {
                        self.module_mappings.push(mapping);
                    }
                }
                // No file, or one that is no ELF file or cannot be read: what counts is what is in memory.
                None if entry.readable => others.push(entry),
                // The kernel's own page; nothing is known of it.
                None => {
                    let (start, end) = (entry.start, entry.end);
                    let module = ModuleIndex::NONE;
                    self.module_mappings.push(Mapping { start, end, bias: 0, table: 0, module, flags: 0 });
                }
            }
        }
        shared.keeper.slot(slot).walks_itself.store(u32::from(walks_itself), std::sync::atomic::Ordering::Relaxed);
        self.awaited.sort_by_key(|(_, m)| m.start);
        self.written.set_areas(&others, &mut self.modules, &mut shared.publisher);
        self.publish_map(shared, slot);
    }

    /// Publishes the tables that were awaited and are there now. Whether there were any.
    pub(crate) fn receive(&mut self, shared: &mut Shared, slot: usize) -> bool {
        let tables = shared.modules.tables_received();
        if self.tables_seen == tables {
            return false;
        }
        self.tables_seen = tables;
        let awaited = self.awaited.len();
        self.awaited.retain(|(id, mapping)| {
            let module = shared.modules.get(*id);
            if !module.is_awaited {
                self.module_mappings.push(Mapping { table: module.table, flags: module.flags(), ..*mapping });
            }
            module.is_awaited
        });
        if self.awaited.len() == awaited {
            return false;
        }
        self.publish_map(shared, slot);
        true
    }

    /// Whether the tables of all modules are there.
    pub(crate) fn has_all_tables(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Whether a memory map lacks something that raw samples may lie in.
    pub(crate) fn is_missing_in(&self, maps: &Maps) -> bool {
        let is_there = |m: &Mapping| maps.entries.iter().any(|e| e.executable && e.start == m.start && e.end == m.end);
        !self.module_mappings.iter().chain(self.awaited.iter().map(|(_, m)| m)).all(is_there)
    }

    /// Publishes the load map anew if written code is no longer what it was.
    pub(crate) fn publish_changes(&mut self, shared: &mut Shared, slot: usize) {
        if self.written.changed {
            self.publish_map(shared, slot);
        }
    }

    fn publish_map(&mut self, shared: &mut Shared, slot: usize) {
        let mut mappings = self.written.mappings(&mut shared.publisher);
        mappings.extend(&self.module_mappings);
        mappings.sort_by_key(|m| m.start);
        if mappings == self.mappings {
            return;
        }
        if let Some(offset) = shared.publisher.publish_map(&mut self.places, &mappings) {
            shared.keeper.slot(slot).load_map.store(offset, std::sync::atomic::Ordering::Release);
        }
        self.mappings = mappings;
    }

    fn mapping_of(&mut self, modules: &Modules, id: ModuleId, entry: &MapEntry) -> Mapping {
        let module = modules.get(id);
        let bias = module.bias(entry);
        let index = self.index_of(modules, id, bias);
        Mapping { start: entry.start, end: entry.end, bias, table: module.table, module: index, flags: module.flags() }
    }

    fn index_of(&mut self, modules: &Modules, id: ModuleId, bias: u64) -> ModuleIndex {
        if let Some(index) = self.module_indices.get(&(id, bias)) {
            return *index;
        }
        let index = ModuleIndex(u16::try_from(self.modules.len()).unwrap_or(u16::MAX));
        if index != ModuleIndex::NONE {
            let module = modules.get(id);
            self.modules.push(ModuleRecord { path: module.path.clone(), identity: module.identity.clone() });
            self.module_indices.insert((id, bias), index);
        }
        index
    }

    /// Walks a raw sample over it.
    pub(crate) fn walk(&mut self, raw: &Raw<'_>, published: Published<'_>) -> Walked {
        raw.walk(Code {
            mappings: &self.mappings,
            awaited: &self.awaited,
            published,
            written: &mut self.written,
            modules: &mut self.modules,
            witness: Witness::default(),
            after_written: false,
            met_unknown: false,
            met_awaited: None,
        })
    }

    /// An address as a frame.
    pub(crate) fn frame_at(&self, addr: RunAddr) -> FrameKey {
        let index = self.mappings.partition_point(|m| m.end <= addr);
        match self.mappings.get(index).filter(|m| m.start <= addr) {
            Some(m) => FrameKey::in_module(m.module, addr.to_link(m.bias)),
            None => FrameKey::outside(addr),
        }
    }

    /// Gives up everything that is published for this process alone.
    pub(crate) fn release(&mut self, publisher: &mut Publisher) {
        self.written.release(publisher);
        publisher.give_maps_back(&mut self.places);
    }
}
