//! Tells the unwinders of a program of copies. No code of the program is called.

use std::ops::Range;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_tables::calls_in_copies::FIND_OBJECT;
use callpath_tables::module::Module as Analysed;
use callpath_tables::unwinders::{ROOM_BYTES, asked, tell};
use callpath_target::{Edits, Maps, NewMemory, Stepper, Write};
use callpath_x86::rewrite::KnownCode;

use crate::error::OracleError;
use crate::modules::Module;

/// Lets the routine that knows them take its place, in a program that stands still outside of it. Returns where it lies; none
/// if no module has what it takes the place of.
pub(crate) fn replace(
    stepper: &mut Stepper,
    modules: &[(Module, Analysed)],
    known: &[KnownCode],
) -> Result<Option<Range<RunAddr>>, OracleError> {
    let found = modules.iter().find_map(|(loaded, module)| Some((loaded, module, asked(module)?)));
    let Some((loaded, module, entry)) = found else { return Ok(None) };
    let pid = stepper.pid();
    let place = Maps::read(pid)?.free_near(loaded.start()..loaded.end(), ROOM_BYTES);
    let place = place.ok_or_else(|| OracleError::NoRoom { path: loaded.path.clone() })?;
    let run = |address: LinkAddr| RunAddr(address.0.wrapping_add(loaded.bias));
    let told = tell(module, (entry, RunAddr(place).to_link(loaded.bias)), loaded.bias, known);
    let (changes, end) = told.map_err(|refusal| OracleError::NotMoved { name: FIND_OBJECT, refusal })?;
    let mut edits = Edits::default();
    edits.memory.push(NewMemory::Code { at: RunAddr(place), len_bytes: run(end).0 - place });
    let writes = changes.into_iter().map(|change| Write { at: run(change.at), old: change.old, new: change.new });
    edits.writes.extend(writes);
    stepper.apply(pid, &edits)?;
    Ok(Some(RunAddr(place)..run(end)))
}
