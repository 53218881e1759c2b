//! Stubs of the procedure linkage table: what the image's reader takes for one, and what the machine code's does, of the same
//! stubs. Neither may know the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::plt;
use callpath_image::symbols::Procedures;
use callpath_tables::module::Module;
use callpath_x86::idioms::linkage_stub;
use rustc_hash::FxHashMap;

/// A program whose stubs are of one kind.
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
