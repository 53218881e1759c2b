//! Doing an instruction's work in its place: calls, returns, jumps, moves of rsp and of the
//! flags, which the oracle must see anyway.

use callpath_target::Stepper;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use libc::user_regs_struct;

use crate::OracleError;

/// Trap and resume flag: the debugger's.
const HIDDEN_FLAGS: u64 = 1 << 8 | 1 << 16;
/// What a program may change by a pop: carry, parity, adjust, zero, sign, direction, overflow, alignment check, id.
const OWN_FLAGS: u64 = 1 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 11 | 1 << 18 | 1 << 21;

/// Does what `instruction` would do. `false`: that is not known here, and nothing has changed.
pub(super) fn emulate(
    instruction: &Instruction,
    registers: &mut user_regs_struct,
    stepper: &Stepper,
) -> Result<bool, OracleError> {
    let next = instruction.next_ip();
    match instruction.mnemonic() {
        Mnemonic::Call => {
            let Some(target) = target(instruction, registers, stepper) else { return Ok(false) };
            let slot = registers.rsp.wrapping_sub(8);
            if stepper.write(slot, &next.to_le_bytes()).is_err() {
                // The stack has to grow, or the program is about to fail: both are the kernel's.
                return Ok(false);
            }
            registers.rsp = slot;
            registers.rip = target;
        }
        Mnemonic::Jmp => {
            let Some(target) = target(instruction, registers, stepper) else { return Ok(false) };
            registers.rip = target;
        }
        Mnemonic::Ret => {
            let Some(target) = stepper.read_u64(registers.rsp) else { return Ok(false) };
            let arguments = if instruction.op_count() == 1 { u64::from(instruction.immediate16()) } else { 0 };
            registers.rsp = registers.rsp.wrapping_add(8 + arguments);
            registers.rip = target;
        }
        Mnemonic::Leave => {
            let Some(saved) = stepper.read_u64(registers.rbp) else { return Ok(false) };
            registers.rsp = registers.rbp.wrapping_add(8);
            registers.rbp = saved;
            registers.rip = next;
        }
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
            let Some(value) = register(instruction.op1_register(), registers) else { return Ok(false) };
            registers.rsp = value;
            registers.rip = next;
        }
        // Single steps would leave the trap flag in what is pushed, and in the flags after a pop.
        Mnemonic::Pushfq => {
            let slot = registers.rsp.wrapping_sub(8);
            if stepper.write(slot, &(registers.eflags & !HIDDEN_FLAGS).to_le_bytes()).is_err() {
                return Ok(false);
            }
            registers.rsp = slot;
            registers.rip = next;
        }
        Mnemonic::Popfq => {
            let Some(popped) = stepper.read_u64(registers.rsp) else { return Ok(false) };
            registers.eflags = popped & OWN_FLAGS | registers.eflags & !OWN_FLAGS & !HIDDEN_FLAGS;
            registers.rsp = registers.rsp.wrapping_add(8);
            registers.rip = next;
        }
        Mnemonic::Lea => {
            let Some(value) = address(instruction, 1, registers) else { return Ok(false) };
            registers.rsp = value;
            registers.rip = next;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn target(instruction: &Instruction, registers: &user_regs_struct, stepper: &Stepper) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Some(instruction.near_branch64()),
        OpKind::Register => register(instruction.op0_register(), registers),
        OpKind::Memory if instruction.memory_size().size() == 8 => {
            stepper.read_u64(address(instruction, 0, registers)?)
        }
        _ => None,
    }
}

fn address(instruction: &Instruction, operand: u32, registers: &user_regs_struct) -> Option<u64> {
    instruction.virtual_address(operand, 0, |which, _, _| match which {
        Register::FS => Some(registers.fs_base),
        Register::GS => Some(registers.gs_base),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        _ => register(which, registers),
    })
}

fn register(which: Register, r: &user_regs_struct) -> Option<u64> {
    Some(match which {
        Register::RAX => r.rax,
        Register::RBX => r.rbx,
        Register::RCX => r.rcx,
        Register::RDX => r.rdx,
        Register::RSI => r.rsi,
        Register::RDI => r.rdi,
        Register::RBP => r.rbp,
        Register::RSP => r.rsp,
        Register::R8 => r.r8,
        Register::R9 => r.r9,
        Register::R10 => r.r10,
        Register::R11 => r.r11,
        Register::R12 => r.r12,
        Register::R13 => r.r13,
        Register::R14 => r.r14,
        Register::R15 => r.r15,
        _ => return None,
    })
}
