//! `callpath record`: options in, a recording out, the program's own exit status back.

mod attached;
mod mapped;
mod measured;
mod padded;
mod perf_options;
mod rank;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attached::Attaching;
use callpath_analyze::exact::guide;
use callpath_db::nearest;
use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_measurement::{Measurement, plain};
use callpath_record::{
    Chooser as _, Counting, Event, EventError, ExactCounts, ExactKind, ExactKinds, FromOutside, HIGHEST_RATE,
    MAX_EVENTS, ProbeMetric, ProbedProcess, ProbesBesideSamples, RecordError, RecordOptions, Recorded, Sentinel,
    Unsaid, Unwind, offered_events, parse_events, probe_events, record, record_exactly, record_resized,
    record_with_probes,
};
use callpath_tables::guide::Guide;
use callpath_target::TargetError;
use callpath_view::text::shell_word;
use mapped::Mapped;
use measured::Measuring;
use padded::Padded;
use perf_options::Record;
pub(crate) use rank::{NO_RANK, own as own_rank};

use super::number;
use super::perf_options::PerfOptions;
use super::probe::{Choice, metric, say_probed};
use super::profile::load_and_pack;
use super::recursion::{RecordedRecursion, RecursionArgument};
use crate::outcome::{Failure, Outcome};
use crate::{memory, output, preload, surroundings};

