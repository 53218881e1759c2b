//! `record --plan`: frames of procedures that a plan makes larger, and procedures that it clones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_analyze::infer::{absent_files, identity_bytes};
use callpath_format::address::LinkAddr;
use callpath_format::frame::CloneNumber;
use callpath_image::elf::Image;
use callpath_infer::{MapModule, PLAN_FILE, PaddingPlan, PlannedClone, PlannedLink, PlannedPadding};
use callpath_measurement::write_file;
use callpath_record::{CopiedModule, Resizing};
use callpath_tables::copies::{CloneCaller, WantedClone};
use callpath_tables::paths::{Outward, Resized};
use rustc_hash::{FxHashMap, FxHashSet};

/// A plan that is carried out.
pub(super) struct Padded {
    plan: PaddingPlan,
    /// Where the plan was.
    file: PathBuf,
    /// What was made larger.
    made: Vec<PlannedPadding>,
    /// What could not, and why.
    refused: Vec<(String, String)>,
    /// How many clones calls lead to.
    cloned: usize,
    /// Clones that were made.
    made_clones: FxHashSet<CloneNumber>,
    /// Links that all calls follow: with the caller's module.
    whole: FxHashSet<(u32, (CloneCaller, CloneNumber))>,
    /// Procedures that were to be cloned and cannot run as copies, and why.
    not_cloned: Vec<(String, String)>,
    /// The plan's modules that the program has.
    there: FxHashSet<u32>,
    /// A module that is another build now.
    other_build: Option<PathBuf>,
}

impl Padded {
    pub(super) fn read(file: &Path) -> anyhow::Result<Padded> {
        let plan = PaddingPlan::read(file).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
        let (made, refused, there) = (Vec::new(), Vec::new(), FxHashSet::default());
        Ok(Padded {
            plan,
            file: file.to_owned(),
            made,
            refused,
            cloned: 0,
            made_clones: FxHashSet::default(),
            whole: FxHashSet::default(),
            not_cloned: Vec::new(),
            there,
            other_build: None,
        })
    }

    /// What the user should know.
    pub(super) fn notes(&self) -> Vec<String> {
        let planned = self.plan.paddings.len();
        let clones = match self.plan.clones.len() {
            0 => String::new(),
            clones => format!(", {} of {clones} clones are called", self.cloned),
        };
        let mut notes = vec![format!("--plan: {} of {planned} frames are larger{clones}", self.made.len())];
        const NAMED: usize = 5;
        notes.extend(self.refused.iter().take(NAMED).map(|(name, why)| format!("not larger: {name}: {why}")));
        if self.refused.len() > NAMED {
            notes.push(format!("not larger: {} more", self.refused.len() - NAMED));
        }
        notes.extend(self.not_cloned.iter().take(NAMED).map(|(name, why)| format!("not cloned: {name}: {why}")));
        if self.not_cloned.len() > NAMED {
            notes.push(format!("not cloned: {} more", self.not_cloned.len() - NAMED));
        }
        let planned = |number: &u32| {
            let mut modules = self.plan.paddings.iter().map(|planned| planned.module);
            modules.any(|module| module == *number) || self.plan.clones.iter().any(|clone| clone.module == *number)
        };
        let files = (0u32..).zip(&self.plan.modules).filter(|(number, _)| planned(number));
        let (there, absent): (Vec<_>, Vec<_>) = files.partition(|(number, _)| self.there.contains(number));
        let absent: Vec<&MapModule> = absent.into_iter().map(|(_, module)| module).collect();
        notes.extend(
            absent_files(&absent, there.len() + absent.len(), "plan").map(|absent| format!("--plan: {absent}")),
        );
        notes
    }

    /// The number of a module. `None`: the plan does not have it.
    fn number(&self, image: &Image) -> Option<u32> {
        let identity = identity_bytes(&image.identity());
        self.plan.modules.iter().position(|module| module.identity == identity).map(|at| at as u32)
    }

    /// What is planned for a module.
    fn of_module(&self, number: u32) -> impl Iterator<Item = &PlannedPadding> {
        self.plan.paddings.iter().filter(move |planned| planned.module == number)
    }

    /// The clones of a module's procedures.
    fn clones_of(&self, number: u32) -> impl Iterator<Item = (CloneNumber, &PlannedClone)> {
        let numbered = (1..=u16::MAX).map(CloneNumber).zip(&self.plan.clones);
        numbered.filter(move |(_, clone)| clone.module == number)
    }

