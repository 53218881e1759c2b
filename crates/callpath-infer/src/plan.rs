//! Paddings and clones as a file: for the program that they were searched for, whatever map it has later.
//!
//! ```text
//! 0   magic     "CPPLAN" and two digits: the format's version
//! 8   length    u64: of the whole file, bytes
//! 16  checksum  u64: XXH3-64 of all that follows
//! 24  modules: their count, then each path and identity; paddings: their count, then each module's index, the link-time address of the
//!     procedure's first instruction, the padding in bytes, the name; clones: their count, then the same of each; links:
//!     their count, then each caller's module and first instruction, the number of its clone that calls or 0, the clone that is called, and
//!     1 if nothing else that the caller does leads to the procedure, else 0
//! ```

use std::path::Path;

use callpath_schema::encoding::{Malformed, Reader};
use rustc_hash::{FxHashMap, FxHashSet};

use callpath_format::frame::CloneNumber;

use crate::builder::OtherBuild;
use crate::clones::{CloneLink, ClonedProcedure, Clones};
use crate::file::{Envelope, MapError, read_modules, write_modules};
use crate::map::{MapModule, PathMap};
use crate::resize::Paddings;

/// The name of the file in a measurement of a program whose frames were larger.
pub const PLAN_FILE: &str = "plan";

const ENVELOPE: Envelope =
    Envelope { magic: *b"CPPLAN03", version_at: 6, what: "plan of paddings (callpath map resize makes one)" };

/// A procedure whose frame is to be larger.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PlannedPadding {
    /// Index in [`PaddingPlan::modules`].
    pub module: u32,
    /// The link-time address of its first instruction.
    pub start: u64,
    /// By how much, bytes: a multiple of [`Paddings::UNIT_BYTES`], and no more than [`PlannedPadding::MOST_BYTES`].
    pub bytes: u32,
    /// Its name, for people.
    pub name: String,
}

impl PlannedPadding {
    /// The largest padding, bytes.
    pub const MOST_BYTES: u32 = 4096;
}

/// A clone of a procedure. Its number is its place in the plan's list, from 1 on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedClone {
    /// Index in [`PaddingPlan::modules`].
    pub module: u32,
    /// The link-time address of the procedure's first instruction.
    pub start: u64,
    /// By how much its frame is larger than the program has it, as [`PlannedPadding::bytes`]; 0: it is not.
    pub bytes: u32,
    /// Its name, for people.
    pub name: String,
}

/// Calls that are to lead to a clone: those of this caller that name the procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PlannedLink {
    /// The caller's module, an index in [`PaddingPlan::modules`]: that of the clone, too.
    pub module: u32,
    /// The link-time address of the caller's first instruction.
    pub start: u64,
    /// Which clone of the caller calls. [`CloneNumber::NONE`]: itself.
    pub from: CloneNumber,
    /// The clone that is called.
    pub to: CloneNumber,
    /// Whether nothing else that the caller does leads to the procedure ([`CloneLink::is_sure`]).
    pub is_sure: bool,
}

/// Procedures whose frames are to be larger, and those that are to be cloned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PaddingPlan {
    /// Files of code.
    pub modules: Vec<MapModule>,
    /// Ascending, each procedure once.
    pub paddings: Vec<PlannedPadding>,
    /// By number.
    pub clones: Vec<PlannedClone>,
    /// Ascending.
    pub links: Vec<PlannedLink>,
}

