//! Finds subroutines inside one procedure of call frame information that are entered by direct calls. Interpreters
//! written in assembly have one description for all of their code, which ignores such calls.
//!
//! At a call's target the CFA is always rsp + 8. From there the stack pointer is followed. Code that leads to a `ret`
//! with rsp at its first value belongs to the subroutine: the return address must be where the stack height shows, or
//! the `ret` would fail. Not recognised are subroutines that pop or overwrite their return address, or change rsp by a
//! variable.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bitmap::Bitmap;
use crate::code_map::{CodeMap, NOWHERE};
use crate::decode::{Flow, Instructions};
use crate::encoding::calls;
use crate::instruction::{Control, Instruction, Operation, Register};

/// `CFA = rsp + disp` from an address on, up to the next row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The first address.
    pub start: LinkAddr,
    /// The offset, bytes; `None` where the CFA has another form or is unknown.
    pub disp: Option<i32>,
}

/// The call frame information of a module, and its code.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Bytes of instructions.
    pub code: &'a [(LinkAddr, &'a [u8])],
    /// By address; the last one only ends the one before.
    pub rows: &'a [Row],
    /// The procedures of the call frame information: by address, disjoint.
    pub procedures: &'a [Range<LinkAddr>],
}

/// A subroutine whose rows are wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subroutine {
    /// The address that is called.
    pub entry: LinkAddr,
    /// The index of the procedure that it is described as a part of.
    pub procedure: usize,
    /// Its instructions where the CFA is not where the rows say: by address, disjoint.
    pub contradicted: Vec<Range<LinkAddr>>,
}

/// The most instructions of one subroutine that are followed.
const MAX_INSTRUCTIONS: usize = 4096;

/// The subroutines whose instructions contradict the rows, by address.
pub fn subroutines(input: &Input<'_>) -> Vec<Subroutine> {
    let (code_map, _) = CodeMap::new(input.code);
    let mut described = Described { input, code_map, budget: 0 };
    described.budget = described.code_map.len() as usize;
    let sites = described.sites();
    if sites.is_empty() {
        return Vec::new();
    }
    let calls: Vec<u32> = sites.iter().map(|(site, _)| *site).collect();
    let real = described.boundaries(&calls, true);
    let mut targets: Vec<u32> =
        sites.iter().filter(|(site, _)| real.contains(site)).map(|(_, target)| *target).collect();
    targets.sort_unstable();
    targets.dedup();
    let real = described.boundaries(&targets, false);
    targets.into_iter().filter(|at| real.contains(at)).filter_map(|at| described.subroutine(at)).collect()
}

struct Described<'a> {
    input: &'a Input<'a>,
    code_map: CodeMap<'a>,
    /// How many more instructions may be decoded.
    budget: usize,
}

