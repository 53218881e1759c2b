//! Code whose frame control flow alone does not show, with its disassembly: each case occurred in a real program. The
//! expected frames were written by hand, or are those of the program's call frame information.

use crate::frames;

use callpath_format::address::LinkAddr;
use callpath_x86::analyse;
use callpath_x86::input::CodeInput;

const BASE: u64 = 0x1000;
/// The address of a word that holds the address of a procedure that never returns.
const NO_RETURN_SLOT: u64 = 0x9000;

/// Pieces of code one after the other, from 0x1000, each with the frame before its first instruction. Procedures begin
/// at the offsets in `starts`; the addresses of the offsets in `pointers` are in data.
fn check(starts: &[u64], pointers: &[u64], code: &[(&[u8], &str)]) {
    let bytes: Vec<u8> = code.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
    let slices = [(LinkAddr(BASE), bytes.as_slice())];
    let starts: Vec<_> = starts.iter().map(|start| LinkAddr(BASE + start)).collect();
    let pointers: Vec<_> =
        (0u64..).zip(pointers).map(|(n, to)| (LinkAddr(0x8000 + 8 * n), LinkAddr(BASE + to))).collect();
    let analysis = analyse(&CodeInput {
        code: &slices,
        data: &slices,
        starts: &starts,
        pointers: &pointers,
        no_return_slots: &[LinkAddr(NO_RETURN_SLOT)],
        ..CodeInput::default()
    });
    let mut address = BASE;
    for (index, (bytes, expect)) in code.iter().enumerate() {
        assert_eq!(frames::at(&analysis, address), *expect, "piece {index} at {address:#x}");
        address += bytes.len() as u64;
    }
}

/// `call [rip + NO_RETURN_SLOT]` at an offset.
fn no_return_call(offset: u64) -> Vec<u8> {
    let mut bytes = vec![0xff, 0x15];
    bytes.extend(((NO_RETURN_SLOT - (BASE + offset + 6)) as u32).to_le_bytes());
    bytes
}

/// sqlite3MemoryBarrier
#[test]
fn a_barrier_leaves_the_return_address() {
    check(
        &[0],
        &[],
        &[
            (&[0xf0, 0x48, 0x83, 0x0c, 0x24, 0x00], "rsp+8"), // lock or qword [rsp], 0
            (&[0xc3], "rsp+8"),                               // ret
        ],
    );
}

/// A procedure that gets its own address, and returns by a jump.
#[test]
fn a_return_address_popped_and_jumped_to() {
    check(
        &[0],
        &[],
        &[
            (&[0xe8, 0, 0, 0, 0], "rsp+8"),    // call the next instruction
            (&[0x58], "rsp+16"),               // pop rax
            (&[0x59], "rsp+8"),                // pop rcx
            (&[0xff, 0xe1], "rsp+0 ra=rcx+0"), // jmp rcx
        ],
    );
}

#[test]
fn a_callee_that_pops_its_arguments() {
    check(
        &[0, 16],
        &[],
        &[
            (&[0x56], "rsp+8"),                               // push rsi
            (&[0x56], "rsp+16"),                              // push rsi
            (&[0xe8, 9, 0, 0, 0], "rsp+24"),                  // call 0x1010
            (&[0xc3], "rsp+8"),                               // ret
            (&[0x0f, 0x1f, 0x80, 0, 0, 0, 0, 0x90], "rsp+8"), // padding
            (&[0xc2, 0x10, 0x00], "rsp+8"),                   // ret 16
        ],
    );
}

