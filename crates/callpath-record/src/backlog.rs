//! Raw samples that wait for recipe tables, moved out of the shared memory to make room there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use callpath_format::shared::ArenaRef;

use crate::raw::{Raw, RetainedRaw};

/// How much of one process may wait, bytes: the stacks of some thousand samples. Samples beyond it give partial paths.
const MOST_BYTES: usize = 64 << 20;

/// How many samples are looked at for the last one of a thread.
const LOOKS: usize = 64;

/// The raw samples of a process that wait for something, the oldest first.
pub(crate) struct Backlog<T> {
    samples: VecDeque<Waiting<T>>,
    bytes: usize,
    /// Where the last look stopped.
    broke_off: Option<usize>,
}

/// A sample, and what it waits for.
struct Waiting<T> {
    sample: RetainedRaw,
    bytes: usize,
    awaited: T,
}

impl<T> Default for Backlog<T> {
    fn default() -> Backlog<T> {
        Backlog { samples: VecDeque::new(), bytes: 0, broke_off: None }
    }
}

impl<T: Copy> Backlog<T> {
    /// Copies a sample; `false`: there is no room. Of the stack, only the part is copied
    /// that has changed since the thread's last sample.
    pub(crate) fn retain(&mut self, raw: &Raw<'_>, awaited: T) -> bool {
        let before = self.samples.iter().rev().take(LOOKS).find(|retained| retained.sample.owner == raw.owner);
        let (sample, bytes) = raw.retained(before.map(|retained| &retained.sample));
        if self.bytes + bytes > MOST_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.samples.push_back(Waiting { sample, bytes, awaited });
        true
    }

    /// Whether there is anything to look at: a sample whose table `is_there`. If not, a look that stopped early is over.
    pub(crate) fn is_due(&mut self, is_there: impl Fn(T) -> bool) -> bool {
        let is_due = self.waits(is_there);
        self.broke_off.take_if(|_| !is_due);
        is_due
    }

    /// Looks at each sample whose table `is_there`: `walk` says what it waits for now, if anything. Stops after
    /// `at_most`, and continues there the next time.
    pub(crate) fn look(
        &mut self,
        at_most: Duration,
        is_there: impl Fn(T) -> bool,
        mut walk: impl FnMut(&RetainedRaw) -> Option<T>,
    ) {
        let begin = Instant::now();
        let (mut index, mut retained) = (0, 0);
        let first = self.broke_off.take().unwrap_or(0);
        self.samples.retain_mut(|waiting| {
            index += 1;
            let mut keeps = true;
            if index > first && self.broke_off.is_none() && is_there(waiting.awaited) {
                match walk(&waiting.sample) {
                    Some(awaited) => waiting.awaited = awaited,
                    None => {
                        self.bytes -= waiting.bytes;
                        keeps = false;
                    }
                }
                if begin.elapsed() >= at_most {
                    self.broke_off = Some(retained + usize::from(keeps));
                }
            }
            retained += usize::from(keeps);
            keeps
        });
    }

    /// Whether the last look stopped before the end.
    pub(crate) fn broke_off(&self) -> bool {
        self.broke_off.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Whether samples of this thread wait.
    pub(crate) fn has_any_of(&self, owner: ArenaRef) -> bool {
        self.samples.iter().any(|retained| retained.sample.owner == owner)
    }

    /// Whether a sample waits for such a table.
    pub(crate) fn waits(&self, mut for_what: impl FnMut(T) -> bool) -> bool {
        self.samples.iter().any(|retained| for_what(retained.awaited))
    }

    /// What they wait for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = T> {
        self.samples.iter().map(|waiting| waiting.awaited)
    }

