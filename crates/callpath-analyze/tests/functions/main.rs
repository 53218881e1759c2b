//! Which functions of compiled programs patterns name.

mod compilers;
mod languages;
mod tried;

use std::path::Path;

use callpath_analyze::functions::{Functions, Pattern, closest, unknown};
use callpath_format::address::LinkAddr;

use crate::tried::{addrs_of, check_addresses, entries, library, names, patterns, read, run, select};

const ONE: &str = "__attribute__((noinline)) static int hidden(int a) { return a * 3 + 7; }\n\
                   int shown_one(int a) { return hidden(a) + 1; }\n";
const TWO: &str = "\n\n__attribute__((noinline)) static int hidden(int a) { return a * 5 + 9; }\n\
                   int shown_two(int a) { return hidden(a) + 1; }\n";

#[test]
fn static_functions_of_one_name_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    for (options, marks) in [(&["-O1", "-g"], ["one.c:1", "two.c:3"]), (&["-O1", "-g0"], ["one.c", "two.c"])] {
        let module = library(dir.path(), "gcc", options, &[("a/one.c", ONE), ("b/two.c", TWO)]);
        let functions = read(&module);
        let both = select(&functions, "hidden");
        let expected = addrs_of(&module, "hidden");
        assert_eq!((entries(&both), expected.len()), (expected.clone(), 2));
        let found: Vec<&str> = both.chosen.iter().map(|one| one.distinguishing.as_deref().unwrap()).collect();
        assert_eq!(found, marks);
        assert!(both.chosen.iter().all(|function| !function.is_exported));
        assert_eq!(entries(&select(&functions, "one.c:hidden")), expected[..1]);
        assert_eq!(entries(&select(&functions, "libtried!two.c:hid*")), expected[1..]);
        assert_eq!(select(&functions, "three.c:hidden").unmatched, [0]);
        // Only DWARF knows directories, and files of global functions.
        let is_known = options.contains(&"-g");
        assert_eq!(entries(&select(&functions, "b/two.c:hidden")), expected[if is_known { 1 } else { 2 }..]);
        assert_eq!(entries(&select(&functions, "two.c:shown_two")).len(), usize::from(is_known));
        check_addresses(&functions, &select(&functions, "*").chosen);
    }
    // In files of one name, the directories tell them apart.
    let module = library(dir.path(), "gcc", &["-O1", "-g"], &[("a/same.c", ONE), ("b/same.c", &TWO[2..])]);
    let found = select(&read(&module), "hidden");
    let marks: Vec<&str> = found.chosen.iter().map(|one| one.distinguishing.as_deref().unwrap()).collect();
    assert!(
        matches!(marks[..], [one, other] if one.ends_with("/a/same.c:1") && other.ends_with("/b/same.c:1")),
        "{marks:?}"
    );
}

#[test]
fn several_patterns() {
    let dir = tempfile::tempdir().unwrap();
    let module = library(dir.path(), "gcc", &["-O1"], &[("one.c", ONE)]);
    let functions = read(&module);
    let found = functions.select(&patterns(&["no_such", "shown_one", "*", "libother!shown_one"]));
    assert_eq!(found.unmatched, [0, 3]);
    let shown = found.chosen.iter().find(|function| function.name == "shown_one").unwrap();
    assert_eq!((shown.pattern, shown.is_exported), (1, true));
    assert!(found.chosen.iter().any(|function| function.name == "hidden" && function.pattern == 2));
    assert!(found.chosen.is_sorted_by_key(|function| function.entry));
    // Imports and stubs of the linkage table are no functions of the module.
    assert!(!names(&found).iter().any(|name| name.contains("__cxa_finalize") || name.contains("@plt")), "{found:?}");
}

