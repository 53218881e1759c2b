//! Procedures and their names, compared with what nm, objdump, readelf and c++filt say.

use crate::tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::demangle::demangle;
use callpath_image::elf::{Image, ImageKind};
use callpath_image::exports::imports_any;
use callpath_image::identity::hex;
use callpath_image::symbols::Procedures;
use tools::{compile, filter, installed, objcopy, run};

fn procedures(path: &Path) -> Procedures {
    Procedures::new(Arc::new(Image::read(path).unwrap()), None)
}

/// nm's procedures: address -> (length, names without version).
fn nm(path: &Path, flags: &[&str]) -> BTreeMap<u64, (u64, BTreeSet<String>)> {
    let mut args = vec!["--defined-only", "--print-size", "--format=posix"];
    args.extend(flags);
    args.push(path.to_str().unwrap());
    let mut found: BTreeMap<u64, (u64, BTreeSet<String>)> = BTreeMap::new();
    for line in run("nm", &args).lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, kind, addr, rest @ ..] = &fields[..] else { continue };
        if !matches!(*kind, "T" | "t" | "W" | "w" | "i") {
            continue;
        }
        let name = name.split('@').next().unwrap().to_string();
        let len = rest.first().map_or(0, |len| u64::from_str_radix(len, 16).unwrap());
        let entry = found.entry(u64::from_str_radix(addr, 16).unwrap()).or_default();
        entry.0 = entry.0.max(len);
        entry.1.insert(name);
    }
    found
}

/// Every sized procedure of nm's is found at its first and its last byte, under one of the names it has there.
fn compare_with_nm(path: &Path, flags: &[&str]) -> usize {
    let procedures = procedures(path);
    let symbols = nm(path, flags);
    let mut compared = 0;
    for (&start, (len, names)) in symbols.iter().filter(|(_, (len, _))| *len > 0) {
        let first = procedures.procedure_at(LinkAddr(start)).unwrap();
        assert_eq!(first.start, LinkAddr(start), "{names:?} in {}", path.display());
        assert!(names.contains(first.name.unwrap()), "{:?} is none of {names:?}", first.name);
        // Unless another one begins inside of it.
        if symbols.range(start + 1..start + len).next().is_none() {
            assert_eq!(procedures.procedure_at(LinkAddr(start + len - 1)), Some(first), "{names:?}");
        }
        compared += 1;
    }
    compared
}

#[test]
fn every_procedure_of_nm_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [&["-O2"][..], &["-O2", "-no-pie"], &["-O0", "-static"], &["-O2", "-static-pie"]] {
        let small = compile(dir.path(), "small.c", "small", flags);
        assert!(compare_with_nm(&small, &[]) >= 4);
    }
    let shapes = compile(dir.path(), "shapes.cc", "shapes", &["-O0"]);
    assert!(compare_with_nm(&shapes, &[]) > 100);
}

#[test]
fn every_exported_procedure_of_system_libraries_is_found() {
    for path in installed(&[
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
        "/lib/x86_64-linux-gnu/libcrypto.so.3",
    ]) {
        assert!(compare_with_nm(&path, &["-D"]) > 1000, "{}", path.display());
    }
}

fn name_at(procedures: &Procedures, addr: u64) -> Option<&str> {
    procedures.procedure_at(LinkAddr(addr)).and_then(|procedure| procedure.name)
}

fn addr_of(path: &Path, name: &str) -> u64 {
    let symbols = nm(path, &[]);
    *symbols.iter().find(|(_, (_, names))| names.contains(name)).unwrap_or_else(|| panic!("nm knows no {name}")).0
}

#[test]
fn of_several_names_the_plain_one_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let small = compile(dir.path(), "small.c", "small", &["-O2"]);
    let named = procedures(&small);
    // Aliases: weak_alias (weak), exported_procedure, _alias_with_underscore; the shortest without underscores.
    assert_eq!(name_at(&named, addr_of(&small, "exported_procedure")), Some("weak_alias"));
    assert_eq!(name_at(&named, addr_of(&small, "main")), Some("main"));
    assert_eq!(name_at(&named, addr_of(&small, "_start")), Some("_start"));
    assert_eq!(name_at(&named, addr_of(&small, "splits.cold")), Some("splits.cold"));

    for path in installed(&["/lib/x86_64-linux-gnu/libc.so.6"]) {
        let libc = procedures(&path);
        let symbols = nm(&path, &["-D"]);
        for name in ["puts", "malloc", "write", "printf", "qsort", "pthread_mutex_lock", "fork"] {
            let (start, _) = symbols.iter().find(|(_, (_, names))| names.contains(name)).unwrap();
            assert_eq!(name_at(&libc, *start), Some(name));
        }
    }
}

