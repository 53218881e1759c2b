//! The copies of probed procedures in one program: put in, followed while libraries come and go, taken out. Its forks have them, too.

use std::ops::Range;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::shared::probe::Routines;
use callpath_schema::RefusedProbe;
use callpath_tables::module::Module;
use callpath_tables::probes::{Called, Change, Hidden, Probe, ProbedModule, Purpose, probed, room};
use callpath_target::{Edits, Maps, NewMemory, Pid, SharedMemory, TargetError, Write, read_memory};

use crate::error::RecordError;
use crate::meanwhile::meanwhile;
use crate::moved::{MovedCode, ProgramNumber};
use crate::probe::halt::{Stops, halt, halt_first};
use crate::probe::inject::{Injected, InjectedInto};
use crate::probe::inside::{Homes, inside, standing};
use crate::probe::measured::Measured;
use crate::probe::modules::Loaded;
use crate::probe::wanted::{Functions, Wanted};
use crate::raw::Standing;
use crate::serve::Recorder;
use crate::threads;

/// So many places for new memory are tried.
const PLACES: u32 = 5;
/// How long the recipe tables of a library that has come may take before it is probed without them.
const TABLES_AT_MOST: Duration = Duration::from_secs(2);
/// How long the whole tables of large modules may take before the first probes are put in without them.
const WHOLE_TABLES_AT_MOST: Duration = Duration::from_secs(30);
/// What marks the processes that run a program, bytes.
const MARK_BYTES: usize = 4096;

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
    pub(super) module: Rc<Module>,
    bias: u64,
    pub(super) functions: Vec<InFunction>,
}

/// A module in which some procedures were chosen.
struct Found {
    loaded: Loaded,
    module: Rc<Module>,
    bias: u64,
    functions: Functions,
}

