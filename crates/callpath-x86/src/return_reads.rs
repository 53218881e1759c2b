//! Users of return addresses: procedures that read their own otherwise than to return (`__builtin_return_address(0)`, setjmp).
//!
//! So do procedures that jump to one, which reads theirs; if such a procedure's address is taken, also those that jump to a procedure that
//! is not known (indirect tail callers); and procedures that leave rsp elsewhere than behind it (`ret N`), or take it off the stack.
//! Told apart from them are those that jump to what is not known to read it: another module's procedures, and what pointers lead to.
//!
//! To decode all code would be most of the work where call frame information describes it. So bytes are searched for operands that lie
//! where the frame's recipe says, and the instructions around those are asked. What is found too much costs little: its return
//! address is left alone. Not seen are reads by an index, and through other registers than rsp and rbp.

use std::ops::{IndexMut, Range};

use callpath_format::address::LinkAddr;
use callpath_format::register::Reg;
use memchr::memmem::find_iter;
use memchr::{memchr_iter, memchr2_iter};

use crate::instruction::{Access, Instruction, Listing, Operation, Register};
use crate::worklist::Search;

/// In this code, `CFA = base + disp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The code.
    pub code: Range<LinkAddr>,
    /// rsp or rbp; others are not looked at.
    pub base: Reg,
    /// Bytes.
    pub disp: i32,
}

impl Frame {
    /// Whether it is as the call has left it: a jump from there may be a tail call.
    fn is_at_entry(&self) -> bool {
        self.base == Reg::RSP && self.disp == 8
    }
}

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Bytes of instructions, by their first address, disjoint.
    pub code: &'a [(LinkAddr, &'a [u8])],
    /// By address, disjoint.
    pub frames: &'a [Frame],
    /// Procedures, or parts of some, by address, disjoint.
    pub procedures: &'a [Range<LinkAddr>],
    /// The procedure linkage table's stubs.
    pub stubs: &'a [Range<LinkAddr>],
    /// Words that will hold the addresses of other modules' procedures that read their own return addresses.
    pub slots: &'a [LinkAddr],
    /// Words that will hold the addresses of any other modules' procedures, ascending.
    pub known_slots: &'a [LinkAddr],
    /// Whether the program's own data hold such an address.
    pub is_any_taken: bool,
}

/// Procedures, by index, ascending.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReturnAddressUsers {
    /// They read their return address, or jump to a procedure that does.
    pub return_address_users: Vec<usize>,
    /// They may jump to a procedure that is not known.
    pub indirect_tail_callers: Vec<usize>,
}

