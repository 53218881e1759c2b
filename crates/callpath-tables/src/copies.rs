//! Copies of a module's procedures that run in place of the originals: which can be made, and why others cannot.

use std::cell::RefCell;
use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::frame::CloneNumber;
use callpath_image::elf::Image;
use callpath_image::fixed_code::FixedCode;
use callpath_image::plt;
use callpath_x86::graph::{ModuleFlow, ProcedureGraph, Terminator, merged};
use callpath_x86::liveness::{Convention, Liveness};
use callpath_x86::rewrite::{DirectBranch, Entries, Fixed, Plan, Reason, Refusal, Rewriter, Rewritten};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graphs::with_flow;
use crate::linkage::Linkage;
use crate::module::Module;

/// The alignment of a copy, bytes: that of procedures.
const ALIGNMENT: u64 = 16;
/// Clones take so many times the module's code at most: there is [`crate::paths::room`] for that besides the other copies. No copy is so
/// many times as long as its procedure.
const MOST_CLONED_TIMES: u64 = 16;
/// Those of a small module may take so much more, bytes.
const MOST_CLONED_BYTES: u64 = 512 << 10;

/// The copies of a module's procedures.
#[derive(Default)]
pub struct Copies {
    /// One behind the other, by ascending address of the copy; by ascending one of its procedure, and behind those the clones.
    pub made: Vec<Made>,
    /// Procedures that cannot be copied, by ascending entry.
    pub refused: Vec<Refused>,
    /// Clones of procedures that could be copied, which cannot be made, and why.
    pub not_cloned: Vec<(CloneNumber, String)>,
    /// Where the first copy lies.
    pub start: LinkAddr,
    /// One past the last copy.
    pub end: LinkAddr,
}

/// A copy.
pub struct Made {
    /// The copy.
    pub copy: Rewritten,
    /// The length of the procedure's code, bytes.
    pub len_bytes: u64,
    /// Which clone of the procedure it is. [`CloneNumber::NONE`]: it stands in for the procedure itself.
    pub clone: CloneNumber,
}

impl Made {
    /// Whose calls it makes.
    fn caller(&self) -> CloneCaller {
        match self.clone {
            CloneNumber::NONE => CloneCaller::Procedure(self.copy.entry),
            clone => CloneCaller::Clone(clone),
        }
    }
}

/// A clone of a procedure: a further copy, which calls of some callers lead to that name the procedure. Whatever else leads to it, tail
/// calls among it, arrives in the copy that stands in for it, and so does an exception that is caught in a clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedClone {
    /// No other of the module has it.
    pub number: CloneNumber,
    /// The procedure's first instruction.
    pub of: LinkAddr,
    /// Whose calls lead there.
    pub callers: Vec<CloneCaller>,
    /// Calls of other modules do, too.
    pub is_called_from_outside: bool,
    /// By how much its frame is larger than at home, bytes.
    pub bytes: u32,
}

/// Which copy of a procedure is to be planned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'w> {
    /// Why the first plan for it was refused.
    pub(crate) refused: Option<Refusal>,
    /// The clone. `None`: the copy that stands in for the procedure.
    pub(crate) clone: Option<&'w WantedClone>,
}

/// By whose call it is, and the word that it goes through: another word, and the clone that this one may lead to.
pub type OutwardLinks = FxHashMap<(CloneCaller, LinkAddr), (LinkAddr, CloneNumber)>;

/// What has become of a module's clones, and of calls that shall lead to clones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LedToClones {
    /// The module's clones that could be made.
    pub made: FxHashSet<CloneNumber>,
    /// Those that could not be, though their procedures run as copies, and why.
    pub not_made: Vec<(CloneNumber, String)>,
    /// Those of them that something leads to.
    pub reached: FxHashSet<CloneNumber>,
    /// Whose calls of a cloned procedure, of this module or of another, all lead to that clone of it, if it was made.
    pub whole: FxHashSet<(CloneCaller, CloneNumber)>,
}

/// Code that calls a clone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloneCaller {
    /// The copy that stands in for a procedure that begins there.
    Procedure(LinkAddr),
    /// A clone.
    Clone(CloneNumber),
}

