//! A flame graph: one SVG with a script of its own, which refers to nothing outside of itself.
//!
//! What is drawn is a [`Picture`]: a profile's contexts, or those of a difference. Gregg's form: a rectangle for each context, as wide as its inclusive cost, above its caller (flame) or below it
//! (icicle). Siblings come in descending order of cost. What would be too narrow or too deep to see is in its caller's rectangle, and the
//! last line says how much that is.

use std::io::{self, Write};

use callpath_db::ScopeKind;

use super::exported::Exported;

/// All lengths are in pixels of a picture that is scaled to its window.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: usize = 17;
/// Above and below the frames.
const HEAD: usize = 62;
const FOOT: usize = 44;
/// Of a character of a name.
const CHARACTER: f64 = 7.0;

/// What is less than such a part of the whole is not drawn: a 17th of a pixel, which zooming still shows.
const PARTS: u64 = 20_000;

/// The most levels.
const LEVELS: usize = 1_000;

const SCRIPT: &str = include_str!("flamegraph.js");

/// Rectangles in preorder; one lies on its parent, and is not wider than what its siblings leave of it.
pub(super) trait Picture {
    /// What stands above it.
    fn title(&self) -> String;
    /// Of costs.
    fn unit(&self) -> &str;
    /// Words with their colours.
    fn legend(&self) -> &[(&'static str, &'static str)];
    /// How many rectangles there are; number 0 is the widest.
    fn len(&self) -> usize;
    fn parent(&self, node: usize) -> Option<usize>;
    /// How wide it is, as a cost.
    fn width(&self, node: usize) -> u64;
    fn name(&self, node: usize) -> String;
    /// What a reader who points at it sees below its name.
    fn about(&self, node: usize) -> String;
    /// The same in one line; none where the script may say it of the width.
    fn note(&self, node: usize) -> Option<String>;
    fn color(&self, node: usize) -> String;
}

impl Picture for Exported<'_> {
    fn title(&self) -> String {
        format!("{}: {}", self.marked_name(0), self.metric_name())
    }

    fn unit(&self) -> &str {
        Exported::unit(self)
    }

    fn legend(&self) -> &[(&'static str, &'static str)] {
        &[("procedure", "#f0b35a"), ("inlined", "#f3df85"), ("loop", "#9ccf8f"), ("other", "#c9c9c9")]
    }

    fn len(&self) -> usize {
        self.view.nodes.len()
    }

    fn parent(&self, node: usize) -> Option<usize> {
        self.view.nodes[node].parent
    }

    fn width(&self, node: usize) -> u64 {
        self.inclusive(node)
    }

    fn name(&self, node: usize) -> String {
        self.marked_name(node)
    }

    fn about(&self, node: usize) -> String {
        let module =
            self.text(self.view.nodes[node].scope.module).map_or(String::new(), |module| format!(" [{module}]"));
        let share = 100.0 * (self.inclusive(node) as f64 / self.total().max(1) as f64);
        format!("{module}\n{}, {share:.2}%", with_unit(self.inclusive(node), Exported::unit(self)))
    }

    fn note(&self, _: usize) -> Option<String> {
        None
    }

    fn color(&self, node: usize) -> String {
        shade(self.kind(node), &self.marked_name(node))
    }
}

