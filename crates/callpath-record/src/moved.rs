//! Code that we have put into processes: copies of procedures, and the injected object. Where it lies, what it comes
//! from, and the blocks that are published about it. A fork's child has it at the same addresses.

use std::collections::BTreeMap;
use std::ops::Range;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::shared::load_map::{Mapping, Published};
use callpath_format::table::Table;
use callpath_tables::recipes::{Detour, Moved};
use callpath_target::{FileId, MapEntry, Maps};

use crate::publish::{Publisher, Region};

const PAGE_BYTES: u64 = 4096;

/// A module as it is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MappedModule {
    pub(crate) file: FileId,
    /// Where its code is mapped first.
    pub(crate) start: RunAddr,
    /// Run-time address minus link-time address.
    pub(crate) bias: u64,
}

/// One program that was executed, of those into which we put code at their beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ProgramNumber(pub(crate) u32);

/// All code that we have put into processes, each with a number.
#[derive(Default)]
pub(crate) struct AllMoved {
    all: BTreeMap<usize, MovedCode>,
    next: usize,
}

impl AllMoved {
    /// Adds some.
    pub(crate) fn push(&mut self, moved: MovedCode) {
        self.all.insert(self.next, moved);
        self.next += 1;
    }

    /// What a process has of it that runs this program.
    pub(crate) fn of<'a>(
        &'a self,
        maps: &'a Maps,
        program: Option<ProgramNumber>,
    ) -> impl Iterator<Item = (usize, &'a MovedCode)> {
        let is_its = move |moved: &MovedCode| moved.program.is_none() || moved.program == program;
        self.all
            .iter()
            .map(|(number, moved)| (*number, moved))
            .filter(move |(_, moved)| is_its(moved) && moved.is_in(maps))
    }

    /// By its number.
    pub(crate) fn get(&self, number: usize) -> Option<&MovedCode> {
        self.all.get(&number)
    }

    /// By its number.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut MovedCode> {
        self.all.get_mut(&number)
    }

    /// All of it.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut MovedCode> {
        self.all.values_mut()
    }

    /// Nobody runs a program any more: forgets what was put into it.
    pub(crate) fn forget(&mut self, program: ProgramNumber, publisher: &mut Publisher) {
        self.all.retain(|_, moved| {
            let is_its = moved.program == Some(program);
            let blocks = if is_its { std::mem::take(&mut moved.blocks) } else { Vec::new() };
            blocks.into_iter().for_each(|(_, block)| publisher.give_back(block));
            !is_its
        });
    }
}

/// Code in one stretch of memory.
pub(crate) struct MovedCode {
    /// What it comes from. `None`: it is our own, with a table of its own.
    pub(crate) from: Option<MappedModule>,
    bias: u64,
    facts: Moved,
    /// The first instructions of procedures whose springboards are not written any more.
    taken_out: Vec<LinkAddr>,
    /// The blocks, the last of which is in force, and the tables that each is made of.
    blocks: Vec<(Vec<u64>, Region)>,
    /// The only program that has it, if that is known.
    program: Option<ProgramNumber>,
}

impl MovedCode {
    /// Copies of a module's procedures.
    pub(crate) fn of_module(module: MappedModule, facts: Moved) -> MovedCode {
        MovedCode {
            bias: module.bias,
            from: Some(module),
            facts,
            taken_out: Vec::new(),
            blocks: Vec::new(),
            program: None,
        }
    }

    /// Code of our own that begins at `base` and has this table, which is published. Its addresses are offsets.
    pub(crate) fn ours(base: RunAddr, code: Range<LinkAddr>, table: u64, publisher: &mut Publisher) -> MovedCode {
        let facts = Moved::ours(code);
        let mut ours =
            MovedCode { from: None, bias: base.0, facts, taken_out: Vec::new(), blocks: Vec::new(), program: None };
        ours.block(vec![table], publisher);
        ours
    }

    /// The same, of one program alone.
    pub(crate) fn only_in(self, program: Option<ProgramNumber>) -> MovedCode {
        MovedCode { program, ..self }
    }

    /// Whether it is this program's; `None`: of every one.
    pub(crate) fn is_of(&self, program: Option<ProgramNumber>) -> bool {
        self.program == program
    }

    /// Where it lies.
    pub(crate) fn code(&self) -> Range<RunAddr> {
        self.run(&self.facts.code())
    }

    /// Run-time address minus the address in the facts.
    pub(crate) fn bias(&self) -> u64 {
        self.bias
    }

    fn run(&self, code: &Range<LinkAddr>) -> Range<RunAddr> {
        RunAddr(code.start.0.wrapping_add(self.bias))..RunAddr(code.end.0.wrapping_add(self.bias))
    }

