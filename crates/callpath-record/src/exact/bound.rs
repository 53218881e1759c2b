//! Calls of a module's own procedures through its linkage table: libraries make them, since others may have procedures of the same
//! names. Which one is called is known once the loader has bound them, and it has closed the words.

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_target::{Pid, read_memory};
use rustc_hash::FxHashMap;

use super::analysed::Analysed;

/// No module has as many words that the loader writes; a damaged file may say so, bytes.
const MOST_BYTES: u64 = 64 << 20;
/// The loader closes whole pages, bytes.
const PAGE_BYTES: u64 = 4096;

/// Words that the program cannot write any more, and that hold addresses of the same module. A module that is not relocated yet has none.
pub(super) fn bound_words(pid: Pid, of: &Analysed) -> FxHashMap<LinkAddr, LinkAddr> {
    const WORD_BYTES: usize = size_of::<u64>();
    let Some(range) = of.module.image().relocated_range() else { return FxHashMap::default() };
    let start = range.start.0.next_multiple_of(WORD_BYTES as u64);
    let len_bytes = (range.end.0 & !(PAGE_BYTES - 1)).saturating_sub(start);
    if len_bytes > MOST_BYTES {
        return FxHashMap::default();
    }
    let mut bytes = vec![0; len_bytes as usize];
    let read = read_memory(pid, start.wrapping_add(of.bias), &mut bytes);
    let (words, _) = bytes.get(..read).unwrap_or(&[]).as_chunks::<WORD_BYTES>();
    let module = of.loaded.start..of.loaded.end;
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).zip((start..).step_by(WORD_BYTES));
    let words = words.filter(|(word, _)| module.contains(word));
    words.map(|(word, at)| (LinkAddr(at), RunAddr(word).to_link(of.bias))).collect()
}
