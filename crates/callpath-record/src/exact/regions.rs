//! Where copies lie: those of modules that are near each other one behind the other, with nothing between them.
//!
//! A copy that is called reads what stands at its return address only where it knows that this can be read
//! (`callpath_format::shared::activation`): in one of two regions, the one that it lies in and another.
//!
//! Copies of a large module begin with a large page, and what is left of the last one is for modules behind it.

use std::ops::Range;

use callpath_format::address::RunAddr;
use callpath_target::{LARGE_PAGE_BYTES, Maps, NewMemory, WORTH_LARGE_PAGES_BYTES};

const PAGE_BYTES: u64 = 4096;
/// Modules this far from each other are not in one region, bytes.
const NEAR_BYTES: u64 = 1 << 30;
/// The greatest distance at which copies and originals reach each other, bytes.
const REACH_BYTES: u64 = (1 << 31) - (1 << 24);
/// Address space that is left free for copies of libraries that come later, bytes.
const LATER_BYTES: u64 = 512 << 20;

/// What is to be copied of a module.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Where the module lies.
    pub(super) module: Range<u64>,
    /// Its copies are worth large pages, if that many are made ([`WORTH_LARGE_PAGES_BYTES`]).
    pub(super) is_large: bool,
    /// How much its copies may take, bytes.
    pub(super) room: u64,
}

/// Address space that copies may be put in.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Region {
    /// The modules that are near it.
    near: Range<u64>,
    /// All of it.
    space: Range<u64>,
    /// Behind the last copies.
    next: u64,
    /// Behind what is mapped for copies: there, or in the large page that they end in.
    mapped: u64,
}

impl Region {
    /// Where the copies of a module begin, if they are the next.
    fn place(&self, wanted: &Wanted) -> u64 {
        let begins_pages = wanted.is_large && self.next == self.mapped;
        if begins_pages { self.next.next_multiple_of(LARGE_PAGE_BYTES) } else { self.next }
    }

    /// How far memory has to be mapped for copies of a module that end at `end`.
    fn mapped_for(&self, wanted: &Wanted, end: RunAddr) -> u64 {
        let is_large = wanted.is_large && end.0.saturating_sub(self.place(wanted)) >= WORTH_LARGE_PAGES_BYTES;
        let unit = if is_large { LARGE_PAGE_BYTES } else { PAGE_BYTES };
        end.0.next_multiple_of(unit).min(self.space.end).max(self.mapped)
    }
}

/// The regions of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Regions(Vec<Region>);

impl Regions {
    /// For modules, by ascending address. Where there is not enough address space for all that are near each other, they have no region.
    /// `homes`: what copies there have to reach, where some can at all.
    pub(super) fn reserve(maps: &Maps, modules: impl Iterator<Item = Wanted>, homes: RunAddr) -> Regions {
        let mut groups: Vec<(Range<u64>, u64)> = Vec::new();
        for Wanted { module, room, .. } in modules {
            let room = room.next_multiple_of(PAGE_BYTES).saturating_add(LARGE_PAGE_BYTES);
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
            let free = |room: u64| {
                let start = maps.free_near(near.clone(), room.saturating_add(LARGE_PAGE_BYTES))?;
                Some(start.next_multiple_of(LARGE_PAGE_BYTES))
            };
            let reaches = |start: &u64| (start + with_more).max(homes.0) - homes.0.min(*start) < REACH_BYTES;
            let can_reach = near.end.max(homes.0) - near.start.min(homes.0) < REACH_BYTES;
            let (start, room) = match free(with_more).filter(|start| !can_reach || reaches(start)) {
                Some(start) => (start, with_more),
                None => (free(room)?, room),
            };
            Some(Region { near, space: start..start + room, next: start, mapped: start })
        };
        Regions(groups.into_iter().filter_map(region).collect())
    }

    /// The region that copies of a module can be in, and where they are put: of one that was there at the beginning, or comes later and
    /// is as near. The program may have mapped something there meanwhile.
    pub(super) fn place(&self, wanted: &Wanted, maps: &Maps) -> Option<(usize, u64)> {
        let Wanted { module, room, .. } = wanted;
        let is_near = |region: &Region| {
            let start = region.place(wanted);
            start.saturating_add(*room).max(module.end) - start.min(module.start) < REACH_BYTES
        };
        let first = self.0.iter().position(|region| region.near.contains(&module.start));
        let index = first.or_else(|| self.0.iter().position(is_near))?;
        let region = self.0.get(index)?;
        let start = region.place(wanted);
        let end = start.checked_add(*room)?;
        // To map: with what lies before it, so that all of a region can be read.
        let is_free =
            || maps.entries.iter().all(|entry| entry.end.0 <= region.mapped || end.max(region.mapped) <= entry.start.0);
        (end <= region.space.end && is_free()).then_some((index, start))
    }

