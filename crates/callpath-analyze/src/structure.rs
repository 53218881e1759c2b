//! Static structure: a procedure's loops and inlined calls, and the source line of each of its instructions.
//! It must not know profiles, or how a structure is shown.
//!
//! Tallent et al. 2009, section 3. The way of the data: a procedure's control flow graph and its loops
//! (callpath-x86), what the source says of its code (callpath-image) -> [`code_ranges`]: stretches of one block, one
//! inlined call and one line, where DWARF is silent about inlining with contexts that are inferred ([`infer`]) ->
//! [`scope_tree`]: loops are placed between inlined calls
//! -> [`normalise`]: what the compiler split or moved is put together again -> [`ProcedureStructure`].

mod cache;
mod code_ranges;
mod infer;
mod linkers_names;
mod loop_location;
mod module;
mod nest;
mod normalise;
mod same;
mod same_line;
mod scope_tree;
mod steps;
#[cfg(test)]
mod worst;

use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::lines::SourceLine;

pub use cache::{cached_structure, fuzz_cached_structure};
pub(crate) use module::NEST_TOO_DEEP;
pub use module::{ModuleSource, ModuleStructure, structure};

/// A line of a source file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SourceLocation {
    /// Index in [`ProcedureStructure::files`].
    pub file: u32,
    /// From 1.
    pub line: u32,
}

/// What a procedure's structure was found from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Machine code, lines, and the compiler's record of inlined calls.
    Inlines,
    /// Machine code and lines; inlined code is inferred from them (sections 3.1 to 3.3).
    Lines,
    /// Machine code only: loops are identified by address.
    Code,
}

impl Way {
    /// As `callpath structure` says it.
    pub fn word(self) -> &'static str {
        match self {
            Way::Inlines => "inlines",
            Way::Lines => "lines",
            Way::Code => "code",
        }
    }
}

/// What a static scope is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StaticKind {
    /// A loop.
    Loop {
        /// Control enters elsewhere than at its header, too.
        is_irreducible: bool,
    },
    /// A call that was replaced by the callee's body.
    Inlined,
    /// Code of another source procedure whose call is not recorded: [`Way::Lines`].
    Alien,
}

/// A loop or an inlined call in a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticScope {
    /// The scope around it, by its index, which is smaller; `None`: the procedure itself.
    pub parent: Option<u32>,
    /// What it is.
    pub kind: StaticKind,
    /// Of an inlined call, whose code it is, where known.
    pub name: Option<String>,
    /// Tells it apart from others with its name: see [`callpath_image::demangle::identity`].
    pub identity: u64,
    /// Of a loop, its `for`, `while` or `do`; of an inlined call, where its procedure is declared.
    pub location: Option<SourceLocation>,
    /// Of a loop, the column of the line in which it begins, or its test does: from 1, where the compiler says it.
    pub column: Option<NonZeroU16>,
    /// Of an inlined call.
    pub call_site: Option<SourceLocation>,
    /// First and last line of its own code and that of loops in it, in the file of `location`.
    pub lines: Option<(u32, u32)>,
    /// Its lowest address; of a loop, its header's.
    pub address: LinkAddr,
}

/// A range of a procedure's code that belongs to one scope and one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScopedRange {
    /// The code.
    pub code: Range<LinkAddr>,
    /// The innermost scope, by index; `None`: the procedure itself.
    pub scope: Option<u32>,
    /// The line.
    pub location: Option<SourceLocation>,
}

/// The static structure of one procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcedureStructure {
    /// Its first instruction.
    pub entry: LinkAddr,
    /// Its name in DWARF, for people.
    pub name: Option<String>,
    /// Tells it apart from others with its name: see [`callpath_image::demangle::identity`].
    pub identity: u64,
    /// Where it is declared.
    pub location: Option<SourceLocation>,
    /// Its code, the fragment with the entry first.
    pub fragments: Vec<Range<LinkAddr>>,
    /// What this was found from.
    pub way: Way,
    /// Indirect jumps that could not be followed: loops through them are missing.
    pub unresolved_jumps: u32,
    /// Source files.
    pub files: Vec<Arc<str>>,
    /// Outer scopes before inner ones.
    pub scopes: Vec<StaticScope>,
    /// By ascending address, disjoint.
    pub scoped_ranges: Vec<ScopedRange>,
}

impl ProcedureStructure {
    /// The range that holds an address. Of a return address ask for the byte before.
    pub fn scoped_range_at(&self, addr: LinkAddr) -> Option<&ScopedRange> {
        let after = self.scoped_ranges.partition_point(|scoped_range| scoped_range.code.start <= addr);
        self.scoped_ranges.get(after.checked_sub(1)?).filter(|scoped_range| scoped_range.code.contains(&addr))
    }

    /// The scopes around a scope and itself, by index, outermost first.
    pub fn chain(&self, scope: Option<u32>) -> Vec<u32> {
        let mut chain = Vec::new();
        let mut next = scope;
        while let Some((index, scope)) = next.and_then(|index| Some((index, self.scopes.get(index as usize)?))) {
            chain.push(index);
            // A parent has a smaller number: this ends.
            next = scope.parent.filter(|parent| *parent < index);
        }
        chain.reverse();
        chain
    }

    /// A line with its file's path.
    pub fn source_line(&self, location: SourceLocation) -> SourceLine {
        SourceLine { file: self.files.get(location.file as usize).cloned().unwrap_or_default(), line: location.line }
    }

    /// A file's path.
    pub fn file(&self, location: SourceLocation) -> &str {
        self.files.get(location.file as usize).map_or("", |path| &**path)
    }
}
