//! Arguments that small procedures take and pass, compared with what is found by hand. Bits: rdi, rsi, rdx, rcx, r8, r9.

use crate::small;

use callpath_x86::arguments::arguments;
use small::with_procedures;

const RET: &[u8] = b"\xc3";
const CALL_RAX: &[u8] = b"\xff\xd0";

/// What the first procedure takes, and what its calls pass, in the order of their addresses.
fn of(procedures: &[&[u8]]) -> (u8, Vec<u8>) {
    with_procedures(procedures, |flow, graphs| {
        let found = arguments(flow, graphs).swap_remove(0);
        let mut passes: Vec<_> = found.passes.into_iter().collect();
        passes.sort_unstable();
        (found.takes.bits(), passes.into_iter().map(|(_, set)| set.bits()).collect())
    })
}

fn takes(code: &[&[u8]]) -> u8 {
    of(&[&[code, &[RET]].concat().concat()]).0
}

#[test]
fn what_is_computed_with_is_taken() {
    assert_eq!(takes(&[b"\x48\x89\xf8"]), 0b1, "mov rax, rdi");
    assert_eq!(takes(&[b"\x8d\x04\x37"]), 0b11, "lea eax, [rdi + rsi]");
    assert_eq!(takes(&[b"\x4d\x8b\x48\x08"]), 0b1_0000, "mov r9, [r8 + 8]");
    assert_eq!(takes(&[b"\x48\x89\x0a"]), 0b1100, "mov [rdx], rcx");
    // xor edi, edi; mov rax, rdi; and on one of two ways: je over it.
    assert_eq!(takes(&[b"\x31\xff", b"\x48\x89\xf8"]), 0);
    assert_eq!(takes(&[b"\x74\x02", b"\x31\xff", b"\x48\x89\xf8"]), 0b1);
    // sete dl; movzx edx, dl: nothing of rdx is left that was passed.
    assert_eq!(takes(&[b"\x0f\x94\xc2", b"\x0f\xb6\xc2"]), 0);
}

#[test]
fn what_is_only_saved_or_changed_in_place_is_not() {
    assert_eq!(takes(&[b"\x57", b"\x58"]), 0, "push rdi; pop rax");
    assert_eq!(takes(&[b"\x48\x89\x74\x24\xf8"]), 0, "mov [rsp - 8], rsi");
    assert_eq!(takes(&[b"\x48\x83\xcf\xff"]), 0, "or rdi, -1");
    // What is read behind a call was not passed: call rax; mov rax, rdi.
    assert_eq!(of(&[&[CALL_RAX, b"\x48\x89\xf8", RET].concat()]).0, 0);
}

#[test]
fn what_may_have_been_set_is_passed() {
    // Its own arguments pass through; behind a call they are gone, but for the second result (rdx).
    assert_eq!(of(&[&[CALL_RAX, CALL_RAX, RET].concat()]).1, [0b11_1111, 0b100]);
    // call rax; xor edi, edi; call rax
    assert_eq!(of(&[&[CALL_RAX, b"\x31\xff", CALL_RAX, RET].concat()]).1, [0b11_1111, 0b101]);
    // call rax; je +2; mov esi, edi; call rax: on one of two ways.
    assert_eq!(of(&[&[CALL_RAX, b"\x74\x02", b"\x89\xfe", CALL_RAX, RET].concat()]).1, [0b11_1111, 0b110]);
}

#[test]
fn what_a_callee_leaves_alone_is_still_passed() {
    // call the next procedure, 32 bytes on, then through rax.
    let first = [b"\xe8\x1b\0\0\0", CALL_RAX, RET].concat();
    let kept = |second: &[&[u8]]| of(&[&first, &second.concat(), RET]).1[1];
    assert_eq!(kept(&[b"\x31\xff", RET]), 0b11_1110, "xor edi, edi");
    assert_eq!(kept(&[CALL_RAX, RET]), 0b100);
    assert_eq!(kept(&[b"\x31\xf6", b"\xe9\x19\0\0\0"]), 0b11_1101, "xor esi, esi; jmp the third");
}
