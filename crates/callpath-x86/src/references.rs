//! Whether code takes the address of something, or only calls it and jumps there.

use callpath_format::address::LinkAddr;
use rustc_hash::FxHashSet;

use crate::instruction::{Control, Instruction, Listing, Operation};

/// What of `targets` a procedure's `code`, which begins at `start`, has the address of: words that it reads other than to call
/// through them, addresses that it computes. `has_addresses`: constants are addresses, too (a program at fixed addresses).
pub fn addresses_taken(
    code: &[u8],
    start: LinkAddr,
    targets: &FxHashSet<LinkAddr>,
    has_addresses: bool,
) -> Vec<LinkAddr> {
    if !seems_to_refer(code, start, targets, has_addresses) {
        return Vec::new();
    }
    let taken = Listing::new(code, start.0).filter_map(|(at, instruction)| {
        let next = at.wrapping_add(instruction.len().into());
        let beside = instruction.beside_code(next).filter(|_| !is_branch_through(&instruction));
        let constant = instruction.immediate().filter(|_| has_addresses);
        beside.into_iter().chain(constant).map(LinkAddr).find(|address| targets.contains(address))
    });
    taken.collect()
}

fn is_branch_through(instruction: &Instruction) -> bool {
    let is_branch = matches!(instruction.control(), Control::CallIndirect | Control::JumpIndirect);
    is_branch && instruction.operation() != Operation::LoadAddress
}

/// Whether any four bytes are a distance to one of `targets`, or its address: few procedures have to be decoded.
fn seems_to_refer(code: &[u8], start: LinkAddr, targets: &FxHashSet<LinkAddr>, has_addresses: bool) -> bool {
    /// A constant may follow a distance.
    const BEHIND: [u64; 4] = [0, 1, 2, 4];
    let (Some(lowest), Some(highest)) = (targets.iter().min(), targets.iter().max()) else { return false };
    let is_one = |address: u64| {
        let address = LinkAddr(address);
        (*lowest..=*highest).contains(&address) && targets.contains(&address)
    };
    code.windows(size_of::<u32>()).enumerate().any(|(at, window)| {
        let word = window.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let next = start.0.wrapping_add((at + window.len()) as u64);
        let to = next.wrapping_add_signed(i64::from(word as i32));
        BEHIND.iter().any(|behind| is_one(to.wrapping_add(*behind))) || has_addresses && is_one(word.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(code: &[u8], target: u64, has_addresses: bool) -> bool {
        let targets = FxHashSet::from_iter([LinkAddr(target)]);
        !addresses_taken(code, LinkAddr(0x1000), &targets, has_addresses).is_empty()
    }

    #[test]
    fn calls_and_jumps_take_no_address() {
        let branches: [(&[u8], u64); 5] = [
            (&[0xe8, 0, 1, 0, 0], 0x1105),             // call 0x1105
            (&[0xe9, 0, 1, 0, 0], 0x1105),             // jmp 0x1105
            (&[0x0f, 0x84, 0, 1, 0, 0], 0x1106),       // je 0x1106
            (&[0xff, 0x15, 0, 1, 0, 0], 0x1106),       // call [rip + 0x100]
            (&[0xf2, 0xff, 0x25, 0, 1, 0, 0], 0x1107), // bnd jmp [rip + 0x100]
        ];
        for (code, target) in branches {
            assert!(!takes(code, target, true), "{code:x?}");
        }
        // nop [rax + rax]; the next procedure
        assert!(!takes(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 0x1008, false));
    }

    #[test]
    fn loads_and_computed_addresses_do() {
        let loads: [(&[u8], u64); 3] = [
            (&[0x48, 0x8d, 0x05, 0, 1, 0, 0], 0x1107),    // lea rax, [rip + 0x100]
            (&[0x48, 0x8b, 0x05, 0, 1, 0, 0], 0x1107),    // mov rax, [rip + 0x100]
            (&[0x48, 0x83, 0x3d, 0, 1, 0, 0, 1], 0x1108), // cmp qword ptr [rip + 0x100], 1
        ];
        for (code, target) in loads {
            assert!(takes(code, target, false) && !takes(code, target + 1, false), "{code:x?}");
        }
        // mov edi, 0x1234
        let constant = [0xbf, 0x34, 0x12, 0, 0];
        assert!(takes(&constant, 0x1234, true) && !takes(&constant, 0x1234, false));
    }
}