/// A procedure that cannot be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its first instruction; for an address that was chosen and is not one, that address.
    pub entry: LinkAddr,
    /// The length of its code, bytes; 0 if the address is not an entry.
    pub len_bytes: u64,
    /// Why.
    pub refusal: Refusal,
}

/// A procedure that might be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copyable {
    /// Its first instruction.
    pub entry: LinkAddr,
    /// The length of its code, bytes.
    pub len_bytes: u64,
    /// Why it cannot be copied even with nothing inserted.
    pub refusal: Option<Refusal>,
}

impl Copies {
    /// Lets calls and tail calls lead to the copies of what they call, past the jump at its entry. `clones`: those that were wanted. `outward`:
    /// words that calls shall go through instead of others, by whose call it is and by word, with the clone that each may lead to.
    pub fn link(&mut self, clones: &[WantedClone], outward: &OutwardLinks) -> LedToClones {
        let entries: FxHashMap<LinkAddr, Entries> = self.originals().map(|copy| (copy.entry, copy.entries())).collect();
        let numbered = self.made.iter().filter(|made| made.clone != CloneNumber::NONE);
        let of_clones: FxHashMap<CloneNumber, Entries> =
            numbered.map(|made| (made.clone, made.copy.entries())).collect();
        let mut cloned: FxHashMap<(CloneCaller, LinkAddr), (CloneNumber, Entries)> = FxHashMap::default();
        for WantedClone { number, of, callers, .. } in clones {
            let Some(entries) = of_clones.get(number) else { continue };
            cloned.extend(callers.iter().map(|caller| ((*caller, *of), (*number, *entries))));
        }
        // By whose calls may lead to which clone, whether some do, and whether all do.
        let links: RefCell<FxHashMap<(CloneCaller, CloneNumber), (bool, bool)>> = RefCell::default();
        let note = |caller, number, is_led: bool| {
            let mut links = links.borrow_mut();
            let (some, all) = links.entry((caller, number)).or_insert((false, true));
            (*some, *all) = (*some | is_led, *all & is_led);
        };
        for made in &mut self.made {
            let caller = made.caller();
            let copy = &mut made.copy;
            let entered_at = |branch: &DirectBranch| {
                // Behind a tail call, the caller of the clone would not be who has called.
                if let Some((number, entries)) = cloned.get(&(caller, branch.target)).filter(|_| branch.is_call) {
                    let is_led = branch.redirected(entries.of(branch)).is_some();
                    note(caller, *number, is_led);
                    if is_led {
                        return Some(entries.of(branch));
                    }
                }
                entries.get(&branch.target).map(|entries| entries.of(branch))
            };
            let linked = copy.direct_calls.iter().filter_map(|call| call.redirected(entered_at(call)?));
            copy.patches.extend(linked);
            copy.link_jumps(entered_at);
            copy.patches.sort_by_key(|patch| patch.at);
            let led_by: RefCell<FxHashMap<LinkAddr, CloneNumber>> = RefCell::default();
            let other = |word: LinkAddr| {
                let (other, number) = *outward.get(&(caller, word))?;
                led_by.borrow_mut().insert(other, number);
                Some(other)
            };
            copy.link_words(other, |word, is_led| {
                led_by.borrow().get(&word).into_iter().for_each(|number| note(caller, *number, is_led));
            });
        }
        let mut links = links.into_inner();
        links.retain(|_, (some, _)| *some);
        let called = |caller: CloneCaller| links.keys().filter(move |(by, _)| *by == caller).map(|(_, number)| *number);
        let mut reached = FxHashSet::default();
        let of_originals = links.keys().filter(|(caller, _)| matches!(caller, CloneCaller::Procedure(_)));
        let from_outside = clones.iter().filter(|clone| clone.is_called_from_outside).map(|clone| clone.number);
        let all = of_originals.map(|(_, number)| *number).chain(from_outside);
        let mut open: Vec<CloneNumber> = all.filter(|number| of_clones.contains_key(number)).collect();
        while let Some(number) = open.pop() {
            if reached.insert(number) {
                open.extend(called(CloneCaller::Clone(number)).filter(|number| of_clones.contains_key(number)));
            }
        }
        let whole = links.into_iter().filter_map(|(link, (_, all))| all.then_some(link)).collect();
        let not_made = std::mem::take(&mut self.not_cloned);
        LedToClones { made: of_clones.into_keys().collect(), not_made, reached, whole }
    }

