//! Lambdas of C++: classes without a name whose `operator()` is their code.
//!
//! DWARF does not say which of several in one procedure a lambda is. They are numbered here as they follow each other in
//! the source, from 1, as compilers number those that have no linkage. Where a linker's name has another number, the
//! place in the source still tells them apart.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{UnitOffset, constants};

use super::container_tree::{ContainerTree, Entry};
use super::origins::{Declared, declared};
use super::reading::{EntryRef, Reading};
use super::root::UnitRoot;
use super::unit::{ContainerKind, Lambda, NONE};
use crate::dwarf::Home;

/// The lambdas of the containers that were looked into.
#[derive(Default)]
pub(super) struct Lambdas {
    /// By unit and the number of the container: where each class begins, and which it is.
    known: HashMap<(Home, usize, u32), HashMap<u32, Lambda>>,
}

/// A unit, and what others can be declared in there.
#[derive(Clone, Copy)]
pub(super) struct Unit<'u, 'a> {
    pub(super) root: &'u Rc<UnitRoot<'a>>,
    pub(super) tree: &'u ContainerTree,
}

impl<'a> Unit<'_, 'a> {
    fn declared(self, entry: &Entry) -> Option<Declared<'a>> {
        // What cannot be read is reported where it is needed.
        declared(&EntryRef { root: Rc::clone(self.root), offset: UnitOffset(entry.start as usize) }).ok()
    }
}

impl Lambdas {
    /// The lambda whose class `class`, of `unit`, is.
    pub(super) fn at<'a>(&mut self, reading: &mut Reading<'a>, unit: Unit<'_, 'a>, class: &Entry) -> Option<Lambda> {
        let around = self.known.entry((unit.root.home, unit.root.start, class.parent));
        around.or_insert_with(|| numbered(reading, unit, class.parent)).get(&class.start).copied()
    }
}

fn numbered<'a>(reading: &mut Reading<'a>, unit: Unit<'_, 'a>, around: u32) -> HashMap<u32, Lambda> {
    let mut found = Vec::new();
    for (number, class) in unit.tree.children(around).filter(|(_, entry)| entry.kind == ContainerKind::Class) {
        let Some(declared) = unit.declared(class) else { continue };
        let is_class = declared.tag == Some(constants::DW_TAG_class_type);
        if declared.name.is_none() && declared.next.is_none() && is_called(reading, unit, number, is_class) {
            let file = declared.file.and_then(|file| reading.file(unit.root, file).ok()).unwrap_or(NONE);
            let line = declared.line.unwrap_or(0);
            found.push(((line, declared.column.unwrap_or(0), class.start), file));
        }
    }
    found.sort_unstable();
    let lambdas = (1..).zip(found).map(|(number, ((line, _, start), file))| (start, Lambda { number, file, line }));
    lambdas.collect()
}

/// Whether a class without a name is a lambda's. gcc gives their `operator()` no line, and LLVM makes them classes; that of
/// a `struct` that somebody wrote has a line, and is one.
fn is_called<'a>(reading: &mut Reading<'a>, unit: Unit<'_, 'a>, class: u32, is_class: bool) -> bool {
    unit.tree.children(class).any(|(_, member)| {
        let Some(declared) = unit.declared(member) else { return false };
        let root = unit.root;
        let name = declared.name.and_then(|name| reading.dwarf(root.home).attr_string(&root.unit, name).ok());
        let is_call = name.is_some_and(|name| name.slice().starts_with(b"operator()"));
        is_call && (is_class || declared.line.is_none())
    })
}
