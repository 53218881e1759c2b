//! A sample that the kernel has taken from outside: registers, and a copy of the stack in a ring.

use std::sync::atomic::{AtomicU32, AtomicU64};

use callpath_format::frame::FrameKey;
use callpath_format::register::Reg;
use callpath_format::shared::ArenaRef;
use callpath_format::shared::tree::RawSample;
use callpath_target::StackCopy;

use super::Raw;
use super::stack::StackPart;

/// Such a sample.
pub(crate) struct Copied<'r> {
    sample: RawSample,
    start: u64,
    stack: StackCopy<'r>,
    kernel: Vec<FrameKey>,
    beyond: &'r [callpath_target::StackPage],
}

impl<'r> Copied<'r> {
    /// Registers in DWARF order, then rip; `is_whole`: the copy ends where the stack does.
    /// `base`: from where heights on the stack count, 0 if that is not known.
    pub(crate) fn new(registers: [u64; 17], stack: StackCopy<'r>, (is_whole, base): (bool, u64)) -> Copied<'r> {
        let start = registers[Reg::RSP.index()];
        let sample = RawSample {
            registers: registers.map(AtomicU64::new),
            samples: AtomicU64::new(1),
            stack_base: AtomicU64::new(base),
            flags: AtomicU32::new(u32::from(is_whole)),
            ..RawSample::default()
        };
        Copied { sample, start, stack, kernel: Vec::new(), beyond: &[] }
    }

    /// With the frames of the kernel that it hit in, the innermost first.
    pub(crate) fn with_kernel(self, kernel: Vec<FrameKey>) -> Copied<'r> {
        Copied { kernel, ..self }
    }

    /// With what was copied of the stack besides, by address; the first part may begin in the other copy.
    pub(crate) fn with_more(self, beyond: &'r [callpath_target::StackPage]) -> Copied<'r> {
        Copied { beyond, ..self }
    }

    /// As a raw sample of a thread, with its weight by metric.
    pub(crate) fn as_raw<'a>(&'a self, values: &'a [AtomicU64], owner: ArenaRef) -> Raw<'a> {
        let mut start = self.start;
        let mut parts = Vec::with_capacity(self.stack.pieces.len());
        for words in self.stack.pieces {
            if words.is_empty() {
                continue;
            }
            parts.push(StackPart { start, words });
            start = start.wrapping_add(8 * words.len() as u64);
        }
        // Words of both begin at the same multiples of eight bytes, or not at all.
        let beyond = if start.is_multiple_of(8) { self.beyond } else { &[] };
        for part in beyond {
            let known_words = start.saturating_sub(part.start).div_ceil(8);
            let rest = part.words().get(known_words as usize..).filter(|words| !words.is_empty());
            parts.extend(rest.map(|words| StackPart { start: part.start + 8 * known_words, words }));
        }
        Raw { sample: &self.sample, values, stack: parts, code: &[], kernel: &self.kernel, owner }
    }
}
