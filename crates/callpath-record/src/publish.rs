//! The memory published to the measured processes: recipe tables, stretches of generated code
//! and load maps, in memory that they can only read.

use callpath_format::shared::load_map::{self, CurrentMap, Mapping, Published};
use callpath_format::shared::{MetricSettings, Metrics};
use callpath_target::{SharedMemory, TargetError};
use std::sync::atomic::AtomicU64;

/// How much is backed with memory at a time, bytes.
const STEP_BYTES: usize = 1 << 20;
/// Small regions are made larger, to powers of two, so that many fit where others were; others to multiples of this, bytes.
const LARGE_BYTES: usize = 64 << 10;
/// How many load maps of a process keep their regions before the oldest one's is used again.
const MAPS_RETAINED: usize = 4;

/// The published memory and how much of it is in use.
pub(crate) struct Publisher {
    memory: SharedMemory,
    /// The settings of each metric.
    metrics: Vec<MetricSettings>,
    used: usize,
    backed: usize,
    /// Regions that were given back.
    returned: Vec<Region>,
}

/// A region for data that is replaced later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    at: usize,
    room: usize,
}

impl Region {
    /// Offset in the published memory, bytes.
    pub(crate) fn offset(self) -> u64 {
        self.at as u64
    }
}

/// The regions of a process's load maps, used in turn.
#[derive(Default, Debug)]
pub(crate) struct MapRegions {
    generation: u32,
    regions: [Option<Region>; MAPS_RETAINED],
}

impl Publisher {
    /// Memory of `len_bytes` bytes, with the settings of each metric at its beginning, and the programs of expressions
    /// behind them.
    pub(crate) fn create(
        len_bytes: usize,
        metrics: Vec<MetricSettings>,
        programs: &[u64],
    ) -> Result<Publisher, TargetError> {
        let memory = SharedMemory::create(c"callpath-published", len_bytes)?;
        let bytes: Vec<u8> =
            MetricSettings::words_of(&metrics).chain(programs.iter().copied()).flat_map(u64::to_le_bytes).collect();
        // Offset 0 means "none".
        let used = Metrics::OFFSET as usize;
        let mut publisher = Publisher { memory, metrics, used, backed: 0, returned: Vec::new() };
        publisher.back_up_to(used + bytes.len())?;
        let at = publisher.append(&bytes);
        assert_eq!(at, Some(Metrics::OFFSET), "what is backed has room for them");
        Ok(publisher)
    }

    /// The settings of each metric.
    pub(crate) fn metrics(&self) -> &[MetricSettings] {
        &self.metrics
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.memory.descriptor()
    }

