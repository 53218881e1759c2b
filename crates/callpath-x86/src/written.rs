//! Machine code that a program wrote at run time: what it says of its frames, as far as it proves what it says.
//! Knows nothing of where the bytes come from.
//!
//! A compiler's procedures are called and return. What a program writes may be anything: code that is jumped into and jumps
//! out, code for a stack of its own, data. So a procedure is believed here only where it shows a return, and shows it
//! with nothing but the return address left on the stack.

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
    /// By ascending address, the procedures that are believed. Their recipes follow from the bytes of each alone.
    pub procedures: Vec<WrittenProcedure>,
    /// Distinct recipes.
    pub recipes: Vec<Recipe>,
}

/// One procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenProcedure {
    /// From its first instruction up to the end of the last one that has a recipe.
    pub code: Range<LinkAddr>,
    /// Its recipes, by ascending address.
    pub rows: Vec<Row>,
    /// The last bytes of its calls, by ascending address.
    pub call_ends: Vec<LinkAddr>,
}

/// Analyses `code`, which begins at `start`, in about 50 ns for each byte. `code` may begin and end inside of a
/// procedure: that one is not believed, or its rest is not.
pub fn analyse_written(code: &[u8], start: LinkAddr) -> WrittenCode {
    let slices = [(start, code)];
    let CodeAnalysis { rows, recipes, procedures, .. } =
        analyse(&CodeInput { code: &slices, data: &slices, is_absolute: true, ..CodeInput::default() });
    let unknown: Vec<bool> = recipes.iter().map(|recipe| *recipe == Recipe::UNKNOWN).collect();
    let mut written = WrittenCode { procedures: Vec::new(), recipes };
    for procedure in procedures {
        let first = rows.partition_point(|row| row.start < procedure.code.start);
        let after = rows.partition_point(|row| row.start < procedure.code.end);
        let mut rows = rows.get(first..after).unwrap_or(&[]).to_vec();
        // What comes behind the last instruction that is understood is free space, or another's.
        let is_unknown = |row: &Row| unknown.get(usize::from(row.recipe)).copied().unwrap_or(true);
        let mut end = procedure.code.end;
        while let Some(last) = rows.last().filter(|row| is_unknown(row)) {
            end = last.start;
            rows.pop();
        }
        let code = bytes_of(code, start, &(procedure.code.start..end));
        let facts = Facts::of(code, procedure.code.start, &rows, &written.recipes);
        if facts.returns && !facts.returns_otherwise && facts.understood_end.0 > procedure.code.start.0 {
            let code = procedure.code.start..facts.understood_end.min(end);
            written.procedures.push(WrittenProcedure { code, rows, call_ends: facts.call_ends });
        }
    }
    written
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

/// What a procedure's instructions show, read in order.
struct Facts {
    /// It returns, with the return address on top of the stack.
    returns: bool,
    /// It returns with something else there.
    returns_otherwise: bool,
    call_ends: Vec<LinkAddr>,
    /// Where the last return or jump ends: what follows is not run through.
    understood_end: LinkAddr,
}

impl Facts {
    fn of(code: &[u8], start: LinkAddr, rows: &[Row], recipes: &[Recipe]) -> Facts {
        let mut facts =
            Facts { returns: false, returns_otherwise: false, call_ends: Vec::new(), understood_end: start };
        let mut decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                continue;
            }
            let at = LinkAddr(instruction.ip());
            let next = LinkAddr(instruction.next_ip());
            let row = rows.partition_point(|row| row.start <= at).checked_sub(1).and_then(|index| rows.get(index));
            let recipe = row.and_then(|row| recipes.get(usize::from(row.recipe)));
            match (instruction.flow_control(), recipe.map(|recipe| recipe.cfa)) {
                (_, None | Some(Cfa::Unknown)) => continue,
                (FlowControl::Return, Some(Cfa::Register { reg: Reg::RSP, disp: 8 })) => facts.returns = true,
                (FlowControl::Return, Some(_)) => facts.returns_otherwise = true,
                (FlowControl::Call | FlowControl::IndirectCall, Some(_)) => {
                    facts.call_ends.push(LinkAddr(next.0.wrapping_sub(1)));
                    continue;
                }
                (FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Exception, Some(_)) => {}
                _ => continue,
            }
            facts.understood_end = next;
        }
        facts
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
