//! A scope: what one node of the calling context tree stands for, and when two are the same.
//! How scopes are found or shown does not belong here.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU16;

use rustc_hash::FxHasher;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Name, Strings};

/// What sort of thing a node stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ScopeKind {
    /// The whole profile.
    Root,
    /// One process.
    Process,
    /// One MPI rank.
    Rank,
    /// One thread, or all with the same entry.
    Thread,
    /// The root of call paths whose outer end is not known.
    Partial,
    /// The outer frames of paths of which only the innermost are kept.
    Truncated,
    /// Time in which no sample was taken; its name says why.
    Gap,
    /// A load module (flat view).
    Module,
    /// A source file (flat view).
    File,
    /// A procedure.
    Procedure,
    /// A procedure that was inlined here.
    Inlined,
    /// A loop.
    Loop,
    /// A source line.
    Line,
    /// A system call that code made.
    SystemCall,
    /// What a query left out below one node, as one node.
    Pruned,
}

impl ScopeKind {
    /// Every kind with the word of the JSON schema. A kind's place is its number in files, the same for ever: a new one goes
    /// to the end.
    const ALL: [(ScopeKind, &str); 15] = [
        (ScopeKind::Root, "root"),
        (ScopeKind::Process, "process"),
        (ScopeKind::Rank, "rank"),
        (ScopeKind::Thread, "thread"),
        (ScopeKind::Partial, "partial"),
        (ScopeKind::Truncated, "truncated"),
        (ScopeKind::Gap, "gap"),
        (ScopeKind::Module, "module"),
        (ScopeKind::File, "file"),
        (ScopeKind::Procedure, "procedure"),
        (ScopeKind::Inlined, "inlined"),
        (ScopeKind::Loop, "loop"),
        (ScopeKind::Line, "line"),
        (ScopeKind::SystemCall, "system_call"),
        (ScopeKind::Pruned, "pruned"),
    ];

    /// The word of the JSON schema.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Its number in files.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// The kind with this number; `None`: there is none.
    pub(crate) fn from_number(number: u32) -> Option<ScopeKind> {
        Self::ALL.get(usize::try_from(number).ok()?).map(|(kind, _)| *kind)
    }

    const fn numbers_are_places() -> bool {
        let mut at = 0;
        while at < Self::ALL.len() {
            if Self::ALL[at].0 as usize != at {
                return false;
            }
            at += 1;
        }
        true
    }

    /// Whether it is a call: a procedure, or one that was inlined.
    pub fn is_frame(self) -> bool {
        matches!(self, ScopeKind::Procedure | ScopeKind::Inlined)
    }

    /// Whether it is a part of a procedure's own body: a loop or a line.
    pub fn is_body(self) -> bool {
        matches!(self, ScopeKind::Loop | ScopeKind::Line)
    }
}

const _: () = assert!(ScopeKind::numbers_are_places());

/// A location in the source from which a call was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallSite {
    /// The file.
    pub file: Name,
    /// The line, from 1.
    pub line: u32,
}

/// What one node stands for.
///
/// Two children of one parent are the same scope when these are equal: kind, name, module, file, discriminator; also
/// the line of a line, loop or inlined call; also the address of a loop, or of a procedure without a name. The other
/// fields describe it: where two equal scopes differ in one, the description is not known (none).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scope {
    /// What sort of thing it is.
    pub kind: ScopeKind,
    /// Demangled, as the source spells it; may be empty for loops and lines, which the file and line tell.
    pub name: Name,
    /// The load module's name, without its directory.
    pub module: Option<Name>,
    /// The source file.
    pub file: Option<Name>,
    /// The line in `file`, from 1: of a procedure or inlined call, where it is defined.
    pub line: Option<u32>,
    /// Of a loop, the column in `line` in which it begins, from 1, where the compiler says it.
    pub column: Option<NonZeroU16>,
    /// Offset in the module of its first instruction.
    pub address: Option<u64>,
    /// Where in the caller it is called from; none where unknown or where several calls are added up.
    pub call_site: Option<CallSite>,
    /// Keeps apart what is otherwise equal: a process id with its run's number times 2^32, a thread id, the ordinal of a loop; of a procedure or inlined
    /// call, a number for what its name leaves out, equal wherever the same procedure was met, 0 where that is nothing.
    /// Of a pruned node, how many scopes it stands for.
    pub discriminator: u64,
}

