//! Who looks at return addresses other than to return there, over all modules of a process: a call of those must have its
//! original return address. Evidence is the callee's own code ([`callpath_x86::return_reads`]), not a list of names.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Cfa;
use callpath_format::register::Reg;
use callpath_image::elf::ImageKind;
use callpath_image::exports::Exports;
use callpath_image::plt;
use callpath_x86::references::addresses_taken;
use callpath_x86::return_reads::{Frame, Input, Load, find};
use callpath_x86::rewrite::{Operation, Place, Plan};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::asked_names::asked_names;
use crate::copies::{behind, copy_chosen};
use crate::linked_unwinder;
use crate::module::Module;

/// Procedures that take their return address for no more than a place to unwind from: unwinders, which are told of copies.
const UNWINDERS: [&str; 5] = [
    "_Unwind_Backtrace",
    "_Unwind_ForcedUnwind",
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
];

/// Procedures that take their return address for no more than an address of the module that called them: what their copies
/// load is turned into one ([`Operation::ToHome`]).
const ASKING: [&str; 5] = ["dl_iterate_phdr", "dlmopen", "dlopen", "dlsym", "dlvsym"];

/// Whether procedures that ask which module called them have copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asking {
    /// They have, all that can have one.
    InCopies,
    /// They have not: callers have to have their original return addresses.
    AtHome,
}

/// Who looks at return addresses in a process.
#[derive(Default)]
pub struct ReturnUsers {
    /// By the modules' order.
    modules: Vec<OfModule>,
    /// Names of procedures that look at theirs.
    users: FxHashSet<String>,
    /// Names of all procedures that modules export, and whether one of them stands for a procedure that is chosen when it
    /// is bound.
    exported: FxHashMap<String, bool>,
    /// Procedures that look at theirs and may be called through a pointer: the module's index, and the first
    /// instruction.
    pub reached_by_pointers: Vec<(usize, LinkAddr)>,
}

#[derive(Default)]
struct OfModule {
    /// Procedures and parts of some, by the call frame information: ascending, disjoint.
    procedures: Vec<Range<LinkAddr>>,
    /// Where those begin that look at their return address, and those that may: they jump through a pointer.
    users: FxHashSet<LinkAddr>,
    perhaps: FxHashSet<LinkAddr>,
    /// What those do with it that ask which module called them, by where they begin.
    loads: FxHashMap<LinkAddr, Vec<Load>>,
}

impl ReturnUsers {
    /// Of all modules of a process.
    pub fn of(modules: &[&Module], asking: Asking) -> ReturnUsers {
        let exports: Vec<Exports> = modules.iter().map(|module| Exports::of(module.image())).collect();
        let able = modules.iter().zip(&exports).map(|(module, exports)| match asking {
            Asking::InCopies => CanAsk::of(module, asking_in(exports)),
            Asking::AtHome => CanAsk::default(),
        });
        let (asking, mut first): (Vec<Vec<LinkAddr>>, Vec<Option<OfModule>>) =
            able.map(|CanAsk { entries, found }| (entries, found)).unzip();
        let mut found =
            ReturnUsers { modules: modules.iter().map(|_| OfModule::default()).collect(), ..Self::default() };
        for (name, export) in exports.iter().flat_map(Exports::names) {
            *found.exported.entry(name.to_owned()).or_default() |= export.chooses;
        }
        let mut is_stale = vec![true; modules.len()];
        while is_stale.contains(&true) {
            for (index, module) in modules.iter().enumerate().filter(|(index, _)| is_stale[*index]) {
                let of_module = &mut found.modules[index];
                *of_module = match first[index].take() {
                    Some(known) if found.users.is_empty() => known,
                    _ => OfModule::find(module, &found.users, &asking[index]),
                };
                of_module.forget_unwinders(module, &exports[index]);
            }
            let mut new: FxHashSet<String> = FxHashSet::default();
            for (exports, of_module) in exports.iter().zip(&found.modules) {
                let users = exports.names().filter(|(_, export)| of_module.is_user(export.start));
                new.extend(users.map(|(name, _)| name.to_owned()).filter(|name| !found.users.contains(name)));
            }
            for (index, module) in modules.iter().enumerate() {
                is_stale[index] = module.file().loading().symbols.iter().any(|(_, name)| new.contains(name));
            }
            found.users.extend(new);
        }
        for (index, module) in modules.iter().enumerate() {
            let taken = found.taken_in(module, index);
            found.reached_by_pointers.extend(taken.into_iter().map(|at| (index, at)));
            // Names that another module takes the addresses of.
            let mut names = found.taken_names(module, index);
            names.extend(found.asked_for(module, index));
            for (other, exports) in exports.iter().enumerate() {
                let named = names.iter().flat_map(|name| exports.named(name)).map(|export| export.start);
                let users = named.filter(|start| found.modules[other].is_user(*start));
                found.reached_by_pointers.extend(users.map(|start| (other, start)));
            }
        }
        found.reached_by_pointers.sort_unstable();
        found.reached_by_pointers.dedup();
        found
    }