/// Our own failures: anything, a program that cannot be run, one that is not there.
pub(crate) const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(clap::Args)]
#[command(
    override_usage = "callpath record [OPTIONS] [--] PROGRAM [ARGUMENT]...\n       callpath record [OPTIONS] -p PID[,PID]..."
)]
pub(crate) struct Arguments {
    /// Event to sample, with a period (@1000000: nanoseconds or events) or a rate (@f1000) of its own if it has one;
    /// may be repeated. `callpath list` names the events [default: cpu-time]
    #[arg(short, long = "event", value_name = "EVENT[@PERIOD|@fRATE]", env = "CALLPATH_EVENT")]
    event: Vec<String>,
    /// Samples a second of each thread; 0 with --exact: none, exact counts alone [default: 1000]
    #[arg(short = 'F', long = "freq", value_name = "RATE", env = "CALLPATH_FREQ", value_parser = rate)]
    rate: Option<u64>,
    /// Nanoseconds or events from one sample to the next
    #[arg(short = 'c', long = "count", value_name = "PERIOD", conflicts_with = "rate", value_parser = number::whole::<u64>)]
    period: Option<u64>,
    /// Measurement directory; it must not exist, except that the ranks of one MPI job share it [default:
    /// ./<program>-<pid>.callpath, of ranks ./<program>-job-<id>.callpath]
    #[arg(short, long, value_name = "DIR", env = "CALLPATH_OUTPUT")]
    output: Option<PathBuf>,
    /// When to mark return addresses, so that a sample walks only the new part of the stack: `auto` on deep stacks,
    /// `always` on all stacks (which also counts returns), or `never`
    #[arg(long, value_name = "WHEN", default_value = "auto", env = "CALLPATH_SENTINEL")]
    sentinel: SentinelArgument,
    /// What to keep of recursive paths: `full` (every frame), `collapse` (a call that is already on the path continues
    /// there) or `suffix:N` (the innermost N frames); with --exact=calls also `backedges`: a procedure that is called
    /// while it is active counts in the context of its outermost activation, so that recursion makes no new contexts
    #[arg(long, value_name = "WHAT", default_value = "full", env = "CALLPATH_RECURSION")]
    recursion: RecordedRecursion,
    /// How call paths are found: `walk` walks the stack at each sample; `infer` keeps the procedure and how high the stack is alone, of which
    /// `callpath report --map MAP` tells the path; `both` walks, and keeps the height, too (docs/inference.md). With --probe, `infer` also
    /// holds for calls
    #[arg(long, value_name = "HOW", default_value = "walk", conflicts_with = "exact")]
    unwind: UnwindArgument,
    /// Keep this map (callpath map train) with the measurement: reports find the call paths of its samples there
    #[arg(long, value_name = "MAP", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["exact", "pack"])]
    map: Option<PathBuf>,
    /// With --unwind=infer and --map, what to do with a sample that the map has no one path for: `keep` its procedure and height alone, or
    /// `walk` its stack, inside the program, up to the first frame that the map has one path for (docs/inference.md)
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "keep",
        requires = "map",
        conflicts_with_all = ["probe", "exact", "plan", "sentinel"]
    )]
    on_ambiguous: OnAmbiguous,
    /// Make frames larger and clone procedures as this plan says (callpath map resize), so that more call paths can be told apart. Those
    /// procedures run as copies
    #[arg(long, value_name = "PLAN", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["probe", "exact"])]
    plan: Option<PathBuf>,
    /// Function whose calls are counted, too, as `callpath probe` does; may be repeated
    #[arg(long, value_name = "FUNCTION")]
    probe: Vec<String>,
    /// What is counted exactly: `calls` of procedures in their calling contexts, `paths` through procedures, both
    /// (`calls,paths`: the paths in each context), or `edges` between blocks. All procedures run as copies, which count;
    /// docs/paths.md
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum, conflicts_with = "probe")]
    exact: Vec<ExactArgument>,
    /// Count in these functions only (names, globs, module!name, as for `callpath probe`); may be repeated
    #[arg(long, value_name = "FUNCTION", value_delimiter = ',', requires = "exact")]
    only: Vec<String>,
    /// Place counters of paths or edges where an earlier measurement of the program, sampled or exact, says that control
    /// passes seldom; docs/paths.md [default: by loop depth]
    #[arg(long, value_name = "DIR", requires = "exact", value_hint = clap::ValueHint::DirPath)]
    guide: Option<PathBuf>,
    #[command(flatten)]
    measuring: Measuring,
    /// What is measured of each call of these functions, beside `calls`: `wall-time` and others, as for `callpath probe`
    #[arg(long, value_name = "METRIC", value_delimiter = ',', requires = "probe", value_parser = metric)]
    probe_metrics: Vec<ProbeMetric>,
    /// Sample the program and all that it starts from outside: nothing in them changes. Programs that load no preloaded object
    /// (static, musl, Go) are sampled so anyway. auto: others only with --unwind=infer, where the kernel allows it
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always",
        conflicts_with_all = ["probe", "exact", "plan", "sentinel", "wait_all"]
    )]
    outside: OutsideArgument,
    /// Show what the kernel calls, too, by name, below the system call or the instruction that it was entered from: samples are taken from
    /// outside, where the kernel shows this user its own code; with -e off-cpu, this is what threads wait for
    #[arg(long, conflicts_with_all = ["probe", "exact", "plan", "sentinel", "wait_all"])]
    kernel: bool,
    /// Record until all processes of the program have ended, daemons included; Ctrl-C ends the wait
    #[arg(long)]
    wait_all: bool,
    /// When the program has ended, also keep with the measurement what reports need of the program's files: names, lines,
    /// loops. The measurement can then be reported on any machine
    #[arg(long)]
    pack: bool,
    /// Say only what went wrong
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    attaching: Attaching,
    #[command(flatten)]
    perf: PerfOptions<Record>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

/// perf's `max` is the highest rate.
fn rate(typed: &str) -> Result<u64, &'static str> {
    if typed == "max" { Ok(HIGHEST_RATE) } else { number::whole(typed) }
}

/// Whether the kernel's call paths can be had with the other options.
fn check_kernel(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.kernel && FromOutside::from(arguments.outside) == FromOutside::Never {
        anyhow::bail!("--kernel takes samples from outside: leave --outside=never out");
    }
    if arguments.kernel && arguments.unwind != UnwindArgument::Walk {
        anyhow::bail!("--kernel is for stacks that are walked: it cannot be used with --unwind");
    }
    Ok(())
}

/// Whether the contexts of probed calls can be kept as those of samples are.
fn check_contexts_of_probes(arguments: &Arguments) -> anyhow::Result<()> {
    if !arguments.probe.is_empty() && arguments.unwind == UnwindArgument::Both {
        anyhow::bail!(
            "--unwind=both keeps the heights of samples only, so it cannot be used with --probe: record twice, with --unwind=infer and with --unwind=walk"
        );
    }
    Ok(())
}

