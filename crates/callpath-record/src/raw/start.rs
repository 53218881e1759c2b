//! Where a thread has begun, from its stack as it is in memory: heights count from there.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::recipe::{Cfa, Packed};
use callpath_format::register::{Reg, Registers};
use callpath_unwind::{CodeMap, Cursor, End, walk};

use super::{Code, Stack, StackPart};

/// The C library keeps a thread's control block within so much of its first frame, with what is the thread's own
/// (thread-local variables) between.
const CONTROL_BLOCK_WITHIN_BYTES: usize = 64 << 10;

/// Where a thread of the C library has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The CFA of the procedure that it began in, which its outermost frame's callee has called.
    pub(crate) cfa: u64,
    /// Where that call returns to.
    pub(crate) return_address: RunAddr,
    /// The thread's control block.
    pub(crate) control_block: u64,
}

/// Where a thread has begun. `words`: its stack as it is now, from `start` up; `registers`: as they were at a sample, in DWARF order, then
/// rip. `None`: it cannot be told.
///
/// The outermost frames are the same as long as the thread lives. The others may have changed since the sample.
pub(crate) fn start_of_thread(
    mut code: Code<'_>,
    registers: [u64; 17],
    (start, words): (u64, &[AtomicU64]),
) -> Option<Begun> {
    let parts = [StackPart { start, words }];
    let mut memory = Stack::new(&parts);
    let (outer, control_block) = (0..words.len()).find_map(|at| {
        let is_outer = code.is_return_of_outermost(words[at].load(Relaxed));
        is_outer.then(|| control_block(start, words, at))?.map(|block| (at, block))
    })?;
    let top = start + 8 * outer as u64;
    let by_outer_frames = (0..outer).rev().find_map(|inner| {
        let word = words[inner].load(Relaxed);
        let cfa = start + 8 * inner as u64 + 8;
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, cfa);
        let cursor = Cursor { point: CodePoint::Return(RunAddr(word)), registers };
        code.mapping(RunAddr(word.wrapping_sub(1)))?;
        code.below_outermost(cursor, &mut memory, top).filter(|(found, _)| *found == cfa)
    });
    let (cfa, return_address) = by_outer_frames.or_else(|| {
        // Its place depends on a register that the outer frames alone do not tell.
        let values = std::array::from_fn(|at| registers[at]);
        code.below_outermost(Cursor::interrupted(RunAddr(registers[16]), values), &mut memory, top)
    })?;
    Some(Begun { cfa, return_address, control_block })
}

impl Code<'_> {
    /// Whether a word is a return address into a procedure that is outermost there.
    fn is_return_of_outermost(&mut self, word: u64) -> bool {
        let point = CodePoint::Return(RunAddr(word));
        if self.mapping(point.lookup()).is_none() {
            return false;
        }
        let located = self.locate_point(point);
        match located.recipe.kind() {
            Packed::OUTERMOST => true,
            Packed::WIDE => self.open(&located).is_some_and(|recipe| recipe.cfa == Cfa::Outermost),
            _ => false,
        }
    }

    /// Walks to the outermost frame, whose callee's return address must be at `top`; the stack pointer of that callee, and where it is.
    fn below_outermost(&mut self, cursor: Cursor, memory: &mut Stack<'_>, top: u64) -> Option<(u64, RunAddr)> {
        let (mut before, mut last) = (None, None);
        let end = walk(cursor, self, memory, |cursor, _, _| {
            (before, last) = (last, Some((cursor.registers.get(Reg::RSP), cursor.point)));
            ControlFlow::Continue(())
        });
        let is_there = end == End::Outermost && last.is_some_and(|(rsp, _)| rsp == Some(top.wrapping_add(8)));
        let (rsp, point): (Option<u64>, CodePoint) = before.filter(|_| is_there)?;
        rsp.filter(|_| point.is_return()).map(|rsp| (rsp, point.pc()))
    }
}

/// The thread's control block above a word, which has its own address twice (psABI, TLS variant II as glibc lays it out). Above a
/// coroutine's stack there is none.
fn control_block(start: u64, words: &[AtomicU64], at: usize) -> Option<u64> {
    const ALIGNED_BYTES: u64 = 64;
    let word = |at: usize| words.get(at).map(|word| word.load(Relaxed));
    let above = (at..words.len()).take(CONTROL_BLOCK_WITHIN_BYTES / 8);
    above.map(|at| (at, start.wrapping_add(8 * at as u64))).find_map(|(at, addr)| {
        let is_one = addr.is_multiple_of(ALIGNED_BYTES) && word(at) == Some(addr) && word(at + 2) == Some(addr);
        is_one.then_some(addr)
    })
}
