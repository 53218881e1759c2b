//! Code whose frame no flow can tell, because it is entered in a way of its own: by its bytes.

use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;

use crate::instruction::{Instruction, Operation, Register};
use crate::state::{RSP, State};
use crate::value::Value;

/// The code that a signal handler returns to, as the System V ABI and Linux have it: `mov rax, 15; syscall`. Its length
/// in bytes, if `bytes` begin with it.
pub(crate) fn signal_return(bytes: &[u8]) -> Option<usize> {
    const FORMS: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];
    FORMS.iter().find(|form| bytes.starts_with(form)).map(|form| form.len())
}

/// Where `syscall` seems to stand, as offsets in `bytes`. Looks at many bytes at once.
pub(crate) fn system_calls(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    const STEP: usize = 64;
    let is_at = |offset: usize| bytes.get(offset..offset + 2) == Some(&[0x0f, 0x05][..]);
    let is_in = move |from: usize| {
        let first = bytes.get(from..from + STEP).unwrap_or(&[]);
        let second = bytes.get(from + 1..from + 1 + STEP).unwrap_or(&[]);
        // The last bytes are looked at one by one.
        let is_short = first.len() != second.len() || first.is_empty();
        is_short || first.iter().zip(second).fold(false, |found, (&a, &b)| found | ((a == 0x0f) & (b == 0x05)))
    };
    let steps = (0..bytes.len()).step_by(STEP).filter(move |&from| is_in(from));
    steps.flat_map(|from| from..from + STEP).filter(move |&offset| is_at(offset))
}

/// The frame there: `struct ucontext` lies at rsp, with the registers of the interrupted code.
///
/// ```text
/// CFA = *(rsp + 160)    pc = *(rsp + 168)    reg = *(rsp + 40 + 8 n), in the order of `struct sigcontext`
/// ```
pub(crate) fn signal_frame() -> Recipe {
    // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, by DWARF number.
    const ORDER: [u16; 15] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2];
    let mut recipe = Recipe::with_cfa(Cfa::Deref { reg: Reg::RSP, disp: 160, add: 0 });
    recipe.signal_frame = true;
    recipe.return_address = Rule::AtRegister(Reg::RSP, 168);
    for (index, register) in (0..).zip(ORDER.into_iter().filter_map(Reg::from_dwarf)) {
        recipe.registers[register.index()] = Rule::AtRegister(Reg::RSP, 40 + 8 * index);
    }
    recipe
}

/// What a procedure did since it began or since the last event, as far as it matters to how it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Context {
    is_saved: bool,
    /// The last instructions: rsp was taken from somewhere, and popped from there.
    steps: u8,
    /// rsp was taken from memory.
    is_loaded: bool,
}

impl Context {
    /// Takes notice of an instruction that hands on to the next.
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

    /// A jump through a register here restores another procedure's context, and does not return: longjmp, which saves
    /// nothing, or the end of gcc's `__builtin_eh_return` (`mov rsp, rcx; pop rcx; jmp rcx`).
    pub(crate) fn is_left_by_jump(&self) -> bool {
        self.steps == 2 || (self.is_loaded && !self.is_saved)
    }
}

/// The state where `bytes` begin, if they are a stub of a procedure linkage table that others jump to.
///
/// ```text
/// push [rip + GOT[1]]; [bnd] jmp [rip + GOT[2]]      an index was pushed before
/// [endbr64]; push index; [bnd] jmp the stub above    entered like a procedure
/// ```
pub(crate) fn linkage_stub(bytes: &[u8]) -> Option<State> {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    if at(0) == 0xff && at(1) == 0x35 {
        let jump = if at(6) == 0xf2 { 7 } else { 6 };
        if at(jump) == 0xff && at(jump + 1) == 0x25 {
            let mut state = State::at_entry();
            state.set(RSP, Value::cfa(-16), 0);
            return Some(state);
        }
    }
    let push = if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
    let jump = push + if at(push + 5) == 0xf2 { 6 } else { 5 };
    (at(push) == 0x68 && at(jump) == 0xe9).then(State::at_entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_found_wherever_they_lie() {
        for len in [0, 1, 2, 63, 64, 65, 66, 128, 129, 200] {
            for at in 0..len {
                let mut bytes = vec![0x0f; len];
                bytes[at] = 0x05;
                // One byte in all is the second of a system call, if there is one before it.
                let expect: Vec<usize> = at.checked_sub(1).into_iter().collect();
                assert_eq!(system_calls(&bytes).collect::<Vec<_>>(), expect, "{at} of {len}");
            }
        }
    }
}
