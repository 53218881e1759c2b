//! Frames that code sets up itself with `push rbp; mov rbp, rsp`, followed along control. Such a procedure may end by a
//! jump to code that cannot be followed.
//!
//! Run-time compilers write the usual prologues, but not all their procedures reach a return that can be followed: they
//! jump through registers, or return over their arguments. Only the effects on rsp and rbp are followed:
//!
//! ```text
//! before `push rbp`                    CFA = rsp + 8
//! behind it                            CFA = rsp + 16, caller's rbp = *(CFA - 16)
//! behind `mov rbp, rsp`                CFA = rbp + 16, caller's rbp = *(CFA - 16)
//! behind `leave`, or `pop rbp`         CFA = rsp + 8
//! ```
//!
//! Each instruction gets the state that control carries to it from the prologue. Code that nothing leads to (after a
//! jump through a register, say) has a frame if it gives the frame up itself, or continues where there is one.

mod balanced;

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe, Rule};
use callpath_format::register::Reg;
use rustc_hash::FxHashMap;

use super::resumes_by_pointer;
use crate::encoding::{self, FRAME_PROLOGUE_BYTES};
use crate::instruction::{Control, Instruction, Listing, Operation, Register};
use crate::state::{RBP, RSP};

/// How far a procedure's beginning may be from its prologue (tests of the stack and of the code's own state), bytes.
const BEFORE_PROLOGUE_BYTES: usize = 64;
/// Procedures begin at multiples of this, bytes.
const ENTRY_ALIGNMENT: u64 = 16;
/// How many instructions after a call are decoded to tell code from data.
const INSTRUCTIONS_BEHIND_CALL: usize = 12;
/// Longer procedures are cut off, bytes.
const LONGEST_BYTES: usize = 32 << 10;

/// The instructions of one prologue's procedure with a known frame.
#[derive(Default)]
pub(super) struct FramedProcedure {
    /// By ascending address.
    pub(super) steps: Vec<FramedStep>,
}

impl FramedProcedure {
    /// Its range, if almost all of it is understood.
    pub(super) fn understood(&self) -> Option<Range<usize>> {
        let range = self.steps.first()?.code.start.0 as usize..self.steps.last()?.code.end.0 as usize;
        let known: u64 = self.steps.iter().map(|step| step.code.end.0 - step.code.start.0).sum();
        (known as usize * 8 > range.len() * 7).then_some(range)
    }
}

/// An instruction, or several with the same frame.
pub(super) struct FramedStep {
    pub(super) code: Range<LinkAddr>,
    pub(super) recipe: Recipe,
    pub(super) is_call: bool,
}

/// What rbp holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rbp {
    /// The caller's value.
    Caller,
    /// CFA minus this many bytes.
    At(i32),
    /// Something else.
    Other,
}

/// The state before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    rbp: Rbp,
    /// The caller's rbp is at CFA minus this many bytes.
    saved: Option<i32>,
    /// rsp is CFA minus this many bytes.
    rsp: Option<i32>,
}

impl State {
    const ENTRY: State = State { rbp: Rbp::Caller, saved: None, rsp: Some(8) };
    /// In the body of a procedure.
    const FRAMED: State = State { rbp: Rbp::At(16), saved: Some(16), rsp: None };

    /// What holds in both states.
    fn joined(self, other: State) -> Option<State> {
        let both = State {
            rbp: if self.rbp == other.rbp { self.rbp } else { Rbp::Other },
            saved: self.saved.filter(|_| self.saved == other.saved),
            rsp: self.rsp.filter(|_| self.rsp == other.rsp),
        };
        both.is_known().then_some(both)
    }

    fn is_known(self) -> bool {
        matches!(self.rbp, Rbp::At(_)) && self.saved.is_some() || self.rsp.is_some_and(|rsp| rsp >= 8)
    }

