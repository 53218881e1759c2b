//! Demangled names in the room that a row has: what distinguishes least is left out first.

use std::ops::Range;

use super::printable::{columns, cut_middle, head, tail};

/// A pair of brackets in a name, by byte positions.
struct Brackets {
    open: usize,
    close: usize,
    depth: usize,
    round: bool,
    /// Around the type that a procedure belongs to, and the trait: `<Map<I, F> as Iterator>::fold`.
    is_self_type: bool,
}

/// A demangled name, already printable, in at most `max` columns. What distinguishes least is cut first: the
/// parameters, then template arguments from the innermost outwards, then the paths of the types before a procedure, then
/// the namespaces around it, then the middle.
pub(super) fn shorten(name: &str, max: usize) -> String {
    if columns(name) <= max {
        return name.into();
    }
    let pairs = brackets(name);
    let is_parameters = |pair: &Brackets| pair.round && pair.depth == 0;
    let without = lambdas(&collapse(name, pairs.iter().filter(|pair| is_parameters(pair))));
    if columns(&without) <= max {
        return without;
    }
    let deepest = pairs.iter().map(|pair| pair.depth).max().unwrap_or(0);
    let mut shorter = without;
    // A name of very deep brackets is cut in the end anyway.
    for depth in (0..=deepest.min(64)).rev() {
        let is_left_out = |pair: &&Brackets| is_parameters(pair) || pair.depth >= depth && !pair.is_self_type;
        shorter = lambdas(&collapse(name, pairs.iter().filter(is_left_out)));
        if columns(&shorter) <= max {
            return shorter;
        }
    }
    shorter = self_types(&shorter).replace("::<…>", "");
    if columns(&shorter) <= max {
        return shorter;
    }
    without_namespaces(&shorter, max).unwrap_or_else(|| cut_middle(&shorter, max))
}

/// `name` with the inside of the outermost of `pairs` as an ellipsis. The pairs come in order of their opening.
fn collapse<'a>(name: &str, pairs: impl Iterator<Item = &'a Brackets>) -> String {
    let mut shown = String::with_capacity(name.len());
    let mut done = 0;
    for pair in pairs {
        let inside = pair.open + 1..pair.close;
        if inside.start < done || inside.is_empty() || &name[inside.clone()] == "anonymous namespace" {
            continue;
        }
        shown.push_str(&name[done..inside.start]);
        shown.push('…');
        done = inside.end;
    }
    shown.push_str(&name[done..]);
    shown
}

/// `main::{lambda(…)#1}::operator()(…) const` as `main::{lambda#1}`.
fn lambdas(name: &str) -> String {
    let mut shown = name.replace("{lambda(…)#", "{lambda#").replace("{lambda()#", "{lambda#");
    for call in ["}::operator()(…) const", "}::operator()() const", "}::operator()(…)", "}::operator()()"] {
        if let Some(at) = shown.find(call) {
            shown.replace_range(at + 1..at + call.len(), "");
        }
    }
    shown
}

/// `<a::b::Map<…> as c::Iterator>::fold` as `<Map as Iterator>::fold`.
fn self_types(name: &str) -> String {
    let pairs = brackets(name);
    let mut shown = String::new();
    let mut done = 0;
    for pair in pairs.iter().filter(|pair| pair.is_self_type) {
        if pair.open < done {
            continue;
        }
        shown.push_str(&name[done..=pair.open]);
        let inside = name[pair.open + 1..pair.close].replace("<…>", "");
        let words = inside.split(' ').map(|word| word.rsplit("::").next().unwrap_or(word));
        shown.push_str(&words.collect::<Vec<_>>().join(" "));
        done = pair.close;
    }
    shown.push_str(&name[done..]);
    shown
}

/// As many of the last parts of a qualified name as there is room for, if that is one at least; the first part, too,
/// where there is.
fn without_namespaces(name: &str, max: usize) -> Option<String> {
    let pairs = brackets(name);
    let mut cuts = Vec::new();
    let mut at = 0;
    let mut pairs = pairs.iter().peekable();
    while let Some(found) = name[at..].find("::").map(|found| at + found) {
        while pairs.next_if(|pair| pair.close < found).is_some() {}
        match pairs.peek().filter(|pair| pair.open < found) {
            Some(pair) => at = pair.close,
            None => {
                let is_arguments =
                    name[found + 2..].starts_with('<') && found > 0 && !name[found + 2..].contains(">::");
                if !is_arguments {
                    cuts.push(found);
                }
                at = found + 2;
            }
        }
    }
    let first = cuts.first().map(|&cut| &name[..cut + 2]);
    let ends = || cuts.iter().map(|&cut| &name[cut..]);
    let with_first = ends().skip(1).map(|end| format!("{}…{end}", first.unwrap_or_default()));
    let without = ends().map(|end| format!("…{end}"));
    with_first.chain(without).find(|form| columns(form) <= max)
}

