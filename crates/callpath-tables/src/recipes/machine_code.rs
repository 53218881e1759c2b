//! Recipes from machine code, where call frame information has none. It decodes no instructions: it passes an image's
//! bytes and hints to the analysis, and adds the result to the table.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe};
use callpath_format::register::Reg;
use callpath_image::cfi::{CallFrames, FrameRange};
use callpath_image::elf::{Image, ImageKind};
use callpath_image::loading::Loading;
use callpath_image::module_file::ModuleFile;
use callpath_image::plt::{self, StubSection};
use callpath_x86::analysis::{CodeAnalysis, analyse};
use callpath_x86::bounds::Procedure;
use callpath_x86::input::CodeInput;
use xxhash_rust::xxh3::Xxh3;

use super::builder::{Origin, RecipeRef, RecipeTableBuilder};
use super::table_build::RecipeOptions;
use super::{inner, switches};
use crate::module::Module;

/// Procedures of other modules that never return, by their names in the libraries of C and C++.
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

/// Adds recipes from the code of `module` where `frames` have none, and for procedures that keep the caller's stack
/// pointer in memory, which are often described wrongly. For instructions up to the return gcc describes rbp as saved
/// at the address in the popped rbp; with `-frename-registers` it names a register for the caller's stack pointer that
/// the code does not use; libcrypto's sha256 for AVX2 describes it below rsp while it is above. Subroutines do not get
/// the frame of the procedure that calls them from within, either. Returns the procedures in the analysed code.
pub(super) fn add(
    builder: &mut RecipeTableBuilder,
    module: &Module,
    frames: &CallFrames,
    options: &RecipeOptions,
) -> Vec<Procedure> {
    let (image, code) = (module.image(), module.file().code());
    let saving = switches::saving_registers(image, module.symbols().named(options.call_frames));
    let is_over_frames = |range: &&FrameRange| cfa_is_in_memory(frames, range) || saving.contains(&range.code.start);
    let (keeping, others): (Vec<_>, Vec<_>) = frames.ranges.iter().partition(is_over_frames);
    let (continuing, mut known) = continuing(&others);
    let analysed = keeping.iter().chain(&continuing);
    let mut starts: Vec<LinkAddr> = module.symbols().starts(options.call_frames).collect();
    starts.extend(analysed.filter(|range| begins_procedure(frames, range)).map(|range| range.code.start));
    starts.extend(stubs(image, frames));
    let inner = inner::subroutines(&bytes_of(image, &image.instruction_ranges()), frames);
    if !inner.entries.is_empty() {
        let is_outside = |code: &Range<LinkAddr>| {
            let index = inner.within.partition_point(|within| within.end <= code.start);
            inner.within.get(index).is_none_or(|within| within.start >= code.end)
        };
        known.retain(is_outside);
        starts.extend(&inner.entries);
        inner.contradicted.iter().for_each(|code| builder.ignore_call_frames(code));
    }
    // Known code is not analysed, so it is unknown which of its procedures return. If most of the module depends on
    // that, all of it is analysed.
    let len = |ranges: &[Range<LinkAddr>]| {
        ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.end.0.saturating_sub(range.start.0)))
    };
    let instructions: Vec<_> = image.instruction_ranges().into_iter().filter(|r| is_within(r, code)).collect();
    if len(&known) < len(&instructions) / 2 {
        known.clear();
    }
    let added = AddedAnalysis::new(builder, Asked { code, known: &known, starts }.analysis(module.file()));
    instructions.iter().for_each(|range| added.add_rows(builder, Origin::Code, range));
    keeping.iter().for_each(|range| added.add_rows(builder, Origin::CodeOverFrames, &range.code));
    added.analysis.procedures
}

