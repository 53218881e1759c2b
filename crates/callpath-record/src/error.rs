//! What can go wrong with a recording.
//! Exit statuses are the command's to choose.

use std::path::PathBuf;

use callpath_measurement::MeasurementError;
use callpath_target::{ControlGroupError, Pid, TargetError};

/// Completes "failed to ...".
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RecordError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Measurement(#[from] MeasurementError),
    #[error("sample {event}: {reason}")]
    Event { event: String, reason: String },
    #[error("record {program}: {reason}")]
    Unsuitable { program: PathBuf, reason: String },
    #[error("make the measurement directory {path}: {source}; choose another with -o")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error(
        "make the measurement directory {path}: it exists already, and callpath never overwrites; choose another with -o"
    )]
    Exists { path: PathBuf },
    #[error(
        "record to {path}: rank {rank} of this job is there already, and callpath never overwrites; choose another directory with -o"
    )]
    RankExists { path: PathBuf, rank: u32 },
    #[error(
        "record to {path}: it holds job {found}, and this is job {own}; choose another directory with -o, or give all ranks of a job one \
         CALLPATH_JOB"
    )]
    OtherJob { path: PathBuf, found: String, own: String },
    #[error(
        "make memory for the measurement: files may be no longer than {limit} bytes (RLIMIT_FSIZE), and {least} are needed; \
         set the limit for the program alone: callpath record -- sh -c 'ulimit -f ...; exec PROGRAM'"
    )]
    ShortFiles { limit: u64, least: u64 },
    #[error("probe process {pid}: it has ended, or callpath cannot read its memory map")]
    NotAdmitted { pid: Pid },
    #[error(
        "probe process {pid}: it is in another PID name space (a container), where its threads have other numbers; run callpath in the same one"
    )]
    OtherNameSpace { pid: Pid },
    #[error("attach to process {pid}: {reason}")]
    NotAttached { pid: Pid, reason: String },
    #[error(
        "attach to a process: /proc is of another PID name space, where processes have other numbers; mount it anew (mount -t proc proc /proc), or run callpath outside"
    )]
    OtherProc,
    #[error("sample all processes: {reason}")]
    NotEverywhere { reason: String },
    #[error(
        "sample the kernel's call paths (--kernel): it shows this user none (kernel.perf_event_paranoid is 2 or more); with `sysctl kernel.perf_event_paranoid=1`, or as root, it does"
    )]
    KernelHidden,
    #[error("sample the control group {name}: {source}")]
    ControlGroup { name: String, source: ControlGroupError },
    #[error("find these functions: {reason}")]
    NotChosen { reason: String },
    #[error("place counters by --guide: {guide} measured {program}, and has nothing of {other}")]
    NotGuided { guide: PathBuf, program: PathBuf, other: PathBuf },
    #[error("inject callpath's object: {reason}")]
    Injected { reason: &'static str },
    #[error("analyse the program's code: the thread that did so has stopped")]
    NotAnalysed,
    #[error("probe {module}: there is no room for copies within 2 GB of it")]
    NoRoom { module: PathBuf },
    #[error("count anything in {module}: {reason}")]
    NotCounted { module: PathBuf, reason: String },
    #[error("write the preload object to {path}: {source}; CALLPATH_CACHE_DIR names another place")]
    Preload { path: PathBuf, source: std::io::Error },
}
