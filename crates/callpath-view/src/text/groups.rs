//! The table of processes and threads: what each costs, those of one kind in one row.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io::{self, Write};

use callpath_db::{MetricSource, ProcessCost, ProcessInfo, Profile, Regions, ThreadCost, kind_of_name};

use super::head::{is_of_counted_calls, process_count, wrapped};
use super::page::Page;
use super::paint::{Ink, Paint};
use super::printable::{columns, cut_end, printable, shell_word};
use super::quantity::{count, percent, thousands, value};
use super::shorten::shorten;

/// Rows of the table; what is behind them is added up in one more.
const MOST_ROWS: usize = 6;

/// Rows where processes or threads were asked for by name: all that the name means are listed.
const MOST_SELECTED: usize = 12;

/// What costs less than this share is added up in the last row.
const LEAST_SHARE: f64 = 0.01;

/// Processes of one program are one row, where the rows of each by itself would leave more than this share to the last row.
const LEFT_OVER: f64 = 0.1;

/// One row: processes or threads of one kind.
struct Group {
    /// The words for them.
    label: String,
    /// How many they are.
    members: u64,
    /// One value per metric.
    cost: Vec<u64>,
}

impl Group {
    fn weight(&self) -> u64 {
        self.cost.first().copied().unwrap_or(0)
    }
}

/// What is shown, unless it is everything; and where there are several processes or threads, a table of them.
pub(super) fn members(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let processes = selected(page);
    shown(&processes, page, out)?;
    found(page, out)?;
    table(&processes, page, out)
}

/// So many procedures that a name means are named.
const MOST_FOUND: usize = 4;

/// A procedure's name has so many columns here.
const FOUND_COLUMNS: usize = 44;

/// Says which procedures a name was taken for that no procedure has.
pub(super) fn found(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Page { profile, options } = page;
    // What has no answer has been reported.
    for meant in profile.meant(&options.query).unwrap_or_default() {
        if meant.way().is_exact() {
            continue;
        }
        let procedures = meant.procedures(&profile.strings);
        let first = procedures.iter().take(MOST_FOUND).map(|name| shorten(&printable(name), FOUND_COLUMNS));
        let mut words: Vec<String> = first.collect();
        if procedures.len() > MOST_FOUND {
            words.push(format!("{} more", thousands((procedures.len() - MOST_FOUND) as u64)));
        }
        words[0].insert_str(0, &format!("no procedure is called {}; taken for: ", printable(meant.asked())));
        wrapped(&words, ", ", page, out)?;
    }
    Ok(())
}

/// The processes selected, without those that cost nothing before they executed another program.
fn selected(page: Page<'_>) -> Vec<ProcessCost> {
    let mut processes = page.profile.processes(&page.options.query).unwrap_or_default();
    let which = |process: &ProcessCost| (process.run, process.rank, process.id);
    let costly: HashSet<_> = processes.iter().filter(|process| !is_free(process)).map(which).collect();
    processes.retain(|process| !is_free(process) || !costly.contains(&which(process)));
    processes
}

fn is_free(process: &ProcessCost) -> bool {
    process.cost.iter().all(|cost| *cost == 0)
}

/// How many processes these are: one that executes several programs is there once for each.
fn distinct<'a>(processes: impl IntoIterator<Item = &'a ProcessCost>) -> u64 {
    let which = processes.into_iter().map(|process| (process.run, process.rank, process.id));
    which.collect::<HashSet<_>>().len() as u64
}

/// How much is shown, unless it is everything, and the same table where the processes or threads asked for are several.
pub(super) fn selection(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let processes = selected(page);
    let threads: usize = processes.iter().map(|process| process.threads.len()).sum();
    let query = &page.options.query;
    if page.options.selected().is_none() && query.procedure.is_none() {
        return Ok(());
    }
    shown(&processes, page, out)?;
    if processes.len() > 1 && query.process.is_some() || threads > 1 && query.thread.is_some() {
        table(&processes, page, out)?;
    }
    found(page, out)?;
    writeln!(out)
}

/// Says where the regions are that workers executed.
pub(super) fn regions(regions: Regions, page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut sentences = Vec::new();
    if regions.met {
        sentences
            .push("What a runtime's workers did for a parallel region is shown below the region's caller".to_owned());
    }
    if regions.several_callers > 0 {
        let processes = selected(page);
        let total =
            processes.iter().fold(0u64, |sum, process| sum.saturating_add(process.cost.first().copied().unwrap_or(0)));
        let share = percent(regions.several_callers, total);
        sentences.push(format!(
            "{share} is workers' time in regions with several callers: which of them they worked for is not known, \
             so it is shown below the start of their threads"
        ));
    }
    if regions.met {
        sentences.push("--per-thread shows each thread as it ran".to_owned());
    }
    wrapped(&sentences, "; ", page, out)
}

