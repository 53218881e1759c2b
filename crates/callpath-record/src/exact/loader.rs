//! The loader tells our object of libraries that come: where debuggers have a breakpoint, it calls us.

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_image::exports::Exports;
use callpath_target::{Edits, Maps, NewMemory, Write};

use super::analysed::Analysed;
use callpath_format::shared::probe::Routines;

/// The loader's procedure that does nothing. It is called when libraries have been mapped, and before they are relocated.
const NOTIFIES: &str = "_dl_debug_state";
const ROOM_BYTES: u64 = 4096;
const RETURN: u8 = 0xc3;
const END_BRANCH: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `jmp rel32`, and how long it is.
const JUMP: u8 = 0xe9;
const JUMP_BYTES: u64 = 5;
/// `jmp qword ptr [rip]`: the address stands behind it.
const JUMP_FAR: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

/// What has the loader call our routine. `None`: there is no such procedure, or no room in it.
pub(super) fn calls_us(analysed: &[Analysed], maps: &Maps, routines: &Routines) -> Option<Edits<'static>> {
    let notifies = |of: &Analysed| Some(Exports::of(of.module.image()).named(NOTIFIES).first()?.start);
    let (of, entry) = analysed.iter().find_map(|of| Some((of, notifies(of)?)))?;
    let image = of.module.image();
    let start = image.bytes_at(entry, END_BRANCH.len()).filter(|bytes| **bytes == END_BRANCH).map_or(0, <[u8]>::len);
    let returns = image.bytes_at(LinkAddr(entry.0 + start as u64), 1)? == [RETURN];
    // Behind it is padding, up to the next procedure.
    let frames = &of.module.file().call_frames().ranges;
    let next = frames.iter().map(|range| range.code.start).filter(|next| *next > entry).min()?;
    if !returns || next.0 - entry.0 < JUMP_BYTES {
        return None;
    }
    let old = image.bytes_at(entry, JUMP_BYTES as usize)?.to_vec();
    let run = RunAddr(entry.0.wrapping_add(of.bias));
    let place = RunAddr(maps.free_near(of.loaded.start..of.loaded.end, ROOM_BYTES)?);
    let distance = i32::try_from(place.0.wrapping_sub(run.0 + JUMP_BYTES) as i64).ok()?;
    let jump = [&[JUMP][..], &distance.to_le_bytes()].concat();
    let far = [&JUMP_FAR[..], &routines.loaded.to_le_bytes()].concat();
    Some(Edits {
        memory: vec![NewMemory::Code { at: place, len_bytes: ROOM_BYTES }],
        writes: vec![Write { at: place, old: None, new: far }, Write { at: run, old: Some(old), new: jump }],
    })
}
