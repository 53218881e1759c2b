//! The table by which return addresses are known that no mark stands at (`callpath_format::shared::known_return`).

use callpath_format::shared::known_return::KnownReturn;

/// The table's entries, and its shift.
pub(super) fn table(known: &[(u64, KnownReturn)]) -> (Vec<[u64; 2]>, u64) {
    let len = (2 * known.len()).next_power_of_two().max(2);
    let shift = u64::from(u32::BITS - len.trailing_zeros());
    // A search from the last place runs into those behind, which never are all in use.
    let mut table = vec![[0; 2]; len + known.len() + 1];
    for (returns_to, known) in known {
        let from = KnownReturn::place(*returns_to, shift);
        if let Some(place) = table.iter_mut().skip(from).find(|place| place[0] == 0) {
            *place = [*returns_to, known.to_word()];
        }
    }
    (table, shift)
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
        let (table, shift) = table(&known);
        let found = |returns_to: u64| {
            let search = table.iter().skip(KnownReturn::place(returns_to, shift)).take_while(|entry| entry[0] != 0);
            search.clone().find(|entry| entry[0] == returns_to).map(|entry| KnownReturn::from_word(entry[1]))
        };
        for (returns_to, known) in &known {
            assert_eq!(found(*returns_to), Some(*known));
        }
        assert_eq!(found(0x1234), None);
        assert_eq!(super::table(&[]).0, [[0; 2]; 3]);
    }
}
