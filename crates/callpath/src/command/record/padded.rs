//! `record --plan`: frames of procedures that a plan makes larger.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_analyze::infer::identity_bytes;
use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_infer::{PLAN_FILE, PaddingPlan, PlannedPadding};
use callpath_measurement::write_file;
use callpath_record::Padding;
use rustc_hash::FxHashMap;

/// A plan that is carried out.
pub(super) struct Padded {
    plan: PaddingPlan,
    /// Where the plan was.
    file: PathBuf,
    /// Of the module that was asked for last, if the plan has it.
    module: Option<u32>,
    /// What was made larger.
    made: Vec<PlannedPadding>,
    /// What could not, and why.
    refused: Vec<(String, String)>,
    /// A module that is another build now.
    other_build: Option<PathBuf>,
}

impl Padded {
    pub(super) fn read(file: &Path) -> anyhow::Result<Padded> {
        let plan = PaddingPlan::read(file).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
        let (made, refused) = (Vec::new(), Vec::new());
        Ok(Padded { plan, file: file.to_owned(), module: None, made, refused, other_build: None })
    }

    /// What the user should know.
    pub(super) fn notes(&self) -> Vec<String> {
        let planned = self.plan.paddings.len();
        let mut notes = vec![format!("--plan: {} of {planned} frames are larger", self.made.len())];
        const NAMED: usize = 5;
        notes.extend(self.refused.iter().take(NAMED).map(|(name, why)| format!("not larger: {name}: {why}")));
        if self.refused.len() > NAMED {
            notes.push(format!("not larger: {} more", self.refused.len() - NAMED));
        }
        notes
    }

    fn of_module(&self) -> impl Iterator<Item = &PlannedPadding> {
        self.plan.paddings.iter().filter(|planned| Some(planned.module) == self.module)
    }
}

impl Padding for Padded {
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> FxHashMap<LinkAddr, u32> {
        let identity = identity_bytes(&image.identity());
        let found = self.plan.modules.iter().position(|module| module.identity == identity);
        self.module = found.map(|at| at as u32);
        if found.is_none() && self.plan.modules.iter().any(|module| module.path == path) {
            self.other_build.get_or_insert_with(|| path.to_owned());
        }
        self.of_module().map(|planned| (LinkAddr(planned.start), planned.bytes)).collect()
    }

    fn padded(&mut self, _path: &Path, made: &[LinkAddr], refused: &[(LinkAddr, String)]) {
        let is_made = |planned: &&PlannedPadding| made.contains(&LinkAddr(planned.start));
        let larger: Vec<PlannedPadding> = self.of_module().filter(is_made).cloned().collect();
        let why = |planned: &PlannedPadding| {
            let refused = refused.iter().find(|(entry, _)| entry.0 == planned.start);
            refused.map_or("no procedure begins there", |(_, why)| why).to_owned()
        };
        let others = self.of_module().filter(|planned| !is_made(planned));
        let others: Vec<(String, String)> = others.map(|planned| (planned.name.clone(), why(planned))).collect();
        self.made.extend(larger);
        self.refused.extend(others);
    }

    fn finish(&mut self, directory: &Path) -> Result<(), String> {
        if let Some(path) = &self.other_build {
            let (file, path) = (self.file.display(), path.display());
            return Err(format!(
                "--plan {file} is of another build of {path}: train a map of this build, and resize it"
            ));
        }
        self.made.sort();
        // What is looked up later has to know which frames were larger in truth.
        let carried_out = PaddingPlan { modules: self.plan.modules.clone(), paddings: self.made.clone() };
        write_file(directory, PLAN_FILE, &carried_out.encode()).map_err(|error| format!("failed to {error}"))
    }
}
