//! Which recipe holds where: the load map and recipe tables behind a small cache of program counters.

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};
use callpath_format::frame::{CloneNumber, FrameKey};
use callpath_format::recipe::{Expression, Packed, Recipe};
use callpath_format::shared::load_map::{CurrentMap, Mapping};
use callpath_format::shared::thread::layout;
use callpath_format::shared::{CHUNK_LEN_BYTES, ThreadRecord};
use callpath_format::table::RecipeId;
use callpath_unwind::{CodeMap, Located, Memory};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU64, fence};

use crate::process::Process;
use crate::sample::Sample;
use crate::stack::Probed;

const RETRIES: u32 = 4;

/// The code of a process as one thread's sample sees it.
pub(crate) struct Code<'p, 'm> {
    process: &'p Process<'m>,
    cache: &'m [[AtomicU64; 4]],
    map: CurrentMap,
    /// Where the bytes of generated code are read.
    memory: Probed,
    /// Some frame's code is not in the load map, its table is still being built, or it was generated at run time and is
    /// not what its table was built for: the recorder may know more.
    pub(crate) unknown_code: bool,
    /// Where the first of it was generated at run time.
    pub(crate) unknown_generated: Option<RunAddr>,
    /// An address of it that is not in the load map.
    pub(crate) unmapped: Option<RunAddr>,
    /// Some frame is one of generated code.
    pub(crate) met_generated: bool,
    /// What this walk has found of generated code, by its address and whether
    /// it was returned to: recursion meets it again.
    memo: &'m [[AtomicU64; 4]],
}

/// The answer to a look-up of an address, and whether it holds as long as the load map does.
struct Lookup {
    located: Located,
    lasts: bool,
}

impl<'p, 'm> Code<'p, 'm> {
    /// `None`: the thread's chunk is not in the arena.
    pub(crate) fn new(sample: &Sample<'p, 'm>) -> Option<Code<'p, 'm>> {
        let Sample { process, thread, .. } = *sample;
        let words = process.arena.slice_at::<AtomicU64>(
            thread.chunk.0 as usize * CHUNK_LEN_BYTES + layout::PC_CACHE,
            layout::PC_CACHE_LEN * 4,
        )?;
        let (cache, _) = words.as_chunks();
        let words = process
            .arena
            .slice_at::<AtomicU64>(thread.chunk.0 as usize * CHUNK_LEN_BYTES + layout::MEMO, layout::MEMO_LEN * 4)?;
        let memory = Probed::new(sample.in_sample);
        let mut code = Code {
            process,
            cache,
            map: CurrentMap::default(),
            memory,
            unknown_code: false,
            unknown_generated: None,
            unmapped: None,
            met_generated: false,
            memo: words.as_chunks().0,
        };
        code.follow_map(thread.record);
        // What is found of generated code is compared with its bytes each time, so it is remembered for one walk only.
        code.memo.iter().for_each(|entry| entry[0].store(0, Relaxed));
        Some(code)
    }

    /// Empties the cache if the load map is another one than it was filled from.
    ///
    /// The record names the load map that the sample uses, which keeps whatever that map names
    /// from being overwritten during the sample: the recorder publishes a map before it looks at
    /// `busy`, we look at the map after we have set that.
    fn follow_map(&mut self, record: &ThreadRecord) {
        self.map = CurrentMap(self.process.slot.load_map.load(SeqCst));
        let generation = self.map.generation();
        if record.cache_generation.load(Relaxed) != generation {
            for entry in self.cache {
                entry[0].store(0, Relaxed);
            }
            record.cache_generation.store(generation, Release);
        }
    }

    fn find_mapping(&mut self, addr: RunAddr) -> Option<Mapping> {
        for _ in 0..RETRIES {
            let found = self.process.published.load_map(self.map.offset()).and_then(|m| m.find(addr));
            if self.is_current() {
                return found;
            }
            self.map = CurrentMap(self.process.slot.load_map.load(Acquire));
        }
        None
    }

