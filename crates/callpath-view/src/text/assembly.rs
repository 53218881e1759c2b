//! The instructions of procedures with what each costs itself, the loops around it and where inlined code came from.

use std::io::Write;

use callpath_db::Query;

use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, printable};
use super::quantity::{percent, value};
use crate::ViewError;

/// Bars of so many loops inside each other are drawn.
const MOST_BARS: usize = 6;

/// The instructions of what is asked for.
pub struct Assembly {
    /// The procedures and parts, the costliest first.
    pub procedures: Vec<AssemblyText>,
    /// Why others are not there, a sentence each.
    pub missing: Vec<String>,
}

/// The code of a procedure or of a part of it.
pub struct AssemblyText {
    /// Its name.
    pub name: String,
    /// The file that it is in.
    pub path: String,
    /// Its loops and inlined calls, outer ones before inner ones.
    pub scopes: Vec<AssemblyScope>,
    /// In order of the addresses.
    pub instructions: Vec<InstructionText>,
}

/// A loop, or an inlined call.
pub struct AssemblyScope {
    /// The one around it, by its index, which is smaller; none: the procedure.
    pub parent: Option<usize>,
    /// Of an inlined call, the procedure whose body it is; none: it is a loop.
    pub inlined: Option<String>,
    /// Of a loop, where it begins; of an inlined call, where its procedure is declared.
    pub place: Option<(String, u32)>,
    /// Of a loop: the column in its line, from 1.
    pub column: Option<u16>,
    /// Of an inlined call.
    pub call_site: Option<(String, u32)>,
    /// Its lowest address; of a loop, its first instruction's.
    pub address: u64,
}

/// An instruction.
pub struct InstructionText {
    /// Link-time address.
    pub address: u64,
    /// As an assembler has it.
    pub text: String,
    /// File and line that it belongs to.
    pub line: Option<(String, u32)>,
    /// The innermost loop or inlined call that it is in, by its index; none: the procedure itself.
    pub scope: Option<usize>,
    /// Its own cost by metric 0.
    pub cost: u64,
}

impl AssemblyText {
    /// The scopes around an instruction, from outside in.
    fn around(&self, instruction: &InstructionText) -> Vec<usize> {
        let mut around = Vec::new();
        let mut next = instruction.scope;
        while let Some((number, scope)) = next.and_then(|number| Some((number, self.scopes.get(number)?))) {
            around.push(number);
            next = scope.parent.filter(|parent| *parent < number);
        }
        around.reverse();
        around
    }

    /// `loop at f.c:3 › step (inlined)`
    fn words(&self, around: &[usize]) -> String {
        let words = around.iter().filter_map(|number| self.scopes.get(*number)).map(|scope| match &scope.inlined {
            Some(name) => format!("{} (inlined)", printable(name)),
            None => match &scope.place {
                Some(place) => format!("loop at {}", shown(place)),
                None => format!("loop at {:#x}", scope.address),
            },
        });
        words.collect::<Vec<_>>().join(" › ")
    }

    /// Stable: docs/formats.md.
    pub(super) fn json(&self) -> serde_json::Value {
        let place = |(file, line): &(String, u32)| serde_json::json!({ "file": file, "line": line });
        let hex = |address: u64| format!("{address:#x}");
        let scope = |scope: &AssemblyScope| {
            let kind = if scope.inlined.is_some() { "inlined" } else { "loop" };
            let mut json = serde_json::json!({ "kind": kind, "address": hex(scope.address) });
            if let Some(parent) = scope.parent {
                json["parent"] = parent.into();
            }
            if let Some(name) = &scope.inlined {
                json["name"] = name.as_str().into();
            }
            if let Some(column) = scope.column {
                json["column"] = column.into();
            }
            for (key, known) in [("place", &scope.place), ("call_site", &scope.call_site)] {
                if let Some(known) = known {
                    json[key] = place(known);
                }
            }
            json
        };
        let instruction = |instruction: &InstructionText| {
            let InstructionText { address, text, cost, .. } = instruction;
            let mut json = serde_json::json!({ "address": hex(*address), "text": text, "self": cost });
            if let Some((file, line)) = &instruction.line {
                json["file"] = file.as_str().into();
                json["line"] = (*line).into();
            }
            if let Some(scope) = instruction.scope {
                json["scope"] = scope.into();
            }
            json
        };
        serde_json::json!({
            "name": self.name,
            "path": self.path,
            "scopes": self.scopes.iter().map(scope).collect::<Vec<_>>(),
            "instructions": self.instructions.iter().map(instruction).collect::<Vec<_>>(),
        })
    }
}