/// The probes of a module, as data, for memory at a place.
struct Ahead {
    place: u64,
    probed: ProbedModule,
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

/// The probes of a program, in a process that runs it and in those that it forks.
pub(super) struct Patched {
    /// The process.
    pub(super) pid: Pid,
    /// The slot that it has taken; `None`: it has not joined by itself.
    pub(super) slot: Option<usize>,
    /// Where it has mapped the memory of the measurement, if it has joined by itself.
    arena: Option<RunAddr>,
    /// Once there is code of ours in it; `None`: there is none yet, or it has not joined by itself.
    pub(super) number: Option<ProgramNumber>,
    /// Once it has our object.
    pub(super) injected: Option<Injected>,
    /// Where probes are still to be put in.
    found: Vec<Found>,
    pub(super) modules: Vec<InModule>,
    /// Modules of which nothing is probed.
    others: Vec<Loaded>,
}

impl Patched {
    /// A program without probes. `slot`, `arena`: where it has joined by itself.
    pub(super) fn new(pid: Pid, slot: Option<usize>, arena: Option<RunAddr>) -> Patched {
        Patched {
            pid,
            slot,
            arena,
            number: None,
            injected: None,
            found: Vec::new(),
            modules: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Has procedures chosen in all modules that were not seen yet.
    pub(super) fn find(&mut self, wanted: &mut Wanted<'_>) -> Result<(), RecordError> {
        for loaded in Loaded::all(&Maps::read(self.pid)?) {
            let found = self.found.iter().map(|found| &found.loaded);
            let probed = self.modules.iter().map(|module| &module.loaded);
            if !found.chain(probed).chain(&self.others).any(|known| *known == loaded) {
                self.find_in(loaded, wanted);
            }
        }
        Ok(())
    }

    /// The same in all modules, where something else is wanted now.
    pub(super) fn find_again(&mut self, wanted: &mut Wanted<'_>) -> Result<(), RecordError> {
        self.found.clear();
        self.others.clear();
        for loaded in Loaded::all(&Maps::read(self.pid)?) {
            self.find_in(loaded, wanted);
        }
        Ok(())
    }

    /// Has those chosen in a module that have no probe yet.
    fn find_in(&mut self, loaded: Loaded, wanted: &mut Wanted<'_>) {
        let Some((module, bias)) = wanted.module(&loaded, self.pid) else { return self.others.push(loaded) };
        let Functions { mut chosen, mut hidden } = wanted.functions(&module, loaded.name());
        let known = self.functions_in(&loaded, |function| function.is_shown);
        chosen.retain(|entry| !known.contains(entry));
        let there = self.functions_in(&loaded, |_| true);
        hidden.retain(|function| !there.contains(&function.entry) || chosen.contains(&function.entry));
        match chosen.is_empty() && hidden.is_empty() {
            true => self.others.push(loaded),
            false => self.found.push(Found { loaded, module, bias, functions: Functions { chosen, hidden } }),
        }
    }

    /// What is probed of a module, of those that `are_meant`.
    fn functions_in(&self, loaded: &Loaded, are_meant: impl Fn(&InFunction) -> bool) -> Vec<LinkAddr> {
        let of_module = self.modules.iter().filter(|module| module.loaded == *loaded);
        let there = of_module.flat_map(|module| &module.functions).filter(|f| f.is_in && are_meant(f));
        there.map(|function| function.entry).collect()
    }

    /// Has hidden probes found that are missing: a function had one together with a probe that was taken out.
    pub(super) fn find_hidden(&mut self, wanted: &mut Wanted<'_>) {
        let mut all: Vec<(Loaded, Rc<Module>, u64)> = Vec::new();
        for InModule { loaded, module, bias, .. } in &self.modules {
            if !all.iter().any(|(known, ..)| known == loaded) {
                all.push((loaded.clone(), Rc::clone(module), *bias));
            }
        }
        for (loaded, module, bias) in all {
            let mut hidden = wanted.hidden(&module, loaded.name());
            let there = self.functions_in(&loaded, |_| true);
            hidden.retain(|function| !there.contains(&function.entry));
            if !hidden.is_empty() {
                let functions = Functions { chosen: Vec::new(), hidden };
                self.found.push(Found { loaded, module, bias, functions });
            }
        }
    }

    /// Whether there is anything to count in it. Hidden probes alone are of no use.
    fn has_any(&self) -> bool {
        !self.modules.is_empty() || self.found.iter().any(|found| !found.functions.chosen.is_empty())
    }

    /// Brings our object into a program that has taken a slot.
    fn inject(&mut self, wanted: &mut Wanted<'_>, recorder: &mut Recorder<'_>) -> Result<Injected, RecordError> {
        let number = recorder.shared.programs.next();
        let mark = SharedMemory::create(c"callpath-program", MARK_BYTES)?;
        let into = InjectedInto {
            pid: self.pid,
            slot: self.slot,
            program: Some(number),
            mark: Some(&mark),
            counts_contexts: false,
        };
        let injected = Injected::into(into, recorder, (wanted.object, &mut wanted.stops));
        if injected.is_err() {
            recorder.shared.moved.forget(number, &mut recorder.shared.publisher);
        }
        let injected = injected?;
        recorder.shared.programs.add_marked(number, mark);
        recorder.refresh_map(self.pid, Duration::ZERO);
        self.number = Some(number);
        self.injected = Some(injected);
        Ok(injected)
    }

    /// Puts probes where procedures were chosen. Returns how many.
    ///
    /// # Errors
    /// If none could be put in. Where some could, a note says what failed.
    pub(super) fn put_in(
        &mut self,
        wanted: &mut Wanted<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<usize, RecordError> {
        if self.injected.is_none() && !self.has_any() {
            return Ok(0);
        }
        if self.slot.is_some() && !self.is_run_by(&Maps::read(self.pid)?, recorder) {
            // What was found is the other one's, which waits for its own.
            self.found.clear();
            return Ok(0);
        }
        let injected = match self.injected {
            Some(injected) => injected,
            None => self.inject(wanted, recorder)?,
        };
        if self.modules.is_empty() && !self.found.is_empty() {
            recorder.await_whole_tables(self.pid, WHOLE_TABLES_AT_MOST);
        }
        let mut count = 0;
        let mut failed = Vec::new();
        let found = std::mem::take(&mut self.found);
        let called = wanted.measured.called(&injected.routines);
        let ahead = match self.plan_ahead(&found, (&called, injected), recorder) {
            Ok(ahead) => ahead,
            Err(error) => {
                self.others.extend(found.into_iter().map(|found| found.loaded));
                return Err(error);
            }
        };
        for (found, ahead) in found.into_iter().zip(ahead) {
            match self.put_in_module((&found, ahead), (wanted, recorder), injected) {
                Ok(0) => self.others.push(found.loaded),
                Ok(functions) => count += functions,
                Err(error) => {
                    failed.push(error);
                    self.others.push(found.loaded);
                }
            }
        }
        recorder.probes().refused.clone_from(&wanted.refused);
        if count == 0 && !failed.is_empty() {
            return Err(failed.swap_remove(0));
        }
        failed.iter().for_each(|error| recorder.note(&format!("failed to {error}")));
        Ok(count)
    }

    /// Plans the probes of several modules on all processors, each for a place of its own. `None`: there is no room near it.
    fn plan_ahead(
        &self,
        found: &[Found],
        (called, injected): (&Called, Injected),
        recorder: &mut Recorder<'_>,
    ) -> Result<Vec<Option<Ahead>>, RecordError> {
        let mut maps = Maps::read(self.pid)?;
        let mut places = Vec::with_capacity(found.len());
        for found in found {
            let place = found.place_in(&maps);
            if let Some((at, len_bytes)) = place {
                maps.take(at, len_bytes);
            }
            places.push(place.map(|(at, _)| at));
        }
        // Without the reference to the module, which belongs to this thread.
        let jobs =
            found.iter().zip(places).map(|(found, place)| Some((&*found.module, found.bias, &found.functions, place?)));
        let jobs: Vec<_> = jobs.collect();
        let (called, next) = (*called, AtomicUsize::new(0));
        let done: Vec<OnceLock<Ahead>> = jobs.iter().map(|_| OnceLock::new()).collect();
        let work = || {
            while let Some((job, done)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| jobs.get(at).zip(done.get(at)))
            {
                if let Some((module, bias, functions, place)) = *job {
                    let probed = functions.probed_in((module, bias), place, (called, injected));
                    done.get_or_init(|| Ahead { place, probed });
                }
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        let all = || {
            std::thread::scope(|scope| {
                let others: Vec<_> = (1..processors).filter_map(|_| threads::start_in(scope, work)).collect();
                work();
                drop(others);
            });
        };
        meanwhile(recorder, all)?;
        Ok(done.into_iter().map(OnceLock::into_inner).collect())
    }

    /// The same in one module.
    fn put_in_module(
        &mut self,
        (found, mut ahead): (&Found, Option<Ahead>),
        (wanted, recorder): (&mut Wanted<'_>, &mut Recorder<'_>),
        injected: Injected,
    ) -> Result<usize, RecordError> {
        let mut places = 0;
        // A hidden probe makes room for one that does both.
        let chosen = &found.functions.chosen;
        self.take_out((wanted, recorder), |of, entry| of.loaded == found.loaded && chosen.contains(&entry));
        let (threads, mut functions, homes) = loop {
            let planned = self.plan((found, ahead.take()), (wanted, recorder), injected)?;
            recorder.serve();
            let Some(Planned { memory, code, functions, moved, homes }) = planned else { return Ok(0) };
            let jumps = functions.iter().flat_map(|function| function.jumps.iter().cloned());
            let edits = Edits { memory: vec![memory], writes: code.into_iter().chain(jumps).collect() };
            places += 1;
            match apply(edits, (self.pid, &mut wanted.stops), (recorder, moved)) {
                Ok(threads) => break (threads, functions, homes),
                // The program, or another probe, has mapped something there meanwhile.
                Err(error) if places < PLACES && is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        };
        functions.iter_mut().for_each(|function| function.is_in = true);
        let entries: Vec<LinkAddr> = functions.iter().map(|function| function.entry).collect();
        let homes = Homes { code: &homes, entries: &entries, bias: found.bias };
        let inside = inside(recorder, self.pid, &threads, &homes);
        let account = recorder.probes();
        account.inside_when_set = account.inside_when_set.saturating_add(inside);
        let shown = functions.iter().filter(|function| function.is_shown);
        let count = shown.clone().count();
        wanted.probed.extend(shown.map(|function| (found.loaded.name().to_owned(), function.entry)));
        let Found { loaded, module, bias, .. } = found;
        self.modules.push(InModule { loaded: loaded.clone(), module: Rc::clone(module), bias: *bias, functions });
        Ok(count)
    }

    /// What is to be changed for a module's probes.
    fn plan(
        &self,
        (found, ahead): (&Found, Option<Ahead>),
        (wanted, recorder): (&mut Wanted<'_>, &mut Recorder<'_>),
        injected: Injected,
    ) -> Result<Option<Planned>, RecordError> {
        let Found { loaded, module, bias, functions } = found;
        let Ahead { place, probed: planned } = match ahead {
            Some(ahead) => ahead,
            None => {
                let Some((place, _)) = found.place_in(&Maps::read(self.pid)?) else {
                    return Err(RecordError::NoRoom { module: loaded.name().to_owned() });
                };
                let called = wanted.measured.called(&injected.routines);
                Ahead { place, probed: functions.probed_in((module, *bias), place, (called, injected)) }
            }
        };
        let Functions { chosen, hidden } = functions;
        for entry in chosen {
            let Some(reason) = planned.prospect(*entry).why_not() else { continue };
            let refused = RefusedProbe { function: wanted.chooser.name(loaded.name(), *entry), reason };
            if !wanted.refused.contains(&refused) {
                wanted.refused.push(refused);
            }
        }
        let blind = hidden
            .iter()
            .filter_map(|function| Some((function, planned.prospect(function.entry).why_not()?)))
            .map(|(function, why)| {
                let name = wanted.chooser.name(loaded.name(), function.entry);
                match function.purpose {
                    Purpose::WaitsForOthers | Purpose::WaitsForIo => {
                        format!("what this function waits is not measured: {name}: {why}")
                    }
                    Purpose::Asks => format!("this function returns no context: {name}: {why}"),
                    Purpose::Jumps | Purpose::Catches => {
                        format!("contexts that this function leaves seem to go on for a while: {name}: {why}")
                    }
                }
            });
        blind.for_each(|why| recorder.note(&why));
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
        let moved = MovedCode::of_module(loaded.mapped(*bias), moved).only_in(self.number);
        Ok(Some(Planned { memory, code, functions, moved, homes }))
    }

    /// Has other probes put in, by what is measured now. `before`: what was.
    pub(super) fn measure(
        &mut self,
        before: &Measured,
        (wanted, recorder): (&mut Wanted<'_>, &mut Recorder<'_>),
    ) -> Result<(), RecordError> {
        if self.injected.is_some_and(|injected| !wanted.measured.differs_from(before, &injected.routines)) {
            return Ok(());
        }
        self.take_out((wanted, recorder), |_, _| true);
        self.find_again(wanted)?;
        self.put_in(wanted, recorder)?;
        Ok(())
    }

    /// Whether a process runs it, by its memory map; another program may run there by now.
    pub(super) fn is_run_by(&self, maps: &Maps, recorder: &Recorder<'_>) -> bool {
        match self.number {
            Some(number) => recorder.shared.programs.of(maps) == Some(number),
            None => recorder.shared.allocator.memory().whole_in(maps) == self.arena,
        }
    }

    /// Probes what has come since, and forgets what has gone.
    pub(super) fn follow(&mut self, wanted: &mut Wanted<'_>, recorder: &mut Recorder<'_>) {
        let Ok(maps) = Maps::read(self.pid) else { return };
        if self.slot.is_some() && !self.is_run_by(&maps, recorder) {
            return;
        }
        // Where a library is mapped anew, what stands there is its file's.
        self.modules.retain(|module| module.loaded.is_in(&maps) && module.is_in_force(self.pid));
        self.others.retain(|loaded| loaded.is_in(&maps));
        self.found.retain(|found| found.loaded.is_in(&maps));
        let is_gone = self.injected.is_some_and(|injected| !injected.is_in(&maps));
        if is_gone || !recorder.shared.allocator.is_mapped_in(&maps) {
            if !maps.entries.is_empty() && self.number.is_none() {
                recorder.note("the process executed another program, which is not probed");
            }
            return;
        }
        let found = self.find(wanted);
        if self.has_any() && !self.found.is_empty() {
            // Its first calls are to have whole paths.
            recorder.refresh_map(self.pid, TABLES_AT_MOST);
        }
        if let Err(error) = found.and_then(|()| self.put_in(wanted, recorder)) {
            recorder.note(&format!("failed to {error}"));
        }
    }

    /// Takes probes out of all processes that have them: those of the procedures that `is_meant` says, by module and
    /// entry. The copies stay: threads may be in them. Returns how many; what fails is in `left_in`.
    pub(super) fn take_out(
        &mut self,
        (wanted, recorder): (&mut Wanted<'_>, &mut Recorder<'_>),
        is_meant: impl Fn(&InModule, LinkAddr) -> bool,
    ) -> usize {
        let mut count = 0;
        let pids = self.number.map_or_else(|| recorder.pids(), |number| recorder.pids_of(number));
        for module in &mut self.modules {
            let meant: Vec<bool> =
                module.functions.iter().map(|function| function.is_in && is_meant(module, function.entry)).collect();
            let InModule { loaded, functions, .. } = module;
            let (mut writes, mut entries) = (Vec::new(), Vec::new());
            for (function, _) in functions.iter_mut().zip(meant).filter(|(_, is_meant)| *is_meant) {
                entries.push(function.entry);
                writes.extend(function.jumps.iter().cloned());
                function.is_in = false;
                count += 1;
            }
            if writes.is_empty() {
                continue;
            }
            let edits = Edits { memory: Vec::new(), writes };
            let is_its = |moved: &&mut MovedCode| moved.is_of(self.number) && loaded.is_home_of(moved);
            recorder.shared.moved.iter_mut().filter(is_its).for_each(|moved| moved.take_out(&entries));
            for &pid in &pids {
                match undo(recorder, pid, (loaded, &edits, &mut wanted.stops)) {
                    Ok(()) => {}
                    Err(error) => wanted.left_in.push(format!("take probes out of process {pid}: {error}")),
                }
            }
        }
        count
    }
}

impl Found {
    /// Where there is room for its probes, and how much they take at most, bytes.
    fn place_in(&self, maps: &Maps) -> Option<(u64, u64)> {
        let Found { loaded, module, functions: Functions { chosen, hidden }, .. } = self;
        let code_bytes: u64 = module.file().code().iter().map(|code| code.end.0.saturating_sub(code.start.0)).sum();
        let room = room(code_bytes, (chosen.len() + hidden.len()) as u64);
        Some((maps.free_near(loaded.start..loaded.end, room)?, room))
    }
}

impl Functions {
    /// Their probes in a module, with new memory at a place.
    fn probed_in(
        &self,
        (module, bias): (&Module, u64),
        place: u64,
        (called, injected): (Called, Injected),
    ) -> ProbedModule {
        let Routines { wait, wait_for_io, go_on, ask, jump, catch, .. } = injected.routines;
        let hidden = Hidden { for_others: wait, for_io: wait_for_io, go_on, ask, jump, catch, functions: &self.hidden };
        probed(module, RunAddr(place).to_link(bias), &self.chosen, &Probe { bias, called, hidden })
    }
}

/// Adds the new code to a process, and makes the changes while it stands still, up to when its load map says where the
/// new code belongs. Returns its threads as they stood.
fn apply(
    edits: Edits<'static>,
    (pid, stops): (Pid, &mut Stops),
    (recorder, mut moved): (&mut Recorder<'_>, MovedCode),
) -> Result<Vec<Standing>, RecordError> {
    recorder.prepare(pid, &mut moved);
    let (new, changes) = edits.apart();
    let stopped = halt_first(pid)?;
    stopped.add(&new)?;
    stops.end(stopped)?;
    let halted = halt(pid)?;
    halted.move_out(&changed(&changes), |_| None)?;
    let threads = standing(&halted)?;
    halted.apply(&changes)?;
    recorder.shared.moved.push(moved);
    recorder.refresh_map(pid, Duration::ZERO);
    stops.end(halted.into())?;
    Ok(threads)
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
