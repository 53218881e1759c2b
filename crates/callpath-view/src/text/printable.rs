//! Strings from binaries and command lines made safe and narrow enough for a terminal.

/// `text` with every character that a terminal could act on shown escaped: control characters (C0, C1, DEL), and those
/// that reorder or hide text.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !acts_on_terminals(c) => shown.push(c),
            '\0'..='\u{9f}' => shown.push_str(&format!("\\x{:02x}", c as u32)),
            c => shown.push_str(&format!("\\u{{{:x}}}", c as u32)),
        }
    }
    shown
}

/// Whether a terminal may do more with a character than show it.
pub(crate) fn acts_on_terminals(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Columns that `text` takes on a terminal: wide scripts two, combining marks none.
pub(super) fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(columns_of).sum() }
}

fn columns_of(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36f}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// `text` in at most `max` columns, its end cut off.
pub(super) fn cut_end(text: &str, max: usize) -> String {
    if columns(text) <= max {
        return text.into();
    }
    let mut shown = head(text, max.saturating_sub(1)).to_string();
    shown.push('…');
    shown
}

/// `text` in at most `max` columns, its beginning cut off.
pub(super) fn cut_start(text: &str, max: usize) -> String {
    if columns(text) <= max {
        return text.into();
    }
    format!("…{}", tail(text, max.saturating_sub(1)))
}

/// `text` in at most `max` columns, its middle cut out; more of the end stays, where a qualified name has its point.
pub(super) fn cut_middle(text: &str, max: usize) -> String {
    if columns(text) <= max {
        return text.into();
    }
    let first = max.saturating_sub(1) / 3;
    let last = max.saturating_sub(1) - first;
    format!("{}…{}", head(text, first), tail(text, last))
}

/// The longest beginning of at most `max` columns.
fn head(text: &str, max: usize) -> &str {
    let mut used = 0;
    let cut = text.char_indices().find(|&(_, c)| {
        used += columns_of(c);
        used > max
    });
    &text[..cut.map_or(text.len(), |(at, _)| at)]
}

/// The longest end of at most `max` columns.
fn tail(text: &str, max: usize) -> &str {
    let mut used = 0;
    let cut = text.char_indices().rev().find(|&(_, c)| {
        used += columns_of(c);
        used > max
    });
    &text[cut.map_or(0, |(at, c)| at + c.len_utf8())..]
}

/// A pair of brackets in a name, by byte positions.
struct Brackets {
    open: usize,
    close: usize,
    depth: usize,
    round: bool,
}

/// A demangled name, already printable, in at most `max` columns. What distinguishes least is cut first: the
/// parameters, then template arguments from the innermost outwards, then the middle.
pub(super) fn shorten(name: &str, max: usize) -> String {
    if columns(name) <= max {
        return name.into();
    }
    let pairs = brackets(name);
    let parameters = |pair: &Brackets| pair.round && pair.depth == 0;
    let without = collapse(name, pairs.iter().filter(|pair| parameters(pair)));
    if columns(&without) <= max {
        return without;
    }
    let deepest = pairs.iter().map(|pair| pair.depth).max().unwrap_or(0);
    let mut shorter = without;
    // A name of very deep brackets is cut in the end anyway.
    for depth in (0..=deepest.min(64)).rev() {
        shorter = collapse(name, pairs.iter().filter(|pair| parameters(pair) || pair.depth >= depth));
        if columns(&shorter) <= max {
            return shorter;
        }
    }
    cut_middle(&shorter, max)
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
                    pairs.push(Brackets { open: from, close: at, depth: open.len(), round: closing == b')' });
                }
            }
            _ => {}
        }
        at += 1;
    }
    pairs.sort_by_key(|pair| pair.open);
    pairs
}

/// An argument as a shell would take it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_act_on() {
        assert_eq!(printable("\x1b[31mred\x07"), "\\x1b[31mred\\x07");
        assert_eq!(printable("a\u{9b}2Jb\x7f\r\n"), "a\\x9b2Jb\\x7f\\x0d\\x0a");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(printable("größe 大きさ"), "größe 大きさ");
    }

    #[test]
    fn a_name_loses_what_tells_least() {
        let name = "std::_Hashtable<int, std::pair<int const, std::vector<char> > >::insert(int const&, bool)";
        let cases = [
            (100, name),
            (80, "std::_Hashtable<int, std::pair<int const, std::vector<char> > >::insert(…)"),
            (72, "std::_Hashtable<int, std::pair<int const, std::vector<…> > >::insert(…)"),
            (50, "std::_Hashtable<int, std::pair<…> >::insert(…)"),
            (40, "std::_Hashtable<…>::insert(…)"),
            (16, "std::…:insert(…)"),
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
}
