//! Asks a map for the paths of what was sampled without a walk.
//!
//! ```text
//! precise      the path's procedures, then the frame that was sampled
//! likely       the same, where the last calls are some that the code has, and were never counted; or where the code has others, too
//! static       the same, where the code has no other, and no run has taken it
//! ambiguous    the procedures that all its paths begin with, what is not determined, the frame
//! else         a partial path: the frame alone
//! ```
//!
//! Of a sample whose stack was walked until the map told the rest (`record --on-ambiguous=walk`), the outermost frame that was walked is asked
//! for in the same way, and the others stay below it. A stack that was walked whole stays as it is, whatever the map says
//! (`record --unwind=both`). A partly walked stack gets the map's callers if the walked callers are the innermost of these.

use callpath_db::{
    InferredCounts, InferredQuality, LIKELY_SAMPLES, MetricSource, Profile, STATIC_SAMPLES, WALKED_SAMPLES,
};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, FrameKind, ModuleIndex};
use callpath_infer::{Certainty, Identifier, OtherBuild, PathMap, Root, Search, Told};
use callpath_measurement::{
    FULL_ROOT, Measurement, NOT_WALKED, PARTIAL_ROOT, PathTree, SessionFile, ThreadProfile, told_by,
};
use callpath_schema::{Metric, MetricId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::code::{Code, ProcedureAt, Read};
use super::maps::{Maps, ProcessMaps, Which, not_measured};
use super::novel::Novel;
use crate::attribute::{AttributeOptions, Progress, attribute, attribute_inferred};

/// A measurement whose samples have the paths that a map gives them.
pub struct Inferred {
    /// The measurement.
    pub measurement: Measurement,
    /// What the map says.
    pub quality: InferredQuality,
    /// By process, the frames of callers that the map told.
    pub(super) callers: Vec<FxHashSet<FrameKey>>,
    /// What it cannot say, in sentences.
    pub notes: Vec<String>,
}

/// Whether the samples of a measurement keep how high the stack was, if there are any.
pub fn has_heights(measurement: &Measurement) -> bool {
    let is_height = |key: FrameKey| matches!(key.kind(), FrameKind::Height(_));
    let threads = || measurement.processes.iter().flat_map(|process| &process.threads);
    is_walked_until_told(&measurement.session)
        || threads().flat_map(|thread| thread.tree.nodes()).any(|node| is_height(node.key))
        || threads().all(|thread| thread.tally.full == 0 && thread.tally.partial == 0)
}

fn is_walked_until_told(session: &SessionFile) -> bool {
    session.notes.iter().any(|note| told_by(note).is_some())
}

/// Looks the paths of all samples up.
///
/// # Errors
/// If the map is of another build of code that was measured.
pub fn infer(
    mut measurement: Measurement,
    maps: Maps<'_>,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Result<Inferred, OtherBuild> {
    let mut code = Code::default();
    let modules: Vec<Vec<Option<usize>>> = measurement.processes.iter().map(|process| code.enter(process)).collect();
    code.read(Read::Frames, options, progress);
    let of_processes = maps.of_processes(&measurement, &modules, &code)?;
    let mut asker = Asker::new(&of_processes, &code);
    let of_session = Walked::of(&measurement.session);
    let mut quality = InferredQuality {
        is_walked: of_session == Walked::UntilTold,
        shows_walked: of_session == Walked::Whole,
        ..InferredQuality::default()
    };
    let mut asked: FxHashSet<(Option<usize>, u64, Identifier)> = FxHashSet::default();
    let mut callers = Vec::with_capacity(measurement.processes.len());
    let sessions = measurement.processes.iter().map(|process| measurement.session_of(process));
    let columns: Vec<(Columns, Walked)> = sessions.map(|session| (Columns::of(session), Walked::of(session))).collect();
    let processes = measurement.processes.iter_mut().zip(&modules).zip(columns).zip(of_processes.which());
    for (((process, modules), (columns, stacks)), which) in processes {
        let own = of_processes.own(modules);
        let mut entered = FxHashSet::default();
        for thread in &mut process.threads {
            let (asker, asked, pairs, entered) = (&mut asker, &mut asked, &mut quality.pairs, &mut entered);
            let mut of = OfThread { asker, asked, pairs, entered, which, modules, own: &own, columns, stacks };
            let found = of.infer(thread);
            add_counts(&mut quality.samples, &found.samples);
            add_counts(&mut quality.calls, &found.calls);
            quality.walked = quality.walked.saturating_add(found.walked);
        }
        callers.push(entered);
    }
    for session in measurement.sessions_mut() {
        let metric = |name| Metric { source: MetricSource::Samples, ..Metric::sum(name, "count") };
        session.metrics.extend([LIKELY_SAMPLES, STATIC_SAMPLES, WALKED_SAMPLES].map(metric));
        session.notes.retain(|note| note != NOT_WALKED && told_by(note).is_none());
    }
    let mut notes: Vec<String> = code.modules.iter().filter_map(|module| module.trouble.clone()).collect();
    let asked: FxHashSet<usize> = asked.iter().filter_map(|(module, ..)| *module).collect();
    notes.extend(asker.notes(&asked));
    notes.extend(not_measured(maps.map, &measurement));
    Ok(Inferred { measurement, quality, callers, notes })
}

/// The profile of inferred paths.
pub fn profile(inferred: &Inferred, options: &AttributeOptions, progress: Progress<'_>) -> Profile {
    let mut profile = attribute_inferred(&inferred.measurement, &inferred.callers, options, progress);
    profile.quality.inferred = Some(inferred.quality.clone());
    profile.info.notes.extend(inferred.notes.iter().cloned());
    profile
}

/// The same of what is novel of them.
pub fn novel_profile(novel: &Novel, options: &AttributeOptions, progress: Progress<'_>) -> Profile {
    match novel.callers.as_slice() {
        [] => attribute(&novel.measurement, options, progress),
        callers => attribute_inferred(&novel.measurement, callers, options, progress),
    }
}

/// Asks maps for the paths of a measurement.
pub(super) struct Asker<'a> {
    pub(super) map: &'a PathMap,
    searches: Vec<Search<'a>>,
    code: &'a Code,
    /// By module of the code, its number in the maps.
    modules: &'a [Option<u32>],
    procedures: FxHashMap<(u32, u64), u32>,
    roots: FxHashMap<Root, u32>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(maps: &'a ProcessMaps<'a>, code: &'a Code) -> Asker<'a> {
        let map = maps.whole();
        let procedures = map.procedures().iter().enumerate();
        let procedures = procedures.map(|(at, procedure)| ((procedure.module, procedure.start), at as u32)).collect();
        let roots = map.roots().iter().enumerate().map(|(at, root)| (*root, at as u32)).collect();
        let searches = maps.maps().map(Search::new).collect();
        Asker { map, searches, code, modules: maps.modules(), procedures, roots }
    }

    pub(super) fn procedure(&self, at: ProcedureAt) -> Option<u32> {
        let module = (*self.modules.get(at.module)?)?;
        self.procedures.get(&(module, at.start.0)).copied()
    }

    /// The number of the stack that a thread is on.
    pub(super) fn root(&self, thread: &ThreadProfile, modules: &[Option<usize>]) -> Option<u32> {
        let root = match thread.start {
            None => Root::Main,
            Some(start) => Root::Thread(self.procedure(self.code.procedure(modules, start)?)?),
        };
        self.roots.get(&root).copied()
    }

    /// What one of the maps says of a procedure at a height, and the identifier that it was asked for.
    pub(super) fn ask(
        &mut self,
        which: Which,
        root: Option<u32>,
        (at, height): (Option<ProcedureAt>, Option<i64>),
    ) -> (Known<'a>, Option<Identifier>) {
        let identifier = height.zip(at.and_then(|at| self.procedure(at))).zip(root);
        let identifier = identifier.map(|((height, procedure), root)| Identifier { root, procedure, height });
        let known = match (identifier, self.searches.get_mut(which.0)) {
            (Some(identifier), Some(search)) => Known::Told(search.tell(identifier)),
            // The map has not even the procedure, or the thread.
            (None, _) if height.is_some() && at.is_some() => Known::Unheard,
            _ => Known::Undetermined,
        };
        (known, identifier)
    }

    /// Where a procedure of the map begins, with its module as the measurement has it.
    pub(super) fn place(&self, procedure: u32) -> Option<(usize, u64)> {
        let procedure = self.map.procedures().get(procedure as usize)?;
        let module = self.modules.iter().position(|known| *known == Some(procedure.module))?;
        Some((module, procedure.start))
    }

    /// Modules that it was asked of, and knows nothing of.
    fn notes(&self, asked: &FxHashSet<usize>) -> impl Iterator<Item = String> {
        let modules = self.code.modules.iter().zip(self.modules).enumerate();
        let unknown = modules.filter(|(index, (module, known))| {
            known.is_none() && asked.contains(index) && module.has_frames() && module.trouble.is_none()
        });
        unknown.map(|(_, (module, _))| {
            format!("the map knows nothing of {}: paths of samples there are missing", module.record.path.display())
        })
    }
}

struct OfThread<'a, 'm> {
    asker: &'a mut Asker<'m>,
    /// Identifiers that were asked for, with where their code is.
    asked: &'a mut FxHashSet<(Option<usize>, u64, Identifier)>,
    /// What the map says of them.
    pairs: &'a mut InferredCounts,
    /// Frames of callers that it told.
    entered: &'a mut FxHashSet<FrameKey>,
    which: Which,
    modules: &'a [Option<usize>],
    /// The process's indices of the map's modules.
    own: &'a [ModuleIndex],
    columns: Columns,
    /// What was walked.
    stacks: Walked,
}

/// Numbers of metrics.
#[derive(Clone, Copy)]
struct Columns {
    /// The one that counts samples, and calls of probed functions, whose path is likely; the next ones count those that the code alone has, and
    /// those whose stack was walked whole.
    marks: usize,
    /// The one of calls of probed functions.
    calls: Option<usize>,
}

impl Columns {
    fn of(session: &SessionFile) -> Columns {
        let calls = session.metrics.iter().position(|metric| metric.id == Some(MetricId::CALLS));
        Columns { marks: session.metrics.len(), calls }
    }
}

/// What a map says of a thread's samples and calls.
#[derive(Default)]
struct OfAll {
    samples: InferredCounts,
    calls: InferredCounts,
    /// Samples whose stack was walked whole.
    walked: u64,
}

/// What a session has walked of its stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walked {
    /// Nothing.
    Nothing,
    /// What lies below a frame of which the map tells the rest.
    UntilTold,
    /// All, as far as walks led; heights were kept besides.
    Whole,
}

