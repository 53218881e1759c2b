//! The copies of probed procedures in a process: put in, followed while libraries come and go, taken out.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::shared::probe::Routines;
use callpath_image::elf::Image;
use callpath_schema::RefusedProbe;
use callpath_tables::module::Module;
use callpath_tables::probes::{Change, Hidden, HiddenProbe, Probe, ProbedModule, Purpose, probed, room};
use callpath_target::{Edits, Maps, NewMemory, Pid, TargetError, Write, read_memory};

use crate::error::RecordError;
use crate::moved::MovedCode;
use crate::probe::asks::{MISSING, asking_functions};
use crate::probe::chooser::Chooser;
use crate::probe::halt::{Stops, halt, halt_first};
use crate::probe::inject::Injected;
use crate::probe::inside::{Homes, inside, standing};
use crate::probe::measured::Measured;
use crate::probe::modules::Loaded;
use crate::probe::waits::waiting_functions;
use crate::raw::Standing;
use crate::serve::Recorder;
use crate::settings::RecordOptions;

/// So many places for new memory are tried.
const PLACES: u32 = 5;
/// How long the recipe tables of a library that has come may take before it is probed without them.
const TABLES_AT_MOST: Duration = Duration::from_secs(2);
/// How long the whole tables of large modules may take before the first probes are put in without them.
const WHOLE_TABLES_AT_MOST: Duration = Duration::from_secs(30);

/// The probe of a procedure.
pub(super) struct InFunction {
    pub(super) entry: LinkAddr,
    /// Jumps that lead to its copy.
    jumps: Vec<Write>,
    /// They are written.
    pub(super) is_in: bool,
    /// Somebody has chosen it; else it has a hidden probe only.
    pub(super) is_shown: bool,
}

/// Probes in one module that were put in at once. Their memory stays when they are taken out: threads may be in it.
pub(super) struct InModule {
    pub(super) loaded: Loaded,
    pub(super) functions: Vec<InFunction>,
}

/// A module in which some procedures were chosen.
struct Found {
    loaded: Loaded,
    image: Arc<Image>,
    bias: u64,
    /// Ascending.
    chosen: Vec<LinkAddr>,
    /// Functions that get hidden probes, ascending.
    hidden: Vec<HiddenProbe>,
}

/// What is to be changed in a module.
struct Planned {
    memory: NewMemory<'static>,
    /// What is written into new memory.
    code: Vec<Write>,
    functions: Vec<InFunction>,
    /// Where the new code belongs.
    moved: MovedCode,
    /// The code at home of what is probed, ascending.
    homes: Vec<Range<LinkAddr>>,
}

/// The probes of a process, and of those that it forks.
pub(crate) struct Probes<'o> {
    pub(super) measured: Measured,
    pub(super) chooser: &'o mut dyn Chooser,
    found: Vec<Found>,
    pub(super) modules: Vec<InModule>,
    /// Modules of which nothing is probed.
    others: Vec<Loaded>,
    /// What was ever probed: module and entry.
    probed: BTreeSet<(PathBuf, LinkAddr)>,
    pub(super) refused: Vec<RefusedProbe>,
    pub(super) stops: Stops,
    /// Functions that could not get hidden probes, of the last module, each with its reason.
    blind: Vec<String>,
    /// Some function asks for contexts.
    is_asked: bool,
    /// Why probes could not be taken out.
    pub(super) left_in: Vec<String>,
}

