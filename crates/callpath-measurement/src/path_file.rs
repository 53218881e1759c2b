//! What was counted exactly in one process, a number for each path through a procedure, or for its edges: a file beside the process's.
//!
//! Nothing here knows how paths are numbered: a path says which blocks it has. Nor which edges had counters.

use std::fs;
use std::path::Path;

use callpath_format::address::LinkAddr;
use callpath_format::frame::ModuleIndex;

use callpath_schema::{Bounds, NOT_MEASURED, PATH_METRICS, PathCategory, PathMetric, PathTime, calls_were_counted};

use crate::bytes::{KIND_PATHS, Reader, Writer, finished, started};
use crate::context_paths::{self, CountedContext};
use crate::directory::{Measurement, TEMPORARY, read_file, write_file};
use crate::error::MeasurementError;
use crate::path_times;
use crate::ranks::{rank_directories, rank_directory_name};

const PATHS: &str = "paths-";
/// The first address that no module has.
const ADDRESSES_END: u64 = 1 << 48;

/// What was counted in one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathCounts {
    /// The process's number.
    pub pid: u32,
    /// Those that were counted, each once; in a file by module and entry.
    pub procedures: Vec<CountedProcedure>,
    /// Those that were not, and why.
    pub refused: Vec<RefusedProcedure>,
    /// Paths that were begun and not ended: an exception, a `longjmp` or the end of the thread came between.
    pub cut_short: u64,
    /// Counts that are known to be missing: a thread had no memory for them.
    pub lost: u64,
    /// Procedures whose edges were counted, each once; in a file by module and entry.
    pub edges: Vec<CountedEdges>,
    /// The contexts that paths were counted in, if they were: callers before callees.
    pub contexts: Vec<CountedContext>,
    /// What was measured of paths ([`CountedPath::times`]), at most [`PATH_METRICS`].
    pub metrics: Vec<PathMetric>,
}

/// A procedure whose edges were counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedEdges {
    /// Its module, as in the process's file.
    pub module: ModuleIndex,
    /// Its first instruction.
    pub entry: LinkAddr,
    /// How often it was entered there.
    pub entries: u64,
    /// Activations that came and did not leave. `None`: that is not known.
    pub cut_short: Option<u64>,
    /// Where its blocks begin that were executed, and how often each was.
    pub blocks: Vec<(LinkAddr, Bounds)>,
    /// The edges that were passed.
    pub edges: Vec<CountedEdge>,
}

/// An edge that was passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedEdge {
    /// Where the block begins that it comes from.
    pub from: LinkAddr,
    /// Where those begin that it leads to, together. None: out of the procedure, or control does not continue.
    pub to: Vec<LinkAddr>,
    /// Whether it leads back into a loop.
    pub is_back: bool,
    /// How often.
    pub executions: Bounds,
}

/// A procedure whose paths were counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedProcedure {
    /// Its module, as in the process's file.
    pub module: ModuleIndex,
    /// Its first instruction.
    pub entry: LinkAddr,
    /// How many paths its numbering has.
    pub possible: u64,
    /// Edges at which its graph was cut to have no more.
    pub cuts: u32,
    /// Those that were executed, each once; in a file by number.
    pub paths: Vec<CountedPath>,
}

/// A path that was executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedPath {
    /// Its number, less than the procedure's `possible`.
    pub number: u64,
    /// Where it begins and ends.
    pub category: PathCategory,
    /// Where its blocks begin, in order; at least one.
    pub blocks: Vec<LinkAddr>,
    /// How often it was executed.
    pub executions: u64,
    /// What executions of it took, of each metric that was measured.
    pub times: [PathTime; PATH_METRICS],
}

/// A procedure whose paths were not counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RefusedProcedure {
    /// Its module, as in the process's file.
    pub module: ModuleIndex,
    /// Its first instruction.
    pub entry: LinkAddr,
    /// Why not.
    pub reason: String,
}

impl RefusedProcedure {
    /// Whether its calls were counted.
    pub fn has_calls(&self) -> bool {
        calls_were_counted(&self.reason)
    }

    /// Whether they were, and were not measured.
    pub fn is_unmeasured(&self) -> bool {
        self.reason.starts_with(NOT_MEASURED)
    }
}

