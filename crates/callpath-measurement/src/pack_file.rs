//! The pack: a report's facts of the modules' code, kept with the measurement. What they are only their reader knows.

use std::path::{Path, PathBuf};

use crate::bytes::{KIND_PACK, Reader, Writer, finished, started};
use crate::directory::{read_file, write_file};
use crate::error::MeasurementError;

const PACK: &str = "pack";

/// The pack of a measurement, its checksum tested.
#[derive(Debug)]
pub struct PackFile {
    /// Where it is, or is to be.
    pub path: PathBuf,
    bytes: Vec<u8>,
}

impl PackFile {
    /// A pack that is not written yet; `write` gives what it holds.
    pub fn new(directory: &Path, write: impl FnOnce(&mut Writer)) -> PackFile {
        let mut writer = started(KIND_PACK);
        write(&mut writer);
        PackFile { path: directory.join(PACK), bytes: finished(writer) }
    }

    /// That of a measurement; `None` if it has none.
    pub fn read(directory: &Path) -> Result<Option<PackFile>, MeasurementError> {
        let path = directory.join(PACK);
        let bytes = match read_file(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(MeasurementError::Read { path, source }),
        };
        let pack = PackFile { path, bytes };
        pack.reader().map(drop)?;
        Ok(Some(pack))
    }

    /// Puts it into a measurement's directory.
    pub fn write(&self, directory: &Path) -> Result<(), MeasurementError> {
        write_file(directory, PACK, &self.bytes)
    }

    /// What it holds.
    pub fn reader(&self) -> Result<Reader<'_>, MeasurementError> {
        Reader::open(&self.bytes, &self.path, KIND_PACK)
    }

    /// How long its file is, bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}
