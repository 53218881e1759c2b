//! The exits of a procedure: where control leaves it for its caller, or for a procedure that returns there instead. Calls
//! that do not return, `ud2` and `hlt` are ways out without an exit.

use std::fmt;

use callpath_format::address::LinkAddr;

use super::plan::Place;
use crate::graph::{Block, EdgeKind, ModuleFlow, ProcedureGraph, Terminator};
use crate::instruction::{Control, Operation};

/// An exit. rsp is there what it is at the entry, as far as it can be told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Exit {
    /// Where.
    pub place: Place,
    /// How.
    pub kind: ExitKind,
}

/// How control leaves a procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExitKind {
    /// By a return.
    Return,
    /// By a jump to another procedure, or by falling through into it: that one returns to the caller.
    TailCall,
}

/// The exits of a procedure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exits {
    /// By ascending place, each once.
    pub found: Vec<Exit>,
    /// Ways out that are none, by ascending address of the instruction.
    pub left_out: Vec<(LinkAddr, LeftOut)>,
}

/// Why a way out of a procedure is no exit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeftOut {
    /// rsp is not what it is at the entry: a return to an address that the procedure has pushed, or the like.
    StackMoved,
    /// It leads into the middle of another procedure, which goes on in this one's place.
    IntoTheMiddle,
    /// Control comes back from a call into the next procedure: nothing can be inserted there.
    BehindCall,
    /// Control runs past the end of its code.
    RunsOut,
    /// A return from an interrupt.
    InterruptReturn,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftOut::StackMoved => "the stack pointer is not what it is at the entry",
            LeftOut::IntoTheMiddle => "leads into the middle of another procedure",
            LeftOut::BehindCall => "comes back from a call into another procedure",
            LeftOut::RunsOut => "runs past the end of its code",
            LeftOut::InterruptReturn => "returns from an interrupt",
        })
    }
}

/// The exits of a procedure of `flow`.
pub fn exits(flow: &ModuleFlow<'_>, graph: &ProcedureGraph) -> Exits {
    let mut exits = Exits::default();
    let heights = flow.heights_at_ends(graph);
    for (number, block) in (0u32..).zip(&graph.blocks) {
        let instructions = flow.instructions(&block.code);
        let Some((at, last)) = instructions.last() else { continue };
        let way_out = WayOut { flow, graph, number, block };
        let found = match block.terminator {
            Terminator::Return if last.operation() == Operation::Return => {
                vec![Ok(Exit { place: Place::Before(*at), kind: ExitKind::Return })]
            }
            Terminator::Return => vec![Err(LeftOut::InterruptReturn)],
            Terminator::TailCall(to) => vec![way_out.jump(*at, last.control(), to)],
            Terminator::SharedTail(_) => vec![Err(LeftOut::IntoTheMiddle)],
            Terminator::RunsOut => vec![Err(LeftOut::RunsOut)],
            Terminator::BranchOut(to) => way_out.edge(to).into_iter().chain(way_out.not_taken()).collect(),
            Terminator::Branch => way_out.not_taken().into_iter().collect(),
            _ => Vec::new(),
        };
        let is_moved = heights.get(number as usize).copied().flatten().is_some_and(|height| height != 0);
        for exit in found {
            match exit {
                Ok(_) if is_moved => exits.left_out.push((*at, LeftOut::StackMoved)),
                Ok(exit) => exits.found.push(exit),
                Err(why) => exits.left_out.push((*at, why)),
            }
        }
    }
    exits.found.sort_unstable();
    exits.found.dedup();
    exits.left_out.sort_unstable();
    exits.left_out.dedup();
    exits
}

/// A block that control leaves the procedure behind.
struct WayOut<'f, 'a> {
    flow: &'f ModuleFlow<'a>,
    graph: &'f ProcedureGraph,
    number: u32,
    block: &'f Block,
}

impl WayOut<'_, '_> {
    /// A jump, or control that falls through.
    fn jump(&self, at: LinkAddr, control: Control, to: Option<LinkAddr>) -> Result<Exit, LeftOut> {
        match control {
            Control::Call | Control::CallIndirect => Err(LeftOut::BehindCall),
            Control::Jump | Control::JumpIndirect => {
                if to.is_some_and(|to| self.is_middle(to)) {
                    return Err(LeftOut::IntoTheMiddle);
                }
                Ok(Exit { place: Place::Before(at), kind: ExitKind::TailCall })
            }
            _ => self.edge(self.block.code.end).unwrap_or(Err(LeftOut::IntoTheMiddle)),
        }
    }

    /// Along an edge; none if that does not leave the procedure.
    fn edge(&self, to: LinkAddr) -> Option<Result<Exit, LeftOut>> {
        if self.graph.block_at(to).is_some() {
            return None;
        }
        if self.is_middle(to) {
            return Some(Err(LeftOut::IntoTheMiddle));
        }
        Some(Ok(Exit { place: Place::Edge(self.block.code.start, to), kind: ExitKind::TailCall }))
    }

    /// Where a branch is not taken: if that leaves the procedure, too.
    fn not_taken(&self) -> Option<Result<Exit, LeftOut>> {
        let continues = |(_, kind)| matches!(kind, EdgeKind::FallThrough | EdgeKind::NotTaken);
        let is_inside = self.graph.edges_of(self.number).any(continues);
        let end = self.block.code.end;
        // Behind the end of the code there is no procedure.
        (!is_inside && self.flow.procedure_at(end).is_some()).then(|| self.edge(end)).flatten()
    }

    /// Whether an address is in a procedure, but not where it begins.
    fn is_middle(&self, at: LinkAddr) -> bool {
        self.flow.procedure_at(at).is_some() && self.flow.fragment_from(at) != Some(at)
    }
}
