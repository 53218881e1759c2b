//! Builds the published recipes of a stretch of generated code, from its bytes and their address. It reads no process.

use std::ops::Range;

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::shared::generated::{CheckedProcedure, HEAD_LEN_BYTES, head_bytes};
use callpath_image::identity::ModuleIdentity;
pub use callpath_x86::call_site::LONGEST_CALL_BYTES;
use callpath_x86::call_site::calls_before;
pub use callpath_x86::generated::ahead::{CallersRbp, Return, goes_on_elsewhere, jumped_to, return_ahead, uses_frame};
pub use callpath_x86::generated::within::{Continuation, Dispatch, Exits, JumpOperand, exits};
use callpath_x86::generated::{GeneratedCode, GeneratedProcedure, analyse_generated, is_framed, resumes_by_pointer};
use xxhash_rust::xxh3::xxh3_128;

use super::{Origin, RecipeTableBuilder};

/// The result for a stretch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeneratedBuild {
    /// The block that is published (`callpath_format::shared::generated`).
    pub block: Vec<u8>,
    /// The procedures in it, by address.
    pub procedures: Vec<CheckedProcedure>,
    /// The identity of the stretch's bytes.
    pub identity: ModuleIdentity,
    /// The complete analysis, also around the stretch.
    generated: GeneratedCode,
}

/// Code at most this far apart is analysed together, bytes.
const APART_BYTES: usize = 512;

/// Code of a process.
#[derive(Clone, Copy, Debug)]
pub struct CodeAt<'a> {
    /// Its first address.
    pub start: RunAddr,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Analyses the part `stretch` of `code`. The code around it helps to understand procedures that extend beyond it.
pub fn build_generated(code: CodeAt<'_>, stretch: Range<RunAddr>) -> GeneratedBuild {
    block_of(analyse_generated(code.bytes, code.start.to_link(0)), code, stretch)
}

/// The same for code that was analysed `before`, when its bytes were `then`. Takes time proportional to the changes.
pub fn build_again(before: &GeneratedBuild, then: &[u8], code: CodeAt<'_>, stretch: Range<RunAddr>) -> GeneratedBuild {
    let mut generated = before.generated.clone();
    for changed in changed(then, code.bytes) {
        generated.analyse_again(code.bytes, code.start.to_link(0), changed);
    }
    block_of(generated, code, stretch)
}

/// The ranges of bytes that differ.
fn changed(then: &[u8], now: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (index, block) in now.chunks(64).enumerate() {
        let at = index * 64;
        if then.get(at..at + block.len()) == Some(block) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if at - last.end < APART_BYTES => last.end = at + block.len(),
            _ => ranges.push(at..at + block.len()),
        }
    }
    if then.len() > now.len() {
        ranges.push(now.len()..now.len());
    }
    ranges
}

fn block_of(generated: GeneratedCode, code: CodeAt<'_>, stretch: Range<RunAddr>) -> GeneratedBuild {
    // Keys and recipes of generated code use run-time addresses: its bias is 0.
    let link = |addr: RunAddr| addr.to_link(0);
    let range = link(stretch.start)..link(stretch.end);
    let overlaps = |p: &&GeneratedProcedure| p.code.start < range.end && range.start < p.code.end;
    let mut builder = RecipeTableBuilder::new(vec![range.clone()]);
    let recipes: Vec<_> = generated.recipes.iter().map(|recipe| builder.recipe(recipe, &[])).collect();
    let mut call_ends = vec![0; ((range.end.0 - range.start.0) as usize).div_ceil(8)];
    let mut procedures = Vec::new();
    for procedure in generated.procedures.iter().filter(overlaps) {
        let Some(checked) = checked_procedure(procedure, code) else { continue };
        procedures.push(checked);
        let rows = procedure.rows.iter().filter_map(|row| Some((row.start, *recipes.get(usize::from(row.recipe))?)));
        builder.add(Origin::Code, procedure.code.clone(), rows);
        for end in procedure.call_ends.iter().filter(|end| range.contains(end)) {
            let offset = end.0 - range.start.0;
            call_ends[(offset / 8) as usize] |= 1 << (offset % 8);
        }
    }
    let table = builder.finish().bytes;
    let sections = HEAD_LEN_BYTES + procedures.len() * CheckedProcedure::LEN_BYTES + call_ends.len();
    let table_at = sections.next_multiple_of(8);
    let len = (range.end.0 - range.start.0) as u32;
    let mut block = Vec::with_capacity(table_at + table.len());
    block.extend(head_bytes(stretch.start, len, procedures.len() as u32, table_at as u32));
    block.extend(procedures.iter().flat_map(|checked| checked.to_bytes(stretch.start)));
    block.extend(call_ends);
    block.resize(table_at, 0);
    block.extend(table);
    GeneratedBuild { block, procedures, identity: ModuleIdentity::Content(xxh3_128(code.bytes)), generated }
}

