//! Memory that nobody has written yet, as far as the kernel knows: no page of it is there.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::remote_memory::PAGE_BYTES;
use crate::traced::TracedMemory;

/// Whether a range of private memory has no pages yet. Where the kernel does not tell, it is not known to be so.
pub(super) fn is_untouched(memory: &TracedMemory, range: Range<u64>) -> bool {
    /// In RAM, or swapped out.
    const IS_THERE: u64 = 1 << 63 | 1 << 62;
    let (first, behind) = (range.start / PAGE_BYTES, range.end.div_ceil(PAGE_BYTES));
    let Ok(pages) = usize::try_from(behind.saturating_sub(first)) else { return false };
    let mut bytes = vec![0; pages.saturating_mul(size_of::<u64>())];
    let read = File::open(memory.page_map()).and_then(|map| map.read_exact_at(&mut bytes, first * 8));
    let (words, _) = bytes.as_chunks::<8>();
    read.is_ok() && words.iter().all(|word| u64::from_le_bytes(*word) & IS_THERE == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pid::Pid;

    #[test]
    fn pages_of_new_memory() {
        let own = Pid(std::process::id());
        let memory = TracedMemory::open(own, own).unwrap();
        let len = 4 * PAGE_BYTES as usize;
        // SAFETY: new memory.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        let start = at.addr() as u64;
        let page = |number: u64| start + number * PAGE_BYTES..start + (number + 1) * PAGE_BYTES;
        assert!(is_untouched(&memory, page(0).start..page(3).end));
        // SAFETY: mapped above.
        unsafe { at.cast::<u8>().add(2 * PAGE_BYTES as usize + 5).write_volatile(1) };
        assert!(is_untouched(&memory, page(0).start..page(1).end));
        assert!(!is_untouched(&memory, page(2)));
        assert!(!is_untouched(&memory, page(1).end - 1..page(2).start + 1), "pages in part");
        assert!(is_untouched(&memory, page(3)));
        // SAFETY: mapped above, and used no more.
        unsafe { libc::munmap(at, len) };
    }
}
