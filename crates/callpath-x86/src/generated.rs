//! Recipes of machine code that a program generated at run time, as far as the code proves them.
//!
//! A compiler's procedures are called and return. Generated code may be anything: code that is jumped into and jumps
//! out, code for another stack, data. So a recipe is accepted only where control continues, as far as it can be
//! followed, to a return that finds exactly the return address on the stack.

pub mod ahead;
mod frames;
pub mod within;

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe};
use callpath_format::register::Reg;
use callpath_format::shared::generated::CheckedProcedure;
use rustc_hash::FxHashMap;

use self::frames::{FramedProcedure, FramedStep, framed};
use crate::analysis::{CodeAnalysis, Row, analyse};
use crate::encoding::{self, FILLING, FRAME_PROLOGUE_BYTES};
use crate::input::CodeInput;
use crate::instruction::{Control, Listing, Operation, Register};

/// The accepted result for generated code.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GeneratedCode {
    /// By ascending address, disjoint.
    pub procedures: Vec<GeneratedProcedure>,
    /// Distinct recipes.
    pub recipes: Vec<Recipe>,
}

/// Code connected by its flow of control: a procedure, or the accepted part of one. Its recipes follow from its bytes
/// alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeneratedProcedure {
    /// From the first instruction that has a recipe up to the end of the last one.
    pub code: Range<LinkAddr>,
    /// Its recipes, by ascending address.
    pub rows: Vec<Row>,
    /// The last bytes of its calls, by ascending address.
    pub call_ends: Vec<LinkAddr>,
}

/// Analyses `code`, which begins at `start`, in about 80 ns for each byte that is code. `code` may begin and end inside
/// a procedure.
pub fn analyse_generated(code: &[u8], start: LinkAddr) -> GeneratedCode {
    let framed = framed(code, start);
    let slices = filled(code, start, &framed);
    let analysis = analyse(&CodeInput { code: &slices, data: &slices, is_absolute: true, ..CodeInput::default() });
    let body = Body::of(code, start, &slices, &analysis);
    let mut recipes = analysis.recipes;
    let Ok(unknown) = u16::try_from(recipes.len()) else { return GeneratedCode::default() };
    recipes.push(Recipe::UNKNOWN);
    let procedures = joined(body.procedures(unknown), framed, &mut recipes, unknown);
    GeneratedCode { procedures, recipes }
}

/// The parts of `code` that are not filler and not yet understood.
fn filled<'c>(code: &'c [u8], start: LinkAddr, framed: &[FramedProcedure]) -> Vec<(LinkAddr, &'c [u8])> {
    const BLOCK_BYTES: usize = 64;
    const LEAST_BLOCKS: usize = 4;
    let is_filling = |block: &[u8]| FILLING.contains(&block[0]) && block.iter().all(|byte| *byte == block[0]);
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (index, block) in code.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| !is_filling(block)) {
        let at = index * BLOCK_BYTES;
        match parts.last_mut() {
            Some(part) if at - part.end < LEAST_BLOCKS * BLOCK_BYTES => part.end = at + block.len(),
            _ => parts.push(at..at + block.len()),
        }
    }
    let mut understood: Vec<Range<usize>> = framed.iter().filter_map(FramedProcedure::understood).collect();
    for range in &mut understood {
        *range = range.start.wrapping_sub(start.0 as usize)..range.end.wrapping_sub(start.0 as usize);
    }
    understood.sort_by_key(|range| range.start);
    let mut slices = Vec::new();
    for part in parts {
        let mut from = part.start;
        let first = understood.partition_point(|range| range.end <= part.start);
        let within = understood[first..].iter().take_while(|range| range.start < part.end);
        for range in within.cloned().chain(std::iter::once(part.end..part.end)) {
            if from < range.start {
                slices.push((LinkAddr(start.0.wrapping_add(from as u64)), &code[from..range.start]));
            }
            from = from.max(range.end);
        }
    }
    slices
}

/// Whether code that begins here continues by the frame pointer alone, so that it may be returned to without a call
/// before it. HotSpot's interpreter lets the methods that it jumps to return to such addresses.
pub fn resumes_by_pointer(code: &[u8]) -> bool {
    encoding::takes_stack_pointer_from_frame(code) || encoding::takes_stack_distance_from_frame(code)
}

