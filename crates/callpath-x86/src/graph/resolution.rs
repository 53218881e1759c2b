//! The result of following an indirect jump.

use std::rc::Rc;

use crate::graph::{TableEnd, TableEntries};

/// The result of following an indirect jump.
#[derive(Clone, Debug)]
pub(super) enum Resolution {
    /// It stays in the procedure.
    Table {
        /// Positions, sorted, distinct.
        targets: Vec<u32>,
        addresses: Vec<u64>,
        end: TableEnd,
        entries: Option<TableEntries>,
        /// Indices of the module's code fragments that belong to the procedure because of it.
        fragment_indices: Vec<u32>,
    },
    /// It leaves the procedure, to a known position or not.
    Leaves(Option<u32>),
    Unresolved,
}

impl Resolution {
    /// Combines an earlier result with one found when more of the procedure is known.
    pub(super) fn merge(before: &Rc<Resolution>, now: &Rc<Resolution>) -> Rc<Resolution> {
        match (&**before, &**now) {
            (
                Resolution::Table { targets, addresses, end, fragment_indices, .. },
                Resolution::Table {
                    targets: new,
                    addresses: more,
                    end: now_end,
                    fragment_indices: more_fragments,
                    entries,
                },
            ) => {
                let both = |a: &[u32], b: &[u32]| {
                    let mut both = [a, b].concat();
                    both.sort_unstable();
                    both.dedup();
                    both
                };
                let mut addresses = [&addresses[..], more].concat();
                addresses.sort_unstable();
                addresses.dedup();
                let targets = both(targets, new);
                if targets == *new && addresses == *more && end.max(now_end) == now_end {
                    return Rc::clone(now);
                }
                let end = *end.max(now_end);
                Rc::new(Resolution::Table {
                    targets,
                    addresses,
                    end,
                    // What is found now takes more paths into account.
                    entries: *entries,
                    fragment_indices: both(fragment_indices, more_fragments),
                })
            }
            (Resolution::Table { targets, addresses, end, fragment_indices, .. }, _) => Rc::new(Resolution::Table {
                targets: targets.clone(),
                addresses: addresses.clone(),
                end: *end,
                entries: None,
                fragment_indices: fragment_indices.clone(),
            }),
            _ => Rc::clone(now),
        }
    }

    /// For a table: its targets, its addresses, and how its end is known.
    pub(super) fn table(&self) -> (&[u32], &[u64], TableEnd) {
        match self {
            Resolution::Table { targets, addresses, end, .. } => (targets, addresses, *end),
            _ => (&[], &[], TableEnd::Contents),
        }
    }

    /// See [`crate::graph::JumpTable::entries`].
    pub(super) fn entries(&self) -> Option<TableEntries> {
        match self {
            Resolution::Table { entries, .. } => *entries,
            _ => None,
        }
    }
}
