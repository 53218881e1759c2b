//! Code whose frame control flow cannot show, because it is entered or left in an unusual way: recognised by its bytes
//! or its instructions.

pub mod linkage_stub;
pub mod signal_return;

use crate::instruction::{Instruction, Operation, Register};

/// What a procedure did since its beginning or the last event, as far as it matters for its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Context {
    is_saved: bool,
    /// 1: the last instruction copied a register to rsp; 2: a pop followed that.
    steps: u8,
    /// rsp was loaded from memory.
    is_loaded: bool,
}

impl Context {
    /// Takes into account an instruction after which control continues.
    #[inline]
    pub(crate) fn note(&mut self, instruction: &Instruction) {
        let steps = match instruction.operation() {
            Operation::Push => {
                self.is_saved = true;
                0
            }
            Operation::Move if instruction.register(0) == Register::RSP => {
                let source = instruction.memory().map_or(instruction.register(1), |memory| memory.base);
                let is_own = matches!(source, Register::RSP | Register::RBP);
                self.is_loaded |= !is_own;
                u8::from(!is_own && !instruction.has_memory())
            }
            Operation::Move if instruction.register(1) == Register::RSP => {
                self.is_saved = true;
                0
            }
            Operation::Pop if self.steps == 1 => 2,
            _ => 0,
        };
        self.steps = steps;
    }

    /// Whether a jump through a register here restores another procedure's context, and does not return: longjmp, which
    /// saves nothing, or the end of gcc's `__builtin_eh_return` (`mov rsp, rcx; pop rcx; jmp rcx`).
    pub(crate) fn is_left_by_jump(&self) -> bool {
        self.steps == 2 || (self.is_loaded && !self.is_saved)
    }
}
