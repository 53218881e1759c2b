//! Libraries that come while a program runs (`dlopen`, and what the C library loads itself): their procedures get copies before the
//! loader relocates them, while the thread waits that has asked for them. Forks of a program that load the same library at the same
//! place have the same copies there.

use std::sync::Arc;

use callpath_tables::calls_in_copies::{CallsInCopies, own_unwinder};
use callpath_tables::module::Module;
use callpath_tables::paths;
use callpath_tables::return_users::has_asking;
use callpath_target::{Edits, Maps, Pid, Write, read_memory};

use super::Copied;
use super::analysed::Analysed;
use super::guided;
use super::layout::{Later, Layout};
use super::linkage::Links;
use super::place::{Chosen, Placing};
use crate::error::RecordError;
use crate::meanwhile::meanwhile;
use crate::moved::ProgramNumber;
use crate::probe::{Loaded, halt};
use crate::serve::{Loading, Recorder};

/// Has what has come into a process counted. What cannot be is noted.
pub(super) fn add(recorder: &mut Recorder<'_>, loading: Loading, copied: &mut Copied<'_>) -> Result<(), RecordError> {
    let Loading { pid, program, .. } = loading;
    let Some(mut layout) = recorder.shared.programs.get_mut(program).and_then(|counted| counted.layout.take()) else {
        return Ok(());
    };
    let result = add_all(recorder, loading, (copied, &mut layout));
    if let Some(counted) = recorder.shared.programs.get_mut(program) {
        counted.layout = Some(layout);
    }
    recorder.refresh_map(pid, std::time::Duration::ZERO);
    result
}

