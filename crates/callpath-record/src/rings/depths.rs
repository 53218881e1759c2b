//! Chooses the threads whose stacks are copied beyond their records: those that may need it, as soon as they may. Where a stack ends within
//! the record, nothing is copied beyond, and it costs nothing.

use callpath_target::CopiedFrom;
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
/// Of so many samples of a thread that is seen first, or whose walk has met a page that is not in memory, all of the stack is copied.
const AT_FIRST: u32 = 64;
/// After this many walks that were not whole, a thread's stack ends where they do.
const NEVER_WHOLE: u32 = 16;
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

/// A sample of a thread whose stack may be copied beyond its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// Its stack pointer.
    pub(crate) rsp: u64,
    pub(crate) need: Need,
    /// Its walk has reached the outermost frame.
    pub(crate) is_whole: bool,
    /// What the walk needed lay behind a page that is not in memory.
    pub(crate) met_hole: bool,
    /// The walk goes on once a table exists: what it will need is not known.
    pub(crate) is_awaited: bool,
}

/// Up to where a thread's stack is copied from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UpTo {
    /// As before.
    Same,
    /// Its end, which is to be looked for.
    End,
    /// The same, if it is near.
    EndIfNear,
    /// This address, where it ended in a shallow sample.
    Address(u64),
    /// It is not copied.
    Nothing,
}

/// A thread that was never deep, or not for long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// It is deep, or may be.
    Deep,
    /// Nobody knows where its stack ends, after so many walks that were not whole.
    Unknown(u32),
    /// Its stack ends here, as far as is known, and it is copied up to there.
    UpTo(u64),
    /// It is not watched any more.
    Over,
}

/// Of a thread whose stack is copied, or was.
struct Depth {
    watch: Watch,
    /// Of so many more samples, stacks are copied from the stack pointer on.
    from_start: u32,
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

impl Depth {
    fn new(watch: Watch, from_start: u32) -> Depth {
        let is_wanted = watch == Watch::Deep;
        Depth { watch, from_start, is_wanted, enough: 0, not_needed: 0, vain: 0, missed: 0 }
    }

    fn from(&self) -> CopiedFrom {
        if self.from_start > 0 { CopiedFrom::StackPointer } else { CopiedFrom::RecordEnd }
    }
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
    /// they end in a sample that is not deep, which costs nothing as long as records are as long; and at first, and where pages are not in
    /// memory, from the stack pointer on.
    pub(super) fn watch(&mut self) {
        self.watches = true;
    }

    /// Whether stacks of threads that are not known yet are to be copied. Where there are too many, some would never be known.
    pub(super) fn copies_new(&self) -> bool {
        self.watches
    }

    /// Notes a sample. Returns up to where to copy the thread's stack from now on and from where, if that changes, or if it is to be looked at
    /// again where it ends.
    pub(super) fn note(&mut self, tid: u32, noted: Noted) -> Option<(UpTo, CopiedFrom)> {
        if noted.need.is_deep() && self.threads.get(&tid).is_none_or(|depth| depth.watch != Watch::Deep) {
            let from_start = self.threads.get(&tid).map_or(self.first(), |depth| depth.from_start);
            self.forget(tid);
            let depth = Depth::new(Watch::Deep, from_start);
            let from = depth.from();
            self.threads.insert(tid, depth);
            return Some((UpTo::End, from));
        }
        let first = self.first();
        let is_known = self.threads.contains_key(&tid);
        if !is_known && !self.begins_watch(tid) {
            return None;
        }
        let depth = self.threads.get_mut(&tid)?;
        let before = depth.from();
        depth.from_start = if noted.met_hole || noted.is_awaited {
            first
        } else {
            depth.from_start.saturating_sub(u32::from(is_known))
        };
        let from = depth.from();
        let up_to = match depth.watch {
            Watch::Deep => depth.note_deep(noted.need),
            _ => depth.note_shallow(noted),
        };
        if depth.watch == Watch::Deep && depth.enough >= ENOUGH {
            self.forget(tid);
        }
        up_to.or((from != before).then_some(UpTo::Same)).map(|up_to| (up_to, from))
    }

    /// How many samples of a thread are copied from the stack pointer on when it is seen first.
    fn first(&self) -> u32 {
        if self.watches { AT_FIRST } else { 0 }
    }

    /// Watches a thread from now on, if there is room.
    fn begins_watch(&mut self, tid: u32) -> bool {
        let has_room = self.watched < MOST_WATCHED;
        self.watches &= has_room;
        if self.watches {
            self.threads.insert(tid, Depth::new(Watch::Unknown(0), AT_FIRST));
            self.watched += 1;
        }
        self.watches
    }

