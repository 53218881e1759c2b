//! Padding beside a procedure that springboards may lie in. Each byte of it is at the disposal of one procedure: copies
//! are put in and taken out one by one.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::body::Body;
use super::entrances::Entrances;
use crate::encoding;
use crate::graph::ModuleFlow;
use crate::instruction::Control;

/// Room for one jump, bytes.
const JUMP_BYTES: u64 = encoding::JUMP_BYTES as u64;

/// Bytes of a procedure, and padding before and behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// All of it.
    pub(super) all: Range<u64>,
    /// What belongs to blocks.
    pub(super) code: Range<u64>,
}

/// A procedure's room, by ascending address.
pub(super) fn rooms(flow: &ModuleFlow<'_>, entrances: &Entrances, body: &Body<'_, '_>) -> Vec<Room> {
    let ranges = body.ranges();
    let next = ranges.iter().skip(1).map(|next| next.start).chain([u64::MAX]);
    let room = |(code, next): (&Range<u64>, u64)| {
        let before = if code.start == body.entry().0 { before_entry(flow, entrances, code.start) } else { 0 };
        let all = code.start - before..code.end + behind(flow, entrances, body, code.end..next);
        Room { all, code: code.clone() }
    };
    ranges.iter().zip(next).map(room).collect()
}

/// How many bytes of padding behind a procedure's code are its own. `gap`: from there up to its next code.
fn behind(flow: &ModuleFlow<'_>, entrances: &Entrances, body: &Body<'_, '_>, gap: Range<u64>) -> u64 {
    /// More is of no use: the padding between procedures is shorter.
    const MOST: u64 = 15;
    let end = gap.start;
    // Else control may arrive there in a way that the graph does not know.
    let is_left = body.step_before(end).is_some_and(|last| last.end() == end && last.never_continues());
    let Some(from) = flow.code.code_map.position(end).filter(|_| is_left) else { return 0 };
    let entered = [entrances.sure_within(end, end + MOST), entrances.likely_within(end, end + MOST)];
    let entrance = entered.into_iter().flatten().copied().min().unwrap_or(u64::MAX);
    let fragment = flow.fragment_from(LinkAddr(end)).map_or(u64::MAX, |start| start.0);
    let is_of_next = fragment != u64::MAX && is_parted(flow, end..fragment);
    let own = if is_of_next { fragment - JUMP_BYTES } else { fragment };
    let most = (end + MOST).min(gap.end).min(entrance).min(own) - end;
    let to = (from + most as u32).min(flow.code.code_map.part(from).map_or(from, |part| part.end()));
    u64::from(flow.code.padding_end(from, to) - from)
}

/// How many bytes of padding before a procedure's entry are its own: none, or those of a jump.
fn before_entry(flow: &ModuleFlow<'_>, entrances: &Entrances, entry: u64) -> u64 {
    let Some((end, start)) = entrances.block_before(entry) else { return 0 };
    let is_of_this = || flow.fragment_from(LinkAddr(end)) == Some(LinkAddr(entry)) && is_parted(flow, end..entry);
    let is_entered = || {
        let entered = [entrances.sure_within(end, entry), entrances.likely_within(end, entry)];
        entered.into_iter().any(|entered| !entered.is_empty())
    };
    let is_padding = || {
        let positions = flow.code.code_map.position(end).zip(flow.code.code_map.position(entry));
        positions.is_some_and(|(from, to)| {
            u64::from(to.saturating_sub(from)) == entry - end && flow.code.padding_end(from, to) == to
        })
    };
    let is_left = || {
        use Control::{Branch, Call, CallIndirect, Next};
        let last = flow.instructions(&(LinkAddr(start)..LinkAddr(end))).pop();
        last.is_some_and(|(at, last)| {
            at.0 + u64::from(last.len()) == end && !matches!(last.control(), Next | Branch | Call | CallIndirect)
        })
    };
    if is_of_this() && !is_entered() && is_padding() && is_left() { JUMP_BYTES } else { 0 }
}

/// Whether of the padding up to a procedure the last bytes are that one's: there is enough for two, and it may need it,
/// because it begins with a call.
fn is_parted(flow: &ModuleFlow<'_>, gap: Range<u64>) -> bool {
    if gap.end.saturating_sub(gap.start) < 2 * JUMP_BYTES {
        return false;
    }
    let Some(entry) = flow.code.code_map.position(gap.end) else { return false };
    let mut at = entry;
    while u64::from(at - entry) < JUMP_BYTES {
        let Some(instruction) = flow.code.instruction_at(at) else { return false };
        if matches!(instruction.control(), Control::Call | Control::CallIndirect) {
            return true;
        }
        at += instruction.len();
    }
    false
}
