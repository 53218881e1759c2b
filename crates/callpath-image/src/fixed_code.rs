//! Code of an image that other parties know by its address, or that keeps other promises than procedures do: by what
//! sections, relocations and symbols say of it. No instructions are known here.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::bytes::Bytes;
use crate::elf::Image;
use crate::loading::Loading;
use crate::module_file::ModuleFile;
use crate::plt;
use crate::symbol_table::{Symbol, SymbolTable, procedure_symbols};

/// Where programs keep the descriptions of their restartable sequences (`struct rseq_cs` of the kernel).
const CRITICAL_SECTIONS: &str = "__rseq_cs";
const CRITICAL_LEN: usize = 32;
const START_AT: u64 = 8;
const LEN_AT: u64 = 16;
const ABORT_AT: u64 = 24;

/// Code that is not like other code. Lists are sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FixedCode {
    /// Restartable sequences, and the first byte of what the kernel goes on with where it interrupts one.
    pub restartable: Vec<Range<LinkAddr>>,
    /// Procedures that the loader calls to choose another one (`STT_GNU_IFUNC`, `R_X86_64_IRELATIVE`).
    pub resolvers: Vec<LinkAddr>,
    /// `vfork`: the procedure, stubs that jump to it, and words that hold its address.
    pub vforks: Vec<LinkAddr>,
    /// Procedures that preserve registers which others do not: those that resolve symbols and thread-local variables,
    /// and those that compilers call at entries for profilers.
    pub preserving: Vec<LinkAddr>,
    /// It is the dynamic linker.
    pub is_loader: bool,
}

impl FixedCode {
    /// Reads the symbols and relocations of a file.
    pub fn of(file: &ModuleFile) -> FixedCode {
        let (image, loading) = (&**file.image(), file.loading());
        let symbols = procedure_symbols(image, &image.executable_ranges());
        let starts = |is_it: &dyn Fn(&Symbol<'_>) -> bool| -> Vec<LinkAddr> {
            symbols.iter().filter(|&symbol| is_it(symbol)).map(|symbol| symbol.start).collect()
        };
        let mut resolvers = starts(&|symbol| symbol.chooses);
        resolvers.extend(loading.resolvers.iter().map(|(_, resolver)| *resolver));
        let mut vforks = starts(&|symbol| is_vfork(&symbol.name));
        vforks.extend(loading.symbols.iter().filter(|(_, name)| is_vfork(name)).map(|(slot, _)| *slot));
        let stubs = plt::stubs(image, |_| None).into_iter();
        let is_stub = |stub: &plt::Stub| stub.name.strip_suffix("@plt").is_some_and(is_vfork);
        vforks.extend(stubs.filter(is_stub).map(|stub| stub.start));
        let mut fixed = FixedCode {
            restartable: restartable(image, loading),
            resolvers,
            vforks,
            preserving: starts(&|symbol| is_preserving(&symbol.name)),
            is_loader: is_loader(image),
        };
        fixed.restartable.sort_unstable_by_key(|code| (code.start, code.end));
        for addresses in [&mut fixed.resolvers, &mut fixed.vforks, &mut fixed.preserving] {
            addresses.sort_unstable();
            addresses.dedup();
        }
        fixed
    }
}

fn is_vfork(name: &str) -> bool {
    matches!(name, "vfork" | "__vfork" | "__libc_vfork")
}

fn is_preserving(name: &str) -> bool {
    let is_prefixed = ["_dl_runtime_resolve", "_dl_runtime_profile", "_dl_tlsdesc_", "__tls_get_addr"];
    is_prefixed.iter().any(|prefix| name.starts_with(prefix)) || matches!(name, "mcount" | "_mcount" | "__fentry__")
}

/// glibc's dynamic linker, and musl's, which is its C library, too: they define what finds thread-local variables, and
/// are not started by another one.
fn is_loader(image: &Image) -> bool {
    let Some(table) = SymbolTable::dynamic(image) else { return false };
    image.interpreter().is_none()
        && table.defined_names().any(|name| name == "__tls_get_addr" || name == "_dl_runtime_resolve")
}

/// What is described in the section for it; addresses there are relocated where the image is.
fn restartable(image: &Image, loading: &Loading) -> Vec<Range<LinkAddr>> {
    let Some(section) = image.section(CRITICAL_SECTIONS) else { return Vec::new() };
    let relocated = |slot: u64| {
        let found = loading.pointers.binary_search_by_key(&LinkAddr(slot), |&(slot, _)| slot);
        found.ok().and_then(|index| loading.pointers.get(index)).map(|&(_, to)| to)
    };
    let described = section.data.chunks_exact(CRITICAL_LEN).zip((section.addr.0..).step_by(CRITICAL_LEN));
    let read = |(bytes, at): (&[u8], u64)| {
        let address = |field: u64| relocated(at.wrapping_add(field)).or_else(|| bytes.u64_at(field).map(LinkAddr));
        let (start, len, abort) = (address(START_AT)?, bytes.u64_at(LEN_AT)?, address(ABORT_AT)?);
        let sequence = start..LinkAddr(start.0.saturating_add(len));
        Some([sequence, abort..LinkAddr(abort.0.saturating_add(1))])
    };
    described.filter_map(read).flatten().collect()
}