impl CountedProcedure {
    /// Its paths by number.
    pub(crate) fn in_order(&self) -> Vec<&CountedPath> {
        let mut paths: Vec<&CountedPath> = self.paths.iter().collect();
        paths.sort_by_key(|path| path.number);
        paths
    }
}

impl PathCounts {
    /// Whether edges were counted.
    pub fn is_of_edges(&self) -> bool {
        self.edges.iter().any(|counted| !counted.blocks.is_empty())
    }

    /// Whether paths or edges were counted, and not calls alone.
    pub fn has_paths(&self) -> bool {
        !self.edges.is_empty() || self.procedures.iter().any(|procedure| procedure.possible > 0)
    }
}

/// The name of the file with what was counted in a process.
pub fn paths_file_name(sequence: u32, pid: u32) -> String {
    format!("{PATHS}{sequence}-{pid}")
}

impl PathCounts {
    /// The file's bytes. Whatever the order of procedures and paths, they stand there in order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = started(KIND_PATHS);
        for number in [u64::from(self.pid), self.cut_short, self.lost, self.procedures.len() as u64] {
            w.number(number);
        }
        let mut procedures: Vec<&CountedProcedure> = self.procedures.iter().collect();
        procedures.sort_by_key(|procedure| (procedure.module, procedure.entry.0));
        let mut last = 0;
        for procedure in &procedures {
            w.number(u64::from(procedure.module.0));
            put_distance(&mut w, &mut last, procedure.entry);
            write_paths(&mut w, procedure);
        }
        w.number(self.refused.len() as u64);
        for RefusedProcedure { module, entry, reason } in &self.refused {
            w.number(u64::from(module.0));
            put_distance(&mut w, &mut last, *entry);
            w.string(reason);
        }
        // Where paths alone are counted there is nothing of edges, contexts and times.
        let (has_contexts, is_timed) = (!self.contexts.is_empty(), !self.metrics.is_empty());
        if !self.edges.is_empty() || has_contexts || is_timed {
            write_edges(&mut w, &self.edges, &mut last);
        }
        if has_contexts || is_timed {
            context_paths::write(&mut w, &self.contexts);
        }
        if is_timed {
            path_times::write(&mut w, &self.metrics, &procedures);
        }
        finished(w)
    }

    /// From a file's bytes. `path` is for errors only.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<PathCounts, MeasurementError> {
        let mut r = Reader::open(bytes, path, KIND_PATHS)?;
        let pid = u32::try_from(r.number()?).map_err(|_| r.error("number of a process"))?;
        let mut counts = PathCounts { pid, cut_short: r.number()?, lost: r.number()?, ..PathCounts::default() };
        let mut last = 0;
        for _ in 0..r.count(5)? {
            let module = module(&mut r)?;
            let entry = take_distance(&mut r, &mut last)?;
            let before = counts.procedures.last().map(|before| (before.module, before.entry.0));
            if before.is_some_and(|before| before >= (module, entry.0)) {
                return Err(r.error("order of procedures"));
            }
            let possible = r.number()?;
            let cuts = u32::try_from(r.number()?).map_err(|_| r.error("number of cuts"))?;
            let paths = read_paths(&mut r, entry, possible)?;
            counts.procedures.push(CountedProcedure { module, entry, possible, cuts, paths });
        }
        for _ in 0..r.count(3)? {
            let module = module(&mut r)?;
            let entry = take_distance(&mut r, &mut last)?;
            counts.refused.push(RefusedProcedure { module, entry, reason: r.string()? });
        }
        if !r.is_at_end() {
            counts.edges = read_edges(&mut r, &mut last)?;
        }
        if !r.is_at_end() {
            counts.contexts = context_paths::read(&mut r)?;
        }
        if !r.is_at_end() {
            counts.metrics = path_times::read(&mut r, &mut counts.procedures)?;
        }
        r.finish()?;
        Ok(counts)
    }

    /// Writes it beside the process's file: a reader sees the one before or this one.
    pub fn write(&self, directory: &Path, sequence: u32) -> Result<(), MeasurementError> {
        write_file(directory, &paths_file_name(sequence, self.pid), &self.to_bytes())
    }
}