/// libcrypto keeps the caller's rsp in r11 across calls of subroutines that do not change it, and only of those.
#[test]
fn a_helper_that_leaves_a_register_alone() {
    let helpers: [(&[u8], _, _); 2] = [(&[0x31, 0xc9, 0xc3], "r11+8", "rsp+8"), (&[0x49, 0x89, 0xcb, 0xc3], "?", "?")];
    for (helper, after, end) in helpers {
        check(
            &[0, 32],
            &[],
            &[
                (&[0x49, 0x89, 0xe3], "rsp+8"),            // mov r11, rsp
                (&[0x48, 0x83, 0xe4, 0xf0], "rsp+8"),      // and rsp, -16
                (&[0xe8, 20, 0, 0], "r11+8"),              // call 0x1020
                (&[0], after),                             // while the call lasts it is looked up here
                (&[0x4c, 0x89, 0xdc], after),              // mov rsp, r11
                (&[0xc3], end),                            // ret
                (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], end), // padding
                (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], end), // padding
                (helper, "rsp+8"),                         // xor ecx, ecx; ret     mov r11, rcx; ret
            ],
        );
    }
}

/// An exception lands after the procedure's return: the frame of the calls holds there, without what was pushed for one
/// of them.
#[test]
fn a_landing_pad_has_the_frame_of_the_calls() {
    check(
        &[0],
        &[],
        &[
            (&[0x53], "rsp+8"),                      // push rbx
            (&[0xff, 0xd7], "rsp+16 rbx@-16"),       // call rdi
            (&[0x5b], "rsp+16 rbx@-16"),             // pop rbx
            (&[0xc3], "rsp+8"),                      // ret
            (&[0x48, 0x89, 0xc3], "rsp+16 rbx@-16"), // mov rbx, rax
            (&[0xff, 0xd6], "rsp+16 rbx@-16"),       // call rsi
            (&[0x48, 0x89, 0xdf], "rsp+16 rbx@-16"), // mov rdi, rbx
            (&no_return_call(13), "rsp+16 rbx@-16"),
        ],
    );
}

/// With a variable-size area on the stack the calls share only rbp.
#[test]
fn a_landing_pad_of_a_frame_of_variable_size() {
    check(
        &[0],
        &[],
        &[
            (&[0x55], "rsp+8"),                      // push rbp
            (&[0x48, 0x89, 0xe5], "rsp+16 rbp@-16"), // mov rbp, rsp
            (&[0xff, 0xd7], "rsp+16 rbp@-16"),       // call rdi
            (&[0x48, 0x29, 0xfc], "rsp+16 rbp@-16"), // sub rsp, rdi
            (&[0xff, 0xd6], "rbp+16 rbp@-16"),       // call rsi
            (&[0xc9], "rbp+16 rbp@-16"),             // leave
            (&[0xc3], "rsp+8"),                      // ret
            (&[0x48, 0x89, 0xc7], "rbp+16 rbp@-16"), // mov rdi, rax
            (&no_return_call(16), "rbp+16 rbp@-16"),
        ],
    );
}

/// A cold part that begins after a call that does not return, reached by a jump from a landing pad in the hot part.
#[test]
fn a_cold_part_has_the_frame_of_the_jump_into_it() {
    check(
        &[32],
        &[],
        &[
            (&[0xff, 0x07], "rsp+16 rbx@-16"), // inc dword [rdi]
            (&no_return_call(2), "rsp+16 rbx@-16"),
            (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "rsp+16 rbx@-16"), // padding
            (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "rsp+16 rbx@-16"), // padding
            (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "rsp+16 rbx@-16"), // padding
            (&[0x53], "rsp+8"),                                     // push rbx
            (&[0xff, 0xd7], "rsp+16 rbx@-16"),                      // call rdi
            (&[0x5b], "rsp+16 rbx@-16"),                            // pop rbx
            (&[0xc3], "rsp+8"),                                     // ret
            (&[0x48, 0x89, 0xc7], "rsp+16 rbx@-16"),                // mov rdi, rax
            (&[0xeb, 0xd6], "rsp+16 rbx@-16"),                      // jmp 0x1000
        ],
    );
}

