//! Which map tells the paths of which process.
//!
//! A process can take a path only if it has mapped all modules of the path. A map of several programs, or of another program with the
//! same libraries, also has paths that this process cannot take.

use std::borrow::Cow;

use callpath_format::frame::ModuleIndex;
use callpath_infer::{MapModule, OtherBuild, PathMap};
use callpath_measurement::{Measurement, PARTIAL_ROOT};
use rustc_hash::FxHashSet;

use super::code::{Code, identity_bytes};

/// What is asked.
#[derive(Clone, Copy)]
pub struct Maps<'m> {
    /// The map of the program as it is.
    pub map: &'m PathMap,
    /// The same of a program whose frames were larger, if they were ([`PathMap::resized`]).
    pub larger: Option<&'m PathMap>,
}

/// The number of one of [`ProcessMaps::maps`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Which(pub(super) usize);

/// The maps that tell the paths of the processes of a measurement. All have the same numbers of modules, procedures, nodes and roots.
pub(super) struct ProcessMaps<'m> {
    maps: Vec<Cow<'m, PathMap>>,
    which: Vec<Which>,
    modules: Vec<Option<u32>>,
}

impl<'m> Maps<'m> {
    /// Picks a map for each process of a measurement. `modules`: for each process, its modules' indices in `code`.
    ///
    /// Frames were larger in the first process of a rank, and in what it and its forks have forked. What executes another program has the
    /// frames that the program has.
    ///
    /// # Errors
    /// If the map is of another build of code that was measured.
    pub(super) fn of_processes(
        self,
        measurement: &Measurement,
        modules: &[Vec<Option<usize>>],
        code: &Code,
    ) -> Result<ProcessMaps<'m>, OtherBuild> {
        let numbers = numbers_in(self.map, code)?;
        let mut has_procedures = vec![false; self.map.modules().len()];
        for procedure in self.map.procedures() {
            has_procedures[procedure.module as usize] = true;
        }
        let mut maps = vec![Cow::Borrowed(self.map)];
        // Of each map: whether frames are larger, and which modules a process has.
        let mut kinds = vec![(false, vec![true; self.map.modules().len()])];
        let mut which = Vec::with_capacity(measurement.processes.len());
        let mut is_larger: Vec<bool> = Vec::with_capacity(measurement.processes.len());
        for (at, (process, modules)) in measurement.processes.iter().zip(modules).enumerate() {
            let before = measurement.processes[..at].iter().zip(&is_larger).filter(|(p, _)| p.rank == process.rank);
            let is_first = before.clone().next().is_none();
            let parent = before.rev().find(|(before, _)| before.pid == process.parent_pid);
            is_larger.push(is_first || process.forked && parent.is_some_and(|(_, is_larger)| *is_larger));
            let larger = self.larger.filter(|_| is_larger[at]);
            let map = larger.unwrap_or(self.map);
            // Most processes of a machine have no samples: they need no map of their own. Nor does it matter where no path leads.
            let is_asked = process.threads.iter().any(|thread| thread.tree.nodes().len() > PARTIAL_ROOT as usize + 1);
            let mut is_there: Vec<bool> = has_procedures.iter().map(|has_any| !has_any || !is_asked).collect();
            for number in modules.iter().flatten().filter_map(|module| *numbers.get(*module)?) {
                is_there[number as usize] = true;
            }
            let kind = (larger.is_some(), is_there);
            let found = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                let is_whole = kind.1.iter().all(|is_there| *is_there);
                maps.push(if is_whole { Cow::Borrowed(map) } else { Cow::Owned(map.of_modules(&kind.1)) });
                kinds.push(kind);
                maps.len() - 1
            });
            which.push(Which(found));
        }
        Ok(ProcessMaps { maps, which, modules: numbers })
    }
}

impl ProcessMaps<'_> {
    /// That of the program as it is, with all its modules.
    pub(super) fn whole(&self) -> &PathMap {
        &self.maps[0]
    }

    /// All of them, by number.
    pub(super) fn maps(&self) -> impl Iterator<Item = &PathMap> {
        self.maps.iter().map(|map| &**map)
    }

    /// Which of them is each process's.
    pub(super) fn which(&self) -> impl Iterator<Item = Which> + '_ {
        self.which.iter().copied()
    }

    /// By module of the code, its number in the maps.
    pub(super) fn modules(&self) -> &[Option<u32>] {
        &self.modules
    }

    /// By module of the maps, its index in a process. `modules`: the process's modules, as indices in the code.
    pub(super) fn own(&self, modules: &[Option<usize>]) -> Vec<ModuleIndex> {
        let mut own = vec![ModuleIndex::NONE; self.whole().modules().len()];
        // Of several, the first.
        for (index, module) in modules.iter().enumerate().rev() {
            let number = module.and_then(|module| *self.modules.get(module)?);
            if let (Some(number), Ok(index)) = (number, u16::try_from(index)) {
                own[number as usize] = ModuleIndex(index);
            }
        }
        own
    }
}

/// Which files of a map a measurement does not have: no paths lead through these. In a sentence, if there are any.
pub fn not_measured(map: &PathMap, measurement: &Measurement) -> Option<String> {
    let measured = measurement.processes.iter().flat_map(|process| &process.modules);
    let measured: FxHashSet<Vec<u8>> =
        measured.filter_map(|module| module.identity.as_ref()).map(identity_bytes).collect();
    let has_procedures: FxHashSet<u32> = map.procedures().iter().map(|procedure| procedure.module).collect();
    let files = (0u32..).zip(map.modules());
    // The kernel's is another one on each machine.
    let files = files.filter(|(number, module)| has_procedures.contains(number) && module.path.is_absolute());
    let (there, lacking): (Vec<&MapModule>, Vec<&MapModule>) =
        files.map(|(_, module)| module).partition(|module| measured.contains(&module.identity));
    absent_files(&lacking, there.len() + lacking.len(), "map")
}

/// That a program does not have some of the files of a map or a plan, which is what `of` says; `count`: of how many.
pub fn absent_files(lacking: &[&MapModule], count: usize, of: &str) -> Option<String> {
    const NAMED: usize = 5;
    if lacking.is_empty() {
        return None;
    }
    let named: Vec<String> = lacking.iter().take(NAMED).map(|module| module.path.display().to_string()).collect();
    let more = lacking.len() - named.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!("the program did not load {} of the {of}'s {count} files: {}{more}", lacking.len(), named.join(", ")))
}

/// By module of the code, its number in the map.
fn numbers_in(map: &PathMap, code: &Code) -> Result<Vec<Option<u32>>, OtherBuild> {
    let number = |record: &callpath_infer::MapModule| {
        let same = map.modules().iter().position(|known| known.identity == record.identity);
        let is_other = same.is_none() && map.modules().iter().any(|known| known.path == record.path);
        if is_other { Err(OtherBuild { path: record.path.clone() }) } else { Ok(same.map(|at| at as u32)) }
    };
    code.modules.iter().map(|module| number(&module.record)).collect()
}
