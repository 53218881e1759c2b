//! Where copies lie: those of modules that are near each other one behind the other, with nothing between them.
//!
//! A copy that is called reads what stands at its return address only where it knows that this can be read
//! (`callpath_format::shared::activation`): in one of two regions, the one that it lies in and another.

use std::ops::Range;

use callpath_format::address::RunAddr;
use callpath_target::Maps;

const PAGE_BYTES: u64 = 4096;
/// Modules this far from each other are not in one region, bytes.
const NEAR_BYTES: u64 = 1 << 30;
/// The greatest distance at which copies and originals reach each other, bytes.
const REACH_BYTES: u64 = (1 << 31) - (1 << 24);
/// Address space that is left free for copies of libraries that come later, bytes.
const LATER_BYTES: u64 = 512 << 20;

/// Address space that copies may be put in.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Region {
    /// The modules that are near it.
    near: Range<u64>,
    /// All of it.
    space: Range<u64>,
    /// Behind the last copies.
    next: u64,
}

/// The regions of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Regions(Vec<Region>);

impl Regions {
    /// For modules, by ascending address: where each is, and how much its copies may take, bytes. Where there is not enough address
    /// space for all that are near each other, they have no region.
    /// `homes`: what copies there have to reach, where some can at all.
    pub(super) fn reserve(maps: &Maps, modules: impl Iterator<Item = (Range<u64>, u64)>, homes: RunAddr) -> Regions {
        let mut groups: Vec<(Range<u64>, u64)> = Vec::new();
        for (module, room) in modules {
            let room = room.next_multiple_of(PAGE_BYTES);
            match groups.last_mut() {
                Some((near, sum)) if module.end.saturating_sub(near.start) < NEAR_BYTES => {
                    near.end = near.end.max(module.end);
                    *sum = sum.saturating_add(room);
                }
                _ => groups.push((module, room)),
            }
        }
        let region = |(near, room): (Range<u64>, u64)| {
            let with_more = room.saturating_add(LATER_BYTES);
            let reaches = |start: &u64| (start + with_more).max(homes.0) - homes.0.min(*start) < REACH_BYTES;
            let can_reach = near.end.max(homes.0) - near.start.min(homes.0) < REACH_BYTES;
            let (start, room) =
                match maps.free_near(near.clone(), with_more).filter(|start| !can_reach || reaches(start)) {
                    Some(start) => (start, with_more),
                    None => (maps.free_near(near.clone(), room)?, room),
                };
            Some(Region { near, space: start..start + room, next: start })
        };
        Regions(groups.into_iter().filter_map(region).collect())
    }

    /// The region that copies of a module can be in, and where they are put, which take `room` bytes at most: of one that was there at
    /// the beginning, or comes later and is as near. The program may have mapped something there meanwhile.
    pub(super) fn place(&self, module: Range<u64>, room: u64, maps: &Maps) -> Option<(usize, u64)> {
        let is_near = |region: &Region| {
            let copies = region.next..region.next.saturating_add(room);
            copies.end.max(module.end) - copies.start.min(module.start) < REACH_BYTES
        };
        let first = self.0.iter().position(|region| region.near.contains(&module.start));
        let index = first.or_else(|| self.0.iter().position(is_near))?;
        let region = self.0.get(index)?;
        let place = region.next..region.next.checked_add(room)?;
        let is_free = || maps.entries.iter().all(|entry| entry.end.0 <= place.start || place.end <= entry.start.0);
        (place.end <= region.space.end && is_free()).then_some((index, place.start))
    }

    /// Copies have been put into a region, up to an address.
    pub(super) fn take(&mut self, index: usize, end: RunAddr) {
        if let Some(region) = self.0.get_mut(index) {
            region.next = end.0.next_multiple_of(PAGE_BYTES);
        }
    }

    /// Those that copies know which are in a region: their own first.
    pub(super) fn known_in(&self, own: Option<usize>) -> [[u64; 2]; 2] {
        let own = own.and_then(|own| self.0.get(own));
        let others = self.0.iter().filter(|region| own.is_none_or(|own| *own != **region));
        let mut known =
            own.into_iter().chain(others).map(|region| [region.space.start, region.next - region.space.start]);
        [(); 2].map(|()| known.next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_modules_near_each_other_lie_behind_each_other() {
        let maps = Maps::parse(
            b"555555554000-555555555000 r-xp 0 0:0 0 /p\n7ffff7a00000-7ffff7a05000 r-xp 0 0:0 0 /a\n7ffff7b00000-7ffff7b01000 r-xp 0 0:0 0 /b\n",
        );
        let modules = [
            0x5555_5555_4000..0x5555_5555_5000,
            0x7fff_f7a0_0000..0x7fff_f7a0_5000,
            0x7fff_f7b0_0000..0x7fff_f7b0_1000,
        ];
        let mut regions =
            Regions::reserve(&maps, modules.iter().map(|module| (module.clone(), 0x1800)), RunAddr(0x7fff_f000_0000));
        assert_eq!(regions.known_in(None)[0][1], 0);
        let (program, at) = regions.place(modules[0].clone(), 0x1800, &maps).unwrap();
        regions.take(program, RunAddr(at + 0x10));
        let (first, a) = regions.place(modules[1].clone(), 0x1800, &maps).unwrap();
        regions.take(first, RunAddr(a + 0x1001));
        let (second, b) = regions.place(modules[2].clone(), 0x1800, &maps).unwrap();
        assert_eq!((first, b), (second, a + 0x2000));
        regions.take(second, RunAddr(b + 1));
        assert_eq!(regions.known_in(Some(first)), [[a, 0x3000], [at, 0x1000]]);
        assert_eq!(regions.known_in(Some(program)), [[at, 0x1000], [a, 0x3000]]);
        // One that comes later lies behind them, if nothing else does.
        let later = 0x7fff_f000_0000..0x7fff_f000_1000;
        assert_eq!(regions.place(later.clone(), 0x1800, &maps), Some((first, a + 0x3000)));
        let taken = format!("{:x}-{:x} rw-p 0 0:0 0\n", a + 0x4000, a + 0x5000);
        assert_eq!(regions.place(later, 0x1800, &Maps::parse(taken.as_bytes())), None);
        // It is full, or too far away.
        assert_eq!(regions.place(modules[1].clone(), 2 * LATER_BYTES, &maps), None);
        assert_eq!(regions.place(0x1000..0x2000, 1, &maps), None);
    }
}
