//! A map as a file.
//!
//! ```text
//! 0   magic     "CPMAP" and three digits: the format's version
//! 8   length    u64: of the whole file, bytes
//! 16  checksum  u64: XXH3-64 of all that follows
//! 24  modules, procedures, roots, nodes, heights, variable procedures, uncounted ones, direct calls, whole modules, calls through
//!     pointers, pointed procedures, calls of variable height: each its count, then each of them; what was unidentified
//! ```
//! Numbers as LEB128, heights with their sign in the lowest bit. docs/formats.md has the fields.

use std::path::{Path, PathBuf};

use callpath_schema::encoding::{Malformed, Reader, Writer};
use xxhash_rust::xxh3::xxh3_64;

use crate::map::{
    Called, Code, ContextNode, DirectCall, Identifier, MapModule, MapProcedure, PathMap, Pointed, PointerCall, Root,
    VariableCall, Weight,
};
use crate::search::{Search, Searched};

const HEADER_BYTES: usize = 24;
/// The name of the file in a measurement that keeps the map of its call paths.
pub const MAP_FILE: &str = "map";

/// Where a file has the checksum of what follows.
const CHECKSUM_AT: usize = 16;

const ENVELOPE: Envelope = Envelope {
    magic: *b"CPMAP002",
    version_at: 5,
    what: "map of call paths (callpath map train and map static make one)",
};

/// What files of this crate are in: see above.
pub(crate) struct Envelope {
    pub(crate) magic: [u8; 8],
    /// Where the version's digits begin in it.
    pub(crate) version_at: usize,
    pub(crate) what: &'static str,
}

impl Envelope {
    pub(crate) fn begin(&self) -> Writer {
        Writer { bytes: vec![0; HEADER_BYTES] }
    }

    pub(crate) fn finish(&self, writer: Writer) -> Vec<u8> {
        let mut bytes = writer.bytes;
        let len = bytes.len() as u64;
        let checksum = xxh3_64(&bytes[HEADER_BYTES..]);
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..16].copy_from_slice(&len.to_le_bytes());
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// What `read` makes of the payload of a file.
    pub(crate) fn decode<T>(
        &self,
        (bytes, path): (&[u8], &Path),
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<T, MapError> {
        let owned = || path.to_owned();
        let is_it = |magic: &&[u8; 8]| magic[..self.version_at] == self.magic[..self.version_at];
        let Some(magic) = bytes.first_chunk::<8>().filter(is_it) else {
            return Err(MapError::Magic { path: owned(), what: self.what });
        };
        let version = |magic: &[u8; 8]| String::from_utf8_lossy(&magic[self.version_at..]).into_owned();
        if *magic != self.magic {
            return Err(MapError::Version { path: owned(), found: version(magic), read: version(&self.magic) });
        }
        let word = |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        let (expected, found) = (word(8), bytes.len() as u64);
        let (Some(payload), Some(checksum)) = (bytes.get(HEADER_BYTES..), word(16).filter(|_| expected == Some(found)))
        else {
            let expected = expected.unwrap_or(HEADER_BYTES as u64);
            return Err(MapError::Length { path: owned(), expected, found });
        };
        if checksum != xxh3_64(payload) {
            return Err(MapError::Checksum { path: owned() });
        }
        let mut reader = Reader::new(bytes, HEADER_BYTES);
        let all = read(&mut reader).and_then(|all| reader.finish().map(|()| all));
        all.map_err(|Malformed { offset, what }| MapError::Content { path: owned(), offset, what })
    }
}

/// Writes a file, in place of one that is there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), MapError> {
    let failed = |source| MapError::Write { path: path.to_owned(), source };
    // A device or a pipe is written into.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return std::fs::write(path, bytes).map_err(failed);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path)).map_err(|source| {
        // What is there of it is of no use, as where the disk is full.
        drop(std::fs::remove_file(&beside));
        failed(source)
    })
}

