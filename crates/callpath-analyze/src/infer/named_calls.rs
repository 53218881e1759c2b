//! Which procedures of a map's files call which others by name, where both can run as copies: their calls can be led elsewhere.

use std::ops::Range;
use std::path::PathBuf;

use callpath_format::address::LinkAddr;
use callpath_image::exports::Exports;
use callpath_image::plt;
use callpath_infer::{MapModule, MapProcedure, PathMap};
use callpath_tables::call_graph::{Callee, ModuleCalls, module_calls};
use callpath_tables::copies::{copyable, resizable};
use callpath_tables::graphs::with_flow;
use rustc_hash::{FxHashMap, FxHashSet};

use super::code::identity_bytes;
use super::linked::{Bound, Linked, Order, Place};
use crate::attribute::AttributeOptions;
use crate::exact::open;

/// The calls of a map's procedures.
pub struct MapCalls<'m> {
    map: &'m PathMap,
    /// By number of the map's module. `None`: it cannot be read.
    files: Vec<Option<NamedCalls>>,
    /// By number of a caller, what it may call in another way than by name.
    unsure: FxHashSet<(u32, u32)>,
    /// Procedures that call through pointers, or that have jumps which could not be followed.
    by_pointer: FxHashSet<u32>,
    /// Procedures whose addresses the files have, and those that these jump to.
    pointed: FxHashSet<u32>,
}

impl<'m> MapCalls<'m> {
    /// Reads the map's files. Returns a sentence for each that cannot be read, or is another build, too.
    pub fn of(map: &'m PathMap, options: &AttributeOptions) -> (MapCalls<'m>, Vec<String>) {
        let mut notes = Vec::new();
        let mut files: Vec<Option<NamedCalls>> = Vec::new();
        for (number, module) in (0u32..).zip(map.modules()) {
            let procedures = map.procedures().iter().filter(|of| of.module == number).map(|of| LinkAddr(of.start));
            let file = NamedCalls::of(module, &procedures.collect::<Vec<_>>(), options);
            files.push(file.map_err(|why| notes.push(why)).ok());
        }
        let mut found = MapCalls {
            map,
            files,
            unsure: FxHashSet::default(),
            by_pointer: FxHashSet::default(),
            pointed: FxHashSet::default(),
        };
        found.note_other_ways();
        (found, notes)
    }

    /// Notes what leads to procedures but calls that name them.
    fn note_other_ways(&mut self) {
        // In the order of the map's modules that can be read.
        let (numbers, known): (Vec<u32>, Vec<&NamedCalls>) =
            (0u32..).zip(&self.files).filter_map(|(number, file)| Some((number, file.as_ref()?))).unzip();
        let bound: Vec<Bound<'_>> = known.iter().map(|file| file.bound()).collect();
        let linked = Linked::of(&bound, Order::Unknown);
        let procedures: FxHashMap<(u32, LinkAddr), u32> =
            self.map.procedures().iter().zip(0..).map(|(of, own)| ((of.module, LinkAddr(of.start)), own)).collect();
        let number = |place: &Place| procedures.get(&(*numbers.get(place.file)?, place.entry)).copied();
        let mut pointed: FxHashSet<Place> = FxHashSet::default();
        for (file, of) in known.iter().enumerate() {
            let own = of.calls.pointed.iter().chain(of.calls.procedures.iter().flat_map(|calls| &calls.takes));
            pointed.extend(own.map(|entry| Place { file, entry: *entry }));
            pointed.extend(of.calls.pointed_names.iter().flat_map(|name| linked.named(name)));
        }
        let reached = pointed.iter().flat_map(|at| linked.reach(at.file, &Callee::Procedure(at.entry)).places);
        let pointed: FxHashSet<u32> = reached.filter_map(|place| number(&place)).collect();
        let (mut unsure, mut by_pointer) = (FxHashSet::default(), FxHashSet::default());
        for (file, of) in known.iter().enumerate() {
            for calls in &of.calls.procedures {
                let Some(caller) = number(&Place { file, entry: calls.entry }) else { continue };
                let mut points = !calls.is_followed;
                for callee in calls.calls.iter().flat_map(|call| of.behind_stub(&call.callee)) {
                    let reach = linked.reach(file, callee);
                    // What no known file exports may jump anywhere.
                    points |= reach.by_pointer.is_some() || reach.places.is_empty();
                    let by_name = if of.can_lead(callee) { linked.places(file, callee) } else { Vec::new() };
                    let others = reach.places.iter().filter(|place| !by_name.contains(place));
                    unsure.extend(others.filter_map(number).map(|callee| (caller, callee)));
                }
                if points {
                    by_pointer.insert(caller);
                }
            }
        }
        (self.unsure, self.by_pointer, self.pointed) = (unsure, by_pointer, pointed);
    }

