//! Where the entries of a unit begin and end in which others can be declared: only nesting shows containers.

use gimli::{DwTag, UnitOffset, constants};

use super::root::UnitRoot;
use super::unit::{ContainerKind, NONE};

/// The entries of a unit that others can be declared in, in the order of the unit.
#[derive(Default)]
pub(super) struct ContainerTree {
    pub(super) entries: Vec<Entry>,
    open: Vec<(isize, u32)>,
}

/// A container.
pub(super) struct Entry {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) parent: u32,
    pub(super) kind: ContainerKind,
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
    pub(super) fn read(root: &UnitRoot<'_>) -> Result<ContainerTree, gimli::Error> {
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

    /// The containers right below one: below that number, or of the unit itself (`NONE`).
    pub(super) fn children(&self, above: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let (first, end) = match self.entries.get(above as usize) {
            Some(entry) => (above as usize + 1, entry.end),
            None => (0, u32::MAX),
        };
        let behind = self.entries.get(first..).unwrap_or_default();
        let inside = (first as u32..).zip(behind).take_while(move |(_, entry)| entry.start < end);
        inside.filter(move |(_, entry)| entry.parent == above)
    }

    /// The innermost container around the entry at `offset`.
    pub(super) fn around(&self, offset: UnitOffset) -> Option<&Entry> {
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
