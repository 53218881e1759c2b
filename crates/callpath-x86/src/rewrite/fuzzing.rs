//! What holds of a copy, whatever the bytes that were taken for code.

use callpath_format::address::LinkAddr;

use super::{Cell, Contexts, Operation, Place, Plan, Rewriter, Rewritten, exits};
use crate::encoding::{JUMP_BYTES, SHORT_JUMP_BYTES};
use crate::graph::{ModuleFlow, ProcedureGraph, with_any_bytes};
use crate::instruction::{Control, Listing};
use crate::liveness::{Convention, Liveness};

/// For fuzzing: copies of any bytes, bare and with code inserted, keep what [`Rewritten`] promises.
#[doc(hidden)]
pub fn fuzz_rewrite(bytes: &[u8]) {
    with_any_bytes(bytes, |flow, graphs| {
        let liveness = Liveness::new(flow, graphs, Convention::SystemV);
        let rewriter = Rewriter::new(flow, graphs, &liveness);
        let at = LinkAddr(0x10_0000);
        for (number, graph) in graphs.iter().enumerate() {
            // Any run-time address.
            const BIAS: u64 = 0x7f12_3456_7000;
            let mut plans = [Plan::default(), blocks_counted(graph), edges_counted(graph), routine_called(flow, graph)];
            plans.iter_mut().skip(1).for_each(|plan| plan.let_copy_call(BIAS));
            let calling = plans.clone().map(|mut plan| {
                graph.calls.iter().for_each(|call| plan.call_in_copy(call.code.start));
                plan
            });
            let contexts = [true, false].map(|may_enlarge| contexts_counted(graph, may_enlarge));
            for plan in plans.into_iter().chain(calling).chain(contexts) {
                if let Ok(copy) = rewriter.copy(number, at, &plan) {
                    check(graph, &copy);
                }
            }
        }
    });
}

fn blocks_counted(graph: &ProcedureGraph) -> Plan {
    let mut plan = Plan::new(Some(Cell::OfThread(-16)));
    plan.insert(Place::Entry, Operation::Set(Cell::OfThread(-8), 1));
    for block in &graph.blocks {
        plan.insert(Place::Before(block.code.start), Operation::Add(Cell::Shared(LinkAddr(0x20_0000)), 1));
        plan.insert(Place::Before(block.code.start), Operation::OverwriteDead);
    }
    plan
}

fn edges_counted(graph: &ProcedureGraph) -> Plan {
    let mut plan = Plan::new(Some(Cell::OfThread(-16)));
    for (number, block) in (0u32..).zip(&graph.blocks) {
        for (to, _) in graph.edges_of(number) {
            if let Some(to) = graph.blocks.get(to as usize) {
                plan.insert(Place::Edge(block.code.start, to.code.start), Operation::Add(Cell::OfThread(-24), 1));
            }
        }
    }
    plan
}

/// Activations in their contexts, with a counter of the context in each block. If frames `may_enlarge`, all calls are made in the
/// copy.
fn contexts_counted(graph: &ProcedureGraph, may_enlarge: bool) -> Plan {
    let mut plan = Plan::new(None);
    plan.give_words(may_enlarge);
    let [routine, words] = [0x20_0000, 0x20_1000].map(LinkAddr);
    plan.count_contexts(
        Contexts { number: 7, entry: graph.entry.0, routine, words, has_back_edges: may_enlarge, may_go: !may_enlarge },
        true,
    );
    graph.calls.iter().filter(|_| may_enlarge).for_each(|call| plan.call_in_copy(call.code.start));
    plan.insert(Place::Entry, Operation::Set(Cell::OfActivation(0), 3));
    for (number, block) in (0u8..).zip(&graph.blocks) {
        let at = Place::Before(block.code.start);
        plan.insert(at, Operation::CountInContext { index: Some(Cell::OfActivation(0)), offset: 1 });
        plan.insert(at, Operation::CountInContext { index: None, offset: 0 });
        plan.insert(at, Operation::ToHome { register: number & 3, homes: words });
    }
    plan
}

/// At the entry, around calls, and at exits.
fn routine_called(flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> Plan {
    let around = graph.calls.iter().filter(|call| call.returns).map(|call| call.code.start);
    let around = around.flat_map(|call| [Place::Before(call), Place::AfterCall(call)]);
    let exits = exits(flow, graph).found.into_iter().map(|exit| exit.place);
    let mut plan = Plan::default();
    for place in std::iter::once(Place::Entry).chain(around).chain(exits) {
        plan.insert(place, Operation::Call(LinkAddr(0x20_0000)));
    }
    plan
}

fn check(graph: &ProcedureGraph, copy: &Rewritten) {
    let len = copy.code.len() as u64;
    assert!(copy.origins.is_sorted_by_key(|origin| origin.0));
    assert!(copy.origins.iter().all(|&(offset, _)| u64::from(offset) <= len));
    assert!(copy.lowered.is_sorted_by_key(|lowered| lowered.0));
    assert!(copy.lowered.last().is_none_or(|last| last.1 == 0), "rsp is put back");
    assert!(copy.returns.is_sorted_by_key(|back| back.0) && copy.returns.iter().all(|back| u64::from(back.0) <= len));
    // A call is made in one of both places.
    assert!(copy.direct_calls.iter().all(|call| copy.returns.iter().all(|back| back.1 != call.end)));
    // What is written and what is left over is apart.
    let patched = copy.patches.iter().map(|patch| (patch.at.0, patch.at.0 + patch.new.len() as u64));
    let unused = copy.unused.iter().map(|unused| (unused.start.0, unused.end.0));
    // Of calls that may be changed.
    let distances = copy.direct_calls.iter().map(|call| (call.end.0 - 4, call.end.0));
    let mut ranges: Vec<(u64, u64)> = patched.chain(unused).chain(distances).collect();
    ranges.sort_unstable();
    assert!(ranges.iter().all(|(start, end)| start < end), "{ranges:x?}");
    assert!(ranges.is_sorted_by(|a, b| a.1 <= b.0), "{ranges:x?}");
    let in_blocks = |at: &u64| graph.blocks.iter().any(|block| block.code.contains(&LinkAddr(*at)));
    assert!(copy.unused.iter().all(|unused| in_blocks(&unused.start.0) && in_blocks(&(unused.end.0 - 1))));
    // Each springboard is one jump: into the copy, or to another springboard.
    for patch in &copy.patches {
        assert_eq!(patch.old.len(), patch.new.len());
        let jump = Listing::new(&patch.new, patch.at.0).next().expect("an instruction").1;
        assert_eq!(jump.control(), Control::Jump);
        let target = jump.target(patch.at.0 + patch.new.len() as u64);
        match patch.new.len() as u8 {
            JUMP_BYTES => assert!((copy.at.0..copy.at.0 + len).contains(&target), "{target:#x}"),
            SHORT_JUMP_BYTES => assert!(copy.patches.iter().any(|other| other.at.0 == target), "{target:#x}"),
            len => panic!("a springboard of {len} bytes"),
        }
    }
}
