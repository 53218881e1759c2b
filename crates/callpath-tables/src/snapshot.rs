//! Answers streams of snapshots with the collector's walk, over registers and a copy of a stack. Only the module files
//! of the snapshotted process are used.
//!
//! The stream is CPSNAP01 (docs/formats.md): modules, snapshots of 17 registers and up to 64 KiB of stack, and an end.
//! An answer is a line `<id> <ra1> ... <raN>` of the return addresses from the innermost to the outermost frame. If a
//! walk ends early, its frames so far are the answer.

mod modules;

use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use callpath_format::address::RunAddr;
use callpath_format::frame::ModuleIndex;
use callpath_unwind::{Cursor, End, Memory, walk};

use crate::SnapshotError;
use crate::recipes::RecipeOptions;
use crate::table_cache::TableCache;
use modules::{Modules, Tables};

const MAGIC: [u8; 8] = *b"CPSNAP01";
const TAG_MODULES: u32 = 1;
const TAG_SNAPSHOT: u32 = 2;
const TAG_END: u32 = 3;
/// The longest copy of a stack, bytes.
const MAX_STACK_LEN_BYTES: u32 = 65_536;
const SNAPSHOT_HEAD_LEN_BYTES: usize = 8 + 17 * 8 + 8 + 4 + 4;
/// Answers are written when this many bytes are buffered, and at the end.
const ANSWER_BUFFER_LEN_BYTES: usize = 1 << 16;
/// Longer paths are cut; a stack of 64 KiB cannot hold this many return addresses.
const MAX_FRAMES: usize = 16_384;

/// Statistics of an answered stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answered {
    /// Snapshots in the stream, each with a line.
    pub snapshots: u64,
    /// Walks that ended at a frame known to be outermost.
    pub full: u64,
    /// Modules with a table.
    pub tables: u64,
    /// The tables' length, bytes.
    pub table_bytes: u64,
    /// Executable code of those modules, bytes.
    pub code_bytes: u64,
    /// Modules without a table, and other oddities, as sentences.
    pub remarks: Vec<String>,
}

/// Answers the snapshots of `input` on `output`, with tables from `cache`.
///
/// Snapshots before an error are answered, and the answers are flushed. The statistics are returned in any case.
pub fn answer(
    input: impl Read,
    output: impl Write,
    cache: &TableCache,
    options: &RecipeOptions,
) -> (Answered, Result<(), SnapshotError>) {
    let mut tables = Tables::new(cache, options);
    let mut answers = Answers { output, buffer: Vec::with_capacity(2 * ANSWER_BUFFER_LEN_BYTES) };
    let mut answered = Answered::default();
    let result = answer_records(&mut Records::new(input), &mut tables, &mut answers, &mut answered);
    let flushed = answers.flush();
    tables.summarise(&mut answered);
    (answered, result.and(flushed))
}