/// The results of both analyses, as procedures that do not overlap. Where both know a recipe, that of code with a
/// prologue wins: bytes before a procedure may be data, which the other analysis takes for code.
fn joined(
    returning: Vec<GeneratedProcedure>,
    framed: Vec<FramedProcedure>,
    recipes: &mut Vec<Recipe>,
    unknown: u16,
) -> Vec<GeneratedProcedure> {
    let mut index_of: FxHashMap<Recipe, u16> = FxHashMap::default();
    let returning = returning.into_iter().map(|procedure| (procedure.code.clone(), Known::Returning(procedure)));
    let framed = framed.into_iter().filter_map(|procedure| {
        let code = procedure.steps.first()?.code.start..procedure.steps.last()?.code.end;
        Some((code, Known::Framed(procedure)))
    });
    let mut procedures = Vec::new();
    for Overlapping { code, returning, framed } in overlapping(returning.chain(framed).collect()) {
        if framed.is_empty() {
            procedures.extend(returning);
            continue;
        }
        let mut rows: Vec<(Range<LinkAddr>, u16)> = Vec::new();
        let mut steps: Vec<&FramedStep> = framed.iter().flat_map(|procedure| &procedure.steps).collect();
        steps.sort_by_key(|step| step.code.start);
        let mut call_ends: Vec<LinkAddr> = returning.iter().flat_map(|p| p.call_ends.iter().copied()).collect();
        for procedure in &returning {
            let ends = procedure.rows.iter().skip(1).map(|row| row.start).chain([procedure.code.end]);
            for (row, end) in procedure.rows.iter().zip(ends).filter(|(row, _)| row.recipe != unknown) {
                let mut at = row.start;
                let first = steps.partition_point(|step| step.code.end <= row.start);
                for step in steps[first..].iter().take_while(|step| step.code.start < end) {
                    rows.extend((at < step.code.start).then_some((at..step.code.start, row.recipe)));
                    at = at.max(step.code.end);
                }
                rows.extend((at < end).then_some((at..end, row.recipe)));
            }
        }
        for step in steps {
            let recipe = *index_of.entry(step.recipe).or_insert_with(|| {
                let index = recipes.iter().position(|recipe| *recipe == step.recipe).unwrap_or_else(|| {
                    recipes.push(step.recipe);
                    recipes.len() - 1
                });
                u16::try_from(index).unwrap_or(unknown)
            });
            rows.push((step.code.clone(), recipe));
            if step.is_call {
                call_ends.push(LinkAddr(step.code.end.0.wrapping_sub(1)));
            }
        }
        rows.sort_by_key(|(code, _)| code.start);
        let mut procedure = GeneratedProcedure { code: code.clone(), rows: Vec::new(), call_ends };
        let mut at = code.start;
        for (code, recipe) in rows {
            if at < code.start {
                procedure.rows.push(Row { start: at, recipe: unknown });
            }
            procedure.rows.push(Row { start: code.start, recipe });
            at = code.end;
        }
        procedure.rows.dedup_by_key(|row| row.recipe);
        procedure.call_ends.sort_unstable();
        procedure.call_ends.dedup();
        procedures.push(procedure);
    }
    procedures
}

/// The result of one analysis.
enum Known {
    Returning(GeneratedProcedure),
    Framed(FramedProcedure),
}

/// Results whose code overlaps.
struct Overlapping {
    code: Range<LinkAddr>,
    returning: Vec<GeneratedProcedure>,
    framed: Vec<FramedProcedure>,
}

/// At most so many results are left out: each time, those that are left are put together anew.
const MOST_LEFT_OUT: usize = 256;

