//! `callpath record -p PID`: processes that run already, sampled from outside.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::bail;
use callpath_record::{AttachOptions, FromOutside, RecordError, RecordOptions, Recorded, attach};
use callpath_target::{Pid, ProcessHandle};

use crate::command::number::{pid, seconds};

#[derive(clap::Args)]
pub(super) struct Attaching {
    /// Sample running processes from outside, by CPU time, or with -e wall-time by where they wait, too: nothing in them changes. Ends when they do, after --duration, or on Ctrl-C
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        value_parser = pid,
        conflicts_with_all = ["program", "probe", "exact", "plan", "wait_all", "sentinel"]
    )]
    pid: Vec<u32>,
    /// Sample all processes of the machine from outside, by CPU time, or with -e off-cpu by where they wait, too, until PROGRAM ends, after --duration, or with Ctrl-C
    #[arg(short, long = "all-cpus", conflicts_with_all = ["pid", "probe", "exact", "plan", "wait_all", "sentinel"])]
    all: bool,
    /// With -a, sample the processes of this control group alone (a container, a service): its path below the root of all groups, or a part of its name, as the
    /// number of a container
    #[arg(short = 'G', long, value_name = "NAME")]
    cgroup: Option<String>,
    /// With -p or -a, stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// With -p, leave out processes that they start
    #[arg(long)]
    no_children: bool,
}

impl Attaching {
    /// Whether processes that run are sampled.
    pub(super) fn is_asked_for(&self) -> bool {
        self.all || !self.pid.is_empty()
    }

    /// Why its options cannot be had together with a program alone.
    pub(super) fn check(&self, outside: FromOutside) -> anyhow::Result<()> {
        if self.is_asked_for() && outside == FromOutside::Never {
            bail!("--outside=never: what runs already is sampled from outside; leave it out");
        }
        if self.duration.is_some() && !self.is_asked_for() {
            bail!("--duration is for -p PID and -a; without them, recording ends with the program");
        }
        if self.cgroup.is_some() && !self.all {
            bail!("--cgroup is for -a: all processes of a control group; write: callpath record -a --cgroup NAME");
        }
        if self.no_children && self.pid.is_empty() {
            bail!("--no-children is for -p PID; to see one process: callpath report --process NAME");
        }
        Ok(())
    }

    /// Why no process was measured.
    pub(super) fn why_nothing(&self) -> &'static str {
        match (self.is_asked_for(), &self.cgroup) {
            (false, _) => "no process with glibc loaded callpath's object",
            (true, None) => "none of the processes ran",
            (true, Some(_)) => "no process of the control group ran",
        }
    }

    /// What the first process is called.
    pub(super) fn program(&self) -> anyhow::Result<OsString> {
        if self.all {
            return Ok(self.cgroup.as_ref().map_or("all processes".into(), |group| format!("all of {group}").into()));
        }
        let Some(pid) = self.pid.first() else { bail!("no process to attach to") };
        let handle = ProcessHandle::open(Pid(*pid));
        match handle.program().or_else(|| handle.thread_name(*pid).map(Into::into)) {
            Some(program) => Ok(program.into_os_string()),
            None => bail!("failed to attach to process {pid}: there is no such process"),
        }
    }

    /// `until_program`: until the program has ended that is named.
    pub(super) fn record(&self, record: &RecordOptions, until_program: bool) -> Result<Recorded, RecordError> {
        let mut pids: Vec<Pid> = self.pid.iter().copied().map(Pid).collect();
        pids.sort_unstable_by_key(|pid| pid.0);
        pids.dedup();
        attach(&AttachOptions {
            record,
            pids: (!self.all).then_some(pids.as_slice()),
            group: self.cgroup.as_deref(),
            until_program,
            with_children: !self.no_children,
            duration: self.duration,
        })
    }
}
