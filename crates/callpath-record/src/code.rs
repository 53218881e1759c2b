//! The code of a process as the recorder knows it: modules, generated code, the published load
//! map. Threads and their samples do not belong here.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_format::shared::load_map::{CurrentMap, Mapping, Published};
use callpath_image::go::Go;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::ModuleRecord;
use callpath_target::{MapEntry, Maps, Pid, read_memory};
use rustc_hash::FxHashMap;

use crate::earlier::Earlier;
use crate::generated::{GeneratedCode, Witness};
use crate::kernel::Kernel;
use crate::module::{Awaited, ModuleId};
use crate::modules::{MappedCode, Modules};
use crate::moved::{self, MovedCode, ProgramNumber};
use crate::publish::{MapRegions, Publisher, Region};
use crate::raw::{Begun, Code, Memo, Raw, Walked, start_of_thread};
use crate::shared::Shared;
use crate::worker_pool::Pace;

/// The code of a process.
pub(crate) struct ProcessCode {
    pid: Pid,
    /// What is published, by address.
    pub(crate) mappings: Vec<Mapping>,
    /// Executable mappings of modules as they were read, by address; their tables are what their modules' are.
    in_modules: Vec<(ModuleId, Mapping)>,
    /// Code that we have put into the process: its number among all, what it comes from, and where it lies.
    moved: Vec<(usize, Option<ModuleId>, Mapping)>,
    /// The kernel's own page, which has no file.
    others: Vec<Mapping>,
    /// Parts of those whose tables are not there, by address. They are not published: samples there are kept raw.
    awaited: Vec<(Awaited, Mapping)>,
    /// How many tables had come when that was looked at.
    tables_seen: u64,
    pub(crate) generated: GeneratedCode,
    pub(crate) map_read: Instant,
    regions: MapRegions,
    /// The current load map. `None`: the last one could not be published.
    current: Option<CurrentMap>,
    /// Regions that no load map names from this generation on.
    retired: Vec<(Region, u32)>,
    module_indices: FxHashMap<(ModuleId, u64), ModuleIndex>,
    pub(crate) modules: Vec<ModuleRecord>,
    /// The program that the process runs, if code was put into it that is that program's alone.
    pub(crate) program: Option<ProgramNumber>,
    /// It is sampled from outside: nothing in it can be disturbed.
    pub(crate) is_from_outside: bool,
    /// Of each sample the innermost frame alone is asked for, and its CFA.
    pub(crate) innermost_only: bool,
    /// Where the process's jitdump can be opened, if it has mapped one.
    pub(crate) jit_dump: Option<PathBuf>,
    /// The kernel's index among the modules, if samples have frames there.
    kernel: Option<ModuleIndex>,
}

impl ProcessCode {
    pub(crate) fn new(pid: Pid) -> ProcessCode {
        ProcessCode {
            pid,
            mappings: Vec::new(),
            in_modules: Vec::new(),
            moved: Vec::new(),
            others: Vec::new(),
            awaited: Vec::new(),
            tables_seen: 0,
            generated: GeneratedCode::new(pid),
            map_read: Instant::now(),
            regions: MapRegions::default(),
            current: None,
            program: None,
            retired: Vec::new(),
            module_indices: FxHashMap::default(),
            modules: Vec::new(),
            is_from_outside: false,
            innermost_only: false,
            jit_dump: None,
            kernel: None,
        }
    }

