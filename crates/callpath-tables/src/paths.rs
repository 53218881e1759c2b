//! Copies of a module's procedures that count the paths through them (Ball and Larus 1996; Ammons, Ball and Larus 1997), or edges.
//! Which word of a thread's lane counts which path or edge is decided here; what lanes are, `callpath_format::shared::lanes` says.

mod inside;
mod operations;
mod resized;

use callpath_format::address::LinkAddr;
use callpath_format::frame::CloneNumber;
use callpath_format::recipe::Recipe;
use callpath_format::shared::flows::{FlowCounters, FlowsHead};
use callpath_format::shared::hashed::{HashedCache, HashedKey};
use callpath_format::shared::known_return::KnownReturn;
use callpath_format::shared::times::{OfProcedure, PathKey};
use callpath_image::cfi::FrameRange;
use callpath_x86::graph::ProcedureGraph;
pub use callpath_x86::paths::Category;
pub use callpath_x86::paths::{EdgeBounds, EdgeCounts};
use callpath_x86::paths::{Path, PathOperation, Ways, may_return_twice};
use callpath_x86::rewrite::{Cell, Hashed, Numbers, Operation, Place, Plan, Reason, Refusal, TURNS, UnmarkedCall};

use rustc_hash::FxHashMap;

use crate::calls_in_copies::CallsInCopies;
use crate::contexts::ContextsHead;
pub use crate::contexts::Descending;
use crate::copies::{Asked, Copies, LedToClones, WantedClone, copy_planned};
use crate::hashed::HashedHead;
pub use crate::linkage::{Bound, OutwardCall};
use crate::linkage::{Linkage, OutwardWords};
use crate::module::Module;
use crate::probes::Change;
use crate::recipes::Moved;
use crate::times::TimesHead;
pub use crate::times::Timing;
use crate::unwinders::asked;
use inside::{Compared, MostPaths, Planned};
pub use inside::{CountedInside, Executed, Placing};
use operations::{Counter, CounterPlace, inserted, measure_activation, measure_times, path_end, place};
pub use resized::{Outward, Resized};

/// Where a procedure has more paths, most are counted in a hash table: else each would have a word in every lane.
pub const MOST_PATHS: u64 = 1 << 16;
/// So many of these have words all the same: those with the lowest numbers.
const LOW_NUMBERS: u64 = 1 << 12;
/// The same in each context, of which a procedure may have many.
const LOW_NUMBERS_IN_CONTEXT: u64 = 1 << 7;
/// The word of a lane, or of a context, that counts paths which were begun and not ended. In a context the paths' words follow.
pub const CUT_SHORT: u32 = 0;
/// The first word of a context that counts paths.
pub const FIRST_OF_CONTEXT: u32 = 1;
/// The first word of a lane that counts paths or edges.
pub const FIRST_WORD: u32 = 8;

/// How the procedures of a module count.
#[derive(Clone, Copy, Debug)]
pub struct Counting<'g> {
    /// Run-time address minus link-time address of the module.
    pub bias: u64,
    /// How far above the thread pointer the word is that holds the address of a thread's lane.
    pub lane_word: i32,
    /// The first word of a lane that is free.
    pub first_word: u32,
    /// What is counted in the procedures, besides their activations.
    pub inside: Inside,
    /// How activations are counted in their contexts, if they are.
    pub contexts: Option<Descending>,
    /// How times of paths are measured, if they are.
    pub times: Option<Timing>,
    /// Where paths are counted that have no words.
    pub hashed: Option<Hashing>,
    /// Procedures that count nothing, but have other frames.
    pub resized: Option<&'g Resized>,
    /// Where calls through the linkage table lead.
    pub bound: Bound<'g>,
    /// Those of them that lead to clones of other modules' procedures.
    pub outward: &'g [OutwardCall],
    /// How what counts is placed: by what an earlier measurement tells of the module, or by loop depth.
    pub placing: Placing<'g>,
}

/// What counts paths in a hash table (`callpath_format::shared::hashed`).
#[derive(Clone, Copy, Debug)]
pub struct Hashing {
    /// The routine ([`callpath_format::shared::probe::Routines::count_path`]).
    pub routine: u64,
    /// The first number that no procedure has yet.
    pub first_procedure: u32,
}

