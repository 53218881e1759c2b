//! Strings from binaries and command lines made safe for a terminal, measured and cut.

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
pub(super) fn head(text: &str, max: usize) -> &str {
    let mut used = 0;
    let cut = text.char_indices().find(|&(_, c)| {
        used += columns_of(c);
        used > max
    });
    &text[..cut.map_or(text.len(), |(at, _)| at)]
}

/// The longest end of at most `max` columns.
pub(super) fn tail(text: &str, max: usize) -> &str {
    let mut used = 0;
    let cut = text.char_indices().rev().find(|&(_, c)| {
        used += columns_of(c);
        used > max
    });
    &text[cut.map_or(0, |(at, c)| at + c.len_utf8())..]
}

/// An argument as a shell would take it; what a terminal would act on is escaped, for bash, ksh and zsh.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    if word.chars().any(acts_on_terminals) {
        let escaped = word.chars().map(|c| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if acts_on_terminals(c) && c.is_ascii() => format!("\\x{:02x}", u32::from(c)),
            c if acts_on_terminals(c) => format!("\\u{:04x}", u32::from(c)),
            c => c.into(),
        });
        return format!("$'{}'", escaped.collect::<String>());
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
    fn words_for_a_shell() {
        assert_eq!(shell_word("a-b.c/d"), "a-b.c/d");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word("e\x1b[31m'\n\\"), "$'e\\x1b[31m\\'\\x0a\\\\'");
        assert_eq!(printable(&shell_word("a\u{202e}b\t")), "$'a\\u202eb\\x09'");
    }
}
