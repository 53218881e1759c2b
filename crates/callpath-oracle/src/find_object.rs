//! Tells the unwinders of a program of copies: the C library's `_dl_find_object`, which they ask, begins with a routine
//! that knows them. No code of the program is called.

use std::ops::Range;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_image::exports::Exports;
use callpath_tables::calls_in_copies::FIND_OBJECT;
use callpath_tables::copies::copy_one;
use callpath_tables::module::Module as Analysed;
use callpath_target::{Edits, Maps, NewMemory, Stepper, Write};
use callpath_x86::rewrite::{KnownCode, find_object};

use crate::error::OracleError;
use crate::modules::Module;

/// Where it begins, in a module that has it: the C library.
pub(crate) fn entry(module: &Analysed) -> Option<LinkAddr> {
    Exports::of(module.image()).named(FIND_OBJECT).first().map(|export| export.start)
}

/// Lets the routine take its place, in a program that stands still outside of it. Returns where the routine lies; none if
/// no module has what it takes the place of.
pub(crate) fn replace(
    stepper: &mut Stepper,
    modules: &[(Module, Analysed)],
    known: &[KnownCode],
) -> Result<Option<Range<RunAddr>>, OracleError> {
    let found = modules.iter().find_map(|(loaded, module)| Some((loaded, module, entry(module)?)));
    let Some((loaded, module, entry)) = found else { return Ok(None) };
    let no_room = || OracleError::NoRoom { path: loaded.path.clone() };
    let pid = stepper.pid();
    /// The routine, its table, and the original's copy.
    const ROOM: u64 = 1 << 16;
    let place = Maps::read(pid)?.free_near(loaded.start()..loaded.end(), ROOM).ok_or_else(no_room)?;
    let run = |address: LinkAddr| RunAddr(address.0.wrapping_add(loaded.bias));
    let link = |address: u64| RunAddr(address).to_link(loaded.bias);
    let copy =
        copy_one(module, entry, link(place)).map_err(|refusal| OracleError::NotMoved { name: FIND_OBJECT, refusal })?;
    let routine_at = (place + copy.code.len() as u64).next_multiple_of(16);
    let routine = find_object(RunAddr(routine_at), run(copy.entered_at), known).ok_or_else(no_room)?;
    let end = routine_at + routine.len() as u64;
    if end > place + ROOM {
        return Err(no_room());
    }
    let mut edits = Edits::default();
    edits.memory.push(NewMemory::Code { at: RunAddr(place), len_bytes: end - place });
    edits.writes.push(Write { at: RunAddr(place), old: None, new: copy.code.clone() });
    edits.writes.push(Write { at: RunAddr(routine_at), old: None, new: routine });
    for patch in copy.entered_by(link(routine_at)).ok_or_else(no_room)? {
        edits.writes.push(Write { at: run(patch.at), old: Some(patch.old), new: patch.new });
    }
    stepper.apply(pid, &edits)?;
    Ok(Some(RunAddr(place)..RunAddr(end)))
}
