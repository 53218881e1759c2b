//! How a copy measures what its paths take (`callpath_format::shared::times`).
//!
//! ```text
//! a path begins:   count down in the lane; was it 0?  apart: the routine says what the path weighs; keep that, and when it began
//! before a call:   is a path measured?                apart: keep how long it has taken
//! behind it:       is a path measured?                apart: keep when it would have begun without the call
//! it ends:         is a path measured?                apart: the routine adds its time; keep that none is measured
//! ```

use super::assembler::Assembler;
use super::plan::{BEGAN, Cell, Operation, PathNumber, Plan, SECOND, Times, WEIGHT};
use super::pushing::{Flags, IS_OTHER, Pushing, WORD_BYTES, branch_apart};
use super::refusal::{Reason, Refusal};
use super::spot::{RAX, SCRATCH, Scratch, Spot};
use crate::encode::{self, Register};
use callpath_format::address::LinkAddr;

/// A condition as processors number them.
const IS_BELOW: u8 = 2;

/// Writes an operation on times.
pub(super) fn write(out: &mut Assembler, plan: &Plan, operation: Operation, spot: Spot) -> Result<(), Refusal> {
    let times = plan.times().ok_or(Refusal { at: spot.at, reason: Reason::FrameUnknown })?;
    match operation {
        Operation::BeginPath { is_fresh } => {
            if is_fresh {
                spot.put(out, BEGAN, |word| encode::set_word(word, 0))?;
            }
            begin(out, plan, times, spot)
        }
        Operation::EndPath(path) => {
            let node = plan.context_word();
            if_measured(out, plan, spot, move |code| end(code, times, path, node))
        }
        Operation::LeavePath => if_measured(out, plan, spot, move |code| turn(code, times, times.leave)),
        _ => if_measured(out, plan, spot, move |code| turn(code, times, times.resume)),
    }
}

/// Counts down; where the path is to be measured, that begins.
fn begin(out: &mut Assembler, plan: &Plan, times: Times, spot: Spot) -> Result<(), Refusal> {
    let too_far = Refusal { at: spot.at, reason: Reason::TooFar };
    let displacement = i32::try_from(u64::from(times.word) * u64::from(WORD_BYTES)).map_err(|_| too_far)?;
    let flags = Flags::take(out, plan, spot)?;
    let free: Vec<Register> =
        SCRATCH.into_iter().filter(|register| *register != RAX || flags.waits_in.is_none()).collect();
    let base = Scratch::take(out, plan, spot, &free)?;
    let rax_waits = flags.has_rax_wait() || base.register == RAX && base.waits.is_some();
    spot.put(out, Cell::OfThread(times.lane_word), |word| encode::load(base.register, word))?;
    flags.keep(out);
    out.bytes(&encode::count_down_in_table(base.register, displacement));
    let back = out.label();
    branch_apart(out, IS_BELOW, (spot, rax_waits, back), move |code| begin_path(code, times));
    out.set_label(back);
    flags.put_back(out);
    base.give_back(out, spot)?;
    flags.give_back(out, spot)
}

/// What is executed if a path is measured.
fn if_measured(
    out: &mut Assembler,
    plan: &Plan,
    spot: Spot,
    write: impl FnOnce(&mut Pushing<'_>) -> Result<(), Refusal> + 'static,
) -> Result<(), Refusal> {
    let flags = Flags::take(out, plan, spot)?;
    flags.keep(out);
    spot.put(out, BEGAN, encode::compare_with_zero)?;
    let back = out.label();
    branch_apart(out, IS_OTHER, (spot, flags.has_rax_wait(), back), write);
    out.set_label(back);
    flags.put_back(out);
    flags.give_back(out, spot)
}

/// The routine says when the path began, and what it weighs.
fn begin_path(code: &mut Pushing<'_>, times: Times) -> Result<(), Refusal> {
    code.push_constant(u64::from(times.number) << 32 | u64::from(times.word));
    if times.is_general {
        code.push_constant(0);
    }
    code.push(Cell::OfThread(times.lane_word))?;
    code.call(times.begin);
    code.pop(BEGAN)?;
    if times.is_general {
        code.pop(SECOND)?;
    }
    code.pop(WEIGHT)
}

/// What was kept becomes what the routine makes of it.
fn turn(code: &mut Pushing<'_>, times: Times, routine: LinkAddr) -> Result<(), Refusal> {
    if times.is_general {
        code.push(Cell::OfThread(times.lane_word))?;
        code.push(SECOND)?;
    }
    code.push(BEGAN)?;
    code.call(routine);
    code.pop(BEGAN)?;
    if times.is_general {
        code.pop(SECOND)?;
        code.move_rsp(WORD_BYTES as i32);
    }
    Ok(())
}

/// The routine adds the time of a path, also in the context whose `node` a word holds.
fn end(code: &mut Pushing<'_>, times: Times, path: PathNumber, node: Option<Cell>) -> Result<(), Refusal> {
    code.push_or_0(node)?;
    code.push_constant(u64::from(times.number) << 32 | u64::from(path.constant as u32));
    code.push_or_0(path.index)?;
    code.push(Cell::OfThread(times.lane_word))?;
    code.push(WEIGHT)?;
    if times.is_general {
        code.push(SECOND)?;
    }
    code.push(BEGAN)?;
    code.call(times.end);
    code.move_rsp((if times.is_general { 7 } else { 6 }) * WORD_BYTES as i32);
    code.put(BEGAN, |word| encode::set_word(word, 0))
}