/// Finds them.
pub fn find(input: &Input<'_>) -> ReturnAddressUsers {
    let mut uses_return_address = vec![false; input.procedures.len()];
    let mut is_indirect_tail_caller = uses_return_address.clone();
    let is_any_taken =
        input.is_any_taken || input.code.iter().any(|(start, bytes)| loads_any(bytes, *start, input.slots));
    let is_stub = |at: LinkAddr| input.stubs.iter().any(|stubs| stubs.contains(&at));
    for frame in input.frames.iter().filter(|frame| !is_stub(frame.code.start)) {
        let (Some(bytes), Some(index)) = (input.bytes(&frame.code), input.procedure_of(frame.code.start)) else {
            continue;
        };
        is_indirect_tail_caller[index] |=
            frame.is_at_entry() && goes_anywhere(bytes, frame.code.start, input.known_slots);
        uses_return_address[index] |= reads(bytes, frame) || is_any_taken && is_indirect_tail_caller[index];
    }
    let mut user_stubs = Vec::new();
    for &(start, bytes) in input.code {
        for (at, slot) in jumps_through(bytes, start, input.known_slots) {
            let is_of_user = input.slots.contains(&slot);
            match input.procedure_of(at).filter(|_| !is_stub(at)) {
                Some(index) => {
                    *(if is_of_user { &mut uses_return_address } else { &mut is_indirect_tail_caller })
                        .index_mut(index) = true
                }
                None if is_of_user => user_stubs.push(at),
                None => {}
            }
        }
    }
    for at in input.code.iter().flat_map(|(start, bytes)| popping_returns(bytes, *start)) {
        if let Some(index) = input.procedure_of(at).filter(|index| !uses_return_address[*index]) {
            uses_return_address[index] = input.begins_instruction(index, at);
        }
    }
    // `endbr64` and a prefix may stand before a stub's jump.
    const BEFORE_JUMP_BYTES: u64 = 5;
    let mut ways = Ways { last: vec![NO_WAY; input.procedures.len()], all: Vec::new() };
    for (from, target) in input.ways_out() {
        if is_stub(target) {
            let reads = user_stubs.iter().any(|at| at.0.wrapping_sub(target.0) <= BEFORE_JUMP_BYTES);
            *(if reads { &mut uses_return_address } else { &mut is_indirect_tail_caller }).index_mut(from) = true;
        } else if let Some(to) = input.procedure_of(target) {
            ways.push(from, to);
        }
    }
    let found = |is: Vec<bool>| {
        let is = ways.spread(is);
        (0..is.len()).filter(|index| is[*index]).collect()
    };
    ReturnAddressUsers {
        return_address_users: found(uses_return_address),
        indirect_tail_callers: found(is_indirect_tail_caller),
    }
}

/// Jumps from procedures to others: for each procedure, a list of those that jump to it.
struct Ways {
    /// The index in `all` of a procedure's last one, or [`NO_WAY`].
    last: Vec<u32>,
    /// From where, and the index of the one before.
    all: Vec<(u32, u32)>,
}

const NO_WAY: u32 = u32::MAX;

impl Ways {
    fn push(&mut self, from: usize, to: usize) {
        if let Some(last) = self.last.get_mut(to) {
            self.all.push((from as u32, *last));
            *last = (self.all.len() - 1) as u32;
        }
    }

    /// What is so of where a way leads to is so of where it comes from.
    fn spread(&self, is: Vec<bool>) -> Vec<bool> {
        let mut search = Search::new(vec![false; is.len()]);
        (0u32..).zip(is).filter(|(_, is)| *is).for_each(|(index, _)| search.add(index));
        while let Some(index) = search.next() {
            let mut way = self.last.get(index as usize).copied().unwrap_or(NO_WAY);
            while let Some(&(from, before)) = self.all.get(way as usize) {
                search.add(from);
                way = before;
            }
        }
        search.met
    }
}

impl Input<'_> {
    fn procedure_of(&self, addr: LinkAddr) -> Option<usize> {
        let index = self.procedures.partition_point(|procedure| procedure.end <= addr);
        self.procedures.get(index).filter(|procedure| procedure.contains(&addr)).map(|_| index)
    }

    /// Whether an instruction begins at `at`, if the procedure that holds it is decoded from its start.
    fn begins_instruction(&self, procedure: usize, at: LinkAddr) -> bool {
        let Some(bytes) = self.procedures.get(procedure).and_then(|code| self.bytes(&(code.start..at))) else {
            return false;
        };
        // One that goes on beyond `at`, or data, ends the list before.
        let mut listing = Listing::new(bytes, 0);
        listing.by_ref().for_each(drop);
        listing.is_at_end()
    }

    /// Jumps out of procedures: from which, and where to.
    fn ways_out(&self) -> impl Iterator<Item = (usize, LinkAddr)> {
        let mut from = 0;
        let all = self.code.iter().flat_map(|(start, bytes)| jumps(bytes, *start));
        all.filter_map(move |(at, target)| {
            // Most are in the same procedure as the one before.
            if !self.procedures.get(from)?.contains(&at) {
                from = self.procedures.partition_point(|procedure| procedure.end <= at).min(self.procedures.len() - 1);
            }
            let code = self.procedures.get(from)?;
            (code.contains(&at) && !code.contains(&target)).then_some((from, target))
        })
    }

    fn bytes(&self, range: &Range<LinkAddr>) -> Option<&[u8]> {
        let index = self.code.partition_point(|(start, _)| *start <= range.start).checked_sub(1)?;
        let (start, bytes) = self.code.get(index)?;
        let from = usize::try_from(range.start.0 - start.0).ok()?;
        let to = usize::try_from(range.end.0.checked_sub(start.0)?).ok()?.min(bytes.len());
        bytes.get(from..to)
    }
}

