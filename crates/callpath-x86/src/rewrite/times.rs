//! How a copy measures what its paths take (`callpath_format::shared::times`).
//!
//! ```text
//! a path begins:   count down in the lane; was it 0?  apart: the routine says what the path weighs; keep that, and when it began
//! before a call:   is a path measured?                apart: keep how long it has taken
//! behind it:       is a path measured?                apart: keep when it would have begun without the call
//! it ends:         is a path measured?                apart: the routine adds its time; keep that none is measured
//! ```

use super::assembler::{Assembler, Target};
use super::inserted::{RAX, SCRATCH, Scratch, Spot};
use super::plan::{BEGAN, Cell, Operation, PathNumber, Plan, Rax, Times, WEIGHT};
use super::pushing::{Flags, Pushing, WORD_BYTES};
use super::refusal::{Reason, Refusal};
use crate::encode::{self, Register};
use crate::encoding;
use callpath_format::address::LinkAddr;

/// Conditions as processors number them.
const IS_BELOW: u8 = 2;
const IS_OTHER: u8 = 5;

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
        Operation::LeavePath => if_measured(out, plan, spot, move |code| turn(code, times.leave)),
        _ => if_measured(out, plan, spot, move |code| turn(code, times.resume)),
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
    branch_apart(out, IS_BELOW, (spot, rax_waits), move |code| begin_path(code, times));
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
    branch_apart(out, IS_OTHER, (spot, flags.has_rax_wait()), write);
    flags.put_back(out);
    flags.give_back(out, spot)
}

/// Writes a branch to code that is written apart, and comes back behind the branch.
fn branch_apart(
    out: &mut Assembler,
    condition: u8,
    (spot, rax_waits): (Spot, bool),
    write: impl FnOnce(&mut Pushing<'_>) -> Result<(), Refusal> + 'static,
) {
    let back = out.label();
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
    out.set_label(back);
}

/// The routine says when the path began, and what it weighs.
fn begin_path(code: &mut Pushing<'_>, times: Times) -> Result<(), Refusal> {
    code.push_constant(u64::from(times.number) << 32 | u64::from(times.word));
    code.push(Cell::OfThread(times.lane_word))?;
    code.call(times.begin);
    code.pop(BEGAN)?;
    code.pop(WEIGHT)
}

/// What was kept becomes what the routine makes of it.
fn turn(code: &mut Pushing<'_>, routine: LinkAddr) -> Result<(), Refusal> {
    code.push(BEGAN)?;
    code.call(routine);
    code.pop(BEGAN)
}

/// The routine adds the time of a path, also in the context whose `node` a word holds.
fn end(code: &mut Pushing<'_>, times: Times, path: PathNumber, node: Option<Cell>) -> Result<(), Refusal> {
    code.push_or_0(node)?;
    code.push_constant(u64::from(times.number) << 32 | u64::from(path.constant as u32));
    code.push_or_0(path.index)?;
    code.push(Cell::OfThread(times.lane_word))?;
    code.push(WEIGHT)?;
    code.push(BEGAN)?;
    code.call(times.end);
    code.move_rsp(6 * WORD_BYTES as i32);
    code.put(BEGAN, |word| encode::set_word(word, 0))
}
