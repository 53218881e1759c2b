//! Samples of other processes' threads, taken from outside: registers and a copy of the stack, written by the kernel into a ring
//! for each processor. Nothing in the processes changes.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::perf_event::{Attributes, StackSamples};
use crate::pid::Pid;
use crate::process::descriptors_are_scarce;
use crate::ring::Ring;

/// The events of one thread, on every processor; threads that it starts inherit them.
#[derive(Debug)]
struct OfThread {
    pid: Pid,
    tid: u32,
    events: Vec<OwnedFd>,
    numbers: Vec<u64>,
}

/// Rings, and events on threads that write into them. Dropping it ends the samples.
#[derive(Debug)]
pub struct StackSampler {
    processors: Vec<u32>,
    rings: Arc<[Ring]>,
    samples: StackSamples,
    threads: Vec<OfThread>,
    /// By an event's number, the process that it was opened on.
    opened_on: HashMap<u64, Pid>,
}

/// What came of opening events on a process's threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// Threads that have them.
    pub threads: usize,
    /// Threads that could have none: there were no descriptors left, or the kernel refused.
    pub refused: usize,
}

impl StackSampler {
    /// The lengths of a ring that are tried, the longest first, bytes. An ordinary user may lock half a megabyte for each processor.
    const RING_LENGTHS: [usize; 6] = [8 << 20, 4 << 20, 2 << 20, 1 << 20, 512 << 10, 256 << 10];

    /// Rings for all processors that are there. Samples are not taken before [`StackSampler::begin`].
    pub fn new(samples: StackSamples) -> io::Result<StackSampler> {
        let processors = processors();
        let rings = processors
            .iter()
            .map(|processor| Ring::open(*processor, &StackSampler::RING_LENGTHS))
            .collect::<Result<_, _>>()?;
        Ok(StackSampler { processors, rings, samples, threads: Vec::new(), opened_on: HashMap::new() })
    }

    /// The rings, by processor.
    pub fn rings(&self) -> Arc<[Ring]> {
        Arc::clone(&self.rings)
    }

    /// How the samples are taken.
    pub fn samples(&self) -> &StackSamples {
        &self.samples
    }

    /// The process that an event was opened on which a record names.
    pub fn process_of(&self, event: u64) -> Option<Pid> {
        self.opened_on.get(&event).copied()
    }

    /// Samples all threads that a process has, and those that they start.
    ///
    /// # Errors
    /// Its first thread cannot be sampled: there is no such process, or the kernel allows it not.
    pub fn begin(&mut self, pid: Pid) -> io::Result<Opened> {
        let mut opened = Opened::default();
        let first = self.open_on(pid, pid.0)?;
        let mut fresh = vec![first];
        // Threads that begin meanwhile have inherited the events of whoever began them, or are found by the next look.
        const LOOKS: usize = 3;
        for _ in 0..LOOKS {
            let known =
                |tid: u32, fresh: &[OfThread]| fresh.iter().chain(&self.threads).any(|thread| thread.tid == tid);
            let unknown: Vec<u32> = threads_of(pid).into_iter().filter(|tid| !known(*tid, &fresh)).collect();
            if unknown.is_empty() {
                break;
            }
            for tid in unknown {
                match self.open_on(pid, tid) {
                    Ok(thread) => fresh.push(thread),
                    // It has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(_) => opened.refused += 1,
                }
            }
            if opened.refused > 0 {
                break;
            }
        }
        opened.threads = fresh.len();
        if !self.samples.from_exec {
            fresh.iter().for_each(OfThread::enable);
        }
        for thread in fresh {
            self.opened_on.extend(thread.numbers.iter().map(|number| (*number, pid)));
            self.threads.push(thread);
        }
        Ok(opened)
    }

    /// A thread has begun that has inherited its events: one that were opened on a thread of that number beside are closed.
    pub fn has_begun(&mut self, tid: u32) {
        self.threads.retain(|thread| thread.tid != tid);
    }

    /// Takes longer or shorter copies of stacks from now on: `pids` are sampled anew.
    pub fn copy(&mut self, stack_bytes: u32, pids: impl Iterator<Item = Pid>) {
        self.samples.stack_bytes = stack_bytes.min(StackSamples::MOST_BYTES);
        self.samples.from_exec = false;
        let before = std::mem::take(&mut self.threads);
        let mut kept = Vec::new();
        for pid in pids {
            // Those of a process that cannot be sampled anew go on.
            if self.begin(pid).is_err() {
                kept.push(pid);
            }
        }
        self.threads.extend(before.into_iter().filter(|thread| kept.contains(&thread.pid)));
    }

