//! What a profile says of its run, and the sentences that a report adds to it.

use std::time::{Duration, SystemTime};

use callpath_db::{CpuTime, JobInfo, Profile, RankInfo, RunInfo, ScopeKind, listed};
use callpath_format::frame::Gap;
use callpath_measurement::{EndKind, Job, Measurement, RankSession, Ranks, SessionEnd, SessionFile};

use super::code::{Code, ModuleCode};
use crate::names::{ModuleNames, missing_names_hints};
use crate::runtimes::{self, Nameless};

/// What generated code is called, where the kernel has no name for its memory.
const NAMELESS_CODE: &str = "[jit]";
/// How a program ends that did not fail.
const SUCCESS: &str = "exit status 0";
/// How many modules a report's hints name.
const HINTS: usize = 3;
/// Modules with less than this share of the samples in unnamed code get no hint.
const HINT_SHARE: f64 = 0.02;

/// What ran, how it ended, and the notes on the measurement for the reader of the profile.
pub(super) fn describe(profile: &mut Profile, measurement: &Measurement) {
    let session = &measurement.session;
    let losses = no_room(profile).into_iter().collect();
    let info = &mut profile.info;
    info.losses = losses;
    info.command = session.command.clone();
    info.program = session.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    info.started_unix_ns = session.started_unix_ns;
    info.duration_ns = session.duration_ns;
    info.host = session.host.clone();
    info.working_directory = session.working_directory.to_string_lossy().into_owned();
    match &measurement.ranks {
        None => info.exit = exit(session),
        Some(ranks) => describe_ranks(info, ranks),
    }
    let is_known = |end: &SessionEnd| end.kind == EndKind::Known && (end.user_ns, end.kernel_ns) != (0, 0);
    let known = session.ended.filter(is_known);
    info.cpu_time_by_kernel = known.map(|end| CpuTime { user_ns: end.user_ns, system_ns: end.kernel_ns });
    info.recorder_cpu_ns = Some(session.recorder_cpu_ns);
    info.directory = measurement.directory.display().to_string();
    info.notes = session.notes.clone();
    info.notes.extend(measurement.losses());
    if session.lost_processes > 0 {
        info.notes
            .push(format!("{} processes were not measured: too many ran at the same time", session.lost_processes));
    }
}

/// How it ended; `None`: it still runs.
fn exit(session: &SessionFile) -> Option<String> {
    let describe = |end: SessionEnd| match end.kind {
        EndKind::Known => describe_status(end.status),
        EndKind::Unknown => "ended (its exit status is not known)".to_owned(),
        EndKind::GoesOn => "goes on".to_owned(),
    };
    session.ended.map(describe).or_else(|| recorder_is_gone(session))
}

/// Which ranks there are, how they ended, and which are missing.
fn describe_ranks(info: &mut RunInfo, ranks: &Ranks) {
    let of_rank = |rank: &RankSession| RankInfo {
        rank: rank.rank,
        host: rank.session.host.clone(),
        duration_ns: rank.session.duration_ns,
        exit: exit(&rank.session),
    };
    let Job { launcher, id, size } = ranks.job.clone();
    let job = JobInfo { run: 0, launcher, id, size, ranks: ranks.there.iter().map(of_rank).collect() };
    // How ranks ended, in order of the first that did so.
    let mut ends: Vec<(&String, Vec<u32>)> = Vec::new();
    let all_ended = job.ranks.iter().all(|rank| rank.exit.is_some());
    for rank in &job.ranks {
        let Some(exit) = &rank.exit else { continue };
        match ends.iter_mut().find(|(known, _)| *known == exit) {
            Some((_, ranks)) => ranks.push(rank.rank),
            None => ends.push((exit, vec![rank.rank])),
        }
    }
    // What most did is said of the rest.
    ends.sort_by_key(|(_, ranks)| ranks.len());
    let most = ends.pop().map(|(exit, _)| exit.clone());
    let words = |which: &[u32]| match which {
        [rank] => format!("rank {rank}"),
        ranks => format!("ranks {}", listed(&callpath_db::ranges(ranks.iter().copied()))),
    };
    let odd: Vec<String> = ends.iter().map(|(exit, ranks)| format!("{}: {exit}", words(ranks))).collect();
    info.exit = most.filter(|_| all_ended).map(|most| match odd.is_empty() {
        true => most,
        false => format!("{most}, but {}", odd.join("; ")),
    });
    // Launchers kill the others then: what they write last may be missing.
    let ended_ns = |rank: &&RankSession| rank.session.started_unix_ns.saturating_add(rank.session.duration_ns);
    let mut failed: Vec<&RankSession> = ranks.there.iter().filter(|_| !all_ended).collect();
    // The first one is why the others were killed.
    failed.sort_by_key(ended_ns);
    let failed = failed.into_iter().filter_map(|rank| Some((rank.rank, exit(&rank.session)?)));
    let failed = failed.filter(|(_, exit)| exit != SUCCESS);
    let failed: Vec<String> = failed.map(|(rank, exit)| format!("rank {rank} ended with {exit}")).collect();
    if let [first, more @ ..] = &failed[..] {
        let more = if more.is_empty() { String::new() } else { format!(", and {} more failed", more.len()) };
        info.losses.push(format!("{first}{more}; others run, or were killed within the last half a minute."));
    }
    let missing = job.missing();
    if !missing.is_empty() {
        let (ranks, is_or_are, them) = match job.missing_count() {
            1 => ("RANK", "IS", "it"),
            _ => ("RANKS", "ARE", "them"),
        };
        let still = if all_ended { "" } else { " so far" };
        info.losses.push(format!(
            "{ranks} {} {is_or_are} MISSING: there is no data of {them} that can be read{still}.",
            listed(&missing)
        ));
    }
    info.jobs = vec![job];
}

