//! What a database says besides contexts and values: metrics, runs, profiles.

use std::collections::BTreeMap;

use callpath_schema::encoding::{Malformed, Reader, Writer};
use callpath_schema::{Metric, ProbeAccount};

use crate::{CpuTime, Handlers, JobInfo, Links, ProcessInfo, Quality, RankInfo, RunInfo};

/// A run, as it was recorded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Run {
    /// What ran.
    pub info: RunInfo,
    /// How its samples were accounted for.
    pub quality: Quality,
}

/// A process or thread, by its name and number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unit {
    /// The program's name, or the thread's.
    pub name: String,
    /// The process id, or the thread's.
    pub id: u64,
}

/// Whose values a profile holds: a thread's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Member {
    /// The run, by its number in the database.
    pub run: u32,
    /// The rank of a parallel job; none where a run is none.
    pub rank: Option<u32>,
    /// The process; none where a run has none.
    pub process: Option<Unit>,
    /// The thread; none for what is no thread's.
    pub thread: Option<Unit>,
}

/// What a profile has of one metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileColumn {
    /// The metric, by its number in the database.
    pub metric: u32,
    /// Contexts with a value that is not 0.
    pub facts: u64,
    /// These values, combined.
    pub total: u64,
}

/// One profile: whose it is, what it has, and where its values are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileEntry {
    /// Whose it is.
    pub member: Member,
    /// The metrics of which it has values, in ascending order.
    pub columns: Vec<ProfileColumn>,
    /// Where its values begin in the section of values.
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
    /// XXH3-64 of its values.
    pub(crate) checksum: u64,
}

/// The facts of one database.
#[derive(Clone, Default, Debug)]
pub(crate) struct Facts {
    pub(crate) metrics: Vec<Metric>,
    pub(crate) runs: Vec<Run>,
    pub(crate) profiles: Vec<ProfileEntry>,
}

impl Facts {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.number(self.metrics.len() as u64);
        self.metrics.iter().for_each(|metric| metric.write(&mut w));
        w.number(self.runs.len() as u64);
        for run in &self.runs {
            write_info(&mut w, &run.info);
            write_quality(&mut w, &run.quality);
        }
        w.number(self.profiles.len() as u64);
        for profile in &self.profiles {
            w.number(u64::from(profile.member.run));
            w.optional(profile.member.rank.map(u64::from));
            for unit in [&profile.member.process, &profile.member.thread] {
                w.number(u64::from(unit.is_some()));
                if let Some(unit) = unit {
                    w.string(&unit.name);
                    w.number(unit.id);
                }
            }
            w.number(profile.columns.len() as u64);
            for column in &profile.columns {
                w.number(u64::from(column.metric));
                w.number(column.facts);
                w.number(column.total);
            }
            w.number(profile.offset);
            w.number(profile.len_bytes);
            w.bytes.extend(profile.checksum.to_le_bytes());
        }
        // Of runs without probes nothing: so were all before there were any.
        for (number, run) in self.runs.iter().enumerate() {
            if let Some(probes) = &run.quality.probes {
                w.number(number as u64);
                probes.write(&mut w);
            }
        }
        w.bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Facts, Malformed> {
        let r = &mut Reader::new(bytes, 0);
        let mut facts = Facts::default();
        for _ in 0..r.count(8)? {
            facts.metrics.push(Metric::read(r)?);
        }
        for _ in 0..r.count(10)? {
            facts.runs.push(Run { info: read_info(r)?, quality: read_quality(r)? });
        }
        for _ in 0..r.count(8)? {
            let run = r.small("number of a run")?;
            if run as usize >= facts.runs.len() {
                return Err(r.malformed("number of a run"));
            }
            let rank = optional_rank(r)?;
            let mut unit = || -> Result<Option<Unit>, Malformed> {
                match r.number()? {
                    0 => Ok(None),
                    1 => Ok(Some(Unit { name: r.string()?, id: r.number()? })),
                    _ => Err(r.malformed("process or thread")),
                }
            };
            let member = Member { run, rank, process: unit()?, thread: unit()? };
            let mut columns: Vec<ProfileColumn> = Vec::new();
            for _ in 0..r.count(3)? {
                let metric = r.small("number of a metric")?;
                let is_behind = columns.last().is_none_or(|last| last.metric < metric);
                if metric as usize >= facts.metrics.len() || !is_behind {
                    return Err(r.malformed("number of a metric"));
                }
                columns.push(ProfileColumn { metric, facts: r.number()?, total: r.number()? });
            }
            let (offset, len_bytes) = (r.number()?, r.number()?);
            let checksum = (0..8).try_fold(0u64, |sum, at| Ok(sum | u64::from(r.byte()?) << (8 * at)))?;
            facts.profiles.push(ProfileEntry { member, columns, offset, len_bytes, checksum });
        }
        let mut last = None;
        while !r.is_at_end() {
            let number = r.small("number of a run with probes")?;
            let run = facts.runs.get_mut(number as usize).filter(|_| last.is_none_or(|last| last < number));
            let run = run.ok_or_else(|| r.malformed("number of a run with probes"))?;
            run.quality.probes = Some(ProbeAccount::read(r)?);
            last = Some(number);
        }
        Ok(facts)
    }
}

