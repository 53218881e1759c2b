//! Copies of stacks beyond what fits into a sample's record (less than 64 KB). A BPF program copies them page by page while the
//! kernel takes the sample. Only root may load it.
//!
//! ```text
//! is the thread's stack wanted? where does it end? (of a thread that nobody has seen yet: so far above the stack pointer)
//! where does the record's copy end? at its full length, or at the first page that is not in memory
//! for each few pages from there on, unless none is in memory: copy them into the ring, with thread, stack pointer and time, and note
//! which are not there; until the stack ends, or this has taken too long
//! ```
//!
//! The copies stay in the ring while the records of their samples are entered.

mod code;

use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::bpf::{NextProgram, Numbers, RecordRing, Span, Words, load_for_samples, run_at_samples};
use crate::clock::monotonic_ns;
use crate::pid::Pid;
use crate::ring::StackCopy;
use code::{
    ADDRESS_BITS, BEGIN, EFFORT_OF_RECORD, HEAD_WORDS, MOST_EFFORT, NEW, PAGES_IN_RECORD, RECORD_BYTES, Tables,
    UNIT_BITS,
};

const PAGE_BYTES: u64 = 4096;
/// A sample's time may lie this far outside the times of its copies. Two samples of a thread are further apart.
const AT_ONCE_NS: u64 = 25_000;
/// If a processor is taken away (virtual machines) when the kernel has just taken a sample's time, its copies are this much later at most, or
/// they are not found; and the record's copy must agree with so many words of theirs. No other sample of the thread comes in between: but only
/// where it is certain that there are copies can these not be another sample's.
const LATE_NS: u64 = 500_000;
const AGREEING_WORDS: usize = 16;
/// What a process has mapped is read again after this time: many threads of it may be wanted at once.
const OLD: Duration = Duration::from_millis(100);
/// The lengths of the ring that are tried, bytes.
const RING_LENGTHS: [usize; 3] = [32 << 20, 16 << 20, 4 << 20];

/// What is copied of a thread's stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    /// Up to this address; 0: nothing.
    end: u64,
    /// From stack pointers that lie no further below, bytes. `None`: where the stack ends is not known, but only where its mapping does, far away.
    from_bytes: Option<usize>,
}

impl Wanted {
    /// As it is in the table.
    fn encoded(self) -> u64 {
        let units = self.from_bytes.map_or(0, |bytes| bytes.div_ceil(1 << UNIT_BITS).clamp(1, usize::from(u16::MAX)));
        self.end.min((1 << ADDRESS_BITS) - 1) | (units as u64) << ADDRESS_BITS
    }
}

/// What was copied of one sample.
#[derive(Debug)]
struct Deep {
    /// Where in the ring it begins.
    at: u64,
    /// Before the first page was copied, and before the last ones.
    time_ns: u64,
    until_ns: u64,
    rsp: u64,
    copy: DeepCopy,
}

/// What was copied of a stack beyond its record.
#[derive(Debug, Default)]
pub struct DeepCopy {
    /// By address. Those that are not in memory are left out.
    pub pages: Vec<StackPage>,
    /// No more is copied of a stack: it may go on.
    pub is_most: bool,
}

impl Deep {
    /// Whether the first page, of which a record's copy has a part, is the same there.
    fn agrees(&self, stack: StackCopy<'_>) -> bool {
        let Some(page) = self.copy.pages.first() else { return false };
        let Some(from) = page.start.checked_sub(self.rsp) else { return false };
        let of_record = stack.pieces.iter().copied().flatten().skip(from as usize / 8);
        let both = page.words().iter().zip(of_record);
        let agreeing = both.clone().take_while(|(copied, word)| copied.load(Relaxed) == word.load(Relaxed)).count();
        agreeing >= AGREEING_WORDS && agreeing == both.count()
    }
}

/// A page of a stack, in the ring: until [`DeepCopies::forget_before`].
#[derive(Debug)]
pub struct StackPage {
    /// Its address.
    pub start: u64,
    ring: Arc<RecordRing>,
    span: Span,
}

impl StackPage {
    /// What is in it.
    pub fn words(&self) -> &[AtomicU64] {
        self.ring.words(self.span)
    }
}

