//! What the frames of an export are called, and which of them are open on the way through the tree.

use callpath_db::ScopeKind;

use super::exported::Exported;
use crate::text::{printable, whole_label};

/// The mark of a procedure that was inlined.
const INLINED: &str = " (inlined)";

impl Exported<'_> {
    /// The name of a node as a frame, with a mark on what is no procedure. No character of it acts on a terminal.
    pub(super) fn marked_name(&self, node: usize) -> String {
        let scope = &self.view.nodes[node].scope;
        match scope.kind {
            ScopeKind::Root | ScopeKind::Truncated | ScopeKind::Pruned => {
                printable(&self.view.name(node, self.profile))
            }
            // As the tools that read these formats begin a path.
            ScopeKind::Process => printable(self.profile.strings.get(scope.name)),
            _ => whole_label(scope, self.profile),
        }
    }

    /// The same without the mark of inlined procedures, for formats that say it otherwise.
    pub(super) fn name(&self, node: usize) -> String {
        let name = self.marked_name(node);
        match name.strip_suffix(INLINED).filter(|_| self.kind(node) == ScopeKind::Inlined) {
            Some(bare) => bare.to_owned(),
            None => name,
        }
    }

    /// A name of the profile's as a text; none where it is not known or empty.
    pub(super) fn text(&self, name: Option<callpath_db::Name>) -> Option<&str> {
        name.map(|name| self.profile.strings.get(name)).filter(|text| !text.is_empty())
    }
}

/// Nodes that contain the one at which a walk in preorder stands, outermost first.
#[derive(Default)]
pub(super) struct Open<T> {
    stack: Vec<(usize, T)>,
}

impl<T> Open<T> {
    /// Closes what does not contain `node`, innermost first, each by `close`.
    pub(super) fn close_for(&mut self, parent: Option<usize>, mut close: impl FnMut(usize, T)) {
        while let Some((top, _)) = self.stack.last()
            && Some(*top) != parent
            && let Some((node, value)) = self.stack.pop()
        {
            close(node, value);
        }
    }

    /// Opens a node.
    pub(super) fn push(&mut self, node: usize, value: T) {
        self.stack.push((node, value));
    }
}
