//! Indirect jumps: their tables and targets, or that they leave the procedure.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use callpath_format::address::LinkAddr;

use crate::graph::{TableEnd, TableEntries};
use crate::tables::Data;

use crate::graph::backward_slice::{BackwardSlices, Source, Table};
use crate::graph::partial::PartialGraph;
use crate::graph::procedure::{Ending, Procedure, RawBlock};
use crate::graph::resolution::Resolution;
use crate::graph::stack_heights::StackHeights;
use crate::graph::steps::StepKind;

/// The most entries of a table.
const MAX_ENTRIES: u64 = 1 << 16;
/// The most entries of a table without a known bound.
const MAX_UNBOUNDED_ENTRIES: u64 = 4096;

/// Resolves each indirect jump that control reaches, by its step.
pub(super) fn resolve(
    procedure: &Procedure<'_, '_>,
    blocks: &[RawBlock],
    budget: &mut usize,
) -> Vec<(usize, Rc<Resolution>)> {
    let is_indirect = |step: usize| procedure.steps.get(step).is_some_and(|s| s.kind == StepKind::JumpIndirect);
    let jumps = (0u32..).zip(blocks).filter_map(|(number, block)| match block.how {
        Ending::Step(step) if is_indirect(step) => Some((number, step)),
        _ => None,
    });
    let ways = PartialGraph::new(procedure, blocks);
    let mut slices = BackwardSlices::new(&ways, *budget);
    let mut stack_heights: Option<StackHeights<'_, PartialGraph<'_, '_, '_, '_>>> = None;
    let mut resolutions = Vec::new();
    // Copies of a jump share their sources.
    let mut known: FxHashMap<Vec<Source>, Rc<Resolution>> = FxHashMap::default();
    for (block, step) in jumps {
        let Some((next, jump)) = slices.last(block) else { continue };
        let flow = procedure.flow;
        let resolution = if jump.beside_code(next).is_some() {
            Rc::new(Resolution::Leaves(flow.code.data.slot_target(&jump, next, &flow.code.code_map)))
        } else {
            let sources = slices.of_jump(block);
            let found = known.entry(sources).or_insert_with_key(|sources| Rc::new(from_sources(procedure, sources)));
            match **found {
                Resolution::Unresolved => {
                    let stack_heights = stack_heights.get_or_insert_with(|| StackHeights::new(&ways));
                    if stack_heights.is_empty_behind(block) {
                        Rc::new(Resolution::Leaves(None))
                    } else {
                        Rc::clone(found)
                    }
                }
                _ => Rc::clone(found),
            }
        };
        resolutions.push((step, resolution));
    }
    *budget = slices.left();
    resolutions
}

fn from_sources(procedure: &Procedure<'_, '_>, sources: &[Source]) -> Resolution {
    let flow = procedure.flow;
    let mut found = TableTargets::default();
    let mut slot = None;
    let mut has_unknown = false;
    let mut entries = Some(Vec::new());
    for source in sources {
        match *source {
            Source::Table(table) => {
                let read = found.read(procedure, table);
                entries = entries.zip(read).map(|(mut entries, read)| {
                    entries.push(read);
                    entries
                });
            }
            Source::Fixed(address) => match flow.code.code_map.position(address) {
                Some(target) if procedure.is_inside(target) => found.targets.push(target),
                target => slot = Some(target),
            },
            Source::Slot(address) => {
                slot = Some(flow.code.data.pointer(address).and_then(|to| flow.code.code_map.position(to)))
            }
            Source::Unknown => has_unknown = true,
        }
        if !matches!(source, Source::Table(_)) {
            entries = None;
        }
    }
    found.targets.sort_unstable();
    found.targets.dedup();
    if !found.targets.is_empty() {
        found.addresses.sort_unstable();
        found.addresses.dedup();
        let end = if found.is_bounded && !has_unknown { TableEnd::Bound } else { TableEnd::Contents };
        return Resolution::Table {
            targets: found.targets,
            addresses: found.addresses,
            end,
            entries: entries.and_then(|all| TableEntries::around(&all)),
            fragment_indices: found.fragment_indices,
        };
    }
    match slot {
        Some(target) if !has_unknown => Resolution::Leaves(target),
        _ if found.has_procedures => Resolution::Leaves(None),
        _ => Resolution::Unresolved,
    }
}

impl Table {
    /// Entries from `first` on.
    fn entries(&self, first: u64, count: u32) -> TableEntries {
        TableEntries {
            first: LinkAddr(first),
            count,
            stride_bytes: u32::try_from(self.index.stride).unwrap_or(1).max(1),
            width_bytes: self.width,
            is_signed: self.is_signed,
            base: self.outer,
        }
    }
}

impl TableEntries {
    /// All entries that some of one table are, and those between; none if they are of different tables.
    fn around(all: &[TableEntries]) -> Option<TableEntries> {
        let lowest = all.iter().min_by_key(|entries| entries.first)?;
        let mut count = 0;
        for entries in all {
            let before = entries.first.0 - lowest.first.0;
            let stride = u64::from(lowest.stride_bytes);
            let same = TableEntries { first: lowest.first, count: lowest.count, ..*entries };
            if same != *lowest || !before.is_multiple_of(stride) {
                return None;
            }
            count = count.max((before / stride).saturating_add(entries.count.into()));
        }
        let count = u32::try_from(count).ok().filter(|&count| u64::from(count) <= MAX_ENTRIES)?;
        Some(TableEntries { count, ..*lowest })
    }

