//! What is counted exactly, and what of it can be counted together.

use std::collections::BTreeSet;

/// What is counted exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExactKind {
    /// Paths through procedures.
    Paths,
    /// Edges between the blocks of procedures.
    Edges,
    /// Activations of procedures in their calling contexts.
    Calls,
}

/// Kinds that can be counted together; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExactKinds(BTreeSet<ExactKind>);

impl ExactKinds {
    /// These kinds; one that is there twice counts once.
    ///
    /// # Errors
    /// Why they cannot be counted together, for the user.
    pub fn new(kinds: impl IntoIterator<Item = ExactKind>) -> Result<ExactKinds, &'static str> {
        let kinds = ExactKinds(kinds.into_iter().collect());
        if kinds.0.is_empty() {
            return Err("--exact needs a kind: paths, edges or calls");
        }
        if kinds.has(ExactKind::Paths) && kinds.has(ExactKind::Edges) {
            return Err("--exact=paths,edges: counts of edges follow from those of paths; leave out one of them");
        }
        if kinds.has(ExactKind::Edges) && kinds.has(ExactKind::Calls) {
            return Err("--exact=calls,edges: edges cannot be counted in each context yet; count them in two runs");
        }
        Ok(kinds)
    }

    /// Whether it is among them.
    pub fn has(&self, kind: ExactKind) -> bool {
        self.0.contains(&kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_follow_from_paths() {
        use ExactKind::{Calls, Edges, Paths};
        let kinds = ExactKinds::new([Paths, Paths]).unwrap();
        assert!(kinds.has(Paths) && !kinds.has(Edges));
        assert!(ExactKinds::new([Edges]).unwrap().has(Edges));
        assert!(ExactKinds::new([Calls, Edges]).unwrap_err().starts_with("--exact=calls,edges: "));
        assert!(ExactKinds::new([Paths, Edges]).unwrap_err().starts_with("--exact=paths,edges: "));
        assert!(ExactKinds::new([Calls, Paths]).unwrap().has(Paths));
        assert!(ExactKinds::new([Calls]).unwrap().has(Calls));
        assert!(ExactKinds::new([]).is_err());
    }
}
