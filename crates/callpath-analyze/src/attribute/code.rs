//! The code that a measurement met: what each address is called, and the loops and inlined calls around it.
//! No call paths and no costs here.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use callpath_db::{CodeFile, CodeIdentity, ContextId, UNDETERMINED};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, FrameKind};
use callpath_image::elf::Image;
use callpath_image::exports::{Export, Exports};
use callpath_image::identity::ModuleIdentity;
use rustc_hash::{FxHashMap, FxHashSet};

use super::options::{AttributeOptions, PRELOAD_PREFIX, Progress};
use crate::names::{ModuleNames, ProcedureName, SourceLine};
use crate::permits::Permit;
use crate::structure::{NEST_TOO_DEEP, ProcedureStructure, StaticKind, StaticScope, cached_structure};
use crate::system_calls;
use callpath_measurement::{KERNEL, NamedCode, NamesFile, PARTIAL_ROOT, ProcessFile};
use callpath_tables::table_cache::TableCache;
use callpath_x86::system_call::Origin;

/// How often the progress callback hears how many modules have been read.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A module as the measurement names it, and the process if it is one that gave the module's code names of its own.
pub(super) type ModuleKey = (PathBuf, Option<ModuleIdentity>, Option<u32>);

/// All code that samples or calls lie in.
#[derive(Default)]
pub(super) struct Code {
    pub(super) modules: Vec<ModuleCode>,
    pub(super) index: FxHashMap<ModuleKey, usize>,
    /// For each process, in the measurement's order, its modules by their index.
    pub(super) of_processes: Vec<Vec<usize>>,
    /// Samples whose walk stopped in code of no module.
    pub(super) stopped_outside: u64,
}

impl Code {
    /// Files of which nothing is known, though samples met their code.
    pub(super) fn unusable(&self) -> Vec<PathBuf> {
        self.modules.iter().filter(|module| module.is_unusable()).map(|module| module.key.0.clone()).collect()
    }
}

pub(super) struct ModuleCode {
    pub(super) key: ModuleKey,
    /// Identifies the module in the ids of contexts, on any machine: the build-id
    /// or the hash of its content, else its path.
    pub(super) identity: Vec<u8>,
    /// Is it our own preload object?
    pub(super) ours: bool,
    started_as: Option<StartedAs>,
    pub(super) addresses: FxHashSet<LinkAddr>,
    pub(super) locations: FxHashMap<LinkAddr, CodeLocation>,
    pub(super) scopes: Vec<Inner>,
    pub(super) names: Option<ModuleNames>,
    /// Of a module that no sample hit, read when first asked for; `None`: it cannot be.
    exports: OnceCell<Option<Exports>>,
    /// Procedures with indirect jumps that could not be followed.
    pub(super) unresolved: Vec<String>,
    /// Samples in them.
    pub(super) unresolved_samples: u64,
    /// The parts of its DWARF that could not be used, as sentences.
    pub(super) broken_dwarf: Vec<String>,
    /// Procedures of which some loops are left out, as sentences.
    pub(super) too_deep: Vec<String>,
    /// What the process calls the code that it has generated here.
    pub(super) generated: Vec<NamedCode>,
    pub(super) unnamed_samples: u64,
    /// Samples in a runtime's interpreter, where procedures of the program could stand.
    pub(super) interpreter_samples: u64,
    /// Samples whose walk stopped in its code.
    pub(super) stopped_samples: u64,
}

/// By which names processes have started an executable: links to it may have others than its file.
enum StartedAs {
    One(OsString),
    Several,
}

/// The place of a process's executable among its modules, and the name it was started by. Modules are in the order of
/// addresses as the process began: only the loader and libraries can lie below its executable. `None`: the loader was
/// started with the program as its argument, or the program is not known, or had no name any more.
fn started(process: &ProcessFile) -> Option<(usize, &OsStr)> {
    let is_library = |name: &OsStr| name.to_string_lossy().contains(".so");
    let name = process.program.file_name().filter(|name| !is_library(name))?;
    let is_executable = |path: &Path| path.is_absolute() && path.file_name().is_some_and(|name| !is_library(name));
    let index = process.modules.iter().position(|module| is_executable(&module.path))?;
    (!name.to_string_lossy().ends_with(" (deleted)")).then_some((index, name))
}

