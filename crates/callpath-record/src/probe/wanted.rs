//! What is wanted of all programs that are probed, and what became of it: the functions, what is measured of them, and what could not
//! be done.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_schema::RefusedProbe;
use callpath_tables::module::Module;
use callpath_tables::probes::{HiddenProbe, Purpose};
use callpath_target::Pid;

use crate::error::RecordError;
use crate::modules::Key;
use crate::probe::asks::asking_functions;
use crate::probe::chooser::{Chooser, Come};
use crate::probe::halt::Stops;
use crate::probe::measured::Measured;
use crate::probe::modules::Loaded;
use crate::probe::waits::waiting_functions;
use crate::settings::RecordOptions;

/// So many modules are remembered, and those that programs have mapped.
const MOST_SEEN: usize = 1000;

/// What is wanted of all programs.
pub(super) struct Wanted<'o> {
    pub(super) measured: Measured,
    pub(super) chooser: &'o mut dyn Chooser,
    /// The bytes of the injected object.
    pub(super) object: &'static [u8],
    /// Whether programs are probed that are executed.
    pub(super) come: Come,
    /// What was asked for while it runs. The last one that means a function decides.
    requests: Vec<Request>,
    /// Modules that were looked at: many programs have the same ones.
    seen: Vec<Seen>,
    /// What was ever probed: module and entry.
    pub(super) probed: BTreeSet<(PathBuf, LinkAddr)>,
    pub(super) refused: Vec<RefusedProbe>,
    pub(super) stops: Stops,
    /// Some function asks for contexts.
    pub(super) is_asked: bool,
    /// Why probes could not be taken out.
    pub(super) left_in: Vec<String>,
}

/// Functions that shall be probed, or no longer.
struct Request {
    patterns: Vec<String>,
    adds: bool,
}

/// A module that was looked at.
struct Seen {
    path: PathBuf,
    /// The file's, when it was read.
    state: Key,
    module: Rc<Module>,
    /// What was found, as long as nothing else is asked for.
    found: Option<Functions>,
}

/// The functions of a module that are probed.
#[derive(Clone, Default)]
pub(super) struct Functions {
    /// Those that were chosen, ascending.
    pub(super) chosen: Vec<LinkAddr>,
    /// Those that get hidden probes, ascending.
    pub(super) hidden: Vec<HiddenProbe>,
}

impl<'o> Wanted<'o> {
    pub(super) fn new(
        options: &RecordOptions,
        (chooser, come): (&'o mut dyn Chooser, Come),
        object: &'static [u8],
    ) -> Wanted<'o> {
        Wanted {
            measured: Measured::all_of(options),
            chooser,
            object,
            come,
            requests: Vec::new(),
            seen: Vec::new(),
            probed: BTreeSet::new(),
            refused: Vec::new(),
            stops: Stops::default(),
            is_asked: false,
            left_in: Vec::new(),
        }
    }

    /// Whether what was found is worth to go on.
    ///
    /// # Errors
    /// The chooser's.
    pub(super) fn check(&mut self) -> Result<(), RecordError> {
        self.chooser.check(self.come).map_err(|reason| RecordError::NotChosen { reason })
    }

    /// Something else is measured from now on.
    pub(super) fn measure(&mut self, measured: Measured) -> Measured {
        self.seen.iter_mut().for_each(|seen| seen.found = None);
        std::mem::replace(&mut self.measured, measured)
    }

    /// More functions are probed from now on.
    ///
    /// # Errors
    /// What is wrong with the patterns.
    pub(super) fn add(&mut self, patterns: &[String]) -> Result<(), String> {
        self.chooser.add(patterns)?;
        self.request(patterns, true);
        Ok(())
    }

    /// These functions are no longer probed.
    pub(super) fn remove(&mut self, patterns: &[String]) {
        self.request(patterns, false);
    }

    /// Whether patterns mean a function of a module that was looked at.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn knows(&self, patterns: &[String]) -> Result<bool, String> {
        for Seen { path, module, .. } in &self.seen {
            if !self.chooser.meant(patterns, module.image(), path)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn request(&mut self, patterns: &[String], adds: bool) {
        self.seen.iter_mut().for_each(|seen| seen.found = None);
        self.requests.push(Request { patterns: patterns.to_vec(), adds });
    }

    /// A module as a process has it loaded, and by how much it lies farther up than its file says. `None`: it is left alone, or
    /// its file is gone.
    pub(super) fn module(&mut self, loaded: &Loaded, pid: Pid) -> Option<(Rc<Module>, u64)> {
        if loaded.is_left_alone() {
            return None;
        }
        let (state, path) = (loaded.state(pid)?, loaded.name());
        let known = self.seen.iter().find(|seen| seen.state == state && seen.path == path);
        if let Some(seen) = known {
            return Some((Rc::clone(&seen.module), loaded.bias(seen.module.image())?));
        }
        let (image, bias) = loaded.image(pid)?;
        let module = Rc::new(Module::new(Arc::new(image)));
        if self.seen.len() >= MOST_SEEN {
            // The older half of those that no program has mapped any more: a build executes thousands.
            let mut older = self.seen.len() / 2;
            self.seen.retain(|seen| {
                let is_older = older > 0;
                older -= usize::from(is_older);
                !is_older || Rc::strong_count(&seen.module) > 1
            });
        }
        self.seen.push(Seen { path: path.to_owned(), state, module: Rc::clone(&module), found: None });
        Some((module, bias))
    }

    /// The functions of a module that are probed.
    pub(super) fn functions(&mut self, module: &Rc<Module>, path: &Path) -> Functions {
        let at = self.seen.iter().position(|seen| Rc::ptr_eq(&seen.module, module));
        if let Some(found) = at.and_then(|at| self.seen.get(at)?.found.clone()) {
            return found;
        }
        let functions = Functions { chosen: self.choose(module, path), hidden: self.hidden(module, path) };
        if let Some(seen) = at.and_then(|at| self.seen.get_mut(at)) {
            seen.found = Some(functions.clone());
        }
        functions
    }

    fn choose(&mut self, module: &Module, path: &Path) -> Vec<LinkAddr> {
        let mut chosen = self.chooser.choose(module.image(), path);
        chosen.sort_unstable();
        chosen.dedup();
        if self.requests.iter().all(|request| request.adds) {
            return chosen;
        }
        let mut decided: BTreeSet<LinkAddr> = BTreeSet::new();
        let mut removed: BTreeSet<LinkAddr> = BTreeSet::new();
        for request in self.requests.iter().rev() {
            // They were understood when they came.
            let meant = self.chooser.meant(&request.patterns, module.image(), path).unwrap_or_else(|_| Vec::new());
            for entry in meant {
                if decided.insert(entry) && !request.adds {
                    removed.insert(entry);
                }
            }
        }
        chosen.retain(|entry| !removed.contains(entry));
        chosen
    }

    /// The functions of a module that get hidden probes.
    pub(super) fn hidden(&mut self, module: &Module, path: &Path) -> Vec<HiddenProbe> {
        let needs = |purpose| self.measured.needs(purpose);
        let mut hidden = Vec::new();
        if needs(Purpose::WaitsForOthers) || needs(Purpose::WaitsForIo) {
            hidden.extend(waiting_functions(module.image(), path));
            hidden.retain(|function| needs(function.purpose));
        }
        if needs(Purpose::Asks) {
            let asking = asking_functions(module.image());
            self.is_asked |= asking.iter().any(|function| function.purpose == Purpose::Asks);
            hidden.extend(asking);
        }
        hidden.sort_unstable();
        hidden
    }
}
