//! Which system call code makes: what its register rax holds at a `syscall` instruction.
//!
//! Backward from there along reaching definitions, as long as each is a copy of a register or a constant. A wrapper such as `syscall(2)`
//! gets the number as an argument: then the register is named, and the same question can be asked of the wrapper's caller.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::encoding::SYSCALL;
use crate::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, ProcedureGraph};
use crate::input::CodeInput;
use crate::instruction::{Instruction, Operation};
use crate::reaching::{Definition, ReachingDefinitions};

/// Longer procedures are not looked at, bytes.
const LONGEST_PROCEDURE_BYTES: usize = 1 << 16;
/// Copies that are followed one behind the other.
const MOST_COPIES: usize = 4;
const RAX: usize = 0;

/// Where the value of a register comes from, on all ways that lead to a place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// It is this number; the lower 32 bits.
    Constant(u32),
    /// The procedure's caller has put it into this register, by its number in the processor's order.
    Caller(u8),
    /// It differs, or is computed.
    Unknown,
}

/// Where the number of the system call comes from that a frame interrupted at `pc` was in; `None` if it was in none. `code` is its
/// procedure's, from `start` on.
///
/// The kernel delivers a signal at the end of a system call: the pc lies behind the instruction, or at it, if the call is begun again
/// after the signal.
pub fn system_call(code: &[u8], start: LinkAddr, pc: LinkAddr) -> Option<Origin> {
    let ends = SYSCALL.len() as u64;
    let is_at = |at: u64| {
        let offset = usize::try_from(at.checked_sub(start.0)?).ok()?;
        (code.get(offset..offset.checked_add(SYSCALL.len())?)? == SYSCALL).then_some(LinkAddr(at))
    };
    let at = pc.0.checked_sub(ends).and_then(is_at).or_else(|| is_at(pc.0))?;
    with_procedure(code, start, |procedure| {
        let instruction = procedure.instruction_at(at)?;
        // Else they are the last bytes of another one.
        let is_it = instruction.0 == at && instruction.1.operation() == Operation::SystemCall;
        is_it.then(|| procedure.origin(RAX, at, 0))
    })
}

/// Where the value comes from that a register (by its number in the processor's order) has at the call whose look-up address is
/// `call`. `code` is the calling procedure's, from `start` on.
pub fn argument(code: &[u8], start: LinkAddr, call: LinkAddr, register: u8) -> Origin {
    let found = with_procedure(code, start, |procedure| {
        let (at, instruction) = procedure.instruction_at(call)?;
        (instruction.operation() == Operation::Call).then(|| procedure.origin(usize::from(register), at, 0))
    });
    found.unwrap_or(Origin::Unknown)
}

/// A procedure's code and graph.
struct Procedure<'f, 'c> {
    flow: &'f ModuleFlow<'c>,
    graph: &'f ProcedureGraph,
}

fn with_procedure<T>(code: &[u8], start: LinkAddr, ask: impl FnOnce(&Procedure<'_, '_>) -> Option<T>) -> Option<T> {
    let end = LinkAddr(start.0.checked_add(code.len() as u64)?);
    if code.len() > LONGEST_PROCEDURE_BYTES {
        return None;
    }
    let slices = [(start, code)];
    let (fragments, starts) = ([Fragment { code: start..end, kind: FragmentKind::Entry }], [start]);
    let input = CodeInput { code: &slices, starts: &starts, ..CodeInput::default() };
    let flow = ModuleFlow::new(&GraphInput { code: input, fragments: &fragments, landing_pads: &[] });
    let graph = flow.graph(flow.procedure_at(start)?);
    ask(&Procedure { flow: &flow, graph: &graph })
}

impl Procedure<'_, '_> {
    /// The instruction that holds an address, and where it begins.
    fn instruction_at(&self, addr: LinkAddr) -> Option<(LinkAddr, Instruction)> {
        let block = self.graph.blocks.get(self.graph.block_at(addr)? as usize)?;
        let until: Range<LinkAddr> = block.code.start..LinkAddr(addr.0.checked_add(1)?);
        let last = self.flow.instructions(&until).pop()?;
        (addr.0 - last.0.0 < u64::from(last.1.len())).then_some(last)
    }

    /// Where a register's value before the instruction at `at` comes from, behind so many copies.
    fn origin(&self, register: usize, at: LinkAddr, copies: usize) -> Origin {
        let definitions = ReachingDefinitions::of(self.flow, self.graph, register).at(self.flow, at);
        let mut origins = definitions.into_iter().map(|definition| match definition {
            Definition::Entry => Origin::Caller(register as u8),
            Definition::At(at) => self.defined(register, at, copies),
        });
        let Some(first) = origins.next() else { return Origin::Unknown };
        if origins.all(|other| other == first) { first } else { Origin::Unknown }
    }

