//! A name of C++ taken apart: compilers spell one procedure in two ways, and both occur in one program.
//!
//! A linker's name says everything: `void f<std::vector<R, std::allocator<R> > >(long)`. Where a procedure has none (gcc gives
//! none to those of one file, and they are inlined), there is only what DWARF says: `f<std::vector<R> >`, without result and
//! parameters, and without arguments of templates that are the default.

/// A name, and where its parts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spelling<'n> {
    /// Without result and parameters.
    pub(super) qualified: &'n str,
    /// Without result: of one signature there is one procedure, and versions of a language change results (C++17 that of
    /// `emplace_back`).
    pub(super) signature: &'n str,
    pub(super) has_parameters: bool,
}

impl<'n> Spelling<'n> {
    pub(super) fn of(name: &'n str) -> Self {
        let (mut start, mut at) = (0, 0);
        let mut is_conversion = false;
        while let Some(first) = name.as_bytes().get(at).copied() {
            match first {
                b'o' if is_operator(name, at) => {
                    at += "operator".len();
                    let symbol = operator_symbol(&name[at..]);
                    // `operator new`, `operator bool`: the name goes on to its parameters.
                    is_conversion |= symbol == 0;
                    at += symbol;
                    continue;
                }
                b'(' if name[at..].starts_with(ANONYMOUS) => at += ANONYMOUS.len(),
                b'(' => {
                    let end = group_end(name, at);
                    // Those of the procedure around it.
                    if !name[end..].starts_with("::") {
                        let start = start.min(at);
                        let (qualified, signature) = (&name[start..at], &name[start..]);
                        return Spelling { qualified, signature, has_parameters: end > at + 1 };
                    }
                    at = end;
                }
                b'<' | b'{' | b'[' => at = group_end(name, at),
                b' ' => {
                    at += 1;
                    if !is_conversion {
                        start = at;
                    }
                }
                _ => at += 1,
            }
        }
        let qualified = &name[start.min(name.len())..];
        Spelling { qualified, signature: qualified, has_parameters: false }
    }

    /// Whether it stands in a namespace, class or module: then it is one procedure wherever its code is (the rule of one
    /// definition).
    pub(super) fn is_qualified(self) -> bool {
        self.qualified.contains("::")
    }

    /// Without arguments of templates, parameters of procedures around it, and numbers of lambdas.
    pub(super) fn stem(self) -> String {
        let name = self.qualified;
        let mut stem = String::with_capacity(name.len());
        let mut at = 0;
        while let Some(c) = name[at..].chars().next() {
            match c {
                'o' if is_operator(name, at) => {
                    let end = at + "operator".len() + operator_symbol(&name[at + "operator".len()..]);
                    stem.push_str(name[at..end].trim_end());
                    at = end;
                }
                '(' if name[at..].starts_with(ANONYMOUS) => {
                    stem.push_str(ANONYMOUS);
                    at += ANONYMOUS.len();
                }
                '<' | '{' if is_lambda(name, at) => {
                    stem.push_str(LAMBDA);
                    at = group_end(name, at);
                }
                // Rust's closures and implementations are no arguments.
                '{' => {
                    let end = group_end(name, at);
                    stem.push_str(&name[at..end]);
                    at = end;
                }
                '<' | '(' | '[' => at = group_end(name, at),
                c => {
                    stem.push(c);
                    at += c.len_utf8();
                }
            }
        }
        let stem = stem.trim_end();
        stem.strip_suffix("::operator()").filter(|stem| stem.ends_with(LAMBDA)).unwrap_or(stem).to_owned()
    }

