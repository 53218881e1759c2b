//! A differential flame graph: the call paths of a difference, coloured by what changed.
//!
//! A rectangle is as wide as its cost on side B, together with what side A alone has below it. Red is slower, blue faster,
//! grey within noise.

use std::io::{self, Write};

use callpath_db::ScopeKind;
use callpath_db::diff::{Change, Diff, RowChange};

use super::flamegraph::{self, Picture, with_unit};
use crate::text::{change_in_words, printable};

/// Writes the call paths of a difference as one SVG.
pub fn write_diff(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    let rows = &diff.contexts;
    let mut widths = vec![0u64; rows.len()];
    for (number, row) in rows.iter().enumerate().rev() {
        widths[number] += own_width(row);
        // A loop is a part of its procedure's own body, which has its cost already.
        if let Some(parent) = row.parent.filter(|_| row.kind != ScopeKind::Loop) {
            widths[parent] += widths[number];
        }
    }
    for (number, row) in rows.iter().enumerate() {
        // What only A had beside what B has of a procedure is in no rectangle.
        let is_hidden = |parent: usize| row.kind == ScopeKind::Loop && is_only_a(row) && !is_only_a(&rows[parent]);
        if row.parent.is_some_and(is_hidden) {
            widths[number] = 0;
        }
    }
    flamegraph::write(&Difference { diff, widths }, out)
}

fn is_only_a(row: &RowChange) -> bool {
    row.inclusive.b <= 0.0 && row.inclusive.a > 0.0
}

fn own_width(row: &RowChange) -> u64 {
    (if is_only_a(row) { row.own.a } else { row.own.b }).max(0.0).round() as u64
}

struct Difference<'a> {
    diff: &'a Diff,
    /// By row.
    widths: Vec<u64>,
}

impl Picture for Difference<'_> {
    fn title(&self) -> String {
        let program = self.diff.contexts.iter().find(|row| row.kind == ScopeKind::Process);
        let program = program.map_or(String::new(), |process| format!("{}: ", printable(&process.name)));
        format!("{program}{}, A -> B", printable(&self.diff.metric.name))
    }

    fn unit(&self) -> &str {
        &self.diff.metric.unit
    }

    fn legend(&self) -> &[(&'static str, &'static str)] {
        &[("slower", SLOWER), ("faster", FASTER), ("moved", MOVED), ("noise", NOISE)]
    }

    fn len(&self) -> usize {
        self.diff.contexts.len()
    }

    fn parent(&self, node: usize) -> Option<usize> {
        self.diff.contexts[node].parent
    }

    fn width(&self, node: usize) -> u64 {
        self.widths[node]
    }

    fn name(&self, node: usize) -> String {
        match self.diff.contexts[node].kind {
            ScopeKind::Root => "all".into(),
            _ => printable(&self.diff.contexts[node].name),
        }
    }

    fn about(&self, node: usize) -> String {
        let row = &self.diff.contexts[node];
        let module = if row.module.is_empty() { String::new() } else { format!(" [{}]", printable(&row.module)) };
        let cost = |cost: f64| with_unit(cost.max(0.0).round() as u64, self.unit());
        let [a, b] = [row.inclusive.a, row.inclusive.b].map(cost);
        format!("{module}\n{}\nA: {a}, B: {b}", self.words(node))
    }

    fn note(&self, node: usize) -> Option<String> {
        Some(self.words(node))
    }

    fn color(&self, node: usize) -> String {
        let RowChange { inclusive, is_moved, .. } = &self.diff.contexts[node];
        match (inclusive.is_found, is_moved) {
            (false, _) => NOISE.into(),
            (true, true) => MOVED.into(),
            (true, false) => shade(inclusive),
        }
    }
}

impl Difference<'_> {
    fn words(&self, node: usize) -> String {
        let row = &self.diff.contexts[node];
        let moved = if row.is_moved { ", moved: the procedure as a whole did not change" } else { "" };
        let noise = if row.inclusive.is_found { "" } else { ", within noise" };
        format!("{}{noise}{moved}", change_in_words(&row.inclusive, self.unit()))
    }
}

const SLOWER: &str = "#d7301f";
const FASTER: &str = "#2b6cb0";
const MOVED: &str = "#b79ae0";
const NOISE: &str = "#d2d2cd";

/// Deeper for what changed by more; by half and more, and what came or went, is deepest.
fn shade(change: &Change) -> String {
    let relative = change.relative().map_or(1.0, f64::abs).min(0.5) / 0.5;
    let (hue, saturation) = if change.difference() > 0.0 { (6, 75) } else { (211, 60) };
    format!("hsl({hue},{saturation}%,{:.0}%)", 82.0 - 34.0 * relative)
}