impl<'o> Probes<'o> {
    pub(super) fn new(options: &RecordOptions, chooser: &'o mut dyn Chooser) -> Probes<'o> {
        Probes {
            measured: Measured::all_of(options),
            chooser,
            found: Vec::new(),
            modules: Vec::new(),
            others: Vec::new(),
            probed: BTreeSet::new(),
            refused: Vec::new(),
            stops: Stops::default(),
            blind: Vec::new(),
            is_asked: false,
            left_in: Vec::new(),
        }
    }

    /// Has procedures chosen in all modules that were not seen yet.
    pub(super) fn find(&mut self, pid: Pid) -> Result<(), RecordError> {
        for loaded in Loaded::all(&Maps::read(pid)?) {
            let found = self.found.iter().map(|found| &found.loaded);
            let probed = self.modules.iter().map(|module| &module.loaded);
            if !found.chain(probed).chain(&self.others).any(|known| *known == loaded) {
                self.find_in(loaded, pid, false);
            }
        }
        Ok(())
    }

    /// Has what was added chosen in all modules.
    pub(super) fn find_again(&mut self, pid: Pid) -> Result<(), RecordError> {
        for loaded in Loaded::all(&Maps::read(pid)?) {
            self.others.retain(|other| *other != loaded);
            self.find_in(loaded, pid, true);
        }
        Ok(())
    }

    fn find_in(&mut self, loaded: Loaded, pid: Pid, added: bool) {
        let image = (!loaded.is_left_alone()).then(|| loaded.image(pid)).flatten();
        let Some((image, bias)) = image else { return self.others.push(loaded) };
        let image = Arc::new(image);
        let (chooser, name) = (&mut *self.chooser, loaded.name());
        let mut chosen = if added { chooser.choose_added(&image, name) } else { chooser.choose(&image, name) };
        chosen.sort_unstable();
        chosen.dedup();
        let known = self.functions_in(&loaded, |function| function.is_shown);
        chosen.retain(|entry| !known.contains(entry));
        let there = self.functions_in(&loaded, |_| true);
        let mut hidden = self.hidden(&image, &loaded);
        hidden.retain(|function| !there.contains(&function.entry) || chosen.contains(&function.entry));
        match chosen.is_empty() && hidden.is_empty() {
            true => self.others.push(loaded),
            false => self.found.push(Found { loaded, image, bias, chosen, hidden }),
        }
    }

    /// What is probed of a module, of those that `are_meant`.
    fn functions_in(&self, loaded: &Loaded, are_meant: impl Fn(&InFunction) -> bool) -> Vec<LinkAddr> {
        let of_module = self.modules.iter().filter(|module| module.loaded == *loaded);
        let there = of_module.flat_map(|module| &module.functions).filter(|f| f.is_in && are_meant(f));
        there.map(|function| function.entry).collect()
    }

    /// The functions of a module that get hidden probes.
    fn hidden(&mut self, image: &Arc<Image>, loaded: &Loaded) -> Vec<HiddenProbe> {
        let needs = |purpose| self.measured.needs(purpose);
        let mut hidden = Vec::new();
        if needs(Purpose::WaitsForOthers) || needs(Purpose::WaitsForIo) {
            hidden.extend(waiting_functions(image, loaded.name()));
            hidden.retain(|function| needs(function.purpose));
        }
        if needs(Purpose::Asks) {
            let asking = asking_functions(image);
            self.is_asked |= asking.iter().any(|function| function.purpose == Purpose::Asks);
            hidden.extend(asking);
        }
        hidden.sort_unstable();
        hidden
    }

    /// How many functions were ever probed.
    pub(super) fn probed(&self) -> usize {
        self.probed.len()
    }

    /// Has hidden probes found that are missing: a function had one together with a probe that was taken out.
    pub(super) fn find_hidden(&mut self, pid: Pid) {
        let mut all: Vec<Loaded> = Vec::new();
        for module in &self.modules {
            if !all.contains(&module.loaded) {
                all.push(module.loaded.clone());
            }
        }
        for loaded in all {
            let Some((image, bias)) = loaded.image(pid) else { continue };
            let image = Arc::new(image);
            let mut hidden = self.hidden(&image, &loaded);
            let there = self.functions_in(&loaded, |_| true);
            hidden.retain(|function| !there.contains(&function.entry));
            if !hidden.is_empty() {
                self.found.push(Found { loaded, image, bias, chosen: Vec::new(), hidden });
            }
        }
    }

    /// Whether what was found is worth to go on.
    ///
    /// # Errors
    /// The chooser's.
    pub(super) fn check(&mut self) -> Result<(), RecordError> {
        self.chooser.check().map_err(|reason| RecordError::NotChosen { reason })
    }

    /// Puts probes where procedures were chosen. Returns how many.
    ///
    /// # Errors
    /// If none could be put in. Where some could, a note says what failed.
    pub(super) fn put_in(
        &mut self,
        recorder: &mut Recorder<'_>,
        pid: Pid,
        injected: Injected,
    ) -> Result<usize, RecordError> {
        if self.modules.is_empty() && self.measured.needs(Purpose::Asks) && !self.is_asked {
            recorder.note(MISSING);
        }
        if self.modules.is_empty() && !self.found.is_empty() {
            recorder.await_whole_tables(pid, WHOLE_TABLES_AT_MOST);
        }
        let mut count = 0;
        let mut failed = Vec::new();
        for found in std::mem::take(&mut self.found) {
            match self.put_in_module(&found, recorder, (pid, injected)) {
                Ok(0) => self.others.push(found.loaded),
                Ok(functions) => count += functions,
                Err(error) => {
                    failed.push(error);
                    self.others.push(found.loaded);
                }
            }
        }
        recorder.probes().refused.clone_from(&self.refused);
        if count == 0 && !failed.is_empty() {
            return Err(failed.swap_remove(0));
        }
        failed.iter().for_each(|error| recorder.note(&format!("failed to {error}")));
        Ok(count)
    }

    /// The same in one module.
    fn put_in_module(
        &mut self,
        found: &Found,
        recorder: &mut Recorder<'_>,
        (pid, injected): (Pid, Injected),
    ) -> Result<usize, RecordError> {
        let mut places = 0;
        // A hidden probe makes room for one that does both.
        self.take_out(recorder, |loaded, entry| *loaded == found.loaded && found.chosen.contains(&entry));
        let (threads, mut functions, homes) = loop {
            let planned = self.plan(found, pid, injected)?;
            recorder.serve();
            let blind = std::mem::take(&mut self.blind);
            blind.iter().for_each(|why| recorder.note(why));
            let Some(Planned { memory, code, functions, moved, homes }) = planned else { return Ok(0) };
            let jumps = functions.iter().flat_map(|function| function.jumps.iter().cloned());
            let edits = Edits { memory: vec![memory], writes: code.into_iter().chain(jumps).collect() };
            places += 1;
            match self.apply(edits, pid, (recorder, moved)) {
                Ok(threads) => break (threads, functions, homes),
                // The program, or another probe, has mapped something there meanwhile.
                Err(error) if places < PLACES && is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        };
        functions.iter_mut().for_each(|function| function.is_in = true);
        let entries: Vec<LinkAddr> = functions.iter().map(|function| function.entry).collect();
        let homes = Homes { code: &homes, entries: &entries, bias: found.bias };
        let inside = inside(recorder, pid, &threads, &homes);
        let account = recorder.probes();
        account.inside_when_set = account.inside_when_set.saturating_add(inside);
        let shown = functions.iter().filter(|function| function.is_shown);
        let count = shown.clone().count();
        self.probed.extend(shown.map(|function| (found.loaded.name().to_owned(), function.entry)));
        self.modules.push(InModule { loaded: found.loaded.clone(), functions });
        Ok(count)
    }

    /// What is to be changed for a module's probes.
    fn plan(&mut self, found: &Found, pid: Pid, injected: Injected) -> Result<Option<Planned>, RecordError> {
        let Found { loaded, image, bias, chosen, hidden } = found;
        let module = Module::new(Arc::clone(image));
        let code_bytes: u64 = module.file().code().iter().map(|code| code.end.0.saturating_sub(code.start.0)).sum();
        let room = room(code_bytes, (chosen.len() + hidden.len()) as u64);
        let Some(place) = Maps::read(pid)?.free_near(loaded.start..loaded.end, room) else {
            return Err(RecordError::NoRoom { module: loaded.name().to_owned() });
        };
        let Routines { wait, wait_for_io, go_on, ask, jump, catch, .. } = injected.routines;
        let probe = Probe {
            bias: *bias,
            called: self.measured.called(&injected.routines),
            hidden: Hidden { for_others: wait, for_io: wait_for_io, go_on, ask, jump, catch, functions: hidden },
        };
        let planned = probed(&module, RunAddr(place).to_link(*bias), chosen, &probe);
        for entry in chosen {
            let Some(reason) = planned.prospect(*entry).why_not() else { continue };
            let refused = RefusedProbe { function: self.chooser.name(loaded.name(), *entry), reason };
            if !self.refused.contains(&refused) {
                self.refused.push(refused);
            }
        }
        self.blind = hidden
            .iter()
            .filter_map(|function| Some((function, planned.prospect(function.entry).why_not()?)))
            .map(|(function, why)| {
                let name = self.chooser.name(loaded.name(), function.entry);
                match function.purpose {
                    Purpose::WaitsForOthers | Purpose::WaitsForIo => {
                        format!("what this function waits is not measured: {name}: {why}")
                    }
                    Purpose::Asks => format!("this function returns no context: {name}: {why}"),
                    Purpose::Jumps | Purpose::Catches => {
                        format!("contexts that this function leaves seem to go on for a while: {name}: {why}")
                    }
                }
            })
            .collect();
        let ProbedModule { changes, functions, end, moved, homes, .. } = planned;
        if functions.is_empty() {
            return Ok(None);
        }
        let run = |at: LinkAddr| RunAddr(at.0.wrapping_add(*bias));
        let write = |change: Change| Write { at: run(change.at), old: change.old, new: change.new };
        let mut code: Vec<Write> = changes.into_iter().map(write).collect();
        let functions = functions.into_iter().map(|function| {
            let writes = function.changes.into_iter().map(write);
            let (jumps, copy): (Vec<Write>, Vec<Write>) = writes.partition(|write| write.old.is_some());
            code.extend(copy);
            let is_shown = chosen.binary_search(&function.entry).is_ok();
            InFunction { entry: function.entry, jumps, is_in: false, is_shown }
        });
        let functions = functions.collect();
        let memory = NewMemory::Code { at: RunAddr(place), len_bytes: run(end).0.saturating_sub(place) };
        let moved = MovedCode::of_module(loaded.mapped(*bias), moved);
        Ok(Some(Planned { memory, code, functions, moved, homes }))
    }

    /// Adds the new code to a process, and makes the changes while it stands still, up to when its load map says where the
    /// new code belongs. Returns its threads as they stood.
    fn apply(
        &mut self,
        edits: Edits<'static>,
        pid: Pid,
        (recorder, mut moved): (&mut Recorder<'_>, MovedCode),
    ) -> Result<Vec<Standing>, RecordError> {
        recorder.prepare(pid, &mut moved);
        let (new, changes) = edits.apart();
        let stopped = halt_first(pid)?;
        stopped.add(&new)?;
        self.stops.end(stopped)?;
        let halted = halt(pid)?;
        halted.move_out(&changed(&changes), |_| None)?;
        let threads = standing(&halted)?;
        halted.apply(&changes)?;
        recorder.shared.moved.push(moved);
        recorder.refresh_map(pid, Duration::ZERO);
        self.stops.end(halted.into())?;
        Ok(threads)
    }

    /// Measures something else from now on, of what the measurement was begun with.
    pub(super) fn measure(
        &mut self,
        measured: Measured,
        recorder: &mut Recorder<'_>,
        (pid, injected): (Pid, Injected),
    ) -> Result<(), RecordError> {
        recorder.set_idle_gauges(measured.idle());
        let before = std::mem::replace(&mut self.measured, measured);
        if !self.measured.differs_from(&before, &injected.routines) {
            return Ok(());
        }
        let probed: Vec<(Loaded, Vec<LinkAddr>)> = self
            .modules
            .iter()
            .map(|module| {
                let shown = module.functions.iter().filter(|function| function.is_in && function.is_shown);
                (module.loaded.clone(), shown.map(|function| function.entry).collect())
            })
            .collect();
        self.take_out(recorder, |_, _| true);
        // Each module once, with all that was chosen in it; what waits may be in one of which nothing is.
        let mut modules: Vec<(Loaded, Vec<LinkAddr>)> = Vec::new();
        let others = std::mem::take(&mut self.others).into_iter().map(|loaded| (loaded, Vec::new()));
        for (loaded, chosen) in probed.into_iter().chain(others) {
            match modules.iter_mut().find(|(known, _)| *known == loaded) {
                Some((_, all)) => all.extend(chosen),
                None => modules.push((loaded, chosen)),
            }
        }
        for (loaded, mut chosen) in modules {
            let image = (!loaded.is_left_alone()).then(|| loaded.image(pid)).flatten();
            let image = image.map(|(image, bias)| (Arc::new(image), bias));
            let hidden = image.as_ref().map(|(image, _)| self.hidden(image, &loaded)).unwrap_or_default();
            chosen.sort_unstable();
            chosen.dedup();
            match image.filter(|_| !chosen.is_empty() || !hidden.is_empty()) {
                Some((image, bias)) => self.found.push(Found { loaded, image, bias, chosen, hidden }),
                None => self.others.push(loaded),
            }
        }
        self.put_in(recorder, pid, injected)?;
        Ok(())
    }

    /// Probes what has come since, and forgets what has gone.
    pub(super) fn follow(&mut self, recorder: &mut Recorder<'_>, pid: Pid, injected: Injected) {
        let Ok(maps) = Maps::read(pid) else { return };
        // Where a library is mapped anew, what stands there is its file's.
        self.modules.retain(|module| module.loaded.is_in(&maps) && module.is_in_force(pid));
        self.others.retain(|loaded| loaded.is_in(&maps));
        if !recorder.shared.allocator.is_mapped_in(&maps) || !injected.is_in(&maps) {
            if !maps.entries.is_empty() {
                recorder.note("the process executed another program, which is not probed");
            }
            return;
        }
        let found = self.find(pid);
        if !self.found.is_empty() {
            // Its first calls are to have whole paths.
            recorder.refresh_map(pid, TABLES_AT_MOST);
        }
        if let Err(error) = found.and_then(|()| self.put_in(recorder, pid, injected)) {
            recorder.note(&format!("failed to {error}"));
        }
    }

    /// Takes probes out of all processes that have them: those of the procedures that `is_meant` says, by module and
    /// entry. The copies stay: threads may be in them. Returns how many; what fails is in `left_in`.
    pub(super) fn take_out(
        &mut self,
        recorder: &mut Recorder<'_>,
        is_meant: impl Fn(&Loaded, LinkAddr) -> bool,
    ) -> usize {
        let mut count = 0;
        let pids = recorder.pids();
        for number in 0..self.modules.len() {
            let Some(module) = self.modules.get_mut(number) else { continue };
            let InModule { loaded, functions } = module;
            let meant = functions.iter_mut().filter(|function| function.is_in && is_meant(loaded, function.entry));
            let (mut writes, mut entries) = (Vec::new(), Vec::new());
            for function in meant {
                entries.push(function.entry);
                writes.extend(function.jumps.iter().cloned());
                function.is_in = false;
                count += 1;
            }
            if writes.is_empty() {
                continue;
            }
            let edits = Edits { memory: Vec::new(), writes };
            let loaded = loaded.clone();
            for moved in recorder.shared.moved.iter_mut().filter(|moved| loaded.is_home_of(moved)) {
                moved.take_out(&entries);
            }
            for &pid in &pids {
                match undo(recorder, pid, (&loaded, &edits, &mut self.stops)) {
                    Ok(()) => {}
                    Err(error) => self.left_in.push(format!("take probes out of process {pid}: {error}")),
                }
            }
        }
        count
    }
}

/// Puts back what stood in a module, if it is there.
fn undo(
    recorder: &mut Recorder<'_>,
    pid: Pid,
    (loaded, edits, stops): (&Loaded, &Edits<'static>, &mut Stops),
) -> Result<(), RecordError> {
    let Ok(maps) = Maps::read(pid) else { return Ok(()) };
    let is_there = recorder.shared.allocator.is_mapped_in(&maps) && loaded.is_in(&maps);
    if !is_there || !edits.writes.first().is_some_and(|write| stands(pid, write)) {
        return Ok(());
    }
    let halted = halt(pid)?;
    halted.move_out(&changed(edits), |_| None)?;
    halted.undo(edits)?;
    recorder.refresh_map(pid, Duration::ZERO);
    stops.end(halted.into())
}

impl InModule {
    /// Whether what was written is still there.
    fn is_in_force(&self, pid: Pid) -> bool {
        let mut written = self.functions.iter().filter(|function| function.is_in).flat_map(|function| &function.jumps);
        written.next().is_none_or(|write| stands(pid, write))
    }
}

/// Whether memory could not be mapped because there is something by now.
fn is_taken(error: &RecordError) -> bool {
    let RecordError::Target(TargetError::Trace { source, .. }) = error else { return false };
    source.kind() == std::io::ErrorKind::AlreadyExists
}

/// Whether bytes that were written are there.
fn stands(pid: Pid, write: &Write) -> bool {
    let mut there = vec![0; write.new.len()];
    read_memory(pid, write.at.0, &mut there) == there.len() && there == write.new
}

/// Where bytes of the program's own code change.
fn changed(edits: &Edits<'_>) -> Vec<Range<RunAddr>> {
    let changed = edits.writes.iter().filter(|write| write.old.is_some());
    changed.map(|write| write.at..RunAddr(write.at.0 + write.new.len() as u64)).collect()
}
