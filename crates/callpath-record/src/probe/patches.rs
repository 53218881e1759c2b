//! The copies of probed procedures in a process: put in, followed while libraries come and go, taken out.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use callpath_format::address::RunAddr;
use callpath_tables::module::Module;
use callpath_tables::probes::{Probe, ProbedModule, probed, room};
use callpath_target::{Edits, Maps, NewMemory, Pid, Write, read_memory};

use crate::error::RecordError;
use crate::events::Probed;
use crate::probe::inject::Injected;
use crate::probe::modules::Loaded;
use crate::probe::{Choose, RefusedFunction, halt};
use crate::serve::Recorder;
use crate::settings::RecordOptions;

/// The probes in one module.
struct InModule {
    loaded: Loaded,
    edits: Edits<'static>,
}

/// The probes of a process, and of those that it forks.
pub(crate) struct Probes<'o> {
    injected: Injected,
    is_timed: bool,
    choose: Choose<'o>,
    modules: Vec<InModule>,
    /// Modules of which nothing is probed.
    others: Vec<Loaded>,
    pub(super) probed: usize,
    pub(super) refused: Vec<RefusedFunction>,
    pub(super) stops: Vec<Duration>,
}

impl<'o> Probes<'o> {
    pub(super) fn new(injected: Injected, options: &RecordOptions, choose: Choose<'o>) -> Probes<'o> {
        Probes {
            injected,
            is_timed: options.measures(Probed::WallTime),
            choose,
            modules: Vec::new(),
            others: Vec::new(),
            probed: 0,
            refused: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// Puts probes into all modules that have none yet.
    pub(super) fn put_in(&mut self, recorder: &mut Recorder<'_>, pid: Pid) -> Result<(), RecordError> {
        let maps = Maps::read(pid)?;
        for loaded in Loaded::all(&maps) {
            let is_known = self.modules.iter().map(|module| &module.loaded).chain(&self.others).any(|l| *l == loaded);
            if is_known || loaded.is_left_alone() {
                continue;
            }
            match self.plan(&loaded, pid)? {
                Some(edits) => {
                    self.apply(&edits, pid)?;
                    self.modules.push(InModule { loaded, edits });
                }
                None => self.others.push(loaded),
            }
            recorder.serve();
        }
        Ok(())
    }

    /// What is to be changed for a module's probes.
    fn plan(&mut self, loaded: &Loaded, pid: Pid) -> Result<Option<Edits<'static>>, RecordError> {
        let Some((image, bias)) = loaded.image(pid) else { return Ok(None) };
        let image = Arc::new(image);
        let mut chosen = (self.choose)(&image, loaded.name());
        if chosen.is_empty() {
            return Ok(None);
        }
        chosen.sort_unstable();
        chosen.dedup();
        let module = Module::new(image);
        let code_bytes: u64 = module.file().code().iter().map(|code| code.end.0.saturating_sub(code.start.0)).sum();
        let room = room(code_bytes, chosen.len() as u64);
        let Some(place) = Maps::read(pid)?.free_near(loaded.start..loaded.end, room) else {
            return Err(RecordError::NoRoom { module: loaded.name().to_owned() });
        };
        let probe = Probe { bias, routines: self.injected.routines, is_timed: self.is_timed };
        let ProbedModule { changes, end, copies } =
            probed(&module, RunAddr(place).to_link(bias), &chosen, &probe);
        self.probed += copies.made.len();
        self.refused.extend(copies.refused.iter().map(|refused| RefusedFunction {
            module: loaded.name().to_owned(),
            entry: refused.entry,
            reason: refused.refusal.to_string(),
        }));
        if copies.made.is_empty() {
            return Ok(None);
        }
        let run = |at: callpath_format::address::LinkAddr| RunAddr(at.0.wrapping_add(bias));
        let len_bytes = run(end).0.saturating_sub(place);
        Ok(Some(Edits {
            memory: vec![NewMemory::Code { at: RunAddr(place), len_bytes }],
            writes: changes.into_iter().map(|c| Write { at: run(c.at), old: c.old, new: c.new }).collect(),
        }))
    }

    /// Makes the changes in a process that stands still meanwhile.
    fn apply(&mut self, edits: &Edits<'static>, pid: Pid) -> Result<(), RecordError> {
        let mut halted = halt(pid)?;
        halted.move_out(&changed(edits), |_| None)?;
        halted.apply(edits)?;
        self.stops.push(halted.release()?);
        Ok(())
    }

    /// Probes what has come since, and forgets what has gone.
    pub(super) fn follow(&mut self, recorder: &mut Recorder<'_>, pid: Pid) {
        let Ok(maps) = Maps::read(pid) else { return };
        // Where a library is mapped anew, what stands there is its file's.
        self.modules.retain(|module| module.loaded.is_in(&maps) && module.is_in_force(pid));
        self.others.retain(|loaded| loaded.is_in(&maps));
        if !recorder.shared.allocator.is_mapped_in(&maps) {
            if !maps.entries.is_empty() {
                recorder.note("the process executed another program, which is not probed");
            }
            return;
        }
        if let Err(error) = self.put_in(recorder, pid) {
            recorder.note(&format!("failed to {error}"));
        }
    }

    /// Takes the probes out of all processes that have them. The copies stay: threads may be in them.
    pub(super) fn take_out(&mut self, recorder: &mut Recorder<'_>) {
        for pid in recorder.pids() {
            let Ok(maps) = Maps::read(pid) else { continue };
            if !recorder.shared.allocator.is_mapped_in(&maps) {
                continue;
            }
            for module in self.modules.iter().filter(|module| module.loaded.is_in(&maps) && module.is_in_force(pid)) {
                let undone = halt(pid).and_then(|mut halted| {
                    halted.move_out(&changed(&module.edits), |_| None)?;
                    halted.undo(&module.edits)?;
                    Ok(halted.release()?)
                });
                match undone {
                    Ok(stopped) => self.stops.push(stopped),
                    Err(error) => recorder.note(&format!("failed to take probes out of process {pid}: {error}")),
                }
            }
        }
    }
}

impl InModule {
    /// Whether what was written is still there.
    fn is_in_force(&self, pid: Pid) -> bool {
        let Some(write) = self.edits.writes.iter().find(|write| write.old.is_some()) else { return false };
        let mut there = vec![0; write.new.len()];
        read_memory(pid, write.at.0, &mut there) == there.len() && there == write.new
    }
}

/// Where bytes of the program's own code change.
fn changed(edits: &Edits<'_>) -> Vec<Range<RunAddr>> {
    let changed = edits.writes.iter().filter(|write| write.old.is_some());
    changed.map(|write| write.at..RunAddr(write.at.0 + write.new.len() as u64)).collect()
}