    fn recipe(self) -> Option<Recipe> {
        let (reg, disp) = match (self.rbp, self.rsp) {
            (Rbp::At(below), _) if self.saved.is_some() => (Reg::RBP, below),
            (_, Some(below)) if below >= 8 => (Reg::RSP, below),
            _ => return None,
        };
        let mut recipe = Recipe::with_cfa(Cfa::Register { reg, disp });
        for reg in Reg::CALLEE_SAVED {
            recipe.registers[reg.index()] = match (self.rbp, self.saved) {
                (Rbp::Caller, _) if reg == Reg::RBP || self == State::ENTRY => Rule::Same,
                (_, Some(below)) if reg == Reg::RBP => Rule::AtCfa(-below),
                // Other registers' locations in a frame are not known.
                _ => Rule::Lost,
            };
        }
        Some(recipe)
    }
}

#[derive(Clone, Copy)]
struct Known {
    state: Option<State>,
    len: u8,
    is_call: bool,
}

/// Finds the frames of `code`, which begins at `start`: procedures by ascending address, disjoint.
pub(super) fn framed(code: &[u8], start: LinkAddr) -> Vec<FramedProcedure> {
    let prologues: Vec<usize> = (0..code.len()).filter(|&at| is_prologue(&code[at..])).collect();
    let mut follow = Follow {
        code,
        start,
        keeps_rsp: false,
        #[cfg(test)]
        looks: std::cell::Cell::default(),
    };
    let mut entries: Vec<usize> = Vec::new();
    for &prologue in &prologues {
        let least = entries.last().map_or(0, |_| prologues[entries.len() - 1] + FRAME_PROLOGUE_BYTES);
        entries.push(follow.entry_before(prologue, least));
    }
    let mut procedures = Vec::new();
    let first = entries.first().copied().unwrap_or(code.len());
    follow.procedures(None, first.saturating_sub(LONGEST_BYTES)..first, &mut procedures);
    for (index, (&entry, &prologue)) in entries.iter().zip(&prologues).enumerate() {
        let end = entries.get(index + 1).copied().unwrap_or(code.len()).min(prologue + LONGEST_BYTES);
        follow.procedures(Some(prologue), entry..end, &mut procedures);
    }
    procedures
}

fn is_prologue(code: &[u8]) -> bool {
    encoding::makes_frame(code) || makes_frame_by_subtraction(code)
}

/// `sub rsp, N; mov [rsp + N - 8], rbp`, and then rbp is set: HotSpot's prologue in procedures without calls.
fn makes_frame_by_subtraction(code: &[u8]) -> bool {
    if !encoding::begins_with_subtraction(code) {
        return false;
    }
    let mut instructions = Listing::new(code, 0).map(|(_, instruction)| instruction);
    let (Some(sub), Some(store), Some(point)) = (instructions.next(), instructions.next(), instructions.next()) else {
        return false;
    };
    let place = store.memory().filter(|memory| memory.is_only(Register::RSP)).map(|memory| memory.displacement as u64);
    let is_saved = store.operation() == Operation::Move
        && store.register(1) == Register::RBP
        && place.is_some()
        && sub.immediate().and_then(|size| size.checked_sub(8)) == place;
    let is_pointed = matches!(point.operation(), Operation::Move | Operation::LoadAddress);
    is_saved && is_pointed && point.register(0) == Register::RBP
}

struct Follow<'c> {
    code: &'c [u8],
    start: LinkAddr,
    /// Callees pop no arguments.
    keeps_rsp: bool,
    /// How many instructions were decoded.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

/// The bounds within which control is followed.
struct Within<'s> {
    /// Ends at what is known for certain.
    sure: &'s [&'s FxHashMap<usize, Known>],
    /// Where to begin, and the state there.
    from: (usize, State),
    prologue: usize,
    range: Range<usize>,
}

/// The effect of an instruction.
struct Effect {
    /// The state before the next instruction.
    next: Option<State>,
    /// The target of its jump, and the state there.
    jumps: Option<(usize, State)>,
    len: u8,
    is_call: bool,
    /// Whether it gives up the frame that rbp points to.
    leaves: bool,
}

