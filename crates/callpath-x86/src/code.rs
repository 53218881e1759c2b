//! A module's code, read once: its instructions, their references, and which calls return. It does not change after
//! that; both unwind recipes (`frames`) and control flow graphs (`graph`) are built from it.

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;

use crate::bitmap::Bitmap;
use crate::code_map::CodeMap;
use crate::decode::{Flow, Instructions};
use crate::input::CodeInput;
use crate::instruction::Instruction;
use crate::noreturn::NoReturn;
use crate::sweep::{Hints, Sweep};
use crate::tables::Data;

/// The result of reading a module's code.
pub(crate) struct ModuleCode<'a> {
    pub(crate) code_map: CodeMap<'a>,
    pub(crate) data: Data<'a>,
    pub(crate) sweep: Sweep,
    /// Where procedures are known to begin: symbols, and the entry point.
    pub(crate) sure_starts: Bitmap,
    /// Code whose recipes are known from elsewhere; it was not read.
    pub(crate) known: Bitmap,
    /// There is more code than can be read.
    pub(crate) is_cut: bool,
    no_return: NoReturn,
    /// Addresses of words that hold the addresses of procedures that never return, sorted.
    no_return_slots: Vec<u64>,
}

impl<'a> ModuleCode<'a> {
    /// Reads all code of `input` except what is known from elsewhere. `stretches`: where instructions begin, besides
    /// procedures' starts.
    pub(crate) fn read<'r>(
        input: &CodeInput<'a>,
        stretches: impl IntoIterator<Item = &'r Range<LinkAddr>>,
    ) -> ModuleCode<'a> {
        let (mut code_map, is_cut) = CodeMap::new(input.code);
        let mut known = Bitmap::new(code_map.len());
        for range in input.known.iter().flat_map(|range| code_map.positions(range)) {
            known.insert_range(range.start, range.end);
        }
        let mut sure_starts = Bitmap::new(code_map.len());
        for start in input.starts.iter().chain(&input.entry).filter_map(|start| code_map.position(start.0)) {
            sure_starts.insert(start);
        }
        let mut begins = sure_starts.clone();
        for range in stretches.into_iter().flat_map(|range| code_map.positions(range)) {
            begins.insert(range.start);
        }
        let mut no_return_slots: Vec<u64> = input.no_return_slots.iter().map(|slot| slot.0).collect();
        no_return_slots.sort_unstable();
        let data = Data::new(input);
        let (sweep, decoded) = Sweep::new(&Hints {
            code_map: &code_map,
            known: &known,
            begins: &begins,
            no_return_slots: &no_return_slots,
            data: &data,
        });
        code_map.decoded = Arc::new(decoded);
        let no_return = NoReturn::new(&sweep.events, code_map.len(), &[]);
        ModuleCode { code_map, data, sweep, sure_starts, known, is_cut, no_return, no_return_slots }
    }

    /// Takes into account that procedures may return from handlers of exceptions: `(from, to, pad)` of calls with a
    /// landing pad, sorted. Recipes do without: where there are handlers, call frame information says more.
    pub(crate) fn return_from_handlers(&mut self, landing_pads: &[(u32, u32, u32)]) {
        if !landing_pads.is_empty() {
            self.no_return = NoReturn::new(&self.sweep.events, self.code_map.len(), landing_pads);
        }
    }

    /// Whether a call of the code at `target` may return.
    pub(crate) fn returns(&self, target: u32) -> bool {
        !self.no_return.is(&self.sweep.events, target)
    }

    /// Whether the instruction, which ends at address `next`, calls or jumps to a procedure of another module that
    /// never returns.
    pub(crate) fn is_through_no_return_slot(&self, instruction: &Instruction, next: u64) -> bool {
        instruction.beside_code(next).is_some_and(|slot| self.no_return_slots.binary_search(&slot).is_ok())
    }

    /// Where control goes after the last instruction read. A call through a word of this module that the loader fills
    /// is a call of the address that the loader writes.
    #[inline(always)]
    pub(crate) fn flow_after(&self, instructions: &Instructions<'_>, instruction: &Instruction) -> Flow {
        match instructions.flow_of(instruction, &self.code_map) {
            Flow::CallIndirect => match self.data.slot_target(instruction, instructions.next_address(), &self.code_map)
            {
                Some(target) => Flow::Call(target),
                None => Flow::CallIndirect,
            },
            flow => flow,
        }
    }

    /// The instruction at a position. `None`: there is none.
    pub(crate) fn instruction_at(&self, at: u32) -> Option<Instruction> {
        Instructions::new(&self.code_map, at)?.read()
    }

    /// The first position from `at` on that is not padding, or `end`.
    pub(crate) fn padding_end(&self, at: u32, end: u32) -> u32 {
        self.padding_end_by(&mut None, at, end)
    }

    /// As `padding_end`, with the caller's reader: making a reader takes longer than reading most padding.
    pub(crate) fn padding_end_by(&self, reader: &mut Option<Instructions<'a>>, at: u32, end: u32) -> u32 {
        if !reader.as_mut().is_some_and(|reader| reader.seek(at)) {
            *reader = Instructions::new(&self.code_map, at);
        }
        let Some(instructions) = reader else { return at.min(end) };
        loop {
            let at = instructions.position();
            if at >= end || !instructions.read().is_some_and(|instruction| instruction.is_padding()) {
                return at.min(end);
            }
        }
    }
}

/// A word in data that is an address of code, or a number or text that looks so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordOfCode {
    /// The code's position.
    pub(crate) to: u32,
    /// Neither the word before it nor the one behind it is such an address: it is in no table.
    pub(crate) is_alone: bool,
}

/// The words in data that are addresses of code, in modules that are not relocated.
pub(crate) fn words_of_code(input: &CodeInput<'_>, code_map: &CodeMap<'_>) -> Vec<WordOfCode> {
    let mut found: Vec<WordOfCode> = Vec::new();
    for (start, bytes) in input.data.iter().filter(|(start, _)| code_map.position(start.0).is_none()) {
        let skipped = start.0.wrapping_neg() as usize % 8;
        let mut is_behind_another = false;
        for word in bytes.get(skipped..).unwrap_or(&[]).chunks_exact(8) {
            let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let to = code_map.position(word);
            if let (true, Some(before), Some(_)) = (is_behind_another, found.last_mut(), to) {
                before.is_alone = false;
            }
            found.extend(to.map(|to| WordOfCode { to, is_alone: !is_behind_another }));
            is_behind_another = to.is_some();
        }
    }
    found
}
