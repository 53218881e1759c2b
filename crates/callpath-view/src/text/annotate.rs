//! A procedure's source with what each line costs; what is inlined, where its own source is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufWriter, Write};
use std::num::NonZeroU16;

use callpath_db::{Name, Profile, Query, Recursion, Scope, ScopeKind, View, ViewKind};

use super::assembly::{self, Assembly, AssemblyText};
use super::label::module_label;
use super::lines::{self, LineCost, Lines};
use super::options::TextOptions;
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, printable};
use super::quantity::{percent, value};
use super::{groups, head, levels};
use crate::ViewError;

/// So many lines around one with a cost are shown.
const AROUND: u32 = 2;

/// A tab goes to the next multiple of so many columns.
const TAB_COLUMNS: usize = 4;

/// Bars of so many loops inside each other are drawn.
const MOST_BARS: usize = 6;

/// A source file's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceText {
    /// Its lines, in order.
    pub lines: Vec<String>,
    /// What a reader has to know of it, as that it is newer than the program.
    pub note: Option<String>,
}

/// Where source and instructions come from.
pub struct AnnotatedCode<'a> {
    /// Gives a file's text, or says why it is not there.
    pub source: &'a mut dyn FnMut(&str) -> Result<SourceText, String>,
    /// Where they are asked for.
    pub assembly: Option<&'a Assembly>,
}

/// The procedures that `query` means, the costliest of the outermost ones first.
pub fn annotated_procedures(profile: &Profile, query: &Query) -> Result<Vec<Scope>, ViewError> {
    Ok(Lines::of(profile, query)?.procedures)
}

/// Writes the source of the procedures that `options.query.procedure` means, by line with what each costs: in total and without
/// what is called there; then their instructions.
pub fn annotate(
    profile: &Profile,
    options: &TextOptions,
    code: AnnotatedCode<'_>,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let options = levels::without_single_levels(profile, options, ViewKind::Context);
    let lines = Lines::of(profile, &options.query)?;
    let with_loops = profile.view(&with_loops(&options.query))?;
    let page = Page { profile, options: &options };
    let annotation = Annotation { page, total: with_loops.inclusive(0).get(0), loops: loops(&with_loops, &lines) };
    let mut out = BufWriter::new(out);
    head::what_ran(page, &mut out)?;
    groups::members(page, &mut out)?;
    if annotation.total == 0 {
        writeln!(out, "\nNothing was measured there.")?;
    }
    for part in parts(&lines) {
        annotation.write(&part, code.source, &mut out)?;
    }
    if lines.unknown != LineCost::default() {
        let of = if lines.costs.is_empty() {
            "there is no debug information (compile with -g)"
        } else {
            "of code without a known line"
        };
        let (total, own) = (lines.unknown.total, lines.unknown.own);
        writeln!(
            out,
            "\n{} {}  {}",
            annotation.cells(total, own),
            page.ink(Ink::Dim, "     "),
            page.ink(Ink::Dim, of)
        )?;
    }
    if let Some(assembly) = code.assembly {
        assembly::write(page, assembly, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// The same as JSON: one object with the metric's name, unit and total, the lines that cost something, the loops, and the instructions.
pub fn annotate_json(
    profile: &Profile,
    options: &TextOptions,
    code: AnnotatedCode<'_>,
    out: &mut dyn Write,
) -> Result<(), ViewError> {
    let lines = Lines::of(profile, &options.query)?;
    let loops = loops(&profile.view(&with_loops(&options.query))?, &lines);
    let total = profile.view(&Query { max_depth: Some(1), ..options.query.clone() })?.inclusive(0).get(0);
    let metric = profile.metrics.first();
    let cost = |cost: LineCost| serde_json::json!({ "total": cost.total, "self": cost.own });
    let mut all = Vec::new();
    for part in parts(&lines) {
        let file = profile.strings.get(part.file);
        let text = (code.source)(file).map_or_else(|_| Vec::new(), |text| text.lines);
        for (line, its) in &part.costs {
            let mut row = cost(*its);
            row["file"] = file.into();
            row["line"] = (*line).into();
            if let Some(inlined) = part.inlined {
                row["inlined"] = profile.strings.get(inlined).into();
            }
            if let Some(text) = text.get((*line as usize).wrapping_sub(1)) {
                row["text"] = text.as_str().into();
            }
            all.push(row);
        }
    }
    let procedures = lines.procedures.iter().map(|scope| profile.strings.get(scope.name));
    let mut all_loops: Vec<_> = loops
        .iter()
        .flat_map(|((inlined, file), loops)| loops.iter().map(move |its| (*file, *inlined, its.first, its.last)))
        .collect();
    all_loops.sort_unstable();
    let all_loops = all_loops.into_iter().map(|(file, inlined, first, last)| {
        let mut row = serde_json::json!({ "file": profile.strings.get(file), "first": first, "last": last });
        if let Some(inlined) = inlined {
            row["inlined"] = profile.strings.get(inlined).into();
        }
        row
    });
    let mut json = serde_json::json!({
        "schema": 1,
        "kind": "annotate",
        "metric": metric.map_or("", |metric| &metric.name),
        "unit": metric.map_or("", |metric| &metric.unit),
        "total": total,
        "procedures": procedures.collect::<Vec<_>>(),
        "lines": all,
        "loops": all_loops.collect::<Vec<_>>(),
        "without_line": cost(lines.unknown),
    });
    if let Some(Assembly { procedures, missing }) = code.assembly {
        json["code"] = procedures.iter().map(AssemblyText::json).collect();
        json["missing"] = missing.as_slice().into();
    }
    writeln!(out, "{json}")?;
    out.flush()?;
    Ok(())
}

/// What shows the loops around lines.
fn with_loops(query: &Query) -> Query {
    Query {
        fold: vec![ScopeKind::Process, ScopeKind::Thread, ScopeKind::SystemCall],
        recursion: Recursion::Full,
        ..lines::query(query)
    }
}

/// The lines of one procedure in one file: of those asked for, or of one that is inlined there.
struct Part<'a> {
    file: Name,
    inlined: Option<Name>,
    /// The procedures whose source this is; none of what is inlined.
    procedures: Vec<&'a Scope>,
    costs: BTreeMap<u32, LineCost>,
}

/// Each procedure's own lines first, then what is inlined, the costliest first.
fn parts(lines: &Lines) -> Vec<Part<'_>> {
    let mut index: HashMap<(Option<Name>, Name), usize> = HashMap::new();
    let mut parts: Vec<Part<'_>> = Vec::new();
    for (line, cost) in &lines.costs {
        let at = *index.entry((line.inlined, line.file)).or_insert_with(|| {
            let is_here = |procedure: &&Scope| line.inlined.is_none() && procedure.file == Some(line.file);
            let procedures = lines.procedures.iter().filter(is_here).collect();
            parts.push(Part { file: line.file, inlined: line.inlined, procedures, costs: BTreeMap::new() });
            parts.len() - 1
        });
        parts[at].costs.insert(line.line, *cost);
    }
    let own = |part: &Part<'_>| part.costs.values().fold(0u64, |sum, cost| sum.saturating_add(cost.own));
    parts.sort_by_key(|part| (part.inlined.is_some(), std::cmp::Reverse(own(part)), part.file));
    parts
}

/// A loop: where it is, and from which line to which its code is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Loop {
    first: u32,
    last: u32,
}

