//! How often a map is right: of samples that were walked and keep how high the stack was, what the map says, and what is true.

use callpath_format::frame::{CloneNumber, FrameKey, FrameKind};
use callpath_infer::{Certainty, Identifier, OtherBuild, PathMap, Root};
use callpath_measurement::{FULL_ROOT, Measurement, PARTIAL_ROOT, PathTree, ThreadProfile};
use rustc_hash::{FxHashMap, FxHashSet};

use super::answer::Asker;
use super::code::{Code, Links, Read};
use super::maps::{Maps, Which};
use crate::attribute::{AttributeOptions, Progress};

/// Of context identifiers whose call path is known (Mytkowicz, Coughlin and Diwan 2009, section 8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdicts {
    /// The map has one path, and it is the true one.
    pub precise: u64,
    /// Several, the true one among them.
    pub ambiguous: u64,
    /// One, which is another: a wrong answer.
    pub wrong: u64,
    /// One that is likely, and it is the true one.
    pub likely: u64,
    /// One that is likely, and it is wrong.
    pub unlikely: u64,
    /// One that the code alone has, and it is the true one.
    pub by_code: u64,
    /// One that the code alone has, and it is wrong.
    pub by_code_wrong: u64,
    /// Several, all others.
    pub incorrect: u64,
    /// So many that they are not told.
    pub many: u64,
    /// None.
    pub missing: u64,
    /// The height is not known, or the procedure is not.
    pub undetermined: u64,
}

impl Verdicts {
    /// All.
    pub fn all(&self) -> u64 {
        let right = [self.precise, self.ambiguous, self.likely, self.by_code];
        let wrong = [self.wrong, self.unlikely, self.incorrect, self.by_code_wrong];
        let other = [self.many, self.missing, self.undetermined];
        right.iter().chain(&wrong).chain(&other).fold(0, |sum: u64, n| sum.saturating_add(*n))
    }
}

/// A map checked against a measurement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Of distinct paths at distinct heights.
    pub paths: Verdicts,
    /// Of samples.
    pub samples: Verdicts,
    /// Wrong answers: what the map says, and what is true, each as its procedures, outermost first; the first of them.
    pub wrong: Vec<(Vec<String>, Vec<String>)>,
    /// What is missing; the first of it.
    pub missing: Vec<Missing>,
    /// Samples whose walk was cut short: their path is not known.
    pub unknown: u64,
    /// What walks would be like that end where the map tells the rest.
    pub walks: Walks,
}

/// Walks that end at a frame of which a map tells the rest of the path (`record --on-ambiguous=walk`), as they would have been. Numbers of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walks {
    /// The map tells the rest.
    pub told: u64,
    /// The map tells it of no frame: the stack is walked whole.
    pub whole: u64,
    /// Frames that are walked where the map tells the rest, of all these samples.
    pub walked_frames: u64,
    /// All frames of their stacks.
    pub frames: u64,
}

/// A call path that the map does not have at the height at which it was sampled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Its procedures, outermost first.
    pub path: Vec<String>,
    /// The height, bytes.
    pub height: i64,
    /// At which heights the map has it; `None`: it does not have it at all.
    pub known_at: Option<Vec<i64>>,
}

/// How many wrong answers, and missing ones, are kept.
const KEPT: usize = 20;

/// Checks a map against a measurement whose samples were walked and keep heights.
///
/// # Errors
/// If the map is of another build of code that was measured.
pub fn check(
    measurement: &Measurement,
    maps: Maps<'_>,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Result<Checked, OtherBuild> {
    let mut code = Code::default();
    let modules: Vec<Vec<Option<usize>>> = measurement.processes.iter().map(|process| code.enter(process)).collect();
    code.read(Read::Frames, options, progress);
    let of_processes = maps.of_processes(measurement, &modules, &code)?;
    let mut asker = Asker::new(&of_processes, &code);
    let mut found = Found::default();
    let told: Vec<(&PathMap, FxHashMap<Identifier, u32>)> =
        of_processes.maps().map(|map| (map, map.told().collect())).collect();
    for ((process, modules), which) in measurement.processes.iter().zip(&modules).zip(of_processes.which()) {
        let (map, told) = &told[which.0];
        let mut checker = Checker { asker: &mut asker, which, code: &code, map, told, found: &mut found };
        for thread in &process.threads {
            checker.check(thread, modules);
        }
    }
    Ok(found.checked)
}