/// Whether an instruction in `bytes` reads of the word below the CFA, changes it, or takes its address.
fn reads(bytes: &[u8], frame: &Frame) -> bool {
    // It has taken the word off the stack, or keeps where it is.
    if frame.base == Reg::RSP && frame.disp < 8 || frame.is_at_entry() && copies_stack_pointer(bytes) {
        return true;
    }
    let Some(place) = frame.disp.checked_sub(8) else { return false };
    let Some(base) = Word::base_of(frame.base) else { return false };
    let word = Word { base, place: place.into() };
    let mut is_ambiguous = false;
    for modrm in word.operands(bytes) {
        for start in (1..=LONGEST_OPCODE_BYTES).filter_map(|len| modrm.checked_sub(len)) {
            if !bytes.get(start..).and_then(Instruction::decode).is_some_and(|it| word.is_read_by(&it)) {
                continue;
            }
            // Behind a prefix that makes it r12 or r13, unless that byte belongs to the instruction before.
            let has_prefix = start.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(|byte| byte & 0xf1 == 0x41);
            if !has_prefix {
                return true;
            }
            is_ambiguous = true;
        }
    }
    is_ambiguous && {
        let mut rest = bytes;
        let mut is_read = false;
        while !rest.is_empty() && !is_read {
            let instruction = Instruction::decode(rest);
            is_read = instruction.is_some_and(|it| word.is_read_by(&it));
            rest = rest.get(instruction.map_or(1, |it| it.len() as usize)..).unwrap_or(&[]);
        }
        is_read
    }
}

/// So many bytes stand before ModRM at most: prefixes and the opcode.
const LONGEST_OPCODE_BYTES: usize = 6;

/// Eight bytes on the stack.
#[derive(Clone, Copy)]
struct Word {
    /// rsp or rbp.
    base: Register,
    /// It is so many bytes above the base.
    place: i64,
}

impl Word {
    fn base_of(reg: Reg) -> Option<Register> {
        match reg {
            Reg::RSP => Some(Register::RSP),
            Reg::RBP => Some(Register::RBP),
            _ => None,
        }
    }

    /// Where ModRM seems to be of operands that lie in the word, or begin right below it.
    fn operands(self, bytes: &[u8]) -> impl Iterator<Item = usize> {
        let is_near = move |displacement: i64| (self.place - 8..self.place + 8).contains(&displacement);
        let displacement = move |modrm: u8, behind: &[u8]| match modrm & 0xc0 {
            0x00 => Some(0),
            0x40 => behind.first().map(|&byte| i64::from(byte as i8)),
            0x80 => behind.first_chunk().map(|bytes| i64::from(i32::from_le_bytes(*bytes))),
            _ => None,
        };
        let is_rsp = self.base == Register::RSP;
        // By the SIB byte that says rsp alone.
        let with_sib = memchr_iter(0x24, if is_rsp { bytes } else { &[] }).filter_map(move |sib| {
            let modrm = sib.checked_sub(1)?;
            let here = bytes[modrm];
            (here & 7 == 4 && displacement(here, &bytes[sib + 1..]).is_some_and(is_near)).then_some(modrm)
        });
        let without = if is_rsp { &[] } else { bytes };
        let without = without.windows(2).enumerate().filter_map(move |(at, pair)| {
            let is_operand = pair[0] & 0xc7 == 0x45 && is_near(i64::from(pair[1] as i8));
            is_operand.then_some(at)
        });
        with_sib.chain(without)
    }