impl Described<'_> {
    /// Candidates for calls and their targets, where the rows contradict a CFA of rsp + 8. Searches bytes.
    fn sites(&self) -> Vec<(u32, u32)> {
        let mut denied = Bitmap::new(self.code_map.len());
        let mut denied_from = None;
        for row in self.input.rows {
            let is_denied = row.disp.is_some_and(|disp| disp != 8);
            match denied_from {
                None if is_denied => denied_from = Some(row.start),
                Some(from) if !is_denied => {
                    for range in self.code_map.positions(&(from..row.start)) {
                        denied.insert_range(range.start, range.end);
                    }
                    denied_from = None;
                }
                _ => {}
            }
        }
        let mut sites = Vec::new();
        for part in self.code_map.parts() {
            for call in calls(part.bytes) {
                if call.distance != 0
                    && let Some(target) = self.code_map.position(call.address(part.start.0))
                    && denied.get(target)
                    && self.procedure_of(target).is_some_and(|(_, range)| range.start < target)
                {
                    sites.push((part.first + call.at as u32, target));
                }
            }
        }
        sites
    }

    /// The procedure that contains a position: its index and its range.
    fn procedure_of(&self, at: u32) -> Option<(usize, Range<u32>)> {
        let addr = self.code_map.address(at);
        let index = self.input.procedures.partition_point(|procedure| procedure.end <= addr);
        let procedure = self.input.procedures.get(index).filter(|procedure| procedure.contains(&addr))?;
        let range = self.code_map.positions(procedure).into_iter().find(|range| range.contains(&at))?;
        (self.code_map.address(range.start) == procedure.start).then_some((index, range))
    }

    /// The `positions` (ascending) at which instructions begin, if their procedures are decoded from the start; if
    /// `are_calls`, only calls.
    fn boundaries(&self, positions: &[u32], are_calls: bool) -> FxHashSet<u32> {
        let mut found = FxHashSet::default();
        let mut rest = positions;
        while let Some(first) = rest.first() {
            let Some((_, range)) = self.procedure_of(*first) else {
                rest = &rest[1..];
                continue;
            };
            let (here, others) = rest.split_at(rest.partition_point(|at| *at < range.end));
            rest = others;
            let (Some(mut instructions), Some(last)) = (Instructions::new(&self.code_map, range.start), here.last())
            else {
                continue;
            };
            let mut wanted = here;
            while instructions.position() <= *last {
                let at = instructions.position();
                let Some(instruction) = instructions.read() else {
                    // Data: the next byte may begin an instruction.
                    if !instructions.seek(at + 1) {
                        break;
                    }
                    continue;
                };
                wanted = &wanted[wanted.partition_point(|position| *position < at)..];
                if wanted.first() == Some(&at) && (!are_calls || instruction.control() == Control::Call) {
                    found.insert(at);
                }
            }
        }
        found
    }

    /// The subroutine that begins at `entry`, if there is one and the rows are wrong in it.
    fn subroutine(&mut self, entry: u32) -> Option<Subroutine> {
        let (procedure, range) = self.procedure_of(entry)?;
        // For each instruction: how far rsp is below its value at the entry, and the instruction's length.
        let mut seen: FxHashMap<u32, (i32, u32)> = FxHashMap::default();
        let mut came_from: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        let mut returns = Vec::new();
        let mut pending = vec![(entry, 0)];
        let mut instructions = Instructions::new(&self.code_map, entry)?;
        while let Some((at, height)) = pending.pop() {
            if let Some((known, _)) = seen.get(&at) {
                if *known != height {
                    return None;
                }
                continue;
            }
            self.budget = self.budget.checked_sub(1)?;
            if seen.len() >= MAX_INSTRUCTIONS {
                return None;
            }
            if !instructions.seek(at) {
                continue;
            }
            let Some(instruction) = instructions.read() else { continue };
            let next = instructions.position();
            seen.insert(at, (height, next - at));
            if writes_return_address(&instruction, height) {
                return None;
            }
            let flow = instructions.flow_of(&instruction, &self.code_map);
            let (ways, after) = match flow {
                Flow::Return => {
                    if height == 0 && instruction.operation() == Operation::Return {
                        returns.push(at);
                    }
                    continue;
                }
                Flow::Next => match instruction.stack_growth() {
                    Some(grown) => ([next, NOWHERE], height.saturating_add(grown)),
                    None => continue,
                },
                Flow::Branch(target) => ([next, target], height),
                Flow::Jump(target) => ([target, NOWHERE], height),
                Flow::Call(_) | Flow::CallIndirect => ([next, NOWHERE], height),
                Flow::JumpIndirect | Flow::Stop => continue,
            };
            if after < 0 {
                continue;
            }
            for way in ways.into_iter().filter(|way| range.contains(way)) {
                came_from.entry(way).or_default().push(at);
                pending.push((way, after));
            }
        }
        let mut returning: FxHashSet<u32> = returns.iter().copied().collect();
        while let Some(at) = returns.pop() {
            let before = came_from.get(&at).map_or(&[][..], Vec::as_slice);
            returns.extend(before.iter().filter(|before| returning.insert(**before)));
        }
        if !returning.contains(&entry) {
            return None;
        }
        let mut contradicted: Vec<Range<LinkAddr>> = Vec::new();
        let mut sorted: Vec<u32> = returning.into_iter().collect();
        sorted.sort_unstable();
        for at in sorted {
            let Some((height, len)) = seen.get(&at) else { continue };
            let addr = self.code_map.address(at);
            if self.disp_at(addr).is_none_or(|disp| disp == height.saturating_add(8)) {
                continue;
            }
            let end = LinkAddr(addr.0 + u64::from(*len));
            match contradicted.last_mut() {
                Some(last) if last.end == addr => last.end = end,
                _ => contradicted.push(addr..end),
            }
        }
        (!contradicted.is_empty()).then(|| Subroutine { entry: self.code_map.address(entry), procedure, contradicted })
    }

    fn disp_at(&self, addr: LinkAddr) -> Option<i32> {
        let index = self.input.rows.partition_point(|row| row.start <= addr).checked_sub(1)?;
        self.input.rows.get(index)?.disp
    }
}