/// A place in code: its module and where its procedure begins; where that is not known, its key.
type Place = (usize, u64);

/// What was found out until now.
#[derive(Default)]
struct Found {
    checked: Checked,
    links: Links,
    seen: FxHashSet<(Vec<Place>, Option<i64>)>,
}

struct Checker<'a, 'm> {
    asker: &'a mut Asker<'m>,
    which: Which,
    code: &'a Code,
    map: &'a PathMap,
    /// What the map tells without doubt: by identifier, its path.
    told: &'a FxHashMap<Identifier, u32>,
    found: &'a mut Found,
}

impl Checker<'_, '_> {
    fn check(&mut self, thread: &ThreadProfile, modules: &[Option<usize>]) {
        let root = self.asker.root(thread, modules);
        let nodes = thread.tree.nodes();
        for node in nodes {
            let FrameKind::Height(height) = node.key.kind() else { continue };
            let keys = whole_path(&thread.tree, node.parent);
            let is_linked = |keys: &Vec<FrameKey>| {
                keys.windows(2).all(|link| self.found.links.is_possible(self.code, modules, (link[0], link[1])))
            };
            let Some(keys) = keys.filter(is_linked) else {
                self.found.checked.unknown = self.found.checked.unknown.saturating_add(node.samples);
                continue;
            };
            let place = |key: &FrameKey| {
                self.code.procedure(modules, *key).map_or((usize::MAX, key.0), |at| (at.module, at.start.0))
            };
            let truth: Vec<Place> = keys.iter().map(place).collect();
            self.walk((&keys, &truth, modules), (root, height), node.samples);
            let sampled = keys.last().and_then(|key| self.code.procedure(modules, *key));
            let (known, _) = self.asker.ask(self.which, root, (sampled, height));
            let callers = known.callers();
            let callers_truth = truth.split_last().map_or(&[][..], |(_, callers)| callers);
            let truth_from = self.callers_in_thread(&truth, callers_truth, root);
            let is_among =
                callers.iter().any(|callers| self.are(callers, callers_truth) || self.are(callers, truth_from));
            let verdict: fn(&mut Verdicts) -> &mut u64 = match (known.certainty(), is_among) {
                (Certainty::Undetermined, _) => |verdicts| &mut verdicts.undetermined,
                (Certainty::Missing, _) => {
                    self.note_missing((&truth, height), &keys, modules);
                    |verdicts| &mut verdicts.missing
                }
                (Certainty::Precise, true) => |verdicts| &mut verdicts.precise,
                (Certainty::Likely, true) => |verdicts| &mut verdicts.likely,
                (Certainty::Static, true) => |verdicts| &mut verdicts.by_code,
                (Certainty::Ambiguous(_), true) => |verdicts| &mut verdicts.ambiguous,
                (Certainty::Likely, false) => |verdicts| &mut verdicts.unlikely,
                (certainty @ (Certainty::Precise | Certainty::Static), false) => {
                    self.note_wrong(&callers, (&keys, modules));
                    match certainty {
                        Certainty::Static => |verdicts| &mut verdicts.by_code_wrong,
                        _ => |verdicts| &mut verdicts.wrong,
                    }
                }
                (Certainty::Ambiguous(count), false) if count > callers.len() as u64 => |verdicts| &mut verdicts.many,
                (Certainty::Ambiguous(_), false) => |verdicts| &mut verdicts.incorrect,
            };
            let samples = verdict(&mut self.found.checked.samples);
            *samples = samples.saturating_add(node.samples);
            if self.found.seen.insert((truth, height)) {
                *verdict(&mut self.found.checked.paths) += 1;
            }
        }
    }

