//! The sentinel (csprof-2006, section 2): a sample marks a frame by putting a stub's address in its return address's
//! place. The next walk ends at the mark, and continues in the tree at the caller's node. A return through the
//! stub is counted, and moves the mark to the caller's frame.
//!
//! Only the thread's own stack is marked, and only frames whose return address lies right below the caller's
//! stack pointer, is known to follow a call, and leads to ordinary code. A mark is never taken away by a
//! sample: the program's unwinders may have read it. Each sample of a deeper stack adds one instead. The only
//! write to a stack replaces a return address by its stub.

mod frames;
pub(crate) mod stubs;

pub use frames::Frames;
pub use stubs::{BUCKETS, MAX_RETURN_ADDRESS_USERS, Own, STUBS, Stubs};

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::recipe::Packed;
use callpath_format::register::Reg;
use callpath_format::shared::{ArenaRef, Settings, Unmarked};
use core::sync::atomic::Ordering::Relaxed;

use crate::frame::Frame;
use crate::process::Process;
use crate::sample::{Interrupted, Sample};
use frames::{Entry, ReturnLocation};

/// With [`Settings::AUTO`], frames within the innermost mark that are walked anew rather than marked once more.
const NEAR: usize = 16;

/// How many frames outwards of a mark must be as they were noted for a walk to end there: a microsecond's.
const COMPARED: usize = 1024;

/// The sentinel as one sample sees it.
pub(crate) struct Marks {
    stubs: Option<Stubs>,
    frames: Option<&'static Frames>,
    /// The metric that counts returns.
    counted: Option<usize>,
    /// What the settings say.
    mode: u32,
    /// Bits of heads of frames that are left alone.
    pinned: u16,
    /// Whether a walk may end at a mark.
    follow: bool,
    /// Whether marks may be added and removed.
    change: bool,
    /// The bounds of the thread's own stack.
    bounds: (u64, u64),
    /// The entry whose mark the walk has met.
    met: Option<usize>,
}

/// A walk's frames that are being noted.
#[derive(Clone, Copy)]
pub(crate) struct Noting<'s, 'm> {
    process: &'s Process<'m>,
    pub(crate) frames: &'static Frames,
}

/// A frame to be noted.
#[derive(Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) node: ArenaRef,
    /// Where its return address is, if it may be marked; else 0.
    pub(crate) slot: u64,
}

impl Marks {
    /// Without a sentinel.
    pub(crate) const NONE: Marks = Marks {
        stubs: None,
        frames: None,
        counted: None,
        mode: Settings::NEVER,
        pinned: 0,
        follow: false,
        change: false,
        bounds: (0, 0),
        met: None,
    };

    /// For a sample. `bounds`: of the thread's own stack, if it was interrupted there. `ordinary`: it was
    /// interrupted, by an event, in code of the program's.
    pub(crate) fn of_sample(sample: &Sample<'_, '_>, bounds: Option<(u64, u64)>, ordinary: bool) -> Marks {
        let process = sample.process;
        let settings = &process.session.settings;
        let Some(stubs) = process.stubs else { return Marks::NONE };
        let own = (stubs.own)();
        let counts = settings.uses(Settings::RETURNS);
        let metric =
            counts.then(|| process.session.metrics.iter().position(|metric| metric.meter == Settings::RETURNS));
        let walks_itself = process.slot.walks_itself.load(Relaxed) != 0;
        Marks {
            stubs: Some(stubs),
            frames: match own {
                Own::Has(frames) if frames.is_wanted.load(Relaxed) != 0 => Some(frames),
                Own::Has(_) | Own::NotYet | Own::Never => None,
            },
            counted: metric.flatten(),
            mode: settings.sentinel,
            // Where returns are counted, those of all that is not known to read its return address.
            pinned: if settings.sentinel == Settings::ALWAYS {
                Packed::PINNED
            } else {
                Packed::PINNED | Packed::TAIL_CALLS_ANY
            },
            follow: ordinary,
            change: ordinary && bounds.is_some() && !walks_itself && !matches!(own, Own::Never),
            bounds: bounds.unwrap_or((0, 0)),
            met: None,
        }
    }

    /// The true return address, given the word `found` at `at` (0: unknown): that word, or what it replaces if it is a
    /// mark. `None`: a mark that replaces none. `read`: the stack.
    #[inline]
    pub(crate) fn true_return(&mut self, at: u64, found: u64, read: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        match &self.stubs {
            Some(stubs) if stubs.contain(found) => self.of_stub(at, found, read),
            _ => Some(found),
        }
    }