    /// The threads whose stacks are copied, or were.
    pub(super) fn threads(&self) -> impl Iterator<Item = u32> {
        self.threads.keys().copied()
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, tid: u32) {
        let was_watched = self.threads.remove(&tid).is_some_and(|depth| depth.watch != Watch::Deep);
        self.watched -= usize::from(was_watched);
    }
}

impl Depth {
    /// Notes a sample of a thread that is deep, or was.
    fn note_deep(&mut self, need: Need) -> Option<UpTo> {
        if self.vain >= GIVEN_UP_AFTER {
            return None;
        }
        let before = self.is_wanted;
        let mut again = false;
        match need {
            Need::BeyondAll => {
                (self.vain, self.missed) = (self.vain + 1, 0);
                self.is_wanted &= self.vain < GIVEN_UP_AFTER;
            }
            // Samples may come late that were taken before.
            Need::Beyond => {
                self.missed += 1;
                again = self.missed.is_multiple_of(MISSED);
                self.is_wanted = true;
            }
            Need::Bytes(_) | Need::Within(_) | Need::WithinAll(_) => (self.vain, self.missed) = (0, 0),
        }
        let is_vain = matches!(need, Need::Within(_) | Need::WithinAll(_));
        self.not_needed = if is_vain { self.not_needed + 1 } else { 0 };
        self.is_wanted &= self.not_needed < NOT_NEEDED;
        self.enough = if need.is_deep() { 0 } else { self.enough + 1 };
        if self.enough >= ENOUGH {
            return before.then_some(UpTo::Nothing);
        }
        let now = if self.is_wanted { UpTo::End } else { UpTo::Nothing };
        (self.is_wanted != before || again).then_some(now)
    }

    /// The same of a thread that was not deep yet, and is not now.
    fn note_shallow(&mut self, noted: Noted) -> Option<UpTo> {
        let address = noted.rsp.saturating_add(noted.need.bytes()? as u64);
        match self.watch {
            Watch::Unknown(_) if noted.is_awaited => return Some(UpTo::EndIfNear),
            Watch::Unknown(walks) if !noted.is_whole && walks < NEVER_WHOLE => {
                self.watch = Watch::Unknown(walks + 1);
                return None;
            }
            Watch::Unknown(_) => {}
            Watch::UpTo(before) => {
                self.not_needed = if matches!(noted.need, Need::Bytes(_)) { 0 } else { self.not_needed + 1 };
                self.vain = if matches!(noted.need, Need::WithinAll(_)) { self.vain + 1 } else { 0 };
                if self.not_needed >= NOT_NEEDED || self.vain >= OTHER_STACKS {
                    self.watch = Watch::Over;
                    return Some(UpTo::Nothing);
                }
                // The walk before may have ended early.
                if address <= before {
                    return None;
                }
            }
            Watch::Deep | Watch::Over => return None,
        }
        self.watch = Watch::UpTo(address);
        Some(UpTo::Address(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CopiedFrom::{RecordEnd, StackPointer};
    use Need::{Beyond, BeyondAll, Bytes, Within, WithinAll};
    use UpTo::{Address, End, EndIfNear, Nothing, Same};

    const DEEP: Need = Bytes(DEEP_BYTES);
    const RSP: u64 = 1 << 20;

    const fn whole(need: Need) -> Noted {
        Noted { rsp: RSP, need, is_whole: true, met_hole: false, is_awaited: false }
    }

    fn note_all(depths: &mut Depths, samples: u32, noted: Noted) -> Vec<(UpTo, CopiedFrom)> {
        (0..samples).filter_map(|_| depths.note(1, noted)).collect()
    }

    fn note(depths: &mut Depths, samples: u32, need: Need) -> Vec<UpTo> {
        note_all(depths, samples, whole(need)).into_iter().map(|(up_to, _)| up_to).collect()
    }

    #[test]
    fn stacks_are_copied_as_long_as_walks_may_need_them() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, 1000, Bytes(DEEP_BYTES - 8)), []);
        let noted = [DEEP, DEEP, Beyond, DEEP].map(|need| depths.note(1, whole(need)));
        assert_eq!(noted, [Some((End, RecordEnd)), None, None, None]);
        assert_eq!(note(&mut depths, ENOUGH - 1, Bytes(100)), []);
        assert_eq!(note(&mut depths, 1, DEEP), []);
        assert_eq!(note(&mut depths, 2 * ENOUGH, Bytes(100)), [Nothing]);
        assert_eq!(note(&mut depths, 1, Beyond), [End]);
        let late = note(&mut depths, 1000, Beyond);
        assert_eq!(late, [End; 15], "they were taken before, or its stack is another one");
        // Deeper than is copied.
        assert_eq!(note(&mut depths, 1000, BeyondAll), [Nothing]);
        assert_eq!([note(&mut depths, 1000, DEEP), note(&mut depths, 1000, Bytes(100))], [vec![], vec![]]);
        depths.forget(1);
        assert_eq!(note(&mut depths, 1, Beyond), [End]);
    }

