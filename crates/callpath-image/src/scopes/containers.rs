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
use super::lambdas::{Lambdas, Unit};
use super::origins::declared;
use super::reading::{EntryRef, Reading};
use super::root::UnitRoot;
use super::unit::{ContainerKind, ContainerRecord, NONE, Text};
use crate::dwarf::Home;

/// Deeper nesting is cut.
const DEPTH: usize = 64;

/// So many containers in one another may be declared elsewhere than where they are defined.
const ELSEWHERE: usize = 8;

/// The containers that one unit's origins need.
#[derive(Default)]
pub(super) struct Around {
    pub(super) records: Vec<ContainerRecord>,
    known: HashMap<(Home, usize), u32>,
    trees: HashMap<(Home, usize), Arc<ContainerTree>>,
    lambdas: Lambdas,
}

/// A container's own name, and the entry that says it.
struct Named<'a> {
    name: Text,
    by: EntryRef<'a>,
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
        self.innermost(reading, entry, 0)
    }

    fn innermost<'a>(&mut self, reading: &mut Reading<'a>, entry: &EntryRef<'a>, elsewhere: usize) -> u32 {
        let EntryRef { root, offset } = entry;
        let Some(tree) = self.tree(reading, root) else { return NONE };
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
            let named = name_of(reading, root, UnitOffset(entry.start as usize));
            let name = named.as_ref().map_or(Text::default(), |named| named.name);
            // A procedure's body stands outside of the namespace or class that it is declared in.
            let is_of_other = entry.kind != ContainerKind::Namespace && elsewhere < ELSEWHERE;
            if let Some(named) = named.filter(|named| is_of_other && named.by.offset.0 != entry.start as usize) {
                parent = self.innermost(reading, &named.by, elsewhere + 1);
            }
            let is_nameless = entry.kind == ContainerKind::Class && name == Text::default();
            let lambda = if is_nameless { self.lambdas.at(reading, Unit { root, tree: &tree }, entry) } else { None };
            let index = self.records.len() as u32;
            self.records.push(ContainerRecord { kind: entry.kind, name, parent, lambda: lambda.unwrap_or_default() });
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

fn name_of<'a>(reading: &mut Reading<'a>, root: &Rc<UnitRoot<'a>>, offset: UnitOffset) -> Option<Named<'a>> {
    let mut entry = EntryRef { root: Rc::clone(root), offset };
    // A namespace's extension and a procedure's definition have their name elsewhere.
    for _ in 0..4 {
        let declared = declared(&entry).ok()?;
        if let Some(name) = declared.name {
            let name = reading.dwarf(entry.root.home).attr_string(&entry.root.unit, name).ok()?;
            let name = if reading.texts.is_full() { Text::default() } else { reading.texts.keep(name) };
            return Some(Named { name, by: entry });
        }
        entry = reading.follow(&entry.root, declared.next?).ok()?;
    }
    None
}
