//! Reads any bytes as a measurement's files, and damages files that were written.

use std::path::Path;

use crate::bytes::{HEADER_BYTES, KIND_PROCESS, LENGTH_AT, MAGIC};
use crate::decode_process;
use crate::names_file::decode_names;
use crate::process_file::whole_file;
use crate::session_file::decode_session;

/// For a fuzzer: reads any bytes as each kind of file.
#[doc(hidden)]
pub fn fuzz_measurement(bytes: &[u8]) {
    let payload = bytes.get(HEADER_BYTES..).unwrap_or_default();
    for sealed in [bytes.to_vec(), seal(bytes), whole_file(payload).0, records(payload)] {
        let path = Path::new("fuzz");
        // Only that it returns is of interest.
        drop(decode_session(&sealed, path));
        drop(decode_process(&sealed, path));
        drop(decode_names(&sealed, path));
        drop(crate::decode_job(&sealed, path));
        drop(crate::PathCounts::from_bytes(&sealed, path));
        drop(crate::together::read(&sealed, path, false));
    }
}

/// Gives bytes the right length and checksum, so that damage behind the header is looked at.
fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= HEADER_BYTES {
        sealed[..8].copy_from_slice(MAGIC);
        let len = sealed.len() as u64;
        let checksum = xxhash_rust::xxh3::xxh3_64(&sealed[HEADER_BYTES..]);
        sealed[LENGTH_AT..24].copy_from_slice(&len.to_le_bytes());
        sealed[24..32].copy_from_slice(&checksum.to_le_bytes());
    }
    sealed
}

/// A process's file of several records, the first half of the bytes and each quarter of the others.
fn records(bytes: &[u8]) -> Vec<u8> {
    let (first, others) = bytes.split_at(bytes.len() / 2);
    let (mut file, seed) = whole_file(first);
    for payload in others.chunks(others.len() / 4 + 1) {
        file.extend(crate::process_file::record_header(seed, file.len() as u64, payload));
        file.extend(payload);
    }
    let len = file.len() as u64;
    file[LENGTH_AT..24].copy_from_slice(&len.to_le_bytes());
    file[8..12].copy_from_slice(&KIND_PROCESS.to_le_bytes());
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use callpath_format::frame::{FrameKey, ModuleIndex};
    use callpath_format::shared::thread::Dropped;
    use callpath_image::identity::ModuleIdentity;
    use callpath_schema::{Metric, MetricId, MetricType};

    use crate::{
        FULL_ROOT, MeasurementError, ModuleRecord, PARTIAL_ROOT, PathTree, ProcessFile, SampleTally, SessionEnd,
        SessionFile, ThreadProfile, encode_process, encode_session,
    };

    fn process() -> ProcessFile {
        let mut tree = PathTree::default();
        let mut node = FULL_ROOT;
        for depth in 0..40u64 {
            node = tree.child(
                node,
                FrameKey::in_module(ModuleIndex(depth as u16 % 3), callpath_format::address::LinkAddr(0x1000 + depth)),
            );
            tree.add(node, depth, &[depth * 1_000_003, 0, 7 * (depth % 2)]);
        }
        let partial = tree.child(PARTIAL_ROOT, FrameKey::outside(callpath_format::address::RunAddr(0x7fff_1234_5678)));
        tree.add(partial, 1, &[5]);
        let tally = SampleTally {
            taken: 7,
            full: 3,
            dropped: [1; Dropped::COUNT],
            handler_histogram: vec![1, 2, 3],
            ..SampleTally::default()
        };
        ProcessFile {
            pid: 4711,
            sequence: 3,
            forked: true,
            program: PathBuf::from("/usr/bin/true"),
            command: vec!["true".into(), "ä b".into()],
            control_group: "/a.slice/b".into(),
            ended_ns: Some(0),
            metric_count: 3,
            modules: vec![
                ModuleRecord { path: "/a".into(), identity: Some(ModuleIdentity::BuildId(vec![1; 20])) },
                ModuleRecord { path: "/b".into(), identity: Some(ModuleIdentity::Content(1 << 100)) },
                ModuleRecord { path: "[vdso]".into(), identity: None },
            ],
            threads: vec![ThreadProfile { tid: 9, count: 2, name: "w".into(), start: Some(FrameKey(77)), tally, tree }],
            ..ProcessFile::default()
        }
    }

    fn session() -> SessionFile {
        SessionFile {
            program: "/usr/bin/xz".into(),
            command: vec!["xz".into(), "-9".into()],
            metrics: [Metric::of(MetricId::CPU_TIME), Metric::counted("cycles"), Metric::of(MetricId::RETURNS)]
                .into_iter()
                .chain([Metric { value: MetricType::Real, ..Metric::max("load", "") }])
                .chain(Metric::histogram("latency", "ns", 3))
                .chain(callpath_schema::derived_metrics(&[Metric::counted("cycles"), Metric::counted("instructions")]))
                .collect(),
            ended: Some(SessionEnd { status: 137, user_ns: 1, kernel_ns: 2, ..SessionEnd::default() }),
            notes: vec!["a note".into()],
            ..SessionFile::default()
        }
    }

    #[test]
    fn a_file_without_a_record_says_so() {
        let (path, whole) = (Path::new("F"), encode_process(&process()));
        let mut none = whole[..HEADER_BYTES].to_vec();
        none[LENGTH_AT..24].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        let error = decode_process(&none, path).unwrap_err().to_string();
        assert_eq!(error, "read F: it has no record, not even of the process");
        // A record of no threads that says nothing of the process.
        let error = decode_process(&whole_file(&[0, 0]).0, path).unwrap_err().to_string();
        assert!(error.contains("a first record that does not name the process"), "{error}");
    }

    #[test]
    fn what_is_written_is_read() {
        let path = Path::new("f");
        let (read, tail) = decode_process(&encode_process(&process()), path).unwrap();
        assert!(tail.is_none());
        assert_eq!(read, process());
        assert_eq!(decode_session(&encode_session(&session()), path).unwrap(), session());
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        let path = Path::new("f");
        let whole = encode_process(&process());
        for len in 0..whole.len() {
            assert!(decode_process(&whole[..len], path).is_err(), "cut at {len}");
        }
        for at in 0..whole.len() {
            // Bytes 12 to 15 are reserved and not checked.
            if (12..16).contains(&at) {
                continue;
            }
            let mut changed = whole.clone();
            changed[at] ^= 0x41;
            let is_noticed = decode_process(&changed, path).map_or(true, |(_, tail)| tail.is_some());
            assert!(is_noticed, "changed at {at}");
        }
        assert!(matches!(decode_session(&whole, path), Err(MeasurementError::Kind { found: 2, .. })));
        let mut newer = whole.clone();
        newer[7] = b'9';
        assert!(decode_process(&newer, path).unwrap_err().to_string().contains("another version"));
    }

    #[test]
    fn damage_behind_a_right_checksum_never_panics() {
        let mut random = fastrand::Rng::with_seed(0x2545_f491_4f6c_dd1d);
        let mut next = || random.u64(..);
        let paths = crate::path_file::tests::counts().to_bytes();
        for whole in [encode_process(&process()), encode_session(&session()), paths] {
            for _ in 0..4000 {
                let mut changed = whole.clone();
                for _ in 0..=next() % 3 {
                    let at = HEADER_BYTES + next() as usize % (changed.len() - HEADER_BYTES);
                    changed[at] = next() as u8;
                }
                changed.truncate(changed.len() - (next() % 8) as usize);
                fuzz_measurement(&changed);
            }
        }
    }
}
