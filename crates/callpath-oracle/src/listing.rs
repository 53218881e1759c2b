//! Disassembly around an instruction, and short looks ahead.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter, OpKind};

/// Instructions that are shown before and after.
const AROUND: usize = 6;
/// A procedure is decoded from its start for so many bytes at most.
const FAR_BYTES: u64 = 1 << 16;

/// The instructions around `addr`, one line each, the one at `addr` marked. `start` is where its procedure begins.
pub fn around(image: &Image, start: LinkAddr, addr: LinkAddr) -> Vec<String> {
    let mut before: Vec<Instruction> = if addr.0 - start.0.min(addr.0) <= FAR_BYTES {
        decode(image, start).take_while(|i| i.ip() < addr.0).collect()
    } else {
        Vec::new()
    };
    // Decoding from the start did not meet the address: what it gave is not what runs.
    if before.last().is_some_and(|last| last.next_ip() != addr.0) {
        before.clear();
    }
    let first = before.len().saturating_sub(AROUND);
    let mut formatter = IntelFormatter::new();
    let after = decode(image, addr).take(1 + AROUND);
    let lines = before[first..].iter().copied().chain(after).map(|instruction| {
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        let mark = if instruction.ip() == addr.0 { "=>" } else { "  " };
        format!("{mark} {:x}: {text}", instruction.ip())
    });
    lines.collect()
}

/// Whether the code from `start` to `addr` is no longer than `most` instructions, without a branch.
pub fn is_straight(image: &Image, start: LinkAddr, addr: LinkAddr, most: usize) -> bool {
    for instruction in decode(image, start).take(most + 1) {
        if instruction.ip() == addr.0 {
            return true;
        }
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
    }
    false
}

/// Whether a return, or a jump out of `procedure`, is one of the next `most` instructions, with no other branch before.
pub fn leaves(image: &Image, addr: LinkAddr, procedure: Range<LinkAddr>, most: usize) -> bool {
    for instruction in decode(image, addr).take(most) {
        return match instruction.flow_control() {
            FlowControl::Next => continue,
            FlowControl::Return | FlowControl::IndirectBranch => true,
            FlowControl::UnconditionalBranch => {
                instruction.op0_kind() == OpKind::NearBranch64
                    && !procedure.contains(&LinkAddr(instruction.near_branch64()))
            }
            _ => false,
        };
    }
    false
}

fn decode(image: &Image, from: LinkAddr) -> impl Iterator<Item = Instruction> {
    let bytes = image.bytes_from(from).unwrap_or(&[]);
    let mut decoder = Decoder::with_ip(64, bytes, from.0, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
        .take_while(|instruction| !instruction.is_invalid())
}