/// Adds to a table of a part of the code the recipes that need only that part: stubs of the procedure linkage table.
/// Procedures for which [`add`] would analyse the whole module are unknown in the table: their call frame information
/// is ignored.
pub(super) fn add_to_part(builder: &mut RecipeTableBuilder, part: &PartInput<'_>) {
    let PartInput { file, code, frames, starts } = *part;
    frames
        .ranges
        .iter()
        .filter(|range| cfa_is_in_memory(frames, range))
        .for_each(|range| builder.ignore_call_frames(&range.code));
    inner::subroutines(&[code], frames).within.iter().for_each(|within| builder.ignore_call_frames(within));
    let part = builder.regions.clone();
    for section in stub_sections(file.image(), frames).filter(|section| is_within(&section.code, &part)) {
        let starts = starts.iter().copied().chain(section.stubs().map(|stub| stub.start)).collect();
        let code = std::slice::from_ref(&section.code);
        let added = AddedAnalysis::new(builder, Asked { code, known: &[], starts }.analysis(file));
        added.add_rows(builder, Origin::Code, &section.code);
    }
}

/// The available data of a part of a module's code.
pub(super) struct PartInput<'a> {
    /// Its image may lack the bytes of its code.
    pub(super) file: &'a ModuleFile,
    /// The part's address and bytes.
    pub(super) code: (LinkAddr, &'a [u8]),
    /// The call frame information of the part.
    pub(super) frames: &'a CallFrames,
    /// Where procedures of the module begin, by symbols.
    pub(super) starts: &'a [LinkAddr],
}

/// An analysis whose recipes were added to a builder.
struct AddedAnalysis {
    analysis: CodeAnalysis,
    recipes: Vec<RecipeRef>,
}

impl AddedAnalysis {
    fn new(builder: &mut RecipeTableBuilder, analysis: CodeAnalysis) -> AddedAnalysis {
        let recipes = analysis.recipes.iter().map(|recipe| builder.recipe(recipe, &analysis.expressions)).collect();
        AddedAnalysis { analysis, recipes }
    }

    /// Adds the analysis' rows for a range.
    fn add_rows(&self, builder: &mut RecipeTableBuilder, origin: Origin, range: &Range<LinkAddr>) {
        let rows = &self.analysis.rows;
        let first = rows.partition_point(|row| row.start <= range.start).saturating_sub(1);
        let after = rows.partition_point(|row| row.start < range.end);
        let rows = rows.get(first..after).unwrap_or(&[]).iter();
        let rows = rows.filter_map(|row| {
            let recipe = *self.recipes.get(usize::from(row.recipe))?;
            Some((row.start.max(range.start), recipe))
        });
        builder.add(origin, range.clone(), rows);
    }
}

/// The bytes of ranges, where the file has them.
fn bytes_of<'a>(image: &'a Image, ranges: &[Range<LinkAddr>]) -> Vec<(LinkAddr, &'a [u8])> {
    let bytes_of = |range: &Range<LinkAddr>| {
        let len = usize::try_from(range.end.0.checked_sub(range.start.0)?).ok()?;
        let bytes = image.bytes_from(range.start)?;
        Some((range.start, bytes.get(..len.min(bytes.len()))?))
    };
    ranges.iter().filter_map(bytes_of).collect()
}

fn is_within(range: &Range<LinkAddr>, ranges: &[Range<LinkAddr>]) -> bool {
    ranges.iter().any(|other| other.start <= range.start && range.end <= other.end)
}

/// Whether the CFA is in memory somewhere in the range.
fn cfa_is_in_memory(frames: &CallFrames, range: &FrameRange) -> bool {
    recipes_of(frames, range).any(|recipe| matches!(recipe.cfa, Cfa::Deref { .. }))
}

/// Partitions the ranges. First: those that seem to continue in code without call frame information, as glibc's clone3
/// does after its system call, because code and not padding follows. They are analysed too, as the state of that code
/// begins in them. Second: the code of the others.
fn continuing<'a>(ranges: &[&'a FrameRange]) -> (Vec<&'a FrameRange>, Vec<Range<LinkAddr>>) {
    const ALIGNMENT: u64 = 16;
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.code.start);
    let (mut continuing, mut known) = (Vec::new(), Vec::new());
    for (index, range) in sorted.iter().enumerate() {
        let end = range.code.end.0;
        let next = sorted.get(index + 1).map_or(end, |next| next.code.start.0);
        let is_padding = next.is_multiple_of(ALIGNMENT) && next.saturating_sub(end) < ALIGNMENT;
        if next > end && !is_padding { continuing.push(*range) } else { known.push(range.code.clone()) }
    }
    (continuing, known)
}

