//! The ELF header and the two tables that it leads to.

use std::ops::Range;
use std::path::Path;

use callpath_format::address::LinkAddr;

use crate::abi;
use crate::bytes::{Bytes, cstr_at};
use crate::error::ImageError;

const PHDR_LEN: u64 = 56;
const SHDR_LEN: u64 = 64;

/// A `PT_LOAD` segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it begins.
    pub vaddr: LinkAddr,
    /// Bytes in memory.
    pub mem_len: u64,
    /// Where its bytes begin in the file.
    pub file_offset: u64,
    /// Bytes in the file, the rest of `mem_len` is zero. What the header says, even where the file ends earlier.
    pub file_len: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
}

/// A section header, as far as anything here needs it.
#[derive(Clone, Debug)]
pub(crate) struct SectionHeader {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) addr: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) link: u32,
    /// Bytes of an entry in a section that is a table.
    pub(crate) entry_len: u64,
}

impl SectionHeader {
    /// The file holds its bytes.
    pub(crate) fn has_bytes(&self) -> bool {
        self.kind != abi::SHT_NOBITS
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.flags & abi::SHF_EXECINSTR != 0
    }
}

/// A program header that is not a `PT_LOAD`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) kind: u32,
    pub(crate) vaddr: u64,
    pub(crate) offset: u64,
    pub(crate) file_len: u64,
    pub(crate) mem_len: u64,
}

/// The ELF header's fields that lead on.
pub(crate) struct Header {
    pub(crate) elf_type: u16,
    pub(crate) entry: u64,
    pub(crate) phoff: u64,
    pub(crate) phentsize: u16,
    pub(crate) phnum: u16,
    shoff: u64,
    shentsize: u16,
    shnum: u16,
    shstrndx: u16,
}

impl Header {
    pub(crate) fn parse(bytes: &[u8], origin: &Path) -> Result<Header, ImageError> {
        let path = || origin.to_path_buf();
        if !bytes.starts_with(abi::MAGIC) {
            return Err(ImageError::NotElf { path: path() });
        }
        let file_len = bytes.len() as u64;
        let cut = || ImageError::Cut { path: path(), what: "the ELF header", offset: 0, len: 64, file_len };
        let class = *bytes.get(4).ok_or_else(cut)?;
        let big = *bytes.get(5).ok_or_else(cut)? == abi::ELFDATA2MSB;
        if class == abi::ELFCLASS32 {
            return Err(ImageError::Class32 { path: path() });
        }
        let machine = bytes.u16_at(18).ok_or_else(cut)?;
        if big || machine != abi::EM_X86_64 {
            let (machine, endian) = if big { (machine.swap_bytes(), "big") } else { (machine, "little") };
            return Err(ImageError::OtherMachine { path: path(), machine, endian });
        }
        let u16_at = |offset| bytes.u16_at(offset).ok_or_else(cut);
        let u64_at = |offset| bytes.u64_at(offset).ok_or_else(cut);
        Ok(Header {
            elf_type: u16_at(16)?,
            entry: u64_at(24)?,
            phoff: u64_at(32)?,
            shoff: u64_at(40)?,
            phentsize: u16_at(54)?,
            phnum: u16_at(56)?,
            shentsize: u16_at(58)?,
            shnum: u16_at(60)?,
            shstrndx: u16_at(62)?,
        })
    }

    /// The zeroth section header holds what does not fit into the ELF header.
    fn section_zero<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.shoff == 0 { None } else { bytes.slice(self.shoff, SHDR_LEN) }
    }

    fn program_header_count(&self, bytes: &[u8]) -> u64 {
        match self.phnum {
            abi::PN_XNUM => self.section_zero(bytes).and_then(|zero| zero.u32_at(44)).unwrap_or(0).into(),
            count => count.into(),
        }
    }
}

/// `PT_LOAD` segments and the other parts, in the order of the table.
pub(crate) fn program_headers(
    bytes: &[u8],
    header: &Header,
    origin: &Path,
) -> Result<(Vec<Segment>, Vec<Part>), ImageError> {
    let count = header.program_header_count(bytes);
    let table = TableHeader {
        what: "the program headers",
        offset: header.phoff,
        count,
        said_len: header.phentsize,
        entry_len: PHDR_LEN,
    };
    let table = table.bytes(bytes, origin)?;
    let mut segments = Vec::new();
    let mut parts = Vec::new();
    for entry in table.chunks_exact(PHDR_LEN as usize) {
        let fields = (entry.u32_at(0), entry.u32_at(4), entry.u64_at(8), entry.u64_at(16), entry.u64_at(32));
        let (Some(kind), Some(flags), Some(offset), Some(vaddr), Some(file_len)) = fields else { break };
        if kind != abi::PT_LOAD {
            let mem_len = entry.u64_at(40).unwrap_or(file_len);
            parts.push(Part { kind, vaddr, offset, file_len, mem_len });
            continue;
        }
        segments.push(Segment {
            vaddr: LinkAddr(vaddr),
            mem_len: entry.u64_at(40).unwrap_or(file_len),
            file_offset: offset,
            file_len,
            readable: flags & abi::PF_R != 0,
            writable: flags & abi::PF_W != 0,
            executable: flags & abi::PF_X != 0,
        });
    }
    Ok((segments, parts))
}

