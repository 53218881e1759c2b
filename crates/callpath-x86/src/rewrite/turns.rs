//! Blocks that lead to themselves, several times in a row: each counts by a word of its own ([`Plan::count_in_turn`](super::Plan::count_in_turn)).
//!
//! ```text
//!           the block in its place
//!           branch to edge
//! end:      what follows
//!           ...
//! edge:     what is inserted there; the block; branch, if it is left, to end
//! again:    the first one of what counts in turn; the block; branch, if it is left, to end
//!           ...
//!           the last one of what counts in turn; the block; branch, if it is not left, to again
//!           jump to end
//! ```

use callpath_format::address::LinkAddr;

use super::assembler::{Assembler, Target};
use super::body::Step;
use super::copy::{self, Source};
use super::inserted;
use super::plan::{Operation, Place, TURNS};
use super::refusal::{Reason, Refusal};
use crate::encoding;
use crate::instruction::motion::{Motion, displaced_by};

/// Longer blocks take longer than it takes to store a word and load it.
const MOST_STEPS: usize = 24;
/// A condition with this bit changed is the opposite one.
const OPPOSITE: u8 = 1;

/// What is being written, and the origins of its code ([`copy::Copy`]).
type Written<'w> = (&'w mut Assembler, &'w mut Vec<(u32, LinkAddr)>);

/// A block that leads to itself.
pub(super) struct Turned<'s, 'a> {
    steps: &'s [Step<'a>],
    last: &'s Step<'a>,
    /// Of its branch.
    condition: u8,
    turns: &'s [Operation; TURNS],
}

/// The block that begins at an address, if it is one where something counts in turn.
pub(super) fn of<'s, 'a>(source: &Source<'s, '_, 'a>, start: LinkAddr) -> Option<Turned<'s, 'a>> {
    let turns = source.plan.turns(start)?;
    let (last, steps) = source.body.block_steps(start).split_last()?;
    let Motion::Branch(condition) = last.motion else { return None };
    let is_simple = |step: &Step<'_>| {
        matches!(step.motion, Motion::Verbatim | Motion::BesideCode(_)) && source.tables.read_by(step).is_none()
    };
    let is_unchanged = |step: &Step<'_>| source.plan.at(Place::Before(LinkAddr(step.at))).is_empty();
    let turns_back = last.jump_target() == Some(start.0) && steps.len() < MOST_STEPS;
    let is_it = turns_back && steps.iter().all(|step| is_simple(step) && is_unchanged(step)) && is_unchanged(last);
    is_it.then_some(Turned { steps, last, condition, turns })
}

impl Turned<'_, '_> {
    /// Writes what stands behind the operations of the edge. `end`: the label behind the block in its place.
    pub(super) fn write(
        &self,
        source: &Source<'_, '_, '_>,
        (out, origins): Written<'_>,
        end: usize,
    ) -> Result<(), Refusal> {
        let start = LinkAddr(self.steps.first().unwrap_or(self.last).at);
        let leave = encoding::branch(self.condition ^ OPPOSITE);
        self.write_steps(source, (out, origins))?;
        out.opcode_to(&leave, Target::Label(end));
        let again = out.label();
        out.set_label(again);
        let spot = source.spot(Place::Edge(start, start), start);
        for (number, operation) in self.turns.iter().enumerate() {
            origins.push((out.offset(), start));
            inserted::write(out, source.plan, std::slice::from_ref(operation), spot)?;
            self.write_steps(source, (out, origins))?;
            if number + 1 < TURNS {
                out.opcode_to(&leave, Target::Label(end));
            }
        }
        out.opcode_to(&encoding::branch(self.condition), Target::Label(again));
        origins.push((out.offset(), LinkAddr(self.last.end())));
        out.jump(Target::Label(end));
        Ok(())
    }

    /// All but the branch, which is to follow.
    fn write_steps(&self, source: &Source<'_, '_, '_>, (out, origins): Written<'_>) -> Result<(), Refusal> {
        let enlarged_by = source.plan.enlarged_by();
        for step in self.steps {
            origins.push((out.offset(), LinkAddr(step.at)));
            if enlarged_by > 0 && source.frame.above().binary_search(&step.at).is_ok() {
                let unknown = Refusal { at: LinkAddr(step.at), reason: Reason::FrameUnknown };
                out.bytes(&displaced_by(step.bytes, enlarged_by as i32).ok_or(unknown)?);
            } else {
                copy::write(out, step, Target::Copied(step.at));
            }
        }
        origins.push((out.offset(), LinkAddr(self.last.at)));
        Ok(())
    }
}
