//! One step of the walk: a frame and its recipe give the caller's frame.
//! It looks up no modules and tables: the recipe is given.
//!
//! Registers that a call may change keep their value from callee to caller: a recipe that needs
//! one says that its callee keeps it, as hand-written code does (libcrypto's
//! aesni_ctr32_encrypt_blocks has its CFA in r11 and calls its own).

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use callpath_format::register::{Reg, Registers};

use crate::Memory;
use crate::expression::{Context, evaluate};

/// A frame: where it stands, and the registers that are known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Where the frame stands in the code.
    pub point: CodePoint,
    /// The registers as they are while the frame is the innermost one.
    pub registers: Registers,
}

impl Cursor {
    /// An interrupted thread: registers in DWARF order, and its pc.
    pub fn interrupted(pc: RunAddr, values: [u64; 16]) -> Cursor {
        Cursor { point: CodePoint::Exact(pc), registers: Registers::all(values) }
    }
}

/// Why a walk ended before a frame that is known to be outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No recipe is known for the frame's code.
    NoRecipe,
    /// The recipe needs a register that no frame on the way has kept.
    UnknownRegister,
    /// The recipe points at memory that is not on the stack.
    Unreadable,
    /// The caller's frame would not lie above this one.
    NoProgress,
    /// The return address is zero: the caller is unknown, and the frame is not known to be outermost.
    NoReturnAddress,
    /// The recipe itself is malformed.
    BadRecipe,
    /// More signal frames than [`crate::MAX_SIGNAL_FRAMES`].
    TooManySignals,
    /// More frames that switch stacks than [`crate::MAX_STACK_SWITCHES`].
    TooManySwitches,
}

/// What a step gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The cursor stands at the caller now.
    Caller,
    /// The frame is outermost: the cursor has not moved.
    Outermost,
}

/// Moves to the caller by a packed recipe that is not wide. After an error the cursor is of no more use.
#[inline]
pub fn step_packed(frame: &mut Cursor, recipe: &Packed, memory: &mut impl Memory) -> Result<Step, Stop> {
    let registers = &mut frame.registers;
    let Some(cfa) = cfa_packed(registers, recipe, memory)? else { return Ok(Step::Outermost) };
    let return_address = memory.read_u64(cfa.wrapping_sub(8)).ok_or(Stop::Unreadable)?;
    let return_address = memory.true_return(cfa.wrapping_sub(8), return_address).ok_or(Stop::Unreadable)?;
    if return_address == 0 {
        let is_start = recipe.head & Packed::INFERRED == 0 && is_top(cfa, memory);
        return if is_start { Ok(Step::Outermost) } else { Err(Stop::NoReturnAddress) };
    }
    above(&frame.point, registers, cfa)?;
    registers.set(Reg::RSP, cfa);
    if recipe.slots != [Packed::SLOT_SAME; 6] {
        for (slot, reg) in recipe.slots.iter().zip(Reg::CALLEE_SAVED) {
            match *slot {
                Packed::SLOT_SAME => {}
                Packed::SLOT_LOST => registers.forget(reg),
                n => match memory.read_u64(cfa.wrapping_sub(8 * u64::from(n))) {
                    Some(value) => registers.set(reg, value),
                    None => registers.forget(reg),
                },
            }
        }
    }
    frame.point = CodePoint::Return(RunAddr(return_address));
    Ok(Step::Caller)
}

/// The CFA by a packed recipe that is not wide, which is the caller's stack pointer. `None`: the frame is outermost.
#[inline]
fn cfa_packed(registers: &Registers, recipe: &Packed, memory: &mut impl Memory) -> Result<Option<u64>, Stop> {
    match recipe.kind() {
        Packed::REGISTER => {
            Ok(Some(registers.get(recipe.base()).ok_or(Stop::UnknownRegister)?.wrapping_add(recipe.disp as u64)))
        }
        Packed::DEREF => {
            let base = registers.get(recipe.base()).ok_or(Stop::UnknownRegister)?;
            let saved = memory.read_u64(base.wrapping_add(recipe.disp as u64)).ok_or(Stop::Unreadable)?;
            Ok(Some(saved.wrapping_add(recipe.add as u64)))
        }
        Packed::OUTERMOST => Ok(None),
        Packed::UNKNOWN => Err(Stop::NoRecipe),
        _ => Err(Stop::BadRecipe),
    }
}

