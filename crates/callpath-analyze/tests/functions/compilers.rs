//! What compilers and linkers make of functions: copies, clones, parts, aliases.

use callpath_analyze::functions::Function;
use callpath_format::address::LinkAddr;

use crate::tried::{addrs_of, entries, library, names, patterns, read, run, select};

const INLINED: &str = "extern void take(int (*)(int));\n\
    static inline int twice(int a) {\n  return a * 2 + (a ^ 5);\n}\n\
    int first(int a) { return twice(a) + 1; }\n\
    int second(int a) {\n  int b = twice(a);\n  return b + twice(b * 3);\n}\n\
    static inline __attribute__((always_inline)) int around(int a) { return twice(a) - 4; }\n\
    int third(int a) { return around(a); }\n\
    void given(void) { take(twice); }\n";

#[test]
fn inlined_copies_are_counted_beside_the_function_itself() {
    let dir = tempfile::tempdir().unwrap();
    let module = library(dir.path(), "gcc", &["-O2", "-g"], &[("inlined.c", INLINED)]);
    let functions = read(&module);
    assert!(functions.has_scopes());
    let chosen = select(&functions, "twice");
    assert_eq!(entries(&chosen), addrs_of(&module, "twice"));
    assert_eq!(chosen.chosen.len(), 1);
    for text in ["twice", "tw*", "inlined.c:twice"] {
        let inlined = functions.inlined(&patterns(&["no_such", text]));
        let [of_twice] = &inlined[..] else { panic!("{text}: {inlined:?}") };
        assert_eq!((of_twice.pattern, &*of_twice.name), (1, "twice"));
        assert_eq!(of_twice.place.as_ref().unwrap().line, 2);
        let mut places: Vec<(&str, u32)> =
            of_twice.copies.iter().map(|copy| (&*copy.caller, copy.call.as_ref().unwrap().line)).collect();
        places.sort_unstable();
        assert_eq!(places, [("around", 10), ("first", 5), ("second", 7), ("second", 8)]);
        let first = addrs_of(&module, "first")[0];
        assert!(of_twice.copies.iter().any(|copy| (first.0..first.0 + 16).contains(&copy.address.0)), "{inlined:?}");
    }
    // One that has no code of its own is no function, and is said.
    assert_eq!(select(&functions, "around").unmatched, [0]);
    assert_eq!(functions.inlined(&patterns(&["around"]))[0].copies.len(), 1);
    assert!(functions.inlined(&patterns(&["other.c:twice", "libother!twice", "libtried.so.1+0x1000"])).is_empty());
    assert_eq!(functions.diagnostics().len(), 0);
    let without = library(dir.path(), "gcc", &["-O2"], &[("inlined.c", INLINED)]);
    let without = read(&without);
    assert!(!without.has_scopes() && without.inlined(&patterns(&["twice"])).is_empty());
}

#[test]
fn clones_and_parts_belong_to_their_function() {
    let source = "__attribute__((cold)) extern int seldom(int);\n\
        extern int other(int);\n\
        __attribute__((noinline)) static int scaled(int a, int b) {\n  int s = 0;\n\
          for (int i = 0; i < a; i++) s += other(i * b);\n  return s;\n}\n\
        int by_seven(int a) { return scaled(a, 7) + scaled(a + 1, 7); }\n\
        int checked(int a) {\n  if (__builtin_expect(a < 0, 0)) return seldom(a) + other(3);\n\
          return other(a) + 1;\n}\n";
    let dir = tempfile::tempdir().unwrap();
    let module = library(dir.path(), "gcc", &["-O2"], &[("clones.c", source)]);
    let functions = read(&module);
    let clone = addrs_of(&module, "scaled.constprop.0");
    assert_eq!(clone.len(), 1, "gcc makes no clone of it");
    for text in ["scaled", "scaled.constprop.0", "sca*"] {
        let found = select(&functions, text);
        assert_eq!((entries(&found), names(&found)), (clone.clone(), vec!["scaled.constprop.0"]), "{text}");
    }
    let (whole, cold) = (addrs_of(&module, "checked"), addrs_of(&module, "checked.cold"));
    assert_eq!(cold.len(), 1, "gcc makes no cold part of it");
    for text in ["checked", "checked.cold", "check*"] {
        assert_eq!(entries(&select(&functions, text)), whole, "{text}");
    }
    let at = |addr: LinkAddr| select(&functions, &format!("libtried.so.1+{addr:#x}"));
    for addr in [cold[0], LinkAddr(whole[0].0 + 1)] {
        let found = at(addr);
        let [not_entry] = &found.not_entries[..] else { panic!("{addr:?}: {found:?}") };
        assert_eq!((not_entry.entry, found.chosen.len(), found.unmatched.len()), (Some(whole[0]), 0, 0));
        let within = if addr == cold[0] { "checked.cold" } else { "checked" };
        assert_eq!(
            not_entry.describe(&module).to_string(),
            format!(
                "libtried.so.1+{addr:#x} is not where a procedure begins: it lies in {within}; \
                 name that by libtried.so.1+{:#x}",
                whole[0]
            )
        );
    }
    // The same where nothing but call frame information is left of the part.
    let stripped = module.with_file_name("stripped.so");
    run("strip", &[module.to_str().unwrap(), "-o", stripped.to_str().unwrap()]);
    let found = select(&read(&stripped), &format!("stripped.so+{:#x}", cold[0]));
    let [not_entry] = &found.not_entries[..] else { panic!("{found:?}") };
    assert_eq!((not_entry.within.as_deref(), not_entry.entry), (Some("checked"), Some(whole[0])));
    let nowhere = at(LinkAddr(3));
    assert!(
        nowhere.not_entries[0].describe(&module).to_string().ends_with("no procedure of libtried.so.1 is known there")
    );
}

