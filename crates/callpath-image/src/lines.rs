//! Source lines of many link-time addresses at once, from DWARF's line number programs, or else from Go's own table.
//!
//! Addresses come sorted by unit, and a unit's line program runs once past all of its addresses without keeping its
//! rows: what is not asked for costs nothing, and 20,000 addresses cost little more than one. addr2line's context is
//! not used because it gives up a whole file for one broken unit, cannot say which one, and keeps all rows.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use gimli::{DebugInfoOffset, LineRow};

use crate::dwarf::{DwarfSections, Reader, is_named};
use crate::elf::Image;
use crate::error::ImageError;
use crate::go_table::GoTable;
use crate::units::Units;

/// More diagnostics than this tell nothing new.
const DIAGNOSTICS_LIMIT: usize = 20;

/// A location in the source.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceLine {
    /// The compilation directory, the directory and the file's name, joined as the compiler wrote them.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
}

/// The line information of one image.
pub struct Lines {
    image: Arc<Image>,
    supplement: Option<Arc<Image>>,
    loaded: OnceCell<Loaded>,
    diagnostics: RefCell<Vec<ImageError>>,
}

/// What costs something to get: the sections' bytes, decompressed, and which unit holds which addresses.
struct Loaded {
    sections: DwarfSections,
    units: Units,
}

impl Lines {
    /// `image` holds the DWARF sections; `supplement` is what its `.gnu_debugaltlink` names. Nothing is read yet.
    pub fn new(image: Arc<Image>, supplement: Option<Arc<Image>>) -> Lines {
        Lines { image, supplement, loaded: OnceCell::new(), diagnostics: RefCell::default() }
    }

    /// The image has line information.
    pub fn has_lines(&self) -> bool {
        self.has_dwarf() || GoTable::of(&self.image).is_some()
    }

    /// They are those of Go's own table.
    pub fn are_of_go(&self) -> bool {
        !self.has_dwarf() && GoTable::of(&self.image).is_some()
    }

    fn has_dwarf(&self) -> bool {
        let mut headers = self.image.section_headers().iter();
        headers.any(|header| is_named(&header.name, ".debug_line") && header.has_bytes())
    }

    /// What was found broken so far.
    pub fn diagnostics(&self) -> Vec<String> {
        self.diagnostics.borrow().iter().map(|error| format!("failed to {error}")).collect()
    }

    /// The source line of each address, in the order of `addrs`, which is free. `None` where nothing is known, or
    /// where the compiler says that the code has no line. Of a return address ask for the byte before.
    pub fn lines(&self, addrs: &[LinkAddr]) -> Vec<Option<SourceLine>> {
        let mut found = vec![None; addrs.len()];
        if addrs.is_empty() {
            return found;
        }
        if !self.has_dwarf() {
            if let Some(table) = GoTable::of(&self.image) {
                let mut files: HashMap<&str, Arc<str>> = HashMap::new();
                for (addr, slot) in addrs.iter().zip(&mut found) {
                    let Some((file, line)) = table.line(*addr) else { continue };
                    let file = files.entry(file).or_insert_with(|| file.into()).clone();
                    *slot = Some(SourceLine { file, line });
                }
            }
            return found;
        }
        let loaded = self.loaded.get_or_init(|| self.load());
        let dwarf = loaded.sections.dwarf();
        let mut wanted: Vec<Wanted> =
            addrs.iter().enumerate().map(|(index, addr)| Wanted { addr: addr.0, index, line: None }).collect();
        wanted.sort_unstable_by_key(|wanted| (wanted.addr, wanted.index));

        let mut by_unit: HashMap<DebugInfoOffset, Vec<Wanted>> = HashMap::new();
        for wanted in wanted {
            if let Some(unit) = loaded.units.unit_at(wanted.addr) {
                by_unit.entry(unit).or_default().push(wanted);
            }
        }
        for (unit, mut wanted) in by_unit {
            if let Err(why) = lines_of_unit(&dwarf, unit, &mut wanted) {
                self.diagnose(ImageError::Malformed {
                    path: self.image.origin().to_path_buf(),
                    what: "the lines of the unit in .debug_info",
                    offset: unit.0 as u64,
                    why,
                });
            }
            for wanted in wanted {
                if let Some(slot) = found.get_mut(wanted.index) {
                    *slot = wanted.line;
                }
            }
        }
        found
    }

    fn load(&self) -> Loaded {
        let sections = DwarfSections::load(Arc::clone(&self.image), self.supplement.clone());
        let origin = self.image.origin();
        let (units, diagnostics) = Units::index(&sections, origin);
        sections.diagnostics(origin).into_iter().chain(diagnostics).for_each(|error| self.diagnose(error));
        Loaded { sections, units }
    }

