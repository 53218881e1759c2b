//! Follows generated code that runs within another procedure's frame: an interpreter jumps into it, and it jumps back. A trace
//! of LuaJIT or of PHP's compiler makes no return address of its own and never returns.
//!
//! Its frame is the interpreter's, so the caller is known where the height of the stack is: at the places of the
//! interpreter that the code jumps back to. Control is followed there, past calls, and then on in the interpreter's
//! own code to its next indirect jumps and returns: an assembler's call frame information holds where it dispatches, but not
//! always where traces enter it (LuaJIT's `lj_vm_exit_interp` first takes off what the trace had in addition).
//!
//! If the target of a jump is unknown (`jmp *(%r15)`, to the next instruction's handler in PHP), the stack height is the interpreter's at its own
//! jump with the same operand. Or the code is a thunk, which jumps to another procedure (.NET's delegates).

use callpath_format::address::RunAddr;
use rustc_hash::FxHashMap;

use super::ahead::{Named, instruction_at};
use crate::instruction::{Control, Instruction, Operation, Register};
use crate::state::{RBP, RSP};

/// The most instructions that are followed in generated code.
const MOST_INSTRUCTIONS: usize = 2000;
/// The same in the interpreter's, from all places that are jumped to.
const MOST_BEYOND: usize = 400;
/// More places of the interpreter are not looked at.
const MOST_PLACES: usize = 8;

/// A place in the interpreter's code that generated code comes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Continuation {
    /// An instruction that jumps to what is not known, or returns.
    pub at: RunAddr,
    /// Its rsp above that of the instruction that was asked about, bytes.
    pub above_rsp: i64,
    /// What it jumps through. `None`: it is a return, and its return address is on top of the stack.
    pub jump: Option<JumpOperand>,
}

/// What an indirect jump takes its target from: a register, or a word of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JumpOperand {
    /// The number of the register, or of the address's base register; 255 if there is none.
    register: u8,
    /// Of memory: the index, its scale, and the displacement.
    memory: Option<(u8, u8, i64)>,
}

impl JumpOperand {
    fn of(jump: &Instruction) -> JumpOperand {
        let number = |register: Register| register.general64().map_or(u8::MAX, |number| number as u8);
        match jump.memory() {
            Some(memory) => JumpOperand {
                register: number(memory.base),
                memory: Some((number(memory.index), memory.scale, memory.displacement)),
            },
            None => JumpOperand { register: number(jump.register(0)), memory: None },
        }
    }
}

/// How generated code that has no frame of its own is left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exits {
    /// The places in other code where it continues, by address: all of them have to agree on one caller.
    pub places: Vec<Continuation>,
    /// Its jumps to what it does not name, if all of them are made with the same height of the stack.
    pub dispatch: Option<Dispatch>,
}

/// Jumps to code that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// rsp above that of the instruction that was asked about, bytes.
    pub above_rsp: i64,
    /// What all of them jump through. `None`: they differ.
    pub jump: Option<JumpOperand>,
    /// Whether all ways end in such jumps, through a register, with no call and no write to rbp before: the code is a thunk.
    pub is_thunk: bool,
}

/// How the generated code at `start` is left. `is_generated` says whether an address is in generated code; `read` fills in the
/// bytes at an address, and returns how many it could read; `pointer` reads one that the code jumps through.
/// Nothing is found if the code may return to a caller of its own, or if there is too much of it.
pub fn exits(
    start: RunAddr,
    is_generated: impl Fn(RunAddr) -> bool,
    mut read: impl FnMut(RunAddr, &mut [u8]) -> usize,
    pointer: impl FnMut(RunAddr) -> Option<RunAddr>,
) -> Exits {
    let Some(Left { to, dispatch }) = left(start, is_generated, &mut read, pointer) else { return Exits::default() };
    // Behind a call that does not return other code follows: it is asked only where nothing else is known.
    let places = [false, true]
        .into_iter()
        .map(|past_calls| settled(&to, past_calls, &mut read))
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    Exits { places, dispatch }
}

/// Follows other code from these places.
fn settled(
    places: &[(u64, i64)],
    past_calls: bool,
    read: &mut impl FnMut(RunAddr, &mut [u8]) -> usize,
) -> Vec<Continuation> {
    let mut beyond = Beyond { past_calls, looks: 0, found: Vec::new() };
    for place in places.iter().take(MOST_PLACES) {
        beyond.follow(*place, read);
    }
    beyond.found.sort_unstable();
    beyond.found.dedup();
    beyond.found
}

