//! The structure of a module's procedures, of all or of those that addresses lie in, on all cores.

use std::cell::RefCell;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::scopes::{Scopes, UnitId, UnitScopes};
use callpath_x86::graph::{ModuleFlow, ProcedureGraph};
use callpath_x86::loops::{TooDeep, forest};
use rustc_hash::FxHashMap;

use super::code_ranges::{self, CodeRange, ProcedureLoops, Source};
use super::infer::{Beginnings, infer};
use super::linkers_names::LinkersNames;
use super::normalise::normalise;
use super::same::told_apart;
use super::same_line::SameLines;
use super::scope_tree::{Key, ScopeTree, build_scope_tree};
use super::{ProcedureStructure, ScopedRange, SourceLocation, StaticKind, StaticScope, Way};
use crate::permits::Permit;
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;

/// Where a module's structure is found.
#[derive(Clone)]
pub struct ModuleSource {
    /// The module.
    pub module: Arc<Module>,
    /// What holds its DWARF: itself, or its debug file.
    pub with_dwarf: Arc<Image>,
    /// What `.gnu_debugaltlink` names.
    pub supplement: Option<Arc<Image>>,
}

/// The structure of a module's procedures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleStructure {
    /// By ascending entry.
    pub procedures: Vec<ProcedureStructure>,
    /// The parts of the DWARF that could not be used, each with its place.
    pub diagnostics: Vec<String>,
    /// Where each fragment begins, with its procedure: ascending.
    fragments: Vec<(LinkAddr, u32)>,
}

impl ModuleStructure {
    pub(super) fn new(mut procedures: Vec<ProcedureStructure>, mut diagnostics: Vec<String>) -> ModuleStructure {
        procedures.sort_by_key(|procedure| procedure.entry);
        let numbered = (0u32..).zip(&procedures);
        let mut fragments: Vec<_> = numbered
            .flat_map(|(number, procedure)| procedure.fragments.iter().map(move |f| (f.start, number)))
            .collect();
        fragments.sort_unstable();
        diagnostics.sort_unstable();
        diagnostics.dedup();
        ModuleStructure { procedures, diagnostics, fragments }
    }

    /// The procedure that an address lies in.
    pub fn procedure_at(&self, addr: LinkAddr) -> Option<&ProcedureStructure> {
        let after = self.fragments.partition_point(|(start, _)| *start <= addr);
        let (_, number) = self.fragments.get(after.checked_sub(1)?)?;
        let procedure = self.procedures.get(*number as usize)?;
        procedure.fragments.iter().any(|fragment| fragment.contains(&addr)).then_some(procedure)
    }
}

