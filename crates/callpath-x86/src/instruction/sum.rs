//! Registers that an instruction sets to the sum of a register and a constant: how rsp and rbp change.

use super::{Instruction, Operation, Register};

impl Instruction {
    /// The value of a register (all 64 bits) after the instruction, as the sum of a register before it and a constant,
    /// if it is one. For rsp and a call: as the called procedure receives it.
    pub(crate) fn sum(&self, register: Register) -> Option<(Register, i64)> {
        let constant = || self.immediate().map(|constant| constant as i64);
        let own = register.general64()?;
        let is_result = self.register(0) == register;
        match self.operation() {
            Operation::Add if is_result => Some((register, constant()?)),
            Operation::Subtract if is_result => Some((register, constant()?.wrapping_neg())),
            Operation::LoadAddress if is_result => {
                let memory = self.memory().filter(|memory| memory.is_only(memory.base))?;
                memory.base.general64().map(|_| (memory.base, memory.displacement))
            }
            Operation::Move if is_result && !self.has_memory() => {
                let from = self.register(1);
                from.general64().map(|_| (from, 0))
            }
            Operation::Pop if is_result => None,
            Operation::Leave | Operation::Enter if matches!(own, 4 | 5) => None,
            _ if !self.writes().has_general(own) => Some((register, 0)),
            _ => Some((register, self.stack_change())).filter(|&(_, change)| own == 4 && change != 0),
        }
    }

    /// By how many bytes it lowers rsp, if that is fixed; negative if it raises rsp.
    pub(crate) fn stack_growth(&self) -> Option<i32> {
        let (_, change) = self.sum(Register::RSP).filter(|&(from, _)| from == Register::RSP)?;
        i32::try_from(change).ok()?.checked_neg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sum = Option<(Register, i64)>;

    fn sum(bytes: &[u8], register: Register) -> Sum {
        Instruction::decode(bytes).expect("an instruction").sum(register)
    }

    #[test]
    fn what_rsp_and_rbp_become() {
        let (rsp, rbp, r10) = (Register::RSP, Register::RBP, Register::decoded(10));
        let cases: [(&[u8], Sum, Sum); 16] = [
            (&[0x55], Some((rsp, -8)), Some((rbp, 0))),                     // push rbp
            (&[0x66, 0x50], Some((rsp, -2)), Some((rbp, 0))),               // push ax
            (&[0x5d], Some((rsp, 8)), None),                                // pop rbp
            (&[0x5c], None, Some((rbp, 0))),                                // pop rsp
            (&[0x9d], Some((rsp, 8)), Some((rbp, 0))),                      // popfq
            (&[0x48, 0x83, 0xec, 0x28], Some((rsp, -40)), Some((rbp, 0))),  // sub rsp, 40
            (&[0x48, 0x83, 0xc4, 0x80], Some((rsp, -128)), Some((rbp, 0))), // add rsp, -128
            (&[0x83, 0xc4, 8], None, Some((rbp, 0))),                       // add esp, 8
            (&[0x48, 0x8d, 0x65, 0xe8], Some((rbp, -24)), Some((rbp, 0))),  // lea rsp, [rbp - 24]
            (&[0x49, 0x8d, 0x62, 0xf8], Some((r10, -8)), Some((rbp, 0))),   // lea rsp, [r10 - 8]
            (&[0x48, 0x8d, 0x24, 0x04], None, Some((rbp, 0))),              // lea rsp, [rsp + rax]
            (&[0x48, 0x89, 0xe5], Some((rsp, 0)), Some((rsp, 0))),          // mov rbp, rsp
            (&[0x48, 0x8b, 0x2c, 0x24], Some((rsp, 0)), None),              // mov rbp, [rsp]
            (&[0xc9], None, None),                                          // leave
            (&[0x48, 0x95], Some((rsp, 0)), None),                          // xchg rax, rbp
            (&[0x48, 0x39, 0xec], Some((rsp, 0)), Some((rbp, 0))),          // cmp rsp, rbp
        ];
        for (bytes, of_rsp, of_rbp) in cases {
            assert_eq!((sum(bytes, rsp), sum(bytes, rbp)), (of_rsp, of_rbp), "{bytes:x?}");
        }
    }
}
