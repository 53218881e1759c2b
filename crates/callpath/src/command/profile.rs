//! Loads the profile of a measurement for the commands that show one.

use std::path::Path;

use callpath_analyze::attribute::{AttributeOptions, Packed, attribute, attribute_and_pack, attribute_packed};
use callpath_analyze::infer::{self, NovelSamples};
use callpath_db::database::{Database, DatabaseError, is_database};
use callpath_db::{CodeCosts, Profile};
use callpath_measurement::{KeptFiles, Measurement, MeasurementError, PackFile, has_paths, newest};
use callpath_view::ViewError;
use callpath_view::text::shell_word;

use super::path_map;
use crate::output;
use crate::surroundings::{self, Progress};

/// The profile of a database or a measurement, the newest one here if none is named: from its pack, if it has one, else from the modules. Files of
/// it that cannot be read are named on standard error; it is an error if none can.
pub(crate) fn load(directory: Option<&Path>) -> anyhow::Result<Profile> {
    if let Some(file) = directory.filter(|path| is_database(path)) {
        let profile = Database::open(file).and_then(|database| database.to_profile());
        let mut profile = profile.map_err(|error| anyhow::anyhow!("failed to {error}"))?;
        profile.info.directory = file.to_string_lossy().into_owned();
        return Ok(profile);
    }
    let measurement = read(directory)?;
    let kept = path_map::kept(&measurement);
    let has_pack = kept.is_some() && PackFile::read(&measurement.directory).map_err(|e| of_pack(&e))?.is_some();
    match kept {
        Some(map) if !has_pack => inferred(measurement, &map),
        kept => {
            if let Some(map) = kept {
                output::say(format_args!(
                    "call paths are not looked up: a pack has no code to ask; where the program's files are, add --map {}",
                    shell_word(&map.to_string_lossy())
                ));
            }
            let profile = of_measurement(&measurement)?;
            checked(&measurement, profile)
        }
    }
}

/// The profile of a measurement that was read.
pub(crate) fn of_measurement(measurement: &Measurement) -> anyhow::Result<Profile> {
    match PackFile::read(&measurement.directory).map_err(|e| of_pack(&e))? {
        Some(pack) => attribute_packed(measurement, &pack).map_err(|e| of_pack(&e)),
        None => {
            let mut progress = Progress::new("reading modules");
            Ok(attribute(measurement, &analysis_options_of(&measurement.directory), &mut |done, of| {
                progress.step(done, of)
            }))
        }
    }
}

/// The profile of a measurement whose call paths a map tells.
pub(crate) fn load_inferred(directory: Option<&Path>, map: &Path) -> anyhow::Result<Profile> {
    inferred(read(directory)?, map)
}

fn inferred(measurement: Measurement, map: &Path) -> anyhow::Result<Profile> {
    anyhow::ensure!(
        infer::has_heights(&measurement),
        "failed to look up call paths of {}: its samples keep no heights of the stack; record with --unwind=infer",
        measurement.directory.display()
    );
    let inferred = look_up(measurement, map)?;
    let mut progress = Progress::new("reading modules");
    let options = analysis_options_of(&inferred.measurement.directory);
    let profile = infer::profile(&inferred, &options, &mut |done, of| progress.step(done, of));
    checked(&inferred.measurement, profile)
}

/// Looks the call paths of a measurement up in a map.
fn look_up(measurement: Measurement, map: &Path) -> anyhow::Result<infer::Inferred> {
    let known = path_map::read_for(map, &measurement)?;
    path_map::check_told_by(&known, map, &measurement)?;
    let mut progress = Progress::new("reading modules");
    let options = analysis_options_of(&measurement.directory);
    let inferred = infer::infer(measurement, known.maps(), &options, &mut |done, of| progress.step(done, of));
    inferred.map_err(|other| {
        anyhow::anyhow!(
            "failed to look up call paths in {}: {other} than was measured; train a map of this build",
            map.display()
        )
    })
}

