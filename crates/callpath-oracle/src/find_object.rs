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

/// What tells a program of copies.
pub(crate) struct Teller<'a> {
    /// The module that unwinders ask, and what they ask there.
    of: (&'a Module, &'a Analysed, LinkAddr),
    /// Where its new memory is, which begins with the table of modules.
    pub(crate) at: RunAddr,
}

impl<'a> Teller<'a> {
    /// Takes the memory, in a program that stands still. None if no module has what unwinders ask.
    pub(crate) fn new(
        stepper: &mut Stepper,
        modules: &'a [(Module, Analysed)],
    ) -> Result<Option<Teller<'a>>, OracleError> {
        let found = modules.iter().find_map(|(loaded, module)| Some((loaded, module, asked(module)?)));
        let Some(of) = found else { return Ok(None) };
        let (loaded, pid) = (of.0, stepper.pid());
        let place = Maps::read(pid)?.free_near(loaded.start()..loaded.end(), ROOM_BYTES);
        let at = RunAddr(place.ok_or_else(|| OracleError::NoRoom { path: loaded.path.clone() })?);
        let memory = vec![NewMemory::Code { at, len_bytes: ROOM_BYTES }];
        stepper.apply(pid, &Edits { memory, writes: Vec::new() })?;
        Ok(Some(Teller { of, at }))
    }

    /// Lets the routine that knows the copies take the place of what unwinders ask, and writes the table, in a program that
    /// stands still outside of it. Returns where it lies.
    pub(crate) fn tell(&self, stepper: &mut Stepper, known: &[KnownCode]) -> Result<Range<RunAddr>, OracleError> {
        let (loaded, module, entry) = self.of;
        let run = |address: LinkAddr| RunAddr(address.0.wrapping_add(loaded.bias));
        let told = tell(module, (entry, self.at.to_link(loaded.bias)), loaded.bias, known);
        let (changes, _) = told.map_err(|refusal| OracleError::NotMoved { name: FIND_OBJECT, refusal })?;
        let writes = changes.into_iter().map(|change| Write { at: run(change.at), old: change.old, new: change.new });
        stepper.apply(stepper.pid(), &Edits { memory: Vec::new(), writes: writes.collect() })?;
        Ok(self.at..RunAddr(self.at.0 + ROOM_BYTES))
    }
}