/// The same as [`shorten`], but what it gives for `name` and for each of `rivals`, other names, differs. It shows the
/// brackets in which they differ instead of others, else what is around that place. `None` where it cannot.
pub(super) fn shorten_apart(name: &str, rivals: &[String], max: usize) -> Option<String> {
    let shown = shorten(name, max);
    let mut alike: Vec<&str> =
        rivals.iter().map(|rival| &**rival).filter(|rival| *rival != name && shorten(rival, max) == shown).collect();
    if shown == name || alike.is_empty() {
        return Some(shown);
    }
    alike.push(name);
    alike.sort_unstable();
    alike.dedup();
    // The same for all of them, so that all are shown in the same way.
    let mut differ: Vec<usize> = alike.windows(2).map(|pair| common_len(pair[0], pair[1])).collect();
    differ.sort_unstable();
    differ.dedup();
    let tells = |form: &dyn Fn(&str) -> Option<String>| {
        let forms: Option<Vec<String>> = alike.iter().map(|name| form(name).filter(|f| columns(f) <= max)).collect();
        let mut forms = forms?;
        forms.sort_unstable();
        let count = forms.len();
        forms.dedup();
        (forms.len() == count).then(|| form(name)).flatten()
    };
    let revealed = |name: &str| {
        let mut revealed = Revealed { name, pairs: &brackets(name), places: &differ, shown: String::new() };
        revealed.add(0..name.len(), 0);
        lambdas(&revealed.shown)
    };
    tells(&|name| Some(revealed(name)))
        .or_else(|| tells(&|name| without_namespaces(&revealed(name), max)))
        .or_else(|| differ.iter().rev().find_map(|&at| tells(&|name| Some(around(name, at, max)))))
        .or_else(|| tells(&|name| Some(pieces(name, &differ, max))))
}

/// How many bytes of both names are the same.
fn common_len(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// More levels of brackets are not looked into.
const REVEALED_LEVELS: usize = 32;

/// A name of which only the brackets are shown that some places lie in.
struct Revealed<'n> {
    name: &'n str,
    pairs: &'n [Brackets],
    places: &'n [usize],
    shown: String,
}

impl Revealed<'_> {
    /// Adds a range of the name that is in `level` brackets.
    fn add(&mut self, range: Range<usize>, level: usize) {
        let Revealed { name, pairs, places, .. } = *self;
        let is_in = |from: usize, to: usize| places.iter().any(|place| (from..=to).contains(place));
        let mut done = range.start;
        let mut next = pairs.partition_point(|pair| pair.open < range.start);
        while let Some(pair) = pairs.get(next).filter(|pair| pair.open < range.end) {
            self.shown.push_str(&name[done..=pair.open]);
            let inside = pair.open + 1..pair.close;
            if inside.is_empty() || &name[inside.clone()] == "anonymous namespace" {
                self.shown.push_str(&name[inside]);
            } else if level >= REVEALED_LEVELS || !is_in(inside.start, inside.end) {
                self.shown.push('…');
            } else {
                let mut is_left_out = false;
                for (number, argument) in arguments(name, pairs, inside).into_iter().enumerate() {
                    let shows = is_in(argument.start, argument.end);
                    if number > 0 && (shows || !is_left_out) {
                        self.shown.push_str(", ");
                    }
                    match shows {
                        true => self.add(argument, level + 1),
                        false if !is_left_out => self.shown.push('…'),
                        false => {}
                    }
                    is_left_out = !shows;
                }
            }
            done = pair.close;
            next = pairs.partition_point(|pair| pair.open < done);
        }
        self.shown.push_str(&name[done..range.end]);
    }
}

/// The parts between the commas of a range that are in no brackets in it.
fn arguments(name: &str, pairs: &[Brackets], range: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut start, mut at) = (range.start, range.start);
    while let Some(comma) = name[at..range.end].find(',').map(|comma| at + comma) {
        let next = pairs.partition_point(|pair| pair.open < at);
        match pairs.get(next).filter(|pair| pair.open < comma) {
            Some(pair) => at = pair.close.max(at + 1).min(range.end),
            None => {
                found.push(start..comma);
                at = comma + 1;
                start = at + usize::from(name[at..range.end].starts_with(' '));
            }
        }
    }
    found.push(start.min(range.end)..range.end);
    found
}

