//! How the bytes of an instruction change when it is moved to another address.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction as Iced, Register as Iced64};

/// What has to be written anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Motion {
    /// Nothing.
    Verbatim,
    /// The displacement of its memory operand, which counts from the instruction's end: four bytes at this offset.
    BesideCode(usize),
    /// A conditional jump, with the condition's number in the processor's order.
    Branch(u8),
    /// `jrcxz`, `loop` and their kin reach 127 bytes only; the distance is the last byte.
    ShortBranch,
    /// `xbegin`: where it continues after an abort is the last four bytes.
    Transaction,
    /// `jmp` to one address.
    Jump,
    /// `call`, of one address or through a register or memory. It is made at home, so it may even be one of the next
    /// instruction.
    Call,
}

/// How the instruction that `bytes` begin with is moved. `None`: its meaning depends on where it lies, and it cannot be
/// moved.
pub(crate) fn motion(bytes: &[u8]) -> Option<Motion> {
    let bytes = bytes.get(..super::LONGEST_BYTES).unwrap_or(bytes);
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return None;
    }
    let mut iced = Iced::default();
    decoder.decode_out(&mut iced);
    if iced.is_invalid() {
        return None;
    }
    match iced.flow_control() {
        FlowControl::ConditionalBranch if iced.is_jcc_short_or_near() => {
            Some(Motion::Branch((iced.condition_code() as u8).checked_sub(1)?)).filter(|_| is_of_64_bits(&iced))
        }
        FlowControl::ConditionalBranch if is_of_64_bits(&iced) => Some(Motion::ShortBranch),
        FlowControl::UnconditionalBranch if is_of_64_bits(&iced) => Some(Motion::Jump),
        FlowControl::XbeginXabortXend if iced.code() == Code::Xbegin_rel32 => Some(Motion::Transaction),
        FlowControl::XbeginXabortXend if iced.code() != Code::Xbegin_rel16 => Some(Motion::Verbatim),
        FlowControl::Call if is_of_64_bits(&iced) => Some(Motion::Call),
        FlowControl::IndirectCall if iced.is_call_near_indirect() => Some(Motion::Call),
        FlowControl::Call if matches!(iced.code(), Code::Syscall | Code::Sysenter | Code::Vmcall | Code::Vmmcall) => {
            Some(Motion::Verbatim)
        }
        FlowControl::Next
        | FlowControl::Return
        | FlowControl::IndirectBranch
        | FlowControl::Interrupt
        | FlowControl::Exception => match iced.memory_base() {
            Iced64::RIP => {
                let offsets = decoder.get_constant_offsets(&iced);
                (offsets.displacement_size() == 4).then(|| Motion::BesideCode(offsets.displacement_offset()))
            }
            Iced64::EIP => None,
            _ => Some(Motion::Verbatim),
        },
        _ => None,
    }
}

/// The instruction that `bytes` are with a displacement of its memory operand that is greater by `by`. `None`: there is none that
/// counts from a register, or no room for it.
pub(crate) fn displaced_by(bytes: &[u8], by: i32) -> Option<Vec<u8>> {
    let LongDisplacement { mut bytes, at, value, has_base } = with_long_displacement(bytes)?;
    let displacement = value.checked_add(by).filter(|_| has_base)?.to_le_bytes();
    bytes.get_mut(at..at + displacement.len())?.copy_from_slice(&displacement);
    Some(bytes)
}

/// An instruction whose memory operand has a displacement of four bytes.
pub(crate) struct LongDisplacement {
    pub(crate) bytes: Vec<u8>,
    /// Where the displacement is in them.
    pub(crate) at: usize,
    pub(crate) value: i32,
    /// Whether it counts from a register.
    has_base: bool,
}