    /// Whether an instruction reads of it, or takes its address.
    fn is_read_by(self, instruction: &Instruction) -> bool {
        let Some(memory) = instruction.memory().filter(|memory| memory.is_only(self.base)) else { return false };
        let bytes = match (instruction.operation(), instruction.memory_access()) {
            (Operation::LoadAddress, _) => 1,
            (_, Access::Read | Access::ReadWrite) => i64::from(memory.bytes),
            _ => return false,
        };
        memory.displacement < self.place + 8 && memory.displacement + bytes > self.place
    }
}

/// Whether an instruction seems to copy rsp to another register: `mov` in either form.
fn copies_stack_pointer(bytes: &[u8]) -> bool {
    memchr2_iter(0x89, 0x8b, bytes).any(|at| {
        let (Some(rex), Some(modrm)) = (at.checked_sub(1).and_then(|before| bytes.get(before)), bytes.get(at + 1))
        else {
            return false;
        };
        // The register that is not rsp may be any; that which is has no bit of the prefix.
        if bytes[at] == 0x89 {
            rex & 0xfe == 0x48 && modrm & 0xf8 == 0xe0
        } else {
            rex & 0xfb == 0x48 && modrm & 0xc7 == 0xc4
        }
    })
}

/// Whether an instruction in `bytes`, which begin at `start`, seems to load one of `slots` other than to call it: `mov`, `push`.
fn loads_any(bytes: &[u8], start: LinkAddr, slots: &[LinkAddr]) -> bool {
    !slots.is_empty()
        && memchr2_iter(0x8b, 0xff, bytes).any(|at| {
            let Some(&[modrm, a, b, c, d]) = bytes.get(at + 1..).and_then(|rest| rest.first_chunk()) else {
                return false;
            };
            let is_load = if bytes[at] == 0xff { modrm == 0x35 } else { modrm & 0xc7 == 0x05 };
            let next = start.0.wrapping_add(at as u64 + 6);
            is_load && slots.contains(&LinkAddr(next.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())))
        })
}

/// Whether a jump in `bytes`, which begin at `start`, seems to lead to what a register or a word of memory says, other than
/// one of `known_slots`: it may be any procedure.
fn goes_anywhere(bytes: &[u8], start: LinkAddr, known_slots: &[LinkAddr]) -> bool {
    memchr_iter(0xff, bytes).any(|at| match bytes[at + 1..] {
        // Relative to the next instruction.
        [0x25, a, b, c, d, ..] => {
            let next = start.0.wrapping_add(at as u64 + 6);
            let slot = LinkAddr(next.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into()));
            known_slots.binary_search(&slot).is_err()
        }
        [modrm, ..] => modrm >> 3 & 7 == 4,
        [] => false,
    })
}

/// Where returns seem to be that take words off the caller's stack: a few, eight bytes each. They leave rsp elsewhere.
fn popping_returns(bytes: &[u8], start: LinkAddr) -> impl Iterator<Item = LinkAddr> {
    memchr_iter(0xc2, bytes).filter_map(move |at| {
        let &[low, high] = bytes.get(at + 1..)?.first_chunk()?;
        (high == 0 && low > 0 && low.is_multiple_of(8)).then(|| LinkAddr(start.0.wrapping_add(at as u64)))
    })
}

/// Where jumps through one of `slots` (ascending) are, which lie at a distance from the next instruction, and which it is.
fn jumps_through(bytes: &[u8], start: LinkAddr, slots: &[LinkAddr]) -> Vec<(LinkAddr, LinkAddr)> {
    let jump = |at: usize| {
        let &[a, b, c, d] = bytes.get(at + 2..)?.first_chunk()?;
        let next = start.0.wrapping_add(at as u64 + 6);
        let slot = LinkAddr(next.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into()));
        slots.binary_search(&slot).is_ok().then(|| (LinkAddr(start.0.wrapping_add(at as u64)), slot))
    };
    find_iter(bytes, &[0xff, 0x25]).filter_map(jump).collect()
}