/// What an address is called.
#[derive(Clone)]
pub(super) struct CodeLocation {
    pub(super) procedure: String,
    /// Tells it apart from others with its name.
    pub(super) identity: u64,
    pub(super) start: LinkAddr,
    pub(super) named: bool,
    /// Where the procedure is declared.
    pub(super) declared: Option<SourceLine>,
    /// Loops and inlined calls, from outside in: indices in [`ModuleCode::scopes`].
    pub(super) scopes: Vec<u32>,
    pub(super) line: Option<SourceLine>,
    /// Its procedure has indirect jumps that could not be followed.
    pub(super) jumps_anywhere: bool,
    /// A frame that was interrupted here was in a system call, whose number comes from there.
    pub(super) system_call: Option<Origin>,
}

/// A loop or an inlined call in a procedure.
pub(super) struct Inner {
    pub(super) is_loop: bool,
    pub(super) name: String,
    pub(super) identity: u64,
    pub(super) location: Option<SourceLine>,
    pub(super) column: Option<NonZeroU16>,
    pub(super) call_site: Option<SourceLine>,
    pub(super) address: LinkAddr,
}

/// Whether a file with this name is our own object.
pub(crate) fn is_ours(file_name: &str) -> bool {
    file_name.starts_with(PRELOAD_PREFIX)
}

/// Code that a process has named itself is that process's alone.
fn identity_of((path, identity, named_by): &ModuleKey) -> Vec<u8> {
    match identity {
        Some(ModuleIdentity::BuildId(id)) => id.clone(),
        Some(ModuleIdentity::Content(hash)) => hash.to_be_bytes().to_vec(),
        None => {
            let mut bytes = path.as_os_str().as_bytes().to_vec();
            bytes.extend(named_by.iter().flat_map(|sequence| [&b"\0"[..], &sequence.to_le_bytes()].concat()));
            bytes
        }
    }
}

/// What the process calls code that it has generated in one of its modules.
fn named_in(names: Option<&NamesFile>, index: usize) -> impl Iterator<Item = &NamedCode> {
    names.into_iter().flat_map(|names| &names.procedures).filter(move |named| usize::from(named.module) == index)
}

/// The key of the module of an index in a process's file.
fn key_of(process: &ProcessFile, index: usize, names: Option<&NamesFile>) -> ModuleKey {
    let module = &process.modules[index];
    let named_by = named_in(names, index).next().map(|_| process.sequence);
    (module.path.clone(), module.identity.clone(), named_by)
}

/// What identifies each module of a process in the ids of contexts.
pub(crate) struct Identities(Vec<Vec<u8>>);

impl Identities {
    pub(crate) fn of(process: &ProcessFile, names: Option<&NamesFile>) -> Identities {
        Identities((0..process.modules.len()).map(|index| identity_of(&key_of(process, index, names))).collect())
    }

    /// The context of a frame that was called from `parent`.
    pub(crate) fn context(&self, parent: ContextId, key: FrameKey) -> ContextId {
        match self.0.get(usize::from(key.module().0)) {
            Some(identity) => parent.child(identity, key.address()),
            None => parent.child(&[], key.0),
        }
    }
}

/// What stands for the procedure of a frame of no module, if something does.
pub(crate) fn name_outside(key: FrameKey) -> Option<String> {
    match key.kind() {
        FrameKind::LeftOut | FrameKind::Gap(_) => None,
        FrameKind::Undetermined | FrameKind::Height(_) => Some(UNDETERMINED.to_owned()),
        FrameKind::Probe => Some("[callpath's probes]".to_owned()),
        FrameKind::Outside(addr) => Some(format!("[code without a file]+{:#x}", page_without_file(addr.0))),
        FrameKind::Code { addr, .. } => Some(format!("[unknown module]+{:#x}", addr.0)),
        FrameKind::Other { tag, value } => Some(format!("[frame of kind {tag}]+{value:#x}")),
    }
}