/// The profile of what a map never saw of a measurement, by its own map if none is named; and a sentence, if that is nothing.
pub(crate) fn load_novel(directory: Option<&Path>, map: Option<&Path>) -> anyhow::Result<(Profile, Option<String>)> {
    let measurement = read(directory)?;
    let kept = path_map::kept(&measurement);
    let Some(map) = map.or(kept.as_deref()) else {
        anyhow::bail!("--novel needs a map to compare with: add --map MAP (callpath map train)");
    };
    let known = path_map::read_for(map, &measurement)?;
    let options = analysis_options_of(&measurement.directory);
    let novel = match &kept {
        // Its own map tells the paths, this one whether they are new.
        Some(own) if path_map::is_walked_until_told(&measurement) => {
            let inferred = look_up(measurement, own)?;
            let mut progress = Progress::new("reading modules");
            infer::novel_of_inferred(inferred, known.maps(), &options, &mut |done, of| progress.step(done, of))
        }
        _ => {
            let mut progress = Progress::new("reading modules");
            infer::novel(measurement, known.maps(), &options, &mut |done, of| progress.step(done, of))
        }
    };
    let novel = novel.map_err(|other| {
        anyhow::anyhow!("failed to look for novel call paths by {}: {other} than was measured", map.display())
    })?;
    let NovelSamples { novel: samples, unclear, all } = novel.samples;
    let of_unclear = match unclear {
        0 => String::new(),
        _ => format!(
            "; for {unclear} this is not known (no known height, a path that is partial or no more than likely, or code that could not be counted)"
        ),
    };
    let (seen, map) = (all.saturating_sub(unclear), map.display());
    let nothing = match (samples, unclear) {
        (0, 0) => Some(format!("nothing is novel: {map} has seen the call paths of all {all} samples")),
        (0, _) => Some(format!(
            "nothing is known to be novel: {map} has seen the call paths of {seen} of {all} samples{of_unclear}"
        )),
        _ => None,
    };
    let mut progress = Progress::new("reading modules");
    let mut profile = infer::novel_profile(&novel, &options, &mut |done, of| progress.step(done, of));
    profile
        .info
        .notes
        .push(format!("--novel: {samples} of {all} samples are in call paths that {map} never saw{of_unclear}"));
    checked(&novel.measurement, profile).map(|profile| (profile, nothing))
}

/// That a profile has samples, for what cannot be done without.
pub(crate) fn need_samples(profile: &Profile) -> anyhow::Result<()> {
    let directory = &profile.info.directory;
    anyhow::ensure!(
        profile.is_sampled(),
        "failed to read samples of {directory}: none were taken (-F 0); callpath report {directory} --view blocks shows what was counted \
         exactly"
    );
    Ok(())
}

/// The metric of calls that were counted.
pub(crate) const CALLS: &str = "calls";

/// Whether all calls of a measurement were counted exactly, and not those of probes alone.
pub(crate) fn has_calls(profile: &Profile) -> bool {
    profile.metrics.iter().any(|metric| metric.name == CALLS) && has_paths(Path::new(&profile.info.directory))
}

/// The profile for a command that takes metrics, and no counts of paths or edges, which is said: `done` completes "they are not".
pub(crate) fn load_sampled(directory: Option<&Path>, done: &str) -> anyhow::Result<Profile> {
    let profile = load(directory)?;
    need_samples(&profile)?;
    let counted = &profile.info.directory;
    let left_out = match has_calls(&profile) {
        true if has_paths_besides(Path::new(counted)) => Some("exact counts of paths"),
        true => None,
        false => has_paths(Path::new(counted)).then_some("exact counts"),
    };
    if let Some(left_out) = left_out {
        output::say(format_args!(
            "{counted}: its {left_out} are not {done}; callpath report {counted} --view blocks shows them"
        ));
    }
    Ok(profile)
}

/// Whether a measurement whose calls were counted has counts of paths, too. What cannot be read is none: reports say so.
fn has_paths_besides(directory: &Path) -> bool {
    let paths = Measurement::read(directory).and_then(|measurement| measurement.read_paths());
    paths.is_ok_and(|paths| paths.processes.iter().any(|(_, counts)| counts.has_paths()))
}