/// The structure of the procedures that `wanted` lie in; of all if there are none. `progress` gets how many are done
/// and how many there are, on any thread. Other threads help as far as there are processors.
pub fn structure(
    source: &ModuleSource,
    wanted: Option<&[LinkAddr]>,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> ModuleStructure {
    let program = source.module.image().origin();
    let scopes = Scopes::find(Arc::clone(&source.with_dwarf), source.supplement.clone(), Some(program));
    with_flow(&source.module, |flow, odd| {
        let numbers: Vec<usize> = match wanted {
            None => (0..flow.len()).collect(),
            Some(addrs) => {
                let mut numbers: Vec<usize> = addrs.iter().filter_map(|&addr| flow.procedure_at(addr)).collect();
                numbers.sort_unstable();
                numbers.dedup();
                numbers
            }
        };
        let linkers = LinkersNames::new(Arc::clone(source.module.image()), Arc::clone(&source.with_dwarf));
        let work = Work::new(flow, (scopes.as_ref(), &linkers), numbers, progress);
        let permit = Permit::of_caller();
        std::thread::scope(|scope| work.run(scope));
        drop(permit);
        let (procedures, mut diagnostics) = work.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        diagnostics.extend_from_slice(odd);
        diagnostics
            .extend(scopes.iter().flat_map(|scopes| scopes.diagnostics()).map(|error| format!("failed to {error}")));
        ModuleStructure::new(procedures, diagnostics)
    })
}

/// The procedures of one unit.
struct Task {
    unit: Option<UnitId>,
    procedures: Vec<usize>,
}

struct Work<'a, 'f> {
    flow: &'a ModuleFlow<'f>,
    scopes: Option<&'a Scopes>,
    linkers: &'a LinkersNames,
    tasks: Vec<Task>,
    next: AtomicUsize,
    count: usize,
    finished: AtomicUsize,
    progress: &'a (dyn Fn(usize, usize) + Sync),
    done: Mutex<(Vec<ProcedureStructure>, Vec<String>)>,
}

/// How a diagnostic begins that says nothing against the debug information.
pub(crate) const NEST_TOO_DEEP: &str = "loops nest too deep";

/// Procedures without a unit in one task.
const TASK_LEN: usize = 256;

impl<'a, 'f> Work<'a, 'f> {
    fn new(
        flow: &'a ModuleFlow<'f>,
        (scopes, linkers): (Option<&'a Scopes>, &'a LinkersNames),
        numbers: Vec<usize>,
        progress: &'a (dyn Fn(usize, usize) + Sync),
    ) -> Work<'a, 'f> {
        let count = numbers.len();
        let unit_of = |number: &usize| scopes.and_then(|scopes| scopes.unit_at(flow.entry(*number)?));
        let mut numbered: Vec<(Option<UnitId>, usize)> =
            numbers.iter().map(|number| (unit_of(number), *number)).collect();
        numbered.sort_unstable();
        let same = |a: &(Option<UnitId>, usize), b: &(Option<UnitId>, usize)| a.0 == b.0;
        let of_one_unit = numbered.chunk_by(same);
        let tasks = of_one_unit.flat_map(|procedures| {
            let unit = procedures.first().and_then(|first| first.0);
            let len = if unit.is_some() { usize::MAX } else { TASK_LEN };
            let cut = procedures.chunks(len).map(|some| some.iter().map(|(_, number)| *number).collect::<Vec<_>>());
            cut.map(move |procedures| Task { unit, procedures })
        });
        Work {
            flow,
            scopes,
            linkers,
            tasks: tasks.collect(),
            next: AtomicUsize::new(0),
            count,
            finished: AtomicUsize::new(0),
            progress,
            done: Mutex::default(),
        }
    }

    /// Takes tasks until none is left. Whenever a processor is free, another thread helps.
    fn run<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        while let Some(task) = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let is_last = self.next.load(Ordering::Relaxed) >= self.tasks.len();
            if let Some(permit) = if is_last { None } else { Permit::take() } {
                let help = move || {
                    permit.begin();
                    self.run(scope);
                    drop(permit);
                };
                // Without it this one does all: where no thread can be begun, none is lost.
                drop(Builder::new().spawn_scoped(scope, help));
            }
            let (scopes, linkers) = (self.scopes, self.linkers);
            let units = Units { scopes, linkers, read: RefCell::default(), diagnostics: RefCell::default() };
            let of_unit = task.unit.and_then(|unit| units.read(unit)).filter(|unit| !unit.has_inlined_calls());
            let beginnings = of_unit.map(|unit| {
                let elsewhere = unit.declared_elsewhere().iter().filter_map(|&other| units.read(other));
                Beginnings::of(&unit, &elsewhere.collect::<Vec<_>>())
            });
            let beginnings = beginnings.unwrap_or_default();
            let mut found = Vec::with_capacity(task.procedures.len());
            for &number in &task.procedures {
                let graph = self.flow.graph(number);
                if !graph.blocks.is_empty() {
                    found.push(procedure(&graph, &units, &beginnings));
                }
            }
            let finished = self.finished.fetch_add(task.procedures.len(), Ordering::Relaxed) + task.procedures.len();
            (self.progress)(finished, self.count);
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            done.0.append(&mut found);
            done.1.append(&mut units.diagnostics.into_inner());
        }
    }
}

