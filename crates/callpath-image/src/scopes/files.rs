//! Files of line programs' tables, and all text that a unit's scopes need, kept once.

use std::collections::HashMap;

use gimli::{Dwarf, IncompleteLineProgram};

use super::root::UnitRoot;
use super::unit::{NONE, Text};
use crate::dwarf::{Home, Reader};
use crate::lines::file_path;

/// The names and paths of one unit.
pub(super) struct Texts<'a> {
    pub(super) text: String,
    pub(super) files: Vec<Text>,
    /// Where names were read from, by address and length.
    known: HashMap<(*const u8, usize), Text>,
    by_path: HashMap<String, u32>,
    /// By the number of the table and the index in it.
    by_index: HashMap<(usize, u64), u32>,
    /// Line programs, by the unit they belong to, in the order in which they were needed.
    programs: HashMap<(Home, usize), usize>,
    tables: Vec<Option<IncompleteLineProgram<Reader<'a>>>>,
    /// How many bytes of text may still be kept.
    left: usize,
}

impl<'a> Texts<'a> {
    pub(super) fn new(limit: usize) -> Texts<'a> {
        Texts {
            text: String::new(),
            files: Vec::new(),
            known: HashMap::new(),
            by_path: HashMap::new(),
            by_index: HashMap::new(),
            programs: HashMap::new(),
            tables: Vec::new(),
            left: limit.min(u32::MAX as usize / 2),
        }
    }

    /// No more text is taken: hostile tables could name one long string again and again.
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Keeps a name.
    pub(super) fn keep(&mut self, name: Reader<'a>) -> Text {
        let key = (name.slice().as_ptr(), name.slice().len());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let text = self.append(&name.to_string_lossy());
        self.known.insert(key, text);
        text
    }

    fn append(&mut self, text: &str) -> Text {
        if text.len() > self.left {
            self.left = 0;
            return Text::default();
        }
        self.left -= text.len();
        let start = self.text.len() as u32;
        self.text.push_str(text);
        Text { start, len: text.len() as u32 }
    }

    /// The line program of a unit, parsed once; an error the first time if it is broken.
    pub(super) fn program(
        &mut self,
        dwarf: &Dwarf<Reader<'a>>,
        root: &UnitRoot<'a>,
    ) -> Result<Option<IncompleteLineProgram<Reader<'a>>>, gimli::Error> {
        let table = self.table(dwarf, root)?;
        Ok(self.tables.get(table).cloned().flatten())
    }

    /// The number of a file that an entry or the line program of `root`'s unit names, [`NONE`] if there is none.
    pub(super) fn file(&mut self, dwarf: &Dwarf<Reader<'a>>, root: &UnitRoot<'a>, index: u64) -> Result<u32, String> {
        let table = self.table(dwarf, root).map_err(|error| error.to_string())?;
        if let Some(known) = self.by_index.get(&(table, index)) {
            return Ok(*known);
        }
        let Some(Some(program)) = self.tables.get(table) else { return Ok(NONE) };
        let path = file_path(dwarf, &root.unit, program.header(), index);
        let file = path.map(|path| path.map_or(NONE, |path| self.path(path)));
        // One that cannot be found is reported once.
        self.by_index.insert((table, index), *file.as_ref().unwrap_or(&NONE));
        file
    }

    fn path(&mut self, path: String) -> u32 {
        if let Some(known) = self.by_path.get(&path) {
            return *known;
        }
        let text = self.append(&path);
        if text.len == 0 {
            return NONE;
        }
        let file = self.files.len() as u32;
        self.files.push(text);
        self.by_path.insert(path, file);
        file
    }

    fn table(&mut self, dwarf: &Dwarf<Reader<'a>>, root: &UnitRoot<'a>) -> Result<usize, gimli::Error> {
        if let Some(known) = self.programs.get(&(root.home, root.start)) {
            return Ok(*known);
        }
        let unit = &root.unit;
        let parse = |offset| {
            let (comp_dir, name) = (unit.comp_dir, unit.name);
            dwarf.debug_line.program(offset, unit.header.address_size(), comp_dir, name)
        };
        let program = root.line_offset.map(parse).transpose();
        // A broken one is reported once; after that the unit has none.
        self.programs.insert((root.home, root.start), self.tables.len());
        match program {
            Ok(program) => {
                self.tables.push(program);
                Ok(self.tables.len() - 1)
            }
            Err(error) => {
                self.tables.push(None);
                Err(error)
            }
        }
    }
}