#[test]
fn aliases_and_versions() {
    let source = "__attribute__((noinline)) int new_one(int a) { return a + 1; }\n\
        __attribute__((noinline)) int old_one(int a) { return a + 2; }\n\
        int also(int a) __attribute__((alias(\"old_one\")));\n\
        __asm__(\".symver new_one, one@@V_2\");\n__asm__(\".symver old_one, one@V_1\");\n";
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("versions");
    std::fs::write(&script, "V_1 { };\nV_2 { global: also; } V_1;\n").unwrap();
    let option = format!("-Wl,--version-script={}", script.display());
    let module = library(dir.path(), "gcc", &["-O1", &option], &[("versions.c", source)]);
    let functions = read(&module);
    let (new, old) = (addrs_of(&module, "new_one")[0], addrs_of(&module, "old_one")[0]);
    let mut both = [new, old];
    both.sort_unstable();
    for (text, expected) in [
        ("one", &both[..]),
        ("one@V_1", &[old]),
        ("one@V_2", &[new]),
        ("one@@V_2", &[new]),
        ("also", &[old]),
        ("old_one", &[old]),
        ("one@V_3", &[]),
    ] {
        assert_eq!(entries(&select(&functions, text)), expected, "{text}");
    }
}

#[test]
fn functions_that_choose_others_are_listed_apart() {
    let source = "static int picked_fast(int a) { return a + 1; }\n\
        static int picked_slow(int a) { return a + 2; }\n\
        static int (*resolve(void))(int) { return __builtin_cpu_supports(\"avx2\") ? picked_fast : picked_slow; }\n\
        int picked(int) __attribute__((ifunc(\"resolve\")));\n\
        static int picked_more_fast(int a) { return a + 3; }\n\
        static int (*resolve_more(void))(int) { return picked_more_fast; }\n\
        int picked_more(int) __attribute__((ifunc(\"resolve_more\")));\n\
        __attribute__((target_clones(\"avx2\", \"default\"))) int sum(int *a) {\n  int s = 0;\n\
          for (int i = 0; i < 64; i++) s += a[i];\n  return s;\n}\n";
    let dir = tempfile::tempdir().unwrap();
    let module = library(dir.path(), "gcc", &["-O1"], &[("ifunc.c", source)]);
    let functions = read(&module);
    for (text, name, implementations) in
        [("picked", "picked", ["picked_fast", "picked_slow"]), ("resolve", "picked", ["picked_fast", "picked_slow"])]
    {
        let found = select(&functions, text);
        let [ifunc] = &found.ifuncs[..] else { panic!("{text}: {found:?}") };
        assert_eq!((&*ifunc.resolver.name, ifunc.resolver.entry), (name, addrs_of(&module, "picked")[0]));
        let mut named: Vec<&str> = ifunc.implementations.iter().map(|function| &*function.name).collect();
        named.sort_unstable();
        assert_eq!(named, implementations);
        assert_eq!((found.chosen.len(), found.unmatched.len()), (0, 0), "{text}");
    }
    let sum = select(&functions, "sum");
    assert_eq!(sum.ifuncs.len(), 1, "{sum:?}");
    let clones = ["sum.avx2", "sum.default"].map(|begin| {
        let of = |function: &&Function| function.name.starts_with(begin);
        assert!(sum.ifuncs[0].implementations.iter().any(|function| of(&function)), "{begin} {sum:?}");
        sum.chosen.iter().filter(of).count()
    });
    // They have the name, too.
    assert_eq!(clones, [1, 1], "{sum:?}");
}
