//! One thread of a measurement: its tree of frames becomes contexts, scopes and costs of a profile.

use std::rc::Rc;

use callpath_db::{CallSite, Context, ContextId, Links, Name, NodeId, Profile, Scope, ScopeKind};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, FrameKind, Gap};
use callpath_measurement::{FULL_ROOT, PARTIAL_ROOT, PathTree, TreeNode};
use callpath_x86::system_call::Origin;
use rustc_hash::FxHashMap;

use super::Recorded;
use super::code::{Code, name_outside};
use crate::links::{Frame, LinkRater, Rating};
use crate::system_calls::Arguments;
use crate::{runtimes, system_calls};

/// What is found out once for all threads and processes.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) rater: LinkRater,
    /// What stands for a frame in each of its contexts, by module and address; by key where there is no module.
    pub(super) scopes: FxHashMap<(Option<usize>, u64), Rc<[Scope]>>,
    pub(super) arguments: Arguments,
    /// By module, the profile's number of its file.
    pub(super) files: FxHashMap<usize, u32>,
}

/// Adds one thread's tree.
pub(super) struct Adder<'a> {
    pub(super) profile: &'a mut Profile,
    pub(super) code: &'a mut Code,
    pub(super) merged: &'a mut Merged,
    pub(super) recorded: Recorded<'a>,
    /// The profile's column of the metric that counts samples.
    pub(super) samples: Option<usize>,
    /// The profile's columns of the metrics that are a procedure's, not a line's.
    pub(super) of_procedure: Vec<usize>,
    /// Paths end where a walk ended.
    pub(super) is_walked: bool,
}

/// Whether a node says how high the stack is at the frame that it hangs on. One that hangs on no frame stands for the frames above it, which were
/// not walked.
fn is_height(nodes: &[TreeNode], index: usize) -> bool {
    nodes[index].parent > PARTIAL_ROOT && matches!(nodes[index].key.kind(), FrameKind::Height(_))
}

/// Whether something was measured at a node itself.
fn is_leaf(nodes: &[TreeNode], tree: &PathTree, index: usize) -> bool {
    nodes[index].samples > 0 || tree.values(index as u32).next().is_some()
}

/// What is known of a thread's links.
#[derive(Default)]
pub(super) struct LinkFindings {
    /// Weighed by the samples whose paths they are on.
    pub(super) links: Links,
    /// Samples of full paths that an invalid link breaks.
    pub(super) broken_samples: u64,
}

