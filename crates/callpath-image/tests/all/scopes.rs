//! Chains of inlined calls, compared with llvm-symbolizer's and addr2line's for every form of debug information that
//! compilers here write; and the procedures' hierarchy, compared with what a person reads in the source.

use crate::chains;
use crate::tools;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::debug_file::DebugFiles;
use callpath_image::elf::Image;
use callpath_image::lines::Lines;
use callpath_image::scopes::{ContainerKind, Origin, ScopeKind, Scopes, UnitScopes};
use chains::{Frame, Read, Said, Symbols, Tool, ask, difference, random_addrs};
use tools::{compile, installed, objcopy, run, source};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Compares the chains at random addresses of `program`, whose debug information is found as always; gives how many
/// frames are inlined.
fn compare(tool: Tool, program: &Path, count: usize) -> usize {
    let image = Image::read(program).unwrap();
    let addrs = random_addrs(&image.instruction_ranges(), count, SEED);
    let found = DebugFiles::find(&image, &["/usr/lib/debug".into()]);
    assert!(found.diagnostics.is_empty(), "{:?}", found.diagnostics);
    let described = found.debug_file.unwrap_or(image);
    let path = described.origin().to_path_buf();
    let mut read = Read::new(Arc::new(described), found.supplement.map(Arc::new), Some(program));
    let symbols = Symbols::read(&path);
    let mut inlined = 0;
    for (addr, theirs) in addrs.iter().zip(ask(tool, &path, &addrs)) {
        let ours = read.chain(*addr);
        if let Some(what) = difference(&ours, &Said { tool, addr: *addr, chain: &theirs }, &symbols) {
            panic!("{what} at {addr:#x} of {}: {ours:#?}\n{tool:?} says: {theirs:#?}", path.display());
        }
        inlined += ours.len().saturating_sub(1);
    }
    assert_eq!(read.diagnostics(), Vec::<String>::new(), "{}", path.display());
    inlined
}

/// All chains of `program` at every byte that `whole` has code at.
fn all_chains(program: &Path, whole: &Image) -> Vec<Vec<Frame>> {
    let image = Image::read(program).unwrap();
    let found = DebugFiles::find(&image, &[]);
    let mut read =
        Read::new(Arc::new(found.debug_file.unwrap_or(image)), found.supplement.map(Arc::new), Some(program));
    let text = whole.section(".text").unwrap();
    let chains = (text.addr.0..text.addr.0 + text.data.len() as u64).map(|addr| read.chain(addr)).collect();
    assert_eq!(read.diagnostics(), Vec::<String>::new(), "{}", program.display());
    chains
}

/// Whether a tool can be used. If one that `cargo xtask test` installs is missing, the test counts as skipped.
fn is_there(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    let skipped = std::env::var_os("CALLPATH_SKIPPED_TESTS").filter(|_| tool != "clang++");
    if !there {
        eprintln!("SKIPPED: {tool} is not installed");
    }
    if let Some(skipped) = skipped.filter(|_| !there) {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(skipped);
        writeln!(file.unwrap(), "scopes with {tool}: it is not installed").unwrap();
    }
    there
}

#[test]
fn chains_of_gcc_are_as_both_tools_say() {
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("dwarf5", &["-g", "-O2", "-gdwarf-5"][..]),
        ("dwarf4", &["-g", "-O2", "-gdwarf-4"]),
        ("dwarf2", &["-g", "-O2", "-gdwarf-2", "-gz=zlib-gnu"]),
        ("types", &["-g", "-O2", "-fdebug-types-section", "-gz=zlib"]),
        ("least", &["-g1", "-O3", "-no-pie", "-ffunction-sections", "-Wl,--gc-sections"]),
    ] {
        let program = compile(dir.path(), "shapes.cc", name, flags);
        assert!(compare(Tool::Symbolizer, &program, 2000) > 2000, "{name}");
        // addr2line 2.40 finds no inlined calls where types have units of their own.
        if name != "types" {
            assert!(compare(Tool::Addr2line, &program, 500) > 500, "{name}");
        }
    }
    let program = compile(dir.path(), "small.c", "c", &["-g", "-O2", "-gdwarf-3"]);
    compare(Tool::Symbolizer, &program, 500);
    compare(Tool::Addr2line, &program, 500);
}

