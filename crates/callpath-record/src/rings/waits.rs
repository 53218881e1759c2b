//! Threads that wait: on which stack, and since when. A wait is a sample when it ends, worth the time that it took.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::register::Reg;
use callpath_target::{Pid, ProcessHandle, StackCopy, StackSamples, Unseen, read_memory};
use rustc_hash::FxHashMap;

use crate::time_base::monotonic_ns;

/// Where the instruction pointer stands behind the registers in DWARF order.
const RIP: usize = 16;

/// A thread's wait.
pub(crate) struct Wait {
    pub(crate) pid: Pid,
    pub(crate) tid: u32,
    /// When it began, or since when records would have told that it goes on, by the monotonic clock.
    pub(crate) since_ns: u64,
    /// In DWARF order, then rip. Those that are not known are zero, and lead nowhere.
    pub(crate) registers: [u64; 17],
    stack: Vec<AtomicU64>,
    /// How long a copy was asked for, bytes.
    pub(crate) asked_bytes: usize,
    /// Where the kernel has let it wait, if that is known ([`callpath_target::What::Sample`]).
    pub(crate) kernel: Vec<u64>,
    /// When the stack had been read, if it was read from memory: a thread that goes on earlier may have changed it meanwhile.
    read_by_ns: u64,
}

impl Wait {
    /// What lies above the stack pointer.
    pub(crate) fn stack(&self) -> StackCopy<'_> {
        StackCopy { pieces: [&self.stack, &[]] }
    }
}

/// The waits that go on, by thread.
#[derive(Default)]
pub(crate) struct Waits(FxHashMap<u32, Wait>);

impl Waits {
    /// The kernel has taken a thread off its processor.
    pub(crate) fn begin(
        &mut self,
        (pid, tid, since_ns): (Pid, u32, u64),
        registers: [u64; 17],
        (stack, asked_bytes, kernel): (StackCopy<'_>, usize, Vec<u64>),
    ) {
        let words = stack.pieces.iter().flat_map(|piece| piece.iter());
        let stack = words.map(|word| AtomicU64::new(word.load(Relaxed))).collect();
        self.0.insert(tid, Wait { pid, tid, since_ns, registers, stack, asked_bytes, kernel, read_by_ns: 0 });
    }

    /// When a thread's sample was taken and it had left its processor: up to then, it has used CPU time.
    pub(crate) fn has_left(&mut self, tid: u32, now_ns: u64) {
        if let Some(wait) = self.0.get_mut(&tid).filter(|wait| wait.since_ns < now_ns && wait.read_by_ns == 0) {
            wait.since_ns = now_ns;
        }
    }

    /// Looks whether a thread waits that no record has told of yet.
    pub(crate) fn look_at(&mut self, Unseen { pid, tid, since_ns }: Unseen) {
        if self.0.contains_key(&tid) {
            return;
        }
        let Some([rsp, rip]) = ProcessHandle::open(pid).blocked_at(tid) else { return };
        let asked_bytes = StackSamples::MOST_BYTES as usize;
        let mut bytes = vec![0; asked_bytes];
        let read = read_memory(pid, rsp, &mut bytes);
        let stack =
            bytes[..read].chunks_exact(8).map(|word| word.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b)));
        let stack = stack.map(AtomicU64::new).collect();
        let mut registers = [0; 17];
        (registers[Reg::RSP.index()], registers[RIP]) = (rsp, rip);
        let (kernel, read_by_ns) = (Vec::new(), monotonic_ns());
        self.0.insert(tid, Wait { pid, tid, since_ns, registers, stack, asked_bytes, kernel, read_by_ns });
    }

    /// A thread goes on. What it has waited for, and how long, nanoseconds.
    pub(crate) fn end(&mut self, tid: u32, now_ns: u64) -> Option<(Wait, u64)> {
        let began = self.0.get(&tid)?.since_ns;
        let lasted_ns = now_ns.checked_sub(began)?;
        let wait = self.0.remove(&tid)?;
        (wait.read_by_ns <= now_ns).then_some((wait, lasted_ns))
    }

    /// A thread has ended.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }

    /// Records were lost: nobody knows who waits.
    pub(crate) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// The processes of all that go on, in order.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let mut numbers: Vec<u32> = self.0.values().map(|wait| wait.pid.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(Pid).collect()
    }

    /// All that go on, in order of threads.
    pub(crate) fn tids(&self) -> Vec<u32> {
        let mut tids: Vec<u32> = self.0.keys().copied().collect();
        tids.sort_unstable();
        tids
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    /// A thread that waits, and of which no record has told, has waited since there would have been one.
    #[test]
    fn a_wait_without_a_record() {
        let (tell, told) = channel();
        let (go, may_go) = channel::<()>();
        let waiting = std::thread::spawn(move || {
            // SAFETY: returns a number.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            may_go.recv().unwrap();
        });
        let tid = told.recv().unwrap();
        let (pid, since_ns) = (Pid(std::process::id()), monotonic_ns() - 1_000_000_000);
        let (mut waits, begun) = (Waits::default(), Instant::now());
        while waits.tids().is_empty() {
            if begun.elapsed() > Duration::from_secs(20) {
                eprintln!("not run: the kernel does not say where a thread waits");
                go.send(()).unwrap();
                return waiting.join().unwrap();
            }
            waits.look_at(Unseen { pid, tid, since_ns });
        }
        // Known already.
        waits.look_at(Unseen { pid, tid, since_ns: 1 });
        let now_ns = monotonic_ns();
        let (wait, lasted_ns) = waits.end(tid, now_ns).expect("it waits");
        assert!(wait.since_ns == since_ns && lasted_ns == now_ns - since_ns && !wait.stack.is_empty());
        assert!(waits.tids().is_empty());
        go.send(()).unwrap();
        waiting.join().unwrap();
    }
}
