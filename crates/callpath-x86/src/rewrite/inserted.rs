//! Writes inserted code with registers and flags that are free: those that liveness says are not read again. Where it
//! needs one and none is free, a register's value waits in the plan's spill cell, not on the stack: the red zone is the
//! program's. A call of a routine skips that zone.

use callpath_format::address::LinkAddr;

use super::assembler::{Assembler, Target};
use super::hashed;
use super::homes;
use super::of_context::OfContext;
use super::plan::{Cell, Operation, Plan, Rax};
use super::refusal::{Reason, Refusal};
use super::spot::{RAX, RED_ZONE_BYTES, RSP, SCRATCH, Scratch, Spot};
use super::times;
use crate::encode::{self, Register};
use crate::liveness::LiveSet;

/// Writes the operations at a place.
pub(super) fn write(out: &mut Assembler, plan: &Plan, operations: &[Operation], spot: Spot) -> Result<(), Refusal> {
    for operation in operations {
        match *operation {
            Operation::Add(Cell::OfActivation(0), constant) if plan.register().is_some() => {
                let register = plan.register().unwrap_or(RSP);
                out.bytes(&encode::add_without_flags(register, constant));
            }
            Operation::Set(Cell::OfActivation(0), constant) if plan.register().is_some() => {
                let register = plan.register().unwrap_or(RSP);
                out.bytes(&encode::set_register_short(register, constant));
            }
            Operation::Add(cell, constant) if !spot.live.has_flags() => {
                spot.put(out, cell, |word| encode::add_to_word(word, constant))?;
            }
            Operation::Add(cell, constant) => {
                let scratch = Scratch::take(out, plan, spot, &SCRATCH)?;
                spot.put(out, cell, |word| encode::load(scratch.register, word))?;
                out.bytes(&encode::add_without_flags(scratch.register, constant));
                spot.put(out, cell, |word| encode::store(scratch.register, word))?;
                scratch.give_back(out, spot)?;
            }
            Operation::Set(cell, constant) => spot.put(out, cell, |word| encode::set_word(word, constant))?,
            Operation::Count { table, index, offset } => count(out, plan, (table, index, offset), spot)?,
            Operation::CountInContext { index, offset } => count_in_context(out, plan, (index, offset), spot)?,
            Operation::Call(routine) => call(out, routine, spot, spot.live.has_flags())?,
            Operation::CallKeepingFlags(routine) => call(out, routine, spot, false)?,
            Operation::ToHome { register, homes } => {
                if spot.live.has_flags() {
                    return Err(Refusal { at: spot.at, reason: Reason::NoFreeRegister });
                }
                let others: Vec<Register> = SCRATCH.into_iter().filter(|&other| other != register).collect();
                let scratch = Scratch::take(out, plan, spot, &others)?;
                homes::look_up(out, register, scratch.register, homes);
                scratch.give_back(out, spot)?;
            }
            Operation::CountHashed(path, numbers) => hashed::write(out, plan, (path, numbers), spot)?,
            Operation::BeginPath { .. } | Operation::EndPath(_) | Operation::LeavePath | Operation::ResumePath => {
                times::write(out, plan, *operation, spot)?;
            }
            Operation::OverwriteDead => overwrite(out, spot.live),
        }
    }
    Ok(())
}

