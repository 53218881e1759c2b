//! Live registers and reaching definitions of small procedures, compared with values found by hand.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, ProcedureGraph};
use callpath_x86::input::CodeInput;
use callpath_x86::liveness::{Convention, Liveness};
use callpath_x86::reaching::{Definition, ReachingDefinitions};

const BASE: u64 = 0x1000;
const RAX: u16 = 1;
const RCX: u16 = 2;
const RDX: u16 = 4;
const RBX: u16 = 8;
const RSP: u16 = 16;
const RSI: u16 = 64;
const RDI: u16 = 128;
const R8: u16 = 256;
const R11: u16 = 1 << 11;
const CALLEE_SAVED: u16 = RBX | 1 << 5 | 0xf000;

/// Procedures, one after the other, as lists of instructions; the first can be called from elsewhere.
fn with_procedures<T>(procedures: &[&[&[u8]]], then: impl FnOnce(&ModuleFlow<'_>, &[ProcedureGraph]) -> T) -> T {
    let mut code: Vec<u8> = Vec::new();
    let mut fragments = Vec::new();
    for procedure in procedures {
        let start = LinkAddr(BASE + code.len() as u64);
        code.extend(procedure.concat());
        fragments.push(Fragment { code: start..LinkAddr(BASE + code.len() as u64), kind: FragmentKind::Entry });
    }
    let slices = [(LinkAddr(BASE), code.as_slice())];
    let starts = [LinkAddr(BASE)];
    let code = CodeInput { code: &slices, data: &slices, starts: &starts, ..CodeInput::default() };
    let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &[] });
    let graphs: Vec<ProcedureGraph> = (0..flow.len()).map(|procedure| flow.graph(procedure)).collect();
    then(&flow, &graphs)
}

/// What is live before each instruction of the procedure at `entry`: registers, and whether flags are.
fn live(procedures: &[&[&[u8]]], number: usize) -> Vec<(u16, bool)> {
    with_procedures(procedures, |flow, graphs| {
        let liveness = Liveness::new(flow, graphs, Convention::SystemV);
        let blocks = 0..graphs[number].blocks.len() as u32;
        let found: Vec<_> = blocks.clone().flat_map(|block| liveness.in_block(flow, number, block)).collect();
        for block in blocks {
            let first = liveness.in_block(flow, number, block)[0].1;
            assert_eq!(liveness.at_block(number, block), first);
        }
        found.into_iter().map(|(_, live)| (live.general(), live.has_flags())).collect()
    })
}

#[test]
fn what_is_read_before_it_is_written() {
    let kept = CALLEE_SAVED | RSP;
    let found = live(
        &[&[
            b"\x48\x89\xf8", // mov rax, rdi
            b"\x31\xd2",     // xor edx, edx
            b"\x48\x85\xf6", // test rsi, rsi
            b"\x74\x03",     // je +3
            b"\x48\x01\xf0", // add rax, rsi
            b"\xb1\x05",     // mov cl, 5
            b"\x48\xd3\xe0", // shl rax, cl
            b"\xc3",         // ret
        ]],
        0,
    );
    // rcx: `mov cl, 5` leaves its other bytes, which are not read; the analysis follows whole registers.
    let expect = [
        (kept | RDI | RSI | RCX, false),
        (kept | RAX | RSI | RCX, false),
        (kept | RAX | RDX | RSI | RCX, false),
        (kept | RAX | RDX | RSI | RCX, true),
        (kept | RAX | RDX | RSI | RCX, false),
        (kept | RAX | RDX | RCX, false),
        (kept | RAX | RDX | RCX, false),
        (kept | RAX | RDX, false),
    ];
    assert_eq!(found, expect);
}

