//! Puts the copies of a program that waits at its beginning in their place.
//!
//! Others may run meanwhile, and count: they are served while code is analysed.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::shared::Settings;
use callpath_format::shared::activation::CopiesWords;
use callpath_format::shared::flows::FlowsHead;
use callpath_format::shared::known_return::KnownReturn;
use callpath_format::shared::lanes::{LaneHead, LanesHead};
use callpath_format::shared::probe::Routines;
use callpath_schema::CALLS_ALONE;
use callpath_tables::calls_in_copies::{CallsInCopies, own_unwinder};
use callpath_tables::module::Module;
use callpath_tables::paths::{self, CountedModule, Descending, FIRST_WORD, Hashing, Inside, Timing, counted};
use callpath_tables::return_users::{Asking, ReturnUsers};
use callpath_tables::unwinders::{self, KnownCode};
use callpath_target::{Edits, Maps, NewMemory, Pid, SharedMemory};
use rustc_hash::FxHashMap;

use super::analysed::Analysed;
use super::counts::{Counted, InModule};
use super::flows::Flows;
use super::guided::ByGuide;
use super::hashed::Hashed;
use super::meanwhile::meanwhile;
use super::regions::Regions;
use super::returns;
use super::teller::{Teller, write};
use super::times::Times;
use super::{Copied, ExactKind, ExactTimes};
use crate::error::RecordError;
use crate::moved::{MovedCode, ProgramNumber};
use crate::probe::{Injected, InjectedInto, Loaded, halt, map_private};
use crate::program::kill;
use crate::serve::Recorder;

const PAGE_BYTES: u64 = 4096;
/// Lanes take address space of the program; no more of it than this, bytes.
const LANES_AT_MOST: u64 = 1 << 41;

/// A program that waits at its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) pid: Pid,
    /// The slot that the process has taken.
    pub(super) slot: usize,
    /// Its number, if it counts.
    pub(super) program: Option<ProgramNumber>,
    /// It is the one that was typed.
    pub(super) is_first: bool,
}

/// Has the program's procedures count. Where that fails, the program is as it was, or has been ended: code that counts without
/// memory for it must not run.
pub(super) fn put_in(
    recorder: &mut Recorder<'_>,
    beginning: Beginning,
    copied: &mut Copied<'_>,
) -> Result<(), RecordError> {
    let mut made = Vec::new();
    let result = put_all_in(recorder, beginning, (copied, &mut made));
    if result.is_err() {
        if let Some(program) = beginning.program {
            recorder.shared.moved.forget(program, &mut recorder.shared.publisher);
        }
        if beginning.is_first || take_out(beginning.pid, &made).is_err() {
            kill(beginning.pid);
        }
    }
    result
}