/// Where jumps with 32 bits of distance seem to be, conditional ones from their second byte on, and where they lead.
fn jumps(bytes: &[u8], start: LinkAddr) -> impl Iterator<Item = (LinkAddr, LinkAddr)> {
    memchr2_iter(0xe9, 0x0f, bytes).filter_map(move |at| {
        let opcode = if bytes[at] == 0x0f { at + 1 } else { at };
        let &[first, a, b, c, d] = bytes.get(opcode..)?.first_chunk()?;
        let is_jump = opcode == at || first & 0xf0 == 0x80;
        let at = start.0.wrapping_add(opcode as u64);
        let distance = i32::from_le_bytes([a, b, c, d]);
        is_jump.then(|| (LinkAddr(at), LinkAddr(at.wrapping_add(5).wrapping_add_signed(distance.into()))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;

    /// One procedure, in one frame.
    fn uses_return_address(bytes: &[u8], base: Reg, disp: i32) -> bool {
        let code = LinkAddr(AT)..LinkAddr(AT + bytes.len() as u64);
        let frames = [Frame { code: code.clone(), base, disp }];
        let input = Input {
            code: &[(LinkAddr(AT), bytes)],
            frames: &frames,
            procedures: &[code],
            stubs: &[],
            slots: &[],
            known_slots: &[],
            is_any_taken: false,
        };
        !find(&input).return_address_users.is_empty()
    }

    #[test]
    fn reads_of_the_return_address() {
        // As gas writes them; in comments what they are.
        let at_rsp: [(&[u8], i32); 9] = [
            (&[0x48, 0x8b, 0x04, 0x24], 8),                               // mov rax, [rsp]
            (&[0x4c, 0x8b, 0x7c, 0x24, 0x18], 0x20),                      // mov r15, [rsp + 0x18]
            (&[0x48, 0x8b, 0x94, 0x24, 0x88, 0x01, 0, 0], 0x190),         // mov rdx, [rsp + 0x188]
            (&[0x48, 0x8d, 0x44, 0x24, 0x08], 0x10),                      // lea rax, [rsp + 8]
            (&[0xff, 0x74, 0x24, 0x10], 0x18),                            // push [rsp + 0x10]
            (&[0x48, 0x39, 0x44, 0x24, 0x10], 0x18),                      // cmp [rsp + 0x10], rax
            (&[0xf3, 0x0f, 0x7e, 0x44, 0x24, 0x10], 0x18),                // movq xmm0, [rsp + 0x10]
            (&[0x0f, 0x16, 0x44, 0x24, 0x10], 0x18),                      // movhps xmm0, [rsp + 0x10]
            (&[0x66, 0x48, 0x0f, 0x3a, 0x22, 0x44, 0x24, 0x10, 1], 0x18), // pinsrq xmm0, [rsp + 0x10], 1
        ];
        for (bytes, disp) in at_rsp {
            let padded = [&[0x90][..], bytes, &[0xc3]].concat();
            assert!(uses_return_address(&padded, Reg::RSP, disp), "{bytes:x?}");
            assert!(!uses_return_address(&padded, Reg::RSP, disp + 8), "{bytes:x?}: its frame's lowest word");
            assert!(!uses_return_address(&padded, Reg::RBP, disp), "{bytes:x?}");
        }
        assert!(uses_return_address(&[0x48, 0x8b, 0x45, 0x08], Reg::RBP, 16)); // mov rax, [rbp + 8]
        assert!(uses_return_address(&[0x90, 0xc2, 0x10, 0], Reg::RSP, 8)); // ret 16
        let changes: [(&[u8], i32); 5] = [
            (&[0x48, 0x83, 0x04, 0x24, 0x08], 8),              // add qword ptr [rsp], 8
            (&[0x48, 0x81, 0x44, 0x24, 0x08, 0, 1, 0, 0], 16), // add qword ptr [rsp + 8], 256
            (&[0x48, 0x01, 0x44, 0x24, 0x08], 16),             // add [rsp + 8], rax
            (&[0x48, 0xff, 0x04, 0x24], 8),                    // inc qword ptr [rsp]
            (&[0xf0, 0x48, 0x0f, 0xc1, 0x04, 0x24], 8),        // lock xadd [rsp], rax
        ];
        for (bytes, disp) in changes {
            assert!(
                uses_return_address(bytes, Reg::RSP, disp) && !uses_return_address(bytes, Reg::RSP, disp + 8),
                "{bytes:x?}"
            );
        }
        assert!(uses_return_address(&[0x90], Reg::RSP, 0), "taken off the stack");
        for copy in [[0x48, 0x89, 0xe1], [0x49, 0x89, 0xe2], [0x48, 0x8b, 0xcc], [0x4c, 0x8b, 0xd4]] {
            assert!(
                uses_return_address(&copy, Reg::RSP, 8) && !uses_return_address(&copy, Reg::RSP, 16),
                "mov to another, rsp: {copy:x?}"
            );
        }
        assert!(!uses_return_address(&[0x48, 0x89, 0xcc], Reg::RSP, 8)); // mov rsp, rcx
        assert!(!uses_return_address(&[0x0f, 0xb6, 0xc2, 0x48, 0x89, 0xc7, 0xc3], Reg::RSP, 8)); // movzx eax, dl; mov rdi, rax; ret
        for other in [
            &[0x49, 0x8b, 0x45, 0x08][..],   // mov rax, [r13 + 8]
            &[0x48, 0x89, 0x45, 0x08],       // mov [rbp + 8], rax
            &[0x48, 0x8b, 0x44, 0x05, 0x08], // mov rax, [rbp + rax + 8]
        ] {
            assert!(!uses_return_address(other, Reg::RBP, 16), "{other:x?}");
        }
        assert!(!uses_return_address(&[0x4b, 0x8b, 0x04, 0x24], Reg::RSP, 8)); // mov rax, [r12 + r12]
        assert!(!uses_return_address(&[], Reg::RSP, 8) && !uses_return_address(&[0x24], Reg::RBP, i32::MIN));
    }

    #[test]
    fn jumps_to_nobody_knows_whom() {
        let uses_return_address = |jump: &[u8], base: Reg, disp: i32, is_any_taken: bool| {
            // It calls what the word at 0x4000 says, or loads that.
            let call: [u8; 7] = [0x90, 0xff, 0x15, 0xf9, 0x2f, 0, 0];
            let load = [0x48, 0x8b, 0x05, 0xf9, 0x2f, 0, 0];
            let bytes = [if is_any_taken { &call[..] } else { &load }, jump].concat();
            let procedures = [LinkAddr(AT)..LinkAddr(AT + 7), LinkAddr(AT + 7)..LinkAddr(AT + bytes.len() as u64)];
            let frames = [Frame { code: procedures[1].clone(), base, disp }];
            let input = Input {
                code: &[(LinkAddr(AT), &bytes)],
                frames: &frames,
                procedures: &procedures,
                stubs: &[],
                slots: &[LinkAddr(0x4000)],
                known_slots: &[LinkAddr(0x4000), LinkAddr(0x4010)],
                is_any_taken,
            };
            !find(&input).return_address_users.is_empty()
        };
        for jump in [
            &[0xff, 0xe0][..],               // jmp rax
            &[0x3e, 0x41, 0xff, 0xe3],       // notrack jmp r11
            &[0xff, 0x60, 0x10],             // jmp [rax + 16]
            &[0xff, 0x24, 0xc5, 0, 0, 0, 0], // jmp [rax * 8]
            &[0xff, 0x25, 0, 0x10, 0, 0],    // jmp [rip + 0x1000]
        ] {
            for taken in [false, true] {
                assert!(uses_return_address(jump, Reg::RSP, 8, taken), "{jump:x?}");
                // Not as it was at entry: no tail call.
                assert!(
                    !uses_return_address(jump, Reg::RSP, 0x200, taken)
                        && !uses_return_address(jump, Reg::RBP, 16, taken),
                    "{jump:x?}"
                );
            }
        }
        // call rax; inc eax; push [rax + 16]; jmp [0x4010]
        let others = [0xff, 0xd0, 0xff, 0xc0, 0xff, 0x70, 0x10, 0xff, 0x25, 0xfc, 0x2f, 0, 0];
        assert!(!uses_return_address(&others, Reg::RSP, 8, true));
        // Nobody's address is taken: it is called through the table alone.
        let input = |bytes: &'static [u8]| loads_any(bytes, LinkAddr(AT), &[LinkAddr(0x4000)]);
        assert!(input(&[0xff, 0x35, 0xfa, 0x2f, 0, 0]));
        assert!(!input(&[0xff, 0x15, 0xfa, 0x2f, 0, 0]) && !input(&[0xff, 0x25, 0xfa, 0x2f, 0, 0]));
    }

    #[test]
    fn jumps_to_a_user() {
        let jump = |opcode: &[u8], at: u64, to: u64| {
            let next = at + opcode.len() as u64 + 4;
            [opcode, &(to.wrapping_sub(next) as u32).to_le_bytes()].concat()
        };
        let slot = 0x4000;
        // A stub; who reads; who jumps there; who jumps to that one if; who jumps to the stub; who jumps through the slot
        // itself; who does nothing of that.
        let pieces: [(u64, Vec<u8>); 7] = [
            (0x1000, [vec![0xf3, 0x0f, 0x1e, 0xfa], jump(&[0xff, 0x25], 0x1004, slot)].concat()),
            (0x1010, vec![0x48, 0x8b, 0x04, 0x24, 0xc3]),
            (0x1020, jump(&[0xe9], 0x1020, 0x1010)),
            (0x1030, jump(&[0x0f, 0x84], 0x1030, 0x1020)),
            (0x1040, jump(&[0xe9], 0x1040, 0x1000)),
            (0x1050, jump(&[0xff, 0x25], 0x1050, slot)),
            (0x1060, jump(&[0xe9], 0x1060, 0x1060)),
        ];
        let mut bytes = vec![0x90; 0x70];
        for (at, piece) in &pieces {
            bytes[*at as usize - 0x1000..][..piece.len()].copy_from_slice(piece);
        }
        let procedures: Vec<_> = pieces.iter().map(|(at, _)| LinkAddr(*at)..LinkAddr(at + 0x10)).collect();
        let frame = |code: &Range<LinkAddr>| Frame { code: code.clone(), base: Reg::RSP, disp: 8 };
        let frames: Vec<_> = procedures.iter().map(frame).collect();
        let input = Input {
            code: &[(LinkAddr(0x1000), &bytes)],
            frames: &frames,
            procedures: &procedures,
            stubs: &procedures[..1],
            slots: &[LinkAddr(slot)],
            known_slots: &[LinkAddr(slot)],
            is_any_taken: false,
        };
        assert_eq!(
            find(&input),
            ReturnAddressUsers { return_address_users: vec![1, 2, 3, 4, 5], indirect_tail_callers: vec![] }
        );
        let found = find(&Input { slots: &[], ..input });
        assert_eq!(
            found,
            ReturnAddressUsers { return_address_users: vec![1, 2, 3], indirect_tail_callers: vec![4, 5] }
        );
    }
}
