//! Leaves of a measurement what its map never saw: what a program does in production that it does not do in tests.
//!
//! A path that was walked is novel from the first call on that no training run made there. Where its beginning is not known (a partial path, one that
//! begins in code of no procedure), it is novel if no path of the map has the calls that are. Where a walk was not made, what is novel is that the
//! map has no path. Callers that another map has told ([`Inferred`]) are as those that were walked.
//!
//! Of other samples it cannot be told: their height is not known, or the map's path is no more than likely; or they are in code that could not be
//! counted, and that known code calls. These count neither as novel nor as seen.

use callpath_format::frame::{FrameKey, FrameKind};
use callpath_infer::{Certainty, OtherBuild, PathMap};
use callpath_measurement::{FULL_ROOT, Measurement, PARTIAL_ROOT, PathTree, ThreadProfile};
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

use super::answer::{Asker, Inferred, Known, keep};
use super::code::{Code, Links, Read};
use super::maps::{Maps, Which};
use crate::attribute::{AttributeOptions, Progress};

/// A measurement with the samples alone that are novel.
pub struct Novel {
    /// The measurement.
    pub measurement: Measurement,
    /// How many are.
    pub samples: NovelSamples,
    /// By process, the frames of callers that were not walked; empty: all were.
    pub(super) callers: Vec<FxHashSet<FrameKey>>,
}

/// How many samples are novel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NovelSamples {
    /// In call paths that the map never saw.
    pub novel: u64,
    /// Of which that cannot be told.
    pub unclear: u64,
    /// All, with those in call paths that it has seen.
    pub all: u64,
}

/// What a map says of a frame in its context.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    /// It is above all.
    Top,
    /// It was seen in that context: its node.
    At(u32),
    /// Where its path begins is not known: the nodes that it may be.
    Among(Rc<[u32]>),
    /// It may be any.
    Anywhere,
    /// No height was needed: a map has a path to it.
    Told,
    No,
    /// That cannot be told.
    Unclear,
}

/// What a map knows of calls.
struct Calls {
    nodes: FxHashMap<(Option<u32>, u32, u32), u32>,
    /// By procedure and stack.
    anywhere: FxHashMap<(u32, u32), Rc<[u32]>>,
    /// Callee and caller.
    direct: FxHashSet<(u32, u32)>,
    uncounted: FxHashSet<u32>,
}

impl Calls {
    fn of(map: &PathMap) -> Calls {
        let nodes = (0u32..).zip(map.nodes()).map(|(at, node)| ((node.parent, node.procedure, node.root), at));
        let mut anywhere: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
        for (at, node) in (0u32..).zip(map.nodes()) {
            anywhere.entry((node.procedure, node.root)).or_default().push(at);
        }
        Calls {
            nodes: nodes.collect(),
            anywhere: anywhere.into_iter().map(|(key, nodes)| (key, nodes.into())).collect(),
            direct: map.calls().iter().map(|call| (call.callee, call.caller)).collect(),
            uncounted: map.uncounted().iter().copied().collect(),
        }
    }
}

/// Leaves what is novel of call paths that another map has told in part.
///
/// # Errors
/// If the map is of another build of code that was measured.
pub fn novel_of_inferred(
    inferred: Inferred,
    maps: Maps<'_>,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Result<Novel, OtherBuild> {
    let Inferred { measurement, callers, .. } = inferred;
    let found = leave_novel((measurement, &callers), maps, options, progress)?;
    Ok(Novel { callers, ..found })
}

/// Leaves what is novel.
///
/// # Errors
/// If the map is of another build of code that was measured.
pub fn novel(
    measurement: Measurement,
    maps: Maps<'_>,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Result<Novel, OtherBuild> {
    leave_novel((measurement, &[]), maps, options, progress)
}

fn leave_novel(
    (mut measurement, callers): (Measurement, &[FxHashSet<FrameKey>]),
    maps: Maps<'_>,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Result<Novel, OtherBuild> {
    let mut code = Code::default();
    let modules: Vec<Vec<Option<usize>>> = measurement.processes.iter().map(|process| code.enter(process)).collect();
    code.read(Read::Frames, options, progress);
    let of_processes = maps.of_processes(&measurement, &modules, &code)?;
    let mut asker = Asker::new(&of_processes, &code);
    let (calls, mut links, mut samples) = (Calls::of(maps.map), Links::default(), NovelSamples::default());
    let processes = measurement.processes.iter_mut().zip(&modules).zip(of_processes.which()).enumerate();
    for (index, ((process, modules), which)) in processes {
        let told = callers.get(index);
        let mut of = OfProcess { asker: &mut asker, which, code: &code, modules, calls: &calls, told };
        for thread in &mut process.threads {
            of.leave_novel(thread, &mut links, &mut samples);
        }
    }
    Ok(Novel { measurement, samples, callers: Vec::new() })
}

