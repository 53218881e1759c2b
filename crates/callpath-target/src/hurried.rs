//! Threads of callpath's own that the program, or its samples, wait for.

/// A thread that waits no longer than it says, and comes before the program's threads where this user may ask for that; threads
/// that it starts do not. Dropped, it is again as it was.
#[derive(Debug)]
pub struct Hurried {
    tid: libc::pid_t,
    slack_ns: libc::c_int,
    /// `None`: it comes no earlier than before.
    nice: Option<libc::c_int>,
}

/// As it is for each thread unless somebody asked for another.
const POLICY: libc::c_int = libc::SCHED_OTHER;
const NO_PRIORITY: libc::sched_param = libc::sched_param { sched_priority: 0 };

impl Hurried {
    /// The calling thread, from now on.
    #[expect(clippy::new_without_default, reason = "it changes the calling thread")]
    pub fn new() -> Hurried {
        const SLACK_NS: libc::c_ulong = 1000;
        const FIRST: libc::c_int = -20;
        // SAFETY: all calls take numbers, and a valid structure of them, and are for the calling thread. Where they are
        // refused, it takes longer.
        unsafe {
            let tid = libc::gettid();
            let slack_ns = libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0);
            libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
            let nice = libc::getpriority(libc::PRIO_PROCESS, tid as libc::id_t);
            let may = libc::sched_getscheduler(tid) == POLICY
                && libc::sched_setscheduler(tid, POLICY | libc::SCHED_RESET_ON_FORK, &NO_PRIORITY) == 0;
            let comes_first = may && libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, FIRST) == 0;
            Hurried { tid, slack_ns, nice: comes_first.then_some(nice) }
        }
    }
}

impl Drop for Hurried {
    fn drop(&mut self) {
        // SAFETY: as above. If another thread drops it, it keeps its slack, which only a thread itself can change.
        unsafe {
            if libc::gettid() == self.tid && self.slack_ns > 0 {
                libc::prctl(libc::PR_SET_TIMERSLACK, self.slack_ns as libc::c_ulong, 0, 0, 0);
            }
            if let Some(nice) = self.nice {
                libc::setpriority(libc::PRIO_PROCESS, self.tid as libc::id_t, nice);
                libc::sched_setscheduler(self.tid, POLICY, &NO_PRIORITY);
            }
        }
    }
}
