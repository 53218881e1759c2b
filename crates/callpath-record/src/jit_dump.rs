//! A jitdump: the records in which a program names its generated code (tools/perf/Documentation/jitdump-specification.txt
//! of the kernel's sources), and in which it may describe that code's frames. The file is untrusted bytes, and may still be
//! growing. The code in it is read of procedures with described frames only: to be compared with what is in memory.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use crate::jit_frames::{Description, JitFrames, MOST_CODE_BYTES};
use crate::perf_map::{JitSymbol, PerfMap};

/// How far a dump has been read.
#[derive(Default, Debug)]
pub struct JitDump {
    /// Where the next record begins; 0: the head has not been read.
    at: u64,
    /// It is none, or of another machine or byte order: nothing more of it is read.
    is_foreign: bool,
    /// How the last record describes the frames of code that the next one loads.
    described: Option<Description>,
}

/// `JiTD`, in this machine's byte order.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const MACHINE: u32 = 62;
/// Magic, version, length of the head, machine, a gap, PID, time, flags.
const HEAD_BYTES: usize = 40;
/// No head is longer, whatever later versions add.
const MOST_HEAD_BYTES: u64 = 4096;
/// Kind, length, time.
const RECORD_HEAD_BYTES: u64 = 16;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// Length of what follows, of its header, of what of it is mapped; then `.eh_frame` and its header. Code that is loaded next is described.
const UNWINDING_INFO: u32 = 4;
/// PID, TID, virtual address, address, length, number; the name follows, then the code.
const LOAD_BYTES: usize = 40;
/// PID, TID, virtual address, old address, address, length, number.
const MOVE_BYTES: usize = 48;
/// Of a name so much is read, bytes.
const NAME_BYTES: u64 = 1 << 12;

