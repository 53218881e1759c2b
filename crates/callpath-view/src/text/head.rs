//! What stands around the tree: what ran, how every sample was accounted for, notes, what to type next.

use std::io::{self, Write};

use callpath_db::{
    CpuTime, InferredCounts, InferredQuality, Inlined, JobInfo, Metric, MetricId, ProbeAccount, ProcedureCost, Profile,
    RunInfo, ScopeKind,
};

use super::label::scope_label;
use super::page::Page;
use super::paint::Ink;
use super::printable::{columns, cut_end, printable, shell_word};
use super::quantity::{count, duration, percent, thousands};

const INDENT: &str = "  ";

/// The command as typed, then how long it took, how it ended, and in how many processes and threads.
pub(super) fn what_ran(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Page { profile, options } = page;
    let info = &profile.info;
    let command = match info.command.as_slice() {
        [] if info.program.is_empty() => "a program of unknown name".into(),
        [] => info.program.clone(),
        words => words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "),
    };
    let command = cut_end(&printable(&command), options.width.max(20));
    writeln!(out, "{}", page.ink(Ink::Bold, &command))?;

    let mut facts = Vec::new();
    if info.more_runs > 0 {
        facts.push(format!("and {}", count(u64::from(info.more_runs), "more run", "more runs")));
    }
    facts.extend(ranks(info));
    if info.duration_ns > 0 {
        facts.push(format!("ran {}", duration(info.duration_ns)));
    }
    facts.push(info.exit.as_deref().map_or_else(|| "still running".into(), printable));
    let processes = process_count(profile);
    if processes > 1 {
        facts.push(count(processes, "process", "processes"));
    }
    let ever: u64 = info.processes.iter().map(|process| u64::from(process.threads)).sum();
    let threads = ever.max(profile.thread_count() as u64).saturating_sub(continued(profile));
    if threads > 0 {
        facts.push(count(threads, "thread", "threads"));
    }
    match (measured_cpu_ns(profile), info.cpu_time_by_kernel.map(by_kernel)) {
        (Some(ns), Some(kernel)) => facts.push(format!("cpu time {} (by the kernel: {kernel})", duration(ns))),
        (Some(ns), None) => facts.push(format!("cpu time {}", duration(ns))),
        (None, Some(kernel)) => facts.push(format!("cpu time by the kernel: {kernel}")),
        (None, None) => {}
    }
    wrapped(&facts, ", ", page, out)
}

/// How many ranks there is data of, on how many hosts.
fn ranks(info: &RunInfo) -> Option<String> {
    let there: u64 = info.jobs.iter().map(|job| job.ranks.len() as u64).sum();
    let missing: u64 = info.jobs.iter().map(JobInfo::missing_count).sum();
    let hosts = info.jobs.iter().map(JobInfo::hosts).max()?;
    let of = if missing > 0 { format!("{} of ", thousands(there)) } else { String::new() };
    let on = if hosts > 1 { format!(" on {hosts} hosts") } else { String::new() };
    Some(format!("{of}{}{on}", count(there.saturating_add(missing), "rank", "ranks")))
}

/// The kernel's account: `1.2 s user, 300 ms system`.
fn by_kernel(time: CpuTime) -> String {
    format!("{} user, {} system", duration(time.user_ns), duration(time.system_ns))
}

/// The quality line: the class of every sample, the share of invalid links if there are any, and what
/// sampling cost the program and the recorder.
pub(super) fn quality(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let profile = page.profile;
    let quality = &profile.quality;
    let mut facts = classes(profile);
    let links = quality.links;
    let of_counted_calls = is_of_counted_calls(profile);
    if links.invalid > 0 && !of_counted_calls {
        let all = links.valid.saturating_add(links.likely).saturating_add(links.invalid);
        facts.push(format!("{} of the links between frames are invalid", percent(links.invalid, all)));
    }
    if quality.taken > 0 || quality.overhead_ns > 0 {
        // What samples and callpath's start cost in a process is compared with CPU time of the same processes: the kernel's account is
        // without daemons, and with processes that were not measured.
        let of_one = || profile.info.cpu_time_by_kernel.filter(|_| process_count(profile) == 1).map(CpuTime::total_ns);
        // Of several runs some may have measured no CPU time.
        let cpu_ns = measured_cpu_ns(profile).or_else(of_one).filter(|&ns| ns > 0 && ns >= quality.overhead_ns);
        let cost = match cpu_ns {
            Some(cpu_ns) => format!("{} of the cpu time", percent(quality.overhead_ns, cpu_ns)),
            None => duration(quality.overhead_ns),
        };
        // What a probe or counting costs is the program's own time: nothing tells it from that.
        // Samples from outside run no code in the program; inside it they never cost nothing.
        let is_from_outside = quality.overhead_ns == 0 && quality.taken > 0;
        if !quality.is_of_calls() && !of_counted_calls && !is_from_outside {
            let what = if counts_calls(profile) { "sampling" } else { "measuring" };
            facts.push(format!("{what} cost {cost}"));
        }
        facts.extend(profile.info.recorder_cpu_ns.map(|ns| format!("the recorder took {}", duration(ns))));
    }
    facts.extend(quality.probes.iter().flat_map(of_probes));
    facts.extend(quality.inferred.iter().flat_map(of_inferred));
    if page.options.selected().is_some() {
        facts[0].insert_str(0, "the whole run: ");
    }
    wrapped(&facts, "; ", page, out)?;
    for loss in &profile.info.losses {
        let words: Vec<String> = loss.split_whitespace().map(printable).collect();
        for line in lines_of(&words, " ", page.options.width.max(40) - INDENT.len()) {
            writeln!(out, "{INDENT}{}", page.ink(Ink::Hot, &line))?;
        }
    }
    Ok(())
}

