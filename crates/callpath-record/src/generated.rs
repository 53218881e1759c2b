//! Code that a process has generated at run time: read from its memory when a sample meets it, analysed, published.
//!
//! Such code is analysed in stretches of 64 KiB, each when a frame lies in it for the first time, and again
//! when a frame lies in bytes that have changed since. A stretch's recipes are used only after its bytes have
//! been compared, by the collector in the process and by the recorder here. Beyond an initial budget,
//! analysing takes at most a twentieth of the time.

mod budget;
mod calls;
mod followed;
mod look;
mod memory;
mod stretch;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::ModuleIndex;
use callpath_format::recipe::Packed;
use callpath_format::shared::load_map::Mapping;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::ModuleRecord;
use callpath_tables::recipes::generated::{
    CodeAt, JumpOperand, Return, build_again, build_generated, has_frame_pointer, return_ahead,
};
use callpath_target::{MapEntry, Pid, read_memory};
use rustc_hash::FxHashMap;

use budget::Budget;
use memory::{Memory, Pages};
use stretch::{Rewritten, Stretch, recipe_in};

pub(crate) use look::{CodeState, Look};
pub(crate) use stretch::Witness;

use crate::jit_frames::{Described, JitFrames};
use crate::publish::{Publisher, Region};

const STRETCH_BYTES: u64 = 64 << 10;
/// How much is read around a stretch, for procedures that reach out of it, bytes.
const MARGIN_BYTES: u64 = 16 << 10;
/// Each stretch may take one part in this many of the time: one that changes all the time is left alone for a while.
const STRETCH_SHARE: u32 = 20;
/// The same while less than half of the initial budget is spent: code changes while a program starts.
const STRETCH_SHARE_AT_FIRST: u32 = 4;
/// A stretch is analysed as a whole at most so often.
const ANEW_EVERY: Duration = Duration::from_secs(1);
/// How often samples of code that may not be analysed yet are looked at.
const LOOK_AGAIN_EVERY: Duration = Duration::from_millis(20);
/// How many versions of code at the same address are distinguished.
const VERSIONS: usize = 64;
/// The name of memory without a name.
const NAMELESS: &str = "[jit]";

/// The generated code of a process.
pub(crate) struct GeneratedCode {
    pid: Pid,
    memory: Memory,
    areas: Vec<Area>,
    /// By where they begin: two areas may share a multiple of [`STRETCH_BYTES`].
    stretches: FxHashMap<u64, Stretch>,
    /// Regions of stretches that were given up.
    replaced: Vec<Region>,
    /// The code of each version, by its module, and where it starts.
    versions: FxHashMap<ModuleIndex, (RunAddr, Rc<[u8]>)>,
    budget: Budget,
    /// The published load map is out of date.
    pub(crate) changed: bool,
    /// Code was met that may be analysed, but not yet.
    pub(crate) postponed: bool,
    /// When samples that wait for that were looked at.
    looked: Instant,
    /// The last witness and the answer from its bytes: those of the next sample are mostly the same.
    last_answer: Option<(RunAddr, Vec<u8>, Vec<u8>)>,
    /// Where its code continues in that of files, by instruction.
    followed: FxHashMap<RunAddr, followed::Followed>,
    /// Where an interpreter jumps to what it does not name.
    dispatchers: Vec<(RunAddr, JumpOperand)>,
    /// Whether procedures of files continue in code that they do not name, by start address, for the current mappings.
    go_on: FxHashMap<RunAddr, bool>,
    /// Frames that the program describes itself.
    pub(crate) described: JitFrames,
}

/// An executable mapping that no module of a file lies in.
#[derive(Clone, PartialEq, Eq)]
struct Area {
    range: Range<RunAddr>,
    name: PathBuf,
    module: ModuleIndex,
    /// Where the mappings begin that it is put together from, ascending.
    mappings: Vec<RunAddr>,
}

