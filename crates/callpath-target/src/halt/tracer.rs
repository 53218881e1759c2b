//! The threads that stand still, and how one of them is made to run for us.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;

use super::across_pages::is_across;
use super::borrowed::Borrowed;
use super::shelter::Shelter;
use crate::edits::Edits;
use crate::error::TargetError;
use crate::maps::Maps;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};
use crate::remote_call;
use crate::task_status::{TaskStatus, bit};
use crate::traced::{Traced, TracedMemory};

/// Of `membarrier`: registers a process. With several threads the kernel waits for all processors, some 20 ms.
pub(super) const REGISTER_SYNC_CORE: u64 = 1 << 6;

/// How long a thread may run for us between two stops.
pub(super) const RUN_AT_MOST: Duration = Duration::from_secs(5);

/// A thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: Pid,
    /// The process that it belongs to.
    pub(super) process: Pid,
    /// It stands still.
    pub(super) stopped: bool,
    /// It stands before the delivery of this signal, which is delivered when it runs on.
    pub(super) signal: Option<i32>,
    /// The system call that it is in, if the kernel would let it fail.
    pub(super) call: Option<libc::c_long>,
    /// Its registers have been changed for that call to be made anew.
    pub(super) is_anew: bool,
    /// Signals that could not be held back, to be sent anew when it runs on.
    pub(super) postponed: VecDeque<libc::siginfo_t>,
}

/// A process whose threads stand still. Belongs to the thread that traces.
#[derive(Debug)]
pub(super) struct Tracer {
    pub(super) pid: Pid,
    /// When the first thread stopped, or shortly before.
    pub(super) since: Instant,
    pub(super) threads: Vec<Thread>,
    memory: TracedMemory,
    system_call_at: Option<RunAddr>,
    pub(super) shelter: Option<Shelter>,
    /// The thread that works for us.
    pub(super) borrowed: Option<Borrowed>,
    /// When a routine that runs for us has had its time. `None`: each wait has its own.
    pub(super) run_until: Option<Instant>,
}

impl Thread {
    /// Whether it has ended, by the kernel's list.
    pub(super) fn has_ended(&self) -> bool {
        TaskStatus::read(self.process, self.tid).is_none_or(|status| status.has_ended())
    }
}

impl Tracer {
    pub(super) fn new(pid: Pid, threads: Vec<Thread>, since: Instant, memory: TracedMemory) -> Tracer {
        let (system_call_at, shelter, borrowed, run_until) = (None, None, None, None);
        Tracer { pid, since, threads, memory, system_call_at, shelter, borrowed, run_until }
    }

    /// The memory of a process with these threads.
    pub(super) fn memory_of(pid: Pid, threads: &[Thread]) -> Result<TracedMemory, TargetError> {
        let living = threads.iter().find(|thread| thread.process == pid).ok_or(TargetError::NoProcess { pid })?;
        TracedMemory::open(pid, living.tid)
    }

    pub(super) fn memory(&self) -> &TracedMemory {
        &self.memory
    }

    /// The thread of ours with that number.
    pub(super) fn thread(&mut self, tid: Pid) -> Result<&mut Thread, TargetError> {
        let pid = self.pid;
        let source = || std::io::Error::other(format!("{tid} is none of its threads"));
        let found = self.threads.iter_mut().find(|thread| thread.tid == tid);
        found.ok_or_else(|| TargetError::Trace { request: "a thread", pid, source: source() })
    }

    /// The thread that works for us.
    pub(super) fn caller(&mut self) -> Result<Pid, TargetError> {
        self.borrow().map(|borrowed| borrowed.thread)
    }

