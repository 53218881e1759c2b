//! Jump tables from real programs, reduced, with their disassembly.

use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, TableEnd};
use callpath_x86::input::CodeInput;
use callpath_x86::loops::forest;

const BASE: u64 = 0x1000;
const TABLE: u64 = 0x8000;

/// An interpreter's loop as gcc compiles it from labels as values: the table's address is saved on the stack, the index
/// is a byte, and the first opcode is never run. That case has no code, so a jump of another procedure has the same
/// target for its impossible case.
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
        assert_eq!(*table.targets, [first, second]);
        assert_eq!(table.addresses, [LinkAddr(TABLE)]);
        assert_eq!(table.end, TableEnd::Bound);
    }
    // A table of procedures may lead to one.
    let graph = with_kind(FragmentKind::Entry);
    assert!(graph.tables.is_empty(), "{graph:?}");
}

/// The index is a copy of what is compared, and something else is compared in between.
#[test]
fn a_table_is_bounded_by_the_comparison_of_the_register_that_its_index_was_copied_from() {
    let code: &[&[u8]] = &[
        b"\x49\x89\xfe",     // 00: mov r14, rdi
        b"\x83\xfa\x05",     // 03: cmp edx, 5
        b"\x77\x10",         // 06: ja 0x18
        b"\x83\xff\x02",     // 08: cmp edi, 2
        b"\x77\x0b",         // 0b: ja 0x18
        b"\x42\xff\x24\xf5", // 0d: jmp [8 * r14 + 0x8000]
        b"\x00\x80\x00\x00",
        b"\xc3\xc3\xc3\xc3", // 15, 16, 17, 18: ret
    ];
    let bytes = code.concat();
    let slices = [(LinkAddr(BASE), bytes.as_slice())];
    // What stands behind the third entry is another table's.
    let pointers: Vec<_> =
        (0..5).map(|index| (LinkAddr(TABLE + 8 * index), LinkAddr(BASE + 0x15 + index % 4))).collect();
    let code = CodeInput { code: &slices, data: &slices, pointers: &pointers, ..CodeInput::default() };
    let fragments = [Fragment { code: LinkAddr(BASE)..LinkAddr(BASE + 0x19), kind: FragmentKind::Entry }];
    let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &[] });
    let graph = flow.graph(flow.procedure_at(LinkAddr(BASE)).unwrap());
    let [table] = &graph.tables[..] else { panic!("{graph:?}") };
    assert_eq!(table.end, TableEnd::Bound);
    assert_eq!(*table.targets, [0x15, 0x16, 0x17].map(|at| LinkAddr(BASE + at)));
}