/// The units that one task needs, each read once.
struct Units<'a> {
    scopes: Option<&'a Scopes>,
    linkers: &'a LinkersNames,
    read: RefCell<FxHashMap<UnitId, Option<Rc<UnitScopes>>>>,
    diagnostics: RefCell<Vec<String>>,
}

impl Units<'_> {
    fn read(&self, unit: UnitId) -> Option<Rc<UnitScopes>> {
        if let Some(known) = self.read.borrow().get(&unit) {
            return known.clone();
        }
        let read = match self.scopes?.read(unit) {
            Ok(read) => {
                let diagnostics = read.diagnostics().iter().map(|error| format!("failed to {error}"));
                self.diagnostics.borrow_mut().extend(diagnostics);
                Some(Rc::new(read))
            }
            Err(error) => {
                self.diagnostics.borrow_mut().push(format!("failed to {error}"));
                None
            }
        };
        self.read.borrow_mut().insert(unit, read.clone());
        read
    }

    fn at(&self, addr: LinkAddr) -> Option<Rc<UnitScopes>> {
        self.read(self.scopes?.unit_at(addr)?)
    }
}

fn procedure(graph: &ProcedureGraph, units: &Units<'_>, beginnings: &Beginnings) -> ProcedureStructure {
    let mut source = code_ranges::cut(graph, |addr| units.at(addr), units.linkers);
    let way = match units.at(graph.entry) {
        Some(unit) if unit.has_inlined_calls() => Way::Inlines,
        _ if source.code_ranges.iter().any(|code_range| code_range.location.is_some()) => Way::Lines,
        _ => Way::Code,
    };
    if way == Way::Lines {
        infer(&mut source, beginnings);
    }
    source.settle();
    let (forest, too_deep) = forest(graph).shallow(graph, |block| source.weight(graph, block));
    if let Some(TooDeep { left_out, deepest, kept }) = too_deep {
        units.diagnostics.borrow_mut().push(format!(
            "{NEST_TOO_DEEP} in the procedure at {:#x}: {deepest} loops are nested, of which the outer {kept} are shown \
             ({left_out} loops are not)",
            graph.entry.0
        ));
    }
    let forest = told_apart(graph, forest, &source);
    let mut tree = build_scope_tree(ProcedureLoops { graph, forest: &forest, source: &source }, way == Way::Lines);
    normalise(&mut tree, &source, way == Way::Lines);
    finish(graph, source, &tree, way)
}

