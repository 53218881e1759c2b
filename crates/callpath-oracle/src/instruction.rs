//! What an instruction does to the stack, as far as the shadow stack must know.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// The longest instruction, bytes.
pub(crate) const MAX_LEN_BYTES: usize = 15;

/// An instruction's effect on the call path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// None; pushes, pops and steps of rsp by a constant are here.
    None,
    /// Pushes a return address, the given one.
    Call(u64),
    /// Pops one.
    Return,
    /// Goes elsewhere, perhaps.
    Jump,
    /// Gives rsp another value, which need not lie in the same stack; the value comes from memory.
    LoadsRsp,
    /// The same with a value computed in registers.
    MovesRsp,
    /// Pushes or pops the flags, in which a single step would leave its trace.
    Flags,
    /// Enters the kernel.
    SystemCall,
    /// May be a trap of the program's own.
    Breakpoint,
}

/// A decoded instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    /// What it does.
    pub effect: Effect,
    /// Its length, bytes; 0 if the bytes are not an instruction.
    pub len_bytes: u8,
    /// It is followed by the next one, perhaps.
    pub falls_through: bool,
    /// Where it goes, perhaps, if it is a direct jump.
    pub target: Option<u64>,
}

impl Instruction {
    /// Nothing is known of it.
    pub(crate) const NONE: Instruction =
        Instruction { effect: Effect::Breakpoint, len_bytes: 0, falls_through: false, target: None };

    /// The call path stays as it is, and it is known where the program goes.
    pub(crate) fn is_plain(&self) -> bool {
        self.effect == Effect::None || self.effect == Effect::Jump && self.target.is_some()
    }
}

/// Decodes the instruction at `pc` from the bytes there. The decoder's own form is for those who do its work.
pub(crate) fn decode(pc: u64, bytes: &[u8]) -> (Instruction, iced_x86::Instruction) {
    let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
    let decoded = decoder.decode();
    if decoded.is_invalid() {
        return (Instruction::NONE, decoded);
    }
    let is_direct = decoded.op_count() > 0 && decoded.op0_kind() == OpKind::NearBranch64;
    let effect = effect_of(&decoded);
    let instruction = Instruction {
        effect,
        len_bytes: decoded.len() as u8,
        falls_through: decoded.flow_control() != FlowControl::UnconditionalBranch,
        target: (effect == Effect::Jump && is_direct).then(|| decoded.near_branch64()),
    };
    (instruction, decoded)
}

fn effect_of(instruction: &iced_x86::Instruction) -> Effect {
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => {
            return match instruction.code() {
                Code::Syscall => Effect::SystemCall,
                _ => Effect::Call(instruction.next_ip()),
            };
        }
        FlowControl::Return if matches!(instruction.mnemonic(), Mnemonic::Ret | Mnemonic::Retf) => {
            return Effect::Return;
        }
        FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => return Effect::Breakpoint,
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::ConditionalBranch
        | FlowControl::XbeginXabortXend => return Effect::Jump,
        FlowControl::Next => {}
    }
    let mut factory = InstructionInfoFactory::new();
    let writes_rsp = factory.info(instruction).used_registers().iter().any(|used| {
        used.register().full_register() == Register::RSP
            && matches!(
                used.access(),
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            )
    });
    if !writes_rsp {
        return Effect::None;
    }
    let explicit = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Pushfq | Mnemonic::Popfq => Effect::Flags,
        Mnemonic::Push | Mnemonic::Enter => Effect::None,
        Mnemonic::Pop if explicit => Effect::LoadsRsp,
        Mnemonic::Pop => Effect::None,
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Inc | Mnemonic::Dec if explicit => Effect::None,
        Mnemonic::Lea if instruction.memory_base() == Register::RSP => Effect::None,
        _ if (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory) => {
            if instruction.mnemonic() == Mnemonic::Lea { Effect::MovesRsp } else { Effect::LoadsRsp }
        }
        _ => Effect::MovesRsp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], effect: Effect) {
        let (decoded, _) = decode(0x1000, bytes);
        assert_eq!((decoded.effect, usize::from(decoded.len_bytes)), (effect, bytes.len()));
    }

    #[test]
    fn effects() {
        check(&[0x90], Effect::None); // nop
        check(&[0xe8, 0, 0, 0, 0], Effect::Call(0x1005)); // call 1005h
        check(&[0xff, 0x14, 0x25, 0, 0, 0, 0], Effect::Call(0x1007)); // call [0]
        check(&[0xc3], Effect::Return); // ret
        check(&[0xf3, 0xc3], Effect::Return); // rep ret
        check(&[0xc2, 8, 0], Effect::Return); // ret 8
        check(&[0xff, 0xe2], Effect::Jump); // jmp rdx
        check(&[0x74, 0], Effect::Jump); // je
        check(&[0x0f, 0x05], Effect::SystemCall); // syscall
        check(&[0xcc], Effect::Breakpoint); // int3
        check(&[0x5c], Effect::LoadsRsp); // pop rsp
        check(&[0x5b], Effect::None); // pop rbx
        check(&[0x9d], Effect::Flags); // popfq
        check(&[0x48, 0x83, 0xec, 8], Effect::None); // sub rsp, 8
        check(&[0x48, 0x83, 0xe4, 0xf0], Effect::None); // and rsp, -16
        check(&[0x48, 0x89, 0xc4], Effect::MovesRsp); // mov rsp, rax
        check(&[0x48, 0x94], Effect::MovesRsp); // xchg rsp, rax
        check(&[0xc9], Effect::MovesRsp); // leave
        check(&[0x48, 0x8b, 0x60, 8], Effect::LoadsRsp); // mov rsp, [rax+8]
        check(&[0x48, 0x8d, 0x65, 0xf0], Effect::MovesRsp); // lea rsp, [rbp-10h]
        check(&[0x48, 0x8d, 0x64, 0x24, 8], Effect::None); // lea rsp, [rsp+8]
    }
}