impl Walked {
    fn of(session: &SessionFile) -> Walked {
        match () {
            () if is_walked_until_told(session) => Walked::UntilTold,
            () if session.notes.iter().any(|note| note == NOT_WALKED) => Walked::Nothing,
            () => Walked::Whole,
        }
    }
}

/// Where a node of a thread's tree is in the tree of inferred paths.
#[derive(Clone, Copy)]
enum Place {
    /// Where it was.
    AsItWas,
    /// It says how high the stack is at the frames that hang on it: the map tells the rest of their paths.
    Above(Option<i64>),
    /// There: so sure is what is above it.
    Below(u32, Certainty),
    /// There, where its stack was walked whole: so sure is what the map says.
    Walked(u32, Certainty),
}

/// What is known of an identifier.
pub(super) enum Known<'m> {
    Told(Told<'m>),
    /// The map has not even the procedure.
    Unheard,
    /// Its height or procedure is not known.
    Undetermined,
}

impl Known<'_> {
    pub(super) fn certainty(&self) -> Certainty {
        match self {
            Known::Told(told) => told.certainty,
            Known::Unheard => Certainty::Missing,
            Known::Undetermined => Certainty::Undetermined,
        }
    }

    /// The callers of each path that it tells, or of the first ones.
    pub(super) fn callers(&self) -> Vec<Vec<u32>> {
        if let Known::Told(told) = self { told.callers() } else { Vec::new() }
    }
}