impl Code {
    /// The module of an index in a process's file.
    fn of(&mut self, process: &ProcessFile, index: usize, names: Option<&NamesFile>) -> usize {
        let generated: Vec<NamedCode> = named_in(names, index).cloned().collect();
        let key = key_of(process, index, names);
        *self.index.entry(key.clone()).or_insert_with(|| {
            let name = key.0.file_name().unwrap_or_default().to_string_lossy();
            let ours = is_ours(&name);
            self.modules.push(ModuleCode {
                identity: identity_of(&key),
                key,
                ours,
                started_as: None,
                addresses: FxHashSet::default(),
                locations: FxHashMap::default(),
                scopes: Vec::new(),
                names: None,
                exports: OnceCell::new(),
                unresolved: Vec::new(),
                unresolved_samples: 0,
                broken_dwarf: Vec::new(),
                too_deep: Vec::new(),
                generated,
                unnamed_samples: 0,
                interpreter_samples: 0,
                stopped_samples: 0,
            });
            self.modules.len() - 1
        })
    }

    pub(super) fn enter(&mut self, process: &ProcessFile, names: Option<&NamesFile>) {
        let modules: Vec<usize> = (0..process.modules.len()).map(|index| self.of(process, index, names)).collect();
        if let Some((index, name)) = started(process) {
            self.modules[modules[index]].is_started_as(name);
        }
        for thread in &process.threads {
            let nodes = thread.tree.nodes().iter().skip(PARTIAL_ROOT as usize + 1);
            for key in nodes.map(|n| n.key).chain(thread.start) {
                if let Some(module) = modules.get(usize::from(key.module().0)) {
                    self.modules[*module].addresses.insert(LinkAddr(key.address()));
                }
            }
        }
        self.of_processes.push(modules);
    }

