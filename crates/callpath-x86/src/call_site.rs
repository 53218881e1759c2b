//! Calls, seen from their return addresses: the call before a return address, and where control leaves a procedure
//! without a call.

use callpath_format::address::LinkAddr;

use crate::instruction::{Control, Instruction, Listing, Operation, Register};

/// The longest call, bytes.
pub const LONGEST_CALL_BYTES: usize = 8;
/// Procedures longer than this may leave to anywhere, bytes.
const LONGEST_PROCEDURE_BYTES: usize = 1 << 18;

/// The calls that the bytes before a return address may be. Instructions vary in length, so there may be several
/// readings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallsBefore {
    /// A call of this address.
    pub direct: Option<LinkAddr>,
    /// A call through a register or memory.
    pub dynamic: bool,
    /// How far from a register it finds its target in memory, bytes, if that is where; readings that differ have none.
    pub field: Option<i64>,
}

/// Decodes the calls that may end at `return_address`. `before`: the bytes up to it; the last [`LONGEST_CALL_BYTES`]
/// count.
pub fn calls_before(before: &[u8], return_address: LinkAddr) -> CallsBefore {
    let mut found = CallsBefore::default();
    for len in 2..=LONGEST_CALL_BYTES.min(before.len()) {
        let bytes = &before[before.len() - len..];
        let instruction = Instruction::decode(bytes).filter(|instruction| instruction.len() as usize == len);
        let Some(instruction) = instruction.filter(|i| i.operation() == Operation::Call) else { continue };
        if instruction.control() == Control::CallIndirect {
            let memory = instruction.memory().filter(|memory| memory.index == Register::NONE);
            let field = memory.map(|memory| memory.displacement);
            found.field = if found.dynamic && found.field != field { None } else { field };
            found.dynamic = true;
        } else {
            found.direct = Some(LinkAddr(instruction.target(return_address.0)));
        }
    }
    found
}

/// The return addresses of the direct calls of `callee` in a procedure's code, which begins at `start`.
pub fn calls_to(callee: LinkAddr, code: &[u8], start: LinkAddr) -> Vec<LinkAddr> {
    let calls = Listing::new(code, start.0).filter(|(_, instruction)| instruction.control() == Control::Call);
    let with_next = calls.map(|(at, it)| (it, at.wrapping_add(it.len().into())));
    with_next.filter(|(it, next)| it.target(*next) == callee.0).map(|(_, next)| LinkAddr(next)).collect()
}

/// Where control leaves a procedure without a call: by jumps out of it, and by falling through its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaves {
    /// Addresses outside it, each once, in the order of the code.
    pub to: Vec<LinkAddr>,
    /// It may leave to anywhere: by a jump through a register or memory, by a return to an address that it stored
    /// itself (a retpoline), or because its code cannot be decoded completely.
    pub anywhere: bool,
    /// The address after a call at its end, where it continues if that call returns.
    pub behind_last_call: Option<LinkAddr>,
}

/// Where control leaves a procedure of these bytes without a call. Bytes that are not code, and very long procedures,
/// may leave to anywhere.
pub fn leaves(code: &[u8], start: LinkAddr) -> Leaves {
    let mut leaves = Leaves::default();
    if code.len() > LONGEST_PROCEDURE_BYTES {
        leaves.anywhere = true;
        return leaves;
    }
    let end = start.0.wrapping_add(code.len() as u64);
    let mut runs_on = false;
    let mut has_stored_return = false;
    let mut listing = Listing::new(code, start.0);
    for (at, instruction) in listing.by_ref() {
        let control = instruction.control();
        match control {
            Control::Jump | Control::Branch => {
                let target = LinkAddr(instruction.target(at.wrapping_add(instruction.len().into())));
                if !(start.0..end).contains(&target.0) && !leaves.to.contains(&target) {
                    leaves.to.push(target);
                }
            }
            Control::JumpIndirect => leaves.anywhere = true,
            Control::Return if has_stored_return => leaves.anywhere = true,
            _ => {}
        }
        has_stored_return = stores_return(&instruction);
        let is_call = instruction.operation() == Operation::Call;
        leaves.behind_last_call = is_call.then_some(LinkAddr(end));
        runs_on = match control {
            Control::Jump | Control::JumpIndirect | Control::Return => false,
            // One that does not return may end a procedure.
            _ if is_call => false,
            Control::Stop if !instruction.is_padding() => false,
            _ => !instruction.is_padding() || runs_on,
        };
    }
    if !listing.is_at_end() {
        leaves.anywhere = true;
        return leaves;
    }
    if runs_on {
        leaves.to.push(LinkAddr(end));
    }
    leaves
}

