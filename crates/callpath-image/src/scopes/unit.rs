//! What one unit says of its code: a tree of scopes, and lines. Owned, compact, and answered from without the file.

use std::borrow::Cow;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::declared::Declaration;
use crate::demangle::{self, demangle};
use crate::error::ImageError;

/// "None" where a number leads to something.
pub(super) const NONE: u32 = u32::MAX;

/// A compilation unit, by its offset in `.debug_info`; of Go's own table a procedure, by its index there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitId(pub u64);

/// A procedure's code or an inlined call, in one unit. Outer scopes have smaller numbers than those inside of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScopeId(pub u32);

/// A source file, in one unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// A namespace, class or procedure that something is declared in, in one unit. Outer ones have smaller numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContainerId(pub u32);

/// What a scope is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScopeKind {
    /// A procedure with code of its own.
    Procedure,
    /// A call that was replaced by the callee's body.
    InlinedCall,
}

/// What a container is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ContainerKind {
    /// A namespace, or a module of Fortran or Rust.
    Namespace,
    /// A class, structure, union or interface.
    Class,
    /// A procedure that something else is declared in.
    Procedure,
}

/// Where a call stood in the source. 0 where the compiler does not say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallSite {
    /// The file, if it is known.
    pub file: Option<FileId>,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// Tells paths through one line apart.
    pub discriminator: u32,
}

/// One scope.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// Its number.
    pub id: ScopeId,
    /// Procedure or inlined call.
    pub kind: ScopeKind,
    /// The scope around it: of an inlined call, where it was inlined; of a procedure, the one that it is declared in
    /// (Fortran's internal procedures, nested functions). Blocks are left out.
    pub parent: Option<ScopeId>,
    /// Whose code it is.
    pub origin: Option<Origin<'a>>,
    /// Where its code lies, inner scopes included: as the compiler wrote them, without empty ones.
    pub ranges: &'a [Range<LinkAddr>],
    /// Of an inlined call.
    pub call: Option<CallSite>,
}

/// The source procedure that a scope's code belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    unit: &'a UnitScopes,
    index: u32,
}

impl<'a> Origin<'a> {
    /// Two scopes of one unit with the same number are code of one source procedure.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The linker's name, or else the name in the source: what addr2line calls it.
    pub fn name(&self) -> Option<&'a str> {
        self.linkage_name().or(self.source_name())
    }

    /// The linker's name, mangled.
    pub fn linkage_name(&self) -> Option<&'a str> {
        self.unit.text(self.record()?.linkage_name)
    }

    /// The name in the source, without what is around it.
    pub fn source_name(&self) -> Option<&'a str> {
        self.unit.text(self.record()?.name)
    }

    /// For people: the linker's name demangled, else the name in the source with its containers before it. In Fortran
    /// always the latter: linkers' names have underscores there that the source has not.
    pub fn display_name(&self) -> Option<Cow<'a, str>> {
        let is_fortran = self.unit.is_fortran() && self.source_name().is_some();
        if let Some(name) = self.linkage_name().filter(|_| !is_fortran) {
            let around = self.containers().map_while(|container| container.name);
            let exact = demangle::exact_rust(name, self.source_name().into_iter().chain(around));
            return Some(exact.map_or_else(|| demangle(name), Cow::Owned));
        }
        let name = self.source_name()?;
        if !is_fortran && !self.unit.language.qualifies_names() {
            return Some(Cow::Borrowed(name));
        }
        let mut parts = vec![Cow::Borrowed(name)];
        for container in self.containers() {
            // A lambda's code is called as the lambda.
            if container.lambda > 0 && parts.last().is_some_and(|call| call == "operator()") {
                parts.pop();
            }
            match container {
                Container { name: Some(name), .. } => parts.push(Cow::Borrowed(name)),
                Container { lambda: 1.., .. } => parts.push(Cow::Owned(format!("{{lambda#{}}}", container.lambda))),
                Container { kind: ContainerKind::Namespace, .. } => parts.push(Cow::Borrowed("(anonymous namespace)")),
                _ => {}
            }
        }
        parts.reverse();
        Some(if parts.len() == 1 { parts.swap_remove(0) } else { Cow::Owned(parts.join("::")) })
    }

    /// Where the procedure's own code in this unit begins, if its language mangles names and DWARF does not say its own;
    /// `None` if it is only ever inlined.
    pub fn own_code(&self) -> Option<LinkAddr> {
        let record = self.record().filter(|record| record.code != 0 && self.unit.language.qualifies_names())?;
        Some(LinkAddr(record.code))
    }

    /// What tells it apart from others with its display name, as [`demangle::identity`] does; 0 where that does. A lambda
    /// without a linker's name is told by its place: the procedure around it may have others of its name.
    pub fn identity(&self) -> u64 {
        if let Some(name) = self.linkage_name() {
            return demangle::identity(name);
        }
        if !self.containers().any(|container| container.lambda > 0) {
            return 0;
        }
        let path = self.file().and_then(|file| self.unit.file(file)).unwrap_or_default();
        xxhash_rust::xxh3::xxh3_64_with_seed(path.as_bytes(), self.line().into()).max(1)
    }

    /// The file it is declared in; of a definition, that of the definition.
    pub fn file(&self) -> Option<FileId> {
        some(self.record()?.decl_file).map(FileId)
    }

    /// The line it is declared in, from 1; 0 where the compiler does not say.
    pub fn line(&self) -> u32 {
        self.record().map_or(0, |record| record.decl_line)
    }

    /// What it is declared in, from inside out.
    pub fn containers(&self) -> impl Iterator<Item = Container<'a>> + use<'a> {
        let unit = self.unit;
        let mut next = self.record().map_or(NONE, |record| record.container);
        std::iter::from_fn(move || {
            let record = unit.containers.get(next as usize)?;
            let id = ContainerId(next);
            next = record.parent;
            Some(Container { id, kind: record.kind, name: unit.text(record.name), lambda: record.lambda.number })
        })
    }

    fn record(&self) -> Option<&'a OriginRecord> {
        self.unit.origins.get(self.index as usize)
    }
}