/// The map that the measurement keeps.
fn mapped_of(arguments: &Arguments) -> anyhow::Result<Option<Mapped>> {
    let Some(map) = &arguments.map else { return Ok(None) };
    if arguments.unwind == UnwindArgument::Walk {
        anyhow::bail!("--map is for samples that keep heights: add --unwind=infer, or both");
    }
    if arguments.on_ambiguous == OnAmbiguous::Walk {
        if arguments.unwind != UnwindArgument::Infer {
            anyhow::bail!("--on-ambiguous=walk is for --unwind=infer: with both, all stacks are walked whole");
        }
        if FromOutside::from(arguments.outside) == FromOutside::Always || arguments.attaching.is_asked_for() {
            anyhow::bail!(
                "--on-ambiguous=walk works inside the program: it cannot be used from outside (--outside, -p, -a)"
            );
        }
        if arguments.recursion != RecordedRecursion::Shared(RecursionArgument::Full) {
            anyhow::bail!("--on-ambiguous=walk needs every frame that is walked: it cannot be used with --recursion");
        }
    }
    Mapped::read(map).map(Some)
}

/// What to do where nothing is left to measure, since there are no samples.
fn without_samples(arguments: &Arguments) -> &'static str {
    if arguments.probe.is_empty() {
        "-F 0 takes no samples, so that nothing would be measured: say what is counted instead (--exact=paths or calls), or leave -F 0 out"
    } else {
        "-F 0 takes no samples: to count calls alone, use callpath probe FUNCTION -- PROGRAM; or leave -F 0 out"
    }
}

/// Adds what probes measure to the events that are sampled: in front, where the probes expect it.
fn add_probes(arguments: &Arguments, events: &mut Vec<Event>) -> anyhow::Result<()> {
    if matches!(arguments.sentinel, SentinelArgument::Always) {
        anyhow::bail!(
            "--sentinel=always changes return addresses, which probes compare: it cannot be used with --probe"
        );
    }
    let of_probes = match arguments.exact.as_slice() {
        [] => probe_events(&arguments.probe_metrics)?,
        _ => arguments.measuring.columns()?,
    };
    if let Some(both) = of_probes.iter().find(|of_probes| events.iter().any(|event| event.name == of_probes.name)) {
        anyhow::bail!("`{}` would be measured by samples and by probes: leave out -e or --probe-metrics", both.name);
    }
    events.splice(0..0, of_probes);
    if events.len() > MAX_EVENTS {
        return Err(EventError::TooMany(events.len()).into());
    }
    Ok(())
}