/// Whether the instruction may change the word that rsp pointed to at the entry, `height` bytes below it.
fn writes_return_address(instruction: &Instruction, height: i32) -> bool {
    let is_there = instruction
        .memory()
        .is_some_and(|memory| memory.is_only(Register::RSP) && memory.displacement == i64::from(height));
    // Code that reads it, other than to return, makes assumptions that are not known here.
    is_there && instruction.operation() != Operation::Nop
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    fn found(bytes: &[u8], disp: i32) -> Vec<(u64, Vec<(u64, u64)>)> {
        let end = LinkAddr(START + bytes.len() as u64);
        let subroutines = subroutines(&Input {
            code: &[(LinkAddr(START), bytes)],
            rows: &[Row { start: LinkAddr(START), disp: Some(disp) }, Row { start: end, disp: None }],
            procedures: &[LinkAddr(START)..end],
        });
        let plain = |range: &Range<LinkAddr>| (range.start.0 - START, range.end.0 - START);
        subroutines.iter().map(|s| (s.entry.0 - START, s.contradicted.iter().map(plain).collect())).collect()
    }

    /// A `call` of the code after the jump that follows it.
    fn called(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xe8, 2, 0, 0, 0, 0xff, 0xe0]; // call body; jmp *%rax
        bytes.extend(body);
        bytes
    }

    #[test]
    fn leaf_that_the_rows_deny() {
        // nop; je 1f; ret; 1: inc %eax; ret; then code that is not called
        let bytes = called(&[0x90, 0x74, 1, 0xc3, 0xff, 0xc0, 0xc3, 0x90, 0xff, 0xe0]);
        assert_eq!(found(&bytes, 80), [(7, vec![(7, 14)])]);
        assert_eq!(found(&bytes, 8), []);
    }

    #[test]
    fn only_where_the_height_differs_and_only_what_returns() {
        // push %rbx; je 1f; pop %rbx; ret; 1: jmp *%rax. Behind the push the rows are right.
        let bytes = called(&[0x53, 0x74, 2, 0x5b, 0xc3, 0xff, 0xe0]);
        assert_eq!(found(&bytes, 16), [(7, vec![(7, 8), (11, 12)])]);
    }

    #[test]
    fn left_alone() {
        // pop %rbp; push %rbp; ret
        assert_eq!(found(&called(&[0x5d, 0x55, 0xc3]), 80), []);
        // A retpoline's: mov %rax,(%rsp); ret
        assert_eq!(found(&called(&[0x48, 0x89, 0x04, 0x24, 0xc3]), 80), []);
        // add $72,%rsp; ret: the end of the procedure, not of a subroutine
        assert_eq!(found(&called(&[0x48, 0x83, 0xc4, 72, 0xc3]), 80), []);
        // mov %rbp,%rsp; ret
        assert_eq!(found(&called(&[0x48, 0x89, 0xec, 0xc3]), 80), []);
        // Two paths with different heights to one instruction: je 1f; push %rbx; 1: ret
        assert_eq!(found(&called(&[0x74, 1, 0x53, 0xc3]), 80), []);
        // jmp *%rax
        assert_eq!(found(&called(&[0xff, 0xe0]), 80), []);
        // call of the next instruction; ret
        assert_eq!(found(&[0xe8, 0, 0, 0, 0, 0xc3], 80), []);
        // The call is another instruction's immediate: mov $0x2e8,%eax; add %al,(%rax); nop; ret
        assert_eq!(found(&[0xb8, 0xe8, 2, 0, 0, 0, 0x00, 0x90, 0xc3], 80), []);
    }
}