impl PathMap {
    /// Paddings of the map's procedures as a plan.
    pub fn plan(&self, paddings: &Paddings) -> PaddingPlan {
        let padding = |&(procedure, bytes): &(u32, u32)| {
            let of = self.procedures.get(procedure as usize)?;
            Some(PlannedPadding { module: of.module, start: of.start, bytes, name: of.name.clone() })
        };
        let mut planned: Vec<PlannedPadding> = paddings.of_procedures.iter().filter_map(padding).collect();
        planned.sort();
        let clone = |clone: &ClonedProcedure| {
            let of = self.procedures.get(clone.procedure? as usize)?;
            Some(PlannedClone { module: of.module, start: of.start, bytes: clone.bytes, name: of.name.clone() })
        };
        let link = |link: &CloneLink| {
            let caller = self.procedures.get(link.caller as usize)?;
            let (from, to, is_sure) = (link.from, link.to, link.is_sure);
            Some(PlannedLink { module: caller.module, start: caller.start, from, to, is_sure })
        };
        // Those that were chosen are all of this map's procedures.
        let clones = paddings.clones.procedures.iter().filter_map(clone).collect();
        let mut links: Vec<PlannedLink> = paddings.clones.links.iter().filter_map(link).collect();
        links.sort_unstable();
        PaddingPlan { modules: self.modules.clone(), paddings: planned, clones, links }
    }

    /// A plan's paddings of the map's procedures. What the map does not know has none.
    ///
    /// # Errors
    /// If the plan is of another build of a file.
    pub fn paddings_of(&self, plan: &PaddingPlan) -> Result<Paddings, OtherBuild> {
        let mut modules: Vec<Option<u32>> = Vec::with_capacity(plan.modules.len());
        for module in &plan.modules {
            let same = self.modules.iter().position(|known| known.identity == module.identity);
            if same.is_none() && self.modules.iter().any(|known| known.path == module.path) {
                return Err(OtherBuild { path: module.path.clone() });
            }
            modules.push(same.map(|at| at as u32));
        }
        let numbers: FxHashMap<(u32, u64), u32> =
            self.procedures.iter().zip(0..).map(|(own, number)| ((own.module, own.start), number)).collect();
        let number = |module: u32, start: u64| numbers.get(&((*modules.get(module as usize)?)?, start)).copied();
        let numbered = plan.paddings.iter();
        let numbered = numbered.filter_map(|planned| Some((number(planned.module, planned.start)?, planned.bytes)));
        let mut of_procedures: Vec<(u32, u32)> = numbered.collect();
        of_procedures.sort_unstable();
        let cloned =
            |clone: &PlannedClone| ClonedProcedure { procedure: number(clone.module, clone.start), bytes: clone.bytes };
        let procedures = plan.clones.iter().map(cloned).collect();
        let link = |link: &PlannedLink| {
            let (from, to, is_sure) = (link.from, link.to, link.is_sure);
            Some(CloneLink { caller: number(link.module, link.start)?, from, to, is_sure })
        };
        let mut links: Vec<CloneLink> = plan.links.iter().filter_map(link).collect();
        links.sort_unstable();
        Ok(Paddings { of_procedures, clones: Clones { procedures, links } })
    }
}

impl PaddingPlan {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = ENVELOPE.begin();
        write_modules(&self.modules, &mut writer);
        writer.number(self.paddings.len() as u64);
        for PlannedPadding { module, start, bytes, name } in &self.paddings {
            [u64::from(*module), *start, u64::from(*bytes)].into_iter().for_each(|number| writer.number(number));
            writer.string(name);
        }
        writer.number(self.clones.len() as u64);
        for PlannedClone { module, start, bytes, name } in &self.clones {
            [u64::from(*module), *start, u64::from(*bytes)].into_iter().for_each(|number| writer.number(number));
            writer.string(name);
        }
        writer.number(self.links.len() as u64);
        for PlannedLink { module, start, from, to, is_sure } in &self.links {
            let numbers = [u64::from(*module), *start, from.0.into(), to.0.into(), u64::from(*is_sure)];
            numbers.into_iter().for_each(|number| writer.number(number));
        }
        ENVELOPE.finish(writer)
    }

    /// The plan of a file's bytes.
    ///
    /// # Errors
    /// If they are no plan.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<PaddingPlan, MapError> {
        ENVELOPE.decode((bytes, path), plan_of)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no plan.
    pub fn read(path: &Path) -> Result<PaddingPlan, MapError> {
        let bytes = std::fs::read(path).map_err(|source| MapError::File { path: path.to_owned(), source })?;
        PaddingPlan::decode(&bytes, path)
    }

    /// Writes the file, in place of one that is there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), MapError> {
        crate::file::replace(path, &self.encode())
    }
}

