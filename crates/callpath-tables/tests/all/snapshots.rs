//! Answers to streams of snapshots over a module that the tests build.

use crate::tiny_elf;

use std::fs;
use std::path::PathBuf;

use callpath_tables::SnapshotError;
use callpath_tables::recipes::RecipeOptions;
use callpath_tables::snapshot::{Answered, answer, fuzz_snapshot_stream};
use callpath_tables::table_cache::TableCache;
use tiny_elf::{CODE, CODE_LEN_BYTES, shared_object};

/// Where the module is loaded.
const BIAS: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7ffd_0000_0000;
const RBP: usize = 6;

/// A module of four procedures, and the stream's bytes so far.
struct Stream {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
    snapshots: u64,
}

fn record(bytes: &mut Vec<u8>, tag: u32, payload: &[u8]) {
    bytes.extend(tag.to_le_bytes());
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(payload);
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Stream {
    fn new() -> Stream {
        let dir = tempfile::tempdir().unwrap();
        let object = shared_object(
            [0x90; 8],
            &[
                (0x00..0x20, &[]),                                       // a leaf
                (0x20..0x40, &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6]), // push rbp; mov rbp, rsp
                (0x40..0x60, &[0x07, 16]),                               // _start: no caller
                (0x60..0x80, &[0x0f, 5, 0x77, 0, 0x09, 0xf0, 0x1a]),     // CFA = rsp & -16
            ],
        );
        fs::write(dir.path().join("tiny.so"), object).unwrap();
        let mut stream = Stream { dir, bytes: b"CPSNAP01".to_vec(), snapshots: 0 };
        let path = stream.dir.path().join("tiny.so");
        stream.modules(&[(path, BIAS)]);
        stream
    }

    fn modules(&mut self, modules: &[(PathBuf, u64)]) {
        let mut payload = [(modules.len() as u32).to_le_bytes(), [0; 4]].concat();
        for (path, bias) in modules {
            let path = path.to_str().unwrap().as_bytes();
            payload.extend(words(&[*bias, bias + 0x2000, *bias]));
            payload.extend([1u32, path.len() as u32].map(u32::to_le_bytes).concat());
            payload.extend(path);
            payload.resize(payload.len().next_multiple_of(8), 0);
            payload.extend(words(&[bias + CODE, bias + CODE + CODE_LEN_BYTES, CODE, 5]));
        }
        record(&mut self.bytes, 1, &payload);
    }

    /// A snapshot at an offset in the code, with rsp 16 bytes into the copy.
    fn snapshot(&mut self, at: u64, rbp: u64, stack: &[u64]) {
        let mut registers = [0; 17];
        registers[RBP] = rbp;
        registers[7] = STACK + 16;
        registers[16] = code(at);
        let copy = words(&[&[0xdead, 0xbeef], stack].concat());
        let mut payload = words(&[&[self.snapshots], &registers[..], &[STACK]].concat());
        payload.extend([copy.len() as u32, 1].map(u32::to_le_bytes).concat());
        payload.extend(copy);
        record(&mut self.bytes, 2, &payload);
        self.snapshots += 1;
    }

    fn end(&mut self) {
        record(&mut self.bytes, 3, &[]);
    }

    fn answers(&self) -> (Vec<String>, Result<Answered, SnapshotError>) {
        answers_to(&self.bytes, &TableCache::open(None))
    }
}

fn answers_to(stream: &[u8], cache: &TableCache) -> (Vec<String>, Result<Answered, SnapshotError>) {
    let mut output = Vec::new();
    let (answered, result) = answer(stream, &mut output, cache, &RecipeOptions::default());
    let result = result.map(|()| answered);
    let text = String::from_utf8(output).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    (text.lines().map(str::to_owned).collect(), result)
}

fn code(at: u64) -> u64 {
    BIAS + CODE + at
}

fn line(id: u64, path: &[u64]) -> String {
    path.iter().fold(id.to_string(), |line, at| format!("{line} {:x}", code(*at)))
}

/// Leaf called from a procedure with a frame, called from `_start`; then the same from further in.
fn usual() -> Stream {
    let mut stream = Stream::new();
    // rsp: return to 0x2a; rbp -> saved rbp, return to 0x48
    stream.snapshot(0x10, STACK + 32, &[code(0x2a), 7, 0, code(0x48), 9]);
    stream.snapshot(0x20, 0, &[code(0x48)]);
    stream.snapshot(0x21, 0, &[0, code(0x48)]);
    stream.snapshot(0x50, 0, &[code(0x48)]);
    stream
}

