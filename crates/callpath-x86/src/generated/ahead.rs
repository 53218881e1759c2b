//! Unwinds generated code by following it forward from an instruction to its returns. This is for code that is jumped
//! into, in scattered fragments.
//!
//! A frame's size is what the code pops until it returns. Control is followed to targets that the code names, also
//! through a register, but not past calls: the callee may not return, and other code may follow. (A callee that begins
//! by popping its return address was jumped to.) All reachable returns must find the return address in the same slot,
//! and no instruction before them may have written it there: that would be a jump.

use callpath_format::address::RunAddr;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::instruction::{Access, Control, Instruction, LONGEST_BYTES, Memory, Operation, Register};
use crate::state::RBP;

/// The most instructions that are followed.
const MOST_INSTRUCTIONS: usize = 800;
/// The largest frame, bytes.
const LARGEST_FRAME_BYTES: i64 = 64 << 10;

/// What a return finds, relative to the stack before the instruction that was asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Return {
    /// Distance of the return address above rsp, bytes.
    pub above_rsp: i64,
    /// How many bytes of arguments above it the return pops.
    pub arguments_bytes: i64,
    /// The location of the caller's rbp.
    pub rbp: CallersRbp,
}

/// The location of the caller's rbp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallersRbp {
    /// In rbp.
    Unchanged,
    /// In memory, this many bytes above rsp.
    AboveRsp(i64),
    /// Unknown.
    Lost,
}

/// The state before an instruction, relative to the stack before the first one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    /// Distance of rsp above its first value, bytes.
    above_rsp: i64,
    rbp: CallersRbp,
    /// Where the code itself stored rbp's first value.
    saved_at: Option<i64>,
}

impl State {
    const START: State = State { above_rsp: 0, rbp: CallersRbp::Unchanged, saved_at: None };

    /// The state of rbp when it is loaded from this offset. Below rsp nothing was written yet.
    fn loaded(self, place: i64) -> CallersRbp {
        match self.saved_at {
            Some(saved) if saved == place => CallersRbp::Unchanged,
            _ if place < 0 => CallersRbp::Lost,
            _ => CallersRbp::AboveRsp(place),
        }
    }
}

/// Follows the code at `start` to its returns; if `past_calls`, as if all calls returned. `read` fills in the bytes at
/// an address, and returns how many it could read.
pub fn return_ahead(start: RunAddr, past_calls: bool, read: impl FnMut(RunAddr, &mut [u8]) -> usize) -> Option<Return> {
    explore(start, past_calls, read).0
}

/// Whether the procedure at `start` may continue, by a jump, in code that it does not name, which then returns to its
/// caller.
pub fn goes_on_elsewhere(start: RunAddr, read: impl FnMut(RunAddr, &mut [u8]) -> usize) -> bool {
    explore(start, true, read).1
}

/// The most jumps that [`jumped_to`] follows.
const MOST_JUMPS: usize = 4;

/// Where the code at `start` goes on that only jumps: a stub. `None`: it does something else.
pub fn jumped_to(start: RunAddr, mut read: impl FnMut(RunAddr, &mut [u8]) -> usize) -> Option<RunAddr> {
    let mut reached = None;
    for _ in 0..MOST_JUMPS {
        let at = reached.unwrap_or(start).0;
        let jump = instruction_at(at, &mut read).filter(|instruction| instruction.control() == Control::Jump);
        let Some(jump) = jump else { break };
        reached = Some(RunAddr(jump.target(at.wrapping_add(jump.len().into()))));
    }
    reached
}

/// The most instructions in which [`uses_frame`] looks.
const MOST_USES: usize = 200;

/// Whether the code at `start` reads or writes what lies less than `size_bytes` below rbp, before it changes rbp or calls: rbp is the
/// pointer of its own frame, if it is one.
pub fn uses_frame(start: RunAddr, size_bytes: i64, mut read: impl FnMut(RunAddr, &mut [u8]) -> usize) -> bool {
    let mut seen = FxHashSet::default();
    let mut pending = vec![start.0];
    while let Some(at) = pending.pop() {
        if seen.len() == MOST_USES || !seen.insert(at) {
            continue;
        }
        let Some(instruction) = instruction_at(at, &mut read) else { continue };
        let below = |memory: Memory| memory.is_only(Register::RBP) && (-size_bytes..0).contains(&memory.displacement);
        if instruction.memory_access() != Access::None && instruction.memory().is_some_and(below) {
            return true;
        }
        let next = at.wrapping_add(instruction.len().into());
        match instruction.control() {
            Control::Next if !instruction.writes().has_general(RBP) => pending.push(next),
            Control::Jump => pending.push(instruction.target(next)),
            Control::Branch => pending.extend([instruction.target(next), next]),
            _ => {}
        }
    }
    false
}