/// The unit of generated code that a frame lies in.
pub(crate) enum Bounds {
    /// A procedure.
    Procedure(Range<RunAddr>),
    /// A mapping, if no procedure is known there.
    Mapping(Range<RunAddr>),
}

/// A process's modules, as far as they are named here.
pub(crate) type ModuleList = Vec<ModuleRecord>;

impl GeneratedCode {
    pub(crate) fn new(pid: Pid) -> GeneratedCode {
        GeneratedCode {
            pid,
            memory: Memory::new(pid),
            areas: Vec::new(),
            stretches: FxHashMap::default(),
            replaced: Vec::new(),
            versions: FxHashMap::default(),
            budget: Budget::new(),
            changed: false,
            postponed: false,
            looked: Instant::now(),
            last_answer: None,
            followed: FxHashMap::default(),
            dispatchers: Vec::new(),
            go_on: FxHashMap::default(),
            described: JitFrames::default(),
        }
    }

    /// The executable mappings that belong to no module, as they are now, and whether their name is a file's.
    pub(crate) fn set_areas(&mut self, entries: &[(&MapEntry, bool)], modules: &mut ModuleList) {
        let mut areas: Vec<Area> = Vec::new();
        for (entry, is_of_file) in entries {
            // Mappings without a file have names in brackets already: `[heap]`, `[stack]`.
            let nameless = !is_of_file && !entry.path.as_os_str().as_encoded_bytes().starts_with(b"[");
            let name = if nameless { Path::new(NAMELESS) } else { &entry.path };
            match areas.last_mut() {
                Some(last) if last.range.end == entry.start && last.name == name => {
                    last.range.end = entry.end;
                    last.mappings.push(entry.start);
                }
                _ => {
                    let module = module_index(modules, name, None);
                    let (range, mappings) = (entry.start..entry.end, vec![entry.start]);
                    areas.push(Area { range, name: name.to_owned(), module, mappings });
                }
            }
        }
        areas.sort_by_key(|area| area.range.start);
        if self.areas != areas {
            self.forget_calls();
        }
        self.areas = areas;
        let bases: Vec<u64> = self.stretches.keys().copied().collect();
        for base in bases {
            let as_it_was =
                self.stretches.get(&base).is_some_and(|s| self.range_at(s.range.start) == Some(s.range.clone()));
            if !as_it_was {
                self.forget(base);
            }
        }
    }

    fn forget(&mut self, base: u64) {
        self.replaced.extend(self.stretches.remove(&base).and_then(|stretch| stretch.region));
    }

    /// Gives up everything that is published.
    pub(crate) fn forget_all(&mut self) {
        self.replaced.extend(self.stretches.drain().filter_map(|(_, stretch)| stretch.region));
    }

    /// The regions that the last [`mappings`](GeneratedCode::mappings) do not name any more.
    pub(crate) fn take_replaced(&mut self) -> impl Iterator<Item = Region> {
        self.replaced.drain(..)
    }

    /// Forgets stretches that were given up, if they are not what they were.
    pub(crate) fn look_again(&mut self) {
        let given_up: Vec<u64> =
            self.stretches.iter().filter(|(_, s)| s.is_hopeless()).map(|(base, _)| *base).collect();
        for base in given_up {
            let pid = self.pid;
            let is_same = self.stretches.get(&base).is_some_and(|stretch| {
                let mut now = vec![0; stretch.code.len()];
                read_memory(pid, stretch.code_start.0, &mut now) == now.len() && now == *stretch.code
            });
            if !is_same {
                self.forget(base);
                self.changed = true;
            }
        }
    }

