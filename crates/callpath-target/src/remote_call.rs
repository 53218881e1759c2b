//! System calls that a stopped thread of another process makes for us.

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::maps::{MapEntry, Maps};
use crate::pid::Pid;
use crate::ptrace;
use crate::traced::{Traced, TracedMemory};

/// `syscall`
pub(crate) const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `syscall; ret`
pub(crate) const CALLS_AND_RETURNS: [u8; 3] = [0x0f, 0x05, 0xc3];

/// All signals that can be held back.
const ALL_SIGNALS: u64 = u64::MAX;

/// Whether a thread is in a system call that the kernel makes anew when it runs on.
pub(crate) fn is_restarted(registers: &libc::user_regs_struct) -> bool {
    /// ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK
    const RESTARTED: [i64; 4] = [-512, -513, -514, -516];
    registers.orig_rax as i64 >= 0 && RESTARTED.contains(&(registers.rax as i64))
}

/// Whether it is in one that fails because it was interrupted.
pub(crate) fn has_failed(registers: &libc::user_regs_struct) -> bool {
    registers.orig_rax as i64 >= 0 && registers.rax as i64 == -i64::from(libc::EINTR)
}

/// A thread's state, as far as running it for us changes it.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) registers: libc::user_regs_struct,
    pub(crate) signal_mask: u64,
    /// Where its restartable sequence is noted, and the note: the kernel deletes it where the thread runs elsewhere, and
    /// would not abort the sequence.
    pub(crate) sequence: Option<(u64, u64)>,
}

impl Before {
    /// Notes the state of a thread that stands still.
    pub(crate) fn note(traced: &impl Traced, thread: Pid) -> Result<Before, TargetError> {
        let registers = ptrace::registers(thread)?;
        let note = ptrace::rseq_note(thread);
        let sequence = note.and_then(|at| Some((at, traced.memory().read_u64(at)?))).filter(|(_, note)| *note != 0);
        let signal_mask = ptrace::signal_mask(thread)?;
        Ok(Before { registers, signal_mask, sequence })
    }

    /// Puts it back.
    pub(crate) fn put_back(&self, traced: &impl Traced, thread: Pid) -> Result<(), TargetError> {
        // The registers last: until then, a thread that has a frame to go on from does so, should callpath be killed.
        ptrace::set_signal_mask(thread, self.signal_mask)?;
        if let Some((at, note)) = self.sequence {
            traced.memory().write(at, &note.to_le_bytes())?;
        }
        ptrace::set_registers(thread, &self.registers)
    }
}

/// Makes a system call on a thread that stands still. Its state is afterwards what it was, a system call that it was in
/// included. Returns what the kernel does: a negative number is an error's. Signals that arrive meanwhile stay pending.
///
/// # Errors
/// If the thread cannot be traced, or does not come back from the call.
pub(crate) fn system_call(
    traced: &mut impl Traced,
    thread: Pid,
    number: libc::c_long,
    arguments: [u64; 6],
) -> Result<i64, TargetError> {
    let at = traced.system_call_instruction()?;
    let before = Before::note(traced, thread)?;
    ptrace::set_signal_mask(thread, ALL_SIGNALS)?;
    let result = call_at(traced, thread, with(&before.registers, at, (number, arguments)));
    let settled = traced.settle(thread);
    before.put_back(traced, thread)?;
    settled?;
    result
}

/// The registers of a thread that is about to make a system call at `at`.
pub(crate) fn with(
    before: &libc::user_regs_struct,
    at: RunAddr,
    (number, [rdi, rsi, rdx, r10, r8, r9]): (libc::c_long, [u64; 6]),
) -> libc::user_regs_struct {
    libc::user_regs_struct {
        rip: at.0,
        rax: number as u64,
        // Not in a system call that the kernel might restart.
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..*before
    }
}

/// Makes the system call at which a thread that stands still is put by `registers`.
pub(crate) fn call_at(
    traced: &mut impl Traced,
    thread: Pid,
    registers: libc::user_regs_struct,
) -> Result<i64, TargetError> {
    ptrace::set_registers(thread, &registers)?;
    // Its beginning, its end.
    traced.run_to_system_call(thread)?;
    traced.run_to_system_call(thread)?;
    let after = ptrace::registers(thread)?;
    if after.rip != registers.rip.wrapping_add(SYSTEM_CALL.len() as u64) {
        return Err(traced.failed("a system call", "it did not come back from a system call"));
    }
    Ok(after.rax as i64)
}

/// Instructions in the process's code: in the kernel's own object, else wherever these bytes are. Nothing need be written.
pub(crate) fn find_code(memory: &TracedMemory, maps: &Maps, wanted: &[u8]) -> Option<RunAddr> {
    let of_kernel = |entry: &&MapEntry| entry.path.as_os_str() == "[vdso]";
    let code = || maps.entries.iter().filter(|entry| entry.executable && entry.readable);
    let kernels = code().filter(of_kernel);
    let files = code().filter(|entry| entry.file.is_some());
    kernels.chain(files).find_map(|entry| find_in(memory, entry, wanted))
}

fn find_in(memory: &TracedMemory, entry: &MapEntry, wanted: &[u8]) -> Option<RunAddr> {
    const BLOCK_BYTES: usize = 64 * 1024;
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = entry.start.0;
    while at < entry.end.0 {
        let len = BLOCK_BYTES.min((entry.end.0 - at) as usize);
        let got = memory.read(at, block.get_mut(..len)?);
        let found = memchr::memmem::find(block.get(..got)?, wanted);
        if let Some(offset) = found {
            return Some(RunAddr(at + offset as u64));
        }
        // Blocks overlap.
        at += if got < len || len < wanted.len() { return None } else { (len + 1 - wanted.len()) as u64 };
    }
    None
}