/// How much has no call path because there was no memory for it.
fn no_room(profile: &Profile) -> Option<String> {
    let metric = profile.metrics.first()?;
    let (mut lost, mut all) = (0u64, 0u64);
    for node in profile.tree.nodes() {
        let (scope, own) = (profile.tree.scope(node), profile.tree.values(node)[0]);
        all = all.saturating_add(own);
        if scope.kind == ScopeKind::Gap && profile.strings.get(scope.name) == Gap::NoRoom.name() {
            lost = lost.saturating_add(own);
        }
    }
    // Less than a twentieth of a percent is in its row alone.
    (lost.saturating_mul(2000) >= all.max(1)).then(|| {
        format!(
            "{:.1}% of {} HAS NO CALL PATH: there was no room for the samples. It stands in the row `{}`.",
            100.0 * lost as f64 / all as f64,
            metric.name,
            Gap::NoRoom.name()
        )
    })
}

/// The notes on the code, which follow those on the measurement.
pub(super) fn code_notes(profile: &Profile, measurement: &Measurement, code: &Code) -> Vec<String> {
    let session = &measurement.session;
    let mut notes: Vec<String> = why_partial(code).into_iter().collect();
    notes.extend(code.modules.iter().flat_map(|module| file_notes(module, session)));
    notes.extend(code.modules.iter().filter_map(broken_dwarf));
    let all = profile.quality.taken;
    notes.extend(code.modules.iter().filter_map(|module| unresolved_jumps(module, all)));
    notes.extend(code.modules.iter().filter_map(too_deep));
    let least = (profile.quality.taken as f64 * HINT_SHARE) as u64;
    let mut unnamed: Vec<&ModuleCode> =
        code.modules.iter().filter(|m| m.unnamed_samples > least && m.names.is_some() && !m.was_replaced()).collect();
    unnamed.sort_by_key(|m| std::cmp::Reverse(m.unnamed_samples));
    let names: Vec<&ModuleNames> = unnamed.iter().take(HINTS).filter_map(|m| m.names.as_ref()).collect();
    notes.extend(missing_names_hints(&names));
    notes.extend(generated_names_notes(measurement, code, least));
    notes
}

/// What a program could have said, or has said badly, of the code that it has generated.
fn generated_names_notes(measurement: &Measurement, code: &Code, least: u64) -> Vec<String> {
    let nameless = code.modules.iter().filter(|m| m.key.0.as_os_str() == NAMELESS_CODE);
    let unnamed = nameless.fold(0u64, |sum, module| sum.saturating_add(module.unnamed_samples));
    let interpreter = code.modules.iter().fold(0u64, |sum, module| sum.saturating_add(module.interpreter_samples));
    let is_silent = !code.modules.iter().any(|m| m.generated.iter().any(|p| p.is_named(&m.key.0)));
    let files: Vec<_> = code.modules.iter().filter_map(|m| m.key.0.file_name()?.to_str()).collect();
    let hints = |whose| runtimes::hints(whose, files.iter().copied()).join(", ");
    let generated = (is_silent && unnamed > least).then(|| {
        let hints = hints(Nameless::Generated);
        let hints = if hints.is_empty() { "many runtimes have an option for that".to_owned() } else { hints };
        format!("generated code has the names that its program writes to /tmp/perf-PID.map or to a jitdump: {hints}")
    });
    let interpreted = (is_silent && interpreter > least).then(|| {
        format!(
            "interpreted procedures have names where the runtime gives each a frame of its own: {}",
            hints(Nameless::Interpreted)
        )
    });
    let bad_lines = measurement.names.iter().fold(0u64, |sum, names| sum.saturating_add(names.bad_lines));
    let bad =
        (bad_lines > 0).then(|| {
            let (word, were) = if bad_lines == 1 { ("entry", "was") } else { ("entries", "were") };
            format!(
                "{bad_lines} {word} of the program's list of generated code (/tmp/perf-PID.map, or a jitdump) could not be used and {were} skipped; no more than 524,288 are kept"
            )
        });
    generated.into_iter().chain(interpreted).chain(bad).collect()
}

