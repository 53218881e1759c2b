//! `callpath report --context`: call paths by the numbers that a program has logged.

use std::io::Write;
use std::path::Path;

use callpath_db::database::is_database;
use callpath_db::{Profile, Query, ScopeKind, View};
use callpath_measurement::NoContext;
use callpath_view::text::{NumberedContext, NumberedFrame, contexts, contexts_json};

use super::{Arguments, query};
use crate::command::profile::{of_measurement, read};
use crate::output;

/// A number as it was logged, decimal or hexadecimal.
pub(super) fn number(typed: &str) -> Result<u64, &'static str> {
    let parsed = match typed.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => typed.parse(),
    };
    parsed.map_err(|_| "not a number as callpath_context() returns it")
}

pub(super) fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let directory = arguments.measurement.as_deref();
    let all = arguments.context.iter().map(|number| find(directory, *number, arguments));
    let all = all.collect::<anyhow::Result<Vec<NumberedContext>>>()?;
    if arguments.json {
        let mut out = output::stdout();
        writeln!(out, "{}", contexts_json(&all))?;
        return Ok(out.flush()?);
    }
    let mut out = arguments.screen.open();
    contexts(&all, &mut out)?;
    Ok(out.end()?)
}

fn find(directory: Option<&Path>, number: u64, arguments: &Arguments) -> anyhow::Result<NumberedContext> {
    if number == 0 {
        anyhow::bail!("0 is no context: the program asked where no probed function was active");
    }
    if let Some(file) = directory.filter(|file| is_database(file)) {
        let file = file.display();
        anyhow::bail!(
            "{file} is a database, which has no numbers of contexts: name the measurement that it was made of"
        );
    }
    let mut measurement = read(directory)?;
    let still_grows = measurement.session.ended.is_none();
    if let Err(why) = measurement.retain_context(number) {
        let directory = measurement.directory.display();
        match why {
            NoContext::NotNumbered => {
                anyhow::bail!("the contexts of {directory} have no numbers: measure with `-m context` (callpath probe)")
            }
            NoContext::Unknown { numbers } => {
                let now = if still_grows { "; new ones are written by `callpath ctl DIR snapshot`" } else { "" };
                anyhow::bail!("no context of {directory} has the number {number}; there are {numbers}{now}")
            }
        }
    }
    let pids = measurement.processes.iter().map(|process| process.pid).collect();
    let profile = of_measurement(&measurement)?;
    let asked = query(arguments);
    let fold = asked.fold.iter().copied().chain([ScopeKind::Loop, ScopeKind::Line]).collect();
    let view = profile.view(&Query { fold, min_share: 0.0, max_depth: None, regions_meet: false, ..asked })?;
    let own = profile.contexts.iter().filter(|(_, cost)| !cost.is_zero()).last();
    let path = path(&view);
    let calls = profile.column("calls").map_or(0, |column| view.inclusive(0).get(column));
    Ok(NumberedContext {
        number,
        id: own.map_or(0, |(context, _)| context.id.0),
        calls,
        pids,
        is_partial: path.iter().any(|node| view.nodes[*node].scope.kind == ScopeKind::Partial),
        frames: path.iter().filter_map(|node| frame(&view, *node, &profile)).collect(),
    })
}

/// The nodes of a view whose paths are all the same one, outermost first.
fn path(view: &View) -> Vec<usize> {
    let innermost = view.nodes.len().checked_sub(1);
    let mut path: Vec<usize> = std::iter::successors(innermost, |node| view.nodes[*node].parent).collect();
    path.reverse();
    path
}

fn frame(view: &View, node: usize, profile: &Profile) -> Option<NumberedFrame> {
    let scope = &view.nodes[node].scope;
    let text = |name| profile.strings.get(name).to_owned();
    scope.kind.is_frame().then(|| NumberedFrame {
        kind: scope.kind.word(),
        name: view.name(node, profile).into_owned(),
        module: scope.module.map(text),
        call_site: scope.call_site.map(|site| (text(site.file), site.line)),
    })
}
