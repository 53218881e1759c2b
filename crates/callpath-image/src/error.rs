//! Everything that reading an image can fail at, and everything odd found in one that was read all the same.

use std::io;
use std::path::PathBuf;

use callpath_format::address::LinkAddr;

use crate::identity::ModuleIdentity;

/// What went wrong, where. Each names the file and the offset or address, and completes "failed to ...".
///
/// The same type serves as a diagnostic: what [`crate::elf::Image::diagnostics`] lists did not stop the reading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The operating system refused.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("read {}: not a regular file", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// Beyond what is sensible to read into memory.
    #[error("read {}: {len} bytes are more than the {limit} that an image may have", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// No ELF magic.
    #[error("read {} as an ELF file: it does not begin with ELF's magic number", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// ELF, but of 32 bits.
    #[error("read {}: a 32-bit ELF file, only 64-bit ones are supported", path.display())]
    Class32 {
        /// The file.
        path: PathBuf,
    },
    /// ELF, but not for little-endian x86-64.
    #[error("read {}: an ELF file for machine {machine} ({endian}-endian), only x86-64 (62) is supported", path.display())]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// ELF's `e_machine`.
        machine: u16,
        /// "little" or "big".
        endian: &'static str,
    },
    /// ELF, but neither an executable nor a shared object.
    #[error("read {}: ELF type {elf_type} is neither an executable (2) nor a shared object (3)", path.display())]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// ELF's `e_type`.
        elf_type: u16,
    },
    /// Something lies outside the file.
    #[error("read {what} of {}: {len} bytes at offset {offset:#x} are not in the file of {file_len} bytes", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// What was to be read: "the program headers", for example.
        what: &'static str,
        /// Where, from the file's beginning.
        offset: u64,
        /// How many bytes were wanted.
        len: u64,
        /// How many the file has.
        file_len: u64,
    },
    /// Bytes that make no sense.
    #[error("make sense of {what} of {} at offset {offset:#x}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was being read.
        what: &'static str,
        /// Where, from the file's beginning; in DWARF, from the beginning of the section that `what` names.
        offset: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A unit of debug information, or an entry in it, makes no sense.
    #[error("make sense of the entry at {entry:#x} of the unit at {unit:#x} in .debug_info of {}: {why}", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Where the unit begins in `.debug_info`.
        unit: u64,
        /// Where the entry begins in `.debug_info` (in a `.dwo`'s own, if the unit is split).
        entry: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Something that a link-time address leads to makes no sense.
    #[error("make sense of {what} of {} at address {addr:#x}: {why}", path.display())]
    MalformedAt {
        /// The file.
        path: PathBuf,
        /// What was being read.
        what: &'static str,
        /// The link-time address.
        addr: LinkAddr,
        /// What is wrong with it.
        why: String,
    },
    /// A debug file that belongs to something else. Never used.
    #[error("use {} as the debug file of {}: {why}", path.display(), of.display())]
    OtherBuild {
        /// The debug file.
        path: PathBuf,
        /// What it was to describe.
        of: PathBuf,
        /// How they differ.
        why: String,
    },
    /// The file with shared debug information is not there.
    #[error("find {}, which the debug information of {} refers to", supplement.display(), path.display())]
    NoSupplement {
        /// The file that refers to it.
        path: PathBuf,
        /// The file that is missing.
        supplement: PathBuf,
    },
    /// Symbols that stand in a compressed section of their own.
    #[error("read the symbols of {} in .gnu_debugdata: this form (xz) is not supported", path.display())]
    MiniDebugSymbols {
        /// The file.
        path: PathBuf,
    },
    /// The file is another build than the one that is asked about.
    #[error("take {} for the module that ran: it has {found}, the one that ran had {expected}", path.display())]
    Replaced {
        /// The file as it is now.
        path: PathBuf,
        /// What ran.
        expected: ModuleIdentity,
        /// What is there.
        found: ModuleIdentity,
    },
}
