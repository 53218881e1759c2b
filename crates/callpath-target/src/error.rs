//! Errors of what callpath does with another process.

use std::path::PathBuf;

use callpath_format::address::RunAddr;

use crate::pid::Pid;

/// Completes "failed to ...".
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TargetError {
    #[error("run {program}: {source}")]
    Launch { program: PathBuf, source: std::io::Error },
    #[error("find {program}: no such program, here or in PATH (or it is not executable)")]
    NotFound { program: String },
    #[error("read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("wait for process {pid}: {source}")]
    Wait { pid: Pid, source: std::io::Error },
    #[error("make shared memory of {len_bytes} bytes: {source}")]
    SharedMemory { len_bytes: usize, source: std::io::Error },
    #[error("open the kernel's {event} for process {pid}: {source}")]
    Event { event: &'static str, pid: Pid, source: std::io::Error },
    #[error("trace process {pid} ({request}): {source}")]
    Trace { request: &'static str, pid: Pid, source: std::io::Error },
    #[error("change process {pid}: the bytes at {:#x} are not those of its file: something else has changed them, such as a debugger, or a probe of the same function that goes on or was killed", at.0)]
    OtherBytes { at: RunAddr, pid: Pid },
    #[error("stop process {pid}: no such process")]
    NoProcess { pid: Pid },
    #[error("stop process {pid}: {why}")]
    Refused { pid: Pid, why: String },
    #[error("stop process {pid}: {tracer} traces it already, and there can be one tracer only")]
    AlreadyTraced { pid: Pid, tracer: String },
    #[error("stop process {pid}: it is a 32-bit program, which callpath does not change")]
    Bits32 { pid: Pid },
    #[error("stop process {pid}: its thread {thread} ({name}) did not stop in {waited_ms} ms: {why}")]
    DoesNotStop { pid: Pid, thread: Pid, name: String, waited_ms: u128, why: String },
    #[error(
        "make system calls in process {pid}: a seccomp filter restricts its threads, and might kill it for one of ours"
    )]
    Seccomp { pid: Pid },
    #[error("run code of callpath's in process {pid}: {why}")]
    Routine { pid: Pid, why: String },
    #[error("load an object into process {pid}: {why}")]
    Object { pid: Pid, why: String },
    #[error("change process {pid}: its thread {thread} stands at {at}, inside bytes that change, and {why}")]
    InTheWay { pid: Pid, thread: Pid, at: RunAddr, why: String },
    #[error(
        "change process {pid}: the stack of its thread {thread} cannot be read at {at}, so that callpath does not know where its signal handlers return to"
    )]
    Stack { pid: Pid, thread: Pid, at: RunAddr },
}
