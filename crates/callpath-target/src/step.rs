//! Running a program one instruction at a time (ptrace), and looking at its registers and memory in between.
//!
//! All of it must be called by the thread that started the program: that is the one which the kernel obeys.

use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::maps::Maps;
use crate::pid::Pid;
use crate::ptrace::{self, Stop};
use crate::remote_call;
use crate::traced::{Traced, TracedMemory};

/// What to follow beyond the first thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepOptions {
    /// Threads that the program makes. Its children run free in any case.
    pub threads: bool,
    /// Addresses are what the system likes, as in a program that is not traced.
    pub random_addresses: bool,
}

/// Why a thread stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stepped {
    /// A trap: usually one instruction has run. [`Stepper::trap_cause`] says what else it was.
    Trap,
    /// A signal is about to be delivered; nothing has run. It is to be given to [`Stepper::step`].
    Signal(i32),
    /// Another program has taken the process over and stands before its first instruction.
    Exec,
    /// The thread has made another, which will report itself.
    Clone,
    /// The program is being stopped, as by SIGSTOP.
    GroupStop,
    /// The thread has ended: an exit status, or 128 + signal.
    Ended(i32),
}

/// What a [`Stepped::Trap`] was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrapCause {
    /// One instruction has run.
    Step,
    /// The kernel has laid a signal's frame; its handler's first instruction is next.
    Handler,
    /// The program's own: a breakpoint instruction or a SIGTRAP that was sent. To be delivered.
    Own,
}

/// A traced program.
#[derive(Debug)]
pub struct Stepper {
    child: Child,
    memory: TracedMemory,
    /// Its number may be another's by now.
    ended: bool,
    /// ptrace obeys one thread only.
    not_send: PhantomData<*const ()>,
}

impl Stepper {
    /// Starts a program that stands before the first instruction of its loader (or its own, if it has none), at
    /// addresses that are the same every time where the system allows it.
    pub fn start(mut command: Command, options: StepOptions) -> Result<Stepper, TargetError> {
        const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0004_0000;
        let program = std::path::PathBuf::from(command.get_program());
        // SAFETY: the closure makes two system calls, no more.
        unsafe {
            command.pre_exec(move || {
                // Where that is forbidden, addresses differ from run to run: nothing depends on it.
                if !options.random_addresses {
                    libc::personality(ADDR_NO_RANDOMIZE);
                }
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|source| TargetError::Launch { program, source })?;
        let pid = Pid(child.id());
        let memory = TracedMemory::open(pid, pid)?;
        let mut stepper = Stepper { child, memory, ended: false, not_send: PhantomData };
        stepper.wait(Some(pid))?;
        let mut flags = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD;
        if options.threads {
            flags |= libc::PTRACE_O_TRACECLONE;
        }
        // SAFETY: the request takes numbers only.
        let result = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid.0, 0, flags) };
        checked("PTRACE_SETOPTIONS", pid, result)?;
        Ok(stepper)
    }

    /// Ends the trace of a program that stands still: it is left stopped, as by SIGSTOP, and goes on by SIGCONT.
    ///
    /// # Errors
    /// If it has ended.
    pub fn leave_stopped(mut self) -> Result<(), TargetError> {
        let pid = self.pid();
        // SAFETY: the request takes numbers only.
        let result = unsafe { libc::ptrace(libc::PTRACE_DETACH, pid.0, 0, libc::SIGSTOP) };
        checked("PTRACE_DETACH", pid, result)?;
        self.ended = true;
        Ok(())
    }

    /// The process, and its first thread.
    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Lets a thread run one instruction, delivering `signal` first (0: none).
    pub fn step(&self, thread: Pid, signal: i32) -> Result<(), TargetError> {
        ptrace::step(thread, signal)
    }

    /// Lets a thread run on, delivering `signal` first (0: none).
    pub fn go_on(&self, thread: Pid, signal: i32) -> Result<(), TargetError> {
        ptrace::go_on(thread, signal)
    }

    /// Waits for a thread, or for any thread of the program.
    pub fn wait(&mut self, thread: Option<Pid>) -> Result<(Pid, Stepped), TargetError> {
        let which = thread.map_or(-1, |thread| thread.0 as i32);
        let mut status = 0;
        let waited = loop {
            // SAFETY: a valid place for the status.
            let waited = unsafe { libc::waitpid(which, &mut status, libc::__WALL) };
            if waited >= 0 {
                break Pid(waited as u32);
            }
            let source = std::io::Error::last_os_error();
            if source.kind() != std::io::ErrorKind::Interrupted {
                return Err(TargetError::Wait { pid: thread.unwrap_or(self.pid()), source });
            }
        };
        let stepped = self.stepped(waited, status)?;
        self.ended |= waited == self.pid() && matches!(stepped, Stepped::Ended(_));
        Ok((waited, stepped))
    }

