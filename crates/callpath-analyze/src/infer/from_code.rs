//! Makes a map of code alone (Mytkowicz, Coughlin and Diwan 2009, section 4.1): which calls the files of a program have, and how far the
//! stack grows at each. Which paths these make up is searched when the map is asked (`callpath_infer::Search`).
//!
//! A jump to another procedure leaves the caller and the height as they are: what is called may be what the callee jumps to.
//! A name leads to the first file that exports it, in the loader's order.

use std::path::{Path, PathBuf};

use callpath_format::address::LinkAddr;
use callpath_image::exports::Exports;
use callpath_infer::{
    Called, DirectCall, MapBuilder, MapModule, MapProcedure, OtherBuild, PathMap, Pointed, PointerCall, Root,
    VariableCall, Weight,
};
use callpath_tables::call_graph::{Callee, ModuleCalls, module_calls};
use callpath_tables::graphs::with_flow;
use callpath_x86::arguments::ArgumentSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::code::identity_bytes;
use super::linked::{Bound, Linked, Order, Place};
use super::train::AT_START;
use crate::attribute::{AttributeOptions, Progress};
use crate::exact::open;
use crate::names::ModuleNames;

/// The files that a program starts with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramFiles {
    /// The program, then its libraries, as memory maps name them, in the order in which the loader looks names up.
    pub files: Vec<PathBuf>,
    /// Its loader, which is one of them.
    pub loader: Option<PathBuf>,
}

/// A map of code.
pub struct FromCode {
    /// The map.
    pub map: PathMap,
    /// Procedures that it has.
    pub procedures: usize,
    /// Of those, the ones with calls at which the stack is not as high each time: paths through these calls are not known. By name.
    pub variable: Vec<String>,
    /// The ones whose jumps cannot all be followed: they may have calls that are not known. By name.
    pub unfollowed: Vec<String>,
    /// What else is not known, in sentences.
    pub notes: Vec<String>,
}

