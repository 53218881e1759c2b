//! How what counts is placed in the modules of a program, where an earlier measurement tells.

use callpath_tables::guide::{Guide, Guided};
use callpath_tables::paths;
use callpath_target::{Pid, ProcessHandle};

use super::analysed::Analysed;
use crate::error::RecordError;

/// How what counts is placed in each module.
pub(super) struct ByGuide<'g> {
    /// By module; as by depth where there is none.
    pub(super) placing: Vec<paths::Placing<'g>>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

impl<'g> ByGuide<'g> {
    /// In the modules of a process. An error if the guide has nothing of its program, and this is the first one: guides know
    /// what they measured.
    pub(super) fn new(
        guide: Option<&'g Guide>,
        (pid, is_first): (Pid, bool),
        analysed: &[Analysed],
    ) -> Result<ByGuide<'g>, RecordError> {
        let mut by_guide = ByGuide { placing: Vec::new(), notes: Vec::new() };
        let Some(guide) = guide else { return Ok(by_guide) };
        let program = ProcessHandle::open(pid).executable();
        for Analysed { loaded, module, .. } in analysed {
            let known = guide.of(&module.image().identity(), &loaded.path);
            let told = match known {
                Guided::By(told) => Some(told),
                Guided::OtherBuild if !loaded.is_left_alone() => {
                    by_guide.notes.push(format!(
                        "{} is another build than the one that {} measured: its counters are placed by loop depth",
                        loaded.path.display(),
                        guide.directory.display()
                    ));
                    None
                }
                Guided::Unknown if is_first && program.as_ref() == Some(&loaded.path) => {
                    let (guide, program) = (guide.directory.clone(), guide.program.clone());
                    return Err(RecordError::NotGuided { guide, program, other: loaded.path.clone() });
                }
                Guided::Unknown if program.as_ref() == Some(&loaded.path) => {
                    let (path, guide) = (loaded.path.display(), guide.directory.display());
                    by_guide
                        .notes
                        .push(format!("{guide} has no data for {path}: counters there are placed by loop depth"));
                    None
                }
                Guided::OtherBuild | Guided::Unknown => None,
            };
            by_guide.placing.push(paths::Placing::Guided(told));
        }
        Ok(by_guide)
    }
}

/// The same in a library that comes later.
pub(super) fn of_module<'g>(guide: Option<&'g Guide>, of: &Analysed) -> paths::Placing<'g> {
    let Some(guide) = guide else { return paths::Placing::ByDepth };
    match guide.of(&of.module.image().identity(), &of.loaded.path) {
        Guided::By(told) => paths::Placing::Guided(Some(told)),
        Guided::OtherBuild | Guided::Unknown => paths::Placing::Guided(None),
    }
}
