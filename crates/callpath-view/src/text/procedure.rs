//! One procedure on a page: what it costs, who calls it, what it calls, and its lines.

use std::io::{BufWriter, Write};

use callpath_db::{Profile, Scope, ScopeKind, ViewKind};

use super::label::{label_among, module_label};
use super::lines::{Lines, place};
use super::options::TextOptions;
use super::page::Page;
use super::paint::Ink;
use super::quantity::count;
use super::views::Views;
use super::{groups, head, hot, levels};
use crate::ViewError;

/// Rows of each tree, where its threshold can be raised to keep it short.
const MOST_ROWS: usize = 40;

/// Procedures that one name means: so many are named.
const MOST_NAMED: usize = 5;

/// Writes the page of the procedures that `options.query.procedure` means. What they cost while one of them was active
/// is the whole of each of its three parts.
pub fn procedure(profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let for_view = |view: ViewKind| {
        let mut options = levels::without_single_levels(profile, options, view);
        if options.max_lines != usize::MAX {
            options.max_lines = options.max_lines.min(MOST_ROWS);
        }
        options
    };
    let mut of_callers = for_view(ViewKind::Callers);
    let callers = Views::within(profile, &mut of_callers)?;
    let mut of_callees = for_view(ViewKind::Context);
    let callees = Views::within(profile, &mut of_callees)?;
    let lines = Lines::of(profile, &of_callees.query)?;

    let page = Page { profile, options: &of_callees };
    let mut out = BufWriter::new(out);
    head::what_ran(page, &mut out)?;
    head::quality(page, &mut out)?;
    groups::members(page, &mut out)?;
    writeln!(out)?;
    let as_procedure = |scope: &Scope| Scope { kind: ScopeKind::Procedure, ..*scope };
    let named: Vec<Scope> = lines.procedures.iter().take(MOST_NAMED).map(as_procedure).collect();
    for (index, scope) in named.iter().enumerate() {
        let module = module_label(scope, profile).map_or(String::new(), |module| format!("  {module}"));
        let others = named.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
        let name = label_among(scope, others, profile).fit(page.options.width);
        let place = scope.file.map(|file| place(profile, file, scope.line)).map(|place| format!("  {place}"));
        let asides = page.ink(Ink::Dim, &format!("{module}{}", place.unwrap_or_default()));
        writeln!(out, "{}{asides}", page.ink(Ink::Bold, &name))?;
    }
    if lines.procedures.len() > MOST_NAMED {
        let more = (lines.procedures.len() - MOST_NAMED) as u64;
        writeln!(out, "{}", page.ink(Ink::Dim, &count(more, "more procedure", "more procedures")))?;
    }
    if callees.has_cost() {
        hot::hottest_path(&profile.view(&hot::whole(&of_callees.query))?, page, &mut out)?;
        writeln!(out)?;
        callers.write("Callers", Page { profile, options: &of_callers }, &mut out)?;
        writeln!(out)?;
        callees.write("Callees", page, &mut out)?;
        lines.write(page, &mut out)?;
    } else {
        writeln!(out, "\nNothing was measured there.")?;
    }
    out.flush()?;
    Ok(())
}
