//! Running a program that has just started up to its entry point.

use std::path::PathBuf;

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::proc_file::read_whole;
use crate::step::{Stepped, Stepper};

/// `int3`
const BREAKPOINT: [u8; 1] = [0xcc];

impl Stepper {
    /// Runs a program that stands at its beginning up to its entry point: its libraries are loaded and initialised, and
    /// no procedure of theirs, nor of its own, is active on its first thread.
    ///
    /// # Errors
    /// If it cannot be traced, or ends before.
    pub fn run_to_entry(&mut self) -> Result<RunAddr, TargetError> {
        let pid = self.pid();
        let entry = self.entry_point()?;
        let mut old = [0; BREAKPOINT.len()];
        if self.read(entry, &mut old) != old.len() {
            return Err(self.no_entry("its entry point cannot be read"));
        }
        self.write(entry, &BREAKPOINT)?;
        let mut signal = 0;
        loop {
            self.go_on(pid, signal)?;
            let stepped = self.wait(Some(pid))?.1;
            let is_here = || Ok::<_, TargetError>(self.registers(pid)?.rip == entry + BREAKPOINT.len() as u64);
            signal = match stepped {
                Stepped::Trap | Stepped::Signal(libc::SIGTRAP) if is_here()? => break,
                Stepped::Signal(other) => other,
                Stepped::Ended(_) => return Err(self.no_entry("it ended before its entry point")),
                _ => 0,
            };
        }
        self.write(entry, &old)?;
        let registers = self.registers(pid)?;
        self.set_registers(pid, &libc::user_regs_struct { rip: entry, ..registers })?;
        Ok(RunAddr(entry))
    }

    /// What the kernel has told the program's loader.
    fn entry_point(&self) -> Result<u64, TargetError> {
        let path = PathBuf::from(format!("/proc/{}/auxv", self.pid()));
        let vector = read_whole(&path).map_err(|source| TargetError::Read { path, source })?;
        let (words, _) = vector.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let entry = words.chunks_exact(2).find(|pair| pair[0] == libc::AT_ENTRY).map(|pair| pair[1]);
        entry.ok_or_else(|| self.no_entry("the kernel names no entry point"))
    }

    fn no_entry(&self, why: &str) -> TargetError {
        let source = std::io::Error::other(why.to_owned());
        TargetError::Trace { request: "running to its entry point", pid: self.pid(), source }
    }
}
