//! A measurement's files as bytes: header, checksum, numbers, strings.
//!
//! ```text
//! 0   magic     "CPMEAS" and two digits: the format's version
//! 8   kind      u32: 1 session, 2 process, 3 names, 4 pack, 5 job, 6 paths
//! 12  zero      u32
//! 16  length    u64: of the whole file, bytes
//! 24  checksum  u64: XXH3-64 of all that follows; of a process: what its records' checksums begin with
//! 32  payload   numbers as LEB128, strings and lists with their length before them; of a process: records
//! ```

use std::path::{Path, PathBuf};

pub use callpath_schema::encoding::Writer;
use callpath_schema::encoding::{self, Malformed};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::MeasurementError;

/// The two digits of [`MAGIC`].
pub(crate) const VERSION: &str = "05";
pub(crate) const MAGIC: &[u8; 8] = b"CPMEAS05";
pub(crate) const KIND_SESSION: u32 = 1;
pub(crate) const KIND_PROCESS: u32 = 2;
pub(crate) const KIND_NAMES: u32 = 3;
pub(crate) const KIND_PACK: u32 = 4;
pub(crate) const KIND_JOB: u32 = 5;
pub(crate) const KIND_PATHS: u32 = 6;
pub(crate) const HEADER_BYTES: usize = 32;
/// Offset of the file's length in a header, bytes.
pub(crate) const LENGTH_AT: usize = 16;

/// The first bytes of a file.
pub(crate) struct Header {
    pub(crate) len_bytes: u64,
    /// Of a process: the seed of its records' checksums.
    pub(crate) checksum: u64,
}

impl Header {
    pub(crate) fn bytes(&self, kind: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&kind.to_le_bytes());
        bytes[LENGTH_AT..24].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// The header of a file of this kind; its length is not checked.
    pub(crate) fn read(bytes: &[u8], path: &Path, kind: u32) -> Result<Header, MeasurementError> {
        let owned = || path.to_owned();
        if bytes.get(..6) != Some(&MAGIC[..6]) {
            return Err(MeasurementError::Magic { path: owned() });
        }
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or_else(|| MeasurementError::Length {
            path: owned(),
            expected: HEADER_BYTES as u64,
            found: bytes.len() as u64,
        })?;
        if header[..8] != MAGIC[..] {
            let found = String::from_utf8_lossy(&header[6..8]).into_owned();
            return Err(MeasurementError::Version { path: owned(), found });
        }
        let found = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if found != kind {
            return Err(MeasurementError::Kind { path: owned(), found });
        }
        if header[12..LENGTH_AT] != [0; 4] {
            return Err(MeasurementError::Content { path: owned(), offset: 12, what: "zero" });
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        Ok(Header { len_bytes: word(LENGTH_AT), checksum: word(24) })
    }
}

/// A file that is written whole: its header, which [`finished`] completes.
pub(crate) fn started(kind: u32) -> Writer {
    Writer { bytes: Header { len_bytes: 0, checksum: 0 }.bytes(kind).to_vec() }
}

/// The file's bytes.
pub(crate) fn finished(writer: Writer) -> Vec<u8> {
    let mut bytes = writer.bytes;
    let len = bytes.len() as u64;
    let checksum = xxh3_64(&bytes[HEADER_BYTES..]);
    bytes[LENGTH_AT..24].copy_from_slice(&len.to_le_bytes());
    bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads a file. Its errors name the file and the byte.
pub struct Reader<'a> {
    of_bytes: encoding::Reader<'a>,
    path: &'a Path,
}

impl<'a> Reader<'a> {
    /// A file that was written whole.
    pub(crate) fn open(bytes: &'a [u8], path: &'a Path, kind: u32) -> Result<Reader<'a>, MeasurementError> {
        let header = Header::read(bytes, path, kind)?;
        let (expected, found) = (header.len_bytes, bytes.len() as u64);
        if expected != found {
            return Err(MeasurementError::Length { path: path.to_owned(), expected, found });
        }
        if header.checksum != xxh3_64(&bytes[HEADER_BYTES..]) {
            return Err(MeasurementError::Checksum { path: path.to_owned(), offset: HEADER_BYTES });
        }
        Ok(Reader::part(bytes, HEADER_BYTES, path))
    }

    /// A part of a file, up to the end of `bytes`.
    pub(crate) fn part(bytes: &'a [u8], at: usize, path: &'a Path) -> Reader<'a> {
        Reader { of_bytes: encoding::Reader::new(bytes, at), path }
    }

    /// That what was read last makes no sense as `what`.
    pub fn error(&self, what: &'static str) -> MeasurementError {
        self.of_malformed(self.of_bytes.malformed(what))
    }

    fn of_malformed(&self, malformed: Malformed) -> MeasurementError {
        MeasurementError::Content { path: self.path.to_owned(), offset: malformed.offset, what: malformed.what }
    }

    /// Whether all has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.of_bytes.is_at_end()
    }

    /// What `read` reads.
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(&mut encoding::Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<T, MeasurementError> {
        read(&mut self.of_bytes).map_err(|malformed| self.of_malformed(malformed))
    }

    /// A number.
    pub fn number(&mut self) -> Result<u64, MeasurementError> {
        self.read(encoding::Reader::number)
    }

    /// A number of things of at least `least_bytes` each: never more than the file can hold.
    pub fn count(&mut self, least_bytes: usize) -> Result<usize, MeasurementError> {
        self.read(|r| r.count(least_bytes))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], MeasurementError> {
        self.read(encoding::Reader::bytes)
    }

    /// A string.
    pub fn string(&mut self) -> Result<String, MeasurementError> {
        self.read(encoding::Reader::string)
    }

    /// A path.
    pub fn path(&mut self) -> Result<PathBuf, MeasurementError> {
        self.read(encoding::Reader::path)
    }

    /// A list of strings.
    pub fn strings(&mut self) -> Result<Vec<String>, MeasurementError> {
        self.read(encoding::Reader::strings)
    }

    /// Nothing may follow.
    pub fn finish(self) -> Result<(), MeasurementError> {
        if self.of_bytes.is_at_end() { Ok(()) } else { Err(self.error("bytes after the end")) }
    }
}

/// The end of the first of several consecutive files. `None`: there is no complete one.
pub(crate) fn end_of_first(bytes: &[u8]) -> Option<usize> {
    let length =
        bytes.get(..8).filter(|magic| *magic == MAGIC).and_then(|_| bytes.get(LENGTH_AT..24)?.first_chunk())?;
    usize::try_from(u64::from_le_bytes(*length)).ok().filter(|end| (HEADER_BYTES..=bytes.len()).contains(end))
}
