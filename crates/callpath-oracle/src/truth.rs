//! True call paths: a list of return addresses for each snapshot, innermost first.
//!
//! As text, one line per snapshot: `<id> <ra1> ... <raN>`, the id decimal, addresses hexadecimal.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

/// Lists of addresses, by snapshot.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    addresses: Vec<u64>,
    by_id: HashMap<u64, (usize, usize)>,
}

impl Paths {
    /// Adds a snapshot's list; the first one counts.
    pub fn insert(&mut self, id: u64, path: impl IntoIterator<Item = u64>) {
        let start = self.addresses.len();
        self.addresses.extend(path);
        let range = (start, self.addresses.len());
        self.by_id.entry(id).or_insert(range);
    }

    /// A snapshot's list, if there is one.
    pub fn get(&self, id: u64) -> Option<&[u64]> {
        let &(start, end) = self.by_id.get(&id)?;
        self.addresses.get(start..end)
    }

    /// Reads lines. One that does not begin with a number is passed over.
    ///
    /// # Errors
    /// An address that is no number, as `InvalidData` with the line's number; and what reading gives.
    pub fn read(input: impl BufRead) -> io::Result<Paths> {
        let mut paths = Paths::default();
        for (index, line) in input.lines().enumerate() {
            let line = line?;
            let mut words = line.split_ascii_whitespace();
            let Some(id) = words.next().and_then(|word| word.parse().ok()) else { continue };
            let path: Result<Vec<u64>, _> =
                words.map(|word| u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16)).collect();
            let path = path
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {error}", index + 1)))?;
            paths.insert(id, path);
        }
        Ok(paths)
    }
}

/// Writes one line.
pub fn write_line(output: &mut impl Write, id: u64, path: &[u64]) -> io::Result<()> {
    write!(output, "{id}")?;
    for address in path {
        write!(output, " {address:x}")?;
    }
    output.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_there_and_back() {
        let mut text = b"a remark\n7 0x1f 20\n7 1\n".to_vec();
        write_line(&mut text, 8, &[]).unwrap();
        let paths = Paths::read(&*text).unwrap();
        assert_eq!(paths.get(7), Some(&[0x1f, 0x20][..]));
        assert_eq!(paths.get(8), Some(&[][..]));
        assert_eq!(paths.get(9), None);
        assert!(Paths::read(&b"1 zz\n"[..]).is_err());
    }
}