/// Flags of a process: it continues another; its control group follows.
const CONTINUES: u64 = 1;
const HAS_GROUP: u64 = 2;

fn write_info(w: &mut Writer, info: &RunInfo) {
    w.strings(&info.command);
    w.string(&info.program);
    w.number(info.started_unix_ns);
    w.number(info.duration_ns);
    w.number(u64::from(info.exit.is_some()));
    w.string(info.exit.as_deref().unwrap_or_default());
    w.string(&info.host);
    w.string(&info.working_directory);
    w.optional(info.cpu_time_by_kernel.map(|time| time.user_ns));
    w.number(info.cpu_time_by_kernel.map_or(0, |time| time.system_ns));
    w.optional(info.recorder_cpu_ns);
    w.strings(&info.notes);
    w.string(&info.directory);
    w.number(u64::from(info.more_runs));
    w.number(info.jobs.len() as u64);
    for job in &info.jobs {
        w.string(&job.launcher);
        w.string(&job.id);
        w.optional(job.size.map(u64::from));
        w.number(job.ranks.len() as u64);
        for rank in &job.ranks {
            w.number(u64::from(rank.rank));
            w.string(&rank.host);
            w.number(rank.duration_ns);
            w.number(u64::from(rank.exit.is_some()));
            w.string(rank.exit.as_deref().unwrap_or_default());
        }
    }
    w.number(info.processes.len() as u64);
    for process in &info.processes {
        w.optional(process.rank.map(u64::from));
        w.number(u64::from(process.pid));
        w.number(u64::from(process.parent_pid));
        w.string(&process.name);
        w.strings(&process.command);
        w.number(process.started_ns);
        w.number(process.duration_ns);
        w.number(u64::from(process.threads));
        w.number(process.merged_threads.len() as u64);
        for (tid, count) in &process.merged_threads {
            w.number(u64::from(*tid));
            w.number(*count);
        }
        let has_group = !process.control_group.is_empty();
        w.number(if process.continues { CONTINUES } else { 0 } | if has_group { HAS_GROUP } else { 0 });
        if has_group {
            w.string(&process.control_group);
        }
        write_quality(w, &process.quality);
    }
}

