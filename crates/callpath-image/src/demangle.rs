//! Linkers' names as people write them: C++ (Itanium), Rust (legacy and v0).

mod expressions;
mod itanium;
mod print;
mod tables;
mod tree;
mod types;

use std::borrow::Cow;
use std::fmt;

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};
use itanium::Parser;

/// A demangled name has at most so many bytes: substitutions let hostile names grow without limit.
const OUTPUT_LEN_LIMIT: usize = 1 << 15;
/// A longer name is not even tried.
const INPUT_LEN_LIMIT: usize = 1 << 14;
/// Levels of nesting, far above what compilers write, that fit into the stack of any thread.
const RECURSION_LIMIT: u32 = 96;

/// The name as its programmer would recognise it, in the words of `c++filt --no-verbose`, but numbers without their
/// type (`0` for `0ul`) and Rust's without the hash. What is not mangled, or not by rules known here, stays as it is.
pub fn demangle(name: &str) -> Cow<'_, str> {
    // Names in C cost this comparison and no more.
    if !name.starts_with("_Z") && !name.starts_with("_R") {
        return Cow::Borrowed(name);
    }
    // `@plt`, `@GLIBC_2.2.5`: no part of the mangled name.
    let at = name.find('@').unwrap_or(name.len());
    let Some((stem, suffix)) = name.split_at_checked(at).filter(|(stem, _)| stem.len() <= INPUT_LEN_LIMIT) else {
        return Cow::Borrowed(name);
    };
    let demangled =
        if stem.starts_with("_R") || is_rust_legacy(stem) { rust(stem) } else { thunk(stem).or_else(|| cpp(stem)) };
    demangled.map_or(Cow::Borrowed(name), |demangled| Cow::Owned(demangled + suffix))
}

/// What tells procedures apart that [`demangle`] gives one name: 0 where it keeps all that distinguishes. Rust's names
/// lose the hash by which instantiations, closures and versions of a crate differ. Clones of a procedure have its number.
pub fn identity(name: &str) -> u64 {
    let stem = name.split_once('@').map_or(name, |(stem, _)| stem);
    let is_legacy = is_rust_legacy(stem);
    if stem.len() > INPUT_LEN_LIMIT || !is_legacy && !stem.starts_with("_R") {
        return 0;
    }
    // `.llvm.123`, `.cold`: behind the hash, or behind a name that has no dots.
    let end = if is_legacy { stem.rfind("17h").and_then(|hash| stem.get(..hash + 20)) } else { stem.split('.').next() };
    let whole = || {
        let demangled = rustc_demangle::try_demangle(end?).ok()?;
        let mut output = Limited::default();
        fmt::write(&mut output, format_args!("{demangled}")).ok()?;
        Some(output.text)
    };
    whole().map_or(0, |text| xxhash_rust::xxh3::xxh3_64(text.as_bytes()).max(1))
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut output = Limited::default();
    fmt::write(&mut output, format_args!("{demangled:#}")).ok()?;
    Some(output.text)
}

/// The name of a Rust procedure in DWARF, more exact than its linker's name: legacy names number no closures and have
/// no type arguments. `names`: the procedure's in the source and those of what it is declared in, from inside out.
pub(crate) fn exact_rust<'a>(linkage_name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    const CLOSURE: &str = "{{closure}}";
    if !is_rust_legacy(linkage_name) {
        return None;
    }
    let mut name = rust(linkage_name)?;
    let mut names = names.peekable();
    let (base, arguments) = names.peek().and_then(|source| source.split_once('<')).unwrap_or_default();
    if !base.is_empty() && name.rsplit("::").next() == Some(base) {
        if name.len() + arguments.len() + 3 > OUTPUT_LEN_LIMIT {
            return None;
        }
        name = name + "::<" + arguments;
        return Some(name);
    }
    // Closures in closures: each has a number.
    let mut end = name.len();
    let closures = names.filter_map(|name| name.split('<').next().filter(|name| name.starts_with("{closure#")));
    for closure in closures {
        let Some(at) = name[..end].rfind(CLOSURE) else { break };
        name.replace_range(at..at + CLOSURE.len(), closure);
        end = at;
    }
    Some(name)
}

/// The name of a thunk: a few instructions that adjust `this` and jump to another procedure, `_ZTh16_N3fooE` to
/// `_ZN3fooE`. cpp_demangle shows its offsets more than the procedure.
fn thunk(name: &str) -> Option<String> {
    let (kind, rest) = name.strip_prefix("_ZT")?.split_at_checked(1)?;
    let (words, target) = match kind {
        "h" | "v" => {
            let words = if kind == "h" { "non-virtual thunk to " } else { "virtual thunk to " };
            (words, without_call_offset(kind, rest)?)
        }
        "c" => {
            let (this_kind, rest) = rest.split_at_checked(1)?;
            let (result_kind, rest) = without_call_offset(this_kind, rest)?.split_at_checked(1)?;
            ("covariant return thunk to ", without_call_offset(result_kind, rest)?)
        }
        _ => return None,
    };
    Some(words.to_string() + &cpp(&format!("_Z{target}"))?)
}

