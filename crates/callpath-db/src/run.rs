//! What ran: the command, its processes, when, where and how it ended.

use crate::{JobInfo, Quality};

/// The run, or the first of several merged ones, as the report's first lines say it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RunInfo {
    /// The program and its arguments as typed.
    pub command: Vec<String>,
    /// The program's name, without its directory.
    pub program: String,
    /// When it started, in nanoseconds since 1970 UTC; 0 where unknown.
    pub started_unix_ns: u64,
    /// Wall-clock time from start to end (or until now), in nanoseconds; of merged runs, the sum.
    pub duration_ns: u64,
    /// How it ended, completing "it ended with": `exit status 0`, `signal 9 (SIGKILL)`; none while it runs.
    pub exit: Option<String>,
    /// The host's name.
    pub host: String,
    /// The directory that it was started in; empty where unknown.
    pub working_directory: String,
    /// CPU time of the program and of children that it waited for, by the kernel's own account; none where unknown.
    pub cpu_time_by_kernel: Option<CpuTime>,
    /// CPU time of the recorder, which is outside of the program, in nanoseconds; none where unknown.
    pub recorder_cpu_ns: Option<u64>,
    /// Whole sentences that the report prints once each.
    pub notes: Vec<String>,
    /// What so much lacks that the report says it at its head, a sentence each.
    pub losses: Vec<String>,
    /// The measurement's directory as a person may type it.
    pub directory: String,
    /// Every process of the run, in order of start.
    pub processes: Vec<ProcessInfo>,
    /// The runs that are parallel jobs of several ranks, in order.
    pub jobs: Vec<JobInfo>,
    /// How many further runs were merged into this one.
    pub more_runs: u32,
}

/// CPU time by the kernel's account (rusage).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuTime {
    /// In user mode, nanoseconds.
    pub user_ns: u64,
    /// In the kernel on the program's behalf, nanoseconds.
    pub system_ns: u64,
}

impl CpuTime {
    /// User and system time, nanoseconds.
    pub fn total_ns(self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    fn plus(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user_ns: self.user_ns.saturating_add(other.user_ns),
            system_ns: self.system_ns.saturating_add(other.system_ns),
        }
    }
}

/// One process of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProcessInfo {
    /// The number of its run, from 0.
    pub run: u32,
    /// The rank that it is of, if it is of one.
    pub rank: Option<u32>,
    /// The process id.
    pub pid: u32,
    /// The process id of the one that forked it; 0 where unknown.
    pub parent_pid: u32,
    /// The program's name, without its directory.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The control group that it was in when it was seen first, by its path below the root of all groups; empty: not known.
    pub control_group: String,
    /// When it started, in nanoseconds since the run's start.
    pub started_ns: u64,
    /// Wall-clock time from its start to its end, in nanoseconds.
    pub duration_ns: u64,
    /// Threads that ever ran in it.
    pub threads: u32,
    /// Of each thread of the tree that stands for several, its id and how many these are.
    pub merged_threads: Vec<(u32, u64)>,
    /// It is an earlier one of the processes, with the same first thread: that one executed another program.
    pub continues: bool,
    /// Its share of the whole's account.
    pub quality: Quality,
}

impl RunInfo {
    /// Adds `other`'s runs to these. Words (command, host, directory, ...) stay those of the first run that has them;
    /// durations and CPU time add up (unknown plus known is unknown); notes are kept once each; a default value is
    /// neutral.
    pub fn merge(&mut self, other: &RunInfo) {
        if *other == RunInfo::default() {
            return;
        }
        if *self == RunInfo::default() {
            *self = other.clone();
            return;
        }
        fn first(mine: &mut String, theirs: &String) {
            if mine.is_empty() {
                mine.clone_from(theirs);
            }
        }
        if self.command.is_empty() {
            self.command.clone_from(&other.command);
        }
        first(&mut self.program, &other.program);
        first(&mut self.host, &other.host);
        first(&mut self.working_directory, &other.working_directory);
        first(&mut self.directory, &other.directory);
        if self.exit.is_none() {
            self.exit.clone_from(&other.exit);
        }
        self.started_unix_ns = match (self.started_unix_ns, other.started_unix_ns) {
            (0, known) | (known, 0) => known,
            (mine, theirs) => mine.min(theirs),
        };
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        let times = self.cpu_time_by_kernel.zip(other.cpu_time_by_kernel);
        self.cpu_time_by_kernel = times.map(|(mine, theirs)| mine.plus(theirs));
        self.recorder_cpu_ns = sum(self.recorder_cpu_ns, other.recorder_cpu_ns);
        for (mine, theirs) in [(&mut self.notes, &other.notes), (&mut self.losses, &other.losses)] {
            for sentence in theirs {
                if !mine.contains(sentence) {
                    mine.push(sentence.clone());
                }
            }
        }
        let runs = self.more_runs.saturating_add(1);
        let renumbered =
            |process: &ProcessInfo| ProcessInfo { run: process.run.saturating_add(runs), ..process.clone() };
        self.processes.extend(other.processes.iter().map(renumbered));
        let renumbered = |job: &JobInfo| JobInfo { run: job.run.saturating_add(runs), ..job.clone() };
        self.jobs.extend(other.jobs.iter().map(renumbered));
        self.more_runs = self.more_runs.saturating_add(other.more_runs).saturating_add(1);
    }
}