/// A file that is no map that can be used.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// It cannot be read or written.
    #[error("read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It cannot be written.
    #[error("write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It begins otherwise.
    #[error("read {}: it is not a {what}", path.display())]
    Magic {
        /// The file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
    },
    /// Another version of callpath wrote it.
    #[error("read {}: it has version {found} of the format, and this callpath reads {read}: make it anew", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version.
        found: String,
        /// The one that is read.
        read: String,
    },
    /// It has been cut or has grown.
    #[error("read {}: it has {found} bytes and should have {expected}: it was cut, or something was added", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// As it says itself.
        expected: u64,
        /// As it is.
        found: u64,
    },
    /// It has been changed.
    #[error("read {}: its checksum does not fit: it was changed since it was written", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
    },
    /// It makes no sense.
    #[error("read {}: no {what} at byte {offset}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: usize,
        /// What should be there.
        what: &'static str,
    },
}

impl PathMap {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = ENVELOPE.begin();
        write_modules(&self.modules, &mut writer);
        writer.number(self.procedures.len() as u64);
        for procedure in &self.procedures {
            writer.number(procedure.module.into());
            writer.number(procedure.start);
            writer.string(&procedure.name);
        }
        writer.number(self.roots.len() as u64);
        for root in &self.roots {
            writer.optional(match root {
                Root::Main => None,
                Root::Thread(start) => Some(u64::from(*start)),
            });
        }
        writer.number(self.nodes.len() as u64);
        for (index, node) in self.nodes.iter().enumerate() {
            // Most callers were entered shortly before.
            let distance = node.parent.map_or(0, |parent| index as u64 - u64::from(parent));
            [distance, node.procedure.into(), node.root.into()].into_iter().for_each(|number| writer.number(number));
        }
        writer.number(self.heights.len() as u64);
        let mut before = 0;
        for (node, height, weight) in &self.heights {
            writer.number(u64::from(node - before));
            writer.number(signed(*height));
            write_weight(*weight, &mut writer);
            before = *node;
        }
        writer.number(self.variable.len() as u64);
        self.variable.iter().for_each(|procedure| writer.number(u64::from(*procedure)));
        write_ascending(&self.uncounted, &mut writer);
        writer.number(self.calls.len() as u64);
        let mut before = 0;
        for call in &self.calls {
            writer.number(u64::from(call.callee - before));
            writer.number(call.caller.into());
            writer.number(signed(call.height));
            before = call.callee;
        }
        let Code { modules, pointer_calls, pointed, variable } = &self.code;
        write_ascending(modules, &mut writer);
        writer.number(pointer_calls.len() as u64);
        for call in pointer_calls {
            writer.number(call.caller.into());
            writer.number(signed(call.height));
            writer.number(call.passes.into());
        }
        writer.number(pointed.len() as u64);
        for to in pointed {
            writer.number(to.procedure.into());
            writer.number(u64::from(to.takes) | u64::from(to.is_at_start) << Code::REGISTERS);
        }
        writer.number(variable.len() as u64);
        for call in variable {
            writer.optional(call.caller.map(u64::from));
            let (is_pointer, to) = match call.to {
                Called::Procedure(callee) => (0, callee.into()),
                Called::Pointer(passes) => (1, u64::from(passes)),
            };
            writer.number(is_pointer);
            writer.number(to);
        }
        write_weight(self.unidentified, &mut writer);
        ENVELOPE.finish(writer)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no map.
    pub fn read(path: &Path) -> Result<PathMap, MapError> {
        let bytes = std::fs::read(path).map_err(|source| MapError::File { path: path.to_owned(), source })?;
        PathMap::decode(&bytes, path)
    }

    /// What its file says of its bytes: two maps with one checksum tell the same.
    pub fn checksum(&self) -> u64 {
        let bytes = self.encode();
        bytes.get(CHECKSUM_AT..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Writes the file, in place of one that is there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), MapError> {
        replace(path, &self.encode())
    }

    /// The map of a file's bytes.
    ///
    /// # Errors
    /// If they are no map.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<PathMap, MapError> {
        ENVELOPE.decode((bytes, path), map_of)
    }
}

