//! An ELF image in memory: identity, segments, sections, and where its call frame information lies.
//! What stands in the sections is read elsewhere: symbols, names, lines and CFI have files of their own.
//!
//! The file is read, not mapped: a file that is cut while we look at it must not cost a SIGBUS. Section headers are a
//! luxury: everything that the loader needs is found without them, through the program headers.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::abi;
use callpath_format::address::LinkAddr;
use xxhash_rust::xxh3::Xxh3;

use crate::bytes::Bytes;
pub use crate::eh_frame::{EhFrame, EhFrameHdr};
use crate::error::ImageError;
use crate::go_place::GoPlace;
pub use crate::headers::Segment;
use crate::headers::{self, Header, Part, SectionHeader, program_headers, section_headers};
use crate::identity::ModuleIdentity;
use crate::memory;
use crate::parse_counts::{ImagePart, ParseCounts};

/// The longest file that is read, in bytes. Debug files of browsers have 4 GiB.
const IMAGE_LEN_LIMIT: u64 = 8 << 30;

/// A section's bytes in the file.
enum Stored<'a> {
    Plain(&'a [u8]),
    Compressed(object::CompressedData<'a>),
}

/// The most that a compressed section may grow, as a factor: the limit of deflate itself.
const INFLATION_LIMIT: u64 = 1032;

/// What sort of ELF file this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageKind {
    /// `ET_EXEC`: loaded where the linker said, bias 0.
    Executable,
    /// `ET_DYN`: a shared object or a position-independent executable.
    Dyn,
    /// `ET_REL`: debug information alone (`.dwo`, `.dwp`, dwz's). Never loaded, and never what [`Image::read`] gives.
    Object,
}

/// A section with its bytes.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it begins in memory; 0 if it is not loaded.
    pub addr: LinkAddr,
    /// Its bytes, decompressed.
    pub data: Cow<'a, [u8]>,
    /// It holds instructions.
    pub executable: bool,
}

/// An ELF file for x86-64, with its bytes.
pub struct Image {
    origin: PathBuf,
    bytes: Vec<u8>,
    kind: ImageKind,
    entry: LinkAddr,
    segments: Vec<Segment>,
    parts: Vec<Part>,
    sections: Vec<SectionHeader>,
    build_id: Option<Vec<u8>>,
    diagnostics: Vec<ImageError>,
    parses: ParseCounts,
    /// Once Go's own table has been looked for.
    pub(crate) go_place: OnceLock<Option<GoPlace>>,
}

impl Image {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Image, ImageError> {
        Image::from_bytes(read_file(path)?, path)
    }

    /// Reads the file at `path` as if it lay elsewhere: errors call it `origin`, and its debug files are looked for from there.
    pub fn read_as(path: &Path, origin: &Path) -> Result<Image, ImageError> {
        Image::from_bytes(read_file(path)?, origin)
    }

    /// Reads the file at `path` without the bytes of some long sections, which are zeros here and take no memory: those
    /// for which `leave_out` says so, by name and whether they hold instructions. Also the XXH3-128 of what was read.
    pub fn read_partly(path: &Path, leave_out: impl Fn(&str, bool) -> bool) -> Result<(Image, u128), ImageError> {
        let (bytes, hash) = read_parts(path, |head| left_out(head, path, &leave_out))?;
        Ok((Image::from_bytes(bytes, path)?, hash))
    }

    /// Takes the bytes of an ELF file for little-endian x86-64; `origin` is what errors call it.
    pub fn from_bytes(bytes: Vec<u8>, origin: &Path) -> Result<Image, ImageError> {
        Image::parse(bytes, origin, false)
    }

    /// Reads a file of debug information alone (`.dwo`, `.dwp`, dwz's): nothing
    /// loads it, and it may be of type `ET_REL`.
    pub(crate) fn read_unloaded(path: &Path) -> Result<Image, ImageError> {
        Image::parse(read_file(path)?, path, true)
    }

