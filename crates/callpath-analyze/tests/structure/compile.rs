//! Compiles annotated programs, and removes parts of their debug information.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program is made.
#[derive(Clone, Copy)]
pub(crate) struct Build {
    pub(crate) compiler: &'static str,
    /// As compilers write it, without the dash.
    pub(crate) level: &'static str,
    pub(crate) options: &'static [&'static str],
    pub(crate) linking: Linking,
}

/// What a linker does to the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linking {
    /// Nothing.
    Plain,
    /// It has the compiler optimize all units as one.
    Optimized,
    /// This linker makes one of procedures with the same code.
    Folded(&'static str),
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -{}", self.compiler, self.level)?;
        self.options.iter().try_for_each(|option| write!(f, " {option}"))?;
        match self.linking {
            Linking::Plain => Ok(()),
            Linking::Optimized => write!(f, " -flto"),
            Linking::Folded(linker) => write!(f, " {linker} --icf=all"),
        }
    }
}

/// Compiles a source, and what lies beside it under the same name, and links
/// without the C library: the result is never run.
pub(crate) fn compile(directory: &Path, source: &Path, build: &Build) -> PathBuf {
    let Build { compiler, level, options, linking } = *build;
    let (stem, extension) = (source.file_stem().unwrap().to_str().unwrap(), source.extension().unwrap());
    let is_its = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        path.extension() == Some(extension) && (name == stem || name.starts_with(&format!("{stem}_")))
    };
    let all = std::fs::read_dir(source.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let mut sources: Vec<PathBuf> = all.filter(is_its).collect();
    sources.sort();
    let level = format!("-{level}");
    let mut objects = Vec::new();
    for source in sources {
        let object = directory.join(source.with_extension("o").file_name().unwrap());
        let (source, object) = (source.to_str().unwrap(), object.to_str().unwrap().to_owned());
        if compiler == "rustc" {
            let level = format!("-Copt-level={}", &level[2..]);
            let all = ["--edition=2021", "--crate-type=lib", "--emit=obj", "-g", "-Ccodegen-units=1", "-Cpanic=abort"];
            run(compiler, &[&all[..], &[&level, source, "-o", &object], options].concat());
        } else {
            let more: &[&str] = match linking {
                Linking::Plain => &[],
                Linking::Optimized => &["-flto"],
                Linking::Folded(_) => &["-ffunction-sections"],
            };
            run(compiler, &[&["-c", "-g", "-fPIC", &level, source, "-o", &object], more, options].concat());
        }
        objects.push(object);
    }
    let program = directory.join("program");
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let output = ["-shared", "-nostdlib", "-o", program.to_str().unwrap()];
    match linking {
        Linking::Plain => run("gcc", &[&output[..], &objects].concat()),
        Linking::Optimized if compiler.starts_with("clang") => {
            run(compiler, &[&output[..], &["-flto", "-fuse-ld=lld", &level], &objects].concat());
        }
        Linking::Optimized => run(compiler, &[&output[..], &["-flto", "-g", "-fPIC", &level], &objects].concat()),
        Linking::Folded(linker) => {
            let linker = format!("-fuse-ld={linker}");
            run("gcc", &[&output[..], &[&linker, "-Wl,--icf=all"], &objects].concat());
        }
    }
    program
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a file in which inlined calls are blocks, as though the compiler had not
/// recorded them: lines and procedures stay.
pub(crate) fn without_inlined_calls(program: &Path) -> PathBuf {
    as_blocks(program, |tag, _| tag == INLINED_SUBROUTINE)
}

/// The same, and what is declared to be inlined has no entry, either.
pub(crate) fn without_descriptors(program: &Path) -> PathBuf {
    const SUBPROGRAM: u8 = 0x2e;
    const INLINE: u64 = 0x20;
    as_blocks(program, |tag, attributes| tag == INLINED_SUBROUTINE || tag == SUBPROGRAM && attributes.contains(&INLINE))
}

const INLINED_SUBROUTINE: u8 = 0x1d;

/// Makes a file in which entries whose tag and attributes are like that are lexical blocks.
fn as_blocks(program: &Path, is_like: impl Fn(u8, &[u64]) -> bool) -> PathBuf {
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
        let tag = at;
        leb(&bytes, &mut at);
        at += 1;
        let mut attributes = Vec::new();
        loop {
            let (attribute, form) = (leb(&bytes, &mut at), leb(&bytes, &mut at));
            attributes.push(attribute);
            if form == IMPLICIT_CONST {
                leb(&bytes, &mut at);
            }
            if (attribute, form) == (0, 0) {
                break;
            }
        }
        if is_like(bytes[tag], &attributes) {
            bytes[tag] = LEXICAL_BLOCK;
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
