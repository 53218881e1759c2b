//! Leaves of a measurement what its map never saw: what a program does in production that it does not do in tests.
//!
//! A path that was walked is novel from the first call on that no training run made there. Where a walk was not made, what is novel is that the map has
//! no path. Code that could not be counted, and that known code calls, may have been called: it is not novel. Callers that another map has told
//! ([`Inferred`]) are as those that were walked.

use callpath_format::frame::{FrameKey, FrameKind};
use callpath_infer::{Certainty, OtherBuild, PathMap};
use callpath_measurement::{FULL_ROOT, Measurement, PARTIAL_ROOT, PathTree, ThreadProfile};
use rustc_hash::{FxHashMap, FxHashSet};

use super::answer::{Asker, Inferred, Known, keep};
use super::code::{Code, Links};
use super::maps::{Maps, Which};
use crate::attribute::{AttributeOptions, Progress};

/// A measurement with the samples alone that are novel.
pub struct Novel {
    /// The measurement.
    pub measurement: Measurement,
    /// Samples that are, and all.
    pub samples: (u64, u64),
    /// By process, the frames of callers that were not walked; empty: all were.
    pub(super) callers: Vec<FxHashSet<FrameKey>>,
}

/// What a map says of a frame in its context.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Its node; `None`: above all.
    Yes(Option<u32>),
    No,
    /// That cannot be told.
    Unclear,
}

/// What a map knows of calls.
struct Calls {
    nodes: FxHashMap<(Option<u32>, u32, u32), u32>,
    /// Callee and caller.
    direct: FxHashSet<(u32, u32)>,
    uncounted: FxHashSet<u32>,
}

impl Calls {
    fn of(map: &PathMap) -> Calls {
        let nodes = (0u32..).zip(map.nodes()).map(|(at, node)| ((node.parent, node.procedure, node.root), at));
        Calls {
            nodes: nodes.collect(),
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
    code.read(options, progress);
    let of_processes = maps.of_processes(&measurement, &modules, &code)?;
    let mut asker = Asker::new(&of_processes, &code);
    let (calls, mut links, mut samples) = (Calls::of(maps.map), Links::default(), (0_u64, 0_u64));
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
    fn leave_novel(&mut self, thread: &mut ThreadProfile, links: &mut Links, samples: &mut (u64, u64)) {
        let root = self.asker.root(thread, self.modules);
        let nodes = thread.tree.nodes();
        let mut seen: Vec<Seen> = Vec::with_capacity(nodes.len());
        let mut novel = PathTree::default();
        for (index, node) in nodes.iter().enumerate() {
            let above = seen.get(node.parent as usize).copied().unwrap_or(Seen::Unclear);
            let here = match (index as u32, node.key.kind()) {
                (FULL_ROOT, _) => Seen::Yes(None),
                (PARTIAL_ROOT, _) => Seen::Unclear,
                // Of a sample that walked no stack.
                (_, FrameKind::Height(height)) if nodes[node.parent as usize].parent == PARTIAL_ROOT => {
                    let at = self.code.procedure(self.modules, nodes[node.parent as usize].key);
                    match self.asker.ask(self.which, root, (at, height)).0 {
                        // The code alone has it: no run has taken it.
                        Known::Told(told) if told.is_new() || told.certainty == Certainty::Missing => Seen::No,
                        Known::Unheard => Seen::No,
                        Known::Told(_) | Known::Undetermined => Seen::Unclear,
                    }
                }
                (_, FrameKind::Height(_)) => above,
                _ => self.seen((above, root), (nodes[node.parent as usize].key, node.key), links),
            };
            seen.push(here);
            samples.1 = samples.1.saturating_add(node.samples);
            if here == Seen::No {
                samples.0 = samples.0.saturating_add(node.samples);
                keep(&thread.tree, index, &mut novel);
            }
        }
        thread.tree = novel;
    }

    fn seen(&self, (above, root): (Seen, Option<u32>), (caller, key): (FrameKey, FrameKey), links: &mut Links) -> Seen {
        let Seen::Yes(parent) = above else { return above };
        let is_told = self.told.is_some_and(|told| told.contains(&caller));
        if parent.is_some() && !is_told && !links.is_possible(self.code, self.modules, (caller, key)) {
            return Seen::Unclear;
        }
        // A thread that begins where none did.
        let Some(root) = root else { return Seen::No };
        let Some(at) = self.code.procedure(self.modules, key) else { return Seen::Unclear };
        let Some(procedure) = self.asker.procedure(at) else { return Seen::No };
        if let Some(node) = self.calls.nodes.get(&(parent, procedure, root)) {
            return Seen::Yes(Some(*node));
        }
        let of_caller =
            parent.and_then(|parent| self.asker.map.nodes().get(parent as usize)).map(|node| node.procedure);
        let may_call = of_caller.is_some_and(|of_caller| self.calls.direct.contains(&(procedure, of_caller)));
        if may_call && self.calls.uncounted.contains(&procedure) { Seen::Unclear } else { Seen::No }
    }
}