fn answer_records(
    records: &mut Records<impl Read>,
    tables: &mut Tables<'_>,
    answers: &mut Answers<impl Write>,
    answered: &mut Answered,
) -> Result<(), SnapshotError> {
    records.magic()?;
    let mut modules = Modules::default();
    while let Some(tag) = records.next()? {
        let malformed = |what| SnapshotError::SnapshotRecord { offset: records.record_start, what };
        match tag {
            TAG_MODULES => modules = tables.modules(&records.payload).map_err(malformed)?,
            TAG_SNAPSHOT => {
                let snapshot = Snapshot::parse(&records.payload).map_err(malformed)?;
                answered.snapshots += 1;
                if answers.answer(&snapshot, &mut modules)? == End::Outermost {
                    answered.full += 1;
                }
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// The records of a stream, one at a time; those with unknown tags are skipped.
struct Records<R> {
    input: io::BufReader<R>,
    offset: u64,
    record_start: u64,
    payload: Vec<u8>,
}

impl<R: Read> Records<R> {
    fn new(input: R) -> Records<R> {
        Records { input: io::BufReader::with_capacity(1 << 18, input), offset: 0, record_start: 0, payload: Vec::new() }
    }

    fn magic(&mut self) -> Result<(), SnapshotError> {
        self.fill(MAGIC.len() as u64)?;
        if self.payload == MAGIC { Ok(()) } else { Err(SnapshotError::SnapshotMagic) }
    }

    /// Reads the next known record. Returns its tag, with its payload in `payload`; `None` at the end of the stream.
    fn next(&mut self) -> Result<Option<u32>, SnapshotError> {
        loop {
            self.record_start = self.offset;
            match self.fill(8)? {
                0 => return Ok(None),
                8 => {}
                _ => return Err(SnapshotError::SnapshotCut { offset: self.record_start }),
            }
            let (tag, len) = (u32_at(&self.payload, 0), u32_at(&self.payload, 4));
            let (Some(tag), Some(len)) = (tag, len) else {
                return Err(SnapshotError::SnapshotCut { offset: self.record_start });
            };
            let known = matches!(tag, TAG_MODULES | TAG_SNAPSHOT | TAG_END);
            let got = if known { self.fill(len.into())? } else { self.skip(len.into())? };
            if got < u64::from(len) {
                return Err(SnapshotError::SnapshotCut { offset: self.record_start });
            }
            if known {
                return Ok(Some(tag));
            }
        }
    }

    /// Reads up to `len` bytes into `payload`. Memory grows with the bytes read, not with `len`.
    fn fill(&mut self, len: u64) -> Result<u64, SnapshotError> {
        self.payload.clear();
        let read = (&mut self.input).take(len).read_to_end(&mut self.payload);
        self.advance(read.map(|got| got as u64))
    }

    fn skip(&mut self, len: u64) -> Result<u64, SnapshotError> {
        let read = io::copy(&mut (&mut self.input).take(len), &mut io::sink());
        self.advance(read)
    }

    fn advance(&mut self, read: io::Result<u64>) -> Result<u64, SnapshotError> {
        let got = read.map_err(|source| SnapshotError::SnapshotRead { offset: self.offset, source })?;
        self.offset += got;
        Ok(got)
    }
}

/// One snapshot, in the stream's bytes.
struct Snapshot<'a> {
    id: u64,
    registers: [u64; 16],
    pc: RunAddr,
    stack_start: u64,
    stack: &'a [u8],
}

impl Snapshot<'_> {
    fn parse(payload: &[u8]) -> Result<Snapshot<'_>, &'static str> {
        let (head, stack) = payload.split_at_checked(SNAPSHOT_HEAD_LEN_BYTES).ok_or("a snapshot is too short")?;
        let mut words = head.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut word = || words.next().ok_or("a snapshot is too short");
        let id = word()?;
        let mut registers = [0; 16];
        for register in &mut registers {
            *register = word()?;
        }
        let (pc, stack_start, stack_len) = (RunAddr(word()?), word()?, word()? as u32);
        if stack_len > MAX_STACK_LEN_BYTES || stack_len as usize != stack.len() {
            return Err("a snapshot's length is not that of its stack");
        }
        Ok(Snapshot { id, registers, pc, stack_start, stack })
    }
}

impl Memory for &Snapshot<'_> {
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        let at = usize::try_from(addr.checked_sub(self.stack_start)?).ok()?;
        self.stack.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

/// The answers, buffered.
struct Answers<W> {
    output: W,
    buffer: Vec<u8>,
}

impl<W: Write> Answers<W> {
    fn answer(&mut self, mut snapshot: &Snapshot<'_>, modules: &mut Modules) -> Result<End, SnapshotError> {
        self.decimal(snapshot.id);
        let mut frames = 0;
        let cursor = Cursor::interrupted(snapshot.pc, snapshot.registers);
        let end = walk(cursor, modules, &mut snapshot, |cursor, located, _| {
            // A return address outside of code: the recipe of the frame before it was wrong.
            if frames > 0 {
                if located.key.module() == ModuleIndex::NONE {
                    return ControlFlow::Break(());
                }
                self.hexadecimal(cursor.point.pc().0);
            }
            frames += 1;
            if frames > MAX_FRAMES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.buffer.push(b'\n');
        if self.buffer.len() >= ANSWER_BUFFER_LEN_BYTES {
            self.flush()?;
        }
        Ok(end)
    }

    fn decimal(&mut self, value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.buffer.extend_from_slice(&digits[at..]);
    }

    /// Appends a space and the hexadecimal digits.
    fn hexadecimal(&mut self, value: u64) {
        let digits = (16 - value.leading_zeros() / 4).clamp(1, 16);
        self.buffer.push(b' ');
        for digit in (0..digits).rev() {
            self.buffer.push(b"0123456789abcdef"[(value >> (4 * digit) & 15) as usize]);
        }
    }

    fn flush(&mut self) -> Result<(), SnapshotError> {
        let written = self.output.write_all(&self.buffer).and_then(|()| self.output.flush());
        self.buffer.clear();
        written.map_err(|source| SnapshotError::SnapshotWrite { source })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// For fuzzing: any bytes are answered or rejected, without a panic. No file is opened.
#[doc(hidden)]
pub fn fuzz_snapshot_stream(bytes: &[u8]) {
    let cache = TableCache::open(None);
    let options = RecipeOptions::default();
    let mut tables = Tables::without_files(&cache, &options);
    let mut answers = Answers { output: io::sink(), buffer: Vec::new() };
    let result = answer_records(&mut Records::new(bytes), &mut tables, &mut answers, &mut Answered::default());
    drop(result);
}
