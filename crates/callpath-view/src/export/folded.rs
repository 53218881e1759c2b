//! Folded stacks, as Brendan Gregg's flamegraph.pl reads them: `main;f;g 1234`, a line for each path with a cost.

use std::io::{self, Write};

use super::exported::Exported;
use super::frames::Open;

/// Writes the paths in preorder. A `;` in a name becomes `:`, as the other tools that write this format do it.
pub(super) fn write(source: &Exported<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut path = String::new();
    let mut open = Open::default();
    for (node, shown) in source.view.nodes.iter().enumerate() {
        open.close_for(shown.parent, |_, len| path.truncate(len));
        open.push(node, path.len());
        if !path.is_empty() {
            path.push(';');
        }
        path.push_str(&source.marked_name(node).replace(';', ":"));
        let cost = source.exclusive(node);
        if cost > 0 {
            writeln!(out, "{path} {cost}")?;
        }
    }
    Ok(())
}
