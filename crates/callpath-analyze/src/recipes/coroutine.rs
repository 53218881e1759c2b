//! The procedures that coroutines return to at their end, as C libraries start them: nobody calls them.
//! Knows nothing of stacks.
//!
//! `makecontext` puts the address of `__start_context` where a coroutine's routine finds its return address: the first
//! instruction of a procedure, which no call stands before. Its first act is to leave the stack that it is on:
//!
//! ```text
//! [endbr64]
//! mov rsp, rbx          rbx leads to the context that follows
//! ```
//!
//! glibc's call frame information (up to 2.36 at least) says of it that it has a caller, as if it had been called.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;
use callpath_image::cfi::{CallFrames, FrameRange};
use callpath_image::elf::Image;

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// Last bytes of what linkers and assemblers fill gaps with: int3, nop, and nops of several bytes.
const PADDING: [u8; 3] = [0xcc, 0x90, 0x00];
const MOV_RSP_RBX: &[u8] = &[0x48, 0x89, 0xdc];

/// How much of a procedure [`is_start`] looks at, bytes.
pub(crate) const START_LEN_BYTES: usize = ENDBR64.len() + MOV_RSP_RBX.len();

/// Whether a procedure that begins with `code` is a coroutine's outermost frame.
pub(crate) fn is_start(code: &[u8]) -> bool {
    code.strip_prefix(ENDBR64).unwrap_or(code).starts_with(MOV_RSP_RBX)
}

/// The code of each such procedure, with the byte before it, by which its frames are looked up, unless that is another
/// procedure's or ends an instruction (glibc's clone3 returns right before its thread's start); and of each that its call frame information itself calls outermost from the first instruction on.
pub(super) fn starts(image: &Image, frames: &CallFrames) -> Vec<Range<LinkAddr>> {
    let is_outermost = |range: &FrameRange| {
        let first = frames.rows_of(range).first().and_then(|row| frames.recipes.get(row.recipe as usize));
        first == Some(&Recipe::OUTERMOST)
    };
    let mut starts = Vec::new();
    for range in &frames.ranges {
        let Range { start, end } = range.code;
        if is_outermost(range) {
            starts.push(start..start);
        } else if image.bytes_from(start).is_some_and(is_start) {
            starts.push(start..end);
        }
    }
    for start in &mut starts {
        let before = LinkAddr(start.start.0.wrapping_sub(1));
        let is_padding = image.bytes_from(before).and_then(|bytes| bytes.first()).is_some_and(|b| PADDING.contains(b));
        if is_padding && !frames.ranges.iter().any(|range| range.code.contains(&before)) {
            start.start = before;
        }
    }
    starts.retain(|start| start.start < start.end);
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_by_their_bytes() {
        // As objdump shows glibc 2.36's __start_context: mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi
        assert!(is_start(&[0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff]));
        // The same of a library that is built for CET.
        assert!(is_start(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xdc, 0x64]));
        // mov %rdx,%rsp (longjmp's); push %rbp; nothing
        for other in [&[0x48, 0x89, 0xd4][..], &[0x55, 0x48, 0x89, 0xe5], &[0x48, 0x89], &[]] {
            assert!(!is_start(other), "{other:x?}");
        }
    }
}
