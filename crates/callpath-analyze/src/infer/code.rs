//! What is asked of code: which procedure an address is in, and how high the stack is in what a call there calls.

use std::collections::BTreeSet;
use std::path::PathBuf;

use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, FrameKind};
use callpath_image::exports::{Export, Exports};
use callpath_image::identity::ModuleIdentity;
use callpath_infer::MapModule;
use callpath_measurement::{ModuleRecord, PARTIAL_ROOT, ProcessFile};
use callpath_tables::call_graph::{ModuleCalls, module_calls};
use callpath_tables::graphs::with_flow;
use callpath_tables::heights::call_heights;
use callpath_x86::graph::ModuleFlow;
use rustc_hash::FxHashMap;

use super::linked::Bound;
use crate::attribute::{AttributeOptions, Progress, is_ours};
use crate::exact::open;
use crate::links::{Frame, LinkRater, Modules, Rating};
use crate::names::ModuleNames;

/// The code of all modules that have frames.
#[derive(Default)]
pub(super) struct Code {
    pub(super) modules: Vec<CodeModule>,
    index: FxHashMap<(PathBuf, ModuleIdentity), usize>,
}

/// What is read of modules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// The procedures that frames are in.
    Frames,
    /// Also the calls of all their procedures.
    AllCalls,
}

/// A module's.
pub(super) struct CodeModule {
    pub(super) record: MapModule,
    identity: ModuleIdentity,
    addresses: BTreeSet<LinkAddr>,
    /// By address, where its procedure begins.
    starts: FxHashMap<LinkAddr, LinkAddr>,
    /// By where frames of a call have their address, how far the caller's CFA is above the callee's, bytes.
    calls: FxHashMap<LinkAddr, Option<i64>>,
    /// All its calls, if they were asked for, and what it offers to other modules.
    calls_and_exports: Option<(ModuleCalls, Exports)>,
    /// Where the procedure begins that the kernel or the loader starts.
    entry: Option<LinkAddr>,
    /// By where procedures begin.
    called: FxHashMap<LinkAddr, String>,
    names: Option<ModuleNames>,
    /// Why nothing is known of it.
    pub(super) trouble: Option<String>,
}

/// A procedure of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ProcedureAt {
    pub(super) module: usize,
    pub(super) start: LinkAddr,
}

impl Code {
    /// The module of each of a process's indices; none for what is no file's, whose places are others in each run.
    pub(super) fn enter(&mut self, process: &ProcessFile) -> Vec<Option<usize>> {
        let modules: Vec<Option<usize>> = process.modules.iter().map(|module| self.module(module)).collect();
        for thread in &process.threads {
            let nodes = thread.tree.nodes().iter().skip(PARTIAL_ROOT as usize + 1);
            for key in nodes.map(|node| node.key).chain(thread.start) {
                if let Some((module, addr)) = place(&modules, key) {
                    self.modules[module].addresses.insert(addr);
                }
            }
        }
        modules
    }

    fn module(&mut self, module: &ModuleRecord) -> Option<usize> {
        let identity = module.identity.clone()?;
        let is_file = module.path.is_absolute() || module.path.as_os_str() == "[vdso]";
        let name = module.path.file_name().unwrap_or(module.path.as_os_str());
        if !is_file || is_ours(&name.to_string_lossy()) {
            return None;
        }
        let next = self.modules.len();
        let found = *self.index.entry((module.path.clone(), identity.clone())).or_insert(next);
        if found == next {
            self.modules.push(CodeModule::new(module.path.clone(), identity));
        }
        Some(found)
    }

    /// Reads all modules.
    pub(super) fn read(&mut self, read: Read, options: &AttributeOptions, progress: Progress<'_>) {
        let count = self.modules.len();
        for (done, module) in self.modules.iter_mut().enumerate() {
            progress(done, count);
            module.read(read, options);
        }
        progress(count, count);
    }

    /// The procedure of a frame; none where that is not known.
    pub(super) fn procedure(&self, modules: &[Option<usize>], key: FrameKey) -> Option<ProcedureAt> {
        let (module, addr) = place(modules, key)?;
        Some(ProcedureAt { module, start: *self.modules[module].starts.get(&addr)? })
    }

    /// Whether a frame is in a file that was read, and there in no procedure.
    pub(super) fn is_of_no_procedure(&self, modules: &[Option<usize>], key: FrameKey) -> bool {
        let found = place(modules, key).and_then(|(module, addr)| Some((self.modules.get(module)?, addr)));
        found.is_some_and(|(module, addr)| module.names.is_some() && !module.starts.contains_key(&addr))
    }

    /// How far the CFA of a frame that is at a call is above that of what it calls. `None`: it is at no call that is known; `Some(None)`: it is
    /// not as far each time.
    pub(super) fn call_height(&self, modules: &[Option<usize>], key: FrameKey) -> Option<Option<i64>> {
        let (module, addr) = place(modules, key)?;
        self.modules[module].calls.get(&addr).copied()
    }

    /// Whether the kernel or the loader starts it.
    pub(super) fn is_entry(&self, procedure: ProcedureAt) -> bool {
        self.modules[procedure.module].entry == Some(procedure.start)
    }

