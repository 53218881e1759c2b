//! A set of positions in code, one bit for each byte.

/// A set of positions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    pub(crate) fn new(len: u32) -> Bitmap {
        Bitmap { words: vec![0; (len as usize).div_ceil(64)] }
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> bool {
        self.words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// Adds `at`. Returns whether it was new.
    #[inline]
    pub(crate) fn insert(&mut self, at: u32) -> bool {
        let Some(word) = self.words.get_mut(at as usize / 64) else { return false };
        let bit = 1 << (at % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(crate) fn remove(&mut self, at: u32) {
        if let Some(word) = self.words.get_mut(at as usize / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    pub(crate) fn insert_range(&mut self, from: u32, to: u32) {
        let mut at = from;
        while at < to {
            if at.is_multiple_of(64) && to - at >= 64 {
                if let Some(word) = self.words.get_mut(at as usize / 64) {
                    *word = u64::MAX;
                }
                at += 64;
            } else {
                self.insert(at);
                at += 1;
            }
        }
    }

    /// Adds the members of a set with the same number of positions.
    pub(crate) fn insert_all(&mut self, other: &Bitmap) {
        for (word, its) in self.words.iter_mut().zip(&other.words) {
            *word |= its;
        }
    }

    /// A word for each 64 positions: a bit for each member, the lowest first.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The members from `from` up to `to`, ascending.
    pub(crate) fn range(&self, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = from;
        std::iter::from_fn(move || {
            let found = self.next(next, to)?;
            next = found + 1;
            Some(found)
        })
    }

    /// The first member from `from` up to `to`.
    pub(crate) fn next(&self, from: u32, to: u32) -> Option<u32> {
        self.search(from, to, 0)
    }

    /// The first position from `from` up to `to` that is not a member.
    pub(crate) fn next_absent(&self, from: u32, to: u32) -> Option<u32> {
        self.search(from, to, u64::MAX)
    }

    fn search(&self, from: u32, to: u32, flip: u64) -> Option<u32> {
        if from >= to {
            return None;
        }
        let mut index = from as usize / 64;
        let mut word = (self.words.get(index)? ^ flip) & (u64::MAX << (from % 64));
        while word == 0 {
            index += 1;
            if index as u64 * 64 >= u64::from(to) {
                return None;
            }
            word = self.words.get(index)? ^ flip;
        }
        let found = (index * 64) as u32 + word.trailing_zeros();
        (found < to).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_across_words() {
        let mut set = Bitmap::new(300);
        for at in [0, 63, 64, 200, 299] {
            assert!(set.insert(at));
            assert!(!set.insert(at));
        }
        assert_eq!(set.range(0, 300).collect::<Vec<_>>(), [0, 63, 64, 200, 299]);
        assert_eq!(set.range(1, 200).collect::<Vec<_>>(), [63, 64]);
        set.insert_range(60, 199);
        assert_eq!(set.next_absent(60, 300), Some(199));
        assert_eq!(set.next_absent(60, 199), None);
        assert!(!set.insert(320) && !set.get(320));
        set.remove(63);
        set.remove(320);
        assert!(!set.get(63) && set.get(64));
    }
}
