//! The programs of tests/nasty, each compiled once a run of the tests into the target's directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A program of tests/nasty and how it is compiled. Programs with different options need different outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct C {
    /// The file in tests/nasty: `.c` for gcc, `.cpp` for g++, `.rs` for rustc.
    pub source: &'static str,
    /// The name of the executable or library.
    pub output: &'static str,
    /// Further options of the compiler. `@name` stands for the path of another output; `compiler=name`,
    /// as the first one, names another compiler.
    pub options: &'static [&'static str],
}

static COMPILED: Mutex<Option<HashMap<C, Result<PathBuf, String>>>> = Mutex::new(None);

/// The path of a file of the tests' own, in the target's directory beside the test executable. Creates the directory.
pub fn tool_path(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let profile = own.ancestors().nth(2).expect("tests lie in target/PROFILE/deps");
    let directory = profile.join("nasty");
    std::fs::create_dir_all(&directory).expect("the target's directory can be written");
    directory.join(name)
}

/// Copies a program that is to be run; panics if it cannot. `cp` does it: a file that this process writes may be open
/// in a child that another test has just forked, and cannot be executed meanwhile.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("cp can be run").success(), "cannot copy {} to {}", from.display(), to.display());
}

/// Compiles a program, once for each test process. Gives its path; the error is the compiler's output.
pub fn compiled(what: C) -> Result<PathBuf, String> {
    let mut compiled = COMPILED.lock().expect("no compilation panics");
    compiled.get_or_insert_default().entry(what).or_insert_with(|| compile(what)).clone()
}

fn compile(what: C) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nasty").join(what.source);
    let output = tool_path(what.output);
    // Under another name first: tests of another process may be running the old one.
    let fresh = tool_path(&format!("{}.{}", what.output, std::process::id()));
    let extension = source.extension().and_then(|extension| extension.to_str());
    let (compiler, options) = match what.options.split_first() {
        Some((first, rest)) if first.starts_with("compiler=") => (first.strip_prefix("compiler="), rest),
        _ => (None, what.options),
    };
    let mut command = match extension {
        Some("c") => Command::new(compiler.unwrap_or("gcc")),
        Some("cpp") => Command::new(compiler.unwrap_or("g++")),
        Some("rs") => Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())),
        other => return Err(format!("no compiler for {other:?}")),
    };
    match extension {
        Some("rs") => command.args(["--edition", "2024", "-O", "-g"]),
        // Optimized, but with every procedure of the source: tests name them.
        _ => command.args(["-O2", "-g", "-pthread", "-fno-inline", "-fno-optimize-sibling-calls"]),
    };
    command.arg("-o").arg(&fresh).arg(&source);
    for option in options {
        match option.strip_prefix('@') {
            Some(name) => command.arg(tool_path(name)),
            None => command.arg(option),
        };
    }
    let said = command.output().map_err(|error| format!("failed to start {command:?}: {error}"))?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into_owned());
    }
    std::fs::rename(&fresh, &output).map_err(|error| format!("failed to rename {}: {error}", fresh.display()))?;
    Ok(output)
}