    #[test]
    fn stacks_that_are_not_deep_are_watched() {
        let mut depths = Depths::default();
        depths.watch();
        assert_eq!(note(&mut depths, 10, Bytes(100)), [Address(RSP + 100)]);
        assert_eq!(note(&mut depths, 10, Bytes(200)), [Address(RSP + 200)]);
        // From now on from the end of the record.
        assert_eq!(note_all(&mut depths, 2 * ENOUGH, whole(Bytes(50))), [(Same, RecordEnd)]);
        assert_eq!(note(&mut depths, 10, DEEP), [End]);
        assert_eq!(note(&mut depths, ENOUGH + 10, Bytes(100)), [Nothing, Address(RSP + 100)]);
        // It goes from stack to stack.
        assert_eq!(note(&mut depths, OTHER_STACKS + 10, WithinAll(100)), [Nothing]);
        assert_eq!(note(&mut depths, 10, Beyond), [End]);
        depths.forget(1);
        assert_eq!(note(&mut depths, NOT_NEEDED + 1, Within(100)), [Address(RSP + 100), Nothing]);
    }

    #[test]
    fn where_pages_are_not_in_memory_all_is_copied() {
        let mut depths = Depths::default();
        depths.watch();
        // Where its stack ends is not known from that.
        let holed = Noted { is_whole: false, met_hole: true, ..whole(Bytes(100)) };
        let awaited = Noted { is_whole: false, is_awaited: true, ..whole(Bytes(0)) };
        assert_eq!(note_all(&mut depths, 2, awaited), [(EndIfNear, StackPointer); 2]);
        assert_eq!(note_all(&mut depths, 3, holed), []);
        assert_eq!(note_all(&mut depths, 3, whole(Bytes(2000))), [(Address(RSP + 2000), StackPointer)]);
        assert_eq!(note_all(&mut depths, AT_FIRST, whole(Bytes(2000))), [(Same, RecordEnd)]);
        assert_eq!(note_all(&mut depths, 3, holed), [(Same, StackPointer)]);
        assert_eq!(note_all(&mut depths, 3, whole(DEEP)), [(End, StackPointer)]);
        assert_eq!(note_all(&mut depths, AT_FIRST, whole(DEEP)), [(Same, RecordEnd)]);
        assert_eq!(note_all(&mut depths, 3, Noted { met_hole: true, ..whole(DEEP) }), [(Same, StackPointer)]);
        depths.forget(1);
        // Its walks are never whole.
        assert_eq!(note_all(&mut depths, 2 * NEVER_WHOLE, holed), [(Address(RSP + 100), StackPointer)]);
        depths.forget(1);
        let nothing = Noted { is_whole: false, ..whole(Bytes(0)) };
        assert_eq!(note_all(&mut depths, 2 * NEVER_WHOLE, nothing), [(Address(RSP), StackPointer)]);
    }

    #[test]
    fn there_is_no_end_of_threads() {
        let mut depths = Depths::default();
        depths.watch();
        let noted = (0..5000).filter_map(|tid| depths.note(tid, whole(Bytes(100))));
        assert_eq!(noted.count(), MOST_WATCHED);
        assert!(!depths.copies_new());
        (0..5000).for_each(|tid| depths.forget(tid));
        assert_eq!((depths.watched, depths.threads().count()), (0, 0));
        assert_eq!(note_all(&mut depths, 3, whole(DEEP)), [(End, RecordEnd)]);
    }

    #[test]
    fn what_is_not_needed_is_not_copied_for_long() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, NOT_NEEDED + 100, Within(DEEP_BYTES)), [End, Nothing]);
        assert_eq!(note(&mut depths, 100, DEEP), []);
        assert_eq!(note(&mut depths, 1, Beyond), [End]);
        // Now and then it is.
        for _ in 0..10 {
            assert_eq!(note(&mut depths, NOT_NEEDED - 1, Within(DEEP_BYTES)), []);
            assert_eq!(note(&mut depths, 1, DEEP), []);
        }
    }
}
