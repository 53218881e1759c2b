//! The kernel's arguments to a signal handler: the signal's record, and the interrupted thread's state.

use callpath_collect::syscall::{call4, is_readable};
use callpath_format::shared::Session;

use crate::libc::syscall_number;

/// `si_code` of a sample by the kernel's clock, and of a timer.
pub const TRAP_PERF: i32 = 6;
pub const SI_TIMER: i32 = -2;

/// Whether a SIGTRAP with this `si_code` is a sample.
pub fn is_sample(code: i32) -> bool {
    matches!(code, TRAP_PERF | SI_TIMER | Session::ASKED)
}

/// `siginfo_t` of a signal that was sent. A sample's has other fields at the same offsets.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Info {
    pub signal: i32,
    pub error: i32,
    pub code: i32,
    pub padding: i32,
    pub sender: u32,
    pub user: u32,
    /// The value sent with it; of a sample, the one that the recorder gave the kernel with the event.
    pub value: u64,
    pub perf_type: u32,
    pub perf_flags: u32,
    pub rest: [u64; 11],
}

const _: () = assert!(size_of::<Info>() == 128);

/// `ucontext_t` up to the registers.
#[repr(C)]
pub struct Context {
    flags: u64,
    link: u64,
    stack: [u64; 3],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, and six that are of no interest
    pub registers: [u64; 23],
    floating_point: u64,
    reserved: [u64; 8],
    /// The signals that were blocked.
    pub mask: u64,
}

impl Context {
    /// Whether the instruction before the interrupted one may be `int1`, or that one is: some virtual machines leave the program there.
    pub fn is_at_int1(&self) -> bool {
        let pc = self.registers[16];
        // SAFETY: the eight bytes around it could be read just now; a program must not unmap code that it runs in.
        let is_one = |at: u64| is_readable(at & !7) && unsafe { *(at as *const u8) } == 0xf1;
        is_one(pc) || is_one(pc.wrapping_sub(1))
    }

    /// Whether this very signal has ended a system call with EINTR, and no other one will be handled before the call
    /// returns.
    pub fn ended_a_wait(&self) -> bool {
        const RAX: usize = 13;
        const EINTR: u64 = -4i64 as u64;
        if self.registers[RAX] != EINTR {
            return false;
        }
        // SAFETY: the program was about to execute what is there, and the
        // bytes before it are the call that has returned.
        if unsafe { *((self.registers[16] - 2) as *const [u8; 2]) } != [0x0f, 0x05] {
            return false;
        }
        let mut pending = 0u64;
        // SAFETY: the kernel writes a set of the size given.
        unsafe { call4(syscall_number::RT_SIGPENDING, [core::ptr::from_mut(&mut pending) as usize, 8, 0, 0]) };
        pending & !self.mask == 0
    }
}