    #[cold]
    fn of_stub(&mut self, at: u64, found: u64, read: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let stubs = self.stubs?;
        let real = stubs.real(found)?;
        if self.follow
            && let Some(frames) = self.frames
            && let Some(index) = frames.marked_at(at)
            && index > 0
            && is_as_noted(frames, index, read)
        {
            self.met = Some(index);
        }
        Some(real)
    }

    /// Makes the next walk, over a deep stack, continue beyond marks. Its
    /// frames will be noted when all of them are known.
    pub(crate) fn pass_by(&mut self, process: &Process<'_>) {
        self.follow = false;
        self.met = None;
        if let Some(stubs) = self.stubs.filter(|_| self.frames.is_none() && self.change)
            && self.is_deep(process, usize::MAX)
        {
            want(&stubs, process);
            if let Own::Has(frames) = (stubs.own)() {
                self.frames = Some(frames);
            }
        }
    }

    /// Whether frames may be marked.
    pub(crate) fn may_be_added(&self) -> bool {
        self.change && self.frames.is_some()
    }

    /// Whether the walk has met a mark of a known frame, and so can end.
    #[inline]
    pub(crate) fn is_met(&self) -> bool {
        self.met.is_some()
    }

    /// Records why stacks are not marked, if a walk of this many frames has shown it.
    pub(crate) fn note_unmarked(&self, process: &Process<'_>, walked: usize) {
        let unmarked = &process.slot.unmarked;
        if self.is_deep(process, walked) && process.slot.walks_itself.load(Relaxed) != 0 && unmarked.load(Relaxed) == 0
        {
            unmarked.store(Unmarked::WalksItself as u32, Relaxed);
        }
    }

    /// Whether a stack of so many frames is to be marked.
    fn is_deep(&self, process: &Process<'_>, depth: usize) -> bool {
        match self.mode {
            Settings::NEVER => false,
            Settings::ALWAYS => true,
            _ => depth >= process.session.settings.sentinel_depth as usize,
        }
    }

    /// The node of the caller of the frame whose mark the walk has met.
    pub(crate) fn node_outwards(&self) -> Option<ArenaRef> {
        ArenaRef(self.frames?.entry(self.met?.checked_sub(1)?)?.node.load(Relaxed)).some()
    }

    /// Where the return address of a frame is, if it may be marked; else 0.
    /// `head`: of the frame's recipe. `read`: reads code.
    pub(crate) fn slot(&self, head: u16, caller: Frame<'_>, read: impl FnMut(u64) -> Option<u64>) -> u64 {
        let Frame { cursor: caller, located, .. } = caller;
        let (Some(stubs), Some(_), true) = (&self.stubs, self.frames, self.change) else { return 0 };
        let is_simple = |kind| matches!(kind, Packed::REGISTER | Packed::DEREF);
        let is_caller_ordinary = is_simple(located.recipe.kind()) || located.recipe.kind() == Packed::OUTERMOST;
        let CodePoint::Return(RunAddr(addr)) = caller.point else { return 0 };
        let Some(slot) = caller.registers.get(Reg::RSP).and_then(|rsp| rsp.checked_sub(8)) else { return 0 };
        let (low, high) = self.bounds;
        let may_be = is_simple(head & 7)
            && head & self.pinned == 0
            && located.recipe.head & Packed::PINS_CALLEE == 0
            && is_caller_ordinary
            && slot.is_multiple_of(8)
            && low <= slot
            && slot < high
            && (stubs.find(addr).is_some() || is_behind_call(addr, read));
        if may_be { slot } else { 0 }
    }

    /// Begins to note the frames of a full path that was walked, the outermost first, from the mark inwards or from the
    /// stack's end. `walked`: how many frames were walked. `None`: they are not noted.
    pub(crate) fn begin<'s, 'm>(&mut self, process: &'s Process<'m>, walked: usize) -> Option<Noting<'s, 'm>> {
        if !self.change {
            return None;
        }
        let stubs = self.stubs?;
        let is_deep = self.is_deep(process, self.met.unwrap_or(0) + walked);
        let Some(frames) = self.frames else {
            if is_deep {
                // Its frames are noted from the next sample on.
                want(&stubs, process);
            }
            return None;
        };
        frames.retain_outward(self.met);
        (is_deep || self.is_met()).then_some(Noting { process, frames })
    }

