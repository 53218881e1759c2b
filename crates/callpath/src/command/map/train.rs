//! `callpath map train`: a program in, a map of its call paths out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use callpath_analyze::infer::{Trained, train};
use callpath_db::MetricId;
use callpath_infer::{MapBuilder, OtherBuild, PathMap, Precision};
use callpath_measurement::Measurement;
use callpath_record::{
    ExactCounts, ExactKind, ExactKinds, FromOutside, RecordOptions, Recursion, Sentinel, Unsaid, Unwind, parse_events,
    probe_events, record_exactly,
};
use callpath_view::text::shell_word;

use crate::command::path_map;
use crate::command::profile::analysis_options_of;
use crate::command::record::Counted;
use crate::outcome::Outcome;
use crate::surroundings::Progress;
use crate::{output, preload, surroundings};

#[derive(clap::Args)]
#[command(
    override_usage = "callpath map train -o MAP [--from MAP]... [--measurement DIR]... [-- PROGRAM [ARGUMENT]...]"
)]
pub(crate) struct Arguments {
    /// The map to write; one that is there is replaced
    #[arg(short, long, value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    /// A map whose paths the new one has, too: one map of several runs; may be repeated
    #[arg(long, value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    from: Vec<PathBuf>,
    /// A measurement to learn from, instead of a run, or beside it: its calls (record --exact=calls) and its samples; may be repeated
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    measurement: Vec<PathBuf>,
    /// Say only what went wrong
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments. All its procedures run as copies that count their calls: it takes two to three times as long as
    /// without
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

/// Says something on standard error.
type Say<'a> = &'a dyn Fn(&dyn std::fmt::Display);

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.program.is_empty() && arguments.measurement.is_empty() && arguments.from.is_empty() {
        return Err(anyhow!(
            "nothing to learn from: name a program (-- PROGRAM), a measurement (--measurement DIR) or maps (--from MAP)"
        )
        .into());
    }
    let say = |line: &dyn std::fmt::Display| {
        if !arguments.quiet {
            output::say(line)
        }
    };
    let mut map = PathMap::default();
    for path in &arguments.from {
        let other = path_map::read(path)?;
        let mut builder = MapBuilder::default();
        builder.add(&map).and_then(|()| builder.add(&other)).map_err(|other| of_other_build(&other, path))?;
        map = builder.finish();
    }
    for directory in &arguments.measurement {
        map = learn(map, directory, &say)?;
    }
    if let Some((program, rest)) = arguments.program.split_first() {
        // Better known before the program has run.
        can_be_written(&arguments.output)?;
        let place = tempfile::Builder::new().prefix("callpath-map-").tempdir()?;
        let directory = place.path().join("run.callpath");
        let status = run_program(program, rest, (&directory, &say))?;
        if status != 0 {
            say(&format_args!("the program ended with status {status}; the map has what it did until then"));
        }
        map = learn(map, &directory, &say)?;
    }
    map.write(&arguments.output).map_err(|error| anyhow!("failed to {error}"))?;
    let (precision, file) = (map.precision(), shell_word(&arguments.output.to_string_lossy()));
    let precise = Precision::share(&precision.paths)
        .map_or(String::new(), |share| format!(", {:.1}% of them with an identifier of their own", 100.0 * share));
    let paths = precision.paths.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
    if paths == 0 {
        say(&"no call path with a known height was learned: the map has none");
    }
    let typed = surroundings::typed_command();
    say(&format_args!("wrote {file}: {paths} call paths{precise}; see it with: {typed} map show {file}"));
    Ok(0)
}

/// That there is room for a file beside one that may be replaced.
fn can_be_written(file: &Path) -> anyhow::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().prefix(".callpath-map-").tempfile_in(directory);
    made.map(drop).map_err(|error| anyhow!("failed to write {}: {error}; the program was not run", file.display()))
}

fn of_other_build(other: &OtherBuild, from: &Path) -> anyhow::Error {
    anyhow!("failed to learn from {}: {other}; train a map of its own for each build", from.display())
}

/// A map that also has what a measurement tells.
fn learn(map: PathMap, directory: &Path, say: Say<'_>) -> anyhow::Result<PathMap> {
    let measurement = Measurement::read(directory).map_err(|error| anyhow!("failed to {error}"))?;
    measurement.losses().iter().for_each(|loss| say(loss));
    let counts_calls = measurement.session.metrics.iter().any(|metric| metric.id == Some(MetricId::CALLS));
    if path_map::needs_map(&measurement) && !counts_calls {
        anyhow::bail!(
            "failed to learn from {}: its samples have call paths only with the help of a map (record --unwind=infer); record with --unwind=walk or \
             both, or train on a run of the program (callpath map train -- PROGRAM)",
            directory.display()
        );
    }
    let mut progress = Progress::new("reading modules");
    let mut builder = MapBuilder::default();
    builder.add(&map).map_err(|other| of_other_build(&other, directory))?;
    let trained =
        train(&measurement, builder, &analysis_options_of(directory), &mut |done, of| progress.step(done, of));
    let Trained { map, notes } = trained.map_err(|other| of_other_build(&other, directory))?;
    drop(progress);
    notes.iter().for_each(|note| say(note));
    Ok(map)
}

/// Runs the program with all its calls counted, and samples beside: code that cannot be counted is seen by them alone.
fn run_program(program: &OsString, arguments: &[OsString], (directory, say): (&Path, Say<'_>)) -> anyhow::Result<i32> {
    let (mut events, period_ns) = parse_events(&[], Unsaid { rate: None, period: None })?;
    events.splice(0..0, probe_events(&[])?);
    let options = RecordOptions {
        program: program.clone(),
        arguments: arguments.to_vec(),
        events,
        period_ns,
        sentinel: Sentinel::Never,
        recursion: Recursion::Full,
        unwind: Unwind::Walk,
        told: Vec::new(),
        told_by: 0,
        kernel: false,
        outside: FromOutside::Never,
        wait_all: false,
        output: Some(directory.to_owned()),
        rank: None,
        cache: surroundings::cache_directory(),
        preload: preload::OBJECT,
    };
    let kinds = ExactKinds::new([ExactKind::Calls]).map_err(|refusal| anyhow!("{refusal}"))?;
    let counts = ExactCounts { kinds, times: None, injected: preload::INJECTED, guide: None };
    let recorded =
        record_exactly(&options, &counts, &mut Counted(None)).map_err(|error| anyhow!("failed to {error}"))?;
    recorded.notes.iter().for_each(|note| say(note));
    if let Some(loss) = &recorded.loss {
        anyhow::bail!("failed to {loss}: nothing was learned");
    }
    Ok(recorded.ended.status)
}