/// The common result of all returns, and whether there is a jump to unknown code with the stack as at `start`.
fn explore(
    start: RunAddr,
    past_calls: bool,
    mut read: impl FnMut(RunAddr, &mut [u8]) -> usize,
) -> (Option<Return>, bool) {
    let mut leaves = false;
    let mut seen: FxHashMap<u64, State> = FxHashMap::default();
    let mut written: FxHashSet<i64> = FxHashSet::default();
    let mut pending = vec![(start.0, State::START, Named::default())];
    let mut found: Option<Return> = None;
    while let Some((at, state, mut named)) = pending.pop() {
        match seen.get(&at) {
            Some(before) if *before == state => continue,
            // Two paths disagree on the stack: one of them is impossible.
            Some(before) if before.above_rsp != state.above_rsp => return (None, leaves),
            // A path on which rbp is lost is no evidence about others.
            Some(_) => continue,
            None => {}
        }
        if seen.len() == MOST_INSTRUCTIONS {
            // The remaining paths could disagree.
            return (None, leaves);
        }
        let Some(instruction) = instruction_at(at, &mut read) else { continue };
        seen.insert(at, state);
        let next = at.wrapping_add(instruction.len().into());
        let target = instruction.target(next);
        let mut is_followed = |to: u64, state: State, named: Named| pending.push((to, state, named));
        match instruction.control() {
            control if instruction.operation() == Operation::Call => {
                let takes_it_off = |first: Instruction| first.operation() == Operation::Pop;
                let is_named = control != Control::CallIndirect;
                if is_named && instruction_at(target, &mut read).is_some_and(takes_it_off) {
                    is_followed(target, State { above_rsp: state.above_rsp - 8, ..state }, named);
                } else if past_calls {
                    is_followed(next, state, Named::default());
                }
            }
            Control::Next => {
                named.note(&instruction);
                written.extend(written_at(&instruction, state));
                if let Some(state) = after(&instruction, state) {
                    is_followed(next, state, named);
                }
            }
            Control::Jump => is_followed(target, state, named),
            Control::Branch => {
                is_followed(next, state, named);
                is_followed(target, state, named);
            }
            Control::JumpIndirect => {
                let target = match instruction.has_memory() {
                    false => named.by(instruction.register(0)),
                    true => pointed_to(&instruction, next, &mut read),
                };
                leaves |= target.is_none() && state.above_rsp == 0;
                if let Some(target) = target {
                    is_followed(target, state, named);
                }
            }
            // It returns to an address that it has just stored.
            Control::Return if state.above_rsp < 0 => {}
            // Into another segment, or from an interrupt.
            Control::Return if instruction.operation() != Operation::Return => {}
            Control::Return => {
                let arguments_bytes = instruction.immediate().unwrap_or(0) as i64;
                let here = Return { above_rsp: state.above_rsp, arguments_bytes, rbp: state.rbp };
                if found.is_some_and(|found| found != here) {
                    return (None, leaves);
                }
                found = Some(here);
            }
            Control::Call | Control::CallIndirect | Control::Stop => {}
        }
    }
    let is_found = |place: i64| !(place - 7..=place + 7).any(|at| written.contains(&at));
    let found = found.filter(|found| (0..=LARGEST_FRAME_BYTES).contains(&found.above_rsp) && is_found(found.above_rsp));
    let found = found.map(|found| match found.rbp {
        CallersRbp::AboveRsp(place) if !is_found(place) => Return { rbp: CallersRbp::Lost, ..found },
        _ => found,
    });
    (found, leaves)
}

