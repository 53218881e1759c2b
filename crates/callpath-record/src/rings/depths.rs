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
/// A thread whose stacks seem to end so far apart uses several, and is watched no more, bytes.
const OTHER_STACK_BYTES: u64 = 64 << 10;
/// Of so many samples of a thread that is seen first, or whose walk has met a page that is not in memory, all of the stack is copied.
const AT_FIRST: u32 = 64;
/// After that was in vain so often in a row, it is not done any more where walks end at such a page.
const FRUITLESS: u32 = 4;
/// After this many walks that were not whole, a thread's stack is taken to end where they do.
const NEVER_WHOLE: u32 = 16;
/// So many threads that are not deep are known at once: deep ones need room, too. Others are, once there are only half as many.
const MOST_WATCHED: usize = 1 << 10;

/// What a sample's walk needed of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// So many bytes. Either nothing was copied beyond the record, or that copy was needed.
    Bytes(usize),
    /// So many bytes, all of them in the record, although more was copied.
    Within(usize),
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
            Need::Bytes(bytes) | Need::Within(bytes) => Some(bytes),
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
    /// What the walk needed was copied from behind a page that is not in memory.
    pub(crate) met_hole: bool,
    /// It is not, since the record ended early, where the stack does or at such a page.
    pub(crate) is_cut: bool,
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

/// What is known of where a thread's stack ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// It is deep, or was lately.
    Deep,
    /// Nothing; so many walks that might have told were not whole so far.
    Unknown(u32),
    /// It ends here, and is copied up to there. Whether a whole walk has told.
    UpTo(u64, bool),
    /// It has several.
    Several,
}

/// Of a thread whose stack is copied, or was.
struct Depth {
    watch: Watch,
    /// Of so many more samples, stacks are copied from the stack pointer on.
    from_start: u32,
    /// A walk needed that since it began; and how often in a row none did.
    was_fruitful: bool,
    fruitless: u32,
    /// It is deep, and is copied.
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

/// By thread: those whose stacks are deep or were lately, and others if they are watched.
#[derive(Default)]
pub(super) struct Depths {
    threads: FxHashMap<u32, Depth>,
    /// Threads that are not deep are watched, too.
    watches: bool,
    /// How many there are of these, and whether there are too many for new ones.
    watched: usize,
    is_crowded: bool,
}

impl Depths {
    /// Has threads that are not deep watched from now on: one may become deep sooner than anybody looks. Their stacks are copied up to where
    /// they end in a sample that is not deep, which costs nothing unless stacks outgrow records; and at first, and where pages are not in
    /// memory, from the stack pointer on.
    pub(super) fn watch(&mut self) {
        self.watches = true;
    }

    /// Whether stacks of threads that are not known yet are to be copied. Where there are too many threads, new ones would stay unknown.
    pub(super) fn copies_new(&self) -> bool {
        self.watches && !self.is_crowded
    }

    /// Notes a sample. Returns up to where to copy the thread's stack from now on and from where, if that changes, or if its end must be looked
    /// up again.
    pub(super) fn note(&mut self, tid: u32, noted: Noted) -> Option<(UpTo, CopiedFrom)> {
        let first = if self.watches { AT_FIRST } else { 0 };
        let is_known = self.threads.contains_key(&tid);
        if !is_known {
            if noted.need.is_deep() {
                self.threads.insert(tid, Depth::new(Watch::Deep, first));
                return Some((UpTo::End, from(first)));
            }
            if !self.begins_watch(tid) {
                return None;
            }
        }
        let depth = self.threads.get_mut(&tid)?;
        let before = from(depth.from_start);
        if is_known {
            depth.note_hole(noted, first);
        }
        let from = from(depth.from_start);
        if noted.need.is_deep() && depth.watch != Watch::Deep {
            *depth = Depth { fruitless: depth.fruitless, ..Depth::new(Watch::Deep, depth.from_start) };
            self.has_left_watch();
            return Some((UpTo::End, from));
        }
        let reaches_end = self.watches && depth.shall_reach_end(noted);
        let up_to = match depth.watch {
            _ if reaches_end => Some(UpTo::EndIfNear),
            Watch::Deep => depth.note_deep(noted.need),
            _ => depth.note_shallow(noted),
        };
        if depth.watch == Watch::Deep && depth.enough >= ENOUGH {
            self.forget(tid);
        }
        up_to.or((from != before).then_some(UpTo::Same)).map(|up_to| (up_to, from))
    }

