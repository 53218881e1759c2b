//! A profile as text: the report that a person reads from top to bottom in a minute, and single views.
//! Whether it writes to a terminal, and how wide one is, the caller says.
//!
//! Whatever comes from a program or its binaries is shown with control characters escaped.

mod annotate;
mod assembly;
mod chain;
mod diff;
mod exact;
mod exact_hot;
mod exact_timed;
mod groups;
mod head;
mod histograms;
mod hot;
mod inner_path;
mod label;
mod levels;
mod lines;
mod live;
mod numbered;
mod options;
mod outline;
mod page;
mod paint;
mod printable;
mod probe_list;
mod procedure;
mod quality;
mod quantity;
mod ranks;
mod row_name;
mod run;
mod shape;
mod shorten;
mod statistics;
mod tree;
mod views;

use std::io::{BufWriter, Write};

use callpath_db::{Answers, Regions, ViewKind};

use crate::ViewError;
pub use annotate::{AnnotatedCode, SourceText, annotate, annotate_json, annotated_procedures};
pub use assembly::{Assembly, AssemblyScope, AssemblyText, InstructionText};
pub(crate) use diff::change_in_words;
pub use diff::{DiffTextOptions, diff};
pub use exact::{ExactText, blocks, paths};
pub(crate) use label::whole_label;
pub use live::{LiveOptions, live, live_line};
pub use numbered::{NumberedContext, NumberedFrame, contexts, contexts_json};
pub use options::TextOptions;
use page::Page;
pub(crate) use printable::acts_on_terminals;
pub use printable::{printable, shell_word};
pub use probe_list::{
    ListedFunction, ListedIfunc, ListedInlined, ListedPlace, ListedUnknown, ProbeList, probe_list, probe_list_json,
};
pub use procedure::procedure;
pub use quality::quality;
pub use quantity::count;
pub use ranks::ranks;
pub use shape::{ShapeText, shape};
pub use statistics::statistics;
use views::Views;

/// Writes the default report: what ran, how its samples were accounted for, the hottest path, the calling context tree
/// as `options.query` prunes it, the procedures by self cost, notes, and what to type next.
pub fn report(answers: &dyn Answers, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let profile = answers.profile_for(&options.query)?;
    let mut options = levels::without_single_levels(profile, options, ViewKind::Context);
    let views = Views::within(answers, &mut options)?;
    let procedures = answers.procedures(&options.query, options.inlined)?;
    let page = Page { profile, options: &options };
    let mut out = BufWriter::new(out);

    head::what_ran(page, &mut out)?;
    head::quality(page, &mut out)?;
    groups::members(page, &mut out)?;
    ranks::line(page, &mut out)?;
    if views.folded.regions != Regions::default() {
        groups::regions(views.folded.regions, page, &mut out)?;
    }
    if views.has_cost() {
        hot::hottest_path(&answers.hottest(&hot::whole(&options.query))?, page, &mut out)?;
        writeln!(out)?;
        views.write("Call paths", page, &mut out)?;
        hot::procedures(&procedures, &views.folded, page, &mut out)?;
    } else if profile.info.processes.is_empty() {
        writeln!(out, "\nNo process's data can be read: none has been written yet, or its file is gone or damaged.")?;
    } else if !profile.is_sampled() {
        writeln!(out, "\nNo samples were taken (-F 0).")?;
    } else {
        let who = options.selected().map_or("the program".into(), |selected| printable(&selected));
        writeln!(out, "\nNothing was measured: {who} took less {} than one sample.", page.metric_name())?;
        if page.metric_name() == "cpu-time" {
            writeln!(out, "What it waits for: record it with -e wall-time.")?;
        }
    }
    head::notes(page, &mut out)?;
    if views.has_cost() {
        head::next_command(page, &procedures, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// Writes one view, the one that `options.query` names, under a line that says what it shows, and
/// below it how the samples were accounted for.
pub fn view(answers: &dyn Answers, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let profile = answers.profile_for(&options.query)?;
    let options = levels::without_single_levels(profile, options, options.query.view);
    let page = Page { profile, options: &options };
    let views = Views::of(answers, &options)?;
    let mut out = BufWriter::new(out);
    groups::selection(page, &mut out)?;
    let title = match (options.query.view, &options.query.procedure) {
        (ViewKind::Context, None) => "Call paths".to_owned(),
        (ViewKind::Callers, None) => "Procedures and their callers".to_owned(),
        (ViewKind::Flat, None) if options.query.flatten > 0 => {
            format!(
                "Code without its {}",
                if options.query.flatten == 1 { "outermost level" } else { "outermost levels" }
            )
        }
        (ViewKind::Flat, None) => "Modules and procedures".to_owned(),
        (ViewKind::Context, Some(procedure)) => format!("Call paths from {}", printable(procedure)),
        (ViewKind::Callers, Some(procedure)) => format!("Callers of {}", printable(procedure)),
        (ViewKind::Flat, Some(procedure)) => format!("Modules and procedures below {}", printable(procedure)),
    };
    if views.has_cost() {
        views.write(&title, page, &mut out)?;
        writeln!(out)?;
    } else if !profile.is_sampled() {
        writeln!(out, "{title}: no samples were taken (-F 0)")?;
    } else {
        writeln!(out, "{title} by {}: nothing was measured", page.metric_name())?;
    }
    head::quality(page, &mut out)?;
    out.flush()?;
    Ok(())
}
