//! The modules of a snapshot stream: the tables by run-time address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use callpath_format::address::RunAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_format::recipe::{Expression, Packed, Recipe};
use callpath_format::table::{RecipeId, Table};
use callpath_image::elf::Image;
use callpath_unwind::{CodeMap, Located};

use super::{Answered, u32_at, u64_at};
use crate::module::Module;
use crate::recipes::{RecipeOptions, TableBuild};
use crate::table_cache::TableCache;

const PROT_EXEC: u32 = 4;
const MODULE_HEAD_LEN_BYTES: usize = 32;
const MAPPING_LEN_BYTES: usize = 32;
/// How many addresses' recipes are cached; a power of two.
const MEMORY_LEN: usize = 1 << 12;
/// The most remarks that are stored.
const MAX_REMARKS: usize = 100;

/// The tables of all modules that a stream names, each built once.
pub(super) struct Tables<'a> {
    cache: &'a TableCache,
    options: &'a RecipeOptions,
    by_path: HashMap<Vec<u8>, Option<Rc<TableBuild>>>,
    remarks: Vec<String>,
    opens_files: bool,
}

impl<'a> Tables<'a> {
    pub(super) fn new(cache: &'a TableCache, options: &'a RecipeOptions) -> Tables<'a> {
        let remarks = cache.trouble().map(ToString::to_string).into_iter().collect();
        Tables { cache, options, by_path: HashMap::new(), remarks, opens_files: true }
    }

    /// For fuzzing: no module has a file.
    pub(super) fn without_files(cache: &'a TableCache, options: &'a RecipeOptions) -> Tables<'a> {
        Tables { opens_files: false, ..Tables::new(cache, options) }
    }

    /// Reads the modules from a MODULES record's payload.
    pub(super) fn modules(&mut self, payload: &[u8]) -> Result<Modules, &'static str> {
        let short = "a list of modules is too short";
        let count = u32_at(payload, 0).ok_or(short)?;
        let mut at = 8usize;
        let mut modules = Vec::new();
        let mut mappings = Vec::new();
        for _ in 0..count {
            let head = payload.get(at..).and_then(|rest| rest.get(..MODULE_HEAD_LEN_BYTES)).ok_or(short)?;
            let number = |at| u64_at(head, at).ok_or(short);
            let (start, end, bias) = (number(0)?, number(8)?, number(16)?);
            let mapping_count = u32_at(head, 24).ok_or(short)?;
            let path_len = u32_at(head, 28).ok_or(short)? as usize;
            at += MODULE_HEAD_LEN_BYTES;
            let path = payload.get(at..).and_then(|rest| rest.get(..path_len)).ok_or(short)?;
            at = (at + path_len).next_multiple_of(8);
            let index = u16::try_from(modules.len()).ok().filter(|index| *index != ModuleIndex::NONE.0);
            let index = index.ok_or("a list of modules is too long")?;
            for _ in 0..mapping_count {
                let mapping = payload.get(at..).and_then(|rest| rest.get(..MAPPING_LEN_BYTES)).ok_or(short)?;
                let word = |at| u64_at(mapping, at).ok_or(short);
                let (start, end) = (word(0)?, word(8)?);
                if u32_at(mapping, 24).ok_or(short)? & PROT_EXEC != 0 && start < end {
                    mappings.push(Mapping { start, end, module: index });
                }
                at += MAPPING_LEN_BYTES;
            }
            modules.push(MappedModule { bias, table: self.table(path, end.saturating_sub(start)) });
        }
        mappings.sort_by_key(|mapping| (mapping.start, mapping.end));
        Ok(Modules { modules, mappings, memory: Vec::new() })
    }

    fn table(&mut self, path: &[u8], len_bytes: u64) -> Option<Rc<TableBuild>> {
        let entry = match self.by_path.entry(path.to_vec()) {
            Entry::Occupied(known) => return known.get().clone(),
            Entry::Vacant(entry) => entry,
        };
        let name = String::from_utf8_lossy(path);
        let image = if !self.opens_files {
            None
        } else if name == "[vdso]" {
            own_vdso(len_bytes)
        } else {
            match Image::read(Path::new(&*name)) {
                Ok(image) => Some(image),
                Err(error) => {
                    remark(&mut self.remarks, format!("no recipes for {name}: {error}"));
                    None
                }
            }
        };
        if image.is_none() && name == "[vdso]" {
            remark(&mut self.remarks, "no recipes for [vdso]: it is not this machine's".into());
        }
        let table = image.map(|image| {
            let build = self.cache.table_for(&Module::from(image), self.options);
            for diagnostic in &build.diagnostics {
                remark(&mut self.remarks, format!("{name}: {diagnostic}"));
            }
            Rc::new(build)
        });
        entry.insert(table).clone()
    }

    /// Adds the statistics of the tables.
    pub(super) fn summarise(self, answered: &mut Answered) {
        for table in self.by_path.values().flatten() {
            answered.tables += 1;
            answered.table_bytes += table.stats.table_bytes;
            answered.code_bytes += table.stats.code_bytes;
        }
        answered.remarks = self.remarks;
    }
}