/// Units refer to entries of others. addr2line calls the files of such code "<artificial>".
#[test]
fn chains_through_link_time_optimization() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "shapes.cc", "lto", &["-g", "-O2", "-flto"]);
    assert!(compare(Tool::Symbolizer, &program, 2000) > 2000);
}

#[test]
fn chains_of_other_compilers() {
    let dir = tempfile::tempdir().unwrap();
    let build = |compiler: &str, source_name: &str, args: &[&str]| {
        let (output, source) = (dir.path().join(source_name.replace('.', "-")), source(source_name));
        run(compiler, &[args, &[source.to_str().unwrap(), "-o", output.to_str().unwrap()]].concat());
        output
    };
    let rust = build("rustc", "sums.rs", &["-g", "-O"]);
    assert!(compare(Tool::Symbolizer, &rust, 5000) > 5000);
    compare(Tool::Addr2line, &rust, 500);
    if is_there("gfortran") {
        let fortran = build("gfortran", "nested.f90", &["-g", "-O2", "-J", dir.path().to_str().unwrap()]);
        assert!(compare(Tool::Symbolizer, &fortran, 3000) > 100);
        compare(Tool::Addr2line, &fortran, 1000);
    }
    if is_there("clang++") {
        for flags in [&["-g", "-O2"][..], &["-g", "-O2", "-gdwarf-4"], &["-gmlt", "-O2"]] {
            assert!(compare(Tool::Symbolizer, &build("clang++", "shapes.cc", flags), 2000) > 2000, "{flags:?}");
        }
    }
}

/// Compiles `shapes.cc` into a program with its entries in a `.dwo`.
fn split_program(dir: &Path, compiler: &str, version: &str) -> PathBuf {
    let (object, program) = (dir.join("split.o"), dir.join("split"));
    let (source, object) = (source("shapes.cc"), object.to_str().unwrap().to_string());
    run(compiler, &["-g", "-O2", version, "-gsplit-dwarf", "-c", source.to_str().unwrap(), "-o", &object]);
    run(compiler, &[&object, "-o", program.to_str().unwrap()]);
    program
}

#[test]
fn split_entries_are_found_beside_the_program_and_in_packages() {
    for compiler in ["g++", "clang++"].into_iter().filter(|compiler| is_there(compiler)) {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let dir = tempfile::tempdir().unwrap();
            let program = split_program(dir.path(), compiler, version);
            assert!(compare(Tool::Symbolizer, &program, 1000) > 1000, "{compiler} {version}");
            let whole = Image::read(&program).unwrap();
            let expected = all_chains(&program, &whole);
            let package = dir.path().join("split.dwp");
            run("llvm-dwp", &["-e", program.to_str().unwrap(), "-o", package.to_str().unwrap()]);
            std::fs::remove_file(dir.path().join("split.dwo")).unwrap();
            assert_eq!(all_chains(&program, &whole), expected, "{compiler} {version}");
        }
    }
}