fn finish(graph: &ProcedureGraph, source: Source, tree: &ScopeTree, way: Way) -> ProcedureStructure {
    let mut is_used = vec![false; tree.nodes.len()];
    for &scope in &tree.scopes {
        let mut next = scope;
        while !std::mem::replace(&mut is_used[next as usize], true) {
            next = tree.nodes[next as usize].parent;
        }
    }
    // Outer scopes first, each where its code begins.
    let mut number_of: FxHashMap<u32, u32> = FxHashMap::default();
    let mut scopes = Vec::new();
    let mut pending = vec![0];
    while let Some(at) = pending.pop() {
        let node = &tree.nodes[at as usize];
        let mut inner: Vec<u32> = node.children.iter().copied().filter(|&child| is_used[child as usize]).collect();
        inner.sort_by_key(|&child| std::cmp::Reverse(tree.nodes[child as usize].address));
        pending.extend(inner);
        let parent = number_of.get(&node.parent).copied();
        let (kind, context, location) = match node.key {
            Key::Host => continue,
            Key::Context(context) => {
                let kind = if way == Way::Lines { StaticKind::Alien } else { StaticKind::Inlined };
                let context = source.contexts.get(context as usize);
                (kind, context, context.and_then(|context| context.location))
            }
            Key::Loop(location, _) => (StaticKind::Loop { is_irreducible: node.is_irreducible }, None, Some(location)),
            Key::LoopAt(_) => (StaticKind::Loop { is_irreducible: node.is_irreducible }, None, None),
        };
        number_of.insert(at, scopes.len() as u32);
        scopes.push(StaticScope {
            parent,
            kind,
            name: context.and_then(|context| context.name.clone()),
            identity: context.map_or(0, |context| context.identity),
            location,
            column: None,
            call_site: context.and_then(|context| context.call_site),
            lines: None,
            address: node.address,
        });
    }
    let mut scoped_ranges: Vec<ScopedRange> = Vec::new();
    for (code_range, &scope) in source.code_ranges.iter().zip(&tree.scopes) {
        let key = tree.nodes[scope as usize].key;
        let scope = number_of.get(&scope).copied();
        if let Some(here) = scope.and_then(|scope| scopes.get_mut(scope as usize)) {
            find_column(&mut here.column, key, (&source, &tree.same_lines), code_range);
        }
        extend_lines(&mut scopes, scope, code_range.location);
        scoped_ranges.push(ScopedRange { code: code_range.code.clone(), scope, location: code_range.location });
    }
    for scope in &mut scopes {
        // A loop begins where it stands: what is before it was moved into it.
        if let (StaticKind::Loop { .. }, Some(location), Some((first, last))) =
            (scope.kind, scope.location, &mut scope.lines)
            && *last > location.line
        {
            *first = location.line;
        }
    }
    scoped_ranges.sort_by_key(|scoped_range| scoped_range.code.start);
    // Blocks may overlap where control enters an instruction in its middle: the later one holds.
    for index in 1..scoped_ranges.len() {
        let start = scoped_ranges[index].code.start;
        let before = &mut scoped_ranges[index - 1].code;
        before.end = before.end.min(start);
    }
    scoped_ranges.retain(|scoped_range| scoped_range.code.start < scoped_range.code.end);
    scoped_ranges.dedup_by(|later, earlier| {
        let same =
            earlier.code.end == later.code.start && (earlier.scope, earlier.location) == (later.scope, later.location);
        if same {
            earlier.code.end = later.code.end;
        }
        same
    });
    let host = source.contexts.into_iter().next().unwrap_or_default();
    ProcedureStructure {
        entry: graph.entry,
        name: host.name,
        identity: host.identity,
        location: host.location,
        fragments: graph.fragments.clone(),
        way,
        unresolved_jumps: u32::try_from(graph.unresolved()).unwrap_or(u32::MAX),
        files: source.files.paths,
        scopes,
        scoped_ranges,
    }
}

/// A loop begins in the first column of its line in which a statement of its own begins, or its test: of its part of
/// the line if that has several loops.
fn find_column(
    column: &mut Option<NonZeroU16>,
    key: Key,
    (source, same_lines): (&Source, &SameLines),
    code_range: &CodeRange,
) {
    let Key::Loop(location, first) = key else { return };
    if code_range.location != Some(location) {
        return;
    }
    let part = first.map(|first| same_lines.part(location, first));
    let begins = source.begins_in(code_range.block);
    let before = begins.partition_point(|begin| begin.addr < code_range.code.start);
    let begins = begins.iter().skip(before).take_while(|begin| begin.addr < code_range.code.end);
    let its = begins.filter(|begin| begin.location == location);
    let its = its.filter(|begin| part.is_none_or(|part| same_lines.part(location, begin.column) == part));
    // 0 is not a column.
    let columns = its.map(|begin| begin.column).chain(first);
    let columns = columns.filter_map(|column| NonZeroU16::new(u16::try_from(column).ok()?));
    *column = columns.chain(*column).min();
}

/// A line belongs to its scope, and to the loops around that in the same procedure context.
fn extend_lines(scopes: &mut [StaticScope], scope: Option<u32>, location: Option<SourceLocation>) {
    let mut next = scope;
    while let Some((location, here)) = location.zip(next.and_then(|index| scopes.get_mut(index as usize))) {
        if here.location.is_none_or(|its| its.file == location.file) {
            let (first, last) = here.lines.unwrap_or((location.line, location.line));
            here.lines = Some((first.min(location.line), last.max(location.line)));
        }
        next = if matches!(here.kind, StaticKind::Loop { .. }) { here.parent } else { None };
    }
}
