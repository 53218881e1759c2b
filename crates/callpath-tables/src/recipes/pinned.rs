//! Finds pinned frames, which must keep their return addresses: those of code that reads its own, or may jump to code
//! that does, and those called where an exception may be caught.
//!
//! When libgcc reaches the frame that catches for the second time, it recognises it by the end of its callee's frame.
//! If there is one frame more in between than the first time, it continues beyond. A call that must not throw has no
//! entry in the exception table, which counts as catching: this is recognised where a procedure's table has no pad at
//! all. In other tables most calls without an entry are of procedures that never throw; distinguishing them would
//! enlarge recipe tables by a fifth. Where only a clean-up lands libgcc does not compare.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Packed};
use callpath_format::register::Reg;
use callpath_image::cfi::CallFrames;
use callpath_image::landing_pads::LandingPads;
use callpath_image::loading::Loading;
use callpath_image::module_file::ModuleFile;
use callpath_image::plt;
use callpath_x86::bounds::Procedure;
use callpath_x86::return_reads::{Frame, Input, ReturnAddressUsers, find};

use super::builder::RecipeTableBuilder;
use super::pool::RecipePool;
use super::spans::Span;
use super::table_build::RecipeOptions;
use crate::module::Module;

/// Procedures of libraries whose result depends on their return address.
const RETURN_ADDRESS_USERS: [&str; 9] =
    ["dlopen", "dlmopen", "dlsym", "dlvsym", "mcount", "_mcount", "__fentry__", "getcontext", "_Unwind_Backtrace"];

/// What is known of a module's frames beforehand.
pub(super) struct Known<'a> {
    /// The call frame information to use.
    pub(super) frames: &'a CallFrames,
    /// The frames of its code.
    pub(super) spans: &'a [Span],
    /// Procedures found in code that `frames` do not cover.
    pub(super) procedures: &'a [Procedure],
    pub(super) options: &'a RecipeOptions,
}

/// Adds the pinned frames of `module` to the builder.
pub(super) fn add(builder: &mut RecipeTableBuilder, module: &Module, known: &Known<'_>) {
    let Known { frames, spans, procedures: found, options } = *known;
    let none = LandingPads::default();
    let landings = if options.call_frames { module.file().landing_pads() } else { &none };
    builder.knows_pinned = options.call_frames && frames.diagnostics.is_empty() && landings.diagnostics.is_empty();
    // A procedure that must not throw has an exception table without calls.
    let mut starts: Vec<LinkAddr> = landings.pads.iter().map(|pad| pad.calls.start).collect();
    starts.sort_unstable();
    let first_from = |at: LinkAddr| starts.get(starts.partition_point(|start| *start < at));
    let is_empty = |code: &Range<LinkAddr>| first_from(code.start).is_none_or(|start| *start >= code.end);
    let tables = frames.ranges.iter().filter(|range| range.landing_table.is_some()).map(|range| range.code.clone());
    let must_not: Vec<_> = tables.filter(is_empty).map(|code| (code, Packed::PINS_CALLEE)).collect();
    builder.pinned.extend(must_not);
    let catching = landings.pads.iter().filter(|pad| pad.catches).map(|pad| pad.calls.clone());
    let unseen = frames.ranges.iter().filter(|range| range.lands_unseen).map(|range| range.code.clone());
    builder.pinned.extend(catching.chain(unseen).map(|calls| (calls, Packed::PINS_CALLEE)));
    let described = frames.ranges.iter().map(|range| &range.code);
    let procedures = disjoint(described.chain(found.iter().map(|procedure| &procedure.code)));
    let found = users_in(module.file(), &procedures, spans, &builder.pool);
    for (found, bit) in
        [(found.return_address_users, Packed::PINNED), (found.indirect_tail_callers, Packed::TAIL_CALLS_ANY)]
    {
        let code = found.into_iter().filter_map(|index| procedures.get(index).cloned());
        builder.pinned.extend(code.map(|code| (code, bit)));
    }
}

/// Sorts the ranges by address, and cuts each where the next one begins.
fn disjoint<'a>(ranges: impl Iterator<Item = &'a Range<LinkAddr>>) -> Vec<Range<LinkAddr>> {
    let mut ranges: Vec<_> = ranges.cloned().collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    for index in 1..ranges.len() {
        let next = ranges[index].start;
        let before = &mut ranges[index - 1];
        before.end = before.end.min(next);
    }
    ranges.retain(|range| range.start < range.end);
    ranges
}

fn users_in(
    file: &ModuleFile,
    procedures: &[Range<LinkAddr>],
    spans: &[Span],
    pool: &RecipePool,
) -> ReturnAddressUsers {
    let image = file.image();
    let bytes_of = |range: &Range<LinkAddr>| {
        let bytes = image.bytes_from(range.start)?;
        let len = usize::try_from(range.end.0 - range.start.0).ok()?;
        Some((range.start, bytes.get(..len.min(bytes.len()))?))
    };
    let code: Vec<_> = image.instruction_ranges().iter().filter_map(bytes_of).collect();
    let frame_of = |span: &Span| {
        let Cfa::Register { reg: base @ (Reg::RSP | Reg::RBP), disp } = pool.recipes.get(span.recipe as usize)?.cfa
        else {
            return None;
        };
        Some(Frame { code: LinkAddr(span.start)..LinkAddr(span.end), base, disp })
    };
    let frames: Vec<_> = spans.iter().filter_map(frame_of).collect();
    let stubs: Vec<_> = plt::sections(image).into_iter().map(|section| section.code).collect();
    let Loading { symbols, taken, .. } = file.loading();
    let users_among = symbols.iter().filter(|(_, name)| RETURN_ADDRESS_USERS.contains(&&**name));
    let slots: Vec<_> = users_among.map(|(slot, _)| *slot).collect();
    let mut known_slots: Vec<_> = symbols.iter().map(|(slot, _)| *slot).collect();
    known_slots.sort_unstable();
    find(&Input {
        code: &code,
        frames: &frames,
        procedures,
        stubs: &stubs,
        slots: &slots,
        known_slots: &known_slots,
        asking: &[],
        is_exact: false,
        is_any_taken: taken.iter().any(|name| RETURN_ADDRESS_USERS.contains(&&**name)),
    })
}
