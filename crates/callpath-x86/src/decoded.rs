//! The instructions that a sweep decoded, kept for reading by position.

use crate::bitmap::Bitmap;
use crate::instruction::Instruction;

/// The decoded instructions of a module's code.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    instructions: Vec<Instruction>,
    /// For 64 positions each: a bit where an instruction begins, and the number of instructions before them.
    words: Vec<(u64, u32)>,
}

/// Collects [`Decoded`].
#[derive(Debug, Default)]
pub(crate) struct Decoding {
    instructions: Vec<Instruction>,
    /// Where the last one ends.
    end: u32,
}

impl Decoding {
    /// For code with `len` positions.
    pub(crate) fn new(len: u32) -> Decoding {
        // Compilers' instructions average four bytes or more.
        Decoding { instructions: Vec::with_capacity(len as usize / 4), end: 0 }
    }

    /// Appends the instruction at `at`; positions must ascend.
    #[inline]
    pub(crate) fn push(&mut self, at: u32, instruction: Instruction) {
        if self.end != at
            && let Some(last) = self.instructions.last_mut()
        {
            last.set_unfollowed();
        }
        self.instructions.push(instruction);
        self.end = at + instruction.len();
    }

    /// `boundaries`: the positions that were pushed.
    pub(crate) fn finish(mut self, boundaries: &Bitmap) -> Decoded {
        if let Some(last) = self.instructions.last_mut() {
            last.set_unfollowed();
        }
        let mut before = 0;
        let count = |&bits: &u64| {
            let word = (bits, before);
            before += bits.count_ones();
            word
        };
        let words = boundaries.words().iter().map(count).collect();
        Decoded { instructions: self.instructions, words }
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
    pub(crate) fn get(&self, index: usize) -> Option<Instruction> {
        self.instructions.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_found_where_they_begin() {
        let three = Instruction::decode(&[0x48, 0x89, 0xd8]).expect("mov rax, rbx");
        let one = Instruction::decode(&[0x53]).expect("push rbx");
        let mut decoding = Decoding::new(300);
        let mut boundaries = Bitmap::new(300);
        let begins = [(0, three), (3, one), (4, one), (70, one), (71, three), (74, one), (255, three)];
        for (at, instruction) in begins {
            boundaries.insert(at);
            decoding.push(at, instruction);
        }
        let decoded = decoding.finish(&boundaries);
        for at in 0..300 {
            let expect = begins.iter().position(|begin| begin.0 == at);
            assert_eq!(decoded.index_of(at), expect, "{at}");
            let Some(found) = expect.and_then(|index| decoded.get(index)) else { continue };
            assert_eq!(found.len(), begins[expect.unwrap_or(0)].1.len(), "{at}");
            assert_eq!(found.is_followed(), matches!(at, 0 | 3 | 70 | 71), "{at}");
        }
    }
}
