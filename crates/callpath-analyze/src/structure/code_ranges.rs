//! A procedure's code, cut where its block, its inlined call or its line changes.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::demangle::{demangle, identity};
use callpath_image::scopes::{FileId, Origin, Scope, ScopeId, ScopeKind, UnitId, UnitScopes};
use callpath_x86::graph::ProcedureGraph;
use callpath_x86::loops::LoopForest;
use rustc_hash::FxHashMap;

use super::linkers_names::LinkersNames;
use super::nest::Nest;
use super::{SourceLocation, steps};

/// The context of code that nothing was inlined into.
pub(super) const HOST: u32 = 0;

/// Code of one block, one inlined call and one line.
#[derive(Clone, Debug)]
pub(super) struct CodeRange {
    pub(super) code: Range<LinkAddr>,
    /// Index in the graph.
    pub(super) block: u32,
    /// Index in [`Source::contexts`].
    pub(super) context: u32,
    /// Of [`Source::calls`], the one that it is the code of.
    call: u32,
    pub(super) location: Option<SourceLocation>,
    /// The columns of its line that it was made of.
    pub(super) columns: Columns,
    /// The block's last instruction is in it.
    pub(super) ends_block: bool,
    /// Nothing says that its line begins here: it is that of the code before the
    /// block, of which control may know nothing.
    pub(super) is_inherited: bool,
}

/// Columns of one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Columns {
    /// From 1; 0 where the compiler does not say.
    pub(super) first: u32,
    /// Not smaller.
    pub(super) last: u32,
}

impl Columns {
    pub(super) fn one(column: u32) -> Columns {
        Columns { first: column, last: column }
    }

    /// These, the others, and what is between them.
    fn with(self, other: Columns) -> Columns {
        match (self.first, other.first) {
            (_, 0) => self,
            (0, _) => other,
            _ => Columns { first: self.first.min(other.first), last: self.last.max(other.last) },
        }
    }
}

/// A call that was inlined, as the compiler recorded it: a context may have several, of one line.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// The call that it was made in; of the host itself.
    parent: u32,
    context: u32,
    /// In the line of its call site; 0 where the compiler does not say.
    column: u32,
}

/// The call of the host, which nothing inlined.
const HOST_CALL: u32 = 0;

/// Calls that are nested deeper are not looked through for a column.
const CALLS_OUTWARDS: usize = 64;

/// Whose code a code range is: the host procedure, or a procedure that was inlined.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    /// The context that it was inlined into. Of inferred ones that is not known: [`HOST`].
    pub(super) parent: u32,
    pub(super) name: Option<String>,
    /// See [`StaticScope::identity`](super::StaticScope::identity).
    pub(super) identity: u64,
    pub(super) location: Option<SourceLocation>,
    pub(super) call_site: Option<SourceLocation>,
}

/// The beginning of a statement of the source, or of a part of one; it may have no code of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Begin {
    pub(super) addr: LinkAddr,
    /// Index in the graph.
    pub(super) block: u32,
    pub(super) location: SourceLocation,
    /// From 1; 0 where the compiler does not say.
    pub(super) column: u32,
}

/// What the source says of a procedure's code.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) files: Files,
    /// By block; in a block by ascending address, at one address in the compiler's
    /// order. Whose statements they are is not known.
    pub(super) begins: Vec<Begin>,
    /// For each line, the column in which its first statement begins.
    columns: FxHashMap<SourceLocation, u32>,
    /// Lines on which the host is opened, whose code makes its frame and moves its parameters.
    pub(super) openings: Vec<SourceLocation>,
    /// gcc compiled it, and says of each statement where it begins, of those without code, too.
    is_marked: bool,
    /// gcc compiled it, and said of no statement without code where it begins: not
    /// optimized, or with little debug information.
    pub(super) is_plain_gcc: bool,
    /// The host first; outer ones before those inside of them.
    pub(super) contexts: Vec<Context>,
    /// How they nest: see [`Source::settle`].
    pub(super) nest: Nest,
    /// Calls that were inlined, the host first.
    calls: Vec<Call>,
    /// By ascending address.
    pub(super) code_ranges: Vec<CodeRange>,
}