/// Calls a routine that changes nothing but the flags of arithmetic. If they are to be kept, they wait in ax, and rax, if
/// live, on the stack; but not where the routine looks at the stack.
fn call(out: &mut Assembler, routine: LinkAddr, spot: Spot, keeps_flags: bool) -> Result<(), Refusal> {
    const WORD_BYTES: u32 = 8;
    let keeps_rax = spot.live.general() >> RAX & 1 != 0;
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

/// Adds 1 to a word of a table. Flags that are kept wait in ax: the addition is one instruction, so that a signal's handler
/// that counts there, too, loses nothing.
fn count(
    out: &mut Assembler,
    plan: &Plan,
    (table, index, offset): (Cell, Option<Cell>, i32),
    spot: Spot,
) -> Result<(), Refusal> {
    const WORD_BYTES: i32 = 8;
    let too_far = Refusal { at: spot.at, reason: Reason::TooFar };
    let displacement = offset.checked_mul(WORD_BYTES).ok_or(too_far)?;
    let keeps_flags = spot.live.has_flags();
    let kept = plan.register().filter(|_| index == Some(Cell::OfActivation(0)));
    let base = Scratch::take(out, plan, spot, if keeps_flags { &[RAX] } else { &SCRATCH })?;
    let number = match (index, kept) {
        // It is not read any more.
        (Some(_), Some(register)) => Some(Scratch { register, waits: None }),
        (Some(_), None) => {
            let free: Vec<Register> = SCRATCH.into_iter().filter(|&register| register != base.register).collect();
            Some(Scratch::take(out, plan, spot, &free)?)
        }
        (None, _) => None,
    };
    spot.put(out, table, |word| encode::load(base.register, word))?;
    let register = number.as_ref().map(|number| number.register);
    if let (Some(cell), Some(register), None) = (index, register, kept) {
        spot.put(out, cell, |word| encode::load(register, word))?;
    }
    if keeps_flags {
        // The address needs a register of its own: the flags take rax.
        let (address, borrowed) = match number {
            Some(number) => (number.register, Some(number)),
            None => {
                let free: Vec<Register> = SCRATCH.into_iter().filter(|&register| register != base.register).collect();
                let scratch = Scratch::take(out, plan, spot, &free)?;
                (scratch.register, Some(scratch))
            }
        };
        out.bytes(&encode::address_in_table(address, base.register, register, displacement));
        out.bytes(&encode::FLAGS_TO_AX);
        out.bytes(&encode::count_in_table(address, None, 0));
        out.bytes(&encode::FLAGS_FROM_AX);
        borrowed.map_or(Ok(()), |scratch| scratch.give_back(out, spot))?;
    } else {
        out.bytes(&encode::count_in_table(base.register, register, displacement));
        number.map_or(Ok(()), |scratch| scratch.give_back(out, spot))?;
    }
    base.give_back(out, spot)
}

/// Adds 1 to a word of the activation's context.
fn count_in_context(
    out: &mut Assembler,
    plan: &Plan,
    (index, offset): (Option<Cell>, i32),
    spot: Spot,
) -> Result<(), Refusal> {
    const WORD_BYTES: i32 = 8;
    let refused = |reason| Refusal { at: spot.at, reason };
    let displacement = offset.checked_mul(WORD_BYTES).ok_or(refused(Reason::TooFar))?;
    let context = OfContext::of(plan).ok_or(refused(Reason::FrameUnknown))?;
    let keeps_flags = spot.live.has_flags();
    let number = Scratch::take(out, plan, spot, if keeps_flags { &[RAX] } else { &SCRATCH })?;
    let others: Vec<Register> = SCRATCH.into_iter().filter(|&register| register != number.register).collect();
    let other = Scratch::take(out, plan, spot, &others)?;
    context.load_first(out, number.register, spot)?;
    if let Some(index) = index {
        spot.put(out, index, |word| encode::load(other.register, word))?;
        out.bytes(&encode::add_register_without_flags(number.register, other.register));
    }
    context.load_words(out, other.register, spot)?;
    if keeps_flags {
        let [register, index] = [other.register, number.register];
        out.bytes(&encode::address_in_table(register, register, Some(index), displacement));
        out.bytes(&encode::FLAGS_TO_AX);
        out.bytes(&encode::count_in_table(register, None, 0));
        out.bytes(&encode::FLAGS_FROM_AX);
    } else {
        out.bytes(&encode::count_in_table(other.register, Some(number.register), displacement));
    }
    other.give_back(out, spot)?;
    number.give_back(out, spot)
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