    /// Watches a thread from now on, if there is room.
    fn begins_watch(&mut self, tid: u32) -> bool {
        self.is_crowded |= self.watched >= MOST_WATCHED;
        let begins = self.copies_new();
        if begins {
            self.threads.insert(tid, Depth::new(Watch::Unknown(0), AT_FIRST));
            self.watched += 1;
        }
        begins
    }

    fn has_left_watch(&mut self) {
        self.watched -= 1;
        self.is_crowded &= self.watched > MOST_WATCHED / 2;
    }

    /// The threads whose stacks are copied, or were.
    pub(super) fn threads(&self) -> impl Iterator<Item = u32> {
        self.threads.keys().copied()
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, tid: u32) {
        if self.threads.remove(&tid).is_some_and(|depth| depth.watch != Watch::Deep) {
            self.has_left_watch();
        }
    }
}

/// From where stacks are copied if that is to be from the stack pointer on for so many more samples.
fn from(from_start: u32) -> CopiedFrom {
    if from_start > 0 { CopiedFrom::StackPointer } else { CopiedFrom::RecordEnd }
}

impl Depth {
    fn new(watch: Watch, from_start: u32) -> Depth {
        Depth {
            watch,
            from_start,
            was_fruitful: false,
            fruitless: 0,
            is_wanted: watch == Watch::Deep,
            enough: 0,
            not_needed: 0,
            vain: 0,
            missed: 0,
        }
    }

    /// Notes whether the walk has met pages that are not in memory. `first`: how many samples are copied from the stack pointer on then.
    fn note_hole(&mut self, noted: Noted, first: u32) {
        if noted.met_hole {
            (self.from_start, self.was_fruitful, self.fruitless) = (first, true, 0);
        } else if noted.is_awaited {
            self.from_start = first;
        } else if self.from_start > 0 {
            self.from_start -= 1;
            if self.from_start == 0 {
                self.fruitless = if self.was_fruitful { 0 } else { self.fruitless + 1 };
                self.was_fruitful = false;
            }
        } else if noted.is_cut && self.fruitless < FRUITLESS {
            self.from_start = first;
        }
    }

