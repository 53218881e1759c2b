//! What was found, as text for a person and as JSON.

use std::io::{self, Write};

use callpath_view::json::quoted as json_string;
use callpath_view::text::printable;

use super::finding::{Finding, State};
use super::modules::{dwarf_of, names_of, percent};
use super::program::Program;
use super::report::Report;
use crate::wrapped::wrapped;

/// The schema of the JSON (docs/formats.md).
const SCHEMA: u32 = 1;
/// Columns before what was found.
const INDENT: usize = 36;

fn word(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Limited => "limited",
        State::Bad => "bad",
    }
}

/// As text, at most `width` columns wide where words allow it.
pub(super) fn text(report: &Report, width: usize, color: bool, out: &mut dyn Write) -> io::Result<()> {
    let heading = |text: &str| if color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    writeln!(out, "{}", heading("This machine"))?;
    for finding in &report.machine {
        one(finding, width, color, out)?;
    }
    let Some(program) = &report.program else { return Ok(()) };
    let path = printable(&program.path.to_string_lossy());
    writeln!(out, "\n{}", heading(&format!("This program: {path}")))?;
    for finding in &program.findings {
        one(finding, width, color, out)?;
    }
    if !program.modules.is_empty() {
        let shares = "Its modules: code that can be unwound by call frame information, by analysis, not at all";
        writeln!(out, "\n{}", heading(shares))?;
        modules(program, out)?;
    }
    Ok(())
}

fn one(finding: &Finding, width: usize, color: bool, out: &mut dyn Write) -> io::Result<()> {
    let ink = match finding.state {
        _ if !color => "",
        State::Good => "\x1b[32m",
        State::Limited => "\x1b[33m",
        State::Bad => "\x1b[1;31m",
    };
    let end = if ink.is_empty() { "" } else { "\x1b[0m" };
    let mut before = format!("  {ink}{:<7}{end}  {:<23}  ", word(finding.state), finding.topic);
    let remedies = finding.remedy.lines().map(|line| format!("-> {line}"));
    let texts = [finding.found.clone(), finding.meaning.clone()].into_iter().chain(remedies);
    for text in texts.filter(|text| !text.is_empty()) {
        for line in wrapped(&printable(&text), width.saturating_sub(INDENT)) {
            writeln!(out, "{before}{line}")?;
            before = " ".repeat(INDENT);
        }
    }
    Ok(())
}

fn modules(program: &Program, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  frames  analysis   none      code  names       DWARF  module")?;
    for module in &program.modules {
        let (code, total) = (&module.code, module.code.total_bytes());
        writeln!(
            out,
            "  {:>6}  {:>8}  {:>5}  {:>4} KiB  {:<10}  {:<5}  {}",
            percent(code.frames_bytes, total),
            percent(code.analysis_bytes, total),
            percent(code.unknown_bytes, total),
            total.div_ceil(1024),
            names_of(module),
            dwarf_of(module),
            printable(&module.path.to_string_lossy()),
        )?;
    }
    Ok(())
}

/// As JSON.
pub(super) fn json(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"schema\":{SCHEMA},\"kind\":\"doctor\",\"can_record\":{},\n\"machine\":", !report.is_hopeless())?;
    findings(&report.machine, out)?;
    if let Some(program) = &report.program {
        write!(out, ",\n\"program\":{{\"path\":{},\n\"findings\":", json_string(&program.path.to_string_lossy())?)?;
        findings(&program.findings, out)?;
        write!(out, ",\n\"modules\":[")?;
        for (index, module) in program.modules.iter().enumerate() {
            writeln!(out, "{}", if index == 0 { "" } else { "," })?;
            write!(out, "{{\"path\":{}", json_string(&module.path.to_string_lossy())?)?;
            if let Some(id) = &module.build_id {
                write!(out, ",\"build_id\":{}", json_string(id)?)?;
            }
            write!(out, ",\"names\":\"{}\",\"dwarf\":\"{}\"", names_of(module), dwarf_of(module))?;
            if let Some((path, ..)) = &module.debug_file {
                write!(out, ",\"debug_file\":{}", json_string(&path.to_string_lossy())?)?;
            }
            let code = &module.code;
            write!(
                out,
                ",\"code_bytes\":{},\"frames_bytes\":{},\"analysis_bytes\":{},\"unknown_bytes\":{}}}",
                code.total_bytes(),
                code.frames_bytes,
                code.analysis_bytes,
                code.unknown_bytes
            )?;
        }
        write!(out, "]}}")?;
    }
    writeln!(out, "}}")
}

fn findings(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "[")?;
    for (index, finding) in findings.iter().enumerate() {
        let (topic, found) = (json_string(finding.topic)?, json_string(&finding.found)?);
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\n{{\"topic\":{topic},\"state\":\"{}\",\"found\":{found}", word(finding.state))?;
        for (key, text) in [("meaning", &finding.meaning), ("remedy", &finding.remedy)] {
            if !text.is_empty() {
                write!(out, ",\"{key}\":{}", json_string(text)?)?;
            }
        }
        write!(out, "}}")?;
    }
    write!(out, "]")
}
