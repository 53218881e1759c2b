//! Machine code as a person reads it: an instruction a line, in Intel's syntax.

use callpath_format::address::LinkAddr;
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter, OpKind};

/// An instruction as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Where it begins.
    pub address: LinkAddr,
    /// In Intel's syntax; of a byte that begins no instruction `(bad)`.
    pub text: String,
    /// Where a direct call or jump goes.
    pub target: Option<LinkAddr>,
}

/// The instructions of `code`, which begins at `start`, one after the other.
pub fn listing(code: &[u8], start: LinkAddr) -> Vec<Listed> {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    let mut decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    let mut listed = Vec::new();
    while decoder.can_decode() {
        let (position, address) = (decoder.position(), LinkAddr(decoder.ip()));
        let instruction = decoder.decode();
        let mut text = String::new();
        if instruction.is_invalid() {
            text.push_str("(bad)");
            // The next byte may begin one.
            decoder.set_ip(address.0.wrapping_add(1));
            if decoder.set_position(position + 1).is_err() {
                break;
            }
        } else {
            formatter.format(&instruction, &mut text);
        }
        let is_direct = instruction.op0_kind() == OpKind::NearBranch64;
        let target = is_direct.then(|| LinkAddr(instruction.near_branch64()));
        listed.push(Listed { address, text, target });
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instruction_is_a_line() {
        // A byte that no instruction begins with in 64-bit code stands between.
        let code = [0x48, 0x8b, 0x44, 0x24, 0x10, 0x06, 0xeb, 0xf8, 0xc3, 0xe8];
        let lines: Vec<(u64, String)> =
            listing(&code, LinkAddr(0x1000)).into_iter().map(|l| (l.address.0, l.text)).collect();
        let is = |address: u64, text: &str| (address, text.to_owned());
        assert_eq!(
            lines,
            [
                is(0x1000, "mov rax, [rsp+0x10]"),
                is(0x1005, "(bad)"),
                is(0x1006, "jmp short 0x1000"),
                is(0x1008, "ret"),
                is(0x1009, "(bad)"),
            ]
        );
        assert_eq!(listing(&code, LinkAddr(0x1000))[2].target, Some(LinkAddr(0x1000)));
        assert!(listing(&[], LinkAddr(0)).is_empty());
        // At the end of the address space.
        assert_eq!(listing(&[0x90, 0x06, 0x90], LinkAddr(u64::MAX - 1)).len(), 3);
    }
}