    /// Notes the next frame inwards. `read`: the stack.
    pub(crate) fn note(&self, noting: Noting<'_, '_>, frame: Noted, mut read: impl FnMut(u64) -> Option<u64>) {
        let Noting { process, frames } = noting;
        let Noted { node, slot } = frame;
        let Some(stubs) = &self.stubs else { return };
        let counter = || {
            let metric = self.counted?;
            process.session.columns.of_node(&process.arena, node)?.get(metric)
        };
        let met = frames.entry(frames.len()).filter(|_| self.met == Some(frames.len()));
        let (location, is_marked) = match met {
            // Its mark is known already.
            Some(met) => (location_of(met), false),
            None if slot == 0 => (ReturnLocation::default(), false),
            None => {
                let found = read(slot).unwrap_or(0);
                let is_stub = stubs.contain(found);
                match if is_stub { stubs.real(found).map(|_| found) } else { stubs.find_or_make(found) } {
                    Some(stub) => (ReturnLocation { slot, stub, word: found }, is_stub),
                    None => {
                        process.slot.marks_lost.fetch_add(1, Relaxed);
                        (ReturnLocation::default(), false)
                    }
                }
            }
        };
        // A stack that is deeper than what is kept is marked at the outer frames only.
        if let Some(index) = frames.push(location, node, counter())
            && is_marked
        {
            frames.add_mark(index);
        }
    }

    /// Marks a frame: the innermost, if returns are counted, or the one outside of it.
    pub(crate) fn mark(&self, interrupted: &Interrupted, frames: &Frames, mut read: impl FnMut(u64) -> Option<u64>) {
        let Some(stubs) = self.stubs else { return };
        let innermost = self.mode == Settings::ALWAYS
            && !stubs.is_return_address_user(interrupted.pc)
            && read(interrupted.pc).is_some_and(|code| !may_leave(code.to_le_bytes()));
        let skipped = usize::from(!innermost);
        let is_markable = |index: usize| frames.entry(index).is_some_and(|entry| entry.slot.load(Relaxed) != 0);
        let within = frames.innermost_mark().map_or(0, |index| index + 1);
        let candidate = (within..frames.len().saturating_sub(skipped)).rev().find(|index| is_markable(*index));
        let Some((index, entry)) = candidate.and_then(|index| Some((index, frames.entry(index)?))) else { return };
        if self.mode == Settings::AUTO && self.met.is_some_and(|met| index < met + NEAR) {
            return;
        }
        let (slot, stub) = (entry.slot.load(Relaxed), entry.stub.load(Relaxed));
        if stubs.real(stub).is_none_or(|real| read(slot) != Some(real)) {
            return;
        }
        frames.add_mark(index);
        entry.word.store(stub, Relaxed);
        // SAFETY: the word lies on the calling thread's own stack, between its stack pointer and the stack's end, and
        // has been read: a frame's return address. The stub leads there.
        unsafe { core::ptr::write_volatile(slot as *mut u64, stub) };
    }
}

/// Whether the instruction before `addr` can be a call. `read`: reads code.
fn is_behind_call(addr: u64, mut read: impl FnMut(u64) -> Option<u64>) -> bool {
    let Some(bytes) = addr.checked_sub(8).and_then(&mut read).map(u64::to_le_bytes) else { return false };
    let direct = bytes[3] == 0xe8;
    let indirect = [2, 3, 4, 6, 7].iter().any(|len| {
        let at = bytes.len() - len;
        bytes.get(at) == Some(&0xff) && bytes.get(at + 1).is_some_and(|modrm| modrm >> 3 & 7 == 2)
    });
    direct || indirect
}

fn location_of(entry: &Entry) -> ReturnLocation {
    ReturnLocation { slot: entry.slot.load(Relaxed), stub: entry.stub.load(Relaxed), word: entry.word.load(Relaxed) }
}

/// Whether the stack at the marked frame `index`, and next outwards of it, holds the return addresses that were noted:
/// where a stack was copied away and another one put there, it does not.
fn is_as_noted(frames: &Frames, index: usize, mut read: impl FnMut(u64) -> Option<u64>) -> bool {
    let outwards = (index.saturating_sub(COMPARED)..=index).rev().filter_map(|index| frames.entry(index));
    outwards
        .into_iter()
        .map(location_of)
        .all(|location| location.slot == 0 || read(location.slot) == Some(location.word))
}

/// Starts to note the calling thread's frames, from its next sample on.
fn want(stubs: &Stubs, process: &Process<'_>) {
    let frames = match (stubs.own)() {
        Own::Has(frames) => Some(frames),
        Own::NotYet => (stubs.make)(),
        Own::Never => return,
    };
    match frames {
        Some(frames) => {
            frames.is_wanted.store(1, Relaxed);
            (stubs.set_own)(Own::Has(frames));
        }
        None => {
            process.slot.unmarked.store(Unmarked::NoMemory as u32, Relaxed);
            (stubs.set_own)(Own::Never);
        }
    }
}

