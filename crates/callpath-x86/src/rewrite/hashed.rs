//! How a copy counts a path for which there is no word (`callpath_format::shared::hashed`).

use super::assembler::Assembler;
use super::inserted::Spot;
use super::plan::{Cell, PathNumber, Plan};
use super::pushing::{Flags, Pushing, WORD_BYTES};
use super::refusal::{Reason, Refusal};

/// Writes a call of the routine that counts.
pub(super) fn write(out: &mut Assembler, plan: &Plan, path: PathNumber, spot: Spot) -> Result<(), Refusal> {
    let refused = Refusal { at: spot.at, reason: Reason::FrameUnknown };
    let hashed = plan.hashed().ok_or(refused)?;
    let node = plan.context_word();
    if plan.contexts().is_some() && node.is_none() {
        return Err(refused);
    }
    let register = plan.register().filter(|_| path.index == Some(Cell::OfActivation(0)));
    let flags = Flags::take(out, plan, spot)?;
    flags.keep(out);
    Pushing::beyond_red_zone(out, spot, |code| {
        code.push_or_0(node)?;
        code.push_constant(u64::from(hashed.procedure) << 32 | u64::from(path.constant as u32));
        match register {
            Some(register) => code.push_register(register),
            None => code.push_or_0(path.index)?,
        }
        code.push(Cell::OfThread(hashed.lane_word))?;
        code.call(hashed.routine);
        code.move_rsp(4 * WORD_BYTES as i32);
        Ok(())
    })?;
    flags.put_back(out);
    flags.give_back(out, spot)
}
