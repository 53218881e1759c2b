//! A module as this process knows it: what its file says ([`ModuleFile`]), and what analyses find by that. Each is found when it is
//! first asked for, and then shared by recipes, graphs, names and links.
//!
//! It lives as long as it is asked: a table's builder drops it with the table, a report keeps the image and what few facts it still
//! needs. Control flow is no part of it: [`crate::graphs::with_flow`] gives it for as long as it is looked at.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::error::ImageError;
use callpath_image::loading::{each_procedure_symbol, is_part};
use callpath_image::module_file::ModuleFile;

use crate::recipes::starts::{self, Named};

/// A module.
pub struct Module {
    file: ModuleFile,
    symbols: OnceLock<Symbols>,
    stack_starts: OnceLock<Vec<Range<LinkAddr>>>,
}

/// What its symbols say of procedures, for analyses of code.
pub(crate) struct Symbols {
    /// Where procedures begin by `.symtab`, and by the dynamic linker's table: in the order of the tables.
    full: Vec<LinkAddr>,
    dynamic: Vec<LinkAddr>,
    /// Where parts of procedures begin (`f.cold`), in the midst of their frames: by both.
    parts: Vec<LinkAddr>,
    /// Those that nobody calls, by name.
    named: Named,
    /// The same of the symbols that are left in a stripped module.
    named_dynamic: Named,
}

impl Module {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Module, ImageError> {
        Image::read(path).map(Module::from)
    }

    /// Of an image that was read.
    pub fn new(image: Arc<Image>) -> Module {
        Module { file: ModuleFile::new(image), symbols: OnceLock::new(), stack_starts: OnceLock::new() }
    }

    /// What its file says.
    pub fn file(&self) -> &ModuleFile {
        &self.file
    }

    /// Its file's bytes.
    pub fn image(&self) -> &Arc<Image> {
        self.file.image()
    }

    /// The code that nobody calls, by all that is known of the module: see [`starts`].
    pub fn stack_starts(&self) -> &[Range<LinkAddr>] {
        self.stack_starts
            .get_or_init(|| starts::find(self.image(), self.file.call_frames(), self.symbols().named(true)))
    }

    /// Drops the relocations, which take most room where a structure was found before.
    pub fn release_relocations(&mut self) {
        self.file.release_relocations();
    }

    pub(crate) fn symbols(&self) -> &Symbols {
        self.symbols.get_or_init(|| Symbols::of(self.image()))
    }
}

impl From<Image> for Module {
    fn from(image: Image) -> Module {
        Module::new(Arc::new(image))
    }
}

impl Symbols {
    fn of(image: &Image) -> Symbols {
        let (mut full, mut dynamic, mut parts, mut named) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        each_procedure_symbol(image, |symbol| {
            let starts = match symbol.is_dynamic {
                _ if is_part(symbol.name) => &mut parts,
                true => &mut dynamic,
                false => &mut full,
            };
            starts.push(symbol.code.start);
            named.extend(starts::part_of(symbol.name).map(|part| (symbol.code, part, symbol.is_dynamic)));
        });
        // They stay for as long as a table is built.
        [&mut full, &mut dynamic, &mut parts].into_iter().for_each(Vec::shrink_to_fit);
        let of = |is_wanted: fn(bool) -> bool| {
            let wanted = named.iter().filter(|(.., is_dynamic)| is_wanted(*is_dynamic));
            Named::new(wanted.map(|(code, part, _)| (code.clone(), *part)).collect())
        };
        Symbols { named: of(|_| true), named_dynamic: of(|is_dynamic| is_dynamic), full, dynamic, parts }
    }

    /// Where procedures begin: as the dynamic linker's table says, and with `local` also `.symtab`. Labels count only if they are said to
    /// be procedures, parts of procedures do not. In no order, some twice.
    pub(crate) fn starts(&self, local: bool) -> impl Iterator<Item = LinkAddr> {
        self.full.iter().filter(move |_| local).chain(&self.dynamic).copied()
    }

    /// All starts, each once, ascending, and whether each is that of a part.
    pub(crate) fn starts_and_parts(&self) -> Vec<(LinkAddr, bool)> {
        let of_parts = self.parts.iter().map(|start| (*start, true));
        let mut starts: Vec<_> = self.starts(true).map(|start| (start, false)).chain(of_parts).collect();
        starts.sort_unstable();
        starts.dedup_by_key(|start| start.0);
        starts
    }

    /// The procedures that nobody calls, by name; `local` as with [`starts`](Symbols::starts).
    pub(crate) fn named(&self, local: bool) -> &Named {
        if local { &self.named } else { &self.named_dynamic }
    }
}
