//! A procedure's demangled name without its parts: parameters, result, arguments of templates.

const OPERATORS: [&str; 7] =
    ["operator()", "operator->", "operator<=>", "operator<<", "operator>>", "operator<", "operator>"];

/// The characters of a name from left to right, each with where it stands. What the signs of an operator's name and of
/// an arrow are is one piece.
fn pieces(name: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = name.get(at..).filter(|rest| !rest.is_empty())?;
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
        let len = match operator {
            Some(operator) => operator.len(),
            None if rest.starts_with("->") => 2,
            None => rest.chars().next()?.len_utf8(),
        };
        at += len;
        Some((at - len, rest.get(..len)?))
    })
}

/// A name without what is in angle and round brackets, of which those of operators' names are none.
pub(crate) fn without_arguments(name: &str) -> String {
    let mut depth = 0usize;
    let mut bare = String::new();
    for (_, piece) in pieces(name) {
        match piece {
            "->" => {}
            "<" | "(" => depth += 1,
            ">" | ")" => depth = depth.saturating_sub(1),
            piece if depth == 0 => bare.push_str(piece),
            _ => {}
        }
    }
    bare
}

/// `pool::Worker::run` of `void pool::Worker<int>::run<long>(long) const [clone .cold]`.
pub(crate) fn own_path(name: &str) -> Option<String> {
    let bare = without_arguments(name);
    let bare = bare.split(" [clone ").next()?.trim_end_matches(" const").trim_end();
    let start = match bare.find("operator") {
        Some(operator) => bare[..operator].rfind(' '),
        None => bare.rfind(' '),
    };
    Some(bare[start.map_or(0, |start| start + 1)..].to_owned())
}

/// A demangled name without parameters, result, and what says that it is a clone: `pool::Worker<int>::run<long>` of
/// `void pool::Worker<int>::run<long>(long) const [clone .cold]`. A thunk stays as it is: it is not what it leads to.
pub fn without_parameters(name: &str) -> &str {
    let is_thunk = name.contains("thunk to ");
    let Some(name) = name.split(" [clone ").next().filter(|_| !is_thunk) else { return name };
    // The last pair of brackets that no path follows, and where the last word before it begins.
    let (mut depth, mut opened, mut begins) = (0usize, 0, 0);
    let (mut parameters, mut before) = (None, 0);
    for (at, piece) in pieces(name) {
        match piece {
            "<" | "(" | "{" => {
                if depth == 0 {
                    opened = at;
                }
                depth += 1;
            }
            ">" | ")" | "}" => {
                depth = depth.saturating_sub(1);
                let is_path = name.get(at + 1..).is_some_and(|rest| rest.starts_with("::"));
                if depth == 0 && piece == ")" && !is_path {
                    (parameters, before) = (Some(opened), begins);
                }
            }
            " " if depth == 0 && !ends_with_operator(name.get(begins..at)) => begins = at + 1,
            _ => {}
        }
    }
    let Some(parameters) = parameters else { return name };
    name.get(before..parameters).filter(|path| !path.is_empty()).unwrap_or(name)
}

/// What follows is an operator's name: `operator new`, `operator unsigned long`, `operator<< <char>`.
fn ends_with_operator(part: Option<&str>) -> bool {
    let last = part.and_then(|part| part.rsplit("::").next());
    last.and_then(|last| last.strip_prefix("operator"))
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// The same without arguments of templates and anonymous namespaces: `pool::Worker::run`. What a Rust trait's name
/// belongs to (`<A as B>::f`) is no argument.
pub fn bare_path(name: &str) -> String {
    let name = without_parameters(name);
    if name.starts_with('<') || name.contains(" as ") || name.contains("thunk to ") {
        return name.to_owned();
    }
    let bare = without_arguments(name);
    let parts: Vec<&str> = bare.trim_end().split("::").filter(|part| !part.is_empty()).collect();
    parts.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_arguments_are_left_out() {
        for (name, path, bare) in [
            ("main", "main", "main"),
            ("ns::f(int)", "ns::f", "ns::f"),
            ("ns::f() const [clone .isra.0] [clone .cold]", "ns::f", "ns::f"),
            ("void pool::Worker<int>::run<long>(long) const", "pool::Worker<int>::run<long>", "pool::Worker::run"),
            ("(anonymous namespace)::step(double)", "(anonymous namespace)::step", "step"),
            ("a::(anonymous namespace)::step(double)", "a::(anonymous namespace)::step", "a::step"),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::{lambda(int)#1}::operator()",
                "main::{lambda#1}::operator()",
            ),
            (
                "f(int)::{lambda()#1}::operator()() const",
                "f(int)::{lambda()#1}::operator()",
                "f::{lambda#1}::operator()",
            ),
            (
                "std::ostream& std::operator<< <char>(std::ostream&, char const*)",
                "std::operator<< <char>",
                "std::operator<<",
            ),
            ("A::operator bool() const", "A::operator bool", "A::operator bool"),
            ("A::operator unsigned long() const", "A::operator unsigned long", "A::operator unsigned long"),
            ("operator new(unsigned long)", "operator new", "operator new"),
            ("A::A<int>(char const*, int)", "A::A<int>", "A::A"),
            (
                "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place",
            ),
            (
                "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop",
                "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop",
                "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop",
            ),
            ("non-virtual thunk to A::~A()", "non-virtual thunk to A::~A()", "non-virtual thunk to A::~A()"),
            ("f(", "f(", "f"),
            ("()", "()", ""),
            ("", "", ""),
        ] {
            assert_eq!((without_parameters(name), &*bare_path(name)), (path, bare), "of {name}");
        }
    }
}