/// All section headers, the zeroth included, so that an index into the table is one into the list.
pub(crate) fn section_headers(bytes: &[u8], header: &Header, origin: &Path) -> Result<Vec<SectionHeader>, ImageError> {
    let what = "the section headers";
    let malformed = |why: String| ImageError::Malformed { path: origin.to_path_buf(), what, offset: header.shoff, why };
    if header.shoff == 0 {
        return match header.shnum {
            0 => Ok(Vec::new()),
            count => Err(malformed(format!("there are {count} of them, and they are nowhere"))),
        };
    }
    let zero = header.section_zero(bytes);
    let count = match header.shnum {
        0 => zero.and_then(|zero| zero.u64_at(32)).unwrap_or(0),
        count => count.into(),
    };
    let table = TableHeader { what, offset: header.shoff, count, said_len: header.shentsize, entry_len: SHDR_LEN };
    let table = table.bytes(bytes, origin)?;
    let names_index = match header.shstrndx {
        abi::SHN_XINDEX => zero.and_then(|zero| zero.u32_at(40)).unwrap_or(0) as usize,
        index => index.into(),
    };
    let entries = table.chunks_exact(SHDR_LEN as usize);
    let names = entries.clone().nth(names_index).filter(|entry| entry.u32_at(4) == Some(abi::SHT_STRTAB));
    let names = names.and_then(|entry| bytes.slice(entry.u64_at(24)?, entry.u64_at(32)?));
    let names = names.ok_or_else(|| malformed(format!("section {names_index} does not hold the names")))?;
    let parsed = entries.filter_map(|entry| {
        Some(SectionHeader {
            name: section_name(names, entry.u32_at(0)?),
            kind: entry.u32_at(4)?,
            flags: entry.u64_at(8)?,
            addr: entry.u64_at(16)?,
            offset: entry.u64_at(24)?,
            len: entry.u64_at(32)?,
            link: entry.u32_at(40)?,
            entry_len: entry.u64_at(56)?,
        })
    });
    Ok(parsed.collect())
}

/// Where the table of section headers lies in a file that begins with these bytes.
pub(crate) fn section_headers_range(bytes: &[u8]) -> Option<Range<usize>> {
    let (at, len, count) = (bytes.u64_at(40)?, bytes.u16_at(58)?, bytes.u16_at(60)?);
    byte_range(at, u64::from(len) * u64::from(count))
}

/// Where their names lie, of a file of which the headers are there.
pub(crate) fn section_names_range(bytes: &[u8]) -> Option<Range<usize>> {
    let (at, len, index) = (bytes.u64_at(40)?, bytes.u16_at(58)?, bytes.u16_at(62)?);
    let entry = at.checked_add(u64::from(len) * u64::from(index))?;
    byte_range(bytes.u64_at(entry.checked_add(24)?)?, bytes.u64_at(entry.checked_add(32)?)?)
}

fn byte_range(at: u64, len: u64) -> Option<Range<usize>> {
    let (at, end) = (usize::try_from(at).ok()?, usize::try_from(at.checked_add(len)?).ok()?);
    (at < end).then_some(at..end)
}

/// Empty where there is none. Cut to the length of a sane name: 65,000 headers that all share one long
/// name would take gigabytes.
fn section_name(names: &[u8], offset: u32) -> String {
    let name = cstr_at(names, offset.into()).unwrap_or(&[]);
    String::from_utf8_lossy(name.get(..256).unwrap_or(name)).into_owned()
}

/// What the ELF header says of a table.
struct TableHeader {
    what: &'static str,
    offset: u64,
    count: u64,
    /// An entry's length in bytes: as the header says, and the true one.
    said_len: u16,
    entry_len: u64,
}

impl TableHeader {
    /// The table, if all of it is in the file.
    fn bytes<'a>(&self, bytes: &'a [u8], origin: &Path) -> Result<&'a [u8], ImageError> {
        let TableHeader { what, offset, count, said_len, entry_len } = *self;
        if count == 0 {
            return Ok(&[]);
        }
        let path = || origin.to_path_buf();
        if u64::from(said_len) != entry_len {
            let why = format!("an entry has {said_len} bytes instead of {entry_len}");
            return Err(ImageError::Malformed { path: path(), what, offset, why });
        }
        let len = count.saturating_mul(entry_len);
        let file_len = bytes.len() as u64;
        bytes.slice(offset, len).ok_or_else(|| ImageError::Cut { path: path(), what, offset, len, file_len })
    }
}