    /// Whether what was read of what the map names was read while it named it.
    fn is_current(&self) -> bool {
        fence(Acquire);
        CurrentMap(self.process.slot.load_map.load(Relaxed)) == self.map
    }

    #[cold]
    #[inline(never)]
    fn locate_slowly(&mut self, point: CodePoint) -> Lookup {
        let addr = point.lookup();
        let memo_key = addr.0 << 1 | u64::from(matches!(point, CodePoint::Return(_)));
        let memo = self.memo.get((addr.0 ^ (addr.0 >> 4)) as usize % layout::MEMO_LEN);
        if let Some(entry) = memo.filter(|entry| entry[0].load(Relaxed) == memo_key) {
            return Lookup { located: unpacked(entry), lasts: false };
        }
        let outside = Located { key: FrameKey::outside(addr), recipe: UNKNOWN, table: 0 };
        let Some(mapping) = self.find_mapping(addr) else {
            self.unknown_code = true;
            self.unmapped = Some(addr);
            return Lookup { located: outside, lasts: false };
        };
        self.met_generated |= mapping.flags & (Mapping::PENDING | Mapping::GENERATED) != 0;
        if mapping.flags & Mapping::PENDING != 0 {
            self.note_generated(addr);
        }
        if mapping.flags & Mapping::GENERATED != 0 {
            let located = self.locate_generated(&mapping, point);
            if let Some(entry) = memo {
                pack(entry, memo_key, &located);
            }
            return Lookup { located, lasts: false };
        }
        let link = addr.to_link(mapping.bias);
        let Some((key, table_at)) = self.key_and_table(&mapping, link) else {
            return Lookup { located: outside, lasts: false };
        };
        let Some(table) = self.process.published.table(table_at) else {
            return Lookup { located: Located { key, ..outside }, lasts: false };
        };
        let found = table.find(link).and_then(|id| Some((id, table.packed(id)?)));
        let located = match found {
            // The map needs to know which recipe it was: `open` looks it up again from here.
            Some((id, recipe)) if recipe.kind() == Packed::WIDE => {
                Located { key, recipe, table: table_at << 16 | u64::from(id.0) }
            }
            Some((_, recipe)) => Located { key, recipe, table: table_at << 16 },
            None => Located { key, recipe: UNKNOWN, table: 0 },
        };
        let kind = located.recipe.kind();
        self.unknown_code |= mapping.flags & Mapping::UNFINISHED != 0 && kind == Packed::UNKNOWN;
        let mut located = located;
        if mapping.flags & Mapping::PINNED != 0 {
            located.recipe.head |= Packed::PINNED;
        }
        if mapping.flags & Mapping::CATCHES != 0 {
            located.recipe.head |= Packed::PINS_CALLEE;
        }
        Lookup { located, lasts: kind != Packed::WIDE && kind != Packed::UNKNOWN }
    }

    /// The frame's key at an address of a module, and where the table is that has its recipe. Code that was moved belongs
    /// to where it comes from. `None`: there is no code.
    fn key_and_table(&self, mapping: &Mapping, link: LinkAddr) -> Option<(FrameKey, u64)> {
        if mapping.flags & Mapping::MOVED == 0 {
            return Some((FrameKey::in_module(mapping.module, link), mapping.table));
        }
        let (moved, table_at) = self.process.published.moved(mapping.table)?;
        Some((moved.key_of(mapping.module, link)?, table_at))
    }

    /// The clone of a procedure that an address is in.
    pub(crate) fn clone_at(&mut self, addr: RunAddr) -> CloneNumber {
        let Some(mapping) = self.find_mapping(addr).filter(|mapping| mapping.flags & Mapping::MOVED != 0) else {
            return CloneNumber::NONE;
        };
        let moved = self.process.published.moved(mapping.table);
        moved.map_or(CloneNumber::NONE, |(moved, _)| moved.clone_at(addr.to_link(mapping.bias)))
    }