/// How much of the whole a selection is.
fn shown(processes: &[ProcessCost], page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Page { profile, options } = page;
    let query = &options.query;
    if options.selected().is_none() && query.procedure.is_none() {
        return Ok(());
    }
    let first = |cost: &[u64]| cost.first().copied().unwrap_or(0);
    let here = processes.iter().fold(0u64, |sum, process| sum.saturating_add(first(&process.cost)));
    let all = profile.tree.nodes().fold(0u64, |sum, node| sum.saturating_add(profile.tree.values(node).get(0)));
    let mut facts = Vec::new();
    if query.process.is_some() {
        let of = count(process_count(profile), "process", "processes");
        facts.push(format!("{} of {of}", thousands(distinct(processes))));
    }
    if query.thread.is_some() {
        let threads: usize = processes.iter().map(|process| process.threads.len()).sum();
        let of = count(profile.thread_count() as u64, "thread", "threads");
        facts.push(format!("{} of {of}", thousands(threads as u64)));
    }
    facts.push(format!("{} of the {} measured", percent(here, all), page.metric_name()));
    facts[0].insert_str(0, "shown: ");
    wrapped(&facts, ", ", page, out)
}

fn table(processes: &[ProcessCost], page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Page { profile, options } = page;
    let query = &options.query;
    let (word, words, mut groups) = match processes {
        [] => return Ok(()),
        _ if options.by_group => ("container", "containers", of_containers(processes, page)),
        [process] => ("thread", "threads", of_threads(process, page)),
        _ => ("process", "processes", of_processes(processes, page)),
    };
    if groups.iter().map(|group| group.members).sum::<u64>() <= 1 {
        return Ok(());
    }
    groups.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.label.cmp(&b.label)));
    let total = groups.iter().fold(0u64, |sum, group| sum.saturating_add(group.weight()));
    let is_selected = query.process.is_some() || query.thread.is_some();
    let most = if is_selected { MOST_SELECTED } else { MOST_ROWS };
    let is_costly = |group: &&Group| is_selected || group.weight() as f64 >= LEAST_SHARE * total as f64;
    let kept = groups.iter().take(most).take_while(is_costly).count();
    // One row more is no longer than the row that would stand for it.
    let rest = groups.split_off(if kept + 1 == groups.len() { groups.len() } else { kept });
    if !rest.is_empty() {
        let cost = sum(rest.iter().map(|group| group.cost.as_slice()));
        let members = rest.iter().map(|group| group.members).sum();
        let label = count(members, &format!("more {word}"), &format!("more {words}"));
        groups.push(Group { label, members, cost });
    }

    let samples = profile.metrics.iter().position(|metric| metric.source == MetricSource::Samples);
    // Where nothing was sampled, they are the calls that were counted.
    let samples = samples.filter(|metric| *metric != 0 && !is_of_counted_calls(profile));
    let mut heading = format!("{:>6} {:>9}  ", "share", page.cost_heading());
    if samples.is_some() {
        heading += "samples  ";
    }
    writeln!(out, "{}", page.ink(Ink::Bold, &format!("{heading}{word}")))?;
    let unit = profile.metrics.first().map_or("", |metric| &metric.unit);
    let room = options.width.saturating_sub(columns(&heading)).max(16);
    for group in &groups {
        let share = page.ink(Paint::heat(group.weight(), total), &format!("{:>6}", percent(group.weight(), total)));
        let cell = |metric: usize| format!("{:>7}  ", value(group.cost.get(metric).copied().unwrap_or(0), ""));
        let cell = samples.map(cell).unwrap_or_default();
        let label = cut_end(&group.label, room);
        writeln!(out, "{share} {:>9}  {cell}{label}", value(group.weight(), unit))?;
    }
    Ok(())
}

/// Rows of one value per metric, added up.
fn sum<'a>(costs: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    let mut sum: Vec<u64> = Vec::new();
    for cost in costs {
        sum.resize(sum.len().max(cost.len()), 0);
        sum.iter_mut().zip(cost).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
    }
    sum
}

/// `members` with equal keys together, in order of their first.
fn by_key<T, K: Hash + Eq>(members: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut index: HashMap<K, usize> = HashMap::new();
    for member in members {
        let at = *index.entry(key(&member)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(member),
            None => groups.push(vec![member]),
        }
    }
    groups
}

/// A process's threads, those of one kind together: their names differ in numbers only.
fn of_threads(process: &ProcessCost, page: Page<'_>) -> Vec<Group> {
    let Page { profile, options } = page;
    let name = |name| profile.strings.get(name);
    let info = info(process, profile);
    let merged = |id: u64| info.and_then(|info| info.merged_threads.iter().find(|(tid, _)| u64::from(*tid) == id));
    let several = |id: u64| merged(id).map_or(1, |(_, count)| *count);
    // The process's first thread is seldom of its workers' kind, whatever it is called.
    let key = |thread: &&ThreadCost| match options.query.per_thread || thread.id == process.id {
        true => (thread.id, String::new()),
        false => (0, kind_of_name(name(thread.name))),
    };
    let kinds = by_key(&process.threads, key);
    let group = |threads: Vec<&ThreadCost>| {
        let members = threads.iter().map(|thread| several(thread.id)).sum();
        let same = threads.iter().all(|thread| thread.name == threads[0].name);
        let called = name(threads[0].name);
        let called = if same { printable(called) } else { printable(&kind_of_name(called)) };
        let label = match members {
            1 if threads[0].id == process.id => format!("{called} ({}, main thread)", process.id),
            1 => format!("{called} ({})", threads[0].id),
            _ => format!("×{} \"{called}\"", thousands(members)),
        };
        Group { label, members, cost: sum(threads.iter().map(|thread| thread.cost.as_slice())) }
    };
    kinds.into_iter().map(group).collect()
}

