//! Changes of a stopped program's memory, as data: what is mapped, what is written. Who plans them decides what they mean.

use callpath_format::address::RunAddr;

use crate::error::TargetError;
use crate::memory::SharedMemory;
use crate::pid::Pid;
use crate::remote_memory;
use crate::step::Stepper;
use crate::traced::Traced;

/// Changes of a program's memory, in the order in which they are made.
#[derive(Debug, Default)]
pub struct Edits<'m> {
    /// New memory.
    pub memory: Vec<NewMemory<'m>>,
    /// What is written then: first where nothing stood before.
    pub writes: Vec<Write>,
}

/// Memory that the program gets.
#[derive(Debug)]
pub enum NewMemory<'m> {
    /// For code: the program can read and execute it, not write it. What it has of whole large pages
    /// ([`LARGE_PAGE_BYTES`](crate::LARGE_PAGE_BYTES)) lies in such, where the kernel has them for those who ask.
    Code {
        /// Where. Nothing may be there.
        at: RunAddr,
        /// Its length.
        len_bytes: u64,
    },
    /// Memory of ours that the program writes, too.
    Shared {
        /// Where. Nothing may be there.
        at: RunAddr,
        /// The memory, mapped from beginning to end.
        memory: &'m SharedMemory,
    },
}

/// Bytes that are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where.
    pub at: RunAddr,
    /// What must stand there before, as many bytes; none in new memory.
    pub old: Option<Vec<u8>>,
    /// What is to stand there.
    pub new: Vec<u8>,
}

impl<'m> Edits<'m> {
    /// What is new, and what changes: the second needs all threads of the program to stand still, the first does not.
    pub fn apart(self) -> (Edits<'m>, Edits<'m>) {
        let (new, changed) = self.writes.into_iter().partition(|write| write.old.is_none());
        (Edits { memory: self.memory, writes: new }, Edits { memory: Vec::new(), writes: changed })
    }

    /// Maps new memory, and writes what is to stand in it; `thread` makes the system calls, others may run.
    pub(crate) fn add(&self, traced: &mut impl Traced, thread: Pid) -> Result<(), TargetError> {
        for memory in &self.memory {
            remote_memory::map(traced, thread, memory)?;
        }
        let mut new = self.writes.iter().filter(|write| write.old.is_none());
        new.try_for_each(|write| traced.memory().write(write.at.0, &write.new))
    }

    /// Makes the changes. All threads of the program must stand still, none where bytes change; `thread` makes the system
    /// calls. If any of the old bytes differ, nothing has been changed but that new memory is there.
    pub(crate) fn apply(&self, traced: &mut impl Traced, thread: Pid) -> Result<(), TargetError> {
        for memory in &self.memory {
            remote_memory::map(traced, thread, memory)?;
        }
        for write in &self.writes {
            write.old.as_deref().map_or(Ok(()), |old| traced.memory().expect(write.at, old))?;
        }
        let (new, changed): (Vec<&Write>, Vec<&Write>) = self.writes.iter().partition(|write| write.old.is_none());
        new.into_iter().try_for_each(|write| traced.memory().write(write.at.0, &write.new))?;
        changed.into_iter().try_for_each(|write| traced.change(write.at, &write.new))
    }

    /// Puts back what stood where bytes were changed. New memory stays: a thread may come back to it.
    pub(crate) fn undo(&self, traced: &mut impl Traced) -> Result<(), TargetError> {
        let changed = || self.writes.iter().filter_map(|write| Some((write, write.old.as_ref()?)));
        for (write, _) in changed() {
            traced.memory().expect(write.at, &write.new)?;
        }
        for (write, old) in changed() {
            traced.change(write.at, old)?;
        }
        Ok(())
    }
}

impl Stepper {
    /// Makes the changes. All threads of the program must stand still, `thread` outside of the kernel, and none where
    /// bytes change. If any of the old bytes differ, nothing has been changed but that new memory is there.
    ///
    /// # Errors
    /// If memory cannot be mapped, or bytes are not what they should be.
    pub fn apply(&mut self, thread: Pid, edits: &Edits<'_>) -> Result<(), TargetError> {
        edits.apply(self, thread)
    }

    /// Puts back what stood where bytes were changed. New memory stays: a thread may come back to it. Under the same
    /// conditions as [`Stepper::apply`].
    ///
    /// # Errors
    /// If the bytes are no longer those that were written; then nothing has been changed.
    pub fn undo(&mut self, edits: &Edits<'_>) -> Result<(), TargetError> {
        edits.undo(self)
    }
}
