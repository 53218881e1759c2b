//! From a measurement to a profile: each frame gets its procedure's name and source line.

mod code;
mod notes;
mod options;
mod pack;
mod thread;

use std::path::PathBuf;

use callpath_db::columns_for;
use callpath_db::{Handlers, Links, MetricSource, NodeId, ProcessInfo, Profile, Quality, RunInfo, Scope, ScopeKind};
use callpath_format::shared::thread::Dropped;
use callpath_image::exports::Export;
use code::Code;
pub(crate) use code::{Identities, identity_of_file, is_ours, name_at, name_outside, page_without_file};
use notes::{code_notes, describe};
pub use options::{AttributeOptions, PRELOAD_PREFIX, Progress};
pub use pack::fuzz_pack;
use pack::{Facts, Pack, Unpacked};
use thread::{Adder, Merged};

use crate::links::{LinkRater, Modules};
use crate::names::ModuleNames;
use callpath_format::frame::FrameKey;
use callpath_measurement::{Measurement, MeasurementError, NOT_WALKED, PackFile, ProcessFile, SampleTally, is_number};
use callpath_schema::{Metric, MetricId, ProbeAccount};
use rustc_hash::FxHashSet;

/// The profile of a measurement.
pub fn attribute(measurement: &Measurement, options: &AttributeOptions, progress: Progress<'_>) -> Profile {
    let mut found = Attribution::new(measurement);
    found.code.read(options, progress);
    let (mut profile, notes) = found.profile(measurement);
    profile.info.notes.extend(notes);
    profile
}

/// The same of a measurement whose paths were inferred: of those callers it has procedures, and no places in them. `inferred`: by process, their
/// frames.
pub(crate) fn attribute_inferred(
    measurement: &Measurement,
    inferred: &[FxHashSet<FrameKey>],
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Profile {
    let mut found = Attribution { inferred: Some(inferred), ..Attribution::new(measurement) };
    found.code.read(options, progress);
    let (mut profile, notes) = found.profile(measurement);
    profile.info.notes.extend(notes);
    profile
}

/// A profile with what [`attribute_packed`] gives it from.
pub struct Packed {
    /// The profile.
    pub profile: Profile,
    /// Not yet written.
    pub pack: PackFile,
    /// Files of code that samples met, but of which nothing is known: they are gone, or of another build than ran.
    pub unusable: Vec<PathBuf>,
}

/// [`attribute`], and what gives the same profile without the modules' files.
pub fn attribute_and_pack(measurement: &Measurement, options: &AttributeOptions, progress: Progress<'_>) -> Packed {
    let mut found = Attribution::new(measurement);
    found.code.read(options, progress);
    let (mut profile, notes) = found.profile(measurement);
    let facts = Facts {
        code: &found.code,
        ratings: found.merged.rater.ratings(),
        arguments: &found.merged.arguments,
        notes: &notes,
    };
    let pack = PackFile::new(&measurement.directory, |writer| facts.write(writer));
    profile.info.notes.extend(notes);
    Packed { profile, pack, unusable: found.code.unusable() }
}

/// The profile of a measurement with a pack: no module is read.
pub fn attribute_packed(measurement: &Measurement, pack: &PackFile) -> Result<Profile, MeasurementError> {
    let mut found = Attribution::new(measurement);
    let Unpacked { ratings, arguments, notes } = Pack::read(pack.reader()?)?.unpack(&mut found.code);
    found.merged = Merged { rater: LinkRater::with(ratings), arguments, ..Merged::default() };
    let (mut profile, _) = found.profile(measurement);
    profile.info.notes.extend(notes);
    Ok(profile)
}

/// What ran, without what was sampled of it.
pub(crate) fn run_of(measurement: &Measurement) -> RunInfo {
    let mut profile = Profile::new(Vec::new());
    describe(&mut profile, measurement);
    profile.info
}

/// What is found out about the code that a measurement met.
struct Attribution<'i> {
    code: Code,
    merged: Merged,
    /// If paths were inferred: by process, the frames of callers that were.
    inferred: Option<&'i [FxHashSet<FrameKey>]>,
}

