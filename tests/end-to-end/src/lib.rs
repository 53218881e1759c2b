//! What the end-to-end tests share: compile a program of tests/nasty, run it bare and recorded, read the report.
//! callpath is a command with output and files here; no crate of it is used.
#![forbid(unsafe_code)]

mod compile;
mod machine;
mod outcome;
mod paths;
mod probed;
mod profile;
mod program;
mod told;
mod truth;

pub use compile::{C, compiled, copy_program, tool_path};
pub use machine::{is_root, skip, stolen_ns};
pub use outcome::Ended;
pub use paths::{Calls, Counts};
pub use probed::{Attached, Running, run_probe};
pub use profile::{Profile, Quality};
pub use program::{DISTRUSTED, Program, Recorded, callpath, run_callpath, run_report, run_report_within};
pub use told::{NamedPipe, Told};
pub use truth::Truth;
