//! Threads that may have begun to wait before their records began: somebody has to look.

use std::collections::BTreeMap;

use super::StackSampler;
use crate::clock::monotonic_ns;
use crate::pid::Pid;

/// Such a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unseen {
    /// Its process.
    pub pid: Pid,
    /// Its number.
    pub tid: u32,
    /// Since when records tell what it does, by the monotonic clock, nanoseconds. If it waits and there are none, it has waited since.
    pub since_ns: u64,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(super) struct AllUnseen(BTreeMap<u32, Unseen>);

impl AllUnseen {
    /// Records tell what these threads do from now on.
    pub(super) fn add(&mut self, threads: impl IntoIterator<Item = (Pid, u32)>) {
        let since_ns = monotonic_ns();
        for (pid, tid) in threads {
            self.0.entry(tid).or_insert(Unseen { pid, tid, since_ns });
        }
    }

    /// Records were lost: what they did before now is not known.
    pub(super) fn has_lost(&mut self) {
        let now_ns = monotonic_ns();
        self.0.values_mut().for_each(|unseen| unseen.since_ns = now_ns);
    }
}

impl StackSampler {
    /// Takes one of the threads that were given events and were there before, or that may wait since before their records.
    pub fn take_unseen(&mut self) -> Option<Unseen> {
        self.unseen.0.pop_first().map(|(_, unseen)| unseen)
    }

    /// Whether there are any.
    pub fn has_unseen(&self) -> bool {
        !self.unseen.0.is_empty()
    }

    /// A thread ran at this time: if it waits, it has not waited before.
    pub fn has_run(&mut self, tid: u32, time_ns: u64) {
        if let Some(unseen) = self.unseen.0.get_mut(&tid) {
            unseen.since_ns = unseen.since_ns.max(time_ns);
        }
    }

    /// A record has told of a thread: nobody has to look.
    pub fn is_seen(&mut self, tid: u32) {
        self.unseen.0.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_when_it_has_waited() {
        let mut all = AllUnseen::default();
        all.add([(Pid(1), 1), (Pid(1), 2)]);
        let since = |all: &AllUnseen, tid: u32| all.0[&tid].since_ns;
        let first = since(&all, 1);
        assert!(first > 0 && first == since(&all, 2));
        std::thread::sleep(std::time::Duration::from_millis(1));
        // It has been given other events.
        all.add([(Pid(1), 2), (Pid(3), 3)]);
        assert!(since(&all, 2) == first && since(&all, 3) > first);
        std::thread::sleep(std::time::Duration::from_millis(1));
        let third = since(&all, 3);
        all.has_lost();
        assert!((1..4).all(|tid| since(&all, tid) > third));
    }
}