/// What is asked for: a frame of a thread's stack, how high the stack is there.
type Asked = (Option<u32>, FrameKey, Option<i64>);

impl<'m> OfThread<'_, 'm> {
    /// Gives a thread's samples and calls their paths.
    fn infer(&mut self, thread: &mut ThreadProfile) -> OfAll {
        let root = self.asker.root(thread, self.modules);
        let mut tree = PathTree::default();
        let (mut found, nodes) = (0_u64, thread.tree.nodes());
        let OfAll { mut samples, mut calls, mut walked } = OfAll::default();
        let mut places: Vec<Place> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let above = places.get(node.parent as usize).copied().unwrap_or(Place::AsItWas);
            let parent = nodes.get(node.parent as usize).map_or(FrameKey::UNDETERMINED, |parent| parent.key);
            let is_first = index > PARTIAL_ROOT as usize && node.parent <= PARTIAL_ROOT;
            let place = match (above, node.key.kind()) {
                (_, FrameKind::Height(height)) if is_first => Place::Above(height),
                (Place::Above(height), _) => {
                    let (at, certainty) = self.ask((root, node.key, height), &mut tree);
                    Place::Below(at, certainty)
                }
                (Place::Below(at, certainty), _) => Place::Below(tree.child(at, node.key), certainty),
                (Place::AsItWas, FrameKind::Height(height)) if self.stacks == Walked::Whole => {
                    self.ask_walked((root, parent, height), (&thread.tree, node.parent), &mut tree)
                }
                (Place::AsItWas, FrameKind::Height(height)) => {
                    let (at, certainty) = self.ask((root, parent, height), &mut tree);
                    Place::Below(at, certainty)
                }
                // What is no sample stays where it is, too: gaps, and what a thread has used without one.
                (Place::AsItWas, _) => Place::AsItWas,
                (Place::Walked(..), _) => above,
            };
            places.push(place);
            let (to, certainty) = match place {
                Place::Below(to, certainty) => (to, certainty),
                Place::Above(_) => continue,
                Place::Walked(to, certainty) => {
                    count(certainty, node.samples, &mut samples);
                    add(&thread.tree, index, (&mut tree, to));
                    walked = walked.saturating_add(node.samples);
                    found = found.saturating_add(node.samples);
                    self.mark((&mut tree, to), self.columns.marks + 2, node.samples);
                    continue;
                }
                Place::AsItWas => {
                    let (root, place) = keep(&thread.tree, index, &mut tree);
                    found = found.saturating_add(if root == FULL_ROOT { node.samples } else { 0 });
                    if self.stacks == Walked::UntilTold
                        && node.samples > 0
                        && !matches!(node.key.kind(), FrameKind::Gap(_))
                    {
                        walked = walked.saturating_add(node.samples);
                        self.mark((&mut tree, place), self.columns.marks + 2, node.samples);
                    }
                    continue;
                }
            };
            count(certainty, node.samples, &mut samples);
            let called = self.columns.calls.map_or(0, |calls| value(&thread.tree, index, calls));
            count(certainty, called, &mut calls);
            add(&thread.tree, index, (&mut tree, to));
            let both = node.samples.saturating_add(called);
            match certainty {
                Certainty::Precise => {}
                Certainty::Likely => self.mark((&mut tree, to), self.columns.marks, both),
                Certainty::Static => self.mark((&mut tree, to), self.columns.marks + 1, both),
                _ => continue,
            }
            found = found.saturating_add(node.samples);
        }
        thread.tree = tree;
        let all = thread.tally.full.saturating_add(thread.tally.partial);
        thread.tally.full = found.min(all);
        thread.tally.partial = all - thread.tally.full;
        OfAll { samples, calls, walked }
    }

    /// What the map says of a frame, with how sure that is.
    fn look_up(&mut self, (root, frame, height): Asked) -> (Known<'m>, Certainty) {
        let at = self.asker.code.procedure(self.modules, frame);
        let (known, identifier) = self.asker.ask(self.which, root, (at, height));
        let place = at.map_or((None, frame.0), |at| (Some(at.module), at.start.0));
        let in_place = identifier.unwrap_or(Identifier { root: 0, procedure: 0, height: height.unwrap_or(i64::MIN) });
        let is_new = self.asked.insert((place.0, place.1, in_place));
        let certainty = match (&known, known.certainty()) {
            // What else the code has, the walk has compared with the stack.
            (Known::Told(told), Certainty::Likely) if self.stacks == Walked::UntilTold && told.is_seen() => {
                Certainty::Precise
            }
            (_, certainty) => certainty,
        };
        count(certainty, u64::from(is_new), self.pairs);
        (known, certainty)
    }

    /// Where a frame is in the tree by what the map says of it.
    fn ask(&mut self, asked: Asked, tree: &mut PathTree) -> (u32, Certainty) {
        let (known, certainty) = self.look_up(asked);
        let caller = match (&known, certainty) {
            (Known::Told(told), Certainty::Precise | Certainty::Likely | Certainty::Static) => {
                told.callers().first().map(|callers| self.enter(callers, tree))
            }
            (Known::Told(told), Certainty::Ambiguous(_)) => {
                let caller = self.enter(&told.common(), tree);
                Some(tree.child(caller, FrameKey::UNDETERMINED))
            }
            _ => None,
        };
        (tree.child(caller.unwrap_or(PARTIAL_ROOT), asked.1), certainty)
    }

    /// Where the innermost frame of a walk is in the tree: where it was, if its stack was walked whole; else below the callers that the map
    /// tells, where those that were walked are the last of them.
    fn ask_walked(&mut self, asked: Asked, (from, innermost): (&PathTree, u32), tree: &mut PathTree) -> Place {
        let (root, keys) = path_of(from, innermost);
        if root == PARTIAL_ROOT && keys.len() <= 1 {
            let (at, certainty) = self.ask(asked, tree);
            return Place::Below(at, certainty);
        }
        let (known, certainty) = self.look_up(asked);
        let down = |from: u32, tree: &mut PathTree| keys.iter().fold(from, |at, key| tree.child(at, *key));
        if root == FULL_ROOT {
            return Place::Walked(down(root, tree), certainty);
        }
        let is_told = matches!(certainty, Certainty::Precise | Certainty::Likely | Certainty::Static);
        let callers = if is_told { known.callers().into_iter().next() } else { None };
        let beyond = callers.and_then(|callers| {
            let walked = keys.split_last().map_or(&[][..], |(_, callers)| callers);
            let (beyond, last) = callers.split_at_checked(callers.len().checked_sub(walked.len())?)?;
            let number = |key: &FrameKey| self.asker.procedure(self.asker.code.procedure(self.modules, *key)?);
            walked.iter().map(number).eq(last.iter().map(|procedure| Some(*procedure))).then(|| beyond.to_vec())
        });
        match beyond {
            Some(beyond) => {
                let from = self.enter(&beyond, tree);
                Place::Below(down(from, tree), certainty)
            }
            // What was walked is true; the rest of the path is not known.
            None => Place::Below(down(PARTIAL_ROOT, tree), Certainty::Missing),
        }
    }

    /// Counts samples and calls of a node in one of the metrics that say how their paths are known.
    fn mark(&self, (tree, at): (&mut PathTree, u32), column: usize, samples: u64) {
        let mut values = vec![0; column];
        values.push(samples);
        tree.add(at, 0, &values);
    }

    /// The frames of callers, the outermost first, from the root of full paths.
    fn enter(&mut self, callers: &[u32], tree: &mut PathTree) -> u32 {
        let mut at = FULL_ROOT;
        for procedure in callers {
            let procedure = self.asker.map.procedures().get(*procedure as usize);
            let key = procedure.and_then(|procedure| {
                let module = *self.own.get(procedure.module as usize)?;
                Some(FrameKey::in_module(module, LinkAddr(procedure.start)))
            });
            self.entered.extend(key);
            at = tree.child(at, key.unwrap_or(FrameKey::UNDETERMINED));
        }
        at
    }
}