#[test]
fn a_split_file_of_another_build_or_none_leaves_the_lines() {
    let dir = tempfile::tempdir().unwrap();
    let program = split_program(dir.path(), "g++", "-gdwarf-5");
    let (dwo, other) = (dir.path().join("split.dwo"), tempfile::tempdir().unwrap());
    split_program(other.path(), "g++", "-gdwarf-5");
    std::fs::write(&dwo, std::fs::read(other.path().join("split.dwo")).unwrap()).unwrap();
    let diagnostic = |expected: &str| {
        let scopes = Scopes::new(Arc::new(Image::read(&program).unwrap()), None, None);
        let unit = scopes.read(scopes.units().next().unwrap()).unwrap();
        let [diagnostic] = unit.diagnostics() else { panic!("{:?}", unit.diagnostics()) };
        assert!(diagnostic.to_string().contains(expected), "{diagnostic}");
        assert_eq!(unit.scopes().count(), 0);
        assert!(unit.lines(LinkAddr(0)..LinkAddr(u64::MAX)).count() > 20);
    };
    // The number is computed from the sources' and options' names and from the
    // content, so that a longer main makes another.
    let bytes = std::fs::read(&dwo).unwrap();
    if bytes == std::fs::read(other.path().join("split.dwo")).unwrap() {
        let (object, source) = (other.path().join("split.o"), source("small.c"));
        run("gcc", &["-g", "-gsplit-dwarf", "-c", source.to_str().unwrap(), "-o", object.to_str().unwrap()]);
        std::fs::copy(other.path().join("split.dwo"), &dwo).unwrap();
    }
    diagnostic("another build");
    std::fs::remove_file(&dwo).unwrap();
    diagnostic("split.dwo is not there");
}

#[test]
fn shared_and_moved_debug_information() {
    let dir = tempfile::tempdir().unwrap();
    let whole = compile(dir.path(), "shapes.cc", "whole", &["-g", "-O2", "-Wl,--build-id"]);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let expected = all_chains(&whole, &Image::read(&whole).unwrap());
    assert!(expected.iter().map(|chain| chain.len()).max() > Some(5));
    let same = |name: &str| {
        let image = Image::read(&whole).unwrap();
        assert!(all_chains(Path::new(&path(name)), &image) == expected, "{name} differs");
    };
    objcopy(&["--only-keep-debug", &path("whole"), &path("moved.debug")]);
    objcopy(&["--strip-all", &format!("--add-gnu-debuglink={}", path("moved.debug")), &path("whole"), &path("moved")]);
    same("moved");
    objcopy(&["--compress-debug-sections=zstd", &path("whole"), &path("zstd")]);
    same("zstd");
    if !is_there("dwz") {
        return;
    }
    run("dwz", &[&path("whole"), "-o", &path("alone")]);
    same("alone");
    for name in ["one", "two"] {
        std::fs::copy(&whole, path(name)).unwrap();
    }
    run("dwz", &["-m", &path("common"), &path("one"), &path("two")]);
    same("two");
}

#[test]
fn chains_of_the_c_library() {
    for path in installed(&["/lib/x86_64-linux-gnu/libc.so.6"]) {
        let found = DebugFiles::find(&Image::read(&path).unwrap(), &["/usr/lib/debug".into()]);
        if found.debug_file.is_none() {
            eprintln!("SKIPPED: libc6-dbg is not installed");
            return;
        }
        assert!(compare(Tool::Symbolizer, &path, 3000) > 300);
    }
}

fn only_unit(program: &Path, source_name: &str) -> UnitScopes {
    let scopes = Scopes::new(Arc::new(Image::read(program).unwrap()), None, None);
    let mut units = scopes.units().map(|unit| scopes.read(unit).unwrap());
    let unit = units.find(|unit| {
        let mut lines = unit.lines(LinkAddr(0)..LinkAddr(u64::MAX));
        lines.any(|line| line.file.and_then(|file| unit.file(file)).is_some_and(|file| file.ends_with(source_name)))
    });
    unit.expect("a unit with that file")
}