/// Those of each control group, which is their name.
fn of_containers(processes: &[ProcessCost], page: Page<'_>) -> Vec<Group> {
    let profile = page.profile;
    let group = |members: Vec<&ProcessCost>| {
        let name = printable(members.first().map_or("", |first| profile.strings.get(first.name)));
        let several = distinct(members.iter().copied());
        // The first costs most.
        let most = members.first().map_or(String::new(), |first| format!("{} ({})", command(first, profile), first.id));
        let label = match several {
            1 => format!("{name}: {most}"),
            _ => format!("{name}: {}; most: {most}", count(several, "process", "processes")),
        };
        Group { label, members: 1, cost: sum(members.iter().map(|process| process.cost.as_slice())) }
    };
    by_key(processes, |process| process.name).into_iter().map(group).collect()
}

/// Each process; or those of one program together, where there are many.
fn of_processes(processes: &[ProcessCost], page: Page<'_>) -> Vec<Group> {
    let Page { profile, options } = page;
    let query = &options.query;
    let most = if query.process.is_some() { MOST_SELECTED } else { MOST_ROWS };
    let by_itself = |process: &ProcessCost| Group {
        label: format!(
            "{}{} ({}){}",
            rank(process),
            command(process, profile),
            process.id,
            threads(&[process], profile)
        ),
        members: 1,
        cost: process.cost.clone(),
    };
    let weight = |process: &ProcessCost| process.cost.first().copied().unwrap_or(0) as f64;
    let total: f64 = processes.iter().map(weight).sum();
    let costly = processes.iter().take(most).map(weight).filter(|weight| *weight >= LEAST_SHARE * total);
    if processes.len() <= most || !query.merge_processes || costly.sum::<f64>() >= (1.0 - LEFT_OVER) * total {
        return processes.iter().map(by_itself).collect();
    }
    let together = |members: Vec<&ProcessCost>| {
        let [first, _, ..] = members[..] else {
            return by_itself(members[0]);
        };
        let name = printable(profile.strings.get(first.name));
        let commands = by_key(&members, |process| command(process, profile)).len();
        let threads = threads(&members, profile);
        let label = match commands {
            1 => format!("×{} {}{threads}", thousands(members.len() as u64), command(first, profile)),
            // The first costs most.
            _ => format!(
                "×{} \"{name}\"{threads}; most: {} ({})",
                thousands(members.len() as u64),
                command(first, profile),
                first.id
            ),
        };
        let cost = sum(members.iter().map(|process| process.cost.as_slice()));
        Group { label, members: members.len() as u64, cost }
    };
    by_key(processes, |process| process.name).into_iter().map(together).collect()
}

fn rank(process: &ProcessCost) -> String {
    process.rank.map_or(String::new(), |rank| format!("rank {rank}: "))
}

/// How many threads processes have, where it is more than one of each.
fn threads(processes: &[&ProcessCost], profile: &Profile) -> String {
    let of = |process: &&ProcessCost| match info(process, profile) {
        Some(info) => u64::from(info.threads),
        None => process.threads.len() as u64,
    };
    let threads: u64 = processes.iter().map(of).sum();
    if threads <= processes.len() as u64 { String::new() } else { format!(", {} threads", thousands(threads)) }
}

/// What is known of a process besides its tree: of one that executed several programs, of the one with this name.
fn info<'a>(process: &ProcessCost, profile: &'a Profile) -> Option<&'a ProcessInfo> {
    let name = profile.strings.get(process.name);
    profile.info.processes.iter().find(|info| {
        (info.run, info.rank) == (process.run, process.rank) && u64::from(info.pid) == process.id && info.name == name
    })
}

/// A process's command line, without the program's directory.
fn command(process: &ProcessCost, profile: &Profile) -> String {
    let name = profile.strings.get(process.name);
    let words = info(process, profile).map_or(&[][..], |info| &info.command);
    let Some((program, arguments)) = words.split_first() else {
        return printable(name);
    };
    let program = program.rsplit('/').next().filter(|file| *file == name).unwrap_or(program);
    let words = std::iter::once(program).chain(arguments.iter().map(String::as_str));
    printable(&words.map(shell_word).collect::<Vec<_>>().join(" "))
}