impl Follow<'_> {
    fn decode(&self, at: usize) -> Option<Instruction> {
        #[cfg(test)]
        self.looks.update(|looks| looks + 1);
        Instruction::decode(self.code.get(at..)?)
    }

    /// The beginning of the procedure with its prologue at `prologue`, not before `least`: instructions that do not
    /// change rsp and rbp may precede the prologue.
    fn entry_before(&mut self, prologue: usize, least: usize) -> usize {
        let address = |at: usize| self.start.0.wrapping_add(at as u64);
        let farthest = prologue.saturating_sub(BEFORE_PROLOGUE_BYTES).max(least);
        let candidates: Vec<usize> =
            (farthest..prologue).filter(|&at| address(at).is_multiple_of(ENTRY_ALIGNMENT)).collect();
        candidates.into_iter().find(|&at| self.runs_into(at, prologue)).unwrap_or(prologue)
    }

    fn runs_into(&mut self, mut at: usize, prologue: usize) -> bool {
        while at < prologue {
            let Some(instruction) = self.decode(at) else { return false };
            let continues = matches!(instruction.control(), Control::Next | Control::Branch);
            // Zero bytes decode as instructions, too.
            let is_data = self.code[at..].starts_with(&[0, 0]);
            let written = instruction.writes();
            if !continues || is_data || written.has_general(RSP) || written.has_general(RBP) {
                return false;
            }
            at += instruction.len() as usize;
        }
        at == prologue
    }

    /// Finds the procedures in `range`: one with this prologue begins at its start, or none is known to.
    fn procedures(&mut self, prologue: Option<usize>, range: Range<usize>, procedures: &mut Vec<FramedProcedure>) {
        let Range { start: entry, end } = range;
        let body = prologue.map_or(entry, |prologue| prologue + FRAME_PROLOGUE_BYTES);
        // Procedures without a frame pointer are found in another way. Bytes after calls in the others that do not
        // return may be data, which leads anywhere.
        let (balanced, apart) = self.balanced(body..end);
        let mut known: FxHashMap<usize, Known> = FxHashMap::default();
        if let Some(prologue) = prologue {
            let within = Within { sure: &[&apart], from: (entry, State::ENTRY), prologue, range: entry..end };
            self.follow(&mut known, &within, &mut |_, _| {});
        }
        let prologue = prologue.unwrap_or(entry);
        // Code that continues by the frame pointer alone may be reached from anywhere.
        let resumes = |at: usize| resumes_by_pointer(&self.code[at..]);
        let resumed: Vec<usize> = (prologue..end).filter(|at| !known.contains_key(at) && resumes(*at)).collect();
        for &at in &resumed {
            let within = Within { sure: &[&apart], from: (at, State::FRAMED), prologue, range: entry..end };
            self.follow(&mut known, &within, &mut |_, _| {});
        }
        // Code that nothing leads to, in order: after a jump or a return, up to the next procedure.
        let mut supposed: FxHashMap<usize, Known> = FxHashMap::default();
        let mut edges: Vec<(usize, usize)> = Vec::new();
        let mut proven: Vec<usize> = Vec::new();
        let mut at = prologue;
        while at < end {
            if let Some(step) = [&apart, &known, &supposed].into_iter().find_map(|steps| steps.get(&at)) {
                at += usize::from(step.len);
                continue;
            }
            // Between procedures there are zero bytes and traps.
            let rest = &self.code[at..end];
            if rest.starts_with(&[0; 8]) || encoding::is_trap(rest[0]) {
                at += if rest[0] == 0 { 8 } else { 1 };
                continue;
            }
            let before = supposed.len();
            let within = Within { sure: &[&known, &apart], from: (at, State::FRAMED), prologue, range: entry..end };
            self.follow(&mut supposed, &within, &mut |from, to| match to {
                Some(to) => edges.push((to, from)),
                None => proven.push(from),
            });
            if supposed.len() == before {
                at += 1;
            }
        }
        // Code that continues where there is a frame, or gives it up, has one.
        for &(to, from) in &edges {
            if known
                .get(&to)
                .is_some_and(|step| step.state.is_some_and(|s| s.rbp == Rbp::At(16) && s.saved == Some(16)))
            {
                proven.push(from);
            }
        }
        edges.sort_unstable();
        while let Some(at) = proven.pop() {
            let Some(step) = supposed.remove(&at) else { continue };
            known.entry(at).or_insert(step);
            let first = edges.partition_point(|edge| edge.0 < at);
            proven.extend(edges[first..].iter().take_while(|edge| edge.0 == at).map(|edge| edge.1));
        }
        procedures.extend(balanced);
        let mut steps = self.steps(known);
        for at in resumed {
            // A frame that is returned to is looked up by the byte before the address.
            let address = LinkAddr(self.start.0.wrapping_add(at as u64));
            let last = LinkAddr(address.0.wrapping_sub(1));
            let behind = steps.partition_point(|step| step.code.start < last);
            let is_known = steps[behind..].iter().any(|step| step.code.start == address);
            if let Some(recipe) = State::FRAMED.recipe().filter(|_| is_known && at > entry) {
                if let Some(before) = behind.checked_sub(1).and_then(|index| steps.get_mut(index)) {
                    before.code.end = before.code.end.min(last);
                }
                steps.insert(behind, FramedStep { code: last..address, recipe, is_call: true });
            }
        }
        procedures.push(FramedProcedure { steps });
    }

    /// Follows control. Calls `edge` with each step from one instruction to another, and with each instruction that
    /// gives up the frame.
    fn follow(
        &mut self,
        known: &mut FxHashMap<usize, Known>,
        within: &Within<'_>,
        edge: &mut impl FnMut(usize, Option<usize>),
    ) {
        let Within { sure, from, prologue, range } = within;
        let mut pending = vec![*from];
        while let Some((at, state)) = pending.pop() {
            let is_sure = |at: usize| sure.iter().any(|steps| steps.contains_key(&at));
            if is_sure(at) {
                continue;
            }
            let before = known.get(&at).copied();
            let state = match before {
                None => state,
                Some(Known { state: None, .. }) => continue,
                Some(Known { state: Some(was), .. }) => match was.joined(state) {
                    Some(joined) if joined == was => continue,
                    Some(joined) => joined,
                    None => {
                        // Two states contradict each other: neither is used.
                        if let Some(known) = known.get_mut(&at) {
                            known.state = None;
                        }
                        continue;
                    }
                },
            };
            // Before the prologue only the path to it belongs to the procedure.
            if at < *prologue && state != State::ENTRY {
                continue;
            }
            // Zero bytes decode as instructions, but no program contains them: the path there is wrong.
            if self.is_zeros(at) {
                continue;
            }
            let Some(instruction) = self.decode(at) else { continue };
            if (at + 1..at + instruction.len() as usize).any(is_sure) {
                continue;
            }
            let effect = self.effect(&instruction, state, at);
            known.insert(at, Known { state: Some(state), len: effect.len, is_call: effect.is_call });
            if effect.leaves {
                edge(at, None);
            }
            let next = effect.next.map(|state| (at + usize::from(effect.len), state));
            for (to, state) in next.into_iter().chain(effect.jumps) {
                if range.contains(&to) {
                    edge(at, Some(to));
                    if state.is_known() {
                        pending.push((to, state));
                    }
                }
            }
        }
    }

    fn is_zeros(&self, at: usize) -> bool {
        self.code[at..].starts_with(&[0, 0])
    }

    /// Whether the bytes after a call are not code, so that the call does not return. Decodes up to where control goes
    /// elsewhere.
    fn is_data(&self, mut at: usize) -> bool {
        for _ in 0..INSTRUCTIONS_BEHIND_CALL {
            let Some(instruction) = self.decode(at) else { return true };
            if self.code[at..].starts_with(&[0, 0]) {
                return true;
            }
            match instruction.control() {
                Control::Jump | Control::JumpIndirect | Control::Return | Control::Stop => return false,
                _ => at += instruction.len() as usize,
            }
        }
        false
    }

    fn effect(&self, instruction: &Instruction, state: State, at: usize) -> Effect {
        let after = after(instruction, state);
        let end = at + instruction.len() as usize;
        let target = || {
            let offset = instruction.target(end as u64);
            usize::try_from(offset).ok().filter(|&offset| offset < self.code.len())
        };
        let (next, jumps) = match instruction.control() {
            Control::Next => (after, None),
            Control::Jump => (None, target().zip(after)),
            Control::Branch => (after, target().zip(after)),
            // The callee may have popped its arguments.
            Control::Call | Control::CallIndirect if self.is_data(end) => (None, None),
            Control::Call | Control::CallIndirect => {
                (Some(State { rsp: state.rsp.filter(|_| self.keeps_rsp), ..state }), None)
            }
            Control::JumpIndirect | Control::Return | Control::Stop => (None, None),
        };
        let behind = self.code.get(end).copied();
        let gives_up = match instruction.operation() {
            Operation::Leave => matches!(behind, Some(0xc2 | 0xc3)),
            Operation::Move => {
                instruction.register(0) == Register::RSP
                    && instruction.register(1) == Register::RBP
                    && behind == Some(0x5d)
            }
            _ => false,
        };
        Effect {
            next,
            jumps,
            len: instruction.len() as u8,
            is_call: instruction.operation() == Operation::Call,
            leaves: gives_up && matches!(state.rbp, Rbp::At(16)),
        }
    }

    fn steps(&self, known: FxHashMap<usize, Known>) -> Vec<FramedStep> {
        let mut found: Vec<(usize, Known)> = known.into_iter().collect();
        found.sort_unstable_by_key(|(at, _)| *at);
        let address = |at: usize| LinkAddr(self.start.0.wrapping_add(at as u64));
        let mut steps: Vec<FramedStep> = Vec::new();
        for (index, (at, step)) in found.iter().enumerate() {
            let end = at + usize::from(step.len);
            // Two decodings of the same bytes: neither is used.
            let overlaps = found.get(index + 1).is_some_and(|next| next.0 < end)
                || index.checked_sub(1).and_then(|i| found.get(i)).is_some_and(|b| b.0 + usize::from(b.1.len) > *at);
            let Some(recipe) = step.state.filter(|_| !overlaps).and_then(State::recipe) else { continue };
            steps.push(FramedStep { code: address(*at)..address(end), recipe, is_call: step.is_call });
        }
        steps
    }
}