    /// The copies that stand in for procedures.
    fn originals(&self) -> impl Iterator<Item = &Rewritten> {
        self.made.iter().filter(|made| made.clone == CloneNumber::NONE).map(|made| &made.copy)
    }

    /// The instruction at home whose copy, or what is inserted before it, is at an address.
    pub fn origin_of(&self, address: LinkAddr) -> Option<LinkAddr> {
        self.copy_at(address)?.origin_of(address)
    }

    /// The copy that an address may be in.
    pub fn copy_at(&self, address: LinkAddr) -> Option<&Rewritten> {
        let after = self.made.partition_point(|made| made.copy.at <= address);
        self.made.get(after.checked_sub(1)?).map(|made| &made.copy)
    }

    /// Copies a procedure behind the others, or refuses it.
    fn add(&mut self, procedure: &Procedure<'_>, copy: impl FnOnce(LinkAddr) -> Result<Rewritten, Refusal>) {
        let len_bytes = procedure.len_bytes();
        match procedure.refusal.map_or_else(|| copy(self.end), Err) {
            Ok(copy) => {
                let end = self.end.0.saturating_add(copy.code.len() as u64);
                self.end = LinkAddr(end.next_multiple_of(ALIGNMENT));
                self.made.push(Made { copy, len_bytes, clone: CloneNumber::NONE });
            }
            Err(refusal) => self.refused.push(Refused { entry: procedure.graph.entry, len_bytes, refusal }),
        }
    }

    /// Adds a clone, unless it would make named calls at home, which lead where those of the procedure's own copy do, or its frame has another
    /// size than that one's and control may come from one to the other. `own`: by how much that one's is
    /// larger than at home, and whether it is entered alone ([`Rewritten::is_entered_alone`]).
    fn add_clone(
        &mut self,
        (copy, own): (Rewritten, (u32, bool)),
        (len_bytes, clone): (u64, CloneNumber),
    ) -> Result<(), &'static str> {
        if !copy.direct_calls.is_empty() || !copy.from_copy.is_empty() || copy.at_home > 0 {
            return Err("it makes calls in the original code");
        }
        let is_entered_alone = match own {
            (0, _) => copy.is_entered_alone(),
            (_, is_alone) => is_alone,
        };
        if copy.enlarged_at_home != own.0 && !is_entered_alone {
            return Err("its frame is to have another size than the procedure's, and is entered in the middle");
        }
        // Home belongs to the procedure's own copy.
        let copy = Rewritten { patches: Vec::new(), unused: Vec::new(), detours: Vec::new(), ..copy };
        self.end = LinkAddr(self.end.0.saturating_add(copy.code.len() as u64).next_multiple_of(ALIGNMENT));
        self.made.push(Made { copy, len_bytes, clone });
        Ok(())
    }
}

/// A procedure of a module.
struct Procedure<'g> {
    number: usize,
    graph: &'g ProcedureGraph,
    /// Why it is refused, whatever its code is.
    refusal: Option<Refusal>,
}

impl Procedure<'_> {
    fn len_bytes(&self) -> u64 {
        self.graph.blocks.iter().map(|block| block.code.end.0.saturating_sub(block.code.start.0)).sum()
    }
}

/// A module's procedures, stubs of the procedure linkage table apart.
struct Procedures<'m, 'a> {
    flow: &'m ModuleFlow<'a>,
    graphs: &'m [ProcedureGraph],
    /// The numbers of those with code, by entry.
    numbers: FxHashMap<LinkAddr, usize>,
    stubs: Vec<Range<LinkAddr>>,
    fixed: FixedCode,
    /// How much code the module has.
    code_bytes: u64,
}