/// The offset from rsp that an instruction writes to.
fn written_at(instruction: &Instruction, state: State) -> Option<i64> {
    match instruction.operation() {
        Operation::Push | Operation::PushFlags => state.above_rsp.checked_add(instruction.stack_change()),
        _ if instruction.writes_memory_operand() => {
            let memory = instruction.memory().filter(|memory| memory.base == Register::RSP)?;
            state.above_rsp.checked_add(memory.displacement)
        }
        _ => None,
    }
}

/// The target of a jump that ends at `next` through a pointer beside the code: a module's jump to another one's
/// procedure.
fn pointed_to(instruction: &Instruction, next: u64, read: &mut impl FnMut(RunAddr, &mut [u8]) -> usize) -> Option<u64> {
    let mut pointer = [0; 8];
    let place = instruction.beside_code(next)?;
    (read(RunAddr(place), &mut pointer) == pointer.len()).then(|| u64::from_le_bytes(pointer))
}

pub(super) fn instruction_at(at: u64, read: &mut impl FnMut(RunAddr, &mut [u8]) -> usize) -> Option<Instruction> {
    let mut bytes = [0; LONGEST_BYTES];
    let got = read(RunAddr(at), &mut bytes);
    // Zero bytes decode as instructions, but no program contains them.
    Instruction::decode(bytes.get(..got).filter(|bytes| !bytes.starts_with(&[0, 0]))?)
}

/// Addresses that the code has loaded into registers.
#[derive(Clone, Copy, Default)]
pub(super) struct Named([Option<u64>; 16]);

impl Named {
    pub(super) fn by(&self, register: Register) -> Option<u64> {
        register.general64().and_then(|number| self.0.get(number).copied().flatten())
    }

    /// What is left of it behind a call.
    pub(super) fn past_call(mut self) -> Named {
        for (number, named) in self.0.iter_mut().enumerate() {
            // rbx, rbp, r12 to r15
            if !matches!(number, 3 | 5 | 12..=15) {
                *named = None;
            }
        }
        self
    }

    pub(super) fn note(&mut self, instruction: &Instruction) {
        let value = match instruction.operation() {
            Operation::Move => instruction.immediate(),
            Operation::LoadAddress => instruction.memory().and_then(|memory| {
                let base = self.by(memory.base).filter(|_| memory.is_only(memory.base))?;
                Some(base.wrapping_add_signed(memory.displacement))
            }),
            _ => None,
        };
        for number in instruction.writes().general() {
            self.0[number] = None;
        }
        if let (Some(number), Some(value)) = (instruction.register(0).general64(), value) {
            self.0[number] = Some(value);
        }
    }
}

