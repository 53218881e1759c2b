//! Chooses the threads whose stacks are copied beyond their records: those that may need it, as soon as they may. Where a stack ends within
//! the record, nothing is copied beyond, and it costs nothing.

use rustc_hash::FxHashMap;

/// A stack is deep from here on: it may soon be deeper than a record, bytes.
const DEEP_BYTES: usize = 16 << 10;
/// Copying stops for a thread after this many samples in a row that were too short although the most was copied.
const GIVEN_UP_AFTER: u32 = 64;
/// Copying stops after this many samples in a row that did not need what was copied beyond the record, until one is too short.
const NOT_NEEDED: u32 = 64;
/// The thread is forgotten after this many samples in a row whose stacks were not deep.
const ENOUGH: u32 = 500;
/// After this many too-short samples in a row without a full copy, copies are asked for again: the thread may have another stack.
const MISSED: u32 = 64;
/// A thread is watched no more after this many samples in a row of which the most was copied in vain: it uses several stacks.
const OTHER_STACKS: u32 = 4;
/// So many threads are watched at once: deep ones need room, too.
const MOST_WATCHED: usize = 1 << 10;

/// What a sample's walk needed of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// So many bytes. Either nothing was copied beyond the record, or that copy was needed.
    Bytes(usize),
    /// So many bytes, all of them in the record, although more was copied.
    Within(usize),
    /// The same, although nearly the most was copied beyond it.
    WithinAll(usize),
    /// More than the longest record has.
    Beyond,
    /// The same, although nearly the most was copied beyond it.
    BeyondAll,
}

impl Need {
    /// Whether the stack is deep.
    pub(super) fn is_deep(self) -> bool {
        self.bytes().is_none_or(|bytes| bytes >= DEEP_BYTES)
    }

    /// So many bytes, if the copy was long enough.
    fn bytes(self) -> Option<usize> {
        match self {
            Need::Bytes(bytes) | Need::Within(bytes) | Need::WithinAll(bytes) => Some(bytes),
            Need::Beyond | Need::BeyondAll => None,
        }
    }
}

/// How a thread's stack is copied beyond its record from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copying {
    /// To its end, which is to be looked for.
    ToItsEnd,
    /// Up to this address, where it ended in a shallow sample.
    UpTo(u64),
    /// Not at all.
    Not,
}

/// Of a thread whose stack is copied, or was.
#[derive(Default)]
struct Depth {
    /// Its stack was not deep yet, and it is watched: its stack ends here, as far as is known. 0: it is not, or no more.
    watched_up_to: u64,
    /// It was watched, and was not deep since.
    was_watched: bool,
    /// It is copied.
    is_wanted: bool,
    /// Samples in a row that were not deep.
    enough: u32,
    /// Those in a row that did not need their copies.
    not_needed: u32,
    /// Too-short samples in a row with a full copy.
    vain: u32,
    /// Too-short samples in a row without one.
    missed: u32,
}

/// By thread; those whose stacks are not that deep are not in it, unless they are watched.
#[derive(Default)]
pub(super) struct Depths {
    threads: FxHashMap<u32, Depth>,
    /// Threads that are not deep are watched, too, and how many are.
    watches: bool,
    watched: usize,
}

impl Depths {
    /// Has threads that are not deep watched from now on: one may become deep sooner than anybody looks. Their stacks are copied up to where
    /// they end in a sample that is not deep, which costs nothing as long as records are as long.
    pub(super) fn watch(&mut self) {
        self.watches = true;
    }

    /// Notes a sample. Returns how to copy the thread's stack from now on, if that changes, or if it is to be looked at again where it
    /// ends. `rsp`: the stack pointer.
    pub(super) fn note(&mut self, tid: u32, rsp: u64, need: Need) -> Option<Copying> {
        let is_deep = need.is_deep();
        let depth = self.threads.get_mut(&tid);
        if is_deep && depth.as_ref().is_none_or(|depth| depth.was_watched) {
            self.forget(tid);
            self.threads.insert(tid, Depth { is_wanted: true, ..Depth::default() });
            return Some(Copying::ToItsEnd);
        }
        let Some(depth) = depth.filter(|depth| !depth.was_watched) else { return self.note_shallow(tid, rsp, need) };
        if depth.vain >= GIVEN_UP_AFTER {
            return None;
        }
        let before = depth.is_wanted;
        let mut again = false;
        match need {
            Need::BeyondAll => {
                (depth.vain, depth.missed) = (depth.vain + 1, 0);
                depth.is_wanted &= depth.vain < GIVEN_UP_AFTER;
            }
            // Samples may come late that were taken before.
            Need::Beyond => {
                depth.missed += 1;
                again = depth.missed.is_multiple_of(MISSED);
                depth.is_wanted = true;
            }
            Need::Bytes(_) | Need::Within(_) | Need::WithinAll(_) => (depth.vain, depth.missed) = (0, 0),
        }
        let is_vain = matches!(need, Need::Within(_) | Need::WithinAll(_));
        depth.not_needed = if is_vain { depth.not_needed + 1 } else { 0 };
        depth.is_wanted &= depth.not_needed < NOT_NEEDED;
        depth.enough = if is_deep { 0 } else { depth.enough + 1 };
        let (is_wanted, is_shallow) = (depth.is_wanted, depth.enough >= ENOUGH);
        if is_shallow {
            self.forget(tid);
            return before.then_some(Copying::Not);
        }
        let now = if is_wanted { Copying::ToItsEnd } else { Copying::Not };
        (is_wanted != before || again).then_some(now)
    }