/// What something is declared in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Container<'a> {
    /// Its number.
    pub id: ContainerId,
    /// What it is.
    pub kind: ContainerKind,
    /// `None` of an anonymous one.
    pub name: Option<&'a str>,
    /// Of a lambda's class, which of those in the same container it is, from 1 in the order of the source; else 0.
    pub lambda: u32,
}

/// A frame of the chain of inlined calls at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// As [`Origin::name`] has it.
    pub name: Option<&'a str>,
    /// The file that is executed: of the innermost frame by the line map, of the others where the call stood.
    pub file: Option<&'a str>,
    /// The line, from 1; 0 where the compiler does not say.
    pub line: u32,
    /// The column, from 1; 0 where the compiler does not say.
    pub column: u32,
    /// The scope, if there is one.
    pub scope: Option<ScopeId>,
}

/// Code that the line map gives one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineRun {
    /// The code.
    pub range: Range<LinkAddr>,
    /// The file, if it is known.
    pub file: Option<FileId>,
    /// The line, from 1; 0 where the compiler says that there is none.
    pub line: u32,
    /// The column, from 1; 0 where the compiler does not say.
    pub column: u32,
    /// Tells blocks of one line apart.
    pub discriminator: u32,
    /// A debugger would stop at its beginning.
    pub is_statement: bool,
}

/// DWARF's number of a language.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Language(pub(super) u16);

impl Language {
    /// C++ in all its years, Rust, D.
    fn qualifies_names(self) -> bool {
        matches!(self.0, 0x4 | 0x1a | 0x21 | 0x2b | 0x3a | 0x1c | 0x13)
    }

    fn is_fortran(self) -> bool {
        matches!(self.0, 0x7 | 0x8 | 0xe | 0x22 | 0x23 | 0x2d)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) start: u32,
    /// 0: nothing.
    pub(super) len: u32,
}

#[derive(Debug)]
pub(super) struct ScopeRecord {
    pub(super) parent: u32,
    pub(super) origin: u32,
    /// Its ranges end where the next record's begin.
    pub(super) first_range: u32,
    pub(super) call_file: u32,
    pub(super) call_line: u32,
    pub(super) call_column: u32,
    /// Most are 0.
    pub(super) call_discriminator: u16,
    pub(super) is_inlined: bool,
}

#[derive(Debug)]
pub(super) struct OriginRecord {
    pub(super) name: Text,
    pub(super) linkage_name: Text,
    pub(super) decl_file: u32,
    pub(super) decl_line: u32,
    pub(super) container: u32,
    /// Where its own code begins, of one without a linkage name; 0: nowhere.
    pub(super) code: u64,
}

#[derive(Debug)]
pub(super) struct ContainerRecord {
    pub(super) kind: ContainerKind,
    pub(super) name: Text,
    pub(super) parent: u32,
    /// Of a lambda's class.
    pub(super) lambda: Lambda,
}

/// What is known of a lambda by its class; all 0 of what is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lambda {
    /// From 1 among those in the same container, in the order of the source.
    pub(super) number: u32,
    /// Where it stands. gcc gives its code no place.
    pub(super) file: u32,
    pub(super) line: u32,
}