    fn at(&self, procedure: u32) -> Option<(&MapProcedure, &NamedCalls)> {
        let of = self.map.procedures().get(procedure as usize)?;
        Some((of, self.files.get(of.module as usize)?.as_ref()?))
    }

    /// Whether calls of a procedure (the first) may lead to a clone of another.
    pub fn leads(&self, caller: u32, callee: u32) -> bool {
        let Some(((caller, calls), (callee, others))) = self.at(caller).zip(self.at(callee)) else { return false };
        match caller.module == callee.module {
            true => calls.own.contains(&(caller.start, callee.start)),
            false => {
                let names = others.exported.get(&callee.start).map_or(&[][..], Vec::as_slice);
                names.iter().any(|name| calls.imported.contains(&(caller.start, name.clone())))
            }
        }
    }

    /// Whether a file that is not known, or `dlsym`, may have the procedure's address.
    fn is_exported(&self, procedure: u32) -> bool {
        self.at(procedure).is_some_and(|(of, calls)| calls.all_exported.contains(&of.start))
    }

    /// Whether nothing else that the first does leads to the other: no pointer, no tail call of what it calls, no linkage
    /// table that the program may change.
    pub fn is_sure(&self, caller: u32, callee: u32) -> bool {
        let may_be_pointed = self.pointed.contains(&callee) || self.is_exported(callee);
        let is_reached_otherwise =
            self.by_pointer.contains(&caller) && may_be_pointed || self.unsure.contains(&(caller, callee));
        !is_reached_otherwise
    }

    /// Whether the frame of a procedure's clone may have another size than its own: nothing leads from the clone into the procedure's own
    /// copy.
    pub fn may_differ(&self, procedure: u32) -> bool {
        self.at(procedure).is_some_and(|(of, calls)| calls.by_entry.contains(&of.start))
    }
}

/// The calls of a file. What jumps to a procedure is not among them, nor what calls it through a linkage table that the loader does not close
/// when the program starts.
struct NamedCalls {
    path: PathBuf,
    /// All that its code has.
    calls: ModuleCalls,
    exports: Exports,
    /// Code of its linkage table.
    stubs: Vec<Range<LinkAddr>>,
    /// Whether the loader closes that.
    is_closed: bool,
    /// Calls within the file: where the caller and what it calls begin, link-time addresses.
    own: FxHashSet<(u64, u64)>,
    /// Those of what the file imports: where the caller begins, and the name.
    imported: FxHashSet<(u64, String)>,
    /// What control comes to by its entry alone: where it begins.
    by_entry: FxHashSet<u64>,
    /// Where what the file exports begins.
    all_exported: FxHashSet<u64>,
    /// What the file exports and can be copied: the names of what begins there.
    exported: FxHashMap<u64, Vec<String>>,
}

