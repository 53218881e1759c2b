//! Compares control flow graphs of compiled programs with their compilers' assembler output.
//!
//! This output names each table and each case by a label. It is assembled with these labels preserved, so the linked
//! file has the address of every table and of every entry's target.

mod loops;
mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_x86::graph::{ProcedureGraph, merged};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/procedure_graphs");

/// Runs a tool in `directory`. Returns its output.
fn run(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program in assembler, and its labels' addresses. Undefined symbols stay undefined.
struct Program {
    module: Module,
    symbols: BTreeMap<String, u64>,
    assembler: String,
}

fn link(directory: &Path, assembler: PathBuf, is_shared: bool) -> Program {
    let text = std::fs::read_to_string(&assembler).unwrap();
    let name = assembler.to_str().unwrap();
    run(directory, "gcc", &["-c", "-Wa,-L", name, "-o", "code.o"]);
    let kind = if is_shared { "-shared" } else { "-no-pie" };
    // Without the loader's part: the program is never run.
    let arguments = [kind, "-nostdlib", "-Wl,--unresolved-symbols=ignore-all,-e,0", "code.o", "-o", "program"];
    run(directory, "gcc", &arguments);
    let symbols = run(directory, "nm", &["program"]);
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), address))
    };
    let symbols = symbols.lines().filter_map(symbol).collect();
    run(directory, "strip", &["program", "-o", "stripped"]);
    let module = Module::read(&directory.join("stripped")).unwrap();
    Program { module, symbols, assembler: text }
}

/// The graphs of a module's procedures.
fn graphs(module: &Module) -> Vec<ProcedureGraph> {
    with_flow(module, |flow, _| merged((0..flow.len()).map(|procedure| flow.graph(procedure)).collect()))
}

/// The tables in the assembler output: the address of each, and its entries' targets.
fn written_tables(program: &Program) -> BTreeMap<u64, BTreeSet<u64>> {
    // gcc's labels of code, and LLVM's.
    let is_label = |text: &str| {
        let rest = text.strip_prefix(".L").unwrap_or("");
        rest.starts_with("BB") || rest.starts_with(|first: char| first.is_ascii_digit())
    };
    let mut tables: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut label = None;
    let mut section = "";
    let mut has_zero = false;
    for line in program.assembler.lines().map(str::trim) {
        if line.starts_with(".section") || line == ".text" || line.starts_with(".data") {
            section = line;
        }
        if let Some(name) = line.strip_suffix(':') {
            (label, has_zero) = (Some(name.to_owned()), false);
            continue;
        }
        let is_data = section.contains("rodata") || section.contains(".data.rel");
        let entry = line.strip_prefix(".long").or_else(|| line.strip_prefix(".quad")).map(str::trim);
        let parts = entry.map(|entry| entry.split_once('-').unwrap_or((entry, "")));
        match (&label, parts) {
            (Some(table), Some((to, base))) if is_label(to) && is_data => {
                let at = |label: &str| *program.symbols.get(label).unwrap_or_else(|| panic!("{label} is no symbol"));
                let targets = tables.entry(program.symbols[table.as_str()]).or_default();
                targets.insert(at(to));
                if std::mem::take(&mut has_zero) {
                    targets.insert(at(base));
                }
            }
            // The distance of a label from itself.
            (Some(_), Some(("0", ""))) => has_zero = true,
            // Alignment may precede the first entry.
            _ if line.starts_with(".p2align") || line.starts_with(".align") || line.is_empty() => {}
            _ => (label, has_zero) = (None, false),
        }
    }
    tables
}

/// Checks that every table is found with the compiler's targets, and that no jump is unresolved. Returns the number of
/// tables.
fn check_tables(program: &Program, what: &str) -> usize {
    let expect = written_tables(program);
    let mut found = BTreeSet::new();
    let is_code = |address: u64| expect.values().any(|targets| targets.contains(&address));
    for graph in graphs(&program.module) {
        assert_eq!(graph.unresolved(), 0, "{what}: {:#x}", graph.entry);
        for table in &graph.tables {
            let addresses: Vec<u64> = table.addresses.iter().map(|address| address.0).collect();
            let targets: BTreeSet<u64> = table.targets.iter().map(|target| target.0).collect();
            let mut written = BTreeSet::new();
            for address in &addresses {
                written.extend(expect.get(address).unwrap_or_else(|| panic!("{what}: no table at {address:#x}")));
            }
            assert_eq!(targets, written, "{what}: jump at {:#x} through {addresses:x?}", table.jump);
            assert!(targets.iter().all(|&target| is_code(target)));
            found.extend(addresses);
        }
    }
    assert_eq!(found, expect.keys().copied().collect(), "{what}");
    found.len()
}

#[test]
fn tables_of_gcc() {
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for kind in ["-fpic", "-fno-pic"] {
            for protection in ["-fcf-protection=full", "-fcf-protection=none"] {
                let source = format!("{SOURCES}/switches.c");
                let arguments = ["-S", level, kind, protection, &source, "-o", "code.s"];
                run(directory.path(), "gcc", &arguments);
                let program = link(directory.path(), directory.path().join("code.s"), kind == "-fpic");
                count += check_tables(&program, &format!("gcc {level} {kind} {protection}"));
            }
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn tables_of_llvm() {
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for level in ["0", "1", "2", "3", "s"] {
        for model in ["pic", "static"] {
            let source = format!("{SOURCES}/switches.rs");
            let (level, model) = (format!("-Copt-level={level}"), format!("-Crelocation-model={model}"));
            // One unit, so that there is one file.
            let arguments = ["--edition=2024", "-Ccodegen-units=1", "-Cpanic=abort", "-Cforce-unwind-tables=yes"];
            let arguments = [&arguments[..], &["--emit=asm", "-o", "code.s", &level, &model, &source]].concat();
            run(directory.path(), "rustc", &arguments);
            let program = link(directory.path(), directory.path().join("code.s"), model.ends_with("pic"));
            count += check_tables(&program, &format!("rustc {level} {model}"));
        }
    }
    assert!(count > 20, "{count}");
}
