//! Machine code that a program wrote at run time: what it says of its frames, as far as it proves what it says.
//! Knows nothing of where the bytes come from.
//!
//! A compiler's procedures are called and return. What a program writes may be anything: code that is jumped into and jumps
//! out, code for a stack of its own, data. So a recipe is believed here only where control goes on, by what can be
//! followed, to a return that finds nothing but the return address on the stack.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe};
use callpath_format::register::Reg;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

use crate::analysis::{CodeAnalysis, Row, analyse};
use crate::input::CodeInput;

/// What is believed of code that was written at run time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WrittenCode {
    /// By ascending address, disjoint.
    pub procedures: Vec<WrittenProcedure>,
    /// Distinct recipes.
    pub recipes: Vec<Recipe>,
}

/// Code that hangs together by its flow of control: a procedure, or the part of one that is believed. Its recipes follow
/// from its bytes alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenProcedure {
    /// From the first instruction that has a recipe up to the end of the last one.
    pub code: Range<LinkAddr>,
    /// Its recipes, by ascending address.
    pub rows: Vec<Row>,
    /// The last bytes of its calls, by ascending address.
    pub call_ends: Vec<LinkAddr>,
}

/// Analyses `code`, which begins at `start`, in about 80 ns for each byte that is code. `code` may begin and end inside of a
/// procedure.
pub fn analyse_written(code: &[u8], start: LinkAddr) -> WrittenCode {
    let slices = [(start, code)];
    let analysis = analyse(&CodeInput { code: &slices, data: &slices, is_absolute: true, ..CodeInput::default() });
    let body = Body::of(code, start, &analysis);
    let mut recipes = analysis.recipes;
    let Ok(unknown) = u16::try_from(recipes.len()) else { return WrittenCode::default() };
    recipes.push(Recipe::UNKNOWN);
    WrittenCode { procedures: body.procedures(unknown), recipes }
}

/// Whether rbp is surely a frame's pointer at the instruction `at`: one of the `code` before it, which begins at `start`, makes
/// the frame (`push rbp; mov rbp, rsp`), and nothing between the two gives it up or returns, read in order.
pub fn is_framed(code: &[u8], start: LinkAddr, at: LinkAddr) -> bool {
    const PROLOGUES: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];
    let before = bytes_of(code, start, &(start..at));
    let Some(made) = before.windows(4).rposition(|bytes| PROLOGUES.iter().any(|prologue| bytes == prologue)) else {
        return false;
    };
    let mut decoder = Decoder::with_ip(64, &before[made..], start.0.wrapping_add(made as u64), DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let gives_up = match instruction.mnemonic() {
            Mnemonic::Leave => true,
            Mnemonic::Pop => instruction.op0_register() == Register::RBP,
            _ => instruction.is_invalid() || instruction.flow_control() == FlowControl::Return,
        };
        if gives_up {
            return false;
        }
    }
    // What was read ends where `at` begins: the last instruction was not cut.
    decoder.position() == before.len() - made
}

fn bytes_of<'c>(code: &'c [u8], start: LinkAddr, range: &Range<LinkAddr>) -> &'c [u8] {
    let offset = |addr: LinkAddr| usize::try_from(addr.0.saturating_sub(start.0)).unwrap_or(usize::MAX);
    code.get(offset(range.start)..offset(range.end).min(code.len())).unwrap_or(&[])
}

/// The instructions of which something is known, by address, and how control goes between them.
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
    /// Control does not go on to the next instruction.
    Leaves,
    /// A return that finds nothing but the return address on the stack.
    Returns,
    /// A return that finds something else.
    ReturnsOtherwise,
}