impl<'i> Attribution<'i> {
    fn new(measurement: &Measurement) -> Attribution<'i> {
        let mut code = Code::default();
        for process in &measurement.processes {
            let names = measurement.names.iter().find(|names| names.sequence == process.sequence);
            code.enter(process, names);
        }
        Attribution { code, merged: Merged::default(), inferred: None }
    }

    /// The profile, and apart from it the notes on the code.
    fn profile(&mut self, measurement: &Measurement) -> (Profile, Vec<String>) {
        // Ranks may have been recorded by different events each.
        let mut metrics = measurement.session.metrics.clone();
        metrics.retain(|metric| !is_number(metric));
        // What is sampled comes before what probes measure, whose columns come first in the program.
        metrics.sort_by_key(|metric| match metric.source {
            MetricSource::Probes => 1,
            MetricSource::Samples => 2,
            _ => 0,
        });
        let of_process = |process| columns_of(&mut metrics, &measurement.session_of(process).metrics);
        let columns: Vec<Vec<usize>> = measurement.processes.iter().map(of_process).collect();
        let mut profile = Profile::new(metrics);
        for (index, (process, columns)) in measurement.processes.iter().zip(&columns).enumerate() {
            let modules = std::mem::take(&mut self.code.of_processes[index]);
            let inferred = self.inferred.and_then(|inferred| inferred.get(index));
            let found = Attributed { profile: &mut profile, code: &mut self.code, merged: &mut self.merged };
            found.add_process(measurement, process, Recorded { modules: &modules, columns, inferred });
        }
        describe(&mut profile, measurement);
        // Each entry of a probed function that was counted; where nothing else is measured it is a sample.
        let hits =
            if profile.metrics.iter().any(Metric::is_sampled) { calls_of(measurement) } else { profile.quality.taken };
        profile.quality.probes = measurement.session.probes.clone().map(|probes| ProbeAccount { hits, ..probes });
        let notes = code_notes(&profile, measurement, &self.code);
        (profile, notes)
    }
}

/// The profile's column of each of a session's metrics; what is no cost has none that exists.
fn columns_of(all: &mut Vec<Metric>, theirs: &[Metric]) -> Vec<usize> {
    let costs: Vec<Metric> = theirs.iter().filter(|metric| !is_number(metric)).cloned().collect();
    let mut columns = columns_for(all, &costs).into_iter();
    let mut column = |metric| if is_number(metric) { None } else { columns.next() };
    theirs.iter().map(|metric| column(metric).unwrap_or(usize::MAX)).collect()
}

/// How often probed functions were called.
fn calls_of(measurement: &Measurement) -> u64 {
    let of_process = |process: &ProcessFile| {
        let metrics = &measurement.session_of(process).metrics;
        let calls = metrics.iter().position(|metric| metric.id == Some(MetricId::CALLS));
        let total =
            |calls| process.threads.iter().fold(0, |sum: u64, thread| sum.saturating_add(thread.tree.total(calls)));
        calls.map_or(0, total)
    };
    measurement.processes.iter().map(of_process).fold(0, u64::saturating_add)
}

/// What the indices in a process's files stand for.
#[derive(Clone, Copy)]
struct Recorded<'a> {
    /// The code of each of its modules.
    modules: &'a [usize],
    /// The profile's column of each of its session's metrics.
    columns: &'a [usize],
    /// If its paths were inferred, the frames of callers that were.
    inferred: Option<&'a FxHashSet<FrameKey>>,
}

/// What processes are added to.
struct Attributed<'p> {
    profile: &'p mut Profile,
    code: &'p mut Code,
    merged: &'p mut Merged,
}