/// The instruction that `bytes` are with a displacement of four bytes. `None`: it has no memory operand, or one beside the code, or
/// there is no room for it.
pub(crate) fn with_long_displacement(bytes: &[u8]) -> Option<LongDisplacement> {
    /// ModRM's mode, and that of a displacement of one byte or four.
    const MODE: u8 = 0xc0;
    const ONE: u8 = 0x40;
    const FOUR: u8 = 0x80;
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut iced = Iced::default();
    decoder.decode_out(&mut iced);
    let (base, index) = (iced.memory_base(), iced.memory_index());
    if iced.is_invalid() || matches!(base, Iced64::RIP | Iced64::EIP) || (base, index) == (Iced64::None, Iced64::None) {
        return None;
    }
    let offsets = decoder.get_constant_offsets(&iced);
    let len = offsets.displacement_size();
    let constants = offsets.immediate_size() + offsets.immediate_size2();
    let at = if len == 0 { bytes.len().checked_sub(constants)? } else { offsets.displacement_offset() };
    let value = i32::try_from(iced.memory_displacement64() as i64).ok()?;
    let (before, rest) = bytes.split_at_checked(at)?;
    let mut before = before.to_vec();
    if len != 4 {
        // A SIB byte may lie between.
        let has_sib = index != Iced64::None || matches!(base, Iced64::RSP | Iced64::R12);
        let modrm = before.len().checked_sub(if has_sib { 2 } else { 1 }).and_then(|at| before.get_mut(at))?;
        if *modrm & MODE != if len == 1 { ONE } else { 0 } {
            return None;
        }
        *modrm = *modrm & !MODE | FOUR;
    }
    let new = [&before, &value.to_le_bytes()[..], rest.get(len..)?].concat();
    let has_base = base != Iced64::None;
    (new.len() <= super::LONGEST_BYTES).then_some(LongDisplacement { bytes: new, at, value, has_base })
}

/// Whether a jump or call goes to an address of 64 bits: some processors cut those with the prefix 0x66.
fn is_of_64_bits(iced: &Iced) -> bool {
    iced.op0_kind() == iced_x86::OpKind::NearBranch64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_the_address_is_known() {
        let cases: [(&[u8], Option<Motion>); 18] = [
            // push rbx
            (&[0x53], Some(Motion::Verbatim)),
            // lea rax, [rip+0x10]
            (&[0x48, 0x8d, 0x05, 0x10, 0, 0, 0], Some(Motion::BesideCode(3))),
            // cmp dword ptr [rip+0x10], 0x12345678
            (&[0x81, 0x3d, 0x10, 0, 0, 0, 0x78, 0x56, 0x34, 0x12], Some(Motion::BesideCode(2))),
            // jmp [rip+0x10]
            (&[0xff, 0x25, 0x10, 0, 0, 0], Some(Motion::BesideCode(2))),
            // lea eax, [eip+0x10]
            (&[0x67, 0x8d, 0x05, 0x10, 0, 0, 0], None),
            // jne, short and near
            (&[0x75, 0x10], Some(Motion::Branch(5))),
            (&[0x0f, 0x8f, 0x10, 0, 0, 0], Some(Motion::Branch(15))),
            // jrcxz, jecxz, loop
            (&[0xe3, 0x10], Some(Motion::ShortBranch)),
            (&[0x67, 0xe3, 0x10], Some(Motion::ShortBranch)),
            (&[0xe2, 0x10], Some(Motion::ShortBranch)),
            // jmp, with bnd
            (&[0xf2, 0xe9, 0x10, 0, 0, 0], Some(Motion::Jump)),
            // call, call [rax], call of the next instruction
            (&[0xe8, 0x10, 0, 0, 0], Some(Motion::Call)),
            (&[0xff, 0x10], Some(Motion::Call)),
            (&[0xe8, 0, 0, 0, 0], Some(Motion::Call)),
            // jne of 16 bits, as AMD's processors have it
            (&[0x66, 0x0f, 0x85, 0x10, 0], None),
            // syscall
            (&[0x0f, 0x05], Some(Motion::Verbatim)),
            // xbegin
            (&[0xc7, 0xf8, 0x10, 0, 0, 0], Some(Motion::Transaction)),
            // No instruction.
            (&[0x06], None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(motion(bytes), expected, "{bytes:02x?}");
        }
    }
}