/// The addresses of stubs of the procedure linkage table without call frame information: lld writes none for it, and
/// known code, which is not analysed, calls them.
fn stubs(image: &Image, frames: &CallFrames) -> Vec<LinkAddr> {
    stub_sections(image, frames).flat_map(|section| section.stubs()).map(|stub| stub.start).collect()
}

fn stub_sections<'a>(image: &'a Image, frames: &'a CallFrames) -> impl Iterator<Item = StubSection<'a>> {
    let called = plt::sections(image).into_iter().filter(|section| !section.is_of_addresses);
    called.filter(|section| !frames.ranges.iter().any(|range| range.code.contains(&section.code.start)))
}

/// Whether the range begins like a procedure, not like the cold part of one.
fn begins_procedure(frames: &CallFrames, range: &FrameRange) -> bool {
    recipes_of(frames, range).next().is_some_and(|recipe| recipe.cfa == Cfa::Register { reg: Reg::RSP, disp: 8 })
}

fn recipes_of<'a>(frames: &'a CallFrames, range: &FrameRange) -> impl Iterator<Item = &'a Recipe> {
    frames.rows_of(range).iter().filter_map(|row| frames.recipes.get(row.recipe as usize))
}

/// Adds to `hash` everything that an analysis reads besides the code: data, relocations, symbols.
pub(crate) fn identify(module: &Module, local: bool, hash: &mut Xxh3) {
    let image = module.image();
    let mut numbers = Vec::new();
    let Loading { pointers, symbols, called, .. } = module.file().loading();
    for (slot, to) in pointers {
        numbers.extend([slot.0, to.0]);
    }
    numbers.push(u64::MAX);
    numbers.extend(symbols.iter().filter(|(_, name)| is_no_return(name)).map(|(slot, _)| slot.0));
    numbers.push(u64::MAX);
    numbers.extend(module.symbols().starts(local).chain(called.iter().copied()).map(|start| start.0));
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

/// A request to analyse machine code.
pub(crate) struct Asked<'a> {
    /// The code.
    pub(crate) code: &'a [Range<LinkAddr>],
    /// The part of it whose recipes are known from elsewhere.
    pub(crate) known: &'a [Range<LinkAddr>],
    /// Some addresses where procedures begin.
    pub(crate) starts: Vec<LinkAddr>,
}

impl<'a> Asked<'a> {
    /// All code of a module, with only the hints that a stripped one has.
    pub(crate) fn of_stripped(module: &'a Module) -> Asked<'a> {
        Asked { code: module.file().code(), known: &[], starts: module.symbols().starts(false).collect() }
    }

    /// Analyses the code.
    fn analysis(self, file: &ModuleFile) -> CodeAnalysis {
        with_input(file, self, analyse)
    }
}

/// Calls `then` with the input of the analysis.
pub(crate) fn with_input<T>(file: &ModuleFile, asked: Asked<'_>, then: impl FnOnce(&CodeInput<'_>) -> T) -> T {
    let Asked { code, known, mut starts } = asked;
    let (image, loading) = (file.image(), file.loading());
    starts.extend(&loading.called);
    let no_return_slots: Vec<LinkAddr> =
        loading.symbols.iter().filter(|(_, name)| is_no_return(name)).map(|(slot, _)| *slot).collect();
    let segments = image.segments().iter().filter(|segment| segment.readable);
    let instructions = image.instruction_ranges();
    let within: Vec<_> = instructions.into_iter().filter(|r| is_within(r, code)).collect();
    let code = bytes_of(image, &within);
    let data: Vec<_> = segments.filter_map(|segment| Some((segment.vaddr, image.bytes_from(segment.vaddr)?))).collect();
    then(&CodeInput {
        code: &code,
        data: &data,
        pointers: &loading.pointers,
        constant: &image.constant_ranges(),
        is_absolute: image.kind() == ImageKind::Executable,
        entry: Some(image.entry()).filter(|entry| entry.0 != 0),
        starts: &starts,
        known,
        no_return_slots: &no_return_slots,
    })
}

/// The procedures in the machine code of an image, found as if it had no call frame information and no local symbols:
/// by ascending start.
pub fn procedures(module: &Module) -> Vec<Procedure> {
    Asked::of_stripped(module).analysis(module.file()).procedures
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
