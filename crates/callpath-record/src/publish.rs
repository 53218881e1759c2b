//! What is published to the measured processes: recipe tables, stretches of written code and load maps, in memory that they
//! can only read.
//! Knows nothing of modules and processes.

use callpath_format::shared::load_map::{self, Mapping, Published};
use callpath_target::{SharedMemory, TargetError};
use std::time::{Duration, Instant};

/// What is backed with memory at a time, bytes.
const STEP_BYTES: usize = 1 << 20;
/// How many load maps of a process keep their places before the oldest one's is used again.
const MAPS_KEPT: usize = 4;
/// A place that was given back is used again when no sample can still be looking at it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The published memory and how much of it is in use.
pub(crate) struct Publisher {
    memory: SharedMemory,
    used: usize,
    backed: usize,
    /// Places that came back, and from when on they can be used again.
    returned: Vec<(Place, Instant)>,
}

/// A place for what is replaced in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    at: usize,
    room: usize,
}

impl Place {
    /// Bytes from the start of what is published.
    pub(crate) fn offset(self) -> u64 {
        self.at as u64
    }
}

/// The places of a process's load maps, used in turn.
#[derive(Default, Debug)]
pub(crate) struct MapPlaces {
    generation: u32,
    places: [Option<Place>; MAPS_KEPT],
}

impl Publisher {
    pub(crate) fn create(len_bytes: usize) -> Result<Publisher, TargetError> {
        let memory = SharedMemory::create(c"callpath-published", len_bytes)?;
        // Offset 0 means "none".
        Ok(Publisher { memory, used: 64, backed: 0, returned: Vec::new() })
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.memory.descriptor()
    }

    /// What can be read here.
    pub(crate) fn published(&self) -> Published<'_> {
        // SAFETY: backed memory of our own mapping; what changes in it is load maps, which only the recorder writes.
        Published::new(unsafe { std::slice::from_raw_parts(self.memory.base(), self.backed) })
    }

    /// Appends bytes and returns their offset; `None`: no room or no memory.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        let at = self.reserve(bytes.len())?;
        self.write(at, bytes);
        Some(at as u64)
    }

    /// Publishes bytes at a place that can be given back; `None`: no room or no memory.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<Place> {
        let place = self.place_for(bytes.len())?;
        self.write(place.at, bytes);
        Some(place)
    }

    /// A place for so many bytes and some more: one that came back, or a new one.
    fn place_for(&mut self, len: usize) -> Option<Place> {
        let now = Instant::now();
        let fits = |(place, from): &(Place, Instant)| (len..=len * 4).contains(&place.room) && *from <= now;
        if let Some(index) = self.returned.iter().position(fits) {
            return Some(self.returned.swap_remove(index).0);
        }
        let room = len.next_power_of_two();
        Some(Place { at: self.reserve(room)?, room })
    }

    /// Takes a place back: no load map that is published from now on names it.
    pub(crate) fn give_back(&mut self, place: Place) {
        self.returned.push((place, Instant::now() + PATIENCE));
    }

    /// Takes the places of a process back that has ended: nobody looks at its load maps any more.
    pub(crate) fn give_maps_back(&mut self, places: &mut MapPlaces) {
        let now = Instant::now();
        self.returned.extend(places.places.iter_mut().filter_map(|place| Some((place.take()?, now))));
    }

    /// Publishes a process's next load map (`mappings` by address) and returns its offset.
    pub(crate) fn publish_map(&mut self, places: &mut MapPlaces, mappings: &[Mapping]) -> Option<u64> {
        let len = load_map::HEAD_LEN_BYTES + mappings.len() * Mapping::LEN_BYTES;
        let index = places.generation as usize % MAPS_KEPT;
        let at = match places.places[index].filter(|place| len <= place.room) {
            Some(place) => place.at,
            None => {
                // Room to grow: programs that load libraries load more.
                let place = self.place_for(len)?;
                if let Some(before) = places.places[index].replace(place) {
                    self.give_back(before);
                }
                place.at
            }
        };
        places.generation += 1;
        self.write(at, &load_map::head_bytes(places.generation, mappings.len() as u32));
        for (i, mapping) in mappings.iter().enumerate() {
            self.write(at + load_map::HEAD_LEN_BYTES + i * Mapping::LEN_BYTES, &mapping.to_bytes());
        }
        Some(at as u64)
    }

    fn reserve(&mut self, len: usize) -> Option<usize> {
        let at = self.used.next_multiple_of(64);
        let end = at.checked_add(len).filter(|end| *end <= self.memory.len_bytes())?;
        if end > self.backed {
            let more = (end - self.backed).next_multiple_of(STEP_BYTES).min(self.memory.len_bytes() - self.backed);
            self.memory.back(self.backed, more).ok()?;
            self.backed += more;
        }
        self.used = end;
        Some(at)
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.backed);
        // SAFETY: inside backed memory of our own mapping (checked above).
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
            flags: 0,
        };
        (1..=count).map(mapping).collect()
    }

    #[test]
    fn places_of_processes_that_have_ended_are_used_again() {
        let mut publisher = Publisher::create(1 << 20).expect("memory");
        // Far more processes than there would be room for.
        for process in 0..10_000 {
            let mut places = MapPlaces::default();
            // The fifth fits where the first was: a place that is outgrown comes back only after a while.
            for count in [15, 20, 21, 19, 16] {
                let at = publisher.publish_map(&mut places, &mappings(count + process % 7)).expect("there is room");
                let map = publisher.published().load_map(at).expect("it was published");
                assert_eq!(map.find(RunAddr(3 << 12)).map(|m| m.start), Some(RunAddr(3 << 12)));
            }
            publisher.give_maps_back(&mut places);
        }
    }

    #[test]
    fn a_map_keeps_its_place_until_three_others_were_published() {
        let mut publisher = Publisher::create(1 << 20).expect("memory");
        let mut places = MapPlaces::default();
        let first = publisher.publish_map(&mut places, &mappings(5)).expect("there is room");
        for count in 6..9 {
            publisher.publish_map(&mut places, &mappings(count)).expect("there is room");
        }
        let map = publisher.published().load_map(first).expect("it is still there");
        assert_eq!(map.generation, 1);
        assert!(map.find(RunAddr(5 << 12)).is_some() && map.find(RunAddr(6 << 12)).is_none());
    }
}