    /// What the instruction at `at` gives a register.
    fn defined(&self, register: usize, at: LinkAddr, copies: usize) -> Origin {
        let Some((_, instruction)) = self.instruction_at(at).filter(|(start, _)| *start == at) else {
            return Origin::Unknown;
        };
        let target = instruction.register(0);
        if target.general() != Some(register) || !instruction.replaces().has_general(register) {
            return Origin::Unknown;
        }
        if instruction.is_clearing() {
            return Origin::Constant(0);
        }
        if instruction.operation() != Operation::Move {
            return Origin::Unknown;
        }
        if let Some(number) = instruction.immediate() {
            return Origin::Constant(number as u32);
        }
        let source = instruction.register(1);
        match source.general() {
            // Of both widths the lower half is the number.
            Some(from) if source.general_bytes() >= 4 && copies < MOST_COPIES => self.origin(from, at, copies + 1),
            _ => Origin::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: LinkAddr = LinkAddr(0x1000);

    fn at(code: &[&[u8]], offset: u64) -> Option<Origin> {
        system_call(&code.concat(), START, LinkAddr(START.0 + offset))
    }

    #[test]
    fn the_number_before_the_instruction() {
        // glibc's getdents64
        let code: &[&[u8]] = &[
            b"\xf3\x0f\x1e\xfa",         // 0: endbr64
            b"\xb8\xd9\x00\x00\x00",     // 4: mov eax, 217
            b"\x0f\x05",                 // 9: syscall
            b"\x48\x3d\x00\xf0\xff\xff", // b: cmp rax, -4096
            b"\xc3",                     // 11: ret
        ];
        assert_eq!(at(code, 0xb), Some(Origin::Constant(217)));
        // To be begun again.
        assert_eq!(at(code, 9), Some(Origin::Constant(217)));
        for elsewhere in [0, 4, 8, 0xa, 0xc, 0x11, 0x12, u64::MAX - START.0] {
            assert_eq!(at(code, elsewhere), None, "{elsewhere:#x}");
        }
        // xor eax, eax; syscall: read; mov rax, 231; syscall: exit_group
        assert_eq!(at(&[b"\x31\xc0", b"\x0f\x05", b"\xc3"], 4), Some(Origin::Constant(0)));
        assert_eq!(at(&[b"\x48\xc7\xc0\xe7\0\0\0", b"\x0f\x05", b"\xc3"], 9), Some(Origin::Constant(231)));
    }

    #[test]
    fn a_number_that_the_caller_gives() {
        // glibc's syscall
        let wrapper: &[&[u8]] =
            &[b"\x48\x89\xf8", b"\x48\x89\xf7", b"\x48\x89\xd6", b"\x0f\x05", b"\x48\x3d\x01\xf0\xff\xff", b"\xc3"];
        assert_eq!(at(wrapper, 0xb), Some(Origin::Caller(7)));
        let caller: &[&[u8]] = &[
            b"\x31\xff",             // 0: xor edi, edi
            b"\xbf\xca\x00\x00\x00", // 2: mov edi, 202
            b"\xe8\x00\x01\x00\x00", // 7: call
            b"\xe8\x00\x01\x00\x00", // c: call
            b"\xc3",
        ];
        let of = |offset: u64, register| argument(&caller.concat(), START, LinkAddr(START.0 + offset), register);
        assert_eq!(of(0xb, 7), Origin::Constant(202));
        // The first call may have changed it.
        assert_eq!(of(0x10, 7), Origin::Unknown);
        assert_eq!(of(0xb, 6), Origin::Caller(6));
        assert_eq!(of(0xb, 3), Origin::Caller(3));
        // No call.
        assert_eq!(of(6, 7), Origin::Unknown);
    }

    #[test]
    fn a_number_that_depends() {
        let code: &[&[u8]] = &[
            b"\x85\xff",             // 0: test edi, edi
            b"\xb8\x01\x00\x00\x00", // 2: mov eax, 1
            b"\x74\x05",             // 7: je e
            b"\xb8\x14\x00\x00\x00", // 9: mov eax, 20
            b"\x0f\x05",             // e: syscall
            b"\xb8\x27\x00\x00\x00", // 10: mov eax, 39
            b"\x0f\x05",             // 15: syscall
            b"\x0f\x05",             // 17: syscall, with what the one before gave
            b"\xb0\x01",             // 19: mov al, 1
            b"\x0f\x05",             // 1b: syscall
            b"\xc3",                 // 1d: ret
        ];
        assert_eq!(at(code, 0x10), Some(Origin::Unknown));
        assert_eq!(at(code, 0x17), Some(Origin::Constant(39)));
        assert_eq!(at(code, 0x19), Some(Origin::Unknown));
        assert_eq!(at(code, 0x1d), Some(Origin::Unknown));
    }

    #[test]
    fn bytes_that_are_a_part_of_another_instruction() {
        // mov word [rdi], 0x050f; ret
        assert_eq!(at(&[b"\x66\xc7\x07\x0f\x05", b"\xc3"], 5), None);
        // A page fault at any other instruction: mov [rdi], al
        assert_eq!(at(&[b"\x88\x07", b"\x88\x07", b"\xc3"], 2), None);
    }
}