fn checked_procedure(procedure: &GeneratedProcedure, code: CodeAt<'_>) -> Option<CheckedProcedure> {
    let len_bytes = u32::try_from(procedure.code.end.0 - procedure.code.start.0).ok()?;
    if !(CheckedProcedure::LEAST_BYTES..=CheckedProcedure::MOST_BYTES).contains(&len_bytes) {
        return None;
    }
    let checked = CheckedProcedure { start: RunAddr(procedure.code.start.0), len_bytes, mark: 0 };
    let mark = checked.mark_now(|at| word_at(code.bytes, code.start, at))?;
    Some(CheckedProcedure { mark, ..checked })
}

/// The eight bytes at `addr` of code that begins at `start`.
pub fn word_at(code: &[u8], start: RunAddr, addr: u64) -> Option<u64> {
    let offset = usize::try_from(addr.checked_sub(start.0)?).ok()?;
    Some(u64::from_le_bytes(*code.get(offset..)?.first_chunk()?))
}

/// Whether a call may end at `return_address`. `before`: the bytes up to it.
pub fn may_return_to(before: &[u8], return_address: RunAddr) -> bool {
    let calls = calls_before(before, LinkAddr(return_address.0));
    calls.direct.is_some() || calls.dynamic
}

/// The target of the direct call that ends at `return_address`, if the bytes `before` it cannot be another call.
pub fn called_before(before: &[u8], return_address: RunAddr) -> Option<RunAddr> {
    let calls = calls_before(before, LinkAddr(return_address.0));
    calls.direct.filter(|_| !calls.dynamic).map(|target| RunAddr(target.0))
}

/// How far from a register the call that ends where the bytes `before` do finds its target in memory, if that is where.
pub fn called_field(before: &[u8]) -> Option<i64> {
    calls_before(before, LinkAddr(0)).field
}

/// Whether a frame that is returned to at the beginning of `code` continues by its frame pointer alone: such an address
/// need not follow a call.
pub fn goes_on_by_pointer(code: &[u8]) -> bool {
    resumes_by_pointer(code)
}

/// Whether, in `code` that begins at `start`, rbp is a frame pointer at the instruction `at`.
pub fn has_frame_pointer(code: &[u8], start: RunAddr, at: RunAddr) -> bool {
    is_framed(code, start.to_link(0), at.to_link(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_format::recipe::{Cfa, Packed, Rule};
    use callpath_format::register::Reg;
    use callpath_format::shared::generated::GeneratedStretch;

    /// sub $24,%rsp; call *%rdi; add $24,%rsp; ret
    const CODE: [u8; 11] = [0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0xc3];
    const START: RunAddr = RunAddr(0x7f00_0000_0000);

    fn page() -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[1024..1024 + CODE.len()].copy_from_slice(&CODE);
        page
    }

    #[test]
    fn a_block_answers_for_its_procedures() {
        let stretch = RunAddr(START.0 + 512)..RunAddr(START.0 + 2048);
        let build = build_generated(CodeAt { start: START, bytes: &page() }, stretch);
        let generated = GeneratedStretch::new(&build.block).unwrap();
        let at = |offset: u64| RunAddr(START.0 + 1024 + offset);
        assert_eq!(generated.procedure_at(at(0)).map(|p| (p.start, p.len_bytes)), Some((at(0), 11)));
        assert_eq!((generated.procedure_at(RunAddr(at(0).0 - 1)), generated.procedure_at(at(11))), (None, None));
        assert_eq!((0..11).filter(|&o| generated.is_call_end(at(o))).collect::<Vec<_>>(), [5]);
        let table = generated.table().unwrap();
        table.check().unwrap();
        let packed = table.packed(table.find(at(5).to_link(0)).unwrap()).unwrap();
        let mut recipe = callpath_format::recipe::Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 32 });
        // In code without a convention only rbp is followed.
        for reg in Reg::CALLEE_SAVED.into_iter().filter(|reg| *reg != Reg::RBP) {
            recipe.registers[reg.index()] = Rule::Lost;
        }
        let expected = Packed::pack(&recipe).unwrap();
        assert_eq!(packed, Packed { head: expected.head | Packed::INFERRED, ..expected });
    }

    #[test]
    fn a_mark_tells_changed_bytes() {
        let build = build_generated(CodeAt { start: START, bytes: &page() }, START..RunAddr(START.0 + 4096));
        let [checked] = build.procedures[..] else { panic!("{:?}", build.procedures) };
        let mark_of = |code: &[u8]| checked.mark_now(|at| word_at(code, START, at));
        assert_eq!(mark_of(&page()), Some(checked.mark));
        for index in 0..CODE.len() {
            let mut other = page();
            other[1024 + index] ^= 0x10;
            assert_ne!(mark_of(&other), Some(checked.mark), "byte {index}");
        }
        // The code after the procedure does not belong to it.
        let mut other = page();
        other[1024 + CODE.len()] = 0x90;
        assert_eq!(mark_of(&other), Some(checked.mark));
        assert_eq!(mark_of(&page()[..1030]), None);
    }
}