    /// Whether both may be one procedure: the same words, where a list of arguments may end before the other one does.
    pub(super) fn agrees(self, other: Spelling<'_>) -> bool {
        let (a, b) = (words(self.qualified), words(other.qualified));
        let (mut i, mut j) = (0, 0);
        loop {
            match (a.get(i), b.get(j)) {
                (None, None) => return true,
                (Some(x), Some(y)) if x == y => {
                    i += 1;
                    j += 1;
                }
                (Some(Word::Symbol(b',')), Some(Word::Symbol(b'>'))) => i = list_end(&a, i),
                (Some(Word::Symbol(b'>')), Some(Word::Symbol(b','))) => j = list_end(&b, j),
                _ => return false,
            }
        }
    }
}

const ANONYMOUS: &str = "(anonymous namespace)";
const LAMBDA: &str = "{lambda}";

/// Whether the word `operator` stands here.
fn is_operator(name: &str, at: usize) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let before = at.checked_sub(1).map(|at| name.as_bytes()[at]);
    let rest = &name.as_bytes()[at..];
    rest.starts_with(b"operator")
        && !before.is_some_and(is_word)
        && !rest.get("operator".len()).copied().is_some_and(is_word)
}

/// How long an operator's symbol is; 0 where it is a word.
fn operator_symbol(rest: &str) -> usize {
    if rest.starts_with("()") || rest.starts_with("[]") {
        return 2;
    }
    let symbol = rest.bytes().take_while(|byte| b"<>=!+-*/%^&|~,".contains(byte)).count();
    // `operator< <int>`: its arguments.
    symbol + usize::from(symbol > 0 && rest[symbol..].starts_with(" <"))
}

/// Whether the brackets that open here hold a lambda: `{lambda(int)#1}`, `{lambda#1}`, `<lambda(int)>`.
fn is_lambda(name: &str, at: usize) -> bool {
    name[at + 1..].starts_with("lambda(") || name[at..].starts_with("{lambda#")
}