    /// Publishes the load map of a memory map as it was read just now, with
    /// the tables of all its modules that are there.
    pub(crate) fn publish(&mut self, shared: &mut Shared, slot: usize, maps: &Maps) {
        self.map_read = Instant::now();
        self.program = self.program.or_else(|| shared.programs.of(maps));
        let of_moved: Vec<(usize, Range<RunAddr>)> =
            shared.moved.of(maps, self.program).map(|(number, moved)| (number, moved.code())).collect();
        let mut taken: Vec<Range<RunAddr>> = of_moved.iter().map(|(_, code)| code.clone()).collect();
        taken.sort_by_key(|code| code.start);
        let executable = maps.entries.iter().filter(|e| e.executable);
        let executable: Vec<MapEntry> = executable.flat_map(|entry| moved::without(entry, &taken)).collect();
        if executable.is_empty() {
            return;
        }
        let executable: Vec<&MapEntry> = executable.iter().collect();
        let beat = &shared.allocator.session().beat;
        let mapped = MappedCode { pid: self.pid, entries: executable };
        let modules = shared.modules.of_mappings(&mapped, &mut shared.publisher, beat);
        let before = std::mem::take(&mut self.in_modules);
        self.others.clear();
        self.tables_seen = shared.modules.tables_received();
        let mut others = Vec::new();
        let mut walks_itself = false;
        for (entry, id) in mapped.entries.iter().copied().zip(modules) {
            match id.filter(|id| shared.modules.get(*id).identity.is_some()) {
                Some(id) => {
                    let mapping = self.mapping_of(&shared.modules, id, entry);
                    walks_itself |= shared.modules.get(id).return_use.walks;
                    self.in_modules.push((id, mapping));
                }
                // No file, or one that is no ELF file or cannot be read: the code in memory is analysed.
                None if entry.readable => {
                    if self.jit_dump.is_none() && is_jit_dump(&entry.path) {
                        self.jit_dump = mapped.place_of(entry);
                    }
                    others.push(entry);
                }
                // The kernel's own page, which has no file.
                None => {
                    let (start, end) = (entry.start, entry.end);
                    let module = ModuleIndex::NONE;
                    self.others.push(Mapping { start, end, bias: 0, table: 0, module, told: 0, flags: 0 });
                }
            }
        }
        if !self.is_from_outside && self.is_go_without_c(&shared.modules) {
            // It will not be sampled.
            return;
        }
        shared.allocator.slot(slot).walks_itself.store(u32::from(walks_itself), Relaxed);
        self.in_modules.sort_by_key(|(_, m)| m.start);
        let moved = of_moved.into_iter().filter_map(|(number, _)| Some((number, shared.moved.get(number)?)));
        self.moved = moved.filter_map(|(number, moved)| self.moved_mapping(number, moved)).collect();
        let region = |(id, mapping): &(ModuleId, Mapping)| (*id, mapping.start, mapping.end, mapping.bias);
        if !self.in_modules.iter().map(region).eq(before.iter().map(region)) {
            self.generated.forget_calls();
        }
        let areas: Vec<(&MapEntry, bool)> =
            others.into_iter().map(|entry| (entry, is_of_file(self.pid, entry, maps))).collect();
        self.generated.set_areas(&areas, &mut self.modules);
        if shared.has_probes() {
            // They are soon there before the first probes; what comes later has slices as walks of calls lack them.
            let pace = if self.current.is_none() { Pace::Now } else { Pace::Slow };
            self.in_modules.iter().for_each(|(id, _)| shared.modules.want_whole(*id, pace));
        }
        self.publish_map(shared, slot);
    }

    /// The table of this code, if it is not there yet.
    pub(crate) fn awaited_at(&self, addr: RunAddr) -> Option<Awaited> {
        let index = self.awaited.partition_point(|(_, mapping)| mapping.end <= addr);
        self.awaited.get(index).filter(|(_, mapping)| mapping.start <= addr).map(|(awaited, _)| *awaited)
    }

    /// Publishes the tables that were awaited and are there now. Whether there were any.
    pub(crate) fn receive(&mut self, shared: &mut Shared, slot: usize) -> bool {
        let tables = shared.modules.tables_received();
        if self.tables_seen == tables {
            return false;
        }
        self.tables_seen = tables;
        self.publish_map(shared, slot)
    }

    /// Whether the program handles all signals itself, so that a sample would end it.
    pub(crate) fn is_go_without_c(&self, modules: &Modules) -> bool {
        self.has_go(modules, Go::WithoutC)
    }

    /// Whether it starts programs by system calls of its own, which nobody stands before.
    pub(crate) fn executes_unseen(&self, modules: &Modules) -> bool {
        self.has_go(modules, Go::WithC)
    }

    fn has_go(&self, modules: &Modules, go: Go) -> bool {
        self.in_modules.iter().any(|(id, _)| modules.get(*id).go == Some(go))
    }

