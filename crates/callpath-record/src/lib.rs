//! The recorder: launches a program, serves the processes that it becomes, and copies out what they measure.
//! It decodes no machine instructions and renders no report.
//!
//! One thread serves: it is called by the doorbell, looks at every process, and once a second writes the files. Another
//! waits for the program; others make recipe tables. If threads cannot be had, it works without them (`threads.rs`).

mod arena;
mod asks;
mod backlog;
mod beats;
mod code;
mod counters;
mod earlier;
mod error;
mod events;
mod exact;
mod files_apart;
mod fuzzing;
mod generated;
mod generated_names;
pub mod jit_dump;
mod jit_frames;
mod kernel;
mod meanwhile;
mod module;
mod modules;
mod moved;
mod offered;
mod output;
mod outside;
pub mod perf_map;
mod plausible;
mod probe;
mod process;
mod program;
mod publish;
mod raw;
mod refused;
mod rings;
mod sentinel;
mod serve;
mod settings;
mod shared;
mod signals;
mod sources;
mod suitable;
mod tail;
mod thread;
mod thread_tree;
mod threads;
mod time_base;
mod unmeasured;
mod worker_pool;

pub use error::RecordError;
pub use events::{
    Clock, Event, EventError, ExpressionError, HIGHEST_RATE, MAX_EVENTS, MetricOfPaths, OfPathsError, ProbeMetric,
    ProbeMetricError, Unsaid, exact_events, parse_events, probe_events,
};
pub use exact::{
    CopiedModule, Counting, ExactCounts, ExactKind, ExactKinds, ExactTimes, MeasuredExecutions, Resizing,
    record_exactly, record_resized,
};
pub use fuzzing::fuzz_arena;
pub use offered::{Offer, offered_events};
pub use output::Destination;
pub use outside::{AttachOptions, attach, record};
pub use probe::{
    Answer, CONTROL_SOCKET, Chooser, Come, ListedProbe, ProbeOptions, ProbedProcess, ProbesBesideSamples, Stops,
    Unknown, ask, is_left_alone, probe, probed_modules, record_with_probes,
};
pub use serve::Recorded;
pub use settings::{FromOutside, RecordOptions, Recursion, Sentinel, Unwind};
pub use suitable::{Suitable, WayIn, check_program, way_in};