    /// What is done with a module.
    fn wanted(&self, module: u32) -> Resized {
        let mut wanted = Resized { module: Some(module), ..Resized::default() };
        wanted.paddings.extend(self.of_module(module).map(|planned| (LinkAddr(planned.start), planned.bytes)));
        let links = || self.plan.links.iter().filter(|link| link.module == module);
        // What is cloned and what calls clones runs as a copy, too.
        let copied = self.clones_of(module).map(|(_, clone)| clone.start).chain(links().map(|link| link.start));
        for start in copied {
            wanted.paddings.entry(LinkAddr(start)).or_insert(0);
        }
        let of = |number: CloneNumber| self.plan.clones.get(usize::from(number.0).wrapping_sub(1));
        let mut callers: FxHashMap<CloneNumber, Vec<CloneCaller>> = FxHashMap::default();
        for link in links() {
            match of(link.to) {
                Some(clone) if clone.module != module => wanted.outward.push(Outward {
                    caller: caller_of(link),
                    callee: (clone.module, LinkAddr(clone.start)),
                    clone: link.to,
                }),
                _ => callers.entry(link.to).or_default().push(caller_of(link)),
            }
        }
        let from_outside: FxHashSet<CloneNumber> =
            self.plan.links.iter().filter(|link| link.module != module).map(|link| link.to).collect();
        wanted.clones.extend(self.clones_of(module).map(|(number, clone)| WantedClone {
            number,
            of: LinkAddr(clone.start),
            callers: callers.remove(&number).unwrap_or_default(),
            is_called_from_outside: from_outside.contains(&number),
            bytes: clone.bytes,
        }));
        wanted
    }
}

/// Whose call it is.
fn caller_of(link: &PlannedLink) -> CloneCaller {
    match link.from {
        CloneNumber::NONE => CloneCaller::Procedure(LinkAddr(link.start)),
        clone => CloneCaller::Clone(clone),
    }
}

impl Resizing for Padded {
    fn choose(&mut self, image: &Arc<Image>, path: &Path) -> Resized {
        if let Some(number) = self.number(image) {
            self.there.insert(number);
            return self.wanted(number);
        }
        if self.plan.modules.iter().any(|module| module.path == path) {
            self.other_build.get_or_insert_with(|| path.to_owned());
        }
        Resized::default()
    }

    fn resized(&mut self, image: &Image, copied: &CopiedModule) {
        let CopiedModule { made, refused, led } = copied;
        let module = self.number(image);
        self.made_clones.extend(&led.made);
        self.cloned += led.reached.len();
        self.whole.extend(module.into_iter().flat_map(|module| led.whole.iter().map(move |link| (module, *link))));
        let is_made = |planned: &&PlannedPadding| made.contains(&LinkAddr(planned.start));
        let (larger, others): (Vec<PlannedPadding>, Vec<PlannedPadding>) = self
            .number(image)
            .into_iter()
            .flat_map(|number| self.of_module(number))
            .cloned()
            .partition(|planned| is_made(&planned));
        let why = |planned: &PlannedPadding| {
            let refused = refused.iter().find(|(entry, _)| entry.0 == planned.start);
            refused.map_or("no procedure begins there", |(_, why)| why).to_owned()
        };
        let others = others.iter().map(|planned| (planned.name.clone(), why(planned)));
        self.refused.extend(others);
        self.made.extend(larger);
        let mut not_cloned: Vec<(String, String)> = Vec::new();
        for clone in self.number(image).into_iter().flat_map(|number| self.clones_of(number)).map(|(_, clone)| clone) {
            let why = refused.iter().find(|(entry, _)| entry.0 == clone.start).map(|(_, why)| why.clone());
            not_cloned.extend(why.map(|why| (clone.name.clone(), why)));
        }
        for (number, why) in &led.not_made {
            let of = self.plan.clones.get(usize::from(number.0).wrapping_sub(1));
            not_cloned.extend(of.map(|clone| (clone.name.clone(), why.clone())));
        }
        not_cloned.dedup();
        self.not_cloned.extend(not_cloned);
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
        // All clones stay, those that could not be made, too: heights have their numbers.
        let links = self.plan.links.iter().filter(|link| {
            let is_made = |clone: CloneNumber| clone == CloneNumber::NONE || self.made_clones.contains(&clone);
            is_made(link.from) && is_made(link.to)
        });
        let links = links.map(|link| {
            let is_whole = self.whole.contains(&(link.module, (caller_of(link), link.to)));
            PlannedLink { is_sure: link.is_sure && is_whole, ..*link }
        });
        let carried_out = PaddingPlan { paddings: self.made.clone(), links: links.collect(), ..self.plan.clone() };
        write_file(directory, PLAN_FILE, &carried_out.encode()).map_err(|error| format!("failed to {error}"))
    }
}
