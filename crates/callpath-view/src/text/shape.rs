//! The shape of the calling context tree of calls that were counted exactly, as text: Table 3 of Ammons, Ball and Larus 1997, and the
//! procedures with most contexts.

use std::io::{self, Write};

use callpath_db::exact::{ContextShape, ContextTree, OnePath, TreeSize};

use super::exact::{Lines, not_counted};
use super::paint::{Ink, Paint};
use super::printable::{cut_end, printable};
use super::quantity::{count, percent, thousands, value};
use super::shorten::shorten;

/// Before a procedure's name.
const NUMBERS: usize = 42;
/// Columns that a name has at least.
const LEAST_NAME: usize = 12;

/// What is shown, and how.
#[derive(Clone, Copy)]
pub struct ShapeText<'a> {
    /// The tree.
    pub tree: &'a ContextTree,
    /// Procedures with less than this share of all contexts, from 0 to 1, are not shown.
    pub min_share: f64,
    /// At most so many procedures are shown.
    pub max_rows: usize,
    /// Columns of the terminal or page.
    pub width: usize,
    /// Whether escape sequences for colour and weight may be used.
    pub color: bool,
}

/// Writes the shape of a tree.
///
/// # Errors
/// If the output takes no more.
pub fn shape(text: ShapeText<'_>, out: &mut dyn Write) -> io::Result<()> {
    let shape = text.tree.shape();
    let lines = Lines { width: text.width, color: text.color };
    if shape.size.contexts == 0 {
        writeln!(out, "No procedure that was counted was called.")?;
    } else {
        let title = format!(
            "Calling contexts: {} of {}, called {}",
            thousands(shape.size.contexts),
            count(shape.procedures.len() as u64, "procedure", "procedures"),
            count(shape.calls, "time", "times")
        );
        writeln!(out, "{}", text.bold(&cut_end(&title, text.width)))?;
        text.figures(&shape, out)?;
        text.procedures(&shape, out)?;
    }
    let mut said = Vec::new();
    if shape.without_sites > 0 {
        said.push(format!(
            "Of the procedures of {} the code cannot be read: their call sites are missing here, and their nodes have no slots.",
            count(shape.without_sites, "context", "contexts")
        ));
    }
    if shape.gaps > 0 {
        said.push(format!(
            "{} below code that is not counted; the nearest counted context outside is the parent.",
            count(shape.gaps, "context is", "contexts are")
        ));
    }
    let tree = text.tree;
    said.extend(not_counted(&tree.quality.refused));
    said.extend(tree.info.losses.iter().chain(&tree.info.notes).chain(&tree.notes).cloned());
    lines.notes(&said, out)
}

