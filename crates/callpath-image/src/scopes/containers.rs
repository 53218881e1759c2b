//! What source procedures are declared in: namespaces, classes, and other procedures.
//!
//! DWARF shows it by nesting alone, so an entry's containers are known only to a reader that comes
//! from the unit's beginning. Where entries of a unit begin and end (`container_tree`) is kept
//! until all that is asked for has been found.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use gimli::UnitOffset;

use super::container_tree::ContainerTree;
use super::reading::{EntryRef, Reading};
use super::root::UnitRoot;
use super::unit::{ContainerRecord, NONE, Text};
use crate::dwarf::Home;

/// Deeper nesting is cut.
const DEPTH: usize = 64;

/// The containers that one unit's origins need.
#[derive(Default)]
pub(super) struct Around {
    pub(super) records: Vec<ContainerRecord>,
    known: HashMap<(Home, usize), u32>,
    trees: HashMap<(Home, usize), Arc<ContainerTree>>,
}

impl Around {
    /// Takes the tree of the unit itself.
    pub(super) fn new(root: &UnitRoot<'_>, tree: ContainerTree) -> Around {
        let mut around = Around::default();
        around.trees.insert((root.home, root.start), Arc::new(tree));
        around
    }

    /// The number of the innermost container around an entry.
    pub(super) fn container_of<'a>(&mut self, reading: &mut Reading<'a>, entry: &EntryRef<'a>) -> u32 {
        let Some(tree) = self.tree(reading, &entry.root) else { return NONE };
        self.container_in(reading, &tree, entry)
    }

    fn container_in<'a>(
        &mut self,
        reading: &mut Reading<'a>,
        tree: &ContainerTree,
        EntryRef { root, offset }: &EntryRef<'a>,
    ) -> u32 {
        // From the inside out, until one is known; then their records from the outside in.
        let mut new = Vec::new();
        let mut next = tree.around(*offset);
        let mut parent = NONE;
        while let Some(entry) = next.filter(|_| new.len() < DEPTH) {
            if let Some(known) = self.known.get(&(root.home, root.start.saturating_add(entry.start as usize))) {
                parent = *known;
                break;
            }
            new.push(entry);
            next = tree.entries.get(entry.parent as usize);
        }
        for entry in new.into_iter().rev() {
            let name = name_of(reading, root, UnitOffset(entry.start as usize));
            let index = self.records.len() as u32;
            self.records.push(ContainerRecord { kind: entry.kind, name, parent });
            self.known.insert((root.home, root.start.saturating_add(entry.start as usize)), index);
            parent = index;
        }
        parent
    }

    fn tree<'a>(&mut self, reading: &mut Reading<'a>, root: &Rc<UnitRoot<'a>>) -> Option<Arc<ContainerTree>> {
        let key = (root.home, root.start);
        if let Some(known) = self.trees.get(&key) {
            return Some(Arc::clone(known));
        }
        // A broken unit's entries have no containers from there on; the reader of the unit itself reports it.
        let read = || ContainerTree::read(root).unwrap_or_default();
        let tree = match root.home {
            Home::Split => Arc::new(read()),
            Home::Main | Home::Supplement => reading.module.containers(key, read),
        };
        self.trees.insert(key, Arc::clone(&tree));
        Some(tree)
    }
}

fn name_of<'a>(reading: &mut Reading<'a>, root: &Rc<UnitRoot<'a>>, offset: UnitOffset) -> Text {
    let mut entry = EntryRef { root: Rc::clone(root), offset };
    // A namespace's extension and a procedure's definition have their name elsewhere.
    for _ in 0..4 {
        let Ok((name, next)) = super::origins::name_and_next(&entry) else { return Text::default() };
        if let Some(name) = name {
            let name = reading.dwarf(entry.root.home).attr_string(&entry.root.unit, name);
            return match name {
                Ok(name) if !reading.texts.is_full() => reading.texts.keep(name),
                _ => Text::default(),
            };
        }
        let Some(Ok(next)) = next.map(|next| reading.follow(&entry.root, next)) else { return Text::default() };
        entry = next;
    }
    Text::default()
}
