//! What single instructions of a procedure cost: of those whose file is there, and of the build that ran.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callpath_db::{CodeCosts, Profile, Scope};
use callpath_format::address::LinkAddr;
use callpath_image::identity::ModuleIdentity;
use callpath_tables::table_cache::TableCache;
use callpath_x86::listing::{Listed, listing};
use rustc_hash::FxHashSet;

use crate::attribute::{AttributeOptions, identity_of_file, name_at};
use crate::names::{ModuleNames, SourceLine};
use crate::structure::{ModuleStructure, ProcedureStructure, cached_structure};

/// A procedure's code, instruction by instruction; of one that the compiler has split, each part.
pub struct ProcedureInstructions {
    /// The name of the procedure or part.
    pub name: String,
    /// The file that the code was read from.
    pub path: PathBuf,
    /// Its loops and inlined calls, if they are known.
    pub structure: Option<ProcedureStructure>,
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
    /// What was measured while it was the next to be executed, by the metric that was asked for.
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

/// What instructions cost by one of the metrics.
pub struct AskedCosts<'a> {
    /// By all metrics.
    pub costs: &'a CodeCosts,
    /// The metric's column there.
    pub metric: usize,
}

/// The instructions of `procedures`, scopes of `profile`, which has everything that `asked` has costs of.
pub fn instructions(
    asked: &AskedCosts<'_>,
    profile: &Profile,
    procedures: &[Scope],
    options: &AttributeOptions,
) -> Instructions {
    let mut found = Instructions::default();
    let cache = TableCache::open(options.cache.clone());
    for Build { paths, identity, costs } in builds(asked) {
        let mut paths = paths.into_iter().filter(|path| {
            let may_be = |scope: &Scope| may_be_in(profile, scope, path);
            procedures.iter().any(may_be)
        });
        let Some(first) = paths.next() else { continue };
        let open = |path: &Path| options.open(path, identity.as_ref());
        let first = open(first);
        // The same build may be elsewhere, too.
        let names = if first.is_usable() { None } else { paths.map(open).find(ModuleNames::is_usable) };
        let names = names.unwrap_or(first);
        if !names.is_usable() {
            let why = names.replacement().unwrap_or_else(|| format!("{} cannot be read", names.path().display()));
            found.missing.push(format!("No instructions: {why}."));
            continue;
        }
        let addresses: Vec<LinkAddr> = costs.keys().copied().collect();
        let source = names.structure_source();
        let structure = source.map(|source| cached_structure(&source, Some(&addresses), &cache, &|_, _| {}));
        names.end_analysis();
        let code = FileCode { names: &names, structure: structure.unwrap_or_default(), costs: &costs };
        let is_asked = |address: LinkAddr| {
            let procedure = name_at(&names, address, code.structure.procedure_at(address));
            procedures.iter().any(|scope| {
                scope.address == Some(procedure.start.0) || profile.strings.get(scope.name) == procedure.name
            })
        };
        found.procedures.extend(code.parts(is_asked));
    }
    let cost = |procedure: &ProcedureInstructions| {
        procedure.instructions.iter().fold(0u64, |sum, instruction| sum.saturating_add(instruction.cost))
    };
    found.procedures.sort_by_key(|procedure| std::cmp::Reverse(cost(procedure)));
    found
}

type Costs = BTreeMap<LinkAddr, u64>;

/// One build of a file of code.
struct Build<'a> {
    /// Where it was.
    paths: Vec<&'a Path>,
    identity: Option<ModuleIdentity>,
    costs: Costs,
}

/// The builds in which anything costs something by the metric that is asked for.
fn builds<'a>(asked: &AskedCosts<'a>) -> Vec<Build<'a>> {
    let mut builds: Vec<Build<'a>> = Vec::new();
    for (file, instructions) in asked.costs.by_file(asked.metric) {
        let (path, identity) = (&file.path, identity_of_file(file));
        let at = builds.iter().position(|build| build.identity == identity).unwrap_or_else(|| {
            builds.push(Build { paths: Vec::new(), identity, costs: Costs::new() });
            builds.len() - 1
        });
        builds[at].paths.push(path);
        for (address, cost) in instructions {
            let here = builds[at].costs.entry(LinkAddr(address)).or_default();
            *here = here.saturating_add(cost);
        }
    }
    builds
}

/// A file that is there, with what its instructions cost.
struct FileCode<'a> {
    names: &'a ModuleNames,
    structure: ModuleStructure,
    costs: &'a Costs,
}

impl FileCode<'_> {
    /// The parts of code that hold a costly instruction which is asked for.
    fn parts(&self, is_asked: impl Fn(LinkAddr) -> bool) -> Vec<ProcedureInstructions> {
        let (names, mut starts, mut parts) = (self.names, FxHashSet::default(), Vec::new());
        for address in self.costs.keys().copied() {
            let Some(bounds) = names.bounds(address) else { continue };
            if starts.contains(&bounds.start) || !is_asked(address) {
                continue;
            }
            starts.insert(bounds.start);
            let Some(code) = names.bytes(bounds.start, bounds.len as usize) else { continue };
            parts.push(ProcedureInstructions {
                name: names.procedure(address).name,
                path: names.path().to_owned(),
                structure: self.structure.procedure_at(address).cloned(),
                instructions: with_costs(names, listed(names, code, bounds.start), self.costs),
            });
        }
        parts
    }
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