    /// The mappings of a load map; results since the last time are published with them.
    pub(crate) fn mappings(&mut self, publisher: &mut Publisher) -> Vec<Mapping> {
        self.changed = false;
        let mut bases: Vec<u64> = self.stretches.keys().copied().collect();
        bases.sort_unstable();
        let mut mappings = Vec::new();
        let mut bases = bases.into_iter().peekable();
        for area in &self.areas {
            let mut at = area.range.start;
            let pending = |from: RunAddr, to: RunAddr| Mapping {
                start: from,
                end: to,
                bias: 0,
                table: 0,
                module: area.module,
                told: 0,
                flags: Mapping::PENDING,
            };
            while let Some(stretch) =
                bases.next_if(|base| *base < area.range.end.0).and_then(|base| self.stretches.get_mut(&base))
            {
                if stretch.region.is_none() {
                    stretch.region = publisher.put(&stretch.build.block);
                }
                if at < stretch.range.start {
                    mappings.push(pending(at, stretch.range.start));
                }
                let hopeless = if stretch.is_hopeless() { Mapping::HOPELESS } else { 0 };
                mappings.push(Mapping {
                    start: stretch.range.start,
                    end: stretch.range.end,
                    bias: 0,
                    table: stretch.region.map_or(0, Region::offset),
                    module: stretch.module,
                    told: 0,
                    flags: Mapping::GENERATED | hopeless,
                });
                at = stretch.range.end;
            }
            if at < area.range.end {
                mappings.push(pending(at, area.range.end));
            }
        }
        mappings
    }

    /// Whether there is any.
    pub(crate) fn is_there(&self) -> bool {
        !self.areas.is_empty()
    }

    /// The modules that such code has had, by index.
    pub(crate) fn is_module(&self, module: ModuleIndex) -> bool {
        self.versions.contains_key(&module) || self.areas.iter().any(|area| area.module == module)
    }

    /// The unit that a frame lies in, as far as known.
    pub(crate) fn bounds(&self, module: ModuleIndex, addr: RunAddr) -> Option<Bounds> {
        let stretch = self.stretch_at(addr).filter(|stretch| stretch.module == module);
        let procedure = stretch.and_then(|stretch| stretch.procedure_at(addr));
        let procedure = procedure.map(|procedure| {
            let end = RunAddr(procedure.start.0.saturating_add(procedure.len_bytes.into()));
            Bounds::Procedure(procedure.start..end)
        });
        procedure.or_else(|| {
            let area = self.area(addr)?;
            let at = area.mappings.partition_point(|start| *start <= addr);
            let end = area.mappings.get(at).copied().unwrap_or(area.range.end);
            Some(Bounds::Mapping(*area.mappings.get(at.checked_sub(1)?)?..end))
        })
    }

    /// The name of a frame's module.
    pub(crate) fn name_of(&self, addr: RunAddr) -> Option<&Path> {
        self.area(addr).map(|area| area.name.as_path())
    }