struct OfProcess<'a, 'm> {
    asker: &'a mut Asker<'m>,
    which: Which,
    code: &'a Code,
    modules: &'a [Option<usize>],
    calls: &'a Calls,
    /// Frames of callers that were not walked: where their procedures begin, at no call.
    told: Option<&'a FxHashSet<FrameKey>>,
}

impl OfProcess<'_, '_> {
    fn leave_novel(&mut self, thread: &mut ThreadProfile, links: &mut Links, samples: &mut NovelSamples) {
        let root = self.asker.root(thread, self.modules);
        let nodes = thread.tree.nodes();
        let mut seen: Vec<Seen> = Vec::with_capacity(nodes.len());
        let mut novel = PathTree::default();
        for (index, node) in nodes.iter().enumerate() {
            let above = seen.get(node.parent as usize).cloned().unwrap_or(Seen::Unclear);
            let here = match (index as u32, node.key.kind()) {
                (FULL_ROOT, _) => Seen::Top,
                (PARTIAL_ROOT, _) => Seen::Anywhere,
                // Of a sample that walked no stack.
                (_, FrameKind::Height(height)) if nodes[node.parent as usize].parent == PARTIAL_ROOT => {
                    self.told((root, nodes[node.parent as usize].key, height))
                }
                (_, FrameKind::Height(_)) => above,
                _ => self.seen((above, root), (nodes[node.parent as usize].key, node.key), links),
            };
            samples.all = samples.all.saturating_add(node.samples);
            match here {
                Seen::At(_) | Seen::Told => {}
                Seen::No => {
                    samples.novel = samples.novel.saturating_add(node.samples);
                    keep(&thread.tree, index, &mut novel);
                }
                Seen::Top | Seen::Among(_) | Seen::Anywhere | Seen::Unclear => {
                    samples.unclear = samples.unclear.saturating_add(node.samples);
                }
            }
            seen.push(here);
        }
        thread.tree = novel;
    }

    /// What the map says by the height of a frame alone.
    fn told(&mut self, (root, key, height): (Option<u32>, FrameKey, Option<i64>)) -> Seen {
        let at = self.code.procedure(self.modules, key);
        match self.asker.ask(self.which, root, (at, height)).0 {
            Known::Unheard => Seen::No,
            Known::Undetermined => Seen::Unclear,
            // The code alone has it: no run has taken it.
            Known::Told(told) if told.is_new() => Seen::No,
            Known::Told(told) => match told.certainty {
                Certainty::Missing => Seen::No,
                Certainty::Precise | Certainty::Ambiguous(_) if told.is_seen() => Seen::Told,
                _ => Seen::Unclear,
            },
        }
    }

    fn seen(&self, (above, root): (Seen, Option<u32>), (caller, key): (FrameKey, FrameKey), links: &mut Links) -> Seen {
        if matches!(above, Seen::No | Seen::Told) {
            return above;
        }
        let is_told = self.told.is_some_and(|told| told.contains(&caller));
        let is_first = matches!(above, Seen::Top | Seen::Anywhere | Seen::Unclear);
        let is_linked = is_first || is_told || links.is_possible(self.code, self.modules, (caller, key));
        // A thread that begins where none did.
        let Some(root) = root else { return Seen::No };
        let Some(at) = self.code.procedure(self.modules, key) else { return Seen::Anywhere };
        let Some(procedure) = self.asker.procedure(at) else { return Seen::No };
        let child = |parent: Option<u32>| self.calls.nodes.get(&(parent, procedure, root)).copied();
        let found: Rc<[u32]> = match &above {
            Seen::At(parent) if is_linked => match child(Some(*parent)) {
                Some(node) => return Seen::At(node),
                None => Rc::default(),
            },
            Seen::Top => match child(None) {
                Some(node) => return Seen::At(node),
                None => Rc::default(),
            },
            Seen::Among(parents) if is_linked => parents.iter().filter_map(|parent| child(Some(*parent))).collect(),
            _ => self.calls.anywhere.get(&(procedure, root)).cloned().unwrap_or_default(),
        };
        if !found.is_empty() {
            return Seen::Among(found);
        }
        let calls = |parent: &u32| {
            let of_caller = self.asker.map.nodes().get(*parent as usize).map(|node| node.procedure);
            of_caller.is_some_and(|of_caller| self.calls.direct.contains(&(procedure, of_caller)))
        };
        let may_be_called = match &above {
            Seen::At(parent) if is_linked => calls(parent),
            Seen::Among(parents) if is_linked => parents.iter().any(calls),
            Seen::Top => false,
            _ => true,
        };
        if may_be_called && self.calls.uncounted.contains(&procedure) { Seen::Unclear } else { Seen::No }
    }
}
