//! Programs into which our object will not be loaded: the recorder may sample them from outside.

use callpath_collect::Process;
use callpath_collect::syscall::gettid;
use callpath_format::shared::wanted::{Wanted, WantedState};

use crate::recorder;

/// How long an exec waits for the answer.
const PATIENCE_NS: u64 = 1_000_000_000;

fn ask<'p>(process: &'p Process<'_>, tid: u32, unmeasured: u32, state: u32) -> Option<&'p Wanted> {
    let wanted = process.session.wanted.iter().find(|wanted| wanted.ask(tid, unmeasured, state))?;
    process.ring();
    Some(wanted)
}

/// Has the calling thread sampled from when it executes a program. `false`: it cannot be.
pub fn from_exec(process: &Process<'_>) -> bool {
    let Some(wanted) = ask(process, gettid(), 0, WantedState::AT_EXEC) else { return false };
    recorder::wait(process, &wanted.state, PATIENCE_NS, |state| state != WantedState::AT_EXEC);
    wanted.close()
}

/// Has a process sampled that runs such a program already. `unmeasured`: the program's place among those that are not measured.
pub fn from_now(process: &Process<'_>, pid: u32, unmeasured: Option<usize>) {
    let unmeasured = unmeasured.map_or(0, |index| index as u32 + 1);
    // Without a free entry it stays among them.
    let _ = ask(process, pid, unmeasured, WantedState::NOW);
}
