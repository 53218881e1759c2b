//! A stretch of generated code as it was analysed, and what a sample saw of it.

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::ModuleIndex;
use callpath_format::recipe::Packed;
use callpath_format::shared::generated::{CheckedProcedure, GeneratedStretch};
use callpath_tables::recipes::generated::{GeneratedBuild, word_at};

use super::memory::Memory;
use crate::publish::Region;

/// How much of code without a known procedure is compared, bytes.
pub(super) const COMPARED_BYTES: u64 = 64;
/// How often walks through code without a recipe are tried. If at most one
/// in this many succeeds, they are no longer tried.
const TRIES: u32 = 32;
const SUCCESSES_ONE_IN: u32 = 8;

pub(super) struct Stretch {
    pub(super) range: Range<RunAddr>,
    pub(super) code_start: RunAddr,
    pub(super) code: Rc<[u8]>,
    pub(super) build: GeneratedBuild,
    /// That was put together: only what had changed since the time before was analysed.
    pub(super) is_pieced: bool,
    /// The next time all of it is analysed.
    pub(super) begins_anew: bool,
    /// When all of it was analysed last.
    pub(super) whole_since: Instant,
    pub(super) module: ModuleIndex,
    /// When it may be analysed again.
    pub(super) due: Instant,
    pub(super) region: Option<Region>,
    pub(super) tries: u32,
    pub(super) successes: u32,
}

/// Bytes of code as they were when a sample was taken.
#[derive(Default)]
pub(crate) struct Witness {
    pub(crate) start: RunAddr,
    pub(crate) bytes: Vec<u8>,
}

/// The code is not what it was when the sample was taken.
pub(super) struct Rewritten;

impl Witness {
    pub(super) fn end(&self) -> RunAddr {
        RunAddr(self.start.0.saturating_add(self.bytes.len() as u64))
    }

    /// Puts the bytes that it has over those of memory that begins at `start`.
    pub(super) fn put_into(&self, start: RunAddr, memory: &mut [u8]) {
        let from = start.0.max(self.start.0);
        let to = start.0.saturating_add(memory.len() as u64).min(self.end().0);
        let part = |start: RunAddr| (from - start.0) as usize..(to - start.0) as usize;
        if from < to
            && let Some((there, met)) = memory.get_mut(part(start)).zip(self.bytes.get(part(self.start)))
        {
            there.copy_from_slice(met);
        }
    }

    /// Whether it has all of a procedure.
    fn covers(&self, procedure: &CheckedProcedure) -> bool {
        self.start <= procedure.start && procedure.start.0.saturating_add(procedure.len_bytes.into()) <= self.end().0
    }

    /// Whether all bytes that it has of a procedure are as they were analysed.
    fn agrees(&self, procedure: &CheckedProcedure, stretch: &Stretch) -> bool {
        let from = procedure.start.0.max(stretch.code_start.0);
        let end = procedure.start.0.saturating_add(procedure.len_bytes.into());
        let part = |at: u64| at.saturating_sub(stretch.code_start.0) as usize;
        let code = stretch.code.get(part(from)..part(end));
        code.is_some_and(|code| self.agrees_with(RunAddr(from), code))
    }

    /// Whether all bytes that it has of `code`, which begins at `start`, are the same.
    pub(super) fn agrees_with(&self, start: RunAddr, code: &[u8]) -> bool {
        let from = start.0.max(self.start.0);
        let to = start.0.saturating_add(code.len() as u64).min(self.end().0);
        let part = |start: RunAddr| (from - start.0) as usize..(to - start.0) as usize;
        from >= to || code.get(part(start)) == self.bytes.get(part(self.start))
    }
}

impl Stretch {
    pub(super) fn is_hopeless(&self) -> bool {
        self.tries >= TRIES && self.successes * SUCCESSES_ONE_IN <= self.tries
    }

    pub(super) fn procedure_at(&self, addr: RunAddr) -> Option<CheckedProcedure> {
        GeneratedStretch::new(&self.build.block)?.procedure_at(addr)
    }

    /// Whether the code at `addr` is what was analysed: its procedure, or else what is just around it.
    pub(super) fn is_as_analysed(&self, memory: &Memory, addr: RunAddr) -> bool {
        if let Some(procedure) = self.procedure_at(addr) {
            let mut now = vec![0; procedure.len_bytes as usize];
            let got = memory.read(procedure.start.0, &mut now);
            return procedure.mark_now(|at| word_at(&now[..got], procedure.start, at)) == Some(procedure.mark);
        }
        let from = RunAddr(addr.0.saturating_sub(COMPARED_BYTES / 2).max(self.code_start.0));
        let offset = (from.0 - self.code_start.0) as usize;
        let Some(then) = self.code.get(offset..(offset + COMPARED_BYTES as usize).min(self.code.len())) else {
            return false;
        };
        let mut now = vec![0; then.len().max(1)];
        if then.is_empty() {
            return memory.read(from.0, &mut now) == 0;
        }
        memory.read(from.0, &mut now) == now.len() && now == then
    }

    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// The recipe of the code that the sample met, if it is the one that was analysed; `is_current`: it is so now.
    pub(super) fn recipe(
        &self,
        point: CodePoint,
        witness: &Witness,
        is_current: bool,
    ) -> Result<Option<Packed>, Rewritten> {
        let holds = match self.procedure_at(point.lookup()) {
            Some(procedure) => witness.agrees(&procedure, self) && (is_current || witness.covers(&procedure)),
            None => is_current,
        };
        if holds { Ok(recipe_in(&self.build.block, point)) } else { Err(Rewritten) }
    }
}

/// The recipe of a point in a block.
pub(super) fn recipe_in(block: &[u8], point: CodePoint) -> Option<Packed> {
    let addr = point.lookup();
    let generated = GeneratedStretch::new(block)?;
    generated.procedure_at(addr)?;
    if point.is_return() && !generated.is_call_end(addr) {
        return None;
    }
    let table = generated.table()?;
    let recipe = table.packed(table.find(addr.to_link(0))?)?;
    (recipe.kind() != Packed::UNKNOWN && recipe.kind() != Packed::WIDE).then_some(recipe)
}