/// Enters what was measured at a node, with all above it, into another tree. Returns its root and its place there.
pub(super) fn keep(from: &PathTree, index: usize, to: &mut PathTree) -> (u32, u32) {
    let node = &from.nodes()[index];
    if node.samples == 0 && from.values(index as u32).next().is_none() {
        return (PARTIAL_ROOT, PARTIAL_ROOT);
    }
    let (root, path) = path_of(from, index as u32);
    let place = path.iter().fold(root, |node, key| to.child(node, *key));
    add(from, index, (to, place));
    (root, place)
}

/// The root that a node hangs on, and what is below that, down to it.
fn path_of(tree: &PathTree, node: u32) -> (u32, Vec<FrameKey>) {
    let mut path = Vec::new();
    let mut at = node;
    while at > PARTIAL_ROOT {
        path.push(tree.nodes()[at as usize].key);
        at = tree.nodes()[at as usize].parent;
    }
    path.reverse();
    (at, path)
}

fn count(certainty: Certainty, n: u64, counts: &mut InferredCounts) {
    if n == 0 {
        return;
    }
    let to = match certainty {
        Certainty::Precise => &mut counts.precise,
        Certainty::Likely => &mut counts.likely,
        Certainty::Static => &mut counts.by_code,
        Certainty::Ambiguous(degree) => {
            let degree = counts.degree.entry(degree).or_default();
            *degree = degree.saturating_add(n);
            &mut counts.ambiguous
        }
        Certainty::Missing => &mut counts.missing,
        Certainty::Undetermined => &mut counts.undetermined,
    };
    *to = to.saturating_add(n);
}

fn add_counts(to: &mut InferredCounts, counts: &InferredCounts) {
    for (certainty, n) in [
        (Certainty::Precise, counts.precise),
        (Certainty::Likely, counts.likely),
        (Certainty::Static, counts.by_code),
        (Certainty::Missing, counts.missing),
        (Certainty::Undetermined, counts.undetermined),
    ] {
        count(certainty, n, to);
    }
    counts.degree.iter().for_each(|(degree, n)| count(Certainty::Ambiguous(*degree), *n, to));
}

/// What was measured of one metric at a node.
fn value(tree: &PathTree, index: usize, metric: usize) -> u64 {
    tree.values(index as u32).find_map(|(at, value)| (at == metric).then_some(value)).unwrap_or(0)
}

/// Adds what one tree's node costs to another's.
fn add(from: &PathTree, index: usize, (to, place): (&mut PathTree, u32)) {
    let mut values = Vec::new();
    for (metric, value) in from.values(index as u32) {
        if values.len() <= metric {
            values.resize(metric + 1, 0);
        }
        values[metric] = value;
    }
    to.add(place, from.nodes()[index].samples, &values);
}
