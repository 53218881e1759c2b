//! Adds recipes for procedures that switch stacks, where their code shows how their callers are found.

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_x86::call_site::calls_to;
use callpath_x86::switched::{Finding, SwitchedRows, Switching, switched_rows};

use super::builder::{Origin, RecipeTableBuilder};
use super::starts::{Named, Part, Switch, bytes};

/// The register in which Go's code has the goroutine's record, from Go 1.17 on: r14.
const GOROUTINE: usize = 14;

/// Where procedures begin whose code is believed before their call frame information: it does not say which registers
/// they save.
pub(super) fn saving_registers(image: &Image, named: &Named) -> Vec<LinkAddr> {
    if image.go_table().is_none() {
        return Vec::new();
    }
    named.parts().filter(|(_, part)| *part == Part::Saves).map(|(code, _)| code.start).collect()
}

/// Adds the recipes of the procedures of `named` that switch stacks, if the module has Go's own table.
pub(super) fn add(builder: &mut RecipeTableBuilder, image: &Image, named: &Named) {
    if image.go_table().is_none() {
        return;
    }
    let bytes_from = |at: LinkAddr| image.bytes_from(at);
    for (range, part) in named.parts() {
        let Part::Switched(switch) = part else { continue };
        let finding = match switch {
            Switch::Unknown => continue,
            Switch::Kept | Switch::OfLeaf => Finding::Kept,
            Switch::ByThread => Finding::ByThread(GOROUTINE),
            Switch::ByArguments => match returns_to(image, named, range.start) {
                Some(returned) => Finding::ByArguments(returned),
                None => continue,
            },
        };
        let Some(code) = bytes(image, range) else { continue };
        let begins_stack = switch != Switch::OfLeaf;
        let switching = Switching { code, start: range.start, finding, begins_stack };
        let SwitchedRows { rows, expressions } = switched_rows(&switching, &bytes_from);
        for (code, recipe) in rows {
            let row = (code.start, builder.recipe(&recipe, &expressions));
            builder.add(Origin::StackSwitch, code, [row]);
        }
    }
}

/// Where the procedure at `callee` returns to, if the procedures that save registers call it in one place. Symbols of one
/// procedure may differ in its length.
fn returns_to(image: &Image, named: &Named, callee: LinkAddr) -> Option<LinkAddr> {
    let saving = named.parts().filter(|(_, part)| *part == Part::Saves);
    let mut calls = saving.flat_map(|(code, _)| {
        let code_bytes = bytes(image, code).unwrap_or(&[]);
        calls_to(callee, code_bytes, code.start)
    });
    let returned = calls.next()?;
    calls.all(|other| other == returned).then_some(returned)
}