/// What is counted inside of procedures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inside {
    /// Nothing.
    Nothing,
    /// Paths.
    Paths,
    /// Edges.
    Edges,
}

/// Copies that count, as data.
pub struct CountedModule {
    /// What has become of clones.
    pub led: LedToClones,
    /// What is written.
    pub changes: Vec<Change>,
    /// The copies, and the procedures that cannot be copied.
    pub copies: Copies,
    /// Where the copies, and the jumps that lead there, belong.
    pub moved: Moved,
    /// Where `.eh_frame_hdr` lies that speaks of the copies.
    pub header: LinkAddr,
    /// One past the last byte of new memory.
    pub end: LinkAddr,
    /// What counts, by ascending entry.
    pub procedures: Vec<CountedProcedure>,
    /// The first word of a lane that is free now.
    pub next_word: u32,
    /// The first number that no procedure has now.
    pub next_procedure: u32,
    /// The same of those that measure times.
    pub next_timed: u32,
    /// The same of those whose paths are counted in a hash table.
    pub next_hashed: u32,
    /// Procedures whose calls alone are counted, and why.
    pub without_paths: Vec<(LinkAddr, Refusal)>,
    /// Those whose calls are counted, and not measured, although they were to be.
    pub without_times: Vec<LinkAddr>,
    /// By number, from the first one that [`Descending::first_procedure`] says: what counters a context of a procedure has.
    pub counters: Vec<FlowCounters>,
    /// Of calls that no mark stands behind, the run-time address that each returns to.
    pub returns: Vec<(u64, KnownReturn)>,
    /// Words through which calls hand over nodes to other modules' procedures: where they lie, and the run-time addresses that they hold.
    /// Where a procedure has a copy that takes nodes ([`callpath_x86::rewrite::Rewritten::entries`]), a word may lead there.
    pub taking_nodes: (LinkAddr, Vec<u64>),
    /// Words through which calls may lead to other modules' clones: where each lies, the run-time address of the procedure that it holds, and the
    /// clone that it may lead to instead.
    pub to_clones: Vec<(LinkAddr, u64, CloneNumber)>,
}

/// A procedure that counts its paths or edges.
pub struct CountedProcedure {
    /// Its first instruction.
    pub entry: LinkAddr,
    /// Its number, if activations are counted in their contexts: paths then are, too.
    pub number: Option<u32>,
    /// The first of its words of a lane, if they are not.
    pub first_word: u32,
    /// The word of a lane that counts its activations, if one does: where paths are counted, but not in contexts, and there are calls, which
    /// may be left by an exception or `longjmp`.
    pub entries: Option<u32>,
    /// Its number among those whose paths without words are counted in a hash table, if there are such.
    pub hashed: Option<u32>,
    /// Its number among those that measure the times of their paths, if it does.
    pub timed: Option<u32>,
    /// How many paths have words of the lane, or of the context: those with the lowest numbers.
    pub words: u32,
    /// What words behind these count, too: a path each, by its number.
    pub further: Vec<u64>,
    ways: Ways,
    /// What its words count.
    pub counts: CountedInside,
    /// If it was placed by a guide, or would have been.
    compared: Option<Compared>,
}

/// How often control passed from one block to another.
pub struct CountedEdge {
    /// Where the block begins that it comes from.
    pub from: LinkAddr,
    /// Where those begin that it leads to, together. None: out of the procedure, or control does not continue.
    pub to: Vec<LinkAddr>,
    /// Whether it leads back into a loop.
    pub is_back: bool,
    /// How often.
    pub executions: EdgeBounds,
}

impl CountedProcedure {
    /// The path with a number, and where its blocks begin. `None`: there is none.
    pub fn path(&self, number: u64) -> Option<(Path, Vec<LinkAddr>)> {
        let CountedInside::Paths(numbering) = &self.counts else { return None };
        let path = numbering.decode(&self.ways, number)?;
        let blocks = path.addresses(&self.ways);
        Some((path, blocks))
    }