#[test]
fn across_calls_within_the_module() {
    let kept = CALLEE_SAVED | RSP;
    let caller: &[&[u8]] = &[
        b"\x49\x89\xfb",         // 0: mov r11, rdi
        b"\xe8\x06\x00\x00\x00", // 3: call callee (0xe)
        b"\x4c\x01\xd8",         // 8: add rax, r11
        b"\x31\xd2",             // b: xor edx, edx
        b"\xc3",                 // d: ret
    ];
    // It preserves r11, and its caller relies on that.
    let callee: &[&[u8]] = &[
        b"\x48\x8d\x06", // e: lea rax, [rsi]
        b"\xc3",         // 11: ret
    ];
    let found = live(&[caller, callee], 0);
    let expect = [
        (kept | RDI | RSI, false),
        (kept | RSI | R11, false),
        (kept | RAX | R11, false),
        (kept | RAX, false),
        (kept | RAX | RDX, false),
    ];
    assert_eq!(found, expect);
    // In the callee, too, r11 must be preserved; rdx is not read, so its caller's value is dead.
    assert_eq!(live(&[caller, callee], 1), [(kept | RSI | R11, false), (kept | RAX | R11, false)]);
}

#[test]
fn flags_that_a_procedure_gives_back() {
    let caller: &[&[u8]] = &[
        b"\xe8\x05\x00\x00\x00", // 0: call callee (0xa)
        b"\x0f\x92\xc0",         // 5: setb al
        b"\x31\xd2",             // 8: xor edx, edx (the procedure below begins behind it: it runs on)
    ];
    let callee: &[&[u8]] = &[
        b"\x48\x39\xf7", // a: cmp rdi, rsi
        b"\xc3",         // d: ret
    ];
    let found = live(&[caller, callee], 1);
    assert!(!found[0].1 && found[1].1, "{found:?}");
}

#[test]
fn unknown_code_may_read_its_arguments() {
    let found = live(
        &[&[
            b"\xff\xd0",     // call rax
            b"\x4c\x89\xc0", // mov rax, r8
            b"\x31\xd2",     // xor edx, edx
            b"\xc3",         // ret
        ]],
        0,
    );
    // The call may change r8, but the callee may read its earlier value.
    assert_eq!(found[0].0 & (R8 | RDI | RSI | RAX | R11), R8 | RDI | RSI | RAX);
    assert_eq!(found[1].0 & (R8 | RAX), R8);
    // call [rax]: as for a TLS descriptor, r11 is preserved; add rax, r11; xor edx, edx; ret
    let found = live(&[&[b"\xff\x10", b"\x4c\x01\xd8", b"\x31\xd2", b"\xc3"]], 0);
    assert_eq!(found[0].0 & R11, R11);
}

#[test]
fn definitions_on_all_ways() {
    let code: &[&[u8]] = &[
        b"\x31\xc0",     // 0: xor eax, eax
        b"\x48\x85\xff", // 2: test rdi, rdi
        b"\x74\x05",     // 5: je 0xc
        b"\xb0\x01",     // 7: mov al, 1
        b"\x48\xff\xc3", // 9: inc rbx
        b"\x48\xff\xcf", // c: dec rdi
        b"\x75\xf6",     // f: jne 7
        b"\xff\xd6",     // 11: call rsi
        b"\xc3",         // 13: ret
    ];
    with_procedures(&[code], |flow, graphs| {
        let reach = |register: usize, at: u64| {
            ReachingDefinitions::of(flow, &graphs[0], register).at(flow, LinkAddr(BASE + at))
        };
        let at = |offset: u64| Definition::At(LinkAddr(BASE + offset));
        assert_eq!(reach(0, 0), [Definition::Entry]);
        assert_eq!(reach(0, 2), [at(0)]);
        // Writing one byte does not replace the register.
        assert_eq!(reach(0, 0xc), [at(0), at(7)]);
        assert_eq!(reach(0, 0x13), [at(0x11)]);
        assert_eq!(reach(3, 0x13), [Definition::Entry, at(9)]);
        assert_eq!(reach(7, 7), [Definition::Entry, at(0xc)]);
        assert_eq!(reach(7, 0xc), [Definition::Entry, at(0xc)]);
    });
}
