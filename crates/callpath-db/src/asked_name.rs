//! Whether a procedure is what somebody asks for by name: as a report prints it, whole or shortened, as a pattern, or by
//! a part of its name.

use std::collections::VecDeque;

use crate::matches_glob;
use crate::name_parts::{own_path, without_arguments};

/// How a name is found, the most exact way first. A less exact one counts where no name is found by those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// It is the name.
    Whole,
    /// It is the last part of the procedure's own path, or several: `run` or `Worker::run` of `pool::Worker<int>::run(long)`.
    Last,
    /// It is another part of the procedure's own path: `Worker`.
    Path,
    /// It is a pattern for the name, with or without what is before a `::`: `*` and `…` are any text, `?` any character.
    Pattern,
    /// Its words are words of the name in the same order: what else there is was left out where it was shortened.
    Words,
    /// It stands anywhere in the name between colons, brackets or blanks, as in the arguments of a template.
    Argument,
    /// It is a part of the name.
    Part,
}

impl Way {
    /// All of them, the most exact way first.
    pub const ALL: [Way; 7] = [Way::Whole, Way::Last, Way::Path, Way::Pattern, Way::Words, Way::Argument, Way::Part];

    /// The name was typed as it is, so that a reader knows what was found.
    pub fn is_exact(self) -> bool {
        matches!(self, Way::Whole | Way::Last | Way::Pattern)
    }
}

/// A name that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedName {
    name: String,
    place: Option<String>,
}

impl AskedName {
    /// `asked` may be a row of a report, with what stands before the name (lines of a tree, the procedures on the way) and
    /// behind it: ` (inlined)`, ` at gaps.rs:61`, ` ×12`, `  [module]`.
    pub fn new(asked: &str) -> AskedName {
        let mut name = asked.trim().trim_start_matches(['│', '├', '└', ' ']);
        // Of a chain of rows the last that is a procedure.
        let is_procedure = |row: &&str| !row.starts_with("loop") && !row.starts_with("… ");
        if let Some(row) = name.split(['›', '‹']).map(str::trim).rfind(is_procedure).filter(|row| !row.is_empty()) {
            name = row;
        }
        if let Some((before, module)) = name.rsplit_once("  [")
            && module.ends_with(']')
        {
            name = before.trim_end();
        }
        if let Some((before, times)) = name.rsplit_once(" ×")
            && times.parse::<u64>().is_ok()
        {
            name = before;
        }
        let mut place = None;
        while let Some((before, behind)) = name.rsplit_once(" (").or_else(|| name.rsplit_once(" at ")) {
            let is_word = |word: &str| word == "inlined)";
            let digits = behind.rsplit(':').next().unwrap_or_default();
            let is_place = behind.contains(':') && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let is_place = (is_place || behind.starts_with("0x")) && name.ends_with(&format!(" at {behind}"));
            if !is_word(behind) && !is_place {
                break;
            }
            if is_place && place.is_none() {
                place = Some(behind.to_owned());
            }
            name = before.trim_end();
        }
        AskedName { name: name.to_owned(), place }
    }

    /// The name alone.
    pub fn text(&self) -> &str {
        &self.name
    }

    /// Where it is said to be: `gaps.rs:61`, or an address.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// Without what only DWARF knows of a Rust procedure, whose linker's name numbers no closures and has no type
    /// arguments. `None` if there is no such thing in it.
    pub fn as_linkers_call_it(&self) -> Option<AskedName> {
        let mut name = self.name.clone();
        while let Some(at) = name.find("{closure#") {
            let end = name[at..].find('}').map(|end| at + end + 1)?;
            name.replace_range(at..end, "{{closure}}");
        }
        while let Some(at) = name.find("::<") {
            let mut depth = 0usize;
            let end = name[at..].char_indices().find_map(|(offset, c)| {
                match c {
                    '<' => depth += 1,
                    '>' if !name[..at + offset].ends_with('-') => depth -= 1,
                    _ => {}
                }
                (c == '>' && depth == 0).then_some(at + offset + 1)
            })?;
            // `a::<B as C>::d` has its type there, and no arguments.
            if name[end..].starts_with("::") && name[at..end].contains(" as ") {
                break;
            }
            name.replace_range(at..end, "");
        }
        (name != self.name).then_some(AskedName { name, place: self.place.clone() })
    }

    /// A procedure of this name is asked for.
    pub fn is(&self, name: &str, way: Way) -> bool {
        match way {
            Way::Whole => name == self.name,
            Way::Last if without_arguments(&self.name) != self.name => {
                let before = name.strip_suffix(&*self.name).filter(|_| !self.name.is_empty());
                before.is_some_and(|before| before.ends_with("::"))
            }
            Way::Last => own_path(name).is_some_and(|path| {
                let mut own = path.rsplit("::").filter(|part| !part.is_empty());
                let mut asked = self.name.rsplit("::").filter(|part| !part.is_empty()).peekable();
                asked.peek().is_some() && asked.all(|part| own.next() == Some(part))
            }),
            Way::Path => own_path(name).is_some_and(|path| path.split("::").any(|part| part == self.name)),
            Way::Argument => {
                let is_break = |c: char| !(c.is_alphanumeric() || c == '_' || c == '~');
                name.split(is_break).any(|part| part == self.name)
            }
            Way::Pattern => {
                let mut behind_path = name.match_indices("::").filter_map(|(at, path)| name.get(at + path.len()..));
                let is_pattern = self.name.contains(['*', '?', '…']);
                let glob = self.name.replace('…', "*");
                is_pattern && (matches_glob(&glob, name) || behind_path.any(|name| matches_glob(&glob, name)))
            }
            Way::Words if self.name.contains(['<', '(']) => self.has_marks() && has_words(name, &self.name),
            // Arguments and parameters may have the name of something else in them.
            Way::Words => self.has_marks() && has_words(&without_arguments(name), &self.name),
            Way::Part => !self.name.is_empty() && name.contains(&self.name),
        }
    }