impl NamedCalls {
    /// Those of a file. `procedures`: of which is asked whether their clones' frames may differ.
    fn of(of: &MapModule, procedures: &[LinkAddr], options: &AttributeOptions) -> Result<NamedCalls, String> {
        let names = open(std::slice::from_ref(&of.path), None, options);
        let Some(source) = names.structure_source().filter(|_| names.is_usable()) else {
            return Err(format!("{} cannot be read: none of its procedures are cloned", of.path.display()));
        };
        if identity_bytes(&source.module.image().identity()) != of.identity {
            return Err(format!(
                "{} is another build than the map's: none of its procedures are cloned",
                of.path.display()
            ));
        }
        let copyable: FxHashSet<LinkAddr> =
            copyable(&source.module).into_iter().filter(|of| of.refusal.is_none()).map(|of| of.entry).collect();
        let may_differ = resizable(&source.module, procedures.iter().copied());
        let image = source.module.image();
        let relocated = image.relocated_range();
        let is_closed = relocated.is_some_and(|closed| plt::words(image).iter().all(|word| closed.contains(word)));
        let calls = with_flow(&source.module, |flow, _| module_calls(&source.module, flow));
        let mut named = NamedCalls {
            path: of.path.clone(),
            calls,
            exports: Exports::of(image),
            stubs: plt::sections(image).into_iter().map(|section| section.code).collect(),
            is_closed,
            own: FxHashSet::default(),
            imported: FxHashSet::default(),
            by_entry: may_differ.into_iter().map(|entry| entry.0).collect(),
            all_exported: FxHashSet::default(),
            exported: FxHashMap::default(),
        };
        names.end_analysis();
        named.note_calls(&copyable);
        named.all_exported = named.exports.names().map(|(_, export)| export.start.0).collect();
        for (name, export) in named.exports.names().filter(|(_, export)| copyable.contains(&export.start)) {
            named.exported.entry(export.start.0).or_default().push(name.to_owned());
        }
        Ok(named)
    }

    fn bound(&self) -> Bound<'_> {
        Bound { path: &self.path, calls: &self.calls, exports: &self.exports }
    }

    /// What is called where a stub of the linkage table is: what that jumps to.
    fn behind_stub<'c>(&'c self, callee: &'c Callee) -> &'c [Callee] {
        match callee {
            Callee::Procedure(stub) if self.stubs.iter().any(|stubs| stubs.contains(stub)) => {
                let procedures = &self.calls.procedures;
                let found = procedures.binary_search_by_key(stub, |of| of.entry).ok();
                found.and_then(|index| procedures.get(index)).map_or(&[][..], |of| &of.jumps)
            }
            other => std::slice::from_ref(other),
        }
    }

    /// Whether such a call can lead to a clone of what it names.
    fn can_lead(&self, callee: &Callee) -> bool {
        match callee {
            Callee::Procedure(_) => true,
            Callee::Named(_) => self.is_closed,
            Callee::ChosenBy(_) | Callee::Pointer(_) => false,
        }
    }

    fn note_calls(&mut self, copyable: &FxHashSet<LinkAddr>) {
        let (mut own, mut imported) = (FxHashSet::default(), FxHashSet::default());
        for of in self.calls.procedures.iter().filter(|of| copyable.contains(&of.entry)) {
            let callees = of.calls.iter().flat_map(|call| self.behind_stub(&call.callee));
            for callee in callees.filter(|callee| self.can_lead(callee)) {
                match callee {
                    Callee::Procedure(callee) => drop(own.insert((of.entry.0, callee.0))),
                    Callee::Named(name) => {
                        // Another file may export the name, too, and come first: then what is led there is not called.
                        let exports = self.exports.named(name).iter().filter(|export| !export.chooses);
                        own.extend(exports.map(|export| (of.entry.0, export.start.0)));
                        imported.insert((of.entry.0, name.clone()));
                    }
                    Callee::ChosenBy(_) | Callee::Pointer(_) => {}
                }
            }
        }
        own.retain(|(_, callee)| copyable.contains(&LinkAddr(*callee)));
        (self.own, self.imported) = (own, imported);
    }
}
