//! Compilers, and what is left of a program's debug information.
//! Knows nothing of annotations.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles and links without the C library: nobody runs this.
pub(crate) fn compile(directory: &Path, source: &Path, compiler: &str, level: &str, options: &[&str]) -> PathBuf {
    let object = directory.join("code.o");
    let (source, object_path) = (source.to_str().unwrap(), object.to_str().unwrap());
    if compiler == "rustc" {
        let level = format!("-Copt-level={}", &level[1..]);
        let all = ["--edition=2021", "--crate-type=lib", "--emit=obj", "-g", "-Ccodegen-units=1", "-Cpanic=abort"];
        run(compiler, &[&all[..], &[&level, source, "-o", object_path], options].concat());
    } else {
        let level = format!("-{level}");
        run(compiler, &[&["-c", "-g", "-fPIC", &level, source, "-o", object_path], options].concat());
    }
    let program = directory.join("program");
    run("gcc", &["-shared", "-nostdlib", object_path, "-o", program.to_str().unwrap()]);
    program
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a file in which inlined calls are blocks, as though the compiler had not recorded them: lines and procedures stay.
pub(crate) fn without_inlined_calls(program: &Path) -> PathBuf {
    const INLINED_SUBROUTINE: u8 = 0x1d;
    const LEXICAL_BLOCK: u8 = 0x0b;
    const IMPLICIT_CONST: u64 = 0x21;
    let path = program.with_extension("lines");
    let section = program.with_extension("abbrev");
    let (program, lines) = (program.to_str().unwrap(), path.to_str().unwrap());
    run("objcopy", &["--dump-section", &format!(".debug_abbrev={}", section.display()), program, lines]);
    let mut bytes = std::fs::read(&section).unwrap();
    let (mut at, end) = (0, bytes.len());
    let leb = |bytes: &[u8], at: &mut usize| {
        let start = *at;
        let mut value = 0;
        while bytes[*at] & 0x80 != 0 {
            value |= u64::from(bytes[*at] & 0x7f) << (7 * (*at - start));
            *at += 1;
        }
        value |= u64::from(bytes[*at]) << (7 * (*at - start)).min(57);
        *at += 1;
        value
    };
    while at < end {
        if leb(&bytes, &mut at) == 0 {
            continue;
        }
        if bytes[at] == INLINED_SUBROUTINE {
            bytes[at] = LEXICAL_BLOCK;
        }
        leb(&bytes, &mut at);
        at += 1;
        loop {
            let (attribute, form) = (leb(&bytes, &mut at), leb(&bytes, &mut at));
            if form == IMPLICIT_CONST {
                leb(&bytes, &mut at);
            }
            if (attribute, form) == (0, 0) {
                break;
            }
        }
    }
    std::fs::write(&section, bytes).unwrap();
    run("objcopy", &["--update-section", &format!(".debug_abbrev={}", section.display()), program, lines]);
    path
}

pub(crate) fn stripped(program: &Path) -> PathBuf {
    let path = program.with_extension("stripped");
    run("strip", &[program.to_str().unwrap(), "-o", path.to_str().unwrap()]);
    path
}
