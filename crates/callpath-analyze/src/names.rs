//! What people call the code of a module: procedures' names and source lines, from the module and its debug files.
//!
//! A name from another build is worse than none: where the file is no longer what ran, everything is `module+0x1234`.

pub mod packages;

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::debug_file::DebugFiles;
use callpath_image::demangle::{self, demangle};
use callpath_image::elf::Image;
use callpath_image::error::ImageError;
use callpath_image::exports::{Export, Exports};
use callpath_image::identity::{ModuleIdentity, hex};
use callpath_image::landing_pads::LandingPad;
use callpath_image::lines::Lines;
pub use callpath_image::lines::SourceLine;
use callpath_image::plt;
use callpath_image::symbols::{Procedure, Procedures};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::structure::{ModuleSource, ProcedureStructure};
use callpath_tables::module::Module;
use callpath_x86::idioms::signal_return;

/// A procedure as a person sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcedureName {
    /// Demangled; `module+0x1234` where there is no name, with the link-time address where the procedure begins.
    pub name: String,
    /// Where the procedure begins; the address that was asked for where nothing is known.
    pub start: LinkAddr,
    /// A symbol names it, or DWARF.
    pub named: bool,
    /// Tells it apart from others with its name, as [`callpath_image::demangle::identity`] does; 0 where the name does.
    pub identity: u64,
    /// How many others of the module with its linker's name begin before it.
    pub ordinal: u32,
}

impl ProcedureName {
    /// With the name that DWARF gives the procedure, where that says more of it: of Rust, which closure it is and which
    /// types it was made for.
    pub(crate) fn exact(mut self, procedure: &ProcedureStructure) -> ProcedureName {
        let is_it = self.identity != 0 && self.identity == procedure.identity && self.start == procedure.entry;
        if let Some(exact) = procedure.name.as_ref().filter(|_| is_it) {
            self.name.clone_from(exact);
        }
        self
    }
}

/// Names and lines of one module.
pub struct ModuleNames {
    path: PathBuf,
    /// What unnamed procedures are called after: the file's name.
    module: String,
    build_id: Option<Vec<u8>>,
    source: Option<Source>,
    diagnostics: Vec<ImageError>,
    /// What named procedures are called, by their start.
    demangled: RefCell<FxHashMap<LinkAddr, ProcedureName>>,
}

/// Where names come from.
struct Source {
    image: Arc<Image>,
    /// What analyses of its code share, until nothing but `facts` is asked of it.
    module: RefCell<Option<Arc<Module>>>,
    with_dwarf: Arc<Image>,
    supplement: Option<Arc<Image>>,
    procedures: Procedures,
    /// Read when first asked for.
    exports: OnceCell<Exports>,
    /// Found when first asked for.
    facts: OnceCell<StepFacts>,
    lines: Lines,
}

/// Facts of a module's code by which steps of a walk are rated.
struct StepFacts {
    /// Where exceptions land, by the address of the calls.
    landings: Vec<LandingPad>,
    /// Code that begins stacks.
    stack_starts: Vec<Range<LinkAddr>>,
}

impl Source {
    /// Takes from the module what is still asked of it, and drops the rest.
    fn facts(&self) -> &StepFacts {
        self.facts.get_or_init(|| {
            let module = self.module.take().unwrap_or_else(|| Arc::new(Module::new(Arc::clone(&self.image))));
            let mut landings = module.file().landing_pads().pads.clone();
            landings.sort_by_key(|pad| pad.calls.start);
            StepFacts { landings, stack_starts: module.stack_starts().to_vec() }
        })
    }
}

impl ModuleNames {
    /// Reads the module at `path` if it is the build that `expected` names, and its debug files below `debug_roots`
    /// (`/usr/lib/debug`, usually). It always gives names; what they lack and why is in
    /// [`diagnostics`](Self::diagnostics).
    pub fn open(path: &Path, expected: Option<&ModuleIdentity>, debug_roots: &[PathBuf]) -> ModuleNames {
        ModuleNames::from_module(path, Module::read(path), expected, debug_roots)
    }