#[test]
fn assembly_without_type_size_and_cfi_is_named_up_to_the_next_procedure() {
    let dir = tempfile::tempdir().unwrap();
    let small = compile(dir.path(), "small.c", "small", &["-O2"]);
    let named = procedures(&small);
    let start = addr_of(&small, "assembled");
    assert_eq!(name_at(&named, start), Some("assembled"));
    let inner = addr_of(&small, "inner_label");
    assert_eq!(name_at(&named, inner), Some("inner_label"), "nothing says that it is no procedure");
    let procedure = named.procedure_at(LinkAddr(inner)).unwrap();
    let end = procedure.start.0 + procedure.len;
    // The description of the code behind it is not covered.
    let frames = frame_descriptions(&small);
    assert!(frames.iter().all(|&(from, _)| from < inner || from >= end), "{procedure:?} covers one of {frames:x?}");
}

/// readelf's frame description entries: first and last address + 1, sorted.
fn frame_descriptions(path: &Path) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for line in run("readelf", &["--debug-dump=frames", "-W", path.to_str().unwrap()]).lines() {
        let Some((_, range)) = line.split_once(" FDE ").and_then(|(_, rest)| rest.split_once(" pc=")) else { continue };
        let (from, to) = range.trim().split_once("..").unwrap();
        found.push((u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap()));
    }
    found.sort();
    found
}

