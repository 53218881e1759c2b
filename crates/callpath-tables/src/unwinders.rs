//! What tells a process of copies, as data. Its unwinders: the C library's `_dl_find_object`, which they ask, begins with a
//! routine that knows them. And procedures that ask which module called them, by a table.

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_image::exports::Exports;
pub use callpath_x86::rewrite::KnownCode;
use callpath_x86::rewrite::{Reason, Refusal, find_object, homes};

use crate::calls_in_copies::FIND_OBJECT;
use crate::copies::copy_one;
use crate::module::Module;
use crate::probes::Change;

/// How much new memory all of it takes at most, bytes. It begins with the table.
pub const ROOM_BYTES: u64 = 1 << 18;

/// Where the procedure begins that unwinders ask, in a module that has it: the C library.
pub fn asked(module: &Module) -> Option<LinkAddr> {
    Exports::of(module.image()).named(FIND_OBJECT).first().map(|export| export.start)
}

/// What is written so that the routine takes the place of the procedure at `entry`, with [`ROOM_BYTES`] of new memory at
/// `at`. `bias`: run-time address minus link-time address of the module.
///
/// # Errors
/// Why the procedure cannot be copied.
pub fn tell(
    module: &Module,
    (entry, at): (LinkAddr, LinkAddr),
    bias: u64,
    known: &[KnownCode],
) -> Result<Vec<Change>, Refusal> {
    let too_far = Refusal { at: entry, reason: Reason::TooFar };
    let run = |address: LinkAddr| RunAddr(address.0.wrapping_add(bias));
    let table = Change { at, old: None, new: homes(known) };
    let at = LinkAddr((at.0 + table.new.len() as u64).next_multiple_of(16));
    let copy = copy_one(module, entry, at)?;
    let routine_at = LinkAddr((at.0 + copy.code.len() as u64).next_multiple_of(16));
    let routine = find_object(run(routine_at), run(copy.entered_at), known).ok_or(too_far)?;
    if routine_at.0 + routine.len() as u64 - table.at.0 > ROOM_BYTES {
        return Err(too_far);
    }
    let patches = copy.entered_by(routine_at).ok_or(too_far)?;
    let mut changes =
        vec![table, Change { at, old: None, new: copy.code }, Change { at: routine_at, old: None, new: routine }];
    changes.extend(patches.into_iter().map(|patch| Change { at: patch.at, old: Some(patch.old), new: patch.new }));
    Ok(changes)
}