/// The height of rsp at an instruction, above that at the first one, bytes; `None`: it differs by how control comes here. Code
/// that several fragments share may take rsp from memory, whatever it was.
type Height = Option<i64>;

/// What generated code jumps to.
struct Left {
    /// The places outside of generated code, and the height there.
    to: Vec<(u64, i64)>,
    dispatch: Option<Dispatch>,
}

/// Follows generated code to its jumps. `None`: it returns, or is too long.
fn left(
    start: RunAddr,
    is_generated: impl Fn(RunAddr) -> bool,
    read: &mut impl FnMut(RunAddr, &mut [u8]) -> usize,
    mut pointer: impl FnMut(RunAddr) -> Option<RunAddr>,
) -> Option<Left> {
    let mut dispatches: Vec<Height> = Vec::new();
    let mut jumps: Vec<JumpOperand> = Vec::new();
    let mut is_thunk = true;
    let mut heights: FxHashMap<u64, Height> = FxHashMap::default();
    let mut pending: Vec<(u64, Height, Named)> = vec![(start.0, Some(0), Named::default())];
    let mut left_to: FxHashMap<u64, Height> = FxHashMap::default();
    while let Some((at, height, mut named)) = pending.pop() {
        let is_inside = is_generated(RunAddr(at));
        let known = if is_inside { &mut heights } else { &mut left_to };
        let height = match known.get(&at) {
            Some(before) if before.is_none() || *before == height => continue,
            Some(_) => None,
            None => height,
        };
        known.insert(at, height);
        if !is_inside {
            continue;
        }
        if heights.len() > MOST_INSTRUCTIONS {
            return None;
        }
        let Some(instruction) = instruction_at(at, read) else {
            is_thunk = false;
            continue;
        };
        let next = at.wrapping_add(instruction.len().into());
        let target = instruction.target(next);
        match instruction.control() {
            // A call that pops its return address is a jump; its target is not followed.
            _ if is_call(&instruction) => {
                is_thunk = false;
                pending.push((next, height, named.past_call()));
            }
            Control::Next => {
                named.note(&instruction);
                is_thunk &= !instruction.writes().has_general(RBP);
                let change = instruction.sum(Register::RSP).filter(|(from, _)| *from == Register::RSP);
                match change {
                    Some((_, change)) => {
                        pending.push((next, height.and_then(|height| height.checked_add(change)), named));
                    }
                    // Behind it rsp is another one, from memory: so are jumps there.
                    None => dispatches.push(None),
                }
            }
            Control::Jump => pending.push((target, height, named)),
            Control::Branch => pending.extend([(next, height, named), (target, height, named)]),
            Control::Return => return None,
            Control::JumpIndirect => {
                let to = match instruction.has_memory() {
                    false => named.by(instruction.register(0)),
                    true => pointer_of(&instruction, &named).and_then(&mut pointer).map(|to| to.0),
                };
                match to {
                    Some(to) => pending.push((to, height, named)),
                    None => {
                        is_thunk &= !instruction.has_memory();
                        jumps.push(JumpOperand::of(&instruction));
                        dispatches.push(height);
                    }
                }
            }
            Control::Stop | Control::Call | Control::CallIndirect => {}
        }
    }
    is_thunk &= left_to.is_empty();
    let mut to: Vec<(u64, i64)> = left_to.into_iter().filter_map(|(at, height)| Some((at, height?))).collect();
    to.sort_unstable();
    let first = dispatches.first().copied().flatten();
    let above_rsp = first.filter(|first| dispatches.iter().all(|height| *height == Some(*first)));
    let jump = jumps.first().copied().filter(|first| jumps.iter().all(|jump| jump == first));
    Some(Left { to, dispatch: above_rsp.map(|above_rsp| Dispatch { above_rsp, jump, is_thunk }) })
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.control(), Control::Call | Control::CallIndirect) || instruction.operation() == Operation::Call
}

/// Where the pointer lies that a jump takes: beside an address that the code has named.
fn pointer_of(jump: &Instruction, named: &Named) -> Option<RunAddr> {
    let memory = jump.memory()?;
    let base = named.by(memory.base).filter(|_| memory.is_only(memory.base))?;
    Some(RunAddr(base.wrapping_add_signed(memory.displacement)))
}

/// What has been found in other code.
struct Beyond {
    past_calls: bool,
    looks: usize,
    found: Vec<Continuation>,
}

