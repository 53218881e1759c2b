//! Whether generated code is still what a frame was found in.

use callpath_format::address::RunAddr;
use callpath_format::frame::ModuleIndex;
use callpath_target::{has_memory, read_memory};
use rustc_hash::FxHashMap;

use super::GeneratedCode;
use super::stretch::COMPARED_BYTES;

/// What has become of the code that a frame is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CodeState {
    /// It is what was analysed; a hash of what is around the frame.
    Holds(u64),
    /// It is not.
    Changed,
    /// The process has ended, or ends. `latest`: no other code was seen there later.
    Gone { latest: bool },
    /// There was no time to look at it when it was sampled.
    NotAnalysed,
}

/// A look at the code as it is now, each stretch of it read once.
pub(crate) struct Look<'a> {
    pub(super) code: &'a GeneratedCode,
    pub(super) now: FxHashMap<u64, Vec<u8>>,
}

impl Look<'_> {
    /// Whether a frame's code is still what it was when its module was built.
    pub(crate) fn state(&mut self, module: ModuleIndex, addr: RunAddr) -> CodeState {
        let Some((start, then)) = self.code.versions.get(&module) else { return CodeState::NotAnalysed };
        let Some(range) = self.code.range_at(addr) else { return CodeState::Changed };
        let around = addr.0.saturating_sub(COMPARED_BYTES / 2).max(range.start.0).max(start.0);
        let to = (around + COMPARED_BYTES).min(range.end.0);
        let pid = self.code.pid;
        let now = self.now.entry(range.start.0).or_insert_with(|| {
            let mut now = vec![0; (range.end.0 - range.start.0) as usize];
            let got = read_memory(pid, range.start.0, &mut now);
            now.truncate(got);
            now
        });
        // An ending process has no memory any more: its code has not changed.
        if now.is_empty() && !has_memory(pid) {
            return self.after_end(module, addr);
        }
        let part = |from: u64| (around - from) as usize..to.saturating_sub(from) as usize;
        match now.get(part(range.start.0)) {
            Some(now) if then.get(part(start.0)) == Some(now) => {
                CodeState::Holds(std::hash::BuildHasher::hash_one(&rustc_hash::FxBuildHasher, now))
            }
            _ => CodeState::Changed,
        }
    }

    /// The same when the process's memory is gone.
    pub(crate) fn after_end(&self, module: ModuleIndex, addr: RunAddr) -> CodeState {
        if !self.code.versions.contains_key(&module) {
            return CodeState::NotAnalysed;
        }
        let stretch = self.code.stretch_at(addr);
        CodeState::Gone { latest: stretch.is_some_and(|stretch| stretch.module == module) }
    }
}
