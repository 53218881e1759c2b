//! A measurement: the files that a recorder leaves, one for the whole and one for each process (docs/formats.md).
//! No live processes and no names of code here, except those that a process gave its generated code.
//!
//! The session's file is written anew under a temporary name and renamed; a process's grows by what has changed. So a
//! reader sees a whole one at every instant. Many processes that end at once are appended to one file. The ranks of a parallel job have
//! a directory each, in one.

#![forbid(unsafe_code)]

mod bytes;
mod context_paths;
mod directory;
mod error;
mod fuzzing;
mod job_file;
mod kept_files;
mod log;
mod names_file;
mod numbered;
mod pack_file;
mod path_file;
mod path_times;
mod plain;
mod process_file;
mod ranks;
mod session_file;
mod together;
mod tree;

use std::path::PathBuf;

use callpath_format::frame::FrameKey;
use callpath_format::shared::thread::Dropped;
use callpath_image::identity::ModuleIdentity;
pub use callpath_schema::{MeasuredTime, PATH_METRICS, PathCategory, PathMetric, PathTime, TimesAccount};
use callpath_schema::{Metric, ProbeAccount};

pub use bytes::{Reader, Writer};
pub use context_paths::CountedContext;
pub use directory::{Measurement, names_file_name, newest, process_file_name, write_file};
pub use error::MeasurementError;
pub use fuzzing::fuzz_measurement;
pub use job_file::{Job, MOST_RANKS, Rank, decode_job, encode_job};
pub use kept_files::KeptFiles;
pub use log::ProcessLog;
pub use names_file::{KERNEL, NamedCode, NamesFile, encode_names, nameless, nameless_mapping};
pub use numbered::{NoContext, is_number};
pub use pack_file::PackFile;
pub use path_file::{
    CountedEdge, CountedEdges, CountedPath, CountedProcedure, MeasuredPaths, PathCounts, RefusedProcedure, has_paths,
    paths_file_name,
};
pub use plain::plain;
pub use process_file::{decode_process, encode_process};
pub use ranks::{JOB_FILE, RankSession, Ranks, rank_directories, rank_directory_name, read_job};
pub use session_file::{NOT_WALKED, encode_session, told_by, walked_until_told};
pub use together::Together;
pub use tree::{FULL_ROOT, PARTIAL_ROOT, PathTree, TreeNode};

/// The whole measurement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionFile {
    /// The program's path.
    pub program: PathBuf,
    /// Its command line, the name it was given first.
    pub command: Vec<String>,
    /// Where it ran.
    pub working_directory: PathBuf,
    /// The machine's name.
    pub host: String,
    /// callpath's version.
    pub recorder: String,
    /// When it began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// How long it has run, nanoseconds.
    pub duration_ns: u64,
    /// How it ended; `None` as long as it has not.
    pub ended: Option<SessionEnd>,
    /// The metrics of the nodes' values, in their order; then derived ones, and the samples.
    pub metrics: Vec<Metric>,
    /// Nanoseconds between two samples of a thread.
    pub period_ns: u64,
    /// Notes that a report shows once: where samples come from, what could not be done.
    pub notes: Vec<String>,
    /// Processes that could not take part, for want of slots.
    pub lost_processes: u64,
    /// CPU time of the recorder, nanoseconds.
    pub recorder_cpu_ns: u64,
    /// How many processes were measured.
    pub processes: u64,
    /// Of probes, if there were any.
    pub probes: Option<ProbeAccount>,
}

/// How the program ended, or that it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionEnd {
    /// What is known of that; of another than [`EndKind::Known`] all else is 0.
    pub kind: EndKind,
    /// As in a shell: the exit status, or 128 + signal.
    pub status: i32,
    /// CPU time of the program and of the children that it waited for, from the kernel, nanoseconds; with `kernel_ns` 0 where that is not what
    /// was measured.
    pub user_ns: u64,
    /// The same in the kernel.
    pub kernel_ns: u64,
}

/// What is known of a program's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndKind {
    /// How it ended.
    #[default]
    Known,
    /// That it ended: it was no child of the recorder's.
    Unknown,
    /// It goes on: only its measurement is over.
    GoesOn,
}

