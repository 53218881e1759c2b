//! CPSNAP01 streams: writing them, and looking at what a snapshot describes (docs/formats.md).

use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use callpath_format::address::RunAddr;

use crate::modules::{Mapping, Module, Modules};

const MAGIC: &[u8; 8] = b"CPSNAP01";
const TAG_MODULES: u32 = 1;
const TAG_SNAPSHOT: u32 = 2;
const TAG_END: u32 = 3;
/// The longest copy of a stack.
pub const MAX_STACK_LEN_BYTES: usize = 65_536;
/// The copy begins so many bytes below the stack pointer: leaf procedures use them.
pub const RED_ZONE_BYTES: u64 = 128;
const SNAPSHOT_HEAD_LEN_BYTES: usize = 8 + 17 * 8 + 8 + 4 + 4;

/// What is asked about.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// 0, 1, 2, ... in the order of the stream.
    pub id: u64,
    /// In DWARF's order, rip last.
    pub registers: [u64; 17],
    /// The address of the copy's first byte.
    pub stack_start: u64,
    /// The copy.
    pub stack: &'a [u8],
    /// The copy reaches the end of the stack's mapping.
    pub reaches_end: bool,
}

/// Writes a stream.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Begins a stream.
    pub fn new(mut output: W) -> io::Result<Writer<W>> {
        output.write_all(MAGIC)?;
        Ok(Writer { output })
    }

    /// The modules that hold for the snapshots that follow.
    pub fn modules(&mut self, modules: &Modules) -> io::Result<()> {
        let mut payload = Vec::new();
        payload.extend((modules.modules.len() as u32).to_le_bytes());
        payload.extend(0u32.to_le_bytes());
        for module in &modules.modules {
            let path = module.path.as_os_str().as_bytes();
            for word in [module.start(), module.end(), module.bias] {
                payload.extend(word.to_le_bytes());
            }
            payload.extend((module.mappings.len() as u32).to_le_bytes());
            payload.extend((path.len() as u32).to_le_bytes());
            payload.extend(path);
            payload.resize(payload.len().next_multiple_of(8), 0);
            for mapping in &module.mappings {
                for word in [mapping.start, mapping.end, mapping.file_offset] {
                    payload.extend(word.to_le_bytes());
                }
                let protection = u32::from(mapping.readable) | u32::from(mapping.executable) << 2;
                payload.extend(protection.to_le_bytes());
                payload.extend(0u32.to_le_bytes());
            }
        }
        self.record(TAG_MODULES, &[&payload])
    }

    /// One snapshot.
    pub fn snapshot(&mut self, snapshot: &Snapshot<'_>) -> io::Result<()> {
        let mut head = Vec::with_capacity(SNAPSHOT_HEAD_LEN_BYTES);
        head.extend(snapshot.id.to_le_bytes());
        for register in snapshot.registers {
            head.extend(register.to_le_bytes());
        }
        head.extend(snapshot.stack_start.to_le_bytes());
        head.extend((snapshot.stack.len() as u32).to_le_bytes());
        head.extend(u32::from(snapshot.reaches_end).to_le_bytes());
        self.record(TAG_SNAPSHOT, &[&head, snapshot.stack])
    }

    /// Ends the stream.
    pub fn finish(mut self) -> io::Result<()> {
        self.record(TAG_END, &[])?;
        self.output.flush()
    }

    fn record(&mut self, tag: u32, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.output.write_all(&tag.to_le_bytes())?;
        self.output.write_all(&(len as u32).to_le_bytes())?;
        parts.iter().try_for_each(|part| self.output.write_all(part))
    }
}

/// What a stream says, but for the stacks.
#[derive(Debug)]
pub enum Event {
    /// Other modules hold from here on.
    Modules(Modules),
    /// A snapshot.
    Snapshot {
        /// Its number.
        id: u64,
        /// The next instruction.
        pc: RunAddr,
    },
}

/// Reads a stream and gives each record to `event`. A malformed one is `InvalidData`.
pub fn read(mut input: impl Read, mut event: impl FnMut(Event)) -> io::Result<()> {
    let mut magic = [0; 8];
    input.read_exact(&mut magic)?;
    if &magic != MAGIC {
        return Err(malformed("it does not begin with \"CPSNAP01\""));
    }
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 8];
        match input.read(&mut head)? {
            0 => return Ok(()),
            got => input.read_exact(&mut head[got..])?,
        }
        let (tag, len) = (word32(&head, 0), u64::from(word32(&head, 4)));
        payload.clear();
        let kept = if tag == TAG_MODULES { len } else { len.min(SNAPSHOT_HEAD_LEN_BYTES as u64) };
        (&mut input).take(kept).read_to_end(&mut payload)?;
        let skipped = io::copy(&mut (&mut input).take(len - kept), &mut io::sink())?;
        if payload.len() as u64 + skipped != len {
            return Err(malformed("it ends inside a record"));
        }
        match tag {
            TAG_MODULES => event(Event::Modules(modules(&payload).ok_or_else(|| malformed("a list of modules"))?)),
            TAG_SNAPSHOT if payload.len() == SNAPSHOT_HEAD_LEN_BYTES => {
                event(Event::Snapshot { id: word64(&payload, 0), pc: RunAddr(word64(&payload, 8 + 16 * 8)) });
            }
            TAG_END => return Ok(()),
            _ => {}
        }
    }
}

/// Copies a stream; `name` gives the path that a module's is replaced by. What is malformed is `InvalidData`.
pub fn rename(mut input: impl Read, output: impl Write, mut name: impl FnMut(PathBuf) -> PathBuf) -> io::Result<()> {
    let mut magic = [0; 8];
    input.read_exact(&mut magic)?;
    if &magic != MAGIC {
        return Err(malformed("it does not begin with \"CPSNAP01\""));
    }
    let mut output = Writer::new(output)?;
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 8];
        match input.read(&mut head)? {
            0 => return output.output.flush(),
            got => input.read_exact(&mut head[got..])?,
        }
        let (tag, len) = (word32(&head, 0), u64::from(word32(&head, 4)));
        payload.clear();
        if (&mut input).take(len).read_to_end(&mut payload)? as u64 != len {
            return Err(malformed("it ends inside a record"));
        }
        if tag == TAG_MODULES {
            let mut modules = modules(&payload).ok_or_else(|| malformed("a list of modules"))?;
            for module in &mut modules.modules {
                module.path = name(std::mem::take(&mut module.path));
            }
            output.modules(&modules)?;
        } else {
            output.record(tag, &[&payload])?;
        }
    }
}

fn modules(payload: &[u8]) -> Option<Modules> {
    let mut at = 0;
    let mut take = |len: usize| {
        let bytes = payload.get(at..)?.get(..len)?;
        at += len;
        Some(bytes)
    };
    let count = word32(take(8)?, 0);
    let mut modules = Vec::new();
    for _ in 0..count {
        let head = take(32)?;
        let (mapping_count, path_len) = (word32(head, 24), word32(head, 28) as usize);
        let path = take(path_len.checked_next_multiple_of(8)?)?.get(..path_len)?;
        let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
        let mut module = Module { bias: word64(head, 16), path, mappings: Vec::new() };
        for _ in 0..mapping_count {
            let mapping = take(32)?;
            let protection = word32(mapping, 24);
            module.mappings.push(Mapping {
                start: word64(mapping, 0),
                end: word64(mapping, 8),
                file_offset: word64(mapping, 16),
                readable: protection & 1 != 0,
                executable: protection & 4 != 0,
            });
        }
        modules.push(module);
    }
    Some(Modules { modules })
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Of a slice that is long enough; 0 else.
fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}