    /// Adds a module that has come later: which calls it can make in copies is decided as of the others. What was decided of those
    /// stays. Returns its index.
    pub fn add(&mut self, module: &Module) -> usize {
        let index = self.modules.len();
        let exports = Exports::of(module.image());
        for (name, export) in exports.names() {
            *self.exported.entry(name.to_owned()).or_default() |= export.chooses;
        }
        // Another C library may come, in a name space of its own.
        let asking = CanAsk::of(module, asking_in(&exports)).entries;
        loop {
            let mut of_module = OfModule::find(module, &self.users, &asking);
            of_module.forget_unwinders(module, &exports);
            let users = exports.names().filter(|(_, export)| of_module.is_user(export.start));
            let new: Vec<String> =
                users.map(|(name, _)| name.to_owned()).filter(|name| !self.users.contains(name)).collect();
            let is_asked = module.file().loading().symbols.iter().any(|(_, name)| new.contains(name));
            self.users.extend(new);
            if !is_asked {
                self.modules.push(of_module);
                break;
            }
        }
        let mut taken = self.taken_in(module, index);
        // Whose they are does not matter here.
        let names = self.taken_names(module, index).into_iter().chain(self.asked_for(module, index));
        taken.extend(names.map(|_| LinkAddr(0)));
        self.reached_by_pointers.extend(taken.into_iter().map(|at| (index, at)));
        index
    }

    /// Whether a procedure of a module, by the module's index and the procedure's first instruction, may look at its
    /// return address, or jump to one that does.
    pub fn may_look(&self, module: usize, procedure: LinkAddr) -> bool {
        let Some(of_module) = self.modules.get(module) else { return true };
        // Of code without call frame information nothing is known.
        let is_known = of_module.range_at(procedure).is_some_and(|range| range.start == procedure);
        !is_known
            || of_module.users.contains(&procedure)
            || of_module.perhaps.contains(&procedure) && self.unknown_may_look()
    }

    /// What a procedure's copy does with its return address if it asks which module called it: the procedure has to have a copy.
    pub(crate) fn loads(&self, module: usize, procedure: LinkAddr) -> Option<&[Load]> {
        self.modules.get(module)?.loads.get(&procedure).map(Vec::as_slice)
    }

    /// The same of the procedure that a name of another module stands for.
    pub fn named_may_look(&self, name: &str) -> bool {
        match self.exported.get(name) {
            // The address of what is chosen is taken.
            Some(is_chosen) => self.users.contains(name) || *is_chosen && self.unknown_may_look(),
            None => true,
        }
    }

    /// The same of a procedure that is called through a pointer.
    pub fn unknown_may_look(&self) -> bool {
        !self.reached_by_pointers.is_empty()
    }

    /// Users of a module whose address its own code or data has.
    fn taken_in(&self, module: &Module, index: usize) -> Vec<LinkAddr> {
        let Some(OfModule { users, .. }) = self.modules.get(index) else { return Vec::new() };
        let in_data = module.file().loading().pointers.iter().map(|(_, to)| *to).filter(|to| users.contains(to));
        in_data.chain(self.taken_by_code(module, index, users)).collect()
    }