/// The stack pointer of the caller of an interrupted frame, by a packed recipe that is not wide. Of memory, no more is read than that takes:
/// the caller itself may be out of reach. `None`: the frame is outermost.
pub(crate) fn rsp_of_caller_packed(
    frame: &Cursor,
    recipe: &Packed,
    memory: &mut impl Memory,
) -> Result<Option<u64>, Stop> {
    let rsp = cfa_packed(&frame.registers, recipe, memory)?;
    rsp.map_or(Ok(()), |rsp| above(&frame.point, &frame.registers, rsp))?;
    Ok(rsp)
}

/// The same by a recipe in its open form.
pub(crate) fn rsp_of_caller_open<'e>(
    frame: &Cursor,
    recipe: &Recipe,
    expressions: impl Fn(Expression) -> Option<&'e [u8]>,
    memory: &mut impl Memory,
) -> Result<Option<u64>, Stop> {
    let opened = Opened { frame, recipe, expressions };
    let Some(cfa) = opened.cfa(memory)? else { return Ok(None) };
    opened.rsp_of_caller(cfa, memory).map(Some)
}

/// Moves to the caller by a recipe in its open form; `expressions` gives an expression's bytes. A frame that switches stacks
/// is outermost if its caller cannot be found.
pub fn step_open<'e>(
    frame: &mut Cursor,
    recipe: &Recipe,
    expressions: impl Fn(Expression) -> Option<&'e [u8]>,
    memory: &mut impl Memory,
) -> Result<Step, Stop> {
    match step_to_caller(frame, recipe, expressions, memory) {
        Err(_) if recipe.begins_stack => Ok(Step::Outermost),
        found => found,
    }
}

/// The same. After an error the cursor has not moved.
fn step_to_caller<'e>(
    frame: &mut Cursor,
    recipe: &Recipe,
    expressions: impl Fn(Expression) -> Option<&'e [u8]>,
    memory: &mut impl Memory,
) -> Result<Step, Stop> {
    let opened = Opened { frame, recipe, expressions };
    let Some(cfa) = opened.cfa(memory)? else { return Ok(Step::Outermost) };
    let return_address = opened.value((recipe.return_address, None), cfa, memory).ok_or(Stop::Unreadable)?;
    let at = match recipe.return_address {
        Rule::AtCfa(disp) => cfa.wrapping_add(disp as u64),
        _ => 0,
    };
    let return_address = memory.true_return(at, return_address).ok_or(Stop::Unreadable)?;
    if return_address == 0 {
        return Err(Stop::NoReturnAddress);
    }
    let rsp = opened.rsp_of_caller(cfa, memory)?;
    let point = RunAddr(return_address);
    let mut caller = Cursor {
        point: if recipe.signal_frame { CodePoint::Exact(point) } else { CodePoint::Return(point) },
        registers: Registers::UNKNOWN,
    };
    for (index, rule) in recipe.registers.iter().enumerate() {
        let Some(reg) = Reg::from_dwarf(index as u16) else { continue };
        if reg != Reg::RSP
            && let Some(v) = opened.value((*rule, frame.registers.get(reg)), cfa, memory)
        {
            caller.registers.set(reg, v);
        }
    }
    caller.registers.set(Reg::RSP, rsp);
    *frame = caller;
    Ok(Step::Caller)
}

/// A frame, and its recipe in its open form.
struct Opened<'f, E> {
    frame: &'f Cursor,
    recipe: &'f Recipe,
    /// An expression's bytes.
    expressions: E,
}