/// Paths of source files, each once.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) paths: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, u32>,
}

impl Files {
    pub(super) fn number(&mut self, path: &str) -> u32 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.paths.len() as u32;
        let path: Arc<str> = path.into();
        self.paths.push(Arc::clone(&path));
        self.numbers.insert(path, number);
        number
    }

    fn location(&mut self, unit: &UnitScopes, file: Option<FileId>, line: u32) -> Option<SourceLocation> {
        let path = unit.file(file?).filter(|_| line > 0)?;
        Some(SourceLocation { file: self.number(path), line })
    }
}

/// A procedure's control flow, its loops, and what the source says of its code.
#[derive(Clone, Copy)]
pub(super) struct ProcedureLoops<'p> {
    pub(super) graph: &'p ProcedureGraph,
    pub(super) forest: &'p LoopForest,
    pub(super) source: &'p Source,
}

/// Cuts the code of `graph`. `unit_at` gives the unit that holds an address, `linkers` names of procedures.
pub(super) fn cut(
    graph: &ProcedureGraph,
    unit_at: impl Fn(LinkAddr) -> Option<Rc<UnitScopes>>,
    linkers: &LinkersNames,
) -> Source {
    let host = Call { parent: HOST_CALL, context: HOST, column: 0 };
    let mut source = Source { contexts: vec![Context::default()], calls: vec![host], ..Source::default() };
    let entry_unit = unit_at(graph.entry);
    if let Some(unit) = &entry_unit
        && let Some(origin) = unit.procedure_at(graph.entry).and_then(|host| host.origin)
    {
        source.contexts[HOST as usize] = source.named(unit, origin, linkers);
    }
    let mut known = FxHashMap::default();
    let mut of_scopes = FxHashMap::default();
    let mut cutter =
        Cutter { source: &mut source, linkers, known: &mut known, of_scopes: &mut of_scopes, fragment: graph.entry };
    for (number, block) in (0u32..).zip(&graph.blocks) {
        cutter.fragment = fragment_start(graph, block.code.start);
        match unit_at(block.code.start) {
            Some(unit) => cutter.block(number, &block.code, &unit),
            None => cutter.push(CodeRange {
                code: block.code.clone(),
                block: number,
                context: HOST,
                call: HOST_CALL,
                location: None,
                columns: Columns::one(0),
                ends_block: false,
                is_inherited: false,
            }),
        }
        if let Some(last) = cutter.source.code_ranges.last_mut().filter(|code_range| code_range.block == number) {
            last.ends_block = true;
        }
    }
    let is_by_gcc = entry_unit.as_ref().is_some_and(|unit| unit.is_by_gcc());
    source.is_marked = is_by_gcc && entry_unit.is_some_and(|unit| graph.fragments.iter().any(|f| has_bare(&unit, f)));
    source.is_plain_gcc = is_by_gcc && !source.is_marked;
    source.open(graph.entry);
    for begin in &source.begins {
        let first = source.columns.entry(begin.location).or_insert(begin.column);
        *first = begin.column.min(*first);
    }
    source
}

fn has_bare(unit: &UnitScopes, code: &Range<LinkAddr>) -> bool {
    // The first instruction has several rows at all levels.
    let after = LinkAddr(code.start.0.saturating_add(1));
    unit.begun(after..code.end.max(after)).any(|begun| begun.is_bare)
}

/// Where the fragment begins that an address lies in.
fn fragment_start(graph: &ProcedureGraph, addr: LinkAddr) -> LinkAddr {
    let (first, others) =
        graph.fragments.split_first().map_or((None, &[][..]), |(first, others)| (Some(first), others));
    let before = others.partition_point(|fragment| fragment.start <= addr).checked_sub(1);
    let around = before.and_then(|index| others.get(index)).filter(|fragment| fragment.contains(&addr)).or(first);
    around.filter(|fragment| fragment.contains(&addr)).map_or(addr, |fragment| fragment.start)
}

/// Identifies an inlined call: a compiler that copies code records each copy of a call as one of its own.
type CallKey = (u32, u64, u32, Option<SourceLocation>);