pub(super) fn write(picture: &impl Picture, out: &mut dyn Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let total = picture.width(0);
    let least = (total / PARTS).max(1);
    let mut depths: Vec<u32> = Vec::with_capacity(picture.len());
    let (mut levels, mut hidden) = (1, 0u64);
    for node in 0..picture.len() {
        depths.push(picture.parent(node).map_or(0, |parent| depths[parent].saturating_add(1)));
        let is_drawn = is_drawn(picture, node, depths[node], least);
        match is_drawn {
            true => levels = levels.max(depths[node] as usize + 1),
            false => hidden += u64::from(picture.width(node) > 0),
        }
    }
    let height = HEAD + levels * ROW + FOOT;
    head(picture, height, levels, &mut out)?;
    // For each open level, where the next child begins.
    let mut next: Vec<u64> = vec![0];
    for (node, &depth) in depths.iter().enumerate() {
        if !is_drawn(picture, node, depth, least) {
            continue;
        }
        let depth = depth as usize;
        let at = next[depth];
        next[depth] += picture.width(node);
        next.truncate(depth + 1);
        next.push(at);
        let y = height - FOOT - (depth + 1) * ROW;
        rectangle(picture, node, &Place { at, depth, y }, &mut out)?;
    }
    let noun = if hidden == 1 { "context is" } else { "contexts are" };
    if hidden > 0 {
        let y = height - 10;
        writeln!(
            out,
            "</g><text x=\"{MARGIN}\" y=\"{y}\" class=\"quiet\">{hidden} {noun} too small or too deep to be drawn, and in the \
             rectangles of their callers</text>"
        )?;
    } else {
        writeln!(out, "</g>")?;
    }
    writeln!(out, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")?;
    out.flush()
}

/// Whether there is a rectangle; if there is none, there is none for what it calls.
fn is_drawn(picture: &impl Picture, node: usize, depth: u32, least: u64) -> bool {
    (depth as usize) < LEVELS && (node == 0 || picture.width(node) >= least)
}

fn head(picture: &impl Picture, height: usize, levels: usize, out: &mut dyn Write) -> io::Result<()> {
    let title = escaped(&picture.title());
    writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" data-total=\"{}\" data-unit=\"{}\" data-levels=\"{levels}\">\n\
         <title>{title}</title>\n\
         <style>\n\
         text {{ font: 12px monospace; fill: #222; }}\n\
         .title {{ font-size: 16px; }}\n\
         .quiet {{ fill: #666; }}\n\
         .button {{ cursor: pointer; fill: #0645ad; }}\n\
         .f {{ cursor: pointer; }}\n\
         .f text {{ pointer-events: none; }}\n\
         .f:hover rect {{ stroke: #222; }}\n\
         .found rect {{ fill: #e07be0; }}\n\
         .above rect {{ opacity: 0.45; }}\n\
         </style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fbfbf8\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" class=\"title\">{title}</text>\n\
         <g class=\"quiet\">{}</g>\n\
         <text id=\"shown\" x=\"{MARGIN}\" y=\"46\">{}</text>\n\
         <text id=\"found\" x=\"{}\" y=\"46\" text-anchor=\"end\"> </text>\n\
         <g id=\"frames\">",
        picture.width(0),
        escaped(picture.unit()),
        legend(picture.legend()),
        escaped(&picture.note(0).unwrap_or_else(|| with_unit(picture.width(0), picture.unit()))),
        WIDTH - MARGIN,
    )
}

/// The buttons, which the script answers, and the colours.
fn legend(colors: &[(&str, &str)]) -> String {
    let mut words = String::new();
    for (number, (word, color)) in colors.iter().enumerate() {
        let x = 520 + number * 105;
        words += &format!("<rect x=\"{x}\" y=\"13\" width=\"12\" height=\"12\" fill=\"{color}\"/>");
        words += &format!("<text x=\"{}\" y=\"24\">{word}</text>", x + 17);
    }
    for (id, x, word) in [("reset", 960, "reset"), ("turn", 1020, "icicle"), ("search", 1090, "search (/)")] {
        words += &format!("<text id=\"{id}\" class=\"button\" x=\"{x}\" y=\"24\">{word}</text>");
    }
    words
}

/// Where a rectangle is: what costs is left of it, its level, its upper edge.
struct Place {
    at: u64,
    depth: usize,
    y: usize,
}

fn rectangle(picture: &impl Picture, node: usize, place: &Place, out: &mut dyn Write) -> io::Result<()> {
    let Place { at, depth, y } = *place;
    let (total, cost) = (picture.width(0).max(1), picture.width(node));
    let part = |cost: u64| (WIDTH - 2.0 * MARGIN) * (cost as f64 / total as f64);
    let (x, width) = (MARGIN + part(at), if node == 0 { WIDTH - 2.0 * MARGIN } else { part(cost) });
    let name = picture.name(node);
    let title = format!("{name}{}", picture.about(node));
    let note = picture.note(node).map_or(String::new(), |note| format!(" data-note=\"{}\"", escaped(&note)));
    writeln!(
        out,
        "<g class=\"f\" data-at=\"{at}\" data-cost=\"{cost}\" data-level=\"{depth}\" data-name=\"{}\"{note}><title>{}</title>\
         <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"{}\" rx=\"1\"/>\
         <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
        escaped(&name),
        escaped(&title),
        ROW - 1,
        picture.color(node),
        x + 3.0,
        y + 12,
        escaped(&fitted(&name, width)),
    )
}

/// As much of a name as fits into a rectangle. The script does the same after zooming.
fn fitted(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    let count = name.chars().count();
    match room {
        0..3 => String::new(),
        _ if count <= room => name.to_owned(),
        _ => name.chars().take(room - 2).chain("..".chars()).collect(),
    }
}

/// A shade that is the same for the same name.
fn shade(kind: ScopeKind, name: &str) -> String {
    let hash = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let (hue, saturation) = match kind {
        ScopeKind::Procedure => (24 + hash % 24, 82),
        ScopeKind::Inlined => (48 + hash % 8, 82),
        ScopeKind::Loop => (105 + hash % 20, 40),
        _ => (0, 0),
    };
    format!("hsl({hue},{saturation}%,{}%)", 62 + hash / 24 % 12)
}

/// A cost for people.
pub(super) fn with_unit(cost: u64, unit: &str) -> String {
    match unit {
        "ns" => format!("{}.{:09} s", cost / 1_000_000_000, cost % 1_000_000_000),
        "count" => cost.to_string(),
        unit => format!("{cost} {unit}"),
    }
}

/// Text as XML holds it, in elements and in attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no escape for these.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
