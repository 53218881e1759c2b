//! The walk over many frames, with a map of code that says which recipe holds where.

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_format::recipe::{Expression, Packed, Recipe};
use core::ops::ControlFlow;

use crate::Memory;
use crate::step::{Cursor, Step, Stop, rsp_of_caller_open, rsp_of_caller_packed, step_open, step_packed};

/// A walk over more signal frames than this is taken for one that runs in circles.
pub const MAX_SIGNAL_FRAMES: u32 = 64;
/// The same for frames that switch stacks.
pub const MAX_STACK_SWITCHES: u32 = 256;

/// What is known of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The frame's key.
    pub key: FrameKey,
    /// The recipe, [`Packed::UNKNOWN`] if there is none.
    pub recipe: Packed,
    /// For the map's own use: where a wide recipe's table is.
    pub table: u64,
}

/// Which code is where in a process.
pub trait CodeMap {
    /// What is at `addr`, a look-up address ([`callpath_format::address::CodePoint::lookup`]).
    fn locate(&mut self, addr: RunAddr) -> Located;
    /// What is at a frame's point, for a map that asks for more of a return address than of an exact one.
    #[inline]
    fn locate_point(&mut self, point: CodePoint) -> Located {
        self.locate(point.lookup())
    }
    /// The open form of a wide recipe.
    fn open(&self, located: &Located) -> Option<Recipe>;
    /// The bytes of an expression of that recipe.
    fn expression(&self, located: &Located, expression: Expression) -> Option<&[u8]>;
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At a frame that is known to be outermost: the path is full.
    Outermost,
    /// Before that: the path is partial.
    Stopped(Stop),
    /// The visitor broke it off.
    Broken,
}

/// Walks from `cursor` outwards. `visit` gets each frame and the memory, the innermost first,
/// before the walk continues with its caller.
pub fn walk<C: CodeMap, M: Memory>(
    mut cursor: Cursor,
    code: &mut C,
    memory: &mut M,
    mut visit: impl FnMut(&Cursor, &Located, &mut M) -> ControlFlow<()>,
) -> End {
    let mut surroundings = Surroundings { code, memory, signals: 0, switches: 0 };
    loop {
        let located = surroundings.code.locate_point(cursor.point);
        if visit(&cursor, &located, surroundings.memory).is_break() {
            return End::Broken;
        }
        match surroundings.step(&mut cursor, &located) {
            Ok(Step::Caller) => {}
            Ok(Step::Outermost) => return End::Outermost,
            Err(stop) => return End::Stopped(stop),
        }
    }
}

/// What is at the innermost frame, and the stack pointer of its caller (its CFA), if there is a recipe for it and it is not outermost.
/// No memory is read but what the recipe has the CFA in, if it has.
pub fn innermost<C: CodeMap, M: Memory>(cursor: Cursor, code: &mut C, memory: &mut M) -> (Located, Option<u64>) {
    let located = code.locate_point(cursor.point);
    let rsp = match located.recipe.kind() {
        Packed::WIDE => code.open(&located).and_then(|recipe| {
            rsp_of_caller_open(&cursor, &recipe, |e| code.expression(&located, e), memory).ok().flatten()
        }),
        _ => rsp_of_caller_packed(&cursor, &located.recipe, memory).ok().flatten(),
    };
    (located, rsp)
}

/// What a walk goes through.
struct Surroundings<'w, C, M> {
    code: &'w mut C,
    memory: &'w mut M,
    /// Frames of signals that it has gone over.
    signals: u32,
    /// Frames that switch stacks.
    switches: u32,
}

impl<C: CodeMap, M: Memory> Surroundings<'_, C, M> {
    #[inline]
    fn step(&mut self, cursor: &mut Cursor, located: &Located) -> Result<Step, Stop> {
        if located.recipe.kind() != Packed::WIDE {
            return step_packed(cursor, &located.recipe, self.memory);
        }
        self.step_wide(cursor, located)
    }

    /// Apart from the others: hardly a frame has a wide recipe, and what one needs would be set up for each.
    #[cold]
    #[inline(never)]
    fn step_wide(&mut self, cursor: &mut Cursor, located: &Located) -> Result<Step, Stop> {
        let recipe = self.code.open(located).ok_or(Stop::BadRecipe)?;
        if recipe.signal_frame {
            self.signals += 1;
            if self.signals > MAX_SIGNAL_FRAMES {
                return Err(Stop::TooManySignals);
            }
        }
        if recipe.switches_stack {
            self.switches += 1;
            if self.switches > MAX_STACK_SWITCHES {
                return Err(Stop::TooManySwitches);
            }
        }
        step_open(cursor, &recipe, |e| self.code.expression(located, e), self.memory)
    }
}
