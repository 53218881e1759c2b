//! What control is followed for: to record the recipes of what is reached, or to infer what must have held where it began.

use super::knowledge::Knowledge;
use crate::instruction::Instruction;
use crate::state::State;
use crate::value::Value;

/// What becomes of the code behind a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BehindCall {
    /// Control continues there.
    Continues,
    /// A block begins there, in which rsp is not known.
    LosesFrame,
    /// It is not followed.
    Ends,
}

/// Who follows control is asked at each step. The code, and what is known of it, is `known`; positions are those of instructions.
pub(crate) trait Purpose {
    /// What is reached from where control begins may not be reached at all.
    fn is_guess(&self) -> bool;

    /// The instruction at `at` was followed before, and nothing new comes of it.
    fn is_followed(&self, known: &Knowledge<'_>, at: u32) -> bool;

    /// Control may come to a block along an edge, with `state`; `needs_return` if only a call that returns leads there. Where it does
    /// not, what holds there is learned now.
    fn may_arrive(&mut self, known: &mut Knowledge<'_>, edge: Edge, state: &State) -> bool;

    /// Control comes to where it began with another rsp than then.
    fn meets_root(&mut self, first: Value, again: Value);

    /// Control has come to a block for the first time.
    fn enter(&mut self, known: &mut Knowledge<'_>, block: u32, needs_return: bool);

    /// Control comes to a block that was followed before, another time: whether to follow it once more.
    fn is_to_follow_again(&mut self, known: &mut Knowledge<'_>, edge: Edge, state: &State) -> bool;

    /// A block is about to be followed: adds to `state` what is known to hold there.
    fn begin_block(&mut self, block: u32, state: &mut State);

    /// A block was followed from `from` to `to`, which is new.
    fn end_block(&mut self, known: &mut Knowledge<'_>, from: u32, to: u32);

    /// An instruction is reached, which ends at `next`. Whether to continue behind it.
    fn instruction(&mut self, known: &mut Knowledge<'_>, code: Reached<'_>, state: &mut State) -> bool;

    /// Control comes to bytes that are not an instruction.
    fn meets_garbage(&mut self);

    /// The frame was lost in what was reached last, and to find it again it helps to follow a loop's end as a block of its own.
    fn has_lost_frame(&self) -> bool;

    /// A call is made.
    fn call(&mut self, known: &mut Knowledge<'_>, state: &State);

    /// The call that ends at `next` has returned.
    fn called(&mut self, known: &mut Knowledge<'_>, next: u32, state: &mut State);

    /// What becomes of the code at `next`, behind a call.
    fn behind_call(&mut self, known: &Knowledge<'_>, next: u32, state: &mut State) -> BehindCall;

    /// A procedure begins at `at`.
    fn find(&mut self, known: &mut Knowledge<'_>, at: u32);

    /// A jump to `value` is a return: it was popped from where the return address lies.
    fn is_return(&mut self, value: Value, state: &State) -> bool;

    /// The procedure returns.
    fn leave(&mut self, state: &State, needs_return: bool);

    /// Control jumps to where nobody knows: out of the procedure, or through a table that was not recognised.
    fn leave_by_jump(&mut self, known: &mut Knowledge<'_>, state: &State);
}

/// Control comes to a block.
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
    /// Where it ends.
    pub(crate) next: u32,
}