    /// Whether all tables are there that take little time.
    pub(crate) fn has_all_tables(&self, modules: &Modules) -> bool {
        !self.in_modules.iter().any(|(id, _)| modules.get(*id).is_soon_there())
    }

    /// The modules that are mapped.
    pub(crate) fn modules(&self) -> impl Iterator<Item = ModuleId> {
        self.in_modules.iter().map(|(id, _)| *id)
    }

    /// Whether a memory map may be that of the same program, later: our object, at least, is where it was.
    pub(crate) fn may_have(&self, maps: &Maps) -> bool {
        let is_in = |m: &Mapping| maps.entries.iter().any(|e| e.executable && e.file.is_some() && e.start == m.start);
        !maps.entries.is_empty() && (self.in_modules.is_empty() || self.in_modules.iter().any(|(_, m)| is_in(m)))
    }

    /// Whether a memory map lacks something that raw samples may lie in.
    pub(crate) fn is_missing_in(&self, maps: &Maps) -> bool {
        let is_there = |m: &Mapping| maps.entries.iter().any(|e| e.executable && e.start == m.start && e.end == m.end);
        !self.in_modules.iter().map(|(_, m)| m).chain(&self.others).all(is_there)
    }

    /// Publishes the load map again if generated code has changed.
    pub(crate) fn publish_changes(&mut self, shared: &mut Shared, slot: usize) {
        if self.generated.changed {
            self.publish_map(shared, slot);
        }
    }

    /// Publishes the load map if it has changed.
    fn publish_map(&mut self, shared: &mut Shared, slot: usize) -> bool {
        let mut mappings = self.generated.mappings(&mut shared.publisher);
        mappings.extend(&self.others);
        self.awaited.clear();
        for (id, mapping) in &self.in_modules {
            let code = mapping.start.to_link(mapping.bias)..mapping.end.to_link(mapping.bias);
            for part in shared.modules.get(*id).parts(*id, code) {
                let run = |at: LinkAddr| RunAddr(at.0.wrapping_add(mapping.bias));
                let (start, end, flags) = (run(part.code.start), run(part.code.end), part.flags);
                match part.table {
                    Ok(table) => mappings.push(Mapping { start, end, table, flags, ..*mapping }),
                    Err(awaited) => self.awaited.push((awaited, Mapping { start, end, flags, ..*mapping })),
                }
            }
        }
        self.publish_moved(shared, &mut mappings);
        let is_new = mappings != self.mappings || self.current.is_none();
        if is_new {
            self.current = shared.publisher.publish_map(&mut self.regions, &mappings);
            self.mappings = mappings;
        }
        let is_begun = self.awaited.iter().any(|(awaited, _)| shared.modules.is_begun(*awaited));
        let slot = shared.allocator.slot(slot);
        if let Some(current) = self.current {
            if is_new {
                slot.load_map.store(current.0, SeqCst);
            }
            let replaced = self.generated.take_replaced();
            self.retired.extend(replaced.map(|region| (region, current.generation())));
        }
        slot.map_awaits.store(u32::from(is_begun), SeqCst);
        is_new
    }

    /// That of the current load map, if there is one.
    pub(crate) fn generation(&self) -> Option<u32> {
        self.current.map(CurrentMap::generation)
    }

    /// Whether regions wait for [`ProcessCode::reuse`].
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Gives regions back that no sample reads any more. `oldest`: the oldest generation of a load map that
    /// a sample uses now; `None`: there is no sample.
    pub(crate) fn reuse(&mut self, publisher: &mut Publisher, oldest: Option<u32>) {
        let is_free = |(_, from): &(Region, u32)| oldest.is_none_or(|oldest| oldest.wrapping_sub(*from) as i32 >= 0);
        self.retired.extract_if(.., |retired| is_free(retired)).for_each(|(region, _)| publisher.give_back(region));
    }