impl Scope {
    /// A scope of which no more is known than its kind and name.
    pub fn new(kind: ScopeKind, name: Name) -> Self {
        Scope {
            kind,
            name,
            module: None,
            file: None,
            line: None,
            column: None,
            address: None,
            call_site: None,
            discriminator: 0,
        }
    }

    /// What two equal scopes have in common: kind, name, module, file, line, address, discriminator.
    #[allow(clippy::type_complexity, reason = "one place lists the fields; each use takes them apart")]
    fn identity_parts(&self) -> (ScopeKind, Name, Option<Name>, Option<Name>, Option<u32>, Option<u64>, u64) {
        let by_line = matches!(self.kind, ScopeKind::Line | ScopeKind::Loop | ScopeKind::Inlined);
        let by_address = match self.kind {
            ScopeKind::Loop => true,
            ScopeKind::Procedure => self.name == Name::EMPTY,
            _ => false,
        };
        let line = if by_line { self.line } else { None };
        let address = if by_address { self.address } else { None };
        (self.kind, self.name, self.module, self.file, line, address, self.discriminator)
    }

    /// The process id of a process's scope, the thread id of a thread's; 0 where several were merged.
    pub fn unit_id(&self) -> u64 {
        match self.kind {
            ScopeKind::Process => self.discriminator & u64::from(u32::MAX),
            _ => self.discriminator,
        }
    }

    /// Of a process's scope, the number of its run: process ids are given again, and on each host.
    pub fn run(&self) -> u32 {
        if self.kind == ScopeKind::Process { (self.discriminator >> 32) as u32 } else { 0 }
    }

    /// The scope of a process.
    pub fn process(name: Name, run: u32, pid: u32) -> Scope {
        let discriminator = u64::from(run) << 32 | u64::from(pid);
        Scope { discriminator, ..Scope::new(ScopeKind::Process, name) }
    }

    /// An order of scopes with one name that no two different ones of one parent share, whatever numbers strings have.
    pub(crate) fn order(&self, other: &Scope, strings: &Strings) -> Ordering {
        let text = |name: Option<Name>| name.map(|name| strings.get(name));
        let key = |scope: &Scope| {
            let place = (text(scope.module), text(scope.file), scope.line, scope.column, scope.address);
            (scope.kind, place, scope.discriminator)
        };
        key(self).cmp(&key(other))
    }

    fn identity(&self) -> impl Hash + PartialEq + use<> {
        self.identity_parts()
    }

    /// Whether both are the same scope when they have the same parent.
    pub fn same(&self, other: &Scope) -> bool {
        self.identity() == other.identity()
    }

    /// The 64-bit id of this scope under a parent with the id `parent`: equal, in each database, for scopes that are the
    /// same there. `hash`: of a string, see [`crate::database`].
    pub(crate) fn id_under(&self, parent: u64, mut hash: impl FnMut(Name) -> u64) -> u64 {
        let (kind, name, module, file, line, address, discriminator) = self.identity_parts();
        let text = |name: Option<Name>, hash: &mut dyn FnMut(Name) -> u64| name.map_or(0, hash);
        let (module, file) = (text(module, &mut hash), text(file, &mut hash));
        let known = u64::from(line.is_some()) | u64::from(address.is_some()) << 1;
        let kind_and_line = u64::from(kind.number()) | known << 8 | u64::from(line.unwrap_or(0)) << 32;
        let words = [parent, kind_and_line, hash(name), module, file, address.unwrap_or(0), discriminator];
        let mut bytes = [0; 56];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        xxh3_64(&bytes)
    }

    /// Equal for scopes that are the same under `parent`.
    pub(crate) fn hash_under(&self, parent: u32) -> u64 {
        let mut hasher = FxHasher::default();
        parent.hash(&mut hasher);
        self.identity().hash(&mut hasher);
        hasher.finish()
    }

    /// Takes in what `other`, the same scope, says of it: keeps a description only where both agree.
    pub(crate) fn agree(&mut self, other: &Scope) {
        fn keep<T: PartialEq>(mine: &mut Option<T>, theirs: &Option<T>) {
            if mine != theirs {
                *mine = None;
            }
        }
        keep(&mut self.line, &other.line);
        keep(&mut self.column, &other.column);
        keep(&mut self.address, &other.address);
        keep(&mut self.call_site, &other.call_site);
    }
}