impl<'m, 'a> Procedures<'m, 'a> {
    fn with<T>(module: &Module, then: impl FnOnce(&Procedures<'_, '_>) -> T) -> T {
        let mut stubs: Vec<Range<LinkAddr>> =
            plt::sections(module.image()).into_iter().map(|section| section.code).collect();
        stubs.sort_unstable_by_key(|stub| stub.start);
        let fixed = FixedCode::of(module.file());
        with_flow(module, |flow, _| {
            let graphs = merged((0..flow.len()).map(|procedure| flow.graph(procedure)).collect());
            let mut numbers = FxHashMap::default();
            for (number, graph) in graphs.iter().enumerate().filter(|(_, graph)| !graph.blocks.is_empty()) {
                numbers.entry(graph.entry).or_insert(number);
            }
            let code = module.image().instruction_ranges();
            let code_bytes = code.iter().map(|range| range.end.0.saturating_sub(range.start.0)).sum();
            then(&Procedures { flow, graphs: &graphs, numbers, stubs, fixed, code_bytes })
        })
    }

    /// By ascending entry.
    fn all(&self) -> impl Iterator<Item = Procedure<'m>> + '_ {
        let numbered = self.graphs.iter().enumerate();
        let own = numbered.filter(|(_, graph)| !graph.blocks.is_empty() && !self.is_stub(graph.entry));
        own.map(|(number, graph)| Procedure { number, graph, refusal: self.refusal(graph.entry) })
    }

    fn is_stub(&self, at: LinkAddr) -> bool {
        self.stubs.iter().any(|stub| stub.contains(&at))
    }

    fn refusal(&self, entry: LinkAddr) -> Option<Refusal> {
        self.fixed.is_loader.then_some(Refusal { at: entry, reason: Reason::Loader })
    }

    /// What cannot be copied, by what the image says of it.
    fn fixed(&self, linkage: &Linkage) -> Fixed {
        let first = |at: &LinkAddr| *at..LinkAddr(at.0.saturating_add(1));
        let named = |entries: &[LinkAddr], reason| entries.iter().map(|at| (first(at), reason)).collect::<Vec<_>>();
        let mut ranges = named(&self.fixed.resolvers, Reason::Resolver);
        ranges.extend(named(&self.fixed.preserving, Reason::KeepsRegisters));
        ranges.extend(self.fixed.restartable.iter().map(|code| (code.clone(), Reason::Restartable)));
        ranges.sort_unstable_by_key(|(code, _)| code.start);
        let (bound, taking_nodes) = (linkage.own.clone(), linkage.taking_nodes.clone());
        Fixed { ranges, vforks: self.fixed.vforks.clone(), stubs: self.stubs.clone(), bound, taking_nodes }
    }

    /// Copies of some, one behind the other, and clones behind those.
    fn copies(
        &self,
        (at, linkage, clones): (LinkAddr, &Linkage, &[WantedClone]),
        these: impl Iterator<Item = Result<Procedure<'m>, Refused>>,
        mut plan: impl FnMut(&ModuleFlow<'_>, &ProcedureGraph, Asked<'_>) -> Result<Plan, Refusal>,
    ) -> Copies {
        let liveness = Liveness::new(self.flow, self.graphs, Convention::SystemV);
        let rewriter = Rewriter::new(self.flow, self.graphs, &liveness).with_fixed(self.fixed(linkage));
        let mut copies = Copies { start: at, end: at, ..Copies::default() };
        for procedure in these {
            match procedure {
                Ok(procedure) => {
                    let (number, graph) = (procedure.number, procedure.graph);
                    let first = plan(self.flow, graph, Asked::default());
                    copies.add(&procedure, |at| {
                        let copy = rewriter.copy(number, at, &first?);
                        copy.or_else(|refusal| {
                            let asked = Asked { refused: Some(refusal), clone: None };
                            rewriter.copy(number, at, &plan(self.flow, graph, asked)?)
                        })
                    });
                }
                Err(refused) => copies.refused.push(refused),
            }
        }
        let size = |copy: &Rewritten| (copy.enlarged_at_home, copy.is_entered_alone());
        let originals: FxHashMap<LinkAddr, (u32, bool)> =
            copies.originals().map(|copy| (copy.entry, size(copy))).collect();
        let most = copies.end.0.saturating_add(MOST_CLONED_TIMES * self.code_bytes + MOST_CLONED_BYTES);
        for wanted in clones {
            let Some((own, procedure)) = originals.get(&wanted.of).zip(self.at(wanted.of).ok()) else { continue };
            if copies.end.0.saturating_add(MOST_CLONED_TIMES * procedure.len_bytes()) > most {
                copies.not_cloned.push((wanted.number, "there is no room for all clones of its file".to_owned()));
                continue;
            }
            let planned = plan(self.flow, procedure.graph, Asked { refused: None, clone: Some(wanted) });
            let copy = planned.and_then(|planned| rewriter.copy(procedure.number, copies.end, &planned));
            let made = (procedure.len_bytes(), wanted.number);
            let added = match copy {
                Ok(copy) => copies.add_clone((copy, *own), made).map_err(str::to_owned),
                Err(refusal) => Err(refusal.to_string()),
            };
            copies.not_cloned.extend(added.err().map(|why| (wanted.number, why)));
        }
        copies
    }

