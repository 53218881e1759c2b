//! Control flow graphs: the blocks of each procedure of a module, and where control goes from each. No frames, files or
//! source lines here.
//!
//! Data flow: [`GraphInput`] -> [`ModuleFlow`]: a sweep over all code, fragments joined into procedures (`fragments`)
//! -> for each procedure, separately, a [`ProcedureGraph`] (`blocks`), whose indirect jumps are traced back to their
//! tables (`backward_slice`, `jump_tables`) or out of the procedure (`stack_heights`).

mod backward_slice;
mod blocks;
mod fragments;
mod jump_tables;
mod module_flow;
mod partial;
mod procedure;
mod resolution;
mod stack_heights;
mod steps;

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::{CodePoint, LinkAddr, RunAddr};

use crate::input::CodeInput;
pub(crate) use module_flow::with_any_bytes;
pub use module_flow::{ModuleFlow, fuzz_graph, merged};
pub use stack_heights::Begins;

/// A module's code, and known bounds of its procedures. All slices may be in any order, overlap, and be wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphInput<'a> {
    /// The code. [`CodeInput::known`] is ignored: all of it is analysed.
    pub code: CodeInput<'a>,
    /// Ranges that each belong to one procedure. Code outside them is cut where procedures seem to begin.
    pub fragments: &'a [Fragment],
    /// The landing pads of exceptions.
    pub landing_pads: &'a [LandingPad],
}

/// Code that belongs to one procedure, from its first instruction to one past its last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Its addresses.
    pub code: Range<LinkAddr>,
    /// The kind of its beginning.
    pub kind: FragmentKind,
}

/// The kind of a fragment's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FragmentKind {
    /// A procedure's first instruction.
    Entry,
    /// Not a procedure's first instruction: there is a frame already.
    Part,
    /// Not known.
    Unknown,
}

/// The landing pad of the exceptions of some calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LandingPad {
    /// The calls: their instructions are in this range.
    pub calls: Range<LinkAddr>,
    /// Where control continues.
    pub pad: LinkAddr,
}

/// The control flow graph of one procedure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcedureGraph {
    /// Its first instruction.
    pub entry: LinkAddr,
    /// Its code, the fragment with the entry first, the others by address.
    pub fragments: Vec<Range<LinkAddr>>,
    /// By ascending start. They are disjoint, except for instructions that control also enters in the middle.
    pub blocks: Vec<Block>,
    /// Successors of all blocks, as indices in `blocks`: see [`ProcedureGraph::successors`]. Those of a copied jump are
    /// listed once.
    pub edges: Vec<u32>,
    /// The kind of each of `edges`.
    pub kinds: Vec<EdgeKind>,
    /// The block at the entry, and those that no known edge leads to: landing pads that are not known, targets of jumps
    /// that could not be followed, dead code.
    pub roots: Vec<u32>,
    /// By ascending address.
    pub calls: Vec<CallSite>,
    /// Jumps through tables.
    pub tables: Vec<JumpTable>,
}

/// A sequence of instructions that control enters at the first and leaves at the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// From its first instruction to one past its last.
    pub code: Range<LinkAddr>,
    /// How it ends.
    pub terminator: Terminator,
    /// A range in [`ProcedureGraph::edges`], which copies of a jump share.
    edges: Range<u32>,
    first_copy: Option<u32>,
}

/// How control goes from one block to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EdgeKind {
    /// To the next instruction, without a condition.
    FallThrough,
    /// To the next instruction, because a condition does not hold.
    NotTaken,
    /// Along a conditional jump.
    Taken,
    /// Along a jump to one address.
    Jump,
    /// Along a jump through a table.
    Table,
    /// From a call that returns.
    AfterCall,
    /// From a call whose exception lands in the procedure.
    LandingPad,
}

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terminator {
    /// The next block begins, because control also arrives there from elsewhere, or because the last instruction is a
    /// call whose exceptions land in the procedure: successors are the next block and the landing pad.
    FallsThrough,
    /// A jump to one address.
    Jump,
    /// A conditional jump: successors are the next instruction and the target, if both are in the procedure.
    Branch,
    /// A conditional jump to another procedure; the successor is the next instruction.
    BranchOut(LinkAddr),
    /// A jump through [`ProcedureGraph::tables`].
    Switch(u32),
    /// An indirect jump that could not be followed.
    Unresolved,
    /// A call that does not return.
    NoReturnCall,
    /// A return.
    Return,
    /// A jump to another procedure, or control that falls through into it. `None`: an indirect jump whose target is
    /// unknown.
    TailCall(Option<LinkAddr>),
    /// A jump into the middle of another procedure: code that both share.
    SharedTail(LinkAddr),
    /// An instruction after which control does not continue (`ud2`, `hlt`), or bytes that are not an instruction.
    Trap,
    /// Control falls through the end of the code.
    RunsOut,
}

