//! All programs that are probed: the one that was typed, and those that it and its forks execute.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use callpath_format::address::LinkAddr;
use callpath_schema::RefusedProbe;
use callpath_tables::probes::Purpose;
use callpath_target::{Maps, Pid, ProcessHandle, has_memory};

use crate::error::RecordError;
use crate::probe::asks::MISSING;
use crate::probe::chooser::{Come, Unknown};
use crate::probe::control::{Answered, ListedProbe, functions};
use crate::probe::halt::Stops;
use crate::probe::measured::Measured;
use crate::probe::patches::Patched;
use crate::probe::wanted::Wanted;
use crate::serve::Recorder;

/// The probes of all programs.
pub(super) struct Probes<'o> {
    pub(super) wanted: Wanted<'o>,
    programs: Vec<Patched>,
    /// Executed programs that could not be probed, and why the first of them could not.
    failed: Option<(usize, String)>,
    /// All probes were taken out: none come any more.
    are_out: bool,
}

/// What is told of probes at their end.
#[derive(Default)]
pub(super) struct Results {
    pub(super) probed: usize,
    pub(super) refused: Vec<RefusedProbe>,
    pub(super) stops: Stops,
    pub(super) left_in: Vec<String>,
}

impl<'o> Probes<'o> {
    pub(super) fn new(wanted: Wanted<'o>) -> Probes<'o> {
        Probes { wanted, programs: Vec::new(), failed: None, are_out: false }
    }

    /// Adds a program that has its probes.
    pub(super) fn add_program(&mut self, program: Patched) {
        self.programs.push(program);
    }

    /// Puts probes into a program that waits at its beginning. `is_first`: it is the one that was typed.
    ///
    /// # Errors
    /// If it is that one. What fails in others is told at the end.
    pub(super) fn begin(
        &mut self,
        (pid, slot): (Pid, usize),
        recorder: &mut Recorder<'_>,
        is_first: bool,
    ) -> Result<(), RecordError> {
        let begun = self.put_into(pid, slot, (recorder, is_first));
        match begun {
            Err(error) if is_first => return Err(error),
            // It may have been ended meanwhile.
            Err(error) if has_memory(pid) => {
                let name = ProcessHandle::open(pid).program().unwrap_or_default();
                let (count, _) =
                    self.failed.get_or_insert_with(|| (0, format!("{}: failed to {error}", name.display())));
                *count += 1;
            }
            Ok(()) | Err(_) => {}
        }
        Ok(())
    }

    fn put_into(
        &mut self,
        pid: Pid,
        slot: usize,
        (recorder, is_first): (&mut Recorder<'_>, bool),
    ) -> Result<(), RecordError> {
        let arena = recorder.shared.allocator.memory().whole_in(&Maps::read(pid)?);
        let mut program = Patched::new(pid, Some(slot), arena);
        program.find(&mut self.wanted)?;
        if is_first {
            self.wanted.check()?;
        }
        let put_in = program.put_in(&mut self.wanted, recorder);
        if !is_first || put_in.is_ok() {
            // Libraries that come later may be probed where others could not.
            self.programs.push(program);
        }
        put_in.map(|_| ())
    }

    /// Probes what has come, and forgets what has gone.
    pub(super) fn follow(&mut self, recorder: &mut Recorder<'_>) {
        self.forget_ended(recorder);
        for program in &mut self.programs {
            program.follow(&mut self.wanted, recorder);
        }
    }

    /// Forgets programs that no process runs any more. Where the process has ended that was changed first, another one stands for it.
    pub(super) fn forget_ended(&mut self, recorder: &Recorder<'_>) {
        self.programs.retain_mut(|program| match (program.number, program.slot) {
            (Some(number), _) => {
                let pids = recorder.pids_of(number);
                if !pids.contains(&program.pid)
                    && let Some(other) = pids.first()
                {
                    program.pid = *other;
                }
                recorder.shared.programs.has(number)
            }
            (None, Some(slot)) => recorder.is_there(program.pid, slot),
            (None, None) => true,
        });
    }

    /// Takes all probes out of all processes.
    pub(super) fn take_all_out(&mut self, recorder: &mut Recorder<'_>) {
        self.are_out = true;
        self.forget_ended(recorder);
        for program in &mut self.programs {
            program.take_out((&mut self.wanted, recorder), |_, _| true);
        }
    }

    /// Says what is known when nothing more can come.
    pub(super) fn note_end(&self, recorder: &mut Recorder<'_>) {
        if self.wanted.measured.needs(Purpose::Asks) && !self.wanted.is_asked {
            recorder.note(MISSING);
        }
        match &self.failed {
            None => {}
            Some((1, first)) => recorder.note(&format!("an executed program was not probed: {first}")),
            Some((count, first)) => {
                recorder.note(&format!("{count} executed programs were not probed; the first: {first}"))
            }
        }
    }

    /// What is told at the end.
    pub(super) fn results(&mut self) -> Results {
        let wanted = &mut self.wanted;
        Results {
            probed: wanted.probed.len(),
            refused: std::mem::take(&mut wanted.refused),
            stops: std::mem::take(&mut wanted.stops),
            left_in: std::mem::take(&mut wanted.left_in),
        }
    }

    /// All functions that are probed or were, and those that cannot be.
    pub(super) fn list(&self) -> Vec<ListedProbe> {
        let mut listed: Vec<ListedProbe> = Vec::new();
        let mut at: BTreeMap<String, usize> = BTreeMap::new();
        let mut here = BTreeSet::new();
        for module in self.programs.iter().flat_map(|program| &program.modules) {
            for function in module.functions.iter().filter(|function| function.is_shown) {
                here.insert((module.loaded.name(), function.entry));
                let name = self.wanted.chooser.name(module.loaded.name(), function.entry);
                let state = if function.is_in { ListedProbe::PROBED } else { ListedProbe::REMOVED };
                // One that was removed and added again, or is in many programs, stands there once.
                match at.get(&name).and_then(|at| listed.get_mut(*at)) {
                    Some(earlier) if function.is_in => state.clone_into(&mut earlier.state),
                    Some(_) => {}
                    None => {
                        at.insert(name.clone(), listed.len());
                        listed.push(ListedProbe { function: name, state: state.to_owned() });
                    }
                }
            }
        }
        let gone = self.wanted.probed.iter().filter(|(path, entry)| !here.contains(&(path.as_path(), *entry)));
        for (path, entry) in gone {
            let function = self.wanted.chooser.name(path, *entry);
            if at.insert(function.clone(), listed.len()).is_none() {
                listed.push(ListedProbe { function, state: ListedProbe::GONE.to_owned() });
            }
        }
        let refused = self.wanted.refused.iter();
        listed.extend(refused.map(|r| ListedProbe { function: r.function.clone(), state: r.reason.clone() }));
        listed
    }

    /// Probes more, in all programs that there are and in those that come.
    pub(super) fn add(&mut self, patterns: &[String], recorder: &mut Recorder<'_>) -> Answered {
        if self.are_out {
            return Err("the probes were taken out: nothing can be added any more".to_owned());
        }
        self.wanted.add(patterns)?;
        let mut added = BTreeSet::new();
        let mut failed = None;
        for program in &mut self.programs {
            let before = program.modules.len();
            let put_in = program.find_again(&mut self.wanted).and_then(|()| program.put_in(&mut self.wanted, recorder));
            match put_in {
                Ok(_) => {}
                Err(error) if has_memory(program.pid) => drop(failed.get_or_insert(error)),
                Err(_) => {}
            }
            for module in program.modules.iter().skip(before) {
                let shown = module.functions.iter().filter(|function| function.is_shown);
                added.extend(shown.map(|function| (module.loaded.name().to_owned(), function.entry)));
            }
        }
        if let Some(error) = failed.filter(|_| added.is_empty()) {
            return Err(format!("failed to {error}"));
        }
        let Unknown { why, may_come } = self.wanted.chooser.unknown();
        match (added.len(), may_come) {
            (0, false) if why.is_empty() => Err("nothing was added: what is meant is probed, or cannot be".to_owned()),
            (0, false) => Err(why.join("; ")),
            (0, true) if why.is_empty() => {
                Ok("0 functions were added; programs that come later have probes of it\n".to_owned())
            }
            (0, true) => Ok(format!("{}; it will be probed if a program that has it is executed\n", why.join("; "))),
            (count, _) => Ok(format!("{}\n", functions(count, "added"))),
        }
    }

    /// Probes less, in all of them.
    pub(super) fn remove(&mut self, patterns: &[String], recorder: &mut Recorder<'_>) -> Answered {
        let mut meant: BTreeSet<(&Path, LinkAddr)> = BTreeSet::new();
        for module in self.programs.iter().flat_map(|program| &program.modules) {
            let path = module.loaded.name();
            if !module.functions.iter().any(|function| function.is_in && function.is_shown) {
                continue;
            }
            let named = self.wanted.chooser.meant(patterns, module.module.image(), path)?;
            let shown = module.functions.iter().filter(|function| function.is_in && function.is_shown);
            let named = shown.filter(|function| named.contains(&function.entry));
            meant.extend(named.map(|function| (path, function.entry)));
        }
        let meant: BTreeSet<_> = meant.into_iter().map(|(path, entry)| (path.to_owned(), entry)).collect();
        if meant.is_empty() && !(self.wanted.come == Come::Programs && self.wanted.knows(patterns)?) {
            return Err("nothing of that name is probed; see: callpath ctl DIR list".to_owned());
        }
        self.wanted.remove(patterns);
        if meant.is_empty() {
            return Ok("0 functions were removed; programs that come later have no probe of it\n".to_owned());
        }
        let failed_before = self.wanted.left_in.len();
        let mut failed = None;
        for program in &mut self.programs {
            let is_meant = |path: &Path, entry| meant.contains(&(path.to_owned(), entry));
            let count =
                program.take_out((&mut self.wanted, recorder), |module, entry| is_meant(module.loaded.name(), entry));
            if count > 0 {
                program.find_hidden(&mut self.wanted);
                let put_in = program.put_in(&mut self.wanted, recorder);
                // One that has ended meanwhile has none.
                failed = failed.or(put_in.err().filter(|_| has_memory(program.pid)));
            }
        }
        if let Some(error) = failed {
            return Err(format!("failed to {error}"));
        }
        match self.wanted.left_in.get(failed_before) {
            Some(failure) => Err(format!("failed to {failure}")),
            None => Ok(format!("{}\n", functions(meant.len(), "removed"))),
        }
    }

    /// Measures something else from now on, of what the measurement was begun with.
    pub(super) fn measure(&mut self, measured: Measured, recorder: &mut Recorder<'_>) -> Result<(), RecordError> {
        recorder.set_idle_gauges(measured.idle());
        let before = self.wanted.measure(measured);
        let mut result = Ok(());
        for program in &mut self.programs {
            let changed = program.measure(&before, (&mut self.wanted, recorder));
            if result.is_ok() && has_memory(program.pid) {
                result = changed;
            }
        }
        result
    }
}