fn add_all(
    recorder: &mut Recorder<'_>,
    loading: Loading,
    (copied, layout): (&mut Copied<'_>, &mut Layout),
) -> Result<(), RecordError> {
    let Loading { pid, program, .. } = loading;
    let all: Vec<Loaded> = Loaded::all(&Maps::read(pid)?);
    let come = |loaded: &&Loaded| !loaded.is_ours() && !loaded.is_left_alone() && !layout.first.contains(loaded);
    let come: Vec<Loaded> = all.iter().filter(come).cloned().collect();
    if come.is_empty() {
        return Ok(());
    }
    recorder.refresh_map(pid, std::time::Duration::ZERO);
    if layout.has_contexts {
        recorder.want_whole_tables(pid);
    }
    let (mut present, mut has_changed) = (Vec::new(), false);
    for loaded in come {
        let known = layout.later.iter().position(|later| later.loaded == loaded);
        let number = match known {
            Some(number) => {
                let edits = layout.later.get(number).and_then(|later| later.edits.as_ref());
                match edits.map_or(Ok(false), |edits| put_again(pid, edits)) {
                    Ok(changed) => has_changed |= changed,
                    Err(error) => {
                        let path = loaded.path.display();
                        recorder.note(&format!("{path} is not counted in process {}: failed to {error}", pid.0));
                        continue;
                    }
                }
                number
            }
            None => {
                let later =
                    put_in(recorder, (pid, loading.slot, program), (&loaded, copied, layout)).unwrap_or_else(|error| {
                        recorder.note(&format!("a library loaded later is not counted: failed to {error}"));
                        Later { loaded, edits: None, head: None }
                    });
                has_changed |= later.edits.is_some();
                layout.later.push(later);
                layout.later.len() - 1
            }
        };
        present.push(number);
    }
    let Some(tables) = layout.tables.as_ref().filter(|_| has_changed) else { return Ok(()) };
    let of_later = present.iter().filter_map(|number| layout.later.get(*number)?.head);
    let halted = halt(pid)?;
    for (at, bytes) in &tables.written {
        halted.write(*at, bytes)?;
    }
    for head in layout.heads.iter().copied().chain(of_later).chain(layout.own_head()) {
        let Some(words) = layout.words(head.region) else { break };
        halted.write(head.at, &words)?;
    }
    halted.release()?;
    Ok(())
}

/// Puts copies of a library's procedures in that is known from elsewhere: from a fork, or because it was there before. `false`: they are
/// there.
fn put_again(pid: Pid, edits: &Edits<'static>) -> Result<bool, RecordError> {
    let stands = |write: &Write, bytes: &[u8]| {
        let mut there = vec![0; bytes.len()];
        read_memory(pid, write.at.0, &mut there) == there.len() && there == bytes
    };
    let mut changed = edits.writes.iter().filter(|write| write.old.is_some());
    let Some(first) = changed.next() else { return Ok(false) };
    if stands(first, &first.new) {
        return Ok(false);
    }
    // Copies stay when a library goes. The longest are code; what copies read has changed since.
    let new = edits.writes.iter().filter(|write| write.old.is_none());
    let has_copies = new.max_by_key(|write| write.new.len()).is_some_and(|write| stands(write, &write.new));
    let halted = halt(pid)?;
    if has_copies {
        let writes = edits.writes.iter().filter(|write| write.old.is_some()).cloned().collect();
        halted.apply(&Edits { memory: Vec::new(), writes })?;
    } else {
        halted.apply(edits)?;
    }
    halted.release()?;
    Ok(true)
}

/// Puts copies of a library's procedures in.
fn put_in(
    recorder: &mut Recorder<'_>,
    (pid, slot, program): (Pid, usize, ProgramNumber),
    (loaded, copied, layout): (&Loaded, &mut Copied<'_>, &mut Layout),
) -> Result<Later, RecordError> {
    let refused = |reason: &str| RecordError::NotCounted { module: loaded.path.clone(), reason: reason.to_owned() };
    let (image, bias) =
        loaded.image(pid).ok_or_else(|| refused("its file is gone, or was replaced since it was loaded"))?;
    let of_module = Analysed { loaded: loaded.clone(), bias, module: Module::new(Arc::new(image)) };
    // Another C library may come, in a name space of its own.
    let has_asking = has_asking(&of_module.module);
    let chosen = copied.choose(&of_module).filter(|chosen| has_asking || !chosen.is_empty());
    let without = Later { loaded: loaded.clone(), edits: None, head: None };
    let Some(chosen) = chosen else { return Ok(without) };
    if meanwhile(recorder, || own_unwinder(&[&of_module.module]))?.is_some() {
        return Err(refused("it has a stack walker of its own, which cannot be made aware of copies"));
    }
    let index = meanwhile(recorder, || layout.users.add(&of_module.module))?;
    let users = std::mem::take(&mut layout.users);
    let homes = layout.homes.to_link(bias);
    let calls = meanwhile(recorder, || CallsInCopies::of(&of_module.module, (&users, index), homes));
    let guide = copied.counts().and_then(|counts| counts.guide.as_ref());
    let by = guided::of_module(guide, &of_module);
    let made = calls.and_then(|calls| {
        let what = Library { of: &of_module, calls: &calls, chosen: &chosen, by };
        let placed = place(recorder, (pid, slot, program), (&what, layout));
        let Err(error) = placed else { return placed };
        if !has_asking {
            return Err(error);
        }
        // Those have copies all the same, which count nothing.
        recorder.note(&format!("a library loaded later is not counted: failed to {error}"));
        let nothing = Chosen::Counted(Some(Vec::new()));
        place(recorder, (pid, slot, program), (&Library { chosen: &nothing, ..what }, layout))
    });
    layout.users = users;
    made
}

/// A library that gets copies.
#[derive(Clone, Copy)]
struct Library<'l> {
    of: &'l Analysed,
    calls: &'l CallsInCopies<'l>,
    chosen: &'l Chosen,
    by: paths::Placing<'l>,
}

fn place(
    recorder: &mut Recorder<'_>,
    (pid, slot, program): (Pid, usize, ProgramNumber),
    (library, layout): (&Library<'_>, &mut Layout),
) -> Result<Later, RecordError> {
    let Library { of, calls, chosen, by } = library;
    let (mut made, first_procedure) = (Vec::new(), layout.next.procedure);
    let heads = layout.heads.len();
    let mut placing = Placing {
        recorder,
        made: &mut made,
        pid,
        slot,
        program: Some(program),
        layout: &mut *layout,
        returns: Vec::new(),
        counters: Vec::new(),
        modules: Vec::new(),
        links: Links::default(),
    };
    placing.put_in_module(of, calls, (chosen, &[], *by))?;
    let Placing { returns, counters, modules, .. } = placing;
    if let Some(counted) = recorder.shared.programs.get_mut(program) {
        counted.modules.extend(modules);
    }
    let loaded = of.loaded.clone();
    let Some(edits) = made.pop() else { return Ok(Later { loaded, edits: None, head: None }) };
    // It is in those processes alone that have the library.
    let head = layout.heads.split_off(heads).pop();
    let known = layout.known.last().copied();
    let is_told = match (&mut layout.tables, known) {
        (Some(tables), Some(known)) => tables.add(&known, &returns, (first_procedure, &counters)),
        _ => false,
    };
    if !is_told {
        let halted = halt(pid)?;
        halted.undo(&edits)?;
        halted.release()?;
        let reason = "the tables of copies are full: too many libraries were loaded".to_owned();
        return Err(RecordError::NotCounted { module: loaded.path, reason });
    }
    Ok(Later { loaded, edits: Some(edits), head })
}