    /// The same of a thread whose stack was not deep yet, and is not now.
    fn note_shallow(&mut self, tid: u32, rsp: u64, need: Need) -> Option<Copying> {
        let up_to = rsp.saturating_add(need.bytes().filter(|bytes| *bytes > 0)? as u64);
        let Some(depth) = self.threads.get_mut(&tid) else {
            if !self.watches || self.watched >= MOST_WATCHED {
                return None;
            }
            self.threads.insert(tid, Depth { watched_up_to: up_to, was_watched: true, ..Depth::default() });
            self.watched += 1;
            return Some(Copying::UpTo(up_to));
        };
        if depth.watched_up_to == 0 {
            return None;
        }
        depth.not_needed = if matches!(need, Need::Bytes(_)) { 0 } else { depth.not_needed + 1 };
        depth.vain = if matches!(need, Need::WithinAll(_)) { depth.vain + 1 } else { 0 };
        if depth.not_needed >= NOT_NEEDED || depth.vain >= OTHER_STACKS {
            depth.watched_up_to = 0;
            return Some(Copying::Not);
        }
        // The walk before may have ended early.
        let is_longer = up_to > depth.watched_up_to;
        depth.watched_up_to = depth.watched_up_to.max(up_to);
        is_longer.then_some(Copying::UpTo(up_to))
    }

    /// The threads whose stacks are copied, or were.
    pub(super) fn threads(&self) -> impl Iterator<Item = u32> {
        self.threads.keys().copied()
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, tid: u32) {
        let was_watched = self.threads.remove(&tid).is_some_and(|depth| depth.was_watched);
        self.watched -= usize::from(was_watched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Copying::{Not, ToItsEnd, UpTo};
    use Need::{Beyond, BeyondAll, Bytes, Within, WithinAll};

    const DEEP: Need = Bytes(DEEP_BYTES);
    const RSP: u64 = 1 << 20;

    fn note(depths: &mut Depths, samples: u32, need: Need) -> Vec<Copying> {
        (0..samples).filter_map(|_| depths.note(1, RSP, need)).collect()
    }

    #[test]
    fn stacks_are_copied_as_long_as_walks_may_need_them() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, 1000, Bytes(DEEP_BYTES - 8)), []);
        let noted = [DEEP, DEEP, Beyond, DEEP].map(|need| depths.note(1, RSP, need));
        assert_eq!(noted, [Some(ToItsEnd), None, None, None]);
        assert_eq!(note(&mut depths, ENOUGH - 1, Bytes(100)), []);
        assert_eq!(note(&mut depths, 1, DEEP), []);
        assert_eq!(note(&mut depths, 2 * ENOUGH, Bytes(100)), [Not]);
        assert_eq!(note(&mut depths, 1, Beyond), [ToItsEnd]);
        let late = note(&mut depths, 1000, Beyond);
        assert_eq!(late, [ToItsEnd; 15], "they were taken before, or its stack is another one");
        // Deeper than is copied.
        assert_eq!(note(&mut depths, 1000, BeyondAll), [Not]);
        assert_eq!([note(&mut depths, 1000, DEEP), note(&mut depths, 1000, Bytes(100))], [vec![], vec![]]);
        depths.forget(1);
        assert_eq!(depths.note(1, RSP, Beyond), Some(ToItsEnd));
    }

    #[test]
    fn stacks_that_are_not_deep_are_watched() {
        let mut depths = Depths::default();
        depths.watch();
        assert_eq!(note(&mut depths, 10, Bytes(0)), [], "nothing was walked");
        assert_eq!(note(&mut depths, 10, Bytes(100)), [UpTo(RSP + 100)]);
        assert_eq!(note(&mut depths, 10, Bytes(200)), [UpTo(RSP + 200)]);
        assert_eq!(note(&mut depths, 2 * ENOUGH, Bytes(50)), []);
        assert_eq!(note(&mut depths, 10, DEEP), [ToItsEnd]);
        assert_eq!(note(&mut depths, ENOUGH + 10, Bytes(100)), [Not, UpTo(RSP + 100)]);
        // It goes from stack to stack.
        assert_eq!(note(&mut depths, OTHER_STACKS + 10, WithinAll(100)), [Not]);
        assert_eq!(note(&mut depths, 2 * ENOUGH, Bytes(100)), []);
        assert_eq!(note(&mut depths, 10, Beyond), [ToItsEnd]);
        depths.forget(1);
        assert_eq!(note(&mut depths, NOT_NEEDED + 10, Within(100)), [UpTo(RSP + 100), Not]);
        depths.forget(1);
        // There is no end of threads.
        let noted = (0..5000).filter_map(|tid| depths.note(tid, RSP, Bytes(100)));
        assert_eq!(noted.count(), MOST_WATCHED);
        (0..5000).for_each(|tid| depths.forget(tid));
        assert_eq!((depths.watched, depths.threads().count()), (0, 0));
    }

    #[test]
    fn what_is_not_needed_is_not_copied_for_long() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, NOT_NEEDED + 100, Within(DEEP_BYTES)), [ToItsEnd, Not]);
        assert_eq!(note(&mut depths, 100, DEEP), []);
        assert_eq!(note(&mut depths, 1, Beyond), [ToItsEnd]);
        // Now and then it is.
        for _ in 0..10 {
            assert_eq!(note(&mut depths, NOT_NEEDED - 1, Within(DEEP_BYTES)), []);
            assert_eq!(note(&mut depths, 1, DEEP), []);
        }
    }
}
