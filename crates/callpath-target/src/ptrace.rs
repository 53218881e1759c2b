//! ptrace requests, each as a function. The thread that traces must make them.

use std::io;

use crate::error::TargetError;
use crate::pid::Pid;

/// Why a traced thread does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// At the beginning or the end of a system call.
    SystemCall,
    /// An interrupt that was asked for, a group stop or the end of one: `PTRACE_EVENT_STOP`.
    Interrupt,
    /// A signal is about to be delivered. Resuming with 0 drops it.
    Signal(i32),
    /// Another of ptrace's events.
    Event,
    /// The thread has ended.
    Ended,
}

/// What a status of `waitpid` says.
pub(crate) fn classify(status: i32) -> Stop {
    const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    match (libc::WSTOPSIG(status), status >> 16) {
        (SYSTEM_CALL, 0) => Stop::SystemCall,
        (signal, 0) => Stop::Signal(signal),
        (_, libc::PTRACE_EVENT_STOP) => Stop::Interrupt,
        _ => Stop::Event,
    }
}

/// Waits for a thread. `None`: it has nothing to tell yet, where `options` hold `WNOHANG`.
pub(crate) fn wait(thread: Pid, options: i32) -> Result<Option<Stop>, TargetError> {
    loop {
        let mut status = 0;
        // SAFETY: a valid place for the status.
        let waited = unsafe { libc::waitpid(thread.0 as i32, &mut status, options | libc::__WALL) };
        if waited > 0 {
            return Ok(Some(classify(status)));
        }
        if waited == 0 {
            return Ok(None);
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(TargetError::Wait { pid: thread, source });
        }
    }
}

/// What [`wait`] would say of a thread now, which it says again: as long as nobody has waited for it, the kernel delivers a
/// signal that the thread stands before, should the tracer end.
pub(crate) fn peek(thread: Pid) -> Option<Stop> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: zeros are a valid siginfo_t, which the kernel overwrites.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place.
    if unsafe { libc::waitid(libc::P_PID, thread.0, &mut info, options) } != 0 {
        return Some(Stop::Ended);
    }
    // SAFETY: the kernel has filled it, or it is all zeros.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    const STOPPED: i32 = 0x7f;
    match info.si_code {
        _ if pid == 0 => None,
        libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => Some(Stop::Ended),
        _ => Some(classify(status << 8 | STOPPED)),
    }
}

fn request(request: libc::c_uint, thread: Pid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: callers pass numbers, or the address of a live value of the request's type.
    match unsafe { libc::ptrace(request, thread.0, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn failed(request: &'static str, pid: Pid) -> impl FnOnce(io::Error) -> TargetError {
    move |source| TargetError::Trace { request, pid, source }
}

/// Begins to trace a running thread, which goes on running. If the tracer ends, it runs on, too.
pub(crate) fn seize(thread: Pid) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, libc::PTRACE_O_TRACESYSGOOD as usize)
}

/// Asks a seized thread to stop. One that stands still stops again once resumed.
pub(crate) fn interrupt(thread: Pid) -> Result<(), TargetError> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0).map_err(failed("PTRACE_INTERRUPT", thread))
}

/// Lets a thread run, delivering `signal` (0: none).
pub(crate) fn go_on(thread: Pid, signal: i32) -> Result<(), TargetError> {
    request(libc::PTRACE_CONT, thread, 0, signal as usize).map_err(failed("PTRACE_CONT", thread))
}

/// Lets a thread run one instruction, delivering `signal` first (0: none).
pub(crate) fn step(thread: Pid, signal: i32) -> Result<(), TargetError> {
    request(libc::PTRACE_SINGLESTEP, thread, 0, signal as usize).map_err(failed("PTRACE_SINGLESTEP", thread))
}

/// Lets a thread run to the next beginning or end of a system call.
pub(crate) fn to_system_call(thread: Pid) -> Result<(), TargetError> {
    request(libc::PTRACE_SYSCALL, thread, 0, 0).map_err(failed("PTRACE_SYSCALL", thread))
}

