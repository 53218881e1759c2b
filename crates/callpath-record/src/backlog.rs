//! Raw samples that wait for recipe tables, out of the shared memory so that others have room there.
//! Knows nothing of how they are walked.

use std::collections::VecDeque;

use callpath_format::shared::ArenaRef;

use crate::raw::{KeptRaw, Raw};

/// What may wait of one process, bytes: the stacks of some thousand samples. What comes later is a partial path.
const MOST_BYTES: usize = 64 << 20;

/// The raw samples of a process that wait for tables, the oldest first.
#[derive(Default)]
pub(crate) struct Backlog {
    samples: VecDeque<KeptRaw>,
    bytes: usize,
}

impl Backlog {
    /// Copies a sample; `false`: there is no room.
    pub(crate) fn keep(&mut self, raw: &Raw<'_>) -> bool {
        let bytes = raw.len_bytes();
        if self.bytes + bytes > MOST_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.samples.push_back(raw.kept());
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
        let mut backlog = Backlog::default();
        let kept = KeptRaw::of_stack(ArenaRef(64), 1 << 20);
        let mut count = 0;
        while backlog.keep(&kept.as_raw()) {
            count += 1;
        }
        assert_eq!(count, MOST_BYTES / kept.as_raw().len_bytes());
        assert!(backlog.has_any_of(ArenaRef(64)) && !backlog.has_any_of(ArenaRef(128)));
        assert_eq!(backlog.take().len(), count);
        assert!(backlog.is_empty() && backlog.keep(&kept.as_raw()));
    }
}
