//! Jump tables of a copy: a jump through one arrives in the copy, and not first at home.
//!
//! ```text
//! home                                      copy
//! movsxd rax, [rdx + 4 * rcx]               movsxd rax, [rdx + 4 * rcx + (copied table - table)]
//! add rax, rdx                              add rax, rdx
//! jmp rax                                   jmp rax
//! table: distances from it to cases         copied table: distances from the old one to the cases' copies
//! ```
//!
//! Only the displacement of the instruction that reads the table changes, and what it reads, which nothing but the jump may see.

use std::collections::BTreeMap;

use callpath_format::address::LinkAddr;

use super::body::{Body, Step};
use super::refusal::{Reason, Refusal};
use crate::encoding;
use crate::graph::{TableEntries, Terminator};
use crate::instruction::motion::{LongDisplacement, with_long_displacement};
use crate::instruction::{self, Control, Operation, Register};
use crate::state::CALL_CLOBBERED;
use crate::tables::Data;

/// How many instructions are looked at, of those behind its jumps, for each instruction of a procedure.
const LOOKED_AT: usize = 16;

/// Tables of a procedure that are copied, by the address of the instruction that reads them.
#[derive(Default)]
pub(super) struct CopiedTables {
    by_read: BTreeMap<u64, CopiedTable>,
    /// Run-time address minus link-time address, which entries that are addresses need.
    bias: u64,
}

/// A table that is copied.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CopiedTable {
    jump: u64,
    entries: TableEntries,
    /// Where the entries lead to at home.
    targets: Vec<u64>,
}

/// An instruction of a copy that reads a copied table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableRead {
    /// The instruction at home.
    pub(super) at: u64,
    /// Where its displacement is, an offset in the copy.
    pub(super) displacement_at: u32,
    /// What it is at home.
    pub(super) displacement: i32,
}

impl CopiedTables {
    /// Those that can be copied. `bias`: see [`super::Plan::let_copy_call`].
    pub(super) fn new(body: &Body<'_, '_>, data: &Data<'_>, bias: Option<u64>) -> CopiedTables {
        let bias = if data.is_absolute { Some(0) } else { bias };
        // What all of them may take together: a copy is not much larger than its original.
        let mut room = 2 * body.graph.blocks.iter().map(|block| block.code.end.0 - block.code.start.0).sum::<u64>();
        let mut budget = LOOKED_AT * body.steps.len();
        let mut by_read: BTreeMap<u64, Option<CopiedTable>> = BTreeMap::new();
        let mut known: Vec<TableEntries> = Vec::new();
        for (number, block) in (0u32..).zip(&body.graph.blocks) {
            let Terminator::Switch(table) = block.terminator else { continue };
            let Some(table) = body.graph.tables.get(table as usize) else { continue };
            let is_constant = |entries: &TableEntries| data.is_constant(entries.first, len_bytes(entries));
            let entries = table.entries.filter(is_constant).filter(|entries| match entries.width_bytes {
                4 => entries.is_signed,
                8 => entries.base == 0 && bias.is_some(),
                _ => false,
            });
            let read = entries.and_then(|entries| reading(body, number, &entries, &mut budget));
            let Some((entries, read)) = entries.zip(read) else { continue };
            let copied = Some(entries).filter(|entries| {
                let bytes = len_bytes(entries);
                let is_known = known.contains(entries);
                if !is_known && bytes <= room {
                    known.push(*entries);
                    room -= bytes;
                }
                is_known || known.contains(entries)
            });
            let copied = copied.and_then(|entries| {
                let slot = |index: u32| entries.first.0.wrapping_add(offset(&entries, index));
                let targets: Option<Vec<u64>> =
                    (0..entries.count).map(|index| entries.target_at(data, slot(index))).collect();
                Some(CopiedTable { jump: table.jump.0, entries, targets: targets? })
            });
            // An instruction that stands in several blocks reads one table.
            by_read
                .entry(read)
                .and_modify(|known| *known = known.take().filter(|known| Some(known) == copied.as_ref()))
                .or_insert(copied);
        }
        let by_read = by_read.into_iter().filter_map(|(read, table)| Some((read, table?))).collect();
        CopiedTables { by_read, bias: bias.unwrap_or(0) }
    }

    /// If an instruction reads a copied table: that instruction, with room for another displacement.
    pub(super) fn read_by(&self, step: &Step<'_>) -> Option<LongDisplacement> {
        self.by_read.get(&step.at).and_then(|_| with_long_displacement(step.bytes))
    }

    /// Writes the tables behind a copy's code, and the displacements of the instructions that read them. `at`: where the copy is to
    /// lie. `copy_of`: where an instruction has its copy.
    ///
    /// # Errors
    /// [`Reason::TooFar`].
    pub(super) fn write(
        &self,
        (at, code): (LinkAddr, &mut Vec<u8>),
        reads: &[TableRead],
        copy_of: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), Refusal> {
        let mut places: Vec<(TableEntries, u64)> = Vec::new();
        for read in reads {
            let too_far = Refusal { at: LinkAddr(read.at), reason: Reason::TooFar };
            let Some(CopiedTable { entries, targets, .. }) = self.by_read.get(&read.at) else { continue };
            let place = match places.iter().find(|place| place.0 == *entries) {
                Some(place) => place.1,
                None => {
                    let start = code.len().next_multiple_of(size_of::<u64>());
                    code.resize(start + len_bytes(entries) as usize, encoding::INT3);
                    for (index, &target) in (0..).zip(targets) {
                        let target = copy_of(target).unwrap_or(target);
                        let word = match entries.width_bytes {
                            4 => {
                                let distance = target.wrapping_sub(entries.base) as i64;
                                i32::try_from(distance).map_err(|_| too_far)?.to_le_bytes().to_vec()
                            }
                            _ => target.wrapping_add(self.bias).to_le_bytes().to_vec(),
                        };
                        let from = start + offset(entries, index) as usize;
                        code.get_mut(from..from + word.len()).ok_or(too_far)?.copy_from_slice(&word);
                    }
                    let place = at.0.wrapping_add(start as u64);
                    places.push((*entries, place));
                    place
                }
            };
            let by = place.wrapping_sub(entries.first.0) as i64;
            let displacement = by.checked_add(read.displacement.into()).and_then(|by| i32::try_from(by).ok());
            let displacement = displacement.ok_or(too_far)?.to_le_bytes();
            let from = read.displacement_at as usize;
            code.get_mut(from..from + displacement.len()).ok_or(too_far)?.copy_from_slice(&displacement);
        }
        Ok(())
    }
}

