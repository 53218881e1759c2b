//! Exact counts: the procedures of a program run as copies that count the paths through them, or their activations in calling
//! contexts (Ammons, Ball and Larus 1997).
//!
//! The program waits at its beginning until the copies are in, and so does each one that it executes. Each of its threads counts in a lane of its own
//! (`callpath_format::shared::lanes`), in memory of ours: what was counted is there however the program ends. Its forks go on
//! counting, in lanes of their own. Activations are counted in the calling context tree that samples are in, by our object in the
//! program (`callpath-inject`).

mod analysed;
mod counts;
mod flows;
mod guided;
mod hashed;
mod kinds;
mod later;
mod layout;
mod linkage;
mod loader;
mod pages;
mod place;
mod programs;
mod regions;
mod returns;
mod teller;
mod times;

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_tables::guide::Guide;
use callpath_tables::paths::Resized;
use callpath_target::{Ended, ProcessHandle, has_memory};

use crate::beats::while_beating;
use crate::error::RecordError;
use crate::probe::discard_directory;
use crate::program::Doorbell;
use crate::serve::{Kept, Program, Recorded, Recorder, Subject, record_as};
use crate::settings::RecordOptions;
pub(crate) use flows::{ContextCounts, Flows};
pub use kinds::{ExactKind, ExactKinds};
use place::Beginning;
pub use place::CopiedModule;
pub(crate) use programs::Programs;
pub use times::{ExactTimes, MeasuredExecutions};

/// Which procedures are counted.
pub trait Counting {
    /// The first instructions of those of a module; `None`: all of them.
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Option<Vec<LinkAddr>>;

    /// Whether a library that is loaded later may have what is to be chosen, though no module had it.
    fn may_come_in_library(&self) -> bool;

    /// Whether what was chosen in all modules is worth to go on.
    ///
    /// # Errors
    /// Why not, for the user.
    fn check(&mut self) -> Result<(), String>;
}

/// What is counted.
#[derive(Debug)]
pub struct ExactCounts {
    /// The kinds.
    pub kinds: ExactKinds,
    /// What is measured of paths or calls, if anything is.
    pub times: Option<ExactTimes>,
    /// The bytes of the injected object.
    pub injected: &'static [u8],
    /// An earlier measurement, if it says where counters are placed.
    pub guide: Option<Guide>,
}

/// Whose frames are larger, and what is cloned.
pub trait Resizing {
    /// What is to be done with procedures of a module. Paddings are multiples of 16.
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Resized;

    /// What became of those of a module.
    fn resized(&mut self, image: &Image, copied: &CopiedModule);

    /// All of them are in, before the program begins. `directory`: of the measurement.
    ///
    /// # Errors
    /// Why it shall not begin.
    fn finish(&mut self, directory: &Path) -> Result<(), String>;
}

/// What copies of a program's procedures are for.
pub(crate) enum Copied<'o> {
    /// They count.
    Counting(&'o ExactCounts, &'o mut dyn Counting),
    /// They have other frames, or clones.
    Resized(&'o mut dyn Resizing),
}

impl<'o> Copied<'o> {
    fn counts(&self) -> Option<&'o ExactCounts> {
        match self {
            Copied::Counting(counts, _) => Some(counts),
            Copied::Resized(_) => None,
        }
    }

    fn has(&self, kind: ExactKind) -> bool {
        self.counts().is_some_and(|counts| counts.kinds.has(kind))
    }

    /// The procedures of a module that shall run as copies. `None`: the module is left alone.
    fn choose(&mut self, of: &analysed::Analysed) -> Option<place::Chosen> {
        let (image, path) = (of.module.image(), &of.loaded.path);
        let is_left_alone = of.loaded.is_left_alone();
        (!is_left_alone).then(|| match self {
            Copied::Counting(_, counting) => place::Chosen::Counted(counting.choose(image, path)),
            Copied::Resized(resizing) => place::Chosen::Resized(resizing.choose(image, path)),
        })
    }
}

