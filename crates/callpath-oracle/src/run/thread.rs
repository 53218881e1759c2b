//! One thread of the program: its registers before the instruction that runs, and its shadow stack.

use callpath_format::address::RunAddr;
use callpath_target::{Maps, Stepper};
use libc::user_regs_struct;

use super::capture::Pending;
use super::code::Code;
use crate::OracleError;
use crate::instruction::{Effect, Instruction};
use crate::shadow::{Shadow, SignalFrame, StackMove};

const RT_SIGRETURN: u64 = libc::SYS_rt_sigreturn as u64;
/// Snapshots that are kept back at most.
const MOST_PENDING: usize = 512;
/// The kernel's `struct rt_sigframe`: the handler's return address, then a `ucontext` of flags, link, an alternate
/// stack (start, flags, length) and registers, rsp and rip at 15 and 16.
const UCONTEXT: u64 = 8;
const ALTERNATE_STACK: u64 = UCONTEXT + 16;
const SAVED_RSP: u64 = UCONTEXT + 40 + 15 * 8;
const SAVED_PC: u64 = UCONTEXT + 40 + 16 * 8;

/// How a thread was let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LetGo {
    /// For one instruction, perhaps with a signal. `relay`: it has a breakpoint, which was taken away for that.
    Step { signal: bool, relay: bool },
    /// Up to the next breakpoint.
    Free,
}

/// What is to become of pending snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decides {
    /// Let them wait.
    Nothing,
    /// Keep those that were taken when fewer calls than this had been made.
    Before(u64),
    /// Keep all, or drop all if their path has been left.
    All,
}

/// A thread that stands still.
#[derive(Debug)]
pub(super) struct Thread {
    /// Before the next instruction.
    pub(super) registers: user_regs_struct,
    /// What that is.
    pub(super) instruction: Instruction,
    /// How it was let go last.
    pub(super) let_go: LetGo,
    /// The instruction that it was let go for.
    pub(super) stepped_pc: u64,
    /// The kernel's idea of the registers is another.
    pub(super) is_changed: bool,
    pub(super) shadow: Shadow,
    /// Snapshots of which nothing is decided yet, the oldest first.
    pub(super) pending: Vec<Pending>,
    /// How often the path was left by other means when they were begun.
    pub(super) abandoned: u64,
    system_call: Option<u64>,
    calls: u64,
}

impl Thread {
    pub(super) fn new(registers: user_regs_struct) -> Thread {
        let shadow = Shadow::new(registers.rsp);
        Thread {
            registers,
            instruction: Instruction::NONE,
            let_go: LetGo::Step { signal: false, relay: false },
            stepped_pc: registers.rip,
            is_changed: false,
            shadow,
            pending: Vec::new(),
            abandoned: 0,
            system_call: None,
            calls: 0,
        }
    }

    pub(super) fn pc(&self) -> RunAddr {
        RunAddr(self.registers.rip)
    }

    pub(super) fn depth(&self) -> usize {
        self.shadow.depth()
    }

    pub(super) fn unexplained_returns(&self) -> u64 {
        self.shadow.unexplained_returns()
    }

    /// What the last instruction decides of the pending snapshots.
    ///
    /// Nothing is decided up to the second call after them: before an exception's unwinder leaves its path, a procedure
    /// that it calls overwrites what the path's registers were saved as (libgcc's uw_install_context_1), and another
    /// call follows, for debuggers.
    pub(super) fn decides(&mut self) -> Decides {
        let calls = matches!(self.instruction.effect, Effect::Call(_));
        self.calls += u64::from(calls);
        let enters = self.instruction.effect == Effect::SystemCall;
        if self.abandoned != self.shadow.abandoned() || enters || self.pending.len() >= MOST_PENDING {
            Decides::All
        } else if calls {
            Decides::Before(self.calls - 1)
        } else {
            Decides::Nothing
        }
    }

    /// Calls that were made.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Whether a general-purpose register holds `value`.
    pub(super) fn holds(&self, value: u64) -> bool {
        dwarf_order(&self.registers).contains(&value)
    }

