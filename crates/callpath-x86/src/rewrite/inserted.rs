//! Writes inserted code with registers and flags that are free: those that liveness says are not read again. Where it
//! needs one and none is free, a register's value waits in the plan's spill cell, not on the stack: the red zone is the
//! program's. A call of a routine skips that zone.

use callpath_format::address::LinkAddr;

use super::assembler::{Assembler, Target};
use super::plan::{Cell, Operation, Plan, Rax};
use super::refusal::{Reason, Refusal};
use crate::encode::{self, Encoded, Register, Word};
use crate::liveness::LiveSet;

/// Registers that inserted code may use, likeliest to be free first: no recipe finds a caller by them.
const SCRATCH: [Register; 8] = [0, 1, 2, 6, 7, 8, 9, 11];
const RAX: u8 = 0;
const RSP: u8 = 4;
/// The bytes below rsp that a procedure may use without lowering it (psABI, section 3.2.2).
const RED_ZONE_BYTES: u8 = 128;

/// What is known of a place.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// The instruction that it leads to.
    pub(super) at: LinkAddr,
    /// What is read later.
    pub(super) live: LiveSet,
    /// Where the procedure is entered or left: it has no values below rsp (psABI), and rsp is what a routine that is
    /// called expects.
    pub(super) is_boundary: bool,
}

/// Writes the operations at a place.
pub(super) fn write(out: &mut Assembler, plan: &Plan, operations: &[Operation], spot: Spot) -> Result<(), Refusal> {
    let Spot { at, live, .. } = spot;
    for operation in operations {
        match *operation {
            Operation::Add(cell, constant) if !live.has_flags() => {
                put(out, encode::add_to_word(word(cell), constant), cell);
            }
            Operation::Add(cell, constant) => {
                let scratch = Scratch::take(out, plan, live).ok_or(Refusal { at, reason: Reason::NoFreeRegister })?;
                put(out, encode::load(scratch.register, word(cell)), cell);
                out.bytes(&encode::add_without_flags(scratch.register, constant));
                put(out, encode::store(scratch.register, word(cell)), cell);
                scratch.give_back(out);
            }
            Operation::Set(cell, constant) => put(out, encode::set_word(word(cell), constant), cell),
            Operation::Call(routine) => call(out, routine, spot)?,
            Operation::OverwriteDead => overwrite(out, live),
        }
    }
    Ok(())
}

/// Calls a routine that changes nothing but the flags of arithmetic. They wait in ax, if live, and rax on the stack; but
/// not where the routine looks at the stack.
fn call(out: &mut Assembler, routine: LinkAddr, spot: Spot) -> Result<(), Refusal> {
    const WORD_BYTES: u32 = 8;
    let (keeps_flags, keeps_rax) = (spot.live.has_flags(), spot.live.general() >> RAX & 1 != 0);
    if spot.is_boundary && keeps_flags && keeps_rax {
        return Err(Refusal { at: spot.at, reason: Reason::NoFreeRegister });
    }
    let has_red_zone = !spot.is_boundary;
    let zone_bytes = if has_red_zone { u32::from(RED_ZONE_BYTES) } else { 0 };
    if has_red_zone {
        out.bytes(&encode::add_without_flags(RSP, -i32::from(RED_ZONE_BYTES)));
        out.set_lowered(zone_bytes);
    }
    if keeps_flags && keeps_rax {
        out.bytes(&encode::PUSH_RAX);
        out.set_lowered(zone_bytes + WORD_BYTES);
        out.set_rax(Rax::OnStack);
    }
    if keeps_flags {
        out.bytes(&encode::FLAGS_TO_AX);
    }
    out.opcode_to(&encode::CALL, Target::Fixed(routine.0));
    if keeps_flags {
        out.bytes(&encode::FLAGS_FROM_AX);
    }
    if keeps_flags && keeps_rax {
        out.bytes(&encode::POP_RAX);
        out.set_lowered(zone_bytes);
        out.set_rax(Rax::InPlace);
    }
    if has_red_zone {
        out.bytes(&encode::add_without_flags(RSP, RED_ZONE_BYTES.into()));
        out.set_lowered(0);
    }
    Ok(())
}

fn word(cell: Cell) -> Word {
    match cell {
        Cell::OfThread(distance) => Word::OfThread(distance),
        Cell::Shared(_) => Word::BesideCode,
    }
}

fn put(out: &mut Assembler, encoded: Encoded, cell: Cell) {
    match (encoded.displacement_at, cell) {
        (Some(at), Cell::Shared(address)) => out.with_displacement(&encoded.bytes, at, Target::Fixed(address.0)),
        _ => out.bytes(&encoded.bytes),
    }
}

/// A register that inserted code uses.
struct Scratch {
    register: Register,
    /// Where its value waits, if it is live.
    waits: Option<Cell>,
}

impl Scratch {
    fn take(out: &mut Assembler, plan: &Plan, live: LiveSet) -> Option<Scratch> {
        let free = SCRATCH.into_iter().find(|&register| live.general() >> register & 1 == 0);
        if let Some(register) = free {
            return Some(Scratch { register, waits: None });
        }
        let (register, cell) = (RAX, plan.spill()?);
        put(out, encode::store(register, word(cell)), cell);
        out.set_rax(Rax::InCell);
        Some(Scratch { register, waits: Some(cell) })
    }

    fn give_back(self, out: &mut Assembler) {
        if let Some(cell) = self.waits {
            put(out, encode::load(self.register, word(cell)), cell);
            out.set_rax(Rax::InPlace);
        }
    }
}

fn overwrite(out: &mut Assembler, live: LiveSet) {
    /// No address, and odd.
    const VALUE: u64 = 0xdead_0000_beef_0001;
    for register in (0..16).filter(|&register| register != RSP && live.general() >> register & 1 == 0) {
        out.bytes(&encode::set_register(register, VALUE.wrapping_add(u64::from(register) << 32)));
    }
    for vector in (0..16).filter(|&vector| live.vectors() >> vector & 1 == 0) {
        out.bytes(&encode::fill_vector(vector));
    }
    if !live.has_flags() {
        out.bytes(&encode::change_flags(i32::MAX));
    }
}
