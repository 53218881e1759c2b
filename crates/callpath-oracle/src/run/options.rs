//! Options of a run: where it ends, and which instructions and threads it follows.

use std::path::PathBuf;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// End after so many stops: instructions, with `every_step`.
    pub max_steps: u64,
    /// End after so many snapshots.
    pub max_snapshots: u64,
    /// Take no snapshot at the first so many stops.
    pub skip: u64,
    /// Snapshots of one instruction: more than one only where the stack is of different depths.
    pub visits: u32,
    /// Run every instruction on its own, also those that were seen before. Without it a program runs freely through
    /// what was seen, and stops at new instructions and at calls, returns and the like: the same truth, sooner.
    pub every_step: bool,
    /// Follow other threads than the first, too.
    pub threads: bool,
    /// Take snapshots of modules only whose path contains this.
    pub module: Option<String>,
    /// What the kernel's own object is called in the stream: `[vdso]`, or a file that holds it.
    pub vdso_path: PathBuf,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_steps: u64::MAX,
            max_snapshots: u64::MAX,
            skip: 0,
            visits: 1,
            every_step: false,
            threads: false,
            module: None,
            vdso_path: PathBuf::from(crate::modules::VDSO),
        }
    }
}