    /// Code that the program generated at run time: its recipe holds if its procedure is still the one that was
    /// analysed, and a return address in it follows a call.
    fn locate_generated(&mut self, mapping: &Mapping, point: CodePoint) -> Located {
        let addr = point.lookup();
        let key = FrameKey::in_module(mapping.module, addr.to_link(mapping.bias));
        let recipe = self.recipe_of_generated(mapping, point);
        // What was read may be another stretch's by now: it is this one's if the map has not changed meanwhile.
        let is_current = self.is_current();
        let recipe = recipe.filter(|recipe| is_current && recipe.kind() != Packed::UNKNOWN);
        if recipe.is_none() && mapping.flags & Mapping::HOPELESS == 0 {
            self.note_generated(addr);
        }
        Located { key, recipe: recipe.unwrap_or(UNKNOWN), table: 0 }
    }

    fn note_generated(&mut self, addr: RunAddr) {
        if !self.unknown_code {
            self.unknown_generated = Some(addr);
        }
        self.unknown_code = true;
    }

    fn recipe_of_generated(&mut self, mapping: &Mapping, point: CodePoint) -> Option<Packed> {
        let addr = point.lookup();
        let generated = self.process.published.generated(mapping.table)?;
        let procedure = generated.procedure_at(addr)?;
        if matches!(point, CodePoint::Return(_)) && !generated.is_call_end(addr) {
            return None;
        }
        if procedure.mark_now(|at| self.memory.read_u64(at))? != procedure.mark {
            return None;
        }
        let table = generated.table()?;
        // Wide recipes are left to the recorder: generated code rarely needs one.
        table.packed(table.find(addr.to_link(mapping.bias))?).filter(|recipe| recipe.kind() != Packed::WIDE)
    }
}

const UNKNOWN: Packed = Packed { disp: 0, add: 0, head: Packed::UNKNOWN, slots: [0; 6] };

/// What an entry of a cache holds.
#[inline]
fn unpacked(entry: &[AtomicU64; 4]) -> Located {
    let (a, b) = (entry[2].load(Relaxed), entry[3].load(Relaxed));
    Located {
        key: FrameKey(entry[1].load(Relaxed)),
        recipe: Packed {
            disp: a as i32,
            add: (a >> 32) as i32,
            head: b as u16,
            slots: [
                (b >> 16) as u8,
                (b >> 24) as u8,
                (b >> 32) as u8,
                (b >> 40) as u8,
                (b >> 48) as u8,
                (b >> 56) as u8,
            ],
        },
        table: 0,
    }
}

fn pack(entry: &[AtomicU64; 4], key: u64, located: &Located) {
    let recipe = located.recipe;
    let slots = recipe.slots.iter().rev().fold(0u64, |word, slot| word << 8 | u64::from(*slot));
    entry[0].store(key, Relaxed);
    entry[1].store(located.key.0, Relaxed);
    entry[2].store(u64::from(recipe.disp as u32) | u64::from(recipe.add as u32) << 32, Relaxed);
    entry[3].store(u64::from(recipe.head) | slots << 16, Relaxed);
}

impl CodeMap for Code<'_, '_> {
    #[inline]
    fn locate(&mut self, addr: RunAddr) -> Located {
        self.locate_point(CodePoint::Exact(addr))
    }

    #[inline]
    fn locate_point(&mut self, point: CodePoint) -> Located {
        let addr = point.lookup();
        // Calls are at least two bytes long: neighbours share the lowest bit of entropy.
        let index = (addr.0 ^ (addr.0 >> 8)) as usize % layout::PC_CACHE_LEN;
        let Some(entry) = self.cache.get(index) else { return self.locate_slowly(point).located };
        if entry[0].load(Relaxed) == addr.0 {
            return unpacked(entry);
        }
        let Lookup { located, lasts } = self.locate_slowly(point);
        if lasts {
            pack(entry, addr.0, &located);
        }
        located
    }

    fn open(&self, located: &Located) -> Option<Recipe> {
        self.process.published.table(located.table >> 16)?.recipe(RecipeId(located.table as u16))
    }

    fn expression(&self, located: &Located, expression: Expression) -> Option<&[u8]> {
        self.process.published.table(located.table >> 16)?.expression(expression)
    }
}