    /// Walks as `record --on-ambiguous=walk` does, by the heights that the code of each call tells.
    fn walk(
        &mut self,
        (keys, truth, modules): (&[FrameKey], &[Place], &[Option<usize>]),
        (root, height): (Option<u32>, Option<i64>),
        samples: u64,
    ) {
        let number = |key: &FrameKey| self.code.procedure(modules, *key).and_then(|at| self.asker.procedure(at));
        let mut height = height.map(bytes_of);
        let told_at = (1..keys.len()).rev().find_map(|at| {
            let here = height;
            let of_call = self.code.call_height(modules, keys[at - 1]).flatten();
            height = height.zip(of_call).and_then(|(height, of_call)| height.checked_sub(of_call));
            let identifier = Identifier { root: root?, procedure: number(&keys[at])?, height: here? };
            let is_told = self.told.get(&identifier).is_some_and(|path| self.is(*path, &truth[..=at]));
            is_told.then_some(at)
        });
        let walks = &mut self.found.checked.walks;
        let Some(at) = told_at else {
            walks.whole = walks.whole.saturating_add(samples);
            return;
        };
        let times = |frames: usize| samples.saturating_mul(frames as u64);
        walks.walked_frames = walks.walked_frames.saturating_add(times(keys.len() - at));
        walks.frames = walks.frames.saturating_add(times(keys.len()));
        walks.told = walks.told.saturating_add(samples);
    }

    /// Whether procedures of the map are these.
    fn are(&self, procedures: &[u32], truth: &[Place]) -> bool {
        procedures.iter().map(|procedure| self.asker.place(*procedure)).eq(truth.iter().map(|place| Some(*place)))
    }

    /// The callers from the procedure on that a thread began in: code alone does not tell what calls that.
    fn callers_in_thread<'t>(&self, truth: &[Place], callers: &'t [Place], root: Option<u32>) -> &'t [Place] {
        let Some(Root::Thread(start)) = root.and_then(|root| self.map.roots().get(root as usize)) else {
            return callers;
        };
        let start = self.asker.place(*start);
        let from = truth.iter().position(|place| Some(*place) == start);
        from.and_then(|from| callers.get(from..)).unwrap_or(callers)
    }

    /// Whether a path of the map is that of these procedures.
    fn is(&self, path: u32, truth: &[Place]) -> bool {
        let procedures = self.map.path(path).map(|node| self.map.nodes().get(node as usize).map(|node| node.procedure));
        let known = procedures.map(|procedure| self.asker.place(procedure?));
        known.eq(truth.iter().rev().map(|place| Some(*place)))
    }

    fn named(&self, keys: &[FrameKey], modules: &[Option<usize>]) -> Vec<String> {
        let name = |key: &FrameKey| {
            self.code.procedure(modules, *key).map_or(format!("{:#x}", key.0), |at| self.code.name(at))
        };
        keys.iter().map(name).collect()
    }

    fn note_missing(&mut self, (truth, height): (&[Place], Option<i64>), keys: &[FrameKey], modules: &[Option<usize>]) {
        let Some(height) = height.filter(|_| self.found.checked.missing.len() < KEPT) else { return };
        let node = (0..self.map.nodes().len() as u32).find(|node| self.is(*node, truth));
        let known_at = node.map(|known| {
            let heights = self.map.heights().iter().filter(|(node, _, _)| *node == known);
            let mut heights: Vec<i64> = heights.map(|(_, height, _)| bytes_of(*height)).collect();
            heights.sort_unstable();
            heights.dedup();
            heights
        });
        let missing = Missing { path: self.named(keys, modules), height: bytes_of(height), known_at };
        if !self.found.checked.missing.contains(&missing) {
            self.found.checked.missing.push(missing);
        }
    }

    fn note_wrong(&mut self, callers: &[Vec<u32>], (keys, modules): (&[FrameKey], &[Option<usize>])) {
        if self.found.checked.wrong.len() >= KEPT {
            return;
        }
        let name = |procedure: &u32| Some(self.map.procedures().get(*procedure as usize)?.name.clone());
        let named = callers.first().map(|callers| callers.iter().filter_map(name).collect());
        let (mut said, truth): (Vec<String>, _) = (named.unwrap_or_default(), self.named(keys, modules));
        said.extend(truth.last().cloned());
        let wrong = (said, truth);
        if !self.found.checked.wrong.contains(&wrong) {
            self.found.checked.wrong.push(wrong);
        }
    }
}

/// The frames from the outermost to this node, if the path is whole.
fn whole_path(tree: &PathTree, node: u32) -> Option<Vec<FrameKey>> {
    let mut keys = Vec::new();
    let mut at = node;
    while at > PARTIAL_ROOT {
        let node = tree.nodes().get(at as usize)?;
        keys.push(node.key);
        at = node.parent;
    }
    keys.reverse();
    (at == FULL_ROOT && !keys.is_empty()).then_some(keys)
}

/// A height without the number of the clone that it is in.
fn bytes_of(height: i64) -> i64 {
    CloneNumber::of_height(height).1
}
