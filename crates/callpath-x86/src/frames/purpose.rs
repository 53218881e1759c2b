//! The purposes of following control: to record the recipes of reached code, or to infer what must have held where it
//! began.

use super::knowledge::Knowledge;
use crate::instruction::Instruction;
use crate::state::State;
use crate::value::Value;

/// How the code after a call is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BehindCall {
    /// Control continues there.
    Continues,
    /// A block begins there, in which rsp is not known.
    LosesFrame,
    /// It is not followed.
    Ends,
}

/// Called at each step while control is followed. `known`: the code and what is known of it; positions are those of
/// instructions.
pub(crate) trait Purpose {
    /// Whether control may never reach where following began.
    fn is_guess(&self) -> bool;

    /// Whether the instruction at `at` was followed before, and following it again shows nothing new.
    fn is_followed(&self, known: &Knowledge<'_>, at: u32) -> bool;

    /// Whether to follow control along an edge to a block, in `state`. If not, what holds at the block is learned now.
    fn may_arrive(&mut self, known: &mut Knowledge<'_>, edge: Edge, state: &State) -> bool;

    /// Control returns to where it began, with another rsp than at first.
    fn meets_root(&mut self, first: Value, again: Value);

    /// Control reaches a block for the first time. `needs_return`: only if a call returns.
    fn enter(&mut self, known: &mut Knowledge<'_>, block: u32, needs_return: bool);

    /// Control reaches a block that was followed before. Returns whether to follow it once more.
    fn is_to_follow_again(&mut self, known: &mut Knowledge<'_>, edge: Edge, state: &State) -> bool;

    /// A block is about to be followed: adds what is known to hold there to `state`.
    fn begin_block(&mut self, block: u32, state: &mut State);

    /// A block was followed from `from` to `to`, which was not followed before.
    fn end_block(&mut self, known: &mut Knowledge<'_>, from: u32, to: u32);

    /// An instruction is reached. Returns whether to continue after it.
    fn instruction(&mut self, known: &mut Knowledge<'_>, code: Reached<'_>, state: &mut State) -> bool;

    /// Control reaches bytes that are not an instruction.
    fn meets_garbage(&mut self);

    /// Whether the frame was lost in the code reached last, and following a loop's end as a separate block helps to
    /// find it again.
    fn has_lost_frame(&self) -> bool;

    /// A call is made.
    fn call(&mut self, known: &mut Knowledge<'_>, state: &State);

    /// The call that ends at `next` has returned.
    fn called(&mut self, known: &mut Knowledge<'_>, next: u32, state: &mut State);

    /// How the code at `next`, after a call, is followed.
    fn behind_call(&mut self, known: &Knowledge<'_>, next: u32, state: &mut State) -> BehindCall;

    /// A procedure begins at `at`.
    fn find(&mut self, known: &mut Knowledge<'_>, at: u32);

    /// Whether a jump to `value` is a return: it was popped from the return address's slot.
    fn is_return(&mut self, value: Value, state: &State) -> bool;

    /// The procedure returns.
    fn leave(&mut self, state: &State, needs_return: bool);

    /// Control jumps to an unknown target: out of the procedure, or through a table that was not recognised.
    fn leave_by_jump(&mut self, known: &mut Knowledge<'_>, state: &State);
}

/// An edge along which control reaches a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    /// The block.
    pub(crate) to: u32,
    /// Where control began to be followed.
    pub(crate) root: u32,
    /// Only a call that returns leads there.
    pub(crate) needs_return: bool,
}

/// An instruction that control reaches.
#[derive(Clone, Copy)]
pub(crate) struct Reached<'i> {
    pub(crate) instruction: &'i Instruction,
    pub(crate) at: u32,
    /// Position of its end.
    pub(crate) next: u32,
}