    fn open_on(&self, pid: Pid, tid: u32) -> io::Result<OfThread> {
        let attributes = Attributes::of_stacks(&self.samples);
        let mut thread = OfThread { pid, tid, events: Vec::new(), numbers: Vec::new() };
        for (processor, ring) in self.processors.iter().zip(&*self.rings) {
            if descriptors_are_scarce() {
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            }
            let event = attributes.open(tid, Some(*processor))?;
            ring.take_in(event.as_raw_fd())?;
            thread.numbers.push(number_of(&event)?);
            thread.events.push(event);
        }
        Ok(thread)
    }

    /// Waits until a ring is half full, for `at_most`. Whether one is.
    pub fn wait(rings: &[std::os::fd::RawFd], at_most: Duration) -> bool {
        let mut polled: Vec<libc::pollfd> =
            rings.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
        let timeout = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: valid records, as many as are said.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        ready > 0
    }
}

impl OfThread {
    fn enable(&self) {
        const ENABLE: libc::c_ulong = 0x2400;
        for event in &self.events {
            // SAFETY: takes no argument.
            unsafe { libc::ioctl(event.as_raw_fd(), ENABLE, 0) };
        }
    }
}

/// An event's number, as its records name it.
fn number_of(event: &OwnedFd) -> io::Result<u64> {
    /// `_IOR('$', 7, __u64 *)`
    const PERF_EVENT_IOC_ID: u64 = 0x8008_2407;
    let mut number = 0u64;
    // SAFETY: a place for a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ID as _, &mut number) } {
        0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The threads of a process, by number; none if it has ended.
pub fn threads_of(pid: Pid) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processors that are online.
fn processors() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = parse_processors(&text);
    if online.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        return (0..count).collect();
    }
    online
}

/// From the kernel's form: numbers and ranges, with commas.
fn parse_processors(text: &str) -> Vec<u32> {
    const MOST: u32 = 1 << 14;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(MOST))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Record, What};

    #[test]
    fn processors_as_the_kernel_lists_them() {
        assert_eq!(parse_processors("0-2,4,6-7\n"), [0, 1, 2, 4, 6, 7]);
        assert_eq!(parse_processors(""), [0; 0]);
        assert_eq!(processors().len(), std::thread::available_parallelism().map_or(1, usize::from));
    }

    /// A thread of this process that works is sampled by number, and one that it starts.
    #[test]
    fn threads_that_are_there_and_those_that_come() {
        let samples = StackSamples {
            period_ns: 1_000_000,
            user_only: true,
            stack_bytes: 4096,
            with_children: false,
            from_exec: false,
        };
        let Ok(mut sampler) = StackSampler::new(samples) else {
            eprintln!("not run: this machine allows no rings");
            return;
        };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let spin = |_: u32| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        // SAFETY: returns a number.
        let own_number = || unsafe { libc::gettid() } as u32;
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (go, may_go) = std::sync::mpsc::channel::<()>();
            let tell_later = tell.clone();
            scope.spawn(move || {
                tell.send(own_number()).unwrap();
                may_go.recv().unwrap();
                std::thread::scope(|inner| {
                    inner.spawn(|| {
                        tell_later.send(own_number()).unwrap();
                        spin(1);
                    });
                });
            });
            let first = told.recv().unwrap();
            let opened = sampler.begin(Pid(std::process::id())).expect("a process may sample itself");
            assert!(opened.threads >= 2 && opened.refused == 0, "{opened:?}");
            go.send(()).unwrap();
            let second = told.recv().unwrap();
            let mut seen = Vec::new();
            let begun = std::time::Instant::now();
            while seen.len() < 20 && begun.elapsed() < Duration::from_secs(30) {
                for ring in &*sampler.rings() {
                    let mut records = ring.records();
                    for record in records.by_ref() {
                        let Some(Record { pid, tid, what }) = record.read() else { panic!("{record:?} is cut") };
                        assert!(pid == std::process::id() || matches!(what, What::Lost { .. }), "{tid} of {pid}");
                        if let (What::Sample { event, registers, stack }, true) = (what, tid == second) {
                            let registers = registers.expect("a thread in user mode has registers");
                            assert!(registers[7] != 0 && registers[16] != 0 && stack.len_bytes() > 0);
                            assert_eq!(sampler.process_of(event), Some(Pid(pid)));
                            seen.push(stack.len_bytes());
                        }
                    }
                    ring.give_back(records.position());
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(seen.len() >= 20 && first != second, "{} samples of a thread that began later", seen.len());
        });
    }
}