    /// What its counters of edges tell, if it has some. `word`: what they hold, by number. `began`: all activations began where these counters
    /// count.
    pub fn edges(&self, word: impl Fn(u64) -> u64, began: bool) -> Option<EdgeCounts> {
        let CountedInside::Edges { plan, may_return_twice } = &self.counts else { return None };
        let counters: Vec<u64> = (0..plan.counters().count() as u64).map(word).collect();
        Some(plan.solve(&self.ways, &counters, began && !may_return_twice))
    }

    /// How many increments one execution of a path takes. `None`: nothing was placed by a guide.
    pub fn increments(&self, number: u64) -> Option<Executed> {
        self.compared.as_ref()?.of_path(&self.counts, number)
    }

    /// How often counters of edges counted what `counts` say. `None`: nothing was placed by a guide.
    pub fn counters_executed(&self, counts: &EdgeCounts) -> Option<Executed> {
        self.compared.as_ref()?.of_edges(&self.counts, &self.ways, counts)
    }

    /// Where each block begins that `counts` speak of.
    pub fn starts(&self) -> &[LinkAddr] {
        &self.ways.starts
    }

    /// The edges that `counts` speak of.
    pub fn edges_of(&self, counts: &EdgeCounts) -> Vec<CountedEdge> {
        let CountedInside::Edges { plan, .. } = &self.counts else { return Vec::new() };
        let start = |block: u32| self.ways.starts.get(block as usize).copied().unwrap_or(self.entry);
        let ways = (0u32..).zip(&self.ways.ways).zip(&counts.ways).map(|((number, way), executions)| CountedEdge {
            from: start(way.from),
            to: way.to.map(start).into_iter().collect(),
            is_back: plan.is_back(number),
            executions: *executions,
        });
        let jumps = self.ways.dispatches.iter().zip(&counts.dispatches).flat_map(|(dispatch, jumps)| {
            dispatch.sources.iter().zip(jumps).map(|(&(source, _), executions)| CountedEdge {
                from: start(source),
                to: dispatch.targets.iter().map(|&target| start(target)).collect(),
                is_back: false,
                executions: *executions,
            })
        });
        ways.chain(jumps).collect()
    }
}

/// How much new memory [`counted`] takes at most for a module of `code_bytes` bytes of code, bytes.
pub fn room(code_bytes: u64) -> u64 {
    code_bytes.saturating_mul(40).saturating_add(2 << 20)
}