/// What a loop is known by: what it is in (the procedure, or what is inlined there), file, line, column.
type LoopKey = (Option<Name>, Name, u32, Option<NonZeroU16>);

/// The loops of the procedures whose lines these are, by what they are in (the procedure, or what is inlined there) and file.
fn loops(view: &View, lines: &Lines) -> HashMap<(Option<Name>, Name), Vec<Loop>> {
    // For each node in one of the procedures, the inlined one that it is in, and the loops around it there.
    type Around = Option<(Option<Name>, Vec<usize>)>;
    let mut around: Vec<Around> = Vec::with_capacity(view.nodes.len());
    let mut extents: BTreeMap<LoopKey, Loop> = BTreeMap::new();
    let mut key_of: HashMap<usize, LoopKey> = HashMap::new();
    for (number, node) in view.nodes.iter().enumerate() {
        let scope = &node.scope;
        let outside = node.parent.and_then(|parent| around[parent].as_ref());
        let (here, loops_here): (Around, &[usize]) = match (outside, scope.kind) {
            _ if lines.is_one(scope) => (Some((None, Vec::new())), &[]),
            (None, _) | (Some(_), ScopeKind::Procedure) => (None, &[]),
            // The line that it is called from is one of the loop's, too.
            (Some((_, loops)), ScopeKind::Inlined) => (Some((Some(scope.name), Vec::new())), loops),
            (Some((inlined, loops)), kind) => {
                let mut inside = loops.clone();
                if let (ScopeKind::Loop, Some((file, line))) = (kind, scope.file.zip(scope.line)) {
                    let key = (*inlined, file, line, scope.column);
                    extents.entry(key).or_insert(Loop { first: line, last: line });
                    key_of.insert(number, key);
                    inside.push(number);
                }
                (Some((*inlined, inside)), loops)
            }
        };
        let line = match scope.kind {
            ScopeKind::Line => scope.file.zip(scope.line),
            ScopeKind::Inlined => scope.call_site.map(|site| (site.file, site.line)),
            _ => None,
        };
        if let Some((file, line)) = line {
            for key in loops_here.iter().filter_map(|outer| key_of.get(outer)).filter(|key| key.1 == file) {
                if let Some(extent) = extents.get_mut(key) {
                    extent.last = extent.last.max(line);
                }
            }
        }
        around.push(here);
    }
    let mut loops: HashMap<(Option<Name>, Name), Vec<Loop>> = HashMap::new();
    for ((inlined, file, ..), extent) in extents {
        loops.entry((inlined, file)).or_default().push(extent);
    }
    loops
}