fn remark(remarks: &mut Vec<String>, text: String) {
    match remarks.len() {
        ..MAX_REMARKS => remarks.push(text),
        MAX_REMARKS => remarks.push("... and more".into()),
        _ => {}
    }
}

/// The vdso of this process, if it is as long as that of the process in the stream: then they are most likely the same.
fn own_vdso(len_bytes: u64) -> Option<Image> {
    let maps = BufReader::new(File::open("/proc/self/maps").ok()?);
    let line = maps.lines().map_while(Result::ok).find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    if end.checked_sub(start)? != len_bytes {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len_bytes).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Image::from_bytes(bytes, Path::new("[vdso]")).ok()
}

#[derive(Clone, Debug)]
struct MappedModule {
    bias: u64,
    table: Option<Rc<TableBuild>>,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: u64,
    end: u64,
    module: u16,
}

/// The modules in memory, until the next MODULES record.
#[derive(Clone, Debug, Default)]
pub(super) struct Modules {
    modules: Vec<MappedModule>,
    /// Executable mappings, by address.
    mappings: Vec<Mapping>,
    /// Direct-mapped cache of look-ups by address. Empty until the first look-up.
    memory: Vec<(RunAddr, Located)>,
}

impl Modules {
    fn mapping(&self, addr: RunAddr) -> Option<&Mapping> {
        let next = self.mappings.partition_point(|mapping| mapping.start <= addr.0);
        self.mappings.get(next.checked_sub(1)?).filter(|mapping| addr.0 < mapping.end)
    }

    fn look_up(&self, addr: RunAddr) -> Located {
        let unknown = Located { key: FrameKey::outside(addr), recipe: UNKNOWN, table: 0 };
        let Some(mapping) = self.mapping(addr) else { return unknown };
        let Some(module) = self.modules.get(usize::from(mapping.module)) else { return unknown };
        let link = addr.to_link(module.bias);
        let key = FrameKey::in_module(ModuleIndex(mapping.module), link);
        let found = self.table_of(mapping.module).and_then(|table| {
            let id = table.find(link)?;
            Some((table.packed(id)?, id))
        });
        let (recipe, id) = found.unwrap_or((UNKNOWN, RecipeId(0)));
        Located { key, recipe, table: u64::from(id.0) << 16 | u64::from(mapping.module) }
    }

    fn table_of(&self, module: u16) -> Option<Table<'_>> {
        Table::new(&self.modules.get(usize::from(module))?.table.as_ref()?.bytes).ok()
    }

    /// The table and the recipe's id in it, for [`Located::table`].
    fn table_at(&self, located: &Located) -> Option<(Table<'_>, RecipeId)> {
        Some((self.table_of(located.table as u16)?, RecipeId((located.table >> 16) as u16)))
    }
}

const UNKNOWN: Packed = Packed { disp: 0, add: 0, head: Packed::UNKNOWN, slots: [0; 6] };

impl CodeMap for Modules {
    fn locate(&mut self, addr: RunAddr) -> Located {
        if self.memory.is_empty() {
            let nowhere = Located { key: FrameKey::outside(RunAddr(0)), recipe: UNKNOWN, table: 0 };
            self.memory.resize(MEMORY_LEN, (RunAddr(0), nowhere));
        }
        let slot = (addr.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % MEMORY_LEN;
        if let Some((at, located)) = self.memory.get(slot)
            && *at == addr
        {
            return *located;
        }
        let located = self.look_up(addr);
        if let Some(place) = self.memory.get_mut(slot) {
            *place = (addr, located);
        }
        located
    }

    fn open(&self, located: &Located) -> Option<Recipe> {
        let (table, id) = self.table_at(located)?;
        table.recipe(id)
    }

    fn expression(&self, located: &Located, expression: Expression) -> Option<&[u8]> {
        self.table_at(located)?.0.expression(expression)
    }
}