    fn parse(bytes: Vec<u8>, origin: &Path, allow_objects: bool) -> Result<Image, ImageError> {
        let path = || origin.to_path_buf();
        let header = Header::parse(&bytes, origin)?;
        let kind = match header.elf_type {
            abi::ET_REL if allow_objects => ImageKind::Object,
            abi::ET_EXEC => ImageKind::Executable,
            abi::ET_DYN => ImageKind::Dyn,
            elf_type => return Err(ImageError::NotLoadable { path: path(), elf_type }),
        };
        let mut diagnostics = Vec::new();
        let (segments, parts) = program_headers(&bytes, &header, origin)?;
        let sections = match section_headers(&bytes, &header, origin) {
            Ok(sections) => sections,
            Err(error) => {
                diagnostics.push(error);
                Vec::new()
            }
        };
        for segment in &segments {
            let end = segment.file_offset.checked_add(segment.file_len);
            if end.is_none_or(|end| end > bytes.len() as u64) {
                diagnostics.push(ImageError::Cut {
                    path: path(),
                    what: "a segment",
                    offset: segment.file_offset,
                    len: segment.file_len,
                    file_len: bytes.len() as u64,
                });
            }
        }
        let outside = sections
            .iter()
            .find(|section: &&SectionHeader| section.has_bytes() && bytes.slice(section.offset, section.len).is_none());
        if let Some(section) = outside {
            diagnostics.push(ImageError::Cut {
                path: path(),
                what: "a section",
                offset: section.offset,
                len: section.len,
                file_len: bytes.len() as u64,
            });
        }
        let mut image = Image {
            origin: path(),
            bytes,
            kind,
            entry: LinkAddr(header.entry),
            segments,
            parts,
            sections,
            build_id: None,
            diagnostics,
            parses: ParseCounts::default(),
            go_place: OnceLock::new(),
        };
        image.build_id = image.find_build_id();
        Ok(image)
    }

    /// What the image was read from.
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// What was found odd; the rest of the image is good.
    pub fn diagnostics(&self) -> &[ImageError] {
        &self.diagnostics
    }

