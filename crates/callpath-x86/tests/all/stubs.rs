//! Calls and jumps to stubs of the linkage table: a copy reads the stub's word itself.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{Fragment, FragmentKind, GraphInput, ModuleFlow, ProcedureGraph};
use callpath_x86::input::CodeInput;
use callpath_x86::listing::listing;
use callpath_x86::rewrite::{Fixed, Plan, Rewriter, Rewritten};

const BASE: u64 = 0x1000;
const CALL: LinkAddr = LinkAddr(BASE + 1);
const JUMP: LinkAddr = LinkAddr(BASE + 7);
const STUBS: u64 = 0x40;
const COPY: LinkAddr = LinkAddr(0x8000);

/// A procedure that calls through one stub, and ends in another.
fn code() -> Vec<u8> {
    let mut code = vec![
        0x53, // push rbx
        0xe8, 0x3a, 0, 0, 0,    // call 0x1040
        0x5b, // pop rbx
        0xe9, 0x44, 0, 0, 0, // jmp 0x1050
    ];
    code.resize(STUBS as usize, 0xcc);
    // endbr64; bnd jmp [0x4000]
    code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xb5, 0x2f, 0, 0]);
    code.resize(STUBS as usize + 0x10, 0xcc);
    // jmp [0x4008]; push 1; jmp 0x1000
    code.extend([0xff, 0x25, 0xb2, 0x2f, 0, 0, 0x68, 1, 0, 0, 0, 0xe9, 0xa0, 0xff, 0xff, 0xff]);
    code
}

/// The copy's instructions in words, with its calls in it or at home.
fn copied(stubs: &[u64], is_in_copy: bool) -> (Rewritten, Vec<String>) {
    copied_of((stubs, &[]), is_in_copy)
}

/// The same where words are bound.
fn copied_of((stubs, bound): (&[u64], &[(u64, u64)]), is_in_copy: bool) -> (Rewritten, Vec<String>) {
    let code = code();
    let slices = [(LinkAddr(BASE), &code[..])];
    let fragment =
        |from: u64, to: u64| Fragment { code: LinkAddr(BASE + from)..LinkAddr(BASE + to), kind: FragmentKind::Entry };
    let fragments = [fragment(0, 12), fragment(STUBS, STUBS + 11), fragment(STUBS + 16, STUBS + 32)];
    let starts: Vec<LinkAddr> = fragments.iter().map(|fragment| fragment.code.start).collect();
    let input = CodeInput { code: &slices, data: &[], starts: &starts, ..CodeInput::default() };
    let flow = ModuleFlow::new(&GraphInput { code: input, fragments: &fragments, landing_pads: &[] });
    let graphs: Vec<ProcedureGraph> = (0..flow.len()).map(|procedure| flow.graph(procedure)).collect();
    let stubs = stubs.iter().map(|at| LinkAddr(BASE + at)..LinkAddr(BASE + at + 16)).collect();
    let bound = bound.iter().map(|(word, to)| (LinkAddr(*word), LinkAddr(*to))).collect();
    let rewriter = Rewriter::without_liveness(&flow, &graphs).with_fixed(Fixed { stubs, bound, ..Fixed::default() });
    let mut plan = Plan::default();
    if is_in_copy {
        plan.call_in_copy(CALL);
    }
    let copy = rewriter.copy(0, COPY, &plan).expect("it can be copied");
    let lines = listing(&copy.code, COPY).into_iter().map(|line| line.text.replace("qword ptr ", "")).collect();
    (copy, lines)
}

#[test]
fn copies_go_through_the_word() {
    let (copy, lines) = copied(&[STUBS, STUBS + 16], true);
    assert_eq!(lines, ["push rbx", "call [0x4000]", "pop rbx", "jmp [0x4008]"]);
    assert_eq!((&copy.through_slots[..], &copy.direct_jumps[..]), (&[CALL, JUMP][..], &[][..]));
    // A call that is made at home passes the stub.
    let (copy, lines) = copied(&[STUBS, STUBS + 16], false);
    assert_eq!(lines, ["push rbx", "jmp 0x1001", "pop rbx", "jmp [0x4008]"]);
    assert_eq!(copy.through_slots, [JUMP]);
}

/// Calls of the copy can be led through another word; jumps, and calls that are made at home, stay as they are.
#[test]
fn calls_are_led_through_other_words() {
    let (mut copy, _) = copied(&[STUBS, STUBS + 16], true);
    assert_eq!(copy.word_calls.iter().map(|call| call.target).collect::<Vec<_>>(), [LinkAddr(0x4000)]);
    copy.link_words(|word| (word == LinkAddr(0x4000)).then_some(LinkAddr(0x5008)), |_, is_led| assert!(is_led));
    copy.link_words(|word| (word == LinkAddr(0x4008)).then_some(LinkAddr(0x6000)), |_, is_led| assert!(is_led));
    let lines = listing(&copy.code, COPY).into_iter().map(|line| line.text.replace("qword ptr ", ""));
    assert_eq!(lines.collect::<Vec<_>>(), ["push rbx", "call [0x5008]", "pop rbx", "jmp [0x4008]"]);
    assert_eq!(copied(&[STUBS, STUBS + 16], false).0.word_calls, []);
}

/// A procedure that does nothing but jump through a word may have a copy, which counts it.
#[test]
fn only_stubs_are_passed_over() {
    let (copy, lines) = copied(&[STUBS], true);
    assert_eq!(lines, ["push rbx", "call [0x4000]", "pop rbx", "jmp 0x1050"]);
    assert_eq!(copy.through_slots, [CALL]);
    let (copy, lines) = copied(&[], true);
    assert_eq!(lines, ["push rbx", "call 0x1040", "pop rbx", "jmp 0x1050"]);
    assert_eq!(copy.through_slots, []);
}

/// What a word leads to for good is called without it. Jumps go through it: they may lead into their own procedure.
#[test]
fn what_a_word_is_bound_to_is_called_directly() {
    let bound = [(0x4000, BASE), (0x4008, BASE)];
    let (copy, lines) = copied_of((&[STUBS, STUBS + 16], &bound), true);
    assert_eq!(lines, ["push rbx", "call 0x1000", "pop rbx", "jmp [0x4008]"]);
    assert_eq!(copy.through_slots, [JUMP]);
    let [call] = copy.direct_jumps[..] else { panic!("{:?}", copy.direct_jumps) };
    assert_eq!((call.target, call.hands_node), (LinkAddr(BASE), false));
    // Made at home, it passes the stub, and is no direct call of the other.
    let (copy, lines) = copied_of((&[STUBS, STUBS + 16], &bound), false);
    assert_eq!(lines, ["push rbx", "jmp 0x1001", "pop rbx", "jmp [0x4008]"]);
    assert_eq!(copy.direct_calls.iter().map(|call| call.target).collect::<Vec<_>>(), [LinkAddr(BASE + STUBS)]);
}
