//! What tells a process of copies, as data. Its unwinders: the C library's `_dl_find_object`, which they ask, begins with a
//! routine that knows them. And procedures that ask which module called them, by a table.

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_image::exports::Exports;
pub use callpath_x86::rewrite::KnownCode;
use callpath_x86::rewrite::{Reason, Refusal, find_object, home, homes};

use crate::calls_in_copies::FIND_OBJECT;
use crate::copies::copy_one;
use crate::module::Module;
use crate::probes::Change;

/// How much new memory all of it takes at most, bytes. It begins with the table.
pub const ROOM_BYTES: u64 = 1 << 18;

/// So many more copies can be told of later ([`Told::add`]): those of libraries that come.
const MOST_LATER: usize = 2000;

/// Where a process is told of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Where the next entries come in both tables, run-time addresses.
    homes: RunAddr,
    found: RunAddr,
    /// How many more there is room for.
    left: usize,
}

impl Told {
    /// What tells of more copies: the run-time addresses of words, and what is written there. `None`: there is no room.
    pub fn add(&mut self, known: &KnownCode) -> Option<Vec<(RunAddr, u64)>> {
        self.left = self.left.checked_sub(1)?;
        let mut words = Vec::new();
        for (at, entry) in [(&mut self.homes, home(known)), (&mut self.found, known.entry())] {
            words.extend((0..).zip(entry).map(|(number, word)| (RunAddr(at.0 + 8 * number), word)));
            at.0 += KnownCode::ENTRY_BYTES;
        }
        Some(words)
    }
}

/// Where the procedure begins that unwinders ask, in a module that has it: the C library.
pub fn asked(module: &Module) -> Option<LinkAddr> {
    Exports::of(module.image()).named(FIND_OBJECT).first().map(|export| export.start)
}

/// What is written so that the routine takes the place of the procedure at `entry`, with [`ROOM_BYTES`] of new memory, all of it zeroes,
/// at `at`; and where more is told. `bias`: run-time address minus link-time address of the module.
///
/// # Errors
/// Why the procedure cannot be copied.
pub fn tell(
    module: &Module,
    (entry, at): (LinkAddr, LinkAddr),
    bias: u64,
    known: &[KnownCode],
) -> Result<(Vec<Change>, Told), Refusal> {
    let too_far = Refusal { at: entry, reason: Reason::TooFar };
    let run = |address: LinkAddr| RunAddr(address.0.wrapping_add(bias));
    let table = Change { at, old: None, new: homes(known) };
    let more_bytes = MOST_LATER as u64 * KnownCode::ENTRY_BYTES;
    let next = |len: usize| LinkAddr(at.0 + len as u64 * KnownCode::ENTRY_BYTES);
    let next_home = run(next(known.len()));
    let at = LinkAddr((at.0 + table.new.len() as u64 + more_bytes).next_multiple_of(16));
    let copy = copy_one(module, entry, at)?;
    let routine_at = LinkAddr((at.0 + copy.code.len() as u64).next_multiple_of(16));
    let (routine, entries) = find_object(run(routine_at), run(copy.entered_at), known).ok_or(too_far)?;
    let next_found = run(routine_at).0 + entries as u64 + known.len() as u64 * KnownCode::ENTRY_BYTES;
    if routine_at.0 + routine.len() as u64 + more_bytes - table.at.0 > ROOM_BYTES {
        return Err(too_far);
    }
    let patches = copy.entered_by(routine_at).ok_or(too_far)?;
    let mut changes =
        vec![table, Change { at, old: None, new: copy.code }, Change { at: routine_at, old: None, new: routine }];
    changes.extend(patches.into_iter().map(|patch| Change { at: patch.at, old: Some(patch.old), new: patch.new }));
    Ok((changes, Told { homes: next_home, found: RunAddr(next_found), left: MOST_LATER }))
}