/// One process: a program image from its start (or fork) to its end (or exec).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessFile {
    /// Its number.
    pub pid: u32,
    /// Its parent's, 0 if not known.
    pub parent_pid: u32,
    /// Counts the measurement's processes in the order in which they came.
    pub sequence: u32,
    /// Its rank, in a measurement of several that was read. Not in the file.
    pub rank: Option<u32>,
    /// Made by fork from a measured process, and has not executed another program.
    pub forked: bool,
    /// The program's path.
    pub program: PathBuf,
    /// Its command line.
    pub command: Vec<String>,
    /// The control group that it was in when it was seen first, by its path below the root of all groups; empty: not known.
    pub control_group: String,
    /// When it came, nanoseconds from the measurement's beginning.
    pub started_ns: u64,
    /// When it ended, if it has.
    pub ended_ns: Option<u64>,
    /// How many of the session's metrics its nodes may have values of.
    pub metric_count: u32,
    /// By module index.
    pub modules: Vec<ModuleRecord>,
    /// Its threads.
    pub threads: Vec<ThreadProfile>,
    /// Samples that were not kept in threads that had no record, by [`Dropped`].
    pub dropped_unrecorded: [u64; Dropped::COUNT],
    /// Factors that are applied to values when the file is read: the file holds the samples' sums, and the true total
    /// is known only at the end. Empty in a process that was read.
    pub scalings: Vec<Scaling>,
}

impl ProcessFile {
    /// The modules that frames of its trees are in, as far as they have an identity.
    pub fn modules_with_frames(&self) -> impl Iterator<Item = &ModuleIdentity> {
        let mut has_frames = vec![false; self.modules.len()];
        // The two roots are no frames.
        let frames = |thread: &'_ ThreadProfile| {
            let nodes = thread.tree.nodes().iter().skip(PARTIAL_ROOT as usize + 1).map(|node| node.key);
            nodes.chain(thread.start).collect::<Vec<_>>()
        };
        for key in self.threads.iter().flat_map(frames) {
            if let Some(has) = has_frames.get_mut(usize::from(key.module().0)) {
                *has = true;
            }
        }
        let found = self.modules.iter().zip(has_frames).filter(|(_, has)| *has);
        found.filter_map(|(module, _)| module.identity.as_ref())
    }
}

/// A factor of `by / of` for a metric's values in all nodes of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scaling {
    /// Its number.
    pub metric: usize,
    /// Multiply by this.
    pub by: u64,
    /// Divide by this.
    pub of: u64,
}

/// A load module of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleRecord {
    /// Its path, or the kernel's name for it (`[vdso]`).
    pub path: PathBuf,
    /// Its build-id or hash; `None` if it could not be read.
    pub identity: Option<ModuleIdentity>,
}

/// One thread, or several that have ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadProfile {
    /// Its number, of several the first one's.
    pub tid: u32,
    /// How many threads these are.
    pub count: u64,
    /// Its name as it had set it.
    pub name: String,
    /// Where it began; `None` for a process's first thread and where it is not known.
    pub start: Option<FrameKey>,
    /// What became of its samples.
    pub tally: SampleTally,
    /// Its calling context tree.
    pub tree: PathTree,
}

/// What became of the samples of a thread. `taken` is the sum of all others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SampleTally {
    /// Samples that were delivered.
    pub taken: u64,
    /// Their path is full.
    pub full: u64,
    /// Their path is partial.
    pub partial: u64,
    /// Kept raw, not (yet) unwound.
    pub raw_kept: u64,
    /// Not kept, by [`Dropped`].
    pub dropped: [u64; Dropped::COUNT],
    /// Begun and never finished: the process was killed inside the handler.
    pub unfinished: u64,
    /// Time in handlers, nanoseconds.
    pub handler_ns: u64,
    /// The longest handler, nanoseconds.
    pub handler_max_ns: u64,
    /// Handlers by the binary logarithm of their nanoseconds: at entry k those that took less than
    /// 2^(k+1), and seldom less than a quarter of that.
    pub handler_histogram: Vec<u64>,
    /// Frames walked over.
    pub frames: u64,
}

impl SampleTally {
    /// Adds another thread's tally.
    pub fn add(&mut self, other: &SampleTally) {
        self.taken += other.taken;
        self.full += other.full;
        self.partial += other.partial;
        self.raw_kept += other.raw_kept;
        for (to, from) in self.dropped.iter_mut().zip(other.dropped) {
            *to += from;
        }
        self.unfinished += other.unfinished;
        self.handler_ns += other.handler_ns;
        self.handler_max_ns = self.handler_max_ns.max(other.handler_max_ns);
        if self.handler_histogram.len() < other.handler_histogram.len() {
            self.handler_histogram.resize(other.handler_histogram.len(), 0);
        }
        for (to, from) in self.handler_histogram.iter_mut().zip(&other.handler_histogram) {
            *to += from;
        }
        self.frames += other.frames;
    }
}