    /// A view of the code as it is now.
    pub(crate) fn look(&self) -> Look<'_> {
        Look { code: self, now: FxHashMap::default() }
    }

    /// Retains the code at a waiting sample's pc and at the targets of words on its stack: the
    /// process may have ended when the walk continues.
    pub(crate) fn retain(&mut self, words: impl Iterator<Item = u64>) {
        let (Some(first), Some(last)) = (self.areas.first(), self.areas.last()) else { return };
        let all = first.range.start.0..last.range.end.0;
        for word in words.filter(|word| all.contains(word)) {
            let Some(range) = self.range_at(RunAddr(word)) else { continue };
            let Some(around) = self.around(&range) else { continue };
            self.memory.retain(around);
        }
    }

    /// The range that is read for a stretch, with the procedures that reach out of it.
    fn around(&self, range: &Range<RunAddr>) -> Option<Range<RunAddr>> {
        let area = self.area(range.start)?;
        let from = RunAddr(range.start.0.saturating_sub(MARGIN_BYTES).max(area.range.start.0));
        Some(from..RunAddr(range.end.0.saturating_add(MARGIN_BYTES).min(area.range.end.0)))
    }

    /// The process has ended: what samples of its code still wait for is analysed, within a bound.
    pub(crate) fn finish(&mut self) {
        self.budget.finish();
    }

    /// Another round of serving begins.
    pub(crate) fn begin_round(&mut self) {
        self.budget.begin_round();
    }

    /// Whether `addr` is in generated code.
    pub(crate) fn holds(&self, addr: RunAddr) -> bool {
        self.area(addr).is_some()
    }

    fn area(&self, addr: RunAddr) -> Option<&Area> {
        let index = self.areas.partition_point(|area| area.range.end <= addr);
        self.areas.get(index).filter(|area| area.range.start <= addr)
    }

    /// The stretch in which `addr` lies, or would lie.
    fn range_at(&self, addr: RunAddr) -> Option<Range<RunAddr>> {
        let area = self.area(addr)?;
        let base = addr.0 & !(STRETCH_BYTES - 1);
        let end = base.saturating_add(STRETCH_BYTES).min(area.range.end.0);
        Some(RunAddr(base.max(area.range.start.0))..RunAddr(end))
    }

    /// The stretch in which `addr` lies, if it has been analysed.
    fn stretch_at(&self, addr: RunAddr) -> Option<&Stretch> {
        self.stretches.get(&self.range_at(addr)?.start.0)
    }

    /// The module of a point in generated code, and its recipe if one holds for the bytes as they are now.
    pub(crate) fn locate(
        &mut self,
        point: CodePoint,
        witness: &Witness,
        modules: &mut ModuleList,
    ) -> (ModuleIndex, Option<Packed>) {
        let addr = point.lookup();
        let nowhere = (ModuleIndex::NONE, None);
        let Some(range) = self.range_at(addr) else { return nowhere };
        let base = range.start.0;
        let known = self.stretches.get(&base).filter(|stretch| stretch.range == range);
        let mut is_current = known.is_some_and(|stretch| stretch.is_as_analysed(&self.memory, addr));
        let is_wanted = !is_current || known.is_some_and(|stretch| stretch.begins_anew);
        if is_wanted && known.is_none_or(Stretch::is_due) {
            is_current |= self.analyse(range.clone(), modules);
        }
        let mut is_postponed = !is_current;
        let (module, found) = match self.stretches.get(&base).filter(|stretch| stretch.range == range) {
            Some(stretch) => (stretch.module, stretch.recipe(point, witness, is_current)),
            None => (self.area(addr).map_or(ModuleIndex::NONE, |area| area.module), Err(Rewritten)),
        };
        let recipe = found.unwrap_or_else(|Rewritten| {
            // The code as it was when the sample was taken decides.
            let recipe = self.recipe_by(witness, point);
            is_postponed |= recipe.is_none();
            recipe
        });
        self.postponed |= is_postponed && recipe.is_none();
        (module, recipe)
    }

    /// Whether it is time to look again at samples of code that could not be analysed.
    pub(crate) fn shall_look_again(&mut self) -> bool {
        let is_time = self.looked.elapsed() >= LOOK_AGAIN_EVERY && self.budget.allows();
        if is_time {
            self.looked = Instant::now();
        }
        is_time
    }

    /// The answer from a witness's own bytes for a point, if the budget allows.
    fn recipe_by(&mut self, witness: &Witness, point: CodePoint) -> Option<Packed> {
        if !(witness.start..witness.end()).contains(&point.lookup()) {
            return None;
        }
        let is_same = |last_answer: &(RunAddr, Vec<u8>, Vec<u8>)| {
            last_answer.0 == witness.start && last_answer.1 == witness.bytes
        };
        if !self.last_answer.as_ref().is_some_and(is_same) {
            if !self.budget.allows() {
                return None;
            }
            let began = Budget::now();
            let build =
                build_generated(CodeAt { start: witness.start, bytes: &witness.bytes }, witness.start..witness.end());
            self.budget.charge(began);
            self.last_answer = Some((witness.start, witness.bytes.clone(), build.block));
        }
        let (_, _, block) = self.last_answer.as_ref()?;
        recipe_in(block, point)
    }

    /// Reads and analyses a stretch; `false`: not now.
    fn analyse(&mut self, range: Range<RunAddr>, modules: &mut ModuleList) -> bool {
        if !self.budget.allows() {
            return false;
        }
        let began = Budget::now();
        let Some((area, around)) = self.area(range.start).zip(self.around(&range)) else { return false };
        let from = around.start;
        let mut code = vec![0; (around.end.0 - from.0) as usize];
        let got = self.memory.read(from.0, &mut code);
        // The process has ended, or has unmapped it: known results stay.
        if got == 0 {
            return false;
        }
        code.truncate(got);
        let (name, fallback) = (area.name.clone(), area.module);
        let base = range.start.0;
        let before = self.stretches.remove(&base);
        let now = CodeAt { start: from, bytes: &code };
        let known = before.as_ref().filter(|before| before.code_start == from && before.range == range);
        let (build, is_pieced) = match known.filter(|known| !known.begins_anew) {
            Some(known) => (build_again(&known.build, &known.code, now, range.clone()), true),
            None => (build_generated(now, range.clone()), false),
        };
        let module = match &before {
            // What was there is there still; something has been added.
            Some(before) if before.build.procedures.iter().all(|procedure| build.procedures.contains(procedure)) => {
                before.module
            }
            _ if self.versions.len() >= VERSIONS => fallback,
            _ => module_index(modules, &name, Some(build.identity.clone())),
        };
        let code: Rc<[u8]> = code.into();
        if module != fallback {
            self.versions.insert(module, (from, Rc::clone(&code)));
        }
        let spent = self.budget.charge(began);
        let share = if self.budget.is_at_first() { STRETCH_SHARE_AT_FIRST } else { STRETCH_SHARE };
        // The first time all of it is analysed, later only what has changed.
        // The later times show what following it costs.
        let due = Instant::now() + if is_pieced { spent * share } else { Duration::ZERO };
        let whole_since = before.as_ref().filter(|_| is_pieced).map_or_else(Instant::now, |before| before.whole_since);
        let stretch = Stretch {
            range,
            code_start: from,
            code,
            build,
            is_pieced,
            begins_anew: false,
            whole_since,
            module,
            due,
            region: None,
            tries: 0,
            successes: 0,
        };
        self.stretches.insert(base, stretch);
        self.replaced.extend(before.and_then(|before| before.region));
        self.changed = true;
        true
    }

    /// Counts whether frames at `addr` that have no recipe can be walked over in another way.
    pub(crate) fn note_try(&mut self, addr: RunAddr, success: bool) {
        let Some(range) = self.range_at(addr) else { return };
        let Some(stretch) = self.stretches.get_mut(&range.start.0) else { return };
        let was_hopeless = stretch.is_hopeless();
        stretch.tries += 1;
        stretch.successes += u32::from(success);
        // What has changed may have told more of code farther away.
        stretch.begins_anew |= !success && stretch.is_pieced && stretch.whole_since.elapsed() >= ANEW_EVERY;
        self.changed |= stretch.is_hopeless() != was_hopeless;
    }

    /// Whether rbp surely is the pointer of a frame of the code at a point.
    pub(crate) fn is_framed(&self, point: CodePoint) -> bool {
        let addr = point.lookup();
        self.stretch_at(addr).is_some_and(|s| {
            s.is_as_analysed(&self.memory, addr) && has_frame_pointer(&s.code, s.code_start, point.pc())
        })
    }

    /// Whether code is still what the program has described, and was so where a sample met it.
    pub(crate) fn is_as_described(&self, described: &Described, met: &Witness) -> bool {
        let mut now = vec![0; described.bytes().len()];
        let start = described.code().start;
        self.memory.read(start.0, &mut now) == now.len() && now == described.bytes() && met.agrees_with(start, &now)
    }

    /// What the code at `addr` comes to if it is followed to its returns; `met`: as it was, where a sample met it.
    pub(crate) fn return_ahead(&mut self, addr: RunAddr, past_calls: bool, met: &Witness) -> Option<Return> {
        if !self.budget.allows() {
            self.postponed = true;
            return None;
        }
        let began = Budget::now();
        let mut pages = Pages::as_met(&self.memory, met);
        let read = |at, to: &mut [u8]| if self.holds(at) { pages.read(at, to) } else { 0 };
        let found = return_ahead(addr, past_calls, read);
        self.budget.charge(began);
        found
    }
}

