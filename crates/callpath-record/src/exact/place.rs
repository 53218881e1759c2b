//! Puts the copies of a program that waits at its beginning in their place.
//!
//! Others may run meanwhile, and count: they are served while code is analysed.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::CloneNumber;
use callpath_format::shared::Settings;
use callpath_format::shared::flows::{FlowCounters, FlowsHead};
use callpath_format::shared::known_return::KnownReturn;
use callpath_format::shared::lanes::{LaneHead, LanesHead};
use callpath_schema::{CALLS_ALONE, NOT_MEASURED};
use callpath_tables::calls_in_copies::{CallsInCopies, own_unwinder};
use callpath_tables::copies::LedToClones;
use callpath_tables::module::Module;
use callpath_tables::paths::{
    self, Bound, CountedModule, Descending, Hashing, Inside, Outward, OutwardCall, Resized, Timing, counted,
};
use callpath_tables::return_users::{Asking, ReturnUsers};
use callpath_tables::unwinders::{self, KnownCode, Told};
use callpath_target::{Edits, Halted, Maps, NewMemory, Pid, SharedMapping, SharedMemory, WORTH_LARGE_PAGES_BYTES};
use rustc_hash::FxHashMap;

use super::analysed::Analysed;
use super::counts::{Counted, InModule};
use super::flows::Flows;
use super::guided::ByGuide;
use super::hashed::Hashed;
use super::layout::{Head, Layout, Next, OfContexts, Tables};
use super::linkage::{Links, bound_words};
use super::loader::calls_us;
use super::regions::{Regions, Wanted};
use super::returns::Returns;
use super::teller::{Teller, write};
use super::times::Times;
use super::{Copied, ExactKind};
use crate::error::RecordError;
use crate::meanwhile::meanwhile;
use crate::moved::{MovedCode, ProgramNumber};
use crate::probe::{Injected, InjectedInto, Loaded, Stops, halt, map_private};
use crate::program::kill;
use crate::serve::Recorder;

