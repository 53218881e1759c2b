//! The output and exit status of a run.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

/// What a caller of a program sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Its exit status as a shell gives it: 128 + the signal that ended it.
    pub status: i32,
}

impl Ended {
    /// From the standard library's output of a process.
    pub fn of(output: &Output) -> Self {
        let status = output.status;
        Self {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        }
    }
}