/// A recorder writes at least every few seconds, so one that has been silent for long was killed.
fn recorder_is_gone(session: &SessionFile) -> Option<String> {
    const SILENCE: Duration = Duration::from_secs(30);
    let written =
        SystemTime::UNIX_EPOCH + Duration::from_nanos(session.started_unix_ns.saturating_add(session.duration_ns));
    let silent = written.elapsed().is_ok_and(|age| age > SILENCE);
    silent.then(|| "end unknown (the recorder was killed)".to_owned())
}

fn describe_status(status: i32) -> String {
    match status {
        129..=192 => format!("signal {}", status - 128),
        _ => format!("exit status {status}"),
    }
}

/// Where walks stopped before an outermost frame, as a sentence; of several places the one with the most samples.
fn why_partial(code: &Code) -> Option<String> {
    let outside = (code.stopped_outside, "code without a file, made at run time".to_owned());
    let modules = code.modules.iter().map(|m| (m.stopped_samples, m.key.0.display().to_string()));
    let (samples, place) = modules.chain([outside]).max_by_key(|(samples, _)| *samples)?;
    let whole: u64 = code.modules.iter().fold(code.stopped_outside, |sum, m| sum.saturating_add(m.stopped_samples));
    (samples > 0).then(|| format!("partial call paths: the walk stopped in {place} ({samples} of {whole} samples)"))
}

/// That a module's file is another one than ran, or is damaged, with what to do.
fn file_notes(module: &ModuleCode, session: &SessionFile) -> Vec<String> {
    let Some(names) = &module.names else { return Vec::new() };
    let mut notes: Vec<String> = names.replacement().into_iter().collect();
    notes.extend(names.damage());
    let ended = Duration::from_nanos(session.started_unix_ns.saturating_add(session.duration_ns));
    let modified = std::fs::metadata(&module.key.0).and_then(|metadata| metadata.modified());
    // A file that cannot be read has no names; another note says so. Clocks and file systems may differ by a second.
    let is_newer = modified.is_ok_and(|at| {
        at.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|at| at > ended.saturating_add(Duration::from_secs(1)))
    });
    if notes.is_empty() && names.is_usable() && is_newer {
        let path = module.key.0.display();
        notes.push(format!(
            "{path} was written to after it ran, though its build-id is the same: if names or lines look wrong, record again"
        ));
    }
    notes
}

/// That indirect jumps could not be followed, as a sentence, if a good part of `all` samples is in them.
fn unresolved_jumps(module: &ModuleCode, all: u64) -> Option<String> {
    const NAMED: usize = 3;
    let count = module.unresolved.len();
    let named = module.unresolved.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
    let share = module.unresolved_samples as f64 / all.max(1) as f64;
    (share >= HINT_SHARE).then(|| {
        let path = module.key.0.display();
        format!("{path}: indirect jumps could not be followed; loops may be missing in {named}{more}")
    })
}

/// That loops are missing because they nest too deep, as a sentence of the first procedure.
fn too_deep(module: &ModuleCode) -> Option<String> {
    let first = module.too_deep.first()?;
    let more = match module.too_deep.len() {
        1 => String::new(),
        many => format!("; and {} procedures more", many - 1),
    };
    Some(format!("{}: {first}{more}", module.key.0.display()))
}

/// A sentence that a module's DWARF is broken, with the first place. `callpath structure` lists all places.
fn broken_dwarf(module: &ModuleCode) -> Option<String> {
    let first = module.broken_dwarf.first()?;
    let path = module.key.0.display();
    let count = module.broken_dwarf.len();
    let places = if count == 1 { "place" } else { "places" };
    Some(format!(
        "{path}: debug information makes no sense in {count} {places}; what else it says, symbols, lines and machine code are used \
         there instead. The first: {first}"
    ))
}
