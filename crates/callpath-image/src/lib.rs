//! The only reader of ELF and DWARF: sections, identity, symbols, names, lines, scopes, call frames.
//! No instructions, processes or profiles here.
//!
//! All input is untrusted: whatever the bytes say, a reader returns an error or less, never panics, and never takes
//! time or memory out of proportion to the file.
#![forbid(unsafe_code)]

mod abi;
mod bytes;
pub mod cfi;
mod code_ranges;
pub mod code_symbols;
mod crc32;
pub mod debug_file;
pub mod debug_level;
pub mod demangle;
mod dwarf;
mod eh_frame;
pub mod elf;
pub mod error;
pub mod exception_table;
pub mod exports;
mod fde;
#[doc(hidden)]
pub mod fixed_code;
pub mod fuzzing;
pub mod go;
mod go_place;
mod go_table;
mod headers;
pub mod identity;
pub mod landing_pads;
pub mod lines;
pub mod loading;
mod lsda;
pub mod memory;
pub mod module_file;
pub mod moved_frames;
mod outline;
pub mod parse_counts;
pub mod peek;
pub mod plt;
pub mod return_use;
pub mod sanitizer;
pub mod scopes;
mod symbol_table;
pub mod symbols;
mod units;
mod versions;
