//! The table by which return addresses are known that no mark stands at (`callpath_format::shared::known_return`).

use callpath_format::shared::known_return::KnownReturn;

/// Spare entries: so many at least,
const LEAST_MORE: usize = 1 << 13;
/// or so many times as many as there are at first.
const TIMES: usize = 3;

/// The table, as it is in the program's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Returns {
    entries: Vec<[u64; 2]>,
    used: usize,
    most: usize,
    shift: u64,
}

impl Returns {
    /// Of what is known at the beginning, with room for several times as many more.
    pub(super) fn new(known: &[(u64, KnownReturn)]) -> Returns {
        let most = known.len() + (TIMES * known.len()).max(LEAST_MORE);
        let len = (2 * most).next_power_of_two();
        let shift = u64::from(u32::BITS - len.trailing_zeros());
        // A search from the last place runs into those behind, which never are all in use.
        let mut returns = Returns { entries: vec![[0; 2]; len + most + 1], used: 0, most, shift };
        returns.add(known);
        returns
    }

    /// All of it.
    pub(super) fn entries(&self) -> &[[u64; 2]] {
        &self.entries
    }

    /// By how many bits the hash of a return address is shifted.
    pub(super) fn shift(&self) -> u64 {
        self.shift
    }

    /// Whether there is room for so many more.
    pub(super) fn has_room_for(&self, more: usize) -> bool {
        self.used + more <= self.most
    }

    /// Adds what is known of more; they have to have room. Returns the places that have changed, and what stands there. Those who search
    /// meanwhile find what they found before.
    pub(super) fn add(&mut self, known: &[(u64, KnownReturn)]) -> Vec<(usize, [u64; 2])> {
        let mut changed = Vec::with_capacity(known.len());
        for (returns_to, known) in known {
            let from = KnownReturn::place(*returns_to, self.shift);
            let is_its = |entry: &[u64; 2]| entry[0] == 0 || entry[0] == *returns_to;
            let found = self.entries.iter().skip(from).position(is_its);
            if let Some((place, entry)) = found.and_then(|at| Some((from + at, self.entries.get_mut(from + at)?))) {
                self.used += usize::from(entry[0] == 0);
                *entry = [*returns_to, known.to_word()];
                changed.push((place, *entry));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_from_its_place_on() {
        let known: Vec<(u64, KnownReturn)> = (0..1000u32)
            .map(|n| {
                let known = KnownReturn { words: n as u16, is_above_rbp: n % 2 == 0, site: n as u16 + 1, procedure: n };
                (0x5555_5555_0000 + 7 * u64::from(n * n), known)
            })
            .collect();
        let (first, later) = known.split_at(700);
        let mut returns = Returns::new(first);
        let mut memory = returns.entries().to_vec();
        assert!(returns.has_room_for(later.len()) && !returns.has_room_for(LEAST_MORE + 1));
        for (place, entry) in returns.add(later) {
            assert_eq!(memory[place], [0; 2]);
            memory[place] = entry;
        }
        assert_eq!(memory, returns.entries());
        let found = |returns_to: u64| {
            let search = memory.iter().skip(KnownReturn::place(returns_to, returns.shift()));
            let mut search = search.take_while(|entry| entry[0] != 0);
            search.find(|entry| entry[0] == returns_to).map(|entry| KnownReturn::from_word(entry[1]))
        };
        for (returns_to, known) in &known {
            assert_eq!(found(*returns_to), Some(*known));
        }
        assert_eq!(found(0x1234), None);
    }
}
