//! Paths in their calling contexts: which frames call procedures whose paths were counted, all processes together; and which paths were
//! executed in each context.

use std::collections::BTreeSet;

use callpath_db::ContextId;
use callpath_db::exact::{ExactCallers, InContext};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, FrameKind, ModuleIndex};
use callpath_measurement::{CountedContext, CountedPath, MeasuredPaths, Measurement, PathCounts};
use rustc_hash::FxHashMap;

use crate::attribute::{Identities, name_outside};

/// What a frame, or a procedure that was counted, was called from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum CalledBy {
    /// Nothing: it is the outermost.
    Nobody,
    /// What is not known.
    Unknown,
    /// The frame with this number.
    Frame(u32),
}

/// Where a frame's code is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum FrameCode {
    /// In a module of the measurement, by its index.
    In(usize, LinkAddr),
    /// In none.
    Outside(FrameKey),
}

/// The frames of callers, each once: callers before callees.
#[derive(Default)]
pub(super) struct CallerFrames {
    /// Each with whether all of its callers are known.
    frames: Vec<(CalledBy, FrameCode, bool)>,
    index: FxHashMap<(CalledBy, FrameCode), u32>,
}

impl CallerFrames {
    fn enter(&mut self, caller: CalledBy, code: FrameCode) -> CalledBy {
        let next = self.frames.len() as u32;
        let number = *self.index.entry((caller, code)).or_insert(next);
        if number == next {
            self.frames.push((caller, code, self.is_whole(caller)));
        }
        CalledBy::Frame(number)
    }

    fn is_whole(&self, caller: CalledBy) -> bool {
        match caller {
            CalledBy::Nobody => true,
            CalledBy::Unknown => false,
            CalledBy::Frame(number) => self.frames.get(number as usize).is_some_and(|(_, _, is_whole)| *is_whole),
        }
    }

    /// Adds the frames of a process that call procedures in contexts with paths. Gives what each of its contexts was called from. `code`: where
    /// a frame's code is; `None`: it is our own.
    pub(super) fn add(
        &mut self,
        contexts: &[CountedContext],
        mut code: impl FnMut(FrameKey) -> Option<FrameCode>,
    ) -> Vec<CalledBy> {
        let mut calls = vec![false; contexts.len()];
        for (at, context) in contexts.iter().enumerate().rev() {
            if let Some(parent) = context.parent.filter(|_| calls[at] || !context.paths.is_empty())
                && let Some(parent) = calls.get_mut(parent as usize)
            {
                *parent = true;
            }
        }
        // By context, what it was called from, and what its callees were.
        let mut called_by: Vec<CalledBy> = Vec::with_capacity(contexts.len());
        let mut calling: Vec<CalledBy> = Vec::with_capacity(contexts.len());
        for (context, calls) in contexts.iter().zip(calls) {
            let caller = match context.parent {
                Some(parent) => calling.get(parent as usize).copied().unwrap_or(CalledBy::Unknown),
                None if context.is_partial => CalledBy::Unknown,
                None => CalledBy::Nobody,
            };
            called_by.push(caller);
            calling.push(match context.frame.kind() {
                _ if !calls => CalledBy::Unknown,
                FrameKind::LeftOut => CalledBy::Unknown,
                _ => code(context.frame).map_or(caller, |code| self.enter(caller, code)),
            });
        }
        called_by
    }

    /// Which addresses of which modules are there.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (usize, LinkAddr)> {
        self.frames.iter().filter_map(|(_, code, _)| match code {
            FrameCode::In(module, address) => Some((*module, *address)),
            FrameCode::Outside(_) => None,
        })
    }

    /// The chains of callers that lead to what was executed as often as `executions` says.
    pub(super) fn contexts(&self, executions: &FxHashMap<CalledBy, u64>, named: &mut NamedCallers) -> Vec<InContext> {
        let mut sums: FxHashMap<u32, u64> = FxHashMap::default();
        for (caller, executions) in executions {
            let sum = sums.entry(self.chain(*caller, named)).or_default();
            *sum = sum.saturating_add(*executions);
        }
        sums.into_iter().map(|(callers, executions)| InContext { callers, executions }).collect()
    }

    fn chain(&self, caller: CalledBy, named: &mut NamedCallers) -> u32 {
        if let Some(chain) = named.chains.get(&caller) {
            return *chain;
        }
        let frame = |caller: CalledBy| match caller {
            CalledBy::Frame(number) => self.frames.get(number as usize),
            CalledBy::Nobody | CalledBy::Unknown => None,
        };
        let outwards = std::iter::successors(frame(caller), |(caller, ..)| frame(*caller));
        // Deeper ones are not asked for their names.
        let innermost: Vec<FrameCode> = outwards.map(|(_, code, _)| *code).take(ExactCallers::MOST + 1).collect();
        let procedures: Vec<u32> = innermost.into_iter().map(|code| named.procedure(code)).collect();
        let chain = named.callers.chain(procedures, self.is_whole(caller));
        named.chains.insert(caller, chain);
        chain
    }
}

