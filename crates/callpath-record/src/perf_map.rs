//! A perf map: the lines in which a program names its generated code (`START
//! SIZE NAME`, hex). The lines are untrusted bytes.

use std::collections::BTreeMap;

/// The longest code that a line may name, bytes. A longer one would name everything.
const MOST_BYTES: u64 = 1 << 28;
/// Names are cut to this length, bytes.
const NAME_BYTES: usize = 1024;
/// How many procedures are kept.
const MOST_PROCEDURES: usize = 1 << 19;
/// How long the names of all of them may be, bytes.
const MOST_NAMES_BYTES: usize = 64 << 20;
/// How many ranges are kept where different procedures have been. Beyond that, every range counts as one.
const MOST_CONTESTED: usize = 1 << 12;

/// A procedure of generated code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JitSymbol {
    /// Where it begins.
    pub start: u64,
    /// Where the next byte after it is.
    pub end: u64,
    /// The program's name for it.
    pub name: String,
}

/// The procedures of all lines. A later line replaces the earlier ones that it overlaps.
#[derive(Default, Debug)]
pub struct PerfMap {
    /// By start; they do not overlap.
    procedures: BTreeMap<u64, (u64, String)>,
    /// How long their names are, bytes.
    names_bytes: usize,
    /// Where different procedures have been at different times, start and end, in no order.
    contested: Vec<(u64, u64)>,
    /// Lines and records that could not be used.
    bad_lines: u64,
}

impl PerfMap {
    /// Takes whole lines. What follows the last line end is another call's.
    pub fn add(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if !parse(line).is_some_and(|procedure| self.enter(procedure)) {
                self.note_bad();
            }
        }
    }

    /// Takes one procedure. `false`: there are too many.
    pub(crate) fn enter(&mut self, procedure: JitSymbol) -> bool {
        let is_taken = self.procedures.len() < MOST_PROCEDURES
            && self.names_bytes.saturating_add(procedure.name.len()) <= MOST_NAMES_BYTES;
        if is_taken {
            self.insert(procedure);
        }
        is_taken
    }

    /// A line or a record could not be used.
    pub(crate) fn note_bad(&mut self) {
        self.bad_lines += 1;
    }

    /// Takes one procedure; what it overlaps goes first, so that nothing begins where it does.
    fn insert(&mut self, new: JitSymbol) {
        let below = self.procedures.range(..new.end).rev().take_while(|(_, (end, _))| *end > new.start);
        let overlapped: Vec<u64> = below.map(|(start, _)| *start).collect();
        for start in overlapped {
            let Some((end, name)) = self.procedures.remove(&start) else { continue };
            self.names_bytes -= name.len();
            let is_other = (start, end) != (new.start, new.end) || name != new.name;
            if is_other && self.contested.len() < MOST_CONTESTED {
                self.contested.push((start.min(new.start), end.max(new.end)));
            }
        }
        self.names_bytes += new.name.len();
        self.procedures.insert(new.start, (new.end, new.name));
    }

    /// The procedure at an address, by the last line that covers it.
    pub fn procedure(&self, addr: u64) -> Option<JitSymbol> {
        let (start, (end, name)) = self.procedures.range(..=addr).next_back()?;
        (addr < *end).then(|| JitSymbol { start: *start, end: *end, name: name.clone() })
    }

    /// Whether another procedure has been at an address before.
    pub(crate) fn is_contested(&self, addr: u64) -> bool {
        self.contested.len() >= MOST_CONTESTED
            || self.contested.iter().any(|(start, end)| (*start..*end).contains(&addr))
    }

    /// How many lines and records could not be used.
    pub fn bad_lines(&self) -> u64 {
        self.bad_lines
    }
}

fn parse(line: &[u8]) -> Option<JitSymbol> {
    let mut words = line.trim_ascii().splitn(3, |byte| *byte == b' ');
    let (start, len_bytes) = (hex(words.next()?)?, hex(words.next()?)?);
    JitSymbol::new(start, len_bytes, words.next()?)
}

impl JitSymbol {
    /// One that the program has said. `None`: it cannot be.
    pub(crate) fn new(start: u64, len_bytes: u64, name: &[u8]) -> Option<JitSymbol> {
        let name = name.trim_ascii();
        if name.is_empty() || !(1..=MOST_BYTES).contains(&len_bytes) {
            return None;
        }
        // The addresses of user space: nothing else can be in a frame.
        let end = start.checked_add(len_bytes).filter(|end| *end < 1 << 47)?;
        Some(JitSymbol { start, end, name: text(name) })
    }
}