impl JitDump {
    /// Reads the whole records that have been added, names and frames of code, for about so long. Whether there are
    /// more: a dump that is read for the first time late may have gigabytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(
        &mut self,
        file: impl Read + Seek,
        (map, frames): (&mut PerfMap, &mut JitFrames),
        at_most: Duration,
    ) -> std::io::Result<bool> {
        let began = Instant::now();
        if self.is_foreign {
            return Ok(false);
        }
        let mut file = BufReader::with_capacity(1 << 16, file);
        let len_bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(self.at))?;
        if self.at == 0 {
            if len_bytes < HEAD_BYTES as u64 {
                return Ok(false);
            }
            let mut head = [0; HEAD_BYTES];
            file.read_exact(&mut head)?;
            let begin = u64::from(word(&head, 8));
            let is_one = (word(&head, 0), word(&head, 4), word(&head, 12)) == (MAGIC, VERSION, MACHINE);
            if !is_one || !(HEAD_BYTES as u64..=MOST_HEAD_BYTES).contains(&begin) {
                self.is_foreign = true;
                map.note_bad();
                return Ok(false);
            }
            file.seek_relative(begin as i64 - HEAD_BYTES as i64)?;
            self.at = begin;
        }
        while let Some(left) = len_bytes.checked_sub(self.at).filter(|left| *left >= RECORD_HEAD_BYTES) {
            let mut head = [0; RECORD_HEAD_BYTES as usize];
            file.read_exact(&mut head)?;
            let (kind, len) = (word(&head, 0), u64::from(word(&head, 4)));
            if len < RECORD_HEAD_BYTES {
                // Nothing tells where the next one is.
                self.is_foreign = true;
                map.note_bad();
                return Ok(false);
            }
            if left < len {
                // It is being written.
                return Ok(false);
            }
            let body_len = len - RECORD_HEAD_BYTES;
            let wanted = match kind {
                CODE_LOAD if self.described.is_some() => LOAD_BYTES as u64 + NAME_BYTES + MOST_CODE_BYTES,
                CODE_LOAD => LOAD_BYTES as u64 + NAME_BYTES,
                UNWINDING_INFO => Description::MOST_BODY_BYTES,
                CODE_MOVE => MOVE_BYTES as u64,
                _ => 0,
            };
            let mut body = vec![0; wanted.min(body_len) as usize];
            file.read_exact(&mut body)?;
            let is_used = match kind {
                CODE_LOAD => {
                    describe(&body, self.described.take(), frames);
                    loaded(&body).is_some_and(|symbol| map.enter(symbol))
                }
                CODE_MOVE => {
                    // What the description says of addresses beside the code would have to move, too.
                    for at in [24, 16] {
                        frames.forget(&code_of(&body, at, 32));
                    }
                    moved(&body, map)
                }
                UNWINDING_INFO => {
                    self.described = Description::new(&body);
                    self.described.is_some()
                }
                _ => true,
            };
            if !is_used {
                map.note_bad();
            }
            file.seek_relative((body_len - body.len() as u64) as i64)?;
            self.at += len;
            if began.elapsed() >= at_most {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Enters the frames of new code, if a record before it has described them.
fn describe(body: &[u8], description: Option<Description>, frames: &mut JitFrames) {
    let code = code_of(body, 16, 24);
    frames.forget(&code);
    let name_len = body.get(LOAD_BYTES..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
    let bytes = name_len.and_then(|len| body.get(LOAD_BYTES + len + 1..));
    let bytes = bytes.and_then(|bytes| bytes.get(..usize::try_from(code.end - code.start).ok()?));
    if let Some((bytes, description)) = bytes.zip(description) {
        frames.load(code.start, bytes.to_vec(), description);
    }
}

/// The code of a record: its address and its length stand at these offsets.
fn code_of(body: &[u8], address_at: usize, len_at: usize) -> std::ops::Range<u64> {
    let start = long(body, address_at);
    start..start.saturating_add(long(body, len_at))
}

/// What a record of new code says.
fn loaded(body: &[u8]) -> Option<JitSymbol> {
    let name = body.get(LOAD_BYTES..)?.split(|byte| *byte == 0).next()?;
    JitSymbol::new(long(body, 16), long(body, 24), name)
}

/// Moves code as a record says: it has the name that it had where it was. `false`: it had none.
fn moved(body: &[u8], map: &mut PerfMap) -> bool {
    if body.len() < MOVE_BYTES {
        return false;
    }
    let (from, to, len_bytes) = (long(body, 16), long(body, 24), long(body, 32));
    let name = map.procedure(from).filter(|known| known.start == from).map(|known| known.name);
    name.and_then(|name| JitSymbol::new(to, len_bytes, name.as_bytes())).is_some_and(|symbol| map.enter(symbol))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    u32::from_le_bytes(*bytes.unwrap_or(&[0; 4]))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// For a fuzzer: any bytes as a dump, in two parts.
#[doc(hidden)]
pub fn fuzz_jit_dump(bytes: &[u8]) {
    let (mut dump, mut map, mut frames) = (JitDump::default(), PerfMap::default(), JitFrames::default());
    for end in [bytes.len() / 2, bytes.len()] {
        let read = dump.read(std::io::Cursor::new(&bytes[..end]), (&mut map, &mut frames), Duration::MAX);
        read.expect("bytes in memory can be read");
    }
    frames.ask_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn head() -> Vec<u8> {
        let mut head: Vec<u8> = [MAGIC, VERSION, HEAD_BYTES as u32, MACHINE, 0, 4711].map(u32::to_le_bytes).concat();
        head.extend([0; 16]);
        head
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = RECORD_HEAD_BYTES as u32 + body.len() as u32;
        [&kind.to_le_bytes()[..], &len.to_le_bytes(), &[0; 8], body].concat()
    }

    fn load(address: u64, len_bytes: u64, name: &str) -> Vec<u8> {
        let numbers = [0, address, address, len_bytes, 1].map(u64::to_le_bytes).concat();
        record(CODE_LOAD, &[&numbers[..], name.as_bytes(), &[0], &vec![0x90; len_bytes.min(300) as usize]].concat())
    }

    fn move_to(from: u64, to: u64, len_bytes: u64) -> Vec<u8> {
        record(CODE_MOVE, &[0, to, from, to, len_bytes, 1].map(u64::to_le_bytes).concat())
    }

    fn read(dump: &mut JitDump, map: &mut PerfMap, bytes: &[u8]) {
        let is_more = dump.read(Cursor::new(bytes), (map, &mut JitFrames::default()), Duration::MAX).unwrap();
        assert!(!is_more);
    }

    fn name(map: &PerfMap, address: u64) -> Option<String> {
        map.procedure(address).map(|found| found.name)
    }

    #[test]
    fn records_are_read_as_they_come() {
        let parts = [
            head(),
            load(0x1000, 0x100, "JS:*first a.js:1"),
            record(2, &[1; 64]),
            record(99, &[]),
            load(0x2000, 0x80, "second"),
            move_to(0x1000, 0x3000, 0x100),
            move_to(0x5000, 0x6000, 0x100),
            load(0x2000, 0x80, "third"),
        ];
        let (mut dump, mut map) = (JitDump::default(), PerfMap::default());
        let mut whole = Vec::new();
        for part in &parts {
            // A record that is not there as a whole is read the next time.
            whole.extend(&part[..part.len() / 2]);
            read(&mut dump, &mut map, &whole);
            whole.extend(&part[part.len() / 2..]);
        }
        assert_eq!(
            (name(&map, 0x1000).as_deref(), name(&map, 0x3000)),
            (Some("JS:*first a.js:1"), Some("JS:*first a.js:1".into()))
        );
        assert_eq!(name(&map, 0x207f).as_deref(), Some("second"));
        read(&mut dump, &mut map, &whole);
        assert_eq!((name(&map, 0x207f).as_deref(), name(&map, 0x2080)), (Some("third"), None));
        assert!(map.is_contested(0x2000) && !map.is_contested(0x3000));
        // What moved had no name.
        assert_eq!((map.bad_lines(), name(&map, 0x6000)), (1, None));
    }

    #[test]
    fn a_long_dump_is_read_in_parts() {
        let count = 100;
        let records = (0..count).flat_map(|index| load(0x1000 * (index + 1), 0x100, &format!("p{index}")));
        let whole: Vec<u8> = head().into_iter().chain(records).collect();
        let (mut dump, mut map, mut frames) = (JitDump::default(), PerfMap::default(), JitFrames::default());
        let mut parts = 1;
        while dump.read(Cursor::new(&whole), (&mut map, &mut frames), Duration::ZERO).unwrap() {
            // A record at a time.
            assert_eq!(name(&map, 0x1000 * parts).as_deref(), Some(format!("p{}", parts - 1).as_str()));
            assert_eq!(name(&map, 0x1000 * (parts + 1)), None);
            parts += 1;
        }
        assert_eq!((parts, map.bad_lines()), (count + 1, 0));
    }

    #[test]
    fn frames_are_those_of_the_code_that_is_loaded_next() {
        use callpath_format::address::{CodePoint, RunAddr};
        let unwinding = record(UNWINDING_INFO, &crate::jit_frames::tests::body(0x40, false));
        let is_described = |parts: &[&[u8]]| {
            let (mut dump, mut map, mut frames) = (JitDump::default(), PerfMap::default(), JitFrames::default());
            // In two parts: a description is kept until its code comes.
            let whole = [&head()[..], &parts.concat()].concat();
            for end in [HEAD_BYTES + parts[0].len(), whole.len()] {
                dump.read(Cursor::new(&whole[..end]), (&mut map, &mut frames), Duration::MAX).unwrap();
            }
            [0x1000, 0x2000, 0x3000].map(|start| {
                let point = CodePoint::Exact(RunAddr(start));
                frames.at(point).is_some_and(|described| described.recipe(point).is_some())
            })
        };
        let (one, other) = (load(0x1000, 0x40, "a"), load(0x2000, 0x40, "b"));
        assert_eq!(is_described(&[&unwinding, &one, &other]), [true, false, false]);
        assert_eq!(is_described(&[&one, &unwinding, &other]), [false, true, false]);
        // Code in the same place without a description, and code that has moved.
        assert_eq!(is_described(&[&unwinding, &one, &one]), [false; 3]);
        assert_eq!(is_described(&[&unwinding, &one, &move_to(0x1000, 0x3000, 0x40)]), [false; 3]);
    }

    #[test]
    fn what_is_no_dump_names_nothing() {
        let code = load(0x1000, 0x100, "a");
        let of_other = |at: usize| {
            let mut head = head();
            head[at] ^= 0xff;
            head
        };
        for head in [of_other(0), of_other(4), of_other(12), vec![0; 64]] {
            let (mut dump, mut map) = (JitDump::default(), PerfMap::default());
            read(&mut dump, &mut map, &[&head[..], &code].concat());
            read(&mut dump, &mut map, &[&head[..], &code, &code].concat());
            assert_eq!((name(&map, 0x1000), map.bad_lines()), (None, 1));
        }
        // A record without a length ends it; one whose name is cut, or whose code is too long, is left out.
        let (mut dump, mut map) = (JitDump::default(), PerfMap::default());
        let mut endless = record(CODE_LOAD, &[]);
        endless[4..8].fill(0);
        let bad = [load(0x8000, 1 << 40, "long"), record(CODE_LOAD, &[0; 12]), load(0x9000, 16, "")].concat();
        read(&mut dump, &mut map, &[&head()[..], &code, &bad, &endless, &load(0x2000, 8, "b")].concat());
        assert_eq!((name(&map, 0x1000).as_deref(), name(&map, 0x2000), map.bad_lines()), (Some("a"), None, 4));
        // A head that is longer than ours.
        let (mut dump, mut map) = (JitDump::default(), PerfMap::default());
        let mut longer = head();
        longer[8] += 8;
        read(&mut dump, &mut map, &[&longer[..], &[0; 8], &code].concat());
        assert_eq!((name(&map, 0x1000).as_deref(), map.bad_lines()), (Some("a"), 0));
    }

    #[test]
    fn any_bytes_do_no_harm() {
        let mut random = fastrand::Rng::with_seed(0x6a69_7464);
        let unwinding = |header_first| record(UNWINDING_INFO, &crate::jit_frames::tests::body(0x40, header_first));
        let whole = [
            head(),
            unwinding(false),
            load(0x1000, 0x40, "a"),
            move_to(0x1000, 0x2000, 0x40),
            unwinding(true),
            load(0x3000, 0x40, "b"),
        ]
        .concat();
        for _ in 0..5000 {
            let mut bytes = whole.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(random.usize(..=bytes.len()));
            fuzz_jit_dump(&bytes);
        }
    }
}