/// The procedures of frames.
#[derive(Default)]
pub(super) struct NamedCallers {
    pub(super) callers: ExactCallers,
    procedures: FxHashMap<FrameCode, u32>,
    chains: FxHashMap<CalledBy, u32>,
}

impl NamedCallers {
    /// Says which procedure of a module an address is of.
    pub(super) fn name(&mut self, (module, address): (usize, LinkAddr), (name, file): (String, &str)) {
        let procedure = self.callers.procedure(name, file.to_owned());
        self.procedures.insert(FrameCode::In(module, address), procedure);
    }

    fn procedure(&mut self, code: FrameCode) -> u32 {
        let callers = &mut self.callers;
        *self.procedures.entry(code).or_insert_with(|| {
            let name = match code {
                FrameCode::Outside(key) => name_outside(key),
                FrameCode::In(..) => None,
            };
            callers.procedure(name.unwrap_or_else(|| "[unknown]".to_owned()), String::new())
        })
    }
}

/// The paths of a process's procedures, to be found by those that were counted in contexts.
pub(super) struct PathIndex<'p>(FxHashMap<(ModuleIndex, u64), &'p [CountedPath]>);

impl<'p> PathIndex<'p> {
    pub(super) fn new(counts: &'p PathCounts) -> PathIndex<'p> {
        let of = |procedure: &'p callpath_measurement::CountedProcedure| {
            ((procedure.module, procedure.entry.0), &*procedure.paths)
        };
        PathIndex(counts.procedures.iter().map(of).collect())
    }

    /// The paths that were executed in a context, and how often. `None`: one that its procedure does not have.
    pub(super) fn of<'c>(
        &'c self,
        context: &'c CountedContext,
    ) -> impl Iterator<Item = Option<(&'p CountedPath, u64)>> + 'c {
        let paths = self.0.get(&(context.frame.module(), context.frame.address())).copied().unwrap_or_default();
        context.paths.iter().filter(|(_, executions)| *executions > 0).map(move |(number, executions)| {
            // In a file they stand by number.
            let at = paths.binary_search_by_key(number, |path| path.number).ok()?;
            Some((&paths[at], *executions))
        })
    }
}

/// Paths that were executed in a context: the number of each, and where its blocks begin.
pub(super) type ExecutedPaths<'p> = BTreeSet<(u64, &'p [LinkAddr])>;

/// The paths that were executed in each context. `None`: they were not counted in contexts.
pub(super) fn paths_by_context<'p>(
    measurement: &Measurement,
    paths: &'p MeasuredPaths,
) -> Option<FxHashMap<ContextId, ExecutedPaths<'p>>> {
    if paths.processes.iter().all(|(_, counts)| counts.contexts.is_empty()) {
        return None;
    }
    let mut found: FxHashMap<ContextId, ExecutedPaths<'p>> = FxHashMap::default();
    for (process, counts) in &paths.processes {
        let Some(process) = measurement.processes.get(*process) else { continue };
        let names = measurement.names.iter().find(|names| names.sequence == process.sequence);
        let (identities, index) = (Identities::of(process, names), PathIndex::new(counts));
        let mut ids: Vec<ContextId> = Vec::with_capacity(counts.contexts.len());
        for context in &counts.contexts {
            let root = if context.is_partial { ContextId::PARTIAL_ROOT } else { ContextId::ROOT };
            let parent = context.parent.and_then(|parent| ids.get(parent as usize)).copied().unwrap_or(root);
            let id = identities.context(parent, context.frame);
            ids.push(id);
            for (path, _) in index.of(context).flatten() {
                found.entry(id).or_default().insert((path.number, &path.blocks));
            }
        }
    }
    Some(found)
}
