//! What tells the unwinders of a program of copies, and how changes are written into it.

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_tables::probes::Change;
use callpath_tables::unwinders;
use callpath_target::{Edits, Maps, NewMemory, Pid, Write};

use super::analysed::Analysed;
use crate::error::RecordError;
use crate::probe::halt;

/// What tells the process of copies.
pub(super) struct Teller<'a> {
    /// The C library.
    pub(super) of: &'a Analysed,
    /// The procedure that unwinders ask.
    pub(super) asked: LinkAddr,
    /// Where its new memory is, which begins with the table of modules.
    pub(super) at: RunAddr,
}

impl<'a> Teller<'a> {
    /// Takes the memory.
    pub(super) fn new(pid: Pid, of: &'a Analysed, asked: LinkAddr) -> Result<Teller<'a>, RecordError> {
        let Analysed { loaded, bias, .. } = of;
        let place = Maps::read(pid)?.free_near(loaded.start..loaded.end, unwinders::ROOM_BYTES);
        let at = RunAddr(place.ok_or_else(|| RecordError::NoRoom { module: loaded.path.clone() })?);
        write(pid, vec![NewMemory::Code { at, len_bytes: unwinders::ROOM_BYTES }], (vec![], *bias))?;
        Ok(Teller { of, asked, at })
    }
}

/// Makes changes, whose addresses are link-time ones, in a module with this bias.
pub(super) fn write(
    pid: Pid,
    memory: Vec<NewMemory<'static>>,
    (changes, bias): (Vec<Change>, u64),
) -> Result<Edits<'static>, RecordError> {
    let run = |at: LinkAddr| RunAddr(at.0.wrapping_add(bias));
    let writes = changes.into_iter().map(|change| Write { at: run(change.at), old: change.old, new: change.new });
    let halted = halt(pid)?;
    let edits = Edits { memory, writes: writes.collect() };
    halted.apply(&edits)?;
    halted.release()?;
    Ok(edits)
}
