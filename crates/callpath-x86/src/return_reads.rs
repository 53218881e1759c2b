//! Users of return addresses: procedures that read their own other than to return (`__builtin_return_address(0)`,
//! setjmp).
//!
//! Also procedures that jump to one, which then reads theirs; if the address of such a procedure is taken, procedures
//! that jump to an unknown procedure (indirect tail callers); and procedures that leave rsp elsewhere than directly
//! above it (`ret N`), or pop it. Jumps to procedures not known to read it are reported separately: to other modules'
//! procedures, and through pointers.
//!
//! Decoding all code would be most of the work where call frame information describes it. So bytes are searched for
//! operands at the slot that the frame's recipe gives, and only the instructions around these are decoded. A false
//! positive costs little: that return address is not marked. Where it costs more ([`Input::is_exact`]), instructions are
//! decoded one after the other, and what gets the return address's address is followed (`address.rs`). Reads by an index
//! from rsp or rbp, and through copies of them that are not that address, are missed.

mod address;

use std::ops::{IndexMut, Range};

use callpath_format::address::LinkAddr;
use callpath_format::register::Reg;

use crate::encoding::{
    LONGEST_BEFORE_JUMP_BYTES, LONGEST_OPCODE_BYTES, Relative, copies_stack_pointer, extends_base, indirect_jumps,
    jumps, jumps_beside_code, loads_beside_code, popping_returns, stack_operands,
};
use crate::instruction::{Access, Control, Instruction, Listing, Memory, Operation, Register};
use crate::worklist::Search;

use address::{Followed, Holder};

/// A range of code in which `CFA = base + disp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its addresses.
    pub code: Range<LinkAddr>,
    /// rsp or rbp; frames with another base are ignored.
    pub base: Reg,
    /// Bytes.
    pub disp: i32,
}

impl Frame {
    /// Whether the frame is as the call left it: a jump from there may be a tail call.
    fn is_at_entry(&self) -> bool {
        self.base == Reg::RSP && self.disp == 8
    }

    /// Where the return address is.
    fn return_address(&self) -> Option<Word> {
        Some(Word { base: Word::base_of(self.base)?, place: self.disp.checked_sub(8)?.into() })
    }
}

/// The code to search.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Bytes of instructions, with their first address; disjoint.
    pub code: &'a [(LinkAddr, &'a [u8])],
    /// By address, disjoint.
    pub frames: &'a [Frame],
    /// Procedures, or parts of some, by address, disjoint.
    pub procedures: &'a [Range<LinkAddr>],
    /// The procedure linkage table's stubs.
    pub stubs: &'a [Range<LinkAddr>],
    /// Words for the addresses of other modules' procedures that read their own return addresses.
    pub slots: &'a [LinkAddr],
    /// Words for the addresses of any procedures of other modules, ascending.
    pub known_slots: &'a [LinkAddr],
    /// Whether the program's own data have the address of a procedure that reads its return address.
    pub is_any_taken: bool,
    /// Indices of procedures, ascending, whose loads of their return address are no use, but reported
    /// ([`ReturnAddressUsers::loads`]).
    pub asking: &'a [usize],
    /// Instructions are decoded from where frames and procedures begin. Jumps to unknown procedures then count as jumps to
    /// users only if `is_any_taken`.
    pub is_exact: bool,
}

/// Indices of procedures, ascending.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReturnAddressUsers {
    /// Procedures that read their return address, or jump to a procedure that does.
    pub return_address_users: Vec<usize>,
    /// Procedures that may jump to an unknown procedure.
    pub indirect_tail_callers: Vec<usize>,
    /// By procedure, of [`Input::asking`]: all that it does with its return address, besides returning there.
    pub loads: Vec<(usize, Load)>,
}

/// The return address comes into a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The instruction behind the load.
    pub behind: LinkAddr,
    /// The register's number.
    pub register: u8,
}