    /// Where code that we have put into the process lies, and which module it comes from.
    fn moved_mapping(&self, number: usize, moved: &MovedCode) -> Option<(usize, Option<ModuleId>, Mapping)> {
        let Range { start, end } = moved.code();
        let here = Mapping {
            start,
            end,
            bias: moved.bias(),
            table: 0,
            module: ModuleIndex::NONE,
            told: 0,
            flags: Mapping::MOVED,
        };
        let Some(from) = &moved.from else { return Some((number, None, here)) };
        let (id, of_module) = self.in_modules.iter().find(|(_, mapping)| mapping.start == from.start)?;
        Some((number, Some(*id), Mapping { module: of_module.module, ..here }))
    }

    /// What is there of a module's tables.
    fn tables_of(&self, modules: &Modules, id: ModuleId, bias: u64) -> ModuleTables {
        let mut found = ModuleTables::default();
        for (_, in_module) in self.in_modules.iter().filter(|(of, m)| *of == id && m.bias == bias) {
            let code = in_module.start.to_link(bias)..in_module.end.to_link(bias);
            for part in modules.get(id).parts(id, code) {
                found.flags |= part.flags;
                match part.table {
                    Ok(table) => found.tables.extend((table != 0 && !found.tables.contains(&table)).then_some(table)),
                    Err(table) => found.awaited = found.awaited.or(Some(table)),
                }
            }
        }
        found
    }

    /// Publishes what is known of code before it is put into the process, which takes longer than putting it in. `false`: it
    /// is code of no module here, or there is no room.
    pub(crate) fn prepare(&self, shared: &mut Shared, moved: &mut MovedCode) -> bool {
        let Some((_, Some(id), mapping)) = self.moved_mapping(0, moved) else { return false };
        let ModuleTables { tables, .. } = self.tables_of(&shared.modules, id, mapping.bias);
        moved.block(tables, &mut shared.publisher).is_some()
    }

    /// Adds the mappings of code that we have put into the process, and puts those of modules in order.
    fn publish_moved(&mut self, shared: &mut Shared, mappings: &mut Vec<Mapping>) {
        let mut cuts = Vec::new();
        for &(number, id, mapping) in &self.moved {
            let of_module = id.map(|id| self.tables_of(&shared.modules, id, mapping.bias));
            let ModuleTables { tables, flags, awaited } = of_module.unwrap_or_default();
            let flags = flags | Mapping::MOVED;
            let Some(moved) = shared.moved.get_mut(number) else { continue };
            if let Some(awaited) = awaited.filter(|_| tables.is_empty()) {
                self.awaited.push((awaited, Mapping { flags, ..mapping }));
                continue;
            }
            let block = if id.is_none() { moved.last_block() } else { moved.block(tables, &mut shared.publisher) };
            let Some(table) = block else { continue };
            mappings.push(Mapping { table, flags, ..mapping });
            cuts.extend(moved.detours().map(|detour| (detour, table)));
        }
        self.awaited.sort_by_key(|(_, m)| m.start);
        mappings.sort_by_key(|m| m.start);
        for (detour, table) in cuts {
            moved::cut(mappings, &detour, (table, Mapping::MOVED));
        }
    }

    fn mapping_of(&mut self, modules: &Modules, id: ModuleId, entry: &MapEntry) -> Mapping {
        let module = modules.get(id);
        let bias = module.bias(entry);
        let index = self.index_of(modules, id, bias);
        Mapping { start: entry.start, end: entry.end, bias, table: 0, module: index, told: modules.told(id), flags: 0 }
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

    /// The frames of the kernel where a sample hit in it: the innermost first, as their addresses are.
    pub(crate) fn frames_of(&mut self, kernel: &Kernel, addresses: &[u64]) -> Vec<FrameKey> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let module = *self.kernel.get_or_insert_with(|| {
            self.modules.push(kernel.module());
            ModuleIndex(u16::try_from(self.modules.len() - 1).unwrap_or(u16::MAX))
        });
        let points = addresses.iter().enumerate().map(|(number, address)| match number {
            0 => CodePoint::Exact(RunAddr(*address)),
            _ => CodePoint::Return(RunAddr(*address)),
        });
        points.map(|point| FrameKey::in_module(module, kernel.link(point.lookup()))).collect()
    }