    fn stepped(&self, thread: Pid, status: i32) -> Result<Stepped, TargetError> {
        if libc::WIFEXITED(status) {
            return Ok(Stepped::Ended(libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            return Ok(Stepped::Ended(128 + libc::WTERMSIG(status)));
        }
        Ok(match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => Stepped::Exec,
            (libc::SIGTRAP, libc::PTRACE_EVENT_CLONE) => Stepped::Clone,
            (libc::SIGTRAP, _) => Stepped::Trap,
            (libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU, _) if self.signal_code(thread).is_err() => {
                Stepped::GroupStop
            }
            (signal, _) => Stepped::Signal(signal),
        })
    }

    /// What the last trap of a thread was.
    pub fn trap_cause(&self, thread: Pid) -> Result<TrapCause, TargetError> {
        const TRAP_TRACE: i32 = 2;
        const TRAP_BRKPT: i32 = 1;
        Ok(match self.signal_code(thread)? {
            // ptrace_notify() in the kernel: the code is the signal's own number.
            libc::SIGTRAP => TrapCause::Handler,
            // A step over a system call is reported as TRAP_BRKPT or TRAP_TRACE, as the kernel's version has it.
            TRAP_TRACE | TRAP_BRKPT => TrapCause::Step,
            _ => TrapCause::Own,
        })
    }

    fn signal_code(&self, thread: Pid) -> Result<i32, TargetError> {
        Ok(ptrace::signal_info(thread)?.si_code)
    }

    /// The registers of a thread that stands still.
    #[inline]
    pub fn registers(&self, thread: Pid) -> Result<libc::user_regs_struct, TargetError> {
        ptrace::registers(thread)
    }

    /// Gives a thread that stands still other registers.
    #[inline]
    pub fn set_registers(&self, thread: Pid, registers: &libc::user_regs_struct) -> Result<(), TargetError> {
        ptrace::set_registers(thread, registers)
    }

    /// Writes to the program's memory, also where the program itself may not.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.memory.write(addr, bytes)
    }

    /// Reads the program's memory; fewer bytes than asked for where it ends.
    pub fn read(&self, addr: u64, into: &mut [u8]) -> usize {
        self.memory.read(addr, into)
    }

    /// The eight bytes at `addr`.
    pub fn read_u64(&self, addr: u64) -> Option<u64> {
        self.memory.read_u64(addr)
    }

    /// Makes a system call on a thread that stands still between two instructions of its own, outside of the kernel. Its
    /// registers are afterwards what they were. Returns what the kernel does: a negative number is an error's. Signals
    /// that arrive meanwhile stay pending.
    ///
    /// # Errors
    /// If the thread cannot be traced, or does not come back from the call.
    pub fn system_call(&mut self, thread: Pid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, TargetError> {
        remote_call::system_call(self, thread, number, arguments)
    }

    /// After [`Stepped::Exec`]: the memory is another.
    pub fn reopen_memory(&mut self) -> Result<(), TargetError> {
        self.memory = TracedMemory::open(self.pid(), self.pid())?;
        Ok(())
    }
}

impl Traced for Stepper {
    fn memory(&self) -> &TracedMemory {
        &self.memory
    }

    fn next_stop(&mut self, thread: Pid) -> Result<Stop, TargetError> {
        let stop = ptrace::wait(thread, 0)?.unwrap_or(Stop::Ended);
        self.ended |= thread == self.pid() && stop == Stop::Ended;
        Ok(stop)
    }

    fn postpone(&mut self, _: Pid, signal: i32) -> Result<(), TargetError> {
        Err(self.failed("a system call", &format!("signal {signal} arrived, which cannot be held back")))
    }

    fn settle(&mut self, _: Pid) -> Result<(), TargetError> {
        // It was outside of the kernel: there is no interrupted call.
        Ok(())
    }

    fn system_call(&mut self, thread: Pid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, TargetError> {
        remote_call::system_call(self, thread, number, arguments)
    }

    fn system_call_instruction(&mut self) -> Result<RunAddr, TargetError> {
        let maps = Maps::read(self.pid())?;
        let found = remote_call::find_code(&self.memory, &maps, &remote_call::SYSTEM_CALL);
        found.ok_or_else(|| self.failed("a system call", "there is no instruction for it in its memory"))
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // One that has just ended cannot be killed: nothing is lost.
        match self.child.kill() {
            Ok(()) | Err(_) => {}
        }
        // SAFETY: our own child; a status is not asked for.
        unsafe { libc::waitpid(self.child.id() as i32, std::ptr::null_mut(), libc::__WALL) };
    }
}

#[inline]
fn checked(request: &'static str, pid: Pid, result: libc::c_long) -> Result<(), TargetError> {
    if result == -1 {
        return Err(TargetError::Trace { request, pid, source: std::io::Error::last_os_error() });
    }
    Ok(())
}