fn plan_of(reader: &mut Reader<'_>) -> Result<PaddingPlan, Malformed> {
    let mut plan = PaddingPlan { modules: read_modules(reader)?, ..PaddingPlan::default() };
    for _ in 0..reader.count(4)? {
        let module = reader.small("module of a padding")?;
        if module as usize >= plan.modules.len() {
            return Err(reader.malformed("module of a padding"));
        }
        let start = reader.number()?;
        let bytes = padding_of(reader)?;
        let last = plan.paddings.last();
        if last.is_some_and(|last| (last.module, last.start) >= (module, start)) {
            return Err(reader.malformed("procedure behind the one before"));
        }
        plan.paddings.push(PlannedPadding { module, start, bytes, name: reader.string()? });
    }
    let module_of = |plan: &PaddingPlan, reader: &mut Reader<'_>| {
        let module = reader.small("module of a clone")?;
        let is_there = (module as usize) < plan.modules.len();
        if is_there { Ok(module) } else { Err(reader.malformed("module of a clone")) }
    };
    for _ in 0..reader.count(4)? {
        let (module, start, bytes) = (module_of(&plan, reader)?, reader.number()?, padding_of(reader)?);
        plan.clones.push(PlannedClone { module, start, bytes, name: reader.string()? });
    }
    if plan.clones.len() > usize::from(u16::MAX) {
        return Err(reader.malformed("number of clones: 65,535 at most"));
    }
    let mut called: FxHashSet<(u32, u64, CloneNumber, (u32, u64))> = FxHashSet::default();
    for _ in 0..reader.count(5)? {
        let (module, start) = (module_of(&plan, reader)?, reader.number()?);
        let mut clone = || {
            let number = reader.small("clone")?;
            let is_one = number as usize <= plan.clones.len();
            if is_one { Ok(CloneNumber(number as u16)) } else { Err(reader.malformed("clone: no such number")) }
        };
        let (from, to) = (clone()?, clone()?);
        let of = |clone: CloneNumber| plan.clones.get(usize::from(clone.0).wrapping_sub(1));
        let is_its = |of: &PlannedClone| (of.module, of.start) == (module, start);
        if of(to).is_none() || of(from).is_some_and(|of| !is_its(of)) {
            return Err(reader.malformed("call of a clone: of none, or of another procedure than the caller is"));
        }
        if of(to).is_some_and(|to| !called.insert((module, start, from, (to.module, to.start)))) {
            return Err(reader.malformed("call of a clone: the caller calls two of one procedure"));
        }
        let is_sure = match reader.small("call of a clone")? {
            sure @ 0..=1 => sure == 1,
            _ => return Err(reader.malformed("call of a clone: neither sure (1) nor not (0)")),
        };
        let link = PlannedLink { module, start, from, to, is_sure };
        if plan.links.last().is_some_and(|last| *last >= link) {
            return Err(reader.malformed("call of a clone behind the one before"));
        }
        plan.links.push(link);
    }
    Ok(plan)
}

fn padding_of(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let bytes = reader.small("padding")?;
    let is_one = bytes % Paddings::UNIT_BYTES == 0 && bytes <= PlannedPadding::MOST_BYTES;
    if is_one { Ok(bytes) } else { Err(reader.malformed("padding: a multiple of 16, of at most 4,096 bytes")) }
}

/// For a fuzzer: any bytes as a plan's payload.
#[doc(hidden)]
pub fn fuzz_padding_plan(bytes: &[u8]) {
    let mut reader = Reader::new(bytes, 0);
    let Ok(plan) = plan_of(&mut reader) else { return };
    let again = PaddingPlan::decode(&plan.encode(), Path::new("again")).expect("what was written can be read");
    assert_eq!(again, plan);
}
