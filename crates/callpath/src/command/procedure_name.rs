//! Finds the procedures of a file that a person names.

use std::path::Path;

use callpath_analyze::names::ModuleNames;
use callpath_db::{AskedName, Way, nearest};
use callpath_format::address::LinkAddr;
use callpath_view::text::printable;

use crate::surroundings;

/// What was asked for.
pub(crate) enum Wanted {
    /// The procedures at these addresses.
    At(Vec<LinkAddr>),
    /// No symbol has the name, but DWARF may: its own name for a Fortran procedure is not the linker's, and what is
    /// inlined everywhere has no symbol.
    CalledInDwarf,
}

/// As a report prints its name, whole or shortened; by a part of it, a pattern, or an address.
pub(crate) fn find(names: &ModuleNames, text: &str, asked: &AskedName) -> anyhow::Result<Wanted> {
    let named = |asked: &AskedName, way| -> Vec<LinkAddr> {
        names.starts().filter(|&start| asked.is(&names.procedure(start).name, way)).collect()
    };
    let first = |asked: &AskedName, ways: &[Way]| ways.iter().map(|&way| named(asked, way)).find(|at| !at.is_empty());
    let (exact, others) = Way::ALL.split_at(2);
    if let Some(found) = first(asked, exact) {
        return Ok(Wanted::At(found));
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| names.digits_of_nameless(text)) {
        let address = address(digits).map_err(|why| anyhow::anyhow!("--procedure {text}: not an address: {why}"))?;
        return Ok(Wanted::At(vec![address]));
    }
    let linkers = asked.as_linkers_call_it();
    let found = first(asked, others).or_else(|| first(linkers.as_ref()?, &Way::ALL));
    Ok(found.map_or(Wanted::CalledInDwarf, Wanted::At))
}

/// No procedure has the name.
pub(crate) fn unknown(names: &ModuleNames, file: &Path, (text, asked): (&str, &AskedName)) -> anyhow::Error {
    let all: Vec<String> = names.starts().map(|start| names.procedure(start).name).collect();
    let near = nearest(asked.text(), all.iter().map(String::as_str));
    let near: Vec<_> = near.iter().map(|name| printable(name)).collect();
    let near = if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
    let (text, file) = (printable(text), file.display());
    anyhow::anyhow!(
        "no procedure of {file} is called {text}{near}; see all with: {} structure {file}",
        surroundings::typed_command()
    )
}

fn address(digits: &str) -> Result<LinkAddr, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("hexadecimal digits are expected after 0x");
    }
    // Nothing else is wrong with digits.
    u64::from_str_radix(digits, 16).map(LinkAddr).map_err(|_| "addresses have 64 bits at most")
}