    /// A thread that may make system calls, best one with no signal on its way: one outside of the kernel, or one that
    /// `waits` in it.
    pub(super) fn choose_caller(&mut self, waits: bool) -> Result<Pid, TargetError> {
        let mut best: Option<(u32, Pid)> = None;
        for thread in self.threads.iter().filter(|thread| thread.process == self.pid) {
            let Some(status) = TaskStatus::read(thread.process, thread.tid) else { continue };
            if status.has_ended() || status.seccomp != 0 {
                continue;
            }
            let Ok(registers) = ptrace::registers(thread.tid) else { continue };
            let is_in_call = registers.orig_rax as i64 >= 0 || thread.call.is_some();
            let in_call = u32::from(is_in_call != waits);
            let with_signal = if thread.signal.is_some() { 2 } else { 0 };
            let shadowed = if status.shadow_stack { 4 } else { 0 };
            let cost = in_call + with_signal + shadowed;
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, thread.tid));
            }
            if cost == 0 {
                break;
            }
        }
        let Some((_, tid)) = best else {
            let ended = self.threads.iter().all(|thread| TaskStatus::read(self.pid, thread.tid).is_none());
            return Err(match ended {
                true => TargetError::NoProcess { pid: self.pid },
                false => TargetError::Seccomp { pid: self.pid },
            });
        };
        self.settle_signal(tid)?;
        Ok(tid)
    }

    /// Has a signal that is about to be delivered begin its handler, where the thread stands then. One without a handler
    /// waits in the kernel's queue again, with all that belongs to it: the kernel puts a signal back that the thread holds
    /// back by now.
    pub(super) fn settle_signal(&mut self, tid: Pid) -> Result<(), TargetError> {
        let thread = self.thread(tid)?;
        let Some(signal) = thread.signal else { return Ok(()) };
        let status = TaskStatus::read(thread.process, tid).unwrap_or_default();
        if status.caught & bit(signal) != 0 {
            // Nothing of the thread is changed for that, which matters if callpath is killed.
            (thread.signal, thread.call) = (None, None);
            ptrace::interrupt(tid)?;
            ptrace::go_on(tid, signal)?;
            return self.await_interrupt(tid);
        }
        if signal == libc::SIGSTOP {
            self.postpone(tid, signal)?;
            self.thread(tid)?.signal = None;
            return self.settle(tid);
        }
        let mask = ptrace::signal_mask(tid)?;
        ptrace::set_signal_mask(tid, u64::MAX)?;
        self.thread(tid)?.signal = None;
        ptrace::interrupt(tid)?;
        ptrace::go_on(tid, signal)?;
        self.await_interrupt(tid)?;
        ptrace::set_signal_mask(tid, mask)
    }

    /// Waits for the stop that an interrupt brings.
    pub(super) fn await_interrupt(&mut self, tid: Pid) -> Result<(), TargetError> {
        loop {
            match self.next_stop(tid)? {
                Stop::Interrupt => return Ok(()),
                Stop::Ended => return Err(self.failed("stopping it", "a thread has ended")),
                Stop::Signal(signal) => self.postpone(tid, signal)?,
                Stop::SystemCall | Stop::Event => {}
            }
            // Any stop has taken the interrupt's place.
            ptrace::interrupt(tid)?;
            ptrace::go_on(tid, 0)?;
        }
    }

    /// As [`super::Halted::system_call`].
    pub(super) fn system_call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, TargetError> {
        self.system_call_on_borrowed(number, arguments)
    }

    /// As [`super::Stopped::add`].
    pub(super) fn add(&mut self, edits: &Edits<'_>) -> Result<(), TargetError> {
        let thread = self.caller()?;
        edits.add(self, thread)
    }

    /// As [`super::Halted::apply`].
    pub(super) fn apply(&mut self, edits: &Edits<'_>) -> Result<(), TargetError> {
        let thread = if edits.memory.is_empty() { self.pid } else { self.caller()? };
        edits.apply(self, thread)?;
        self.synchronise();
        Ok(())
    }

    /// As [`super::Halted::undo`].
    pub(super) fn undo(&mut self, edits: &Edits<'_>) -> Result<(), TargetError> {
        edits.undo(self)?;
        self.synchronise();
        Ok(())
    }

    /// Sees to it that no processor executes code as it was before.
    ///
    /// All threads are in the kernel. What may be stale is what a processor has fetched for one of them, and it is gone
    /// once that processor executes a serialising instruction (Intel SDM 3A, 9.1.3). A return from an interrupt is one,
    /// the `sysret` by which a system call ends is not. A process that has registered for `SYNC_CORE` gets one from the
    /// kernel whenever a processor turns to it, and from this call those that have.
    ///
    /// Where the call cannot be made (a seccomp filter, a kernel before 4.16), the switches between a thread, its tracer
    /// and the thread again must do: in them, kernels in use have always loaded CR3 or returned by `iret`.
    fn synchronise(&mut self) {
        const SYNC_CORE: u64 = 1 << 5;
        let mut command = |command| self.system_call(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]);
        if matches!(command(SYNC_CORE), Ok(error) if error == -i64::from(libc::EPERM)) {
            // Not registered.
            drop(command(REGISTER_SYNC_CORE).and_then(|_| command(SYNC_CORE)));
        }
    }
}