/// Where an entry begins behind the first one, bytes.
fn offset(entries: &TableEntries, index: u32) -> u64 {
    u64::from(index) * u64::from(entries.stride_bytes)
}

fn len_bytes(entries: &TableEntries) -> u64 {
    offset(entries, entries.count.saturating_sub(1)) + u64::from(entries.width_bytes)
}

/// The instruction of a block that reads the entry of a table where the block jumps to, if nothing but that jump, and an addition
/// before it, sees what it reads.
fn reading(body: &Body<'_, '_>, block: u32, entries: &TableEntries, budget: &mut usize) -> Option<u64> {
    let (jump, before) = body.steps_of(block as usize)?.split_last()?;
    let reads = |step: &Step<'_>| {
        let memory = step.instruction.memory().filter(|memory| memory.index != Register::NONE && !memory.has_segment);
        let fits = memory.is_some_and(|memory| memory.bytes == u16::from(entries.width_bytes));
        (fits && with_long_displacement(step.bytes).is_some()).then_some(step.at)
    };
    if jump.instruction.control() != Control::JumpIndirect {
        return None;
    }
    if jump.instruction.has_memory() {
        return reads(jump);
    }
    // Addresses are read as they are, distances are added to one.
    let operation = if entries.width_bytes == 8 { Operation::Move } else { Operation::SignExtend };
    let target = jump.instruction.register(0).general()?;
    let (mut seen, mut flags, mut read) = (1u16 << target, instruction::Flags(0), 0);
    for step in before.iter().rev() {
        let instruction = &step.instruction;
        if flags.0 == 0 {
            read |= instruction.flags_read().0;
        }
        let writes = instruction.writes().general_bits();
        if (instruction.reads().general_bits() | writes) & seen == 0 {
            continue;
        }
        let [to, from] = [0, 1].map(|number| instruction.register(number));
        let is_whole = to.general_bytes() == 8 && writes & seen != 0;
        if instruction.operation() == operation && instruction.has_memory() && is_whole {
            let is_known = (entries.width_bytes == 4) == (seen.count_ones() == 2);
            let changed = (seen & writes | 1 << target, flags);
            return reads(step).filter(|_| is_known && !is_seen(body, (block, changed), entries, budget));
        }
        let is_sum = instruction.operation() == Operation::Add && is_whole && to.general() == Some(target);
        let other = from.general().filter(|&from| is_sum && from != target && seen.count_ones() == 1)?;
        (seen, flags) = (seen | 1 << other, instruction.flags_written());
        if flags.0 & read != 0 {
            return None;
        }
    }
    None
}

/// Whether an instruction of the procedure reads a register or flag, of those that a jump at the end of a block leaves changed. What
/// leaves the procedure, and calls, count only where a program has whole addresses in its table, which it may pass on: no caller or callee
/// has a use for the address of a case.
fn is_seen(
    body: &Body<'_, '_>,
    (block, changed): (u32, (u16, instruction::Flags)),
    entries: &TableEntries,
    budget: &mut usize,
) -> bool {
    let mut known: BTreeMap<u32, (u16, instruction::Flags)> = BTreeMap::new();
    let mut pending: Vec<_> = body.graph.successors(block).iter().map(|&next| (next, changed)).collect();
    while let Some((block, (mut registers, mut flags))) = pending.pop() {
        let before = known.entry(block).or_insert((0, instruction::Flags(0)));
        let all = (before.0 | registers, instruction::Flags(before.1.0 | flags.0));
        if std::mem::replace(before, all) == all {
            continue;
        }
        for step in body.steps_of(block as usize).unwrap_or(&[]) {
            let instruction = &step.instruction;
            if *budget == 0
                || instruction.reads().general_bits() & registers != 0
                || instruction.flags_read().0 & flags.0 != 0
            {
                return true;
            }
            *budget -= 1;
            let stays = matches!(instruction.control(), Control::Next | Control::Branch | Control::Jump);
            if registers != 0 && entries.width_bytes == 8 && !stays {
                return true;
            }
            registers &= !instruction.replaces().general_bits();
            flags.0 &= !instruction.flags_replaced().0;
            if matches!(instruction.control(), Control::Call | Control::CallIndirect) {
                // What is there afterwards is the callee's.
                CALL_CLOBBERED.iter().for_each(|register| registers &= !(1 << register));
                flags.0 = 0;
            }
            if (registers, flags.0) == (0, 0) {
                break;
            }
        }
        if (registers, flags.0) != (0, 0) {
            pending.extend(body.graph.successors(block).iter().map(|&next| (next, (registers, flags))));
        }
    }
    false
}
