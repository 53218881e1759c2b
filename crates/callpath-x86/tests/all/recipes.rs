//! Small pieces of machine code, with their disassembly, and frames found by hand.

use crate::frames;

use callpath_format::address::LinkAddr;
use callpath_x86::analyse;
use callpath_x86::input::CodeInput;

const BASE: u64 = 0x1000;

/// Instructions, each with the frame before it: `(bytes, frame)`. A procedure begins with them at 0x1000.
fn check(code: &[(&[u8], &str)]) {
    let bytes: Vec<u8> = code.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
    let slices = [(LinkAddr(BASE), bytes.as_slice())];
    let analysis =
        analyse(&CodeInput { code: &slices, data: &slices, starts: &[LinkAddr(BASE)], ..CodeInput::default() });
    let mut at = BASE;
    for (index, (bytes, expect)) in code.iter().enumerate() {
        let found = frames::at(&analysis, at);
        assert_eq!(found, *expect, "instruction {index} at {at:#x}");
        at += bytes.len() as u64;
    }
}

#[test]
fn pushes_and_pops() {
    check(&[
        (&[0x53], "rsp+8"),                            // push rbx
        (&[0x48, 0x83, 0xec, 0x10], "rsp+16 rbx@-16"), // sub rsp, 16
        (&[0x31, 0xdb], "rsp+32 rbx@-16"),             // xor ebx, ebx
        (&[0x48, 0x83, 0xc4, 0x10], "rsp+32 rbx@-16"), // add rsp, 16
        (&[0x5b], "rsp+16 rbx@-16"),                   // pop rbx
        (&[0xc3], "rsp+8"),                            // ret
    ]);
}

#[test]
fn a_frame_pointer_and_code_behind_a_return() {
    check(&[
        (&[0x55], "rsp+8"),                      // push rbp
        (&[0x48, 0x89, 0xe5], "rsp+16 rbp@-16"), // mov rbp, rsp
        (&[0x48, 0x29, 0xfc], "rsp+16 rbp@-16"), // sub rsp, rdi
        (&[0x75, 0x02], "rbp+16 rbp@-16"),       // jne +2
        (&[0xc9], "rbp+16 rbp@-16"),             // leave
        (&[0xc3], "rsp+8"),                      // ret
        (&[0xc9], "rbp+16 rbp@-16"),             // leave
        (&[0xc3], "rsp+8"),                      // ret
    ]);
}

#[test]
fn a_realigned_frame_through_r10() {
    check(&[
        (&[0x4c, 0x8d, 0x54, 0x24, 0x08], "rsp+8"),           // lea r10, [rsp+8]
        (&[0x48, 0x83, 0xe4, 0xe0], "rsp+8"),                 // and rsp, -32
        (&[0x41, 0xff, 0x72, 0xf8], "r10+0"),                 // push [r10-8]
        (&[0x55], "r10+0"),                                   // push rbp
        (&[0x48, 0x89, 0xe5], "r10+0 rbp@[rsp+0]"),           // mov rbp, rsp
        (&[0x41, 0x52], "r10+0 rbp@[rsp+0]"),                 // push r10
        (&[0x4c, 0x8b, 0x55, 0xf8], "[rsp+0]+0 rbp@[rsp+8]"), // mov r10, [rbp-8]
        (&[0xc9], "[rsp+0]+0 rbp@[rsp+8]"),                   // leave
        (&[0x49, 0x8d, 0x62, 0xf8], "r10+0"),                 // lea rsp, [r10-8]
        (&[0xc3], "rsp+8"),                                   // ret
    ]);
}

#[test]
fn a_saved_stack_pointer_of_openssl() {
    check(&[
        (&[0x48, 0x89, 0xe0], "rsp+8"),                          // mov rax, rsp
        (&[0x53], "rsp+8"),                                      // push rbx
        (&[0x48, 0x83, 0xec, 0x60], "rsp+16 rbx@-16"),           // sub rsp, 96
        (&[0x48, 0x83, 0xe4, 0xc0], "rsp+112 rbx@-16"),          // and rsp, -64
        (&[0x48, 0x89, 0x44, 0x24, 0x58], "rax+8 rbx@-16"),      // mov [rsp+88], rax
        (&[0x31, 0xc0], "[rsp+88]+8 rbx@-16"),                   // xor eax, eax
        (&[0x48, 0x8b, 0x74, 0x24, 0x58], "[rsp+88]+8 rbx@-16"), // mov rsi, [rsp+88]
        (&[0x48, 0x8b, 0x5e, 0xf8], "[rsp+88]+8 rbx@-16"),       // mov rbx, [rsi-8]
        (&[0x48, 0x8d, 0x26], "[rsp+88]+8 rbx@-16"),             // lea rsp, [rsi]
        (&[0xc3], "rsp+8"),                                      // ret
    ]);
}