    /// Takes all of them.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = RetainedRaw> + use<T> {
        (self.bytes, self.broke_off) = (0, None);
        std::mem::take(&mut self.samples).into_iter().map(|waiting| waiting.sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::{Awaited, ModuleId};

    const TABLE: Awaited = Awaited { module: ModuleId(0), slice: None };

    #[test]
    fn only_those_are_looked_at_whose_table_is_there() {
        let slice = |index| Awaited { module: ModuleId(0), slice: Some(index) };
        let mut backlog = Backlog::default();
        for index in 0..6 {
            assert!(backlog.retain(
                &RetainedRaw::of_stack(ArenaRef(64), 8 * index..8 * index + 4).as_raw(),
                slice(index as u32 % 3)
            ));
        }
        let mut seen = 0;
        // One continues into another slice, one is done.
        backlog.look(
            Duration::MAX,
            |awaited| awaited == slice(1),
            |_| {
                seen += 1;
                (seen == 1).then_some(slice(7))
            },
        );
        assert_eq!(seen, 2);
        assert!(backlog.waits(|awaited| awaited == slice(7)) && !backlog.waits(|awaited| awaited == slice(1)));
        backlog.look(Duration::MAX, |awaited| awaited != slice(7), |_| None);
        assert_eq!(backlog.samples.len(), 1);
        backlog.look(Duration::MAX, |_| true, |_| None);
        assert_eq!((backlog.is_empty(), backlog.bytes), (true, 0));
    }

    #[test]
    fn a_look_that_breaks_off_goes_on_there() {
        let mut backlog = Backlog::default();
        let words = |index: u64| 8 * index..8 * index + 4;
        for index in 0..9 {
            assert!(backlog.retain(&RetainedRaw::of_stack(ArenaRef(64), words(index)).as_raw(), TABLE));
        }
        let mut seen = Vec::new();
        for round in 0..9 {
            // Of three, one waits on.
            backlog.look(
                Duration::ZERO,
                |_| true,
                |retained| {
                    seen.extend(retained.words().next());
                    (round % 3 == 0).then_some(TABLE)
                },
            );
            assert!(backlog.broke_off(), "round {round}");
        }
        assert_eq!(seen, (0..9).map(|index| 8 * index).collect::<Vec<_>>());
        backlog.look(Duration::ZERO, |_| true, |_| unreachable!("all have been looked at"));
        assert!(!backlog.broke_off() && backlog.samples.len() == 3);
        backlog.look(Duration::ZERO, |_| true, |_| None);
        assert!(backlog.broke_off() && backlog.is_due(|_| true) && backlog.broke_off());
        // The others' tables are not there yet: who waits for them may sleep.
        assert!(!backlog.is_due(|_| false) && !backlog.broke_off() && backlog.samples.len() == 2);
    }

    #[test]
    fn no_more_is_retained_than_may_be() {
        const WORDS: u64 = 1 << 17;
        let mut backlog = Backlog::default();
        let thread = ArenaRef(64);
        let mut count = 0;
        // Each of them is another one.
        while backlog.retain(&RetainedRaw::of_stack(thread, (0..WORDS).map(|word| word + count)).as_raw(), TABLE) {
            count += 1;
        }
        assert!((60..64).contains(&count), "{count} stacks of a megabyte");
        assert!(backlog.has_any_of(thread) && !backlog.has_any_of(ArenaRef(128)));
        assert_eq!(backlog.take().count() as u64, count);
        assert!(backlog.is_empty());
    }

    #[test]
    fn what_is_the_same_is_retained_once() {
        let mut backlog = Backlog::default();
        let (one, other) = (ArenaRef(64), ArenaRef(128));
        let stack = |first: u64| std::iter::once(first).chain(1..1 << 17);
        for first in 0..1000 {
            assert!(backlog.retain(&RetainedRaw::of_stack(one, stack(first)).as_raw(), TABLE), "{first}");
            assert!(first > 3 || backlog.retain(&RetainedRaw::of_stack(other, stack(first)).as_raw(), TABLE));
        }
        assert!(backlog.bytes < 32 << 20, "{} bytes", backlog.bytes);
        for (first, retained) in backlog.take().filter(|retained| retained.owner == one).enumerate() {
            assert!(retained.words().eq(stack(first as u64)), "{first}");
        }
    }
}