/// Finds the users of return addresses.
pub fn find(input: &Input<'_>) -> ReturnAddressUsers {
    let mut uses_return_address = vec![false; input.procedures.len()];
    let mut is_indirect_tail_caller = uses_return_address.clone();
    let is_any_taken = input.is_any_taken
        || !input.is_exact && input.code.iter().any(|(at, bytes)| loads_any(bytes, *at, input.slots));
    let is_stub = |at: LinkAddr| input.stubs.iter().any(|stubs| stubs.contains(&at));
    let mut followed = Followed::of(input);
    let mut loads: Vec<(usize, Load)> = Vec::new();
    for frame in input.frames.iter().filter(|frame| !is_stub(frame.code.start)) {
        let (Some(bytes), Some(index)) = (input.bytes(&frame.code), input.procedure_of(frame.code.start)) else {
            continue;
        };
        is_indirect_tail_caller[index] |=
            frame.is_at_entry() && goes_anywhere(bytes, frame.code.start, input.known_slots);
        let reads = input.reads(bytes, frame, (index, &mut followed));
        match loads_of(frame, index, &mut followed).filter(|_| reads && input.asking.contains(&index)) {
            Some(found) => loads.extend(found.into_iter().map(|load| (index, load))),
            None => uses_return_address[index] |= reads,
        }
        uses_return_address[index] |= is_any_taken && is_indirect_tail_caller[index];
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
    let popping = input.code.iter().flat_map(|&(start, bytes)| popping_returns(bytes).map(move |at| behind(start, at)));
    for at in popping {
        if let Some(index) = input.procedure_of(at).filter(|index| !uses_return_address[*index]) {
            uses_return_address[index] = input.begins_instruction(index, at);
        }
    }
    let mut ways = Ways { last: vec![NO_WAY; input.procedures.len()], all: Vec::new() };
    let ways_out: Vec<_> = if input.is_exact { input.decoded_ways_out().collect() } else { input.ways_out().collect() };
    for (from, target) in ways_out {
        if is_stub(target) {
            let reads = user_stubs.iter().any(|at| at.0.wrapping_sub(target.0) <= LONGEST_BEFORE_JUMP_BYTES as u64);
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
        loads,
    }
}

/// Jumps between procedures: for each procedure, a list of those that jump to it.
struct Ways {
    /// The index in `all` of a procedure's last entry, or [`NO_WAY`].
    last: Vec<u32>,
    /// The jump's origin, and the index of the entry before.
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

    /// Spreads a property from the targets of jumps to their origins.
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

    /// Whether an instruction begins at `at`, if its procedure is decoded from the start.
    fn begins_instruction(&self, procedure: usize, at: LinkAddr) -> bool {
        let Some(bytes) = self.procedures.get(procedure).and_then(|code| self.bytes(&(code.start..at))) else {
            return false;
        };
        // An instruction that extends beyond `at`, or data, ends the list before.
        let mut listing = Listing::new(bytes, 0);
        listing.by_ref().for_each(drop);
        listing.is_at_end()
    }

    /// Jumps out of procedures: the procedure, and the target.
    fn ways_out(&self) -> impl Iterator<Item = (usize, LinkAddr)> {
        let mut from = 0;
        let all = self.code.iter().flat_map(|&(start, bytes)| jumps(bytes).map(move |jump| (start, jump)));
        all.filter_map(move |(start, jump)| {
            let (at, target) = (behind(start, jump.at), LinkAddr(jump.address(start.0)));
            // Most are in the same procedure as the one before.
            if !self.procedures.get(from)?.contains(&at) {
                from = self.procedures.partition_point(|procedure| procedure.end <= at).min(self.procedures.len() - 1);
            }
            let code = self.procedures.get(from)?;
            (code.contains(&at) && !code.contains(&target)).then_some((from, target))
        })
    }

    /// As [`Input::ways_out`], of instructions.
    fn decoded_ways_out(&self) -> impl Iterator<Item = (usize, LinkAddr)> {
        self.procedures.iter().enumerate().flat_map(|(from, code)| {
            let listing = Listing::new(self.bytes(code).unwrap_or(&[]), code.start.0);
            let targets = listing.filter_map(|(at, instruction)| {
                let is_direct = matches!(instruction.control(), Control::Jump | Control::Branch);
                is_direct.then(|| LinkAddr(instruction.target(at.wrapping_add(instruction.len().into()))))
            });
            targets.filter(|target| !code.contains(target)).map(move |target| (from, target))
        })
    }

    /// Whether the code of a frame, which belongs to the procedure of this index, reads its return address.
    fn reads(&self, bytes: &[u8], frame: &Frame, (procedure, followed): (usize, &mut Followed<'_, '_>)) -> bool {
        // The word was popped.
        if frame.base == Reg::RSP && frame.disp < 8 {
            return true;
        }
        if !self.is_exact {
            return frame.is_at_entry() && copies_stack_pointer(bytes) || reads(bytes, frame, false);
        }
        let Some(word) = frame.return_address() else { return false };
        let is_near = move |displacement| word.is_near(displacement);
        let copies = frame.is_at_entry() && copies_stack_pointer(bytes);
        let pushes = frame.is_at_entry() && bytes.contains(&PUSH_RSP);
        let seems = copies || pushes || stack_operands(bytes, word.base, is_near).next().is_some();
        seems && (reads(bytes, frame, true) || reads_copy(frame, procedure, followed))
    }

    /// Whether rbp is the frame's at an address.
    fn is_framed(&self, at: LinkAddr) -> bool {
        self.frame_at(at).is_some_and(|frame| frame.base == Reg::RBP)
    }

    fn frame_at(&self, at: LinkAddr) -> Option<&Frame> {
        let index = self.frames.partition_point(|frame| frame.code.end <= at);
        self.frames.get(index).filter(|frame| frame.code.contains(&at))
    }

    fn bytes(&self, range: &Range<LinkAddr>) -> Option<&[u8]> {
        let index = self.code.partition_point(|(start, _)| *start <= range.start).checked_sub(1)?;
        let (start, bytes) = self.code.get(index)?;
        let from = usize::try_from(range.start.0 - start.0).ok()?;
        let to = usize::try_from(range.end.0.checked_sub(start.0)?).ok()?.min(bytes.len());
        bytes.get(from..to)
    }
}

/// `push rsp`
const PUSH_RSP: u8 = 0x54;

/// Whether an instruction in `bytes` reads or changes any of the word below the CFA, or takes its address.
fn reads(bytes: &[u8], frame: &Frame, is_exact: bool) -> bool {
    let Some(word) = frame.return_address() else { return false };
    let mut is_ambiguous = false;
    for modrm in stack_operands(bytes, word.base, move |displacement| word.is_near(displacement)) {
        for start in (1..=LONGEST_OPCODE_BYTES).filter_map(|len| modrm.checked_sub(len)) {
            if !bytes.get(start..).and_then(Instruction::decode).is_some_and(|it| word.is_read_by(&it)) {
                continue;
            }
            // The prefix turns it into r12 or r13, unless that byte belongs to the instruction before.
            let has_prefix = start.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(|&byte| extends_base(byte));
            if !has_prefix && !is_exact {
                return true;
            }
            is_ambiguous = true;
        }
    }
    let has_switched = |it: &Instruction| is_exact && switches_stack(it, frame);
    let is_read = |it: &Instruction| word.is_read_by(it) && !(is_exact && word.is_address_in(it));
    is_ambiguous && decoded(bytes).take_while(|it| !has_switched(it)).any(|it| is_read(&it))
}

/// Whether the address of the return address comes into a register through which the procedure reads it, or from which
/// others may have it.
fn reads_copy(frame: &Frame, procedure: usize, followed: &mut Followed<'_, '_>) -> bool {
    let Some(word) = frame.return_address() else { return false };
    let instructions = followed.instructions(procedure).iter().enumerate();
    let in_frame = instructions.filter(|(_, (at, _))| frame.code.contains(&LinkAddr(*at)));
    let before_switch = in_frame.take_while(|(_, (_, it))| !switches_stack(it, frame));
    let held = before_switch.filter_map(|(index, (_, it))| Some((index, word.held_after(it)?)));
    let held: Vec<(usize, Holder)> = held.collect();
    held.into_iter().any(|(index, holder)| followed.is_read_through((procedure, index), holder))
}

/// The loads of the return address in a frame. `None`: it is read in another way, too.
fn loads_of(frame: &Frame, procedure: usize, followed: &mut Followed<'_, '_>) -> Option<Vec<Load>> {
    if frame.base == Reg::RSP && frame.disp < 8 || reads_copy(frame, procedure, followed) {
        return None;
    }
    let word = frame.return_address()?;
    let instructions = followed.instructions(procedure).iter().filter(|(at, _)| frame.code.contains(&LinkAddr(*at)));
    let before_switch = instructions.take_while(|(_, it)| !switches_stack(it, frame));
    let read = before_switch.filter(|(_, it)| word.is_read_by(it) && !word.is_address_in(it));
    read.map(|(at, it)| {
        let is_whole = it.memory().is_some_and(|memory| memory.displacement == word.place && memory.bytes == 8);
        let register = it.register(0).general64().filter(|_| it.operation() == Operation::Move && is_whole)?;
        Some(Load { behind: LinkAddr(at.wrapping_add(it.len().into())), register: register as u8 })
    })
    .collect()
}

/// Whether it switches to another stack, or lowers rsp by what is not known: behind that, a frame counted from rsp does not
/// say where the return address is.
fn switches_stack(instruction: &Instruction, frame: &Frame) -> bool {
    let rsp = Register::RSP;
    let is_moved = || !matches!(instruction.sum(rsp), Some((from, _)) if from == rsp);
    frame.base == Reg::RSP && instruction.writes().has_general(4) && is_moved()
}

/// The instructions in `bytes`, one behind the other; where there is none, from the next byte on.
fn decoded(bytes: &[u8]) -> impl Iterator<Item = Instruction> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let instruction = Instruction::decode(rest);
            rest = rest.get(instruction.map_or(1, |it| it.len() as usize)..).unwrap_or(&[]);
            if instruction.is_some() {
                return instruction;
            }
        }
        None
    })
}