/// Stops tracing a thread that stands still, which runs on, `signal` delivered (0: none).
pub(crate) fn detach(thread: Pid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, thread, 0, signal as usize)
}

/// The registers of a thread that stands still.
#[inline]
pub(crate) fn registers(thread: Pid) -> Result<libc::user_regs_struct, TargetError> {
    // SAFETY: a structure of numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, thread, 0, (&raw mut registers).addr()).map_err(failed("PTRACE_GETREGS", thread))?;
    Ok(registers)
}

/// Gives a thread that stands still other registers.
#[inline]
pub(crate) fn set_registers(thread: Pid, registers: &libc::user_regs_struct) -> Result<(), TargetError> {
    request(libc::PTRACE_SETREGS, thread, 0, std::ptr::from_ref(registers).addr())
        .map_err(failed("PTRACE_SETREGS", thread))
}

/// Of the signal about to be delivered. An error where the thread stands still for another reason.
pub(crate) fn signal_info(thread: Pid) -> Result<libc::siginfo_t, TargetError> {
    // SAFETY: zeros are a valid siginfo_t, which the kernel overwrites.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, thread, 0, (&raw mut info).addr()).map_err(failed("PTRACE_GETSIGINFO", thread))?;
    Ok(info)
}

/// The signals that a thread holds back: bit n-1 is signal n. Of one inside a call that has a mask of its own (`ppoll`,
/// `sigsuspend`), the mask that holds behind it.
pub(crate) fn signal_mask(thread: Pid) -> Result<u64, TargetError> {
    let mut mask = 0_u64;
    request(libc::PTRACE_GETSIGMASK, thread, size_of::<u64>(), (&raw mut mask).addr())
        .map_err(failed("PTRACE_GETSIGMASK", thread))?;
    Ok(mask)
}

/// Sets them. A call's own mask no longer holds: the call must be made anew, not go on.
pub(crate) fn set_signal_mask(thread: Pid, mask: u64) -> Result<(), TargetError> {
    request(libc::PTRACE_SETSIGMASK, thread, size_of::<u64>(), (&raw const mask).addr())
        .map_err(failed("PTRACE_SETSIGMASK", thread))
}

const NT_X86_XSTATE: usize = 0x202;

/// Vector and floating-point registers, as XSAVE lays them out.
pub(crate) fn vector_state(thread: Pid) -> Result<Vec<u8>, TargetError> {
    /// More than any processor has.
    const MOST_BYTES: usize = 64 * 1024;
    let mut state = vec![0_u8; MOST_BYTES];
    let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    request(libc::PTRACE_GETREGSET, thread, NT_X86_XSTATE, (&raw mut vector).addr())
        .map_err(failed("PTRACE_GETREGSET", thread))?;
    state.truncate(vector.iov_len);
    Ok(state)
}

/// Sets them.
pub(crate) fn set_vector_state(thread: Pid, state: &[u8]) -> Result<(), TargetError> {
    let vector = libc::iovec { iov_base: state.as_ptr().cast_mut().cast(), iov_len: state.len() };
    request(libc::PTRACE_SETREGSET, thread, NT_X86_XSTATE, (&raw const vector).addr())
        .map_err(failed("PTRACE_SETREGSET", thread))
}

/// Where a thread's restartable sequence is noted (`rseq_cs`), if it has registered for them.
pub(crate) fn rseq_note(thread: Pid) -> Option<u64> {
    const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    /// `struct rseq`: cpu_id_start, cpu_id, rseq_cs.
    const RSEQ_CS: u64 = 8;
    #[derive(Default)]
    #[repr(C)]
    struct Configuration {
        pointer: u64,
        size: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    let mut configuration = Configuration::default();
    let size = size_of::<Configuration>();
    // An older kernel does not tell: there, a sequence may go on where it should be aborted.
    request(PTRACE_GET_RSEQ_CONFIGURATION, thread, size, (&raw mut configuration).addr()).ok()?;
    (configuration.pointer != 0).then(|| configuration.pointer.wrapping_add(RSEQ_CS))
}