#[test]
fn a_probe_of_a_large_frame() {
    check(&[
        (&[0x4c, 0x8d, 0x9c, 0x24, 0x00, 0x00, 0xff, 0xff], "rsp+8"), // lea r11, [rsp-65536]
        (&[0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00], "r11+65544"),   // sub rsp, 4096
        (&[0x48, 0x83, 0x0c, 0x24, 0x00], "r11+65544"),               // or qword [rsp], 0
        (&[0x4c, 0x39, 0xdc], "r11+65544"),                           // cmp rsp, r11
        (&[0x75, 0xef], "r11+65544"),                                 // jne -17
        (&[0x48, 0x81, 0xc4, 0x00, 0x00, 0x01, 0x00], "rsp+65544"),   // add rsp, 65536
        (&[0xc3], "rsp+8"),                                           // ret
    ]);
}

#[test]
fn who_is_called_takes_from_the_callers_stack() {
    // The length of its arguments is known from where the caller returns.
    check(&[
        (&[0x6a, 0x05], "rsp+8"),        // push 5
        (&[0xe8, 2, 0, 0, 0], "rsp+16"), // call 2f
        (&[0x90], "rsp+8"),              // nop
        (&[0xc3], "rsp+8"),              // ret
        (&[0x59], "rsp+8"),              // 2: pop rcx
        (&[0x5a], "rsp+0 ra=rcx+0"),     // pop rdx
        (&[0x51], "rsp-8 ra=rcx+0"),     // push rcx
        (&[0xc3], "rsp+0 ra@0"),         // ret
    ]);
    // Of the first of two calls, it is not.
    check(&[
        (&[0x6a, 0x05], "rsp+8"),          // push 5
        (&[0x6a, 0x06], "rsp+16"),         // push 6
        (&[0xe8, 8, 0, 0, 0], "rsp+24"),   // call 2f
        (&[0x90], "?"),                    // nop
        (&[0xe8, 2, 0, 0, 0], "?"),        // call 2f
        (&[0x90], "rsp+8"),                // nop
        (&[0xc3], "rsp+8"),                // ret
        (&[0x59], "rsp+8"),                // 2: pop rcx
        (&[0x5a], "rsp+0 ra=rcx+0"),       // pop rdx
        (&[0xff, 0xe1], "rsp-8 ra=rcx+0"), // jmp rcx
    ]);
}

/// As in OpenSSL's Montgomery multiplication: the caller's stack pointer is stored behind an array of r9 words.
#[test]
fn a_stack_pointer_kept_where_an_index_says() {
    check(&[
        (&[0x48, 0x89, 0xe0], "rsp+8"),                                     // mov rax, rsp
        (&[0x53], "rsp+8"),                                                 // push rbx
        (&[0x49, 0xf7, 0xd9], "rsp+16 rbx@-16"),                            // neg r9
        (&[0x4a, 0x8d, 0x64, 0xcc, 0xf0], "rsp+16 rbx@-16"),                // lea rsp, [rsp + 8 * r9 - 16]
        (&[0x49, 0xf7, 0xd9], "rax+8 rbx@-16"),                             // neg r9
        (&[0x4a, 0x89, 0x44, 0xcc, 0x08], "rax+8 rbx@-16"),                 // mov [rsp + 8 * r9 + 8], rax
        (&[0x31, 0xc0], "rax+8 rbx@-16"),                                   // xor eax, eax
        (&[0x31, 0xdb], "*(rsp + 8 * r9 + 8)+8 rbx@-16"),                   // xor ebx, ebx
        (&[0x4a, 0x89, 0x1c, 0xc4], "*(rsp + 8 * r9 + 8)+8 rbx@-16"),       // mov [rsp + 8 * r8], rbx
        (&[0x75, 0xfa], "*(rsp + 8 * r9 + 8)+8 rbx@-16"),                   // jne -6
        (&[0x4a, 0x8b, 0x74, 0xcc, 0x08], "*(rsp + 8 * r9 + 8)+8 rbx@-16"), // mov rsi, [rsp + 8 * r9 + 8]
        (&[0x49, 0xff, 0xc1], "rsi+8 rbx@-16"),                             // inc r9
        (&[0x48, 0x8b, 0x5e, 0xf8], "rsi+8 rbx@-16"),                       // mov rbx, [rsi - 8]
        (&[0x48, 0x8d, 0x26], "rsi+8 rbx@-16"),                             // lea rsp, [rsi]
        (&[0xc3], "rsp+8"),                                                 // ret
    ]);
}