const PAGE_BYTES: u64 = 4096;
/// Lanes take address space of the program; no more of it than this, bytes.
const LANES_AT_MOST: u64 = 1 << 41;
/// So many words of a lane, and numbers of procedures, are kept for libraries that come later, at most; of limited address space each lane
/// has this part for them.
const MOST_LATER_WORDS: u64 = 8 << 20;
const LATER_PART: u64 = 1 << 15;
const MOST_LATER_PROCEDURES: u32 = 1 << 20;

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
    let may_come = matches!(copied, Copied::Counting(_, counting) if counting.may_come_in_library());
    if program.is_some() && !may_come && chosen.iter().flatten().all(Chosen::is_empty) {
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
            "it has a stack walker of its own, which cannot be made aware of copies",
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
    let has_contexts = copied.has(ExactKind::Calls);
    let routines = match copied.counts() {
        Some(counts) => {
            let into = InjectedInto { pid, slot: Some(slot), program, mark: None, counts_contexts: has_contexts };
            Some(Injected::into(into, recorder, (counts.injected, &mut Stops::default()))?.routines)
        }
        None => None,
    };
    let counted: Vec<(usize, &Analysed)> =
        analysed.iter().enumerate().filter(|(index, _)| chosen.get(*index).is_some_and(Option::is_some)).collect();
    let maps = Maps::read(pid)?;
    let later = routines.and_then(|routines| calls_us(&analysed, &maps, &routines));
    if later.is_none() && copied.counts().is_some() {
        recorder.note("libraries loaded later (dlopen) are not counted: this C library's loader cannot be hooked");
    }
    let regions = Regions::reserve(&maps, counted.iter().map(|(_, analysed)| wanted(pid, analysed)), teller.at);
    let guided = ByGuide::new(copied.counts().and_then(|counts| counts.guide.as_ref()), (pid, is_first), &analysed)?;
    guided.notes.iter().for_each(|note| recorder.note(note));
    let mut layout = Layout::new(regions, ReturnUsers::default(), teller.at);
    (layout.lane_word, layout.routines, layout.has_contexts) = (lane_word, routines, has_contexts);
    layout.inside = match (copied.has(ExactKind::Paths), copied.has(ExactKind::Edges)) {
        (true, _) => Inside::Paths,
        (false, true) => Inside::Edges,
        (false, false) => Inside::Nothing,
    };
    layout.times = copied.counts().and_then(|counts| counts.times);
    layout.first = analysed.iter().map(|analysed| analysed.loaded.clone()).collect();
    let mut placing = Placing {
        recorder,
        made,
        pid,
        slot,
        program,
        layout: &mut layout,
        returns: Vec::new(),
        counters: Vec::new(),
        modules: Vec::new(),
        links: Links::default(),
    };
    // By number, what is added to addresses of a module.
    let biases: FxHashMap<u32, u64> = analysed
        .iter()
        .zip(&chosen)
        .filter_map(|(of, chosen)| Some((chosen.as_ref()?.resized()?.module?, of.bias)))
        .collect();
    for (index, of_module) in counted {
        let Some(chosen) = chosen.get_mut(index).and_then(Option::take) else { continue };
        if matches!(&chosen, Chosen::Resized(resized) if resized.paddings.is_empty()) {
            continue;
        }
        let homes = teller.at.to_link(of_module.bias);
        let calls = meanwhile(placing.recorder, || CallsInCopies::of(&of_module.module, (&users, index), homes))?;
        let by = guided.placing.get(index).copied().unwrap_or(paths::Placing::ByDepth);
        let outward = chosen.resized().map_or_else(Vec::new, |resized| outward_calls(resized, &biases));
        let copied_here = placing.put_in_module(of_module, &calls, (&chosen, &outward, by))?;
        if let (Copied::Resized(resizing), Chosen::Resized(_)) = (&mut *copied, &chosen) {
            resizing.resized(of_module.module.image(), &copied_here);
        }
    }
    let to_clones = placing.links.to_clones();
    if !to_clones.is_empty() {
        placing.made.push(write(pid, vec![], (to_clones, 0))?);
    }
    let told = placing.tell(&teller)?;
    match copied {
        Copied::Counting(..) => {
            let mut counted = placing.finish(told)?;
            // What was free when this was asked first may have been taken for what counts.
            let later = routines.filter(|_| later.is_some());
            let maps = Maps::read(pid)?;
            let edits = later.and_then(|routines| calls_us(&analysed, &maps, &routines));
            if later.is_some() && edits.is_none() {
                recorder.note("libraries loaded later (dlopen) are not counted: there is no room near the loader");
            }
            if let Some(edits) = edits {
                let halted = halt(pid)?;
                halted.apply(&edits)?;
                made.push(edits);
                halted.release()?;
                layout.users = users;
                counted.layout = Some(layout);
            }
            if let Some(program) = program {
                recorder.shared.programs.add(program, counted);
            }
            recorder.refresh_map(pid, Duration::ZERO);
            Ok(())
        }
        Copied::Resized(resizing) => {
            recorder.refresh_map(pid, Duration::ZERO);
            let finished = resizing.finish(&recorder.shared.directory);
            finished.map_err(|reason| RecordError::NotChosen { reason })
        }
    }
}

/// What is to be copied of a module. Where address space is limited, none is taken to fill large pages.
fn wanted(pid: Pid, of: &Analysed) -> Wanted {
    let is_large = of.code_bytes() >= WORTH_LARGE_PAGES_BYTES && address_space_limit(pid) == u64::MAX;
    Wanted { module: of.loaded.start..of.loaded.end, is_large, room: of.room() }
}

/// Calls of a module's copies that lead to clones of others. `biases`: by number of the module.
fn outward_calls(resized: &Resized, biases: &FxHashMap<u32, u64>) -> Vec<OutwardCall> {
    let call = |outward: &Outward| {
        let (module, start) = outward.callee;
        let callee = start.0.wrapping_add(*biases.get(&module)?);
        Some(OutwardCall { caller: outward.caller, callee, clone: outward.clone })
    };
    resized.outward.iter().filter_map(call).collect()
}

/// The procedures of a module that shall run as copies.
pub(super) enum Chosen {
    /// Those that count; `None`: all.
    Counted(Option<Vec<LinkAddr>>),
    /// Those that have other frames, or clones.
    Resized(Resized),
}

impl Chosen {
    /// Whether no procedure is chosen.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Chosen::Counted(chosen) => chosen.as_ref().is_some_and(Vec::is_empty),
            Chosen::Resized(resized) => resized.paddings.is_empty(),
        }
    }

    fn has(&self, entry: LinkAddr) -> bool {
        match self {
            Chosen::Counted(None) => true,
            Chosen::Counted(Some(chosen)) => chosen.binary_search(&entry).is_ok(),
            Chosen::Resized(resized) => resized.paddings.contains_key(&entry),
        }
    }

    fn resized(&self) -> Option<&Resized> {
        match self {
            Chosen::Counted(_) => None,
            Chosen::Resized(resized) => Some(resized),
        }
    }
}