    /// The procedure that begins at an address.
    fn at(&self, entry: LinkAddr) -> Result<Procedure<'m>, Refusal> {
        let found = self.numbers.get(&entry).and_then(|&number| Some((number, self.graphs.get(number)?)));
        if self.is_stub(entry) {
            return Err(Refusal { at: entry, reason: Reason::LinkageStub });
        }
        let Some((number, graph)) = found else {
            let contains = |graph: &&ProcedureGraph| graph.block_at(entry).is_some();
            let around = self.graphs.iter().find(contains);
            return Err(match around {
                Some(graph) => Refusal { at: graph.entry, reason: Reason::NotAtEntry },
                None => Refusal { at: entry, reason: Reason::NoCode },
            });
        };
        Ok(Procedure { number, graph, refusal: self.refusal(entry) })
    }
}

/// An address behind all that the file maps, in pages: copies can be planned there where no process is.
pub fn behind(image: &Image) -> LinkAddr {
    const PAGE: u64 = 4096;
    let end = image.segments().iter().map(|segment| segment.vaddr.0.saturating_add(segment.mem_len)).max();
    LinkAddr(end.unwrap_or(0).saturating_add(PAGE).next_multiple_of(PAGE))
}

/// Copies each procedure of a module, stubs of the procedure linkage table apart, to `at` and behind. `plan`: what is
/// inserted into each.
pub fn copy_all(
    module: &Module,
    at: LinkAddr,
    mut plan: impl FnMut(&ModuleFlow<'_>, &ProcedureGraph) -> Plan,
) -> Copies {
    copy_all_and_clone(module, (at, &[]), |flow, graph, _| plan(flow, graph))
}

/// The same, and clones, as many as can be made of those that are wanted: `plan` is told which one it is asked for, if it is one.
pub fn copy_all_and_clone(
    module: &Module,
    (at, clones): (LinkAddr, &[WantedClone]),
    mut plan: impl FnMut(&ModuleFlow<'_>, &ProcedureGraph, Option<&WantedClone>) -> Plan,
) -> Copies {
    copy_planned(
        module,
        (at, &Linkage::default(), clones),
        |_| true,
        |flow, graph, asked| asked.refused.map_or_else(|| Ok(plan(flow, graph, asked.clone)), Err),
    )
}

/// The same, of the procedures whose first instructions `is_chosen` says, except for those that `plan` refuses. It is asked
/// again, at once, of what was refused with the first plan, and may have another. `linkage`: its calls through
/// the linkage table that lead elsewhere. `clones`: each behind its caller, and of procedures that are chosen; what cannot be cloned is
/// left out.
pub(crate) fn copy_planned(
    module: &Module,
    (at, linkage, clones): (LinkAddr, &Linkage, &[WantedClone]),
    is_chosen: impl Fn(LinkAddr) -> bool,
    plan: impl FnMut(&ModuleFlow<'_>, &ProcedureGraph, Asked<'_>) -> Result<Plan, Refusal>,
) -> Copies {
    Procedures::with(module, |procedures| {
        let chosen = procedures.all().filter(|procedure| is_chosen(procedure.graph.entry));
        procedures.copies((at, linkage, clones), chosen.map(Ok), plan)
    })
}

/// As [`copy_all`], of the procedures that begin at `chosen` addresses. An address inside of a procedure, or of its
/// cold part, is refused with the procedure's first instruction. `plan` is asked again of what was refused with the first
/// one, and may have another.
pub fn copy_chosen(
    module: &Module,
    at: LinkAddr,
    chosen: &[LinkAddr],
    mut plan: impl FnMut(&ModuleFlow<'_>, &ProcedureGraph, Option<Refusal>) -> Option<Plan>,
) -> Copies {
    let mut chosen = chosen.to_vec();
    chosen.sort_unstable();
    chosen.dedup();
    Procedures::with(module, |procedures| {
        let refused = |entry: &LinkAddr| {
            let refused = |refusal| Refused { entry: *entry, len_bytes: 0, refusal };
            procedures.at(*entry).map_err(refused)
        };
        let asked = |flow: &ModuleFlow<'_>, graph: &ProcedureGraph, Asked { refused, .. }: Asked<'_>| {
            let nothing = refused.unwrap_or(Refusal { at: graph.entry, reason: Reason::NoCode });
            plan(flow, graph, refused).ok_or(nothing)
        };
        procedures.copies((at, &Linkage::default(), &[]), chosen.iter().map(refused), asked)
    })
}

/// The procedures that those which begin at `entries` end in by a jump, those that these end in, and so on: each behind the
/// one that it was found by. Where a jump leads that reads its target somewhere is not known.
pub fn jumped_to(module: &Module, entries: &[LinkAddr]) -> Vec<(LinkAddr, LinkAddr)> {
    Procedures::with(module, |procedures| {
        let mut found: Vec<(LinkAddr, LinkAddr)> = Vec::new();
        let mut open = entries.to_vec();
        while let Some(entry) = open.pop() {
            let Ok(procedure) = procedures.at(entry) else { continue };
            for block in &procedure.graph.blocks {
                let (Terminator::TailCall(Some(to)) | Terminator::BranchOut(to)) = block.terminator else { continue };
                let is_known = entries.contains(&to) || found.iter().any(|(_, known)| *known == to);
                if !is_known && procedures.at(to).is_ok() {
                    found.push((entry, to));
                    open.push(to);
                }
            }
        }
        found
    })
}

/// The copy of one procedure, to lie at `at`: for what takes the procedure's place, and continues in the copy.
///
/// # Errors
/// Why it cannot be copied.
pub fn copy_one(module: &Module, entry: LinkAddr, at: LinkAddr) -> Result<Rewritten, Refusal> {
    Procedures::with(module, |procedures| {
        let rewriter = Rewriter::without_liveness(procedures.flow, procedures.graphs)
            .with_fixed(procedures.fixed(&Linkage::default()));
        rewriter.copy(procedures.at(entry)?.number, at, &Plan::default())
    })
}

/// Those of some procedures, by their first instructions, whose copies can have frames of any size beside one another, as far as their own
/// code says: control comes to each by its entry alone, and stays there.
pub fn resizable(module: &Module, procedures: impl IntoIterator<Item = LinkAddr>) -> FxHashSet<LinkAddr> {
    /// Any will do.
    const BYTES: u32 = 16;
    Procedures::with(module, |all| {
        let rewriter = Rewriter::without_liveness(all.flow, all.graphs).with_fixed(all.fixed(&Linkage::default()));
        let is_resizable = |entry: &LinkAddr| {
            let Ok(procedure) = all.at(*entry) else { return false };
            let mut plan = Plan::default();
            plan.let_copy_call(0);
            procedure.graph.calls.iter().for_each(|call| plan.call_in_copy(call.code.start));
            plan.pad(BYTES);
            let copy = rewriter.copy(procedure.number, behind(module.image()), &plan);
            procedure.refusal.is_none() && copy.is_ok_and(|copy| copy.is_entered_alone())
        };
        procedures.into_iter().filter(is_resizable).collect()
    })
}

/// The procedures of a module that [`copy_all`] would copy, or refuse with nothing inserted, by ascending entry; without
/// copies.
pub fn copyable(module: &Module) -> Vec<Copyable> {
    Procedures::with(module, |procedures| {
        let rewriter = Rewriter::without_liveness(procedures.flow, procedures.graphs)
            .with_fixed(procedures.fixed(&Linkage::default()));
        let check = |procedure: Procedure<'_>| {
            let refusal = procedure.refusal.or_else(|| rewriter.check(procedure.number).err());
            Copyable { entry: procedure.graph.entry, len_bytes: procedure.len_bytes(), refusal }
        };
        procedures.all().map(check).collect()
    })
}
