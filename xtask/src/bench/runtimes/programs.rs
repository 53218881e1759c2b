//! The programs: recursion and calls between generated code, the runtime's own code and back, for a number of milliseconds.
//! Each with the options that its runtime has for profilers, and without.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::suite::prepared::{self, Prepared, Stdin};

/// What all programs need to know.
pub struct Given {
    pub directory: PathBuf,
    /// How long a program runs.
    pub milliseconds: String,
    /// A Python that has numba.
    pub python: PathBuf,
    pub dotnet: PathBuf,
}

/// A runtime with options.
pub struct Row {
    pub name: &'static str,
    pub options: &'static str,
    /// Fails with what it lacks.
    pub prepare: fn(&Given) -> anyhow::Result<Prepared>,
}

const PHP: [&str; 7] =
    ["-n", "-d", "zend_extension=opcache", "-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=64M"];

pub const ALL: [Row; 13] = [
    Row { name: "java", options: "none", prepare: |given| java(given, &[]) },
    Row {
        name: "java-fp",
        options: "`-XX:+PreserveFramePointer`",
        prepare: |given| java(given, &["-XX:+PreserveFramePointer"]),
    },
    Row { name: "node", options: "none", prepare: |given| node(given, &[]) },
    Row { name: "node-map", options: "`--perf-basic-prof`", prepare: |given| node(given, &["--perf-basic-prof"]) },
    Row {
        name: "node-dump",
        options: "`--perf-prof --perf-prof-unwinding-info`",
        prepare: |given| node(given, &["--perf-prof", "--perf-prof-unwinding-info"]),
    },
    Row { name: "dotnet", options: "none", prepare: |given| dotnet(given, &[]) },
    Row {
        name: "dotnet-map",
        options: "`DOTNET_PerfMapEnabled=1`",
        // Up to .NET 5 the variable has the other name.
        prepare: |given| dotnet(given, &["DOTNET_PerfMapEnabled", "COMPlus_PerfMapEnabled"]),
    },
    Row { name: "numba", options: "none", prepare: |given| numba(given, &[]) },
    Row {
        name: "numba-profiling",
        options: "`NUMBA_ENABLE_PROFILING=1`",
        prepare: |given| numba(given, &["NUMBA_ENABLE_PROFILING"]),
    },
    Row { name: "luajit", options: "none", prepare: |given| luajit(given, &[]) },
    Row { name: "luajit-off", options: "`-joff` (interpreter alone)", prepare: |given| luajit(given, &["-joff"]) },
    Row { name: "php", options: "`opcache.jit=tracing`", prepare: |given| php(given, &["-d", "opcache.jit=tracing"]) },
    Row {
        name: "php-map",
        options: "`opcache.jit=tracing`, `opcache.jit_debug=0x10`",
        prepare: |given| php(given, &["-d", "opcache.jit=tracing", "-d", "opcache.jit_debug=0x10"]),
    },
];

fn java(given: &Given, options: &[&str]) -> anyhow::Result<Prepared> {
    let source = prepared::write(&given.directory, "Calls.java", include_str!("Calls.java"))?;
    build(Command::new("javac").arg("-d").arg(&given.directory).arg(source))?;
    prepared::installed("java", &[options, &["-cp", ".", "Calls", &given.milliseconds]].concat())
}

fn node(given: &Given, options: &[&str]) -> anyhow::Result<Prepared> {
    prepared::write(&given.directory, "calls.js", include_str!("calls.js"))?;
    prepared::installed("node", &[options, &["calls.js", &given.milliseconds]].concat())
}

/// Compiled by Mono's compiler: a runtime may be there without an SDK.
fn dotnet(given: &Given, variables: &[&'static str]) -> anyhow::Result<Prepared> {
    let said = Command::new(&given.dotnet).arg("--list-runtimes").output();
    let said = said.with_context(|| format!("no {} (--dotnet names another one)", given.dotnet.display()))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.lines().find_map(|line| line.strip_prefix("Microsoft.NETCore.App ")?.split(' ').next());
    let version = version.context("it lists no runtime")?;
    let source = prepared::write(&given.directory, "Calls.cs", include_str!("Calls.cs"))?;
    build(Command::new("mcs").args(["-optimize+", "-out:Calls.exe"]).arg(source).current_dir(&given.directory))?;
    let framework = format!(r#"{{"name":"Microsoft.NETCore.App","version":"{version}"}}"#);
    let config = format!(r#"{{"runtimeOptions":{{"framework":{framework}}}}}"#);
    prepared::write(&given.directory, "Calls.runtimeconfig.json", config)?;
    // Without it, it wants ICU.
    let variables = [&["DOTNET_SYSTEM_GLOBALIZATION_INVARIANT"], variables].concat();
    Ok(of(&given.dotnet, &["exec", "Calls.exe", &given.milliseconds], &variables))
}

fn numba(given: &Given, variables: &[&'static str]) -> anyhow::Result<Prepared> {
    let mut has = Command::new(&given.python);
    let has = has.args(["-c", "import numba"]).output().is_ok_and(|output| output.status.success());
    ensure!(has, "{} has no numba (--python names another one)", given.python.display());
    prepared::write(&given.directory, "calls.py", include_str!("calls.py"))?;
    Ok(of(&given.python, &["calls.py", &given.milliseconds], variables))
}

fn luajit(given: &Given, options: &[&str]) -> anyhow::Result<Prepared> {
    prepared::write(&given.directory, "calls.lua", include_str!("calls.lua"))?;
    prepared::installed("luajit", &[options, &["calls.lua", &given.milliseconds]].concat())
}

fn php(given: &Given, options: &[&str]) -> anyhow::Result<Prepared> {
    prepared::write(&given.directory, "calls.php", include_str!("calls.php"))?;
    prepared::installed("php", &[&PHP, options, &["calls.php", &given.milliseconds]].concat())
}

fn of(program: &Path, arguments: &[&str], variables: &[&'static str]) -> Prepared {
    Prepared {
        program: program.to_owned(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: variables.iter().map(|variable| (*variable, "1".to_owned())).collect(),
        stdin: Stdin::Nothing,
    }
}

fn build(compiler: &mut Command) -> anyhow::Result<()> {
    let name = compiler.get_program().display().to_string();
    let said = compiler.output().with_context(|| format!("no {name}"))?;
    ensure!(said.status.success(), "{name} cannot compile it: {}", String::from_utf8_lossy(&said.stderr));
    Ok(())
}
