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
    #[error("change process {pid}: the bytes at {:#x} are not those that were expected", at.0)]
    OtherBytes { at: RunAddr, pid: Pid },
}