/// A call, except jumps that replace one: see [`Terminator::TailCall`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallSite {
    /// The call instruction.
    pub code: Range<LinkAddr>,
    /// The called address, if it is known and in this module.
    pub target: Option<LinkAddr>,
    /// Whether it may return.
    pub returns: bool,
}

impl CallSite {
    /// Where frames that are at the call have their address.
    pub fn site(&self) -> LinkAddr {
        LinkAddr(CodePoint::Return(RunAddr(self.code.end.0)).lookup().0)
    }
}

/// The targets of a jump through a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JumpTable {
    /// The jump.
    pub jump: LinkAddr,
    /// Addresses of the first entries; one jump may use several tables.
    pub addresses: Vec<LinkAddr>,
    /// Sorted, distinct.
    pub targets: Arc<[LinkAddr]>,
    /// How the number of entries is known.
    pub end: TableEnd,
    /// What the jump may read, if it is entries of one table and the code bounds the index on every path to it.
    pub entries: Option<TableEntries>,
}

/// Entries of a jump table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableEntries {
    /// The address of the first one.
    pub first: LinkAddr,
    /// Their number.
    pub count: u32,
    /// From one to the next, bytes.
    pub stride_bytes: u32,
    /// The size of each, bytes.
    pub width_bytes: u8,
    /// Whether an entry is extended with its sign.
    pub is_signed: bool,
    /// The constant that is added to an entry to get the target, modulo 2 to the power of 64.
    pub base: u64,
}

/// How the number of a table's entries is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TableEnd {
    /// The code compares or masks the index on every path to the jump.
    Bound,
    /// The entries are those with targets in the procedure, up to the next address that code refers to.
    Contents,
}

impl ProcedureGraph {
    /// The blocks that control reaches from a block, as indices in [`ProcedureGraph::blocks`]. Empty if there is no
    /// such block.
    pub fn successors(&self, block: u32) -> &[u32] {
        let Some(block) = self.blocks.get(block as usize) else { return &[] };
        self.edges.get(block.edges.start as usize..block.edges.end as usize).unwrap_or(&[])
    }

    /// The blocks of the procedure that control reaches from a block, and how. [`Block::terminator`] tells where
    /// control leaves the procedure.
    pub fn edges_of(&self, block: u32) -> impl Iterator<Item = (u32, EdgeKind)> + '_ {
        let edges = self.blocks.get(block as usize).map_or(0..0, |block| block.edges.clone());
        let kinds = self.kinds.get(edges.start as usize..edges.end as usize).unwrap_or(&[]);
        self.successors(block).iter().copied().zip(kinds.iter().copied())
    }

    /// If a block ends with one of several jumps through the same tables: the first block that does. Compilers copy the
    /// jump of a computed `goto` to the end of each case.
    pub fn copied_jump(&self, block: u32) -> Option<u32> {
        self.blocks.get(block as usize)?.first_copy
    }

    /// The block that contains an address; of overlapping ones, the one that begins last.
    pub fn block_at(&self, address: LinkAddr) -> Option<u32> {
        let after = self.blocks.partition_point(|block| block.code.start <= address);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        block.code.contains(&address).then_some(after as u32 - 1)
    }

    /// The number of indirect jumps that could not be followed.
    pub fn unresolved(&self) -> usize {
        self.blocks.iter().filter(|block| block.terminator == Terminator::Unresolved).count()
    }
}
