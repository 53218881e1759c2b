//! Raw samples that wait for recipe tables, out of the shared memory so that others have room there.
//! Knows nothing of how they are walked.

use std::collections::VecDeque;

use callpath_format::shared::ArenaRef;

use crate::raw::{KeptRaw, Raw};

/// What may wait of one process, bytes: the stacks of some thousand samples. What comes later is a partial path.
const MOST_BYTES: usize = 64 << 20;

/// How many samples are looked at for the last one of a thread.
const LOOKS: usize = 64;

/// The raw samples of a process that wait for tables, the oldest first.
#[derive(Default)]
pub(crate) struct Backlog {
    samples: VecDeque<KeptRaw>,
    bytes: usize,
}

impl Backlog {
    /// Copies a sample; `false`: there is no room. Of the stack only what is not as it was at the thread's last sample.
    pub(crate) fn keep(&mut self, raw: &Raw<'_>) -> bool {
        let before = self.samples.iter().rev().take(LOOKS).find(|kept| kept.owner == raw.owner);
        let (kept, bytes) = raw.kept(before);
        if self.bytes + bytes > MOST_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.samples.push_back(kept);
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Whether samples of this thread wait.
    pub(crate) fn has_any_of(&self, owner: ArenaRef) -> bool {
        self.samples.iter().any(|kept| kept.owner == owner)
    }

    /// Takes all of them.
    pub(crate) fn take(&mut self) -> VecDeque<KeptRaw> {
        self.bytes = 0;
        std::mem::take(&mut self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_may_be() {
        const WORDS: u64 = 1 << 17;
        let mut backlog = Backlog::default();
        let thread = ArenaRef(64);
        let mut count = 0;
        // Each of them is another one.
        while backlog.keep(&KeptRaw::of_stack(thread, (0..WORDS).map(|word| word + count)).as_raw()) {
            count += 1;
        }
        assert!((60..64).contains(&count), "{count} stacks of a megabyte");
        assert!(backlog.has_any_of(thread) && !backlog.has_any_of(ArenaRef(128)));
        assert_eq!(backlog.take().len() as u64, count);
        assert!(backlog.is_empty());
    }

    #[test]
    fn what_is_the_same_is_kept_once() {
        let mut backlog = Backlog::default();
        let (one, other) = (ArenaRef(64), ArenaRef(128));
        let stack = |first: u64| std::iter::once(first).chain(1..1 << 17);
        for first in 0..1000 {
            assert!(backlog.keep(&KeptRaw::of_stack(one, stack(first)).as_raw()), "{first}");
            assert!(first > 3 || backlog.keep(&KeptRaw::of_stack(other, stack(first)).as_raw()));
        }
        assert!(backlog.bytes < 32 << 20, "{} bytes", backlog.bytes);
        for (first, kept) in backlog.take().iter().filter(|kept| kept.owner == one).enumerate() {
            assert!(kept.words().eq(stack(first as u64)), "{first}");
        }
    }
}