/// A procedure as a compiler writes nested long matches: the table's address stays in one register, and no comparison
/// bounds an index, which is the tag of a variant. Each jump is traced back over all code before it; all share the same
/// query.
#[test]
fn many_jumps_far_from_where_their_tables_are_named_are_all_resolved() {
    const JUMPS: u64 = 150;
    const CASE_LEN: usize = 352;
    let table = |jump: u64| TABLE + 0x10_0000 + 8 * jump;
    let head = 16;
    let mut bytes = b"\x48\x8d\x1d".to_vec(); // lea rbx, [rip + ...] (the first table)
    bytes.extend(((table(0) - (BASE + 7)) as u32).to_le_bytes());
    bytes.resize(head, 0x90);
    let case_at = |jump: u64| BASE + head as u64 + CASE_LEN as u64 * jump;
    let end = case_at(JUMPS);
    let mut data = Vec::new();
    for jump in 0..JUMPS {
        let start = bytes.len();
        bytes.extend(b"\x85\xd2\x0f\x84"); // test edx, edx; je to the next case
        bytes.extend((CASE_LEN as u32 - 8).to_le_bytes());
        for field in 0..40 {
            bytes.extend([0x83, 0x7e, field, 1]); // cmp dword [rsi + ...], 1
            bytes.extend([0x74, 0x02]); // je behind the next one
            bytes.extend([0x31, 0xc0]); // xor eax, eax
        }
        bytes.extend(b"\x0f\xb6\x47\x08"); // movzx eax, byte [rdi + 8]
        bytes.extend(b"\x48\x63\x8c\x83"); // movsxd rcx, [rbx + 4 * rax + ...]
        bytes.extend(((table(jump) - table(0)) as u32).to_le_bytes());
        bytes.extend(b"\x48\x01\xd9"); // add rcx, rbx
        bytes.extend(b"\xff\xe1"); // jmp rcx
        bytes.resize(start + CASE_LEN, 0xcc);
        // Entries are distances from the first table. The next table begins after two of them.
        data.extend(((case_at(jump + 1).wrapping_sub(table(0))) as u32).to_le_bytes());
        data.extend(((end.wrapping_sub(table(0))) as u32).to_le_bytes());
    }
    bytes.push(0xc3);
    let slices = [(LinkAddr(BASE), bytes.as_slice())];
    let data = [(LinkAddr(table(0)), data.as_slice())];
    let code = CodeInput { code: &slices, data: &data, ..CodeInput::default() };
    let fragments = [Fragment { code: LinkAddr(BASE)..LinkAddr(end + 1), kind: FragmentKind::Entry }];
    let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &[] });
    let graph = flow.graph(flow.procedure_at(LinkAddr(BASE)).unwrap());
    assert_eq!(graph.unresolved(), 0);
    assert_eq!(graph.tables.len() as u64, JUMPS);
    for (jump, found) in (0..).zip(&graph.tables) {
        assert_eq!(found.addresses, [LinkAddr(table(jump))]);
        assert!(found.targets.contains(&LinkAddr(case_at(jump + 1))), "{found:?}");
    }
}

/// A computed `goto` as gcc compiles it: each case ends with a copy of the jump. Memory grows with the number of cases,
/// not with its square, and all cases form one loop.
#[test]
fn copies_of_a_jump_have_their_edges_in_common() {
    let interpreter = |cases: u64| {
        // inc rsi; movzx eax, byte [rsi]; jmp [8 * rax + TABLE]
        let case = [&b"\x48\xff\xc6\x0f\xb6\x06\xff\x24\xc5"[..], &(TABLE as u32).to_le_bytes()].concat();
        let len = case.len() as u64;
        let mut bytes = case.repeat(cases as usize);
        bytes.push(0xc3);
        let slices = [(LinkAddr(BASE), bytes.as_slice())];
        // Not to the first case, which is the entry.
        let pointers: Vec<_> =
            (0..cases).map(|case| (LinkAddr(TABLE + 8 * case), LinkAddr(BASE + len * (case + 1)))).collect();
        let code = CodeInput { code: &slices, pointers: &pointers, ..CodeInput::default() };
        let fragments =
            [Fragment { code: LinkAddr(BASE)..LinkAddr(BASE + len * cases + 1), kind: FragmentKind::Entry }];
        let flow = ModuleFlow::new(&GraphInput { code, fragments: &fragments, landing_pads: &[] });
        flow.graph(flow.procedure_at(LinkAddr(BASE)).unwrap())
    };
    for cases in [60, 120, 240] {
        let graph = interpreter(cases);
        assert_eq!((graph.unresolved(), graph.blocks.len() as u64, graph.tables.len() as u64), (0, cases + 1, cases));
        assert_eq!(graph.edges.len() as u64, cases);
        let shared = &graph.tables[0].targets;
        assert!(graph.tables.iter().all(|table| Arc::ptr_eq(shared, &table.targets)));
        for block in 0..cases as u32 {
            assert_eq!((graph.copied_jump(block), graph.successors(block).len() as u64), (Some(0), cases));
        }
        let forest = forest(&graph);
        let shapes: Vec<_> = forest.loops.iter().map(|l| (l.is_dispatch, l.is_irreducible, l.header)).collect();
        assert_eq!(shapes, [(true, false, 1)]);
        assert_eq!(forest.blocks(0), (1..cases as u32).collect::<Vec<_>>());
        assert_eq!(forest.exits(0).len() as u64, cases - 1);
    }
}