    /// It has more than one word.
    fn has_marks(&self) -> bool {
        words(&self.name).nth(1).is_some() && !self.name.contains(['*', '?'])
    }
}

/// Identifiers and numbers.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '~')).filter(|word| !word.is_empty())
}

/// The words of a shortened name are words of `name` in the same order. One beside an ellipsis may be cut.
fn has_words(name: &str, shortened: &str) -> bool {
    let mut there: VecDeque<&str> = words(name).collect();
    let pieces: Vec<&str> = shortened.split('…').collect();
    for (number, piece) in pieces.iter().enumerate() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let is_begun_before = number > 0 && piece.starts_with(is_word);
        let goes_on = number + 1 < pieces.len() && piece.ends_with(is_word);
        let all: Vec<&str> = words(piece).collect();
        for (index, word) in all.iter().enumerate() {
            let is_cut_before = is_begun_before && index == 0;
            let is_cut_behind = goes_on && index + 1 == all.len();
            let is_it = |whole: &str| match (is_cut_before, is_cut_behind) {
                (false, false) => whole == *word,
                (true, false) => whole.ends_with(word),
                (false, true) => whole.starts_with(word),
                (true, true) => whole.contains(word),
            };
            // A word that was cut in its middle is there twice.
            let Some(at) = there.iter().position(|whole| is_it(whole)) else { return false };
            there.drain(..at + usize::from(!is_cut_behind));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_report_prints_is_found() {
        let fold = "<core::iter::adapters::map::Map<I,F> as core::iter::traits::iterator::Iterator>::fold";
        let lambda = "main::{lambda(int)#1}::operator()(int) const";
        let insert = "std::_Hashtable<int, std::pair<int const, long> >::insert(int const&, bool)";
        for (asked, name, way) in [
            ("work", "work", Way::Whole),
            ("g::main::{closure#0} at g.rs:9 (inlined)", "g::main::{closure#0}", Way::Whole),
            ("Bvh::build(…) ×34", "Bvh::build(int, int)", Way::Pattern),
            ("f (inlined) ×2", "f", Way::Whole),
            ("main › … 2 more › f  [libx.so]", "f", Way::Whole),
            ("├ f › loop at x.c:3:4", "f", Way::Whole),
            ("qs", "ray::qs::<u32>", Way::Last),
            ("qs", "ray::qs::{closure#0}", Way::Path),
            ("qs", "rayon::join::<ray::qs, u8>", Way::Argument),
            ("Worker::run", "void pool::Worker<int>::run<long>(long) const [clone .cold]", Way::Last),
            ("Worker<int>::run(long)", "pool::Worker<int>::run(long)", Way::Last),
            ("operator<<", "std::operator<< <char>(int)", Way::Last),
            ("step", "(anonymous namespace)::step(double)", Way::Last),
            ("main at 0x1234", "main", Way::Whole),
            ("shade(…) ×12", "shade(Scene const&, Hit const&)", Way::Pattern),
            ("std::_Hashtable<…>::insert(…)", insert, Way::Pattern),
            ("*insert*", insert, Way::Pattern),
            ("wor?", "work", Way::Pattern),
            ("appl*", "g::apply(int)", Way::Pattern),
            ("<Map as Iterator>::fold", fold, Way::Words),
            ("main::{lambda#1}", lambda, Way::Words),
            ("std::_Hash…table<…>::insert(…)", "std::_Hash_and_table<int>::insert(int)", Way::Pattern),
            ("<Map as Ite…tor>::fold", fold, Way::Words),
            ("orke", "g::worker", Way::Part),
        ] {
            let found = Way::ALL.into_iter().find(|way| AskedName::new(asked).is(name, *way));
            assert_eq!(found, Some(way), "{asked} for {name}");
        }
        for (asked, name) in [
            ("main::{lambda#2}", lambda),
            ("main::{lambda#1}", "each<main::{lambda(int)#1}>(main::{lambda(int)#1})"),
            ("<Map as Clone>::fold", fold),
            ("wor?", "workers"),
            ("", "f"),
        ] {
            let asked = AskedName::new(asked);
            assert!(!Way::ALL.iter().any(|way| asked.is(name, *way)), "{name}");
        }
    }

    #[test]
    fn linkers_do_not_know_numbers_and_types() {
        let linkers = |asked: &str| AskedName::new(asked).as_linkers_call_it().map(|asked| asked.name);
        assert_eq!(linkers("g::main::{closure#1}").as_deref(), Some("g::main::{{closure}}"));
        assert_eq!(linkers("g::sum::<f32>").as_deref(), Some("g::sum"));
        assert_eq!(linkers("g::map::<fn(u8) -> u8, Vec<u8>>::run").as_deref(), Some("g::map::run"));
        assert_eq!(linkers("g::<A as B>::sum"), None);
        assert_eq!(linkers("g::{closure#"), None);
        assert_eq!(linkers("g::<<"), None);
        assert_eq!(linkers("main"), None);
    }
}