/// The beginning of a range of code with one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) addr: u64,
    /// The highest bit marks a statement; without it [`END`] means that no line is known from here on.
    pub(super) file: u32,
    pub(super) line: u32,
    pub(super) discriminator: u32,
    pub(super) column: u32,
}

/// The highest bit of [`Row::file`].
pub(super) const STATEMENT: u32 = 1 << 31;
/// [`Row::file`] of a file that is not known.
pub(super) const NO_FILE: u32 = STATEMENT - 2;
/// [`Row::file`] behind the end of a sequence.
pub(super) const END: u32 = STATEMENT - 1;

/// All that was read of a unit.
#[derive(Debug)]
pub struct UnitScopes {
    pub(super) id: UnitId,
    pub(super) language: Language,
    pub(super) text: String,
    pub(super) files: Vec<Text>,
    pub(super) scopes: Vec<ScopeRecord>,
    pub(super) ranges: Vec<Range<LinkAddr>>,
    pub(super) origins: Vec<OriginRecord>,
    pub(super) containers: Vec<ContainerRecord>,
    /// Where the innermost scope changes, ascending.
    pub(super) paint_addrs: Vec<u64>,
    /// The innermost scope from there on, or [`NONE`].
    pub(super) paint_scopes: Vec<u32>,
    /// Ascending.
    pub(super) rows: Vec<Row>,
    /// Statements that begin where other rows have the code: ascending.
    pub(super) bare: Vec<Row>,
    pub(super) is_gcc: bool,
    pub(super) has_inlined_calls: bool,
    /// Where procedures are declared, with code or without: sorted.
    pub(super) declarations: Vec<Declaration>,
    /// Other units of the file that what has code here is declared in, ascending;
    /// known where no inlined calls are recorded.
    pub(super) elsewhere: Vec<UnitId>,
    pub(super) diagnostics: Vec<ImageError>,
}

impl UnitScopes {
    /// Which unit this is.
    pub fn id(&self) -> UnitId {
        self.id
    }

    /// What is wrong with it, each with the unit and the entry. The rest is good.
    pub fn diagnostics(&self) -> &[ImageError] {
        &self.diagnostics
    }

    /// The compiler recorded inlined calls. Without any, a unit that was optimized may hold them all the same.
    pub fn has_inlined_calls(&self) -> bool {
        self.has_inlined_calls
    }

    /// Written in Fortran, whose internal procedures are the last part of the procedure they are declared in.
    pub fn is_fortran(&self) -> bool {
        self.language.is_fortran()
    }