    /// Whether a frame is one of the kernel's.
    pub(crate) fn is_of_kernel(&self, key: FrameKey) -> bool {
        self.kernel == Some(key.module()) && key.module() != ModuleIndex::NONE
    }

    /// The index of a module that was or is mapped with a bias.
    pub(crate) fn index_at(&self, (path, identity): (&Path, &ModuleIdentity), bias: u64) -> Option<ModuleIndex> {
        let of_bias = self.module_indices.iter().filter(|((_, at), _)| *at == bias).map(|(_, index)| *index);
        let is_it = |record: &ModuleRecord| record.path == path && record.identity.as_ref() == Some(identity);
        { of_bias }.find(|index| self.modules.get(index.0 as usize).is_some_and(is_it))
    }

    /// The tables that a raw sample's walk may come to after the one that it waits for: of code that words on its stack
    /// lead to. The generated code that it may come to is retained.
    pub(crate) fn awaited_by(&mut self, raw: &Raw<'_>) -> Vec<Awaited> {
        self.retain_for(raw);
        let mut wanted = Vec::new();
        let (Some((_, first)), Some((_, last))) = (self.awaited.first(), self.awaited.last()) else { return wanted };
        for word in raw.stack_words().filter(|word| (first.start.0..last.end.0).contains(word)) {
            let index = self.awaited.partition_point(|(_, m)| m.end.0 <= word);
            let found = self.awaited.get(index).filter(|(_, m)| m.start.0 <= word).map(|(awaited, _)| *awaited);
            wanted.extend(found.filter(|awaited| awaited.slice.is_some() && !wanted.contains(awaited)));
        }
        wanted
    }

    /// Retains the generated code that a waiting sample's walk may come to, as it is now.
    pub(crate) fn retain_for(&mut self, raw: &Raw<'_>) {
        self.generated.retain(raw.stack_words().chain([raw.pc().0]));
        if self.generated.is_there() {
            // The caller of a frame of generated code is found by its call, in whichever code that is.
            for word in raw.stack_words() {
                let index = self.in_modules.partition_point(|(_, m)| m.end.0 < word);
                if self.in_modules.get(index).is_some_and(|(_, m)| m.start.0 < word) {
                    self.generated.retain_call(word);
                }
            }
        }
    }

    /// Walks a raw sample over it.
    pub(crate) fn walk(&mut self, raw: &Raw<'_>, published: Published<'_>) -> Walked {
        raw.walk(self.over(published), None)
    }

    /// The same, with what is known of the last walk of the same thread.
    pub(crate) fn walk_on(&mut self, raw: &Raw<'_>, published: Published<'_>, earlier: &mut Earlier) -> Walked {
        earlier.of_generation(self.generation());
        let walked = raw.walk(self.over(published), earlier.is_worth_it().then_some(&mut *earlier));
        earlier.note_frames(walked.len());
        walked
    }

    /// Where a thread has begun ([`start_of_thread`]).
    pub(crate) fn start_of_thread(
        &mut self,
        published: Published<'_>,
        registers: [u64; 17],
        stack: (u64, &[AtomicU64]),
    ) -> Option<Begun> {
        start_of_thread(self.over(published), registers, stack)
    }

    fn over<'c>(&'c mut self, published: Published<'c>) -> Code<'c> {
        Code {
            innermost_only: self.innermost_only,
            mappings: &self.mappings,
            awaited: &self.awaited,
            in_modules: &self.in_modules,
            published,
            generated: &mut self.generated,
            modules: &mut self.modules,
            witness: Witness::default(),
            after_generated: false,
            met_unknown: false,
            met_awaited: None,
            memo: Memo::default(),
        }
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
        self.generated.forget_all();
        let replaced = self.generated.take_replaced().chain(self.retired.drain(..).map(|(region, _)| region));
        replaced.for_each(|region| publisher.give_back(region));
        publisher.give_maps_back(&mut self.regions);
    }
}

/// What is there of a module's tables.
#[derive(Default)]
struct ModuleTables {
    /// Where they are published.
    tables: Vec<u64>,
    /// Those of the mappings of its parts.
    flags: u16,
    /// One that is not there.
    awaited: Option<Awaited>,
}