/// The error, with the names that may have been meant.
fn explained(error: EventError) -> anyhow::Error {
    let EventError::Unknown(typed) = &error else { return error.into() };
    let name = typed.split(['@', ':']).next().unwrap_or_default();
    let offers = offered_events();
    let names = offers.iter().flat_map(|offer| [offer.name.as_str(), offer.other_name]);
    match nearest(name, names.filter(|name| !name.is_empty())) {
        near if near.is_empty() => error.into(),
        near => anyhow::anyhow!("unknown event `{typed}`; similar names: {}; see: callpath list", near.join(", ")),
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ExactArgument {
    Calls,
    Paths,
    Edges,
}

impl ExactArgument {
    fn kind(self) -> ExactKind {
        match self {
            ExactArgument::Calls => ExactKind::Calls,
            ExactArgument::Paths => ExactKind::Paths,
            ExactArgument::Edges => ExactKind::Edges,
        }
    }
}

/// Which procedures are counted: all, or those that were typed.
pub(crate) struct Counted(pub(crate) Option<Choice>);

impl Counting for Counted {
    fn may_come_in_library(&self) -> bool {
        self.0.as_ref().is_some_and(Choice::names_libraries)
    }

    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Option<Vec<LinkAddr>> {
        let mut chosen = self.0.as_mut()?.choose(image, path);
        chosen.sort_unstable();
        Some(chosen)
    }

    fn check(&mut self) -> Result<(), String> {
        // A program may be executed that has it.
        let nothing = self.0.as_ref().and_then(Choice::nothing);
        nothing.map_or(Ok(()), |why| {
            Err(format!("{why}; if a program that is executed later has it: --only 'PROGRAM!FUNCTION'"))
        })
    }
}

/// What an earlier measurement tells of where counters of these kinds are best placed.
fn guide_of(directory: &Path, kinds: &ExactKinds, say: impl Fn(&dyn std::fmt::Display)) -> anyhow::Result<Guide> {
    if !kinds.has(ExactKind::Paths) && !kinds.has(ExactKind::Edges) {
        anyhow::bail!("--guide places counters of paths and edges: --exact=calls has none; leave it out");
    }
    let failed = |error| anyhow::anyhow!("failed to {error}; --guide takes a measurement directory");
    let measurement = Measurement::read(directory).map_err(failed)?;
    let paths = measurement.read_paths().map_err(failed)?;
    for error in measurement.unreadable.iter().chain(&paths.unreadable) {
        say(&format_args!("--guide: failed to {}: what it tells is missing", plain(error)));
    }
    let guide = guide(&measurement, &paths);
    if !guide.tells_anything() {
        anyhow::bail!("--guide: {} has no samples, and no counts of paths or edges", directory.display());
    }
    Ok(guide)
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum UnwindArgument {
    Walk,
    Infer,
    Both,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnAmbiguous {
    Keep,
    Walk,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum OutsideArgument {
    Auto,
    Always,
    Never,
}

impl From<OutsideArgument> for FromOutside {
    fn from(argument: OutsideArgument) -> FromOutside {
        match argument {
            OutsideArgument::Auto => FromOutside::Auto,
            OutsideArgument::Always => FromOutside::Always,
            OutsideArgument::Never => FromOutside::Never,
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SentinelArgument {
    Auto,
    Always,
    Never,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let failed = |error: anyhow::Error, status| Failure { error, status };
    if let Some(refusal) = &arguments.perf.refusal {
        return Err(failed(anyhow::anyhow!("{refusal}"), FAILED));
    }
    arguments.attaching.check(arguments.outside.into()).map_err(|error| failed(error, FAILED))?;
    let (program, rest) = match arguments.program.split_first() {
        Some((program, rest)) => (program.clone(), rest),
        None if arguments.attaching.is_asked_for() => {
            (arguments.attaching.program().map_err(|error| failed(error, FAILED))?, &[][..])
        }
        None => return Err(failed(anyhow::anyhow!("no program to record; see: callpath record --help"), FAILED)),
    };
    let say = |line: &dyn std::fmt::Display| {
        if !arguments.quiet {
            output::say(line)
        }
    };
    let unsaid = Unsaid { rate: arguments.rate, period: arguments.period };
    let (mut events, period_ns) =
        parse_events(&arguments.event, unsaid).map_err(|error| failed(explained(error), FAILED))?;
    if arguments.rate == Some(0) && arguments.exact.is_empty() {
        return Err(failed(anyhow::anyhow!("{}", without_samples(arguments)), FAILED));
    }
    let exact = match arguments.exact.as_slice() {
        [] => None,
        kinds => {
            let kinds = ExactKinds::new(kinds.iter().map(|kind| kind.kind()));
            Some(kinds.map_err(|refusal| failed(anyhow::anyhow!("{refusal}"), FAILED))?)
        }
    };
    if exact.is_some() && matches!(arguments.sentinel, SentinelArgument::Always) {
        let error = anyhow::anyhow!(
            "--sentinel=always marks return addresses, and copies that count have others: it cannot be used with --exact"
        );
        return Err(failed(error, FAILED));
    }
    if arguments.recursion == RecordedRecursion::BackEdges
        && !exact.as_ref().is_some_and(|kinds| kinds.has(ExactKind::Calls))
    {
        let error = anyhow::anyhow!(
            "--recursion=backedges is about the contexts of exact counts: add --exact=calls, or use --recursion=collapse for samples"
        );
        return Err(failed(error, FAILED));
    }
    let times = arguments.measuring.times(exact.as_ref(), &events).map_err(|error| failed(error, FAILED))?;
    let guide = match (&arguments.guide, &exact) {
        (Some(directory), Some(kinds)) => Some(guide_of(directory, kinds, say).map_err(|error| failed(error, FAILED))?),
        _ => None,
    };
    let mut choice = match arguments.probe.as_slice() {
        [] => None,
        functions => Some(Choice::typed(functions).map_err(|error| failed(error, FAILED))?),
    };
    let counts_calls = exact.as_ref().is_some_and(|kinds| kinds.has(ExactKind::Calls));
    if choice.is_some() || counts_calls {
        add_probes(arguments, &mut events).map_err(|error| failed(error, FAILED))?;
    }
    if arguments.unwind != UnwindArgument::Walk && matches!(arguments.sentinel, SentinelArgument::Always) {
        let error =
            anyhow::anyhow!("--sentinel=always counts returns at walked call paths: it cannot be used with --unwind");
        return Err(failed(error, FAILED));
    }
    if arguments.plan.is_some() && arguments.unwind == UnwindArgument::Walk {
        let error = anyhow::anyhow!("--plan is for samples that keep heights: add --unwind=infer, or both");
        return Err(failed(error, FAILED));
    }
    let mapped = mapped_of(arguments).map_err(|error| failed(error, FAILED))?;
    check_kernel(arguments).map_err(|error| failed(error, FAILED))?;
    check_contexts_of_probes(arguments).map_err(|error| failed(error, FAILED))?;
    let told = match &mapped {
        Some(mapped) if arguments.on_ambiguous == OnAmbiguous::Walk => {
            let told = mapped.told();
            told.notes.iter().for_each(|note| say(note));
            told.blocks
        }
        _ => Vec::new(),
    };
    let mut padded = match &arguments.plan {
        None => None,
        Some(plan) => Some(Padded::read(plan).map_err(|error| failed(error, FAILED))?),
    };
    let sentinel = match arguments.sentinel {
        // Probes compare return addresses with what they were.
        _ if choice.is_some() || exact.is_some() => Sentinel::Never,
        SentinelArgument::Auto => Sentinel::Auto,
        SentinelArgument::Always => Sentinel::Always,
        SentinelArgument::Never => Sentinel::Never,
    };
    if sentinel == Sentinel::Always {
        if matches!(arguments.recursion, RecordedRecursion::Shared(RecursionArgument::Suffix(_))) {
            let error = anyhow::anyhow!(
                "--sentinel=always counts returns at whole call paths: it cannot be used with --recursion=suffix:N"
            );
            return Err(failed(error, FAILED));
        }
        events.push(Event::returns());
        if events.len() > MAX_EVENTS {
            return Err(failed(EventError::TooMany(events.len()).into(), FAILED));
        }
    }
    let rank = rank::own().map_err(|error| failed(error, FAILED))?;
    let options = RecordOptions {
        program,
        arguments: rest.to_vec(),
        events,
        period_ns,
        sentinel,
        recursion: arguments.recursion.into(),
        unwind: match arguments.unwind {
            UnwindArgument::Walk => Unwind::Walk,
            UnwindArgument::Infer if arguments.on_ambiguous == OnAmbiguous::Walk => Unwind::UntilTold,
            UnwindArgument::Infer => Unwind::Infer,
            UnwindArgument::Both => Unwind::Both,
        },
        told,
        told_by: mapped.as_ref().map_or(0, Mapped::checksum),
        kernel: arguments.kernel,
        outside: if arguments.kernel { FromOutside::Always } else { arguments.outside.into() },
        wait_all: arguments.wait_all,
        output: arguments.output.clone(),
        rank,
        cache: surroundings::cache_directory(),
        preload: preload::OBJECT,
    };
    arguments.perf.words.iter().for_each(|word| say(word));
    if arguments.measuring.has_pages() {
        say(&"-m, --mmap-pages is not needed: there are no buffers or trace files to tune");
    }
    let mut counted = Counted(match arguments.only.as_slice() {
        [] => None,
        functions => Some(Choice::typed(functions).map_err(|error| failed(error, FAILED))?),
    });
    let result = match (&mut choice, exact) {
        (None, Some(kinds)) => {
            let counts = ExactCounts { kinds, times, injected: preload::INJECTED, guide };
            record_exactly(&options, &counts, &mut counted).map(ProbedProcess::from)
        }
        (None, None) if arguments.attaching.is_asked_for() => {
            arguments.attaching.record(&options, !arguments.program.is_empty()).map(ProbedProcess::from)
        }
        (None, None) => match &mut padded {
            Some(padded) => record_resized(&options, padded).map(ProbedProcess::from),
            None => record(&options).map(ProbedProcess::from),
        },
        (Some(choice), _) => {
            let probes = ProbesBesideSamples { injected: preload::INJECTED, chooser: choice };
            record_with_probes(&options, probes)
        }
    };
    let probed = result.map_err(|error| {
        let status = status_of(&error);
        failed(anyhow::anyhow!("failed to {error}"), status)
    })?;
    let recorded = &probed.recorded;
    // What is said of one rank is said of all; the report has the notes of each.
    let is_first = options.rank.as_ref().is_none_or(|rank| rank.number == 0);
    if is_first {
        recorded.notes.iter().for_each(|note| say(note));
    }
    padded.iter().flat_map(Padded::notes).for_each(|note| say(&note));
    mapped.iter().filter_map(|mapped| mapped.keep(&recorded.directory)).for_each(|note| say(&note));
    if let Some(choice) = &choice {
        say_probed(choice, &probed, say);
    }
    if let Some(only) = &counted.0 {
        only.unknown().into_iter().for_each(|pattern| say(&format_args!("not counted: {}", only.why_unknown(pattern))));
    }
    let own = shell_word(&recorded.directory.to_string_lossy());
    if let Some(loss) = &recorded.loss {
        let status = recorded.ended.status;
        output::say(format_args!(
            "failed to {loss}: this part of the measurement is missing; the program ended with status {status}"
        ));
    }
    let can_be_read = recorded.loss.is_none() || Measurement::read(&recorded.directory).is_ok();
    if !can_be_read {
        output::say(format_args!("nothing that can be read was recorded to {own}"));
    } else if recorded.processes == 0 {
        output::say(format_args!("nothing was measured: {}", arguments.attaching.why_nothing()));
    } else if is_first {
        let whole = recorded.of_job.as_ref().unwrap_or(&recorded.directory);
        let directory = shell_word(&whole.to_string_lossy());
        match (arguments.pack, &recorded.of_job) {
            (true, None) => pack(recorded, &directory, say),
            (true, Some(_)) => output::say(format_args!(
                "not packed: other ranks may still run; pack the measurement with: {} report --pack {directory}",
                surroundings::typed_command()
            )),
            (false, _) => {}
        }
        let ranks = options.rank.as_ref().and_then(|rank| rank.job.size);
        let of = ranks.map_or(String::new(), |ranks| format!(" {ranks} ranks"));
        say(&format_args!(
            "recorded{of} to {directory}; see it with: {} report {directory}",
            surroundings::typed_command()
        ));
    }
    Ok(recorded.ended.status as u8)
}

/// Packs the measurement. If that fails, the measurement is as complete as without, and the exit status is the program's.
fn pack(recorded: &Recorded, directory: &str, say: impl Fn(&dyn std::fmt::Display)) {
    // The program has run: lack of memory is no reason for another status.
    memory::end_with(recorded.ended.status as u8);
    match load_and_pack(Some(&recorded.directory)) {
        Ok((_, said)) => say(&said),
        Err(error) => output::say(format_args!(
            "not packed: {error:#}; the measurement is complete; pack it with: {} report --pack {directory}",
            surroundings::typed_command()
        )),
    }
}

pub(crate) fn status_of(error: &RecordError) -> u8 {
    match error {
        RecordError::Target(TargetError::NotFound { .. }) => NOT_FOUND,
        RecordError::Target(TargetError::Launch { source, .. }) => match source.kind() {
            std::io::ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        },
        RecordError::Unsuitable { .. } => CANNOT_RUN,
        _ => FAILED,
    }
}
