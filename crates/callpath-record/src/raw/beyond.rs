//! The caller of a frame of generated code that has no recipe: by what the program itself says of the code, by the frame
//! pointer, by what the code does until it returns, or by where it continues in an interpreter.

use std::rc::Rc;

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::recipe::Packed;
use callpath_format::register::{Reg, Registers};
use callpath_format::shared::load_map::Mapping;
use callpath_tables::recipes::generated::{CallersRbp, Continuation, Dispatch, JumpOperand};
use rustc_hash::FxHashMap;

use callpath_unwind::{CodeMap, Cursor, Located, Memory, Step, step_open, step_packed};

use super::Code;
use super::stack::Stack;

/// The largest frame of generated code that is searched for, bytes.
const LARGEST_FRAME_BYTES: u64 = 64 << 10;
/// What a frame of HotSpot's interpreter has below its frame pointer, at least.
const INTERPRETED_FRAME_BYTES: u64 = 72;

impl Code<'_> {
    /// The caller of a frame of generated code that has no recipe, the last resort. The ways are tried in order (docs/unwinding.md): what the
    /// program says of the code, the frame pointer, a stub's target, the returns ahead, the exits.
    pub(super) fn beyond(&mut self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<(Cursor, bool)> {
        let at = frame.point.lookup();
        if !self.generated.holds(at) {
            return None;
        }
        let caller = self
            .caller_by_description(frame, memory)
            .or_else(|| self.caller_by_frame_pointer(frame, memory))
            .or_else(|| self.caller_by_jump(frame, memory))
            .map(|caller| (caller, true))
            .or_else(|| self.caller_by_returns_ahead(frame, memory))
            .or_else(|| Some((self.caller_by_exits(frame, memory)?, false)));
        // An answer without a look shows nothing about the code.
        if caller.is_some() || !self.generated.postponed {
            self.generated.note_try(at, caller.is_some());
        }
        caller
    }

    /// The caller of such a frame by what the code takes off the stack until it returns. Where only a way past calls
    /// leads there, nothing in between may be another return address: what was called may never come back.
    fn caller_by_returns_ahead(&mut self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<(Cursor, bool)> {
        let rsp = frame.registers.get(Reg::RSP)?;
        let pc = frame.point.pc();
        let Code { memo, generated, witness, .. } = self;
        let (ahead, is_sure) = (*memo.ahead.entry(pc).or_insert_with(|| {
            let sure = generated.return_ahead(pc, false, witness).map(|ahead| (ahead, true));
            sure.or_else(|| generated.return_ahead(pc, true, witness).map(|ahead| (ahead, false)))
        }))?;
        let place = rsp.checked_add_signed(ahead.above_rsp)?;
        // The code behind a call may be another procedure's, if the call does not return. A
        // procedure that calls has a frame, for compiled code is called with rsp at a multiple of 16
        // bytes, and the frame is believed if the path is whole.
        let is_calling = frame.point.is_return();
        if is_calling && (place == rsp || place % 16 != 8) {
            return None;
        }
        let return_address = memory.read_u64(place)?;
        if !self.may_be_return_address(return_address) || !self.generated.may_be_called_from(RunAddr(return_address)) {
            return None;
        }
        if !is_sure {
            for addr in (rsp..place).step_by(8) {
                if self.may_be_return_address(memory.read_u64(addr)?) {
                    return None;
                }
            }
        }
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, place.checked_add(8)?.checked_add_signed(ahead.arguments_bytes)?);
        let rbp = match ahead.rbp {
            CallersRbp::Unchanged => frame.registers.get(Reg::RBP),
            CallersRbp::AboveRsp(place) => Some(memory.read_u64(rsp.checked_add_signed(place)?)?),
            CallersRbp::Lost => None,
        };
        if let Some(rbp) = rbp {
            registers.set(Reg::RBP, rbp);
        }
        Some((Cursor { point: CodePoint::Return(RunAddr(return_address)), registers }, is_sure && !is_calling))
    }

    /// The caller of a stub: that of the procedure that it jumps to.
    fn caller_by_jump(&mut self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<Cursor> {
        if frame.point.is_return() {
            return None;
        }
        let pc = frame.point.pc();
        let Code { memo, generated, witness, .. } = self;
        let to = (*memo.jumps.entry(pc).or_insert_with(|| generated.jumped_to(pc, witness)))?;
        let mut caller = Cursor { point: CodePoint::Exact(to), registers: frame.registers };
        let located = self.locate_point(caller.point);
        if located.recipe.kind() == Packed::WIDE {
            return None;
        }
        let step = step_packed(&mut caller, &located.recipe, memory);
        let return_address = caller.point.pc();
        let is_return = matches!(step, Ok(Step::Caller)) && self.may_be_return_address(return_address.0);
        (is_return && self.generated.may_be_called_from(return_address)).then_some(caller)
    }

    /// The caller of code without a frame of its own, by where it jumps.
    fn caller_by_exits(&mut self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<Cursor> {
        let rsp = frame.registers.get(Reg::RSP)?;
        let pc = frame.point.pc();
        let Code { memo, generated, witness, .. } = self;
        let exits = Rc::clone(memo.exits.entry(pc).or_insert_with(|| generated.exits(pc, witness)));
        if !exits.places.is_empty() {
            let found = self.caller_by_places(rsp, &exits.places, memory)?;
            exits.places.iter().for_each(|place| self.generated.note_dispatcher(place));
            return Some(found);
        }
        let dispatch = exits.dispatch?;
        // An interpreter and its compiler go on by the same word.
        let alike = self.generated.dispatchers().iter().filter(|(_, jump)| dispatch.jump == Some(*jump));
        let as_there = |(at, jump): &(RunAddr, JumpOperand)| {
            let (at, jump) = (*at, Some(*jump));
            Continuation { at, above_rsp: dispatch.above_rsp, jump }
        };
        let places: Vec<Continuation> = alike.map(as_there).collect();
        let interpreters = self.caller_by_places(rsp, &places, memory);
        interpreters.or_else(|| self.caller_of_thunk(frame, dispatch, memory))
    }

    /// The caller of a thunk: it has no frame, and hands over to a procedure that it does not name.
    fn caller_of_thunk(&mut self, frame: &Cursor, dispatch: Dispatch, memory: &mut Stack<'_>) -> Option<Cursor> {
        let rsp = frame.registers.get(Reg::RSP)?;
        // Compiled code is called with rsp at a multiple of 16 bytes.
        if frame.point.is_return() || !dispatch.is_thunk || dispatch.above_rsp != 0 || rsp % 16 != 8 {
            return None;
        }
        let return_address = memory.read_u64(rsp)?;
        if !self.may_be_return_address(return_address) || !self.generated.may_be_called_from(RunAddr(return_address)) {
            return None;
        }
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, rsp.checked_add(8)?);
        if let Some(rbp) = frame.registers.get(Reg::RBP) {
            registers.set(Reg::RBP, rbp);
        }
        Some(Cursor { point: CodePoint::Return(RunAddr(return_address)), registers })
    }

    /// The caller of code that runs in an interpreter's frame: the interpreter's caller by its recipes where the code
    /// continues in it. All places have to agree, and the interpreter has to be what was called.
    fn caller_by_places(&mut self, rsp: u64, places: &[Continuation], memory: &mut Stack<'_>) -> Option<Cursor> {
        let mut found: Option<Cursor> = None;
        for place in places {
            let at_place = rsp.checked_add_signed(place.above_rsp)?;
            let Some(caller) = self.caller_from(place.at, at_place, memory) else { continue };
            let above = caller.registers.get(Reg::RSP)?;
            let is_on_top = above == at_place.checked_add(8)?;
            let agrees = found.is_none_or(|found| found.registers.get(Reg::RSP) == Some(above));
            let is_called_from = self.is_called_from(place.at, caller.point.pc());
            if !agrees || place.jump.is_none() && !is_on_top || !is_called_from {
                return None;
            }
            found = found.or(Some(caller));
        }
        found
    }

    /// The caller by the recipe of a module's code, if of its registers rsp alone is known.
    fn caller_from(&mut self, at: RunAddr, rsp: u64, memory: &mut Stack<'_>) -> Option<Cursor> {
        let module = self.mapping(at).filter(|mapping| mapping.flags & (Mapping::GENERATED | Mapping::PENDING) == 0);
        if module.is_none() && self.awaited(at).is_none() {
            return None;
        }
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, rsp);
        let mut cursor = Cursor { point: CodePoint::Exact(at), registers };
        let located = self.locate_point(cursor.point);
        let step = match located.recipe.kind() {
            Packed::WIDE => {
                let recipe = self.open(&located).filter(|recipe| !recipe.signal_frame)?;
                step_open(&mut cursor, &recipe, |expression| self.expression(&located, expression), memory)
            }
            _ => step_packed(&mut cursor, &located.recipe, memory),
        };
        matches!(step, Ok(Step::Caller)).then_some(cursor)
    }

    /// Whether a call of the module that `at` lies in, or one that names no target, may have left this return address.
    fn is_called_from(&mut self, at: RunAddr, return_address: RunAddr) -> bool {
        if !self.may_be_return_address(return_address.0) {
            return false;
        }
        let module = |mapping: &Mapping| mapping.module;
        let called = self.generated.called_at(return_address);
        called.is_none_or(|called| self.mapping(called).map(module) == self.mapping(at).map(module))
    }

    fn caller_by_frame_pointer(&mut self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<Cursor> {
        let rsp = frame.registers.get(Reg::RSP)?;
        let rbp = frame.registers.get(Reg::RBP)?;
        if rbp % 8 != 0 || rsp % 8 != 0 || rbp < rsp || rbp - rsp > LARGEST_FRAME_BYTES {
            return None;
        }
        let return_address = memory.read_u64(rbp + 8)?;
        if !self.may_be_return_address(return_address) || !self.generated.may_be_called_from(RunAddr(return_address)) {
            return None;
        }
        let interpreted = callers_rsp_in_interpreter(rbp, memory).filter(|_| is_interpreters(rsp, rbp));
        let Code { memo, generated, witness, .. } = self;
        let pc = frame.point.pc();
        let is_framed = memo.framed.entry(frame.point).or_insert_with(|| generated.is_framed(frame.point));
        // HotSpot's interpreter stores where a method shall return to before it looks for the method.
        let is_own = |uses: &mut FxHashMap<RunAddr, bool>| {
            *uses.entry(pc).or_insert_with(|| generated.uses_frame(pc, INTERPRETED_FRAME_BYTES as i64, witness))
        };
        if !(*is_framed || interpreted.is_some() && is_own(&mut memo.uses)) {
            for addr in (rsp..rbp).step_by(8) {
                if self.may_be_return_address(memory.read_u64(addr)?) {
                    return None;
                }
            }
        }
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, interpreted.unwrap_or(rbp + 16));
        registers.set(Reg::RBP, memory.read_u64(rbp)?);
        Some(Cursor { point: CodePoint::Return(RunAddr(return_address)), registers })
    }

    /// The caller by call frame information that the program has written of its code, if the code is what it was written of.
    fn caller_by_description(&mut self, frame: &Cursor, memory: &mut Stack<'_>) -> Option<Cursor> {
        let Code { memo, generated, witness, .. } = self;
        let described = generated.described.at(frame.point)?;
        let code = described.code();
        if !*memo.described.entry(code.start).or_insert_with(|| generated.is_as_described(described, witness)) {
            return None;
        }
        // A program's own frames are not the kernel's.
        let recipe = described.recipe(frame.point).filter(|recipe| !recipe.signal_frame)?;
        let mut caller = *frame;
        let step = step_open(&mut caller, recipe, |expression| described.expression(expression), memory);
        let return_address = caller.point.pc();
        let is_return = matches!(step, Ok(Step::Caller)) && self.may_be_return_address(return_address.0);
        (is_return && self.generated.may_be_called_from(return_address)).then_some(caller)
    }
}

