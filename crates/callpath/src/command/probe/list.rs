//! `callpath probe --list`: what would be probed, found in files. No process is stopped or started.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use callpath_analyze::functions::{Function, Functions, closest};
use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::lines::SourceLine;
use callpath_record::{Chooser, check_program, is_left_alone, probed_modules};
use callpath_tables::module::Module;
use callpath_tables::probes::{Called, prospects};
use callpath_target::Pid;
use callpath_view::text::{
    ListedFunction, ListedIfunc, ListedInlined, ListedPlace, ListedUnknown, ProbeList, probe_list, probe_list_json,
};

use super::choice::{Choice, InModule};
use crate::command::program_files::{self, NoProgram, as_mapped};
use crate::command::record::{FAILED, status_of};
use crate::output;
use crate::screen::ScreenOptions;
use crate::surroundings::Progress;

/// What is listed, and how.
pub(super) struct ListOptions<'o> {
    /// The process. `None`: the program is looked at.
    pub(super) pid: Option<Pid>,
    /// The program, as typed.
    pub(super) program: &'o OsString,
    /// What copies would call.
    pub(super) called: Called,
    pub(super) json: bool,
    pub(super) screen: &'o ScreenOptions,
}

/// Why it failed, and the command's status.
type Failed = (anyhow::Error, u8);

/// Prints what `choice` names. The error says why nothing can be probed; what is known is printed all the same.
pub(super) fn list(mut choice: Choice, options: &ListOptions<'_>) -> Result<(), Failed> {
    let failed = |error: anyhow::Error| (error, FAILED);
    let (modules, mut notes) = modules(options)?;
    let mut progress = Progress::new("reading modules");
    for (done, (path, image)) in modules.iter().enumerate() {
        progress.step(done, modules.len());
        choice.choose(image, path);
    }
    let mut found = ProbeList::default();
    for (done, module) in choice.modules().iter().enumerate() {
        progress.step(done, modules.len());
        add(&mut found, module, &choice, options.called);
    }
    drop(progress);
    notes.extend(choice.without_dwarf());
    found.notes.extend(notes);
    let all: Vec<&Functions> = choice.modules().iter().map(|module| &module.functions).collect();
    found.unknown.extend(choice.unknown().into_iter().map(|pattern| ListedUnknown {
        pattern: pattern.text().to_owned(),
        why: choice.why_unknown(pattern),
        closest: closest(pattern, &all),
    }));
    let can_be_probed = found.functions.iter().any(|function| function.why_not.is_none());
    // Where there is nothing at all, the error says it.
    if options.json || can_be_probed || !found.functions.is_empty() || !found.inlined.is_empty() {
        write(&found, options).map_err(failed)?;
    }
    match can_be_probed {
        true => Ok(()),
        false => Err(failed(anyhow!("nothing to probe: {}", reason(&choice, &found)))),
    }
}

/// Why there is nothing.
fn reason(choice: &Choice, found: &ProbeList) -> String {
    if found.functions.is_empty() {
        return choice.notes().join("; ");
    }
    let refused = found.functions.iter().filter_map(|function| Some((function, function.why_not.as_ref()?)));
    let refused: Vec<String> = refused.take(3).map(|(function, why)| format!("{}: {why}", function.name)).collect();
    refused.join("; ")
}

fn write(found: &ProbeList, options: &ListOptions<'_>) -> anyhow::Result<()> {
    if options.json {
        let mut out = output::stdout();
        writeln!(out, "{}", probe_list_json(found))?;
        return Ok(out.flush()?);
    }
    let mut out = options.screen.open();
    probe_list(found, options.screen.color(), &mut out)?;
    Ok(out.end()?)
}

/// A module, by its path, and its file's content.
type Named = (PathBuf, Arc<Image>);

/// The modules that are looked at, and what should be known of others.
fn modules(options: &ListOptions<'_>) -> Result<(Vec<Named>, Vec<String>), Failed> {
    let of_record = |error| {
        let status = status_of(&error);
        (anyhow!("failed to {error}"), status)
    };
    if let Some(pid) = options.pid {
        return Ok((probed_modules(pid).map_err(of_record)?, Vec::new()));
    }
    let found = program_files::find(options.program, |program| check_program(program).map(drop));
    let found = found.map_err(|error| match error {
        NoProgram::Unsuitable(error) => of_record(error),
        error @ NoProgram::Unreadable(..) => (anyhow!("failed to {error}"), FAILED),
    })?;
    let mut notes = found.notes;
    let libraries = found.libraries.into_iter().filter(|path| !is_left_alone(path));
    let mut all: Vec<Named> = Vec::new();
    for path in std::iter::once(found.file).chain(libraries) {
        match Image::read(&path) {
            Ok(image) => all.push((as_mapped(&path), Arc::new(image))),
            Err(error) => notes.push(format!("failed to {error}")),
        }
    }
    Ok((all, notes))
}

/// Adds what was found in a module.
fn add(found: &mut ProbeList, of: &InModule, choice: &Choice, called: Called) {
    let path = of.functions.path();
    let module = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let pattern = |number: usize| choice.patterns().get(number).map_or_else(String::new, |p| p.text().to_owned());
    let probed = of.probed();
    let entries: Vec<LinkAddr> = probed.iter().map(|(function, _)| function.entry).collect();
    let (prospects, places) = match entries.is_empty() {
        true => (Vec::new(), Default::default()),
        false => {
            let module = Module::new(Arc::clone(&of.image));
            (prospects(&module, &entries, called), of.functions.places(&entries))
        }
    };
    for ((function, chooser), prospect) in probed.into_iter().zip(prospects) {
        let Function { entry, size_bytes, name, raw_name, .. } = function;
        found.functions.push(ListedFunction {
            module: module.clone(),
            path: path.to_string_lossy().into_owned(),
            name: name.clone(),
            linker_name: raw_name.clone(),
            address: entry.0,
            size_bytes: *size_bytes,
            place: function.place.as_ref().or_else(|| places.get(entry)).map(place),
            distinguishing: function.distinguishing.clone(),
            pattern: pattern(function.pattern),
            chosen_by: chooser.map(|chooser| chooser.name.clone()),
            why_not: prospect.why_not(),
        });
    }
    found.inlined.extend(of.inlined.iter().map(|inlined| {
        ListedInlined {
            module: module.clone(),
            name: inlined.name.clone(),
            place: inlined.place.as_ref().map(place),
            pattern: pattern(inlined.pattern),
            copies: (inlined.copies.iter())
                .map(|copy| (copy.address.0, copy.caller.to_string(), copy.call.as_ref().map(place)))
                .collect(),
        }
    }));
    found.ifuncs.extend(of.selection.ifuncs.iter().map(|ifunc| ListedIfunc {
        module: module.clone(),
        name: ifunc.resolver.name.clone(),
        address: ifunc.resolver.entry.0,
        pattern: pattern(ifunc.resolver.pattern),
        implementations: ifunc.implementations.iter().map(|function| function.name.clone()).collect(),
    }));
    let not_entries = of.selection.not_entries.iter();
    found.notes.extend(not_entries.map(|not_entry| not_entry.describe(path).to_string()));
}

fn place(line: &SourceLine) -> ListedPlace {
    ListedPlace { file: line.file.to_string(), line: line.line }
}
