//! Everything about a module that the graphs of its procedures are built from. It does not change: procedures can be
//! analysed in any order, on any thread.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::bitmap::Bitmap;
use crate::code::ModuleCode;
use crate::code_map::CodeMap;
use crate::decode::Instructions;
use crate::graph::fragments::{self, CodeFragment};
use crate::graph::{Begins, Fragment, FragmentKind, GraphInput, LandingPad, ProcedureGraph};
use crate::input::CodeInput;
use crate::instruction::{Control, Instruction};

/// A module's control flow, found once. The graph of each procedure is built from it on request.
pub struct ModuleFlow<'a> {
    pub(crate) code: ModuleCode<'a>,
    /// Procedures that code outside the module may call: those of symbols, and those whose addresses are taken.
    reached: Bitmap,
    /// Those among them of which nothing but single words in data tells.
    by_chance: Bitmap,
    /// Sorted, disjoint.
    pub(super) code_fragments: Vec<CodeFragment>,
    /// For each procedure, the indices of its fragments as a range of `members`: the one with the entry first.
    pub(super) procedures: Vec<std::ops::Range<u32>>,
    pub(super) members: Vec<u32>,
    /// For each fragment, its procedure; `u32::MAX`: none.
    owners: Vec<u32>,
    /// `(from, to, pad)` of calls with a landing pad, sorted.
    pub(crate) landing_pads: Vec<(u32, u32, u32)>,
}

impl<'a> ModuleFlow<'a> {
    /// Reads all code once: takes time in proportion to its length.
    pub fn new(input: &GraphInput<'a>) -> ModuleFlow<'a> {
        let stretches = input.fragments.iter().map(|fragment| &fragment.code);
        let mut code = ModuleCode::read(&CodeInput { known: &[], ..input.code }, stretches);
        let landing_pads = landing_pads(&code.code_map, input.landing_pads);
        code.return_from_handlers(&landing_pads);
        let taken = fragments::Taken::new(input, &code);
        let code_fragments = fragments::code_fragments(input, &code, &taken);
        let mut reached = taken.all;
        reached.insert_all(&code.sure_starts);
        let mut by_chance = taken.by_chance;
        code.sure_starts.range(0, code.code_map.len()).for_each(|at| by_chance.remove(at));
        let (procedures, members) = fragments::procedures(&code_fragments, &code.sweep, &landing_pads);
        let mut owners = vec![u32::MAX; code_fragments.len()];
        for (procedure, range) in (0u32..).zip(&procedures) {
            for &index in members.get(range.start as usize..range.end as usize).unwrap_or(&[]) {
                if let Some(owner) = owners.get_mut(index as usize) {
                    *owner = procedure;
                }
            }
        }
        ModuleFlow { owners, reached, by_chance, code, code_fragments, procedures, members, landing_pads }
    }

    /// The number of procedures.
    pub fn len(&self) -> usize {
        self.procedures.len()
    }

    /// Whether there are no procedures.
    pub fn is_empty(&self) -> bool {
        self.procedures.is_empty()
    }

    /// Whether there is more code than can be analysed; the excess is left out.
    pub fn is_cut(&self) -> bool {
        self.code.is_cut
    }

    /// The address where a procedure begins. Procedures are in ascending order.
    pub fn entry(&self, procedure: usize) -> Option<LinkAddr> {
        let first = *self.members.get(self.procedures.get(procedure)?.start as usize)?;
        self.fragment(first).map(|fragment| self.code.code_map.address(fragment.start))
    }

    /// Whether code outside the module may call an address: a symbol says that a procedure begins there, or the address
    /// is taken.
    pub fn is_reached_from_elsewhere(&self, addr: LinkAddr) -> bool {
        self.code.code_map.position(addr.0).is_some_and(|at| self.reached.get(at))
    }

    /// The addresses that code outside the module may call, as far as they are code, ascending.
    pub(crate) fn reached(&self) -> impl Iterator<Item = LinkAddr> + '_ {
        self.reached.range(0, self.code.code_map.len()).map(|at| self.code.code_map.address(at))
    }