/// Makes a map of the files of a program, after what is in `builder` already.
///
/// # Errors
/// If the builder's map is of other builds of these files.
pub fn from_code(
    program: &ProgramFiles,
    mut builder: MapBuilder,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Result<FromCode, OtherBuild> {
    let mut files = Vec::with_capacity(program.files.len());
    let mut notes = Vec::new();
    for (done, path) in program.files.iter().enumerate() {
        progress(done, program.files.len());
        match File::read(path, options) {
            Ok(file) => files.push(file),
            Err(why) => notes.push(why),
        }
    }
    progress(program.files.len(), program.files.len());
    let bound: Vec<Bound<'_>> = files.iter().map(File::bound).collect();
    let linked = Linked::of(&bound, Order::Loader);
    let pointed = linked.pointed(program);
    let reached = linked.reached(program, &pointed);
    let mut numbers: FxHashMap<Place, u32> = FxHashMap::default();
    let mut modules = Vec::with_capacity(files.len());
    for file in &files {
        let module = builder.module(file.module.clone())?;
        builder.whole(module);
        modules.push(module);
    }
    for &place in &reached {
        let name = files[place.file].names.procedure(place.entry).name;
        let procedure = MapProcedure { module: modules[place.file], start: place.entry.0, name };
        numbers.insert(place, builder.procedure(procedure));
    }
    let (mut variable, mut unfollowed) = (Vec::new(), Vec::new());
    for &place in &reached {
        let caller = numbers[&place];
        let Some(calls) = linked.calls(place) else { continue };
        let name = || files[place.file].called(place.entry);
        if calls.calls.iter().any(|call| call.height.is_none()) {
            builder.variable(caller);
            variable.push(name());
        }
        if !calls.is_followed {
            unfollowed.push(name());
        }
        for call in calls.calls.iter().filter(|call| call.height.is_none()) {
            let reach = linked.reach(place.file, &call.callee);
            let procedures = reach.places.iter().filter_map(|place| numbers.get(place));
            let procedures = procedures.map(|callee| Called::Procedure(*callee));
            for to in procedures.chain(reach.by_pointer.map(|passes| Called::Pointer(passes.bits()))) {
                builder.variable_call(VariableCall { caller: Some(caller), to });
            }
        }
        for (callee, height) in calls.calls.iter().filter_map(|call| Some((&call.callee, call.height?))) {
            let reach = linked.reach(place.file, callee);
            for callee in reach.places.iter().filter_map(|place| numbers.get(place)) {
                builder.call(DirectCall { callee: *callee, caller, height });
            }
            if let Some(passes) = reach.by_pointer {
                builder.pointer_call(PointerCall { caller, height, passes: passes.bits() });
            }
        }
    }
    for (place, takes, is_at_start) in pointed {
        if let Some(procedure) = numbers.get(&place) {
            builder.pointed(Pointed { procedure: *procedure, takes: takes.bits(), is_at_start });
            // A thread may begin there.
            builder.root(Root::Thread(*procedure));
        }
    }
    if files.len() < program.files.len() || linked.loads_others() {
        // Files that are not known may call what is offered to them, and what pointers lead to.
        let offered = linked.exported();
        let offered = offered.iter().filter_map(|place| numbers.get(place)).map(|callee| Called::Procedure(*callee));
        for to in offered.chain([Called::Pointer(ArgumentSet::ALL.bits())]) {
            builder.variable_call(VariableCall { caller: None, to });
        }
    }
    let root = builder.root(Root::Main);
    for place in linked.starts(program) {
        let Some(procedure) = numbers.get(&place) else { continue };
        let node = builder.node(None, *procedure, root);
        builder.met(node, AT_START, Weight::default());
    }
    files.iter().for_each(|file| file.names.end_analysis());
    Ok(FromCode { map: builder.finish(), procedures: reached.len(), variable, unfollowed, notes })
}

/// A file's code.
struct File {
    path: PathBuf,
    module: MapModule,
    names: ModuleNames,
    calls: ModuleCalls,
    exports: Exports,
}

impl File {
    fn read(path: &Path, options: &AttributeOptions) -> Result<File, String> {
        let names = open(&[path.to_owned()], None, options);
        let Some(source) = names.structure_source().filter(|_| names.is_usable()) else {
            return Err(format!("{} cannot be read: paths through its code are not known", path.display()));
        };
        let image = source.module.image();
        let module = MapModule { path: path.to_owned(), identity: identity_bytes(&image.identity()) };
        let exports = Exports::of(image);
        let calls = with_flow(&source.module, |flow, _| module_calls(&source.module, flow));
        Ok(File { path: path.to_owned(), module, calls, exports, names })
    }

    fn bound(&self) -> Bound<'_> {
        Bound { path: &self.path, calls: &self.calls, exports: &self.exports }
    }

    fn called(&self, entry: LinkAddr) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        format!("{file}!{}", self.names.procedure(entry).name)
    }
}

