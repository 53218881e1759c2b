//! What the modules of a program lack: names, lines, code that can be unwound; and where to get it.

use std::path::Path;

use callpath_analyze::names::packages::{DPKG_LISTS, debug_package, owners};
use callpath_image::debug_level::DwarfLevel;
use callpath_tables::module_facts::ModuleFacts;

use super::finding::{Finding, State};

/// Code without recipes that goes unnoticed, and that begins to hurt, in thousandths.
const LITTLE: u64 = 10;

/// Findings about all of them; the first is the program's own file.
pub(super) fn findings(modules: &[ModuleFacts]) -> Vec<Finding> {
    let Some(own) = modules.first() else { return Vec::new() };
    let mut findings = vec![unwinding(modules)];
    let paths: Vec<&Path> = modules.iter().map(|module| module.path.as_path()).collect();
    let owners = owners(&paths, Path::new(DPKG_LISTS));
    let mut asked: Vec<String> = Vec::new();
    let mut nameless: Vec<String> = Vec::new();
    for (module, owner) in modules.iter().zip(&owners).filter(|(module, _)| !module.has_all_names()) {
        nameless.push(file_name(&module.path));
        let remedy = match (owner, &module.build_id) {
            (Some(package), _) => format!("apt-get install {}", debug_package(package)),
            (None, Some(id)) => {
                format!("link {} without -s, or: debuginfod-find debuginfo {id}", file_name(&module.path))
            }
            (None, None) => format!("link {} without -s", file_name(&module.path)),
        };
        if !asked.contains(&remedy) {
            asked.push(remedy);
        }
    }
    findings.push(match nameless.as_slice() {
        [] => Finding::good("names", "all modules have full symbol tables, or debug files that do"),
        some => Finding::limited("names", format!("no full symbol table, and no debug file: {}", some.join(", ")))
            .means("procedures that are not exported are called module+0x1234; paths are whole all the same")
            .remedy(asked.join("\n")),
    });
    findings.push(match own.best_dwarf() {
        DwarfLevel::Full => Finding::good("lines", "the program has DWARF: lines, inlined calls, variables"),
        DwarfLevel::Lines => {
            Finding::good("lines", "the program has DWARF with lines and inlined calls (-g1), which is enough")
        }
        DwarfLevel::None => Finding::new("lines", State::Limited, "the program has no DWARF")
            .means("no source lines and no inlined calls in its code; paths are whole all the same")
            .remedy(match owners.first() {
                Some(Some(package)) => format!("apt-get install {}", debug_package(package)),
                _ => "compile with -g1 (the code stays the same)".to_owned(),
            }),
    });
    for module in modules {
        for trouble in &module.diagnostics {
            findings.push(Finding::limited("module", format!("failed to {trouble}")));
        }
    }
    findings
}

fn unwinding(modules: &[ModuleFacts]) -> Finding {
    const TOPIC: &str = "unwinding";
    let sum = |part: fn(&ModuleFacts) -> u64| modules.iter().map(part).sum::<u64>();
    let (frames, analysis) = (sum(|m| m.code.frames_bytes), sum(|m| m.code.analysis_bytes));
    let (unknown, total) = (sum(|m| m.code.unknown_bytes), sum(|m| m.code.total_bytes()));
    let found = format!(
        "of its code {} by call frame information, {} by analysis of the machine code, {} not at all",
        percent(frames, total),
        percent(analysis, total),
        percent(unknown, total)
    );
    let worst = modules.iter().filter(|m| m.code.unknown_bytes * 1000 > m.code.total_bytes() * LITTLE);
    let worst: Vec<String> = worst.map(|module| file_name(&module.path)).collect();
    if worst.is_empty() {
        return Finding::good(TOPIC, found);
    }
    Finding::limited(TOPIC, format!("{found}; most of that in {}", worst.join(", ")))
        .means("samples there have a part of their call path, under \"partial call paths\"")
        .remedy("compile with -fasynchronous-unwind-tables (gcc's default), and do not strip .eh_frame")
}

/// As people read it: one digit, and never 0.0% of something.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    match share {
        share if part > 0 && share < 0.05 => "<0.1%".into(),
        share if part < whole && share >= 99.95 => ">99.9%".into(),
        share => format!("{share:.1}%"),
    }
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Names and DWARF as a word each.
pub(super) fn names_of(module: &ModuleFacts) -> &'static str {
    use callpath_image::debug_level::SymbolLevel;
    match module.symbols {
        SymbolLevel::Full => "symtab",
        _ if module.has_all_names() => "debug-file",
        SymbolLevel::Dynamic => "dynsym",
        SymbolLevel::None => "none",
    }
}

pub(super) fn dwarf_of(module: &ModuleFacts) -> &'static str {
    match module.best_dwarf() {
        DwarfLevel::Full => "full",
        DwarfLevel::Lines => "lines",
        DwarfLevel::None => "none",
    }
}
