//! Where a thread that works for callpath goes on by itself, should callpath be killed: at the signal frame that is laid
//! out for it, from which the kernel restores all of its state (`rt_sigreturn`).
//!
//! Only code that the process has is used: `syscall; ret`, which makes the calls, and what its signal handlers return to.

use std::ops::Range;

use callpath_format::address::RunAddr;

use super::untouched::is_untouched;
use crate::listed::living_thread;
use crate::maps::{MapEntry, Maps};
use crate::pid::Pid;
use crate::remote_call::{Before, CALLS_AND_RETURNS, SYSTEM_CALL, find_code, is_restarted};
use crate::remote_memory::PAGE_BYTES;
use crate::traced::TracedMemory;

/// `mov $15, %rax` or `mov $15, %eax`, and `syscall`: `rt_sigreturn`.
pub(super) const RETURNS_FROM_SIGNAL: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];

const WORD: u64 = 8;
/// Of a frame, what is not vector state: a word that aligns it, words as laid out below, a `siginfo_t`. A multiple of 64.
const FRAME_BYTES: u64 = (1 + 6 + 18 + 15) * WORD + size_of::<libc::siginfo_t>() as u64;
/// By it a frame is known: it stands where the `siginfo_t` would.
const MARK: [u8; 16] = *b"callpath's frame";
const MARK_AT: u64 = FRAME_BYTES - size_of::<libc::siginfo_t>() as u64;
/// In a frame, of the saved `rsp` and `rip`: behind the code's address, five words and fifteen registers.
pub(super) const RSP: u64 = (1 + 5 + 15) * WORD;
pub(super) const RIP: u64 = RSP + WORD;

/// What a process has for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shelter {
    /// `syscall; ret`
    pub(super) calls: RunAddr,
    /// Calls `rt_sigreturn`.
    pub(super) returns: RunAddr,
    /// Of that code, the address behind.
    pub(super) behind: RunAddr,
    /// The first thread's stack, as far as it is mapped.
    stack: Range<u64>,
}

impl Shelter {
    /// In a process, which may be running. `None`: something is missing.
    pub(super) fn find(pid: Pid) -> Option<Shelter> {
        let living = living_thread(pid)?;
        let memory = TracedMemory::open(pid, living).ok()?;
        let maps = Maps::read(living).ok()?;
        let calls = find_code(&memory, &maps, &CALLS_AND_RETURNS)?;
        let returns = |code: &[u8]| Some((find_code(&memory, &maps, code)?, code.len() as u64));
        let (returns, len) = RETURNS_FROM_SIGNAL.iter().find_map(|code| returns(code))?;
        let is_stack = |entry: &&MapEntry| entry.path.as_os_str() == "[stack]";
        let stack = maps.entries.iter().find(is_stack).map(|entry| entry.start.0..entry.end.0)?;
        Some(Shelter { calls, returns, behind: RunAddr(returns.0.wrapping_add(len)), stack })
    }

    /// Whether its code is still there.
    pub(super) fn is_there(&self, memory: &TracedMemory) -> bool {
        let code = RETURNS_FROM_SIGNAL.iter().any(|code| memory.expect(self.returns, code).is_ok());
        code && memory.expect(self.calls, &CALLS_AND_RETURNS).is_ok()
    }

