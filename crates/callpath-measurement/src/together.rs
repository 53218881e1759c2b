//! One file for all processes that ended before a separate file was written. For many short processes,
//! a file each would cost more time than they ran.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memchr::memmem;

use crate::ProcessFile;
use crate::bytes::{MAGIC, end_of_first};
use crate::error::MeasurementError;
use crate::process_file::decode_process;

/// The name of their file.
pub(super) const TOGETHER: &str = "processes";

/// Appends processes to the file of a measurement.
#[derive(Debug, Default)]
pub struct Together {
    /// The file, and its length.
    file: Option<(fs::File, u64)>,
}

impl Together {
    /// Appends the bytes of one process, all of them or none. Makes the file if it is not there.
    pub fn append(&mut self, directory: &Path, bytes: &[u8]) -> Result<(), MeasurementError> {
        let path = directory.join(TOGETHER);
        self.append_to(&path, bytes).map_err(|source| MeasurementError::Write { path, source })
    }

    fn append_to(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (mut file, len) = match self.file.take() {
            Some(open) => open,
            None => {
                let mut options = fs::OpenOptions::new();
                options.append(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
                (options.open(path)?, 0)
            }
        };
        let result = file.write_all(bytes);
        // A part of a process would hide those that follow.
        let len = if result.is_ok() { len + bytes.len() as u64 } else { file.set_len(len).map(|()| len)? };
        self.file = Some((file, len));
        result
    }
}

/// All processes of the file's bytes, and errors for those that cannot be read. `grows`: the last one may be
/// incomplete. After a damaged one, perhaps in its length, reading continues where the next one begins.
pub(super) fn read(bytes: &[u8], path: &Path, grows: bool) -> Vec<Result<ProcessFile, MeasurementError>> {
    let (mut processes, mut at) = (Vec::new(), 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let place = PathBuf::from(format!("{} (bytes counted from its byte {at})", path.display()));
        let end = end_of_first(rest);
        let next = |rest: &[u8]| memmem::find(&rest[1..], MAGIC).map(|next| next + 1);
        if end.is_none() && grows && next(rest).is_none() {
            break;
        }
        let process = match decode_process(&rest[..end.unwrap_or(rest.len())], &place) {
            // Its length is wrong: what follows is another process.
            Ok((_, Some(error))) => Err(error),
            Ok((process, None)) => Ok(process),
            Err(error) => Err(error),
        };
        at += match end {
            Some(end) if process.is_ok() => end,
            _ => next(rest).unwrap_or(rest.len()),
        };
        processes.push(process);
    }
    processes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_process;

    fn process(sequence: u32) -> Vec<u8> {
        encode_process(&ProcessFile { sequence, command: vec!["true".into()], ..ProcessFile::default() })
    }

    fn appended(count: u32) -> (tempfile::TempDir, Vec<u8>) {
        let directory = tempfile::tempdir().unwrap();
        let mut together = Together::default();
        for sequence in 0..count {
            together.append(directory.path(), &process(sequence)).unwrap();
        }
        let bytes = fs::read(directory.path().join(TOGETHER)).unwrap();
        (directory, bytes)
    }

    fn sequences(bytes: &[u8], grows: bool) -> (Vec<u32>, String) {
        let (mut sequences, mut errors) = (Vec::new(), Vec::new());
        for process in read(bytes, Path::new("F"), grows) {
            process.map_or_else(|error| errors.push(error.to_string()), |process| sequences.push(process.sequence));
        }
        (sequences, errors.join("\n"))
    }

    #[test]
    fn what_is_appended_is_read() {
        let (directory, bytes) = appended(5);
        assert_eq!(sequences(&bytes, false), (vec![0, 1, 2, 3, 4], String::new()));
        // Another recorder's file is not written to.
        assert!(Together::default().append(directory.path(), &process(0)).is_err());
        assert_eq!(fs::read(directory.path().join(TOGETHER)).unwrap(), bytes);
    }

    #[test]
    fn damage_costs_what_it_hits() {
        let (_directory, mut bytes) = appended(4);
        let len = process(0).len();
        let cut = &bytes[..3 * len - 1];
        let why =
            format!("read F (bytes counted from its byte {}): it ends at byte {}, not at byte {len}", 2 * len, len - 1);
        assert_eq!(sequences(cut, false), (vec![0, 1], format!("{why}; it was cut or is damaged")));
        assert_eq!(sequences(cut, true), (vec![0, 1], String::new()));
        bytes[len + 40] ^= 1;
        let (read, errors) = sequences(&bytes, false);
        assert_eq!(read, [0, 2, 3]);
        assert!(errors.contains(&format!("its byte {len})")) && errors.contains("checksum"), "{errors}");
        bytes[len + 40] ^= 1;
        // Of four, one is lost, whatever byte it is: its length, too, and the mark by which its beginning is
        // found. Four bytes of the header are not read.
        for at in (0..bytes.len()).filter(|at| !(12..16).contains(&(at % len))) {
            bytes[at] ^= 0xff;
            let (read, errors) = sequences(&bytes, false);
            let lost = (at / len) as u32;
            assert_eq!(read, (0..4).filter(|sequence| *sequence != lost).collect::<Vec<_>>(), "at {at}: {errors}");
            assert!(!errors.is_empty(), "at {at}");
            bytes[at] ^= 0xff;
        }
    }

    #[test]
    fn what_does_not_fit_leaves_nothing_behind() {
        let Ok(full) = fs::OpenOptions::new().append(true).open("/dev/full") else { return };
        let directory = tempfile::tempdir().unwrap();
        let mut together = Together { file: Some((full, 0)) };
        let error = together.append(directory.path(), &process(0)).unwrap_err();
        assert!(error.to_string().contains(TOGETHER), "{error}");
    }
}