fn write_paths(w: &mut Writer, procedure: &CountedProcedure) {
    w.number(procedure.possible);
    w.number(u64::from(procedure.cuts));
    w.number(procedure.paths.len() as u64);
    let mut next = 0u64;
    for CountedPath { number, category, blocks, executions, .. } in procedure.in_order() {
        w.number(number.wrapping_sub(next));
        next = number.wrapping_add(1);
        w.number(*category as u64);
        w.number(*executions);
        w.number(blocks.len() as u64);
        let mut last = procedure.entry.0;
        for block in blocks {
            put_distance(w, &mut last, *block);
        }
    }
}

/// The paths of the procedure that begins at `entry` and has `possible` ones.
fn read_paths(r: &mut Reader<'_>, entry: LinkAddr, possible: u64) -> Result<Vec<CountedPath>, MeasurementError> {
    let (mut paths, mut next) = (Vec::new(), 0u64);
    for _ in 0..r.count(5)? {
        let number = next.checked_add(r.number()?).filter(|number| *number < possible);
        let number = number.ok_or_else(|| r.error("number of a path"))?;
        next = number + 1;
        let category = usize::try_from(r.number()?).ok().and_then(|at| PathCategory::ALL.get(at).copied());
        let category = category.ok_or_else(|| r.error("category of a path"))?;
        let executions = r.number()?;
        let mut last = entry.0;
        let len = r.count(1)?;
        if len == 0 {
            return Err(r.error("path without a block"));
        }
        let mut blocks = Vec::with_capacity(len);
        for _ in 0..len {
            blocks.push(take_distance(r, &mut last)?);
        }
        paths.push(CountedPath { number, category, blocks, executions, times: [PathTime::default(); PATH_METRICS] });
    }
    Ok(paths)
}

fn write_edges(w: &mut Writer, procedures: &[CountedEdges], last: &mut u64) {
    w.number(procedures.len() as u64);
    let mut procedures: Vec<&CountedEdges> = procedures.iter().collect();
    procedures.sort_by_key(|procedure| (procedure.module, procedure.entry.0));
    for CountedEdges { module, entry, entries, cut_short, blocks, edges } in procedures {
        w.number(u64::from(module.0));
        put_distance(w, last, *entry);
        w.number(*entries);
        w.number(cut_short.map_or(0, |count| count.saturating_add(1)));
        w.number(blocks.len() as u64);
        for (block, executions) in blocks {
            put_distance(w, last, *block);
            write_bounds(w, *executions);
        }
        w.number(edges.len() as u64);
        for CountedEdge { from, to, is_back, executions } in edges {
            put_distance(w, last, *from);
            w.number(u64::from(*is_back));
            w.number(to.len() as u64);
            to.iter().for_each(|to| put_distance(w, last, *to));
            write_bounds(w, *executions);
        }
    }
}

fn read_edges(r: &mut Reader<'_>, last: &mut u64) -> Result<Vec<CountedEdges>, MeasurementError> {
    let mut procedures: Vec<CountedEdges> = Vec::new();
    for _ in 0..r.count(6)? {
        let module = module(r)?;
        let entry = take_distance(r, last)?;
        let before = procedures.last().map(|before| (before.module, before.entry.0));
        if before.is_some_and(|before| before >= (module, entry.0)) {
            return Err(r.error("order of procedures"));
        }
        let (entries, cut_short) = (r.number()?, r.number()?.checked_sub(1));
        let mut blocks = Vec::new();
        for _ in 0..r.count(3)? {
            blocks.push((take_distance(r, last)?, read_bounds(r)?));
        }
        let mut edges = Vec::new();
        for _ in 0..r.count(5)? {
            let from = take_distance(r, last)?;
            let is_back = r.number()? != 0;
            let mut to = Vec::new();
            for _ in 0..r.count(1)? {
                to.push(take_distance(r, last)?);
            }
            edges.push(CountedEdge { from, to, is_back, executions: read_bounds(r)? });
        }
        procedures.push(CountedEdges { module, entry, entries, cut_short, blocks, edges });
    }
    Ok(procedures)
}

/// The least number; then 0 if the greatest is not known, else 1 and how far it is above.
fn write_bounds(w: &mut Writer, bounds: Bounds) {
    w.number(bounds.least);
    w.number(bounds.most.map_or(0, |most| most.saturating_sub(bounds.least).saturating_add(1)));
}

fn read_bounds(r: &mut Reader<'_>) -> Result<Bounds, MeasurementError> {
    let least = r.number()?;
    let most = match r.number()?.checked_sub(1) {
        None => None,
        Some(above) => Some(least.checked_add(above).ok_or_else(|| r.error("bounds of a count"))?),
    };
    Ok(Bounds { least, most })
}

