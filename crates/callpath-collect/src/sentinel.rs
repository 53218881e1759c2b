//! The sentinel (csprof-2006, section 2): a sample marks a frame by putting a stub's address in its return address's
//! place. The next walk ends at the mark, and goes on in the tree where the sample before left off. A return through the
//! stub is counted, and moves the mark to the caller's frame.
//! Knows nothing of how the stubs' code does that.
//!
//! Only the thread's own stack is marked, and only frames whose return address lies right below the caller's stack pointer,
//! is known to stand behind a call, and leads to ordinary code. A mark is never taken away by a sample: unwinders of the
//! program's own may have read it. Each sample of a deeper stack adds one instead.

mod frames;
mod stubs;

pub use frames::Frames;
pub use stubs::{GROUP, Own, READERS, Record, STUB_BYTES, STUBS, Stubs};

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::recipe::Packed;
use callpath_format::register::Reg;
use callpath_format::shared::{ArenaRef, Node, Settings, Unmarked};
use callpath_unwind::{Cursor, Located};
use core::sync::atomic::Ordering::Relaxed;

use crate::process::Process;
use crate::sample::{InSample, Interrupted};
use crate::syscall;
use crate::thread::Thread;
use frames::Entry;

/// With [`Settings::AUTO`], frames within the innermost mark that are walked anew rather than marked once more.
const NEAR: usize = 16;

/// The sentinel as one sample sees it.
pub(crate) struct Marks {
    stubs: Option<Stubs>,
    frames: Option<&'static Frames>,
    /// The metric that counts returns.
    counted: Option<usize>,
    /// What the settings say.
    mode: u32,
    /// The load map that the sample's walk uses.
    generation: u32,
    /// Whether a walk may end at a mark.
    follow: bool,
    /// Whether marks may be added and struck off.
    change: bool,
    /// The bounds of the thread's own stack.
    bounds: (u64, u64),
    /// The entry whose mark the walk has met.
    met: Option<usize>,
    /// Whether the return address that was read last was a stub.
    was_stub: bool,
    /// A stub was found where it was not put: the program copies its stack.
    is_copied: bool,
}

impl Marks {
    /// Without a sentinel.
    pub(crate) const NONE: Marks = Marks {
        stubs: None,
        frames: None,
        counted: None,
        mode: Settings::NEVER,
        generation: 0,
        follow: false,
        change: false,
        bounds: (0, 0),
        met: None,
        was_stub: false,
        is_copied: false,
    };

    /// For a sample. `bounds`: of the thread's own stack, if it was interrupted there. `ordinary`: it was interrupted, by an
    /// event, in code of the program's.
    pub(crate) fn of_sample(
        _in_sample: &InSample,
        process: &Process<'_>,
        thread: Thread<'_>,
        bounds: Option<(u64, u64)>,
        ordinary: bool,
    ) -> Marks {
        let settings = &process.session.settings;
        let Some(stubs) = process.stubs else { return Marks::NONE };
        let own = (stubs.own)();
        let generation = thread.record.cache_generation.load(Relaxed);
        let metric = settings.in_use().iter().position(|meter| *meter == Settings::RETURNS);
        let walks_itself = process.slot.walks_itself.load(Relaxed) != 0;
        let is_over = process.slot.unmarked.load(Relaxed) == Unmarked::Copies as u32;
        Marks {
            stubs: Some(stubs),
            frames: match own {
                Own::Has(frames) => Some(frames),
                Own::NotYet | Own::Never => None,
            },
            counted: metric,
            mode: settings.sentinel,
            generation,
            follow: ordinary,
            change: ordinary && bounds.is_some() && !walks_itself && !is_over && !matches!(own, Own::Never),
            bounds: bounds.unwrap_or((0, 0)),
            met: None,
            was_stub: false,
            is_copied: false,
        }
    }

    /// What a return address, found at `at` (0: unknown), stands for.
    #[inline]
    pub(crate) fn true_return(&mut self, at: u64, found: u64) -> Option<u64> {
        match &self.stubs {
            Some(stubs) if stubs.contain(found) => self.of_stub(at, found),
            _ => {
                self.was_stub = false;
                Some(found)
            }
        }
    }

    #[cold]
    fn of_stub(&mut self, at: u64, found: u64) -> Option<u64> {
        self.was_stub = true;
        let record = self.stubs?.record(found)?;
        if at != 0 && at != record.slot.load(Relaxed) {
            self.is_copied = true;
            return None;
        }
        if self.follow
            && let Some(frames) = self.frames
            && let Some(index) = frames.index_of(record.entry.load(Relaxed))
            && let Some(entry) = frames.entry(index)
            && entry.slot.load(Relaxed) == record.slot.load(Relaxed)
            && index > 0
        {
            self.met = Some(index);
        }
        Some(record.real.load(Relaxed))
    }