/// Copies of what lies beyond records' copies.
#[derive(Debug)]
pub struct DeepCopies {
    /// What samples run.
    program: OwnedFd,
    // As long as this is open, that finds it.
    _next: NextProgram,
    wanted: Numbers,
    /// Those in it, and since when.
    threads: HashMap<u32, (Wanted, u64)>,
    /// By thread, the upper part of a mapping that its stack has for itself.
    own_mappings: HashMap<u32, Range<u64>>,
    /// By thread, the time of the last sample that had its copies at once.
    matched: HashMap<u32, u64>,
    /// The ring may have had no room for copies of samples up to this time; 0: it always had.
    full_until_ns: u64,
    /// Copies are not so late.
    late_ns: u64,
    /// What a process had mapped when it was read last, and when.
    mappings: Option<(Pid, Instant, Vec<Range<u64>>)>,
    /// From where on stacks are copied, and since when.
    begin_bytes: usize,
    begun_ns: u64,
    /// How much is copied of the stacks of threads that are not in the table; and whether it was more than nothing.
    new_bytes: u32,
    had_new: bool,
    /// The table of threads had no room for one, the last time and ever.
    is_full: bool,
    lacked_places: bool,
    ring: Arc<RecordRing>,
    /// Up to where it was read, and given back, bytes.
    read_up_to: u64,
    given_back: u64,
    /// When something was read last.
    used: Option<Instant>,
    /// Those that were read, by thread, the oldest first.
    copies: HashMap<u32, VecDeque<Deep>>,
}

impl DeepCopies {
    /// Of so many threads at most something may be asked at once.
    pub const MOST_THREADS: u32 = 1 << 12;

    /// So far below a stack's end, its pages are copied at most, bytes.
    pub const FARTHEST_BYTES: usize = MOST_EFFORT as usize * PAGES_IN_RECORD as usize * PAGE_BYTES as usize;