fn module_index(modules: &mut ModuleList, name: &Path, identity: Option<ModuleIdentity>) -> ModuleIndex {
    let record = ModuleRecord { path: name.to_owned(), identity };
    let index = modules.iter().position(|module| *module == record).unwrap_or_else(|| {
        modules.push(record);
        modules.len() - 1
    });
    ModuleIndex(u16::try_from(index).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_target::has_memory;

    /// sub $24,%rsp; call *%rdi; add $24,%rsp; ret
    const CODE: [u8; 11] = [0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0xc3];
    const LEN_BYTES: usize = 4096;

    #[test]
    fn code_that_cannot_be_read_any_more_is_still_known() {
        // SAFETY: a new mapping.
        let page = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), LEN_BYTES, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(page, libc::MAP_FAILED);
        let start = RunAddr(page as u64);
        let mut bytes = vec![0; LEN_BYTES];
        bytes[1024..][..CODE.len()].copy_from_slice(&CODE);
        // SAFETY: all of it is within the mapping, which no other code uses.
        unsafe { page.cast::<u8>().copy_from(bytes.as_ptr(), LEN_BYTES) };
        let mut modules = Vec::new();
        let mut code = GeneratedCode::new(Pid(std::process::id()));
        let module = module_index(&mut modules, Path::new(NAMELESS), None);
        let range = start..RunAddr(start.0 + LEN_BYTES as u64);
        let mappings = vec![range.start];
        code.areas.push(Area { range, name: NAMELESS.into(), module, mappings });
        let at = CodePoint::Exact(RunAddr(start.0 + 1024 + 6));
        let met = Witness { start: RunAddr(start.0 + 1024), bytes: CODE.to_vec() };
        let (version, recipe) = code.locate(at, &met, &mut modules);
        assert!(recipe.is_some() && version != module);
        // SAFETY: it is no longer used.
        assert_eq!(unsafe { libc::munmap(page, LEN_BYTES) }, 0);
        assert_eq!(code.locate(at, &met, &mut modules), (version, recipe));
        // What is not known of any bytes is not known now.
        assert_eq!(code.locate(at, &Witness::default(), &mut modules).1, None);
    }

    /// What code does is known once the code is there that it jumps to, even if that is far away.
    #[test]
    fn code_that_is_written_later_tells_of_other_code() {
        // sub $24,%rsp; call *%rdi; jmp to offset 8192; there: add $24,%rsp; ret
        let begins = [0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0xe9, 0xf5, 0x1b, 0, 0];
        let ends = [0x48, 0x83, 0xc4, 24, 0xc3];
        let mut code = vec![0_u8; 5 * LEN_BYTES];
        let begin = (code.as_ptr() as u64).next_multiple_of(LEN_BYTES as u64);
        let offset = (begin - code.as_ptr() as u64) as usize;
        code[offset + 1024..][..begins.len()].copy_from_slice(&begins);
        let mut modules = Vec::new();
        let mut generated = GeneratedCode::new(Pid(std::process::id()));
        let module = module_index(&mut modules, Path::new(NAMELESS), None);
        let start = RunAddr(begin);
        let range = start..RunAddr(begin + 4 * LEN_BYTES as u64);
        generated.areas.push(Area { range, name: NAMELESS.into(), module, mappings: vec![start] });
        let at = CodePoint::Return(RunAddr(begin + 1024 + 6));
        let mut recipe = |generated: &mut GeneratedCode| generated.locate(at, &Witness::default(), &mut modules).1;
        assert_eq!(recipe(&mut generated), None);
        code[offset + 8192..][..ends.len()].copy_from_slice(&ends);
        let there = CodePoint::Exact(RunAddr(begin + 8192));
        generated.locate(there, &Witness::default(), &mut Vec::new());
        assert_eq!(recipe(&mut generated), None, "only what has changed is looked at");
        let asked = Instant::now();
        while recipe(&mut generated).is_none() && asked.elapsed() < Duration::from_secs(30) {
            generated.note_try(at.lookup(), false);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(recipe(&mut generated).is_some());
        drop(code);
    }

    #[test]
    fn two_areas_within_one_stretch() {
        let code = vec![0x90_u8; 2 * STRETCH_BYTES as usize];
        let start = (code.as_ptr() as u64).next_multiple_of(STRETCH_BYTES);
        let mut modules = Vec::new();
        let mut generated = GeneratedCode::new(Pid(std::process::id()));
        let module = module_index(&mut modules, Path::new(NAMELESS), None);
        for offset in [0, 0xc000] {
            let range = RunAddr(start + offset)..RunAddr(start + offset + 0x1000);
            let mappings = vec![range.start];
            generated.areas.push(Area { range, name: NAMELESS.into(), module, mappings });
        }
        // What lies between them is another module's.
        let points = [100, 0xc100].map(|offset| CodePoint::Exact(RunAddr(start + offset)));
        let versions = points.map(|point| generated.locate(point, &Witness::default(), &mut modules).0);
        assert!(versions.iter().all(|version| *version != module), "both are analysed");
        let ranges: Vec<_> = generated.stretches.values().map(|stretch| stretch.range.clone()).collect();
        assert!(ranges.len() == 2 && generated.areas.iter().all(|area| ranges.contains(&area.range)), "{ranges:?}");
        let mut publisher = Publisher::create(1 << 20, Vec::new(), &[]).expect("memory");
        let published: Vec<_> = generated.mappings(&mut publisher).iter().map(|m| m.start..m.end).collect();
        let areas: Vec<_> = generated.areas.iter().map(|area| area.range.clone()).collect();
        assert_eq!(published, areas);
    }

    #[test]
    fn code_of_a_process_that_is_ending_has_not_changed() {
        let code = vec![0x90_u8; 2 * LEN_BYTES];
        let start = RunAddr((code.as_ptr() as u64).next_multiple_of(LEN_BYTES as u64));
        let mut modules = Vec::new();
        let mut generated = GeneratedCode::new(Pid(std::process::id()));
        let module = module_index(&mut modules, Path::new(NAMELESS), None);
        let range = start..RunAddr(start.0 + LEN_BYTES as u64);
        generated.areas.push(Area { range, name: NAMELESS.into(), module, mappings: vec![start] });
        let at = RunAddr(start.0 + 100);
        let (version, _) = generated.locate(CodePoint::Exact(at), &Witness::default(), &mut modules);
        assert!(matches!(generated.look().state(version, at), CodeState::Holds(_)));
        // A zombie has no memory, and is a process still.
        let mut zombie = std::process::Command::new("true").spawn().expect("`true` can be run");
        while has_memory(Pid(zombie.id())) {
            std::thread::yield_now();
        }
        generated.pid = Pid(zombie.id());
        assert_eq!(generated.look().state(version, at), CodeState::Gone { latest: true });
        zombie.wait().expect("it is a child");
        generated.pid = Pid(std::process::id());
        drop(code);
        generated.areas.clear();
        assert_eq!(generated.look().state(version, at), CodeState::Changed, "where nothing is mapped");
    }
}
