//! What machine code says of frames, where call frame information is silent.
//! Knows nothing of instructions: it brings an image's bytes and hints together, and the answer into the table.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;
use callpath_format::table::Table;
use callpath_image::cfi::CallFrames;
use callpath_image::elf::{Image, ImageKind};
use callpath_image::loading::{Loading, procedure_starts};
use callpath_x86::analysis::{Claim, CodeAnalysis, analyse, judge};
pub use callpath_x86::claims::Verdict;
use callpath_x86::input::CodeInput;
use xxhash_rust::xxh3::Xxh3;

use super::{Origin, RecipeOptions, RecipeTableBuilder, build_table, code_of};

/// Procedures of other modules that never return, by the names that C's and C++'s libraries give them.
const NO_RETURN: &[&str] = &[
    "_Exit",
    "_Unwind_Resume",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_call_terminate",
    "__cxa_call_unexpected",
    "__cxa_deleted_virtual",
    "__cxa_pure_virtual",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_length",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_start_main",
    "__longjmp_chk",
    "__stack_chk_fail",
    "_exit",
    "_longjmp",
    "abort",
    "err",
    "errx",
    "exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "siglongjmp",
    "thrd_exit",
    "verr",
    "verrx",
];

fn is_no_return(name: &str) -> bool {
    // std::terminate(), std::__throw_*()
    name == "_ZSt9terminatev"
        || NO_RETURN.binary_search(&name).is_ok()
        || name
            .strip_prefix("_ZSt")
            .is_some_and(|rest| rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).starts_with("__throw_"))
}

/// Adds what the code of `image` says where `frames` say nothing.
pub(super) fn add(
    builder: &mut RecipeTableBuilder,
    image: &Image,
    code: &[Range<LinkAddr>],
    frames: &CallFrames,
    options: &RecipeOptions,
) {
    let known: Vec<_> = frames.ranges.iter().map(|range| range.code.clone()).collect();
    let analysis = analysis_of(image, code, &known, options.call_frames);
    let recipes: Vec<_> = analysis.recipes.iter().map(|recipe| builder.recipe(recipe, &[])).collect();
    for range in code {
        let first = analysis.rows.partition_point(|row| row.start < range.start);
        let after = analysis.rows.partition_point(|row| row.start < range.end);
        let rows = analysis.rows.get(first..after).unwrap_or(&[]);
        let rows = rows.iter().filter_map(|row| Some((row.start, *recipes.get(usize::from(row.recipe))?)));
        builder.add(Origin::Code, range.clone(), rows);
    }
}

/// Adds to `hash` all that an analysis looks at besides the code: data, relocations, symbols.
pub(crate) fn identify(image: &Image, local: bool, hash: &mut Xxh3) {
    let mut numbers = Vec::new();
    let Loading { pointers, symbols, called } = Loading::of(image);
    for (slot, to) in pointers {
        numbers.extend([slot.0, to.0]);
    }
    numbers.push(u64::MAX);
    numbers.extend(symbols.iter().filter(|(_, name)| is_no_return(name)).map(|(slot, _)| slot.0));
    numbers.push(u64::MAX);
    numbers.extend(procedure_starts(image, local).iter().chain(&called).map(|start| start.0));
    numbers.extend(image.instruction_ranges().iter().flat_map(|range| [range.start.0, range.end.0]));
    numbers.push(u64::from(image.kind() == ImageKind::Executable));
    for number in numbers {
        hash.update(&number.to_le_bytes());
    }
    for segment in image.segments().iter().filter(|segment| segment.readable && !segment.executable) {
        let bytes = image.bytes_from(segment.vaddr).unwrap_or(&[]);
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
}

/// What the machine code in `code` says, but for what is `known`; with `local`, local symbols are believed.
pub(super) fn analysis_of(
    image: &Image,
    code: &[Range<LinkAddr>],
    known: &[Range<LinkAddr>],
    local: bool,
) -> CodeAnalysis {
    with_input(image, code, known, local, analyse)
}

/// Calls `then` with what there is to analyse.
fn with_input<T>(
    image: &Image,
    code: &[Range<LinkAddr>],
    known: &[Range<LinkAddr>],
    local: bool,
    then: impl FnOnce(&CodeInput<'_>) -> T,
) -> T {
    let loading = Loading::of(image);
    let mut starts = procedure_starts(image, local);
    starts.extend(&loading.called);
    let no_return_slots: Vec<LinkAddr> =
        loading.symbols.iter().filter(|(_, name)| is_no_return(name)).map(|(slot, _)| *slot).collect();
    let bytes_of = |range: &Range<LinkAddr>| {
        let len = usize::try_from(range.end.0 - range.start.0).ok()?;
        let bytes = image.bytes_from(range.start)?;
        Some((range.start, bytes.get(..len.min(bytes.len()))?))
    };
    let segments = image.segments().iter().filter(|segment| segment.readable);
    let is_covered = |range: &Range<LinkAddr>| code.iter().any(|c| c.start <= range.start && range.end <= c.end);
    let code: Vec<_> = image.instruction_ranges().iter().filter(|r| is_covered(r)).filter_map(bytes_of).collect();
    let data: Vec<_> = segments.filter_map(|segment| Some((segment.vaddr, image.bytes_from(segment.vaddr)?))).collect();
    then(&CodeInput {
        code: &code,
        data: &data,
        pointers: &loading.pointers,
        is_absolute: image.kind() == ImageKind::Executable,
        entry: Some(image.entry()).filter(|entry| entry.0 != 0),
        starts: &starts,
        known,
        no_return_slots: &no_return_slots,
    })
}

/// Call frame information and the machine code say different things of an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The instruction.
    pub address: LinkAddr,
    /// In what.
    pub verdict: Verdict,
    /// What call frame information says.
    pub call_frames: Recipe,
    /// What the code says.
    pub machine_code: Recipe,
}

/// Calls `each` with every instruction that call frame information speaks of, and how the code, looked at alone, stands
/// to that.
pub fn compare(image: &Image, mut each: impl FnMut(Disagreement)) {
    let (code, _) = code_of(image);
    let options = RecipeOptions { machine_code: false, ..RecipeOptions::default() };
    let build = build_table(image, &options);
    let Ok(table) = Table::new(&build.bytes) else { return };
    let mut claims: Vec<Claim> = Vec::new();
    let mut open: Option<(LinkAddr, Recipe)> = None;
    table.for_each_row(|start, id| {
        if let Some((from, recipe)) = open.take()
            && from < start
        {
            claims.push(Claim { code: from..start, recipe });
        }
        open = id.and_then(|id| table.recipe(id)).filter(|recipe| *recipe != Recipe::UNKNOWN).map(|r| (start, r));
    });
    for (address, claim, verdict, machine_code) in with_input(image, &code, &[], false, |input| judge(input, &claims)) {
        let Some(call_frames) = claims.get(claim).map(|claim| claim.recipe) else { continue };
        each(Disagreement { address, verdict, call_frames, machine_code });
    }
}

/// Where call frame information and machine code contradict each other, by address.
pub fn disagreements(image: &Image) -> Vec<Disagreement> {
    let mut found = Vec::new();
    compare(image, |point| {
        if matches!(point.verdict, Verdict::FrameDiffers | Verdict::RegisterDiffers) {
            found.push(point);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_return() {
        assert!(NO_RETURN.is_sorted());
        for name in ["abort", "_ZSt20__throw_length_errorPKc", "_ZSt9terminatev"] {
            assert!(is_no_return(name), "{name}");
        }
        for name in ["aborts", "_ZSt4endl", "malloc"] {
            assert!(!is_no_return(name), "{name}");
        }
    }
}
