//! The recorder: launches a program, serves the processes that it becomes, and copies out what they measure.
//! Knows nothing of machine instructions and of what a report looks like.
//!
//! One thread serves: it is called by the doorbell, looks at every process, and once a second writes the files. Another
//! waits for the program.

mod arena;
mod error;
mod modules;
mod output;
mod process;
mod program;
mod publish;
mod raw;
mod serve;
mod settings;
mod signals;
mod suitable;
mod thread;
mod trace;
mod unmeasured;
mod written;
mod written_names;

pub use error::RecordError;
pub use output::Destination;
pub use serve::{Recorded, record};
pub use settings::{Clock, DEFAULT_RATE, RecordOptions, SettingsError, parse_event};
pub use suitable::{Suitable, check_program};