fn map_of(reader: &mut Reader<'_>) -> Result<PathMap, Malformed> {
    let mut map = PathMap::default();
    map.modules = read_modules(reader)?;
    for _ in 0..reader.count(3)? {
        let module = index(reader, map.modules.len(), "module of a procedure")?;
        let start = reader.number()?;
        map.procedures.push(MapProcedure { module, start, name: reader.string()? });
    }
    let of_procedure = map.procedures.len();
    for _ in 0..reader.count(1)? {
        map.roots.push(match reader.optional()? {
            None => Root::Main,
            Some(start) => {
                let start = u32::try_from(start).ok().filter(|start| (*start as usize) < of_procedure);
                Root::Thread(start.ok_or_else(|| reader.malformed("procedure of a thread"))?)
            }
        });
    }
    for at in 0..reader.count(3)? {
        let parent = match reader.number()? {
            0 => None,
            distance => {
                let parent = usize::try_from(distance).ok().and_then(|distance| at.checked_sub(distance));
                Some(parent.ok_or_else(|| reader.malformed("caller of a context"))? as u32)
            }
        };
        let procedure = index(reader, of_procedure, "procedure of a context")?;
        let root = index(reader, map.roots.len(), "stack of a context")?;
        let is_of_parent = |parent: u32| map.nodes.get(parent as usize).is_some_and(|parent| parent.root == root);
        if !parent.is_none_or(is_of_parent) {
            return Err(reader.malformed("stack of a context's caller"));
        }
        map.nodes.push(ContextNode { parent, procedure, root });
    }
    let mut before: Option<(u32, i64)> = None;
    for _ in 0..reader.count(4)? {
        let distance = reader.small("context of a height")?;
        let node = before.map_or(0, |(node, _)| node).checked_add(distance);
        let node = node.filter(|node| (*node as usize) < map.nodes.len());
        let node = node.ok_or_else(|| reader.malformed("context of a height"))?;
        let height = unsigned(reader.number()?);
        if height.unsigned_abs() >= PathMap::MOST_HIGH {
            return Err(reader.malformed("height: below 2^39 bytes"));
        }
        if before.is_some_and(|before| before >= (node, height)) {
            return Err(reader.malformed("height above the one before"));
        }
        before = Some((node, height));
        map.heights.push((node, height, read_weight(reader)?));
    }
    for _ in 0..reader.count(1)? {
        let procedure = index(reader, of_procedure, "procedure of variable height")?;
        map.variable.push(procedure);
    }
    map.uncounted = ascending(reader, of_procedure, "procedure that was not counted")?;
    for _ in 0..reader.count(3)? {
        let distance = reader.small("procedure that is called")?;
        let before = map.calls.last().copied();
        let callee = before.map_or(0, |call: DirectCall| call.callee).checked_add(distance);
        let callee = callee.filter(|callee| (*callee as usize) < of_procedure);
        let callee = callee.ok_or_else(|| reader.malformed("procedure that is called"))?;
        let caller = index(reader, of_procedure, "procedure that calls")?;
        let call = DirectCall { callee, caller, height: unsigned(reader.number()?) };
        if before.is_some_and(|before| before >= call) {
            return Err(reader.malformed("call behind the one before"));
        }
        map.calls.push(call);
    }
    map.code.modules = ascending(reader, map.modules.len(), "module whose code is known")?;
    for _ in 0..reader.count(3)? {
        let caller = index(reader, of_procedure, "procedure that calls through a pointer")?;
        let call = PointerCall { caller, height: unsigned(reader.number()?), passes: arguments(reader)? };
        if map.code.pointer_calls.last().is_some_and(|before| *before >= call) {
            return Err(reader.malformed("call behind the one before"));
        }
        map.code.pointer_calls.push(call);
    }
    for _ in 0..reader.count(2)? {
        let procedure = index(reader, of_procedure, "procedure that pointers lead to")?;
        let bits = index(reader, 2 << Code::REGISTERS, "set of arguments")?;
        let takes = (bits & ((1 << Code::REGISTERS) - 1)) as u8;
        let to = Pointed { procedure, takes, is_at_start: bits >> Code::REGISTERS != 0 };
        if map.code.pointed.last().is_some_and(|before| *before >= to) {
            return Err(reader.malformed("procedure behind the one before"));
        }
        map.code.pointed.push(to);
    }
    for _ in 0..reader.count(3)? {
        const CALLER: &str = "procedure that calls at no known height";
        let caller =
            reader.optional()?.map(|caller| u32::try_from(caller).ok().filter(|at| (*at as usize) < of_procedure));
        let caller = caller.map(|caller| caller.ok_or_else(|| reader.malformed(CALLER))).transpose()?;
        let to = match reader.number()? {
            0 => Called::Procedure(index(reader, of_procedure, "procedure that is called at no known height")?),
            1 => Called::Pointer(arguments(reader)?),
            _ => return Err(reader.malformed("kind of a call")),
        };
        let call = VariableCall { caller, to };
        if map.code.variable.last().is_some_and(|before| *before >= call) {
            return Err(reader.malformed("call behind the one before"));
        }
        map.code.variable.push(call);
    }
    map.unidentified = read_weight(reader)?;
    map.finish();
    Ok(map)
}