impl Adder<'_> {
    /// What lies beyond an invalid link is not known: the path begins anew below it, as a partial one.
    pub(super) fn add(mut self, thread: NodeId, start: Option<FrameKey>, tree: &PathTree) -> LinkFindings {
        let nodes = tree.nodes();
        let samples = inclusive_samples(nodes);
        let mut found = LinkFindings::default();
        // Whether a node is below an invalid link, and whether it is below the root of full paths.
        let mut broken: Vec<bool> = Vec::with_capacity(nodes.len());
        let mut full: Vec<bool> = Vec::with_capacity(nodes.len());
        // For each node, where its own cost goes and where its callees hang: its line's scope, or its procedure's. Then its procedure's.
        let mut scope_nodes: Vec<NodeId> = Vec::with_capacity(nodes.len());
        let mut procedures: Vec<Option<NodeId>> = Vec::with_capacity(nodes.len());
        let mut partial = None;
        let mut contexts: Vec<ContextId> = Vec::with_capacity(nodes.len());
        let mut values = vec![0; self.profile.tree.width()];
        for (index, node) in nodes.iter().enumerate() {
            let parent = scope_nodes.get(node.parent as usize).copied().unwrap_or(thread);
            let is_height = is_height(nodes, index);
            // A height is no frame: what it costs is its frame's.
            let frame = if is_height { node.parent as usize } else { index };
            contexts.push(match index as u32 {
                FULL_ROOT => ContextId::ROOT,
                PARTIAL_ROOT => ContextId::PARTIAL_ROOT,
                _ if is_height => contexts[frame],
                _ => self.context(contexts[node.parent as usize], node.key),
            });
            let rating = if is_height { None } else { self.rate_link(nodes, index) };
            let links = match rating {
                Some(Rating::Valid) => Some(&mut found.links.valid),
                Some(Rating::Likely) => Some(&mut found.links.likely),
                Some(Rating::Invalid) => Some(&mut found.links.invalid),
                None => None,
            };
            if let Some(links) = links {
                *links = links.saturating_add(samples[index]);
            }
            let invalid = rating == Some(Rating::Invalid);
            let was_broken = index > PARTIAL_ROOT as usize && broken[node.parent as usize];
            let is_full = index as u32 == FULL_ROOT || (index > PARTIAL_ROOT as usize && full[node.parent as usize]);
            if invalid && is_full && !was_broken {
                found.broken_samples = found.broken_samples.saturating_add(samples[index]);
            }
            broken.push(invalid || was_broken);
            full.push(is_full);
            let mut procedure = None;
            let scope_node = match index as u32 {
                FULL_ROOT => thread,
                // Made only when something hangs there.
                PARTIAL_ROOT => thread,
                _ if is_height => parent,
                // Of what was inferred, it is not known where in a procedure its calls are.
                _ if self.is_inferred(node.key) && !is_leaf(nodes, tree, index) => self.procedure(parent, node.key),
                _ if invalid || node.parent == PARTIAL_ROOT => {
                    // Where a walk stopped is among the frames that were left out, if any were.
                    if !invalid && self.is_walked && !stands_for_others(node.key) {
                        self.count_stopped(node.key, samples[index]);
                    }
                    let root = *partial.get_or_insert_with(|| self.partial_root(thread));
                    self.frame(root, node.key, &mut procedure)
                }
                _ if self.is_of_kernel(node.key) && !self.is_of_kernel(nodes[node.parent as usize].key) => {
                    // Below the system call that it was entered by.
                    let caller = &nodes[node.parent as usize];
                    let entered = self.interrupted(parent, caller.key, nodes.get(caller.parent as usize));
                    self.frame(entered, node.key, &mut procedure)
                }
                _ => self.frame(parent, node.key, &mut procedure),
            };
            scope_nodes.push(scope_node);
            let procedure = if is_height { procedures[frame] } else { procedure };
            procedures.push(procedure);
            values.fill(0);
            let columns = self.recorded.columns;
            let own = tree.values(index as u32).filter_map(|(metric, value)| Some((*columns.get(metric)?, value)));
            for (column, value) in own.chain(self.samples.map(|samples| (samples, node.samples))) {
                if let Some(cost) = values.get_mut(column) {
                    *cost = value;
                }
            }
            if values.iter().all(|v| *v == 0) {
                continue;
            }
            self.profile.contexts.add(contexts[index], &values);
            let at = match (index as u32, start) {
                // Time of a thread in which no sample hit: it was spent below where the thread began.
                (FULL_ROOT, Some(start)) => self.frame(thread, start, &mut None),
                // Of a process's first thread it is not known where: events since the last one's sample, or a thread
                // that ended before its first sample.
                (FULL_ROOT, None) => {
                    let any = samples[FULL_ROOT as usize].saturating_add(samples[PARTIAL_ROOT as usize]) > 0;
                    let gap = if any { Gap::AfterLastSample } else { Gap::NeverSampled };
                    self.frame(thread, FrameKey::gap(gap), &mut None)
                }
                (PARTIAL_ROOT, _) => *partial.get_or_insert_with(|| self.partial_root(thread)),
                _ => self.interrupted(scope_node, nodes[frame].key, nodes.get(nodes[frame].parent as usize)),
            };
            // It is the procedure that returned, not a loop of it. Our own frames do not belong to the program.
            for &metric in &self.of_procedure {
                let value = std::mem::take(&mut values[metric]);
                if let Some(procedure) = procedure.filter(|_| value != 0) {
                    let mut counted = vec![0; values.len()];
                    counted[metric] = value;
                    self.profile.tree.add(procedure, &counted);
                }
            }
            self.profile.tree.add(at, &values);
            self.count_unnamed(nodes[frame].key, node.samples);
        }
        found
    }

    /// Rates the link from a node to its parent, if that is a frame.
    fn rate_link(&mut self, nodes: &[TreeNode], index: usize) -> Option<Rating> {
        let node = &nodes[index];
        if index <= PARTIAL_ROOT as usize || node.parent <= PARTIAL_ROOT {
            return None;
        }
        let parent = nodes[node.parent as usize].key;
        if stands_for_others(parent) || self.is_inferred(parent) {
            return None;
        }
        let frame = |key: FrameKey| {
            let module = self.recorded.modules.get(usize::from(key.module().0)).copied();
            // Our own objects' frames are no part of the path.
            // The kernel is entered by no call.
            let ours =
                key == FrameKey::PROBE || module.is_some_and(|m| self.code.modules[m].ours) || self.is_of_kernel(key);
            (ours, Frame { module: module.unwrap_or(usize::MAX), address: LinkAddr(key.address()) })
        };
        let (caller, callee) = (frame(parent), frame(node.key));
        if caller.0 || callee.0 {
            return None;
        }
        Some(self.merged.rater.rate(&*self.code, caller.1, callee.1))
    }

    /// Whether a frame is one of the kernel's.
    fn is_of_kernel(&self, key: FrameKey) -> bool {
        self.module_of(key).is_some_and(|module| self.code.modules[module].is_kernel())
    }

    /// Whether a caller was inferred: its frame is where its procedure begins, and no call is there.
    fn is_inferred(&self, key: FrameKey) -> bool {
        self.recorded.inferred.is_some_and(|inferred| inferred.contains(&key))
    }

    fn partial_root(&mut self, thread: NodeId) -> NodeId {
        let name = self.profile.strings.intern("partial call paths");
        self.profile.tree.child(thread, Scope::new(ScopeKind::Partial, name))
    }

    /// The scope of a frame's procedure alone, below `parent`.
    fn procedure(&mut self, parent: NodeId, key: FrameKey) -> NodeId {
        let mut procedure = None;
        let at = self.frame(parent, key, &mut procedure);
        procedure.unwrap_or(at)
    }

    /// The scope of a frame below `parent`: its procedure, and the line in it where one is known.
    /// `outermost`: becomes the procedure's own scope.
    fn frame(&mut self, parent: NodeId, key: FrameKey, outermost: &mut Option<NodeId>) -> NodeId {
        let module = self.module_of(key);
        let frame = (module, if module.is_some() { key.address() } else { key.0 });
        let scopes = match self.merged.scopes.get(&frame) {
            Some(scopes) => scopes.clone(),
            None => {
                let scopes: Rc<[Scope]> = self.scopes_of(key, module).into();
                self.merged.scopes.insert(frame, scopes.clone());
                scopes
            }
        };
        let mut at = parent;
        for scope in scopes.iter() {
            at = self.profile.tree.child(at, *scope);
            if scope.kind == ScopeKind::Procedure {
                *outermost = Some(at);
            }
        }
        at
    }

    /// Where the cost of a frame goes in which samples were taken: to the system call that it was in, if any, else to `at`, its own scope.
    fn interrupted(&mut self, at: NodeId, key: FrameKey, caller: Option<&TreeNode>) -> NodeId {
        let Some(index) = self.module_of(key) else { return at };
        let module = &self.code.modules[index];
        let location = module.locations.get(&LinkAddr(key.address())).filter(|_| !module.ours);
        let Some(origin) = location.and_then(|location| location.system_call) else { return at };
        let number = match origin {
            Origin::Constant(number) => Some(number),
            Origin::Unknown => None,
            Origin::Caller(register) => caller.and_then(|caller| self.given(caller.key, register)),
        };
        let name = self.profile.strings.intern(&system_calls::name(number));
        self.profile.tree.child(at, Scope::new(ScopeKind::SystemCall, name))
    }

    /// The number that a caller gives to a wrapper of system calls in a register, where it is a constant.
    fn given(&mut self, caller: FrameKey, register: u8) -> Option<u32> {
        let module = self.module_of(caller)?;
        let call = LinkAddr(caller.address());
        let names = self.code.modules[module].names.as_ref();
        let given = || names.and_then(|names| system_calls::given(names, call, register));
        *self.merged.arguments.entry((module, call, register)).or_insert_with(given)
    }

    /// What stands for a frame in each of its contexts, from outside in: its procedure, the loops and inlined calls
    /// around it, its line. Of our own code nothing.
    fn scopes_of(&mut self, key: FrameKey, module: Option<usize>) -> Vec<Scope> {
        let strings = &mut self.profile.strings;
        let Some(module) = module.map(|module| &self.code.modules[module]) else {
            let scope = match (key.kind(), name_outside(key)) {
                (_, Some(name)) => Scope::new(ScopeKind::Procedure, strings.intern(&name)),
                (FrameKind::Gap(gap), None) => Scope::new(ScopeKind::Gap, strings.intern(gap.name())),
                (_, None) => Scope::new(ScopeKind::Truncated, Name::EMPTY),
            };
            return vec![scope];
        };
        let Some(location) = module.locations.get(&LinkAddr(key.address())).filter(|_| !module.ours) else {
            return Vec::new();
        };
        let module_name = strings.intern(&module.shown_name());
        let mut procedure = Scope::new(ScopeKind::Procedure, strings.intern(&location.procedure));
        procedure.discriminator = location.identity;
        procedure.module = Some(module_name);
        procedure.address = Some(location.start.0);
        procedure.file = location.declared.as_ref().map(|declared| strings.intern(&declared.file));
        procedure.line = location.declared.as_ref().map(|declared| declared.line);
        let mut scopes = vec![procedure];
        for inner in location.scopes.iter().filter_map(|&scope| module.scopes.get(scope as usize)) {
            let kind = if inner.is_loop { ScopeKind::Loop } else { ScopeKind::Inlined };
            let mut scope = Scope::new(kind, strings.intern(&inner.name));
            scope.discriminator = inner.identity;
            scope.module = Some(module_name);
            scope.file = inner.location.as_ref().map(|location| strings.intern(&location.file));
            scope.line = inner.location.as_ref().map(|location| location.line);
            scope.column = inner.column;
            scope.address = Some(inner.address.0);
            scope.call_site =
                inner.call_site.as_ref().map(|site| CallSite { file: strings.intern(&site.file), line: site.line });
            scopes.push(scope);
        }
        if let Some(line) = &location.line {
            let mut scope = Scope::new(ScopeKind::Line, Name::EMPTY);
            scope.file = Some(strings.intern(&line.file));
            scope.line = Some(line.line);
            scope.module = Some(module_name);
            scopes.push(scope);
        }
        scopes
    }

    /// Which of all modules a frame lies in.
    fn module_of(&self, key: FrameKey) -> Option<usize> {
        self.recorded.modules.get(usize::from(key.module().0)).copied()
    }

    /// Enters a frame called from the context `parent`; its context.
    fn context(&mut self, parent: ContextId, key: FrameKey) -> ContextId {
        let (file, identity, offset) = match self.module_of(key) {
            Some(number) => {
                let module = &self.code.modules[number];
                let enter = || self.profile.contexts.enter_file(&module.file());
                (*self.merged.files.entry(number).or_insert_with(enter), &*module.identity, key.address())
            }
            None => (0, [].as_slice(), key.0),
        };
        let id = parent.child(identity, offset);
        self.profile.contexts.enter(Context { id, parent, file, offset });
        id
    }

    fn count_stopped(&mut self, key: FrameKey, samples: u64) {
        let module = self.recorded.modules.get(usize::from(key.module().0)).map(|m| &mut self.code.modules[*m]);
        let count = module.map_or(&mut self.code.stopped_outside, |module| &mut module.stopped_samples);
        *count = count.saturating_add(samples);
    }

    fn count_unnamed(&mut self, key: FrameKey, samples: u64) {
        if let Some(module) = self.recorded.modules.get(usize::from(key.module().0)).map(|m| &mut self.code.modules[*m])
            && let Some(location) = module.locations.get(&LinkAddr(key.address()))
        {
            module.unnamed_samples += if location.named { 0 } else { samples };
            module.unresolved_samples += if location.jumps_anywhere { samples } else { 0 };
            let file = module.key.0.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if runtimes::is_interpreter(file, &location.procedure) {
                module.interpreter_samples = module.interpreter_samples.saturating_add(samples);
            }
        }
    }
}

/// Whether a frame stands for others, which were not kept or not walked.
fn stands_for_others(key: FrameKey) -> bool {
    matches!(key.kind(), FrameKind::LeftOut | FrameKind::Height(_) | FrameKind::Undetermined)
}

/// The samples at each node and below it.
fn inclusive_samples(nodes: &[TreeNode]) -> Vec<u64> {
    let mut samples: Vec<u64> = nodes.iter().map(|n| n.samples).collect();
    for (index, node) in nodes.iter().enumerate().skip(PARTIAL_ROOT as usize + 1).rev() {
        samples[node.parent as usize] = samples[node.parent as usize].saturating_add(samples[index]);
    }
    samples
}