/// OpenSSL's AVX2 code for SHA lowers rsp in each iteration, with a copy of the caller's rsp below it: the frame after
/// the loop is known from the return.
#[test]
fn a_frame_that_a_loop_loses_is_found_at_the_return() {
    check(
        &[0],
        &[],
        &[
            (&[0x48, 0x89, 0xe0], "rsp+8"),                               // mov rax, rsp
            (&[0x48, 0x83, 0xec, 0x20], "rsp+8"),                         // sub rsp, 32
            (&[0x48, 0x83, 0xe4, 0xc0], "rsp+40"),                        // and rsp, -64
            (&[0x48, 0x89, 0x44, 0x24, 0x18], "rax+8"),                   // mov [rsp+24], rax
            (&[0x31, 0xc0], "[rsp+24]+8"),                                // xor eax, eax
            (&[0x48, 0x8d, 0x64, 0x24, 0xc0], "?"),                       // lea rsp, [rsp-64]
            (&[0xff, 0xcf], "?"),                                         // dec edi
            (&[0x75, 0xf7], "?"),                                         // jne -9
            (&[0x31, 0xd2], "[rsp+280]+8"),                               // xor edx, edx
            (&[0x48, 0x8b, 0xb4, 0x24, 0x18, 0x01, 0, 0], "[rsp+280]+8"), // mov rsi, [rsp+280]
            (&[0x48, 0x8d, 0x26], "[rsp+280]+8"),                         // lea rsp, [rsi]
            (&[0xc3], "rsp+8"),                                           // ret
        ],
    );
}

/// Labels whose addresses are in a table (`goto *p`) are not procedures.
#[test]
fn labels_have_the_frame_of_the_jump_that_nobody_can_follow() {
    check(
        &[0],
        &[16],
        &[
            (&[0x55], "rsp+8"),                                     // push rbp
            (&[0x48, 0x89, 0xe5], "rsp+16 rbp@-16"),                // mov rbp, rsp
            (&[0xff, 0xd7], "rsp+16 rbp@-16"),                      // call rdi
            (&[0xff, 0xe0], "rsp+16 rbp@-16"),                      // jmp rax
            (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "rsp+16 rbp@-16"), // padding
            (&[0x8b, 0x45, 0xf8], "rsp+16 rbp@-16"),                // mov eax, [rbp-8]
            (&[0xeb, 0xf1], "rsp+16 rbp@-16"),                      // jmp back, to the call
        ],
    );
}

/// As V8's SortCompareUserFn, which calls what takes its arguments off, at 0; such a callee stands at 32.
#[test]
fn after_a_call_that_takes_an_unknown_number_of_arguments_off() {
    // pop r10; lea rsp, [rsp+8*rcx]; push r10; ret     ret
    let callees: [(&[u8], _); 2] =
        [(&[0x41, 0x5a, 0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3], "rbp+16 rbp@-16"), (&[0xc3], "rsp+32 rbp@-16")];
    for (callee, after) in callees {
        check(
            &[0, 32],
            &[],
            &[
                (&[0x55], "rsp+8"),                            // push rbp
                (&[0x48, 0x89, 0xe5], "rsp+16 rbp@-16"),       // mov rbp, rsp
                (&[0x6a, 0x22], "rsp+16 rbp@-16"),             // push 34
                (&[0x51], "rsp+24 rbp@-16"),                   // push rcx
                (&[0xff, 0xd2], "rsp+32 rbp@-16"),             // call rdx
                (&[0xa8, 0x01], after),                        // test al, 1
                (&[0x75, 0x02], after),                        // jne over the next one
                (&[0x31, 0xc0], after),                        // xor eax, eax
                (&[0x48, 0x89, 0xec], after),                  // mov rsp, rbp
                (&[0x5d], "rsp+16 rbp@-16"),                   // pop rbp
                (&[0xc3], "rsp+8"),                            // ret
                (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "rsp+8"), // padding
                (&[0x0f, 0x1f, 0x40, 0], "rsp+8"),             // padding
                (callee, "rsp+8"),
            ],
        );
    }
}