/// The caller of a frame of HotSpot's interpreter whose recipe, by the frame pointer, does not have the caller's stack pointer.
pub(super) fn caller_of_interpreted(frame: &Cursor, located: &Located, memory: &mut impl Memory) -> Option<Cursor> {
    let Located { recipe, table, .. } = located;
    // Code of files has a table.
    let is_by_pointer = (recipe.kind(), recipe.base(), recipe.disp, *table) == (Packed::REGISTER, Reg::RBP, 16, 0);
    let rbp = frame.registers.get(Reg::RBP).filter(|_| is_by_pointer)?;
    if !is_interpreters(frame.registers.get(Reg::RSP)?, rbp) {
        return None;
    }
    let rsp = callers_rsp_in_interpreter(rbp, memory).filter(|rsp| *rsp != rbp.wrapping_add(16))?;
    let mut registers = Registers::UNKNOWN;
    registers.set(Reg::RSP, rsp);
    registers.set(Reg::RBP, memory.read_u64(rbp)?);
    let return_address = RunAddr(memory.read_u64(rbp.checked_add(8)?)?);
    Some(Cursor { point: CodePoint::Return(return_address), registers })
}

/// Whether a frame of HotSpot's interpreter is as large as it is when its words are there: before, what lies there is of another one.
fn is_interpreters(rsp: u64, rbp: u64) -> bool {
    rbp.checked_sub(INTERPRETED_FRAME_BYTES).is_some_and(|operands| rsp <= operands)
}

