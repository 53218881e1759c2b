//! The kernel's code, where samples from outside have frames there: its procedures' names, from /proc/kallsyms.
//!
//! The kernel lies elsewhere after each start of the machine. Its addresses are kept as if it lay where it was linked to lie.

use std::path::PathBuf;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::{KERNEL, ModuleRecord, NamedCode};

/// For the user.
pub(crate) const NO_KERNEL_NAMES: &str = "the kernel shows this user no names of its procedures (kernel.kptr_restrict): they are addresses; as root, they are names";

/// Where `_text` is linked to lie (arch/x86/include/asm/page_64_types.h, `__START_KERNEL_map` and 16 MB).
const LINKED_AT: u64 = 0xffff_ffff_8100_0000;
/// A procedure is no longer than this, bytes: what lies farther from the last symbol has no name.
const MOST_BYTES: u64 = 1 << 20;

/// The kernel's procedures.
pub(crate) struct Kernel {
    identity: Option<ModuleIdentity>,
    /// Where `_text` lies.
    text: u64,
    /// By address, each once.
    symbols: Vec<(u64, Box<str>)>,
}

impl Kernel {
    /// That of this machine.
    pub(crate) fn read() -> Kernel {
        let list = std::fs::read("/proc/kallsyms").unwrap_or_default();
        let build_id = std::fs::read("/sys/kernel/notes").ok().and_then(|notes| build_id(&notes));
        Kernel { identity: build_id.map(ModuleIdentity::BuildId), ..Kernel::of_list(&String::from_utf8_lossy(&list)) }
    }

    /// From lines as in /proc/kallsyms: address, kind, name, and the module in brackets.
    fn of_list(list: &str) -> Kernel {
        let mut symbols: Vec<(u64, Box<str>)> = Vec::new();
        let mut best = (0, 0);
        let mut text = 0;
        let mut found: Vec<(u64, char, &str, Option<&str>)> = list.lines().filter_map(parse).collect();
        found.sort_by_key(|(address, ..)| *address);
        for (address, kind, name, module) in found {
            if name == "_text" {
                text = address;
            }
            if !matches!(kind, 't' | 'T' | 'w' | 'W') || name.starts_with("__pfx_") {
                continue;
            }
            // Of several at one address, a global one with few underscores, if it is no mark of a section, nor of 32-bit programs.
            let is_mark = matches!(name, "_text" | "_stext") || name.starts_with("__ia32_");
            let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
            let rank = (u32::from(is_mark) * 2 + u32::from(kind != 'T'), underscores);
            let named = || match module {
                Some(module) => format!("{name} {module}").into_boxed_str(),
                None => name.into(),
            };
            match symbols.last_mut().filter(|(last, _)| *last == address) {
                Some(last) if rank < best => (last.1, best) = (named(), rank),
                Some(_) => {}
                None => {
                    symbols.push((address, named()));
                    best = rank;
                }
            }
        }
        Kernel { identity: None, text, symbols }
    }

    /// Whether the kernel shows this user names: else all addresses are zero.
    pub(crate) fn has_names(&self) -> bool {
        self.symbols.len() > 1
    }

    /// It, as a module of a process.
    pub(crate) fn module(&self) -> ModuleRecord {
        ModuleRecord { path: PathBuf::from(KERNEL), identity: self.identity.clone() }
    }

    /// An address as if the kernel lay where it was linked to lie.
    pub(crate) fn link(&self, address: RunAddr) -> LinkAddr {
        let text = if self.text == 0 { LINKED_AT } else { self.text };
        LinkAddr(address.0.wrapping_sub(text).wrapping_add(LINKED_AT))
    }

    /// The procedure of a frame. `None`: it has no name.
    pub(crate) fn procedure(&self, key: FrameKey) -> Option<NamedCode> {
        let of_key = |address: u64| self.link(RunAddr(address)).0 & KEY_BITS;
        // Keys lack the highest bits, which are the same for all of the kernel's code.
        let behind = self.symbols.partition_point(|(address, _)| of_key(*address) <= key.address());
        let (address, name) = self.symbols.get(behind.checked_sub(1)?)?;
        let start = of_key(*address);
        let next = self.symbols.get(behind).map_or(u64::MAX, |(next, _)| of_key(*next));
        let len_bytes = next.saturating_sub(start).min(MOST_BYTES);
        let holds = (start..start.saturating_add(len_bytes)).contains(&key.address());
        holds.then(|| NamedCode { module: key.module().0, start, len_bytes, name: name.to_string() })
    }
}