/// The state after an instruction that continues; `None`: unknown.
fn after(instruction: &Instruction, state: State) -> Option<State> {
    let rsp_less = |bytes: i64| {
        state.rsp.and_then(|rsp| i32::try_from(i64::from(rsp) + bytes).ok()).filter(|rsp| (0..1 << 24).contains(rsp))
    };
    let rbp_less = |below: i32, by: i64| i64::from(below).checked_sub(by).and_then(|less| i32::try_from(less).ok());
    let (to, from) = (instruction.register(0), instruction.register(1));
    let (is_rsp, is_rbp) = (to == Register::RSP, to == Register::RBP);
    // The displacement of a memory operand `[base + displacement]`.
    let displacement = |base| instruction.memory().filter(|memory| memory.is_only(base)).map(|m| m.displacement);
    let above_rsp = || displacement(Register::RSP).and_then(|above| rsp_less(above.wrapping_neg()));
    let mut after = state;
    match instruction.operation() {
        Operation::Push | Operation::PushFlags | Operation::Call => {
            after.rsp = rsp_less(instruction.stack_change().wrapping_neg());
            let is_push = instruction.operation() == Operation::Push;
            if is_push && is_rbp && state.rbp == Rbp::Caller && state.saved.is_none() {
                after.saved = after.rsp;
            }
        }
        Operation::Pop | Operation::PopFlags => {
            if is_rsp {
                return None;
            }
            after.rsp = rsp_less(instruction.stack_change().wrapping_neg());
            if instruction.operation() == Operation::Pop && is_rbp {
                // After calls rsp is not known: the restoring of rbp marks the frame's end.
                let gives_back = state.saved.is_some() && state.rsp == state.saved || state == State::FRAMED;
                after.rbp = if gives_back { Rbp::Caller } else { Rbp::Other };
                after.rsp = if state == State::FRAMED { Some(8) } else { after.rsp };
            }
        }
        Operation::Leave => match state.rbp {
            Rbp::At(below) if state.saved == Some(below) => (after.rbp, after.rsp) = (Rbp::Caller, Some(below - 8)),
            _ => return None,
        },
        Operation::Move if is_rbp && instruction.has_memory() => {
            let is_saved = state.saved.is_some() && above_rsp() == state.saved;
            after.rbp = if is_saved { Rbp::Caller } else { Rbp::Other };
        }
        Operation::Move if instruction.writes_memory_operand() && displacement(Register::RSP).is_some() => {
            let place = above_rsp();
            let is_callers = from == Register::RBP && state.rbp == Rbp::Caller;
            if is_callers && state.saved.is_none() {
                after.saved = place;
            } else if place.is_some() && place == state.saved && !is_callers {
                after.saved = None;
            }
        }
        _ => {
            after.rsp = match (instruction.sum(Register::RSP), state.rbp) {
                (Some((Register::RSP, by)), _) => rsp_less(by.wrapping_neg()),
                (Some((Register::RBP, by)), Rbp::At(below)) => rbp_less(below, by),
                _ => None,
            };
            after.rbp = match (instruction.sum(Register::RBP), state.rbp) {
                (Some((Register::RBP, 0)), rbp) => rbp,
                (Some((Register::RBP, by)), Rbp::At(below)) => rbp_less(below, by).map_or(Rbp::Other, Rbp::At),
                (Some((Register::RSP, by)), _) => rsp_less(by.wrapping_neg()).map_or(Rbp::Other, Rbp::At),
                _ => Rbp::Other,
            };
        }
    }
    // Words below rsp are lost.
    if after.rsp.zip(after.saved).is_some_and(|(rsp, saved)| rsp < saved) {
        after.saved = None;
    }
    after.is_known().then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: LinkAddr = LinkAddr(0x7000_0040);

    /// For each instruction, by offset: the base register's name, the CFA's distance, and the location of the caller's
    /// rbp.
    fn frames(parts: &[&[u8]]) -> Vec<Option<(&'static str, i32, Option<i32>)>> {
        let mut code = parts.concat();
        code.resize(512, 0);
        let found = framed(&code, START);
        let mut at = START;
        let mut frames = Vec::new();
        for part in parts {
            let step = found.iter().flat_map(|p| &p.steps).find(|step| step.code.contains(&at));
            frames.push(step.map(|step| {
                let Cfa::Register { reg, disp } = step.recipe.cfa else { panic!("{:?}", step.recipe) };
                let rbp = match step.recipe.registers[Reg::RBP.index()] {
                    Rule::AtCfa(at) => Some(at),
                    _ => None,
                };
                (if reg == Reg::RBP { "rbp" } else { "rsp" }, disp, rbp)
            }));
            at = LinkAddr(at.0 + part.len() as u64);
        }
        frames
    }

    /// Each instruction of a procedure as V8 writes them: it tests itself before its prologue, returns over its
    /// arguments, and has code after that.
    #[test]
    fn each_instruction_around_a_prologue_and_epilogues() {
        let entry = Some(("rsp", 8, None));
        let framed = Some(("rbp", 16, Some(-16)));
        let code: [(&[u8], _); 19] = [
            (&[0x48, 0x8b, 0x59, 0xf8], entry),             // mov -8(%rcx),%rbx
            (&[0xf6, 0x43, 0x35, 0x01], entry),             // testb $1,0x35(%rbx)
            (&[0x0f, 0x85, 0, 0x10, 0, 0], entry),          // jne far away
            (&[0x55], entry),                               // push %rbp
            (&[0x48, 0x89, 0xe5], Some(("rsp", 16, None))), // mov %rsp,%rbp
            (&[0x56], framed),                              // push %rsi
            (&[0x48, 0x83, 0xec, 0x30], framed),            // sub $0x30,%rsp
            (&[0x77, 0x0e], framed),                        // ja 2f
            (&[0x48, 0x89, 0xec], framed),                  // mov %rbp,%rsp
            (&[0x5d], Some(("rbp", 16, Some(-16)))),        // pop %rbp
            (&[0x83, 0xf9, 0x02], entry),                   // cmp $2,%ecx
            (&[0x7f, 0x02], entry),                         // jg 1f
            (&[0xc3], entry),                               // ret
            (&[0x90], None),                                // nop, which nothing leads to
            (&[0x41, 0x5a], entry),                         // 1: pop %r10
            (&[0xff, 0xe3], None),                          // jmp *%rbx: the return address is gone
            (&[0x41, 0xff, 0x55, 0xc8], framed),            // 2: call *-0x38(%r13)
            (&[0xc9], framed),                              // leave
            (&[0xc2, 0x10, 0x00], entry),                   // ret $16
        ];
        let parts: Vec<&[u8]> = code.iter().map(|(bytes, _)| *bytes).collect();
        for ((index, found), (bytes, expected)) in frames(&parts).into_iter().enumerate().zip(code) {
            assert_eq!(found, expected, "instruction {index}: {bytes:x?}");
        }
    }

    /// `push %rbp; mov %rsp,%rbp; mov (%rdi),%rbp; call *%rax; pop %rbp; ret`: the pointer is lost, and after the call
    /// rsp as well.
    #[test]
    fn a_frame_pointer_that_is_overwritten_is_none() {
        let code: [&[u8]; 6] = [&[0x55], &[0x48, 0x89, 0xe5], &[0x48, 0x8b, 0x2f], &[0xff, 0xd0], &[0x5d], &[0xc3]];
        let found = frames(&code);
        assert_eq!(found[2], Some(("rbp", 16, Some(-16))));
        assert_eq!(found[3], Some(("rsp", 16, Some(-16))));
        assert_eq!(found[4..], [None, None]);
        // Without a prologue rbp is not a frame pointer: push %rbp; mov %rdi,%rbp; jmp *%rax
        assert_eq!(frames(&[&[0x55], &[0x48, 0x89, 0xfd], &[0xff, 0xe0]]), [None; 3]);
    }

    /// As mono writes it: rbp is an ordinary register.
    #[test]
    fn a_frame_without_a_pointer_up_to_its_return() {
        let code: [&[u8]; 8] = [
            &[0x48, 0x83, 0xec, 0x48],       // sub $0x48,%rsp
            &[0x48, 0x89, 0x6c, 0x24, 0x08], // mov %rbp,8(%rsp)
            &[0x48, 0x89, 0xfd],             // mov %rdi,%rbp
            &[0xff, 0xd0],                   // call *%rax
            &[0x48, 0x8b, 0x6c, 0x24, 0x08], // mov 8(%rsp),%rbp
            &[0x48, 0x83, 0xc4, 0x48],       // add $0x48,%rsp
            &[0xc3],                         // ret
            &[0xcc],
        ];
        let (entry, own, kept) = (Some(("rsp", 8, None)), Some(("rsp", 80, None)), Some(("rsp", 80, Some(-72))));
        assert_eq!(frames(&code), [entry, own, own, kept, kept, own, entry, None]);
    }

    /// As in HotSpot's interpreter: the code that it jumps to returns to code that takes rsp from its frame.
    #[test]
    fn where_code_goes_on_by_its_pointer() {
        let code: [&[u8]; 4] = [&[0xff, 0xe0], &[0x48, 0x8b, 0x65, 0xf0], &[0x31, 0xc0], &[0xff, 0xe3]];
        let framed = Some(("rbp", 16, Some(-16)));
        assert_eq!(frames(&code), [None, framed, framed, framed]);
        let found = framed_steps(&code);
        let last = LinkAddr(START.0 + 1);
        assert!(
            found.iter().any(|step| step.code.start == last && step.is_call),
            "a frame is returned to behind {last:?}"
        );
    }

    fn framed_steps(parts: &[&[u8]]) -> Vec<FramedStep> {
        let mut code = parts.concat();
        code.resize(512, 0);
        framed(&code, START).into_iter().flat_map(|procedure| procedure.steps).collect()
    }
}