/// An address as its distance from the last one: twice that, or twice the distance backwards less 1.
fn put_distance(w: &mut Writer, last: &mut u64, address: LinkAddr) {
    let distance = address.0.wrapping_sub(*last) as i64;
    w.number(((distance << 1) ^ (distance >> 63)) as u64);
    *last = address.0;
}

fn take_distance(r: &mut Reader<'_>, last: &mut u64) -> Result<LinkAddr, MeasurementError> {
    let written = r.number()?;
    let address = last.wrapping_add((written >> 1) ^ (written & 1).wrapping_neg());
    if address >= ADDRESSES_END {
        return Err(r.error("address"));
    }
    *last = address;
    Ok(LinkAddr(address))
}

fn module(r: &mut Reader<'_>) -> Result<ModuleIndex, MeasurementError> {
    u16::try_from(r.number()?).map(ModuleIndex).map_err(|_| r.error("module"))
}

/// What was counted in the processes of a measurement.
#[derive(Debug, Default)]
pub struct MeasuredPaths {
    /// In the order of the processes: the index in [`Measurement::processes`], and what was counted there.
    pub processes: Vec<(usize, PathCounts)>,
    /// Files that could not be read, or belong to no process that could.
    pub unreadable: Vec<MeasurementError>,
}

impl Measurement {
    /// Reads what was counted exactly. Nothing if that was not asked for.
    pub fn read_paths(&self) -> Result<MeasuredPaths, MeasurementError> {
        let mut paths = MeasuredPaths::default();
        match &self.ranks {
            None => self.read_paths_in(&self.directory, (None, 0), &mut paths)?,
            Some(ranks) => {
                for rank in &ranks.there {
                    let directory = self.directory.join(rank_directory_name(rank.rank));
                    self.read_paths_in(&directory, (Some(rank.rank), rank.first_sequence), &mut paths)?;
                }
            }
        }
        paths.processes.sort_by_key(|(process, _)| *process);
        Ok(paths)
    }

    /// Those of one recorder, whose processes are of the rank `of.0` and are numbered from `of.1` here.
    fn read_paths_in(
        &self,
        directory: &Path,
        of: (Option<u32>, u32),
        paths: &mut MeasuredPaths,
    ) -> Result<(), MeasurementError> {
        let (rank, first) = of;
        let read = |source| MeasurementError::Read { path: directory.to_owned(), source };
        for entry in fs::read_dir(directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if !is_paths_file(&path) {
                continue;
            }
            let bytes = read_file(&path).map_err(|source| MeasurementError::Read { path: path.clone(), source });
            let counts = match bytes.and_then(|bytes| PathCounts::from_bytes(&bytes, &path)) {
                Ok(counts) => counts,
                Err(error) => {
                    paths.unreadable.push(error);
                    continue;
                }
            };
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let process = self.processes.iter().position(|process| {
                let name_of = process.sequence.checked_sub(first).map(|own| paths_file_name(own, process.pid));
                process.rank == rank && process.pid == counts.pid && name_of.as_ref() == Some(&name)
            });
            match process {
                Some(process) => paths.processes.push((process, counts)),
                None => paths.unreadable.push(MeasurementError::NoProcess { path, pid: counts.pid }),
            }
        }
        Ok(())
    }
}

/// Whether paths were counted in a measurement, as far as the names of its files tell.
pub fn has_paths(directory: &Path) -> bool {
    let mut of_ranks = rank_directories(directory).into_iter();
    let has_any = |directory: &Path| {
        fs::read_dir(directory).is_ok_and(|entries| entries.flatten().any(|entry| is_paths_file(&entry.path())))
    };
    has_any(directory) || of_ranks.any(|(_, directory)| has_any(&directory))
}

