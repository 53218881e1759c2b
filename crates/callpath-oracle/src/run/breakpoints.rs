//! Breakpoints: where a program that runs freely is to stop.

use std::ops::Range;

use callpath_target::Stepper;
use rustc_hash::FxHashMap;

use crate::OracleError;

const INT3: u8 = 0xcc;
const PAGE: u64 = 4096;

/// The breakpoints that are laid, and the bytes that were there.
#[derive(Default)]
pub(super) struct Breakpoints {
    laid: FxHashMap<u64, u8>,
}

impl Breakpoints {
    /// Whether one is at `pc`.
    #[inline]
    pub(super) fn contains(&self, pc: u64) -> bool {
        self.laid.contains_key(&pc)
    }

    /// Lays one, unless it is there.
    pub(super) fn lay(&mut self, pc: u64, stepper: &Stepper) -> Result<(), OracleError> {
        if let std::collections::hash_map::Entry::Vacant(place) = self.laid.entry(pc) {
            let mut byte = [0];
            // What cannot be read cannot run: no breakpoint is needed there.
            if stepper.read(pc, &mut byte) == 1 {
                stepper.write(pc, &[INT3])?;
                place.insert(byte[0]);
            }
        }
        Ok(())
    }

    /// Takes one away, if it is there.
    pub(super) fn take(&mut self, pc: u64, stepper: &Stepper) -> Result<(), OracleError> {
        if let Some(byte) = self.laid.remove(&pc) {
            stepper.write(pc, &[byte])?;
        }
        Ok(())
    }

    /// Forgets those in code that is gone.
    pub(super) fn forget(&mut self, gone: &[Range<u64>]) {
        if !gone.is_empty() {
            self.laid.retain(|pc, _| !gone.iter().any(|range| range.contains(pc)));
        }
    }

    /// Shows the program its own code (`shown`), or the breakpoints again.
    pub(super) fn show_code(&self, shown: bool, stepper: &Stepper) -> Result<(), OracleError> {
        let mut pages: FxHashMap<u64, Vec<(u64, u8)>> = FxHashMap::default();
        for (&pc, &byte) in &self.laid {
            pages.entry(pc / PAGE).or_default().push((pc % PAGE, if shown { byte } else { INT3 }));
        }
        for (page, changes) in pages {
            let mut bytes = [0; PAGE as usize];
            if stepper.read(page * PAGE, &mut bytes) < bytes.len() {
                continue;
            }
            for (at, byte) in changes {
                bytes[at as usize] = byte;
            }
            stepper.write(page * PAGE, &bytes)?;
        }
        Ok(())
    }

    /// The program's own bytes of what was read at `addr`.
    pub(super) fn restore(&self, addr: u64, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate().filter(|(_, byte)| **byte == INT3) {
            if let Some(own) = self.laid.get(&(addr + at as u64)) {
                *byte = *own;
            }
        }
    }
}
