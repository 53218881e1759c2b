//! Chooses the threads whose stacks are copied beyond their records: those that may need it, as soon as they may. Where a stack ends within
//! the record, nothing is copied beyond, and it costs nothing.

use callpath_target::DeepCopies;
use rustc_hash::FxHashMap;

/// A stack is deep from here on: it may soon be deeper than a record, bytes.
const DEEP_BYTES: usize = 16 << 10;
/// Copying stops for a thread after this many samples in a row that were too short although the most was copied.
const GIVEN_UP_AFTER: u32 = 64;
/// Copying stops after this many samples in a row that did not need what was copied beyond the record, until one is too short; if it was to the
/// stack's end, it goes on to where walks end for as many more.
const NOT_NEEDED: u32 = 64;
/// After this many whole walks in a row that end at one place, a deep stack is copied up to there; twice as many each time that this was not
/// enough.
const AGREE: u32 = 16;
const MOST_DOUBLED: u32 = 8;
/// A thread that was given up is copied again after this many samples; twice as many each time that this was in vain.
const AGAIN: u32 = 128;
/// The thread is forgotten after this many samples in a row whose stacks were not deep.
const ENOUGH: u32 = 500;
/// After this many too-short samples in a row without a full copy, copies are asked for again: the thread may have another stack.
const MISSED: u32 = 64;
/// A thread whose stacks seem to end so far apart uses several, and is watched no more, bytes.
const OTHER_STACK_BYTES: u64 = 64 << 10;
/// A stack may become so deep at once, bytes, or twice as deep as it was. What lies further below its end is another one.
const GROWS_BYTES: usize = 1 << 20;
/// After this many walks in a row that were not whole, a thread's stack is taken to end where they do.
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
    /// The same, although the most was copied beyond it.
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
    /// It has not, since the record ended early, where the stack does or at a page that is not in memory.
    pub(crate) is_cut: bool,
    /// The walk goes on once a table exists: what it will need is not known.
    pub(crate) is_awaited: bool,
}

