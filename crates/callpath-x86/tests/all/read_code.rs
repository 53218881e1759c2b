//! A procedure whose code another one reads cannot be copied: a springboard would change what is read.

use callpath_x86::rewrite::{Reason, Refusal, Rewriter};
use small::{BASE, with_procedures};

use crate::small;

/// `xor eax, eax; add eax, 1; add eax, 2; ret`
const READ: &[u8] = b"\x31\xc0\x83\xc0\x01\x83\xc0\x02\xc3";
/// Where the second procedure begins.
const READER: u64 = BASE + 32;

/// Whether the first of these procedures is refused since it is read, and by which instruction of the second one. That is
/// copied whatever it reads.
fn reader(code: &[u8]) -> Option<u64> {
    with_procedures(&[READ, code, b"\x31\xc0\x83\xc0\x01\xc3"], |flow, graphs| {
        let rewriter = Rewriter::without_liveness(flow, graphs);
        assert_eq!([rewriter.check(1), rewriter.check(2)], [Ok(()), Ok(())], "{code:x?}");
        match rewriter.check(0) {
            Ok(()) => None,
            Err(Refusal { at, reason: Reason::ReadAsData }) => Some(at.0 - READER),
            Err(other) => panic!("{other}"),
        }
    })
}

#[test]
fn it_is_refused() {
    // movzx eax, byte [rip - 0x27]; ret
    assert_eq!(reader(b"\x0f\xb6\x05\xd9\xff\xff\xff\xc3"), Some(0));
    // lea rdi, [rip - 0x27]; movzx eax, byte [rdi + 8]; ret
    assert_eq!(reader(b"\x48\x8d\x3d\xd9\xff\xff\xff\x0f\xb6\x47\x08\xc3"), Some(7));
    // mov edi, 0x1000; mov rsi, rdi; inc rsi; add al, [rsi + rcx]; ret
    assert_eq!(reader(b"\xbf\x00\x10\x00\x00\x48\x89\xfe\x48\xff\xc6\x02\x04\x0e\xc3"), Some(11));
}

/// ```text
///         lea rdi, [rip - 0x27]
///         lea rsi, [rdi + 9]
/// again:  movzx ecx, byte [rdi]
///         add eax, ecx
///         add rdi, 1
///         cmp rdi, rsi
///         jne again
///         ret
/// ```
#[test]
fn a_loop_over_its_code_is_found() {
    let code =
        b"\x48\x8d\x3d\xd9\xff\xff\xff\x48\x8d\x77\x09\x0f\xb6\x0f\x01\xc8\x48\x83\xc7\x01\x48\x39\xf7\x75\xf2\xc3";
    assert_eq!(reader(code), Some(11));
}

#[test]
fn who_only_has_its_address_does_not_read_it() {
    // lea rax, [rip - 0x27]; ret
    assert_eq!(reader(b"\x48\x8d\x05\xd9\xff\xff\xff\xc3"), None);
    // lea rdi, [rip - 0x27]; call [rip + 0x100]; mov eax, [rdi]; ret: the callee may have changed rdi.
    assert_eq!(reader(b"\x48\x8d\x3d\xd9\xff\xff\xff\xff\x15\x00\x01\x00\x00\x8b\x07\xc3"), None);
    // lea rdi, [rip - 0x27]; mov rdi, rsi; mov eax, [rdi]; ret
    assert_eq!(reader(b"\x48\x8d\x3d\xd9\xff\xff\xff\x48\x89\xf7\x8b\x07\xc3"), None);
    // lea rdi, [rip - 0x27]; cmp rdi, [rsi]; ret
    assert_eq!(reader(b"\x48\x8d\x3d\xd9\xff\xff\xff\x48\x3b\x3e\xc3"), None);
}

/// Tables lie among code, and are read.
#[test]
fn bytes_behind_a_procedure_are_none_of_it() {
    // movzx eax, byte [rip - 0x17]; ret
    assert_eq!(reader(b"\x0f\xb6\x05\xe9\xff\xff\xff\xc3"), None);
}
