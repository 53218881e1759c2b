//! The calls of several files, bound to each other by names as a loader does.

use std::path::Path;

use callpath_format::address::LinkAddr;
use callpath_image::exports::{Export, Exports};
use callpath_tables::call_graph::{Callee, ModuleCalls, ProcedureCalls};
use callpath_x86::arguments::ArgumentSet;
use rustc_hash::{FxHashMap, FxHashSet};

/// A procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) entry: LinkAddr,
}

/// A file's code.
#[derive(Clone, Copy)]
pub(super) struct Bound<'f> {
    pub(super) path: &'f Path,
    pub(super) calls: &'f ModuleCalls,
    pub(super) exports: &'f Exports,
}

impl Bound<'_> {
    pub(super) fn is_glibc(&self) -> bool {
        !self.exports.named("gnu_get_libc_version").is_empty()
    }

    /// Whether the loader finds a procedure of one of these names for it.
    pub(super) fn asks_for(&self, names: &[&str]) -> bool {
        self.calls.named.iter().any(|name| names.contains(&name.as_str()))
    }
}

/// What the order of files says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// A name leads to the first one that exports it.
    Loader,
    /// Nothing: a name may lead to any that exports it.
    Unknown,
}

/// What a call may lead to.
#[derive(Clone, Default)]
pub(super) struct Reach {
    pub(super) places: Vec<Place>,
    /// To what a pointer says, with no more arguments than these.
    pub(super) by_pointer: Option<ArgumentSet>,
}

/// A call of a procedure that the code names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NamedCall {
    pub(super) caller: Place,
    pub(super) callee: Place,
    /// How far the caller's CFA is above the callee's, bytes.
    pub(super) height: i64,
}

/// All files.
pub(super) struct Linked<'f> {
    pub(super) files: &'f [Bound<'f>],
    order: Order,
    pub(super) calls: FxHashMap<Place, &'f ProcedureCalls>,
}

impl<'f> Linked<'f> {
    pub(super) fn of(files: &'f [Bound<'f>], order: Order) -> Linked<'f> {
        let all = files.iter().enumerate().flat_map(|(file, of)| {
            of.calls.procedures.iter().map(move |calls| (Place { file, entry: calls.entry }, calls))
        });
        Linked { files, order, calls: all.collect() }
    }

    pub(super) fn calls(&self, place: Place) -> Option<&'f ProcedureCalls> {
        self.calls.get(&place).copied()
    }

    /// What a name stands for.
    pub(super) fn named(&self, name: &str) -> Vec<Place> {
        let exporting = self.files.iter().enumerate().filter_map(|(file, of)| {
            let exports = of.exports.named(name);
            (!exports.is_empty()).then_some((file, exports))
        });
        let most = if self.order == Order::Loader { 1 } else { usize::MAX };
        let stands_for = |(file, export): (usize, &Export)| match export.chooses {
            true => self.taken_by(Place { file, entry: export.start }),
            false => vec![Place { file, entry: export.start }],
        };
        let exports = exporting.take(most).flat_map(|(file, exports)| exports.iter().map(move |export| (file, export)));
        exports.flat_map(stands_for).collect()
    }

    /// The procedures whose addresses one has.
    pub(super) fn taken_by(&self, place: Place) -> Vec<Place> {
        let takes = self.calls(place).map_or(&[][..], |calls| &calls.takes);
        takes.iter().map(|entry| Place { entry: *entry, ..place }).collect()
    }

    /// What a call of a file leads to; nothing where a pointer says that.
    pub(super) fn places(&self, file: usize, callee: &Callee) -> Vec<Place> {
        match callee {
            Callee::Procedure(entry) => vec![Place { file, entry: *entry }],
            Callee::Named(name) => self.named(name),
            Callee::ChosenBy(resolver) => self.taken_by(Place { file, entry: *resolver }),
            Callee::Pointer(_) => Vec::new(),
        }
    }

    /// What a call of a file may lead to, with all that is jumped to from there.
    pub(super) fn reach(&self, file: usize, callee: &Callee) -> Reach {
        let mut reach = Reach::default();
        let mut open: Vec<(usize, &Callee)> = vec![(file, callee)];
        let mut met: FxHashSet<Place> = FxHashSet::default();
        while let Some((file, callee)) = open.pop() {
            let places = match callee {
                Callee::Pointer(passes) => {
                    reach.by_pointer = Some(reach.by_pointer.unwrap_or_default().with(*passes));
                    continue;
                }
                named => self.places(file, named),
            };
            for place in places {
                if met.insert(place) {
                    reach.places.push(place);
                    open.extend(
                        self.calls(place).into_iter().flat_map(|calls| &calls.jumps).map(|to| (place.file, to)),
                    );
                }
            }
        }
        reach
    }

    /// The calls that chains of calls between these procedures consist of, and the others of these procedures within their files.
    pub(super) fn chains(&self, between: &FxHashSet<Place>) -> Vec<NamedCall> {
        let mut reached: FxHashSet<Place> = between.clone();
        let mut open: Vec<Place> = between.iter().copied().collect();
        let mut all = Vec::new();
        let mut reaches: FxHashMap<(usize, &Callee), Vec<Place>> = FxHashMap::default();
        while let Some(caller) = open.pop() {
            let calls = self.calls(caller).into_iter().flat_map(|calls| &calls.calls);
            for (callee, height) in calls.filter_map(|call| Some((&call.callee, call.height?))) {
                let places =
                    reaches.entry((caller.file, callee)).or_insert_with(|| self.reach(caller.file, callee).places);
                for &callee in places.iter() {
                    all.push(NamedCall { caller, callee, height });
                    if reached.insert(callee) {
                        open.push(callee);
                    }
                }
            }
        }
        let mut callers: FxHashMap<Place, Vec<Place>> = FxHashMap::default();
        all.iter().for_each(|call| callers.entry(call.callee).or_default().push(call.caller));
        let mut leads = between.clone();
        open.extend(between);
        while let Some(callee) = open.pop() {
            let by = callers.get(&callee).into_iter().flatten();
            open.extend(by.copied().filter(|caller| leads.insert(*caller)).collect::<Vec<_>>());
        }
        let is_own = |call: &NamedCall| between.contains(&call.caller) && call.caller.file == call.callee.file;
        all.retain(|call| leads.contains(&call.callee) || is_own(call));
        all
    }
}