/// The state after an instruction; `None`: rsp is not known.
fn after(instruction: &Instruction, state: State) -> Option<State> {
    let (_, change) = instruction.sum(Register::RSP).filter(|&(from, _)| from == Register::RSP)?;
    let after = State { above_rsp: state.above_rsp.checked_add(change)?, ..state };
    let is_of_rbp = instruction.register(0) == Register::RBP;
    let rbp = match instruction.operation() {
        Operation::Push if is_of_rbp && state.rbp == CallersRbp::Unchanged => {
            return Some(State { saved_at: Some(after.above_rsp), ..after });
        }
        Operation::Pop if is_of_rbp => state.loaded(state.above_rsp),
        Operation::Move if is_of_rbp && instruction.memory().is_some_and(|memory| memory.is_only(Register::RSP)) => {
            state.loaded(state.above_rsp.checked_add(instruction.memory()?.displacement)?)
        }
        _ if instruction.writes().has_general(RBP) => CallersRbp::Lost,
        _ => state.rbp,
    };
    Some(State { rbp, ..after })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: RunAddr = RunAddr(0x7000_0000);

    fn of(code: &[u8]) -> Option<Return> {
        ahead(code, false)
    }

    fn ahead(code: &[u8], past_calls: bool) -> Option<Return> {
        return_ahead(START, past_calls, reader(code))
    }

    fn reader(code: &[u8]) -> impl FnMut(RunAddr, &mut [u8]) -> usize {
        |at, to| {
            let rest = at.0.checked_sub(START.0).and_then(|offset| code.get(offset as usize..)).unwrap_or(&[]);
            let len = rest.len().min(to.len());
            to[..len].copy_from_slice(&rest[..len]);
            len
        }
    }

    #[test]
    fn a_procedure_that_goes_on_elsewhere() {
        // push %rbx; call *%rdi; pop %rbx; jmp *%rax
        assert!(goes_on_elsewhere(START, reader(&[0x53, 0xff, 0xd7, 0x5b, 0xff, 0xe0])));
        // push %rbx; jmp *%rax: a jump within a procedure
        assert!(!goes_on_elsewhere(START, reader(&[0x53, 0xff, 0xe0])));
        // call *%rdi; ret
        assert!(!goes_on_elsewhere(START, reader(&[0xff, 0xd7, 0xc3])));
    }

    #[test]
    fn stubs_lead_to_what_they_jump_to() {
        // jmp 1f; nop; 1: jmp 2f; 2: ret
        let code = [0xeb, 1, 0x90, 0xe9, 0, 0, 0, 0, 0xc3];
        assert_eq!(jumped_to(START, reader(&code)), Some(RunAddr(START.0 + 8)));
        assert_eq!(jumped_to(RunAddr(START.0 + 3), reader(&code)), Some(RunAddr(START.0 + 8)));
        assert_eq!(jumped_to(RunAddr(START.0 + 2), reader(&code)), None);
        // 1: jmp 1b
        assert_eq!(jumped_to(START, reader(&[0xeb, 0xfe])), Some(START));
        // jmp to where nothing is
        assert_eq!(jumped_to(START, reader(&[0xeb, 0x10])), Some(RunAddr(START.0 + 0x12)));
    }

    #[test]
    fn code_that_works_in_a_frame() {
        let uses = |code: &[u8]| uses_frame(START, 72, reader(code));
        // As HotSpot looks for an interface's method: cmp %rax,%r13; je 1f; test %r13,%r13; je away; 1: mov -0x40(%rbp),%r13
        assert!(uses(&[0x49, 0x39, 0xc5, 0x74, 5, 0x4d, 0x85, 0xed, 0x74, 0x40, 0x4c, 0x8b, 0x6d, 0xc0]));
        // mov %rsi,-8(%rbp)
        assert!(uses(&[0x48, 0x89, 0x75, 0xf8]));
        // mov 8(%rbp),%rax; mov -0x50(%rbp),%rax; mov (%rbp,%rax,8),%rax; lea -8(%rbp),%rax; ret
        assert!(!uses(&[0x48, 0x8b, 0x45, 8]));
        assert!(!uses(&[0x48, 0x8b, 0x45, 0xb0]));
        assert!(!uses(&[0x48, 0x8b, 0x44, 0xc5, 0xf8]));
        assert!(!uses(&[0x48, 0x8d, 0x45, 0xf8, 0xc3]));
        // pop %rbp; mov -8(%rbp),%rax
        assert!(!uses(&[0x5d, 0x48, 0x8b, 0x45, 0xf8]));
        // call *%rax; mov -8(%rbp),%rax
        assert!(!uses(&[0xff, 0xd0, 0x48, 0x8b, 0x45, 0xf8]));
        // 1: jmp 1b
        assert!(!uses(&[0xeb, 0xfe]));
    }

    #[test]
    fn through_an_exit_that_lies_apart() {
        // cmp %rax,%rbx; jne 1f; call *%rax; ud2; 1: pop %rbp; add $0x18,%rsp; pop %rbx; ret
        let code = [0x48, 0x39, 0xc3, 0x75, 4, 0xff, 0xd0, 0x0f, 0x0b, 0x5d, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0xc3];
        assert_eq!(of(&code), Some(Return { above_rsp: 40, arguments_bytes: 0, rbp: CallersRbp::AboveRsp(0) }));
    }

    #[test]
    fn through_what_it_names_otherwise_than_by_a_jump() {
        // movabs $START+18,%r11; lea -2(%r11),%r11; jmp *%r11; nop; 1: pop %rcx; ret
        let mut code = vec![0x49, 0xbb];
        code.extend((START.0 + 20).to_le_bytes());
        code.extend([0x4d, 0x8d, 0x5b, 0xfe, 0x41, 0xff, 0xe3, 0x90, 0x59, 0xc3]);
        assert_eq!(of(&code).map(|found| found.above_rsp), Some(8));
        // call 1f; 1: pop %r11; add $0x18,%rsp; ret
        let code = [0xe8, 0, 0, 0, 0, 0x41, 0x5b, 0x48, 0x83, 0xc4, 0x18, 0xc3];
        assert_eq!(of(&code).map(|found| found.above_rsp), Some(24));
        // call 1f; 1: nop; ret
        assert_eq!(of(&[0xe8, 0, 0, 0, 0, 0x90, 0xc3]), None);
    }

    #[test]
    fn what_a_call_comes_back_to_is_not_believed() {
        // call *%rax; ret
        assert_eq!(of(&[0xff, 0xd0, 0xc3]), None);
        assert_eq!(
            ahead(&[0xff, 0xd0, 0xc3], true),
            Some(Return { above_rsp: 0, arguments_bytes: 0, rbp: CallersRbp::Unchanged })
        );
        // push %rax; ret: a jump
        assert_eq!(of(&[0x50, 0xc3]), None);
    }

    #[test]
    fn returns_that_disagree_say_nothing() {
        // je 1f; pop %rax; ret; 1: ret
        assert_eq!(of(&[0x74, 2, 0x58, 0xc3, 0xc3]), None);
        // je 1f; pop %rax; 1: ret
        assert_eq!(of(&[0x74, 1, 0x58, 0xc3]), None);
    }

    #[test]
    fn a_loop_that_takes_off_the_stack_ends() {
        // 1: pop %rax; jmp 1b
        assert_eq!(of(&[0x58, 0xeb, 0xfd]), None);
        // mov (%rdi),%rbp; ret
        let lost = Return { above_rsp: 0, arguments_bytes: 0, rbp: CallersRbp::Lost };
        assert_eq!(of(&[0x48, 0x8b, 0x2f, 0xc3]), Some(lost));
    }

    #[test]
    fn what_is_written_where_a_return_looks_is_a_jump() {
        // pop %rcx; add $8,%rsp; push %rcx; ret: the return address is at rsp, but the word at rsp + 8 was stored by
        // the code
        assert_eq!(of(&[0x59, 0x48, 0x83, 0xc4, 8, 0x51, 0xc3]), None);
        // mov %rax,8(%rsp); add $8,%rsp; ret
        assert_eq!(of(&[0x48, 0x89, 0x44, 0x24, 8, 0x48, 0x83, 0xc4, 8, 0xc3]), None);
        // mov %rax,(%rsp); add $8,%rsp; ret
        assert_eq!(of(&[0x48, 0x89, 0x04, 0x24, 0x48, 0x83, 0xc4, 8, 0xc3]).map(|found| found.above_rsp), Some(8));
    }

    #[test]
    fn returns_that_take_more_off() {
        // pop %rax; ret $16
        assert_eq!(of(&[0x58, 0xc2, 16, 0]).map(|found| (found.above_rsp, found.arguments_bytes)), Some((8, 16)));
        // je 1f; ret $16; 1: ret
        assert_eq!(of(&[0x74, 3, 0xc2, 16, 0, 0xc3]), None);
        // lretq; iretq
        assert_eq!(of(&[0x48, 0xcb]), None);
        assert_eq!(of(&[0x48, 0xcf]), None);
    }

    #[test]
    fn rbp_is_where_something_has_kept_it() {
        // push %rbp; mov %rdi,%rbp; pop %rbp; ret: below rsp nothing has been kept yet
        assert_eq!(of(&[0x55, 0x48, 0x89, 0xfd, 0x5d, 0xc3]).map(|found| found.rbp), Some(CallersRbp::Unchanged));
        // push %rdi; pop %rbp; ret
        assert_eq!(of(&[0x57, 0x5d, 0xc3]).map(|found| found.rbp), Some(CallersRbp::Lost));
        // mov %rdi,(%rsp); pop %rbp; ret
        assert_eq!(of(&[0x48, 0x89, 0x3c, 0x24, 0x5d, 0xc3]).map(|found| found.rbp), Some(CallersRbp::Lost));
    }

    #[test]
    fn a_jump_through_a_pointer_beside_the_code() {
        // jmp *(%rip): to the ret behind the pointer
        let mut code = vec![0xff, 0x25, 0, 0, 0, 0];
        code.extend((START.0 + 14).to_le_bytes());
        code.push(0xc3);
        assert!(!goes_on_elsewhere(START, reader(&code)));
        assert!(goes_on_elsewhere(START, reader(&code[..6])));
    }
}