    /// The linker's identity of this build, usually 20 bytes.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// XXH3-128 of the whole file. Computed anew each time, at some 10 GB/s.
    pub fn content_identity(&self) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&self.bytes)
    }

    /// The build-id if there is one, else the hash of the content.
    pub fn identity(&self) -> ModuleIdentity {
        match self.build_id() {
            Some(build_id) => ModuleIdentity::BuildId(build_id.to_vec()),
            None => ModuleIdentity::Content(self.content_identity()),
        }
    }

    /// That this image belongs to the build that `expected` names.
    pub fn expect_identity(&self, expected: &ModuleIdentity) -> Result<(), ImageError> {
        let found = match expected {
            ModuleIdentity::BuildId(_) => self.identity(),
            ModuleIdentity::Content(_) => ModuleIdentity::Content(self.content_identity()),
        };
        if found == *expected {
            return Ok(());
        }
        let (path, expected) = (self.origin().to_path_buf(), expected.clone());
        Err(ImageError::Replaced { path, expected, found })
    }

    /// How often a part of it was parsed in this process.
    pub fn parses(&self, part: ImagePart) -> u32 {
        self.parses.of(part)
    }

    pub(crate) fn count_parse(&self, part: ImagePart) {
        self.parses.count(part);
    }

    /// The file's length in bytes.
    pub fn file_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Executable or shared object.
    pub fn kind(&self) -> ImageKind {
        self.kind
    }

    /// Where the program starts; 0 in most shared objects.
    pub fn entry(&self) -> LinkAddr {
        self.entry
    }

    /// The dynamic loader that an executable asks for (`PT_INTERP`).
    pub fn interpreter(&self) -> Option<&Path> {
        let data = self.part_data(self.part(abi::PT_INTERP)?)?;
        let name = data.split(|&byte| byte == 0).next()?;
        (!name.is_empty()).then(|| Path::new(OsStr::from_bytes(name)))
    }

    /// A position-independent executable that needs no dynamic loader.
    pub fn is_static_pie(&self) -> bool {
        self.kind == ImageKind::Dyn && self.interpreter().is_none() && self.flags_1() & abi::DF_1_PIE != 0
    }

    /// `PT_LOAD` segments in the order of the file.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The first section of that name, unless it has no bytes in this file (`SHT_NOBITS`), lies outside it, or cannot
    /// be decompressed.
    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        let header = self.sections.iter().find(|header| header.name == name && header.has_bytes())?;
        let data = self.section_data(header)?;
        let executable = header.is_executable();
        Some(Section { name: &header.name, addr: LinkAddr(header.addr), data, executable })
    }

    /// The file parts of the executable segments: sorted, disjoint, touching ones merged.
    pub fn executable_ranges(&self) -> Vec<Range<LinkAddr>> {
        let executable = self.segments.iter().filter(|segment| segment.executable);
        let mut ranges: Vec<Range<LinkAddr>> = executable
            .filter_map(|segment| {
                let len = self.segment_data(segment)?.len() as u64;
                let end = segment.vaddr.0.checked_add(len)?;
                (len > 0).then_some(segment.vaddr..LinkAddr(end))
            })
            .collect();
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<LinkAddr>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// What section headers say holds instructions, of [`Image::executable_ranges`]: linkers put read-only data into
    /// the same segment, or not. All of those ranges where section headers say nothing. Sorted, disjoint.
    pub fn instruction_ranges(&self) -> Vec<Range<LinkAddr>> {
        let segments = self.executable_ranges();
        let loaded = |header: &&SectionHeader| {
            header.is_executable() && header.has_bytes() && header.flags & abi::SHF_ALLOC != 0 && header.len > 0
        };
        let mut sections: Vec<Range<LinkAddr>> = self
            .sections
            .iter()
            .filter(loaded)
            .flat_map(|header| {
                let end = header.addr.saturating_add(header.len);
                segments.iter().filter_map(move |segment| {
                    let range = segment.start.0.max(header.addr)..segment.end.0.min(end);
                    (range.start < range.end).then_some(LinkAddr(range.start)..LinkAddr(range.end))
                })
            })
            .collect();
        sections.sort_by_key(|range| (range.start, range.end));
        let mut disjoint: Vec<Range<LinkAddr>> = Vec::with_capacity(sections.len());
        for range in sections {
            match disjoint.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => disjoint.push(range),
            }
        }
        if disjoint.is_empty() { segments } else { disjoint }
    }

    /// `len` bytes of a segment's file part, from `addr` on; `None` unless all of them are there.
    pub fn bytes_at(&self, addr: LinkAddr, len: usize) -> Option<&[u8]> {
        self.bytes_from(addr)?.get(..len)
    }

    /// All that the file has of a segment from `addr` on.
    pub fn bytes_from(&self, addr: LinkAddr) -> Option<&[u8]> {
        self.segments.iter().find_map(|segment| {
            let offset = addr.0.checked_sub(segment.vaddr.0)?;
            let rest = self.segment_data(segment)?.get(usize::try_from(offset).ok()?..)?;
            (!rest.is_empty()).then_some(rest)
        })
    }

    /// A loaded, uncompressed section's address and bytes.
    pub(crate) fn plain_section(&self, name: &str) -> Option<(LinkAddr, &[u8])> {
        let loaded = |header: &&SectionHeader| {
            header.name == name
                && header.has_bytes()
                && header.flags & abi::SHF_ALLOC != 0
                && header.flags & abi::SHF_COMPRESSED == 0
        };
        let header = self.sections.iter().find(loaded)?;
        Some((LinkAddr(header.addr), self.bytes.slice(header.offset, header.len)?))
    }

    /// The whole file, as it is on disk.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn section_headers(&self) -> &[SectionHeader] {
        &self.sections
    }

    /// A section's bytes, decompressed. Bounded by what the file's length can account for.
    pub(crate) fn section_data(&self, header: &SectionHeader) -> Option<Cow<'_, [u8]>> {
        if !header.has_bytes() {
            return None;
        }
        match self.stored(header)? {
            Stored::Plain(data) => Some(Cow::Borrowed(data)),
            Stored::Compressed(compressed) => compressed.decompress().ok(),
        }
    }

    /// How long a section's bytes are, decompressed, by what its header says; 0 where there are none.
    pub fn section_len(&self, name: &str) -> u64 {
        let header = self.sections.iter().find(|header| header.name == name && header.has_bytes());
        match header.and_then(|header| self.stored(header)) {
            Some(Stored::Plain(data)) => data.len() as u64,
            Some(Stored::Compressed(compressed)) => compressed.uncompressed_size,
            None => 0,
        }
    }

    /// A section's bytes as the file has them.
    fn stored(&self, header: &SectionHeader) -> Option<Stored<'_>> {
        let data = self.bytes.slice(header.offset, header.len)?;
        let (format, uncompressed_size, data) = if header.flags & abi::SHF_COMPRESSED != 0 {
            let format = match data.u32_at(0)? {
                abi::ELFCOMPRESS_ZLIB => object::CompressionFormat::Zlib,
                abi::ELFCOMPRESS_ZSTD => object::CompressionFormat::Zstandard,
                _ => return None,
            };
            (format, data.u64_at(8)?, data.get(24..)?)
        } else if header.name.starts_with(".zdebug_") && data.starts_with(b"ZLIB") {
            (object::CompressionFormat::Zlib, data.u64_at(4)?.swap_bytes(), data.get(12..)?)
        } else {
            return Some(Stored::Plain(data));
        };
        if uncompressed_size > (data.len() as u64).saturating_mul(INFLATION_LIMIT) {
            return None;
        }
        Some(Stored::Compressed(object::CompressedData { format, data, uncompressed_size }))
    }

    /// The bytes that a `PT_DYNAMIC`'s entry `tag` names, and all other entries: `(tag, value)` in order.
    pub(crate) fn dynamic(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let data = self.part(abi::PT_DYNAMIC).and_then(|part| self.part_data(part)).unwrap_or(&[]);
        let entries = data.chunks_exact(16).map_while(|entry| Some((entry.u64_at(0)?, entry.u64_at(8)?)));
        entries.take_while(|&(tag, _)| tag != abi::DT_NULL)
    }

    fn flags_1(&self) -> u64 {
        self.dynamic().find(|&(tag, _)| tag == abi::DT_FLAGS_1).map_or(0, |(_, value)| value)
    }

    pub(crate) fn part(&self, kind: u32) -> Option<&Part> {
        self.parts.iter().find(|part| part.kind == kind)
    }

    /// What the program cannot write once it is loaded.
    pub fn constant_ranges(&self) -> Vec<Range<LinkAddr>> {
        let range = |at: LinkAddr, len_bytes: u64| at..LinkAddr(at.0.saturating_add(len_bytes));
        let segments = self.segments.iter().filter(|segment| !segment.writable);
        let segments = segments.map(|segment| range(segment.vaddr, segment.mem_len));
        segments.chain(self.relocated_range()).collect()
    }

    /// What the loader writes, and nobody after it.
    pub fn relocated_range(&self) -> Option<Range<LinkAddr>> {
        let part = self.part(abi::PT_GNU_RELRO)?;
        Some(LinkAddr(part.vaddr)..LinkAddr(part.vaddr.saturating_add(part.mem_len)))
    }

    fn part_data(&self, part: &Part) -> Option<&[u8]> {
        self.bytes.slice(part.offset, part.file_len)
    }

    /// What the file really has of a segment: less than `file_len` if it was cut.
    fn segment_data(&self, segment: &Segment) -> Option<&[u8]> {
        let rest = self.bytes.get(usize::try_from(segment.file_offset).ok()?..)?;
        let len = segment.file_len.min(rest.len() as u64) as usize;
        rest.get(..len)
    }

    fn find_build_id(&self) -> Option<Vec<u8>> {
        let notes = self.parts.iter().filter(|part| part.kind == abi::PT_NOTE).filter_map(|part| self.part_data(part));
        let sections = self.sections.iter().filter(|header| header.kind == abi::SHT_NOTE);
        let sections = sections.filter_map(|header| self.bytes.slice(header.offset, header.len));
        // In a file of debug information only, the segment's offset leads to other bytes: the section goes first.
        sections.chain(notes).find_map(build_id_in_notes).map(<[u8]>::to_vec)
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("origin", &self.origin).field("file_len", &self.bytes.len()).finish()
    }
}

