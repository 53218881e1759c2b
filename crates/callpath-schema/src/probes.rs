//! What probes have seen, and what could not be probed: in measurements, profiles and databases the same.

use crate::encoding::{Malformed, Reader, Writer};

/// The account of probes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProbeAccount {
    /// Entries of probed functions that were counted.
    pub hits: u64,
    /// Exits that belong to no activation that is known.
    pub unmatched_exits: u64,
    /// Activations of probed functions that had begun when their probes were set: they are not counted.
    pub inside_when_set: u64,
    /// Functions that were asked for and cannot be probed.
    pub refused: Vec<RefusedProbe>,
}

/// A function that cannot be probed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RefusedProbe {
    /// Its module and name, or where it is.
    pub function: String,
    /// Why.
    pub reason: String,
}

impl ProbeAccount {
    /// Adds `other`'s. A function that both refuse stands there once.
    pub fn add(&mut self, other: &ProbeAccount) {
        self.hits = self.hits.saturating_add(other.hits);
        self.unmatched_exits = self.unmatched_exits.saturating_add(other.unmatched_exits);
        self.inside_when_set = self.inside_when_set.saturating_add(other.inside_when_set);
        self.refused.extend(other.refused.iter().cloned());
        self.refused.sort();
        self.refused.dedup();
    }

    /// Its bytes in a file.
    pub fn write(&self, w: &mut Writer) {
        w.number(self.hits);
        w.number(self.unmatched_exits);
        w.number(self.inside_when_set);
        w.number(self.refused.len() as u64);
        for RefusedProbe { function, reason } in &self.refused {
            w.string(function);
            w.string(reason);
        }
    }

    /// What [`ProbeAccount::write`] wrote.
    ///
    /// # Errors
    /// If the bytes are others.
    pub fn read(r: &mut Reader<'_>) -> Result<ProbeAccount, Malformed> {
        let [hits, unmatched_exits, inside_when_set] = [r.number()?, r.number()?, r.number()?];
        let mut account = ProbeAccount { hits, unmatched_exits, inside_when_set, refused: Vec::new() };
        for _ in 0..r.count(2)? {
            account.refused.push(RefusedProbe { function: r.string()?, reason: r.string()? });
        }
        Ok(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(hits: u64, function: &str) -> ProbeAccount {
        let refused = vec![RefusedProbe { function: function.into(), reason: "no room for a jump".into() }];
        ProbeAccount { hits, unmatched_exits: 2, inside_when_set: 1, refused }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let mut w = Writer::default();
        account(7, "libc.so.6!f").write(&mut w);
        let r = &mut Reader::new(&w.bytes, 0);
        assert_eq!(ProbeAccount::read(r).ok(), Some(account(7, "libc.so.6!f")));
        assert!(r.is_at_end());
        for len in 0..w.bytes.len() {
            assert!(ProbeAccount::read(&mut Reader::new(&w.bytes[..len], 0)).is_err(), "{len}");
        }
    }

    #[test]
    fn adding_names_each_refused_function_once() {
        let mut sum = account(7, "b");
        sum.add(&account(5, "a"));
        sum.add(&account(1, "b"));
        assert_eq!((sum.hits, sum.unmatched_exits, sum.inside_when_set), (13, 6, 3));
        let names: Vec<&str> = sum.refused.iter().map(|refused| refused.function.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
