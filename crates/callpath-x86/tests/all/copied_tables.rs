//! Jumps through tables: a copy has tables of its own where nothing else can tell.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, ProcedureGraph};
use callpath_x86::input::CodeInput;
use callpath_x86::liveness::{Convention, Liveness};
use callpath_x86::rewrite::{Plan, Rewriter, Rewritten};

const BASE: u64 = 0x1000;
const TABLE: u64 = 0x1100;
const COPY: LinkAddr = LinkAddr(0x8000);
const CASES: [u64; 3] = [0x20, 0x26, 0x2c];

/// A switch of three cases, as gcc makes it; `case` begins the first of them.
fn switch(case: &[u8]) -> Vec<u8> {
    let mut code = vec![
        0x83, 0xff, 0x02, // cmp edi, 2
        0x77, 0x2a, // ja 0x2f
        0x89, 0xff, // mov edi, edi
        0x48, 0x8d, 0x15, 0xf2, 0, 0, 0, // lea rdx, [rip + table]
        0x48, 0x63, 0x04, 0xba, // movsxd rax, [rdx + 4*rdi]
        0x48, 0x01, 0xd0, // add rax, rdx
        0xff, 0xe0, // jmp rax
    ];
    code.resize(CASES[0] as usize, 0xcc);
    code.extend(case);
    code.resize(CASES[1] as usize - 1, 0x90);
    code.push(0xc3);
    // mov eax, 2; ret
    code.extend([0xb8, 2, 0, 0, 0, 0xc3]);
    // xor eax, eax; ret
    code.extend([0x31, 0xc0, 0xc3]);
    // ret
    code.push(0xc3);
    code.resize((TABLE - BASE) as usize, 0xcc);
    for case in CASES {
        code.extend((BASE as i64 + case as i64 - TABLE as i64).to_le_bytes()[..4].iter());
    }
    code
}

/// The copy of a switch.
fn copied(code: &[u8], constant: bool) -> Rewritten {
    let slices = [(LinkAddr(BASE), code)];
    let constant =
        if constant { [LinkAddr(BASE)..LinkAddr(BASE + code.len() as u64)] } else { [LinkAddr(0)..LinkAddr(0)] };
    let fragments = [Fragment { code: LinkAddr(BASE)..LinkAddr(BASE + 0x30), kind: FragmentKind::Entry }];
    let text = [(LinkAddr(BASE), &code[..0x30])];
    let input = CodeInput {
        code: &text,
        data: &slices,
        constant: &constant,
        starts: &[LinkAddr(BASE)],
        ..CodeInput::default()
    };
    let flow = ModuleFlow::new(&GraphInput { code: input, fragments: &fragments, landing_pads: &[] });
    let graphs: Vec<ProcedureGraph> = (0..flow.len()).map(|procedure| flow.graph(procedure)).collect();
    assert_eq!(graphs[0].tables[0].targets[..], CASES.map(|case| LinkAddr(BASE + case)));
    let liveness = Liveness::new(&flow, &graphs, Convention::SystemV);
    Rewriter::new(&flow, &graphs, &liveness).copy(0, COPY, &Plan::default()).unwrap()
}

/// Where the copy's jump leads for each case: what the instruction that reads the table reads, and what is added.
fn targets(copy: &Rewritten) -> Vec<u64> {
    let read = copy.code.windows(3).position(|bytes| bytes[..2] == [0x48, 0x63]).expect("a read of the table");
    let displacement = match copy.code[read + 2] {
        0x04 => return Vec::new(),
        0x84 => i32::from_le_bytes(copy.code[read + 4..read + 8].try_into().unwrap()),
        modrm => panic!("{modrm:#x}"),
    };
    let at = (TABLE as i64 + i64::from(displacement) - COPY.0 as i64) as usize;
    let entry = |index: usize| i32::from_le_bytes(copy.code[at + 4 * index..][..4].try_into().unwrap());
    (0..CASES.len()).map(|index| TABLE.wrapping_add_signed(entry(index).into())).collect()
}

#[test]
fn jumps_stay_in_the_copy() {
    // mov eax, 1
    let copy = copied(&switch(&[0xb8, 1, 0, 0, 0]), true);
    let origins: Vec<_> = targets(&copy).into_iter().map(|to| copy.origin_of(LinkAddr(to))).collect();
    assert_eq!(origins, CASES.map(|case| Some(LinkAddr(BASE + case))));
    // Threads that were in the original when the copy came still find it.
    for case in CASES {
        assert!(copy.patches.iter().any(|patch| patch.at.0 == BASE + case), "{case:#x}");
    }
}

#[test]
fn what_may_be_seen_or_may_change_stays() {
    // The case reads the address that was jumped to: mov ecx, eax
    assert_eq!(targets(&copied(&switch(&[0x89, 0xc1]), true)), []);
    // Flags of the addition: setc al; and the control: a case that overwrites both first.
    assert_eq!(targets(&copied(&switch(&[0x0f, 0x92, 0xc0]), true)), []);
    assert_eq!(targets(&copied(&switch(&[0x31, 0xc0, 0x0f, 0x92, 0xc0]), true)).len(), 3);
    // A call comes first, and leaves its own: call rcx; test eax, eax
    assert_eq!(targets(&copied(&switch(&[0xff, 0xd1, 0x85, 0xc0]), true)).len(), 3);
    // A signed comparison (jg) does not keep the index from being negative.
    let mut signed = switch(&[0xb8, 1, 0, 0, 0]);
    signed[3] = 0x7f;
    assert_eq!(targets(&copied(&signed, true)), []);
    // The program can write the table.
    assert_eq!(targets(&copied(&switch(&[0xb8, 1, 0, 0, 0]), false)), []);
}