impl ShapeText<'_> {
    fn bold(self, text: &str) -> String {
        Paint { color: self.color }.with(Ink::Bold, text)
    }

    fn figures(self, shape: &ContextShape, out: &mut dyn Write) -> io::Result<()> {
        let mean = |mean: Option<f64>| mean.map_or("-".to_owned(), |mean| format!("{mean:.1}"));
        let bytes = self.tree.node_bytes;
        let most = shape.procedures.first();
        let name = most.and_then(|its| self.tree.procedure(its.procedure));
        let name = name.map_or(String::new(), |procedure| format!("{} [{}]", procedure.name, procedure.module));
        let rows = [
            ("nodes", thousands(shape.size.contexts), String::new()),
            ("their bytes", value(shape.size.bytes, "bytes"), String::new()),
            (
                "bytes of a node",
                mean(shape.mean_node_bytes()),
                format!("on average: {}, and {} for each call site", bytes.node, bytes.slot),
            ),
            (
                "out-degree",
                mean(shape.mean_out_degree()),
                format!("on average of {}", count(shape.inner, "inner node", "inner nodes")),
            ),
            ("height", mean(shape.mean_height()), format!("on average of {}", count(shape.leaves(), "leaf", "leaves"))),
            ("greatest height", thousands(shape.max_height), String::new()),
            ("max replication", thousands(most.map_or(0, |its| its.contexts)), name),
            ("call sites", thousands(shape.sites), "of the procedures of all nodes".to_owned()),
            ("used", thousands(shape.used_sites), format!("{} of them", percent(shape.used_sites, shape.sites))),
            one_path(shape),
        ];
        for (label, number, words) in rows {
            let row = format!("{label:<20}{number:>12}  {}", printable(&words));
            writeln!(out, "{}", cut_end(row.trim_end(), self.width))?;
        }
        let heading = format!("\n{:<20}{:>12}  {:>10}", "size, call sites", "nodes", "bytes");
        writeln!(out, "{}", self.bold(&heading))?;
        for (label, size) in [("apart", shape.size), ("together", shape.sites_together)] {
            let TreeSize { contexts, bytes } = size;
            writeln!(out, "{label:<20}{:>12}  {:>10}", thousands(contexts), value(bytes, "bytes"))?;
        }
        Ok(())
    }

    fn procedures(self, shape: &ContextShape, out: &mut dyn Write) -> io::Result<()> {
        let heading = format!("\n{:>10}  {:>6}  {:>12}  {:>6}  procedure", "contexts", "share", "calls", "share");
        writeln!(out, "{}", self.bold(&heading))?;
        let numbers = |contexts: u64, calls: u64| {
            format!(
                "{:>10}  {:>6}  {:>12}  {:>6}  ",
                thousands(contexts),
                percent(contexts, shape.size.contexts),
                value(calls, "count"),
                percent(calls, shape.calls)
            )
        };
        let least = self.min_share * shape.size.contexts as f64;
        let shown = shape.procedures.iter().take_while(|its| its.contexts as f64 >= least).take(self.max_rows);
        let mut rest = (shape.procedures.len() as u64, shape.size.contexts, shape.calls);
        for its in shown {
            rest = (rest.0 - 1, rest.1 - its.contexts, rest.2.saturating_sub(its.calls));
            let Some(procedure) = self.tree.procedure(its.procedure) else { continue };
            let module = printable(&format!("  [{}]", procedure.module));
            let room = self.width.saturating_sub(NUMBERS + module.chars().count()).max(LEAST_NAME);
            let name = shorten(&printable(&procedure.name), room);
            let module = Paint { color: self.color }.with(Ink::Dim, &module);
            writeln!(out, "{}{name}{module}", numbers(its.contexts, its.calls))?;
        }
        if rest.0 > 0 {
            let words = count(rest.0, "more procedure", "more procedures");
            writeln!(out, "{}{}", numbers(rest.1, rest.2), Paint { color: self.color }.with(Ink::Dim, &words))?;
        }
        Ok(())
    }
}

/// The row of call sites that one path led to: label, number, words.
fn one_path(shape: &ContextShape) -> (&'static str, String, String) {
    let label = "reached by one path";
    let Some(OnePath { sites, unknown }) = shape.one_path else {
        return (label, "-".to_owned(), "not known: paths were not counted in contexts".to_owned());
    };
    let not_known = match unknown {
        0 => String::new(),
        unknown => format!("; of {} it is not known", thousands(unknown)),
    };
    (label, thousands(sites), format!("{} of those used{not_known}", percent(sites, shape.used_sites)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape_json::tests::tree;

    fn shown(tree: &ContextTree, max_rows: usize) -> String {
        let mut out = Vec::new();
        shape(ShapeText { tree, min_share: 0.0, max_rows, width: 100, color: false }, &mut out).expect("room");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn figures_and_the_procedures_with_most_contexts() {
        let expected = "\
Calling contexts: 4 of 2 procedures, called 1,000,028 times
nodes                          4
their bytes                152 B
bytes of a node             38.0  on average: 32, and 8 for each call site
out-degree                   3.0  on average of 1 inner node
height                       2.0  on average of 3 leaves
greatest height                2
max replication                3  leaf\\x1b[31m [app]
call sites                     3  of the procedures of all nodes
used                           3  100.0% of them
reached by one path            -  not known: paths were not counted in contexts

size, call sites           nodes       bytes
apart                          4       152 B
together                       3       104 B

  contexts   share         calls   share  procedure
         3   75.0%     1,000,027  100.0%  leaf\\x1b[31m  [app]
         1   25.0%             1   <0.1%  1 more procedure

Notes
  1 context is below code that is not counted; the nearest counted context outside is the parent.
  1 procedure was not counted: sort (it calls setjmp).
";
        assert_eq!(shown(&tree(), 1), expected);
    }

    #[test]
    fn call_sites_that_one_path_leads_to() {
        let mut counted = tree();
        let row = |tree: &ContextTree| {
            let text = shown(tree, 1);
            text.lines().find(|line| line.starts_with("reached by one path")).unwrap_or_default().to_owned()
        };
        for site in [0x1010, 0x1020] {
            counted.say_paths_to(0, site, 1);
        }
        assert_eq!(row(&counted), "reached by one path            2  66.7% of those used; of 1 it is not known");
        counted.say_paths_to(0, 0x1030, 2);
        assert_eq!(row(&counted), "reached by one path            2  66.7% of those used");
    }

    #[test]
    fn nothing_was_called() {
        assert_eq!(shown(&ContextTree::default(), 9), "No procedure that was counted was called.\n");
    }
}
