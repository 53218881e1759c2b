//! The stubs of a procedure linkage table, as linkers write them (System V ABI, section 5.2).
//!
//! ```text
//! [endbr64]; [bnd] jmp [slot]                        the called address
//! [endbr64]; push index; [bnd] jmp the first stub    the slot's target until the symbol is bound: in this stub or another
//! push [GOT + 8]; [bnd] jmp [GOT + 16]               the first stub
//! ```
//!
//! `callpath_image::plt` reads from the ELF file which sections have stubs, and of which symbols.

use crate::encoding::{behind_endbr64, jump_beside_code, pushes_and_jumps_beside_code, pushes_word_and_jumps};
use crate::state::{RSP, State};
use crate::value::Value;

/// The address of the slot that a stub at `address`, which begins with `bytes`, jumps through.
pub fn slot(bytes: &[u8], address: u64) -> Option<u64> {
    let jump = behind_endbr64(bytes);
    let jump_at = address.wrapping_add((bytes.len() - jump.len()) as u64);
    Some(jump_beside_code(jump)?.address(jump_at))
}

/// The state where `bytes` begin, if they are the first stub or one that jumps to it.
pub(crate) fn entry_state(bytes: &[u8]) -> Option<State> {
    if pushes_and_jumps_beside_code(bytes) {
        // An index was pushed before.
        let mut state = State::at_entry();
        state.set(RSP, Value::cfa(-16), 0);
        return Some(state);
    }
    // Entered like a procedure.
    pushes_word_and_jumps(behind_endbr64(bytes)).then(State::at_entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As objdump shows them in programs of GNU ld: lazy, with `-z ibtplt`, and with `bnd`.
    #[test]
    fn stubs_as_linkers_write_them() {
        const FIRST: [u8; 16] = [0xff, 0x35, 0xca, 0x2f, 0, 0, 0xff, 0x25, 0xcc, 0x2f, 0, 0, 0x0f, 0x1f, 0x40, 0];
        const FIRST_BND: [u8; 13] = [0xff, 0x35, 0x9a, 0x2f, 0, 0, 0xf2, 0xff, 0x25, 0x9b, 0x2f, 0, 0];
        const LAZY: [u8; 16] = [0xff, 0x25, 0xca, 0x2f, 0, 0, 0x68, 1, 0, 0, 0, 0xe9, 0xd0, 0xff, 0xff, 0xff];
        const IBT: [u8; 14] = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0, 0, 0xe9, 0xe2, 0xff, 0xff, 0xff];
        const IBT_BND: [u8; 15] = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0, 0, 0xf2, 0xe9, 0xe1, 0xff, 0xff, 0xff];
        const SECOND: [u8; 10] = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x76, 0x2f, 0, 0];
        const SECOND_BND: [u8; 11] = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x75, 0x2f, 0, 0];
        let first = |bytes: &[u8]| entry_state(bytes).map(|state| state.get(RSP));
        assert_eq!(first(&FIRST), Some(Value::cfa(-16)));
        assert_eq!(first(&FIRST_BND), Some(Value::cfa(-16)));
        for behind in [&LAZY[6..], &IBT, &IBT_BND] {
            assert_eq!(first(behind), Some(State::at_entry().get(RSP)), "{behind:x?}");
        }
        for other in [&LAZY[..], &SECOND, &SECOND_BND, &FIRST[6..], &[]] {
            assert_eq!(first(other), None, "{other:x?}");
        }
        assert_eq!(slot(&LAZY, 0x1030), Some(0x4000));
        assert_eq!(slot(&SECOND, 0x1050), Some(0x3fd0));
        assert_eq!(slot(&SECOND_BND, 0x1050), Some(0x3fd0));
        for other in [&FIRST[..], &IBT, &IBT_BND, &LAZY[..5], &[]] {
            assert_eq!(slot(other, 0x1030), None, "{other:x?}");
        }
    }
}