    /// Names of users that a module may ask the loader for.
    fn asked_for(&self, module: &Module, index: usize) -> Vec<String> {
        let procedures = self.modules.get(index).map_or(&[][..], |of_module| &of_module.procedures);
        match asked_names(module, procedures) {
            Some(names) => names.into_iter().filter(|name| self.users.contains(name)).collect(),
            // Each string may be one.
            None => {
                let constants = module.image().section(".rodata").map(|section| section.data);
                let words = constants.iter().flat_map(|bytes| bytes.split(|byte| *byte == 0));
                let named = words.filter_map(|word| std::str::from_utf8(word).ok());
                named.filter(|word| self.users.contains(*word)).map(str::to_owned).collect()
            }
        }
    }

    /// Names of users whose address a module's data has, or its code reads.
    fn taken_names(&self, module: &Module, index: usize) -> FxHashSet<String> {
        let loading = module.file().loading();
        let mut names: FxHashSet<String> =
            loading.taken.iter().filter(|name| self.users.contains(*name)).cloned().collect();
        let named = loading.symbols.iter().filter(|(_, name)| self.users.contains(name));
        let slots: FxHashSet<LinkAddr> = named.clone().map(|(slot, _)| *slot).collect();
        let read = self.taken_by_code(module, index, &slots);
        names.extend(named.filter(|(slot, _)| read.contains(slot)).map(|(_, name)| name.clone()));
        names
    }

    fn taken_by_code(&self, module: &Module, index: usize, targets: &FxHashSet<LinkAddr>) -> FxHashSet<LinkAddr> {
        let image = module.image();
        let has_addresses = image.kind() == ImageKind::Executable;
        let procedures = self.modules.get(index).map_or(&[][..], |of_module| &of_module.procedures);
        let taken = procedures.iter().filter_map(|code| {
            let bytes = image.bytes_from(code.start)?;
            let bytes = bytes.get(..bytes.len().min(usize::try_from(code.end.0 - code.start.0).ok()?))?;
            Some(addresses_taken(bytes, code.start, targets, has_addresses))
        });
        taken.flatten().collect()
    }
}

/// Whether a module has procedures that ask which module called them: where others run as copies, they have to have copies.
pub fn has_asking(module: &Module) -> bool {
    !asking_in(&Exports::of(module.image())).is_empty()
}

/// Where a module's procedures begin that ask which module called them.
fn asking_in(exports: &Exports) -> Vec<LinkAddr> {
    ASKING.iter().flat_map(|name| exports.named(name)).map(|export| export.start).collect()
}

/// Procedures that can have copies which ask for their caller's module.
#[derive(Default)]
struct CanAsk {
    /// Where they begin, ascending.
    entries: Vec<LinkAddr>,
    /// What [`OfModule::find`] finds of the module with these, while no names are known.
    found: Option<OfModule>,
}

impl CanAsk {
    /// Those of the procedures that begin at `asked` addresses.
    fn of(module: &Module, mut asked: Vec<LinkAddr>) -> CanAsk {
        asked.sort_unstable();
        asked.dedup();
        if asked.is_empty() {
            return CanAsk::default();
        }
        let found = OfModule::find(module, &FxHashSet::default(), &asked);
        let loading: Vec<LinkAddr> = asked.iter().copied().filter(|entry| found.loads.contains_key(entry)).collect();
        let at = behind(module.image());
        let copies = copy_chosen(module, at, &loading, |_, graph, refused| {
            let mut plan = Plan::new(None);
            ask(&mut plan, found.loads.get(&graph.entry).filter(|_| refused.is_none())?, at);
            Some(plan)
        });
        let entries: Vec<LinkAddr> = copies.made.iter().map(|made| made.copy.entry).collect();
        let is_all = entries == asked;
        CanAsk { entries, found: is_all.then_some(found) }
    }
}

/// Lets a copy ask for its caller's module. `homes`: where the table of modules is.
pub(crate) fn ask(plan: &mut Plan, loads: &[Load], homes: LinkAddr) {
    for Load { behind, register } in loads {
        plan.insert(Place::Before(*behind), Operation::ToHome { register: *register, homes });
    }
}