    /// Where a frame of so many bytes can be, far below what the first thread uses; given the registers of that thread, if
    /// it has not ended, and of all that stand still. A thread whose callpath was killed may not have come to its own frame
    /// yet: that stays. `None`: there is no room, or what is there is not known to be free.
    pub(super) fn place(
        &self,
        first: Option<&libc::user_regs_struct>,
        threads: &[libc::user_regs_struct],
        (memory, len_bytes): (&TracedMemory, u64),
    ) -> Option<u64> {
        const PLACES: u64 = 6;
        /// For the first thread, if it alone stands still: where others stand is not known then.
        const OWN_PLACES: u64 = 3;
        /// What the first thread may need of its stack before the frame has been used.
        const APART: u64 = 16 << 10;
        // Pages of its own, by which it is known whether somebody else has used them.
        let len = len_bytes.next_multiple_of(PAGE_BYTES);
        let shared_end = self.stack.start + PLACES * len;
        let end = shared_end + OWN_PLACES * len;
        if end + APART > self.stack.end {
            return None;
        }
        let is_free = match first.filter(|first| self.stack.contains(&first.rsp)) {
            Some(first) => first.rsp >= end + APART || self.own_frame(first).is_some(),
            // It has ended, or is on another stack, as Go's are, and may come back to this one anywhere.
            None => {
                let mut slots = (self.stack.start..end).step_by(usize::try_from(len).ok()?);
                is_untouched(memory, end..end + APART)
                    && slots.all(|at| is_untouched(memory, at..at + len) || is_frame(memory, at))
            }
        };
        if !is_free {
            return None;
        }
        let places = if threads.len() == 1 { shared_end..end } else { self.stack.start..shared_end };
        let is_used = |at: u64| threads.iter().any(|thread| (at..at + len).contains(&thread.rsp));
        places.step_by(usize::try_from(len).ok()?).find(|at| !is_used(*at))
    }

    /// Of a thread that is about to go on from its frame, since callpath was killed: where rsp points to that.
    pub(super) fn own_frame(&self, registers: &libc::user_regs_struct) -> Option<u64> {
        let calls = self.calls.0..self.calls.0 + CALLS_AND_RETURNS.len() as u64;
        if !self.stack.contains(&registers.rsp) {
            return None;
        }
        if calls.contains(&registers.rip) {
            return Some(registers.rsp);
        }
        // The code's address has been popped.
        (self.returns..self.behind).contains(&RunAddr(registers.rip)).then_some(registers.rsp.wrapping_sub(WORD))
    }

    /// The frame from which the kernel restores a thread, laid out at `at`, which is a multiple of 64: its bytes, and
    /// where `rsp` points to it.
    pub(super) fn frame(&self, at: u64, (before, vectors): (&Before, &[u8]), memory: &TracedMemory) -> (Vec<u8>, u64) {
        // Handlers are entered with rsp + 8 at a multiple of 16; its frame begins there. All of it lies above: what
        // runs before it is used may push.
        let frame_at = at + WORD;
        let vectors = VectorState::of(vectors);
        let vectors_at = vectors.as_ref().map_or(0, |_| at + FRAME_BYTES);
        let r = resumable(&before.registers, before.sequence.and_then(|(_, note)| abort_of(note, memory)));
        /// UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
        const FLAGS: u64 = 1 | 2 | 4;
        /// No mode that the kernel knows: it leaves the thread's signal stack as it is.
        const NO_MODE: u64 = 7;
        let segments = (r.cs & 0xffff) | (r.gs & 0xffff) << 16 | (r.fs & 0xffff) << 32 | (r.ss & 0xffff) << 48;
        // struct rt_sigframe: the code's address; a ucontext_t: flags, link, the signal stack, registers, segments, err,
        // trapno, oldmask, cr2, the vector state's address, 8 words, the signal mask.
        let words = [self.returns.0, FLAGS, 0, 0, NO_MODE, 0];
        let general = [
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx,
            r.rsp, r.rip, r.eflags,
        ];
        let rest = [segments, 0, 0, 0, 0, vectors_at, 0, 0, 0, 0, 0, 0, 0, 0, before.signal_mask];
        let words = [0].iter().chain(&words).chain(&general).chain(&rest);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        // The kernel asks for a whole frame: a siginfo_t, which it does not read.
        bytes.extend(MARK);
        bytes.resize(FRAME_BYTES as usize, 0);
        bytes.extend(vectors.map_or_else(Vec::new, |vectors| vectors.0));
        (bytes, frame_at)
    }