/// Results, put together where they overlap, by ascending address. Where that would be too long to be checked, the longest ones
/// without a prologue are left out: code seems to be connected that is not.
fn overlapping(all: Vec<(Range<LinkAddr>, Known)>) -> Vec<Overlapping> {
    let (mut found, mut left_out) = (Vec::new(), 0);
    let mut pending = vec![all];
    while let Some(mut all) = pending.pop() {
        all.sort_by_key(|(code, _)| (code.start, code.end));
        let mut all = all.into_iter().peekable();
        while let Some((mut code, first)) = all.next() {
            let mut these = vec![(code.clone(), first)];
            while let Some((other, known)) = all.next_if(|(other, _)| other.start < code.end) {
                code.end = code.end.max(other.end);
                these.push((other, known));
            }
            let len_bytes = |code: &Range<LinkAddr>| code.end.0.saturating_sub(code.start.0);
            let is_too_long = len_bytes(&code) > CheckedProcedure::MOST_BYTES.into();
            let of_returning = these.iter().enumerate().filter(|(_, (_, known))| matches!(known, Known::Returning(_)));
            let longest = of_returning.max_by_key(|(_, (code, _))| len_bytes(code)).map(|(index, _)| index);
            if let Some(longest) = longest.filter(|_| is_too_long && these.len() > 1 && left_out < MOST_LEFT_OUT) {
                left_out += 1;
                these.swap_remove(longest);
                pending.push(these);
                continue;
            }
            let mut one = Overlapping { code, returning: Vec::new(), framed: Vec::new() };
            for (_, known) in these {
                match known {
                    Known::Returning(procedure) => one.returning.push(procedure),
                    Known::Framed(procedure) => one.framed.push(procedure),
                }
            }
            found.push(one);
        }
    }
    found.sort_by_key(|one| one.code.start);
    found
}

/// How much code around a change is analysed again, bytes.
const AROUND_BYTES: u64 = 256;

impl GeneratedCode {
    /// Analyses again what has changed: the bytes `changed` of `code`, which begins at the same `start` as the code
    /// analysed before.
    pub fn analyse_again(&mut self, code: &[u8], start: LinkAddr, changed: Range<usize>) {
        let end = start.0.saturating_add(code.len() as u64);
        let mut from = start.0.saturating_add(changed.start as u64).saturating_sub(AROUND_BYTES).max(start.0);
        let mut to = start.0.saturating_add(changed.end as u64).saturating_add(AROUND_BYTES).min(end);
        // Whole procedures, with the code between them.
        let is_in = |p: &GeneratedProcedure, from: u64, to: u64| p.code.start.0 < to && from < p.code.end.0;
        for procedure in &self.procedures {
            if is_in(procedure, from, to) {
                from = from.min(procedure.code.start.0);
                to = to.max(procedure.code.end.0).min(end);
            }
        }
        self.procedures.retain(|p| !is_in(p, from, to) && p.code.end.0 <= end);
        from = from.max(start.0);
        let part = LinkAddr(from)..LinkAddr(to.max(from));
        let found = analyse_generated(bytes_of(code, start, &part), part.start);
        let mut index_of: FxHashMap<Recipe, u16> =
            (0u16..).zip(&self.recipes).map(|(index, recipe)| (*recipe, index)).collect();
        let mut index_in_all = |recipe: u16| -> Option<u16> {
            let recipe = *found.recipes.get(usize::from(recipe))?;
            let next = u16::try_from(self.recipes.len()).ok()?;
            let index = *index_of.entry(recipe).or_insert(next);
            if index == next {
                self.recipes.push(recipe);
            }
            Some(index)
        };
        for mut procedure in found.procedures {
            let all_known = procedure.rows.iter_mut().all(|row| match index_in_all(row.recipe) {
                Some(index) => {
                    row.recipe = index;
                    true
                }
                None => false,
            });
            if all_known {
                self.procedures.push(procedure);
            }
        }
        self.procedures.sort_by_key(|p| p.code.start);
    }
}

/// Whether rbp is certainly a frame pointer at the instruction `at`: in order, one of the instructions of `code` before
/// it (which begins at `start`) sets up the frame (`push rbp; mov rbp, rsp`), and none after that gives it up or
/// returns.
pub fn is_framed(code: &[u8], start: LinkAddr, at: LinkAddr) -> bool {
    let before = bytes_of(code, start, &(start..at));
    let Some(made) = before.windows(FRAME_PROLOGUE_BYTES).rposition(encoding::makes_frame) else {
        return false;
    };
    let mut listing = Listing::new(&before[made..], 0);
    let gives_up = listing.by_ref().any(|(_, instruction)| match instruction.operation() {
        Operation::Leave => true,
        Operation::Pop => instruction.register(0) == Register::RBP,
        _ => instruction.control() == Control::Return,
    });
    // The last instruction read ends where `at` begins: it was not cut.
    !gives_up && listing.is_at_end()
}