/// Behind the brackets that open at `start`; the end of the name where they do not close.
fn group_end(name: &str, start: usize) -> usize {
    let bytes = name.as_bytes();
    let (mut depth, mut at) = (0usize, start);
    while at < bytes.len() {
        match bytes[at] {
            b'o' if is_operator(name, at) => {
                at += "operator".len() + operator_symbol(&name[at + "operator".len()..]);
                continue;
            }
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Word<'n> {
    Text(&'n str),
    Integer { is_unsigned: bool, longs: usize, size: Option<&'n str> },
    Symbol(u8),
    Lambda,
}

/// The words of a name; of what either spelling leaves out or puts elsewhere (`const`, `struct`) nothing.
fn words(name: &str) -> Vec<Word<'_>> {
    const LEFT_OUT: [&str; 6] = ["const", "volatile", "struct", "class", "enum", "union"];
    let mut words: Vec<Word<'_>> = Vec::new();
    let mut at = 0;
    while let Some(c) = name[at..].chars().next() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        if matches!(c, '<' | '{') && is_lambda(name, at) {
            words.push(Word::Lambda);
            at = group_end(name, at);
            at += if name[at..].starts_with("::operator()") { "::operator()".len() } else { 0 };
        } else if is_part(c) {
            let len = name[at..].find(|c| !is_part(c)).unwrap_or(name.len() - at);
            let text = &name[at..at + len];
            at += len;
            if !LEFT_OUT.contains(&text) {
                push_word(&mut words, text);
            }
        } else if c == '(' && !name[at..].starts_with(ANONYMOUS) && name[group_end(name, at)..].starts_with("::") {
            // Parameters of a procedure around it.
            at = group_end(name, at);
        } else {
            if c.is_ascii() && !c.is_ascii_whitespace() {
                words.push(Word::Symbol(c as u8));
            }
            at += c.len_utf8();
        }
    }
    words
}

/// `long unsigned int` and `unsigned long` are one type.
fn push_word<'n>(words: &mut Vec<Word<'n>>, text: &'n str) {
    if !["unsigned", "signed", "long", "short", "char", "int"].contains(&text) {
        words.push(Word::Text(text));
        return;
    }
    if !matches!(words.last(), Some(Word::Integer { .. })) {
        words.push(Word::Integer { is_unsigned: false, longs: 0, size: None });
    }
    if let Some(Word::Integer { is_unsigned, longs, size }) = words.last_mut() {
        match text {
            "unsigned" => *is_unsigned = true,
            "long" => *longs += 1,
            "short" | "char" => *size = Some(text),
            _ => {}
        }
    }
}

/// The bracket that closes the list in which word number `at` stands.
fn list_end(words: &[Word<'_>], at: usize) -> usize {
    let mut depth = 0usize;
    for (number, word) in words.iter().enumerate().skip(at) {
        match word {
            Word::Symbol(b'<' | b'(' | b'{') => depth += 1,
            Word::Symbol(b'>') if depth == 0 => return number,
            Word::Symbol(b'>' | b')' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    words.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_and_parameters_are_no_part_of_a_qualified_name() {
        let cases = [
            ("heap(int)", "heap", "heap"),
            ("f()", "f", "f"),
            ("heap", "heap", "heap"),
            ("void std::sort<int*, long>(int*, long)", "std::sort<int*, long>", "std::sort"),
            ("operator new(unsigned long)", "operator new", "operator new"),
            ("bool std::operator< <char, long>(A const&)", "std::operator< <char, long>", "std::operator<"),
            ("bool std::operator<(A, A)", "std::operator<", "std::operator<"),
            ("S::operator()(int) const", "S::operator()", "S::operator()"),
            ("f(int)::{lambda(int)#1}::operator()(int) const", "f(int)::{lambda(int)#1}::operator()", "f::{lambda}"),
            ("f::{lambda#2}", "f::{lambda#2}", "f::{lambda}"),
            ("(anonymous namespace)::g(long)", "(anonymous namespace)::g", "(anonymous namespace)::g"),
            ("<A as B<fn() -> C>>::deref", "<A as B<fn() -> C>>::deref", "::deref"),
            ("m::{closure#1}::<u8>", "m::{closure#1}::<u8>", "m::{closure#1}::"),
            ("S::operator std::string() const", "S::operator std::string", "S::operator std::string"),
            ("(", "", ""),
            ("f<(", "f<(", "f"),
            ("operator", "operator", "operator"),
        ];
        for (name, qualified, stem) in cases {
            let spelling = Spelling::of(name);
            assert_eq!((spelling.qualified, &*spelling.stem()), (qualified, stem), "{name}");
        }
        assert!(Spelling::of("f()").has_parameters && Spelling::of("f(int) const").has_parameters);
        assert!(!Spelling::of("f").has_parameters && !Spelling::of("f<void (int)>").has_parameters);
    }

    /// Pairs as gcc 12 wrote them into one program.
    #[test]
    fn both_spellings_of_a_procedure_agree() {
        let agree = [
            ("heap", "heap(int)"),
            (
                "std::__merge_sort_loop<R*, std::vector<R>, long int, Cmp<sort(std::vector<R>)::<lambda(const R&, const R&)> > >",
                "void std::__merge_sort_loop<R*, std::vector<R, std::allocator<R> >, long, Cmp<sort(std::vector<R, \
                 std::allocator<R> >)::{lambda(R const&, R const&)#1}> >(R*, R*, long)",
            ),
            ("f<long unsigned int>", "int f<unsigned long>(int)"),
            ("f::{lambda#1}", "f(int)::{lambda(int)#1}::operator()(int) const"),
        ];
        for (a, b) in agree {
            assert!(Spelling::of(a).agrees(Spelling::of(b)), "{a} {b}");
            assert!(Spelling::of(b).agrees(Spelling::of(a)), "{b} {a}");
        }
        let differ = [("f<long, int>", "f<int, long>(int)"), ("f<A<B> >", "f<B>()"), ("f<int>", "f<unsigned int>()")];
        for (a, b) in differ {
            assert!(!Spelling::of(a).agrees(Spelling::of(b)), "{a} {b}");
        }
    }
}
