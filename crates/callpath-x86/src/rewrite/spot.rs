//! What is known of a place where code is inserted, and the registers that it may use there.

use callpath_format::address::LinkAddr;

use super::assembler::{Assembler, Target};
use super::frame::Height;
use super::plan::{Cell, Plan, Rax};
use super::refusal::{Reason, Refusal};
use crate::encode::{self, Encoded, Register, Word};
use crate::liveness::LiveSet;

/// Registers that inserted code may use, likeliest to be free first: no recipe finds a caller by them.
pub(super) const SCRATCH: [Register; 8] = [0, 1, 2, 6, 7, 8, 9, 11];
pub(super) const RAX: u8 = 0;
pub(super) const RSP: u8 = 4;
/// The bytes below rsp that a procedure may use without lowering it (psABI, section 3.2.2).
pub(super) const RED_ZONE_BYTES: u8 = 128;

/// What is known of a place.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// The instruction that it leads to.
    pub(super) at: LinkAddr,
    /// What is read later.
    pub(super) live: LiveSet,
    /// How the activation's words are found.
    pub(super) frame: Option<Height>,
    /// Where the procedure is entered or left: it has no values below rsp (psABI), and rsp is what a routine that is
    /// called expects.
    pub(super) is_boundary: bool,
}

impl Spot {
    /// Writes an instruction with a cell as its operand.
    pub(super) fn put(
        self,
        out: &mut Assembler,
        cell: Cell,
        instruction: impl FnOnce(Word) -> Encoded,
    ) -> Result<(), Refusal> {
        match cell {
            Cell::OfThread(distance) => out.bytes(&instruction(Word::OfThread(distance)).bytes),
            Cell::OfActivation(offset) => {
                let frame = self.frame.ok_or(Refusal { at: self.at, reason: Reason::FrameUnknown })?;
                out.bytes(&instruction(Word::OfFrame(frame.register, frame.distance_of(offset))).bytes);
            }
            Cell::Shared(address) => {
                let Encoded { bytes, displacement_at } = instruction(Word::BesideCode);
                out.with_displacement(&bytes, displacement_at.unwrap_or(0), Target::Fixed(address.0));
            }
        }
        Ok(())
    }
}

/// A register that inserted code uses.
pub(super) struct Scratch {
    pub(super) register: Register,
    /// Where its value waits, if it is live.
    pub(super) waits: Option<Cell>,
}

impl Scratch {
    /// One of these registers; if none is free, the first one: then rax waits in the first cell for it, another in the
    /// second.
    pub(super) fn take(out: &mut Assembler, plan: &Plan, spot: Spot, of: &[Register]) -> Result<Scratch, Refusal> {
        let none = Refusal { at: spot.at, reason: Reason::NoFreeRegister };
        let is_free =
            |register: Register| spot.live.general() >> register & 1 == 0 && Some(register) != plan.register();
        let free = of.iter().find(|&&register| is_free(register));
        if let Some(&register) = free {
            return Ok(Scratch { register, waits: None });
        }
        let register = *of.first().ok_or(none)?;
        let [for_rax, for_other] = plan.spills();
        let cell = if register == RAX { for_rax } else { for_other }.ok_or(none)?;
        spot.put(out, cell, |word| encode::store(register, word))?;
        if register == RAX {
            out.set_rax(Rax::InCell);
        }
        Ok(Scratch { register, waits: Some(cell) })
    }

    pub(super) fn give_back(self, out: &mut Assembler, spot: Spot) -> Result<(), Refusal> {
        if let Some(cell) = self.waits {
            spot.put(out, cell, |word| encode::load(self.register, word))?;
            if self.register == RAX {
                out.set_rax(Rax::InPlace);
            }
        }
        Ok(())
    }
}
