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

/// The second arguments of a procedure's calls of `targets`, and jumps to them, which are addresses of procedures, or of words
/// that hold such: constants. `None`: one is not known, or it takes the address of a target.
pub fn second_arguments(
    code: &[u8],
    start: LinkAddr,
    targets: &FxHashSet<LinkAddr>,
    has_addresses: bool,
) -> Option<Vec<u64>> {
    /// rsi (psABI).
    const SECOND: usize = 6;
    if !seems_to_refer(code, start, targets, has_addresses) {
        return Some(Vec::new());
    }
    if !addresses_taken(code, start, targets, has_addresses).is_empty() {
        return None;
    }
    let listing = || Listing::new(code, start.0).map(|(at, it)| (at, at.wrapping_add(it.len().into()), it));
    let is_direct = |it: &Instruction| matches!(it.control(), Control::Call | Control::Jump | Control::Branch);
    let entered: FxHashSet<u64> =
        listing().filter(|(_, _, it)| is_direct(it)).map(|(_, next, it)| it.target(next)).collect();
    let mut found = Vec::new();
    let mut second: Option<u64> = None;
    for (at, next, it) in listing() {
        if entered.contains(&at) {
            second = None;
        }
        let is_called = it.control() != Control::Next;
        let to = if is_direct(&it) { Some(it.target(next)) } else { it.beside_code(next).filter(|_| is_called) };
        if to.is_some_and(|to| targets.contains(&LinkAddr(to))) {
            found.push(second?);
        }
        if is_called {
            second = None;
        } else if it.writes().has_general(SECOND) {
            second = match it.operation() {
                Operation::LoadAddress => it.beside_code(next),
                Operation::Move if !it.has_memory() => it.immediate(),
                _ => None,
            };
        }
    }
    Some(found)
}

/// Whether a procedure's code calls one of `targets`, or jumps there, also through a word that is one of them.
pub fn leads_to(code: &[u8], start: LinkAddr, targets: &FxHashSet<LinkAddr>) -> bool {
    let leads = |(at, instruction): (u64, Instruction)| {
        let next = at.wrapping_add(instruction.len().into());
        let is_direct = matches!(instruction.control(), Control::Call | Control::Jump | Control::Branch);
        let through = || instruction.beside_code(next).filter(|_| is_branch_through(&instruction));
        let to = if is_direct { Some(instruction.target(next)) } else { through() };
        to.is_some_and(|to| targets.contains(&LinkAddr(to)))
    };
    seems_to_refer(code, start, targets, false) && Listing::new(code, start.0).any(leads)
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
    fn constants_that_are_second_arguments() {
        let targets = FxHashSet::from_iter([LinkAddr(0x2000)]);
        let found = |code: &[&[u8]]| second_arguments(&code.concat(), LinkAddr(0x1000), &targets, true);
        const NAME: &[u8] = &[0x48, 0x8d, 0x35, 0xf9, 0, 0, 0]; // lea rsi, [rip + 0xf9]
        const OTHER: &[u8] = &[0xbe, 0x78, 0x56, 0x34, 0x12]; // mov esi, 0x12345678
        const UNKNOWN: &[u8] = &[0x48, 0x89, 0xfe]; // mov rsi, rdi
        let call = |at: u32| [&[0xe8][..], &(0x2000 - (0x1000 + at + 5)).to_le_bytes()].concat();
        let jump = |at: u32| [&[0xe9][..], &(0x2000 - (0x1000 + at + 5)).to_le_bytes()].concat();
        let through = |at: u32| [&[0xff, 0x15][..], &(0x2000 - (0x1000 + at + 6)).to_le_bytes()].concat();
        assert_eq!(found(&[NAME, &call(7), OTHER, &jump(17)]), Some(vec![0x1100, 0x1234_5678]));
        assert_eq!(found(&[OTHER, &[0x90], &through(6)]), Some(vec![0x1234_5678]));
        assert_eq!(found(&[UNKNOWN, &call(3)]), None);
        assert_eq!(found(&[OTHER, UNKNOWN, &call(8)]), None);
        // A callee may change it; so may who jumps in between.
        assert_eq!(found(&[OTHER, &[0xe8, 0x40, 0, 0, 0], &call(10)]), None);
        assert_eq!(found(&[&[0x75, 5], OTHER, &call(7)]), None);
        // mov rax, [rip + ...]: it may be called with anything.
        assert_eq!(found(&[&[0x48, 0x8b, 0x05, 0xf9, 0x0f, 0, 0]]), None);
        assert_eq!(found(&[UNKNOWN]), Some(vec![]));
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
