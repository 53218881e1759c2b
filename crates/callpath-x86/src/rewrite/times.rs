//! How a copy measures what its paths take (`callpath_format::shared::times`).
//!
//! ```text
//! a path begins:   count down in the lane; was it 0?  apart: the routine says what the path weighs; keep that, and when it began
//! before a call:   is a path measured?                apart: keep how long it has taken
//! behind it:       is a path measured?                apart: keep when it would have begun without the call
//! it ends:         is a path measured?                apart: the routine adds its time; keep that none is measured
//! ```

use super::assembler::{Assembler, Target};
use super::inserted::{RAX, RED_ZONE_BYTES, SCRATCH, Scratch, Spot};
use super::plan::{BEGAN, Cell, Operation, Plan, Rax, Times, WEIGHT};
use super::refusal::{Reason, Refusal};
use crate::encode::{self, Encoded, Register, Word};
use crate::encoding;
use callpath_format::address::LinkAddr;

const RSP: Register = 4;
const WORD_BYTES: u32 = 8;
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
        Operation::EndPath { index, constant } => {
            let node = plan.context_word();
            if_measured(out, plan, spot, move |apart| apart.end(times, (index, constant), node))
        }
        Operation::LeavePath => if_measured(out, plan, spot, move |apart| apart.turn(times.leave)),
        _ => if_measured(out, plan, spot, move |apart| apart.turn(times.resume)),
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
    branch_apart(out, IS_BELOW, (spot, rax_waits), move |apart| apart.begin(times));
    flags.put_back(out);
    base.give_back(out, spot)?;
    flags.give_back(out, spot)
}

/// What is executed if a path is measured.
fn if_measured(
    out: &mut Assembler,
    plan: &Plan,
    spot: Spot,
    write: impl FnOnce(&mut Apart<'_>) -> Result<(), Refusal> + 'static,
) -> Result<(), Refusal> {
    let flags = Flags::take(out, plan, spot)?;
    flags.keep(out);
    spot.put(out, BEGAN, encode::compare_with_zero)?;
    branch_apart(out, IS_OTHER, (spot, flags.has_rax_wait()), write);
    flags.put_back(out);
    flags.give_back(out, spot)
}

/// Flags of arithmetic that are read later, which what is inserted changes.
struct Flags {
    /// rax, which they wait in. `None`: they are not read.
    waits_in: Option<Scratch>,
}

impl Flags {
    fn take(out: &mut Assembler, plan: &Plan, spot: Spot) -> Result<Flags, Refusal> {
        let is_kept = spot.live.has_flags();
        Ok(Flags { waits_in: is_kept.then(|| Scratch::take(out, plan, spot, &[RAX])).transpose()? })
    }

    /// Whether the value of rax is not there.
    fn has_rax_wait(&self) -> bool {
        self.waits_in.as_ref().is_some_and(|rax| rax.waits.is_some())
    }

    fn keep(&self, out: &mut Assembler) {
        if self.waits_in.is_some() {
            out.bytes(&encode::FLAGS_TO_AX);
        }
    }

    fn put_back(&self, out: &mut Assembler) {
        if self.waits_in.is_some() {
            out.bytes(&encode::FLAGS_FROM_AX);
        }
    }

    fn give_back(self, out: &mut Assembler, spot: Spot) -> Result<(), Refusal> {
        self.waits_in.map_or(Ok(()), |rax| rax.give_back(out, spot))
    }
}

/// Writes a branch to code that is written apart, and comes back behind the branch.
fn branch_apart(
    out: &mut Assembler,
    condition: u8,
    (spot, rax_waits): (Spot, bool),
    write: impl FnOnce(&mut Apart<'_>) -> Result<(), Refusal> + 'static,
) {
    let back = out.label();
    let label = out.apart(
        spot.at,
        Box::new(move |out| {
            if rax_waits {
                out.set_rax(Rax::InCell);
            }
            let zone_bytes = if spot.is_boundary { 0 } else { u32::from(RED_ZONE_BYTES) };
            let mut apart = Apart { out, spot, lowered: 0 };
            apart.move_rsp(-(zone_bytes as i32));
            write(&mut apart)?;
            apart.move_rsp(zone_bytes as i32);
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

/// Code apart: values of the frame are found from wherever rsp is.
struct Apart<'o> {
    out: &'o mut Assembler,
    spot: Spot,
    /// By how many bytes rsp is lower than the program has it.
    lowered: u32,
}

impl Apart<'_> {
    /// The routine says when the path began, and what it weighs.
    fn begin(&mut self, times: Times) -> Result<(), Refusal> {
        self.push_constant(u64::from(times.number) << 32 | u64::from(times.word));
        self.push(Cell::OfThread(times.lane_word))?;
        self.call(times.begin);
        self.pop(BEGAN)?;
        self.pop(WEIGHT)
    }

    /// What was kept becomes what the routine makes of it.
    fn turn(&mut self, routine: LinkAddr) -> Result<(), Refusal> {
        self.push(BEGAN)?;
        self.call(routine);
        self.pop(BEGAN)
    }

    /// The routine adds the time of the path with this number, also in the context whose `node` a word holds.
    fn end(&mut self, times: Times, (index, constant): (Option<Cell>, i32), node: Option<Cell>) -> Result<(), Refusal> {
        match node {
            Some(node) => self.push(node)?,
            None => self.push_constant(0),
        }
        self.push_constant(u64::from(times.number) << 32 | u64::from(constant as u32));
        match index {
            Some(index) => self.push(index)?,
            None => self.push_constant(0),
        }
        self.push(Cell::OfThread(times.lane_word))?;
        self.push(WEIGHT)?;
        self.push(BEGAN)?;
        self.call(times.end);
        self.move_rsp(6 * WORD_BYTES as i32);
        self.put(BEGAN, |word| encode::set_word(word, 0))
    }

    /// Leaves the flags.
    fn move_rsp(&mut self, bytes: i32) {
        if bytes != 0 {
            self.out.bytes(&encode::add_without_flags(RSP, bytes));
            self.set_lowered(self.lowered.saturating_add_signed(-bytes));
        }
    }

    fn set_lowered(&mut self, bytes: u32) {
        self.lowered = bytes;
        self.out.set_lowered(bytes);
    }

    fn push_constant(&mut self, value: u64) {
        self.out.push_word(value);
        self.set_lowered(self.lowered + WORD_BYTES);
    }

    fn push(&mut self, cell: Cell) -> Result<(), Refusal> {
        self.put(cell, encode::push)?;
        self.set_lowered(self.lowered + WORD_BYTES);
        Ok(())
    }

    fn pop(&mut self, cell: Cell) -> Result<(), Refusal> {
        let before = self.lowered;
        // Its address is counted from what rsp is afterwards.
        self.lowered = before.saturating_sub(WORD_BYTES);
        self.put(cell, encode::pop_to)?;
        self.set_lowered(self.lowered);
        Ok(())
    }

    fn put(&mut self, cell: Cell, instruction: impl FnOnce(Word) -> Encoded) -> Result<(), Refusal> {
        let lowered = self.lowered as i32;
        let instruction = |word| match word {
            Word::OfFrame(RSP, distance) => instruction(Word::OfFrame(RSP, distance + lowered)),
            word => instruction(word),
        };
        self.spot.put(self.out, cell, instruction)
    }

    fn call(&mut self, routine: LinkAddr) {
        self.out.opcode_to(&encode::CALL, Target::Fixed(routine.0));
    }
}
