//! The code of a procedure that runs on another stack than the one that it was called on.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::instruction::{Control, Listing, Operation};

/// The ranges from an instruction that loads rsp to the next one, or to the end of the flow of control, in which a call
/// is made. A load without a call after it switches back. `code` begins at `start`.
pub fn on_another_stack(code: &[u8], start: LinkAddr) -> Vec<Range<LinkAddr>> {
    let mut found = Vec::new();
    // Where rsp was loaded, and whether a call followed.
    let mut loaded: Option<(u64, bool)> = None;
    for (at, instruction) in Listing::new(code, start.0) {
        let next = at.wrapping_add(instruction.len().into());
        if instruction.operation() == Operation::Call {
            loaded = loaded.map(|(from, _)| (from, true));
            continue;
        }
        let (ends_at, goes_on) = match instruction.control() {
            Control::Return | Control::Jump | Control::JumpIndirect | Control::Stop => (next, None),
            _ if instruction.loads_stack_pointer() => (at, Some((next, false))),
            _ => continue,
        };
        if let Some((from, true)) = loaded {
            found.push(LinkAddr(from)..LinkAddr(ends_at));
        }
        loaded = goes_on;
    }
    if let Some((from, true)) = loaded {
        found.push(LinkAddr(from)..LinkAddr(start.0.wrapping_add(code.len() as u64)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As objdump shows the end of Go 1.19's runtime.systemstack: `mov %rbx,%rsp; call *%rdi; mov 0x38(%rax),%rsp;
    /// ret`, followed by another exit: `call *%rax; int3`.
    #[test]
    fn from_the_switch_to_the_way_back() {
        let code = [0x90, 0x48, 0x89, 0xdc, 0xff, 0xd7, 0x48, 0x8b, 0x60, 0x38, 0xc3, 0xff, 0xd0, 0xcc];
        assert_eq!(on_another_stack(&code, LinkAddr(0x1000)), [LinkAddr(0x1004)..LinkAddr(0x1006)]);
        // runtime.morestack: `mov 0x38(%rbx),%rsp; call; call; ret`
        let code = [0x48, 0x8b, 0x63, 0x38, 0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(on_another_stack(&code, LinkAddr(0x1000)), [LinkAddr(0x1004)..LinkAddr(0x100f)]);
        // jump_fcontext: `mov %rdi,%rsp; jmp *%r8`; a procedure that ends with its code; none at all
        assert_eq!(on_another_stack(&[0x48, 0x89, 0xfc, 0x41, 0xff, 0xe0], LinkAddr(0)), []);
        assert_eq!(on_another_stack(&[0x48, 0x89, 0xfc, 0xff, 0xd0], LinkAddr(0)), [LinkAddr(3)..LinkAddr(5)]);
        assert_eq!(on_another_stack(&[0xff, 0xd0], LinkAddr(0)), []);
    }
}
