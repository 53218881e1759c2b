//! Errors without the numbers that the standard library appends to the system's messages.

use std::fmt::Display;

/// The text without each ` (os error N)` in it.
pub fn plain(what: impl Display) -> String {
    const NUMBER: &str = " (os error ";
    let text = what.to_string();
    let mut pieces = text.split(NUMBER);
    let mut without = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => without.push_str(rest),
            // A file's name may contain it.
            _ => without.extend([NUMBER, piece]),
        }
    }
    without
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let no_file = std::io::Error::from_raw_os_error(2);
        assert_eq!(plain(&no_file), "No such file or directory");
        assert_eq!(
            plain(format!("read a: {no_file}; then b: {no_file}.")),
            "read a: No such file or directory; then b: No such file or directory."
        );
        assert_eq!(plain("read x (os error y) (os error"), "read x (os error y) (os error");
    }
}