/// A number as `%llx` writes it, with or without a prefix.
fn hex(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

fn text(name: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(name.get(..NAME_BYTES).unwrap_or(name)).into_owned();
    if name.len() > NAME_BYTES {
        text.push('…');
    }
    text
}

/// For a fuzzer: any bytes as lines, and any address asked for.
#[doc(hidden)]
pub fn fuzz_perf_map(bytes: &[u8]) {
    let mut map = PerfMap::default();
    map.add(bytes);
    for (start, (end, _)) in &map.procedures {
        let there = [map.procedure(*start), map.procedure(end - 1)];
        assert!(there.iter().all(|found| found.as_ref().is_some_and(|found| found.start == *start)), "they overlap");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(map: &PerfMap, addr: u64) -> Option<String> {
        map.procedure(addr).map(|procedure| procedure.name)
    }

    #[test]
    fn lines_as_runtimes_write_them() {
        let mut map = PerfMap::default();
        map.add(
            b"7f066c0065c0 228 JS:*middle /tmp/a b.js:2:16\n0x00007f8020ec7620 0x0000000000000258 int San.leaf(int)\n",
        );
        assert_eq!(named(&map, 0x7f06_6c00_65bf), None);
        assert_eq!(named(&map, 0x7f06_6c00_65c0).as_deref(), Some("JS:*middle /tmp/a b.js:2:16"));
        assert_eq!(named(&map, 0x7f06_6c00_67e7).as_deref(), Some("JS:*middle /tmp/a b.js:2:16"));
        assert_eq!(named(&map, 0x7f06_6c00_67e8), None);
        assert_eq!(named(&map, 0x7f80_20ec_7620).as_deref(), Some("int San.leaf(int)"));
        assert_eq!(map.bad_lines(), 0);
    }

    #[test]
    fn a_later_line_wins_and_what_it_overlaps_is_gone() {
        let mut map = PerfMap::default();
        map.add(b"1000 100 a\n1100 100 b\n1200 100 c\n");
        map.add(b"1080 100 new\n");
        let at = |addr| named(&map, addr);
        assert_eq!((at(0x1000), at(0x1080).as_deref(), at(0x1180)), (None, Some("new"), None));
        assert_eq!(at(0x1200).as_deref(), Some("c"));
        assert!(map.is_contested(0x1000) && map.is_contested(0x10ff) && !map.is_contested(0x1200));
    }

    #[test]
    fn the_same_line_again_is_no_other_procedure() {
        let mut map = PerfMap::default();
        map.add(b"1000 100 a\n1000 100 a\n");
        assert!(!map.is_contested(0x1000));
        map.add(b"1000 100 b\n");
        assert!(map.is_contested(0x1000));
    }

    #[test]
    fn bad_lines_are_skipped_and_counted() {
        let mut map = PerfMap::default();
        let wrong: [&[u8]; 9] = [
            b"x",
            b"1000",
            b"1000 10",
            b"1000 10 ",
            b"zz 10 a",
            b"1000 0 a",
            b"ffffffffffffffff 10 a",
            b"1000 ffffffff a",
            b"11112222333344445 1 a",
        ];
        map.add(&wrong.join(&b'\n'));
        assert_eq!((map.bad_lines(), map.procedures.len()), (9, 0));
        map.add(&[b"1000 10 ".as_slice(), &[b'n'; 3000], b"\n2000 10 \xff\xfe\x1b[31m\n"].concat());
        assert_eq!(named(&map, 0x1000).map(|name| name.chars().count()), Some(NAME_BYTES + 1));
        assert_eq!(named(&map, 0x2000).as_deref(), Some("\u{fffd}\u{fffd}\u{1b}[31m"));
    }

    #[test]
    fn names_take_so_much_memory_at_most() {
        let mut map = PerfMap::default();
        let name = [b'n'; NAME_BYTES];
        let most = (MOST_NAMES_BYTES / NAME_BYTES) as u64;
        let mut enter =
            |index: u64, name: &[u8]| map.enter(JitSymbol::new(0x1000 * (index + 1), 0x100, name).expect("it is one"));
        assert!((0..most).all(|index| enter(index, &name)));
        assert!(!enter(most, &name));
        // Code that replaces other code makes room for the name of a third.
        let mut map = PerfMap::default();
        for index in 0..2 * most {
            let symbol = JitSymbol::new(0x1000 * (index % 2 + 1), 0x100, &name).expect("it is one");
            assert!(map.enter(symbol), "{index}");
        }
        assert_eq!(map.names_bytes, 2 * NAME_BYTES);
    }

    #[test]
    fn any_bytes_do_no_harm() {
        let mut random = fastrand::Rng::with_seed(0x2545_f491_4f6c_dd1d);
        let mut next = || random.u64(..);
        for _ in 0..2000 {
            let line =
                |next: &mut dyn FnMut() -> u64| format!("{:x} {:x} {}\n", next() % 4096, next() % 300, next() % 7);
            let mut bytes: Vec<u8> = (0..20).flat_map(|_| line(&mut next).into_bytes()).collect();
            let at = next() as usize % bytes.len();
            bytes[at] = next() as u8;
            fuzz_perf_map(&bytes);
        }
    }
}
