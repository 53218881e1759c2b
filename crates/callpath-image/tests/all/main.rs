//! What other crates and users see of reading binaries: all tests in one program, which is linked once.

mod broken_dwarf;
#[path = "tools/chains.rs"]
mod chains;
mod debug_files;
mod exception_tables;
mod landing_pads;
mod lines;
mod moved_frames;
mod mutations;
mod peek;
mod scopes;
mod symbols;
mod tools;