/// How many samples, and calls of probed functions, the map has so many paths of.
fn of_inferred(inferred: &InferredQuality) -> Vec<String> {
    let counts = &inferred.samples;
    let calls = (inferred.calls.all() > 0).then(|| of_inferred_calls(&inferred.calls));
    // Else the map was asked for these, too.
    let not_asked = if inferred.shows_walked { 0 } else { inferred.walked };
    let all = counts.all().saturating_add(not_asked);
    let precise = percent(counts.precise, all);
    let mut said = vec![match (inferred.is_walked, inferred.shows_walked) {
        (true, _) => format!("stacks were walked until the map told the rest for {precise}"),
        (false, false) => format!("the map has one path for {precise}"),
        (false, true) => {
            let walked = percent(inferred.walked, all);
            format!(
                "paths are shown as they were walked for {walked}; of all samples, the map has one path for {precise}"
            )
        }
    }];
    said.extend(of_others(counts, all));
    if not_asked > 0 {
        said.push(format!("the stack was walked whole for {}", percent(inferred.walked, all)));
    }
    // Where no sample was taken, the calls say all.
    let of_samples = (all > 0 || calls.is_none()).then(|| said.join(", "));
    of_samples.into_iter().chain(calls).collect()
}

/// The same of calls.
fn of_inferred_calls(counts: &InferredCounts) -> String {
    let all = counts.all();
    let mut said = vec![format!("of calls, the map has one path for {}", percent(counts.precise, all))];
    said.extend(of_others(counts, all));
    said.join(", ")
}

/// How many have something else than one path for certain.
fn of_others(counts: &InferredCounts, all: u64) -> impl Iterator<Item = String> {
    let others = [
        (counts.likely, "one that is likely for"),
        (counts.by_code, "one that the code alone has for"),
        (counts.ambiguous, "several for"),
        (counts.missing, "none for"),
        (counts.undetermined, "cannot be asked for"),
    ];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    others.map(move |(count, words)| format!("{words} {}", percent(count, all)))
}

/// What probes did not count.
fn of_probes(probes: &ProbeAccount) -> Vec<String> {
    let mut facts = Vec::new();
    if probes.inside_when_set > 0 {
        let calls = count(probes.inside_when_set, "call", "calls");
        facts.push(format!("{calls} had begun before the probes were set"));
    }
    if probes.unmatched_exits > 0 {
        facts.push(format!("{} without a known entry", count(probes.unmatched_exits, "exit", "exits")));
    }
    if !probes.refused.is_empty() {
        facts.push(format!("{} could not be probed", count(probes.refused.len() as u64, "function", "functions")));
    }
    facts
}

/// Whether all calls were counted exactly, in their contexts.
fn counts_calls(profile: &Profile) -> bool {
    profile.quality.probes.is_none() && profile.metrics.iter().any(|metric| metric.id == Some(MetricId::CALLS))
}

/// Whether what was taken are calls that were counted exactly, and no samples.
pub(super) fn is_of_counted_calls(profile: &Profile) -> bool {
    counts_calls(profile) && !profile.metrics.iter().any(Metric::is_sampled)
}

fn classes(profile: &Profile) -> Vec<String> {
    let quality = &profile.quality;
    let (one, several) = match () {
        () if quality.is_of_calls() => ("probed call", "probed calls"),
        () if is_of_counted_calls(profile) => ("counted call", "counted calls"),
        () => ("sample", "samples"),
    };
    let taken = count(quality.taken, one, several);
    if quality.is_balanced() && quality.full == quality.taken {
        return vec![match quality.taken {
            0 => taken,
            1 => format!("{taken}, with its whole call path"),
            _ => format!("{taken}, all with their whole call path"),
        }];
    }
    let mut classes = vec![format!("{} with their whole call path", thousands(quality.full))];
    let mut class = |count: u64, words: &str| {
        if count > 0 {
            classes.push(format!("{} {words}", thousands(count)));
        }
    };
    class(quality.partial, "with a part of it");
    class(quality.raw_kept, "kept raw");
    for (reason, &dropped) in &quality.dropped {
        class(dropped, &format!("dropped ({})", printable(reason)));
    }
    let mut facts = vec![format!("{taken}: {}", classes.join(", "))];
    if !quality.is_balanced() {
        let accounted = thousands(quality.accounted());
        facts.push(format!("these are {accounted}, so the tally does not add up: please report it"));
    }
    facts
}