impl Beyond {
    /// Follows it from a place to indirect jumps and returns.
    fn follow(&mut self, place: (u64, i64), read: &mut impl FnMut(RunAddr, &mut [u8]) -> usize) {
        let mut seen: FxHashMap<u64, Registers> = FxHashMap::default();
        let mut pending = vec![(place.0, Registers::at_height(place.1))];
        while let Some((at, registers)) = pending.pop() {
            if self.looks == MOST_BEYOND || seen.get(&at).is_some_and(|before| *before == registers) {
                continue;
            }
            self.looks += 1;
            let is_met_otherwise = seen.insert(at, registers).is_some_and(|before| before.0[RSP] != registers.0[RSP]);
            // No more is believed of code whose stack depends on how control comes here.
            let Some(above_rsp) = registers.0[RSP].filter(|_| !is_met_otherwise) else { continue };
            let Some(instruction) = instruction_at(at, read) else { continue };
            let next = at.wrapping_add(instruction.len().into());
            let target = instruction.target(next);
            match instruction.control() {
                _ if instruction.operation() == Operation::Call => {
                    pending.extend(self.past_calls.then(|| (next, registers.past_call())));
                }
                Control::Next => pending.push((next, registers.after(&instruction))),
                Control::Jump => pending.push((target, registers)),
                Control::Branch => pending.extend([(next, registers), (target, registers)]),
                Control::JumpIndirect => {
                    let jump = Some(JumpOperand::of(&instruction));
                    self.found.push(Continuation { at: RunAddr(at), above_rsp, jump });
                }
                Control::Return if instruction.operation() == Operation::Return => {
                    self.found.push(Continuation { at: RunAddr(at), above_rsp, jump: None });
                }
                Control::Return | Control::Call | Control::CallIndirect | Control::Stop => {}
            }
        }
    }
}

/// Which registers are addresses on the stack: how far above rsp at the beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Registers([Option<i64>; 16]);

impl Registers {
    fn at_height(height: i64) -> Registers {
        let mut registers = [None; 16];
        registers[RSP] = Some(height);
        Registers(registers)
    }

    /// What is left of it behind a call: rbx, rsp, rbp, r12 to r15.
    fn past_call(mut self) -> Registers {
        for (number, value) in self.0.iter_mut().enumerate() {
            *value = value.filter(|_| matches!(number, 3..=5 | 12..=15));
        }
        self
    }