    /// Those of [`ModuleFlow::reached`] that nothing tells of but single words in the data of a module that is not relocated: they may be numbers
    /// or text that look like addresses.
    pub(crate) fn reached_by_chance(&self) -> impl Iterator<Item = LinkAddr> + '_ {
        self.by_chance.range(0, self.code.code_map.len()).map(|at| self.code.code_map.address(at))
    }

    /// The first beginning of a fragment from an address on.
    pub(crate) fn fragment_from(&self, addr: LinkAddr) -> Option<LinkAddr> {
        let at = self.code.code_map.position(addr.0)?;
        let index = self.code_fragments.partition_point(|fragment| fragment.start < at);
        self.fragment(index as u32).map(|fragment| self.code.code_map.address(fragment.start))
    }

    /// The procedure that contains an address, as far as this is known without its graph.
    pub fn procedure_at(&self, addr: LinkAddr) -> Option<usize> {
        let index = self.fragment_index_at(self.code.code_map.position(addr.0)?)?;
        self.owners.get(index as usize).copied().filter(|&owner| owner != u32::MAX).map(|owner| owner as usize)
    }

    /// The code of all procedures, by address, each range with its procedure; ranges do not overlap.
    pub fn code_ranges(&self) -> impl Iterator<Item = (usize, Range<LinkAddr>)> + '_ {
        let address = |at: u32| self.code.code_map.address(at);
        let owned = self.code_fragments.iter().zip(&self.owners).filter(|(_, owner)| **owner != u32::MAX);
        // A fragment's end may be where the next stretch of code begins, which lies elsewhere.
        owned.filter(|(fragment, _)| fragment.start < fragment.end).map(move |(fragment, owner)| {
            (*owner as usize, address(fragment.start)..LinkAddr(address(fragment.end - 1).0 + 1))
        })
    }

    /// The indices of a procedure's fragments, the one with its entry first; empty if there is no such procedure.
    pub(super) fn members_of(&self, procedure: usize) -> &[u32] {
        let range = self.procedures.get(procedure).cloned().unwrap_or_default();
        self.members.get(range.start as usize..range.end as usize).unwrap_or(&[])
    }

    /// Whether a fragment, by index, neither begins a procedure nor was found to belong to one.
    pub(super) fn is_orphan(&self, index: u32) -> bool {
        let begins = |procedure: &std::ops::Range<u32>| self.members.get(procedure.start as usize).copied();
        let is_entry = self.fragment(index).is_none_or(|fragment| fragment.is_entry);
        !is_entry && self.procedures.binary_search_by_key(&Some(index), begins).is_ok()
    }

    /// The word beside the code that the last instruction of a range of code calls or jumps through, if it does.
    pub fn slot_of(&self, code: &Range<LinkAddr>) -> Option<LinkAddr> {
        let (at, last) = self.instructions(code).pop()?;
        let is_through = matches!(last.control(), Control::CallIndirect | Control::JumpIndirect);
        last.beside_code(at.0.wrapping_add(last.len().into())).filter(|_| is_through).map(LinkAddr)
    }

    /// The bytes of code, as far as there are any.
    pub(crate) fn bytes(&self, code: &Range<LinkAddr>) -> &'a [u8] {
        let bytes = self.code.code_map.position(code.start.0).map_or(&[][..], |at| self.code.code_map.bytes(at));
        let len = (code.end.0.saturating_sub(code.start.0) as usize).min(bytes.len());
        bytes.get(..len).unwrap_or(bytes)
    }

    /// The instructions of a range of code with their addresses, up to the first bytes that are not one.
    pub(crate) fn instructions(&self, code: &Range<LinkAddr>) -> Vec<(LinkAddr, Instruction)> {
        let start = self.code.code_map.position(code.start.0);
        let Some(mut reader) = start.and_then(|at| Instructions::new(&self.code.code_map, at)) else {
            return Vec::new();
        };
        let mut instructions = Vec::new();
        loop {
            let at = LinkAddr(reader.next_address());
            match reader.read() {
                Some(instruction) if at < code.end => instructions.push((at, instruction)),
                _ => return instructions,
            }
        }
    }

    /// A fragment by its index.
    pub(super) fn fragment(&self, index: u32) -> Option<&CodeFragment> {
        self.code_fragments.get(index as usize)
    }

    /// The fragment that contains a position.
    pub(super) fn fragment_at(&self, at: u32) -> Option<&CodeFragment> {
        self.fragment(self.fragment_index_at(at)?)
    }

    /// The index of the fragment that contains a position.
    pub(super) fn fragment_index_at(&self, at: u32) -> Option<u32> {
        fragments::index_at(&self.code_fragments, at)
    }
}

