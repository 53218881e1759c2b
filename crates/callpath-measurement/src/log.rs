//! Writes a process's file while it grows: changes are appended, and the whole is rewritten when they have become long.
//!
//! The header's length always ends behind the last complete record: a record is written first, then the length. A
//! recorder that is killed in between leaves bytes that readers ignore.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::bytes::LENGTH_AT;
use crate::directory::{process_file_name, write_file};
use crate::error::MeasurementError;
use crate::process_file::{Written, record_header, whole_file};
use crate::{ProcessFile, ThreadProfile};

/// A file is rewritten when the records appended since are longer than the whole was then, and than this, bytes.
const MOST_APPENDED_BYTES: u64 = 1 << 20;
/// For a process that has ended: when they are longer than this part of the whole.
const MOST_APPENDED_PART: u64 = 4;

/// The file of one process.
#[derive(Debug, Default)]
pub struct ProcessLog {
    open: Option<Open>,
    written: Written,
}

#[derive(Debug)]
struct Open {
    file: fs::File,
    path: PathBuf,
    seed: u64,
    len_bytes: u64,
    /// When it was written as a whole.
    whole_bytes: u64,
}

impl Open {
    fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut bytes = record_header(self.seed, self.len_bytes, payload).to_vec();
        bytes.extend(payload);
        let appended = self.file.write_all_at(&bytes, self.len_bytes);
        if appended.is_err() {
            // A part of a record does no harm, but takes space on a full disk.
            drop(self.file.set_len(self.len_bytes));
        }
        appended?;
        self.len_bytes += bytes.len() as u64;
        self.file.write_all_at(&self.len_bytes.to_le_bytes(), LENGTH_AT as u64)
    }

    /// Whether the appended records, with this payload, are so long that the whole is rewritten.
    fn is_long(&self, payload: &[u8], has_ended: bool) -> bool {
        let appended = self.len_bytes - self.whole_bytes + payload.len() as u64;
        if has_ended {
            appended > self.whole_bytes / MOST_APPENDED_PART
        } else {
            appended > self.whole_bytes.max(MOST_APPENDED_BYTES)
        }
    }
}

impl ProcessLog {
    /// Whether there is a file.
    pub fn is_begun(&self) -> bool {
        self.open.is_some()
    }

    /// Makes the next update rewrite the whole: threads have changed their indices.
    pub fn forget(&mut self) {
        self.open = None;
    }

