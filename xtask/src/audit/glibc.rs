//! `cargo xtask glibc`: a recording of a program of another release of glibc, unpacked beside the machine's own.
//! Not in CI: it asks Debian's archive.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::archive::{Archive, passes};
use crate::arguments::Arguments;
use crate::build;

/// Debian's releases with the oldest glibc that callpath works with, and with a newer one than its own.
const SUITES: &str = "bullseye,trixie";
/// Where Debian keeps gcc's start files.
const START_FILES: &str = "/usr/lib/x86_64-linux-gnu";

/// `cargo xtask glibc [--suites a,b] [--callpath FILE]`
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["suites", "callpath"])?;
    let callpath = match arguments.text("callpath") {
        Some(path) => PathBuf::from(path),
        None => build::release()?.callpath,
    };
    let callpath = callpath.canonicalize().with_context(|| format!("failed to find {}", callpath.display()))?;
    for suite in arguments.text("suites").unwrap_or(SUITES).split(',') {
        let place = build::root().join("target/glibc").join(suite);
        let libraries = unpacked(suite, &place).with_context(|| format!("failed to get libc6 of {suite}"))?;
        for threads in [false, true] {
            let program = linked(&place, &libraries, threads)?;
            let said = recorded(&callpath, &program, if threads { "many" } else { "200" })
                .with_context(|| format!("{} failed", program.display()))?;
            println!("ok: {suite}, {}: {said}", if threads { "with threads" } else { "without" });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The libraries of a suite's libc6.
fn unpacked(suite: &str, place: &Path) -> anyhow::Result<PathBuf> {
    let root = place.join("root");
    if !root.is_dir() {
        let archive = Archive::at(place, suite, "deb")?;
        archive.apt_get(&["-q", "download", &format!("libc6/{suite}")])?;
        let package = std::fs::read_dir(place)?.filter_map(Result::ok).map(|entry| entry.path());
        let package = package.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb"));
        let package = package.context("apt-get left no package")?;
        passes(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    }
    let places = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(|directory| root.join(directory));
    places.into_iter().find(|directory| directory.join("libc.so.6").exists()).context("it holds no libc.so.6")
}

/// A program of that library alone: old enough symbols, and its own loader.
fn linked(place: &Path, libraries: &Path, threads: bool) -> anyhow::Result<PathBuf> {
    let (source, name) = if threads { ("threads.c", "threads") } else { ("burn.c", "burn") };
    let (object, program) = (place.join(format!("{name}.o")), place.join(name));
    let source = build::root().join("tests/nasty").join(source);
    passes(Command::new("gcc").args(["-O2", "-g", "-fPIE", "-c", "-o"]).arg(&object).arg(source))?;
    let mut link = Command::new("gcc");
    link.args(["-nostdlib", "-pie", "-o"]).arg(&program);
    link.args([format!("{START_FILES}/Scrt1.o"), format!("{START_FILES}/crti.o")]).arg(object);
    if threads {
        link.arg(libraries.join("libpthread.so.0"));
    }
    link.arg(libraries.join("libc.so.6")).arg(format!("{START_FILES}/crtn.o"));
    link.arg(format!("-Wl,--dynamic-linker={}", libraries.join("ld-linux-x86-64.so.2").display()));
    link.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-Wl,--allow-shlib-undefined");
    passes(&mut link)?;
    Ok(program)
}

/// Records it, and asks the report for the tally of the samples: almost all must have their whole path.
fn recorded(callpath: &Path, program: &Path, argument: &str) -> anyhow::Result<String> {
    let directory = program.with_extension("callpath");
    if directory.is_dir() {
        std::fs::remove_dir_all(&directory)?;
    }
    let bare = Command::new(program).arg(argument).output()?;
    let mut command = Command::new(callpath);
    let said = command.args(["record", "-o"]).arg(&directory).arg("--").arg(program).arg(argument).output()?;
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.status == bare.status && said.stdout == bare.stdout, "it is not what it is bare: {words}");
    let report = Command::new(callpath).arg("report").arg(&directory).arg("--json").output()?;
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).context("no measurement")?;
    let quality = &json["quality"];
    let number = |key: &str| quality[key].as_u64().unwrap_or(0);
    // A sample in the midst of a library's own start of a thread may not have one.
    let incomplete = number("partial") + number("raw_kept");
    ensure!(number("full") > 20 && incomplete * 100 <= number("full"), "paths are not whole: {quality}");
    Ok(format!("{} samples, {} with their whole path", number("taken"), number("full")))
}
