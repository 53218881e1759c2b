//! A running process that callpath did not start, its threads stopped, or one of them: looked at, changed, and let go.
//!
//! Nothing of the program's own is called, and what callpath does is undone by nobody: should callpath be killed, the
//! threads run on, with the changes that are complete. A thread that works for callpath at that moment goes on where it
//! was (`shelter.rs`), if there is room on the first thread's stack, and the process has code that returns from signals.

mod across_pages;
mod borrowed;
mod gather;
mod interrupted;
mod load;
mod move_out;
mod prepare;
mod refusal;
mod release;
mod routine;
mod sharers;
mod shelter;
mod signal_frames;
mod tracer;
mod untouched;
mod worker;

use std::ops::{Deref, Range};
use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;

use crate::edits::Edits;
use crate::error::TargetError;
use crate::pid::Pid;
use crate::remote_memory::SharedMapping;
use crate::{ptrace, remote_memory};

pub use load::LoadedObject;
pub use refusal::why_hidden;
use tracer::Tracer;
use worker::Worker;

/// Threads of a process stand still, by ptrace; others may run. Dropped, all run on.
///
/// The process can be given memory that nothing uses yet. A thread of callpath's own does the tracing: the kernel obeys
/// one thread only, and lets go what it traces when that thread ends, whatever state it is in.
#[derive(Debug)]
pub struct Stopped {
    worker: Worker,
    pid: Pid,
    since: Instant,
    is_whole: bool,
}

impl Stopped {
    /// Stops the first thread of a process within `at_most`, and no other. What [`Halted::halt`] says of system calls holds.
    ///
    /// # Errors
    /// As of [`Halted::halt`]; also if the first thread has ended, runs while there are others, is in uninterruptible sleep,
    /// or is restricted by seccomp filters.
    pub fn first_thread(pid: Pid, at_most: Duration) -> Result<Stopped, TargetError> {
        let is_whole = prepare::first_is_alone(pid)?;
        let (worker, since) = Worker::start(pid, move || Tracer::gather_some(pid, vec![pid], at_most))?;
        Ok(Stopped { worker, pid, since, is_whole })
    }

    /// Whether no thread of the process runs.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// When the first of them stopped, or shortly before.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Its threads, and those of other processes that share its memory. A first thread that has ended before the others
    /// is not among them.
    ///
    /// # Errors
    /// If the thread that traces has ended.
    pub fn threads(&self) -> Result<Vec<Pid>, TargetError> {
        self.worker.with(|tracer| Ok(tracer.threads.iter().map(|thread| thread.tid).collect()))
    }