fn is_paths_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(PATHS) && !name.ends_with(TEMPORARY)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use callpath_format::frame::FrameKey;
    use callpath_schema::{MeasuredTime, Metric, MetricId, TimesAccount};

    use crate::bytes::HEADER_BYTES;
    use crate::{
        JOB_FILE, Job, ProcessFile, SessionFile, encode_job, encode_process, encode_session, process_file_name,
    };

    fn path(number: u64, category: PathCategory, blocks: &[u64]) -> CountedPath {
        let blocks = blocks.iter().copied().map(LinkAddr).collect();
        let usual = MeasuredTime { measured: 1, weight: 1, time_ns: 12, spread: [0; 3] };
        let long = MeasuredTime { measured: 3, weight: 1027, time_ns: u64::MAX, spread: [1 << 20, 7, u128::MAX] };
        let time = match number {
            0 => PathTime { usual, ..PathTime::default() },
            77 => PathTime { usual, long },
            _ => PathTime::default(),
        };
        let times = [time, PathTime { usual: time.long, long: time.usual }];
        CountedPath { number, category, blocks, executions: 1 << (number % 64), times }
    }

    /// Counts of process 4711, everything in them.
    pub(crate) fn counts() -> PathCounts {
        let procedure = |module, entry, paths| CountedProcedure {
            module: ModuleIndex(module),
            entry: LinkAddr(entry),
            possible: 1 << 32,
            cuts: 2,
            paths,
        };
        PathCounts {
            pid: 4711,
            procedures: vec![
                procedure(0, 0x401_000, vec![]),
                procedure(
                    0,
                    0x401_100,
                    vec![
                        path(0, PathCategory::EntryExit, &[0x401_100]),
                        path(1, PathCategory::EntryBack, &[0x401_100, 0x401_140, 0x401_108]),
                        path(77, PathCategory::HeadBack, &[0x401_108, 0x400_f00]),
                        path((1 << 32) - 1, PathCategory::HeadExit, &[0x401_108, 0xffff_ffff_ffff]),
                    ],
                ),
                procedure(3, 0x20, vec![path(5, PathCategory::EntryExit, &[0x20, 0x31])]),
            ],
            refused: vec![RefusedProcedure {
                module: ModuleIndex(3), entry: LinkAddr(0x99), reason: "jumps ä".into()
            }],
            cut_short: 12,
            lost: u64::MAX,
            edges: vec![
                CountedEdges {
                    module: ModuleIndex(0),
                    entry: LinkAddr(0x401_200),
                    entries: 7,
                    cut_short: Some(0),
                    blocks: vec![(LinkAddr(0x401_200), Bounds::exactly(7))],
                    edges: vec![CountedEdge {
                        from: LinkAddr(0x401_200),
                        to: vec![],
                        is_back: false,
                        executions: Bounds::exactly(7),
                    }],
                },
                CountedEdges {
                    module: ModuleIndex(3),
                    entry: LinkAddr(0x40),
                    entries: 0,
                    cut_short: None,
                    blocks: vec![
                        (LinkAddr(0x48), Bounds { least: 1, most: None }),
                        (LinkAddr(0x40), Bounds { least: 2, most: Some(9) }),
                    ],
                    edges: vec![CountedEdge {
                        from: LinkAddr(0x48),
                        to: vec![LinkAddr(0x40), LinkAddr(0x50)],
                        is_back: true,
                        executions: Bounds { least: 0, most: Some(u64::MAX - 1) },
                    }],
                },
            ],
            contexts: contexts(),
            metrics: ["cpu-time", "page-faults"]
                .map(|name| PathMetric { name: name.into(), account: TimesAccount { lost: 3, clock_ns: 19 } })
                .into(),
        }
    }

    /// Below the root of full paths two calls, in the inner one of which paths were counted; and below that of partial ones a procedure.
    fn contexts() -> Vec<CountedContext> {
        let context = |parent, frame: FrameKey, paths: &[(u64, u64)]| CountedContext {
            parent,
            is_partial: false,
            frame,
            cut_short: paths.len() as u64,
            paths: paths.to_vec(),
        };
        let frame = |module, address| FrameKey::in_module(ModuleIndex(module), LinkAddr(address));
        vec![
            context(None, frame(0, 0x401_20f), &[]),
            context(Some(0), frame(3, 0x2f), &[]),
            context(Some(1), frame(0, 0x401_100), &[(0, 1), (1, 2), ((1 << 32) - 1, u64::MAX)]),
            context(Some(0), frame(3, 0x20), &[(5, 32)]),
            CountedContext { is_partial: true, ..context(None, frame(3, 0x20), &[(5, 1)]) },
            context(Some(4), FrameKey::outside(callpath_format::address::RunAddr(0x7fff_0000_1000)), &[]),
            context(None, frame(3, 0x20), &[]),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        let (whole, name) = (counts().to_bytes(), Path::new("f"));
        assert_eq!(PathCounts::from_bytes(&whole, name).unwrap(), counts());
        let mut shuffled = counts();
        shuffled.procedures.reverse();
        shuffled.procedures.iter_mut().for_each(|procedure| procedure.paths.reverse());
        assert_eq!(shuffled.to_bytes(), whole);
        assert_eq!(PathCounts::from_bytes(&PathCounts::default().to_bytes(), name).unwrap(), PathCounts::default());
        let in_contexts = PathCounts { edges: vec![], ..counts() };
        assert_eq!(PathCounts::from_bytes(&in_contexts.to_bytes(), name).unwrap(), in_contexts);
        let timed = PathCounts { edges: vec![], contexts: vec![], ..counts() };
        assert_eq!(PathCounts::from_bytes(&timed.to_bytes(), name).unwrap(), timed);
        // As it was before there were other metrics: what was written then is read.
        let account = TimesAccount { lost: 3, clock_ns: 19 };
        let of = |name: &str| PathMetric { name: name.into(), account };
        let old = PathCounts { pid: 1, metrics: vec![of("wall-time")], ..PathCounts::default() };
        assert_eq!(old.to_bytes()[HEADER_BYTES..], [1, 0, 0, 0, 0, 0, 0, 3, 19]);
        let new = PathCounts { metrics: vec![of("wall-time"), of("x")], ..old };
        let mut body = vec![1, 0, 0, 0, 0, 0, 0, 3, 19, 2, 9];
        body.extend(b"wall-time\x01x\x03\x13");
        assert_eq!(new.to_bytes()[HEADER_BYTES..], body);
        // Of one metric alone, which needs no name if it is the usual one.
        let of_one = |name: &str| {
            let mut counts = counts();
            counts.metrics.truncate(1);
            counts.metrics[0].name = name.into();
            let paths = counts.procedures.iter_mut().flat_map(|procedure| &mut procedure.paths);
            paths.for_each(|path| path.times[1] = PathTime::default());
            counts
        };
        let [wall, cpu] = ["wall-time", "cpu-time"].map(of_one);
        for counts in [&wall, &cpu] {
            assert_eq!(PathCounts::from_bytes(&counts.to_bytes(), name).unwrap(), *counts);
        }
        assert_eq!(cpu.to_bytes().len(), wall.to_bytes().len() + 2 + "cpu-time".len());
        let mut untimed = PathCounts { metrics: Vec::new(), ..counts() };
        for path in untimed.procedures.iter_mut().flat_map(|procedure| &mut procedure.paths) {
            path.times = [PathTime::default(); PATH_METRICS];
        }
        assert_eq!(PathCounts::from_bytes(&untimed.to_bytes(), name).unwrap(), untimed);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        let (whole, name) = (counts().to_bytes(), Path::new("F"));
        for len in 0..whole.len() {
            assert!(PathCounts::from_bytes(&whole[..len], name).is_err(), "cut at {len}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x41;
            let error = PathCounts::from_bytes(&changed, name).unwrap_err().to_string();
            assert!(error.starts_with("read F: "), "changed at {at}: {error}");
        }
        assert!(crate::decode_process(&whole, name).is_err(), "it is another kind of file");
    }

    #[test]
    fn nonsense_behind_a_right_checksum_is_named() {
        let error = |change: fn(&mut PathCounts)| {
            let mut counts = counts();
            change(&mut counts);
            PathCounts::from_bytes(&counts.to_bytes(), Path::new("F")).unwrap_err().to_string()
        };
        let is = |said: String, what: &str| assert!(said.ends_with(&format!("({what})")), "{said}, not {what}");
        is(error(|counts| counts.procedures[1].possible = 77), "number of a path");
        is(error(|counts| counts.procedures[1].paths[0].number = 1), "number of a path");
        is(error(|counts| counts.procedures[0].entry.0 = 0x401_100), "order of procedures");
        is(error(|counts| counts.procedures[1].paths[1].blocks.clear()), "path without a block");
        is(error(|counts| counts.procedures[1].paths[1].blocks[1].0 = 1 << 48), "address");
        is(error(|counts| counts.refused[0].entry.0 = 1 << 63), "address");
        is(error(|counts| counts.edges[1].entry.0 = 0x401_200 | 1 << 48), "address");
        is(error(|counts| counts.edges[1] = counts.edges[0].clone()), "order of procedures");
        is(error(|counts| counts.procedures[1].paths[2].times[0].long.weight = 2), "weight of times");
        is(error(|counts| counts.contexts[2].paths[0].0 = u64::MAX), "number of a path");
        is(error(|counts| counts.contexts[2].paths[1].0 = 0), "number of a path");
        let mut whole = counts().to_bytes();
        whole.truncate(HEADER_BYTES);
        let len = whole.len() as u64;
        whole[crate::bytes::LENGTH_AT..24].copy_from_slice(&len.to_le_bytes());
        whole[24..].copy_from_slice(&xxhash_rust::xxh3::xxh3_64(&[]).to_le_bytes());
        let error = PathCounts::from_bytes(&whole, Path::new("F")).unwrap_err().to_string();
        assert_eq!(error, "read F: nonsense at byte 32 (number)");
    }

    fn measured(directory: &Path, pids: &[u32]) {
        let metrics = vec![Metric::of(MetricId::CPU_TIME)];
        let session = SessionFile { metrics, processes: pids.len() as u64, ..SessionFile::default() };
        write_file(directory, Measurement::SESSION_FILE, &encode_session(&session)).unwrap();
        for (sequence, &pid) in (0u32..).zip(pids) {
            let process = encode_process(&ProcessFile { sequence, pid, ..ProcessFile::default() });
            write_file(directory, &process_file_name(sequence, pid), &process).unwrap();
        }
    }

    fn with_pid(pid: u32) -> PathCounts {
        PathCounts { pid, ..counts() }
    }

    #[test]
    fn counts_are_found_by_their_process() {
        let directory = tempfile::tempdir().unwrap();
        measured(directory.path(), &[5, 6, 5]);
        let read = || Measurement::read(directory.path()).unwrap();
        assert!(!has_paths(directory.path()) && read().read_paths().unwrap().processes.is_empty());
        for (sequence, pid) in [(2, 5), (1, 6)] {
            with_pid(pid).write(directory.path(), sequence).unwrap();
        }
        // Of a process that is not there, of one whose number does not match, and a damaged one.
        with_pid(5).write(directory.path(), 3).unwrap();
        fs::write(directory.path().join("paths-0-9"), with_pid(5).to_bytes()).unwrap();
        fs::write(directory.path().join("paths-0-5"), &with_pid(5).to_bytes()[..40]).unwrap();
        fs::write(directory.path().join("paths-0-5.new"), "half").unwrap();
        let paths = read().read_paths().unwrap();
        assert!(has_paths(directory.path()));
        assert_eq!(paths.processes, [(1, with_pid(6)), (2, with_pid(5))]);
        let mut said: Vec<String> = paths.unreadable.iter().map(ToString::to_string).collect();
        said.sort();
        let [cut, other, unknown] = &said[..] else { panic!("{said:?}") };
        assert!(cut.contains("paths-0-5: it ends at byte 40"), "{cut}");
        assert!(other.contains("paths-0-9: it is of process 5"), "{other}");
        assert!(unknown.contains("paths-3-5: it is of process 5"), "{unknown}");
    }

    #[test]
    fn ranks_have_their_own_counts() {
        let directory = tempfile::tempdir().unwrap();
        let job = Job { launcher: "test".into(), id: "7".into(), size: Some(2) };
        write_file(directory.path(), JOB_FILE, &encode_job(&job, None)).unwrap();
        for rank in 0..2 {
            let path = directory.path().join(rank_directory_name(rank));
            fs::create_dir(&path).unwrap();
            write_file(&path, JOB_FILE, &encode_job(&job, Some(rank))).unwrap();
            measured(&path, &[100, 101]);
            PathCounts { cut_short: u64::from(rank), ..with_pid(101) }.write(&path, 1).unwrap();
        }
        let read = Measurement::read(directory.path()).unwrap();
        assert!(has_paths(directory.path()));
        let paths = read.read_paths().unwrap();
        let found: Vec<_> = paths.processes.iter().map(|(at, counts)| (*at, counts.pid, counts.cut_short)).collect();
        assert_eq!(found, [(1, 101, 0), (3, 101, 1)]);
        assert!(paths.unreadable.is_empty());
    }
}