/// The word of a name that a place is in and what follows; before it the beginning of the name, if there is room.
fn around(name: &str, place: usize, max: usize) -> String {
    let word = word_at(name, place, max.saturating_sub(1));
    let rest = &name[word..];
    // Less of a beginning says nothing.
    const LEAST: usize = 6;
    if columns(rest) < max {
        let room = max - 1 - columns(rest);
        let beginning = if columns(&name[..word]) <= room + 1 { &name[..word] } else { head(&name[..word], room) };
        return match beginning.len() {
            len if len == word => name.into(),
            _ if columns(beginning) < LEAST => format!("…{rest}"),
            _ => format!("{beginning}…{rest}"),
        };
    }
    let word = word_at(name, place, max / 3);
    let rest = &name[word..];
    let before = if word > 0 { "…" } else { "" };
    let end = max / 3;
    let shown = head(rest, max.saturating_sub(end + 1 + columns(before)));
    format!("{before}{shown}…{}", tail(&rest[shown.len()..], end))
}

/// A little from each of some places of a name on.
fn pieces(name: &str, places: &[usize], max: usize) -> String {
    let room = (max / places.len().max(1)).saturating_sub(1);
    let mut shown = String::new();
    let mut done = 0;
    for &place in places {
        let from = word_at(name, place, room / 2).max(done);
        let piece = head(&name[from..], room);
        done = from + piece.len();
        shown = shown + "…" + piece;
    }
    shown
}

/// Where the word begins that a place of a name is in, if that is at most `max` columns before it, else the place.
fn word_at(name: &str, place: usize, max: usize) -> usize {
    let mut place = place.min(name.len());
    while !name.is_char_boundary(place) {
        place -= 1;
    }
    let is_break = |c: char| !(c.is_alphanumeric() || c == '_' || c == '#' || c == '{');
    let word = name[..place].rfind(is_break).map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    if columns(&name[word..place]) < max { word } else { place }
}