    /// How many bytes a frame takes.
    pub(super) fn frame_len_bytes(vectors: &[u8]) -> u64 {
        FRAME_BYTES + VectorState::of(vectors).map_or(0, |vectors| vectors.0.len() as u64)
    }
}

/// Whether there is a frame of callpath's, of this or an earlier stop.
fn is_frame(memory: &TracedMemory, at: u64) -> bool {
    let mut there = [0; MARK.len()];
    memory.read(at + MARK_AT, &mut there) == there.len() && there == MARK
}

/// The state in which a thread does by itself what the kernel would do if it were let go: makes an interrupted call anew,
/// aborts a restartable sequence. The time-out of such a call begins anew. Of one that the kernel had begun anew before,
/// it no longer says which it is: that fails with `EINTR`.
fn resumable(before: &libc::user_regs_struct, abort: Option<u64>) -> libc::user_regs_struct {
    if let Some(abort) = abort {
        return libc::user_regs_struct { rip: abort, ..*before };
    }
    if !is_restarted(before) {
        return *before;
    }
    if before.orig_rax == libc::SYS_restart_syscall as u64 {
        return libc::user_regs_struct { rax: -i64::from(libc::EINTR) as u64, ..*before };
    }
    let rip = before.rip.wrapping_sub(SYSTEM_CALL.len() as u64);
    libc::user_regs_struct { rip, rax: before.orig_rax, ..*before }
}

/// Of the restartable sequence with this descriptor: where it is aborted.
fn abort_of(descriptor: u64, memory: &TracedMemory) -> Option<u64> {
    /// `struct rseq_cs`: version and flags, start, length, abort.
    const ABORT: u64 = 3 * WORD;
    memory.read_u64(descriptor.wrapping_add(ABORT))
}

/// Vector state as it is in a signal frame.
struct VectorState(Vec<u8>);

impl VectorState {
    /// From what ptrace tells: XSAVE's layout without compaction. `None`: it is not of that form.
    fn of(state: &[u8]) -> Option<VectorState> {
        /// Where the kernel says which components are there, in bytes that the processor leaves alone.
        const COMPONENTS: usize = 464;
        /// The processor's header: which components are not in their initial state.
        const USED: usize = 512;
        /// `struct _fpx_sw_bytes`
        const MAGIC: u32 = 0x4650_5853;
        const MAGIC_BEHIND: u32 = 0x4650_5845;
        /// Tiles, which a process has to ask the kernel for: state without them is shorter.
        const TILES: u64 = 1 << 17 | 1 << 18;
        let word = |at: usize| Some(u64::from_le_bytes(state.get(at..at + 8)?.try_into().ok()?));
        let (components, used) = (word(COMPONENTS)?, word(USED)?);
        let components = if used & TILES == 0 { components & !TILES } else { components };
        let len = len_of(components).min(state.len());
        let mut bytes = state.get(..len)?.to_vec();
        let mut put = |at: usize, new: &[u8]| bytes.get_mut(at..at + new.len()).map(|place| place.copy_from_slice(new));
        put(COMPONENTS, &MAGIC.to_le_bytes())?;
        put(COMPONENTS + 4, &(len as u32 + 4).to_le_bytes())?;
        put(COMPONENTS + 8, &components.to_le_bytes())?;
        put(COMPONENTS + 16, &(len as u32).to_le_bytes())?;
        bytes.extend_from_slice(&MAGIC_BEHIND.to_le_bytes());
        Some(VectorState(bytes))
    }
}

/// How long a state with these components is (Intel SDM 1, 13.4).
fn len_of(components: u64) -> usize {
    const LEGACY_AND_HEADER: usize = 576;
    const LEAF: u32 = 0xd;
    let extended = (2..u64::BITS).filter(|component| components >> component & 1 == 1);
    let ends = extended.map(|component| {
        let about = std::arch::x86_64::__cpuid_count(LEAF, component);
        (about.ebx + about.eax) as usize
    });
    ends.max().unwrap_or(0).max(LEGACY_AND_HEADER)
}