    /// The instruction has run; `now` holds.
    #[inline]
    pub(super) fn executed(
        &mut self,
        now: user_regs_struct,
        stepper: &Stepper,
        code: &Code,
    ) -> Result<(), OracleError> {
        let before = std::mem::replace(&mut self.registers, now);
        self.system_call = None;
        match self.instruction.effect {
            Effect::None | Effect::Flags | Effect::Breakpoint => {}
            Effect::Call(next) => self.shadow.call(next, now.rsp, now.rip == next),
            Effect::Return => {
                self.shadow.ret(before.rsp, now.rip);
                self.shadow.begin(now.rsp, || stepper.read_u64(now.rsp).filter(|top| code.is_code(RunAddr(*top))));
            }
            Effect::Jump if now.rip == before.rip + u64::from(self.instruction.len_bytes) => {}
            Effect::Jump => {
                let registers = dwarf_order(&self.registers);
                self.shadow.jump(now.rsp, now.rip, |value| registers.contains(&value));
            }
            Effect::LoadsRsp | Effect::MovesRsp => {
                let loaded = self.instruction.effect == Effect::LoadsRsp;
                self.moved(before.rsp, loaded, stepper)?;
            }
            Effect::SystemCall => {
                self.system_call = Some(before.rax);
                if before.rax == RT_SIGRETURN && !self.shadow.sigreturn(now.rip) {
                    self.moved(before.rsp, true, stepper)?;
                    self.shadow.jump(now.rsp, now.rip, |_| false);
                }
            }
        }
        Ok(())
    }

    fn moved(&mut self, from: u64, loaded: bool, stepper: &Stepper) -> Result<(), OracleError> {
        // Seldom needed, and never the same twice: stacks grow.
        let maps = std::cell::OnceCell::new();
        self.shadow.moved(StackMove { from, to: self.registers.rsp, is_loaded: loaded }, |a, b| {
            let maps = maps.get_or_init(|| Maps::read(stepper.pid()));
            let Ok(maps) = maps else { return false };
            maps.entries
                .iter()
                .any(|entry| (entry.start.0..entry.end.0).contains(&a) && (entry.start.0..=entry.end.0).contains(&b))
        });
        match maps.into_inner() {
            Some(Err(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Other registers hold; no call and no return was among what has run.
    pub(super) fn moved_on(&mut self, now: user_regs_struct) {
        let before = std::mem::replace(&mut self.registers, now);
        if now.rip != before.rip.wrapping_add(self.instruction.len_bytes.into()) {
            let registers = dwarf_order(&now);
            self.shadow.jump(now.rsp, now.rip, |value| registers.contains(&value));
        }
    }

    /// The kernel has laid a signal's frame, and the handler's first instruction is next.
    pub(super) fn handler(&mut self, now: user_regs_struct, stepper: &Stepper) {
        self.registers = now;
        let word = |offset| stepper.read_u64(now.rsp.wrapping_add(offset)).unwrap_or(0);
        let (start, len) = (word(ALTERNATE_STACK), word(ALTERNATE_STACK + 16));
        let end = start.saturating_add(len);
        self.shadow.handler(&SignalFrame {
            restorer: word(0),
            rsp: now.rsp,
            pc: word(SAVED_PC),
            pc_slot: now.rsp.wrapping_add(SAVED_PC),
            interrupted_rsp: word(SAVED_RSP),
            alternate: (len > 0 && (start..end).contains(&now.rsp)).then_some((start, end)),
        });
    }

    /// Whether the next instruction is a system call that makes another process or thread, or replaces this one; and
    /// whether that is a thread, which shares the memory.
    pub(super) fn will_clone(&self, stepper: &Stepper) -> Option<bool> {
        if self.instruction.effect != Effect::SystemCall {
            return None;
        }
        let flags = match self.registers.rax as i64 {
            libc::SYS_fork | libc::SYS_vfork | libc::SYS_execve | libc::SYS_execveat => 0,
            libc::SYS_clone => self.registers.rdi,
            libc::SYS_clone3 => stepper.read_u64(self.registers.rdi).unwrap_or(0),
            _ => return None,
        };
        Some(flags & libc::CLONE_VM as u64 != 0 && flags & libc::CLONE_VFORK as u64 == 0)
    }

    /// Whether the last instruction was a system call that may have changed which code is where.
    pub(super) fn changed_maps(&self) -> bool {
        const CHANGES: [i64; 6] = [
            libc::SYS_mmap,
            libc::SYS_mprotect,
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_shmat,
            libc::SYS_pkey_mprotect,
        ];
        self.system_call.is_some_and(|number| CHANGES.contains(&(number as i64)))
    }
}

/// The general-purpose registers in DWARF's order.
pub(super) fn dwarf_order(r: &user_regs_struct) -> [u64; 16] {
    [r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]
}