    /// Brings the file in `directory` up to date, if anything has changed. The process's threads are passed separately,
    /// each with its index; `process.threads` is ignored. After an error the whole is written the next time.
    pub fn write(
        &mut self,
        directory: &Path,
        process: &ProcessFile,
        threads: &mut [&mut ThreadProfile],
    ) -> Result<(), MeasurementError> {
        if let Some(mut open) = self.open.take() {
            let Some(payload) = self.written.changes(process, threads) else {
                self.open = Some(open);
                return Ok(());
            };
            if !open.is_long(&payload, process.ended_ns.is_some()) {
                let path = &open.path.clone();
                let appended = open.append(&payload);
                appended.map_err(|source| MeasurementError::Write { path: path.clone(), source })?;
                self.open = Some(open);
                return Ok(());
            }
        }
        let bytes = self.whole(process, threads);
        let name = &process_file_name(process.sequence, process.pid);
        write_file(directory, name, &bytes.0)?;
        if process.ended_ns.is_some() {
            return Ok(());
        }
        let path = directory.join(name);
        let options = fs::OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&path);
        let file = options.map_err(|source| MeasurementError::Write { path: path.clone(), source })?;
        let len_bytes = bytes.0.len() as u64;
        self.open = Some(Open { file, path, seed: bytes.1, len_bytes, whole_bytes: len_bytes });
        Ok(())
    }

    /// The bytes of a file of the whole process, and the seed of its checksums.
    fn whole(&mut self, process: &ProcessFile, threads: &mut [&mut ThreadProfile]) -> (Vec<u8>, u64) {
        let (written, payload) = Written::whole(process, threads);
        self.written = written;
        whole_file(&payload)
    }

    /// The bytes of the file of a process for which none was written yet.
    pub fn bytes(&mut self, process: &ProcessFile, threads: &mut [&mut ThreadProfile]) -> Vec<u8> {
        self.whole(process, threads).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_format::frame::FrameKey;

    use crate::{FULL_ROOT, PathTree, SampleTally, Scaling, decode_process};

    const NAME: &str = "process-0-1";

    /// A process that grows: what it is after each of `rounds` writings.
    fn grown(directory: &Path, log: &mut ProcessLog, rounds: u64) -> Vec<(ProcessFile, u64)> {
        let mut process = ProcessFile { pid: 1, metric_count: 3, ..ProcessFile::default() };
        let mut threads: Vec<ThreadProfile> = Vec::new();
        let mut states = Vec::new();
        let mut seed = 7u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for round in 0..rounds {
            if round % 3 == 0 {
                threads.push(ThreadProfile { tid: round as u32, count: 1, ..ThreadProfile::default() });
            }
            for _ in 0..below(20) {
                let thread = below(threads.len() as u64) as usize;
                let path: Vec<u64> = (0..below(6)).map(|_| below(4)).collect();
                let tree: &mut PathTree = &mut threads[thread].tree;
                let node = path.iter().fold(FULL_ROOT, |node, key| tree.child(node, FrameKey(*key)));
                tree.add(node, 1, &[below(9), 0, below(2)]);
                threads[thread].tally = SampleTally { taken: round, ..SampleTally::default() };
            }
            if round == 5 {
                process.scalings.push(Scaling { metric: 2, by: 7, of: 2 });
            }
            let mut apart: Vec<&mut ThreadProfile> = threads.iter_mut().collect();
            log.write(directory, &process, &mut apart).unwrap();
            let mut now = ProcessFile { threads: threads.clone(), scalings: Vec::new(), ..process.clone() };
            for scaling in &process.scalings {
                now.threads.iter_mut().for_each(|t| t.tree.scale(scaling.metric, scaling.by, scaling.of));
            }
            states.push((now, fs::metadata(directory.join(NAME)).unwrap().len()));
        }
        states
    }

    fn read(bytes: &[u8]) -> Result<(ProcessFile, Option<MeasurementError>), MeasurementError> {
        decode_process(bytes, Path::new("F"))
    }

    #[test]
    fn what_was_appended_is_read_at_each_instant() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = ProcessLog::default();
        let states = grown(directory.path(), &mut log, 40);
        let bytes = fs::read(directory.path().join(NAME)).unwrap();
        let (whole, tail) = read(&bytes).unwrap();
        assert!(tail.is_none() && whole == states[39].0);
        for (at, (state, len)) in states.iter().enumerate() {
            // The file as it was then: shorter, also by its header. Then as a recorder
            // leaves it that is killed while it appends.
            for left in [0, 1, 15, 40] {
                let mut then = bytes[..(*len as usize + left).min(bytes.len())].to_vec();
                then[LENGTH_AT..24].copy_from_slice(&len.to_le_bytes());
                let (read, tail) = read(&then).unwrap();
                assert!(read == *state && tail.is_none(), "after {at}");
            }
        }
    }

    #[test]
    fn damage_costs_what_is_behind_it_and_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let states = grown(directory.path(), &mut ProcessLog::default(), 12);
        let bytes = fs::read(directory.path().join(NAME)).unwrap();
        for at in 32..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x15;
            let before = states.iter().rposition(|(_, len)| *len as usize <= at);
            match (read(&damaged), before) {
                (Ok((process, Some(tail))), Some(before)) => {
                    assert!(process == states[before].0, "at {at}");
                    let from = format!("only its first {} bytes are whole", states[before].1);
                    assert!(tail.to_string().contains(&from), "{tail}");
                }
                (Err(_), None) => {}
                (other, _) => panic!("at {at}: {}", other.is_ok()),
            }
            let cut = read(&bytes[..at]);
            match before {
                Some(before) => assert!(cut.unwrap().0 == states[before].0, "cut at {at}"),
                None => assert!(matches!(cut, Err(MeasurementError::Length { .. })), "cut at {at}"),
            }
        }
    }

    #[test]
    fn a_long_log_is_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = ProcessLog::default();
        let mut threads = [ThreadProfile::default()];
        let mut process = ProcessFile { pid: 1, metric_count: 1, ..ProcessFile::default() };
        let keys: Vec<u32> = (0..50_000).map(|key| threads[0].tree.child(FULL_ROOT, FrameKey(key))).collect();
        let (mut longest, mut shorter) = (0, 0);
        for round in 0..30 {
            keys.iter().for_each(|node| threads[0].tree.add(*node, 1, &[1 << 40]));
            log.write(directory.path(), &process, &mut threads.iter_mut().collect::<Vec<_>>()).unwrap();
            let len = fs::metadata(directory.path().join(NAME)).unwrap().len();
            shorter += u32::from(len < longest);
            longest = longest.max(len);
            let (read, _) = read(&fs::read(directory.path().join(NAME)).unwrap()).unwrap();
            assert_eq!(read.threads[0].tree.total(0), ((round + 1) * 50_000) << 40);
        }
        assert!(shorter > 2 && longest < 4 << 20, "{shorter} times, {longest} bytes");
        process.ended_ns = Some(1);
        log.write(directory.path(), &process, &mut threads.iter_mut().collect::<Vec<_>>()).unwrap();
        let whole = encode(&process, &threads);
        assert!(fs::metadata(directory.path().join(NAME)).unwrap().len() <= 5 * whole / 4 + 100);
    }

    fn encode(process: &ProcessFile, threads: &[ThreadProfile]) -> u64 {
        crate::encode_process(&ProcessFile { threads: threads.to_vec(), ..process.clone() }).len() as u64
    }

    #[test]
    fn nothing_new_is_no_byte_and_what_failed_is_written_the_next_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let mut log = ProcessLog::default();
        let mut threads = [ThreadProfile::default()];
        let process = ProcessFile { pid: 1, metric_count: 1, ..ProcessFile::default() };
        let write = |log: &mut ProcessLog, threads: &mut [ThreadProfile]| {
            log.write(directory.path(), &process, &mut threads.iter_mut().collect::<Vec<_>>())
        };
        write(&mut log, &mut threads).unwrap();
        let before = fs::read(&path).unwrap();
        write(&mut log, &mut threads).unwrap();
        assert_eq!(fs::read(&path).unwrap(), before);
        threads[0].tree.add(FULL_ROOT, 1, &[5]);
        let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
        log.open.as_mut().unwrap().file = full;
        assert!(write(&mut log, &mut threads).unwrap_err().to_string().contains(NAME));
        assert_eq!(fs::read(&path).unwrap(), before);
        write(&mut log, &mut threads).unwrap();
        assert_eq!(read(&fs::read(&path).unwrap()).unwrap().0.threads[0].tree.total(0), 5);
    }
}
