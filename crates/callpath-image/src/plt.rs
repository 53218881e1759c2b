//! Procedure linkage table stubs: which symbol each of them jumps to.
//! It decodes one instruction only: the jump through memory that the psABI prescribes for a stub.

use std::collections::HashMap;

use callpath_format::address::LinkAddr;

use crate::abi;
use crate::bytes::Bytes;
use crate::elf::Image;
use crate::symbol_table::SymbolTable;

const RELOCATION_LEN: usize = 24;

/// `jmp *disp32(%rip)` without its displacement.
const JUMP: [u8; 2] = [0xff, 0x25];

/// A stub that jumps to another module's procedure.
pub(crate) struct Stub {
    pub(crate) start: LinkAddr,
    /// In bytes.
    pub(crate) len: u64,
    /// `name@plt`.
    pub(crate) name: String,
}

/// All stubs, by ascending start. `name_of` gives the name of a procedure of this image, of which a stub is made when
/// its address is chosen at load time (`R_X86_64_IRELATIVE`).
pub(crate) fn stubs(image: &Image, name_of: impl Fn(LinkAddr) -> Option<String>) -> Vec<Stub> {
    let mut stubs = Vec::new();
    let mut slots = None;
    let headers = image.section_headers().iter();
    for header in headers.filter(|header| header.is_executable() && header.name.starts_with(".plt")) {
        let Some(code) = image.section_data(header) else { continue };
        let entry_len = if header.entry_len == 8 { 8 } else { 16 };
        let slots = slots.get_or_insert_with(|| slot_names(image, &name_of));
        for (index, entry) in code.chunks_exact(entry_len).enumerate() {
            let start = header.addr.wrapping_add((index * entry_len) as u64);
            let jump = entry.windows(JUMP.len() + 4).enumerate().find(|(_, bytes)| bytes.starts_with(&JUMP));
            let Some((at, bytes)) = jump else { continue };
            let Some(displacement) = bytes.u32_at(JUMP.len() as u64) else { continue };
            let next = start.wrapping_add((at + bytes.len()) as u64);
            let slot = next.wrapping_add_signed((displacement as i32).into());
            if let Some(name) = slots.get(&slot) {
                stubs.push(Stub { start: LinkAddr(start), len: entry_len as u64, name: format!("{name}@plt") });
            }
        }
    }
    stubs.sort_by_key(|stub| stub.start);
    stubs.dedup_by_key(|stub| stub.start);
    stubs
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
