//! Paddings as a file: for the program that they were searched for, whatever map it has later.
//!
//! ```text
//! 0   magic     "CPPLAN" and two digits: the format's version
//! 8   length    u64: of the whole file, bytes
//! 16  checksum  u64: XXH3-64 of all that follows
//! 24  modules: their count, then each path and identity; paddings: their count, then each module's index, the link-time address of the
//!     procedure's first instruction, the padding in bytes, the name
//! ```

use std::path::Path;

use callpath_schema::encoding::{Malformed, Reader};

use crate::builder::OtherBuild;
use crate::file::{Envelope, MapError, read_modules, write_modules};
use crate::map::{MapModule, PathMap};
use crate::resize::Paddings;

/// The name of the file in a measurement of a program whose frames were larger.
pub const PLAN_FILE: &str = "plan";

const ENVELOPE: Envelope =
    Envelope { magic: *b"CPPLAN01", version_at: 6, what: "plan of paddings (callpath map resize makes one)" };

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

/// Procedures whose frames are to be larger.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PaddingPlan {
    /// Files of code.
    pub modules: Vec<MapModule>,
    /// Ascending, each procedure once.
    pub paddings: Vec<PlannedPadding>,
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
        PaddingPlan { modules: self.modules.clone(), paddings: planned }
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
        let number = |planned: &PlannedPadding| {
            let module = (*modules.get(planned.module as usize)?)?;
            self.procedures.iter().position(|own| (own.module, own.start) == (module, planned.start))
        };
        let numbered = plan.paddings.iter().filter_map(|planned| Some((number(planned)? as u32, planned.bytes)));
        let mut of_procedures: Vec<(u32, u32)> = numbered.collect();
        of_procedures.sort_unstable();
        Ok(Paddings { of_procedures })
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
    let mut plan = PaddingPlan { modules: read_modules(reader)?, paddings: Vec::new() };
    for _ in 0..reader.count(4)? {
        let module = reader.small("module of a padding")?;
        if module as usize >= plan.modules.len() {
            return Err(reader.malformed("module of a padding"));
        }
        let start = reader.number()?;
        let bytes = reader.small("padding")?;
        if bytes % Paddings::UNIT_BYTES != 0 || bytes > PlannedPadding::MOST_BYTES {
            return Err(reader.malformed("padding: a multiple of 16, of at most 4,096 bytes"));
        }
        let last = plan.paddings.last();
        if last.is_some_and(|last| (last.module, last.start) >= (module, start)) {
            return Err(reader.malformed("procedure behind the one before"));
        }
        plan.paddings.push(PlannedPadding { module, start, bytes, name: reader.string()? });
    }
    Ok(plan)
}

/// For a fuzzer: any bytes as a plan's payload.
#[doc(hidden)]
pub fn fuzz_padding_plan(bytes: &[u8]) {
    let mut reader = Reader::new(bytes, 0);
    let Ok(plan) = plan_of(&mut reader) else { return };
    let again = PaddingPlan::decode(&plan.encode(), Path::new("again")).expect("what was written can be read");
    assert_eq!(again, plan);
}