    /// Its name.
    pub(super) fn name(&self, procedure: ProcedureAt) -> String {
        let module = &self.modules[procedure.module];
        let of_code = || module.names.as_ref().map(|names| names.procedure(procedure.start).name);
        module.called.get(&procedure.start).cloned().or_else(of_code).unwrap_or_default()
    }

    /// The modules whose calls were read ([`Read::AllCalls`]), each with its index.
    pub(super) fn bound(&self) -> (Vec<usize>, Vec<Bound<'_>>) {
        let bound = self.modules.iter().enumerate().filter_map(|(index, module)| {
            let (calls, exports) = module.calls_and_exports.as_ref()?;
            Some((index, Bound { path: &module.record.path, calls, exports }))
        });
        bound.unzip()
    }
}

/// Which links from callee to caller are in the code, as reports rate them.
#[derive(Default)]
pub(super) struct Links(LinkRater);

impl Links {
    /// Whether a frame may be called from the one above it. What lies beyond a link that the code does not have is not known.
    pub(super) fn is_possible(
        &mut self,
        code: &Code,
        modules: &[Option<usize>],
        (caller, callee): (FrameKey, FrameKey),
    ) -> bool {
        let frame = |key| place(modules, key).map(|(module, address)| Frame { module, address });
        let ends = frame(caller).zip(frame(callee));
        ends.is_none_or(|(caller, callee)| self.0.rate(code, caller, callee) != Rating::Invalid)
    }
}

impl Modules for Code {
    fn count(&self) -> usize {
        self.modules.len()
    }

    fn names(&self, module: usize) -> Option<&ModuleNames> {
        self.modules.get(module)?.names.as_ref()
    }

    fn exports(&self, module: usize, name: &str) -> Option<&[Export]> {
        self.modules.get(module)?.names.as_ref().map(|names| names.exports(name))
    }
}

/// A build, as a map has it: what kind of identity it is, then the identity.
pub fn identity_bytes(identity: &ModuleIdentity) -> Vec<u8> {
    match identity {
        ModuleIdentity::BuildId(id) => [&[BUILD_ID], id.as_slice()].concat(),
        ModuleIdentity::Content(hash) => [&[CONTENT], hash.to_be_bytes().as_slice()].concat(),
    }
}

/// The build that [`identity_bytes`] was given.
pub(super) fn identity_of_bytes(bytes: &[u8]) -> Option<ModuleIdentity> {
    match bytes.split_first()? {
        (&BUILD_ID, id) => Some(ModuleIdentity::BuildId(id.to_vec())),
        (&CONTENT, hash) => Some(ModuleIdentity::Content(u128::from_be_bytes(hash.try_into().ok()?))),
        _ => None,
    }
}

const BUILD_ID: u8 = 1;
const CONTENT: u8 = 2;

/// The module and address of a frame in a file.
fn place(modules: &[Option<usize>], key: FrameKey) -> Option<(usize, LinkAddr)> {
    let FrameKind::Code { module, addr } = key.kind() else { return None };
    Some(((*modules.get(usize::from(module.0))?)?, addr))
}

impl CodeModule {
    fn new(path: PathBuf, identity: ModuleIdentity) -> CodeModule {
        CodeModule {
            record: MapModule { path, identity: identity_bytes(&identity) },
            identity,
            addresses: BTreeSet::new(),
            starts: FxHashMap::default(),
            calls: FxHashMap::default(),
            calls_and_exports: None,
            entry: None,
            called: FxHashMap::default(),
            names: None,
            trouble: None,
        }
    }

    /// Whether there are frames in it.
    pub(super) fn has_frames(&self) -> bool {
        !self.addresses.is_empty()
    }

    fn read(&mut self, read: Read, options: &AttributeOptions) {
        if self.addresses.is_empty() {
            return;
        }
        let path = self.record.path.clone();
        let names = open(std::slice::from_ref(&path), Some(&self.identity), options);
        let Some(source) = names.structure_source().filter(|_| names.is_usable()) else {
            let why = names.replacement().unwrap_or_else(|| format!("{} cannot be read", path.display()));
            self.trouble = Some(format!("{why}: paths through its code are not known"));
            return;
        };
        with_flow(&source.module, |flow: &ModuleFlow<'_>, _| {
            let procedure_at = |addr: LinkAddr| Some((flow.procedure_at(addr)?, addr));
            let entry = flow.procedure_at(source.module.image().entry());
            self.entry = entry.and_then(|entry| flow.entry(entry));
            let mut procedures: Vec<usize> = Vec::new();
            for (procedure, addr) in self.addresses.iter().filter_map(|addr| procedure_at(*addr)) {
                if let Some(start) = flow.entry(procedure) {
                    self.starts.insert(addr, start);
                    procedures.push(procedure);
                }
            }
            procedures.sort_unstable();
            procedures.dedup();
            for calls in call_heights(&source.module, flow, &procedures).into_values() {
                let met = calls.iter().filter(|call| self.addresses.contains(&call.site));
                self.calls.extend(met.map(|call| (call.site, call.height)));
            }
            if read == Read::AllCalls {
                self.calls_and_exports = Some((module_calls(&source.module, flow), Exports::of(source.module.image())));
            }
        });
        for start in self.starts.values() {
            self.called.entry(*start).or_insert_with(|| names.procedure(*start).name);
        }
        names.end_analysis();
        self.names = Some(names);
    }
}