/// Takes back what was made, the last first.
fn take_out(pid: Pid, made: &[Edits<'_>]) -> Result<(), RecordError> {
    if made.is_empty() {
        return Ok(());
    }
    let halted = halt(pid)?;
    made.iter().rev().try_for_each(|edits| halted.undo(edits))?;
    halted.release()?;
    Ok(())
}

/// The same; what has been made is added to `made`.
fn put_all_in(
    recorder: &mut Recorder<'_>,
    beginning: Beginning,
    (copied, made): (&mut Copied<'_>, &mut Vec<Edits<'static>>),
) -> Result<(), RecordError> {
    let Beginning { pid, slot, program, is_first } = beginning;
    let all = Loaded::all(&Maps::read(pid)?).into_iter().filter(|loaded| !loaded.is_ours());
    // What is not known of one may matter to the calls of all others.
    let analysed = all.map(|loaded| match loaded.image(pid) {
        Some((image, bias)) => Ok(Analysed { loaded, bias, module: Module::new(Arc::new(image)) }),
        None => Err(RecordError::NotCounted {
            module: loaded.path,
            reason: "its file is gone, or was replaced since it was loaded".to_owned(),
        }),
    });
    let analysed: Vec<Analysed> = analysed.collect::<Result<_, _>>()?;
    let mut chosen: Vec<Option<Chosen>> = analysed.iter().map(|analysed| copied.choose(analysed)).collect();
    if let Copied::Counting(_, counting) = copied
        && is_first
    {
        counting.check().map_err(|reason| RecordError::NotChosen { reason })?;
    }
    if program.is_some() && chosen.iter().flatten().all(Chosen::is_empty) {
        return Ok(());
    }
    if copied.has(ExactKind::Calls) {
        recorder.want_whole_tables(pid);
    }
    let modules: Vec<&Module> = analysed.iter().map(|analysed| &analysed.module).collect();
    let refused = |of: Option<&Analysed>, reason: &str| RecordError::NotCounted {
        module: of.map(|of| of.loaded.path.clone()).unwrap_or_default(),
        reason: reason.to_owned(),
    };
    if let Some(index) = meanwhile(recorder, || own_unwinder(&modules))? {
        return Err(refused(
            analysed.get(index),
            "it walks the stack in a way of its own, which cannot be told of copies",
        ));
    }
    let told = analysed.iter().find_map(|analysed| Some((analysed, unwinders::asked(&analysed.module)?)));
    let Some((teller, asked)) = told else {
        return Err(refused(analysed.first(), "its C library cannot be told of copies: it takes glibc 2.35 or later"));
    };
    let users = meanwhile(recorder, || ReturnUsers::of(&modules, Asking::InCopies))?;
    let teller = Teller::new(pid, teller, asked)?;
    let lane_word = recorder.shared.allocator.slot(slot).lane_word.load(Acquire) as i64;
    if lane_word == 0 && copied.counts().is_some() {
        return Err(refused(analysed.first(), "it has not told where its threads keep their words"));
    }
    let counts_contexts = copied.has(ExactKind::Calls);
    let counts_paths = copied.has(ExactKind::Paths);
    let injected = match copied.counts().filter(|_| counts_contexts || counts_paths) {
        Some(counts) => {
            let into = InjectedInto { pid, slot: Some(slot), program, counts_contexts };
            Some(Injected::into(into, recorder, counts.injected)?)
        }
        None => None,
    };
    let counted: Vec<(usize, &Analysed)> =
        analysed.iter().enumerate().filter(|(index, _)| chosen.get(*index).is_some_and(Option::is_some)).collect();
    let room = |analysed: &&Analysed| (analysed.loaded.start..analysed.loaded.end, analysed.room());
    let regions = Regions::reserve(&Maps::read(pid)?, counted.iter().map(|(_, analysed)| room(analysed)));
    let guided = ByGuide::new(copied.counts().and_then(|counts| counts.guide.as_ref()), (pid, is_first), &analysed)?;
    guided.notes.iter().for_each(|note| recorder.note(note));
    let mut placing = Placing {
        recorder,
        made,
        pid,
        slot,
        program,
        lane_word,
        inside: match (counts_paths, copied.has(ExactKind::Edges)) {
            (true, _) => Inside::Paths,
            (false, true) => Inside::Edges,
            (false, false) => Inside::Nothing,
        },
        contexts: injected.filter(|_| counts_contexts),
        times: injected.and_then(|injected| Some((injected, copied.counts()?.times?))),
        hashed: injected.filter(|_| counts_paths),
        next_word: FIRST_WORD,
        next_procedure: 0,
        next_timed: 0,
        next_hashed: 0,
        regions,
        heads: Vec::new(),
        returns: Vec::new(),
        counters: Vec::new(),
        known: Vec::new(),
        modules: Vec::new(),
    };
    for (index, of_module) in counted {
        let Some(chosen) = chosen.get_mut(index).and_then(Option::take) else { continue };
        if matches!(&chosen, Chosen::Padded(paddings) if paddings.is_empty()) {
            continue;
        }
        let homes = teller.at.to_link(of_module.bias);
        let calls = meanwhile(placing.recorder, || CallsInCopies::of(&of_module.module, (&users, index), homes))?;
        let by = guided.placing.get(index).copied().unwrap_or(paths::Placing::ByDepth);
        let (made, refused) = placing.put_in_module(of_module, &calls, (&chosen, by))?;
        if let (Copied::Padded(padding), Chosen::Padded(paddings)) = (&mut *copied, &chosen) {
            let made: Vec<LinkAddr> = made.into_iter().filter(|entry| paddings.contains_key(entry)).collect();
            padding.padded(of_module.module.image(), &made, &refused);
        }
    }
    match copied {
        Copied::Counting(..) => {
            placing.tell(&teller)?;
            placing.finish()
        }
        Copied::Padded(padding) => {
            placing.tell(&teller)?;
            placing.recorder.refresh_map(pid, Duration::ZERO);
            let finished = padding.finish(&placing.recorder.shared.directory);
            finished.map_err(|reason| RecordError::NotChosen { reason })
        }
    }
}

/// The procedures of a module that shall run as copies.
pub(super) enum Chosen {
    /// Those that count; `None`: all.
    Counted(Option<Vec<LinkAddr>>),
    /// Those whose frames are larger by so many bytes.
    Padded(FxHashMap<LinkAddr, u32>),
}

impl Chosen {
    /// None, in no way.
    fn is_empty(&self) -> bool {
        match self {
            Chosen::Counted(chosen) => chosen.as_ref().is_some_and(Vec::is_empty),
            Chosen::Padded(paddings) => paddings.is_empty(),
        }
    }

    fn has(&self, entry: LinkAddr) -> bool {
        match self {
            Chosen::Counted(None) => true,
            Chosen::Counted(Some(chosen)) => chosen.binary_search(&entry).is_ok(),
            Chosen::Padded(paddings) => paddings.contains_key(&entry),
        }
    }

    fn paddings(&self) -> Option<&FxHashMap<LinkAddr, u32>> {
        match self {
            Chosen::Counted(_) => None,
            Chosen::Padded(paddings) => Some(paddings),
        }
    }
}

/// The procedures that run as copies now, and those that cannot, and why.
type MadeAndRefused = (Vec<LinkAddr>, Vec<(LinkAddr, String)>);

/// What is being put into a program.
struct Placing<'r, 'o> {
    recorder: &'r mut Recorder<'o>,
    /// What has been changed in it.
    made: &'r mut Vec<Edits<'static>>,
    pid: Pid,
    slot: usize,
    program: Option<ProgramNumber>,
    /// How far above the thread pointer a thread's word is.
    lane_word: i64,
    /// What is counted inside of procedures.
    inside: Inside,
    /// If activations are counted in their contexts.
    contexts: Option<Injected>,
    /// If times of paths are measured.
    times: Option<(Injected, ExactTimes)>,
    /// If paths are counted, in a hash table where they are too many.
    hashed: Option<Injected>,
    next_word: u32,
    next_procedure: u32,
    next_timed: u32,
    next_hashed: u32,
    regions: Regions,
    /// Where each module's words are that say where copies are, and the region that its copies are in.
    heads: Vec<(RunAddr, Option<usize>)>,
    returns: Vec<(u64, KnownReturn)>,
    /// By procedure: how many counters a context has.
    counters: Vec<u32>,
    known: Vec<KnownCode>,
    modules: Vec<InModule>,
}

impl Placing<'_, '_> {
    fn put_in_module(
        &mut self,
        of_module: &Analysed,
        calls: &CallsInCopies<'_>,
        (chosen, by): (&Chosen, paths::Placing<'_>),
    ) -> Result<MadeAndRefused, RecordError> {
        let Analysed { loaded, bias, module } = of_module;
        let bias = *bias;
        let no_room = || RecordError::NoRoom { module: loaded.path.clone() };
        let region = self.regions.place(loaded.start, of_module.room());
        let place = match region {
            Some((_, place)) => place,
            None => {
                let maps = Maps::read(self.pid)?;
                maps.free_near(loaded.start..loaded.end, of_module.room()).ok_or_else(no_room)?
            }
        };
        let is_chosen = |entry: LinkAddr| chosen.has(entry);
        let paddings = chosen.paddings();
        let lane_word = i32::try_from(self.lane_word).map_err(|_| no_room())?;
        let has_back_edges = self.recorder.shared.allocator.settings().recursion == Settings::BACK_EDGES;
        let contexts = self.contexts.map(|injected| Descending {
            routine: injected.routines.descend,
            first_procedure: self.next_procedure,
            has_back_edges,
        });
        let times = self
            .times
            .map(|(injected, _)| Timing { routines: injected.routines.of_paths(), first_procedure: self.next_timed });
        let hashed = self
            .hashed
            .map(|injected| Hashing { routine: injected.routines.count_path, first_procedure: self.next_hashed });
        let (first_word, inside) = (self.next_word, self.inside);
        let placing = by;
        let counting =
            paths::Counting { bias, lane_word, first_word, inside, contexts, times, hashed, paddings, placing };
        let at = RunAddr(place).to_link(bias);
        let planned = meanwhile(self.recorder, || counted(module, at, (calls, is_chosen), counting))?;
        let planned = planned.ok_or_else(no_room)?;
        let CountedModule { changes, copies, moved, header, end, procedures, .. } = planned;
        let CountedModule { next_word, next_procedure, next_timed, next_hashed, .. } = planned;
        let CountedModule { counters, without_paths, returns, .. } = planned;
        let mut refused: Vec<(LinkAddr, String)> =
            copies.refused.iter().map(|refused| (refused.entry, refused.refusal.to_string())).collect();
        let with_calls = without_paths.iter().map(|(at, why)| (*at, format!("{CALLS_ALONE}{why}")));
        refused.extend(with_calls);
        let made: Vec<LinkAddr> = copies.made.iter().map(|made| made.copy.entry).collect();
        let called = if self.inside == Inside::Nothing { made.clone() } else { Vec::new() };
        let result = (made, refused.clone());
        self.modules.push(InModule { bias, procedures, called, refused });
        if copies.made.is_empty() {
            return Ok(result);
        }
        (self.next_word, self.next_procedure) = (next_word, next_procedure);
        (self.next_timed, self.next_hashed) = (next_timed, next_hashed);
        self.returns.extend(returns);
        self.counters.extend(counters);
        let run = |at: LinkAddr| RunAddr(at.0.wrapping_add(bias));
        let home = run(copies.made.first().map_or(LinkAddr(0), |made| made.copy.entry));
        self.known.push(KnownCode { start: run(copies.start), end: run(copies.end), header: run(header), home });
        let mut moved = MovedCode::of_module(loaded.mapped(bias), moved).only_in(self.program);
        if self.contexts.is_some() {
            self.recorder.await_whole_tables(self.pid);
        }
        if !self.recorder.prepare(self.pid, &mut moved) {
            let reason = "what is known of its copies does not fit into the memory shared with the program; raise or lift its limit of address space (ulimit -v), or count fewer functions (--only)";
            return Err(RecordError::NotCounted { module: loaded.path.clone(), reason: reason.to_owned() });
        }
        let memory = NewMemory::Code { at: RunAddr(place), len_bytes: run(end).0 - place };
        self.made.push(write(self.pid, vec![memory], (changes, bias))?);
        self.recorder.shared.moved.push(moved);
        if let Some((region, _)) = region {
            self.regions.take(region, run(end));
        }
        self.heads.push((RunAddr(place), region.map(|(region, _)| region)));
        Ok(result)
    }

    /// Tells unwinders, and who asks which module called it, of all copies.
    fn tell(&mut self, teller: &Teller<'_>) -> Result<(), RecordError> {
        let Teller { of: Analysed { loaded, bias, module }, asked, at } = teller;
        let told = unwinders::tell(module, (*asked, at.to_link(*bias)), *bias, &self.known);
        let changes = told
            .map_err(|refusal| RecordError::NotCounted { module: loaded.path.clone(), reason: refusal.to_string() })?;
        self.made.push(write(self.pid, vec![], (changes, *bias))?);
        Ok(())
    }

    /// Gives the first thread, and those that the C library does not start, their lanes.
    fn finish(self) -> Result<(), RecordError> {
        let Placing { recorder, pid, slot, program, lane_word, contexts, next_word, regions, heads, modules, .. } =
            self;
        let Placing { inside, returns, counters, times, hashed, .. } = self;
        let words = u64::from(next_word) * size_of::<u64>() as u64;
        let lane_len_bytes = (LaneHead::LEN_BYTES as u64 + words).next_multiple_of(PAGE_BYTES);
        // Where address space is limited, most of it is the program's.
        let at_most = LANES_AT_MOST.min(address_space_limit(pid) / 8);
        let count = (at_most / lane_len_bytes).clamp(2, LanesHead::MOST as u64);
        let len_bytes = LanesHead::LEN_BYTES as u64 + lane_len_bytes * count;
        let lanes = SharedMemory::create(c"callpath-lanes", len_bytes as usize)?;
        let created = times.map(|(_, which)| Times::create(which)).transpose()?;
        let is_any_hashed =
            modules.iter().flat_map(|module| &module.procedures).any(|procedure| procedure.hashed.is_some());
        let hashed = hashed.filter(|_| is_any_hashed);
        let table = hashed.map(|_| Hashed::create()).transpose()?;
        let executed = Cell::new(None);
        let counted = Counted { lanes, lane_len_bytes, first: pid, modules, executed, times: created, hashed: table };
        let head = counted.head();
        head.lane_len_bytes.store(lane_len_bytes, Relaxed);
        head.lanes.store(count, Relaxed);
        let halted = halt(pid)?;
        let at = halted.map_shared(&counted.lanes, None, true)?;
        let words_of = |lane: u32| {
            head.take_one(lane, pid.0);
            RunAddr(at.0 + head.offset_of(lane) + LaneHead::LEN_BYTES as u64)
        };
        let [shared, first] = [LanesHead::SHARED, LanesHead::FIRST].map(|lane| {
            let words = words_of(lane);
            halted.write(
                RunAddr(words.0 - LaneHead::LEN_BYTES as u64),
                &[at.0.to_le_bytes(), u64::from(lane).to_le_bytes()].concat(),
            )?;
            Ok::<RunAddr, RecordError>(words)
        });
        let registers = halted.registers(pid)?;
        let own = RunAddr(registers.fs_base.wrapping_add_signed(lane_word));
        let image = RunAddr(recorder.shared.allocator.slot(slot).lane_word_image.load(Acquire));
        halted.write(own, &first?.0.to_le_bytes())?;
        halted.write(image, &shared?.0.to_le_bytes())?;
        if let (Some((injected, _)), Some(times)) = (times, &counted.times) {
            let table = halted.map_shared(&times.memory, None, true)?;
            halted.write(RunAddr(injected.routines.times), &table.0.to_le_bytes())?;
        }
        if let (Some(injected), Some(hashed)) = (hashed, &counted.hashed) {
            let table = halted.map_shared(&hashed.memory, None, true)?;
            halted.write(RunAddr(injected.routines.hashed), &table.0.to_le_bytes())?;
        }
        if let Some(injected) = contexts {
            let Routines { copies, callees, .. } = injected.routines;
            let put = |bytes: Vec<u8>| -> Result<u64, RecordError> {
                let at = map_private(&halted, bytes.len().max(1) as u64)?;
                halted.write(at, &bytes)?;
                Ok(at.0)
            };
            let (table, returns_shift) = returns::table(&returns);
            let returns = put(table.concat().into_iter().flat_map(u64::to_le_bytes).collect())?;
            let (mut flows, mut counters_at) = (0, 0);
            if inside == Inside::Paths {
                let of_all = match recorder.shared.flows.take() {
                    Some(created) => created,
                    None => Flows::create(address_space_limit(pid) / 8)?,
                };
                let of_all = recorder.shared.flows.insert(of_all);
                flows = halted.map_shared(&of_all.memory, None, true)?.0 + FlowsHead::LEN_BYTES as u64;
                counters_at = put(counters.into_iter().flat_map(u32::to_le_bytes).collect())?;
            }
            for (at, own) in heads.into_iter().chain([(RunAddr(copies), None)]) {
                let regions = regions.known_in(own);
                let words = CopiesWords { regions, callees, returns, returns_shift, flows, counters: counters_at };
                let words = words.to_words();
                halted.write(at, &words.map(u64::to_le_bytes).concat())?;
            }
        }
        if let Some(program) = program {
            recorder.shared.programs.add(program, counted);
        }
        recorder.refresh_map(pid, Duration::ZERO);
        halted.release()?;
        Ok(())
    }
}

/// The least of the limits of address space of a process and of our own, bytes.
fn address_space_limit(pid: Pid) -> u64 {
    let of = |pid: i32| {
        let mut limit = std::mem::MaybeUninit::<libc::rlimit>::zeroed();
        // SAFETY: a valid place; no limit is set.
        let result = unsafe { libc::prlimit(pid, libc::RLIMIT_AS, std::ptr::null(), limit.as_mut_ptr()) };
        // SAFETY: filled in, or zeroes.
        if result == 0 { unsafe { limit.assume_init() }.rlim_cur } else { u64::MAX }
    };
    of(pid.0 as i32).min(of(0))
}

impl Loaded {
    /// Whether it is our own object.
    fn is_ours(&self) -> bool {
        let is_ours =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("callpath-"));
        is_ours(&self.path)
    }
}