impl Body {
    fn of(code: &[u8], start: LinkAddr, analysis: &CodeAnalysis) -> Body {
        let mut body = Body { steps: Vec::new(), flow: Vec::new() };
        let mut jumps = Vec::new();
        let code_end = LinkAddr(start.0.saturating_add(code.len() as u64));
        // Rows begin where instructions do: what comes between procedures leads nobody astray.
        for (index, row) in analysis.rows.iter().enumerate() {
            let cfa = analysis.recipes.get(usize::from(row.recipe)).map_or(Cfa::Unknown, |recipe| recipe.cfa);
            // Nothing is known, or it is believed that nobody called it.
            if matches!(cfa, Cfa::Unknown | Cfa::Outermost) {
                continue;
            }
            let end = analysis.rows.get(index + 1).map_or(code_end, |next| next.start);
            let bytes = bytes_of(code, start, &(row.start..end));
            let mut decoder = Decoder::with_ip(64, bytes, row.start.0, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() {
                    break;
                }
                let target = LinkAddr(instruction.near_branch_target());
                let (kind, jumps_to) = match instruction.flow_control() {
                    FlowControl::Return if cfa == (Cfa::Register { reg: Reg::RSP, disp: 8 }) => {
                        (StepKind::Returns, None)
                    }
                    FlowControl::Return => (StepKind::ReturnsOtherwise, None),
                    FlowControl::Call | FlowControl::IndirectCall => (StepKind::Call, None),
                    FlowControl::UnconditionalBranch => (StepKind::Leaves, Some(target)),
                    FlowControl::IndirectBranch | FlowControl::Exception => (StepKind::Leaves, None),
                    FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => (StepKind::Plain, Some(target)),
                    FlowControl::Next | FlowControl::Interrupt => (StepKind::Plain, None),
                };
                // Where another procedure begins its frame is another, too.
                let goes_on = |target: &LinkAddr| {
                    analysis.procedures.binary_search_by_key(target, |procedure| procedure.code.start).is_err()
                };
                jumps.extend(jumps_to.filter(goes_on).map(|target| (target, body.steps.len() as u32)));
                let (at, end) = (LinkAddr(instruction.ip()), LinkAddr(instruction.next_ip()));
                body.steps.push(Step { at, end, kind, recipe: row.recipe });
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

    /// For each step, whether control goes on from it to a return as it should be.
    fn believed(&self) -> Vec<bool> {
        let mut believed: Vec<bool> = self.steps.iter().map(|step| step.kind == StepKind::Returns).collect();
        let mut pending: Vec<u32> = (0u32..).zip(&believed).filter(|(_, b)| **b).map(|(index, _)| index).collect();
        while let Some(to) = pending.pop() {
            let first = self.flow.partition_point(|edge| edge.0 < to);
            for &(_, from) in self.flow[first..].iter().take_while(|edge| edge.0 == to) {
                if !std::mem::replace(&mut believed[from as usize], true) {
                    pending.push(from);
                }
            }
        }
        believed
    }

    /// What hangs together by the flow of control, as stretches of steps: what lies between hangs in.
    fn groups(&self) -> Vec<Range<usize>> {
        // How far each step's edges reach over the steps behind it.
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

    fn procedures(&self, unknown: u16) -> Vec<WrittenProcedure> {
        let believed = self.believed();
        let mut procedures = Vec::new();
        for group in self.groups() {
            let steps = &self.steps[group.clone()];
            if steps.iter().any(|step| step.kind == StepKind::ReturnsOtherwise) {
                continue;
            }
            let steps =
                || steps.iter().zip(&believed[group.clone()]).filter(|(_, believed)| **believed).map(|(s, _)| s);
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
            procedures.push(WrittenProcedure { code: first.at..last.end, rows, call_ends });
        }
        procedures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: LinkAddr = LinkAddr(0x7000_0000);

    fn cfa_at(written: &WrittenCode, offset: u64) -> Option<Cfa> {
        let at = LinkAddr(START.0 + offset);
        let procedure = written.procedures.iter().find(|p| p.code.contains(&at))?;
        let row = procedure.rows.iter().rfind(|row| row.start <= at)?;
        Some(written.recipes[usize::from(row.recipe)].cfa)
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
        let written = analyse_written(&padded(&code), START);
        assert_eq!(written.procedures.len(), 1);
        assert_eq!(written.procedures[0].code, START..LinkAddr(START.0 + code.len() as u64));
        assert_eq!(written.procedures[0].call_ends, [LinkAddr(START.0 + 5)]);
        let rsp = |disp| Some(Cfa::Register { reg: Reg::RSP, disp });
        assert_eq!((cfa_at(&written, 0), cfa_at(&written, 4), cfa_at(&written, 10)), (rsp(8), rsp(32), rsp(8)));
    }

    #[test]
    fn what_is_jumped_into_and_jumps_out_is_not() {
        // movl $1,-8(%r14); add $-16,%rsp; jmp *%rax: a trace of a tracing compiler
        let code = [0x41, 0xc7, 0x46, 0xf8, 1, 0, 0, 0, 0x48, 0x83, 0xc4, 0xf0, 0xff, 0xe0];
        assert_eq!(analyse_written(&padded(&code), START).procedures, []);
        // A procedure with jumps that nobody can follow: what is behind the last of them is believed, leave; ret.
        let code = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xe1, 0xcc, 0x90, 0xff, 0xe1, 0xcc, 0xc9, 0xc3];
        let written = analyse_written(&padded(&code), START);
        assert_eq!((cfa_at(&written, 4), cfa_at(&written, 8)), (None, None));
        assert_eq!(cfa_at(&written, 11), Some(Cfa::Register { reg: Reg::RBP, disp: 16 }));
        // The rest of a procedure that began before: add $24,%rsp; pop %rbx; ret
        let code = [0x48, 0x83, 0xc4, 24, 0x5b, 0xc3];
        let written = analyse_written(&padded(&code), START);
        assert!(matches!(cfa_at(&written, 0), None | Some(Cfa::Register { reg: Reg::RSP, disp: 40 })), "{written:?}");
    }

    #[test]
    fn frames_by_their_making() {
        // push %rbp; mov %rsp,%rbp; push %rbx; jmp *%r11; int3; nop; pop %rbp; ret; nop
        let code = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0xff, 0xe3, 0xcc, 0x90, 0x5d, 0xc3, 0x90, 0x90];
        let framed: Vec<u64> = (0..14).filter(|&at| is_framed(&code, START, LinkAddr(START.0 + at))).collect();
        // 6 and 7 are inside of the jump; before 4 there is no frame, from 11 on no more.
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
            let written = analyse_written(&code, START);
            let end = LinkAddr(START.0 + len);
            assert!(written.procedures.iter().all(|p| START <= p.code.start && p.code.end <= end));
            assert!(written.procedures.is_sorted_by(|a, b| a.code.start < b.code.start));
        }
    }
}