    /// Whether a process has it.
    pub(crate) fn is_in(&self, maps: &Maps) -> bool {
        let code = self.code();
        let holds = |entry: &MapEntry| {
            entry.executable && entry.file.is_none() && entry.start < code.end && code.start < entry.end
        };
        let is_from = |module: &MappedModule| {
            maps.entries.iter().any(|entry| entry.start == module.start && entry.file == Some(module.file))
        };
        maps.entries.iter().any(holds) && self.from.as_ref().is_none_or(is_from)
    }

    /// The springboards of these procedures are not written any more.
    pub(crate) fn take_out(&mut self, procedures: &[LinkAddr]) {
        self.taken_out.extend(procedures);
    }

    /// Where springboards lie that are not where they are entered, by address.
    pub(crate) fn detours(&self) -> impl Iterator<Item = Range<RunAddr>> + '_ {
        let is_in = |detour: &&Detour| !self.taken_out.contains(&detour.procedure);
        self.facts.detours.iter().filter(is_in).map(|detour| self.run(&detour.code))
    }

    /// Where the block is published that is made of these tables. `None`: there is no room.
    pub(crate) fn block(&mut self, tables: Vec<u64>, publisher: &mut Publisher) -> Option<u64> {
        if let Some((_, block)) = self.blocks.last().filter(|(of, _)| *of == tables) {
            return Some(block.offset());
        }
        let published: Published<'_> = publisher.published();
        let read: Vec<Table<'_>> = tables.iter().filter_map(|table| published.table(*table)).collect();
        let bytes = self.facts.block(&read)?;
        let block = publisher.put(&bytes)?;
        // Samples may still read the one before.
        self.blocks.push((tables, block));
        Some(block.offset())
    }

    /// Where its block is published, whichever tables it is made of.
    pub(crate) fn last_block(&self) -> Option<u64> {
        self.blocks.last().map(|(_, block)| block.offset())
    }
}

/// A mapping without memory that holds moved code: what is left of it, in whole pages.
pub(crate) fn without<'m>(entry: &'m MapEntry, moved: &'m [Range<RunAddr>]) -> impl Iterator<Item = MapEntry> + 'm {
    let mut at = entry.start;
    let within = moved.iter().filter(|code| entry.file.is_none() && code.start < entry.end && entry.start < code.end);
    let taken = within.map(|code| {
        (RunAddr(code.start.0 / PAGE_BYTES * PAGE_BYTES), RunAddr(code.end.0.next_multiple_of(PAGE_BYTES)))
    });
    taken.chain([(entry.end, entry.end)]).filter_map(move |(start, end)| {
        let left = at..start.min(entry.end);
        at = at.max(end);
        (left.start < left.end).then(|| MapEntry { start: left.start, end: left.end, ..entry.clone() })
    })
}

/// Cuts a piece out of mappings (by address), with another table and flags.
pub(crate) fn cut(mappings: &mut Vec<Mapping>, piece: &Range<RunAddr>, (table, flags): (u64, u16)) {
    let index = mappings.partition_point(|mapping| mapping.end <= piece.start);
    let Some(around) = mappings.get(index).copied() else { return };
    if around.start > piece.start || around.end < piece.end {
        return;
    }
    let within = Mapping { start: piece.start, end: piece.end, table, flags: around.flags | flags, ..around };
    let parts = [Mapping { end: piece.start, ..around }, within, Mapping { start: piece.end, ..around }];
    mappings.splice(index..=index, parts.into_iter().filter(|part| part.start < part.end));
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_format::frame::ModuleIndex;

    #[test]
    fn what_is_cut_out_of_a_mapping_has_its_own_table() {
        let mapping = |start: u64, end: u64, table: u64, flags: u16| {
            let (start, end) = (RunAddr(start), RunAddr(end));
            Mapping { start, end, bias: 0x1000, table, module: ModuleIndex(2), told: 0, flags }
        };
        let mut mappings = vec![mapping(0x1000, 0x2000, 8, 1), mapping(0x3000, 0x4000, 8, 1)];
        let range = |start: u64, end: u64| RunAddr(start)..RunAddr(end);
        cut(&mut mappings, &range(0x3000, 0x3005), (16, 64));
        cut(&mut mappings, &range(0x3ffb, 0x4000), (24, 64));
        // Nothing is mapped there, or not all of it.
        cut(&mut mappings, &range(0x2000, 0x2005), (16, 64));
        cut(&mut mappings, &range(0x1ffe, 0x2003), (16, 64));
        let expected = [
            mapping(0x1000, 0x2000, 8, 1),
            mapping(0x3000, 0x3005, 16, 65),
            mapping(0x3005, 0x3ffb, 8, 1),
            mapping(0x3ffb, 0x4000, 24, 65),
        ];
        assert_eq!(mappings, expected);
    }
}