    fn after(self, instruction: &Instruction) -> Registers {
        let mut after = self;
        let written = instruction.writes();
        for (number, value) in after.0.iter_mut().enumerate() {
            let is_rsp = number == RSP;
            if !written.has_general(number) && !is_rsp {
                continue;
            }
            let own = if is_rsp { Register::RSP } else { instruction.register(0) };
            let sum = instruction.sum(own).filter(|_| own.general64() == Some(number));
            *value = sum.and_then(|(from, plus)| self.0[from.general64()?]?.checked_add(plus));
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u64 = 0x1000_0000;
    const INTERPRETER: u64 = 0x1000_1000;
    /// It points to the interpreter's code.
    const POINTER: u64 = 0x2000_0010;

    /// Code of both kinds; jumps between them are four-byte distances, filled in where `00` stand.
    fn all_of(trace: &[u8], interpreter: &[u8]) -> Exits {
        let read = |at: RunAddr, to: &mut [u8]| {
            let (start, code) = if at.0 < INTERPRETER { (TRACE, trace) } else { (INTERPRETER, interpreter) };
            let rest = at.0.checked_sub(start).and_then(|offset| code.get(offset as usize..)).unwrap_or(&[]);
            let len = rest.len().min(to.len());
            to[..len].copy_from_slice(&rest[..len]);
            len
        };
        let pointer = |at: RunAddr| (at.0 == POINTER).then_some(RunAddr(INTERPRETER));
        exits(RunAddr(TRACE), |at| (TRACE..INTERPRETER).contains(&at.0), read, pointer)
    }

    fn of(trace: &[u8], interpreter: &[u8]) -> Vec<(u64, i64, bool)> {
        let places = all_of(trace, interpreter).places;
        places.iter().map(|place| (place.at.0 - INTERPRETER, place.above_rsp, place.jump.is_none())).collect()
    }

    /// The height at its jumps to what is not known, and whether it is a thunk.
    fn dispatch(code: &[u8]) -> Option<(i64, bool)> {
        let Exits { places, dispatch } = all_of(code, &[]);
        assert_eq!(places, []);
        dispatch.map(|dispatch| (dispatch.above_rsp, dispatch.is_thunk))
    }

    /// `jmp` that lies at this offset in the trace, to an offset in the interpreter.
    fn jump(from: usize, to: u64) -> Vec<u8> {
        let distance = (INTERPRETER + to).wrapping_sub(TRACE + from as u64 + 5) as u32;
        [&[0xe9][..], &distance.to_le_bytes()].concat()
    }

    /// As LuaJIT 2.1 has it: lea 0x10(%rsp),%rcx; mov -8(%rcx),%r13; mov %rcx,%rsp; jmp *(%r14,%rbp,8)
    const EXIT: [u8; 16] =
        [0x48, 0x8d, 0x4c, 0x24, 0x10, 0x4c, 0x8b, 0x69, 0xf8, 0x48, 0x89, 0xcc, 0x41, 0xff, 0x24, 0xee];

    #[test]
    fn a_trace_with_spilled_values_that_jumps_back() {
        // call *%rax; add $0x20,%rsp; jmp exit
        let mut trace = vec![0xff, 0xd0, 0x48, 0x83, 0xc4, 0x20];
        trace.extend(jump(trace.len(), 0));
        assert_eq!(of(&trace, &EXIT), [(12, 0x30, false)]);
    }

    #[test]
    fn a_loop_is_left_by_what_it_jumps_to() {
        // 1: dec %eax; jnz 1b; push $3; jmp 2f; 2: sub $0xf8,%rsp; call *%rax; add $0x100,%rsp; jmp halt
        let mut trace = vec![0xff, 0xc8, 0x75, 0xfc, 0x6a, 3, 0xeb, 0, 0x48, 0x81, 0xec, 0xf8, 0, 0, 0];
        trace.extend([0xff, 0xd0, 0x48, 0x81, 0xc4, 0, 1, 0, 0]);
        trace.extend(jump(trace.len(), 0));
        // add $0x78,%rsp; pop %rbx; ret
        assert_eq!(of(&trace, &[0x48, 0x83, 0xc4, 0x78, 0x5b, 0xc3]), [(5, 0x80, true)]);
    }

    #[test]
    fn a_jump_through_a_pointer_that_the_code_names() {
        // As PHP leaves for an exception: movabs $POINTER-8,%r15; call *%rax; jmp *8(%r15)
        let mut trace = vec![0x49, 0xbf];
        trace.extend((POINTER - 8).to_le_bytes());
        trace.extend([0xff, 0xd0, 0x41, 0xff, 0x67, 8]);
        assert_eq!(of(&trace, &[0xff, 0xe0]), [(0, 0, false)]);
        // A register that the call need not keep: movabs $POINTER-8,%r11; call *%rax; jmp *8(%r11)
        let mut trace = vec![0x49, 0xbb];
        trace.extend((POINTER - 8).to_le_bytes());
        trace.extend([0xff, 0xd0, 0x41, 0xff, 0x63, 8]);
        assert_eq!(of(&trace, &[0xff, 0xe0]), []);
    }

    #[test]
    fn code_that_several_heights_lead_to_says_nothing() {
        // je 1f; push %rax; 1: jmp exit
        let mut trace = vec![0x74, 1, 0x50];
        trace.extend(jump(trace.len(), 0));
        assert_eq!(of(&trace, &EXIT), []);
        // je 1f; push %rax; jmp 2f; 1: jmp exit; 2: jmp exit: two places that disagree
        let mut trace = vec![0x74, 3, 0x50, 0xeb, 5];
        trace.extend(jump(trace.len(), 0));
        trace.extend(jump(trace.len(), 16));
        let both = [&EXIT[..], &EXIT].concat();
        assert_eq!(of(&trace, &both), [(12, 16, false), (28, 8, false)]);
    }

    #[test]
    fn what_returns_or_takes_the_stack_from_memory_is_not_followed() {
        // je 1f; ret; 1: jmp exit
        let mut trace = vec![0x74, 1, 0xc3];
        trace.extend(jump(trace.len(), 0));
        assert_eq!(of(&trace, &EXIT), []);
        // mov (%rdi),%rsp; jmp exit
        let mut trace = vec![0x48, 0x8b, 0x27];
        trace.extend(jump(trace.len(), 0));
        assert_eq!(of(&trace, &EXIT), []);
        // In the interpreter: mov (%rdi),%rsp; jmp *%rax
        let trace = jump(0, 0);
        assert_eq!(of(&trace, &[0x48, 0x8b, 0x27, 0xff, 0xe0]), []);
        assert_eq!(of(&trace, &[0xff, 0xe0]), [(0, 0, false)]);
    }

    #[test]
    fn jumps_to_what_is_not_named() {
        // As PHP 8.2 goes on to the next instruction: testl $1,0x28(%r14); jne 1f; add $0x20,%r15; jmp *(%r15);
        // 1: call *%rax; jmp *(%r15)
        let code = [
            0x41, 0xf6, 0x46, 0x28, 1, 0x75, 7, 0x49, 0x83, 0xc7, 0x20, 0x41, 0xff, 0x27, 0xff, 0xd0, 0x41, 0xff, 0x27,
        ];
        assert_eq!(dispatch(&code), Some((0, false)));
        // As .NET 3.1 calls a static method: mov %rsp,%rax; mov %rdi,%r11; mov %rsi,%rdi; mov 0x20(%r11),%r10; jmp *%r10
        let code = [0x48, 0x89, 0xe0, 0x49, 0x89, 0xfb, 0x48, 0x89, 0xf7, 0x4d, 0x8b, 0x53, 0x20, 0x41, 0xff, 0xe2];
        assert_eq!(dispatch(&code), Some((0, true)));
        // pop %rbp; jmp *%rax
        assert_eq!(dispatch(&[0x5d, 0xff, 0xe0]), Some((8, false)));
        // call *%rcx; jmp *%rax
        assert_eq!(dispatch(&[0xff, 0xd1, 0xff, 0xe0]), Some((0, false)));
        // je 1f; ret; 1: jmp *%rax
        assert_eq!(dispatch(&[0x74, 1, 0xc3, 0xff, 0xe0]), None);
        // je 1f; push %rax; jmp *%rax; 1: jmp *%rax
        assert_eq!(dispatch(&[0x74, 3, 0x50, 0xff, 0xe0, 0xff, 0xe0]), None);
        // je 1f; mov (%rdi),%rsp; jmp *%rax; 1: jmp *%rax
        assert_eq!(dispatch(&[0x74, 5, 0x48, 0x8b, 0x27, 0xff, 0xe0, 0xff, 0xe0]), None);
        assert_eq!(dispatch(&[0x0f, 0x0b]), None, "it ends in ud2");
        // je 1f; jmp *%rax; 1: bytes that cannot be read
        assert_eq!(dispatch(&[0x74, 2, 0xff, 0xe0]), Some((0, false)));
        // je 1f; jmp *%rax; 1: jmp to the interpreter, which ends in ud2
        let mut code = vec![0x74, 2, 0xff, 0xe0];
        code.extend(jump(code.len(), 0));
        assert_eq!(all_of(&code, &[0x0f, 0x0b]).dispatch.map(|dispatch| dispatch.is_thunk), Some(false));
        // What they jump through: je 1f; jmp *(%r15); 1: jmp *(%r15), or jmp *8(%r15), or jmp *%r15
        let through = |last: &[u8]| {
            let code = [&[0x74, 3, 0x41, 0xff, 0x27][..], last].concat();
            all_of(&code, &[]).dispatch.and_then(|dispatch| dispatch.jump)
        };
        assert!(through(&[0x41, 0xff, 0x27]).is_some());
        assert_eq!([through(&[0x41, 0xff, 0x67, 8]), through(&[0x41, 0xff, 0xe7])], [None, None]);
    }

    #[test]
    fn past_calls_is_the_last_resort() {
        // call *%rax; jmp *%rax
        assert_eq!(of(&jump(0, 0), &[0xff, 0xd0, 0xff, 0xe0]), [(2, 0, false)]);
        // je 1f; jmp *%rax; 1: call *%rax, which does not return; pop %rax; ret: another procedure
        assert_eq!(of(&jump(0, 0), &[0x74, 2, 0xff, 0xe0, 0xff, 0xd0, 0x58, 0xc3]), [(2, 0, false)]);
    }

    #[test]
    fn any_bytes_end_without_a_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |len: usize| -> Vec<u8> {
            let mut byte = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            };
            (0..len).map(|_| byte()).collect()
        };
        for _ in 0..300 {
            let mut trace = random(48);
            trace.extend(jump(trace.len(), 0));
            of(&trace, &random(64));
        }
    }

    #[test]
    fn endless_code_ends() {
        // push %rax, again and again; then a loop that pushes
        let mut trace = vec![0x50; 3000];
        trace.extend(jump(trace.len(), 0));
        assert_eq!(of(&trace, &EXIT), []);
        // 1: je exit; push %rax; jmp 1b
        let mut trace = jump(1, 0);
        trace.splice(..1, [0x0f, 0x84]);
        trace.extend([0x50, 0xeb, 0xf7]);
        assert_eq!(of(&trace, &EXIT), []);
        // The interpreter pushes in a loop: 1: push %rax; jmp 1b
        assert_eq!(of(&jump(0, 0), &[0x50, 0xeb, 0xfd]), []);
    }
}