    /// The published memory, to be read here.
    pub(crate) fn published(&self) -> Published<'_> {
        // SAFETY: backed memory of our own mapping, which lives as long as `self`; a change needs `self` as mutable.
        unsafe { Published::new(self.memory.base(), self.backed) }
    }

    /// Appends bytes and returns their offset; `None`: no room or no memory.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        let at = self.reserve(bytes.len())?;
        self.write(at, bytes);
        Some(at as u64)
    }

    /// Publishes bytes in a region that can be given back; `None`: no room or no memory.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<Region> {
        let region = self.region_for(bytes.len())?;
        self.write(region.at, bytes);
        Some(region)
    }

    /// A region for at least `len` bytes: one that came back, or a new one.
    fn region_for(&mut self, len: usize) -> Option<Region> {
        let fits = |region: &Region| (len..=len * 4).contains(&region.room);
        if let Some(index) = self.returned.iter().position(fits) {
            return Some(self.returned.swap_remove(index));
        }
        let room = if len <= LARGE_BYTES { len.next_power_of_two() } else { len.next_multiple_of(LARGE_BYTES) };
        Some(Region { at: self.reserve(room)?, room })
    }

    /// Takes a region back. No sample may use a load map that names it.
    pub(crate) fn give_back(&mut self, region: Region) {
        self.returned.push(region);
    }

    /// Takes back the regions of a process that has ended.
    pub(crate) fn give_maps_back(&mut self, regions: &mut MapRegions) {
        self.returned.extend(regions.regions.iter_mut().filter_map(Option::take));
    }

    /// Publishes a process's next load map (`mappings` by address). Returns the
    /// value for its slot; `None`: no room or no memory.
    pub(crate) fn publish_map(&mut self, regions: &mut MapRegions, mappings: &[Mapping]) -> Option<CurrentMap> {
        let len = 8 * load_map::words_of(mappings.len());
        let index = regions.generation as usize % MAPS_RETAINED;
        let at = match regions.regions[index].filter(|region| len <= region.room) {
            Some(region) => region.at,
            None => {
                // Room to grow: programs that load libraries load more.
                let region = self.region_for(len)?;
                // A sample that still reads the map there sees by its slot that it is no longer the current one.
                if let Some(before) = regions.regions[index].replace(region) {
                    self.give_back(before);
                }
                region.at
            }
        };
        // 0 means that there is none.
        regions.generation = regions.generation.checked_add(1).unwrap_or(1);
        let current = CurrentMap::new(regions.generation, at as u64)?;
        load_map::write_map(self.words(at, len / 8)?, regions.generation, mappings).then_some(current)
    }

    /// Words of backed memory.
    fn words(&self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        if at.checked_add(8 * count)? > self.backed || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: in bounds of our own mapping, which begins at a page, and backed
        // (checked above); atomics are valid for any bytes.
        Some(unsafe { std::slice::from_raw_parts(self.memory.base().add(at).cast(), count) })
    }

    fn reserve(&mut self, len: usize) -> Option<usize> {
        let at = self.used.next_multiple_of(64);
        let end = at.checked_add(len).filter(|end| *end <= self.memory.len_bytes())?;
        self.back_up_to(end).ok()?;
        self.used = end;
        Some(at)
    }

    /// Backs all before `end`, which lies within the mapping.
    fn back_up_to(&mut self, end: usize) -> Result<(), TargetError> {
        if end > self.backed {
            let more = (end - self.backed).next_multiple_of(STEP_BYTES).min(self.memory.len_bytes() - self.backed);
            self.memory.back(self.backed, more)?;
            self.backed += more;
        }
        Ok(())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.backed);
        // SAFETY: inside backed memory of our own mapping (checked above), in a
        // region that is not read: it is new, or came back.
        unsafe { self.memory.base().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_format::address::RunAddr;
    use callpath_format::frame::ModuleIndex;

    fn mappings(count: u64) -> Vec<Mapping> {
        let mapping = |n: u64| Mapping {
            start: RunAddr(n << 12),
            end: RunAddr((n + 1) << 12),
            bias: 0,
            table: 0,
            module: ModuleIndex(0),
            told: 0,
            flags: 0,
        };
        (1..=count).map(mapping).collect()
    }

    #[test]
    fn regions_of_processes_that_have_ended_are_used_again() {
        let mut publisher = Publisher::create(1 << 20, Vec::new(), &[]).expect("memory");
        // Far more processes than there would be room for.
        for process in 0..10_000 {
            let mut regions = MapRegions::default();
            // The fifth fits where the first was.
            for count in [15, 20, 21, 19, 16] {
                let at = publisher.publish_map(&mut regions, &mappings(count + process % 7)).expect("there is room");
                let map = publisher.published().load_map(at.offset()).expect("it was published");
                assert_eq!(map.find(RunAddr(3 << 12)).map(|m| m.start), Some(RunAddr(3 << 12)));
            }
            publisher.give_maps_back(&mut regions);
        }
    }

    #[test]
    fn a_map_keeps_its_region_until_three_others_were_published() {
        let mut publisher = Publisher::create(1 << 20, Vec::new(), &[]).expect("memory");
        let mut regions = MapRegions::default();
        let first = publisher.publish_map(&mut regions, &mappings(5)).expect("there is room");
        for count in 6..9 {
            publisher.publish_map(&mut regions, &mappings(count)).expect("there is room");
        }
        let map = publisher.published().load_map(first.offset()).expect("it is still there");
        assert_eq!((map.generation, first.generation()), (1, 1));
        assert!(map.find(RunAddr(5 << 12)).is_some() && map.find(RunAddr(6 << 12)).is_none());
    }

    /// Threads look up while maps are published as fast as it goes, each in one of four regions.
    /// Every eighth look-up of a thread waits, between its looks at the slot, until its map's
    /// region is written again, so it is late for certain.
    #[test]
    fn a_look_up_gives_what_one_map_says_and_no_other() {
        use callpath_format::shared::load_map::CurrentMap;
        use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
        use std::sync::atomic::{AtomicBool, fence};

        const LATE: u32 = 50;

        let mut publisher = Publisher::create(1 << 20, Vec::new(), &[]).expect("memory");
        let mut regions = MapRegions::default();
        let (slot, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        // All numbers of a map are its generation's.
        let map_of = |generation: u64| -> Vec<Mapping> {
            let mapping = |n: u64| Mapping {
                start: RunAddr(n << 12),
                end: RunAddr((n + 1) << 12),
                bias: generation,
                table: generation,
                module: ModuleIndex(generation as u16),
                told: 8 * generation,
                flags: generation as u16,
            };
            (1..=9).map(mapping).collect()
        };
        let first = publisher.publish_map(&mut regions, &map_of(1)).expect("there is room");
        slot.store(first.0, SeqCst);
        // SAFETY: the memory lives until the threads have ended; it changes as the load map's rules say.
        let published = unsafe { Published::new(publisher.memory.base(), publisher.memory.len_bytes()) };
        let look_up = || {
            let (mut found, mut late) = (0u32, 0u32);
            for round in 0u64.. {
                if is_over.load(Relaxed) || (found >= 1000 && late >= LATE) {
                    break;
                }
                let map = CurrentMap(slot.load(Acquire));
                let at = RunAddr((round % 9 + 1) << 12);
                let rewritten = map.generation() + MAPS_RETAINED as u32 - 1;
                while round % 8 == 7
                    && CurrentMap(slot.load(Acquire)).generation() < rewritten
                    && !is_over.load(Relaxed)
                {
                    std::thread::yield_now();
                }
                let mapping = published.load_map(map.offset()).and_then(|map| map.find(at));
                fence(Acquire);
                if slot.load(Relaxed) != map.0 {
                    late += 1;
                    continue;
                }
                let mapping = mapping.expect("every map has it");
                let generation = u64::from(map.generation());
                assert_eq!((mapping.bias, mapping.table, mapping.told), (generation, generation, 8 * generation));
                assert_eq!((mapping.module.0, mapping.flags), (generation as u16, generation as u16));
                found += 1;
            }
            (found, late)
        };
        std::thread::scope(|scope| {
            let readers = [scope.spawn(look_up), scope.spawn(look_up)];
            for generation in 2.. {
                if readers.iter().all(|reader| reader.is_finished()) {
                    break;
                }
                let map = publisher.publish_map(&mut regions, &map_of(generation));
                let Some(map) = map.filter(|map| u64::from(map.generation()) == generation) else { break };
                slot.store(map.0, SeqCst);
            }
            is_over.store(true, Relaxed);
            for reader in readers {
                let (found, late) = reader.join().expect("it saw what one map says");
                assert!(found >= 1000 && late >= LATE, "{found} found, {late} late when maps ended");
            }
        });
    }
}