/// The lines are those of shapes.cc.
#[test]
fn procedures_know_where_they_are_declared() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [["-g", "-O0", "-gdwarf-5"], ["-g", "-O0", "-gdwarf-4"]] {
        let unit = only_unit(&compile(dir.path(), "shapes.cc", "shapes", &flags), "shapes.cc");
        let described = |name: &str| {
            let mut origins = unit.procedures().filter_map(|procedure| procedure.origin);
            let origin = origins.find(|origin| origin.display_name().as_deref() == Some(name));
            let known =
                || unit.procedures().filter_map(|procedure| procedure.origin?.display_name()).collect::<Vec<_>>();
            let origin = origin.unwrap_or_else(|| panic!("{name} is none of {:#?}", known()));
            let file = origin.file().and_then(|file| unit.file(file));
            let in_source = file.is_some_and(|file| file.ends_with("tests/programs/shapes.cc"));
            let containers: Vec<_> = origin.containers().map(|c| (c.kind, c.name.map(str::to_string))).collect();
            (in_source.then_some(origin.line()), containers)
        };
        let class = |name: &str| (ContainerKind::Class, Some(name.to_string()));
        let shapes = (ContainerKind::Namespace, Some("shapes".to_string()));
        assert_eq!(described("main"), (Some(33), vec![]));
        let vector = "std::vector<int, std::allocator<int> >";
        assert_eq!(
            described(&format!("shapes::apply({vector} const&, int (*)(int))")),
            (Some(25), vec![shapes.clone()])
        );
        assert_eq!(described("shapes::Square::area(int) const"), (Some(22), vec![class("Square"), shapes.clone()]));
        assert_eq!(described("shapes::Box<long, 3>::sum() const"), (Some(10), vec![class("Box<long int, 3>"), shapes]));
        // A class inside of a procedure: a lambda's, for which gcc gives no line but that of the class.
        assert_eq!(described("main::{lambda#1}").0, Some(39));
        let (place, containers) = described("main::{lambda#2}");
        assert_eq!(place, Some(40));
        let kinds: Vec<_> = containers.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [ContainerKind::Class, ContainerKind::Procedure]);
        assert_eq!(containers[1].1.as_deref(), Some("main"));
    }
}

/// gcc says neither a linker's name nor a place of them; clang says both.
#[test]
fn inlined_lambdas_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    for (compiler, is_gcc) in [("g++", true), ("clang++", false)] {
        if !is_there(compiler) {
            continue;
        }
        let output = dir.path().join(compiler);
        let source = source("lambdas.cc");
        run(compiler, &["-g", "-O2", source.to_str().unwrap(), "-o", output.to_str().unwrap()]);
        let unit = only_unit(&output, "lambdas.cc");
        let inlined = unit.scopes().filter(|scope| scope.kind == ScopeKind::InlinedCall);
        let origins = inlined.filter_map(|scope| scope.origin);
        let mut lambdas: Vec<_> = origins
            .filter(|origin| origin.source_name().is_some_and(|name| name.starts_with("operator()")))
            .map(|origin| (origin.line(), origin.display_name().unwrap().into_owned(), origin.identity()))
            .collect();
        lambdas.sort();
        lambdas.dedup();
        let places: Vec<u32> = lambdas.iter().map(|(line, ..)| *line).collect();
        assert_eq!(places, [9, 10, 10, 11, 12, 15, 20, 24, 24], "{compiler}: {lambdas:#?}");
        let mut keys: Vec<_> = lambdas.iter().map(|(_, name, identity)| (name, identity)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), lambdas.len(), "{compiler}: {lambdas:#?}");
        if is_gcc {
            let names: Vec<&str> = lambdas.iter().map(|(_, name, _)| &**name).collect();
            let expected = [
                "app::run::{lambda#1}",
                "app::run::{lambda#2}",
                "app::run::{lambda#3}",
                "app::run::{lambda#4}",
                "app::run::{lambda#4}::{lambda#1}",
                "app::run::operator()",
                "app::run::{lambda#1}",
                "app::(anonymous namespace)::Scale::both::{lambda#1}::operator()<double>",
                "app::(anonymous namespace)::Scale::both::{lambda#1}::operator()<int>",
            ];
            assert_eq!(names, expected);
        }
    }
}