impl Linked<'_> {
    /// What calls through pointers may lead to, if they pass these arguments; and whether only what starts the program has the pointer.
    fn pointed(&self, program: &ProgramFiles) -> FxHashSet<(Place, ArgumentSet, bool)> {
        let start = self.start_of_c(program);
        let mut addresses: FxHashSet<Place> = FxHashSet::default();
        for (file, of) in self.files.iter().enumerate() {
            let data = of.calls.pointed.iter();
            let others = of.calls.procedures.iter().filter(|calls| start != Some(Place { file, entry: calls.entry }));
            let code = others.flat_map(|calls| &calls.takes);
            addresses.extend(data.chain(code).map(|entry| Place { file, entry: *entry }));
            addresses.extend(of.calls.pointed_names.iter().flat_map(|name| self.named(name)));
        }
        addresses.extend(self.unaccounted(program));
        // They have no caller to return to.
        for start in self.starts(program) {
            addresses.remove(&start);
        }
        let at_start = start.into_iter().flat_map(|start| self.taken_by(start)).filter(|at| !addresses.contains(at));
        let at_start: Vec<Place> = at_start.collect();
        let all =
            addresses.into_iter().map(|place| (place, false)).chain(at_start.into_iter().map(|place| (place, true)));
        let mut pointed: FxHashSet<(Place, ArgumentSet, bool)> = FxHashSet::default();
        for (place, is_at_start) in all {
            let takes = self.calls(place).map_or(ArgumentSet::NONE, |calls| calls.arguments);
            let reach = self.reach(place.file, &Callee::Procedure(place.entry));
            pointed.extend(reach.places.into_iter().map(|place| (place, takes, is_at_start)));
        }
        pointed
    }

    /// Whether a file loads libraries later. What glibc itself loads (for names of hosts, for character sets) is not thought of.
    fn loads_others(&self) -> bool {
        self.files.iter().any(|of| !of.is_glibc() && of.asks_for(&["dlopen", "dlmopen"]))
    }

    /// All that files offer.
    fn exported(&self) -> Vec<Place> {
        let all = self.files.iter().enumerate();
        all.flat_map(|(file, of)| of.exports.names().map(move |(_, export)| Place { file, entry: export.start }))
            .collect()
    }

    /// What nothing is known to lead to: there is something that is not known. Where a file asks for procedures by name, all that files offer.
    fn unaccounted(&self, program: &ProgramFiles) -> Vec<Place> {
        const ASKS: [&str; 2] = ["dlsym", "dlvsym"];
        let exported: FxHashSet<Place> = self.exported().into_iter().collect();
        let asks = self.files.iter().any(|of| of.asks_for(&ASKS));
        let mut known: FxHashSet<Place> = self.starts(program).into_iter().collect();
        for (place, calls) in &self.calls {
            let callees = calls.calls.iter().map(|call| &call.callee).chain(&calls.jumps);
            known.extend(callees.flat_map(|callee| self.places(place.file, callee)));
            known.extend(self.taken_by(*place));
        }
        // Of what libraries offer, a program uses a part.
        let is_offered = |place: &Place| {
            exported.contains(place) && Some(self.files[place.file].path) != program.files.first().map(PathBuf::as_path)
        };
        let is_one = |place: &Place| {
            let is_asked_for = asks && exported.contains(place);
            is_asked_for || !is_offered(place) && !known.contains(place)
        };
        self.calls.keys().copied().filter(is_one).collect()
    }

    /// The procedure that passes `main` to glibc's `__libc_start_main`, which calls it itself or by way of one procedure of its own.
    fn start_of_c(&self, program: &ProgramFiles) -> Option<Place> {
        const STARTS: &str = "__libc_start_main";
        let glibc = self.files.iter().find(|of| !of.exports.named(STARTS).is_empty()).filter(|of| of.is_glibc());
        let starts = |place: &Place| {
            let calls = self.calls(*place).map_or(&[][..], |calls| &calls.calls);
            calls.iter().any(|call| matches!(&call.callee, Callee::Named(name) if name == STARTS))
        };
        glibc.and_then(|_| self.starts(program).into_iter().find(starts))
    }

    /// Where the kernel and the loader start.
    fn starts(&self, program: &ProgramFiles) -> Vec<Place> {
        let is_start = |path: &Path| {
            [program.files.first(), program.loader.as_ref()].iter().flatten().any(|start| start.as_path() == path)
        };
        let files = self.files.iter().enumerate().filter(|(_, of)| is_start(of.path));
        files.filter_map(|(file, of)| Some(Place { file, entry: of.calls.start? })).collect()
    }

    /// All that may be executed, in order.
    fn reached(&self, program: &ProgramFiles, pointed: &FxHashSet<(Place, ArgumentSet, bool)>) -> Vec<Place> {
        let mut reached: FxHashSet<Place> = FxHashSet::default();
        let mut open: Vec<Place> = self.starts(program);
        open.extend(pointed.iter().map(|(place, ..)| *place));
        while let Some(place) = open.pop() {
            if reached.insert(place) {
                let calls = self.calls(place).into_iter().flat_map(|calls| &calls.calls);
                open.extend(calls.flat_map(|call| self.reach(place.file, &call.callee).places));
            }
        }
        let mut reached: Vec<Place> = reached.into_iter().filter(|place| self.calls.contains_key(place)).collect();
        reached.sort_unstable();
        reached
    }
}