/// Writes instructions. Shares are of everything that the page shows.
pub(super) fn write(page: Page<'_>, assembly: &Assembly, out: &mut dyn Write) -> Result<(), ViewError> {
    let Page { profile, options } = page;
    let total = profile.view(&Query { max_depth: Some(1), ..options.query.clone() })?.inclusive(0).get(0);
    let unit = profile.metrics.first().map_or("", |metric| &metric.unit);
    for code in &assembly.procedures {
        let title = format!("{}  {} by {}", printable(&code.name), printable(&code.path), page.metric_name());
        writeln!(out, "\n{}", page.ink(Ink::Bold, &cut_end(&title, options.width)))?;
        let heading = format!("{:>6} {:>9}  {:>16}  instruction", "self", page.cost_heading(), "address");
        writeln!(out, "{}", page.ink(Ink::Bold, &cut_end(&heading, options.width)))?;
        let around: Vec<Vec<usize>> = code.instructions.iter().map(|its| code.around(its)).collect();
        let is_loop = |number: &usize| code.scopes.get(*number).is_some_and(|scope| scope.inlined.is_none());
        let loops: Vec<Vec<usize>> =
            around.iter().map(|around| around.iter().copied().filter(is_loop).collect()).collect();
        let deepest = loops.iter().map(Vec::len).max().unwrap_or(0).min(MOST_BARS);
        let none = Vec::new();
        let mut last = None;
        for (number, instruction) in code.instructions.iter().enumerate() {
            let here = (&instruction.line, &around[number]);
            let before = number.checked_sub(1).map_or(&none, |before| &loops[before]);
            let behind = loops.get(number + 1).unwrap_or(&none);
            let bar = |number: &usize| match (before.contains(number), behind.contains(number)) {
                (false, false) => '─',
                (false, true) => '┌',
                (true, false) => '└',
                (true, true) => '│',
            };
            let mut bars: String = loops[number].iter().take(MOST_BARS).map(bar).collect();
            bars.extend(std::iter::repeat_n(' ', deepest - columns(&bars)));
            if deepest > 0 {
                bars.push(' ');
            }
            let room = options.width.saturating_sub(37 + columns(&bars));
            if last.replace(here) != Some(here) {
                let place = instruction.line.as_ref().map_or_else(|| "no known line".to_owned(), shown);
                let place = format!("{place}  {}", code.words(here.1));
                let open: String = loops[number]
                    .iter()
                    .take(MOST_BARS)
                    .map(|its| if before.contains(its) { '│' } else { ' ' })
                    .collect();
                let open = format!("{open:deepest$}{}", if deepest > 0 { " " } else { "" });
                let row = format!("{:35}  {open}{}", "", cut_end(place.trim_end(), room));
                writeln!(out, "{}", page.ink(Ink::Dim, row.trim_end()))?;
            }
            let InstructionText { address, text, cost, .. } = instruction;
            let (share, cost_text) =
                if *cost > 0 { (percent(*cost, total), value(*cost, unit)) } else { (String::new(), String::new()) };
            let share = page.ink(Paint::heat(*cost, total), &format!("{share:>6}"));
            let bars = page.ink(Ink::Dim, &bars);
            writeln!(out, "{share} {cost_text:>9}  {address:>16x}  {bars}{}", cut_end(text, room))?;
        }
    }
    Ok(())
}

/// `file.c:33`
fn shown((file, line): &(String, u32)) -> String {
    format!("{}:{line}", printable(file.rsplit('/').next().unwrap_or_default()))
}