/// Trees of programs that processes executed after others: those remain one process with one first thread.
fn continued(profile: &Profile) -> u64 {
    profile.info.processes.iter().filter(|process| process.continues).count() as u64
}

/// A process that executed another program counts once.
pub(super) fn process_count(profile: &Profile) -> u64 {
    (profile.process_count().max(profile.info.processes.len()) as u64).saturating_sub(continued(profile))
}

/// What the profile's own clock measured, if one of its metrics is CPU time.
fn measured_cpu_ns(profile: &Profile) -> Option<u64> {
    let column = profile.metrics.iter().position(|metric| metric.id == Some(MetricId::CPU_TIME))?;
    let values = profile.tree.nodes().map(|node| profile.tree.values(node)[column]);
    Some(values.fold(0, u64::saturating_add))
}

/// The notes, once each.
pub(super) fn notes(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let profile = page.profile;
    let notes = &profile.info.notes;
    if notes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", page.ink(Ink::Bold, "Notes"))?;
    for note in notes {
        let words: Vec<String> = note.split_whitespace().map(printable).collect();
        wrapped(&words, " ", page, out)?;
    }
    Ok(())
}

/// What is worth typing after reading this.
pub(super) fn next_command(page: Page<'_>, procedures: &[ProcedureCost], out: &mut dyn Write) -> io::Result<()> {
    let Page { profile, options } = page;
    let directory = match profile.info.directory.as_str() {
        "" => String::new(),
        directory => format!(" {}", printable(&shell_word(directory))),
    };
    const NEXT: &str = "Next:";
    const NEARLY_ALL: f64 = 0.9;
    let first = |cost: &[u64]| cost.first().copied().unwrap_or(0);
    let total = procedures.iter().fold(0u64, |sum, procedure| sum.saturating_add(first(&procedure.self_cost)));
    // The main procedure, as a rule: who calls it is no question.
    let is_nearly_all = |procedure: &ProcedureCost| first(&procedure.inclusive) as f64 > NEARLY_ALL * total as f64;
    writeln!(out)?;
    // What it shows stands behind a command where there is room.
    let mut line = |before: &str, view: &str, aside: &dyn Fn(usize) -> Option<String>| {
        let command = format!("{} report{directory} {view}", printable(&options.command));
        let room = options.width.saturating_sub(NEXT.len() + 1 + columns(&command));
        let aside = aside(room).filter(|aside| columns(aside) <= room).unwrap_or_default();
        writeln!(out, "{before} {command}{}", page.ink(Ink::Dim, &aside))
    };
    line(&page.ink(Ink::Bold, NEXT), "--view callers", &|room| {
        const ASIDE: &str = "   # who calls ";
        // Nor is it of what is no code of the program (`[callpath's probes]`).
        let is_code = |procedure: &ProcedureCost| !scope_label(&procedure.scope, profile).fit(room).starts_with('[');
        let named = procedures.iter().find(|procedure| is_code(procedure) && !is_nearly_all(procedure))?;
        let name = scope_label(&named.scope, profile).fit(room.saturating_sub(ASIDE.len()));
        Some(format!("{ASIDE}{name}"))
    })?;
    // Much of a program is inlined in one procedure.
    if options.inlined == Inlined::InTheirProcedures && procedures.first().is_some_and(is_nearly_all) {
        let aside = |_| Some("   # inlined procedures apart".into());
        line(&" ".repeat(NEXT.len()), "--inlines", &aside)?;
    }
    if options.query.merge_processes && has_namesakes(profile) {
        let (option, aside) = match profile.info.jobs.is_empty() {
            true => ("--per-process", "   # each process by itself"),
            false => ("--per-rank", "   # each rank by itself"),
        };
        line(&" ".repeat(NEXT.len()), option, &|_| Some(aside.into()))?;
    }
    Ok(())
}

/// Whether several processes have one name.
fn has_namesakes(profile: &Profile) -> bool {
    let scopes = profile.tree.nodes().map(|node| profile.tree.scope(node));
    let mut names: Vec<_> = scopes.filter(|s| s.kind == ScopeKind::Process).map(|scope| scope.name).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// Writes `parts` with `between`, indented and broken at the width.
pub(super) fn wrapped(parts: &[String], between: &str, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let lines = lines_of(parts, between, page.options.width.max(40) - INDENT.len());
    lines.iter().try_for_each(|line| writeln!(out, "{INDENT}{line}"))
}

/// `parts` with `between`, in lines of at most `max` columns: broken between parts where they fit, else between words.
pub(super) fn lines_of(parts: &[String], between: &str, max: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for (i, part) in parts.iter().enumerate() {
        let part = if i + 1 < parts.len() { format!("{part}{}", between.trim_end()) } else { part.clone() };
        let pieces = if columns(&part) <= max { vec![part.as_str()] } else { part.split(' ').collect() };
        for piece in pieces {
            if !line.is_empty() && columns(&line) + 1 + columns(piece) > max {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(piece);
        }
    }
    lines.push(line);
    lines
}
