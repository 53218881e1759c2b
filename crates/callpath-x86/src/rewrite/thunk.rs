//! Small routines that copies call: they lead to routines that may lie anywhere.

use callpath_format::address::LinkAddr;

use crate::encoding;

/// `push qword ptr [rip + disp32]`
const PUSH: [u8; 2] = [0xff, 0x35];
/// `jmp qword ptr [rip + disp32]`
const JUMP: [u8; 2] = [0xff, 0x25];
/// The length of either.
const LEN_BYTES: u64 = 6;
/// Where a thunk keeps the value that it pushes: offset, bytes.
const VALUE: usize = 16;

/// The length of a thunk, bytes.
pub const THUNK_LEN_BYTES: u64 = 24;

/// From this offset on, a thunk that pushes a value has pushed it.
pub const THUNK_PUSH_BYTES: u64 = LEN_BYTES;

/// The code of a thunk at `at`, which jumps to the address that is stored at `target`, within 2 GB. `pushed`: a value
/// that it pushes first. `None`: `target` is too far away.
pub fn thunk(at: LinkAddr, pushed: Option<u64>, target: LinkAddr) -> Option<[u8; THUNK_LEN_BYTES as usize]> {
    let mut code = [encoding::INT3; THUNK_LEN_BYTES as usize];
    let mut end = 0;
    let mut instruction = |opcode: [u8; 2], operand: LinkAddr| {
        let next = at.0.checked_add(end as u64 + LEN_BYTES)?;
        let distance = i32::try_from(operand.0.wrapping_sub(next) as i64).ok()?;
        let place = code.get_mut(end..end + LEN_BYTES as usize)?;
        let (to_opcode, to_distance) = place.split_at_mut(opcode.len());
        to_opcode.copy_from_slice(&opcode);
        to_distance.copy_from_slice(&distance.to_le_bytes());
        end += LEN_BYTES as usize;
        Some(())
    };
    if pushed.is_some() {
        instruction(PUSH, LinkAddr(at.0.checked_add(VALUE as u64)?))?;
    }
    instruction(JUMP, target)?;
    if let (Some(value), Some(place)) = (pushed, code.get_mut(VALUE..)) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pushes_a_value_and_jumps_through_a_word() {
        let code = thunk(LinkAddr(0x1000), Some(0x1122_3344_5566_7788), LinkAddr(0x2000)).expect("it is near");
        assert_eq!(code[16..], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(code[..12], [0xff, 0x35, 10, 0, 0, 0, 0xff, 0x25, 0xf4, 0x0f, 0, 0]);
        let code = thunk(LinkAddr(0x1000), None, LinkAddr(0x2000)).expect("it is near");
        assert_eq!(code[..7], [0xff, 0x25, 0xfa, 0x0f, 0, 0, 0xcc]);
    }

    #[test]
    fn what_is_too_far_away_is_none() {
        assert_eq!(thunk(LinkAddr(0x1000), None, LinkAddr(0x1_0000_0000)), None);
        assert!(thunk(LinkAddr(0x9000_0000), Some(1), LinkAddr(0x1000_0000)).is_none());
        assert!(thunk(LinkAddr(u64::MAX), Some(1), LinkAddr(0x1000_0000)).is_none());
    }
}