impl<'e, E: Fn(Expression) -> Option<&'e [u8]>> Opened<'_, E> {
    /// The CFA. `None`: the frame is outermost.
    fn cfa(&self, memory: &mut impl Memory) -> Result<Option<u64>, Stop> {
        let known = |reg: Reg| self.frame.registers.get(reg).ok_or(Stop::UnknownRegister);
        Ok(Some(match self.recipe.cfa {
            Cfa::Unknown => return Err(Stop::NoRecipe),
            Cfa::Outermost => return Ok(None),
            Cfa::Register { reg, disp } => known(reg)?.wrapping_add(disp as u64),
            Cfa::Deref { reg, disp, add } => {
                memory.read_u64(known(reg)?.wrapping_add(disp as u64)).ok_or(Stop::Unreadable)?.wrapping_add(add as u64)
            }
            Cfa::Expression(expression) => self.evaluated(expression, None, memory)?,
        }))
    }

    /// The caller's stack pointer.
    fn rsp_of_caller(&self, cfa: u64, memory: &mut impl Memory) -> Result<u64, Stop> {
        let Opened { frame: Cursor { point, registers }, recipe, .. } = self;
        let rsp = self
            .value((recipe.registers[Reg::RSP.index()], registers.get(Reg::RSP)), cfa, memory)
            .ok_or(Stop::UnknownRegister)?;
        if !recipe.signal_frame && !recipe.switches_stack {
            above(point, registers, rsp)?;
        }
        Ok(rsp)
    }

    /// What a rule gives, where the register of the rule has this value in the frame. `None`: the register is lost. One whose place cannot be read is lost,
    /// too: it may never be needed.
    fn value(&self, (rule, same): (Rule, Option<u64>), cfa: u64, memory: &mut impl Memory) -> Option<u64> {
        let registers = &self.frame.registers;
        match rule {
            Rule::Same => same,
            Rule::Lost => None,
            Rule::AtCfa(disp) => memory.read_u64(cfa.wrapping_add(disp as u64)),
            Rule::CfaPlus(disp) => Some(cfa.wrapping_add(disp as u64)),
            Rule::AtRegister(reg, disp) => memory.read_u64(registers.get(reg)?.wrapping_add(disp as u64)),
            Rule::RegisterPlus(reg, disp) => registers.get(reg).map(|v| v.wrapping_add(disp as u64)),
            Rule::AtExpression(expression) => {
                let addr = self.evaluated(expression, Some(cfa), memory).ok()?;
                memory.read_u64(addr)
            }
            Rule::ExpressionValue(expression) => self.evaluated(expression, Some(cfa), memory).ok(),
        }
    }

    fn evaluated(&self, expression: Expression, initial: Option<u64>, memory: &mut impl Memory) -> Result<u64, Stop> {
        let code = (self.expressions)(expression).ok_or(Stop::BadRecipe)?;
        let context = Context { initial, pc: self.frame.point.pc().0, registers: &self.frame.registers };
        evaluate(code, &context, memory).ok_or(Stop::Unreadable)
    }
}

/// Whether a stack ends at `addr`: nothing but zeros follows up to the end of a page, which is near. Stacks are mapped,
/// and who makes one by hand begins at its top.
#[cold]
fn is_top(addr: u64, memory: &mut impl Memory) -> bool {
    const PAGE_BYTES: u64 = 4096;
    const MOST_BYTES: u64 = 64;
    let left = addr.wrapping_neg() % PAGE_BYTES;
    left <= MOST_BYTES
        && left.is_multiple_of(8)
        && (0..left).step_by(8).all(|at| memory.read_u64(addr.wrapping_add(at)) == Some(0))
}

