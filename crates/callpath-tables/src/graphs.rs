//! Builds the control flow graphs of an image's procedures.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Cfa;
use callpath_format::register::Reg;
use callpath_image::cfi::{CallFrames, CfiDiagnostic, CfiTrouble};
use callpath_image::elf::Image;
use callpath_image::plt;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, LandingPad, ModuleFlow};

use crate::module::Module;
use crate::recipes::machine_code::{Asked, procedures, with_input};

/// The most diagnostics of call frame information that are reported.
const DIAGNOSTICS_LIMIT: usize = 20;

/// Calls `then` with the control flow of a module, which is dropped afterwards: it is the largest of a module's data.
/// Procedures' bounds are those of its call frame information. If that covers less than half of the code, or is broken,
/// they come from the linker's search table (`.eh_frame_hdr`), and elsewhere from the code itself. `then` also receives
/// sentences about parts of the image that could not be used.
pub fn with_flow<T>(module: &Module, then: impl FnOnce(&ModuleFlow<'_>, &[String]) -> T) -> T {
    let (file, image) = (module.file(), module.image());
    let (code, frames) = (file.code(), file.call_frames());
    let named = module.symbols().starts_and_parts();
    let is_named_part = |at| named.binary_search_by_key(&at, |named| named.0).is_ok_and(|index| named[index].1);
    let kind = |range: &callpath_image::cfi::FrameRange| {
        // A part that runs before there is a frame looks like a procedure.
        if is_named_part(range.code.start) {
            return FragmentKind::Part;
        }
        let recipe = frames.rows_of(range).first().and_then(|row| frames.recipes.get(row.recipe as usize));
        match recipe.map(|recipe| recipe.cfa) {
            // A procedure, or a part of one without a frame there.
            Some(Cfa::Register { reg: Reg::RSP, disp: 8 }) => FragmentKind::Unknown,
            Some(Cfa::Register { .. }) => FragmentKind::Part,
            _ => FragmentKind::Unknown,
        }
    };
    let mut fragments = stubs(image);
    // One entry describes all stubs of a section.
    let is_stub = |at| fragments.binary_search_by_key(&at, |stub: &Fragment| stub.code.start).is_ok();
    let ranges: Vec<_> = frames.ranges.iter().filter(|range| !is_stub(range.code.start)).collect();
    fragments.extend(ranges.into_iter().map(|range| Fragment { code: range.code.clone(), kind: kind(range) }));
    let (mut diagnostics, is_broken) = broken_frames(image, frames);
    fragments.extend(without_entry(frames, code));
    let len = |range: &Range<LinkAddr>| range.end.0.saturating_sub(range.start.0);
    let covered = fragments.iter().fold(0u64, |sum, fragment| sum.saturating_add(len(&fragment.code)));
    if is_broken || covered < code.iter().map(len).fold(0, u64::saturating_add) / 2 {
        let known = joined(fragments.iter().map(|fragment| fragment.code.clone()).collect());
        let is_known = |at: LinkAddr| {
            let after = known.partition_point(|range| range.start <= at);
            after.checked_sub(1).and_then(|before| known.get(before)).is_some_and(|range| range.contains(&at))
        };
        let found = procedures(module).into_iter().filter(|found| !is_known(found.code.start));
        fragments.extend(found.map(|found| Fragment { code: found.code, kind: FragmentKind::Entry }));
    }
    let landings = file.landing_pads();
    let landing_pads =
        landings.pads.iter().map(|landing| LandingPad { calls: landing.calls.clone(), pad: landing.pad });
    let landing_pads: Vec<LandingPad> = landing_pads.collect();
    let path = image.origin().display();
    diagnostics.extend(landings.diagnostics.iter().map(|odd| format!("failed to read {path}: {odd}")));
    if landings.diagnostics_left_out > 0 {
        diagnostics
            .push(format!("failed to read {path}: {} more tables of landing pads", landings.diagnostics_left_out));
    }
    with_input(file, Asked::of_stripped(module), |input| {
        let input = GraphInput { code: *input, fragments: &fragments, landing_pads: &landing_pads };
        then(&ModuleFlow::new(&input), &diagnostics)
    })
}

/// What is wrong with the call frame information, as far as bounds depend on it, and whether any of it is missing.
fn broken_frames(image: &Image, frames: &CallFrames) -> (Vec<String>, bool) {
    let path = image.origin().display();
    let odd: Vec<&CfiDiagnostic> = frames.diagnostics.iter().filter(|odd| odd.is_of_bounds()).collect();
    let is_broken = odd.iter().any(|odd| !matches!(odd.trouble, CfiTrouble::Table(_)));
    let instead = if is_broken { " (procedures' bounds are guessed from their code there)" } else { "" };
    let remarks = odd.iter().take(DIAGNOSTICS_LIMIT);
    let mut remarks: Vec<String> = remarks
        .map(|odd| format!("failed to make sense of call frame information of {path}: {odd}{instead}"))
        .collect();
    let left_out = (odd.len() - remarks.len()) as u64 + if is_broken { frames.diagnostics_left_out } else { 0 };
    if left_out > 0 {
        remarks.push(format!("failed to make sense of call frame information of {path} in {left_out} more places"));
    }
    (remarks, is_broken)
}

/// Code of which only the beginning is known: up to the next known beginning, or the end of its range.
fn without_entry(frames: &CallFrames, code: &[Range<LinkAddr>]) -> Vec<Fragment> {
    if frames.without_entry.is_empty() {
        return Vec::new();
    }
    let mut starts: Vec<LinkAddr> = frames.ranges.iter().map(|range| range.code.start).collect();
    starts.extend(&frames.without_entry);
    starts.sort_unstable();
    let fragment = |&start: &LinkAddr| {
        let end = code.iter().find(|range| range.contains(&start))?.end;
        let next = starts.get(starts.partition_point(|&other| other <= start)).copied().unwrap_or(end);
        Some(Fragment { code: start..next.min(end), kind: FragmentKind::Unknown })
    };
    frames.without_entry.iter().filter_map(fragment).collect()
}

/// Sorts ranges, and joins those that touch or overlap.
fn joined(mut ranges: Vec<Range<LinkAddr>>) -> Vec<Range<LinkAddr>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<LinkAddr>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The stubs of the procedure linkage table, by ascending start.
fn stubs(image: &Image) -> Vec<Fragment> {
    let stubs = plt::sections(image).into_iter().flat_map(|section| section.stubs());
    let mut stubs: Vec<_> = stubs.map(|code| Fragment { code, kind: FragmentKind::Entry }).collect();
    stubs.sort_by_key(|stub| stub.code.start);
    stubs
}
