//! Our object in a process: mapped, with both memories, and begun.

use std::process::Command;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::shared::probe::{Admission, Admitted, JOIN, Routines};
use callpath_target::{MapEntry, Maps, Pid, SharedMapping, SharedMemory, StepOptions, Stepper, Stopped};

use crate::error::RecordError;
use crate::moved::{MovedCode, ProgramNumber};
use crate::probe::halt::{Stops, halt_first, prepare};
use crate::serve::Recorder;
use crate::settings::RecordOptions;

/// The stack that our routine begins on, bytes.
const STACK_BYTES: u64 = 64 << 10;
/// What our object is called where its file would be.
const OBJECT_NAME: &str = "callpath-inject";

/// A process that is to be probed: it runs, or was started and waits at its entry point.
pub(super) struct Held {
    pid: Pid,
    is_child: bool,
}

impl Held {
    pub(super) fn running(pid: Pid) -> Held {
        Held { pid, is_child: false }
    }

    /// Starts the program. It stands at its entry point: its libraries are there, its constructors have not run.
    pub(super) fn started(options: &RecordOptions) -> Result<Held, RecordError> {
        let program = callpath_target::find_program(&options.program)?;
        crate::suitable::check_program(&program)?;
        let mut command = Command::new(&program);
        std::os::unix::process::CommandExt::arg0(&mut command, &options.program);
        command.args(&options.arguments);
        let mut stepper = Stepper::start(command, StepOptions { random_addresses: true, ..StepOptions::default() })?;
        stepper.run_to_entry()?;
        let pid = stepper.pid();
        stepper.leave_stopped()?;
        Ok(Held { pid, is_child: true })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn is_child(&self) -> bool {
        self.is_child
    }

    /// Lets a program run that was started.
    pub(super) fn go_on(mut self) -> Result<(), RecordError> {
        if self.is_child {
            // SAFETY: sends a signal to our child.
            unsafe { libc::kill(self.pid.0 as i32, libc::SIGCONT) };
        }
        self.is_child = false;
        Ok(())
    }
}

impl Drop for Held {
    /// A program that was started and could not be probed never runs.
    fn drop(&mut self) {
        if self.is_child {
            crate::program::kill(self.pid);
            // SAFETY: no place is given.
            unsafe { libc::waitpid(self.pid.0 as i32, std::ptr::null_mut(), 0) };
        }
    }
}

/// What our object is injected into, and for what.
#[derive(Clone, Copy)]
pub(crate) struct InjectedInto<'m> {
    /// The process.
    pub(crate) pid: Pid,
    /// The slot that it has taken already, if it is sampled.
    pub(crate) slot: Option<usize>,
    /// The program that it runs, if its code is that program's alone.
    pub(crate) program: Option<ProgramNumber>,
    /// Memory that is mapped to tell which program it is, if nothing else does.
    pub(crate) mark: Option<&'m SharedMemory>,
    /// All calls are counted, in contexts.
    pub(crate) counts_contexts: bool,
}

/// Our object in a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injected {
    pub(crate) routines: Routines,
}

