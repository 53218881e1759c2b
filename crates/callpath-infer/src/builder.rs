//! Makes maps of contexts, and one map of several.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::map::{
    Called, Code, ContextNode, DirectCall, MapModule, MapProcedure, PathMap, Pointed, PointerCall, Root, VariableCall,
    Weight,
};

/// A file of code has changed between two runs: what one tells is not true of the other.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the map is of another build of {}", path.display())]
pub struct OtherBuild {
    /// The file.
    pub path: PathBuf,
}

/// A map that is being made.
#[derive(Default)]
pub struct MapBuilder {
    map: PathMap,
    procedures: FxHashMap<(u32, u64), u32>,
    roots: FxHashMap<Root, u32>,
    nodes: FxHashMap<(Option<u32>, u32, u32), u32>,
    heights: BTreeMap<(u32, i64), Weight>,
    calls: FxHashSet<DirectCall>,
}

impl MapBuilder {
    /// The files of code until now.
    pub fn modules(&self) -> &[MapModule] {
        &self.map.modules
    }

    /// A file of code; its index.
    ///
    /// # Errors
    /// If there is another build of the same file.
    pub fn module(&mut self, module: MapModule) -> Result<u32, OtherBuild> {
        let is_same_file = |known: &MapModule| known.path == module.path || known.identity == module.identity;
        match self.map.modules.iter().position(is_same_file) {
            Some(at) if self.map.modules[at].identity == module.identity => Ok(at as u32),
            Some(_) => Err(OtherBuild { path: module.path }),
            None => {
                self.map.modules.push(module);
                Ok(self.map.modules.len() as u32 - 1)
            }
        }
    }

    /// A procedure; its index.
    pub fn procedure(&mut self, procedure: MapProcedure) -> u32 {
        let next = self.map.procedures.len() as u32;
        let found = *self.procedures.entry((procedure.module, procedure.start)).or_insert(next);
        if found == next {
            self.map.procedures.push(procedure);
        }
        found
    }

    /// A stack; its index.
    pub fn root(&mut self, root: Root) -> u32 {
        let next = self.map.roots.len() as u32;
        let found = *self.roots.entry(root).or_insert(next);
        if found == next {
            self.map.roots.push(root);
        }
        found
    }

    /// An activation of a procedure that one of `parent` has called; its index.
    pub fn node(&mut self, parent: Option<u32>, procedure: u32, root: u32) -> u32 {
        let next = self.map.nodes.len() as u32;
        let found = *self.nodes.entry((parent, procedure, root)).or_insert(next);
        if found == next {
            self.map.nodes.push(ContextNode { parent, procedure, root });
        }
        found
    }

    /// A node was met where the stack was this high. Where no sample can have such a height ([`PathMap::MOST_HIGH`]), it has no identifier.
    pub fn met(&mut self, node: u32, height: i64, weight: Weight) {
        if height.unsigned_abs() >= PathMap::MOST_HIGH {
            return self.unidentified(weight);
        }
        let met = self.heights.entry((node, height)).or_default();
        *met = met.plus(weight);
    }

    /// Something was seen in a context that has no identifier.
    pub fn unidentified(&mut self, weight: Weight) {
        self.map.unidentified = self.map.unidentified.plus(weight);
    }

    /// A procedure was met, and its calls could not be counted.
    pub fn uncounted(&mut self, procedure: u32) {
        self.map.uncounted.push(procedure);
    }

    /// A procedure's code has a call of another.
    pub fn call(&mut self, call: DirectCall) {
        self.calls.insert(call);
    }

    /// All of a file's code was read.
    pub fn whole(&mut self, module: u32) {
        self.map.code.modules.push(module);
    }

    /// A procedure's code has a call through a pointer.
    pub fn pointer_call(&mut self, call: PointerCall) {
        self.map.code.pointer_calls.push(call);
    }

    /// A call at which the stack is not as high each time.
    pub fn variable_call(&mut self, call: VariableCall) {
        self.map.code.variable.push(call);
    }

    /// Calls through pointers may lead to a procedure.
    pub fn pointed(&mut self, pointed: Pointed) {
        self.map.code.pointed.push(pointed);
    }

    /// A procedure has calls at which the stack is not as high each time.
    pub fn variable(&mut self, procedure: u32) {
        self.map.variable.push(procedure);
    }

    /// Adds all that another map knows.
    ///
    /// # Errors
    /// If it is of another build of a file.
    pub fn add(&mut self, other: &PathMap) -> Result<(), OtherBuild> {
        let modules = other.modules.iter().map(|module| self.module(module.clone()));
        let modules: Vec<u32> = modules.collect::<Result<_, _>>()?;
        let own = |numbers: &[u32], number: u32| numbers.get(number as usize).copied().unwrap_or_default();
        let procedure = |procedure: &MapProcedure| {
            let module = own(&modules, procedure.module);
            self.procedure(MapProcedure { module, ..procedure.clone() })
        };
        let procedures: Vec<u32> = other.procedures.iter().map(procedure).collect();
        let root = |root: &Root| match root {
            Root::Main => self.root(Root::Main),
            Root::Thread(start) => self.root(Root::Thread(own(&procedures, *start))),
        };
        let roots: Vec<u32> = other.roots.iter().map(root).collect();
        let mut nodes: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let parent = node.parent.map(|parent| own(&nodes, parent));
            nodes.push(self.node(parent, own(&procedures, node.procedure), own(&roots, node.root)));
        }
        for (node, height, weight) in &other.heights {
            self.met(own(&nodes, *node), *height, *weight);
        }
        other.variable.iter().for_each(|variable| self.variable(own(&procedures, *variable)));
        other.uncounted.iter().for_each(|procedure| self.uncounted(own(&procedures, *procedure)));
        for call in &other.calls {
            let (caller, callee) = (own(&procedures, call.caller), own(&procedures, call.callee));
            self.call(DirectCall { caller, callee, ..*call });
        }
        let Code { modules: whole, pointer_calls, pointed, variable } = &other.code;
        whole.iter().for_each(|module| self.whole(own(&modules, *module)));
        for call in pointer_calls {
            self.pointer_call(PointerCall { caller: own(&procedures, call.caller), ..*call });
        }
        for to in pointed {
            self.pointed(Pointed { procedure: own(&procedures, to.procedure), ..*to });
        }
        for call in variable {
            let to = match call.to {
                Called::Procedure(callee) => Called::Procedure(own(&procedures, callee)),
                pointer @ Called::Pointer(_) => pointer,
            };
            self.variable_call(VariableCall { caller: call.caller.map(|caller| own(&procedures, caller)), to });
        }
        self.unidentified(other.unidentified);
        Ok(())
    }

    /// The map.
    pub fn finish(self) -> PathMap {
        let MapBuilder { mut map, heights, calls, .. } = self;
        map.calls = calls.into_iter().collect();
        map.calls.sort_unstable();
        in_order(&mut map.uncounted);
        in_order(&mut map.variable);
        in_order(&mut map.code.modules);
        in_order(&mut map.code.pointer_calls);
        in_order(&mut map.code.pointed);
        in_order(&mut map.code.variable);
        map.heights = heights.into_iter().map(|((node, height), weight)| (node, height, weight)).collect();
        map.finish();
        map
    }
}

fn in_order<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}