struct Cutter<'a> {
    source: &'a mut Source,
    linkers: &'a LinkersNames,
    known: &'a mut FxHashMap<CallKey, u32>,
    /// The calls of scopes that were met.
    of_scopes: &'a mut FxHashMap<(UnitId, ScopeId), u32>,
    /// Where the fragment begins that is being cut.
    fragment: LinkAddr,
}

impl Cutter<'_> {
    /// Adds a range, or makes the last one longer by it.
    fn push(&mut self, range: CodeRange) {
        if let Some(last) = self.source.code_ranges.last_mut()
            && (last.block, last.context, last.location) == (range.block, range.context, range.location)
            && (last.code.end, last.is_inherited) == (range.code.start, range.is_inherited)
            && last.call == range.call
        {
            last.code.end = range.code.end;
            last.columns = last.columns.with(range.columns);
            return;
        }
        self.source.code_ranges.push(range);
    }

    fn block(&mut self, number: u32, code: &Range<LinkAddr>, unit: &UnitScopes) {
        let mut cuts = vec![code.start];
        for (scope_range, _) in unit.scope_ranges(code.clone()) {
            cuts.extend([scope_range.start, scope_range.end]);
        }
        for run in unit.lines(code.clone()) {
            cuts.extend([run.range.start, run.range.end]);
        }
        for begun in unit.begun(code.clone()) {
            if let Some(location) = self.source.files.location(unit, begun.file, begun.line) {
                self.source.begins.push(Begin { addr: begun.addr, block: number, location, column: begun.column });
            }
        }
        cuts.retain(|cut| code.contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        for (index, &start) in cuts.iter().enumerate() {
            let end = cuts.get(index + 1).copied().unwrap_or(code.end);
            let call = unit.scope_at(start).map_or(HOST_CALL, |scope| self.call(unit, scope));
            let context = self.source.calls.get(call as usize).map_or(HOST, |call| call.context);
            // A line that began before the fragment is that of another
            // procedure: gcc says none where a cold part begins.
            let run = unit.line_at(start);
            let run = run.as_ref().filter(|run| run.range.start >= self.fragment);
            let location = run.and_then(|run| self.source.files.location(unit, run.file, run.line));
            let is_inherited = run.is_some_and(|run| run.range.start < code.start);
            self.push(CodeRange {
                code: start..end,
                block: number,
                context,
                call,
                location,
                columns: Columns::one(run.map_or(0, |run| run.column)),
                ends_block: false,
                is_inherited,
            });
        }
    }

    /// The call that a scope is. In their contexts those that a person cannot tell apart are one.
    fn call(&mut self, unit: &UnitScopes, scope: ScopeId) -> u32 {
        let mut calls: Vec<Scope<'_>> = Vec::new();
        let mut number = HOST_CALL;
        let mut next = unit.scope(scope);
        while let Some(scope) = next.filter(|scope| scope.kind == ScopeKind::InlinedCall) {
            steps::take(1);
            if let Some(&known) = self.of_scopes.get(&(unit.id(), scope.id)) {
                number = known;
                break;
            }
            next = scope.parent.and_then(|parent| unit.scope(parent));
            calls.push(scope);
        }
        let mut context = self.source.calls.get(number as usize).map_or(HOST, |call| call.context);
        for scope in calls.into_iter().rev() {
            let call = scope.call;
            let call_site = call.and_then(|call| self.source.files.location(unit, call.file, call.line));
            let origin = scope.origin.map_or(u32::MAX, |origin| origin.index());
            let key = (context, unit.id().0, origin, call_site);
            context = match self.known.get(&key) {
                Some(&context) => context,
                None => {
                    let named =
                        scope.origin.map(|origin| self.source.named(unit, origin, self.linkers)).unwrap_or_default();
                    self.source.contexts.push(Context { parent: context, call_site, ..named });
                    let new = self.source.contexts.len() as u32 - 1;
                    self.known.insert(key, new);
                    new
                }
            };
            self.source.calls.push(Call { parent: number, context, column: call.map_or(0, |call| call.column) });
            number = self.source.calls.len() as u32 - 1;
            self.of_scopes.insert((unit.id(), scope.id), number);
        }
        number
    }
}

