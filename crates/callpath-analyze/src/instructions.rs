//! What single instructions of a procedure cost: of those whose file is there, and of the build that ran.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callpath_db::{Name, Profile, Scope};
use callpath_format::address::LinkAddr;
use callpath_image::identity::ModuleIdentity;
use callpath_measurement::Measurement;
use callpath_x86::listing::{Listed, listing};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attribute::AttributeOptions;
use crate::names::{ModuleNames, SourceLine};

/// A procedure's code, instruction by instruction; of one that the compiler has split, each part.
pub struct ProcedureInstructions {
    /// The name of the procedure or part.
    pub name: String,
    /// The file that the code was read from.
    pub path: PathBuf,
    /// In order of their addresses.
    pub instructions: Vec<Instruction>,
}

/// An instruction with its cost.
pub struct Instruction {
    /// Link-time address.
    pub address: LinkAddr,
    /// In Intel's syntax.
    pub text: String,
    /// The source line that it belongs to, where the compiler recorded one.
    pub line: Option<SourceLine>,
    /// What was measured while it was the next to be executed, by metric 0.
    pub cost: u64,
}

/// What became of the question.
#[derive(Default)]
pub struct Instructions {
    /// The procedures' code, the costliest first.
    pub procedures: Vec<ProcedureInstructions>,
    /// Why code is not there, a sentence each.
    pub missing: Vec<String>,
}

/// The instructions of `procedures`, scopes of `profile`, which is that of the whole `measurement`.
pub fn instructions(
    measurement: &Measurement,
    profile: &Profile,
    procedures: &[Scope],
    options: &AttributeOptions,
) -> Instructions {
    let mut found = Instructions::default();
    for (path, identity, costs) in modules(measurement, profile) {
        if !procedures.iter().any(|scope| may_be_in(profile, scope, &path)) {
            continue;
        }
        let names = ModuleNames::open(&path, identity.as_ref(), &options.debug_roots);
        if !names.is_usable() {
            let why = names.replacement().unwrap_or_else(|| format!("{} cannot be read", path.display()));
            found.missing.push(format!("No instructions: {why}."));
            continue;
        }
        let mut starts = FxHashSet::default();
        for address in costs.keys() {
            let procedure = names.procedure(*address);
            let is_asked = |scope: &Scope| match scope.address {
                Some(start) if start == procedure.start.0 => true,
                _ => profile.strings.get(scope.name) == procedure.name,
            };
            if starts.contains(&procedure.start) || !procedures.iter().any(is_asked) {
                continue;
            }
            starts.insert(procedure.start);
            let code =
                names.bounds(*address).and_then(|its| Some((its.start, names.bytes(its.start, its.len as usize)?)));
            let Some((start, code)) = code else { continue };
            found.procedures.push(ProcedureInstructions {
                name: procedure.name,
                path: path.clone(),
                instructions: with_costs(&names, listed(&names, code, start), &costs),
            });
        }
    }
    let cost = |procedure: &ProcedureInstructions| {
        procedure.instructions.iter().fold(0u64, |sum, instruction| sum.saturating_add(instruction.cost))
    };
    found.procedures.sort_by_key(|procedure| std::cmp::Reverse(cost(procedure)));
    found
}

type Costs = BTreeMap<LinkAddr, u64>;

/// The modules of a measurement in which anything was measured, with what each address costs itself by metric 0.
fn modules(measurement: &Measurement, profile: &Profile) -> Vec<(PathBuf, Option<ModuleIdentity>, Costs)> {
    let mut costs: FxHashMap<Name, Costs> = FxHashMap::default();
    for (context, values) in profile.contexts.iter() {
        let cost = values.get(0);
        if cost > 0 && context.module != Name::EMPTY {
            let here = costs.entry(context.module).or_default().entry(LinkAddr(context.offset)).or_default();
            *here = here.saturating_add(cost);
        }
    }
    let mut met = FxHashSet::default();
    let mut found = Vec::new();
    for module in measurement.processes.iter().flat_map(|process| &process.modules) {
        let path = module.path.to_string_lossy();
        let costs = costs.iter().find(|(name, _)| profile.strings.get(**name) == path);
        if let Some((name, costs)) = costs.filter(|_| module.path.is_absolute())
            && met.insert(*name)
        {
            found.push((module.path.clone(), module.identity.clone(), costs.clone()));
        }
    }
    found
}

/// Whether a procedure may lie in a file: a link to an executable may have another name.
fn may_be_in(profile: &Profile, scope: &Scope, path: &Path) -> bool {
    let Some(module) = scope.module.map(|module| profile.strings.get(module)) else { return true };
    let is_library = |name: &str| name.contains(".so");
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file == module || !is_library(module) && !is_library(&file)
}

/// The code of a procedure. What calls or jumps to another procedure says its name.
fn listed(names: &ModuleNames, code: &[u8], start: LinkAddr) -> Vec<Instruction> {
    let own = start..LinkAddr(start.0.saturating_add(code.len() as u64));
    let as_instruction = |listed: Listed| {
        let mut text = listed.text;
        let target =
            listed.target.filter(|target| !own.contains(target)).map(|target| (target, names.procedure(target)));
        if let Some((target, procedure)) = target.filter(|(_, procedure)| procedure.named) {
            let inside = target.0 - procedure.start.0.min(target.0);
            text += &if inside == 0 {
                format!("  <{}>", procedure.name)
            } else {
                format!("  <{}+{inside:#x}>", procedure.name)
            };
        }
        Instruction { address: listed.address, text, line: None, cost: 0 }
    };
    listing(code, start).into_iter().map(as_instruction).collect()
}

/// With lines and costs. What stands between two instructions counts for the first.
fn with_costs(names: &ModuleNames, mut instructions: Vec<Instruction>, costs: &Costs) -> Vec<Instruction> {
    let addresses: Vec<LinkAddr> = instructions.iter().map(|instruction| instruction.address).collect();
    let lines = names.lines(&addresses);
    for (number, line) in lines.into_iter().enumerate() {
        let end = addresses.get(number + 1).copied();
        let instruction = &mut instructions[number];
        let begin = instruction.address;
        let end = end.unwrap_or_else(|| LinkAddr(begin.0.saturating_add(1)));
        instruction.cost = costs.range(begin..end.max(begin)).fold(0, |sum: u64, (_, cost)| sum.saturating_add(*cost));
        instruction.line = line;
    }
    instructions
}