    /// Whether the walk has met a mark of a frame that is known: it need not go on.
    #[inline]
    pub(crate) fn is_met(&self) -> bool {
        self.met.is_some()
    }

    /// Says why stacks are not marked, if a walk of so many frames has shown it.
    pub(crate) fn tell(&self, process: &Process<'_>, walked: usize) {
        let unmarked = &process.slot.unmarked;
        if self.is_copied {
            unmarked.store(Unmarked::Copies as u32, Relaxed);
        } else if self.is_deep(process, walked)
            && process.slot.walks_itself.load(Relaxed) != 0
            && unmarked.load(Relaxed) == 0
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

    /// Where the return address of a frame is, if it may be marked; else 0. `head`: of the frame's recipe. `caller` and
    /// `located`: what the frame's caller is. `read`: reads code.
    pub(crate) fn slot(
        &self,
        head: u16,
        caller: &Cursor,
        located: &Located,
        read: impl FnMut(u64) -> Option<u64>,
    ) -> u64 {
        let (Some(frames), true) = (self.frames, self.change) else { return 0 };
        let is_simple = |kind| matches!(kind, Packed::REGISTER | Packed::DEREF);
        let is_caller_ordinary = is_simple(located.recipe.kind()) || located.recipe.kind() == Packed::OUTERMOST;
        let CodePoint::Return(RunAddr(addr)) = caller.point else { return 0 };
        let Some(slot) = caller.registers.get(Reg::RSP).and_then(|rsp| rsp.checked_sub(8)) else { return 0 };
        let (low, high) = self.bounds;
        let may_be = is_simple(head & 7)
            && head & Packed::KEPT == 0
            && located.recipe.head & Packed::KEEPS == 0
            && is_caller_ordinary
            && (!self.was_stub || self.is_met())
            && slot.is_multiple_of(8)
            && low <= slot
            && slot < high
            && self.is_behind_call(frames, addr, read);
        if may_be { slot } else { 0 }
    }

    /// Whether the instruction before `addr` can be a call.
    fn is_behind_call(&self, frames: &Frames, addr: u64, mut read: impl FnMut(u64) -> Option<u64>) -> bool {
        if frames.is_checked(addr, self.generation) {
            return true;
        }
        let Some(bytes) = addr.checked_sub(8).and_then(&mut read).map(u64::to_le_bytes) else { return false };
        let direct = bytes[3] == 0xe8;
        let indirect = [2, 3, 4, 6, 7].iter().any(|len| {
            let at = bytes.len() - len;
            bytes.get(at) == Some(&0xff) && bytes.get(at + 1).is_some_and(|modrm| modrm >> 3 & 7 == 2)
        });
        if direct || indirect {
            frames.set_checked(addr);
        }
        direct || indirect
    }

    /// Begins to note the frames of a full path that was walked, the outermost first, from the mark inwards or from the
    /// stack's end. `depth`: how many frames were walked. `None`: they are not noted.
    pub(crate) fn begin(&mut self, process: &Process<'_>, walked: usize) -> Option<&'static Frames> {
        if !self.change {
            return None;
        }
        let stubs = self.stubs?;
        let is_deep = self.is_deep(process, self.met.unwrap_or(0) + walked);
        let frames = match self.frames {
            Some(frames) => frames,
            // Its frames are noted from the next sample on.
            None if is_deep => {
                let frames = Frames::create(&stubs, syscall::gettid());
                (stubs.set_own)(frames.map_or(Own::Never, Own::Has));
                if frames.is_none() {
                    process.slot.unmarked.store(Unmarked::NoMemory as u32, Relaxed);
                }
                return None;
            }
            None => return None,
        };
        match self.met {
            Some(index) => {
                frames.strike(&stubs, frames.entry(index).map_or(0, |entry| core::ptr::from_ref(entry) as u64));
                frames.truncate(index);
            }
            None => {
                frames.strike(&stubs, 0);
                frames.truncate(0);
            }
        }
        (is_deep || self.is_met()).then_some(frames)
    }

    /// Notes the next frame inwards.
    pub(crate) fn note(&self, process: &Process<'_>, frames: &Frames, slot: u64, node: ArenaRef) {
        let is_marked = self.met == Some(frames.len());
        let slot = match (is_marked, frames.entry(frames.len())) {
            (true, Some(entry)) => entry.slot.load(Relaxed),
            _ => slot,
        };
        let place = |metric: usize| process.arena.at_offset(node.offset_bytes() + size_of::<Node>() + 8 * metric);
        // A stack that is deeper than what is kept is marked at the outer frames only.
        let _ = frames.push(slot, node, self.counted.and_then(place), is_marked);
    }

    /// Marks a frame: the innermost, if returns are counted, or the one outside of it.
    pub(crate) fn mark(
        &self,
        process: &Process<'_>,
        interrupted: &Interrupted,
        frames: &Frames,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) {
        let Some(stubs) = self.stubs else { return };
        let innermost = self.mode == Settings::ALWAYS
            && !stubs.is_reader(interrupted.pc)
            && read(interrupted.pc).is_some_and(|code| !may_leave(code.to_le_bytes()));
        let skipped = usize::from(!innermost);
        let innermost_mark = self.met.unwrap_or(0);
        let candidate = (innermost_mark..frames.len().saturating_sub(skipped))
            .rev()
            .filter_map(|index| frames.entry(index))
            .find(|entry| entry.slot.load(Relaxed) != 0);
        let Some(entry) = candidate.filter(|entry| entry.marked.load(Relaxed) == 0) else { return };
        let index = frames.index_of(core::ptr::from_ref(entry) as u64).unwrap_or(0);
        if self.mode == Settings::AUTO && self.met.is_some_and(|met| index < met + NEAR) {
            return;
        }
        let slot = entry.slot.load(Relaxed);
        let Some(real) = read(slot).filter(|real| !stubs.contain(*real)) else { return };
        let Some((number, record)) = frames.take_stub(&stubs, read) else {
            process.slot.marks_lost.fetch_add(1, Relaxed);
            return;
        };
        frames.live.push(number);
        place(record, entry, slot, real);
    }
}

/// Whether an instruction may go on to another procedure in the frame's stead, which may read the return address: a jump, or
/// the landing mark that linkage stubs begin with (psABI, section 5.2).
fn may_leave(code: [u8; 8]) -> bool {
    matches!(
        code,
        [0xf3, 0x0f, 0x1e, 0xfa, ..] | [0xf2 | 0x3e | 0x41, 0xe9 | 0xeb | 0xff, ..] | [0xe9 | 0xeb | 0xff | 0x68, ..]
    )
}

/// Puts a stub into the return address's place.
fn place(record: &Record, entry: &Entry, slot: u64, real: u64) {
    record.real.store(real, Relaxed);
    record.slot.store(slot, Relaxed);
    record.entry.store(core::ptr::from_ref(entry) as u64, Relaxed);
    entry.marked.store(1, Relaxed);
    // SAFETY: the word lies on the calling thread's own stack, between its stack pointer and the stack's end, and has been
    // read: a frame's return address. The thread returns through the stub as it would have without.
    unsafe { core::ptr::write_volatile(slot as *mut u64, record.stub.load(Relaxed)) };
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
    use super::*;
    use core::sync::atomic::{AtomicU32, AtomicU64};

    static RECORDS: [Record; STUBS] = [const { Record::new() }; STUBS];
    static OWNERS: [AtomicU32; STUBS / GROUP] = [const { AtomicU32::new(0) }; STUBS / GROUP];
    static PROCEDURES: [AtomicU64; READERS] = [const { AtomicU64::new(0) }; READERS];

    #[test]
    fn a_stub_stands_for_a_return_address_only_where_it_was_put() {
        const FIRST: u64 = 0x10_0000;
        let stubs = Stubs {
            first: FIRST,
            common: FIRST + STUBS as u64 * STUB_BYTES,
            left: u64::MAX,
            end: u64::MAX,
            records: &RECORDS,
            owners: &OWNERS,
            readers: &PROCEDURES,
            own: || Own::NotYet,
            set_own: |_| (),
        };
        let (stub, slot, real) = (FIRST + 7 * STUB_BYTES, 0x7fff_0008, 0x40_1234);
        RECORDS[7].real.store(real, Relaxed);
        RECORDS[7].slot.store(slot, Relaxed);
        let mut marks = Marks { stubs: Some(stubs), ..Marks::NONE };
        assert_eq!(marks.true_return(slot, 0x40_5678), Some(0x40_5678));
        assert_eq!(marks.true_return(slot, stub), Some(real));
        assert_eq!(marks.true_return(0, stub), Some(real));
        assert!(!marks.is_copied);
        assert_eq!(marks.true_return(slot + 64, stub), None);
        assert!(marks.is_copied);
    }
}