#[test]
fn a_stripped_library_has_its_exports_alone() {
    let dir = tempfile::tempdir().unwrap();
    let module = library(dir.path(), "gcc", &["-O1"], &[("one.c", ONE)]);
    let hidden = addrs_of(&module, "hidden")[0];
    run("strip", &[module.to_str().unwrap()]);
    let functions = read(&module);
    assert!(functions.is_stripped());
    assert_eq!(names(&select(&functions, "*")), ["shown_one"]);
    let pattern = Pattern::parse("hidden").unwrap();
    assert_eq!(functions.select(std::slice::from_ref(&pattern)).unmatched, [0]);
    assert_eq!(
        unknown(&pattern, &[&functions]),
        "hidden: no function of libtried.so.1 has this name; libtried.so.1 is stripped: \
         name its other procedures by address, as in libtried.so.1+0x1234"
    );
    let text = functions.address_text(hidden);
    let found = select(&functions, &text);
    let [function] = &found.chosen[..] else { panic!("{found:?}") };
    assert_eq!((function.entry, &function.name, &*function.raw_name), (hidden, &text, ""));
    assert!(function.size_bytes > 0);
    let inside = select(&functions, &functions.address_text(LinkAddr(hidden.0 + 1)));
    assert_eq!(inside.not_entries[0].entry, Some(hidden));
    check_addresses(&functions, &found.chosen);
    assert_eq!(
        unknown(&Pattern::parse("shown_oen").unwrap(), &[&functions]),
        "shown_oen: no function of libtried.so.1 has this name; similar names: shown_one; libtried.so.1 is stripped: \
         name its other procedures by address, as in libtried.so.1+0x1234"
    );
    let other = Pattern::parse("libtired!shown_one").unwrap();
    assert_eq!(
        unknown(&other, &[&functions]),
        "libtired!shown_one: no module was seen that is called libtired; similar names: libtried.so.1!shown_one"
    );
    let far = Pattern::parse("elsewhere!shown_one").unwrap();
    assert_eq!(unknown(&far, &[&functions]), "elsewhere!shown_one: no module was seen that is called elsewhere");
    assert_eq!(closest(&Pattern::parse("libtired.so.1!f").unwrap(), &[&functions]), ["libtried.so.1!f"]);
}

/// Whatever is typed: an answer, or what is wrong with it.
#[test]
fn any_text() {
    let dir = tempfile::tempdir().unwrap();
    let module = library(dir.path(), "gcc", &["-O1", "-g"], &[("one.c", ONE)]);
    let functions = read(&module);
    let pieces = [
        "hidden",
        "one.c",
        "lib",
        "!",
        ":",
        "::",
        "+0x",
        "1",
        "*",
        "?",
        "<",
        ">",
        "(",
        ")",
        "{closure#",
        "}",
        "@",
        ".",
        " ",
        "é",
        "operator",
        "/",
        ".cold",
        "_Z",
        "17h",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let mut parsed = 0;
    for _ in 0..5_000 {
        let text: String = (0..random.usize(0..7)).map(|_| pieces[random.usize(0..pieces.len())]).collect();
        let Ok(pattern) = Pattern::parse(&text) else { continue };
        parsed += 1;
        let found = functions.select(std::slice::from_ref(&pattern));
        let is_nothing = found.chosen.is_empty() && found.ifuncs.is_empty() && found.not_entries.is_empty();
        assert_eq!(is_nothing, found.unmatched == [0], "{text}: {found:?}");
        if is_nothing {
            assert!(unknown(&pattern, &[&functions]).starts_with(text.trim()), "{text}");
        }
        functions.inlined(&[pattern]);
    }
    assert!(parsed > 1_000, "{parsed}");
}

/// Stripped and with debug files, large and small.
#[test]
fn modules_of_the_system() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let candidates =
        ["/usr/bin/python3.11", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/bin/perl", "/usr/bin/git"];
    let there = candidates.iter().map(Path::new).filter(|path| path.exists());
    for path in there.chain([libc]) {
        let functions = Functions::read(path, &["/usr/lib/debug".into()]).unwrap();
        let all = select(&functions, "*");
        let of_module = select(&functions, &format!("{}!*", path.file_name().unwrap().to_str().unwrap()));
        assert_eq!(all, of_module);
        assert!(!all.chosen.is_empty() && all.unmatched.is_empty(), "{}", path.display());
        assert_eq!(all.chosen.len() + all.ifuncs.len(), functions.names().count());
        check_addresses(&functions, &all.chosen);
        // Names together with what distinguishes them are distinct.
        let mut marked: Vec<_> = all.chosen.iter().map(|one| (&one.name, &one.distinguishing)).collect();
        marked.sort_unstable();
        let count = marked.len();
        marked.dedup();
        assert_eq!(marked.len(), count, "{}", path.display());
        // Each is found by its linker's name.
        for function in all.chosen.iter().step_by(97) {
            assert!(entries(&select(&functions, &function.raw_name)).contains(&function.entry), "{function:?}");
        }
    }
    let memcpy = select(&Functions::read(libc, &[]).unwrap(), "memcpy");
    assert_eq!((memcpy.chosen.len(), memcpy.ifuncs.len()), (1, 1));
    assert_eq!(memcpy.chosen[0].distinguishing.as_deref(), Some("memcpy@GLIBC_2.2.5"));
    assert_eq!(memcpy.ifuncs[0].resolver.distinguishing.as_deref(), Some("memcpy@@GLIBC_2.14"));
}