fn read_info(r: &mut Reader<'_>) -> Result<RunInfo, Malformed> {
    let mut info = RunInfo {
        command: r.strings()?,
        program: r.string()?,
        started_unix_ns: r.number()?,
        duration_ns: r.number()?,
        ..RunInfo::default()
    };
    let has_ended = r.number()? != 0;
    info.exit = Some(r.string()?).filter(|_| has_ended);
    info.host = r.string()?;
    info.working_directory = r.string()?;
    let (user_ns, system_ns) = (r.optional()?, r.number()?);
    info.cpu_time_by_kernel = user_ns.map(|user_ns| CpuTime { user_ns, system_ns });
    info.recorder_cpu_ns = r.optional()?;
    info.notes = r.strings()?;
    info.directory = r.string()?;
    info.more_runs = r.small("number of runs")?;
    for _ in 0..r.count(4)? {
        info.jobs.push(read_job(r)?);
    }
    for _ in 0..r.count(11)? {
        let mut process = ProcessInfo {
            rank: optional_rank(r)?,
            pid: r.small("process id")?,
            parent_pid: r.small("process id")?,
            name: r.string()?,
            command: r.strings()?,
            started_ns: r.number()?,
            duration_ns: r.number()?,
            threads: r.small("number of threads")?,
            ..ProcessInfo::default()
        };
        for _ in 0..r.count(2)? {
            process.merged_threads.push((r.small("thread id")?, r.number()?));
        }
        let flags = r.number()?;
        if flags & !(CONTINUES | HAS_GROUP) != 0 {
            return Err(r.malformed("flags of a process"));
        }
        process.continues = flags & CONTINUES != 0;
        if flags & HAS_GROUP != 0 {
            process.control_group = r.string()?;
        }
        process.quality = read_quality(r)?;
        info.processes.push(process);
    }
    Ok(info)
}

fn read_job(r: &mut Reader<'_>) -> Result<JobInfo, Malformed> {
    let mut job = JobInfo { launcher: r.string()?, id: r.string()?, size: optional_rank(r)?, ..JobInfo::default() };
    for _ in 0..r.count(5)? {
        let (rank, host, duration_ns) = (r.small("rank")?, r.string()?, r.number()?);
        let has_ended = r.number()? != 0;
        let exit = Some(r.string()?).filter(|_| has_ended);
        if job.ranks.last().is_some_and(|last: &RankInfo| last.rank >= rank) {
            return Err(r.malformed("order of ranks"));
        }
        job.ranks.push(RankInfo { rank, host, duration_ns, exit });
    }
    Ok(job)
}

fn optional_rank(r: &mut Reader<'_>) -> Result<Option<u32>, Malformed> {
    let rank = r.optional()?;
    rank.map(|rank| u32::try_from(rank).map_err(|_| r.malformed("rank"))).transpose()
}

fn write_quality(w: &mut Writer, quality: &Quality) {
    let links = quality.links;
    let numbers = [quality.taken, quality.full, quality.partial, quality.raw_kept, quality.overhead_ns];
    numbers.into_iter().chain([links.valid, links.likely, links.invalid]).for_each(|number| w.number(number));
    w.number(quality.dropped.len() as u64);
    for (reason, count) in &quality.dropped {
        w.string(reason);
        w.number(*count);
    }
    w.number(quality.handlers.longest_ns);
    w.number(quality.handlers.histogram.len() as u64);
    quality.handlers.histogram.iter().for_each(|count| w.number(*count));
}

fn read_quality(r: &mut Reader<'_>) -> Result<Quality, Malformed> {
    let mut numbers = [0; 8];
    for number in &mut numbers {
        *number = r.number()?;
    }
    let [taken, full, partial, raw_kept, overhead_ns, valid, likely, invalid] = numbers;
    let mut dropped = BTreeMap::new();
    for _ in 0..r.count(2)? {
        dropped.insert(r.string()?, r.number()?);
    }
    let longest_ns = r.number()?;
    let histogram = (0..r.count(1)?).map(|_| r.number()).collect::<Result<_, _>>()?;
    let (links, handlers) = (Links { valid, likely, invalid }, Handlers { longest_ns, histogram });
    let of_samples =
        Quality { taken, full, partial, raw_kept, dropped, links, overhead_ns, handlers, ..Quality::default() };
    Ok(of_samples)
}