    /// The same for a module that is no file (the vdso): from its bytes. `origin` is what it is called.
    pub fn from_bytes(
        bytes: Vec<u8>,
        origin: &Path,
        expected: Option<&ModuleIdentity>,
        debug_roots: &[PathBuf],
    ) -> ModuleNames {
        ModuleNames::from_module(origin, Image::from_bytes(bytes, origin).map(Module::from), expected, debug_roots)
    }

    /// The same for a module that was read already, or could not be.
    pub fn from_module(
        path: &Path,
        module: Result<Module, ImageError>,
        expected: Option<&ModuleIdentity>,
        debug_roots: &[PathBuf],
    ) -> ModuleNames {
        let called = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut names = ModuleNames {
            path: path.to_path_buf(),
            module: called,
            build_id: None,
            source: None,
            diagnostics: Vec::new(),
            demangled: RefCell::default(),
        };
        let same_build = |image: &Image| expected.map_or(Ok(()), |expected| image.expect_identity(expected));
        match module.and_then(|module| same_build(module.image()).map(|()| module)) {
            Ok(module) => names.use_module(module, debug_roots),
            Err(error) => {
                if let Some(ModuleIdentity::BuildId(build_id)) = expected {
                    names.build_id = Some(build_id.clone());
                }
                names.diagnostics.push(error);
            }
        }
        names
    }

    fn use_module(&mut self, module: Module, debug_roots: &[PathBuf]) {
        let image = Arc::clone(module.image());
        self.build_id = image.build_id().map(<[u8]>::to_vec);
        let DebugFiles { debug_file, supplement, diagnostics } = DebugFiles::find(&image, debug_roots);
        self.diagnostics.extend(diagnostics);
        let procedures = Procedures::new(Arc::clone(&image), debug_file.as_ref());
        let with_dwarf = debug_file.map_or_else(|| Arc::clone(&image), Arc::new);
        let supplement = supplement.map(Arc::new);
        let lines = Lines::new(Arc::clone(&with_dwarf), supplement.clone());
        self.source = Some(Source {
            module: RefCell::new(Some(Arc::new(module))),
            image,
            with_dwarf,
            supplement,
            procedures,
            exports: OnceCell::new(),
            facts: OnceCell::new(),
            lines,
        });
    }

    /// What the structure of its procedures is found in.
    pub fn structure_source(&self) -> Option<ModuleSource> {
        let source = self.source.as_ref()?;
        let new = || Arc::new(Module::new(Arc::clone(&source.image)));
        Some(ModuleSource {
            module: Arc::clone(source.module.borrow_mut().get_or_insert_with(new)),
            with_dwarf: Arc::clone(&source.with_dwarf),
            supplement: source.supplement.clone(),
        })
    }

    /// Call this when the structure is found and its source dropped: it frees what no later question needs.
    pub fn end_analysis(&self) {
        let Some(source) = &self.source else { return };
        let has_frames = source.module.borrow().as_ref().is_some_and(|module| module.file().has_call_frames());
        if has_frames {
            source.facts();
        } else if let Some(module) = source.module.borrow_mut().as_mut().and_then(Arc::get_mut) {
            module.release_relocations();
        }
    }

    /// Where the module was looked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why names or lines are missing; none is fatal. The lines' own appear once lines were asked for.
    pub fn diagnostics(&self) -> impl Iterator<Item = String> {
        let lines = self.source.as_ref().map(|source| source.lines.diagnostics());
        let own = self.diagnostics.iter().map(|error| format!("failed to {error}"));
        own.chain(self.damage()).chain(lines.into_iter().flatten())
    }

    /// What is missing of the file, or of its debug file, and what to do about it.
    pub fn damage(&self) -> Vec<String> {
        let Some(source) = &self.source else { return Vec::new() };
        let is_other = !Arc::ptr_eq(&source.image, &source.with_dwarf);
        // Some tools leave in a debug file's program headers what the program has and it has not.
        let of_debug_file = source.with_dwarf.diagnostics().iter().filter(|_| is_other);
        let of_debug_file = of_debug_file.filter(|error| !matches!(error, ImageError::Cut { what: "a segment", .. }));
        let say = |error: &ImageError| {
            format!(
                "failed to {error}: the file is cut or damaged, and only what its other headers lead to is used; \
                 copy or build it anew"
            )
        };
        source.image.diagnostics().iter().chain(of_debug_file).map(say).collect()
    }

