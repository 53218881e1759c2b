//! Which functions of modules a person means: by name, glob, module, source file or address.
//!
//! Symbols decide where they can. DWARF is read for a source file, for what tells functions of one name apart, for the
//! exact names of Rust's, and for the calls that the compiler inlined: of the units in question only, but for the last.

mod address;
mod closest;
mod matching;
mod pattern;
mod select;
mod source;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use callpath_format::address::LinkAddr;
use callpath_image::code_symbols::{CodeSymbol, CodeSymbols};
use callpath_image::debug_file::DebugFiles;
use callpath_image::demangle::{self, demangle};
use callpath_image::elf::Image;
use callpath_image::error::ImageError;
use callpath_image::lines::SourceLine;
use callpath_image::loading::is_part;
use callpath_image::scopes::Scopes;
use callpath_image::symbols::Procedures;
use rustc_hash::FxHashMap;

pub use closest::{closest, unknown};
pub use pattern::{Pattern, PatternError};
pub use source::{Inlined, InlinedAt};

/// A function that was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its first instruction.
    pub entry: LinkAddr,
    /// Its length in bytes, that of its first part.
    pub size_bytes: u64,
    /// As reports show it: demangled; `module+0x1234` where it has no name.
    pub name: String,
    /// The linker's name, without its version; empty where it has none.
    pub raw_name: String,
    /// Where it is declared, by DWARF: known where a pattern has a file, where several functions of the module have
    /// this name, and of Rust's.
    pub place: Option<SourceLine>,
    /// The source file of its unit, without its directory, where symbols say it: of local ones.
    pub unit_file: Option<String>,
    /// Other modules can name it.
    pub is_exported: bool,
    /// What tells it apart where others of the module have its name: `file.c:12`, a version, the linker's name or
    /// `+0x1234`, its address.
    pub distinguishing: Option<String>,
    /// The first pattern that names it, by its index.
    pub pattern: usize,
}

/// A function whose code is only called to choose at load time which one its name stands for (`STT_GNU_IFUNC`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ifunc {
    /// The code that chooses.
    pub resolver: Function,
    /// Those between which it chooses, as far as their names say so: symbols name few in a stripped library.
    pub implementations: Vec<Function>,
}

/// An address that was given, where no procedure begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotEntry {
    /// The pattern, by its index.
    pub pattern: usize,
    /// The address.
    pub address: LinkAddr,
    /// The procedure in which it lies, as reports show it; `None` where it lies in no code, or between procedures.
    pub within: Option<String>,
    /// Where that begins: what was meant, perhaps. `None` also of a stub of the linkage table.
    pub entry: Option<LinkAddr>,
}

/// What patterns name in a module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Each function once, by ascending entry.
    pub chosen: Vec<Function>,
    /// Functions that are named but choose others: not among `chosen`. By ascending entry.
    pub ifuncs: Vec<Ifunc>,
    /// Addresses where no procedure begins.
    pub not_entries: Vec<NotEntry>,
    /// The patterns that name nothing here, by index, also those that are for other modules. What is inlined everywhere
    /// has no code of its own: see [`Functions::inlined`].
    pub unmatched: Vec<usize>,
}

/// The functions of one module.
pub struct Functions {
    path: PathBuf,
    /// The file's name.
    module: String,
    image: Arc<Image>,
    with_dwarf: Arc<Image>,
    supplement: Option<Arc<Image>>,
    diagnostics: Vec<ImageError>,
    procedures: Procedures,
    symbols: CodeSymbols,
    /// By ascending entry.
    listed: Vec<Listed>,
    /// `f.cold`: ranges of code, by ascending start.
    parts: Vec<Range<LinkAddr>>,
    /// Read when first asked for.
    scopes: OnceLock<Option<Scopes>>,
    /// What was found wrong with units of DWARF.
    odd: Mutex<BTreeSet<String>>,
    /// For each name that several have, those.
    namesakes: OnceLock<FxHashMap<String, Vec<usize>>>,
}

/// A function with a name.
struct Listed {
    entry: LinkAddr,
    size_bytes: u64,
    raw_name: String,
    /// Demangled.
    name: String,
    /// Only DWARF knows all of its name: of Rust, mangled by the older rules.
    is_inexact: bool,
    chooses: bool,
    is_exported: bool,
}

