//! What a map tells of call paths, for walks that end there (`callpath_format::shared::told`): a block for each module.

use callpath_format::address::LinkAddr;
use callpath_format::shared::told::{Callers, CodeRange, Contents, ToldCall, ToldPath};
use callpath_image::elf::Image;
use callpath_image::identity::ModuleIdentity;
use callpath_infer::{OtherBuild, PathMap, Root};
use callpath_tables::graphs::with_flow;
use callpath_tables::heights::call_heights;
use rustc_hash::FxHashMap;

use super::code::{identity_bytes, identity_of_bytes};
use crate::attribute::{AttributeOptions, Progress};
use crate::exact::open;

/// What a map tells.
#[derive(Debug, Default)]
pub struct ToldBlocks {
    /// By module.
    pub blocks: Vec<(ModuleIdentity, Vec<u8>)>,
    /// How many call paths are told.
    pub paths: usize,
    /// What cannot be told, in sentences.
    pub notes: Vec<String>,
}

/// Checks that the files of a map are as they were, as far as they are there.
///
/// # Errors
/// If one is of another build now.
pub fn check_builds(map: &PathMap) -> Result<(), OtherBuild> {
    for module in map.modules().iter().filter(|module| module.path.is_absolute()) {
        let Ok(image) = Image::read(&module.path) else { continue };
        if identity_bytes(&image.identity()) != module.identity {
            return Err(OtherBuild { path: module.path.clone() });
        }
    }
    Ok(())
}

/// Reads the files of a map, which [`check_builds`] has looked at: which code belongs to which of its procedures.
pub fn told_blocks(map: &PathMap, options: &AttributeOptions, progress: Progress<'_>) -> ToldBlocks {
    let mut numbers: Vec<FxHashMap<LinkAddr, u32>> = vec![FxHashMap::default(); map.modules().len()];
    for (number, procedure) in (0u32..).zip(map.procedures()) {
        if let Some(of_module) = numbers.get_mut(procedure.module as usize) {
            of_module.insert(LinkAddr(procedure.start), number);
        }
    }
    let mut told: Vec<Vec<ToldPath>> = vec![Vec::new(); map.modules().len()];
    for (identifier, node) in map.told() {
        let root = match map.roots().get(identifier.root as usize) {
            Some(Root::Main) => ToldPath::MAIN,
            Some(Root::Thread(procedure)) => *procedure,
            None => continue,
        };
        let procedure = map.procedures().get(identifier.procedure as usize);
        if let Some(of_module) = procedure.and_then(|procedure| told.get_mut(procedure.module as usize)) {
            let height = identifier.height;
            of_module.push(ToldPath {
                procedure: identifier.procedure,
                root,
                height,
                callers: callers(map, node, root),
            });
        }
    }
    let mut made = ToldBlocks::default();
    let count = map.modules().len();
    for (done, ((module, numbers), told)) in map.modules().iter().zip(numbers).zip(told).enumerate() {
        progress(done, count);
        let Some(identity) = identity_of_bytes(&module.identity) else { continue };
        let names = open(std::slice::from_ref(&module.path), Some(&identity), options);
        let Some(source) = names.structure_source().filter(|_| names.is_usable()) else {
            made.notes.push(format!("{} cannot be read: walks do not end in its code", module.path.display()));
            continue;
        };
        let (ranges, calls) = with_flow(&source.module, |flow, _| {
            let number = |procedure: usize| numbers.get(&flow.entry(procedure)?).copied();
            let range = |(procedure, code): (usize, std::ops::Range<LinkAddr>)| {
                Some(CodeRange { start: code.start, end: code.end, procedure: number(procedure)? })
            };
            let ranges: Vec<CodeRange> = flow.code_ranges().filter_map(range).collect();
            let known: Vec<usize> = (0..flow.len()).filter(|procedure| number(*procedure).is_some()).collect();
            let mut calls = Vec::new();
            for (entry, of_procedure) in call_heights(&source.module, flow, &known) {
                let Some(procedure) = numbers.get(&entry).copied() else { continue };
                let height = |height: Option<i64>| u32::try_from(height?).ok();
                let of_procedure = of_procedure.iter().filter_map(|call| Some((call.site, height(call.height)?)));
                calls.extend(of_procedure.map(|(at, height)| ToldCall { at, procedure, height }));
            }
            (ranges, calls)
        });
        names.end_analysis();
        let contents = Contents { ranges: &ranges, calls: &calls, paths: &told };
        let mut block = vec![0; contents.len_bytes().unwrap_or(0)];
        if contents.write(&mut block) {
            made.paths += told.len();
            made.blocks.push((identity, block));
        } else {
            made.notes.push(format!("{} is too large: walks do not end in its code", module.path.display()));
        }
    }
    progress(count, count);
    made
}

/// The callers on a path, up to the procedure that its thread began in.
fn callers(map: &PathMap, node: u32, root: u32) -> Callers {
    let procedures = map.path(node).skip(1).filter_map(|node| Some(map.nodes().get(node as usize)?.procedure));
    let mut callers = Callers::default();
    // A thread begins where its procedure was called first.
    let mut up_to_root = (map.nodes().get(node as usize).map(|node| node.procedure) == Some(root)).then_some(callers);
    for procedure in procedures {
        callers = callers.and(procedure);
        if procedure == root {
            up_to_root = Some(callers);
        }
    }
    up_to_root.unwrap_or(callers)
}