/// What instructions cost, with the column there of metric 0 of `profile`, which is that of the same measurement or database.
pub(crate) fn code_costs(directory: Option<&Path>, profile: &Profile) -> anyhow::Result<(CodeCosts, usize)> {
    let Some(file) = directory.filter(|path| is_database(path)) else { return Ok((profile.contexts.code(), 0)) };
    let failed = |error: DatabaseError| anyhow::anyhow!("failed to {error}");
    let database = Database::open(file).map_err(failed)?;
    let Some(costs) = database.code().map_err(failed)? else {
        anyhow::bail!(
            "failed to show instructions: {} has none, an earlier callpath merged it; name the measurement that it was merged from, or \
             merge again",
            file.display()
        );
    };
    let first = profile.metrics.first();
    let column = database.metrics().iter().position(|metric| Some(metric) == first);
    Ok((costs, column.unwrap_or(0)))
}

/// The same from the modules, which are no longer needed afterwards: what is known of them is put into the measurement's directory. Also
/// gives a line that says so.
pub(crate) fn load_and_pack(directory: Option<&Path>) -> anyhow::Result<(Profile, String)> {
    if let Some(file) = directory.filter(|path| is_database(path)) {
        anyhow::bail!("failed to pack {}: it is a database, which has names, lines and loops already", file.display());
    }
    let measurement = read(directory)?;
    let directory = &measurement.directory;
    if path_map::kept(&measurement).is_some() {
        anyhow::bail!(
            "failed to pack {}: a pack has no code to look call paths up by; merge it into a database instead, which has the paths: callpath merge",
            directory.display()
        );
    }
    if let Some(pack) = PackFile::read(directory).map_err(|e| of_pack(&e))? {
        let path = pack.path.display();
        anyhow::bail!(
            "{path} is there already: to pack the measurement anew, where its binaries are, remove the file first"
        );
    }
    let mut progress = Progress::new("reading modules");
    let found =
        attribute_and_pack(&measurement, &analysis_options_of(directory), &mut |done, of| progress.step(done, of));
    let Packed { profile, pack, unusable } = found;
    let profile = checked(&measurement, profile)?;
    if profile.info.exit.is_none() {
        anyhow::bail!("{} is still growing: pack it when the program has ended", directory.display());
    }
    pack.write(directory).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
    let (path, bytes) = (pack.path.display(), pack.len_bytes());
    let lacks = match &unusable[..] {
        [] => String::new(),
        [first, more @ ..] => {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            format!(
                ", but nothing of {}{more}: gone, or replaced since it ran; to pack anew where the file is, remove the pack",
                first.display()
            )
        }
    };
    Ok((profile, format!("packed: {path} ({bytes} bytes) has what reports need of the program's files{lacks}")))
}

/// A measurement, the newest one here if none is named.
pub(crate) fn read(directory: Option<&Path>) -> anyhow::Result<Measurement> {
    let found;
    let directory = match directory {
        Some(directory) => directory,
        None => {
            found = newest(Path::new(".")).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
            found.strip_prefix(".").unwrap_or(&found)
        }
    };
    let measurement = Measurement::read(directory).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
    measurement.losses().iter().for_each(output::say);
    Ok(measurement)
}

/// How files of code are found and analysed.
pub(crate) fn analysis_options() -> AttributeOptions {
    AttributeOptions {
        debug_roots: surroundings::debug_roots(),
        vdso: callpath_target::own_vdso(),
        cache: surroundings::cache_directory(),
        kept: KeptFiles::default(),
    }
}

/// The same, with the files that a measurement keeps, by its directory.
pub(crate) fn analysis_options_of(directory: &Path) -> AttributeOptions {
    AttributeOptions { kept: KeptFiles::of(directory), ..analysis_options() }
}

/// A damaged pack is no reason to show less than it promises.
fn of_pack(error: &MeasurementError) -> anyhow::Error {
    anyhow::anyhow!("failed to {error}; to read the program's own files instead, remove it")
}

/// A profile of no process says nothing.
fn checked(measurement: &Measurement, profile: Profile) -> anyhow::Result<Profile> {
    let still_running = profile.info.exit.is_none();
    if profile.info.processes.is_empty() && !(still_running && measurement.unreadable.is_empty()) {
        measurement.session.notes.iter().for_each(output::say);
        anyhow::bail!(
            "{}: no data of any process: none was measured, or the files are missing or damaged",
            measurement.directory.display()
        );
    }
    Ok(profile)
}

/// Why a profile was not shown; standard output's own error is left as it is.
pub(crate) fn shown(error: ViewError) -> anyhow::Error {
    match error {
        ViewError::Write(error) => error.into(),
        other => other.into(),
    }
}