    /// # Errors
    /// The kernel does not allow it; or this process has a name space of process numbers, where the kernel's are not known.
    pub fn new() -> io::Result<DeepCopies> {
        use std::os::unix::fs::MetadataExt;
        /// `PROC_PID_INIT_INO`
        const FIRST_NAME_SPACE: u64 = 0xeffffffc;
        if std::fs::metadata("/proc/self/ns/pid")?.ino() != FIRST_NAME_SPACE {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let wanted = Numbers::new(DeepCopies::MOST_THREADS)?;
        let mut rings = RING_LENGTHS.iter().map(|len| RecordRing::new(*len));
        let ring = rings.find(Result::is_ok).unwrap_or_else(|| Err(io::ErrorKind::OutOfMemory.into()))?;
        let (next, state) = (NextProgram::new()?, Words::new(code::STATE_WORDS)?);
        let tables = Tables {
            wanted: wanted.descriptor(),
            ring: ring.descriptor(),
            state: state.descriptor(),
            next: next.descriptor(),
        };
        // They use helpers that the kernel keeps for programs under the GPL, too.
        const LICENCE: &CStr = c"Dual MIT/GPL";
        next.set(&load_for_samples(&code::of_pages(tables), LICENCE)?)?;
        let program = load_for_samples(&code::of_sample(tables), LICENCE)?;
        wanted.set(BEGIN, Some(0))?;
        wanted.set(NEW, Some(0))?;
        Ok(DeepCopies {
            program,
            _next: next,
            wanted,
            threads: HashMap::new(),
            own_mappings: HashMap::new(),
            matched: HashMap::new(),
            full_until_ns: 0,
            late_ns: 0,
            mappings: None,
            begin_bytes: 0,
            begun_ns: 0,
            new_bytes: 0,
            had_new: false,
            is_full: false,
            lacked_places: false,
            ring: Arc::new(ring),
            read_up_to: 0,
            given_back: 0,
            used: None,
            copies: HashMap::new(),
        })
    }

    /// Stacks are copied from so many bytes above the stack pointer on, [`crate::StackSamples::MOST_BYTES`] at most: what lies below is in the records. Where a page below is not in memory,
    /// a record ends there, and they are copied from there on.
    pub fn begin_at(&mut self, bytes: usize) {
        if bytes != self.begin_bytes && self.wanted.set(BEGIN, Some(bytes as u64)).is_ok() {
            (self.begin_bytes, self.begun_ns) = (bytes, monotonic_ns());
        }
    }

    /// Whether anything was copied lately.
    pub fn is_used(&self) -> bool {
        const LATELY: Duration = Duration::from_millis(500);
        self.used.is_some_and(|used| used.elapsed() < LATELY)
    }

    /// Has the samples of an event copied beyond their records.
    pub(crate) fn attach(&self, event: RawFd) -> io::Result<()> {
        run_at_samples(event, self.program.as_raw_fd())
    }

    /// Each stack is copied from now on up to so many bytes above the stack pointer, as long as nothing else was asked for the thread.
    pub fn copy_of_new(&mut self, bytes: u32) {
        let bytes = if self.is_full { 0 } else { bytes };
        if bytes != self.new_bytes && self.wanted.set(NEW, Some(bytes.into())).is_ok() {
            self.new_bytes = bytes;
            self.had_new |= bytes > 0;
        }
    }

    /// Samples of a thread are so far apart if nothing delays them.
    pub(crate) fn samples_come_every(&mut self, period_ns: u64) {
        self.late_ns = LATE_NS.min(period_ns / 2);
    }

    /// Whether something was to be asked for more than [`DeepCopies::MOST_THREADS`] threads at once.
    pub fn lacked_places(&self) -> bool {
        self.lacked_places
    }

    /// Whether there was no room for some copies.
    pub fn was_full(&self) -> bool {
        self.full_until_ns > 0
    }

    /// Takes note of whether there was room for all copies since room was made last.
    fn note_room(&mut self) {
        // Room is made by this process alone.
        let used = self.ring.written_up_to().saturating_sub(self.given_back);
        if used + RECORD_BYTES >= self.ring.len_bytes() as u64 {
            self.full_until_ns = monotonic_ns();
        }
    }

    /// Whether the ring has room for copies that nobody has asked for.
    pub fn has_room(&self) -> bool {
        self.read_up_to - self.given_back < self.ring.len_bytes() as u64 / 2
    }

    /// The threads that something was asked for.
    pub fn threads(&self) -> impl Iterator<Item = u32> {
        self.threads.keys().copied()
    }

    /// A thread's stack, which `rsp` lies in, is to be copied from now on, to its end.
    pub fn want(&mut self, (pid, tid): (Pid, u32), rsp: u64) {
        // Its stack may be another one now.
        let end = self.end_of_stack(pid, rsp, Duration::ZERO).unwrap_or(u64::MAX);
        let is_near = end - rsp <= DeepCopies::FARTHEST_BYTES as u64;
        match is_near {
            true => drop(self.own_mappings.insert(tid, rsp..end)),
            false => drop(self.own_mappings.remove(&tid)),
        }
        self.set(tid, Wanted { end, from_bytes: is_near.then_some(DeepCopies::FARTHEST_BYTES) });
    }

    /// The same, unless the end is farther away than is copied, or not known: what a process has mapped is not read anew for each thread.
    pub fn want_if_near(&mut self, (pid, tid): (Pid, u32), rsp: u64) {
        let farthest = DeepCopies::FARTHEST_BYTES;
        if let Some(end) = self.end_of_stack(pid, rsp, OLD).filter(|end| end - rsp <= farthest as u64) {
            self.want_up_to(tid, end, farthest);
        }
    }

    /// A thread's stack is to be copied from now on, up to this address, where it is known to end. What lies more than `from_bytes` below is
    /// another stack, which is not copied, unless the mapping ends soon: then it is this stack's alone.
    pub fn want_up_to(&mut self, tid: u32, address: u64, from_bytes: usize) {
        let is_own = self.own_mappings.get(&tid).is_some_and(|mapping| mapping.contains(&address));
        let from_bytes = if is_own { DeepCopies::FARTHEST_BYTES } else { from_bytes };
        self.set(tid, Wanted { end: address, from_bytes: Some(from_bytes) });
    }

    fn set(&mut self, tid: u32, wanted: Wanted) {
        if self.threads.get(&tid).is_some_and(|(before, _)| *before == wanted) {
            return;
        }
        match self.wanted.set(tid, Some(wanted.encoded())) {
            Ok(()) => drop(self.threads.insert(tid, (wanted, monotonic_ns()))),
            // There is no room in the table. New threads would stay new.
            Err(_) => {
                (self.is_full, self.lacked_places) = (true, true);
                self.copy_of_new(0);
            }
        }
    }

    /// A thread's stack is not to be copied any more.
    pub fn stop(&mut self, tid: u32) {
        match self.had_new {
            false => self.forget(tid),
            true => self.want_up_to(tid, 0, 0),
        }
    }

    /// The same of a thread of which nothing was asked yet.
    pub fn stop_if_new(&mut self, tid: u32) {
        if !self.threads.contains_key(&tid) {
            self.stop(tid);
        }
    }

    /// A thread has ended, or has another stack. What was copied stays: it may be of samples after that, whose records are read next.
    pub fn forget(&mut self, tid: u32) {
        self.matched.remove(&tid);
        self.own_mappings.remove(&tid);
        if self.threads.remove(&tid).is_some() && self.wanted.set(tid, None).is_ok() {
            self.is_full = false;
        }
    }

    /// Where the mapping ends that an address lies in. What is mapped is read if it is not known, or old: `not_before` so
    /// much time has passed since.
    fn end_of_stack(&mut self, pid: Pid, rsp: u64, not_before: Duration) -> Option<u64> {
        let end = |mappings: &[Range<u64>]| mappings.iter().find(|range| range.contains(&rsp)).map(|range| range.end);
        let read = self.mappings.as_ref().filter(|read| read.0 == pid && read.1.elapsed() < OLD);
        if let Some(found) = read.and_then(|(_, _, mappings)| end(mappings)) {
            return Some(found);
        }
        if self.mappings.as_ref().is_some_and(|read| read.1.elapsed() < not_before) {
            return None;
        }
        let mappings = mappings_of(pid)?;
        let found = end(&mappings);
        self.mappings = Some((pid, Instant::now(), mappings));
        found
    }

    /// Reads what was copied; before the records of the same samples are.
    pub fn read(&mut self) {
        self.note_room();
        let DeepCopies { ring, copies, .. } = self;
        let before = self.read_up_to;
        self.read_up_to = ring.read(self.read_up_to, |record| {
            let Some(head) = ring.words(record).get(..HEAD_WORDS) else { return };
            let mut words = head.iter().map(|word| word.load(Relaxed));
            let [tid, rsp, time_ns, until_ns, address, effort] = std::array::from_fn(|_| words.next().unwrap_or(0));
            let of_thread = copies.entry(tid as u32).or_default();
            if of_thread.back().is_none_or(|deep| (deep.time_ns, deep.rsp) != (time_ns, rsp)) {
                of_thread.push_back(Deep { at: record.at, time_ns, until_ns, rsp, copy: DeepCopy::default() });
            }
            let Some(deep) = of_thread.back_mut() else { return };
            deep.until_ns = until_ns;
            deep.copy.is_most = effort as i32 >= MOST_EFFORT - EFFORT_OF_RECORD;
            for (page, _) in (0..).zip(words).filter(|(_, result)| *result == 0) {
                const PAGE_WORDS: usize = PAGE_BYTES as usize / 8;
                let span = record.part(HEAD_WORDS + page * PAGE_WORDS, PAGE_WORDS);
                let start = address.wrapping_add(page as u64 * PAGE_BYTES);
                deep.copy.pages.extend(span.map(|span| StackPage { start, ring: Arc::clone(ring), span }));
            }
        });
        if self.read_up_to != before {
            self.used = Some(Instant::now());
        }
    }

    /// All records up to this time were entered: what was copied of earlier samples is of no use any more, nor is what was taken.
    ///
    /// `time_ns`: when their rings began to be read. A sample's record is in its ring soon after its copies; if a processor is taken away in
    /// between (virtual machines), it is later, and as long as there is room, copies wait for that.
    pub fn forget_before(&mut self, time_ns: u64) {
        const SOON_NS: u64 = 10_000_000;
        const LATER_NS: u64 = 100_000_000;
        let time_ns = time_ns.saturating_sub(if self.has_room() { LATER_NS } else { SOON_NS });
        self.copies.retain(|_, of_thread| {
            while of_thread.front().is_some_and(|deep| deep.until_ns < time_ns) {
                of_thread.pop_front();
            }
            !of_thread.is_empty()
        });
        let left = self.copies.values().flatten().map(|deep| deep.at);
        let left = left.min().unwrap_or(self.read_up_to);
        self.note_room();
        self.given_back = left;
        self.ring.give_back(self.given_back);
    }

    /// What was copied of a thread's sample. Forgets what is older. `stack`: what its record has.
    pub fn take(&mut self, tid: u32, (rsp, stack): (u64, StackCopy<'_>), time_ns: u64) -> Option<DeepCopy> {
        let of_thread = self.copies.get_mut(&tid)?;
        while of_thread.front().is_some_and(|deep| deep.until_ns.saturating_add(AT_ONCE_NS) < time_ns) {
            of_thread.pop_front();
        }
        // Kernels before 6.3 take a sample's time when its pages have been copied, later ones before.
        let is_its = |deep: &Deep| {
            let times = deep.time_ns.saturating_sub(AT_ONCE_NS)..=deep.until_ns.saturating_add(AT_ONCE_NS);
            deep.rsp == rsp && times.contains(&time_ns)
        };
        let its = of_thread.iter().enumerate().filter(|(_, deep)| is_its(deep));
        if let Some((at, _)) = its.min_by_key(|(_, deep)| deep.time_ns.abs_diff(time_ns)) {
            self.matched.insert(tid, time_ns);
            return of_thread.remove(at).map(|deep| deep.copy);
        }
        let late_ns = self.surely_copied(tid, rsp, time_ns)?;
        let of_thread = self.copies.get_mut(&tid)?;
        // The first ones behind it are its own.
        let (at, next) = of_thread.iter().enumerate().find(|(_, deep)| deep.time_ns >= time_ns)?;
        let is_late = next.time_ns - time_ns < late_ns && next.rsp == rsp && next.agrees(stack);
        is_late.then(|| of_thread.remove(at).map(|deep| deep.copy)).flatten()
    }

    /// By how much copies of a sample may be late, nanoseconds, if it is certain that there are some: nothing has changed since others were there
    /// at once, and there was room.
    fn surely_copied(&self, tid: u32, rsp: u64, time_ns: u64) -> Option<u64> {
        const LATELY_NS: u64 = 1_000_000_000;
        let (Wanted { end, from_bytes }, wanted_ns) = *self.threads.get(&tid)?;
        let reaches_beyond = end > rsp.saturating_add(self.begin_bytes as u64)
            && from_bytes.is_none_or(|from| rsp.saturating_add(from as u64) >= end);
        let since_ns = wanted_ns.max(self.begun_ns).max(self.full_until_ns).max(time_ns.saturating_sub(LATELY_NS));
        let is_copied = self.matched.get(&tid).is_some_and(|matched| (since_ns + 1..time_ns).contains(matched));
        (reaches_beyond && is_copied).then_some(self.late_ns)
    }
}

/// What a process has mapped.
fn mappings_of(pid: Pid) -> Option<Vec<Range<u64>>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    };
    Some(maps.lines().filter_map(range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::atomic::AtomicBool;

    use crate::perf_event::StackSamples;
    use crate::ring::{Record, What};
    use crate::stack_sampler::StackSampler;

    const ARRAY_WORDS: usize = 50_000;

    /// Works with an array above its stack pointer, in which each word is its own address.
    fn work(is_over: &AtomicBool, tell: &std::sync::mpsc::Sender<(u32, u64)>) {
        let mut array = [0u64; ARRAY_WORDS];
        let start = array.as_ptr() as u64;
        for (word, at) in array.iter_mut().zip(0u64..) {
            *word = start + 8 * at;
        }
        // SAFETY: returns a number.
        tell.send((unsafe { libc::gettid() } as u32, start)).unwrap();
        while !is_over.load(Relaxed) {
            black_box(&mut array);
        }
    }

    /// Ends what works, also where a test fails.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    /// Samples of this process, with what is copied as `prepared` says, if this user may have that.
    fn sampler(prepared: impl Fn(&mut DeepCopies)) -> Option<StackSampler> {
        let samples = StackSamples {
            period_ns: 1_000_000,
            user_only: true,
            stack_bytes: StackSamples::MOST_BYTES,
            with_children: false,
            everything: false,
            switches: false,
            kernel: false,
        };
        let (Ok(mut sampler), Ok(mut deep)) = (StackSampler::new(samples), DeepCopies::new()) else {
            eprintln!("not run: this user may not have programs in the kernel, or no rings");
            return None;
        };
        deep.samples_come_every(samples.period_ns);
        prepared(&mut deep);
        sampler.deep = Some(deep);
        sampler.begin(Pid(std::process::id())).expect("a process may sample itself");
        while sampler.waiting() > 0 {
            sampler.open_more(Duration::from_millis(1));
        }
        Some(sampler)
    }

    /// The samples of a thread that the rings have: the stack pointer and what the record has of the stack, and the time.
    fn each_sample(
        sampler: &mut StackSampler,
        tid: u32,
        mut each: impl FnMut(&mut DeepCopies, (u64, StackCopy<'_>), u64),
    ) {
        let mut last_ns = 0;
        // At most once for each sample: its record is there first, or not much later.
        for ring in &*sampler.rings() {
            let mut records = ring.records();
            let all: Vec<_> = records.by_ref().map(|record| (record, record.time_ns())).collect();
            let deep = sampler.deep.as_mut().expect("it is there");
            deep.read();
            for (record, time_ns) in all {
                last_ns = last_ns.max(time_ns.unwrap_or(0));
                let Some(Record { tid: of, what: What::Sample { registers: Some(registers), stack, .. }, .. }) =
                    record.read(false)
                else {
                    continue;
                };
                if of == tid {
                    each(deep, (registers[7], stack), time_ns.unwrap_or(0));
                }
            }
            ring.give_back(records.position());
            deep.forget_before(last_ns);
        }
        std::thread::sleep(Duration::from_millis(5));
    }

    /// Of each of these samples, the stack pointer, and what was copied.
    fn each_copied(sampler: &mut StackSampler, tid: u32, mut each: impl FnMut(u64, Option<DeepCopy>)) {
        each_sample(sampler, tid, |deep, seen, time_ns| each(seen.0, deep.take(tid, seen, time_ns)));
    }

    #[test]
    fn what_lies_beyond_the_longest_record() {
        const BEGIN_BYTES: usize = 50_000;
        let Some(mut sampler) = sampler(|deep| deep.begin_at(BEGIN_BYTES)) else { return };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            // It inherits the event, and what its samples run.
            let is_over = &is_over;
            let worker = std::thread::Builder::new().stack_size(2 << 20);
            worker.spawn_scoped(scope, move || work(is_over, &tell)).expect("a thread");
            let (tid, array) = told.recv().unwrap();
            let _over = Over(is_over);
            let array = array..array + 8 * ARRAY_WORDS as u64;
            let of = (Pid(std::process::id()), tid);
            sampler.deep.as_mut().expect("it is there").want(of, array.start);
            let (mut whole, mut wrong) = (0, Vec::new());
            let begun = Instant::now();
            while whole < 20 && begun.elapsed() < Duration::from_secs(30) {
                each_copied(&mut sampler, tid, |rsp, pages| {
                    let Some(DeepCopy { pages, is_most: false }) = pages else { return };
                    let begin = pages.first().map_or(0, |page| page.start);
                    let distance = begin.wrapping_sub(rsp) as usize;
                    assert!((BEGIN_BYTES - 4096..=BEGIN_BYTES).contains(&distance), "{distance}");
                    let all = pages.iter().flat_map(|page| (page.start..).step_by(8).zip(page.words()));
                    let in_array: Vec<_> = all.filter(|(address, _)| array.contains(address)).collect();
                    whole += u32::from(in_array.last().is_some_and(|(address, _)| address + 8 == array.end));
                    let in_array = in_array.into_iter();
                    wrong.extend(in_array.filter(|(address, word)| word.load(Relaxed) != *address).map(|(at, _)| at));
                });
            }
            assert!(whole >= 20, "{whole} samples with all of the array");
            assert_eq!(wrong, []);
            // As if the processor had been taken away between a sample and its copies.
            type Case = (&'static str, u64, bool, bool);
            let cases: [Case; 5] = [
                ("it is late", 300_000, true, true),
                ("its record has something else", 300_000, false, false),
                ("it is another sample's", LATE_NS * 3 / 2, true, false),
                ("it comes at once", 0, false, true),
                ("whether there is one is not certain", 300_000, true, false),
            ];
            for (what, late_ns, has_stack, is_copied) in cases {
                if what.starts_with("whether") {
                    sampler.deep.as_mut().expect("it is there").want_up_to(tid, array.end, 1 << 20);
                }
                let (mut right, mut all, begun) = (0, 0, Instant::now());
                while all < 20 && begun.elapsed() < Duration::from_secs(30) {
                    each_sample(&mut sampler, tid, |deep, (rsp, stack), time_ns| {
                        let stack = if has_stack { stack } else { StackCopy::default() };
                        all += 1;
                        right += u32::from(deep.take(tid, (rsp, stack), time_ns - late_ns).is_some() == is_copied);
                    });
                }
                // Some are late.
                assert!(all >= 20 && right >= all - all / 4, "{what}: {right} of {all} samples");
            }
        });
    }

    /// Works with an array of which pages in the middle are not in memory.
    fn work_over_hole(is_over: &AtomicBool, tell: &std::sync::mpsc::Sender<(u32, Range<u64>)>) {
        const PAGE_WORDS: usize = PAGE_BYTES as usize / 8;
        // Whole records, wherever they begin.
        const HOLE_BYTES: u64 = 10 * PAGE_BYTES;
        let mut array = [0u64; 20 * PAGE_WORDS];
        let start = array.as_ptr() as u64;
        for (word, at) in array.iter_mut().zip(0u64..) {
            *word = start + 8 * at;
        }
        let hole = (start + 2 * PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        // SAFETY: pages within the array, which read as zero afterwards.
        let dropped = unsafe { libc::madvise(hole as *mut libc::c_void, HOLE_BYTES as usize, libc::MADV_DONTNEED) };
        assert_eq!(dropped, 0);
        // SAFETY: returns a number.
        tell.send((unsafe { libc::gettid() } as u32, hole..hole + HOLE_BYTES)).unwrap();
        while !is_over.load(Relaxed) {
            black_box(&mut array);
        }
    }

    #[test]
    fn pages_that_are_not_in_memory_are_left_out() {
        // Nothing is said of the thread, at first; of as many others as there is room for, nothing is said any more. A record would have all, but for the hole.
        let prepared = |deep: &mut DeepCopies| {
            let others = 1 << 30..(1 << 30) + DeepCopies::MOST_THREADS + 1;
            others.clone().for_each(|tid| deep.want_up_to(tid, 1 << 40, 1 << 20));
            assert!(deep.is_full && deep.lacked_places());
            deep.copy_of_new(28 * PAGE_BYTES as u32);
            assert_eq!(deep.new_bytes, 0, "new threads would stay new");
            others.for_each(|tid| deep.forget(tid));
            deep.copy_of_new(28 * PAGE_BYTES as u32);
            assert!(deep.new_bytes > 0 && deep.lacked_places());
            deep.begin_at(StackSamples::MOST_BYTES as usize);
        };
        let Some(mut sampler) = sampler(prepared) else { return };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let is_over = &is_over;
            scope.spawn(move || work_over_hole(is_over, &tell));
            let (tid, hole) = told.recv().unwrap();
            let _over = Over(is_over);
            let stack_end = hole.end + 10 * PAGE_BYTES;
            let is_all = |pages: &[StackPage]| {
                let behind = pages.first().filter(|page| page.start == hole.end);
                behind.is_some_and(|page| page.words()[0].load(Relaxed) == hole.end) && pages.len() > 4
            };
            type Step<'s> = (&'s str, &'s dyn Fn(&mut DeepCopies), bool);
            let steps: [Step<'_>; 5] = [
                ("it is new", &|_| {}, true),
                ("the record has it", &|deep| deep.want_up_to(tid, hole.start, 1 << 20), false),
                ("all is asked for", &|deep| deep.want_up_to(tid, stack_end, 1 << 20), true),
                ("of another stack", &|deep| deep.want_up_to(tid, stack_end + (1 << 20), 1 << 16), false),
                ("nothing is asked for", &|deep| deep.stop(tid), false),
            ];
            for (what, ask, is_copied) in steps {
                ask(sampler.deep.as_mut().expect("it is there"));
                let (mut right, begun) = (0, Instant::now());
                while right < 20 && begun.elapsed() < Duration::from_secs(30) {
                    each_copied(&mut sampler, tid, |_, copy| {
                        right += u32::from(copy.map(|copy| is_all(&copy.pages)) == is_copied.then_some(true));
                    });
                }
                assert!(right >= 20, "{what}: {right} samples");
            }
        });
    }
}
