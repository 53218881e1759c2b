//! Programs to look at, and other people's tools that say what is in them.
//! This file must not use callpath's own readers.
#![allow(dead_code)] // Each test uses some of them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The output of a tool that must succeed.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program} (gcc and binutils are needed): {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The output of a filter that is fed `lines`, by line.
pub(crate) fn filter(program: &str, args: &[&str], lines: &[String]) -> Vec<String> {
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program} (gcc and binutils are needed): {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = lines.join("\n") + "\n";
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
}

/// Source of a test program.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Compiles `source` with `flags` into `dir/output`.
pub(crate) fn compile(dir: &Path, source_name: &str, output: &str, flags: &[&str]) -> PathBuf {
    let output = dir.join(output);
    let compiler = if source_name.ends_with(".cc") { "g++" } else { "gcc" };
    let source = source(source_name);
    let mut args = vec![source.to_str().unwrap(), "-o", output.to_str().unwrap()];
    args.extend(flags);
    run(compiler, &args);
    output
}

pub(crate) fn objcopy(args: &[&str]) {
    run("objcopy", args);
}

/// A file of Debian's that is looked at if it is there.
pub(crate) fn installed(paths: &[&str]) -> Vec<PathBuf> {
    let (there, missing): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().map(PathBuf::from).partition(|path| path.exists());
    for path in missing {
        eprintln!("SKIPPED: {} is not installed", path.display());
    }
    there
}
