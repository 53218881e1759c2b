//! A module as this process knows it: the contents of its file ([`ModuleFile`]), and the results of analyses. Each is
//! computed when it is first asked for, and then shared by recipes, graphs, names and links.
//!
//! Its owner decides how long it lives: a table's builder drops it with the table, a report retains the image and the
//! few facts that it still needs. Control flow is not part of it: [`crate::graphs::with_flow`] provides it for a
//! limited time.

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

/// The procedures named by its symbols, for analyses of code.
pub(crate) struct Symbols {
    /// Where procedures begin by `.symtab`, and by `.dynsym`: in the order of the tables.
    full: Vec<LinkAddr>,
    dynamic: Vec<LinkAddr>,
    /// Where parts of procedures begin (`f.cold`), where a frame exists already: by both tables.
    parts: Vec<LinkAddr>,
    /// Procedures without a caller, by name.
    named: Named,
    /// The same for the symbols that remain in a stripped module.
    named_dynamic: Named,
}

impl Module {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Module, ImageError> {
        Image::read(path).map(Module::from)
    }

    /// A module with this image.
    pub fn new(image: Arc<Image>) -> Module {
        Module { file: ModuleFile::new(image), symbols: OnceLock::new(), stack_starts: OnceLock::new() }
    }

    /// The parsed file.
    pub fn file(&self) -> &ModuleFile {
        &self.file
    }

    /// The file's bytes.
    pub fn image(&self) -> &Arc<Image> {
        self.file.image()
    }

    /// The code without a caller, from all that is known of the module: see [`starts`].
    pub fn stack_starts(&self) -> &[Range<LinkAddr>] {
        self.stack_starts
            .get_or_init(|| starts::find(self.image(), self.file.call_frames(), self.symbols().named(true)))
    }

    /// Drops the relocations, which take most memory once a structure is built.
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
        // They live as long as a table is built.
        [&mut full, &mut dynamic, &mut parts].into_iter().for_each(Vec::shrink_to_fit);
        let of = |is_wanted: fn(bool) -> bool| {
            let wanted = named.iter().filter(|(.., is_dynamic)| is_wanted(*is_dynamic));
            Named::new(wanted.map(|(code, part, _)| (code.clone(), *part)).collect())
        };
        Symbols { named: of(|_| true), named_dynamic: of(|is_dynamic| is_dynamic), full, dynamic, parts }
    }

    /// Where procedures begin: by `.dynsym`, and if `local` also by `.symtab`. Symbols count only if their type is that
    /// of a procedure; parts of procedures do not count. In no order, with duplicates.
    pub(crate) fn starts(&self, local: bool) -> impl Iterator<Item = LinkAddr> {
        self.full.iter().filter(move |_| local).chain(&self.dynamic).copied()
    }

    /// All starts without duplicates, ascending, and whether each is that of a part.
    pub(crate) fn starts_and_parts(&self) -> Vec<(LinkAddr, bool)> {
        let of_parts = self.parts.iter().map(|start| (*start, true));
        let mut starts: Vec<_> = self.starts(true).map(|start| (start, false)).chain(of_parts).collect();
        starts.sort_unstable();
        starts.dedup_by_key(|start| start.0);
        starts
    }

    /// The procedures without a caller, by name; `local` as with [`starts`](Symbols::starts).
    pub(crate) fn named(&self, local: bool) -> &Named {
        if local { &self.named } else { &self.named_dynamic }
    }
}