/// What follows after `16_` (kind h) or `n8_n24_` (kind v).
fn without_call_offset<'a>(kind: &str, rest: &'a str) -> Option<&'a str> {
    let numbers = match kind {
        "h" => 1,
        "v" => 2,
        _ => return None,
    };
    (0..numbers).try_fold(rest, |rest, _| {
        let (number, rest) = rest.split_once('_')?;
        let digits = number.strip_prefix('n').unwrap_or(number);
        (!digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())).then_some(rest)
    })
}

/// cpp_demangle leaves out parameters of constructors, packs and references; it knows some that we do not.
fn cpp(name: &str) -> Option<String> {
    own(name).or_else(|| others(name))
}

fn own(name: &str) -> Option<String> {
    let mut parser = Parser::new(name.strip_prefix("_Z")?, RECURSION_LIMIT);
    let (root, suffixes) = parser.mangled()?;
    let mut text = print::written(&parser.nodes, root, RECURSION_LIMIT)?;
    // `.isra.0.cold`: each word with the number behind it.
    let mut suffix = String::new();
    for part in suffixes.split('.').skip(1) {
        if !suffix.is_empty() && !part.bytes().all(|byte| byte.is_ascii_digit()) {
            text += &format!(" [clone {suffix}]");
            suffix.clear();
        }
        suffix = suffix + "." + part;
    }
    if !suffix.is_empty() {
        text += &format!(" [clone {suffix}]");
    }
    (suffixes.is_empty() || suffixes.starts_with('.')).then_some(text)
}

fn others(name: &str) -> Option<String> {
    let parsing = ParseOptions::default().recursion_limit(RECURSION_LIMIT);
    let (symbol, suffixes) = BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parsing).ok()?;
    let mut output = Limited::default();
    let options = DemangleOptions::new().recursion_limit(RECURSION_LIMIT).hide_expression_literal_types();
    symbol.structured_demangle(&mut output, &options).ok()?;
    // `.cold`, `.constprop.0`: cpp_demangle reads some of them itself, the rest is its tail.
    let suffixes = std::str::from_utf8(suffixes).ok()?;
    if !suffixes.is_empty() {
        if !suffixes.starts_with('.') {
            return None;
        }
        output.text.push_str(" [clone ");
        output.text.push_str(suffixes);
        output.text.push(']');
    }
    Some(output.text)
}

/// `_ZN`, path, `17h`, 16 hexadecimal digits, `E`, perhaps a suffix: no C++ name looks like this.
fn is_rust_legacy(name: &str) -> bool {
    let Some((_, hash)) = name.rsplit_once("17h") else { return false };
    let Some((digits, [b'E', suffix @ ..])) = hash.as_bytes().split_first_chunk::<16>() else { return false };
    digits.iter().all(u8::is_ascii_hexdigit) && matches!(suffix.first(), None | Some(b'.'))
}

/// Text that refuses to grow beyond the limit.
#[derive(Default)]
struct Limited {
    text: String,
}