impl OfModule {
    /// `asking`: where those begin, ascending, that ask which module called them.
    fn find(module: &Module, names: &FxHashSet<String>, asking: &[LinkAddr]) -> OfModule {
        let frames = module.file().call_frames();
        let mut procedures: Vec<Range<LinkAddr>> = frames.ranges.iter().map(|range| range.code.clone()).collect();
        procedures.sort_by_key(|range| (range.start, range.end));
        procedures.dedup_by(|next, before| next.start < before.end);
        let mut rows: Vec<Frame> = Vec::new();
        for range in &frames.ranges {
            let ends = frames.rows_of(range).iter().skip(1).map(|row| row.start).chain([range.code.end]);
            for (row, end) in frames.rows_of(range).iter().zip(ends) {
                let cfa = frames.recipes.get(row.recipe as usize).map(|recipe| recipe.cfa);
                if let Some(Cfa::Register { reg: base @ (Reg::RSP | Reg::RBP), disp }) = cfa {
                    rows.push(Frame { code: row.start..end, base, disp });
                }
            }
        }
        rows.sort_by_key(|row| row.code.start);
        rows.dedup_by(|next, before| next.code.start < before.code.end);
        let symbols = &module.file().loading().symbols;
        let slots: Vec<LinkAddr> =
            symbols.iter().filter(|(_, name)| names.contains(name)).map(|(slot, _)| *slot).collect();
        let mut known_slots: Vec<LinkAddr> = symbols.iter().map(|(slot, _)| *slot).collect();
        known_slots.sort_unstable();
        let stubs: Vec<_> = plt::sections(module.image()).into_iter().map(|section| section.code).collect();
        let code = code_of(module);
        let asks = |code: &Range<LinkAddr>| asking.binary_search(&code.start).is_ok();
        let asking: Vec<usize> =
            (0..).zip(&procedures).filter(|(_, code)| asks(code)).map(|(index, _)| index).collect();
        let found = find(&Input {
            code: &code,
            frames: &rows,
            procedures: &procedures,
            stubs: &stubs,
            slots: &slots,
            known_slots: &known_slots,
            is_any_taken: false,
            asking: &asking,
            is_exact: true,
        });
        let mut loads: FxHashMap<LinkAddr, Vec<Load>> = FxHashMap::default();
        for (index, load) in found.loads {
            loads.entry(procedures[index].start).or_default().push(load);
        }
        let starts = |found: Vec<usize>| -> FxHashSet<LinkAddr> {
            found.into_iter().filter_map(|index| procedures.get(index)).map(|code| code.start).collect()
        };
        let (users, perhaps) = (starts(found.return_address_users), starts(found.indirect_tail_callers));
        loads.retain(|start, _| !users.contains(start));
        OfModule { procedures, users, perhaps, loads }
    }

    /// Unwinders are no users: they are told of copies.
    fn forget_unwinders(&mut self, module: &Module, exports: &Exports) {
        let named = UNWINDERS.iter().flat_map(|name| exports.named(name)).map(|export| export.start);
        let linked = linked_unwinder::entries(module, &self.procedures, &self.users);
        for unwinder in named.chain(linked) {
            self.users.remove(&unwinder);
        }
    }

    fn range_at(&self, at: LinkAddr) -> Option<&Range<LinkAddr>> {
        let after = self.procedures.partition_point(|range| range.start <= at);
        self.procedures.get(after.checked_sub(1)?).filter(|range| range.contains(&at))
    }

    fn is_user(&self, at: LinkAddr) -> bool {
        self.range_at(at).is_none_or(|range| self.users.contains(&range.start))
    }
}

/// The module's instructions.
fn code_of(module: &Module) -> Vec<(LinkAddr, &[u8])> {
    let image = module.image();
    let bytes_of = |range: &Range<LinkAddr>| {
        let bytes = image.bytes_from(range.start)?;
        let len = usize::try_from(range.end.0 - range.start.0).ok()?;
        Some((range.start, bytes.get(..len.min(bytes.len()))?))
    };
    image.instruction_ranges().iter().filter_map(bytes_of).collect()
}