/// Copies the procedures of a module that `is_chosen` says by their first instructions, to `at` and behind, so that each counts
/// its paths, or its activations in their contexts: then the new memory begins with the words that say where copies are. `calls`: which
/// calls the copies make. `None`: unwinders cannot be told, since something is too far away.
pub fn counted(
    module: &Module,
    at: LinkAddr,
    (calls, is_chosen): (&CallsInCopies<'_>, impl Fn(LinkAddr) -> bool),
    counting: Counting<'_>,
) -> Option<CountedModule> {
    let told = asked(module);
    let beginnings = beginnings_of_stacks(module);
    let is_counted = |entry: LinkAddr| is_chosen(entry) && !beginnings.contains(&entry);
    let mut procedures: Vec<CountedProcedure> = Vec::new();
    let mut next_word = counting.first_word;
    let head = counting.contexts.map(|contexts| (ContextsHead::new(at, contexts), contexts));
    let mut numbers: FxHashMap<LinkAddr, u32> = FxHashMap::default();
    let mut changes = vec![];
    if let Some((head, contexts)) = &head {
        changes.push(head.change(contexts.routine)?);
    }
    let linkage =
        Linkage::new(counting.bound, head.as_ref().map_or(at, |(head, _)| head.end()), (counting.bias, head.is_some()));
    changes.extend(linkage.written().map(|(at, new)| Change { at, old: None, new }));
    let outward = OutwardWords::new(counting.outward, linkage.end());
    changes.extend(outward.written().map(|(at, new)| Change { at, old: None, new }));
    let free = outward.end();
    let times = counting.times.map(|timing| (TimesHead::new(free), timing));
    if let Some((head, timing)) = &times {
        changes.push(head.change(timing.routines)?);
    }
    let free = times.as_ref().map_or(free, |(head, _)| head.end());
    let hashing = counting.hashed.map(|hashing| (HashedHead::new(free), hashing));
    if let Some((head, hashing)) = &hashing {
        changes.push(head.change(hashing.routine)?);
    }
    let mut next_hashed = counting.hashed.map_or(0, |hashing| hashing.first_procedure);
    let mut next_timed = counting.times.map_or(0, |timing| timing.first_procedure);
    let mut counters: Vec<FlowCounters> = Vec::new();
    let mut without_paths: Vec<(LinkAddr, Refusal)> = Vec::new();
    let first_procedure = counting.contexts.map_or(0, |contexts| contexts.first_procedure);
    let clones: &[WantedClone] = counting.resized.map_or(&[], |resized| &resized.clones);
    let mut copies = copy_planned(
        module,
        (hashing.as_ref().map_or(free, |(head, _)| head.end()), &linkage, clones),
        |entry| is_counted(entry) || (Some(entry) != told && calls.needs_copy(entry)),
        |flow, graph, Asked { refused, clone }| {
            if Some(graph.entry) == told {
                return Err(Refusal { at: graph.entry, reason: Reason::TellsOfCopies });
            }
            // Where activations have no words, those of the context are not found. Calls are counted all the same.
            let counts_inside = counting.inside != Inside::Nothing && refused.is_none();
            if let Some(refusal) = refused {
                if head.is_none() || procedures.pop_if(|last| last.entry == graph.entry).is_none() {
                    return Err(refusal);
                }
                without_paths.push((graph.entry, refusal));
            }
            let mut plan = Plan::new(None);
            plan.let_copy_call(counting.bias);
            calls.plan(flow, graph, &mut plan);
            if !is_counted(graph.entry) {
                return Ok(plan);
            }
            if let Some(bytes) = counting.resized.and_then(|resized| resized.paddings.get(&graph.entry)) {
                let bytes = clone.map_or(*bytes, |clone| clone.bytes);
                if bytes > 0 && !calls.can_enlarge(flow, graph) {
                    return Err(Refusal { at: graph.entry, reason: Reason::RunsAtHome });
                }
                plan.pad(bytes);
                return Ok(plan);
            }
            plan.give_words(calls.can_enlarge(flow, graph));
            if let Some((head, _)) = &head {
                let number = *numbers.entry(graph.entry).or_insert_with(|| {
                    counters.push(FlowCounters::default());
                    first_procedure + counters.len() as u32 - 1
                });
                counters.last_mut().into_iter().for_each(|counters| *counters = FlowCounters::default());
                let contexts = head.contexts(number, graph.entry.0.wrapping_add(counting.bias));
                let is_timed = counting.times.is_some() && refused.is_none();
                plan.count_contexts(contexts, !graph.calls.is_empty() || counts_inside || is_timed);
            }
            if let (Some((head, timing)), Inside::Nothing, None) = (&times, counting.inside, refused) {
                let ways = Ways::new(flow, graph);
                measure_activation(&mut plan, graph, (&ways, timing.at_back_edges));
                plan.measure_paths(head.times(*timing, (PathKey::NO_PROCEDURE, next_word), counting.lane_word));
                next_word = next_word.checked_add(OfProcedure::COUNT).ok_or(too_many(graph))?;
            }
            if counts_inside {
                let ways = Ways::new(flow, graph);
                let too_many = too_many(graph);
                let may_be_left = head.is_none() && counting.inside == Inside::Paths && !graph.calls.is_empty();
                let entries = may_be_left.then_some(next_word);
                if let Some(word) = entries {
                    let offset = i32::try_from(word).map_err(|_| too_many)?;
                    let table = Cell::OfThread(counting.lane_word);
                    plan.insert(Place::Entry, Operation::Count { table, index: None, offset });
                    next_word = next_word.checked_add(1).ok_or(too_many)?;
                }
                let Planned { words, is_hashed, counts, compared, operations, turned } = match counting.inside {
                    Inside::Edges => {
                        let may_return_twice = !calls.are_all_in_copy(flow, graph) || may_return_twice(flow, graph);
                        Planned::edges((flow, graph), &ways, counting.placing, may_return_twice)
                    }
                    _ => {
                        let of_contexts = head.is_some();
                        let with_words = if of_contexts { FlowsHead::MOST_PATHS } else { MOST_PATHS };
                        let has_number = of_contexts || next_hashed < HashedKey::MOST_PROCEDURES;
                        let hashed = hashing.as_ref().filter(|_| has_number).map(|_| HashedKey::MOST_PATHS);
                        let low = if of_contexts { LOW_NUMBERS_IN_CONTEXT } else { LOW_NUMBERS };
                        let most = MostPaths { with_words, hashed, low };
                        Planned::paths((flow, graph), &ways, counting.placing, most)
                    }
                };
                let words = u32::try_from(words).map_err(|_| too_many)?;
                let mut hashed = None;
                if let Some((head, _)) = hashing.as_ref().filter(|_| is_hashed) {
                    let (routine, lane_word) = (head.thunk(), counting.lane_word);
                    let cache = next_word;
                    // Each context has one of its own.
                    let of_lane = if counting.contexts.is_some() { 0 } else { HashedCache::COUNT };
                    next_word = next_word.checked_add(of_lane).ok_or(too_many)?;
                    let procedure = next_hashed;
                    let first_word = if counting.contexts.is_some() { FIRST_OF_CONTEXT } else { next_word };
                    plan.count_hashed(Hashed { routine, lane_word, procedure, cache, low: words, first_word });
                    hashed = Some(next_hashed);
                    next_hashed += 1;
                }
                let counter = Counter {
                    place: match &head {
                        Some(_) => CounterPlace::OfContext,
                        None => CounterPlace::OfLane { lane_word: counting.lane_word, first: next_word.into() },
                    },
                    hashed: is_hashed.then_some(Numbers::Any),
                };
                let ends = match &counts {
                    CountedInside::Paths(numbering) if is_hashed => numbering.ends(&ways),
                    _ => FxHashMap::default(),
                };
                // Times are measured of each path by itself.
                let has_further = times.is_none();
                let mut further: Vec<u64> = Vec::new();
                let mut timed = None;
                for (site, operation) in operations {
                    let of_site = match ends.get(&site) {
                        Some((_, most)) if *most < words.into() => Numbers::Low,
                        Some((least, _)) if *least >= words.into() => Numbers::High,
                        _ => Numbers::Any,
                    };
                    let inserted = match operation {
                        // It is known, and has a word.
                        PathOperation::CountNumber(number) if is_hashed && has_further => {
                            let number = u64::from(number as u32);
                            let is_low = number < words.into();
                            let word = if is_low { number } else { u64::from(words) + further.len() as u64 };
                            further.extend((!is_low).then_some(number));
                            Counter { hashed: None, ..counter }.count(None, word as i64)
                        }
                        _ => inserted(operation, Counter { hashed: counter.hashed.map(|_| of_site), ..counter }),
                    };
                    plan.insert(place(site), inserted.ok_or(too_many)?);
                    if let Some(end) = times.as_ref().and_then(|_| path_end(operation)) {
                        plan.insert(place(site), end);
                    }
                }
                for (block, path) in turned.into_iter().filter(|_| has_further) {
                    let operation = |turn: usize| {
                        let word = i64::from(words) + (further.len() + turn) as i64;
                        Counter { hashed: None, ..counter }.count(None, word).ok_or(too_many)
                    };
                    plan.count_in_turn(block, [operation(0)?, operation(1)?, operation(2)?, operation(3)?]);
                    further.extend([path; TURNS]);
                }
                let of_further = further.len() as u32;
                if let (Some((head, timing)), CountedInside::Paths(numbering)) = (&times, &counts) {
                    // Where paths are counted in contexts, they have no words of a lane.
                    let word = if counting.contexts.is_some() { next_word } else { next_word.saturating_add(words) };
                    measure_times(&mut plan, graph, numbering.begins(&ways));
                    plan.measure_paths(head.times(*timing, (next_timed, word), counting.lane_word));
                    timed = Some(next_timed);
                    next_timed += 1;
                }
                let of_times = if timed.is_some() { OfProcedure::COUNT } else { 0 };
                let (entry, number) = (graph.entry, numbers.get(&graph.entry).copied());
                procedures.push(CountedProcedure {
                    entry,
                    number,
                    first_word: next_word,
                    entries,
                    hashed,
                    timed,
                    words,
                    further,
                    ways,
                    counts,
                    compared,
                });
                next_word = next_word.checked_add(of_times).ok_or(too_many)?;
                match head {
                    Some(_) => {
                        let count = FIRST_OF_CONTEXT + words + of_further;
                        let of_context = FlowCounters { count, are_more_hashed: is_hashed };
                        counters.last_mut().into_iter().for_each(|counters| *counters = of_context);
                    }
                    None => next_word = next_word.checked_add(words + of_further).ok_or(too_many)?,
                }
            }
            Ok(plan)
        },
    );
    let led = copies.link(clones, &outward.instead(counting.bound));
    let made: FxHashMap<LinkAddr, bool> =
        copies.made.iter().map(|made| (made.copy.entry, made.copy.is_timed)).collect();
    procedures.retain(|procedure| made.contains_key(&procedure.entry));
    let measures_calls = times.is_some() && counting.inside == Inside::Nothing;
    let is_unmeasured = |(entry, is_timed): (&LinkAddr, &bool)| (!is_timed && is_counted(*entry)).then_some(*entry);
    let mut without_times: Vec<LinkAddr> = made.iter().filter(|_| measures_calls).filter_map(is_unmeasured).collect();
    without_times.sort_unstable();
    for procedure in &mut procedures {
        procedure.timed = procedure.timed.filter(|_| made.get(&procedure.entry) == Some(&true));
    }
    let frames_at = LinkAddr(copies.end.0.next_multiple_of(size_of::<u64>() as u64));
    let frames = calls.frames(&copies, frames_at)?;
    for copy in copies.made.iter().map(|made| &made.copy) {
        changes.push(Change { at: copy.at, old: None, new: copy.code.clone() });
        let patches = copy.patches.iter();
        changes.extend(patches.map(|patch| Change {
            at: patch.at,
            old: Some(patch.old.clone()),
            new: patch.new.clone(),
        }));
    }
    let header = LinkAddr(frames_at.0 + frames.header);
    let end = LinkAddr(frames_at.0 + frames.bytes.len() as u64);
    changes.push(Change { at: frames_at, old: None, new: frames.bytes });
    let returns = copies.made.iter().flat_map(|made| {
        let procedure = numbers.get(&made.copy.entry).copied();
        made.copy.unmarked.iter().filter_map(move |call| {
            let UnmarkedCall { returns_to, words, is_above_rbp, site } = *call;
            let known = KnownReturn { words, is_above_rbp, site, procedure: procedure? };
            Some((returns_to.0.wrapping_add(counting.bias), known))
        })
    });
    let returns = returns.collect();
    let thunks = head.iter().map(|(head, _)| head.thunk());
    let thunks = thunks.chain(times.iter().flat_map(|(head, _)| head.thunks()));
    let thunks = thunks.chain(hashing.iter().map(|(head, _)| head.thunk())).map(|thunk| (thunk, false));
    let moved = Moved::of(&copies).with_thunks(thunks);
    let next_procedure = first_procedure + counters.len() as u32;
    Some(CountedModule {
        led,
        changes,
        copies,
        moved,
        header,
        end,
        procedures,
        next_word,
        next_procedure,
        next_timed,
        next_hashed,
        counters,
        without_paths,
        without_times,
        returns,
        to_clones: outward.to_clones(),
        taking_nodes: linkage.taking_nodes(),
    })
}

/// Where code begins that is the first of a thread, which nobody calls, and no procedure by its name: control comes there by a branch of
/// the procedure that made the new stack (glibc's `clone3`).
fn beginnings_of_stacks(module: &Module) -> Vec<LinkAddr> {
    let frames = module.file().call_frames();
    let is_first = |range: &&FrameRange| {
        let row = frames.rows_of(range).first();
        row.and_then(|row| frames.recipes.get(row.recipe as usize)) == Some(&Recipe::OUTERMOST)
    };
    let is_named =
        |at: &LinkAddr| *at == module.image().entry() || module.symbols().starts(true).any(|start| start == *at);
    frames.ranges.iter().filter(is_first).map(|range| range.code.start).filter(|at| !is_named(at)).collect()
}

fn too_many(graph: &ProcedureGraph) -> Refusal {
    Refusal { at: graph.entry, reason: Reason::TooFar }
}
