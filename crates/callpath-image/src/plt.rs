//! The procedure linkage table: which sections hold stubs, how long one is, and which symbol each of them jumps to.
//!
//! It decodes one instruction only, the jump through memory that the psABI prescribes for a stub: names are needed where no
//! instructions are known. How control goes through a stub `callpath_x86::idioms::linkage_stub` says.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::abi;
use crate::bytes::Bytes;
use crate::elf::Image;
use crate::headers::SectionHeader;
use crate::symbol_table::SymbolTable;

const RELOCATION_LEN: usize = 24;

/// `jmp *disp32(%rip)` without its displacement.
const JUMP: [u8; 2] = [0xff, 0x25];

/// A section of stubs.
#[derive(Clone, Debug)]
pub struct StubSection<'a> {
    /// Where it lies.
    pub code: Range<LinkAddr>,
    /// Each of its stubs takes so many bytes.
    pub stub_len_bytes: u64,
    /// Its stubs are for symbols whose addresses are taken.
    pub is_of_addresses: bool,
    data: Cow<'a, [u8]>,
}

impl StubSection<'_> {
    /// Where its stubs lie, in order.
    pub fn stubs(&self) -> impl Iterator<Item = Range<LinkAddr>> + use<> {
        let len = self.stub_len_bytes;
        let starts = (self.code.start.0..self.code.end.0).step_by(len as usize);
        starts.map(move |start| LinkAddr(start)..LinkAddr(start.saturating_add(len)))
    }
}

/// The sections of stubs that an image has. Linkers put stubs for calls of symbols into `.plt`, or apart from their lazy halves into
/// `.plt.sec`; for symbols whose addresses are taken into `.plt.got`; for procedures that are chosen at load time also into `.iplt`.
pub fn sections(image: &Image) -> Vec<StubSection<'_>> {
    let of = |header: &SectionHeader| {
        let data = image.section_data(header)?;
        // A stub alone, `jmp [slot]; nop`, takes half as much as one with a lazy half or `endbr64`.
        let is_short = header.entry_len == 8 || data.get(8..).is_some_and(|second| second.starts_with(&JUMP));
        Some(StubSection {
            code: LinkAddr(header.addr)..LinkAddr(header.addr.saturating_add(data.len() as u64)),
            stub_len_bytes: if is_short { 8 } else { 16 },
            is_of_addresses: header.name == ".plt.got",
            data,
        })
    };
    let headers = image.section_headers().iter().filter(|header| header.is_executable() && is_of_stubs(&header.name));
    headers.filter_map(of).collect()
}

/// Whether a section of this name holds stubs.
pub fn is_of_stubs(name: &str) -> bool {
    name.starts_with(".plt") || name == ".iplt"
}

/// A stub that jumps to another module's procedure.
pub struct Stub {
    /// Its first instruction.
    pub start: LinkAddr,
    /// In bytes.
    pub len: u64,
    /// `name@plt`.
    pub name: String,
}

/// All stubs, by ascending start. `name_of` gives the name of a procedure of this image, of which a stub is made when
/// its address is chosen at load time (`R_X86_64_IRELATIVE`).
pub fn stubs(image: &Image, name_of: impl Fn(LinkAddr) -> Option<String>) -> Vec<Stub> {
    let mut stubs = Vec::new();
    let mut slots = None;
    for section in sections(image) {
        let slots = slots.get_or_insert_with(|| slot_names(image, &name_of));
        for (code, entry) in section.stubs().zip(section.data.chunks_exact(section.stub_len_bytes as usize)) {
            let jump = entry.windows(JUMP.len() + 4).enumerate().find(|(_, bytes)| bytes.starts_with(&JUMP));
            let Some((at, bytes)) = jump else { continue };
            let Some(displacement) = bytes.u32_at(JUMP.len() as u64) else { continue };
            let next = code.start.0.wrapping_add((at + bytes.len()) as u64);
            let slot = next.wrapping_add_signed((displacement as i32).into());
            if let Some(name) = slots.get(&slot) {
                stubs.push(Stub { start: code.start, len: section.stub_len_bytes, name: format!("{name}@plt") });
            }
        }
    }
    stubs.sort_by_key(|stub| stub.start);
    stubs.dedup_by_key(|stub| stub.start);
    stubs
}

/// The words that the loader fills for stubs, and that nothing else reads: where a word leads is where its stub's calls lead.
pub fn words(image: &Image) -> Vec<LinkAddr> {
    let Some(table) = image.section(".rela.plt") else { return Vec::new() };
    let relocations = table.data.chunks_exact(RELOCATION_LEN).map_while(|entry| entry.u64_at(0).zip(entry.u64_at(8)));
    let of_stubs =
        relocations.filter(|(_, info)| matches!(*info as u32, abi::R_X86_64_JUMP_SLOT | abi::R_X86_64_IRELATIVE));
    of_stubs.map(|(slot, _)| LinkAddr(slot)).collect()
}

/// What the loader will put into each slot of the global offset table: a symbol's name.
fn slot_names(image: &Image, name_of: impl Fn(LinkAddr) -> Option<String>) -> HashMap<u64, String> {
    let mut slots = HashMap::new();
    let symbols = SymbolTable::dynamic(image);
    for table in [".rela.plt", ".rela.dyn"].iter().filter_map(|name| image.section(name)) {
        for entry in table.data.chunks_exact(RELOCATION_LEN) {
            let (Some(slot), Some(info), Some(addend)) = (entry.u64_at(0), entry.u64_at(8), entry.u64_at(16)) else {
                break;
            };
            let name = match info as u32 {
                abi::R_X86_64_GLOB_DAT | abi::R_X86_64_JUMP_SLOT => {
                    symbols.as_ref().and_then(|symbols| symbols.name((info >> 32) as u32)).map(|name| name.into_owned())
                }
                abi::R_X86_64_IRELATIVE => name_of(LinkAddr(addend)),
                _ => continue,
            };
            if let Some(name) = name {
                slots.insert(slot, name);
            }
        }
    }
    slots
}