/// As V8's CallFunction, which makes room for arguments that the caller has left out, and copies the return address.
#[test]
fn a_tail_call_with_the_stack_of_the_entry_or_another_one() {
    check(
        &[0],
        &[],
        &[
            (&[0x48, 0x29, 0xc3], "rsp+8"),                // sub rbx, rax
            (&[0x7e, 0x14], "rsp+8 rbx lost"),             // jle to the end
            (&[0x49, 0x89, 0xe0], "rsp+8 rbx lost"),       // mov r8, rsp
            (&[0x48, 0x29, 0xdc], "rsp+8 rbx lost"),       // sub rsp, rbx
            (&[0x4d, 0x8b, 0x10], "r8+8 rbx lost"),        // mov r10, [r8]
            (&[0x4c, 0x89, 0x14, 0x24], "r8+8 rbx lost"),  // mov [rsp], r10
            (&[0x45, 0x31, 0xc0], "r8+8 rbx lost"),        // xor r8d, r8d
            (&[0xff, 0xcb], "rsp+8 rbx lost"),             // dec ebx
            (&[0x75, 0xfc], "rsp+8 rbx lost"),             // jne back
            (&[0x48, 0x8b, 0x4f, 0x08], "rsp+8 rbx lost"), // mov rcx, [rdi+8]
            (&[0xff, 0xe1], "rsp+8 rbx lost"),             // jmp rcx
        ],
    );
}

/// The code that signal handlers return to is looked up by the byte before it, which is padding.
#[test]
fn a_signal_return_behind_padding() {
    let signal =
        "[rsp+160]+0 ra@[rsp+168] rbx@[rsp+128] rbp@[rsp+120] r12@[rsp+72] r13@[rsp+80] r14@[rsp+88] r15@[rsp+96]";
    check(
        &[0],
        &[],
        &[
            (&[0xc3], "rsp+8"),                              // ret
            (&[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "?"), // padding
            (&[0x0f, 0x1f, 0x40], "?"),
            (&[0x00], signal),                                        // the padding's last byte
            (&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], signal), // mov rax, 15; syscall
        ],
    );
}

/// musl's longjmp loads rsp from its buffer: the code after a call of it belongs to another procedure.
#[test]
fn nobody_comes_back_from_longjmp() {
    check(
        &[0, 16, 33],
        &[],
        &[
            (&[0x50], "rsp+8"),                      // push rax
            (&[0xe8, 27, 0, 0, 0], "rsp+16"),        // call 0x1021
            (&[0x48, 0x89, 0xc7], "rsp+32 rbx@-16"), // mov rdi, rax: reached from below
            (&[0xeb, 0x10], "rsp+32 rbx@-16"),       // jmp 0x101b
            (&[0x0f, 0x1f, 0x44, 0, 0], "rsp+32 rbx@-16"),
            (&[0x53], "rsp+8"),                            // push rbx
            (&[0x48, 0x83, 0xec, 0x10], "rsp+16 rbx@-16"), // sub rsp, 16
            (&[0xff, 0xd7], "rsp+32 rbx@-16"),             // call rdi
            (&[0x85, 0xc0], "rsp+32 rbx@-16"),             // test eax, eax
            (&[0x74, 0xeb], "rsp+32 rbx@-16"),             // je 0x1006
            (&[0x48, 0x83, 0xc4, 0x10], "rsp+32 rbx@-16"), // add rsp, 16
            (&[0x5b], "rsp+16 rbx@-16"),                   // pop rbx
            (&[0xc3], "rsp+8"),                            // ret
            (&[0x48, 0x8b, 0x67, 0x30], "rsp+8"),          // mov rsp, [rdi+48]
            (&[0xff, 0x67, 0x38], "?"),                    // jmp [rdi+56]
        ],
    );
}