/// Runs the program with larger frames and clones, and records it until it ends. `options` mark no return addresses.
///
/// # Errors
/// As of [`record_exactly`].
pub fn record_resized(options: &RecordOptions, resizing: &mut dyn Resizing) -> Result<Recorded, RecordError> {
    record_as(options, |program, recorder| {
        recorder.keep_waiting(Kept::First(program.pid));
        CopiedProgram { program, copied: Copied::Resized(resizing), is_set: false, for_all: options.wait_all }
    })
}

/// Runs the program and records it until it ends; its procedures are counted from its first constructor on. If calls are
/// ([`ExactKind::Calls`]), `options` begin with what probes measure, and mark no return addresses.
///
/// # Errors
/// As of [`crate::record`]; also if nothing can be counted: then the program has been ended before its first instruction.
pub fn record_exactly(
    options: &RecordOptions,
    counts: &ExactCounts,
    counting: &mut dyn Counting,
) -> Result<Recorded, RecordError> {
    record_as(options, |program, recorder| {
        recorder.keep_waiting(Kept::Programs);
        CopiedProgram { program, copied: Copied::Counting(counts, counting), is_set: false, for_all: options.wait_all }
    })
}

/// A program whose procedures run as copies.
struct CopiedProgram<'o> {
    program: Program,
    copied: Copied<'o>,
    /// The copies are in.
    is_set: bool,
    /// The recording goes on when it has ended, until all have.
    for_all: bool,
}

impl Subject for CopiedProgram<'_> {
    fn look(&mut self, recorder: &mut Recorder<'_>) -> Option<Result<Ended, RecordError>> {
        if let Some(ended) = self.program.look(recorder) {
            if !self.is_set {
                let what = match self.copied {
                    Copied::Counting(..) => "nothing was counted",
                    Copied::Resized(_) => "no frame was made larger",
                };
                recorder.note(&format!(
                    "{what}: the program ended, or did not load callpath's object, before it could begin"
                ));
            }
            if self.for_all {
                drop(self.put_in_next(recorder));
                self.follow_loads(recorder);
            }
            return Some(ended);
        }
        self.follow_loads(recorder);
        self.put_in_next(recorder).map(Err)
    }

    fn listen(&mut self) {
        self.program.listen();
    }
}

impl CopiedProgram<'_> {
    /// Has copies in libraries that have come, for which threads wait.
    fn follow_loads(&mut self, recorder: &mut Recorder<'_>) {
        while let Some(loading) = recorder.loading() {
            let copied = &mut self.copied;
            let beat = Doorbell::new(&recorder.shared.allocator.session().beat);
            let added = while_beating(&beat, || later::add(recorder, loading, copied));
            if let Err(error) = added
                && has_memory(loading.pid)
            {
                recorder.note(&format!(
                    "libraries that process {} has loaded are not counted: failed to {error}",
                    loading.pid.0
                ));
            }
            recorder.let_go_on(loading);
        }
    }

    /// Has copies in a program that waits, and lets it begin. An error if it is the first one, which has been ended.
    fn put_in_next(&mut self, recorder: &mut Recorder<'_>) -> Option<RecordError> {
        let (pid, slot) = recorder.waiting()?;
        let is_first = !self.is_set && pid == self.program.pid;
        let program = self.copied.counts().map(|_| recorder.shared.programs.begin());
        let beginning = Beginning { pid, slot, program, is_first };
        let copied = &mut self.copied;
        let beat = Doorbell::new(&recorder.shared.allocator.session().beat);
        match while_beating(&beat, || place::put_in(recorder, beginning, copied)) {
            Ok(()) => self.is_set = true,
            Err(error) if is_first => {
                discard_directory(&recorder.shared.directory);
                return Some(error);
            }
            // It may have been ended meanwhile.
            Err(error) if has_memory(pid) => {
                let name = ProcessHandle::open(pid).program().unwrap_or_default();
                recorder.note(&format!("{} is not counted: failed to {error}", name.display()));
            }
            Err(_) => {}
        }
        recorder.let_in(slot);
        // Others may wait, too.
        recorder.doorbell().ring();
        None
    }
}