/// Whether a file is named as jitdumps are, which runtimes map so that profilers find them: `jit-PID.dump`.
fn is_jit_dump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.strip_prefix("jit-").and_then(|name| name.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the mapping is of a file that a user would recognise: a regular file at the map's path, or a deleted ELF
/// file. Devices (`/dev/zero`, shared), memory files and files without a name hold generated code.
fn is_of_file(pid: Pid, entry: &MapEntry, maps: &Maps) -> bool {
    let Some(file) = entry.file else { return false };
    let is_there = |metadata: std::fs::Metadata| metadata.is_file() && metadata.ino() == file.inode;
    if !entry.deleted && std::fs::metadata(&entry.path).is_ok_and(is_there) {
        return true;
    }
    let mut magic = [0; 4];
    let head = maps.entries.iter().find(|e| e.file == entry.file && e.file_offset == 0);
    head.is_some_and(|head| read_memory(pid, head.start.0, &mut magic) == magic.len() && magic == *b"\x7fELF")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Standing;
    use crate::thread::Thread;
    use callpath_format::recipe::{Cfa, Packed, Recipe, Rule};
    use callpath_format::register::Reg;
    use callpath_format::shared::{ArenaRef, Settings};
    use callpath_format::table;

    #[test]
    fn a_region_is_used_again_when_no_sample_goes_by_a_map_that_names_it() {
        let mut publisher = Publisher::create(1 << 20, Vec::new(), &[]).expect("memory");
        let mut code = ProcessCode::new(Pid(std::process::id()));
        let put = |publisher: &mut Publisher| publisher.put(&[7; 4096]).expect("there is room");
        // Generations begin again after the last one.
        for (at, before, now) in [(9, 8, 10), (1, u32::MAX, 2)] {
            let region = put(&mut publisher);
            code.retired.push((region, at));
            code.reuse(&mut publisher, Some(before));
            assert!(code.has_retired());
            assert_ne!(put(&mut publisher), region, "a sample looks at it");
            code.reuse(&mut publisher, Some(now));
            assert!(!code.has_retired());
            assert_eq!(put(&mut publisher), region);
            code.retired.push((region, at));
            code.reuse(&mut publisher, None);
            assert_eq!(put(&mut publisher), region);
        }
    }

    const CODE: u64 = 0x10_0000;

    /// A table of 256 bytes of code: frames by rsp that save rbx, frames by rbp, and the outermost.
    fn table() -> Vec<u8> {
        let region = table::Region { link_start: CODE, len_bytes: 256, first_block: 0, block_count: 1 };
        let mut header =
            table::Header { regions: 1, blocks: 1, rows: 3, recipes: 4, largest: region, ..Default::default() };
        let layout = header.layout().expect("it is small");
        header.len_bytes = layout.end as u32;
        let mut bytes = vec![0; layout.end];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &header.to_bytes());
        put(layout.regions, &region.to_bytes());
        put(layout.blocks + 4, &[3]);
        put(layout.rows, &[0, 0x40, 0x80, 1, 0, 2, 0, 3, 0]);
        let frame = |reg: Reg, disp: i32, saved: Reg| {
            let mut recipe = Recipe::with_cfa(Cfa::Register { reg, disp });
            recipe.registers[saved.index()] = Rule::AtCfa(-16);
            recipe
        };
        let recipes = [frame(Reg::RSP, 24, Reg::RBX), frame(Reg::RBP, 16, Reg::RBP), Recipe::OUTERMOST];
        for (recipe, at) in recipes.iter().zip(1..) {
            put(layout.recipes + 16 * at, &Packed::pack(recipe).expect("it is not wide").to_bytes());
        }
        bytes
    }

    /// A thread's stack: of each frame, outermost first, where it stands in the code, and what it leaves in rbx and in its locals.
    fn standing(frames: &[(u64, u64)], changed: Option<(usize, u64)>) -> Standing {
        const TOP: usize = 4096;
        let mut words = vec![0; TOP];
        let address = |at: usize| 0x7000_0000 + 8 * at as u64;
        let (mut sp, mut pc, mut rbx, mut rbp) = (TOP, CODE + 0x90, 1, 2);
        for (place, value) in frames {
            let saved = if *place < 0x40 { std::mem::replace(&mut rbx, *value) } else { rbp };
            words[sp - 3..sp].copy_from_slice(&[*value, saved, pc]);
            if *place >= 0x40 {
                rbp = address(sp - 2);
            }
            sp -= 3;
            pc = CODE + place;
        }
        if let Some((at, value)) = changed {
            words[TOP - 1 - at] = value;
        }
        let mut registers = [7; 17];
        // One that a call may change.
        registers[0] = frames.len() as u64;
        for (reg, value) in [(Reg::RSP, address(sp)), (Reg::RBX, rbx), (Reg::RBP, rbp)] {
            registers[reg.index()] = value;
        }
        registers[16] = pc;
        Standing::new(registers, address(sp), &words[sp..]).with_base(address(TOP))
    }

    #[test]
    fn a_walk_that_meets_the_last_one_is_as_any_other() {
        let mut publisher = Publisher::create(1 << 20, Vec::new(), &[]).expect("memory");
        let table = publisher.append(&table()).expect("there is room");
        let (start, end) = (RunAddr(CODE), RunAddr(CODE + 256));
        let mut code = ProcessCode::new(Pid(std::process::id()));
        code.mappings = vec![Mapping { start, end, bias: 0, table, module: ModuleIndex(0), told: 0, flags: 0 }];
        code.current = CurrentMap::new(1, 8);
        let mut seed = 1_u64;
        let mut below = move |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % end
        };
        // Of one the last walk is kept, of the other it is not.
        let [mut keeps, mut walks] = [1, 2].map(|tid| Thread::from_outside(ArenaRef(tid), tid, String::new()));
        let settings = Settings::default();
        let mut frames: Vec<(u64, u64)> = Vec::new();
        let (mut met, mut changes) = (0, 0);
        for round in 0..3000 {
            frames.truncate(frames.len().saturating_sub(below(12) as usize));
            let more = (below(14) as usize).min(900 - frames.len());
            frames.extend((0..more).map(|_| (0x40 * below(2) + 2 + below(0x3c), below(100))));
            // A word of the stack is another one: a saved register, a return address, or what nobody reads.
            let words = 3 * frames.len() as u64;
            let changed = (words > 0 && below(3) == 0).then(|| (below(words) as usize, CODE + 1 + below(0x7e)));
            let standing = standing(&frames, changed);
            let fresh = code.walk(&standing.as_raw(), publisher.published());
            let earlier = &mut keeps.outside.as_mut().expect("it is from outside").earlier;
            let walked = code.walk_on(&standing.as_raw(), publisher.published(), earlier);
            assert_eq!((walked.full, walked.ran_out), (fresh.full, fresh.ran_out), "round {round}");
            assert_eq!((walked.read_bytes, walked.height), (fresh.read_bytes, fresh.height), "round {round}");
            met += u32::from(walked.has_met);
            changes += u32::from(changed.is_some() && fresh.full && fresh.len() == frames.len() + 1);
            // Some samples wait for something before they are entered.
            if below(4) > 0 {
                standing.as_raw().attribute(&mut keeps, &walked, &settings);
                standing.as_raw().attribute(&mut walks, &fresh, &settings);
                assert_eq!(keeps.raw_last, walks.raw_last, "round {round}");
            }
            assert_eq!(walked.into_keys(), fresh.into_keys(), "round {round}");
        }
        assert!(
            met > 1000 && changes > 200,
            "{met} walks met the one before; {changes} whole ones with a changed word"
        );
        // By another load map nothing of it counts.
        code.current = CurrentMap::new(2, 8);
        let standing = standing(&frames, None);
        let earlier = &mut keeps.outside.as_mut().expect("it is from outside").earlier;
        assert!(!code.walk_on(&standing.as_raw(), publisher.published(), earlier).has_met);
        assert!(code.walk_on(&standing.as_raw(), publisher.published(), earlier).has_met);
        assert_eq!(keeps.profile.tree.nodes(), walks.profile.tree.nodes());
    }
}
