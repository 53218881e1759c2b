//! Inserted code that pushes what a routine takes, and keeps the flags where they are read later.

use callpath_format::address::LinkAddr;

use super::assembler::{Assembler, Target};
use super::plan::{Cell, Plan, Rax};
use super::refusal::Refusal;
use super::spot::{RAX, RED_ZONE_BYTES, RSP, Scratch, Spot};
use crate::encode::{self, Encoded, Register, Word};
use crate::encoding;

/// A condition as processors number them.
pub(super) const IS_OTHER: u8 = 5;
pub(super) const WORD_BYTES: u32 = 8;

/// Flags of arithmetic that are read later, which what is inserted changes.
pub(super) struct Flags {
    /// rax, which they wait in. `None`: they are not read.
    pub(super) waits_in: Option<Scratch>,
}

impl Flags {
    pub(super) fn take(out: &mut Assembler, plan: &Plan, spot: Spot) -> Result<Flags, Refusal> {
        let is_kept = spot.live.has_flags();
        Ok(Flags { waits_in: is_kept.then(|| Scratch::take(out, plan, spot, &[RAX])).transpose()? })
    }

    /// Whether the value of rax is not there.
    pub(super) fn has_rax_wait(&self) -> bool {
        self.waits_in.as_ref().is_some_and(|rax| rax.waits.is_some())
    }

    pub(super) fn keep(&self, out: &mut Assembler) {
        if self.waits_in.is_some() {
            out.bytes(&encode::FLAGS_TO_AX);
        }
    }

    pub(super) fn put_back(&self, out: &mut Assembler) {
        if self.waits_in.is_some() {
            out.bytes(&encode::FLAGS_FROM_AX);
        }
    }

    pub(super) fn give_back(self, out: &mut Assembler, spot: Spot) -> Result<(), Refusal> {
        self.waits_in.map_or(Ok(()), |rax| rax.give_back(out, spot))
    }
}

/// Writes a branch to code that is written apart, and goes on at the label `back`. `rax_waits`: the value of rax is in its cell.
pub(super) fn branch_apart(
    out: &mut Assembler,
    condition: u8,
    (spot, rax_waits, back): (Spot, bool, usize),
    write: impl FnOnce(&mut Pushing<'_>) -> Result<(), Refusal> + 'static,
) {
    let label = out.apart(
        spot.at,
        Box::new(move |out| {
            if rax_waits {
                out.set_rax(Rax::InCell);
            }
            Pushing::beyond_red_zone(out, spot, write)?;
            out.jump(Target::Label(back));
            if rax_waits {
                out.set_rax(Rax::InPlace);
            }
            Ok(())
        }),
    );
    out.opcode_to(&encoding::branch(condition), Target::Label(label));
}

/// Code that pushes: values of the frame are found from wherever rsp is.
pub(super) struct Pushing<'o> {
    out: &'o mut Assembler,
    spot: Spot,
    /// By how many bytes rsp is lower than the program has it.
    lowered: u32,
}

impl Pushing<'_> {
    /// Code that may push: the red zone is the program's.
    pub(super) fn beyond_red_zone(
        out: &mut Assembler,
        spot: Spot,
        write: impl FnOnce(&mut Pushing<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let zone_bytes = if spot.is_boundary { 0 } else { u32::from(RED_ZONE_BYTES) };
        let mut code = Pushing { out, spot, lowered: 0 };
        code.move_rsp(-(zone_bytes as i32));
        write(&mut code)?;
        code.move_rsp(zone_bytes as i32);
        Ok(())
    }

    /// Leaves the flags.
    pub(super) fn move_rsp(&mut self, bytes: i32) {
        if bytes != 0 {
            self.out.bytes(&encode::add_without_flags(RSP, bytes));
            self.set_lowered(self.lowered.saturating_add_signed(-bytes));
        }
    }

    fn set_lowered(&mut self, bytes: u32) {
        self.lowered = bytes;
        self.out.set_lowered(bytes);
    }

    pub(super) fn push_constant(&mut self, value: u64) {
        self.out.push_word(value);
        self.set_lowered(self.lowered + WORD_BYTES);
    }

    pub(super) fn push(&mut self, cell: Cell) -> Result<(), Refusal> {
        self.put(cell, encode::push)?;
        self.set_lowered(self.lowered + WORD_BYTES);
        Ok(())
    }

    /// Pushes a word, or 0 if there is none.
    pub(super) fn push_or_0(&mut self, cell: Option<Cell>) -> Result<(), Refusal> {
        match cell {
            Some(cell) => self.push(cell)?,
            None => self.push_constant(0),
        }
        Ok(())
    }

    pub(super) fn push_register(&mut self, register: Register) {
        self.out.bytes(&encode::push_register(register));
        self.set_lowered(self.lowered + WORD_BYTES);
    }

    pub(super) fn pop(&mut self, cell: Cell) -> Result<(), Refusal> {
        let before = self.lowered;
        // Its address is counted from what rsp is afterwards.
        self.lowered = before.saturating_sub(WORD_BYTES);
        self.put(cell, encode::pop_to)?;
        self.set_lowered(self.lowered);
        Ok(())
    }

    pub(super) fn put(&mut self, cell: Cell, instruction: impl FnOnce(Word) -> Encoded) -> Result<(), Refusal> {
        let lowered = self.lowered as i32;
        let instruction = |word| match word {
            Word::OfFrame(RSP, distance) => instruction(Word::OfFrame(RSP, distance + lowered)),
            word => instruction(word),
        };
        self.spot.put(self.out, cell, instruction)
    }

    pub(super) fn call(&mut self, routine: LinkAddr) {
        self.out.opcode_to(&encode::CALL, Target::Fixed(routine.0));
    }
}