    /// All scopes, outer ones before those inside of them.
    pub fn scopes(&self) -> impl Iterator<Item = Scope<'_>> {
        (0..self.scopes.len() as u32).filter_map(|index| self.scope(ScopeId(index)))
    }

    /// All procedures with code.
    pub fn procedures(&self) -> impl Iterator<Item = Scope<'_>> {
        self.scopes().filter(|scope| scope.kind == ScopeKind::Procedure)
    }

    pub(super) fn origin(&self, index: u32) -> Option<Origin<'_>> {
        some(index).map(|index| Origin { unit: self, index })
    }

    /// The scope of that number.
    pub fn scope(&self, id: ScopeId) -> Option<Scope<'_>> {
        let record = self.scopes.get(id.0 as usize)?;
        let ranges_end = self.scopes.get(id.0 as usize + 1).map_or(self.ranges.len(), |next| next.first_range as usize);
        let call = CallSite {
            file: some(record.call_file).map(FileId),
            line: record.call_line,
            column: record.call_column,
            discriminator: record.call_discriminator.into(),
        };
        Some(Scope {
            id,
            kind: if record.is_inlined { ScopeKind::InlinedCall } else { ScopeKind::Procedure },
            parent: some(record.parent).map(ScopeId),
            origin: self.origin(record.origin),
            ranges: self.ranges.get(record.first_range as usize..ranges_end).unwrap_or_default(),
            call: record.is_inlined.then_some(call),
        })
    }

    /// The innermost scope at `addr`.
    pub fn scope_at(&self, addr: LinkAddr) -> Option<ScopeId> {
        let before = self.paint_addrs.partition_point(|start| *start <= addr.0).checked_sub(1)?;
        self.paint_scopes.get(before).copied().and_then(some).map(ScopeId)
    }

    /// The innermost scope of each range of code within `range`: ascending, disjoint; code without a scope is left out.
    pub fn scope_ranges(&self, range: Range<LinkAddr>) -> impl Iterator<Item = (Range<LinkAddr>, ScopeId)> + '_ {
        let first = self.paint_addrs.partition_point(|start| *start <= range.start.0).saturating_sub(1);
        let scope_ranges = self.paint_addrs.iter().zip(&self.paint_scopes).enumerate().skip(first);
        let scope_ranges = scope_ranges.take_while(move |(_, (start, _))| **start < range.end.0);
        scope_ranges.filter_map(move |(index, (start, scope))| {
            let end = self.paint_addrs.get(index + 1).copied().unwrap_or(*start);
            let scope_range = LinkAddr(range.start.0.max(*start))..LinkAddr(range.end.0.min(end));
            (*scope != NONE && scope_range.start < scope_range.end).then_some((scope_range, ScopeId(*scope)))
        })
    }

    /// The procedure whose code `addr` is, whatever is inlined there.
    pub fn procedure_at(&self, addr: LinkAddr) -> Option<Scope<'_>> {
        self.enclosing_procedure(self.scope_at(addr)?)
    }

    /// The procedure around a scope, or the scope itself.
    pub fn enclosing_procedure(&self, scope: ScopeId) -> Option<Scope<'_>> {
        let mut scope = self.scope(scope)?;
        while scope.kind == ScopeKind::InlinedCall {
            scope = self.scope(scope.parent?)?;
        }
        Some(scope)
    }

    /// The inlined calls at `addr`, innermost first, and last the procedure that they were inlined into: what
    /// `addr2line -i -f` prints. Of a return address ask for the byte before.
    pub fn chain(&self, addr: LinkAddr) -> impl Iterator<Item = Frame<'_>> {
        let row = self.row_at(addr);
        let innermost = self.scope_at(addr);
        let mut next = (row.is_some() || innermost.is_some()).then_some((
            innermost,
            row.and_then(|row| self.file(row_file(row)?)),
            row.map_or(0, |row| row.line),
            row.map_or(0, |row| row.column),
        ));
        std::iter::from_fn(move || {
            let (scope, file, line, column) = next.take()?;
            let scope = scope.and_then(|id| self.scope(id));
            if let Some((call, parent)) = scope.and_then(|scope| Some((scope.call?, scope.parent))) {
                next = Some((parent, call.file.and_then(|file| self.file(file)), call.line, call.column));
            }
            let name = scope.and_then(|scope| scope.origin?.name());
            Some(Frame { name, file, line, column, scope: scope.map(|scope| scope.id) })
        })
    }

    /// The path of a file, as the compiler wrote its parts.
    pub fn file(&self, file: FileId) -> Option<&str> {
        self.text(*self.files.get(file.0 as usize)?)
    }

    /// The line of the code at `addr`.
    pub fn line_at(&self, addr: LinkAddr) -> Option<LineRun> {
        let before = self.rows.partition_point(|row| row.addr <= addr.0).checked_sub(1)?;
        self.run(before)
    }

    /// The lines of the code in `range`: ascending, disjoint; where the line map says nothing, nothing.
    pub fn lines(&self, range: Range<LinkAddr>) -> impl Iterator<Item = LineRun> + '_ {
        let first = self.rows.partition_point(|row| row.addr <= range.start.0).saturating_sub(1);
        let rows = self.rows.iter().enumerate().skip(first).take_while(move |(_, row)| row.addr < range.end.0);
        rows.filter_map(move |(index, _)| {
            let mut run = self.run(index)?;
            run.range = run.range.start.max(range.start)..run.range.end.min(range.end);
            (run.range.start < run.range.end).then_some(run)
        })
    }

    fn row_at(&self, addr: LinkAddr) -> Option<&Row> {
        let before = self.rows.partition_point(|row| row.addr <= addr.0).checked_sub(1)?;
        self.rows.get(before).filter(|row| row.file & !STATEMENT != END)
    }

    fn run(&self, index: usize) -> Option<LineRun> {
        let row = self.rows.get(index).filter(|row| row.file & !STATEMENT != END)?;
        let end = self.rows.get(index + 1)?.addr;
        Some(LineRun {
            range: LinkAddr(row.addr)..LinkAddr(end),
            file: row_file(row),
            line: row.line,
            column: row.column,
            discriminator: row.discriminator,
            is_statement: row.file & STATEMENT != 0,
        })
    }

    fn text(&self, text: Text) -> Option<&str> {
        let start = text.start as usize;
        if text.len == 0 { None } else { self.text.get(start..start + text.len as usize) }
    }
}

fn some(number: u32) -> Option<u32> {
    (number != NONE).then_some(number)
}

pub(super) fn row_file(row: &Row) -> Option<FileId> {
    let file = row.file & !STATEMENT;
    (file < NO_FILE).then_some(FileId(file))
}