/// A whole regular file, if it is an ELF file. Others are not read: shared memory
/// of a program may be hundreds of megabytes.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, ImageError> {
    let failed = |source| ImageError::Read { path: path.to_path_buf(), source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ImageError::NotRegular { path: path.to_path_buf() });
    }
    if metadata.len() > IMAGE_LEN_LIMIT {
        return Err(ImageError::TooLong { path: path.to_path_buf(), len: metadata.len(), limit: IMAGE_LEN_LIMIT });
    }
    let mut bytes = Vec::new();
    // What the kernel offers as a file (`/proc`, tracefs) has no length; opening it may do something, and reading it may wait.
    if metadata.len() < abi::MAGIC.len() as u64 {
        return Err(ImageError::NotElf { path: path.to_path_buf() });
    }
    let mut file = File::open(path).map_err(failed)?.take(IMAGE_LEN_LIMIT);
    (&mut file).take(abi::MAGIC.len() as u64).read_to_end(&mut bytes).map_err(failed)?;
    if bytes != abi::MAGIC {
        return Err(ImageError::NotElf { path: path.to_path_buf() });
    }
    if !memory::reserve(&mut bytes, metadata.len() as usize + 1) {
        return Err(failed(ErrorKind::OutOfMemory.into()));
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The bytes of sections that are long enough to be worth it, by their place in the file. None if the headers are not
/// to be found in `head`, which must be as long as the file.
fn left_out(head: &[u8], path: &Path, leave_out: impl Fn(&str, bool) -> bool) -> Vec<Range<usize>> {
    const SHORT_BYTES: u64 = 64 << 10;
    let sections = Header::parse(head, path).and_then(|header| section_headers(head, &header, path));
    let mut ranges: Vec<Range<usize>> = sections
        .unwrap_or_default()
        .iter()
        .filter(|section| section.has_bytes() && section.len >= SHORT_BYTES)
        .filter(|section| leave_out(&section.name, section.is_executable()))
        .filter_map(|section| Some(section.offset as usize..section.offset.checked_add(section.len)? as usize))
        .filter(|range| range.end <= head.len())
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

/// A file's bytes but for ranges (sorted) that `left_out` finds by its headers, and the hash of what was read.
fn read_parts(path: &Path, left_out: impl Fn(&[u8]) -> Vec<Range<usize>>) -> Result<(Vec<u8>, u128), ImageError> {
    let failed = |source| ImageError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(ImageError::NotRegular { path: path.to_path_buf() });
    }
    if metadata.len() > IMAGE_LEN_LIMIT {
        return Err(ImageError::TooLong { path: path.to_path_buf(), len: metadata.len(), limit: IMAGE_LEN_LIMIT });
    }
    // Zeros that were never written to take no memory.
    if !memory::has_room(metadata.len() as usize) {
        return Err(failed(ErrorKind::OutOfMemory.into()));
    }
    let mut bytes = vec![0; metadata.len() as usize];
    let fill = |bytes: &mut [u8], range: Range<usize>| match bytes.get_mut(range.clone()) {
        Some(part) => file.read_exact_at(part, range.start as u64).map_err(failed),
        None => Ok(()),
    };
    let head_len = bytes.len().min(size_of::<[u64; 8]>());
    fill(&mut bytes, 0..head_len)?;
    if !bytes.starts_with(abi::MAGIC) {
        return Err(ImageError::NotElf { path: path.to_path_buf() });
    }
    if let Some(range) = headers::section_headers_range(&bytes) {
        fill(&mut bytes, range)?;
    }
    if let Some(range) = headers::section_names_range(&bytes) {
        fill(&mut bytes, range)?;
    }
    let mut hash = Xxh3::new();
    let mut at = 0;
    let len = bytes.len();
    for range in left_out(&bytes).into_iter().chain(std::iter::once(len..len)) {
        if at < range.start {
            fill(&mut bytes, at..range.start)?;
            hash.update(&bytes[at..range.start]);
        }
        at = at.max(range.end);
    }
    Ok((bytes, hash.digest128()))
}

fn build_id_in_notes(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let name_len = notes.u32_at(0)? as usize;
        let desc_len = notes.u32_at(4)? as usize;
        let kind = notes.u32_at(8)?;
        let desc_start = 12usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let desc_end = desc_start.checked_add(desc_len)?;
        let name = notes.get(12..12usize.checked_add(name_len)?)?;
        let desc = notes.get(desc_start..desc_end)?;
        if kind == abi::NT_GNU_BUILD_ID && name == b"GNU\0" {
            return (!desc.is_empty()).then_some(desc);
        }
        notes = notes.get(desc_end.checked_next_multiple_of(4)?..)?;
    }
}