    /// That the file is no longer what ran, in a sentence that says what to do.
    pub fn replacement(&self) -> Option<String> {
        self.replaced().map(|(ran, now)| {
            let path = self.path.display();
            format!("{path} was replaced since it ran (what ran has {ran}, what is there now has {now}): record again to see its names")
        })
    }

    /// The file is there and of the build that ran.
    pub fn is_usable(&self) -> bool {
        self.source.is_some()
    }

    /// The procedure that holds `addr`. For a return address ask for the byte before.
    pub fn procedure(&self, addr: LinkAddr) -> ProcedureName {
        let procedure = self.source.as_ref().and_then(|source| source.procedures.procedure_at(addr));
        let start = procedure.map_or(addr, |procedure| procedure.start);
        let Some((source, linker_name)) = self.source.as_ref().zip(procedure.and_then(|procedure| procedure.name))
        else {
            return self.nameless(start);
        };
        let read = || ProcedureName {
            name: demangle(linker_name).into_owned(),
            start,
            named: true,
            identity: demangle::identity(linker_name),
            ordinal: source.procedures.ordinal(start),
        };
        self.demangled.borrow_mut().entry(start).or_insert_with(read).clone()
    }

    /// What a whole procedure is called, all its fragments: as the symbol at its entry, else as DWARF says, else by its
    /// entry, even where symbols and frame description entries know of nothing but a gap with several procedures.
    pub fn of_structure(&self, procedure: &ProcedureStructure) -> ProcedureName {
        let symbol = self.procedure(procedure.entry);
        match &procedure.name {
            _ if symbol.named => symbol.exact(procedure),
            Some(name) => ProcedureName {
                name: name.clone(),
                start: procedure.entry,
                named: true,
                identity: procedure.identity,
                ordinal: 0,
            },
            None => self.nameless(procedure.entry),
        }
    }

