//! A copy of a stack as a walk reads it: what of the copy it needs, and whether the copy was long enough.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_target::StackSamples;
use callpath_unwind::Memory;

/// A part of a stack's copy.
#[derive(Clone, Copy)]
pub(super) struct StackPart<'a> {
    /// Where it begins on the stack.
    pub(super) start: u64,
    pub(super) words: &'a [AtomicU64],
}

/// A copy of a stack: parts by address. Between two of them, pages may be missing.
pub(super) struct Stack<'a> {
    parts: &'a [StackPart<'a>],
    /// Up to the last byte that was read.
    read_bytes: usize,
    /// The same with what was to be read and is not there.
    wanted_bytes: usize,
    /// The last address that was to be read and is not there.
    missed: Option<u64>,
    /// The part that was read last: the next word often lies in it, too.
    last_part: usize,
    /// Addresses that were read, and the words there, if that is wanted; and whether one was not there.
    log: Option<Vec<(u64, u64)>>,
    has_missed: bool,
}

impl<'a> Stack<'a> {
    pub(super) fn new(parts: &'a [StackPart<'a>]) -> Stack<'a> {
        Stack { parts, read_bytes: 0, wanted_bytes: 0, missed: None, last_part: 0, log: None, has_missed: false }
    }

    /// Takes note of what is read from now on.
    pub(super) fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// What was read since, in order.
    pub(super) fn log(&self) -> &[(u64, u64)] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Whether something was not there since the last [`Stack::forget_misses`].
    pub(super) fn has_missed_since(&self) -> bool {
        self.has_missed
    }

    pub(super) fn forget_misses(&mut self) {
        self.has_missed = false;
    }

    /// Whether this word lies at an address. It counts as read.
    pub(super) fn is(&mut self, addr: u64, word: u64) -> bool {
        self.read(addr) == Some(word)
    }

    /// What of it was needed: up to the last byte that was read.
    pub(super) fn read_bytes(&self) -> usize {
        self.read_bytes
    }

    /// Whether what was missed last lies where the stack goes on behind the copy. An address below, or far above, is of no
    /// frame: it was found in the wrong place.
    pub(super) fn has_ended(&self) -> bool {
        const FARTHEST_BYTES: u64 = 1 << 20;
        let end = self.parts.last().map(|part| part.start.wrapping_add(8 * part.words.len() as u64));
        let behind = end.zip(self.missed).and_then(|(end, missed)| missed.saturating_add(7).checked_sub(end));
        behind.is_some_and(|bytes| bytes < FARTHEST_BYTES)
    }

    /// Whether a longer copy could have had what was to be read.
    pub(super) fn is_short(&self) -> bool {
        (self.read_bytes + 1..=StackSamples::MOST_BYTES as usize).contains(&self.wanted_bytes)
    }

    /// The eight bytes at `addr`, a multiple of eight bytes from the copy's first one.
    fn word(&mut self, addr: u64) -> Option<u64> {
        let in_part = |part: &StackPart<'a>| part.words.get((addr.checked_sub(part.start)? / 8) as usize);
        if let Some(word) = self.parts.get(self.last_part).and_then(in_part) {
            return Some(word.load(Relaxed));
        }
        self.last_part = self.parts.partition_point(|part| part.start <= addr).checked_sub(1)?;
        self.parts.get(self.last_part).and_then(in_part).map(|word| word.load(Relaxed))
    }

    fn read(&mut self, addr: u64) -> Option<u64> {
        let from_start = addr.checked_sub(self.parts.first()?.start)?;
        let shift = from_start % 8;
        self.wanted_bytes = self.wanted_bytes.max(usize::try_from(from_start).unwrap_or(usize::MAX).saturating_add(8));
        let low = self.word(addr - shift)?;
        self.read_bytes = self.read_bytes.max(from_start as usize + 8);
        if shift == 0 {
            return Some(low);
        }
        let high = self.word((addr - shift).checked_add(8)?)?;
        Some(low >> (8 * shift) | high << (64 - 8 * shift))
    }
}

impl Memory for Stack<'_> {
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        let word = self.read(addr);
        match word {
            Some(word) => self.log.iter_mut().for_each(|log| log.push((addr, word))),
            None => (self.missed, self.has_missed) = (Some(addr), true),
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_ended_only_where_the_stack_goes_on() {
        let words: Vec<AtomicU64> = (0..8).map(AtomicU64::new).collect();
        let parts = [StackPart { start: 0x7000, words: &words[..4] }, StackPart { start: 0x7020, words: &words[4..] }];
        let ended_after = |addr: u64| {
            let mut stack = Stack::new(&parts);
            (stack.read_u64(addr), stack.has_ended())
        };
        assert_eq!(ended_after(0x7018), (Some(3), false));
        assert_eq!(ended_after(0x7038), (Some(7), false));
        // Just behind it, half behind it, and where the caller of a large frame would be.
        assert_eq!(ended_after(0x7040), (None, true));
        assert_eq!(ended_after(0x703c), (None, true));
        assert_eq!(ended_after(0x7040 + (100 << 10)), (None, true));
        // Of another stack, or of none.
        assert_eq!(ended_after(0x6ff8), (None, false));
        assert_eq!(ended_after(0xc000_0012_3000), (None, false));
        assert_eq!(ended_after(u64::MAX), (None, false));
    }
}
