//! What a module's file provides for profiling: names, debug information, and how much of its code can be unwound.

use std::ops::Range;
use std::path::{Path, PathBuf};

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Cfa;
use callpath_format::table::Table;
use callpath_image::debug_file::DebugFiles;
use callpath_image::debug_level::{DwarfLevel, SymbolLevel, glibc_release};
use callpath_image::elf::Image;
use callpath_image::error::ImageError;
use callpath_image::identity::hex;
use callpath_x86::padding::padding_len;

use crate::module::Module;
use crate::recipes::RecipeOptions;
use crate::table_cache::TableCache;

/// How many bytes of code have recipes, by source. Padding without a recipe does not count as code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeShares {
    /// From call frame information.
    pub frames_bytes: u64,
    /// From the machine code, where call frame information is silent.
    pub analysis_bytes: u64,
    /// Without a recipe.
    pub unknown_bytes: u64,
}

impl CodeShares {
    /// All code, bytes.
    pub fn total_bytes(&self) -> u64 {
        self.frames_bytes + self.analysis_bytes + self.unknown_bytes
    }
}

/// The facts about one module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleFacts {
    /// Its file's path.
    pub path: PathBuf,
    /// The linker's build-id, hexadecimal.
    pub build_id: Option<String>,
    /// The symbols in the file.
    pub symbols: SymbolLevel,
    /// The DWARF in the file.
    pub dwarf: DwarfLevel,
    /// The separate debug file that belongs to it, if there is one: its path, symbols and DWARF.
    pub debug_file: Option<(PathBuf, SymbolLevel, DwarfLevel)>,
    /// Oddities of the file or its debug files, as sentences.
    pub diagnostics: Vec<String>,
    /// How much of its code has recipes.
    pub code: CodeShares,
    /// Whether it contains a Go runtime.
    pub is_go: bool,
    /// The GNU C library's release, if it is that library.
    pub glibc: Option<String>,
}

impl ModuleFacts {
    /// Reads the module at `path` and its debug files below `debug_roots`. Its recipe tables are built, or taken from
    /// the cache.
    pub fn read(path: &Path, debug_roots: &[PathBuf], cache: &TableCache) -> Result<ModuleFacts, ImageError> {
        let module = Module::read(path)?;
        let image = module.image();
        let DebugFiles { debug_file, diagnostics, .. } = DebugFiles::find(image, debug_roots);
        let is_libc = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc"));
        Ok(ModuleFacts {
            path: path.to_owned(),
            build_id: image.build_id().map(hex),
            symbols: image.symbol_level(),
            dwarf: image.dwarf_level(),
            debug_file: debug_file.map(|file| (file.origin().to_owned(), file.symbol_level(), file.dwarf_level())),
            diagnostics: image.diagnostics().iter().chain(&diagnostics).map(ToString::to_string).collect(),
            code: shares(&module, cache),
            is_go: image.section(".go.buildinfo").is_some(),
            glibc: is_libc.then(|| glibc_release(image)).flatten(),
        })
    }

    /// Whether all its procedures have names, from its own symbols or its debug file's.
    pub fn has_all_names(&self) -> bool {
        let of_debug_file = self.debug_file.as_ref().is_some_and(|(_, symbols, _)| *symbols == SymbolLevel::Full);
        self.symbols == SymbolLevel::Full || of_debug_file
    }

    /// The higher of its own level of DWARF and its debug file's.
    pub fn best_dwarf(&self) -> DwarfLevel {
        self.debug_file.as_ref().map_or(self.dwarf, |(_, _, dwarf)| self.dwarf.max(*dwarf))
    }
}

fn shares(module: &Module, cache: &TableCache) -> CodeShares {
    let image = module.image();
    let frames_only = RecipeOptions { machine_code: false, ..RecipeOptions::default() };
    let by_frames = known(&cache.table_for(module, &frames_only).bytes);
    let by_all = known(&cache.table_for(module, &RecipeOptions::default()).bytes);
    let mut shares = CodeShares::default();
    for section in image.instruction_ranges() {
        let mut at = section.start.0;
        let spans = by_frames.iter().filter(|span| span.start < section.end.0 && section.start.0 < span.end);
        for span in spans {
            shares.silent(image, at..span.start, &by_all);
            shares.frames_bytes += span.end.min(section.end.0) - span.start.max(section.start.0);
            at = span.end;
        }
        shares.silent(image, at..section.end.0, &by_all);
    }
    shares
}

impl CodeShares {
    /// Adds code that call frame information does not cover.
    fn silent(&mut self, image: &Image, gap: Range<u64>, by_all: &[Range<u64>]) {
        if gap.start >= gap.end {
            return;
        }
        let len = usize::try_from(gap.end - gap.start).unwrap_or(usize::MAX);
        let padding = image.bytes_at(LinkAddr(gap.start), len).map_or(0, padding_len) as u64;
        let code = gap.start + padding..gap.end;
        let first = by_all.partition_point(|span| span.end <= code.start);
        let spans = by_all.get(first..).unwrap_or(&[]).iter().take_while(|span| span.start < code.end);
        let analysed: u64 = spans.map(|span| span.end.min(code.end) - span.start.max(code.start)).sum();
        self.analysis_bytes += analysed;
        self.unknown_bytes += code.end - code.start - analysed;
    }
}

/// The code that a table has a recipe for: sorted, disjoint.
fn known(table: &[u8]) -> Vec<Range<u64>> {
    let mut spans: Vec<Range<u64>> = Vec::new();
    let Ok(table) = Table::new(table) else { return spans };
    let mut open: Option<u64> = None;
    table.for_each_row(|start, id| {
        if let Some(from) = open.take().filter(|from| *from < start.0) {
            match spans.last_mut() {
                Some(last) if last.end == from => last.end = start.0,
                _ => spans.push(from..start.0),
            }
        }
        let recipe = id.and_then(|id| table.recipe(id));
        open = recipe.filter(|recipe| recipe.cfa != Cfa::Unknown).map(|_| start.0);
    });
    spans
}