    /// The digits of the address in the name that this module gives a procedure without one.
    pub fn digits_of_nameless<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.module)?.strip_prefix("+0x")
    }

    fn nameless(&self, start: LinkAddr) -> ProcedureName {
        let name = format!("{}+{start:#x}", self.module);
        ProcedureName { name, start, named: false, identity: 0, ordinal: 0 }
    }

    /// The bounds of the procedure that holds `addr` and the linker's name of it, where known.
    pub fn bounds(&self, addr: LinkAddr) -> Option<Procedure<'_>> {
        self.source.as_ref()?.procedures.procedure_at(addr)
    }

    /// The procedures that other modules can name so, a linker's name without its version.
    pub fn exports(&self, name: &str) -> &[Export] {
        let of = |source: &'_ Source| Exports::of(&source.image);
        self.source.as_ref().map_or(&[], |source| source.exports.get_or_init(|| of(source)).named(name))
    }

    /// Where exceptions of the calls in `code` land, as far as the module says so without damage.
    pub fn landings(&self, code: Range<LinkAddr>) -> impl Iterator<Item = LinkAddr> {
        let pads = self.source.as_ref().map_or(&[][..], |source| &source.facts().landings);
        let first = pads.partition_point(|pad| pad.calls.start < code.start);
        pads.iter().skip(first).take_while(move |pad| pad.calls.start < code.end).map(|pad| pad.pad)
    }

    /// Whether `addr`, a look-up address, is in code that has no caller: a stack begins there.
    pub(crate) fn begins_stack(&self, addr: LinkAddr) -> bool {
        let found = self.source.as_ref().map_or(&[][..], |source| &source.facts().stack_starts);
        found.iter().any(|start| start.contains(&addr))
    }

    /// Whether code of the procedure linkage table lies there.
    pub fn is_in_linkage_table(&self, addr: LinkAddr) -> bool {
        let image = self.source.as_ref().map(|source| &source.image);
        image.is_some_and(|image| plt::sections(image).iter().any(|section| section.code.contains(&addr)))
    }

    /// Where named procedures begin, ascending.
    pub fn starts(&self) -> impl Iterator<Item = LinkAddr> {
        self.source.iter().flat_map(|source| source.procedures.starts())
    }

    /// The module's bytes at `addr`, as the file has them.
    pub fn bytes(&self, addr: LinkAddr, len_bytes: usize) -> Option<&[u8]> {
        self.source.as_ref()?.image.bytes_at(addr, len_bytes)
    }

    /// Where the code is that a frame's look-up address stands for: a signal's handler returns to the beginning of its restorer, and the
    /// byte before that is another procedure's.
    pub(crate) fn shown_at(&self, addr: LinkAddr) -> LinkAddr {
        let is_before = signal_return::begins_behind(addr, |at, len| self.bytes(at, len));
        LinkAddr(addr.0.wrapping_add(u64::from(is_before)))
    }

    /// Source lines, one for each address, in the order of `addrs`. `None` where the compiler recorded nothing. For a
    /// return address ask for the byte before.
    pub fn lines(&self, addrs: &[LinkAddr]) -> Vec<Option<SourceLine>> {
        match &self.source {
            Some(source) => source.lines.lines(addrs),
            None => vec![None; addrs.len()],
        }
    }

    /// Lines are known by Go's own table, and not by DWARF.
    pub(crate) fn has_lines_of_go(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.lines.are_of_go())
    }

    fn lacks_names(&self) -> bool {
        let is_kernels = self.module.starts_with('['); // The vdso has no file and no package.
        !is_kernels && self.source.as_ref().is_none_or(|source| !source.procedures.is_complete())
    }

    /// The file belongs to another build than the one that ran.
    fn replaced(&self) -> Option<(&ModuleIdentity, &ModuleIdentity)> {
        self.diagnostics.iter().find_map(|error| match error {
            ImageError::Replaced { expected, found, .. } => Some((expected, found)),
            _ => None,
        })
    }

    fn hint(&self, package: Option<&str>) -> String {
        let path = self.path.display();
        if let Some(said) = self.replacement() {
            return said;
        }
        match (package, &self.build_id, self.is_usable()) {
            (Some(package), _, _) => {
                format!("install {} to name the procedures of {path}", packages::debug_package(package))
            }
            (None, _, false) => format!("{path} can no longer be read: put it back to see its names"),
            (None, Some(build_id), true) => format!(
                "{path} is stripped: link it without -s, or get its debug file, with `debuginfod-find debuginfo {}` for example",
                hex(build_id)
            ),
            (None, None, true) => format!("{path} is stripped: link it without -s to see its names"),
        }
    }
}

/// What would name more of these modules, as sentences for a person: one for each package or file, in the order of
/// `modules`. Ask for those that the report shows unnamed procedures of: a library that exports all that it does is
/// stripped too.
pub fn missing_names_hints(modules: &[&ModuleNames]) -> Vec<String> {
    let nameless: Vec<&&ModuleNames> = modules.iter().filter(|module| module.lacks_names()).collect();
    let paths: Vec<&Path> = nameless.iter().map(|module| module.path()).collect();
    let owners = packages::owners(&paths, Path::new(packages::DPKG_LISTS));
    let mut hints: Vec<String> = Vec::new();
    let mut by_package: FxHashMap<String, usize> = FxHashMap::default();
    // A file may be mapped as several modules: it was written to in between, or was loaded in parts.
    let mut hinted: FxHashSet<&Path> = FxHashSet::default();
    for (module, owner) in nameless.iter().zip(owners) {
        if !hinted.insert(module.path()) {
            continue;
        }
        let package = owner.filter(|_| module.replaced().is_none());
        if let Some(hint) = package.as_ref().and_then(|package| hints.get_mut(*by_package.get(package)?)) {
            // The sentence ends with what the package names.
            *hint += &format!(" and {}", module.path.display());
            continue;
        }
        hints.push(module.hint(package.as_deref()));
        by_package.extend(package.map(|package| (package, hints.len() - 1)));
    }
    hints
}