impl Source {
    /// Finds the lines on which the host is opened: the line of its name, and the first in the line map. gcc's first
    /// line may be any statement's, if statements without code are not recorded; LLVM's has no column.
    fn open(&mut self, entry: LinkAddr) {
        self.openings.extend(self.contexts.first().and_then(|host| host.location));
        let begun = self.begins.iter().find(|begin| begin.addr == entry);
        let first = begun.filter(|begin| begin.column == 0 || self.openings.is_empty()).map(|begin| begin.location);
        let at_entry = || {
            self.code_ranges
                .iter()
                .find(|code_range| code_range.code.start == entry)
                .and_then(|code_range| code_range.location)
        };
        let first = first.or_else(|| if self.openings.is_empty() { at_entry() } else { None });
        self.openings.extend(first);
    }

    /// The line is one on which the procedure of a context is opened.
    pub(super) fn is_opening(&self, context: u32, location: SourceLocation) -> bool {
        match self.contexts.get(context as usize) {
            Some(inlined) if context != HOST => inlined.location == Some(location),
            _ => self.openings.contains(&location),
        }
    }

    /// The procedure of a context may be opened before the line.
    pub(super) fn opens_before(&self, context: u32, location: SourceLocation) -> bool {
        let opening = self.contexts.get(context as usize).and_then(|context| context.location);
        opening.is_none_or(|opening| opening.file != location.file || opening.line <= location.line)
    }

    /// The column in which the first statement of a line begins, where all beginnings
    /// are marked: others' rows say where code is.
    pub(super) fn first_column(&self, location: SourceLocation) -> Option<u32> {
        self.columns.get(&location).copied().filter(|&column| self.is_marked && column > 0)
    }

    /// Where statements begin in a block.
    pub(super) fn begins_in(&self, block: u32) -> &[Begin] {
        let first = self.begins.partition_point(|begin| begin.block < block);
        let end = self.begins.partition_point(|begin| begin.block <= block);
        self.begins.get(first..end).unwrap_or_default()
    }

    fn named(&mut self, unit: &UnitScopes, origin: Origin<'_>, linkers: &LinkersNames) -> Context {
        // An inlined copy has the name that the procedure's own code has.
        let (name, identity) = match linkers.of(origin) {
            Some(name) => (Some(demangle(&name).into_owned()), identity(&name)),
            None => (origin.display_name().map(|name| name.into_owned()), origin.identity()),
        };
        Context {
            name,
            identity,
            location: self.files.location(unit, origin.file(), origin.line()),
            ..Context::default()
        }
    }

    /// From now on there are no further contexts.
    pub(super) fn settle(&mut self) {
        self.nest = Nest::of(self.contexts.iter().map(|context| context.parent));
    }

    /// For each context but the host, how many code ranges are in it or in one in it.
    pub(super) fn code_ranges_within(&self) -> Vec<usize> {
        let mut within = vec![0; self.contexts.len()];
        for code_range in &self.code_ranges {
            if let Some(count) = within.get_mut(code_range.context as usize) {
                *count += 1;
            }
        }
        // An outer one comes before those in it.
        for context in (1..self.contexts.len() as u32).rev() {
            within[self.nest.parent(context) as usize] += within[context as usize];
        }
        within
    }

    /// The location of a code range as seen from a context around it: the call of what was inlined there.
    pub(super) fn location_in(&self, code_range: &CodeRange, context: u32) -> Option<SourceLocation> {
        if code_range.context == context {
            return code_range.location;
        }
        let inner = self.nest.towards(code_range.context, context)?;
        self.contexts.get(inner as usize)?.call_site
    }

    /// The columns of [`Source::location_in`].
    pub(super) fn columns_in(&self, code_range: &CodeRange, context: u32) -> Columns {
        if code_range.context == context {
            return code_range.columns;
        }
        let call = |number: u32| self.calls.get(number as usize).copied();
        let outwards = std::iter::successors(call(code_range.call), |inner| call(inner.parent));
        let inner = outwards.take(CALLS_OUTWARDS).inspect(|_| steps::take(1)).find(|inner| {
            inner.context != HOST && self.contexts.get(inner.context as usize).is_some_and(|its| its.parent == context)
        });
        Columns::one(inner.map_or(0, |inner| inner.column))
    }
}
