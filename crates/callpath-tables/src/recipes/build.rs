//! Builds a recipe table of a whole module, or of a part of its code, from all sources in turn.

use std::borrow::Cow;
use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;
use callpath_image::cfi::{CallFrames, CfiSection, FrameEntries};
use callpath_image::elf::Image;
use callpath_image::module_file::ModuleFile;

use super::builder::{Origin, RecipeTableBuilder};
use super::machine_code::PartInput;
use super::pinned::{self, Known};
use super::starts::Searched;
use super::table_build::{RecipeDiagnostic, RecipeOptions, TableBuild};
use super::{machine_code, starts, switches};
use crate::module::Module;

/// Builds the recipe table of a module. Takes about 5 ms for a megabyte of code.
pub fn build_table(module: &Module, options: &RecipeOptions) -> TableBuild {
    let (file, image) = (module.file(), &**module.image());
    let frames = &*frames_of(file, options);
    let mut builder = RecipeTableBuilder::new(file.code().to_vec());
    builder.add_call_frames(frames);
    let procedures = match options.machine_code {
        true => machine_code::add(&mut builder, module, frames, options),
        false => Vec::new(),
    };
    let outermost = builder.recipe(&Recipe::OUTERMOST, &[]);
    if let Some(start) = start_code(image, frames.ranges.iter().map(|range| &range.code)) {
        builder.add(Origin::Entry, start.clone(), [(start.start, outermost)]);
    }
    let starts = match options {
        RecipeOptions { machine_code: false, .. } => &[][..],
        // From all that is known of the module.
        RecipeOptions { call_frames: true, debug_frame: true, .. } => module.stack_starts(),
        _ => &starts::find(image, frames, module.symbols().named(options.call_frames)),
    };
    for start in starts {
        builder.add(Origin::Start, start.clone(), [(start.start, outermost)]);
    }
    if options.machine_code {
        switches::add(&mut builder, image, module.symbols().named(options.call_frames));
    }
    let contribution_count = builder.contribution_count();
    let spans = builder.spans();
    pinned::add(&mut builder, module, &Known { frames, spans: &spans, procedures: &procedures, options });
    let mut build = builder.encode(spans, contribution_count);
    let too_much = file.code_left_out().map(RecipeDiagnostic::TooMuchCode);
    let odd = frames.diagnostics.iter().cloned().map(RecipeDiagnostic::Cfi);
    let left_out = (frames.diagnostics_left_out > 0).then_some(frames.diagnostics_left_out);
    let mut diagnostics: Vec<_> = too_much.into_iter().chain(odd).collect();
    diagnostics.extend(left_out.map(RecipeDiagnostic::CfiLeftOut));
    diagnostics.append(&mut build.diagnostics);
    // Linkers may put read-only data into the same segment.
    build.stats.code_bytes = image.instruction_ranges().iter().fold(0, |sum, code| sum + (code.end.0 - code.start.0));
    build.stats.diagnostics = diagnostics.len() as u64 + left_out.unwrap_or(0);
    build.diagnostics = diagnostics;
    build
}

/// The call frame information to use.
fn frames_of<'m>(file: &'m ModuleFile, options: &RecipeOptions) -> Cow<'m, CallFrames> {
    match options {
        RecipeOptions { call_frames: false, .. } => Cow::Owned(CallFrames::default()),
        RecipeOptions { debug_frame: true, .. } => Cow::Borrowed(file.call_frames()),
        RecipeOptions { debug_frame: false, .. } => {
            let mut frames = file.call_frames().clone();
            frames.ranges.retain(|range| range.section != CfiSection::DebugFrame);
            Cow::Owned(frames)
        }
    }
}

/// The input for the recipe table of a part of a module's code: its call frame information. Recipes that require an
/// analysis of the whole module's code stay unknown, and so do pinned frames.
pub(crate) struct TablePart<'a> {
    /// The module. Its image may lack the bytes of its code.
    pub(crate) file: &'a ModuleFile,
    /// The entries of its call frame information.
    pub(crate) entries: &'a FrameEntries,
    /// Its procedures without a caller, by name.
    pub(crate) named: &'a starts::Named,
    /// Where its procedures begin, by symbols.
    pub(crate) starts: &'a [LinkAddr],
    /// The part. No entry's code begins inside and ends outside.
    pub(crate) code: Range<LinkAddr>,
    /// The part's bytes.
    pub(crate) bytes: &'a [u8],
}

impl TablePart<'_> {
    pub(crate) fn build(&self) -> Vec<u8> {
        let TablePart { file, entries, named, starts, ref code, bytes } = *self;
        let image = file.image();
        let frames = CallFrames::of_entries(image, entries, code);
        let mut builder = RecipeTableBuilder::new(vec![code.clone()]);
        builder.add_call_frames(&frames);
        let part = PartInput { file, code: (code.start, bytes), frames: &frames, starts };
        machine_code::add_to_part(&mut builder, &part);
        let outermost = builder.recipe(&Recipe::OUTERMOST, &[]);
        if code.contains(&image.entry())
            && let Some(start) = start_code(image, entries.all().iter().map(|entry| &entry.code))
        {
            builder.add(Origin::Entry, start.clone(), [(start.start, outermost)]);
        }
        let bytes_from = |at: LinkAddr| bytes.get(usize::try_from(at.0.checked_sub(code.start.0)?).ok()?..);
        let searched = Searched { image, code: &[(code.start, bytes)], frames: &frames, named };
        for start in starts::find_in(&searched, bytes_from) {
            builder.add(Origin::Start, start.clone(), [(start.start, outermost)]);
        }
        builder.finish().bytes
    }
}

/// The hand-written start of a program or a loader, where CFI does not cover it: from the entry point to the next code
/// with CFI. It has no caller, so it is outermost. Code longer than any such start is ignored: it is a whole program
/// without CFI.
fn start_code<'a>(
    image: &Image,
    described: impl Iterator<Item = &'a Range<LinkAddr>> + Clone,
) -> Option<Range<LinkAddr>> {
    const LONGEST_BYTES: u64 = 256;
    let entry = image.entry();
    if entry.0 == 0 || described.clone().any(|code| code.contains(&entry)) {
        return None;
    }
    let next = described.map(|code| code.start).filter(|start| *start > entry).min()?;
    (next.0 - entry.0 <= LONGEST_BYTES).then_some(entry..next)
}
