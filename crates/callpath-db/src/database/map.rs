//! A file's bytes, mapped: what is not looked at is not read.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};

/// A file's bytes, or bytes that never were in a file.
pub(crate) enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// The file need not stay open.
    #[allow(unsafe_code, reason = "the only way to map a file")]
    pub(crate) fn of_file(path: &Path) -> io::Result<Bytes> {
        let file = File::open(path)?;
        // A mapping of nothing is an error, and a directory or pipe cannot be mapped.
        if !file.metadata()?.is_file() || file.metadata()?.len() == 0 {
            return Ok(Bytes::Owned(std::fs::read(path)?));
        }
        // SAFETY: the file must not be cut or written while it is mapped. callpath never writes to a finished database: it
        // writes a new file and gives it the name. Who else does so gets SIGBUS or nonsense, which is checked for.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Bytes::Mapped(map))
    }

    /// A stretch of a file, which must reach so far.
    #[allow(unsafe_code, reason = "the only way to map a file")]
    pub(crate) fn of_stretch(file: &File, offset: u64, len_bytes: usize) -> io::Result<Bytes> {
        // SAFETY: as above; what callpath keeps in such a file it only appends to.
        let map = unsafe { MmapOptions::new().offset(offset).len(len_bytes).map(file)? };
        Ok(Bytes::Mapped(map))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
