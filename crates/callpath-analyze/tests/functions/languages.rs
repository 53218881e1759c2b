//! Functions of C++ and Rust.

use std::process::Command;

use callpath_analyze::functions::{Pattern, closest};

use crate::tried::{check_addresses, entries, library, names, read, run, select};

#[test]
fn overloads_templates_and_anonymous_namespaces() {
    let source = "namespace ns {\n\
        __attribute__((noinline)) int f(int a) { return a + 1; }\n\
        __attribute__((noinline)) int f(long a) { return a + 2; }\n\
        template <class T> __attribute__((noinline)) int g(T a) { return a + 3; }\n\
        namespace { __attribute__((noinline, used)) int h(int a) { return a + 4; } }\n\
        }\n\
        struct A { virtual ~A(); bool operator!=(A const&) const; };\n\
        A::~A() {}\n\
        bool A::operator!=(A const&) const { return true; }\n\
        int all(int a) { return ns::f(a) + ns::f(long(a)) + ns::g(a) + ns::g(short(a)) + ns::h(a); }\n";
    let dir = tempfile::tempdir().unwrap();
    let module = library(dir.path(), "g++", &["-O1", "-g"], &[("all.cc", source)]);
    let functions = read(&module);
    for (text, expected) in [
        ("ns::f", &["ns::f(int)", "ns::f(long)"][..]),
        ("ns::f(long)", &["ns::f(long)"]),
        ("_ZN2ns1fEi", &["ns::f(int)"]),
        ("ns::g", &["int ns::g<int>(int)", "int ns::g<short>(short)"]),
        ("ns::g<short>", &["int ns::g<short>(short)"]),
        ("ns::h", &["ns::(anonymous namespace)::h(int)"]),
        ("ns::(anonymous namespace)::h", &["ns::(anonymous namespace)::h(int)"]),
        ("A::operator!=", &["A::operator!=(A const&) const"]),
        ("libtried!A::operator!=", &["A::operator!=(A const&) const"]),
        (
            "ns::?",
            &[
                "int ns::g<int>(int)",
                "int ns::g<short>(short)",
                "ns::(anonymous namespace)::h(int)",
                "ns::f(int)",
                "ns::f(long)",
            ],
        ),
        ("ns::f*", &["ns::f(int)", "ns::f(long)"]),
        ("all.cc:all", &["all(int)"]),
        ("f", &[]),
    ] {
        assert_eq!(names(&select(&functions, text)), expected, "{text}");
    }
    // Two destructors, one of which frees the object: the linker's names tell them apart.
    let destructors = select(&functions, "A::~A");
    let marks: Vec<&str> = destructors.chosen.iter().filter_map(|one| one.distinguishing.as_deref()).collect();
    assert_eq!(marks.len(), 2, "{destructors:?}");
    assert!(marks.contains(&"_ZN1AD0Ev"), "{marks:?}");
    check_addresses(&functions, &select(&functions, "*").chosen);
    let near = closest(&Pattern::parse("libtried!ns::gg").unwrap(), &[&functions]);
    assert!(near[0].starts_with("libtried!int ns::g<"), "{near:?}");
}

#[test]
fn rust_functions() {
    let source = "#[inline(never)] pub fn sum<T: Copy + Into<f64>>(a: T) -> f64 { a.into() * 2.0 }\n\
        #[no_mangle] pub fn both(a: f32, b: u32) -> f64 { sum(a) + sum(b) }\n\
        #[inline(never)] pub fn each(f: &dyn Fn(u32) -> u32) -> u32 { f(3) + f(4) }\n\
        #[no_mangle] pub fn closures(n: u32) -> u32 { each(&|a| a * n + 1) ^ each(&|a| a / (n | 1)) }\n";
    let dir = tempfile::tempdir().unwrap();
    let (path, module) = (dir.path().join("g.rs"), dir.path().join("libg.so"));
    std::fs::write(&path, source).unwrap();
    let (path, output) = (path.to_str().unwrap(), module.to_str().unwrap());
    for mangling in ["legacy", "v0"] {
        let mangling_option = format!("-Csymbol-mangling-version={mangling}");
        let options = ["--edition=2021", "--crate-type=dylib", "-Cprefer-dynamic", "-g", "-Copt-level=1"];
        let mut compiler = Command::new("rustc");
        // Stable compilers refuse an option for the older rules, even where these are their default.
        compiler.args(options).args(["-Zunstable-options", &mangling_option, path, "-o", output]);
        assert!(compiler.env("RUSTC_BOOTSTRAP", "1").status().unwrap().success());
        let functions = read(&module);
        let both = select(&functions, "g::sum");
        assert_eq!(names(&both), ["g::sum::<f32>", "g::sum::<u32>"], "{mangling}");
        assert_eq!(names(&select(&functions, "g::sum::<f32>")), ["g::sum::<f32>"], "{mangling}");
        assert_eq!(names(&select(&functions, "g::closures::{closure#1}")), ["g::closures::{closure#1}"], "{mangling}");
        let in_file = select(&functions, "g.rs:g::sum");
        assert_eq!(entries(&in_file), entries(&both), "{mangling}");
        assert!(
            in_file.chosen.iter().all(|one| one.place.as_ref().is_some_and(|place| place.line == 1)),
            "{in_file:?}"
        );
        assert_eq!(names(&select(&functions, "g.rs:closures")), ["closures"], "{mangling}");
        check_addresses(&functions, &both.chosen);
        let raw = &both.chosen[0].raw_name;
        assert_eq!(entries(&select(&functions, raw)), [both.chosen[0].entry], "{mangling}");
        // Without DWARF, the linker's names alone tell them apart.
        run("strip", &["--strip-debug", output]);
        let functions = read(&module);
        let stripped = select(&functions, "g::sum");
        assert_eq!(entries(&stripped), entries(&both), "{mangling}");
        match mangling {
            "legacy" => {
                assert_eq!(names(&stripped), ["g::sum", "g::sum"]);
                let marks: Vec<_> = stripped.chosen.iter().map(|one| one.distinguishing.clone().unwrap()).collect();
                assert!(marks.iter().all(|mark| mark.starts_with("_ZN1g3sum17h")) && marks[0] != marks[1], "{marks:?}");
            }
            _ => assert_eq!(names(&select(&functions, "g::sum::<f32>")), ["g::sum::<f32>"]),
        }
    }
}