    /// The memory that copies of a module need which end at `end`, besides what is mapped.
    pub(super) fn memory_for(&self, index: usize, wanted: &Wanted, end: RunAddr) -> Option<NewMemory<'static>> {
        let region = self.0.get(index)?;
        let len_bytes = region.mapped_for(wanted, end) - region.mapped;
        (len_bytes > 0).then_some(NewMemory::Code { at: RunAddr(region.mapped), len_bytes })
    }

    /// Copies of a module have been put into a region, up to an address.
    pub(super) fn take(&mut self, index: usize, wanted: &Wanted, end: RunAddr) {
        if let Some(region) = self.0.get_mut(index) {
            region.mapped = region.mapped_for(wanted, end);
            region.next = end.0.next_multiple_of(PAGE_BYTES);
        }
    }

    /// What comes next begins with memory of its own: forks of a program do not load the same libraries, and have what each needs.
    pub(super) fn begin_anew(&mut self) {
        self.0.iter_mut().for_each(|region| region.next = region.mapped);
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

    fn range(memory: Option<NewMemory<'_>>) -> Option<Range<u64>> {
        memory.map(|memory| match memory {
            NewMemory::Code { at, len_bytes } => at.0..at.0 + len_bytes,
            other => panic!("{other:?}"),
        })
    }

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
        let wanted = |module: &Range<u64>, room| Wanted { module: module.clone(), is_large: false, room };
        let [one, two, three] = modules.each_ref().map(|module| wanted(module, 0x1800));
        let all = [&one, &two, &three].map(Clone::clone).into_iter();
        let mut regions = Regions::reserve(&maps, all, RunAddr(0x7fff_f000_0000));
        assert_eq!(regions.known_in(None)[0][1], 0);
        let (program, at) = regions.place(&one, &maps).unwrap();
        regions.take(program, &one, RunAddr(at + 0x10));
        let (first, a) = regions.place(&two, &maps).unwrap();
        let memory = regions.memory_for(first, &two, RunAddr(a + 0x1001));
        assert_eq!(range(memory), Some(a..a + 0x2000));
        regions.take(first, &two, RunAddr(a + 0x1001));
        let (second, b) = regions.place(&three, &maps).unwrap();
        assert_eq!((first, b), (second, a + 0x2000));
        regions.take(second, &three, RunAddr(b + 1));
        assert_eq!(regions.known_in(Some(first)), [[a, 0x3000], [at, 0x1000]]);
        assert_eq!(regions.known_in(Some(program)), [[at, 0x1000], [a, 0x3000]]);
        // One that comes later lies behind them, if nothing else does.
        let later = wanted(&(0x7fff_f000_0000..0x7fff_f000_1000), 0x1800);
        assert_eq!(regions.place(&later, &maps), Some((first, a + 0x3000)));
        let taken = format!("{:x}-{:x} rw-p 0 0:0 0\n", a + 0x4000, a + 0x5000);
        assert_eq!(regions.place(&later, &Maps::parse(taken.as_bytes())), None);
        // It is full, or too far away.
        assert_eq!(regions.place(&wanted(&modules[1], 2 * LATER_BYTES), &maps), None);
        assert_eq!(regions.place(&wanted(&(0x1000..0x2000), 1), &maps), None);
    }

    #[test]
    fn copies_of_large_modules_lie_in_large_pages() {
        let maps = Maps::parse(b"7ffff7a00000-7ffff7b05000 r-xp 0 0:0 0 /a\n");
        let module = 0x7fff_f7a0_0000..0x7fff_f7b0_5000;
        let small = Wanted { module: module.clone(), is_large: false, room: 0x5000 };
        let large = Wanted { module, is_large: true, room: 0x30_0000 };
        let all = [&small, &large, &small, &large].map(Clone::clone).into_iter();
        let mut regions = Regions::reserve(&maps, all, RunAddr(0x7fff_f7a0_0000));
        let mut put = |wanted: &Wanted, len: u64| {
            let (index, at) = regions.place(wanted, &maps).unwrap();
            let memory = regions.memory_for(index, wanted, RunAddr(at + len));
            regions.take(index, wanted, RunAddr(at + len));
            (at, range(memory))
        };
        let (start, first) = put(&small, 0x1800);
        assert!(start.is_multiple_of(LARGE_PAGE_BYTES));
        assert_eq!(first, Some(start..start + 0x2000));
        // It is mapped together with what lies between.
        let (at, second) = put(&large, 0x20_1000);
        assert_eq!((at, second), (start + 0x20_0000, Some(start + 0x2000..start + 0x60_0000)));
        // There is room behind it, which is mapped. Of large modules less may be chosen.
        assert_eq!(put(&small, 0x1000), (start + 0x40_1000, None));
        assert_eq!(put(&large, 0x1000), (start + 0x40_2000, None));
        assert_eq!(put(&large, 0x20_0000), (start + 0x40_3000, Some(start + 0x60_0000..start + 0x80_0000)));
        regions.begin_anew();
        assert_eq!(regions.place(&small, &maps), Some((0, start + 0x80_0000)));
    }
}
