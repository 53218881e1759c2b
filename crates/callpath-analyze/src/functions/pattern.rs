//! What a person types to name functions: `name`, a glob, `module!name`, `file.c:name`, `module+0x1234`.

use std::fmt;
use std::path::Path;

use callpath_db::matches_glob;
use callpath_format::address::LinkAddr;

/// Names some functions of some modules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    text: String,
    module: Option<String>,
    pub(super) what: What,
}

/// What of a module is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The procedure that begins at this address of the ELF file.
    At(LinkAddr),
    /// Those of a name, perhaps of one source file.
    Named { file: Option<String>, name: String },
}

/// Why a text names no functions. Completes "failed to ...".
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PatternError {
    /// Nothing was typed.
    Empty,
    /// A part of the text is empty: which one.
    EmptyPart {
        /// What was typed.
        text: String,
        /// `module`, `file` or `function`.
        part: &'static str,
    },
    /// An address without its module.
    BareAddress {
        /// What was typed.
        text: String,
    },
    /// What follows `+0x` is no address.
    Address {
        /// What was typed.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A line of a file is not a function.
    Line {
        /// What was typed.
        text: String,
    },
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::Empty => write!(f, "read a function's name: it is empty"),
            PatternError::EmptyPart { text, part } => write!(f, "read {text} as functions: the {part}'s name is empty"),
            PatternError::BareAddress { text } => {
                write!(f, "read {text} as a function: an address needs its module, as in libx.so+0x1234")
            }
            PatternError::Address { text, why } => write!(f, "read {text} as the address of a function: {why}"),
            PatternError::Line { text } => {
                write!(
                    f,
                    "read {text} as functions: a line was given, and a function's name is expected, as in x.c:main"
                )
            }
        }
    }
}

impl std::error::Error for PatternError {}

