//! A profile as text: the report that a person reads from top to bottom in a minute, and single views.
//! Whether it writes to a terminal, and how wide one is, the caller says.
//!
//! Whatever comes from a program or its binaries is shown with control characters escaped.

mod account;
mod chain;
mod first_metric;
mod head;
mod hot;
mod label;
mod levels;
mod options;
mod paint;
mod printable;
mod quantity;
mod tree;
mod views;

use std::io::{BufWriter, Write};

use callpath_db::{Profile, ViewKind};

use crate::ViewError;
pub use account::account;
use first_metric::metric_name;
pub use options::TextOptions;
pub(crate) use printable::acts_on_terminals;
pub use printable::{printable, shell_word};
use views::Views;

/// Writes the default report: what ran, how its samples were accounted for, the hottest path, the calling context tree
/// as `options.query` prunes it, the procedures by self cost, notes, and what to type next.
pub fn report(profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let mut options = levels::without_single_levels(profile, options, ViewKind::Context);
    let views = Views::within(profile, &mut options)?;
    let procedures = profile.procedures(&options.query)?;
    let mut out = BufWriter::new(out);

    head::what_ran(profile, &options, &mut out)?;
    head::quality(profile, &options, &mut out)?;
    if views.has_cost() {
        hot::hottest_path(&views.folded, profile, &options, &mut out)?;
        writeln!(out)?;
        views.write("Call paths", profile, &options, &mut out)?;
        hot::procedures(&procedures, &views.folded, profile, &options, &mut out)?;
    } else if profile.info.processes.is_empty() {
        writeln!(out, "\nNo process's data can be read: none has been written yet, or its file is gone or damaged.")?;
    } else {
        let who = options.selected().map_or("the program".into(), |selected| printable(&selected));
        writeln!(out, "\nNothing was measured: {who} took less {} than one sample.", metric_name(profile))?;
    }
    head::notes(profile, &options, &mut out)?;
    if views.has_cost() {
        head::next_command(profile, &procedures, &options, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// Writes one view, the one that `options.query` names, under a line that says what it shows, and below it how the samples
/// were accounted for.
pub fn view(profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let options = levels::without_single_levels(profile, options, options.query.view);
    let views = Views::of(profile, &options)?;
    let mut out = BufWriter::new(out);
    let title = match options.query.view {
        ViewKind::Context => "Call paths",
        ViewKind::Callers => "Procedures and their callers",
        ViewKind::Flat => "Modules and procedures",
    };
    if views.has_cost() {
        views.write(title, profile, &options, &mut out)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{title} by {}: nothing was measured", metric_name(profile))?;
    }
    head::quality(profile, &options, &mut out)?;
    out.flush()?;
    Ok(())
}