    /// The registers of one of its threads. Of one in a system call that the kernel restarts, `rip` is behind the
    /// instruction, and the kernel goes back to it.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn registers(&self, thread: Pid) -> Result<libc::user_regs_struct, TargetError> {
        self.worker.with(|tracer| {
            tracer.give_back()?;
            ptrace::registers(thread)
        })
    }

    /// Reads its memory; fewer bytes than asked for where it ends.
    ///
    /// # Errors
    /// If the thread that traces has ended.
    pub fn read(&self, at: RunAddr, into: &mut [u8]) -> Result<usize, TargetError> {
        self.worker.with(|tracer| Ok(tracer.memory().read(at.0, into)))
    }

    /// Writes its memory, also where the program itself may not.
    ///
    /// # Errors
    /// If nothing is mapped there.
    pub fn write(&self, at: RunAddr, bytes: &[u8]) -> Result<(), TargetError> {
        self.worker.with(|tracer| tracer.memory().write(at.0, bytes))
    }

    /// Makes a system call on one of the threads. Returns what the kernel does: a negative number is an error's.
    ///
    /// # Errors
    /// If no thread can make one: seccomp filters restrict all of them. If the thread ends meanwhile.
    pub fn system_call(&self, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, TargetError> {
        self.worker.with(|tracer| tracer.system_call(number, arguments))
    }

    /// Calls a routine in its memory on one of the threads, by C's calling convention, on a stack that ends at `stack`.
    /// The routine must use nothing of the program's: no libc, no thread-local memory. What it has to say it writes into
    /// memory: where it returns to, the register of its value has another use.
    ///
    /// # Errors
    /// If it faults, or does not return in time (some seconds); the thread's state is as it was also then. If the thread
    /// has a shadow stack, on which the call would have to be noted.
    pub fn call(&self, routine: RunAddr, arguments: [u64; 6], stack: RunAddr) -> Result<(), TargetError> {
        self.worker.with(|tracer| tracer.call(routine, arguments, stack))
    }

    /// Maps a freestanding shared object, private: at `at`, or where the kernel likes.
    ///
    /// # Errors
    /// If it needs what is not provided (other objects, symbols, thread-local memory, constructors), or cannot be mapped.
    pub fn load(&self, object: &[u8], at: Option<RunAddr>) -> Result<LoadedObject, TargetError> {
        self.worker.with(|tracer| tracer.load(object, at))
    }

    /// Takes a loaded object away. No thread may run its code.
    ///
    /// # Errors
    /// If no thread can make the system call.
    pub fn unload(&self, object: &LoadedObject) -> Result<(), TargetError> {
        self.worker.with(|tracer| {
            let thread = tracer.caller()?;
            remote_memory::unmap(tracer, thread, (object.base(), object.len_bytes()))
        })
    }

    /// Maps memories of callpath's. Returns where they are, in this order.
    ///
    /// # Errors
    /// If they cannot be mapped; none is, then.
    pub fn map_shared<const N: usize>(&self, memories: [SharedMapping<'_>; N]) -> Result<[RunAddr; N], TargetError> {
        self.worker.with(|tracer| {
            let thread = tracer.caller()?;
            remote_memory::map_shared(tracer, thread, memories)
        })
    }

    /// Gives the process new memory, and writes what is to stand there. Of these changes no old bytes are expected.
    ///
    /// # Errors
    /// If memory cannot be mapped.
    pub fn add(&self, edits: &Edits<'_>) -> Result<(), TargetError> {
        self.worker.with(|tracer| tracer.add(edits))
    }

    /// Lets the threads run on, their pending signals delivered. Returns how long the process stood still.
    ///
    /// # Errors
    /// If a thread cannot be let go.
    pub fn release(self) -> Result<Duration, TargetError> {
        let since = self.since;
        let ((), ended) = self.worker.finish(Tracer::release)?;
        Ok(ended.saturating_duration_since(since))
    }
}

/// A process whose threads all stand still, by ptrace. Dropped, it runs on.
///
/// Other processes that share its memory stand still, too.
#[derive(Debug)]
pub struct Halted(Stopped);

impl Deref for Halted {
    type Target = Stopped;

    fn deref(&self) -> &Stopped {
        &self.0
    }
}

impl From<Halted> for Stopped {
    fn from(halted: Halted) -> Stopped {
        halted.0
    }
}

impl Halted {
    /// Stops a process within `at_most`.
    ///
    /// Threads are asked to stop until there are no others. System calls that they are in go on later as if they had
    /// not been interrupted, with two exceptions. The time-out of a call that the kernel does not restart (`epoll_wait`,
    /// `semtimedop`, `sigtimedwait`, `recv` with `SO_RCVTIMEO`) begins anew. And one that has done part of its work
    /// returns that, as it may at any time (a `read` from a pipe that is short).
    ///
    /// # Errors
    /// If there is no such process, this user may not trace it, something else does, it is a 32-bit one, or a thread
    /// does not stop in time. The process then runs on unchanged.
    pub fn halt(pid: Pid, at_most: Duration) -> Result<Halted, TargetError> {
        let (worker, since) = Worker::start(pid, move || Tracer::gather(pid, at_most))?;
        Ok(Halted(Stopped { worker, pid, since, is_whole: true }))
    }

    /// Registers a process for what [`Halted::apply`] needs. With several threads the kernel takes some 20 ms for that; only
    /// one of them stands still meanwhile, one that waits anyway if there is such a one. Without this, `apply` registers it
    /// while all of them stand still.
    ///
    /// # Errors
    /// If the threads cannot be stopped ([`Halted::halt`]), or none of them can make the system call.
    pub fn prepare(pid: Pid, at_most: Duration) -> Result<(), TargetError> {
        let Some(threads) = prepare::threads(pid) else { return Ok(()) };
        let (worker, _) = Worker::start(pid, move || Tracer::gather_some(pid, threads, at_most))?;
        worker.finish(Tracer::register_for_changes).map(|((), _)| ())
    }

    /// Gives a thread other registers, with which it will run on.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn set_registers(&self, thread: Pid, registers: &libc::user_regs_struct) -> Result<(), TargetError> {
        self.0.worker.with(|tracer| {
            tracer.give_back()?;
            ptrace::set_registers(thread, registers)
        })
    }

    /// Sees to it that no thread stands inside bytes that change: where `to` knows where the same instruction stands
    /// elsewhere, the thread will go on there; others are run on, instruction by instruction. The first byte of a range
    /// is not inside. Returns how many threads were moved. Return addresses are not looked at.
    ///
    /// # Errors
    /// If a thread cannot be taken out.
    pub fn move_out(
        &self,
        changing: &[Range<RunAddr>],
        to: impl Fn(RunAddr) -> Option<RunAddr> + Sync,
    ) -> Result<usize, TargetError> {
        self.0.worker.with(|tracer| {
            tracer.give_back()?;
            tracer.move_out(changing, &to)
        })
    }

    /// Makes changes, after [`Halted::move_out`]. If any of the old bytes differ, nothing has been changed but that new
    /// memory is there.
    ///
    /// # Errors
    /// If memory cannot be mapped, or bytes are not what they should be.
    pub fn apply(&self, edits: &Edits<'_>) -> Result<(), TargetError> {
        self.0.worker.with(|tracer| tracer.apply(edits))
    }

    /// Puts back what stood where bytes were changed, after [`Halted::move_out`]. New memory stays: a thread may come
    /// back to it.
    ///
    /// # Errors
    /// If the bytes are no longer those that were written; then nothing has been changed.
    pub fn undo(&self, edits: &Edits<'_>) -> Result<(), TargetError> {
        self.0.worker.with(|tracer| tracer.undo(edits))
    }

    /// Lets the threads run on, their pending signals delivered. Returns how long the process stood still.
    ///
    /// # Errors
    /// If a thread cannot be let go.
    pub fn release(self) -> Result<Duration, TargetError> {
        self.0.release()
    }
}
