//! Debian packages and toolchain components that the chores use, installed where that can be done.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Packages that the tests use: name, and what is skipped without it.
pub const FOR_TESTS: &[(&str, &str)] = &[
    ("gcc", "the nasty programs"),
    ("g++", "the nasty programs in C++"),
    ("libc6-dev", "the nasty programs"),
    ("gcc-multilib", "the refusal of 32-bit programs"),
    ("binutils", "comparisons with readelf, objdump and addr2line"),
    ("llvm", "comparisons with llvm-symbolizer, packages of split debug information"),
    ("dwz", "shared debug information"),
    ("gfortran", "the procedures' hierarchy in Fortran"),
    ("clang", "the loops and inlined calls of annotated sources"),
    ("libclang-rt-dev", "clang's ThreadSanitizer"),
    ("lld", "procedures that a linker folds, optimization when linked"),
    ("make", "the end-to-end test of a build"),
    ("python3", "the end-to-end test of a stripped interpreter"),
    ("python3-venv", "queries of exported tables, by DuckDB"),
    ("xz-utils", "the end-to-end test of CPU time"),
    ("util-linux", "the runs as an ordinary user"),
    ("gdb", "the end-to-end tests of a debugger"),
    ("strace", "the end-to-end test of a tracer"),
    ("libjemalloc2", "the end-to-end test of preloaded allocators"),
    ("libtcmalloc-minimal4", "the end-to-end test of preloaded allocators"),
    ("qemu-user", "programs in an emulator"),
    ("valgrind", "programs in an emulator, exact counts against callgrind's"),
    ("perl", "the end-to-end test of Perl's extensions"),
    ("openmpi-bin", "the end-to-end tests of ranks under mpirun"),
    ("libopenmpi-dev", "the end-to-end tests of ranks under mpirun"),
];

/// Which of these packages are not installed. Fails where there is no dpkg-query.
pub fn missing<'a>(packages: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .args(packages)
        .stderr(Stdio::null())
        .output()
        .context("this is not Debian or a kin of it: there is no dpkg-query")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let installed = |package: &str| said.lines().any(|line| line.split_once(' ') == Some((package, "installed")));
    Ok(packages.iter().copied().filter(|package| !installed(package)).collect())
}

/// Installs packages, as root or through sudo. Gives those that could not be installed. Fails where there is no
/// dpkg-query, or where apt-get cannot update its lists.
pub fn packages<'a>(wanted: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
    let lacking = missing(wanted)?;
    if lacking.is_empty() {
        return Ok(lacking);
    }
    println!("installing Debian packages: {}", lacking.join(" "));
    apt_get(&["update", "-q"])?;
    let install = ["install", "-q", "-y", "--no-install-recommends"];
    if apt_get(&[&install[..], &lacking[..]].concat()).is_err() {
        // One unknown name stops all of them: try each alone.
        for package in &lacking {
            if let Err(error) = apt_get(&[&install[..], &[*package]].concat()) {
                println!("{package}: {error:#}");
            }
        }
    }
    missing(wanted)
}

/// Runtimes that may come from elsewhere: a package, and the command that replaces it.
const RUNTIMES: &[(&str, &str)] = &[
    ("default-jdk-headless", "/usr/bin/javac"),
    ("default-jre-headless", "/usr/bin/java"),
    ("nodejs", "/usr/bin/node"),
    ("npm", "/usr/bin/npm"),
    ("golang-go", "/usr/bin/go"),
];

/// The same, without runtimes whose command is there already.
pub fn packages_or_commands<'a>(wanted: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
    let is_there =
        |name: &str| RUNTIMES.iter().any(|(package, command)| *package == name && Path::new(command).exists());
    packages(&wanted.iter().copied().filter(|name| !is_there(name)).collect::<Vec<_>>())
}

/// A Python in a directory of its own, with packages from PyPI; where its programs are. What is there already stays.
pub fn python(directory: &Path, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let programs = directory.join("bin");
    if !programs.join("pip").exists() {
        said(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
    }
    said(Command::new(programs.join("pip")).args(["install", "-q", "--disable-pip-version-check"]).args(packages))?;
    Ok(programs)
}

/// A command's standard output. Fails where it does.
pub fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("failed to run {}", command.get_program().display()))?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{} failed: {}", command.get_program().display(), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Installs rustfmt and clippy, which rustup's minimal profile lacks. Fails where rustup does.
pub fn components() -> anyhow::Result<()> {
    for (component, command) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        let there = crate::build::cargo().args([command, "--version"]).output().is_ok_and(|o| o.status.success());
        if there {
            continue;
        }
        println!("installing the toolchain's component {component}");
        let status = Command::new("rustup").args(["component", "add", component]).status();
        ensure!(status.context("failed to run rustup")?.success(), "rustup cannot add {component}");
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> anyhow::Result<()> {
    // SAFETY: takes nothing, returns a number.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = if root {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        if !std::io::stdin().is_terminal() {
            sudo.arg("-n");
        }
        sudo.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    };
    let command = command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let output = command.output().context("cannot install as this user: there is no sudo")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "apt-get {} failed: {}", arguments[0], said.trim());
    Ok(())
}
