//! What the end-to-end tests stand on: compile a nasty program, run it bare and recorded, read the report.
//! Knows nothing of how callpath works: it sees the command, its output and its files.
#![forbid(unsafe_code)]

mod compile;
mod machine;
mod outcome;
mod profile;
mod program;

pub use compile::{C, compiled, tool_path};
pub use machine::{is_root, skip, stolen_ns};
pub use outcome::Ended;
pub use profile::{Profile, Quality};
pub use program::{Program, Recorded, callpath, run_report};