    /// The target of the entry at an address.
    pub(crate) fn target_at(&self, data: &Data<'_>, slot: u64) -> Option<u64> {
        if self.width_bytes == 8 && self.base == 0 {
            return data.pointer(slot);
        }
        let bytes = data.bytes(slot)?;
        let word = match (self.width_bytes, self.is_signed) {
            (1, false) => u64::from(*bytes.first()?),
            (1, true) => i64::from(*bytes.first()? as i8) as u64,
            (2, false) => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            (2, true) => i64::from(i16::from_le_bytes(*bytes.first_chunk()?)) as u64,
            (4, false) => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
            (4, true) => i64::from(i32::from_le_bytes(*bytes.first_chunk()?)) as u64,
            (8, _) => u64::from_le_bytes(*bytes.first_chunk()?),
            _ => return None,
        };
        Some(self.base.wrapping_add(word))
    }
}

/// Whether no procedure begins there, so that no table of procedures leads there.
fn is_start_of_part(procedure: &Procedure<'_, '_>, target: u32) -> bool {
    procedure.flow.fragment_at(target).is_some_and(|fragment| fragment.is_part && fragment.start == target)
}

/// The targets of tables.
struct TableTargets {
    targets: Vec<u32>,
    addresses: Vec<u64>,
    /// Indices of the module's code fragments among the targets that begin no procedure.
    fragment_indices: Vec<u32>,
    is_bounded: bool,
    has_procedures: bool,
}

impl Default for TableTargets {
    fn default() -> TableTargets {
        TableTargets {
            targets: Vec::new(),
            addresses: Vec::new(),
            fragment_indices: Vec::new(),
            is_bounded: true,
            has_procedures: false,
        }
    }
}

impl TableTargets {
    /// Notes the targets of a table. Returns what is read of it, if that is known for sure.
    fn read(&mut self, procedure: &Procedure<'_, '_>, table: Table) -> Option<TableEntries> {
        let flow = procedure.flow;
        let stride = u64::try_from(table.index.stride).ok()?.max(1);
        // If the index is bounded, entries are counted from the entry of index 0.
        let skipped = table.begin.wrapping_sub(table.address);
        let skipped = if skipped.is_multiple_of(stride) { skipped / stride } else { 0 };
        let highest = table.index.highest.map(u64::from).filter(|&highest| highest >= skipped);
        let is_checked = table.index.is_checked && highest.is_some();
        let (begin, mut entries) = match highest {
            Some(highest) if is_checked => (table.begin, highest - skipped + 1),
            // A narrow index without a shift.
            Some(highest) if skipped == 0 => (table.address, highest + 1),
            _ => (table.begin, MAX_UNBOUNDED_ENTRIES),
        };
        let of_all = entries;
        entries = entries.min(MAX_ENTRIES);
        if !is_checked {
            // The table ends where code refers to other data.
            let references = &flow.code.sweep.data_references;
            let next = references.get(references.partition_point(|&address| address <= begin));
            entries = entries.min(next.map_or(u64::MAX, |next| (next - begin).div_ceil(stride)));
        }
        let before = self.targets.len();
        let mut read = 0;
        let form = table.entries(begin, 0);
        for index in 0..entries {
            let slot = begin.wrapping_add(stride.wrapping_mul(index));
            let target = form.target_at(&flow.code.data, slot).and_then(|target| flow.code.code_map.position(target));
            match target {
                Some(target) if target != procedure.entry && self.is_credible(procedure, target) => {
                    self.targets.push(target);
                }
                // Impossible cases lead anywhere.
                target if is_checked => self.note_procedure(procedure, target),
                // Impossible cases have no code of their own: a jump of another procedure may have the same target.
                Some(target) if is_start_of_part(procedure, target) => {}
                target => {
                    self.note_procedure(procedure, target);
                    break;
                }
            }
            read += 1;
        }
        // A narrow index with an entry for each of its values: the table is complete.
        let is_bounded = is_checked || (highest.is_some() && read == of_all);
        if self.targets.len() > before {
            self.addresses.push(begin);
            self.is_bounded &= is_bounded;
        }
        let fits = u64::from(form.stride_bytes) == stride && entries == of_all;
        let count = u32::try_from(entries).ok().filter(|_| is_bounded && fits && !table.index.is_signed)?;
        Some(table.entries(begin, count))
    }

    fn note_procedure(&mut self, procedure: &Procedure<'_, '_>, target: Option<u32>) {
        let fragment = target.and_then(|target| procedure.flow.fragment_at(target));
        self.has_procedures |= fragment.is_some_and(|fragment| Some(fragment.start) == target && fragment.is_entry);
    }

    /// Whether a case of this procedure may begin there.
    fn is_credible(&mut self, procedure: &Procedure<'_, '_>, target: u32) -> bool {
        let flow = procedure.flow;
        if !flow.code.sweep.boundaries.get(target) {
            return false;
        }
        if procedure.is_inside(target) {
            return true;
        }
        let Some(index) = flow.fragment_index_at(target).filter(|&index| flow.is_orphan(index)) else {
            return false;
        };
        if !self.fragment_indices.contains(&index) {
            self.fragment_indices.push(index);
        }
        true
    }
}