    fn diagnose(&self, error: ImageError) {
        let mut diagnostics = self.diagnostics.borrow_mut();
        if diagnostics.len() < DIAGNOSTICS_LIMIT {
            diagnostics.push(error);
        }
    }
}

/// An address whose line is looked for.
struct Wanted {
    addr: u64,
    /// Its place among the addresses that were asked for.
    index: usize,
    line: Option<SourceLine>,
}

/// Runs the line program of a unit past all addresses in `wanted`, which ascend. What was found before an error stays.
fn lines_of_unit(
    dwarf: &gimli::Dwarf<Reader<'_>>,
    offset: DebugInfoOffset,
    wanted: &mut [Wanted],
) -> Result<(), String> {
    let broken = |error: gimli::Error| error.to_string();
    let header = dwarf.debug_info.header_from_offset(offset).map_err(broken)?;
    let unit = dwarf.unit(header).map_err(broken)?;
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let mut names = FileNames { dwarf, unit: &unit, names: HashMap::new() };
    let mut rows = program.rows();
    let mut previous: Option<Row> = None;
    // The first of `wanted` that is not below the current row.
    let mut next = 0;
    while let Some((header, row)) = rows.next_row().map_err(broken)? {
        let current = Row::of(row);
        let Some(before) = previous.filter(|before| before.addr <= current.addr) else {
            // A new sequence begins; or an old one goes back, which no compiler writes.
            next = wanted.partition_point(|wanted| wanted.addr < current.addr);
            previous = (!row.end_sequence()).then_some(current);
            continue;
        };
        let held = wanted.get_mut(next..).unwrap_or_default().iter_mut();
        for wanted in held.take_while(|wanted| wanted.addr < current.addr) {
            next += 1;
            // Sequences of code that the linker dropped begin at 0, where an ELF header lies, never code.
            if wanted.line.is_none() && before.line != 0 && before.sequence_start != 0 {
                let file = names.get(header, before.file)?;
                wanted.line = file.map(|file| SourceLine { file, line: before.line });
            }
        }
        previous = (!row.end_sequence()).then_some(Row { sequence_start: before.sequence_start, ..current });
    }
    Ok(())
}

/// What is needed of a row of the line table.
#[derive(Clone, Copy)]
struct Row {
    addr: u64,
    file: u64,
    /// 0: the compiler names no line.
    line: u32,
    sequence_start: u64,
}

impl Row {
    fn of(row: &LineRow) -> Row {
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
        Row { addr: row.address(), file: row.file_index(), line, sequence_start: row.address() }
    }
}

/// Paths of a unit's files, made when first asked for.
struct FileNames<'a, 'u> {
    dwarf: &'a gimli::Dwarf<Reader<'u>>,
    unit: &'a gimli::Unit<Reader<'u>>,
    names: HashMap<u64, Option<Arc<str>>>,
}

impl<'u> FileNames<'_, 'u> {
    fn get(&mut self, header: &gimli::LineProgramHeader<Reader<'u>>, index: u64) -> Result<Option<Arc<str>>, String> {
        if let Some(name) = self.names.get(&index) {
            return Ok(name.clone());
        }
        let name = file_path(self.dwarf, self.unit, header, index)?.map(Arc::from);
        self.names.insert(index, name.clone());
        Ok(name)
    }
}

/// The path of a line program's file, as the compiler wrote its parts. A broken table
/// leads to text that is no path: an error.
pub(crate) fn file_path<'u>(
    dwarf: &gimli::Dwarf<Reader<'u>>,
    unit: &gimli::Unit<Reader<'u>>,
    header: &gimli::LineProgramHeader<Reader<'u>>,
    index: u64,
) -> Result<Option<String>, String> {
    let Some(file) = header.file(index) else { return Ok(None) };
    let text = |value| {
        let text = dwarf.attr_string(unit, value).map_err(|error| format!("file {index}: {error}"))?.to_string_lossy();
        match text.contains(char::is_control) {
            true => Err(format!("file {index} is called {text:?}")),
            false => Ok(text),
        }
    };
    let mut path = match &unit.comp_dir {
        Some(dir) => dir.to_string_lossy().into_owned(),
        None => String::new(),
    };
    // Directory 0 is the compilation directory; from DWARF 5 on it is in the table too.
    if let Some(dir) = file.directory(header).filter(|_| file.directory_index() != 0) {
        push(&mut path, &text(dir)?);
    }
    let name = text(file.path_name())?;
    if name.is_empty() {
        return Err(format!("file {index} has an empty name"));
    }
    push(&mut path, &name);
    Ok(Some(path))
}

fn push(path: &mut String, more: &str) {
    if more.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(more);
}
