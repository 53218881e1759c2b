//! The copies of probed procedures in a process: put in, followed while libraries come and go, taken out.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_image::elf::Image;
use callpath_schema::RefusedProbe;
use callpath_tables::module::Module;
use callpath_tables::probes::{Probe, ProbedModule, probed, room};
use callpath_target::{Edits, Maps, NewMemory, Pid, Write, read_memory};

use crate::error::RecordError;
use crate::events::Probed;
use crate::probe::inject::Injected;
use crate::probe::inside::{inside, standing};
use crate::probe::modules::Loaded;
use crate::probe::{Chooser, halt};
use crate::raw::Standing;
use crate::serve::Recorder;
use crate::settings::RecordOptions;

/// What is to be changed in a module, and the code at home of what is probed there.
type Planned = (Edits<'static>, Vec<Range<LinkAddr>>);

/// The probes in one module.
struct InModule {
    loaded: Loaded,
    edits: Edits<'static>,
}

/// A module in which some procedures were chosen.
struct Found {
    loaded: Loaded,
    image: Arc<Image>,
    bias: u64,
    /// Ascending.
    chosen: Vec<LinkAddr>,
}

/// The probes of a process, and of those that it forks.
pub(crate) struct Probes<'o> {
    is_timed: bool,
    chooser: &'o mut dyn Chooser,
    found: Vec<Found>,
    modules: Vec<InModule>,
    /// Modules of which nothing is probed.
    others: Vec<Loaded>,
    pub(super) probed: usize,
    pub(super) refused: Vec<RefusedProbe>,
    pub(super) stops: Vec<Duration>,
}

impl<'o> Probes<'o> {
    pub(super) fn new(options: &RecordOptions, chooser: &'o mut dyn Chooser) -> Probes<'o> {
        Probes {
            is_timed: options.measures(Probed::WallTime),
            chooser,
            found: Vec::new(),
            modules: Vec::new(),
            others: Vec::new(),
            probed: 0,
            refused: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// Has procedures chosen in all modules that were not seen yet.
    pub(super) fn find(&mut self, pid: Pid) -> Result<(), RecordError> {
        for loaded in Loaded::all(&Maps::read(pid)?) {
            let found = self.found.iter().map(|found| &found.loaded);
            let probed = self.modules.iter().map(|module| &module.loaded);
            if loaded.is_left_alone() || found.chain(probed).chain(&self.others).any(|known| *known == loaded) {
                continue;
            }
            let Some((image, bias)) = loaded.image(pid) else {
                self.others.push(loaded);
                continue;
            };
            let image = Arc::new(image);
            let mut chosen = self.chooser.choose(&image, loaded.name());
            chosen.sort_unstable();
            chosen.dedup();
            match chosen.is_empty() {
                true => self.others.push(loaded),
                false => self.found.push(Found { loaded, image, bias, chosen }),
            }
        }
        Ok(())
    }

    /// Whether what was found is worth to go on.
    ///
    /// # Errors
    /// The chooser's.
    pub(super) fn check(&mut self) -> Result<(), RecordError> {
        self.chooser.check().map_err(|reason| RecordError::NotChosen { reason })
    }

    /// Puts probes where procedures were chosen.
    pub(super) fn put_in(
        &mut self,
        recorder: &mut Recorder<'_>,
        pid: Pid,
        injected: Injected,
    ) -> Result<(), RecordError> {
        for found in std::mem::take(&mut self.found) {
            let planned = self.plan(&found, pid, injected)?;
            recorder.serve();
            match planned {
                Some((edits, homes)) => {
                    let threads = self.apply(&edits, pid)?;
                    let inside = inside(recorder, pid, &threads, (&homes, found.bias));
                    let account = recorder.probes();
                    account.inside_when_set = account.inside_when_set.saturating_add(inside);
                    self.modules.push(InModule { loaded: found.loaded, edits });
                }
                None => self.others.push(found.loaded),
            }
        }
        recorder.probes().refused.clone_from(&self.refused);
        Ok(())
    }

    /// What is to be changed for a module's probes.
    fn plan(&mut self, found: &Found, pid: Pid, injected: Injected) -> Result<Option<Planned>, RecordError> {
        let Found { loaded, image, bias, chosen } = found;
        let module = Module::new(Arc::clone(image));
        let code_bytes: u64 = module.file().code().iter().map(|code| code.end.0.saturating_sub(code.start.0)).sum();
        let room = room(code_bytes, chosen.len() as u64);
        let Some(place) = Maps::read(pid)?.free_near(loaded.start..loaded.end, room) else {
            return Err(RecordError::NoRoom { module: loaded.name().to_owned() });
        };
        let probe = Probe { bias: *bias, routines: injected.routines, is_timed: self.is_timed };
        let planned = probed(&module, RunAddr(place).to_link(*bias), chosen, &probe);
        self.refused.extend(chosen.iter().filter_map(|entry| {
            let reason = planned.prospect(*entry).why_not()?;
            Some(RefusedProbe { function: self.chooser.name(loaded.name(), *entry), reason })
        }));
        let ProbedModule { changes, end, copies, homes } = planned;
        self.probed += copies.made.len();
        if copies.made.is_empty() {
            return Ok(None);
        }
        let run = |at: LinkAddr| RunAddr(at.0.wrapping_add(*bias));
        let len_bytes = run(end).0.saturating_sub(place);
        let edits = Edits {
            memory: vec![NewMemory::Code { at: RunAddr(place), len_bytes }],
            writes: changes.into_iter().map(|c| Write { at: run(c.at), old: c.old, new: c.new }).collect(),
        };
        Ok(Some((edits, homes)))
    }

    /// Makes the changes in a process that stands still meanwhile. Returns its threads as they stood.
    fn apply(&mut self, edits: &Edits<'static>, pid: Pid) -> Result<Vec<Standing>, RecordError> {
        let halted = halt(pid)?;
        halted.move_out(&changed(edits), |_| None)?;
        let threads = standing(&halted)?;
        halted.apply(edits)?;
        self.stops.push(halted.release()?);
        Ok(threads)
    }

    /// Probes what has come since, and forgets what has gone.
    pub(super) fn follow(&mut self, recorder: &mut Recorder<'_>, pid: Pid, injected: Injected) {
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
        let found = self.find(pid);
        if let Err(error) = found.and_then(|()| self.put_in(recorder, pid, injected)) {
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
                let undone = halt(pid).and_then(|halted| {
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