impl Traced for Tracer {
    fn memory(&self) -> &TracedMemory {
        &self.memory
    }

    fn change(&mut self, at: RunAddr, bytes: &[u8]) -> Result<(), TargetError> {
        if is_across(at, bytes.len()) { self.write_across(at, bytes) } else { self.memory.write(at.0, bytes) }
    }

    fn next_stop(&mut self, tid: Pid) -> Result<Stop, TargetError> {
        let until = self.run_until.unwrap_or_else(|| Instant::now() + RUN_AT_MOST);
        let mut patience = Patience::for_one();
        loop {
            if let Some(stop) = self.look(tid)? {
                return Ok(stop);
            }
            // The kernel does not tell of a first thread that ends before the others.
            if patience.is_long() && self.thread(tid)?.has_ended() {
                return Ok(Stop::Ended);
            }
            if Instant::now() > until {
                return Err(self.failed("running a thread of it", "it does not come back"));
            }
            patience.wait();
        }
    }

    fn postpone(&mut self, tid: Pid, _: i32) -> Result<(), TargetError> {
        let info = ptrace::signal_info(tid)?;
        self.thread(tid)?.postponed.push_back(info);
        Ok(())
    }

    fn settle(&mut self, tid: Pid) -> Result<(), TargetError> {
        // The kernel restarts an interrupted call on its way back from a signal or an interrupt only.
        ptrace::interrupt(tid)?;
        ptrace::go_on(tid, 0)?;
        self.await_interrupt(tid)
    }

    fn system_call(&mut self, _: Pid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, TargetError> {
        self.system_call_on_borrowed(number, arguments)
    }

    fn system_call_instruction(&mut self) -> Result<RunAddr, TargetError> {
        if let Some(at) = self.system_call_at {
            return Ok(at);
        }
        let living =
            self.threads.iter().find(|thread| thread.process == self.pid).map_or(self.pid, |thread| thread.tid);
        // Of a first thread that has ended, the kernel shows no map.
        let maps = Maps::read(living)?;
        let found = remote_call::find_code(&self.memory, &maps, &remote_call::SYSTEM_CALL);
        let at = found.ok_or_else(|| self.failed("a system call", "there is no instruction for it in its memory"))?;
        self.system_call_at = Some(at);
        Ok(at)
    }
}

impl Tracer {
    /// Whether a thread stands still again.
    fn look(&mut self, tid: Pid) -> Result<Option<Stop>, TargetError> {
        look(tid, self.threads.iter().any(|thread| thread.process == tid))
    }
}

/// Whether a thread stands still. A first thread's end is left to the process's parent, which may be callpath; and a stop before
/// the delivery of a signal to the kernel, until the thread is resumed: if callpath is killed before, the signal is delivered.
pub(super) fn look(tid: Pid, is_first: bool) -> Result<Option<Stop>, TargetError> {
    match ptrace::peek(tid) {
        None => return Ok(None),
        Some(Stop::Ended) if is_first => return Ok(Some(Stop::Ended)),
        Some(Stop::Signal(signal)) => return Ok(Some(Stop::Signal(signal))),
        Some(_) => {}
    }
    match ptrace::wait(tid, libc::WNOHANG) {
        Err(TargetError::Wait { source, .. }) if source.raw_os_error() == Some(libc::ECHILD) => Ok(Some(Stop::Ended)),
        stop => stop,
    }
}

/// Waits of microseconds, before those of a millisecond.
const SHORT_WAITS: u32 = 200;

/// Waits that grow: most stops come within microseconds.
#[derive(Debug, Default)]
pub(super) struct Patience {
    waits: u32,
    /// Looks before the first wait.
    looks: u32,
}

impl Patience {
    /// For a thread that runs for a moment, while all others stand still: going to sleep would take longer.
    fn for_one() -> Patience {
        Patience { waits: 0, looks: 100 }
    }

    /// Whether what is waited for takes longer than usual.
    pub(super) fn is_long(&self) -> bool {
        self.waits > SHORT_WAITS
    }

    pub(super) fn wait(&mut self) {
        if let Some(looks) = self.looks.checked_sub(1) {
            self.looks = looks;
            std::hint::spin_loop();
            return;
        }
        self.waits += 1;
        match self.waits {
            // Not a yield: the program's threads would have their turns, all of them, before this one goes on.
            0..=SHORT_WAITS => std::thread::sleep(Duration::from_micros(10)),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