impl Functions {
    /// Reads the symbols of the module at `path`, and of its debug file below `debug_roots` (`/usr/lib/debug`, mostly).
    pub fn read(path: &Path, debug_roots: &[PathBuf]) -> Result<Functions, ImageError> {
        Ok(Functions::of(&Arc::new(Image::read(path)?), path, debug_roots))
    }

    /// The same for an image that was read already. `path` is what the module is called.
    pub fn of(image: &Arc<Image>, path: &Path, debug_roots: &[PathBuf]) -> Functions {
        let DebugFiles { debug_file, supplement, diagnostics } = DebugFiles::find(image, debug_roots);
        let procedures = Procedures::new(Arc::clone(image), debug_file.as_ref());
        let symbols = CodeSymbols::of(image, debug_file.as_ref());
        let mut listed = Vec::new();
        let mut parts = Vec::new();
        for procedure in procedures.named() {
            let aliases = symbols.at(procedure.start);
            // Of a stub of the linkage table there is no symbol.
            let Some(raw_name) = procedure.name.filter(|_| !aliases.is_empty()) else { continue };
            if is_part(raw_name) {
                parts.push(procedure.start..LinkAddr(procedure.start.0.saturating_add(procedure.len)));
                continue;
            }
            listed.push(Listed {
                entry: procedure.start,
                size_bytes: procedure.len,
                raw_name: raw_name.to_owned(),
                name: demangle(raw_name).into_owned(),
                is_inexact: !raw_name.starts_with("_R") && demangle::identity(raw_name) != 0,
                chooses: aliases.iter().any(|symbol| symbol.chooses),
                is_exported: aliases.iter().any(|symbol| symbol.is_exported),
            });
        }
        let module = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Functions {
            path: path.to_path_buf(),
            module,
            image: Arc::clone(image),
            with_dwarf: debug_file.map_or_else(|| Arc::clone(image), Arc::new),
            supplement: supplement.map(Arc::new),
            diagnostics,
            procedures,
            symbols,
            listed,
            parts,
            scopes: OnceLock::new(),
            odd: Mutex::default(),
            namesakes: OnceLock::new(),
        }
    }

    /// What the module is called.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why names or DWARF are missing, as far as they were read; none is fatal.
    pub fn diagnostics(&self) -> BTreeSet<String> {
        let of_dwarf = self.scopes.get().and_then(Option::as_ref).map_or(&[][..], Scopes::diagnostics);
        let errors = self.diagnostics.iter().chain(of_dwarf).map(|error| format!("failed to {error}"));
        errors.chain(self.odd.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned()).collect()
    }

    /// Only the names that other modules need are left: most procedures are named by their address alone.
    pub fn is_stripped(&self) -> bool {
        !self.symbols.is_complete()
    }

    /// There is DWARF, or Go's own table: without them, source files are those of symbols and inlined calls are not known.
    pub fn has_scopes(&self) -> bool {
        self.scopes().is_some()
    }

    /// The names of all functions, as reports show them but for what only DWARF says of Rust's.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.listed.iter().map(|listed| &*listed.name)
    }

    /// The text that names the procedure at `entry`, whatever its name is: `module+0x1234`.
    pub fn address_text(&self, entry: LinkAddr) -> String {
        format!("{}+{entry:#x}", self.module)
    }

    fn scopes(&self) -> Option<&Scopes> {
        self.scopes.get_or_init(|| self.new_scopes()).as_ref()
    }

    fn new_scopes(&self) -> Option<Scopes> {
        Scopes::find(Arc::clone(&self.with_dwarf), self.supplement.clone(), Some(self.image.origin()))
    }

    fn symbols_of(&self, listed: &Listed) -> &[CodeSymbol] {
        self.symbols.at(listed.entry)
    }

    fn unit_file_of(&self, listed: &Listed) -> Option<&str> {
        self.symbols_of(listed).iter().find_map(|symbol| symbol.file.as_deref())
    }

    /// All functions with this one's name, by index; itself alone where there are no others.
    fn namesakes(&self, name: &str) -> &[usize] {
        let find = || {
            let mut by_name: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
            for (index, listed) in self.listed.iter().enumerate() {
                by_name.entry(&listed.name).or_default().push(index);
            }
            let several = by_name.into_iter().filter(|(_, all)| all.len() > 1);
            several.map(|(name, all)| (name.to_owned(), all)).collect()
        };
        self.namesakes.get_or_init(find).get(name).map_or(&[], Vec::as_slice)
    }
}