fn landing_pads(code_map: &CodeMap<'_>, pads: &[LandingPad]) -> Vec<(u32, u32, u32)> {
    let mut found = Vec::new();
    for pad in pads {
        let Some(to) = code_map.position(pad.pad.0) else { continue };
        found.extend(code_map.positions(&pad.calls).into_iter().map(|calls| (calls.start, calls.end, to)));
    }
    found.sort_unstable();
    found
}

/// Removes graphs that are not procedures of their own: a table of another procedure was found to lead into them, and
/// its graph has their code.
pub fn merged(graphs: Vec<ProcedureGraph>) -> Vec<ProcedureGraph> {
    let mut taken: Vec<LinkAddr> =
        graphs.iter().flat_map(|graph| graph.fragments.iter().skip(1)).map(|fragment| fragment.start).collect();
    taken.sort_unstable();
    graphs.into_iter().filter(|graph| taken.binary_search(&graph.entry).is_err()).collect()
}

/// For fuzzing: any bytes as code, the first eight of them as hints.
pub(crate) fn with_any_bytes<T>(bytes: &[u8], then: impl FnOnce(&ModuleFlow<'_>, &[ProcedureGraph]) -> T) -> T {
    let base = LinkAddr(0x1000);
    let (hints, code) = bytes.split_at(bytes.len().min(8));
    let word = hints.first_chunk().map_or(0, |hint| u64::from_le_bytes(*hint));
    let place = |shift: u32| LinkAddr(0x1000 + (word >> shift & 0xfff));
    let slices = [(base, code)];
    let fragment = |from, to, kind| Fragment { code: place(from)..place(to), kind };
    let fragments = [
        fragment(4, 16, FragmentKind::Unknown),
        fragment(20, 28, FragmentKind::Part),
        fragment(32, 40, FragmentKind::Entry),
    ];
    let (pointers, starts, slots) = ([(place(0), place(12))], [place(36)], [place(48)]);
    let landing_pads = [LandingPad { calls: place(44)..place(52), pad: place(8) }];
    let code = CodeInput {
        code: &slices,
        data: &slices,
        pointers: &pointers,
        constant: &[base..LinkAddr(base.0 + code.len() as u64)],
        is_absolute: word & 1 != 0,
        entry: Some(place(24)),
        starts: &starts,
        known: &[],
        no_return_slots: &slots,
    };
    let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &landing_pads });
    let graphs: Vec<ProcedureGraph> = merged((0..flow.len()).map(|procedure| flow.graph(procedure)).collect());
    then(&flow, &graphs)
}

/// For fuzzing: on any bytes graphs are built, and all edges lead to blocks.
#[doc(hidden)]
pub fn fuzz_graph(bytes: &[u8]) {
    with_any_bytes(bytes, |flow, graphs| {
        assert_eq!(crate::arguments::arguments(flow, graphs).len(), graphs.len());
        for graph in graphs {
            for begins in [Begins::Called, Begins::Program] {
                let heights = flow.call_heights(graph, begins);
                assert!(heights.len() <= graph.calls.len());
            }
            let len = graph.blocks.len() as u32;
            assert!(graph.blocks.is_sorted_by(|a, b| a.code.start < b.code.start));
            assert!(graph.blocks.iter().all(|block| block.code.start < block.code.end));
            assert!((0..len).all(|block| graph.successors(block).iter().all(|&to| to < len)));
            let forest = crate::loops::forest(graph);
            assert_eq!(forest.innermost.len(), graph.blocks.len());
            assert!((0u32..).zip(&forest.loops).all(|(number, l)| l.parent.is_none_or(|parent| parent < number)));
        }
    });
}
