//! What source procedures are declared in: namespaces, classes, and other procedures.
//! Knows nothing of code.
//!
//! DWARF tells it by nesting alone, so that an entry's containers are known only to who comes from the unit's
//! beginning. Where entries of a unit begin and end is kept until all that is asked for has been found.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use gimli::{DwTag, UnitOffset, constants};

use super::Home;
use super::reading::{EntryRef, Reading};
use super::root::UnitRoot;
use super::unit::{ContainerKind, ContainerRecord, NONE, Text};

/// Deeper nesting is cut.
const DEPTH: usize = 64;

/// The entries of a unit that others can be declared in, in the order of the unit.
#[derive(Default)]
pub(super) struct ContainerTree {
    entries: Vec<Entry>,
    open: Vec<(isize, u32)>,
}

struct Entry {
    start: u32,
    end: u32,
    parent: u32,
    kind: ContainerKind,
}

/// What entries of that tag hold; `None` if nothing is declared in them that matters here.
pub(super) fn kind(tag: DwTag) -> Option<ContainerKind> {
    match tag {
        constants::DW_TAG_namespace | constants::DW_TAG_module => Some(ContainerKind::Namespace),
        constants::DW_TAG_class_type
        | constants::DW_TAG_structure_type
        | constants::DW_TAG_union_type
        | constants::DW_TAG_interface_type
        | constants::DW_TAG_enumeration_type => Some(ContainerKind::Class),
        constants::DW_TAG_subprogram => Some(ContainerKind::Procedure),
        _ => None,
    }
}

impl ContainerTree {
    /// Takes the beginning of an entry, of a container or not: all that lie deeper or beside it have ended.
    pub(super) fn close(&mut self, depth: isize, offset: UnitOffset) {
        while let Some(&(open_depth, index)) = self.open.last() {
            if open_depth < depth {
                return;
            }
            self.open.pop();
            if let Some(entry) = self.entries.get_mut(index as usize) {
                entry.end = position(offset);
            }
        }
    }

    /// Takes the beginning of a container that has children.
    pub(super) fn open(&mut self, depth: isize, offset: UnitOffset, kind: ContainerKind) {
        let parent = self.open.last().map_or(NONE, |(_, index)| *index);
        self.open.push((depth, self.entries.len() as u32));
        self.entries.push(Entry { start: position(offset), end: u32::MAX, parent, kind });
    }

    /// Whether a procedure is open.
    pub(super) fn is_in_procedure(&self) -> bool {
        let mut open = self.open.iter().filter_map(|(_, index)| self.entries.get(*index as usize));
        open.any(|entry| entry.kind == ContainerKind::Procedure)
    }

    /// Whether a class is the innermost that is open.
    pub(super) fn is_in_class(&self) -> bool {
        let innermost = self.open.last().and_then(|(_, index)| self.entries.get(*index as usize));
        innermost.is_some_and(|entry| entry.kind == ContainerKind::Class)
    }

    /// Reads a whole unit.
    fn read(root: &UnitRoot<'_>) -> Result<ContainerTree, gimli::Error> {
        let mut tree = ContainerTree::default();
        let unit = &root.unit;
        let mut entries = unit.header.entries_raw(&unit.abbreviations, None)?;
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            tree.close(depth, offset);
            if let Some(kind) = kind(abbreviation.tag()).filter(|_| abbreviation.has_children()) {
                tree.open(depth, offset, kind);
            }
            entries.skip_attributes(abbreviation.attributes())?;
        }
        Ok(tree)
    }

    /// The innermost container around the entry at `offset`.
    fn around(&self, offset: UnitOffset) -> Option<&Entry> {
        let offset = position(offset);
        let before = self.entries.partition_point(|entry| entry.start < offset).checked_sub(1)?;
        let mut entry = self.entries.get(before)?;
        // Parents come before their children: this ends.
        while entry.end <= offset {
            entry = self.entries.get(entry.parent as usize)?;
        }
        Some(entry)
    }
}

fn position(offset: UnitOffset) -> u32 {
    u32::try_from(offset.0).unwrap_or(u32::MAX)
}

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
        self.container_in(reading, &entry.root, &tree, entry.offset)
    }

    fn container_in<'a>(
        &mut self,
        reading: &mut Reading<'a>,
        root: &Rc<UnitRoot<'a>>,
        tree: &ContainerTree,
        offset: UnitOffset,
    ) -> u32 {
        // From the inside out, until one is known; then their records from the outside in.
        let mut new = Vec::new();
        let mut next = tree.around(offset);
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
        let shared = || reading.scopes.shared.containers.lock().unwrap_or_else(PoisonError::into_inner);
        let may_share = root.home != Home::Split;
        let shared_one = if may_share { shared().get(&key).cloned() } else { None };
        let tree = match shared_one {
            Some(tree) => tree,
            None => {
                // A broken unit's entries have no containers from there on; who reads the unit itself tells it.
                let tree = Arc::new(ContainerTree::read(root).unwrap_or_default());
                if may_share {
                    shared().insert(key, Arc::clone(&tree));
                }
                tree
            }
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