/// The caller's stack pointer behind a frame of HotSpot's interpreter whose frame pointer this is. Compiled code that calls an
/// interpreted method finds its stack as it left it, which the words at its frame pointer do not show: between the two frames lie
/// arguments that an adapter has copied, and the callee's locals. But the interpreter keeps it:
///
/// ```text
/// rbp + 8    return address
/// rbp - 8    caller's rsp
/// rbp - 56   where the locals begin: between the frame and the caller's rsp
/// rbp - 72   where the operand stack begins, or the monitors: below
/// ```
///
/// The latter two are addresses, or, from OpenJDK 21 on, distances from rbp in words. `None`: it is no such frame.
fn callers_rsp_in_interpreter(rbp: u64, memory: &mut impl Memory) -> Option<u64> {
    let mut word = |below: u64| memory.read_u64(rbp.checked_sub(below)?);
    let (rsp, locals, operands) = (word(8)?, word(56)?, word(72)?);
    let distance = |word: u64| {
        let words = word as i64;
        let is_in_words = words.unsigned_abs() < LARGEST_FRAME_BYTES / 8;
        if is_in_words { 8 * words } else { word.wrapping_sub(rbp) as i64 }
    };
    let largest = LARGEST_FRAME_BYTES as i64;
    let (to_rsp, to_locals, to_operands) = (rsp.wrapping_sub(rbp) as i64, distance(locals), distance(operands));
    let is_one = [to_rsp, to_locals, to_operands].iter().all(|distance| distance % 8 == 0)
        && (16..=largest).contains(&to_rsp)
        && (8..to_rsp).contains(&to_locals)
        && (-largest..=-72).contains(&to_operands);
    is_one.then_some(rsp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame pointer at 0x7000, and words below and above it.
    struct Frame(Vec<(i64, u64)>);

    impl Memory for Frame {
        fn read_u64(&mut self, addr: u64) -> Option<u64> {
            let at = addr.wrapping_sub(0x7000) as i64;
            self.0.iter().find(|(place, _)| *place == at).map(|(_, word)| *word)
        }
    }

    fn rsp(words: [u64; 3]) -> Option<u64> {
        let [rsp, locals, operands] = words;
        callers_rsp_in_interpreter(0x7000, &mut Frame(vec![(-8, rsp), (-56, locals), (-72, operands)]))
    }

    #[test]
    fn interpreted_frames_keep_their_callers_stack_pointer() {
        // As OpenJDK 17 and 25 write it: addresses, and words from the frame pointer.
        assert_eq!(rsp([0x7040, 0x7038, 0x6fb8]), Some(0x7040));
        assert_eq!(rsp([0x7040, 7, -9_i64 as u64]), Some(0x7040));
        assert_eq!(rsp([0x7040, 7, 0x6fb8]), Some(0x7040));
        // Nothing lies between the frames.
        assert_eq!(rsp([0x7010, 0x7008, 0x6fb8]), Some(0x7010));
    }

    #[test]
    fn other_frames_do_not() {
        // Of a compiled procedure: saved registers and locals.
        assert_eq!(rsp([0, 0, 0]), None);
        assert_eq!(rsp([0x7040, 0, 0x6fb8]), None, "locals in the frame");
        assert_eq!(rsp([0x7040, 0x7040, 0x6fb8]), None, "locals beyond the caller's stack pointer");
        assert_eq!(rsp([0x7040, 0x7038, 0x7038]), None, "operands beyond the frame");
        assert_eq!(rsp([0x7041, 0x7038, 0x6fb8]), None);
        assert_eq!(rsp([0x6ff0, 0x7038, 0x6fb8]), None);
        assert_eq!(rsp([0x7000 + (64 << 10) + 8, 0x7038, 0x6fb8]), None, "too far");
        assert_eq!(rsp([u64::MAX, u64::MAX, u64::MAX]), None);
        assert_eq!(callers_rsp_in_interpreter(8, &mut Frame(vec![])), None);
    }
}