/// The bits of an address that a frame's key has.
const KEY_BITS: u64 = (1 << 48) - 1;

fn parse(line: &str) -> Option<(u64, char, &str, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    let mut kind = words.next()?.chars();
    let (kind, None) = (kind.next()?, kind.next()) else { return None };
    Some((address, kind, words.next()?, words.next()))
}

/// The build-id among notes, whose words are as the kernel's are.
fn build_id(notes: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut rest = notes;
    loop {
        let (head, body) = rest.split_at_checked(12)?;
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let [name_len, content_len] = [word(0), word(4)].map(|len| len as usize);
        let padded = |len: usize| len.checked_next_multiple_of(4);
        let content_at = padded(name_len)?;
        let end = content_at.checked_add(content_len)?;
        let (name, content) = (body.get(..name_len)?, body.get(content_at..end)?);
        if word(8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(content.to_vec());
        }
        rest = body.get(padded(end)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_format::frame::ModuleIndex;

    const LIST: &str = "0000000000000000 A fixed_percpu_data\n\
                        ffffffffa0000000 T _text\n\
                        ffffffffa0000000 T _stext\n\
                        ffffffffa0000040 t __pfx_do_one_initcall\n\
                        ffffffffa0000050 T __do_one\n\
                        ffffffffa0000050 t do_one_alias\n\
                        ffffffffa0000050 T do_one\n\
                        ffffffffa0000090 D some_data\n\
                        ffffffffa0010000 T __ia32_sys_getppid\n\
                        ffffffffa0010000 T __x64_sys_getppid\n\
                        ffffffffc0401000 t ext4_read [ext4]\n\
                        bad line\nffffffffc0402000\n";

    fn key(kernel: &Kernel, address: u64) -> FrameKey {
        FrameKey::in_module(ModuleIndex(7), kernel.link(RunAddr(address)))
    }

    fn name(kernel: &Kernel, address: u64) -> Option<String> {
        kernel.procedure(key(kernel, address)).map(|named| named.name)
    }

    #[test]
    fn procedures_are_found_wherever_the_kernel_lies() {
        let kernel = Kernel::of_list(LIST);
        assert!(kernel.has_names());
        assert_eq!(kernel.link(RunAddr(0xffff_ffff_a000_0050)), LinkAddr(0xffff_ffff_8100_0050));
        for (address, expected) in [
            (0xffff_ffff_9fff_ffff, None),
            (0xffff_ffff_a000_0000, Some("_text")),
            (0xffff_ffff_a000_004f, Some("_text")),
            (0xffff_ffff_a000_0050, Some("do_one")),
            (0xffff_ffff_a000_0fff, Some("do_one")),
            (0xffff_ffff_a001_0000, Some("__x64_sys_getppid")),
            (0xffff_ffff_b000_0000, None),
            (0xffff_ffff_c040_1234, Some("ext4_read [ext4]")),
            (0xffff_ffff_ffff_0000, None),
        ] {
            assert_eq!(name(&kernel, address).as_deref(), expected, "{address:#x}");
        }
        let elsewhere = Kernel::of_list(&LIST.replace("ffffffffa0", "ffffffff91"));
        let [here, there] = [(&kernel, 0xffff_ffff_a000_0060), (&elsewhere, 0xffff_ffff_9100_0060)];
        assert_eq!(key(here.0, here.1), key(there.0, there.1));
        assert_eq!(name(there.0, there.1).as_deref(), Some("do_one"));
        // As a user sees it whom the kernel shows no addresses.
        let hidden = Kernel::of_list("0000000000000000 T _text\n0000000000000000 T do_one\n");
        assert!(!hidden.has_names() && name(&hidden, 0xffff_ffff_a000_0050).is_none());
    }

    #[test]
    fn the_build_id_is_among_notes() {
        let note = |kind: u32, name: &[u8], content: &[u8]| {
            let mut bytes = [name.len() as u32, content.len() as u32, kind].map(u32::to_ne_bytes).concat();
            for part in [name, content] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let notes = [note(18, b"Xen\0", b"12345"), note(3, b"GNU\0", &[1, 2, 3]), note(1, b"x", b"")].concat();
        assert_eq!(build_id(&notes), Some(vec![1, 2, 3]));
        assert_eq!((build_id(&notes[..30]), build_id(&[]), build_id(&[0xff; 40])), (None, None, None));
    }
}