/// What has become of a module.
#[derive(Debug)]
pub struct CopiedModule {
    /// The first instructions of procedures that run as copies now.
    pub made: Vec<LinkAddr>,
    /// Those that cannot, and why.
    pub refused: Vec<(LinkAddr, String)>,
    /// What has become of clones.
    pub led: LedToClones,
}

/// What is being put into a program.
pub(super) struct Placing<'r, 'o> {
    pub(super) recorder: &'r mut Recorder<'o>,
    /// What has been changed in it.
    pub(super) made: &'r mut Vec<Edits<'static>>,
    pub(super) pid: Pid,
    pub(super) slot: usize,
    pub(super) program: Option<ProgramNumber>,
    pub(super) layout: &'r mut Layout,
    pub(super) returns: Vec<(u64, KnownReturn)>,
    /// By procedure: what counters a context has.
    pub(super) counters: Vec<FlowCounters>,
    pub(super) modules: Vec<InModule>,
    pub(super) links: Links,
}

impl Placing<'_, '_> {
    /// Puts copies of a module's procedures in, or nothing where an error says why.
    pub(super) fn put_in_module(
        &mut self,
        of_module: &Analysed,
        calls: &CallsInCopies<'_>,
        (chosen, outward, by): (&Chosen, &[OutwardCall], paths::Placing<'_>),
    ) -> Result<CopiedModule, RecordError> {
        let Analysed { loaded, bias, module } = of_module;
        let bias = *bias;
        let no_room = || RecordError::NoRoom { module: loaded.path.clone() };
        let maps = Maps::read(self.pid)?;
        let wanted = wanted(self.pid, of_module);
        let is_first = self.layout.first.contains(loaded);
        if !is_first {
            self.layout.regions.begin_anew();
        }
        let region = self.layout.regions.place(&wanted, &maps);
        let place = match region {
            Some((_, place)) => place,
            None => maps.free_near(wanted.module.clone(), wanted.room).ok_or_else(no_room)?,
        };
        let is_chosen = |entry: LinkAddr| chosen.has(entry);
        let resized = chosen.resized();
        let has_back_edges = self.recorder.shared.allocator.settings().recursion == Settings::BACK_EDGES;
        let (layout, next) = (&*self.layout, self.layout.next);
        let lane_word = i32::try_from(layout.lane_word).map_err(|_| no_room())?;
        let contexts = layout.routines.filter(|_| layout.has_contexts).map(|routines| Descending {
            routine: routines.descend,
            first_procedure: next.procedure,
            has_back_edges,
            may_go: !is_first,
        });
        let times = layout.routines.zip(layout.times).map(|(routines, times)| Timing {
            routines: if times.is_general() { routines.of_metrics() } else { routines.of_paths() },
            is_general: times.is_general(),
            at_back_edges: times.at_back_edges,
            first_procedure: next.timed,
        });
        let hashed = layout.routines.filter(|_| layout.has_paths());
        let hashed = hashed.map(|routines| Hashing { routine: routines.count_path, first_procedure: next.hashed });
        let (first_word, inside) = (next.word, layout.inside);
        // The loader has not bound those of a library that comes later.
        let first = Some(&layout.first).filter(|_| is_first);
        let words = &first.map(|first| bound_words(self.pid, of_module, first)).unwrap_or_default();
        let (placing, bound) = (by, Bound { words, module: &(loaded.start..loaded.end) });
        let counting = paths::Counting {
            bias,
            lane_word,
            first_word,
            inside,
            contexts,
            times,
            hashed,
            resized,
            placing,
            bound,
            outward,
        };
        let at = RunAddr(place).to_link(bias);
        let planned = meanwhile(self.recorder, || counted(module, at, (calls, is_chosen), counting))?;
        let planned = planned.ok_or_else(no_room)?;
        let CountedModule { changes, copies, led, to_clones, moved, header, end, procedures, .. } = planned;
        let CountedModule { next_word, next_procedure, next_timed, next_hashed, .. } = planned;
        let CountedModule { counters, without_paths, without_times, returns, taking_nodes, .. } = planned;
        let mut refused: Vec<(LinkAddr, String)> =
            copies.refused.iter().map(|refused| (refused.entry, refused.refusal.to_string())).collect();
        let with_calls = without_paths.iter().map(|(at, why)| (*at, format!("{CALLS_ALONE}{why}")));
        refused.extend(with_calls);
        let reason = || format!("{NOT_MEASURED}its frame has no room for what measuring keeps");
        refused.extend(without_times.iter().map(|at| (*at, reason())));
        let originals = copies.made.iter().filter(|made| made.clone == CloneNumber::NONE);
        let made: Vec<LinkAddr> = originals.map(|made| made.copy.entry).collect();
        let called = if self.layout.inside == Inside::Nothing { made.clone() } else { Vec::new() };
        let result = CopiedModule { made, refused: refused.clone(), led };
        let (path, identity) = (loaded.path.clone(), module.image().identity());
        self.modules.push(InModule { path, identity, bias, procedures, called, refused });
        if copies.made.is_empty() {
            return Ok(result);
        }
        if next_word > self.layout.most_words {
            let reason = "there is no room for its counters beside those of the modules loaded at the start";
            return Err(RecordError::NotCounted { module: loaded.path.clone(), reason: reason.to_owned() });
        }
        self.layout.next = Next { word: next_word, procedure: next_procedure, timed: next_timed, hashed: next_hashed };
        self.returns.extend(returns);
        self.counters.extend(counters);
        let run = |at: LinkAddr| RunAddr(at.0.wrapping_add(bias));
        let home = run(copies.made.first().map_or(LinkAddr(0), |made| made.copy.entry));
        self.layout.known.push(KnownCode { start: run(copies.start), end: run(copies.end), header: run(header), home });
        let mut moved = MovedCode::of_module(loaded.mapped(bias), moved).only_in(self.program);
        if self.layout.has_contexts {
            self.recorder.await_whole_tables(self.pid, Duration::MAX);
        }
        if !self.recorder.prepare(self.pid, &mut moved) {
            let reason = "what is known of its copies does not fit into the memory shared with the program; raise or lift its limit of address space (ulimit -v), or count fewer functions (--only)";
            return Err(RecordError::NotCounted { module: loaded.path.clone(), reason: reason.to_owned() });
        }
        let memory = match region {
            Some((region, _)) => self.layout.regions.memory_for(region, &wanted, run(end)),
            None => Some(NewMemory::Code { at: RunAddr(place), len_bytes: run(end).0 - place }),
        };
        self.made.push(write(self.pid, memory.into_iter().collect(), (changes, bias))?);
        self.links.add(&copies, taking_nodes, bias);
        self.links.add_clones(&copies, to_clones, bias);
        self.recorder.shared.moved.push(moved);
        if let Some((region, _)) = region {
            self.layout.regions.take(region, &wanted, run(end));
        }
        self.layout.heads.push(Head { at: RunAddr(place), region: region.map(|(region, _)| region) });
        Ok(result)
    }

    /// Tells unwinders, and who asks which module called it, of all copies.
    fn tell(&mut self, teller: &Teller<'_>) -> Result<Told, RecordError> {
        let Teller { of: Analysed { loaded, bias, module }, asked, at } = teller;
        let told = unwinders::tell(module, (*asked, at.to_link(*bias)), *bias, &self.layout.known);
        let (changes, told) = told
            .map_err(|refusal| RecordError::NotCounted { module: loaded.path.clone(), reason: refusal.to_string() })?;
        self.made.push(write(self.pid, vec![], (changes, *bias))?);
        Ok(told)
    }

    /// Gives the first thread, and those that the C library does not start, their lanes, and copies what they read.
    fn finish(self, told: Told) -> Result<Counted, RecordError> {
        let Placing { recorder, pid, slot, layout, returns, counters, modules, links, .. } = self;
        let limit = address_space_limit(pid);
        // Where address space is limited, most of it is the program's.
        let at_most = LANES_AT_MOST.min(limit / 8);
        let words = u64::from(layout.next.word) + (at_most / LATER_PART).min(MOST_LATER_WORDS);
        layout.most_words = u32::try_from(words).unwrap_or(u32::MAX);
        let words_bytes = words * size_of::<u64>() as u64;
        let lane_len_bytes = (LaneHead::LEN_BYTES as u64 + words_bytes).next_multiple_of(PAGE_BYTES);
        let count = (at_most / lane_len_bytes).clamp(2, LanesHead::MOST as u64);
        let len_bytes = LanesHead::LEN_BYTES as u64 + lane_len_bytes * count;
        let lanes = SharedMemory::create(c"callpath-lanes", len_bytes as usize)?;
        let times = layout.times.map(Times::create).transpose()?;
        let is_any_hashed =
            modules.iter().flat_map(|module| &module.procedures).any(|procedure| procedure.hashed.is_some());
        // A library may come that needs it.
        let has_table = layout.has_paths() && (is_any_hashed || limit == u64::MAX);
        let hashed = has_table.then(Hashed::create).transpose()?;
        let executed = Cell::new(None);
        let counted = Counted { lanes, lane_len_bytes, first: pid, modules, executed, times, hashed, layout: None };
        let head = counted.head();
        head.lane_len_bytes.store(lane_len_bytes, Relaxed);
        head.lanes.store(count, Relaxed);
        let halted = halt(pid)?;
        let at = map_apart(&halted, pid, &counted.lanes)?;
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
        let own = RunAddr(registers.fs_base.wrapping_add_signed(layout.lane_word));
        let image = RunAddr(recorder.shared.allocator.slot(slot).lane_word_image.load(Acquire));
        halted.write(own, &first?.0.to_le_bytes())?;
        halted.write(image, &shared?.0.to_le_bytes())?;
        if let (Some(routines), Some(times)) = (layout.routines, &counted.times) {
            let table = map_apart(&halted, pid, &times.memory)?;
            halted.write(RunAddr(routines.times), &table.0.to_le_bytes())?;
        }
        if let (Some(routines), Some(hashed)) = (layout.routines, &counted.hashed) {
            let table = map_apart(&halted, pid, &hashed.memory)?;
            halted.write(RunAddr(routines.hashed), &table.0.to_le_bytes())?;
        }
        let mut tables = Tables { told, of_contexts: None, written: Vec::new() };
        if layout.has_contexts {
            let put = |bytes: Vec<u8>, len_bytes: u64| -> Result<u64, RecordError> {
                let at = map_private(&halted, len_bytes.max(bytes.len() as u64).max(1))?;
                halted.write(at, &bytes)?;
                Ok(at.0)
            };
            let returns = Returns::new(&returns);
            let entries = returns.entries().concat().into_iter().flat_map(u64::to_le_bytes);
            let returns_at = put(entries.collect(), 0)?;
            let (mut flows, mut counters_at, mut most_counters) = (0, 0, 0);
            if layout.has_paths() {
                let of_all = match recorder.shared.flows.take() {
                    Some(created) => created,
                    None => Flows::create(limit / 8)?,
                };
                let of_all = recorder.shared.flows.insert(of_all);
                flows = map_apart(&halted, pid, &of_all.memory)?.0 + FlowsHead::LEN_BYTES as u64;
                most_counters = (counters.len() as u32).saturating_add(MOST_LATER_PROCEDURES);
                let bytes = counters.into_iter().flat_map(|counters| counters.to_word().to_le_bytes()).collect();
                counters_at = put(bytes, u64::from(most_counters) * size_of::<u32>() as u64)?;
            }
            tables.of_contexts = Some(OfContexts { returns, returns_at, flows, counters_at, most_counters });
        }
        layout.tables = Some(tables);
        for (at, words) in links.written() {
            halted.write(at, &words)?;
        }
        for Head { at, region } in layout.heads.iter().copied().chain(layout.own_head()) {
            let Some(words) = layout.words(region) else { break };
            halted.write(at, &words)?;
        }
        halted.release()?;
        Ok(counted)
    }
}

/// Maps memory of ours where it takes no room from libraries that come later: their copies have to be near.
fn map_apart(halted: &Halted, pid: Pid, memory: &SharedMemory) -> Result<RunAddr, RecordError> {
    let at = Maps::read(pid)?.free_apart(memory.len_bytes() as u64).map(RunAddr);
    let [at] = halted.map_shared([SharedMapping { memory, at, writable: true }])?;
    // A core file needs none of it. Where that fails, it has it.
    let advice = [at.0, memory.len_bytes() as u64, libc::MADV_DONTDUMP as u64, 0, 0, 0];
    drop(halted.system_call(libc::SYS_madvise, advice));
    Ok(at)
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
    pub(super) fn is_ours(&self) -> bool {
        let is_ours =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("callpath-"));
        is_ours(&self.path)
    }
}