#[test]
fn paths_are_answered_from_the_innermost_frame_outwards() {
    let mut stream = usual();
    // rsp & -16 is not above rsp: without progress there are no frames.
    stream.snapshot(0x70, 0, &[code(0x48)]);
    // No recipe here; a return address outside of code; the stack ends.
    stream.snapshot(0x90, 0, &[code(0x48)]);
    stream.snapshot(0x00, 0, &[0x1234]);
    stream.snapshot(0x00, 0, &[]);
    stream.snapshot(0x00, 0, &[code(0x10), code(0x10)]);
    stream.end();
    let (lines, result) = stream.answers();
    assert_eq!(
        lines,
        [
            line(0, &[0x2a, 0x48]),
            line(1, &[0x48]),
            line(2, &[0x48]),
            line(3, &[]),
            line(4, &[]),
            line(5, &[]),
            line(6, &[]),
            line(7, &[]),
            line(8, &[0x10, 0x10]),
        ]
    );
    let answered = result.unwrap();
    assert_eq!((answered.snapshots, answered.full, answered.tables), (9, 4, 1));
    assert_eq!(answered.remarks, [] as [String; 0]);
}

#[test]
fn unknown_records_are_skipped_and_modules_replaced() {
    let mut stream = usual();
    record(&mut stream.bytes, 77, &[0; 1000]);
    stream.snapshot(0x20, 0, &[code(0x48)]);
    stream.modules(&[]);
    stream.snapshot(0x20, 0, &[code(0x48)]);
    let path = stream.dir.path().join("tiny.so");
    stream.modules(&[(stream.dir.path().join("absent.so"), 0x1000_0000), (path, BIAS)]);
    stream.snapshot(0x20, 0, &[code(0x48)]);
    stream.end();
    stream.bytes.extend(b"what comes after the end is not looked at");
    let (lines, result) = stream.answers();
    assert_eq!(lines[4..], [line(4, &[0x48]), line(5, &[]), line(6, &[0x48])]);
    let answered = result.unwrap();
    assert_eq!(answered.tables, 1);
    assert_eq!(answered.remarks.len(), 1);
    assert!(answered.remarks[0].contains("absent.so"), "{:?}", answered.remarks);
}

#[test]
fn a_cached_table_answers_the_same() {
    let stream = usual();
    let dir = tempfile::tempdir().unwrap();
    let cache = TableCache::open(Some(dir.path().join("cache")));
    let expected = stream.answers().0;
    for _ in 0..2 {
        assert_eq!(answers_to(&stream.bytes, &cache).0, expected);
    }
    assert_eq!(fs::read_dir(dir.path().join("cache")).unwrap().count(), 1);
}

#[test]
fn cut_streams_answer_what_was_complete() {
    let mut stream = usual();
    let whole = stream.answers().0;
    let ends: Vec<usize> = (0..=stream.bytes.len())
        .filter(|len| answers_to(&stream.bytes[..*len], &TableCache::open(None)).1.is_ok())
        .collect();
    // After the modules and after each snapshot, and after the magic.
    assert_eq!(ends.len(), 2 + 4);
    for len in 0..stream.bytes.len() {
        let (lines, result) = answers_to(&stream.bytes[..len], &TableCache::open(None));
        assert_eq!(lines[..], whole[..ends.iter().filter(|end| **end <= len).count().saturating_sub(2)]);
        match result {
            Ok(_) => assert!(ends.contains(&len)),
            Err(SnapshotError::SnapshotMagic) => assert!(len < 8),
            Err(SnapshotError::SnapshotCut { offset }) => assert!(ends.contains(&(offset as usize)), "{offset}"),
            Err(error) => panic!("{error}"),
        }
    }
    // Without an END record there may be more; END closes the stream.
    stream.end();
    assert_eq!(stream.answers().0, whole);
}

#[test]
fn a_record_that_contradicts_itself_is_named() {
    let check = |tag, payload: &[u8]| {
        let mut stream = usual();
        let at = stream.bytes.len() as u64;
        record(&mut stream.bytes, tag, payload);
        let (lines, result) = stream.answers();
        assert_eq!(lines.len(), 4);
        assert!(matches!(result, Err(SnapshotError::SnapshotRecord { offset, .. }) if offset == at), "{result:?}");
    };
    check(1, &[]);
    check(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
    check(1, &[0xff; 64]);
    check(2, &[]);
    check(2, &[0; 151]);
    check(2, &[0; 153]);
    let mut too_long = vec![0; 152 + 65_537];
    too_long[144..152].copy_from_slice(&words(&[0, 65_537])[8..]);
    check(2, &too_long);
}

#[test]
fn mutated_streams_never_panic() {
    let mut stream = usual();
    record(&mut stream.bytes, 77, &[1; 40]);
    stream.end();
    let cache = TableCache::open(None);
    let mut random = fastrand::Rng::with_seed(0x2545_f491_4f6c_dd1d);
    for round in 0..20_000 {
        let mut bytes = stream.bytes.clone();
        for _ in 0..=random.usize(..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(bytes.len() - random.usize(..bytes.len()) * (random.usize(..4) / 3));
        fuzz_snapshot_stream(&bytes);
        // With the module's recipes, too; its path must be the real one in any bytes.
        let path = stream.dir.path().to_str().unwrap().as_bytes();
        if round % 10 == 0 && bytes.windows(path.len()).any(|window| window == path) {
            let (lines, _) = answers_to(&bytes, &cache);
            assert!(lines.len() <= 5);
        }
    }
}
