//! Compares the stubs of the procedure linkage table found by the image's reader with those found by the machine
//! code's. Neither may depend on the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::plt;
use callpath_image::symbols::Procedures;
use callpath_tables::module::Module;
use callpath_x86::idioms::linkage_stub;
use rustc_hash::FxHashMap;

/// A program with stubs of one kind.
fn linked(directory: &Path, options: &[&str]) -> PathBuf {
    const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
        int main(int argc, char **argv) { puts(argv[argc - 1]); printf(\"%d\", argc); abort(); }";
    let (source, program) = (directory.join("calls.c"), directory.join(options.concat().replace(',', "")));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-fno-builtin", "-o"]).arg(&program).arg(&source).args(options);
    assert!(compiler.status().unwrap().success());
    program
}

#[test]
fn a_stub_is_the_same_to_who_names_it_and_to_who_follows_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut programs = vec![PathBuf::from("/usr/bin/perl")];
    for options in [
        &["-Wl,-z,lazy"][..],
        &["-Wl,-z,now"],
        &["-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-fuse-ld=lld", "-Wl,-z,lazy"],
    ] {
        programs.push(linked(directory.path(), options));
    }
    for program in programs {
        let module = Module::read(&program).unwrap();
        let names = Procedures::new(Arc::clone(module.image()), None);
        let slots: FxHashMap<_, _> = module.file().loading().symbols.iter().cloned().collect();
        let mut named = 0;
        for stub in plt::sections(module.image()).iter().flat_map(|section| section.stubs()) {
            let bytes = module.image().bytes_from(stub.start).unwrap();
            let slot = linkage_stub::slot(&bytes[..bytes.len().min(16)], stub.start.0);
            let Some(symbol) = slot.and_then(|slot| slots.get(&LinkAddr(slot))) else {
                continue;
            };
            let procedure = names.procedure_at(stub.start).unwrap();
            assert_eq!(procedure.name, Some(&*format!("{symbol}@plt")), "{:x} of {}", stub.start.0, program.display());
            assert_eq!((procedure.start, procedure.len), (stub.start, stub.end.0 - stub.start.0));
            named += 1;
        }
        let all = names.named().filter(|procedure| procedure.name.is_some_and(|name| name.ends_with("@plt"))).count();
        assert!(named >= 3, "{}: {named}", program.display());
        assert_eq!(named, all, "of {}", program.display());
    }
}

/// A tool's output for a file, line by line, as words.
fn words_of(tool: &str, options: &[&str], file: &Path) -> Vec<Vec<String>> {
    let output = Command::new(tool).args(options).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// GNU ld writes stubs of 8 bytes there, without a size in the section's header; lld has a separate section for them.
#[test]
fn stubs_of_static_programs_are_named_by_who_chooses() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&["-static"][..], &["-static", "-fuse-ld=lld"]] {
        let program = linked(directory.path(), options);
        let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
        let relocations = words_of("readelf", &["-rW"], &program).into_iter();
        let choosers: FxHashMap<u64, u64> = relocations
            .filter(|words| words.get(2).is_some_and(|kind| kind == "R_X86_64_IRELATIVE"))
            .map(|words| (number(&words[0]), number(&words[3])))
            .collect();
        let symbols: Vec<(u64, String)> = words_of("nm", &[], &program)
            .into_iter()
            .filter(|words| words.len() == 3)
            .map(|words| (number(&words[0]), words[2].clone()))
            .collect();
        let module = Module::read(&program).unwrap();
        let names = Procedures::new(Arc::clone(module.image()), None);
        let mut named = 0;
        for stub in plt::sections(module.image()).iter().flat_map(|section| section.stubs()) {
            let bytes = module.image().bytes_from(stub.start).unwrap();
            let slot = linkage_stub::slot(bytes, stub.start.0).unwrap();
            let name = names.procedure_at(stub.start).unwrap().name.unwrap();
            // A stub whose address is taken has a symbol.
            let Some(name) = name.strip_suffix("@plt") else { continue };
            assert!(symbols.contains(&(choosers[&slot], name.to_owned())), "{name} at {:x}, {options:?}", stub.start.0);
            named += 1;
        }
        assert!(named > 10 && named + 2 >= choosers.len(), "{named} of {}, {options:?}", choosers.len());
    }
}