/// Whether an instruction may jump to another procedure, which replaces the frame and may read the return address: a
/// jump, or the landing mark that linkage stubs begin with (psABI, section 5.2). The crate that knows instructions
/// cannot be used here.
fn may_leave(code: [u8; 8]) -> bool {
    matches!(
        code,
        [0xf3, 0x0f, 0x1e, 0xfa, ..] | [0xf2 | 0x3e | 0x41, 0xe9 | 0xeb | 0xff, ..] | [0xe9 | 0xeb | 0xff | 0x68, ..]
    )
}

/// The thread as it will be when it has left the stubs' code, if it was interrupted there.
pub(crate) fn beyond(process: &Process<'_>, interrupted: &Interrupted) -> Option<Interrupted> {
    const RAX: usize = 0;
    let stubs = process.stubs.as_ref().filter(|stubs| stubs.contain_pc(interrupted.pc))?;
    let registers = interrupted.registers;
    let at_left = || {
        // SAFETY: the stubs' code has just written there.
        Some(unsafe { core::ptr::read_volatile((registers[Reg::RSP.index()] - 8) as *const u64) })
    };
    let pc = stubs.target(interrupted.pc, registers[RAX], at_left)?;
    Some(Interrupted { registers, pc })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_stub_stands_for_its_return_address_wherever_it_is() {
        let stubs = stubs::tests::stubs();
        let stub = stubs.find_or_make(0x40_1234).unwrap();
        let mut marks = Marks { stubs: Some(stubs), ..Marks::NONE };
        for at in [0, 0x7fff_0008, 0x7fff_0048] {
            assert_eq!(marks.true_return(at, 0x40_5678, |_| None), Some(0x40_5678));
            assert_eq!(marks.true_return(at, stub, |_| None), Some(0x40_1234));
            assert_eq!(marks.true_return(at, stub + 4, |_| None), None);
        }
        assert!(!marks.is_met());
    }

    /// A stack of eight frames, one word each.
    #[test]
    fn a_walk_ends_where_the_stack_is_as_it_was_noted() {
        let stubs = stubs::tests::stubs();
        let [frames, ..] = Frames::map(2).expect("memory") else { panic!("two") };
        let (slot, real) = (|n: usize| 0x7fff_f000 - 8 * n as u64, |n: usize| 0x40_1000 + 16 * n as u64);
        let mut stack = [0; 8];
        for (n, word) in stack.iter_mut().enumerate() {
            let stub = stubs.find_or_make(real(n)).unwrap();
            *word = if [3, 6].contains(&n) { stub } else { real(n) };
            assert_eq!(
                frames.push(ReturnLocation { slot: slot(n), stub, word: *word }, ArenaRef(n as u32 + 1), None),
                Some(n)
            );
        }
        [3, 6].into_iter().for_each(|marked| frames.add_mark(marked));
        let met = |stack: &[u64], n: usize| {
            let marks = Marks { stubs: Some(stubs), frames: Some(frames), follow: true, ..Marks::NONE };
            let mut marks = marks;
            let read = |at: u64| stack.get(((0x7fff_f000 - at) / 8) as usize).copied();
            assert_eq!(marks.true_return(slot(n), stack[n], read), Some(real(n)));
            marks.met
        };
        assert_eq!((0..8).map(|n| met(&stack, n)).collect::<Vec<_>>()[..], {
            let mut all = [None; 8];
            (all[3], all[6]) = (Some(3), Some(6));
            all
        });
        // A mark that was copied to where none was put; another stack outwards.
        let copied = [&stack[..5], &[stack[3]], &stack[6..]].concat();
        let mut marks = Marks { stubs: Some(stubs), frames: Some(frames), follow: true, ..Marks::NONE };
        assert_eq!((marks.true_return(slot(5), copied[5], |_| None), marks.met), (Some(real(3)), None));
        stack[2] = 0x40_2000;
        assert_eq!((met(&stack, 6), met(&stack, 3)), (None, None));
        frames.retain_outward(Some(3));
        assert_eq!((frames.len(), frames.marked_at(slot(6))), (3, None));
        frames.push(ReturnLocation { slot: slot(3), stub: stack[3], word: stack[3] }, ArenaRef(9), None);
        assert_eq!((frames.marked_at(slot(3)), frames.innermost_mark()), (Some(3), Some(3)));
        Frames::unmap(frames);
    }
}
