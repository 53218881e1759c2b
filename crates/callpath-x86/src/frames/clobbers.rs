//! How a procedure of this module deviates from the ABI: which caller-saved registers it preserves, and how many bytes
//! it pops besides its return address. It is asked about few procedures, before graphs exist, so it examines the code
//! itself; `liveness.rs` has summaries of all procedures.
//!
//! Hand-written code keeps the caller's stack pointer in rax or r11 across calls of its own subroutines, and gcc
//! (`-fipa-ra`) relies on what it knows of local procedures.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::code_map::{CodeMap, NOWHERE};
use crate::decode::{Flow, Instructions};
use crate::worklist::Search;

/// A procedure with more instructions, its callees included, is assumed to write all registers.
const MAX_INSTRUCTIONS: u32 = 1024;
const ALL: u16 = u16::MAX;

/// Results so far: for each procedure, a bit for every register that it writes.
#[derive(Default)]
pub(crate) struct Clobbers {
    written: FxHashMap<u32, u16>,
    popped: FxHashMap<u32, u16>,
}

impl Clobbers {
    /// Whether the procedure at `start` preserves `register`.
    pub(crate) fn preserves(&mut self, code_map: &CodeMap<'_>, start: u32, register: usize) -> bool {
        let written = *self.written.entry(start).or_insert_with(|| written_by(code_map, start));
        written >> register & 1 == 0
    }

    /// How many bytes of arguments the procedure at `start` pops when it returns.
    pub(crate) fn popped_by(&mut self, code_map: &CodeMap<'_>, start: u32) -> u16 {
        *self.popped.entry(start).or_insert_with(|| popped_by(code_map, start).unwrap_or(0))
    }
}

/// `None`: unknown.
fn popped_by(code_map: &CodeMap<'_>, start: u32) -> Option<u16> {
    let mut popped = None;
    let mut left = MAX_INSTRUCTIONS;
    let mut search = Search::<FxHashSet<u32>>::default();
    search.add(start);
    while let Some(block) = search.next() {
        let mut instructions = Instructions::new(code_map, block)?;
        loop {
            left = left.checked_sub(1)?;
            let instruction = instructions.read()?;
            match instructions.flow_of(&instruction, code_map) {
                Flow::Branch(target) => search.add(target),
                Flow::Jump(target) => {
                    search.add(target);
                    break;
                }
                Flow::JumpIndirect | Flow::Stop => break,
                Flow::Return => {
                    let bytes = instruction.immediate().unwrap_or(0) as u16;
                    if popped.is_some_and(|known| known != bytes) {
                        return None;
                    }
                    popped = Some(bytes);
                    break;
                }
                Flow::Next | Flow::Call(_) | Flow::CallIndirect => {}
            }
        }
    }
    popped
}

fn written_by(code_map: &CodeMap<'_>, start: u32) -> u16 {
    let mut written = 0;
    let mut left = MAX_INSTRUCTIONS;
    let mut search = Search::<FxHashSet<u32>>::default();
    search.add(start);
    while let Some(block) = search.next() {
        if block == NOWHERE {
            return ALL;
        }
        let Some(mut instructions) = Instructions::new(code_map, block) else { return ALL };
        loop {
            let Some(instruction) = instructions.read().filter(|_| left > 0) else { return ALL };
            left -= 1;
            written |= instruction.writes().general_bits();
            match instructions.flow_of(&instruction, code_map) {
                Flow::Next => continue,
                Flow::Branch(target) | Flow::Call(target) => search.add(target),
                Flow::Jump(target) => {
                    search.add(target);
                    break;
                }
                Flow::CallIndirect | Flow::JumpIndirect => return ALL,
                Flow::Return | Flow::Stop => break,
            }
        }
    }
    written
}