/// The matched `<>` and `()` of a name, in order of opening, without those of operators' names.
fn brackets(name: &str) -> Vec<Brackets> {
    let bytes = name.as_bytes();
    let mut open: Vec<usize> = Vec::new();
    let mut pairs: Vec<Brackets> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if name.is_char_boundary(at)
            && let Some(operator) = name[at..].strip_prefix("operator")
        {
            let symbols = ["()", "<=>", "<<=", ">>=", "->*", "->", "<<", ">>", "<=", ">=", "<", ">"];
            let symbol = symbols.iter().find(|symbol| operator.starts_with(**symbol));
            at += "operator".len() + symbol.map_or(0, |symbol| symbol.len());
            continue;
        }
        match bytes[at] {
            b'<' | b'(' => open.push(at),
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            closing @ (b'>' | b')') => {
                let opening = if closing == b'>' { b'<' } else { b'(' };
                // An angle that a round bracket closes over was a comparison.
                while closing == b')' && open.last().is_some_and(|&at| bytes[at] == b'<') {
                    open.pop();
                }
                if open.last().is_some_and(|&at| bytes[at] == opening)
                    && let Some(from) = open.pop()
                {
                    let inside = &name[from + 1..at];
                    // Arguments stand behind what takes them.
                    let is_first = from == 0 || matches!(bytes[from - 1], b' ' | b'<' | b'(' | b'&' | b'*' | b',');
                    let is_of_trait = inside.contains(" as ") || inside.starts_with("impl ");
                    let is_before = is_first || is_of_trait && name[..from].ends_with("::");
                    let is_self_type = closing == b'>' && is_before && name[at + 1..].starts_with("::");
                    let (depth, round) = (open.len(), closing == b')');
                    pairs.push(Brackets { open: from, close: at, depth, round, is_self_type });
                }
            }
            _ => {}
        }
        at += 1;
    }
    pairs.sort_by_key(|pair| pair.open);
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_loses_what_tells_least() {
        let name = "std::_Hashtable<int, std::pair<int const, std::vector<char> > >::insert(int const&, bool)";
        let cases = [
            (100, name),
            (80, "std::_Hashtable<int, std::pair<int const, std::vector<char> > >::insert(…)"),
            (72, "std::_Hashtable<int, std::pair<int const, std::vector<…> > >::insert(…)"),
            (50, "std::_Hashtable<int, std::pair<…> >::insert(…)"),
            (40, "std::_Hashtable<…>::insert(…)"),
            (16, "…::insert(…)"),
        ];
        for (max, expected) in cases {
            let shown = shorten(name, max);
            assert!(columns(&shown) <= max);
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn operators_are_no_brackets() {
        assert_eq!(shorten("Big<int>::operator<<(std::ostream&, int)", 30), "Big<int>::operator<<(…)");
        assert_eq!(shorten("Big<int>::operator()(std::ostream&, int)", 30), "Big<int>::operator()(…)");
        assert_eq!(shorten("Big<int>::operator->(std::ostream&, int)", 30), "Big<int>::operator->(…)");
        assert_eq!(shorten("(anonymous namespace)::f(int, int, int, int)", 30), "(anonymous namespace)::f(…)");
    }

    #[test]
    fn any_name_fits_any_width() {
        let names =
            ["", "((((((((((", ">>>>>>>>>>>>", "a<b)c>d(e<f>", "operatoroperator<", "大きさ<大>(大)", "é<é<é>>(é)"];
        for name in names {
            for max in 0..20 {
                let shown = shorten(name, max);
                assert!(columns(&shown) <= max.max(1), "{name} {max}: {shown}");
            }
        }
        let deep = "<".repeat(50_000) + &">".repeat(50_000);
        assert!(columns(&shorten(&deep, 40)) <= 40);
    }

    #[test]
    fn names_of_traits_and_closures_keep_what_they_are_of() {
        let fold = "<core::iter::adapters::map::Map<I,F> as core::iter::traits::iterator::Iterator>::fold";
        assert_eq!(shorten(fold, 50), "<Map as Iterator>::fold");
        assert_eq!(
            shorten("core::iter::range::<impl core::iter::Iterator for core::ops::Range<A>>::next", 60),
            "core::iter::range::<impl Iterator for Range>::next"
        );
        let lambda = "main::{lambda(std::vector<int, std::allocator<int> > const&)#1}::operator()(std::vector<int> const&) const";
        assert_eq!(shorten(lambda, 60), "main::{lambda#1}");
        assert_eq!(
            shorten("std::sys::backtrace::__rust_begin_short_backtrace::<fn(), ()>", 44),
            "std::…::__rust_begin_short_backtrace"
        );
    }

    #[test]
    fn siblings_never_look_the_same() {
        let groups: [&[&str]; 6] = [
            &[
                "std::sort<std::vector<int, std::allocator<int> >::iterator>(int*)",
                "std::sort<std::vector<long, std::allocator<long> >::iterator>(long*)",
            ],
            &[
                "apply_all_of_them::<gaps::main::{closure_env#0}>",
                "apply_all_of_them::<gaps::main::{closure_env#1}>",
                "apply_all_of_them::<gaps::other::{closure_env#1}>",
            ],
            &["f(int, std::basic_string<char> const&, double)", "f(int, std::basic_string<wchar_t> const&, double)"],
            &["render::first::draw_the_whole_thing", "render::second::draw_the_whole_thing"],
            &[
                "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
                "<alloc::vec::Vec<u16> as core::clone::Clone>::clone",
                "<other::vec::Vec<u8> as core::clone::Clone>::clone",
            ],
            &[
                "g<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>(int)",
                "g<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11>(int)",
                "g<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13>(int)",
            ],
        ];
        for group in groups {
            let rivals: Vec<String> = group.iter().map(|name| name.to_string()).collect();
            for max in 24..80 {
                let mut shown: Vec<String> =
                    group.iter().map(|name| shorten_apart(name, &rivals, max).unwrap()).collect();
                assert!(shown.iter().all(|shown| columns(shown) <= max), "{max}: {shown:?}");
                shown.sort();
                shown.dedup();
                assert_eq!(shown.len(), group.len(), "{max}: {shown:?}");
            }
        }
        let [int, long] = [groups[0][0], groups[0][1]].map(str::to_owned);
        assert_eq!(shorten_apart(&int, &[long], 50).unwrap(), "std::sort<std::vector<int, …>::iterator>(…)");
        let closures = [groups[1][0], groups[1][1]].map(str::to_owned);
        for (max, shown) in [
            (40, "apply_all_of_them::<gap…{closure_env#0}>"),
            (26, "apply_all…{closure_env#0}>"),
            (18, "…{closure_env#0}>"),
        ] {
            assert_eq!(shorten_apart(&closures[0], &closures, max).unwrap(), shown);
        }
    }

    #[test]
    fn odd_names_are_told_apart_without_a_panic() {
        let names = [
            "",
            "((((((((((",
            ">>>>>>>>>>>>",
            "a<b)c>d(e<f>",
            "operatoroperator<",
            "大きさ<大>(大)",
            "大きさ<小>(大)",
            "a<b,,c>(,)",
            "a<b,,d>(,)",
            "é<é<é>>(é)",
            "é<é<è>>(é)",
            "::<",
            "<>::",
            "<a as b>::<c>::",
            "{lambda(…)#",
        ];
        let rivals: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        for name in names {
            for max in 0..20 {
                let shown = shorten_apart(name, &rivals, max).unwrap_or_default();
                assert!(columns(&shown) <= max.max(2), "{name} {max}: {shown}");
            }
        }
        let deep = |inner: &str| "<".repeat(50_000) + inner + &">".repeat(50_000);
        assert!(shorten_apart(&deep("a"), &[deep("b")], 40).is_none_or(|shown| columns(&shown) <= 40));
    }
}