pub(crate) fn write_modules(modules: &[MapModule], writer: &mut Writer) {
    writer.number(modules.len() as u64);
    for module in modules {
        writer.path(&module.path);
        writer.bytes(&module.identity);
    }
}

pub(crate) fn read_modules(reader: &mut Reader<'_>) -> Result<Vec<MapModule>, Malformed> {
    let count = reader.count(2)?;
    (0..count).map(|_| Ok(MapModule { path: reader.path()?, identity: reader.bytes()?.to_vec() })).collect()
}

fn index(reader: &mut Reader<'_>, count: usize, what: &'static str) -> Result<u32, Malformed> {
    let index = reader.small(what)?;
    if (index as usize) < count { Ok(index) } else { Err(reader.malformed(what)) }
}

fn write_ascending(indices: &[u32], writer: &mut Writer) {
    writer.number(indices.len() as u64);
    indices.iter().for_each(|index| writer.number(u64::from(*index)));
}

fn ascending(reader: &mut Reader<'_>, count: usize, what: &'static str) -> Result<Vec<u32>, Malformed> {
    let mut indices: Vec<u32> = Vec::new();
    for _ in 0..reader.count(1)? {
        let next = index(reader, count, what)?;
        if indices.last().is_some_and(|before| *before >= next) {
            return Err(reader.malformed(what));
        }
        indices.push(next);
    }
    Ok(indices)
}

fn arguments(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    let set = index(reader, 1 << Code::REGISTERS, "set of arguments")?;
    Ok(set as u8)
}

fn write_weight(weight: Weight, writer: &mut Writer) {
    writer.number(weight.calls);
    writer.number(weight.samples);
}

fn read_weight(reader: &mut Reader<'_>) -> Result<Weight, Malformed> {
    Ok(Weight { calls: reader.number()?, samples: reader.number()? })
}

/// A number with its sign in the lowest bit: small ones stay short.
fn signed(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unsigned(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// For a fuzzer: any bytes as a map's payload, and all that a map is asked.
#[doc(hidden)]
pub fn fuzz_path_map(bytes: &[u8]) {
    let mut reader = Reader::new(bytes, 0);
    let Ok(map) = map_of(&mut reader) else { return };
    let again = PathMap::decode(&map.encode(), Path::new("again")).expect("what was written can be read");
    assert_eq!(again.heights, map.heights);
    assert_eq!(again.precision(), map.precision());
    for (_, paths) in map.answers() {
        let common = map.common(paths);
        assert!(paths.iter().all(|path| common.iter().all(|node| map.path(*path).any(|on| on == *node))));
    }
    let mut search = Search::within(&map, (1 << 10, 1 << 12));
    for (root, procedure) in (0..map.roots.len() as u32).flat_map(|root| (0..8).map(move |at| (root, at))) {
        let identifier = Identifier { root, procedure, height: 64 };
        if let Searched::Found(found) = search.find(identifier) {
            assert!(found.count >= found.paths.len() as u64 && !found.paths.is_empty());
        }
    }
}
