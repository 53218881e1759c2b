//! Jump tables that real programs brought, rebuilt in small with their disassembly.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, TableEnd};
use callpath_x86::input::CodeInput;

const BASE: u64 = 0x1000;
const TABLE: u64 = 0x8000;

/// An interpreter's loop as gcc makes it of labels as values: the table's address is kept on the stack, the index is a
/// byte, and the first opcode is none that is run. That case has no code of its own, so that another procedure's jump
/// to what it never runs got the same place.
#[test]
fn an_impossible_case_of_an_interpreter_ends_no_table() {
    let code: &[&[u8]] = &[
        b"\x48\x83\xec\x18",             // 00: sub rsp, 0x18
        b"\x48\x8d\x1d\xf5\x6f\x00\x00", // 04: lea rbx, [rip + 0x6ff5] (0x8000)
        b"\x48\x89\x5c\x24\x10",         // 0b: mov [rsp + 0x10], rbx
        b"\x0f\xb6\x07",                 // 10: movzx eax, byte [rdi]
        b"\x48\x8b\x4c\x24\x10",         // 13: mov rcx, [rsp + 0x10]
        b"\xff\x24\xc1",                 // 18: jmp [rcx + 8 * rax]
        b"\x0f\xb6\x47\x01",             // 1b: movzx eax, byte [rdi + 1]
        b"\x48\x8b\x4c\x24\x10",         // 1f: mov rcx, [rsp + 0x10]
        b"\xff\x24\xc1",                 // 24: jmp [rcx + 8 * rax]
        b"\x31\xc0",                     // 27: xor eax, eax
        b"\x48\x83\xc4\x18",             // 29: add rsp, 0x18
        b"\xc3",                         // 2d: ret
        b"\x66\x90",                     // 2e: nop
        b"\x83\xff\x05",                 // 30: cmp edi, 5
        b"\x77\x0b",                     // 33: ja 0x40
        b"\x89\xf8",                     // 35: mov eax, edi
        b"\xc3",                         // 37: ret
        b"\x0f\x1f\x84\0\0\0\0\0",       // 38: nop
        b"\x4c\x89\x75\x38",             // 40: mov [rbp + 0x38], r14
        b"\x0f\x0b",                     // 44: ud2
    ];
    let bytes = code.concat();
    let slices = [(LinkAddr(BASE), bytes.as_slice())];
    let (first, second, part) = (LinkAddr(BASE + 0x1b), LinkAddr(BASE + 0x27), LinkAddr(BASE + 0x40));
    let case = |index: u64| match index {
        0 => part,
        index if index % 2 == 1 => first,
        _ => second,
    };
    let pointers: Vec<_> = (0..256).map(|index| (LinkAddr(TABLE + 8 * index), case(index))).collect();
    let fragment = |from, to, kind| Fragment { code: LinkAddr(BASE + from)..LinkAddr(BASE + to), kind };
    let with_kind = |kind| {
        let fragments = [
            fragment(0, 0x2e, FragmentKind::Entry),
            fragment(0x30, 0x38, FragmentKind::Entry),
            fragment(0x40, 0x46, kind),
        ];
        let code = CodeInput { code: &slices, data: &slices, pointers: &pointers, ..CodeInput::default() };
        let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &[] });
        flow.graph(flow.procedure_at(LinkAddr(BASE)).unwrap())
    };
    let graph = with_kind(FragmentKind::Part);
    assert_eq!(graph.unresolved(), 0, "{graph:?}");
    assert_eq!(graph.tables.len(), 2, "{graph:?}");
    for table in &graph.tables {
        assert_eq!(table.targets, [first, second]);
        assert_eq!(table.addresses, [LinkAddr(TABLE)]);
        assert_eq!(table.end, TableEnd::Bound);
    }
    // A table of procedures may lead to one.
    let graph = with_kind(FragmentKind::Entry);
    assert!(graph.tables.is_empty(), "{graph:?}");
}