/// Up to where a thread's stack is copied from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UpTo {
    /// Its end, which is to be looked for.
    End,
    /// The same, if it is near.
    EndIfNear,
    /// This address, where it ended in samples, from stack pointers that lie no further below.
    Address(u64, usize),
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
    /// Samples in a row that were cut.
    cut: u32,
    /// Of one that is deep: up to where it is copied.
    up_to: UpTo,
    /// Where whole walks have ended since it is copied to its end, the highest, and how deep they were. 0: there was none.
    ends_at: u64,
    needed_bytes: usize,
    /// Whole walks in a row that ended there; and how often an end was not enough that they had agreed on.
    agreed: u32,
    was_short: u32,
    /// It was given up so often in a row.
    given_up: u32,
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
    /// they end in a sample that is not deep, which costs nothing unless stacks outgrow records, or pages are not in memory.
    pub(super) fn watch(&mut self) {
        self.watches = true;
    }

    /// Whether stacks of threads that are not known yet are to be copied. Where there are too many threads, new ones would stay unknown.
    pub(super) fn copies_new(&self) -> bool {
        self.watches && !self.is_crowded
    }

    /// Notes a sample. Returns up to where to copy the thread's stack from now on, if that changes, or if its end must be looked up again.
    pub(super) fn note(&mut self, tid: u32, noted: Noted) -> Option<UpTo> {
        let is_known = self.threads.contains_key(&tid);
        if !is_known && noted.need.is_deep() {
            self.threads.insert(tid, Depth::new(Watch::Deep));
            return Some(UpTo::End);
        }
        if !is_known && !self.begins_watch(tid) {
            return None;
        }
        let depth = self.threads.get_mut(&tid)?;
        depth.cut = if noted.is_cut { depth.cut + 1 } else { 0 };
        if noted.need.is_deep() && depth.watch != Watch::Deep {
            *depth = Depth { cut: depth.cut, ..Depth::new(Watch::Deep) };
            self.has_left_watch();
            return Some(UpTo::End);
        }
        let reaches_end = self.watches && depth.shall_reach_end(noted);
        let up_to = match depth.watch {
            _ if reaches_end => Some(UpTo::EndIfNear),
            Watch::Deep => depth.note_deep(noted),
            _ => depth.note_shallow(noted),
        };
        if depth.watch == Watch::Deep && depth.enough >= ENOUGH {
            self.forget(tid);
        }
        up_to
    }

    /// Watches a thread from now on, if there is room.
    fn begins_watch(&mut self, tid: u32) -> bool {
        self.is_crowded |= self.watched >= MOST_WATCHED;
        let begins = self.copies_new();
        if begins {
            self.threads.insert(tid, Depth::new(Watch::Unknown(0)));
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

impl Depth {
    fn new(watch: Watch) -> Depth {
        let up_to = UpTo::End;
        let (cut, enough, not_needed, vain, missed) = (0, 0, 0, 0, 0);
        let (ends_at, needed_bytes, agreed, was_short, given_up) = (0, 0, 0, 0, 0);
        Depth {
            watch,
            cut,
            up_to,
            ends_at,
            needed_bytes,
            agreed,
            was_short,
            given_up,
            enough,
            not_needed,
            vain,
            missed,
        }
    }

    /// Whether the stack is to be copied to its end since nobody knows what the walk needs. What is known of its end is forgotten.
    fn shall_reach_end(&mut self, noted: Noted) -> bool {
        // Walks that run off a stack's end are not helped for ever.
        if !(noted.is_awaited || noted.is_cut && self.cut <= NEVER_WHOLE) {
            return false;
        }
        match self.watch {
            Watch::Deep if self.up_to == UpTo::End || self.vain >= GIVEN_UP_AFTER => return false,
            Watch::Deep => self.reach_end(),
            Watch::Unknown(_) => {}
            Watch::UpTo(..) | Watch::Several => self.watch = Watch::Unknown(0),
        }
        true
    }

    /// The stack of a thread that is deep, or was, is to be copied to its end.
    fn reach_end(&mut self) {
        if self.up_to != UpTo::End {
            self.was_short += u32::from(matches!(self.up_to, UpTo::Address(..)));
            (self.up_to, self.ends_at, self.needed_bytes) = (UpTo::End, 0, 0);
            (self.agreed, self.not_needed) = (0, 0);
        }
    }

    /// Notes where a whole walk has ended.
    fn note_end(&mut self, rsp: u64, bytes: usize) {
        let end = rsp.saturating_add(bytes as u64);
        let is_same = self.ends_at.abs_diff(end) <= OTHER_STACK_BYTES;
        self.agreed = if is_same { self.agreed + 1 } else { 0 };
        // Of several stacks, the highest one's end counts for those that are copied up to there.
        if end > self.ends_at && (is_same || self.up_to == UpTo::End) {
            self.ends_at = end;
        }
        self.needed_bytes = self.needed_bytes.max(bytes);
    }

    /// Copying up to where walks have ended.
    fn to_known_end(&self) -> UpTo {
        match self.up_to {
            UpTo::Address(end, from) if end == self.ends_at && self.needed_bytes <= from => self.up_to,
            _ => UpTo::Address(self.ends_at, (2 * self.needed_bytes).max(GROWS_BYTES)),
        }
    }

    /// Notes a sample of a thread that was given up. Returns whether its stack is copied again.
    fn is_tried_again(&mut self, need: Need) -> bool {
        self.missed += 1;
        let is_over = need.bytes().is_some() || self.missed >= AGAIN << self.given_up.min(MOST_DOUBLED);
        if is_over {
            self.given_up += 1;
            (self.vain, self.missed) = (0, 0);
            self.reach_end();
        }
        is_over
    }

    /// Notes a sample of a thread that is deep, or was.
    fn note_deep(&mut self, noted: Noted) -> Option<UpTo> {
        if self.vain >= GIVEN_UP_AFTER {
            return self.is_tried_again(noted.need).then_some(UpTo::End);
        }
        let before = self.up_to;
        let mut again = false;
        match noted.need {
            Need::BeyondAll => {
                (self.vain, self.missed) = (self.vain + 1, 0);
                if self.vain >= GIVEN_UP_AFTER {
                    self.up_to = UpTo::Nothing;
                }
            }
            // Samples may come late that were taken before.
            Need::Beyond => {
                self.missed += 1;
                again = self.missed.is_multiple_of(MISSED);
                self.reach_end();
            }
            Need::Bytes(bytes) | Need::Within(bytes) => {
                (self.vain, self.missed) = (0, 0);
                if noted.is_whole {
                    self.given_up = 0;
                    self.note_end(noted.rsp, bytes);
                }
            }
        }
        let is_known = self.agreed >= AGREE << self.was_short.min(MOST_DOUBLED);
        if is_known && self.up_to == UpTo::End || matches!(self.up_to, UpTo::Address(..)) {
            self.up_to = self.to_known_end();
        }
        self.not_needed = if matches!(noted.need, Need::Within(_)) { self.not_needed + 1 } else { 0 };
        if self.not_needed >= NOT_NEEDED {
            self.not_needed = 0;
            // A stack that now and then is a little deeper than records is copied for next to nothing.
            let is_known = self.up_to == UpTo::End && self.ends_at > 0;
            self.up_to = if is_known { self.to_known_end() } else { UpTo::Nothing };
        }
        self.enough = if noted.need.is_deep() { 0 } else { self.enough + 1 };
        if self.enough >= ENOUGH {
            return (before != UpTo::Nothing).then_some(UpTo::Nothing);
        }
        (self.up_to != before || again).then_some(self.up_to)
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
        // It may become deep at once.
        Some(UpTo::Address(end, DeepCopies::FARTHEST_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Need::{Beyond, BeyondAll, Bytes, Within};
    use UpTo::{End, EndIfNear, Nothing};

    /// Where a shallow stack was seen to end.
    const fn shallow(end: u64) -> UpTo {
        UpTo::Address(end, DeepCopies::FARTHEST_BYTES)
    }

    /// The same of a deep one, whose walks needed so many bytes.
    const fn deep(end: u64, needed_bytes: usize) -> UpTo {
        UpTo::Address(end, if 2 * needed_bytes > GROWS_BYTES { 2 * needed_bytes } else { GROWS_BYTES })
    }

    const DEEP: Need = Bytes(DEEP_BYTES);
    const RSP: u64 = 1 << 20;
    const END: u64 = RSP + DEEP_BYTES as u64;

    const fn whole(need: Need) -> Noted {
        Noted { rsp: RSP, need, is_whole: true, is_cut: false, is_awaited: false }
    }

    const fn partial(need: Need) -> Noted {
        Noted { is_whole: false, ..whole(need) }
    }

    fn note_all(depths: &mut Depths, samples: u32, noted: Noted) -> Vec<UpTo> {
        (0..samples).filter_map(|_| depths.note(1, noted)).collect()
    }

    fn note(depths: &mut Depths, samples: u32, need: Need) -> Vec<UpTo> {
        note_all(depths, samples, whole(need))
    }

    #[test]
    fn stacks_are_copied_as_long_as_walks_may_need_them() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, 1000, Bytes(DEEP_BYTES - 8)), []);
        let noted = [DEEP, DEEP, Beyond, DEEP].map(|need| depths.note(1, whole(need)));
        assert_eq!(noted, [Some(End), None, None, None]);
        assert_eq!(note(&mut depths, ENOUGH - 1, Bytes(100)), [deep(END, DEEP_BYTES)]);
        assert_eq!(note(&mut depths, 1, DEEP), []);
        assert_eq!(note(&mut depths, 2 * ENOUGH, Bytes(100)), [Nothing]);
        assert_eq!(note(&mut depths, 1, Beyond), [End]);
        let late = note(&mut depths, 1000, Beyond);
        assert_eq!(late, [End; 15], "they were taken before, or its stack is another one");
        // Deeper than is copied.
        assert_eq!(note(&mut depths, GIVEN_UP_AFTER, BeyondAll), [Nothing]);
        // It may be less deep now, which is looked at ever more seldom.
        for again in [AGAIN, 2 * AGAIN, 4 * AGAIN] {
            assert_eq!(note(&mut depths, again - 1, Beyond), []);
            assert_eq!(note(&mut depths, 1 + GIVEN_UP_AFTER, BeyondAll), [End, Nothing]);
        }
        assert_eq!(note(&mut depths, 2, DEEP), [End]);
        assert_eq!(note(&mut depths, GIVEN_UP_AFTER, BeyondAll), [Nothing]);
        assert_eq!(note(&mut depths, AGAIN, Beyond), [End]);
        depths.forget(1);
        assert_eq!(note(&mut depths, 1, Beyond), [End]);
    }

    #[test]
    fn deep_stacks_are_copied_up_to_where_walks_end() {
        let mut depths = Depths::default();
        assert_eq!(note(&mut depths, AGREE - 1, DEEP), [End]);
        assert_eq!(note_all(&mut depths, 10, partial(DEEP)), []);
        // The first one has begun to be copied.
        assert_eq!(note(&mut depths, 100, DEEP), [deep(END, DEEP_BYTES)]);
        // It becomes much deeper, with the same end.
        let deeper = Noted { rsp: RSP - 900_000, ..whole(Bytes(900_000 + DEEP_BYTES)) };
        assert_eq!(note_all(&mut depths, 10, deeper), []);
        let deeper = Noted { rsp: RSP - (1 << 20), ..whole(Bytes((1 << 20) + DEEP_BYTES)) };
        assert_eq!(note_all(&mut depths, 10, deeper), [deep(END, (1 << 20) + DEEP_BYTES)]);
        // Another stack lies above. When there are several, the end of one is trusted ever less.
        let above = Noted { rsp: 2 * RSP, ..whole(DEEP) };
        for doubled in 1..=3 {
            let other = if doubled % 2 == 1 { above } else { whole(DEEP) };
            assert_eq!(note_all(&mut depths, 1, Noted { need: Beyond, ..other }), [End]);
            assert_eq!(note_all(&mut depths, AGREE << doubled, other), []);
            let known = note_all(&mut depths, 1, other);
            assert_eq!(known, [deep(other.rsp + DEEP_BYTES as u64, DEEP_BYTES)]);
        }
        // They take turns.
        assert_eq!(note(&mut depths, 1, Beyond), [End]);
        for _ in 0..100 {
            assert_eq!([note_all(&mut depths, 8, above), note(&mut depths, 8, DEEP)], [vec![], vec![]]);
        }
    }

    #[test]
    fn stacks_that_are_not_deep_are_watched() {
        let mut depths = Depths::default();
        depths.watch();
        assert_eq!(note(&mut depths, 10, Bytes(100)), [shallow(RSP + 100)]);
        assert_eq!(note(&mut depths, 10, Bytes(200)), [shallow(RSP + 200)]);
        assert_eq!(note(&mut depths, 2 * ENOUGH, Bytes(50)), []);
        assert_eq!(note(&mut depths, 10, DEEP), [End]);
        let up_to = deep(END, DEEP_BYTES);
        assert_eq!(note(&mut depths, ENOUGH + 10, Bytes(100)), [up_to, Nothing, shallow(RSP + 100)]);
        // It goes from stack to stack.
        let other = Noted { rsp: RSP - 2 * OTHER_STACK_BYTES, ..whole(Bytes(100)) };
        assert_eq!(note_all(&mut depths, 2, other), [Nothing]);
        assert_eq!(note(&mut depths, 10, Bytes(100)), []);
        assert_eq!(note(&mut depths, 10, Beyond), [End]);
        depths.forget(1);
        assert_eq!(note(&mut depths, NOT_NEEDED + 1, Within(100)), [shallow(RSP + 100), Nothing]);
    }

    #[test]
    fn where_pages_are_not_in_memory_stacks_are_copied_to_their_ends() {
        let mut depths = Depths::default();
        depths.watch();
        // Where its stack ends is not known from that.
        let cut = Noted { is_cut: true, ..partial(Bytes(100)) };
        assert_eq!(note_all(&mut depths, 2, cut), [EndIfNear; 2]);
        assert_eq!(note(&mut depths, 3, Bytes(2000)), [shallow(RSP + 2000)]);
        assert_eq!(note_all(&mut depths, 1, cut), [EndIfNear]);
        assert_eq!(note(&mut depths, 2, Bytes(2000)), [shallow(RSP + 2000)]);
        assert_eq!(note(&mut depths, 3, DEEP), [End]);
        // Copies were not needed for long, until a walk is cut.
        let most = note(&mut depths, 3 * NOT_NEEDED, Within(DEEP_BYTES));
        assert_eq!(most, [deep(END, DEEP_BYTES), Nothing]);
        assert_eq!(note_all(&mut depths, 2, cut), [EndIfNear]);
        depths.forget(1);
        // Tables are made.
        let awaited = Noted { is_awaited: true, ..partial(Bytes(0)) };
        assert_eq!(note_all(&mut depths, 100, awaited), [EndIfNear; 100]);
        depths.forget(1);
        // Its walks are never whole.
        assert_eq!(note_all(&mut depths, 2 * NEVER_WHOLE, partial(Bytes(100))), [shallow(RSP + 100)]);
        assert_eq!(note(&mut depths, 1, Bytes(100_000)).len(), 1);
    }

    #[test]
    fn walks_that_run_off_stacks_end_are_not_helped_for_ever() {
        let cut = Noted { is_cut: true, ..partial(Bytes(100)) };
        for (cut, ends) in [(cut, NEVER_WHOLE as usize), (Noted { need: Within(DEEP_BYTES), ..cut }, 0)] {
            let mut depths = Depths::default();
            depths.watch();
            let noted = note_all(&mut depths, 1000, cut);
            assert_eq!(noted.iter().filter(|up_to| **up_to == EndIfNear).count(), ends);
            assert_ne!(noted.last(), Some(&EndIfNear));
            assert_eq!(note_all(&mut depths, 1000, cut), []);
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
        assert_eq!(depths.note(1, whole(Bytes(100))), None);
        assert_eq!(depths.note(1, whole(Bytes(200))), Some(shallow(RSP + 200)));
        assert_eq!(depths.note(4000, whole(DEEP)), Some(End));
        (0..5000).for_each(|tid| depths.forget(tid));
        assert_eq!((depths.watched, depths.threads().count()), (0, 0));
        assert!(depths.copies_new());
    }

    #[test]
    fn what_is_not_needed_is_not_copied_for_long() {
        let mut depths = Depths::default();
        // Of a walk that is not whole, nobody knows where the stack ends.
        assert_eq!(note_all(&mut depths, NOT_NEEDED + 100, partial(Within(DEEP_BYTES))), [End, Nothing]);
        assert_eq!(note(&mut depths, 100, DEEP), []);
        assert_eq!(note(&mut depths, 1, Beyond), [End]);
        // Now and then it is.
        for _ in 0..10 {
            assert_eq!(note_all(&mut depths, NOT_NEEDED - 1, partial(Within(DEEP_BYTES))), []);
            assert_eq!(note_all(&mut depths, 1, partial(DEEP)), []);
        }
        // Few whole walks say where it ends: it is copied up to there for as long again.
        note(&mut depths, 1, Within(DEEP_BYTES));
        let most = note_all(&mut depths, 3 * NOT_NEEDED, partial(Within(DEEP_BYTES)));
        assert_eq!(most, [deep(END, DEEP_BYTES), Nothing]);
    }
}