#[test]
fn internal_procedures_of_fortran_are_nested() {
    if !is_there("gfortran") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (output, source) = (dir.path().join("nested"), source("nested.f90"));
    let directory = dir.path().to_str().unwrap();
    run("gfortran", &["-g", "-O0", "-J", directory, source.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    let unit = only_unit(&output, "nested.f90");
    assert!(unit.is_fortran());
    let around = |name: &str| {
        let mut procedures = unit.procedures();
        let found = procedures.find(|procedure| procedure.origin.and_then(|origin| origin.source_name()) == Some(name));
        let found = found.expect(name);
        let parent = found.parent.and_then(|parent| unit.scope(parent)?.origin?.source_name().map(str::to_string));
        let containers: Vec<_> = found.origin.unwrap().containers().filter_map(|c| c.name).collect();
        (found.origin.unwrap().line(), parent, containers.join(" in "))
    };
    let outer = Some("outer".to_string());
    assert_eq!(around("outer"), (4, None, "shapes".to_string()));
    assert_eq!(around("inner"), (9, outer.clone(), "outer in shapes".to_string()));
    assert_eq!(around("square"), (16, outer, "outer in shapes".to_string()));
}

#[test]
fn an_inlined_call_has_its_place_in_the_procedure_around_it() {
    let dir = tempfile::tempdir().unwrap();
    let unit = only_unit(&compile(dir.path(), "shapes.cc", "shapes", &["-g", "-O2"]), "shapes.cc");
    assert!(unit.has_inlined_calls());
    for scope in unit.scopes().filter(|scope| scope.kind == ScopeKind::InlinedCall) {
        let call = scope.call.expect("a call site");
        assert!(call.line > 0 && call.file.and_then(|file| unit.file(file)).is_some());
        let parent = unit.scope(scope.parent.expect("something around it")).unwrap();
        assert!(parent.id < scope.id);
        for range in scope.ranges {
            let around = |outer: &std::ops::Range<LinkAddr>| outer.start <= range.start && range.end <= outer.end;
            assert!(parent.ranges.iter().any(around), "{scope:#?} in {parent:#?}");
            let scope_ranges: Vec<_> = unit.scope_ranges(range.clone()).collect();
            assert_eq!(scope_ranges.first().unwrap().0.start, range.start);
            assert_eq!(scope_ranges.last().unwrap().0.end, range.end);
            assert!(scope_ranges.windows(2).all(|pair| pair[0].0.end == pair[1].0.start));
        }
    }
}

/// What a person reads in nested.f90: names without the linker's underscores, internal procedures inside of others.
#[test]
fn procedures_of_fortran() {
    if !is_there("gfortran") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (output, source) = (dir.path().join("nested"), source("nested.f90"));
    let directory = dir.path().to_str().unwrap();
    run("gfortran", &["-g", "-O0", "-J", directory, source.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    let unit = only_unit(&output, "nested.f90");
    let said = |(origin, is_nested): (Origin<'_>, bool)| {
        (origin.line(), origin.display_name().unwrap_or_default().into_owned(), is_nested)
    };
    let declared: Vec<_> = unit.declared().map(said).collect();
    let inside = [(9, "shapes::outer::inner", true), (16, "shapes::outer::square", true)];
    for expected in [(4, "shapes::outer", false)].into_iter().chain(inside) {
        let (line, name, is_nested) = expected;
        assert!(declared.contains(&(line, name.to_owned(), is_nested)), "{expected:?} in {declared:#?}");
    }
    let names: Vec<_> = unit.procedures().filter_map(|procedure| procedure.origin?.display_name()).collect();
    // What gfortran itself calls the main program.
    let is_source = |name: &str| name == "MAIN__" || !name.ends_with('_') && !name.contains("_MOD_");
    assert!(names.iter().all(|name| is_source(name)), "{names:?}");
}

/// A Go program of `tests/nasty`, built with these options, with cgo or without: whole, and stripped.
fn go_program(directory: &Path, (source, options): (&str, &[&str]), cgo: bool) -> [PathBuf; 2] {
    let [whole, stripped] = ["whole", "stripped"].map(|name| directory.join(name));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/nasty").join(source);
    let mut go = Command::new("go");
    go.arg("build").args(options).arg("-o").arg(&whole).arg(source);
    go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"))
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", if cgo { "1" } else { "0" });
    assert!(go.status().unwrap().success());
    objcopy(&["--strip-all", whole.to_str().unwrap(), stripped.to_str().unwrap()]);
    [whole, stripped]
}

/// C's linker leaves the table no section of its own in a program that can lie anywhere.
#[test]
fn a_go_table_among_other_data() {
    if !is_there("go") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [_, stripped] = go_program(directory.path(), ("calls.go", &["-buildmode=pie"]), true);
    let image = Image::read(&stripped).unwrap();
    assert!(image.section(".gopclntab").is_none() && image.section(".data.rel.ro.gopclntab").is_none());
    let mut bytes = std::fs::read(&stripped).unwrap();
    let table = image.go_table().expect("a table").data.into_owned();
    let places = |image: Image| -> Vec<String> {
        let code = image.executable_ranges();
        let addrs: Vec<_> =
            code.iter().flat_map(|range| (range.start.0..range.end.0).step_by(64).map(LinkAddr)).collect();
        let lines = Lines::new(Arc::new(image), None).lines(&addrs);
        lines.into_iter().flatten().map(|line| format!("{line:?}")).collect()
    };
    let before = places(image);
    assert!(before.iter().any(|place| place.contains("proc.go")), "{} places", before.len());
    // Where the table does not say where code begins, the runtime's record of the program does.
    const TEXT: usize = 24;
    let start = bytes.windows(table.len()).position(|bytes| bytes == table).unwrap();
    bytes[start + TEXT..start + TEXT + 8].fill(0);
    let without_text = Image::from_bytes(bytes, &stripped).unwrap();
    assert_eq!(places(without_text), before);
}

/// Go's own table says of a program's calls and lines what DWARF says, where it has that.
#[test]
fn stripped_go_programs() {
    if !is_there("go") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [whole, stripped] = go_program(directory.path(), ("pure.go", &[]), false);
    let image = Image::read(&whole).unwrap();
    let [by_dwarf, by_table] = [&whole, &stripped].map(|program| all_chains(program, &image));
    // The table leaves types out of names, and has no directory for what the compiler generated.
    let is_comparable = |chain: &[Frame]| {
        !chain.is_empty()
            && !format!("{chain:?}").contains("[...]")
            && !format!("{chain:?}").contains("<autogenerated>")
    };
    let both = by_dwarf.iter().zip(&by_table).filter(|(one, other)| is_comparable(one) && is_comparable(other));
    let (mut count, mut different, mut inlined) = (0, 0, 0);
    for (by_dwarf, by_table) in both {
        count += 1;
        different += usize::from(by_dwarf != by_table);
        inlined += by_table.len() - 1;
    }
    // They differ at instructions to which DWARF gives the line of the preceding ones.
    assert!(different * 10_000 <= count, "{different} of {count}");
    assert!(inlined * 10 > count, "{inlined} of {count}");
    damaged_go_tables(&stripped);
}

/// Tables whose bytes are changed are read without harm.
fn damaged_go_tables(program: &Path) {
    let good = std::fs::read(program).unwrap();
    let table = Image::read(program).unwrap().go_table().unwrap().data.into_owned();
    let start = good.windows(table.len()).position(|bytes| bytes == table).unwrap();
    let (mut random, mut read) = (fastrand::Rng::with_seed(SEED), 0);
    for _ in 0..100 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..2000) {
            // The table, and the data before it: trees of inlined calls are there.
            let at = random.usize(start - (start / 2)..start + table.len());
            bytes[at] = [0, 0xff, random.u8(..)][random.usize(..3)];
        }
        let scopes = Scopes::new(Arc::new(Image::from_bytes(bytes, program).unwrap()), None, None);
        let units: Vec<_> = scopes.units().collect();
        for _ in 0..200.min(units.len()) {
            let Ok(unit) = scopes.read(units[random.usize(..units.len())]) else { continue };
            let depth = |scope: callpath_image::scopes::Scope<'_>| unit.chain(scope.ranges[0].start).count();
            read += unit.scopes().map(depth).sum::<usize>();
        }
    }
    assert!(read > 1000, "{read}");
}