fn bytes_of<'c>(code: &'c [u8], start: LinkAddr, range: &Range<LinkAddr>) -> &'c [u8] {
    let offset = |addr: LinkAddr| usize::try_from(addr.0.saturating_sub(start.0)).unwrap_or(usize::MAX);
    code.get(offset(range.start)..offset(range.end).min(code.len())).unwrap_or(&[])
}

/// The instructions with known recipes, by address, and the flow of control between them.
struct Body {
    steps: Vec<Step>,
    /// `(to, from)`, sorted.
    flow: Vec<(u32, u32)>,
}

/// An instruction.
struct Step {
    at: LinkAddr,
    end: LinkAddr,
    kind: StepKind,
    recipe: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepKind {
    Plain,
    Call,
    /// Control does not continue with the next instruction.
    Leaves,
    /// A return that finds exactly the return address on the stack.
    Returns,
    /// A return that finds something else.
    ReturnsOtherwise,
}

impl Body {
    fn of(code: &[u8], start: LinkAddr, slices: &[(LinkAddr, &[u8])], analysis: &CodeAnalysis) -> Body {
        let mut body = Body { steps: Vec::new(), flow: Vec::new() };
        let mut jumps = Vec::new();
        let code_end = LinkAddr(start.0.saturating_add(code.len() as u64));
        // Rows begin at instructions, so bytes between procedures cause no wrong decoding.
        for (index, row) in analysis.rows.iter().enumerate() {
            let cfa = analysis.recipes.get(usize::from(row.recipe)).map_or(Cfa::Unknown, |recipe| recipe.cfa);
            // The recipe is unknown, or marks an outermost frame.
            if matches!(cfa, Cfa::Unknown | Cfa::Outermost) {
                continue;
            }
            let end = analysis.rows.get(index + 1).map_or(code_end, |next| next.start);
            // Nothing is known outside the slices.
            let slice = slices.partition_point(|(at, _)| *at <= row.start).checked_sub(1).and_then(|at| slices.get(at));
            let Some((slice, bytes)) = slice else { continue };
            let end = end.min(LinkAddr(slice.0.saturating_add(bytes.len() as u64)));
            let bytes = bytes_of(code, start, &(row.start..end));
            for (at, instruction) in Listing::new(bytes, row.start.0) {
                let end = at.wrapping_add(instruction.len().into());
                let target = LinkAddr(instruction.target(end));
                let (kind, jumps_to) = match instruction.control() {
                    Control::Return if cfa == (Cfa::Register { reg: Reg::RSP, disp: 8 }) => (StepKind::Returns, None),
                    Control::Return => (StepKind::ReturnsOtherwise, None),
                    _ if instruction.operation() == Operation::Call => (StepKind::Call, None),
                    Control::Jump => (StepKind::Leaves, Some(target)),
                    Control::JumpIndirect | Control::Stop => (StepKind::Leaves, None),
                    Control::Branch => (StepKind::Plain, Some(target)),
                    Control::Next | Control::Call | Control::CallIndirect => (StepKind::Plain, None),
                };
                // Where another procedure begins, the frame is another, too.
                let continues = |target: &LinkAddr| {
                    analysis.procedures.binary_search_by_key(target, |procedure| procedure.code.start).is_err()
                };
                jumps.extend(jumps_to.filter(continues).map(|target| (target, body.steps.len() as u32)));
                body.steps.push(Step { at: LinkAddr(at), end: LinkAddr(end), kind, recipe: row.recipe });
            }
        }
        for (index, pair) in (0u32..).zip(body.steps.windows(2)) {
            if matches!(pair[0].kind, StepKind::Plain | StepKind::Call) && pair[0].end == pair[1].at {
                body.flow.push((index + 1, index));
            }
        }
        for (target, from) in jumps {
            if let Ok(to) = body.steps.binary_search_by_key(&target, |step| step.at) {
                body.flow.push((to as u32, from));
            }
        }
        body.flow.sort_unstable();
        body
    }

