//! The sweep's events within one procedure.

use crate::graph::fragments::CodeFragment;
use crate::graph::module_flow::ModuleFlow;
use crate::instruction::{Control, Instruction, Operation};
use crate::sweep::{Event, EventKind};

/// An event of the sweep, as it applies to this procedure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at: u32,
    /// Where its instruction ends.
    pub(super) end: u32,
    pub(super) kind: StepKind,
    pub(super) target: u32,
    /// Control reaches it from here on, if no other event comes between; `NOWHERE` if it is not reached.
    pub(super) from: u32,
}

impl Step {
    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind, StepKind::Call | StepKind::NoReturn)
    }
}

/// The effect of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StepKind {
    Branch,
    Jump,
    /// A jump to an address in a register or memory.
    JumpIndirect,
    Return,
    /// It returns.
    Call,
    NoReturn,
    /// A jump that leaves the procedure, to a known target or not.
    Leave,
    Trap,
}

impl ModuleFlow<'_> {
    /// The kind of an event with this instruction in a fragment.
    pub(super) fn kind_of(&self, event: &Event, instruction: &Instruction, fragment: &CodeFragment) -> StepKind {
        let control = instruction.control();
        match event.kind {
            EventKind::Branch => StepKind::Branch,
            EventKind::Jump => StepKind::Jump,
            EventKind::Leave if control == Control::JumpIndirect => StepKind::JumpIndirect,
            EventKind::Leave => StepKind::Return,
            EventKind::Call | EventKind::Stop if instruction.operation() == Operation::Call => {
                let end = event.at + instruction.len();
                let stops = self.code.is_through_no_return_slot(instruction, self.code.code_map.address(end).0)
                    || !self.code.returns(event.target)
                    // The sweep takes padding after a call for a procedure's end, where it does not know one.
                    || (event.kind == EventKind::Stop && !fragment.is_given);
                if stops || self.is_padding_up_to(end, fragment.end) { StepKind::NoReturn } else { StepKind::Call }
            }
            EventKind::Call | EventKind::Stop => match control {
                Control::Jump => StepKind::Jump,
                Control::JumpIndirect => StepKind::Leave,
                _ => StepKind::Trap,
            },
        }
    }

    /// Whether only padding follows up to `end`.
    fn is_padding_up_to(&self, at: u32, end: u32) -> bool {
        self.code.padding_end(at, end) >= end
    }
}