/// Whether a return right after the instruction goes to the address that it stores: `push`, or `mov [rsp], x`.
fn stores_return(instruction: &Instruction) -> bool {
    let is_top = instruction.memory().is_some_and(|memory| memory.is_only(Register::RSP) && memory.displacement == 0);
    match instruction.operation() {
        Operation::Push => true,
        Operation::Move | Operation::Exchange | Operation::Add => is_top && instruction.writes_memory_operand(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_every_length() {
        let at = |before: &[u8]| calls_before(before, LinkAddr(0x1000));
        // call 0xff0: e8 rel32
        assert_eq!(at(&[0xe8, 0xf0, 0xff, 0xff, 0xff]).direct, Some(LinkAddr(0xff0)));
        // call rax; call r11; call [rax+8]; call [rip+0x100]; call [r12+r13*8+0x12345678]
        for dynamic in [
            &[0xff, 0xd0][..],
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x50, 0x08],
            &[0xff, 0x15, 0, 1, 0, 0],
            &[0x43, 0xff, 0x94, 0xec, 0x78, 0x56, 0x34, 0x12],
        ] {
            assert!(at(dynamic).dynamic, "{dynamic:x?}");
        }
        // call [rbx+0x638], of which call [r11+0x638] is another reading; call fs:[0x640]; call rax
        assert_eq!(at(&[0xff, 0x93, 0x38, 6, 0, 0]).field, Some(0x638));
        assert_eq!(at(&[0x41, 0xff, 0x93, 0x38, 6, 0, 0]).field, Some(0x638));
        assert_eq!(at(&[0x64, 0xff, 0x14, 0x25, 0x40, 6, 0, 0]).field, Some(0x640));
        assert_eq!(at(&[0xff, 0xd0]).field, None);
        // call [rbx+0x02d0ff00], which ends in call rax with a zero before it
        assert_eq!(at(&[0xff, 0x93, 0, 0, 0xff, 0xd0]).field, None);
        // syscall; mov eax, 1; jmp; nothing
        assert_eq!(at(&[0x0f, 0x05]), CallsBefore::default());
        assert_eq!(at(&[0xb8, 1, 0, 0, 0]), CallsBefore::default());
        assert_eq!(at(&[0xe9, 1, 0, 0, 0]), CallsBefore::default());
        assert_eq!(at(&[]), CallsBefore::default());
    }

    #[test]
    fn procedures_that_leave_without_a_call() {
        let of = |code: &[u8]| leaves(code, LinkAddr(0x1000));
        let to = |code: &[u8]| of(code).to.iter().map(|at| at.0).collect::<Vec<_>>();
        assert_eq!(of(&[0x31, 0xc0, 0xc3]), Leaves::default()); // xor eax,eax; ret
        assert_eq!(of(&[0xeb, 0xfe]), Leaves::default()); // jmp to itself
        assert_eq!(of(&[0x31, 0xc0, 0xc3, 0x66, 0x90]), Leaves::default()); // ret; padding
        assert_eq!(to(&[0xe9, 0, 1, 0, 0]), [0x1105]); // jmp out
        assert_eq!(to(&[0x74, 0x7f, 0x75, 0x7d, 0xc3]), [0x1081]); // je out; jne to the same address; ret
        assert!(of(&[0xff, 0xe0]).anywhere); // jmp rax
        assert_eq!(to(&[0x31, 0xc0]), [0x1002]); // falls through its end
        // Ends with a call, which may not return.
        let behind_last_call = Some(LinkAddr(0x1005));
        assert_eq!(of(&[0xe8, 0, 0, 0, 0]), Leaves { behind_last_call, ..Leaves::default() });
        assert!(of(&[0x06, 0xc3]).anywhere); // not an instruction
        assert!(of(&[0x48, 0x89, 0x04, 0x24, 0xc3]).anywhere); // mov [rsp], rax; ret
        assert!(of(&[0x50, 0xc3]).anywhere); // push rax; ret
        assert!(!of(&[0x50, 0x58, 0xc3]).anywhere); // push rax; pop rax; ret
        assert_eq!(to(&[0x0f, 0x05]), [0x1002]); // syscall, and falls through its end
    }
}