    /// Names all addresses, several modules at a time: no more threads are at work than there are processors.
    pub(super) fn read(&mut self, options: &AttributeOptions, progress: Progress<'_>) {
        let count = self.modules.len();
        let cache = TableCache::open(options.cache.clone());
        let mut wanted: Vec<&mut ModuleCode> =
            self.modules.iter_mut().filter(|module| !module.ours && !module.addresses.is_empty()).collect();
        // The one with the most to find last, where it is taken from first.
        wanted.sort_by_key(|module| module.addresses.len());
        let mut done = count - wanted.len();
        let at_once = wanted.len();
        let wanted = Mutex::new(wanted);
        let (finished, is_finished) = mpsc::channel();
        // Reads modules until none is left, and reports each. A closed channel means that the caller has ended.
        let work = |permit: Permit, finished: &dyn Fn() -> bool| {
            let next = || wanted.lock().unwrap_or_else(PoisonError::into_inner).pop();
            while let Some(module) = next() {
                module.read(options, &cache);
                if !finished() {
                    break;
                }
            }
            drop(permit);
        };
        let mut is_alone = at_once > 0;
        std::thread::scope(|scope| {
            for number in 0..at_once {
                let permit = if number == 0 { Permit::first_of_several() } else { Permit::take() };
                let Some(permit) = permit else { break };
                let (work, finished) = (&work, finished.clone());
                let others = move || {
                    permit.begin();
                    work(permit, &|| finished.send(()).is_ok());
                };
                if Builder::new().spawn_scoped(scope, others).is_err() {
                    break;
                }
                is_alone = false;
            }
            drop(finished);
            if is_alone {
                return;
            }
            loop {
                progress(done, count);
                match is_finished.recv_timeout(PROGRESS_INTERVAL) {
                    Ok(()) => done += 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        if is_alone {
            let done = Cell::new(done);
            let progress = RefCell::new(&mut *progress);
            work(Permit::first(), &|| {
                done.set(done.get() + 1);
                (progress.borrow_mut())(done.get(), count);
                true
            });
        }
        progress(count, count);
    }
}

impl ModuleCode {
    /// The procedures of this name that it offers to others. `None`: it cannot be looked at, or is no longer what ran.
    pub(super) fn exports(&self, name: &str) -> Option<&[Export]> {
        let (path, identity, _) = &self.key;
        // What the kernel maps by itself, and ours, have nothing that another
        // module's linkage table is bound to for long.
        if self.ours || path.as_os_str().as_encoded_bytes().starts_with(b"[") {
            return Some(&[]);
        }
        if let Some(names) = &self.names {
            return names.is_usable().then(|| names.exports(name));
        }
        let read = || {
            let image = Image::read(path).ok()?;
            let same = identity.as_ref().is_none_or(|identity| image.expect_identity(identity).is_ok());
            same.then(|| Exports::of(&image))
        };
        self.exports.get_or_init(read).as_ref().map(|exports| exports.named(name))
    }

    pub(super) fn read(&mut self, options: &AttributeOptions, cache: &TableCache) {
        let (path, identity, _) = &self.key;
        let names = options.open(path, identity.as_ref());
        // As the measurement has them, by where they are shown.
        let mut addresses: Vec<(LinkAddr, LinkAddr)> =
            self.addresses.iter().map(|address| (names.shown_at(*address), *address)).collect();
        addresses.sort_unstable();
        let shown: Vec<LinkAddr> = addresses.iter().map(|(shown, _)| *shown).collect();
        let source = names.structure_source();
        let structure = source.map(|source| cached_structure(&source, Some(&shown), cache, &|_, _| {}));
        names.end_analysis();
        // A module without a source has no structure, and its names say why.
        let structure = structure.unwrap_or_default();
        let is_too_deep = |odd: &String| odd.starts_with(NEST_TOO_DEEP);
        (self.too_deep, self.broken_dwarf) = structure.diagnostics.iter().cloned().partition(is_too_deep);
        let unresolved = structure.procedures.iter().filter(|procedure| procedure.unresolved_jumps > 0);
        self.unresolved = unresolved.map(|procedure| names.of_structure(procedure).name).collect();
        // Of each procedure's scopes, where they begin in `self.scopes`.
        let mut first_of: FxHashMap<LinkAddr, u32> = FxHashMap::default();
        let place = |address: LinkAddr| {
            let within = structure.procedure_at(address);
            (within, within.and_then(|within| within.scoped_range_at(address)))
        };
        // A structure has the lines of its code: they are not read again.
        // But it knows DWARF's alone.
        let are_in_structure = !names.has_lines_of_go();
        let has_line = |address: LinkAddr| are_in_structure && place(address).1.is_some();
        let outside: Vec<LinkAddr> = shown.into_iter().filter(|address| !has_line(*address)).collect();
        let mut lines_outside = names.lines(&outside).into_iter();
        for (address, met) in addresses {
            let (within, scoped_range) = place(address);
            let line = match within.zip(scoped_range).filter(|_| are_in_structure) {
                Some((within, range)) => range.location.map(|location| within.source_line(location)),
                None => lines_outside.next().flatten(),
            };
            let named = self.generated_name(address).unwrap_or_else(|| name_at(&names, address, within));
            let scopes = within.map_or(Vec::new(), |within| {
                let first = *first_of.entry(within.entry).or_insert_with(|| {
                    let first = self.scopes.len() as u32;
                    self.scopes.extend(within.scopes.iter().map(|scope| Inner::of(within, scope)));
                    first
                });
                within
                    .chain(scoped_range.and_then(|scoped_range| scoped_range.scope))
                    .into_iter()
                    .map(|number| first + number)
                    .collect()
            });
            // A symbol inside of it has the name of something else.
            let is_its = within.is_some_and(|within| names.of_structure(within).start == named.start);
            let declared = within.filter(|_| is_its).and_then(|within| Some(within.source_line(within.location?)));
            let jumps_anywhere = within.is_some_and(|within| within.unresolved_jumps > 0);
            // What a file declares has its file to tell it from another of its name.
            let ordinal = if declared.is_some() { 0 } else { named.ordinal };
            let identity = if named.identity == 0 { u64::from(ordinal) } else { named.identity };
            let (procedure, start, named) = (named.name, named.start, named.named);
            let system_call = system_calls::at(&names, met);
            let location =
                CodeLocation { procedure, identity, start, named, declared, scopes, line, jumps_anywhere, system_call };
            self.locations.insert(met, location);
        }
        self.names = Some(names);
    }

    /// Whether it is the kernel.
    pub(super) fn is_kernel(&self) -> bool {
        self.key.0.as_os_str() == KERNEL
    }

    /// Its file. That of code which a process has named is none that is there later.
    pub(super) fn file(&self) -> CodeFile {
        let (path, identity, named_by) = &self.key;
        let identity = identity.as_ref().filter(|_| named_by.is_none()).map(|identity| match identity {
            ModuleIdentity::BuildId(id) => CodeIdentity::BuildId(id.clone()),
            ModuleIdentity::Content(hash) => CodeIdentity::Content(*hash),
        });
        CodeFile { path: path.clone(), identity }
    }

    /// What the process says of an address.
    fn generated_name(&self, address: LinkAddr) -> Option<ProcedureName> {
        let holds = |p: &&NamedCode| (p.start..p.start.saturating_add(p.len_bytes)).contains(&address.0);
        // The process's own name, else the narrowest bounds.
        let found = self.generated.iter().filter(holds).map(|p| (p.is_named(&self.key.0), p));
        let (named, found) = found.min_by_key(|(named, p)| (!named, p.len_bytes))?;
        let (name, start) = (found.name.clone(), LinkAddr(found.start));
        Some(ProcedureName { name, start, named, identity: 0, ordinal: 0 })
    }

    /// Its file belongs to another build than the one that ran.
    pub(super) fn was_replaced(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.replacement().is_some())
    }

    /// It is a file that should have been read and was not, or not in the build that ran.
    fn is_unusable(&self) -> bool {
        let is_file = self.key.0.is_absolute() && !self.ours && !self.addresses.is_empty();
        is_file && self.names.as_ref().is_some_and(|names| !names.is_usable())
    }

    /// What it is called: an executable by the name under which it was started, if that was one and the same in all
    /// processes; others by their file.
    pub(super) fn shown_name(&self) -> String {
        let name = match &self.started_as {
            Some(StartedAs::One(name)) => name.as_os_str(),
            Some(StartedAs::Several) | None => self.key.0.file_name().unwrap_or(self.key.0.as_os_str()),
        };
        name.to_string_lossy().into_owned()
    }

    fn is_started_as(&mut self, name: &OsStr) {
        self.started_as = Some(match self.started_as.take() {
            Some(StartedAs::One(other)) if other != name => StartedAs::Several,
            Some(StartedAs::Several) => StartedAs::Several,
            _ => StartedAs::One(name.to_owned()),
        });
    }
}

/// Which build of a file of code it was.
pub(crate) fn identity_of_file(file: &CodeFile) -> Option<ModuleIdentity> {
    file.identity.as_ref().map(|identity| match identity {
        CodeIdentity::BuildId(id) => ModuleIdentity::BuildId(id.clone()),
        CodeIdentity::Content(hash) => ModuleIdentity::Content(*hash),
    })
}

/// Code without a file is one procedure for each page: where that begins.
pub(crate) fn page_without_file(address: u64) -> u64 {
    address & !0xfff
}

/// A cold part has the name of its procedure, whether or not the part has a name of its own.
pub(crate) fn name_at(names: &ModuleNames, address: LinkAddr, within: Option<&ProcedureStructure>) -> ProcedureName {
    let own = names.procedure(address);
    let Some(within) = within else { return own };
    let linker_name = names.bounds(address).and_then(|bounds| bounds.name).filter(|_| own.named);
    if linker_name.is_some_and(|name| !name.contains(".cold")) {
        return own.exact(within);
    }
    names.of_structure(within)
}

impl Inner {
    fn of(within: &ProcedureStructure, scope: &StaticScope) -> Inner {
        Inner {
            is_loop: matches!(scope.kind, StaticKind::Loop { .. }),
            name: scope.name.clone().unwrap_or_default(),
            identity: scope.identity,
            location: scope.location.map(|location| within.source_line(location)),
            column: scope.column,
            call_site: scope.call_site.map(|location| within.source_line(location)),
            address: scope.address,
        }
    }
}