    /// Whether the stack is to be copied to its end since nobody knows what the walk needs. What is known of its end is forgotten.
    fn shall_reach_end(&mut self, noted: Noted) -> bool {
        if !(noted.is_awaited || noted.is_cut && self.from_start > 0) {
            return false;
        }
        match self.watch {
            Watch::Deep if self.is_wanted || self.vain >= GIVEN_UP_AFTER => return false,
            Watch::Deep => (self.is_wanted, self.not_needed) = (true, 0),
            Watch::Unknown(_) => {}
            Watch::UpTo(..) | Watch::Several => self.watch = Watch::Unknown(0),
        }
        true
    }

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
            Need::Bytes(_) | Need::Within(_) => (self.vain, self.missed) = (0, 0),
        }
        self.not_needed = if matches!(need, Need::Within(_)) { self.not_needed + 1 } else { 0 };
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
        let end = noted.rsp.saturating_add(noted.need.bytes()? as u64);
        match self.watch {
            Watch::Unknown(walks) if !noted.is_whole && walks < NEVER_WHOLE => {
                self.watch = Watch::Unknown(walks + 1);
                return None;
            }
            Watch::UpTo(before, is_told) => {
                self.not_needed = if matches!(noted.need, Need::Within(_)) { self.not_needed + 1 } else { 0 };
                let is_other = is_told && noted.is_whole && end.abs_diff(before) > OTHER_STACK_BYTES;
                if self.not_needed >= NOT_NEEDED || is_other {
                    self.watch = Watch::Several;
                    return Some(UpTo::Nothing);
                }
                // The walk before may have ended early.
                if end <= before {
                    return None;
                }
            }
            Watch::Unknown(_) => {}
            Watch::Deep | Watch::Several => return None,
        }
        self.watch = Watch::UpTo(end, noted.is_whole);
        Some(UpTo::Address(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CopiedFrom::{RecordEnd, StackPointer};
    use Need::{Beyond, BeyondAll, Bytes, Within};
    use UpTo::{Address, End, EndIfNear, Nothing, Same};

    const DEEP: Need = Bytes(DEEP_BYTES);
    const RSP: u64 = 1 << 20;

    const fn whole(need: Need) -> Noted {
        Noted { rsp: RSP, need, is_whole: true, met_hole: false, is_cut: false, is_awaited: false }
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
        let other = Noted { rsp: RSP - 2 * OTHER_STACK_BYTES, ..whole(Bytes(100)) };
        assert_eq!(note_all(&mut depths, 2, other), [(Nothing, StackPointer)]);
        assert_eq!(note(&mut depths, 10, Bytes(100)), []);
        assert_eq!(note(&mut depths, 10, Beyond), [End]);
        depths.forget(1);
        assert_eq!(note(&mut depths, NOT_NEEDED + 1, Within(100)), [Address(RSP + 100), Nothing]);
    }

    #[test]
    fn where_pages_are_not_in_memory_all_is_copied() {
        let mut depths = Depths::default();
        depths.watch();
        // Where its stack ends is not known from that.
        let cut = Noted { is_whole: false, is_cut: true, ..whole(Bytes(100)) };
        assert_eq!(note_all(&mut depths, 2, cut), [(EndIfNear, StackPointer); 2]);
        let filled = Noted { met_hole: true, ..whole(Bytes(2000)) };
        assert_eq!(note_all(&mut depths, 3, filled), [(Address(RSP + 2000), StackPointer)]);
        assert_eq!(note_all(&mut depths, AT_FIRST, whole(Bytes(2000))), [(Same, RecordEnd)]);
        assert_eq!(note_all(&mut depths, 1, cut), [(EndIfNear, StackPointer)]);
        assert_eq!(note_all(&mut depths, 1, whole(Bytes(2000))), [(Address(RSP + 2000), StackPointer)]);
        assert_eq!(note_all(&mut depths, 3, whole(DEEP)), [(End, StackPointer)]);
        assert_eq!(note_all(&mut depths, AT_FIRST, whole(DEEP)), [(Same, RecordEnd)]);
        assert_eq!(note_all(&mut depths, 3, Noted { met_hole: true, ..whole(DEEP) }), [(Same, StackPointer)]);
        // Copies were not needed for long, until a walk is cut.
        let most = note_all(&mut depths, AT_FIRST + NOT_NEEDED, whole(Within(DEEP_BYTES)));
        assert_eq!(most, [(Nothing, RecordEnd)]);
        assert_eq!(note_all(&mut depths, 2, cut), [(EndIfNear, StackPointer)]);
        depths.forget(1);
        // Tables are made.
        let awaited = Noted { is_whole: false, is_awaited: true, ..whole(Bytes(0)) };
        assert_eq!(note_all(&mut depths, 2 * AT_FIRST, awaited).len() as u32, 2 * AT_FIRST);
        depths.forget(1);
        // Its walks are never whole.
        let partial = Noted { is_whole: false, ..whole(Bytes(100)) };
        assert_eq!(note_all(&mut depths, 2 * NEVER_WHOLE, partial), [(Address(RSP + 100), StackPointer)]);
        assert_eq!(note_all(&mut depths, 1, whole(Bytes(100_000))).len(), 1);
    }

    #[test]
    fn walks_that_run_off_stacks_end_are_not_helped_for_ever() {
        let mut depths = Depths::default();
        depths.watch();
        let cut = Noted { is_whole: false, is_cut: true, ..whole(Bytes(100)) };
        for cut in [cut, Noted { need: DEEP, ..cut }] {
            note_all(&mut depths, FRUITLESS * (AT_FIRST + 1) + NEVER_WHOLE, cut);
            assert_eq!(note_all(&mut depths, 1000, cut), []);
            assert_eq!(from(depths.threads[&1].from_start), RecordEnd);
        }
    }

    #[test]
    fn there_is_no_end_of_threads() {
        let mut depths = Depths::default();
        depths.watch();
        let noted = (0..5000).filter_map(|tid| depths.note(tid, whole(Bytes(100))));
        assert_eq!(noted.count(), MOST_WATCHED);
        assert!(!depths.copies_new());
        // What is known of those that are watched stays as it is.
        let filled = Noted { met_hole: true, ..whole(Bytes(100)) };
        assert_eq!(depths.note(1, filled), None);
        assert_eq!(depths.threads[&1].from_start, AT_FIRST);
        assert_eq!(depths.note(4000, whole(DEEP)), Some((End, StackPointer)));
        (0..5000).for_each(|tid| depths.forget(tid));
        assert_eq!((depths.watched, depths.threads().count()), (0, 0));
        assert!(depths.copies_new());
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