impl Pattern {
    /// Reads what was typed.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let whole = text.trim();
        let empty = |part| PatternError::EmptyPart { text: whole.to_owned(), part };
        if whole.is_empty() {
            return Err(PatternError::Empty);
        }
        let pattern =
            |module: Option<&str>, what| Pattern { text: whole.to_owned(), module: module.map(str::to_owned), what };
        if whole.starts_with("0x") || whole.starts_with("+0x") {
            return Err(PatternError::BareAddress { text: whole.to_owned() });
        }
        if let Some((module, digits)) = whole.rsplit_once("+0x") {
            let address = address(digits).map_err(|why| PatternError::Address { text: whole.to_owned(), why })?;
            return Ok(pattern(Some(module.trim_end_matches('!')), What::At(address)));
        }
        let (module, rest) = match split_module(whole) {
            Some(("", _)) => return Err(empty("module")),
            Some((module, rest)) => (Some(module), rest),
            None => (None, whole),
        };
        let (file, name) = match split_file(rest) {
            Some(("", _)) => return Err(empty("file")),
            Some((file, name)) => (Some(file), name),
            None => (None, rest),
        };
        if name.is_empty() {
            return Err(empty("function"));
        }
        if file.is_some() && name.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PatternError::Line { text: whole.to_owned() });
        }
        Ok(pattern(module, What::Named { file: file.map(str::to_owned), name: name.to_owned() }))
    }

    /// What was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The module's part of it.
    pub fn module(&self) -> Option<&str> {
        self.module.as_deref()
    }

    /// The function's part of it; `None` where an address was given.
    pub fn name(&self) -> Option<&str> {
        match &self.what {
            What::Named { name, .. } => Some(name),
            What::At(_) => None,
        }
    }

    /// Functions of the module at `path` may be meant: it has the name that was given, whole (`libc.so.6`), without its
    /// version (`libc.so`, `libc`), as the end of its path, or as a glob; or none was given. Of a library that is
    /// not loaded yet this can be asked, too.
    pub fn is_of(&self, path: &Path) -> bool {
        let Some(wanted) = &self.module else { return true };
        let whole = path.to_string_lossy();
        if wanted.contains('/') {
            return is_end_of_path(wanted, &whole);
        }
        let name = whole.rsplit('/').next().unwrap_or(&whole);
        // `libc.so.6` is the library `libc`, `libc-2.31.so` in older systems.
        let stem = name.split_once(".so").filter(|(_, version)| version.is_empty() || version.starts_with('.'));
        let stem = stem.map_or(name, |(stem, _)| stem);
        let unversioned =
            stem.rsplit_once('-').filter(|(_, version)| version.starts_with(|c: char| c.is_ascii_digit()));
        let is_begun = wanted.contains(".so") && name.strip_prefix(&**wanted).is_some_and(|rest| rest.starts_with('.'));
        let is_glob = wanted.contains(['*', '?']) && matches_glob(wanted, name);
        name == wanted || stem == wanted || is_begun || is_glob || unversioned.is_some_and(|(stem, _)| stem == wanted)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `path` is `wanted`, or ends with it, whole names of directories; `wanted` may be a glob.
pub(super) fn is_end_of_path(wanted: &str, path: &str) -> bool {
    let ends = |before: &str| before.is_empty() || before.ends_with('/');
    path.strip_suffix(wanted).is_some_and(ends)
        || wanted.contains(['*', '?']) && (matches_glob(wanted, path) || matches_glob(&format!("*/{wanted}"), path))
}

/// `libc.so.6!malloc`. Names of operators have such a sign, too.
fn split_module(text: &str) -> Option<(&str, &str)> {
    text.split_once('!').filter(|(before, _)| !before.ends_with("operator"))
}

/// `dir/file.c:name`: at a colon that stands alone.
fn split_file(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let is_colon = |at: Option<usize>| at.and_then(|at| bytes.get(at)) == Some(&b':');
    let alone = |at: &usize| is_colon(Some(*at)) && !is_colon(at.checked_sub(1)) && !is_colon(Some(at + 1));
    let at = (0..bytes.len()).find(alone)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn address(digits: &str) -> Result<LinkAddr, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("hexadecimal digits are expected after +0x");
    }
    // Nothing else is wrong with digits.
    u64::from_str_radix(digits, 16).map(LinkAddr).map_err(|_| "addresses have 64 bits at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let named = |text: &str| {
            let pattern = Pattern::parse(text).unwrap();
            let What::Named { file, name } = pattern.what else { panic!("{text} is no name") };
            (pattern.module, file, name)
        };
        for (text, module, file, name) in [
            ("main", None, None, "main"),
            ("libc.so.6!mem*", Some("libc.so.6"), None, "mem*"),
            ("ns::f(int)", None, None, "ns::f(int)"),
            ("A::operator!=(A const&)", None, None, "A::operator!=(A const&)"),
            ("x.so!A::operator!", Some("x.so"), None, "A::operator!"),
            ("x.c:main", None, Some("x.c"), "main"),
            ("prog!src/x.cc:ns::f", Some("prog"), Some("src/x.cc"), "ns::f"),
            (" g::main::{closure#0} ", None, None, "g::main::{closure#0}"),
            ("x.cc:::f", None, None, "x.cc:::f"),
        ] {
            let found = named(text);
            assert_eq!((found.0.as_deref(), found.1.as_deref(), &*found.2), (module, file, name), "of {text}");
        }
        for text in ["libx.so+0x12ab", "libx.so!+0x12ab"] {
            let at = Pattern::parse(text).unwrap();
            assert_eq!((at.module(), at.name(), &at.what), (Some("libx.so"), None, &What::At(LinkAddr(0x12ab))));
        }
    }

    #[test]
    fn malformed() {
        for (text, said) in [
            ("", "read a function's name: it is empty"),
            (" \t", "read a function's name: it is empty"),
            ("!f", "read !f as functions: the module's name is empty"),
            ("x!", "read x! as functions: the function's name is empty"),
            (":f", "read :f as functions: the file's name is empty"),
            ("x.c:", "read x.c: as functions: the function's name is empty"),
            ("0x1234", "read 0x1234 as a function: an address needs its module, as in libx.so+0x1234"),
            ("x+0x12g", "read x+0x12g as the address of a function: hexadecimal digits are expected after +0x"),
            ("x+0x", "read x+0x as the address of a function: hexadecimal digits are expected after +0x"),
            (
                "x+0x11111111111111111",
                "read x+0x11111111111111111 as the address of a function: addresses have 64 bits at most",
            ),
            ("x.c:12", "read x.c:12 as functions: a line was given, and a function's name is expected, as in x.c:main"),
        ] {
            assert_eq!(Pattern::parse(text).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn modules() {
        for (module, path, is) in [
            ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6", true),
            ("libc.so", "/lib/x86_64-linux-gnu/libc.so.6", true),
            ("libc", "/lib/x86_64-linux-gnu/libc.so.6", true),
            ("libc", "/lib/libc-2.31.so", true),
            ("lib", "/lib/libc.so.6", false),
            ("libc.so", "/lib/libcap.so.2", false),
            ("libc", "/lib/libcap.so.2", false),
            ("libstdc++.so.6", "/lib/libstdc++.so.6.0.30", true),
            ("libstdc++.so.5", "/lib/libstdc++.so.6.0.30", false),
            ("libc*", "/lib/libcap.so.2", true),
            ("python3.11", "/usr/bin/python3.11", true),
            ("python3", "/usr/bin/python3.11", false),
            ("libpython3.11", "/usr/lib/libpython3.11.so.1.0", true),
            ("bin/python3.11", "/usr/bin/python3.11", true),
            ("in/python3.11", "/usr/bin/python3.11", false),
            ("/usr/bin/python3.11", "/usr/bin/python3.11", true),
            ("[vdso]", "[vdso]", true),
            ("some.sort", "/bin/some.sort", true),
        ] {
            let pattern = Pattern::parse(&format!("{module}!f")).unwrap();
            assert_eq!(pattern.is_of(Path::new(path)), is, "{module} {path}");
        }
        assert!(Pattern::parse("f").unwrap().is_of(Path::new("/any")));
    }
}
