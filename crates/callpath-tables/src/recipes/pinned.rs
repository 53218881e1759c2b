//! Which frames are pinned, that is, must keep their return addresses: those whose code reads its own, or may
//! go on to code that does, and those called where an exception may be caught.
//!
//! libgcc knows the frame that catches, when it comes there the second time, by where its callee's frame ends. A frame more
//! between the two than the first time, and it goes on beyond. A call that must not throw has no entry in the table, which
//! counts as catching: known here where a procedure's table has no pad at all. Where others are, most calls without an entry
//! are of procedures that never throw, and to tell them apart tables would grow by a fifth. Where nothing but a clean-up
//! lands it does not compare.

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

/// Procedures of libraries that use their return address: their answer depends on it.
const RETURN_ADDRESS_USERS: [&str; 9] =
    ["dlopen", "dlmopen", "dlsym", "dlvsym", "mcount", "_mcount", "__fentry__", "getcontext", "_Unwind_Backtrace"];

/// What is known of a module's frames when this is asked for.
pub(super) struct Known<'a> {
    /// The call frame information that is believed.
    pub(super) frames: &'a CallFrames,
    /// The frames of its code.
    pub(super) spans: &'a [Span],
    /// Procedures found in code that `frames` do not speak of.
    pub(super) procedures: &'a [Procedure],
    pub(super) options: &'a RecipeOptions,
}

/// Adds to the builder what `module` says of that.
pub(super) fn add(builder: &mut RecipeTableBuilder, module: &Module, known: &Known<'_>) {
    let Known { frames, spans, procedures: found, options } = *known;
    let none = LandingPads::default();
    let landings = if options.call_frames { module.file().landing_pads() } else { &none };
    builder.knows_pinned = options.call_frames && frames.diagnostics.is_empty() && landings.diagnostics.is_empty();
    // A procedure that must not throw has a table without any call.
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

/// By address; of those that overlap, each up to where the next begins or it ends.
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
        is_any_taken: taken.iter().any(|name| RETURN_ADDRESS_USERS.contains(&&**name)),
    })
}