impl Injected {
    /// Maps the object and both memories, and lets the object begin. Nothing of the program leads there yet: one thread
    /// does it, while others run.
    pub(crate) fn into(
        subject: InjectedInto<'_>,
        recorder: &mut Recorder<'_>,
        (object, stops): (&[u8], &mut Stops),
    ) -> Result<Injected, RecordError> {
        let InjectedInto { pid, slot, program, mark, .. } = subject;
        let shared = &mut recorder.shared;
        if shared.injected_table.is_none() {
            let table = shared.modules.table_of_object(object, OBJECT_NAME);
            shared.injected_table = shared.publisher.append(&table);
        }
        let table = shared.injected_table;
        prepare(pid);
        let halted = halt_first(pid)?;
        check_thread_pointer(&halted)?;
        let loaded = halted.load(object, None)?;
        let join = loaded.symbol(JOIN).ok_or_else(|| unusable("it lacks its first routine"))?;
        // A process that is sampled has both already.
        let maps = Maps::read(pid)?;
        let (arena, published) = (shared.allocator.memory(), shared.publisher.memory());
        let of_arena = SharedMapping { memory: arena, at: None, writable: true };
        let of_published = SharedMapping { memory: published, at: None, writable: false };
        let [arena, published] = match (arena.whole_in(&maps), published.whole_in(&maps)) {
            (Some(arena), Some(published)) => [arena, published],
            (None, None) => halted.map_shared([of_arena, of_published])?,
            (None, Some(published)) => [halted.map_shared([of_arena])?[0], published],
            (Some(arena), None) => [arena, halted.map_shared([of_published])?[0]],
        };
        if let Some(memory) = mark {
            halted.map_shared([SharedMapping { memory, at: None, writable: true }])?;
        }
        let stack = map_private(&halted, STACK_BYTES)?;
        let first = halted.threads()?.into_iter().find(|thread| *thread == pid);
        let mut admission = Admission {
            magic: Admission::MAGIC,
            arena: arena.0,
            arena_len_bytes: shared.allocator.head().arena_len_bytes,
            published: published.0,
            published_len_bytes: shared.allocator.head().published_len_bytes,
            pid: u64::from(pid.0),
            slot: slot.map_or(0, |slot| slot as u64 + 1),
            contexts: u64::from(subject.counts_contexts),
            ..Admission::default()
        };
        if let Some(first) = first {
            let registers = halted.registers(first)?;
            admission.first_thread = registers.fs_base;
            let own = maps.entries.iter().find(|e| e.start.0 <= registers.rsp && registers.rsp < e.end.0);
            if let Some(own) = own.filter(|own| own.path.as_os_str() == "[stack]") {
                admission.stack = [registers.rsp & !4095, own.end.0];
            }
        }
        // At the bottom of the stack that the routine begins on; it does not come down there.
        halted.write(stack, &admission.to_bytes())?;
        let top = RunAddr(stack.0 + STACK_BYTES);
        halted.call(join, [stack.0, 0, 0, 0, 0, 0], top)?;
        let mut bytes = [0; Admission::LEN_BYTES];
        halted.read(stack, &mut bytes)?;
        let routines = match Admission::answer_in(&bytes) {
            Some((Admitted::Yes, routines)) => routines,
            Some((Admitted::OtherSession, _)) | None => return Err(unusable("it is of another build")),
            Some((Admitted::NoSlot, _)) => return Err(unusable("too many processes are measured")),
            Some((Admitted::NoMemory, _)) => return Err(unusable("the process gets no memory")),
        };
        halted.system_call(libc::SYS_munmap, [stack.0, STACK_BYTES, 0, 0, 0, 0])?;
        stops.end(halted)?;
        // No thread is in it before something calls it.
        if let Some(table) = table {
            let code = LinkAddr(0)..LinkAddr(loaded.len_bytes());
            let ours = MovedCode::ours(loaded.base(), code, table, &mut shared.publisher);
            shared.moved.push(ours.only_in(program));
        }
        Ok(Injected { routines })
    }
}

impl Injected {
    /// Whether it is still there: the process may have executed another program.
    pub(super) fn is_in(&self, maps: &Maps) -> bool {
        let routine = RunAddr(self.routines.count);
        let holds = |entry: &MapEntry| entry.start <= routine && routine < entry.end;
        maps.entries.iter().any(|entry| entry.executable && entry.file.is_none() && holds(entry))
    }
}

/// Our routines find a thread by the word that its thread pointer points to, which is the pointer itself (psABI, TLS variant
/// II). Threads of Go without C have a pointer, and something else there.
fn check_thread_pointer(halted: &Stopped) -> Result<(), RecordError> {
    let Some(thread) = halted.threads()?.first().copied() else { return Ok(()) };
    let pointer = halted.registers(thread)?.fs_base;
    let mut there = [0; size_of::<u64>()];
    let is_read = halted.read(RunAddr(pointer), &mut there)? == there.len();
    // A program that has not begun has none yet.
    match pointer != 0 && !(is_read && u64::from_le_bytes(there) == pointer) {
        true => Err(unusable(
            "the program's threads cannot be told apart: it is a Go program without C, or uses no C library",
        )),
        false => Ok(()),
    }
}

/// Private memory of the process's own, of zeroes.
pub(crate) fn map_private(halted: &Stopped, len_bytes: u64) -> Result<RunAddr, RecordError> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let mapped = halted.system_call(libc::SYS_mmap, [0, len_bytes, protection, flags, u64::MAX, 0])?;
    u64::try_from(mapped).map(RunAddr).map_err(|_| unusable("the process gets no memory"))
}

fn unusable(reason: &'static str) -> RecordError {
    RecordError::Injected { reason }
}