impl Attributed<'_> {
    /// Adds a process.
    fn add_process(self, measurement: &Measurement, process: &ProcessFile, recorded: Recorded<'_>) {
        let Attributed { profile, code, merged } = self;
        let session = measurement.session_of(process);
        let above = match process.rank {
            Some(rank) => {
                let name = profile.strings.intern(&rank.to_string());
                profile.tree.child(NodeId::ROOT, Scope::rank(name, rank))
            }
            None => NodeId::ROOT,
        };
        let name = process.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let scope = Scope::process(profile.strings.intern(&name), 0, process.pid);
        let process_node = profile.tree.child(above, scope);
        // A rank may have begun later than the first.
        let since = session.started_unix_ns.saturating_sub(measurement.session.started_unix_ns);
        let mut quality = Quality::default();
        let mut threads = 0;
        let several = process.threads.iter().filter(|thread| thread.count > 1);
        let merged_threads = several.map(|thread| (thread.tid, thread.count)).collect();
        for thread in &process.threads {
            add_tally(&mut quality, &thread.tally);
            threads = thread.count.saturating_add(threads);
            let label = if thread.name.is_empty() { &name } else { &thread.name };
            let mut scope = Scope::new(ScopeKind::Thread, profile.strings.intern(label));
            scope.discriminator = u64::from(thread.tid);
            let thread_node = profile.tree.child(process_node, scope);
            let column_of = |metric: usize| recorded.columns.get(metric).copied();
            let of_procedure = session.metrics.iter().enumerate();
            let of_procedure = of_procedure.filter(|(_, metric)| metric.is_of_procedure && !is_number(metric));
            let of_procedure = of_procedure.filter_map(|(metric, _)| column_of(metric)).collect();
            let samples = session.metrics.iter().position(|metric| metric.source == MetricSource::Samples);
            let samples = samples.and_then(column_of);
            let is_walked = recorded.inferred.is_none() && !session.notes.iter().any(|note| note == NOT_WALKED);
            let adder = Adder { profile, code, merged, recorded, samples, of_procedure, is_walked };
            let found = adder.add(thread_node, thread.start, &thread.tree);
            quality.add(&Quality { links: found.links, ..Quality::default() });
            let broken = found.broken_samples.min(quality.full);
            quality.full -= broken;
            quality.partial += broken;
        }
        let unrecorded = SampleTally {
            taken: process.dropped_unrecorded.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)),
            dropped: process.dropped_unrecorded,
            ..SampleTally::default()
        };
        add_tally(&mut quality, &unrecorded);
        profile.quality.add(&quality);
        profile.info.processes.push(ProcessInfo {
            run: 0,
            rank: process.rank,
            pid: process.pid,
            parent_pid: process.parent_pid,
            name,
            command: process.command.clone(),
            control_group: process.control_group.clone(),
            started_ns: process.started_ns.saturating_add(since),
            duration_ns: process.ended_ns.unwrap_or(session.duration_ns).saturating_sub(process.started_ns),
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            merged_threads,
            // A process that a fork made is a new one, even where the kernel gives a number again.
            continues: !process.forked
                && profile
                    .info
                    .processes
                    .iter()
                    .any(|earlier| (earlier.rank, earlier.pid) == (process.rank, process.pid)),
            quality,
        });
    }
}

fn add_tally(quality: &mut Quality, tally: &SampleTally) {
    let named = Dropped::NAMES.iter().copied().zip(tally.dropped).chain([("unfinished", tally.unfinished)]);
    quality.add(&Quality {
        taken: tally.taken,
        full: tally.full,
        partial: tally.partial,
        raw_kept: tally.raw_kept,
        dropped: named.filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.to_owned(), count)).collect(),
        links: Links::default(),
        overhead_ns: tally.handler_ns,
        handlers: Handlers { longest_ns: tally.handler_max_ns, histogram: tally.handler_histogram.clone() },
        probes: None,
        exact: None,
        inferred: None,
    });
}

impl Modules for Code {
    fn count(&self) -> usize {
        self.modules.len()
    }

    fn names(&self, module: usize) -> Option<&ModuleNames> {
        self.modules.get(module)?.names.as_ref()
    }

    fn exports(&self, module: usize, name: &str) -> Option<&[Export]> {
        self.modules.get(module)?.exports(name)
    }
}

#[cfg(test)]
mod tests;
