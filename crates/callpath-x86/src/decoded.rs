//! The instructions that a sweep decoded, to be read again by position.
//! Knows nothing of what they do.

use crate::bitmap::Bitmap;
use crate::quick::Quick;

/// What was decoded of a module's code. Of an instruction that [`Quick`] has no words for, only that it begins there.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    quicks: Vec<Option<Quick>>,
    /// For 64 positions each: a bit where an instruction begins, and how many begin before them.
    words: Vec<(u64, u32)>,
}

/// The same in the making.
#[derive(Debug, Default)]
pub(crate) struct Decoding {
    quicks: Vec<Option<Quick>>,
    /// Where the last one ends.
    end: u32,
}

impl Decoding {
    /// Of code with so many positions.
    pub(crate) fn new(len: u32) -> Decoding {
        // Instructions of compilers are four bytes long and more.
        Decoding { quicks: Vec::with_capacity(len as usize / 4), end: 0 }
    }

    /// Appends what stands at `at`, up to `next`; positions ascend.
    #[inline]
    pub(crate) fn push(&mut self, at: u32, next: u32, quick: Option<Quick>) {
        if self.end != at
            && let Some(Some(last)) = self.quicks.last_mut()
        {
            last.set_unfollowed();
        }
        self.quicks.push(quick);
        self.end = next;
    }

    /// `boundaries` are the positions that were pushed.
    pub(crate) fn finish(mut self, boundaries: &Bitmap) -> Decoded {
        if let Some(Some(last)) = self.quicks.last_mut() {
            last.set_unfollowed();
        }
        let mut before = 0;
        let count = |&bits: &u64| {
            let word = (bits, before);
            before += bits.count_ones();
            word
        };
        let words = boundaries.words().iter().map(count).collect();
        Decoded { quicks: self.quicks, words }
    }
}

impl Decoded {
    /// The index of the instruction at a position.
    #[inline]
    pub(crate) fn index_of(&self, at: u32) -> Option<usize> {
        let &(bits, before) = self.words.get(at as usize / 64)?;
        let bit = 1u64 << (at % 64);
        (bits & bit != 0).then(|| before as usize + (bits & (bit - 1)).count_ones() as usize)
    }

    /// An instruction by its index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<Quick> {
        self.quicks.get(index).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quick::WINDOW_BYTES;

    #[test]
    fn instructions_are_found_where_they_begin() {
        let mut bytes = [0; WINDOW_BYTES];
        // mov rax, rbx; then push rbx
        bytes[..3].copy_from_slice(&[0x48, 0x89, 0xd8]);
        let three = Quick::decode(&bytes);
        bytes[0] = 0x53;
        let one = Quick::decode(&bytes);
        let mut decoding = Decoding::new(300);
        let mut boundaries = Bitmap::new(300);
        let begins = [(0, three), (3, one), (4, None), (70, one), (71, three), (74, one), (255, three)];
        for (at, quick) in begins {
            boundaries.insert(at);
            decoding.push(at, at + quick.map_or(9, |quick| u32::from(quick.len())), quick);
        }
        let decoded = decoding.finish(&boundaries);
        for at in 0..300 {
            let expect = begins.iter().position(|begin| begin.0 == at);
            assert_eq!(decoded.index_of(at), expect, "{at}");
            let Some(index) = expect else { continue };
            let found = decoded.get(index);
            assert_eq!(found.map(|quick| (quick.op, quick.len())), begins[index].1.map(|q| (q.op, q.len())), "{at}");
            assert_eq!(found.is_some_and(|quick| quick.is_followed()), matches!(at, 0 | 3 | 70 | 71), "{at}");
        }
    }
}