    /// For each step, whether control continues from it to a valid return.
    fn accepted(&self) -> Vec<bool> {
        let mut accepted: Vec<bool> = self.steps.iter().map(|step| step.kind == StepKind::Returns).collect();
        let mut pending: Vec<u32> = (0u32..).zip(&accepted).filter(|(_, b)| **b).map(|(index, _)| index).collect();
        while let Some(to) = pending.pop() {
            let first = self.flow.partition_point(|edge| edge.0 < to);
            for &(_, from) in self.flow[first..].iter().take_while(|edge| edge.0 == to) {
                if !std::mem::replace(&mut accepted[from as usize], true) {
                    pending.push(from);
                }
            }
        }
        accepted
    }

    /// Steps connected by the flow of control, as ranges of steps; steps in between are included.
    fn groups(&self) -> Vec<Range<usize>> {
        // How far each step's edges reach over the later steps.
        let mut reach: Vec<usize> = (0..self.steps.len()).collect();
        for &(to, from) in &self.flow {
            let (low, high) = (to.min(from) as usize, to.max(from) as usize);
            reach[low] = reach[low].max(high);
        }
        let mut groups = Vec::new();
        let (mut first, mut last) = (0, 0);
        for (index, reach) in reach.into_iter().enumerate() {
            if index > last {
                groups.push(first..index);
                first = index;
            }
            last = last.max(reach);
        }
        groups.push(first..self.steps.len());
        groups
    }

