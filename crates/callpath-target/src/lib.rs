//! The only crate that touches another process: launching, memory maps, the kernel's events in it, whether it lives.
//! No decoding, DWARF or database here.

mod clock_event;
mod edits;
mod entry;
mod error;
mod give;
mod halt;
mod launch;
pub mod machine;
mod maps;
mod memory;
mod needed;
mod object;
mod perf_event;
mod perf_map;
mod pid;
mod process;
mod ptrace;
mod refused;
pub mod rehearsal;
mod remote_call;
mod remote_memory;
mod ring;
mod stack_sampler;
mod step;
mod task_status;
mod tasks;
mod traced;

pub use clock_event::{ClockEvent, EventKind};
pub use edits::{Edits, NewMemory, Write};
pub use error::TargetError;
pub use halt::{Halted, LoadedObject};
pub use launch::{Before, Certainty, Ended, Launch, Launched, find_program, raise_own_limits, survive_long_files};
pub use maps::{FileId, MapEntry, Maps};
pub use memory::{SharedMemory, has_memory, own_vdso, read_memory};
pub use needed::{Needed, needed_libraries};
pub use perf_event::{Count, EventSpec, Every, PerfEvent, StackSamples};
pub use perf_map::PerfMapFile;
pub use pid::Pid;
pub use process::{ProcessHandle, Waiting, processes, thread_lives};
pub use refused::refused_calls;
pub use ring::{Record, Records, Ring, RingRecord, StackCopy, What};
pub use stack_sampler::StackSampler;
pub use step::{StepOptions, Stepped, Stepper, TrapCause};
pub use tasks::are_scarce as tasks_are_scarce;