#[test]
fn a_stripped_file_has_the_bounds_of_its_frame_descriptions() {
    let dir = tempfile::tempdir().unwrap();
    let small = compile(dir.path(), "small.c", "small", &["-O2"]);
    let stripped = dir.path().join("stripped");
    objcopy(&["--strip-all", small.to_str().unwrap(), stripped.to_str().unwrap()]);
    let without_hdr = dir.path().join("without-hdr");
    let flags = ["-O2", "-Wl,--no-eh-frame-hdr", "-static", "-s"];
    compile(dir.path(), "small.c", "without-hdr", &flags);
    let mut paths = vec![stripped, without_hdr];
    paths.extend(installed(&["/usr/bin/xz", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libz.so.1"]));
    for path in paths {
        let named = procedures(&path);
        let mut unnamed = 0;
        for (from, to) in frame_descriptions(&path) {
            for addr in [from, from + (to - from) / 2, to - 1] {
                let procedure = named.procedure_at(LinkAddr(addr)).unwrap();
                if procedure.name.is_none() {
                    assert_eq!(
                        (procedure.start.0, procedure.len),
                        (from, to - from),
                        "{addr:#x} of {}",
                        path.display()
                    );
                    unnamed += 1;
                }
            }
        }
        assert!(unnamed > 10, "{}: {unnamed}", path.display());
        assert!(!named.is_complete());
    }
}

#[test]
fn linkage_table_stubs_are_named_as_objdump_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let lazy = compile(dir.path(), "small.c", "lazy", &["-O2", "-Wl,-z,lazy"]);
    let now = compile(dir.path(), "small.c", "now", &["-O2", "-Wl,-z,now"]);
    let branch_tracking = compile(dir.path(), "small.c", "ibt", &["-O2", "-fcf-protection=full", "-Wl,-z,ibtplt"]);
    let mut paths = vec![lazy, now, branch_tracking];
    paths.extend(installed(&["/usr/bin/xz", "/lib/x86_64-linux-gnu/libstdc++.so.6"]));
    for path in paths {
        let named = procedures(&path);
        let mut compared = 0;
        for line in run(
            "objdump",
            &["-d", "--section=.plt", "--section=.plt.sec", "--section=.plt.got", path.to_str().unwrap()],
        )
        .lines()
        {
            let Some((addr, label)) = line.split_once(" <") else { continue };
            let (Ok(addr), Some(label)) = (u64::from_str_radix(addr, 16), label.strip_suffix("@plt>:")) else {
                continue;
            };
            let label = label.split('@').next().unwrap();
            if label.starts_with('*') {
                continue; // *ABS*: a procedure chosen at load time that has no symbol.
            }
            assert_eq!(name_at(&named, addr), Some(format!("{label}@plt").as_str()), "{}", path.display());
            compared += 1;
        }
        assert!(compared >= 3, "{}: {compared}", path.display());
    }
}

#[test]
fn names_are_demangled_as_cxxfilt_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = vec![compile(dir.path(), "shapes.cc", "shapes", &["-O2"])];
    paths.extend(installed(&["/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus"]));
    for path in paths {
        let all = procedures(&path);
        let names: Vec<String> = all.named().filter_map(|procedure| procedure.name).map(str::to_string).collect();
        let expected = filter("c++filt", &["--no-verbose"], &names);
        assert_eq!(names.len(), expected.len());
        let differing: Vec<String> = names
            .iter()
            .zip(&expected)
            .filter(|(name, expected)| spelled_alike(&demangle(name)) != spelled_alike(expected))
            .map(|(name, expected)| format!("{name}\n  ours    {}\n  c++filt {expected}", demangle(name)))
            .collect();
        // cpp_demangle writes a return type before what is local to a template, and loses the first parameter of a
        // constructor that is a template.
        let share = differing.len() as f64 / names.len() as f64;
        let some = differing.get(..20).unwrap_or(&differing).join("\n");
        assert!(share < 0.015, "{} of {} in {}:\n{some}", differing.len(), names.len(), path.display());
    }
}

/// Without what the two spell differently and both right: blanks, `0ul` for `0`, `std::istream`.
fn spelled_alike(name: &str) -> String {
    let name = name.split_whitespace().collect::<String>();
    let name = name.replace("std::basic_istream<char,std::char_traits<char>>", "std::istream");
    let mut spelled = String::new();
    for letter in name.chars() {
        let number = spelled.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap();
        let ends_number = number.starts_with(|c: char| c.is_ascii_digit());
        if !(ends_number && matches!(letter, 'u' | 'l')) {
            spelled.push(letter);
        }
    }
    spelled
}

#[test]
fn headers_are_as_readelf_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = vec![
        compile(dir.path(), "small.c", "pie", &["-Wl,--build-id"]),
        compile(dir.path(), "small.c", "fixed", &["-no-pie", "-Wl,--build-id=md5"]),
        compile(dir.path(), "small.c", "static-pie", &["-static-pie", "-Wl,--build-id"]),
        compile(dir.path(), "small.c", "static", &["-static", "-Wl,--build-id=none"]),
    ];
    paths.extend(installed(&["/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/true"]));
    for path in paths {
        let image = Image::read(&path).unwrap();
        let notes = run("readelf", &["-n", path.to_str().unwrap()]);
        let build_id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
        assert_eq!(image.build_id().map(hex).as_deref(), build_id, "{}", path.display());

        let headers = run("readelf", &["-lhW", path.to_str().unwrap()]);
        let kind = if headers.contains("Type:                              EXEC") {
            ImageKind::Executable
        } else {
            ImageKind::Dyn
        };
        assert_eq!(image.kind(), kind);
        let loads: Vec<Vec<&str>> = headers
            .lines()
            .filter_map(|line| Some(line.trim().strip_prefix("LOAD ")?.split_whitespace().collect()))
            .collect();
        assert_eq!(image.segments().len(), loads.len());
        for (segment, fields) in image.segments().iter().zip(loads) {
            let number = |index: usize| u64::from_str_radix(fields[index].trim_start_matches("0x"), 16).unwrap();
            assert_eq!((segment.file_offset, segment.vaddr.0), (number(0), number(1)));
            assert_eq!((segment.file_len, segment.mem_len), (number(3), number(4)));
            let flags = fields[5..fields.len() - 1].concat();
            assert_eq!(
                (segment.readable, segment.writable, segment.executable),
                (flags.contains('R'), flags.contains('W'), flags.contains('E'))
            );
        }
        let interpreter =
            headers.split_once("Requesting program interpreter: ").map(|(_, rest)| rest.split_once(']').unwrap().0);
        assert_eq!(image.interpreter().map(|path| path.to_str().unwrap()), interpreter);
        assert_eq!(image.is_static_pie(), path.ends_with("static-pie"));
    }
}

/// Linkers let a name be the end of another one.
#[test]
fn names_that_are_needed_from_others() {
    let directory = tempfile::tempdir().unwrap();
    let needs = |source: &str, name: &str| {
        let file = directory.path().join("needs.c");
        std::fs::write(&file, source).unwrap();
        let path = compile(directory.path(), file.to_str().unwrap(), "needs", &["-O1", "-rdynamic"]);
        imports_any(&Image::read(&path).unwrap(), &["popen", name])
    };
    let calls = "int system(const char *); int run_system(const char *s) { return system(s) + 1; } int main(void) { return run_system(\"\"); }";
    assert!(needs(calls, "system"));
    assert!(!needs(calls, "run_system"));
    let defines = "int run_system(const char *s) { return *s; } int main(void) { return run_system(\"\"); }";
    assert!(!needs(defines, "system"));
}