    fn procedures(&self, unknown: u16) -> Vec<GeneratedProcedure> {
        let accepted = self.accepted();
        let mut procedures = Vec::new();
        for group in self.groups() {
            let steps = &self.steps[group.clone()];
            if steps.iter().any(|step| step.kind == StepKind::ReturnsOtherwise) {
                continue;
            }
            let steps =
                || steps.iter().zip(&accepted[group.clone()]).filter(|(_, accepted)| **accepted).map(|(s, _)| s);
            let (Some(first), Some(last)) = (steps().next(), steps().next_back()) else { continue };
            let mut rows: Vec<Row> = Vec::new();
            let mut at = first.at;
            for step in steps() {
                if at < step.at {
                    rows.push(Row { start: at, recipe: unknown });
                }
                at = step.end;
                rows.push(Row { start: step.at, recipe: step.recipe });
            }
            rows.dedup_by_key(|row| row.recipe);
            let calls = steps().filter(|step| step.kind == StepKind::Call);
            let call_ends = calls.map(|step| LinkAddr(step.end.0.wrapping_sub(1))).collect();
            procedures.push(GeneratedProcedure { code: first.at..last.end, rows, call_ends });
        }
        procedures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: LinkAddr = LinkAddr(0x7000_0000);

    fn cfa_at(generated: &GeneratedCode, offset: u64) -> Option<Cfa> {
        let at = LinkAddr(START.0 + offset);
        let procedure = generated.procedures.iter().find(|p| p.code.contains(&at))?;
        let row = procedure.rows.iter().rfind(|row| row.start <= at)?;
        Some(generated.recipes[usize::from(row.recipe)].cfa)
    }

    fn padded(code: &[u8]) -> Vec<u8> {
        let mut code = code.to_vec();
        code.resize(4096, 0);
        code
    }

    #[test]
    fn a_procedure_that_returns_is_believed() {
        // sub $24,%rsp; call *%rdi; add $24,%rsp; ret
        let code = [0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0xc3];
        let generated = analyse_generated(&padded(&code), START);
        assert_eq!(generated.procedures.len(), 1);
        assert_eq!(generated.procedures[0].code, START..LinkAddr(START.0 + code.len() as u64));
        assert_eq!(generated.procedures[0].call_ends, [LinkAddr(START.0 + 5)]);
        let rsp = |disp| Some(Cfa::Register { reg: Reg::RSP, disp });
        assert_eq!((cfa_at(&generated, 0), cfa_at(&generated, 4), cfa_at(&generated, 10)), (rsp(8), rsp(32), rsp(8)));
    }

    /// All that overlaps is one, as far as it can be checked.
    #[test]
    fn what_overlaps_is_put_together() {
        const MOST: u64 = CheckedProcedure::MOST_BYTES as u64;
        let place = |from: u64, to: u64| LinkAddr(START.0 + from)..LinkAddr(START.0 + to);
        let returning = |from, to| {
            let code = place(from, to);
            (code.clone(), Known::Returning(GeneratedProcedure { code, rows: Vec::new(), call_ends: Vec::new() }))
        };
        let framed = |from, to| (place(from, to), Known::Framed(FramedProcedure::default()));
        let put = |all: Vec<(Range<LinkAddr>, Known)>| -> Vec<(u64, u64, usize, usize)> {
            let told = |one: Overlapping| {
                (one.code.start.0 - START.0, one.code.end.0 - START.0, one.returning.len(), one.framed.len())
            };
            overlapping(all).into_iter().map(told).collect()
        };
        assert_eq!(put(vec![returning(40, 60), framed(0, 50), framed(60, 80)]), [(0, 60, 1, 1), (60, 80, 0, 1)]);
        // The long one goes, and what it had connected is apart.
        let all = vec![framed(0, 500), returning(400, MOST + 300), framed(1000, 1500), returning(490, 510)];
        assert_eq!(put(all), [(0, 510, 1, 1), (1000, 1500, 0, 1)]);
        // Alone, it is not published, but known.
        assert_eq!(put(vec![returning(0, 2 * MOST)]), [(0, 2 * MOST, 1, 0)]);
        // Frames stay.
        assert_eq!(put(vec![framed(0, MOST), framed(10, MOST + 10)]), [(0, MOST + 10, 0, 2)]);
    }

    #[test]
    fn what_is_jumped_into_and_jumps_out_is_not() {
        // movl $1,-8(%r14); add $-16,%rsp; jmp *%rax: a trace of a tracing compiler
        let code = [0x41, 0xc7, 0x46, 0xf8, 1, 0, 0, 0, 0x48, 0x83, 0xc4, 0xf0, 0xff, 0xe0];
        assert_eq!(analyse_generated(&padded(&code), START).procedures, []);
        // A procedure with jumps that cannot be followed: its code before the first and after the last of them is
        // accepted; leave; ret.
        let code = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xe1, 0xcc, 0x90, 0xff, 0xe1, 0xcc, 0xc9, 0xc3];
        let generated = analyse_generated(&padded(&code), START);
        let framed = Some(Cfa::Register { reg: Reg::RBP, disp: 16 });
        assert_eq!((cfa_at(&generated, 4), cfa_at(&generated, 8)), (framed, Some(Cfa::Unknown)));
        assert_eq!(cfa_at(&generated, 11), framed);
        // The rest of a procedure that began before: add $24,%rsp; pop %rbx; ret
        let code = [0x48, 0x83, 0xc4, 24, 0x5b, 0xc3];
        let generated = analyse_generated(&padded(&code), START);
        assert!(
            matches!(cfa_at(&generated, 0), None | Some(Cfa::Register { reg: Reg::RSP, disp: 40 })),
            "{generated:?}"
        );
    }

    #[test]
    fn frames_by_their_making() {
        // push %rbp; mov %rsp,%rbp; push %rbx; jmp *%r11; int3; nop; pop %rbp; ret; nop
        let code = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0xff, 0xe3, 0xcc, 0x90, 0x5d, 0xc3, 0x90, 0x90];
        let framed: Vec<u64> = (0..14).filter(|&at| is_framed(&code, START, LinkAddr(START.0 + at))).collect();
        // 6 and 7 are inside the jump; before 4 there is no frame yet, from 11 on no longer.
        assert_eq!(framed, [4, 5, 8, 9, 10]);
    }

    #[test]
    fn any_bytes_end_without_a_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for len in [0, 1, 7, 300, 5000] {
            let code: Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            let generated = analyse_generated(&code, START);
            let end = LinkAddr(START.0 + len);
            assert!(generated.procedures.iter().all(|p| START <= p.code.start && p.code.end <= end));
            assert!(generated.procedures.is_sorted_by(|a, b| a.code.start < b.code.start));
        }
    }
}