/// A caller's frame lies above its callee's: the return address between them has been popped. A procedure that is
/// interrupted may have popped it already, into a register (glibc's vfork).
#[inline]
fn above(point: &CodePoint, registers: &Registers, caller_rsp: u64) -> Result<(), Stop> {
    let least = match point {
        CodePoint::Exact(_) => 0,
        CodePoint::Return(_) => 1,
    };
    match registers.get(Reg::RSP) {
        Some(rsp) if caller_rsp < rsp.saturating_add(least) => Err(Stop::NoProgress),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words<'a>(&'a [(u64, u64)]);
    impl Memory for Words<'_> {
        fn read_u64(&mut self, addr: u64) -> Option<u64> {
            self.0.iter().find(|word| word.0 == addr).map(|word| word.1)
        }
    }

    /// A scratch area that holds zeros is no stack's top; nor is what machine code seems to say.
    #[test]
    fn zero_is_no_return_address() {
        let step = |bits: u16, top: u64, stack: &[(u64, u64)]| {
            let mut values = [0; 16];
            values[7] = top;
            let mut cursor = Cursor::interrupted(RunAddr(0x1000), values);
            let recipe = Packed::pack(&Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 })).unwrap();
            step_packed(&mut cursor, &Packed { head: recipe.head | bits, ..recipe }, &mut Words(stack))
        };
        // The last word of a page; the last but one, in front of a zero, of
        // something else, of nothing that can be read.
        assert_eq!(step(0, 0x7ff8, &[(0x7ff8, 0)]), Ok(Step::Outermost));
        assert_eq!(step(0, 0x7ff0, &[(0x7ff0, 0), (0x7ff8, 0)]), Ok(Step::Outermost));
        for (bits, top, stack) in [
            (0, 0x7ff0, &[(0x7ff0, 0), (0x7ff8, 1)][..]),
            (0, 0x7ff0, &[(0x7ff0, 0)]),
            (Packed::INFERRED, 0x7ff8, &[(0x7ff8, 0)]),
        ] {
            assert_eq!(step(bits, top, stack), Err(Stop::NoReturnAddress), "{bits:x} {top:x}");
        }
        let zeros: [(u64, u64); 512] = core::array::from_fn(|index| (0x7000 + 8 * index as u64, 0));
        assert_eq!(step(0, 0x7000, &zeros), Err(Stop::NoReturnAddress));
        // A signal that was delivered where the program had jumped to nowhere: what called that is not known.
        let mut cursor = Cursor::interrupted(RunAddr(0x1000), [0x7ff8; 16]);
        let mut recipe = Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 });
        recipe.signal_frame = true;
        let step = step_open(&mut cursor, &recipe, |_| None, &mut Words(&[(0x7ff8, 0)]));
        assert_eq!(step, Err(Stop::NoReturnAddress));
    }

    /// libcrypto's aesni_ctr32_encrypt_blocks keeps its caller's stack pointer in r11 and calls _aesni_encrypt8.
    #[test]
    fn caller_may_rely_on_what_its_callee_keeps() {
        let leaf = Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 });
        let r11 = Reg::from_dwarf(11).unwrap();
        let caller = Recipe::with_cfa(Cfa::Register { reg: r11, disp: 8 });
        let stack = [(0x7000, 0x1111), (0x7fe0, 0x2222)];
        let mut values = [0; 16];
        (values[7], values[11]) = (0x7000, 0x7fe0);
        let walk = |open: bool| {
            let mut cursor = Cursor::interrupted(RunAddr(0x1000), values);
            [leaf, caller].map(|recipe| {
                let step = match Packed::pack(&recipe).filter(|_| !open) {
                    Some(packed) => step_packed(&mut cursor, &packed, &mut Words(&stack)),
                    None => step_open(&mut cursor, &recipe, |_| None, &mut Words(&stack)),
                };
                (step, cursor.point.pc().0)
            })
        };
        for open in [false, true] {
            assert_eq!(walk(open), [(Ok(Step::Caller), 0x1111), (Ok(Step::Caller), 0x2222)]);
        }
    }
}