/// Eight bytes on the stack.
#[derive(Clone, Copy)]
struct Word {
    /// rsp or rbp.
    base: Register,
    /// Its distance above the base, bytes.
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

    /// Whether an operand there is inside the word, or begins directly below it.
    fn is_near(self, displacement: i64) -> bool {
        (self.place - 8..self.place + 8).contains(&displacement)
    }

    /// Whether an instruction does no more than write its address to a register.
    fn is_address_in(self, instruction: &Instruction) -> bool {
        let is_its = |memory: Memory| memory.is_only(self.base) && memory.displacement == self.place;
        instruction.operation() == Operation::LoadAddress && instruction.memory().is_some_and(is_its)
    }

    /// What holds its address behind an instruction that computes it from the base.
    fn held_after(self, instruction: &Instruction) -> Option<Holder> {
        if instruction.operation() == Operation::Push && instruction.register(0) == Register::RSP && self.place == 0 {
            return Some(Holder::pushed());
        }
        let to = instruction.register(0);
        let (from, constant) = instruction.sum(to).filter(|_| to != Register::RSP)?;
        (from == self.base && to != self.base && constant == self.place).then(|| Holder::register(to))
    }

    /// Whether an instruction reads any of it, or takes its address.
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

/// Whether an instruction in `bytes`, which begin at `start`, seems to load one of `slots` other than to call it:
/// `mov`, `push`.
fn loads_any(bytes: &[u8], start: LinkAddr, slots: &[LinkAddr]) -> bool {
    let is_slot = |load: Relative| slots.contains(&LinkAddr(load.address(start.0)));
    !slots.is_empty() && loads_beside_code(bytes).any(is_slot)
}

/// Whether a jump in `bytes`, which begin at `start`, seems to be indirect, other than through one of `known_slots`:
/// its target may be any procedure.
fn goes_anywhere(bytes: &[u8], start: LinkAddr, known_slots: &[LinkAddr]) -> bool {
    let is_known = |slot: Relative| known_slots.binary_search(&LinkAddr(slot.address(start.0))).is_ok();
    indirect_jumps(bytes).any(|slot| !slot.is_some_and(is_known))
}

/// The addresses of jumps through one of `slots` (ascending), given by a distance from the next instruction, and the
/// slots.
fn jumps_through(bytes: &[u8], start: LinkAddr, slots: &[LinkAddr]) -> Vec<(LinkAddr, LinkAddr)> {
    let jumps = jumps_beside_code(bytes).map(|jump| (behind(start, jump.at), LinkAddr(jump.address(start.0))));
    jumps.filter(|(_, slot)| slots.binary_search(slot).is_ok()).collect()
}

/// The address of an offset in bytes that begin at `start`.
fn behind(start: LinkAddr, offset: usize) -> LinkAddr {
    LinkAddr(start.0.wrapping_add(offset as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;

    /// One procedure, in one frame, by a search. What the search does not find, decoding does not find.
    fn uses_return_address(bytes: &[u8], base: Reg, disp: i32) -> bool {
        let (seems, is_exact) = (uses(bytes, base, disp, false), uses(bytes, base, disp, true));
        assert!(seems || !is_exact, "{bytes:x?}");
        seems
    }

    fn uses(bytes: &[u8], base: Reg, disp: i32, is_exact: bool) -> bool {
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
            asking: &[],
            is_exact,
        };
        !find(&input).return_address_users.is_empty()
    }

    #[test]
    fn reads_of_the_return_address() {
        // As gas writes them.
        let at_rsp: [(&[u8], i32); 8] = [
            (&[0x48, 0x8b, 0x04, 0x24], 8),                               // mov rax, [rsp]
            (&[0x4c, 0x8b, 0x7c, 0x24, 0x18], 0x20),                      // mov r15, [rsp + 0x18]
            (&[0x48, 0x8b, 0x94, 0x24, 0x88, 0x01, 0, 0], 0x190),         // mov rdx, [rsp + 0x188]
            (&[0xff, 0x74, 0x24, 0x10], 0x18),                            // push [rsp + 0x10]
            (&[0x48, 0x39, 0x44, 0x24, 0x10], 0x18),                      // cmp [rsp + 0x10], rax
            (&[0xf3, 0x0f, 0x7e, 0x44, 0x24, 0x10], 0x18),                // movq xmm0, [rsp + 0x10]
            (&[0x0f, 0x16, 0x44, 0x24, 0x10], 0x18),                      // movhps xmm0, [rsp + 0x10]
            (&[0x66, 0x48, 0x0f, 0x3a, 0x22, 0x44, 0x24, 0x10, 1], 0x18), // pinsrq xmm0, [rsp + 0x10], 1
        ];
        for (bytes, disp) in at_rsp {
            let padded = [&[0x90][..], bytes, &[0xc3]].concat();
            assert!(uses_return_address(&padded, Reg::RSP, disp), "{bytes:x?}");
            assert!(uses(&padded, Reg::RSP, disp, true), "{bytes:x?}");
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
        // mov rcx, rsp; mov rax, [rcx]. The same, [rcx + 8]: that is not the return address.
        assert!(uses(&[0x48, 0x89, 0xe1, 0x48, 0x8b, 0x01], Reg::RSP, 8, true));
        assert!(!uses(&[0x48, 0x89, 0xe1, 0x48, 0x8b, 0x41, 0x08], Reg::RSP, 8, true));
        // mov rcx, rsp; mov rcx, rdi; mov rax, [rcx]: of something else. mov rcx, rsp; mov rdx, rcx; mov rax, [rdx].
        assert!(!uses(&[0x48, 0x89, 0xe1, 0x48, 0x89, 0xf9, 0x48, 0x8b, 0x01], Reg::RSP, 8, true));
        assert!(uses(&[0x48, 0x89, 0xe1, 0x48, 0x89, 0xca, 0x48, 0x8b, 0x02], Reg::RSP, 8, true));
        // mov rcx, rsp; jmp +3; mov rcx, rdi; mov rax, [rcx]: the jump passes what would change rcx.
        let passes = [0x48, 0x89, 0xe1, 0xeb, 3, 0x48, 0x89, 0xf9, 0x48, 0x8b, 0x01];
        assert!(uses(&passes, Reg::RSP, 8, true));
        // lea rax, [rsp + 8]: the address of the return address, and no more; then mov r15, [rax - 8]; then mov rcx, [rax].
        let address = [0x48, 0x8d, 0x44, 0x24, 0x08];
        assert!(uses(&address, Reg::RSP, 16, false) && !uses(&address, Reg::RSP, 16, true));
        assert!(!uses(&[&address[..], &[0x4c, 0x8b, 0x78, 0xf8]].concat(), Reg::RSP, 16, true));
        assert!(uses(&[&address[..], &[0x48, 0x8b, 0x08]].concat(), Reg::RSP, 16, true));
        // lea rax, [rsp + 0xc] is the address of a part of it.
        assert!(uses(&[0x48, 0x8d, 0x44, 0x24, 0x0c], Reg::RSP, 16, true));
        // lea rsp, [rsp + 0x28]; ret: the frame is left.
        assert!(!uses(&[0x48, 0x8d, 0x64, 0x24, 0x28, 0xc3], Reg::RSP, 0x30, true));
        // lea rdi, [rsp + 8]; call: the callee may read it. lea rax, [rsp + 8]; call: that is no argument.
        let call = [0xe8, 0, 1, 0, 0];
        assert!(uses(&[&[0x48, 0x8d, 0x7c, 0x24, 0x08][..], &call].concat(), Reg::RSP, 16, true));
        assert!(!uses(&[&address[..], &call].concat(), Reg::RSP, 16, true));
        // mov rsp, rbx; mov rdi, [rsp]: on another stack.
        let switches = [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24];
        assert!(uses(&switches, Reg::RSP, 8, false) && !uses(&switches, Reg::RSP, 8, true));
        // mov eax, [rcx + 0x24048b48]: a search finds mov rax, [rsp] in it.
        let inside = [0x8b, 0x81, 0x48, 0x8b, 0x04, 0x24];
        assert!(uses(&inside, Reg::RSP, 8, false) && !uses(&inside, Reg::RSP, 8, true));
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
    fn ways_to_the_return_address_that_are_no_plain_read() {
        const MOV_RBX_RSP: &[u8] = &[0x48, 0x89, 0xe3];
        const MOV_RAX_RSP: &[u8] = &[0x48, 0x89, 0xe0];
        const READ_RBX: &[u8] = &[0x48, 0x8b, 0x0b]; // mov rcx, [rbx]
        const READ_RCX: &[u8] = &[0x48, 0x8b, 0x11]; // mov rdx, [rcx]
        const CALL: &[u8] = &[0xe8, 0, 1, 0, 0];
        const RET: &[u8] = &[0xc3];
        let at_entry = |pieces: &[&[u8]]| uses(&pieces.concat(), Reg::RSP, 8, true);
        let looks: [(&str, &[&[u8]]); 25] = [
            // In another block, behind calls, branches and a table's jump.
            ("test edi, edi; je +1; ret; mov rcx, [rbx]", &[MOV_RBX_RSP, &[0x85, 0xff, 0x74, 1], RET, READ_RBX, RET]),
            ("call; mov rcx, [rbx]", &[MOV_RBX_RSP, CALL, READ_RBX, RET]),
            ("jmp rdx; mov rcx, [rbx]", &[MOV_RBX_RSP, &[0xff, 0xe2], READ_RBX, RET]),
            ("jmp back, before the copy", &[&[0xeb, 4], READ_RBX, RET, MOV_RBX_RSP, &[0xeb, 0xf7]]),
            // Through memory.
            (
                "mov [rsp - 8], rbx; mov rcx, [rsp - 8]; mov rdx, [rcx]",
                &[MOV_RBX_RSP, &[0x48, 0x89, 0x5c, 0x24, 0xf8], &[0x48, 0x8b, 0x4c, 0x24, 0xf8], READ_RCX],
            ),
            (
                "sub rsp, 32; mov [rsp + 16], rbx; push rdi; mov rcx, [rsp + 24]; mov rdx, [rcx]",
                &[
                    MOV_RBX_RSP,
                    &[0x48, 0x83, 0xec, 32],
                    &[0x48, 0x89, 0x5c, 0x24, 16],
                    &[0x57],
                    &[0x48, 0x8b, 0x4c, 0x24, 24],
                    READ_RCX,
                ],
            ),
            ("push rbx; pop rcx; mov rdx, [rcx]", &[MOV_RBX_RSP, &[0x53, 0x59], READ_RCX]),
            ("push rsp; pop rcx; mov rdx, [rcx]", &[&[0x54, 0x59], READ_RCX]),
            (
                "push rbx; push [rsp]; pop rcx; mov rdx, [rcx]",
                &[MOV_RBX_RSP, &[0x53, 0xff, 0x34, 0x24, 0x59], READ_RCX],
            ),
            ("push rbx; lea rdi, [rsp]; call", &[MOV_RBX_RSP, &[0x53, 0x48, 0x8d, 0x3c, 0x24], CALL]),
            (
                "push rbx; and rsp, -64: where it lies then is not known",
                &[MOV_RBX_RSP, &[0x53, 0x48, 0x83, 0xe4, 0xc0]],
            ),
            ("mov [rdi], rbx", &[MOV_RBX_RSP, &[0x48, 0x89, 0x1f]]),
            ("mov [rip + 16], rbx", &[MOV_RBX_RSP, &[0x48, 0x89, 0x1d, 16, 0, 0, 0]]),
            ("mov [rsp + rdi*8], rbx", &[MOV_RBX_RSP, &[0x48, 0x89, 0x1c, 0xfc]]),
            ("mov [rbp - 8], rbx: rbp is anything", &[MOV_RBX_RSP, &[0x48, 0x89, 0x5d, 0xf8]]),
            // After an addition.
            ("add rbx, 8; mov rcx, [rbx - 8]", &[MOV_RBX_RSP, &[0x48, 0x83, 0xc3, 8], &[0x48, 0x8b, 0x4b, 0xf8]]),
            (
                "lea rcx, [rbx - 16]; sub rcx, -16; mov rdx, [rcx]",
                &[MOV_RBX_RSP, &[0x48, 0x8d, 0x4b, 0xf0], &[0x48, 0x83, 0xe9, 0xf0], READ_RCX],
            ),
            ("sub rbx, rdi", &[MOV_RBX_RSP, &[0x48, 0x29, 0xfb]]),
            ("mov rcx, [rbx + rdi*8]", &[MOV_RBX_RSP, &[0x48, 0x8b, 0x0c, 0xfb]]),
            ("mov rcx, [rdi + rbx]", &[MOV_RBX_RSP, &[0x48, 0x8b, 0x0c, 0x1f]]),
            // By others.
            ("xchg rbx, rdi", &[MOV_RBX_RSP, &[0x48, 0x87, 0xdf]]),
            ("movq xmm0, rbx", &[MOV_RBX_RSP, &[0x66, 0x48, 0x0f, 0x6e, 0xc3]]),
            ("mov rdi, rbx; jmp elsewhere", &[MOV_RBX_RSP, &[0x48, 0x89, 0xdf, 0xe9, 0, 1, 0, 0]]),
            ("mov rdi, rbx; jmp rax", &[MOV_RBX_RSP, &[0x48, 0x89, 0xdf, 0xff, 0xe0]]),
            ("mov rsi, rbx; syscall", &[MOV_RBX_RSP, &[0x48, 0x89, 0xde, 0x0f, 0x05]]),
        ];
        for (text, pieces) in looks {
            assert!(at_entry(pieces), "{text}");
        }
        // A part of the procedure that lies elsewhere: je out of it.
        assert!(at_entry(&[MOV_RBX_RSP, &[0x0f, 0x84, 0, 1, 0, 0], RET]));
        // mov rsp, rbx; pop rcx: the frame is left, then the return address taken. With ret instead.
        assert!(
            at_entry(&[MOV_RBX_RSP, &[0x48, 0x89, 0xdc, 0x59]]) && !at_entry(&[MOV_RBX_RSP, &[0x48, 0x89, 0xdc], RET])
        );
        // As OpenSSL's assembly keeps its caller's stack pointer: mov rax, rsp; push rbx; sub rsp, 256; and rsp, -64; mov
        // [rsp + 152], rax; call; mov rsi, [rsp + 152]; mov rbx, [rsi - 8]; lea rsp, [rsi]; ret.
        let keeps = [
            MOV_RAX_RSP,
            &[0x53, 0x48, 0x81, 0xec, 0, 1, 0, 0, 0x48, 0x83, 0xe4, 0xc0],
            &[0x48, 0x89, 0x84, 0x24, 152, 0, 0, 0],
            CALL,
            &[0x48, 0x8b, 0xb4, 0x24, 152, 0, 0, 0],
            &[0x48, 0x8b, 0x5e, 0xf8],
            &[0x48, 0x8d, 0x26],
            RET,
        ];
        assert!(!at_entry(&keeps));
        // The same with [rsi]; with a call in between that may get it.
        let with = |at: usize, piece: &'static [u8]| {
            let mut pieces = keeps.to_vec();
            pieces.insert(at, piece);
            at_entry(&pieces)
        };
        assert!(with(5, &[0x48, 0x8b, 0x1e]) && with(5, CALL));
        // What is compared, overwritten, or lost by a call is not followed.
        assert!(!at_entry(&[MOV_RBX_RSP, &[0x48, 0x39, 0xfb], RET]));
        assert!(!at_entry(&[MOV_RAX_RSP, &[0x31, 0xc0], &[0x48, 0x8b, 0x00]]));
        assert!(!at_entry(&[MOV_RAX_RSP, CALL, &[0x48, 0x8b, 0x00]]));
    }

    /// The second procedure that the code of the first jumps to is a part of it.
    #[test]
    fn what_lies_elsewhere_is_followed() {
        let looks = |first: &[&[u8]], elsewhere: &[u8]| {
            let mut bytes = first.concat();
            bytes.resize(0x100, 0xcc);
            bytes.extend(elsewhere);
            let procedures =
                [LinkAddr(AT)..LinkAddr(AT + 0x100), LinkAddr(AT + 0x100)..LinkAddr(AT + bytes.len() as u64)];
            let frames = [Frame { code: procedures[0].clone(), base: Reg::RSP, disp: 8 }];
            let input = Input {
                code: &[(LinkAddr(AT), &bytes)],
                frames: &frames,
                procedures: &procedures,
                stubs: &[],
                slots: &[],
                known_slots: &[],
                is_any_taken: false,
                asking: &[],
                is_exact: true,
            };
            !find(&input).return_address_users.is_empty()
        };
        const MOV_RAX_RSP: &[u8] = &[0x48, 0x89, 0xe0];
        const JUMP: &[u8] = &[0xe9, 0xf8, 0, 0, 0];
        // mov rcx, [rax]; mov rcx, [rax - 8]; xor eax, eax; mov rdi, rax; call.
        assert!(looks(&[MOV_RAX_RSP, JUMP], &[0x48, 0x8b, 0x08, 0xc3]));
        assert!(!looks(&[MOV_RAX_RSP, JUMP], &[0x48, 0x8b, 0x48, 0xf8, 0xc3]));
        assert!(!looks(&[MOV_RAX_RSP, JUMP], &[0x31, 0xc0, 0x48, 0x8b, 0x08, 0xc3]));
        assert!(looks(&[MOV_RAX_RSP, JUMP], &[0x48, 0x89, 0xc7, 0xe8, 0, 1, 0, 0, 0xc3]));
        // And back: je elsewhere; mov rcx, [rax], with what is kept there.
        assert!(looks(
            &[MOV_RAX_RSP, &[0x0f, 0x84, 0xf7, 0, 0, 0, 0x31, 0xc0, 0x48, 0x8b, 0x08]],
            &[0xe9, 6, 0xff, 0xff, 0xff]
        ));
        // mov rax, rsp; push rax, in a loop that lowers rsp: not followed for ever.
        assert!(!looks(&[MOV_RAX_RSP, &[0x50, 0x48, 0x83, 0xec, 0x40, 0x75, 0xfa, 0xc3]], &[]));
        assert!(looks(&[MOV_RAX_RSP, &[0x50, 0x48, 0x83, 0xec, 0x40, 0x75, 0xfa, 0x48, 0x8b, 0x08]], &[]));
    }

    /// sub rsp, rdi, in a frame of which call frame information says that rsp stays where it was.
    #[test]
    fn frames_whose_stack_pointer_moves_are_not_believed() {
        let lowered = [0x48, 0x29, 0xfc, 0x48, 0x8b, 0x44, 0x24, 0x78];
        assert!(uses(&lowered, Reg::RSP, 128, false) && !uses(&lowered, Reg::RSP, 128, true));
        assert!(uses(&lowered[3..], Reg::RSP, 128, true));
    }

    #[test]
    fn loads_by_those_who_ask() {
        let loads = |bytes: &[u8], disp: i32| {
            let code = LinkAddr(AT)..LinkAddr(AT + bytes.len() as u64);
            let input = Input {
                code: &[(LinkAddr(AT), bytes)],
                frames: &[Frame { code: code.clone(), base: Reg::RSP, disp }],
                procedures: &[code],
                stubs: &[],
                slots: &[],
                known_slots: &[],
                is_any_taken: false,
                asking: &[0],
                is_exact: true,
            };
            let found = find(&input);
            found.return_address_users.is_empty().then_some(found.loads)
        };
        let load = |behind: u64, register: u8| (0, Load { behind: LinkAddr(AT + behind), register });
        // mov rdx, [rsp + 0x48]; nop; mov r8, [rsp + 0x48]
        let twice = [0x48, 0x8b, 0x54, 0x24, 0x48, 0x90, 0x4c, 0x8b, 0x44, 0x24, 0x48];
        assert_eq!(loads(&twice, 0x50), Some(vec![load(5, 2), load(11, 8)]));
        assert_eq!(loads(&twice, 0x60), Some(vec![]));
        // mov edx, [rsp + 0x48]; push [rsp]; cmp [rsp], rax; lea rdi, [rsp]; call: in other ways.
        let other: [&[u8]; 4] = [
            &[0x8b, 0x54, 0x24, 0x48],
            &[0xff, 0x74, 0x24, 0x48],
            &[0x48, 0x39, 0x44, 0x24, 0x48],
            &[0x48, 0x8d, 0x7c, 0x24, 0x48, 0xe8, 0, 1, 0, 0],
        ];
        for bytes in other {
            assert_eq!(loads(bytes, 0x50), None, "{bytes:x?}");
        }
    }

    #[test]
    fn jumps_to_nobody_knows_whom() {
        let uses_return_address = |jump: &[u8], base: Reg, disp: i32, is_any_taken: bool| {
            // It calls through the word at 0x4000, or loads it.
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
                asking: &[],
                is_exact: false,
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
                // rsp is not as at entry: not a tail call.
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
        // Its address is not taken: it is called through the table alone.
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
        // A stub; a procedure that reads; one that jumps to it; one that jumps to the latter conditionally; one that
        // jumps to the stub; one that jumps through the slot itself; one that does none of these.
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
            asking: &[],
            is_exact: false,
        };
        assert_eq!(find(&input), find(&Input { is_exact: true, ..input }));
        assert_eq!(
            find(&input),
            ReturnAddressUsers {
                return_address_users: vec![1, 2, 3, 4, 5],
                indirect_tail_callers: vec![],
                loads: vec![]
            }
        );
        let found = find(&Input { slots: &[], ..input });
        assert_eq!(
            found,
            ReturnAddressUsers {
                return_address_users: vec![1, 2, 3],
                indirect_tail_callers: vec![4, 5],
                loads: vec![]
            }
        );
    }
}