struct Annotation<'a> {
    page: Page<'a>,
    /// What everything costs, of which shares are.
    total: u64,
    loops: HashMap<(Option<Name>, Name), Vec<Loop>>,
}

impl Annotation<'_> {
    fn cells(&self, total: u64, own: u64) -> String {
        let Page { profile, .. } = self.page;
        let unit = profile.metrics.first().map_or("", |metric| &metric.unit);
        let share = |cost: u64| if cost > 0 { percent(cost, self.total) } else { String::new() };
        let cost = if total > 0 { value(total, unit) } else { String::new() };
        let own = self.page.ink(Paint::heat(own, self.total), &format!("{:>6}", share(own)));
        format!("{:>6} {cost:>9}  {own}", share(total))
    }

    fn write(
        &self,
        part: &Part<'_>,
        source: &mut dyn FnMut(&str) -> Result<SourceText, String>,
        out: &mut dyn Write,
    ) -> Result<(), ViewError> {
        let Page { profile, options } = self.page;
        let file = profile.strings.get(part.file);
        let name = match (part.inlined, &part.procedures[..]) {
            (Some(inlined), _) => format!("{} (inlined)", printable(profile.strings.get(inlined))),
            (None, [first, more @ ..]) => {
                let module = module_label(first, profile).map_or(String::new(), |module| format!("  {module}"));
                let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
                format!("{}{more}{module}", printable(profile.strings.get(first.name)))
            }
            // Of another file, as a macro's or an include's.
            (None, []) => "the same procedure".to_owned(),
        };
        let title = format!("{name}  {} by {}", printable(file), self.page.metric_name());
        writeln!(out, "\n{}", self.page.ink(Ink::Bold, &cut_end(&title, options.width)))?;
        let text = source(file);
        let note = match &text {
            Ok(text) => text.note.clone(),
            Err(why) => Some(why.clone()),
        };
        if let Some(note) = note {
            for line in head::lines_of(&[printable(&note)], " ", options.width) {
                writeln!(out, "{}", self.page.ink(Ink::Dim, &line))?;
            }
        }
        let heading = format!("{:>6} {:>9}  {:>6}  {:>6}  source", "total", self.page.cost_heading(), "self", "line");
        writeln!(out, "{}", self.page.ink(Ink::Bold, &cut_end(&heading, options.width)))?;
        let none = Vec::new();
        let text = text.map_or(none, |text| text.lines);
        let loops = self.loops.get(&(part.inlined, part.file)).map_or(&[][..], Vec::as_slice);
        let mut last = None;
        for line in self.shown(part, &text) {
            if last.is_some_and(|last: u32| last + 1 < line) {
                writeln!(out, "{:>33}", self.page.ink(Ink::Dim, "…"))?;
            }
            last = Some(line);
            let cost = part.costs.get(&line).copied().unwrap_or_default();
            let mut bars = String::new();
            let around = loops.iter().filter(|its| (its.first..=its.last).contains(&line));
            for its in around.take(MOST_BARS) {
                bars += match (its.first == line, its.last == line) {
                    (true, true) => "─",
                    (true, false) => "┌",
                    (false, true) => "└",
                    (false, false) => "│",
                };
            }
            let code =
                text.get((line as usize).wrapping_sub(1)).map_or(String::new(), |code| printable(&untabbed(code)));
            let cells = self.cells(cost.total, cost.own);
            let room = options.width.saturating_sub(34 + columns(&bars) + 1);
            let bars = self.page.ink(Ink::Dim, &format!("{bars:<1} "));
            let row = format!("{cells}  {line:>6}  {bars}{}", cut_end(&code, room));
            writeln!(out, "{}", row.trim_end())?;
        }
        Ok(())
    }

    /// Which lines are shown: those with a cost, what is around them, and where procedures and loops begin.
    fn shown(&self, part: &Part<'_>, text: &[String]) -> BTreeSet<u32> {
        let mut shown = BTreeSet::new();
        let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        for line in part.costs.keys() {
            shown.insert(*line);
            if text.is_empty() {
                continue;
            }
            shown
                .extend((line.saturating_sub(AROUND).max(1)..=line.saturating_add(AROUND)).filter(|near| *near <= end));
        }
        shown.extend(part.procedures.iter().filter_map(|procedure| procedure.line).filter(|line| *line > 0));
        let loops = self.loops.get(&(part.inlined, part.file)).into_iter().flatten();
        shown.extend(loops.map(|its| its.first).filter(|line| *line > 0));
        shown.remove(&0);
        shown
    }
}

/// With blanks for tabs.
fn untabbed(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut column = 0;
    for c in line.chars() {
        let count = if c == '\t' { TAB_COLUMNS - column % TAB_COLUMNS } else { 1 };
        text.extend(std::iter::repeat_n(if c == '\t' { ' ' } else { c }, count));
        column += count;
    }
    text
}