impl fmt::Write for Limited {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > OUTPUT_LEN_LIMIT {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are from c++filt 2.40; of Rust's, from rustc's own mangling rules (RFC 2603).
    #[test]
    fn names() {
        for (mangled, expected) in [
            ("main", "main"),
            ("_start", "_start"),
            ("", ""),
            ("_Z", "_Z"),
            ("_Z3foov", "foo()"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            ("_ZNKSt6vectorIiSaIiEE4sizeEv", "std::vector<int, std::allocator<int> >::size() const"),
            ("_ZThn16_NSt9strstreamD1Ev", "non-virtual thunk to std::strstream::~strstream()"),
            ("_ZTv0_n24_NSt9strstreamD1Ev", "virtual thunk to std::strstream::~strstream()"),
            ("_ZTch0_h16_N1D1gEv", "covariant return thunk to D::g()"),
            ("_Z3foov@plt", "foo()@plt"),
            (
                "_ZSt14__relocate_a_1IiiENSt9enable_ifIXsrSt24__is_bitwise_relocatableIT_vE5valueEPS2_E4typeES4_S4_S4_RSaIT0_E",
                "std::enable_if<std::__is_bitwise_relocatable<int, void>::value, int*>::type \
                 std::__relocate_a_1<int, int>(int*, int*, int*, std::allocator<int>&)",
            ),
            ("_ZSt10_ConstructIhJEEvPT_DpOT0_", "void std::_Construct<unsigned char>(unsigned char*)"),
            ("_Z1fIJiRjEEvDpOT_", "void f<int, unsigned int&>(int&&, unsigned int&)"),
            ("_ZN1AC4IiEEPKcT_", "A::A<int>(char const*, int)"),
            ("_ZN1AcvT_IiEEv", "A::operator int<int>()"),
            ("_Z1fPFvvEM1AKFvvERA3_i", "f(void (*)(), void (A::*)() const, int (&) [3])"),
            ("_ZNKSs4findERKSsm", "std::string::find(std::string const&, unsigned long) const"),
            ("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()(int) const"),
            ("_ZN12_GLOBAL__N_11fENS_1AE", "(anonymous namespace)::f((anonymous namespace)::A)"),
            ("_Z3fooi.cold", "foo(int) [clone .cold]"),
            ("_Z3fooi.constprop.0", "foo(int) [clone .constprop.0]"),
            ("_Z3fooi.isra.0.cold", "foo(int) [clone .isra.0] [clone .cold]"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE.llvm.123", "core::fmt::Write::write_fmt"),
            (
                "_ZN66_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE",
                "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            ("_Rubbish", "_Rubbish"),
            ("_ZN3foo", "_ZN3foo"),
        ] {
            assert_eq!(demangle(mangled), expected, "of {mangled}");
        }
    }

    #[test]
    fn instantiations_have_numbers_of_their_own_and_clones_their_procedures() {
        let [one, other] = ["_ZN1g3sum17h31f6a829116dbe65E", "_ZN1g3sum17heaf311280d8496e3E"];
        assert_eq!(demangle(one), demangle(other));
        assert_ne!(identity(one), identity(other));
        assert_ne!(identity(one), 0);
        for clone in [".llvm.123", ".cold", ".cold.1", "@plt"] {
            assert_eq!(identity(&format!("{one}{clone}")), identity(one), "{clone}");
        }
        // Two versions of a crate; and one procedure that two crates have a copy of.
        assert_ne!(identity("_RNvCs1234_7mycrate3foo"), identity("_RNvCs1235_7mycrate3foo"));
        assert_eq!(identity("_RINvCs1234_7mycrate3foolCs1_1aE"), identity("_RINvCs1234_7mycrate3foolCs1_1aE.llvm.7"),);
        for exact in ["main", "_Z3foov", "_ZN3foo3barEi.cold", "_Rubbish", "_ZN3foo", ""] {
            assert_eq!(identity(exact), 0, "{exact}");
        }
    }

    #[test]
    fn dwarf_numbers_closures_and_names_type_arguments() {
        let closure = "_ZN1g4main28_$u7b$$u7b$closure$u7d$$u7d$28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE";
        let exact = |linkage_name, names: &[&'static str]| exact_rust(linkage_name, names.iter().copied());
        let expected = "g::main::{closure#2}::{closure#0}";
        assert_eq!(exact(closure, &["{closure#0}<u8>", "{closure#2}", "main", "g"]).as_deref(), Some(expected));
        let sum = "_ZN1g3sum17h31f6a829116dbe65E";
        assert_eq!(exact(sum, &["sum<f32>", "g"]).as_deref(), Some("g::sum::<f32>"));
        assert_eq!(exact(sum, &["sum", "g"]).as_deref(), Some("g::sum"));
        assert_eq!(exact(sum, &["other<f32>", "g"]).as_deref(), Some("g::sum"));
        assert_eq!(exact("_Z3foov", &["foo<int>"]), None);
    }

    /// The doubling name's text is 2^200 bytes long: it ends because the printer counts its steps and its output.
    #[test]
    fn hostile_names_end() {
        let deep_pointer = format!("_Z1f{}i", "P".repeat(10_000));
        let deep_template = format!("_Z1f{}{}", "1aI".repeat(4_000), "E".repeat(4_000));
        // Each argument is a function of twice the one before.
        let doubling =
            format!("_Z1fPFiiE{}", (0..200).map(|i| format!("PFS{0}_S{0}_E", radix_36(i))).collect::<String>());
        let rust_deep = format!("_R{}C1a", "Nv".repeat(8_000));
        for name in [&deep_pointer, &deep_template, &doubling, &rust_deep, &"_Z".repeat(5_000), &"_ZN".repeat(5_000)] {
            assert!(demangle(name).len() <= OUTPUT_LEN_LIMIT.max(name.len()));
            let Some(rest) = name.strip_prefix("_Z") else { continue };
            let mut parser = Parser::new(rest, RECURSION_LIMIT);
            parser.mangled();
            assert!(parser.nodes.len() <= name.len(), "{name:.30}: {} parts", parser.nodes.len());
        }
    }

    fn radix_36(number: u32) -> String {
        let digits = [number / 36, number % 36].map(|digit| char::from_digit(digit, 36).unwrap().to_ascii_uppercase());
        digits.into_iter().collect()
    }
}
