//! A process's code as it is now, or, once the process has ended, as it was when
//! samples in it began to wait for something else.
//!
//! A walk that waits for a recipe table may continue into generated code. The process may have ended when the table
//! comes, so the code that the sample's stack leads to is retained.

use std::hash::BuildHasher;
use std::ops::Range;
use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;
use callpath_target::{Pid, read_memory};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::stretch::Witness;

const PAGE_BYTES: u64 = 4096;
/// The most pages that are retained: 16 MiB.
const MOST_PAGES: usize = 4096;
/// Retained memory is read again no sooner than this.
const REFRESH_AFTER: Duration = Duration::from_millis(200);

/// The memory of one process.
pub(super) struct Memory {
    pid: Pid,
    /// By page number.
    retained: FxHashMap<u64, Box<[u8]>>,
    /// When a range was retained, by where it starts.
    times: FxHashMap<u64, Instant>,
}

impl Memory {
    pub(super) fn new(pid: Pid) -> Memory {
        Memory { pid, retained: FxHashMap::default(), times: FxHashMap::default() }
    }

    /// Fills in the bytes at an address, and returns how many there were.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> usize {
        match read_memory(self.pid, at, to) {
            0 if !self.retained.is_empty() => self.read_retained(at, to),
            got => got,
        }
    }

    fn read_retained(&self, at: u64, to: &mut [u8]) -> usize {
        let mut got = 0;
        while got < to.len() {
            let Some(at) = at.checked_add(got as u64) else { break };
            let page = self.retained.get(&(at / PAGE_BYTES));
            let Some(rest) = page.and_then(|page| page.get((at % PAGE_BYTES) as usize..)) else { break };
            let len = rest.len().min(to.len() - got);
            to[got..got + len].copy_from_slice(&rest[..len]);
            got += len;
        }
        got
    }

    /// Retains a range as it is now, unless that was done just before: whether it was done now.
    pub(super) fn retain(&mut self, range: Range<RunAddr>) -> bool {
        let now = Instant::now();
        if self.times.get(&range.start.0).is_some_and(|then| now - *then < REFRESH_AFTER) {
            return false;
        }
        let pages = range.start.0 / PAGE_BYTES..range.end.0.div_ceil(PAGE_BYTES);
        let count = (pages.end.saturating_sub(pages.start)) as usize;
        if count + self.retained.len() > MOST_PAGES && !self.retained.contains_key(&pages.start) {
            return false;
        }
        self.times.insert(range.start.0, now);
        let mut bytes = vec![0; count * PAGE_BYTES as usize];
        let got = read_memory(self.pid, pages.start * PAGE_BYTES, &mut bytes);
        for (page, bytes) in pages.zip(bytes[..got].chunks_exact(PAGE_BYTES as usize)) {
            self.retained.insert(page, bytes.into());
        }
        true
    }
}

/// A process's memory, each page of it read once.
pub(super) struct Pages<'a> {
    memory: &'a Memory,
    /// What is as a sample met it.
    met: Option<&'a Witness>,
    /// By page number.
    read: FxHashMap<u64, Vec<u8>>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(memory: &'a Memory) -> Pages<'a> {
        Pages { memory, met: None, read: FxHashMap::default() }
    }

    /// The memory as it is now, but the code that a sample has met as it was then.
    pub(super) fn as_met(memory: &'a Memory, met: &'a Witness) -> Pages<'a> {
        Pages { met: Some(met), ..Pages::new(memory) }
    }

    fn page(&mut self, page: u64) -> &[u8] {
        let Pages { memory, met, read } = self;
        read.entry(page).or_insert_with(|| {
            let start = page * PAGE_BYTES;
            let mut bytes = vec![0; PAGE_BYTES as usize];
            let len = memory.read(start, &mut bytes);
            bytes.truncate(len);
            if let Some(met) = met {
                met.put_into(RunAddr(start), &mut bytes);
            }
            bytes
        })
    }

    /// A hash of a page by its number; `None`: there is nothing.
    pub(super) fn hash(&mut self, page: u64) -> Option<u64> {
        let bytes = self.page(page);
        (!bytes.is_empty()).then(|| FxBuildHasher.hash_one(bytes))
    }

    /// The pages that were read, and a hash of each.
    pub(super) fn hashes(mut self) -> Box<[(u64, Option<u64>)]> {
        let pages: Vec<u64> = self.read.keys().copied().collect();
        pages.into_iter().map(|page| (page, self.hash(page))).collect()
    }

    /// Fills in the bytes at an address, and returns how many there were.
    pub(super) fn read(&mut self, at: RunAddr, to: &mut [u8]) -> usize {
        let mut got = 0;
        while let Some(place) = to.get_mut(got..).filter(|place| !place.is_empty()) {
            let at = at.0.wrapping_add(got as u64);
            let page = self.page(at / PAGE_BYTES);
            let Some(rest) = page.get((at % PAGE_BYTES) as usize..).filter(|rest| !rest.is_empty()) else { break };
            let len = rest.len().min(place.len());
            place[..len].copy_from_slice(&rest[..len]);
            got += len;
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sample_has_met_stands_in_for_what_is_there_now() {
        let code = vec![0x5a_u8; 3 * PAGE_BYTES as usize];
        let start = (code.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
        let met = Witness { start: RunAddr(start + PAGE_BYTES - 2), bytes: vec![1, 2, 3, 4] };
        let memory = Memory::new(Pid(std::process::id()));
        let mut pages = Pages::as_met(&memory, &met);
        let mut read = [0; 6];
        assert_eq!((pages.read(RunAddr(start + PAGE_BYTES - 3), &mut read), read), (6, [0x5a, 1, 2, 3, 4, 0x5a]));
        let mut now = Pages::new(&memory);
        let page = start / PAGE_BYTES;
        assert!(now.hash(page).is_some() && now.hash(page) != pages.hash(page));
        assert_eq!(pages.hashes().len(), 2);
        let gone = Memory::new(Pid(u32::MAX >> 1));
        assert_eq!(Pages::as_met(&gone, &met).hash(page), None, "there is no process of this number");
    }

    #[test]
    fn what_was_retained_is_there_when_the_process_is_gone() {
        let code = vec![0x5a_u8; 3 * PAGE_BYTES as usize];
        let at = (code.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
        let mut memory = Memory::new(Pid(std::process::id()));
        memory.retain(RunAddr(at + 5)..RunAddr(at + PAGE_BYTES + 1));
        // There is no process of this number.
        memory.pid = Pid(u32::MAX >> 1);
        let mut read = [0; 16];
        assert_eq!((memory.read(at + PAGE_BYTES - 8, &mut read), read), (16, [0x5a; 16]));
        let beyond = at + 2 * PAGE_BYTES - 4;
        assert_eq!(memory.read(beyond, &mut read), 4, "the rest was not kept");
        assert_eq!(memory.read(at.wrapping_sub(PAGE_BYTES), &mut read), 0);
        memory.retain(RunAddr(at + 5)..RunAddr(at + PAGE_BYTES + 1));
        assert_eq!(memory.read(at, &mut read), 16, "what was kept stays");
    }
}
