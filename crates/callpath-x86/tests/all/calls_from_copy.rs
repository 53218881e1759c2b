//! Calls that leave no room for what has to be inserted before them: the copy makes them itself.

use std::collections::BTreeSet;

use callpath_format::address::LinkAddr;
use callpath_x86::listing::listing;
use callpath_x86::liveness::{Convention, Liveness};
use callpath_x86::rewrite::{Cell, Contexts, Fixed, Operation, Place, Plan, Reason, Rewriter, Rewritten};
use rustc_hash::FxHashMap;
use small::{BASE, with_procedures, with_words};

use crate::small;

const ROUTINE: LinkAddr = LinkAddr(0x9000);
const COPY: LinkAddr = LinkAddr(0x8000);
const BIAS: u64 = 0x7f12_3456_7000;

/// The copy of the procedure with a number, with a routine called at some places.
fn copied(procedures: &[&[u8]], number: usize, places: &[Place], bias: Option<u64>) -> Result<Rewritten, Reason> {
    with_procedures(procedures, |flow, graphs| {
        let liveness = Liveness::new(flow, graphs, Convention::SystemV);
        let mut plan = Plan::default();
        places.iter().for_each(|&place| plan.insert(place, Operation::Call(ROUTINE)));
        bias.into_iter().for_each(|bias| plan.let_copy_call(bias));
        Rewriter::new(flow, graphs, &liveness).copy(number, COPY, &plan).map_err(|refusal| refusal.reason)
    })
}

/// Instructions of the copy from an address on, in words, up to the first that does not follow the one before.
fn from(copy: &Rewritten, at: u64) -> Vec<String> {
    let code = &copy.code[(at - COPY.0) as usize..];
    let lines = listing(code, LinkAddr(at)).into_iter().map(|line| line.text.replace("qword ptr ", ""));
    let mut is_over = false;
    lines.take_while(|line| !std::mem::replace(&mut is_over, line.starts_with("jmp") || line == "ret")).collect()
}

/// Where the springboard at an offset leads, past one that lies elsewhere.
fn springboard(copy: &Rewritten, offset: u64) -> u64 {
    let patch = copy.patches.iter().find(|patch| patch.at.0 == BASE + offset).expect("a springboard");
    let line = listing(&patch.new, patch.at).remove(0).text;
    let to = line.rsplit_once(" 0x").unwrap_or_else(|| panic!("no jump: {line}")).1;
    let to = u64::from_str_radix(to, 16).unwrap();
    if patch.new.len() == 2 { springboard(copy, to - BASE) } else { to }
}

/// The value that the `push` at an address pushes, whose word the listing names.
fn pushed(copy: &Rewritten, push: &str) -> u64 {
    let word = push.strip_prefix("push [0x").and_then(|push| push.strip_suffix(']'));
    let word = word.unwrap_or_else(|| panic!("no push of a word: {push}"));
    let at = (u64::from_str_radix(word, 16).unwrap() - COPY.0) as usize;
    assert_eq!(at % 8, 0);
    u64::from_le_bytes(copy.code[at..at + 8].try_into().unwrap())
}

/// Of a procedure with a call at an offset, and the jump that makes it.
fn check(code: &[u8], call: u64, len: u64, jump: &str) {
    let procedures = [code, b"\xc3"];
    assert_eq!(copied(&procedures, 0, &[Place::Entry], None).map(|_| ()), Err(Reason::NoRoom), "{code:x?}");
    let copy = copied(&procedures, 0, &[Place::Entry], Some(BIAS)).unwrap();
    assert_eq!(copy.from_copy, [LinkAddr(BASE + call)]);
    assert_eq!(copy.direct_calls, []);
    // What is inserted comes first, and leads to the call.
    let entry = if code.starts_with(b"\xf3\x0f\x1e\xfa") { 4 } else { 0 };
    assert_eq!((springboard(&copy, entry), copy.entered_at), (COPY.0, COPY), "{code:x?}");
    let lines = from(&copy, COPY.0);
    assert_eq!(lines[0], "call 0x9000", "{code:x?}");
    let [.., push, last] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(last, jump, "{code:x?}");
    let back = BASE + call + len;
    assert_eq!(pushed(&copy, push), back + BIAS);
    // From where it returns to, control comes back to the copy.
    let behind = from(&copy, springboard(&copy, call + len));
    assert_eq!(behind.last().unwrap(), "ret");
    assert_eq!(copy.origin_of(LinkAddr(springboard(&copy, call + len))), Some(LinkAddr(back)));
    // Both instructions are the call; at the second one rsp is lower.
    let addresses: Vec<LinkAddr> = listing(&copy.code, COPY).iter().map(|line| line.address).collect();
    let push = addresses[lines.len() - 2];
    let jump = addresses[lines.len() - 1];
    for (at, lowered) in [(push, 0), (jump, 8)] {
        assert_eq!((copy.origin_of(at), copy.lowered_by(at)), (Some(LinkAddr(BASE + call)), lowered));
    }
    assert_eq!(copy.lowered_by(addresses[lines.len()]), 0);
    // No byte of the call stays, but under springboards.
    let written: BTreeSet<u64> =
        copy.patches.iter().flat_map(|patch| patch.at.0..patch.at.0 + patch.new.len() as u64).collect();
    let unused = |at: &u64| copy.unused.iter().any(|unused| unused.contains(&LinkAddr(*at)));
    assert!((BASE + call..back).all(|at| written.contains(&at) || unused(&at)), "{copy:x?}");
}

#[test]
fn calls_right_behind_the_entry_are_made_from_the_copy() {
    // call 0x1020; ret
    check(b"\xe8\x1b\x00\x00\x00\xc3", 0, 5, "jmp 0x1020");
    // push rbx; call 0x1020; pop rbx; ret
    check(b"\x53\xe8\x1a\x00\x00\x00\x5b\xc3", 1, 5, "jmp 0x1020");
    // endbr64; call 0x1020; ret
    check(b"\xf3\x0f\x1e\xfa\xe8\x17\x00\x00\x00\xc3", 4, 5, "jmp 0x1020");
    // call [rsp+8]; ret
    check(b"\xff\x54\x24\x08\xc3", 0, 4, "jmp [rsp+0x10]");
    // call [rip+0x100]; ret
    check(b"\xff\x15\x00\x01\x00\x00\xc3", 0, 6, "jmp [0x1106]");
    // call rax; ret
    check(b"\xff\xd0\xc3", 0, 2, "jmp rax");
    // push rbx; call [rdi+rax*8]; pop rbx; ret
    check(b"\x53\xff\x14\xc7\x5b\xc3", 1, 3, "jmp [rdi+rax*8]");
}

#[test]
fn other_calls_are_made_at_home() {
    // lea rax, [rax+1]; nop; call 0x1020; ret
    let code = b"\x48\x8d\x40\x01\x90\xe8\x16\x00\x00\x00\xc3";
    let copy = copied(&[code, b"\xc3"], 0, &[Place::Entry], Some(BIAS)).unwrap();
    assert_eq!((copy.from_copy.len(), copy.direct_calls.len()), (0, 1));
    // The second one is: the room before it suffices. call 0x1020; lea rax, [rax+1]; nop; call 0x1020; ret
    let code = b"\xe8\x1b\x00\x00\x00\x48\x8d\x40\x01\x90\xe8\x11\x00\x00\x00\xc3";
    let copy = copied(&[code, b"\xc3"], 0, &[Place::Entry], Some(BIAS)).unwrap();
    assert_eq!(copy.from_copy, [LinkAddr(BASE)]);
    assert_eq!(copy.direct_calls.iter().map(|call| call.end.0 - BASE).collect::<Vec<_>>(), [15]);
    // A call through rsp cannot be made by a jump: call rsp; ret
    assert_eq!(copied(&[b"\xff\xd4\xc3"], 0, &[Place::Entry], Some(BIAS)).map(|_| ()), Err(Reason::NoRoom));
}

#[test]
fn a_call_behind_another_is_made_from_the_copy_if_something_is_inserted_between() {
    // call 0x1020; call 0x1020; nop; nop; nop; nop; ret
    let code = b"\xe8\x1b\x00\x00\x00\xe8\x16\x00\x00\x00\x90\x90\x90\x90\xc3";
    let (first, second) = (LinkAddr(BASE), LinkAddr(BASE + 5));
    for place in [Place::Before(second), Place::AfterCall(first)] {
        let copy = copied(&[code, b"\xc3"], 0, &[place], Some(BIAS)).unwrap();
        assert_eq!(copy.from_copy, [second], "{place:?}");
        // The first one returns to what is inserted.
        let lines = from(&copy, springboard(&copy, 5));
        assert!(lines.contains(&"call 0x9000".to_owned()), "{lines:?}");
    }
    let all = [Place::Entry, Place::AfterCall(first), Place::Before(second), Place::AfterCall(second)];
    let copy = copied(&[code, b"\xc3"], 0, &all, Some(BIAS)).unwrap();
    assert_eq!(copy.from_copy, [first, second]);
    let lines = from(&copy, COPY.0);
    assert_eq!((lines.len(), pushed(&copy, &lines[1])), (3, BASE + 5 + BIAS));
}

#[test]
fn such_a_call_is_linked_to_the_copy_of_its_callee() {
    let code = b"\xe8\x1b\x00\x00\x00\xc3";
    let mut copy = copied(&[code, b"\xc3"], 0, &[Place::Entry], Some(BIAS)).unwrap();
    assert_eq!(copy.direct_jumps.iter().map(|jump| jump.target).collect::<Vec<_>>(), [LinkAddr(BASE + 0x20)]);
    copy.link_jumps(|jump| (jump.target == LinkAddr(BASE + 0x20)).then_some(LinkAddr(0xa000)));
    assert_eq!(from(&copy, COPY.0)[2], "jmp 0xa000");
    // One of the procedure itself enters it as any other: push rbx; call 0x1000; pop rbx; ret
    let code = b"\x53\xe8\xfa\xff\xff\xff\x5b\xc3";
    let mut copy = copied(&[code], 0, &[Place::Entry], Some(BIAS)).unwrap();
    assert_eq!(from(&copy, COPY.0)[3], "jmp 0x1000");
    // Past what is inserted there no call comes.
    let entered_at = copy.entered_at;
    assert_eq!(from(&copy, entered_at.0)[0], "call 0x9000");
    copy.link_jumps(|jump| (jump.target == LinkAddr(BASE)).then_some(entered_at));
    assert_eq!(from(&copy, COPY.0)[3], format!("jmp {:#x}", entered_at.0));
}

/// Padding before an entry that begins with two bytes and a call serves it, and not the procedure before.
#[test]
fn padding_before_the_entry_has_room() {
    // push r12; five calls of 0x1000; pop r12; ret
    let mut code = b"\x41\x54".to_vec();
    for call in 0..5u8 {
        code.extend([0xe8, 0xd9 - 5 * call, 0xff, 0xff, 0xff]);
    }
    code.extend(b"\x41\x5c\xc3");
    let copy = copied(&[b"\xc3", &code], 1, &[Place::Entry], None).unwrap();
    assert_eq!((copy.from_copy.len(), copy.at_home), (0, 0));
    let patch =
        |offset: u64| copy.patches.iter().find(|patch| patch.at.0 == BASE + offset).map(|patch| patch.new.len());
    assert_eq!((patch(0x20), patch(0x1b)), (Some(2), Some(5)));
    assert_eq!(from(&copy, springboard(&copy, 0x20))[0], "call 0x9000");
    // Ten bytes are needed: a procedure of 23 bytes before it keeps its padding.
    let before = [&[0x90; 22][..], &[0xc3]].concat();
    assert_eq!(copied(&[&before, &code], 1, &[Place::Entry], None).map(|_| ()), Err(Reason::NoRoom));
    // nop, which control passes; a jump into the padding
    for before in [&b"\x90"[..], b"\xeb\x1a\xc3"] {
        let found = copied(&[before, &code], 1, &[Place::Entry], None).map(|_| ());
        assert_eq!(found, Err(Reason::NoRoom), "{before:x?}");
    }
}

#[test]
fn the_mark_behind_a_call_that_does_not_return_stays_in_its_procedure() {
    // sub rsp, 8; 23 times nop; call 0x40. The next procedure begins right behind: ret. The last one: ud2
    let code = [&b"\x48\x83\xec\x08"[..], &[0x90; 23], b"\xe8\x20\x00\x00\x00"].concat();
    let call = LinkAddr(BASE + 27);
    let copy = with_procedures(&[&code, b"\xc3", b"\x0f\x0b"], |flow, graphs| {
        let liveness = Liveness::new(flow, graphs, Convention::SystemV);
        let mut plan = Plan::default();
        plan.let_copy_call(BIAS);
        plan.call_in_copy(call);
        plan.give_words(true);
        let (entry, words) = (BASE, LinkAddr(0x9800));
        plan.count_contexts(
            Contexts { number: 1, entry, routine: ROUTINE, words, has_back_edges: false, may_go: false },
            true,
        );
        Rewriter::new(flow, graphs, &liveness).copy(0, COPY, &plan).unwrap()
    });
    let behind = copy.returns.first().expect("a call in the copy").0;
    assert!(behind < copy.code.len() as u32, "there is no mark");
    assert_eq!(copy.origin_of(LinkAddr(COPY.0 + u64::from(behind))), Some(call));
    assert!(copy.origins.iter().all(|(_, origin)| origin.0 < BASE + code.len() as u64), "{:?}", copy.origins);
}

/// Copies that count contexts, of a procedure that calls the second one.
fn counting(callee: &[u8]) -> [Rewritten; 2] {
    counting_with(callee, &Fixed::default())
}

/// The same with what is known of the module from elsewhere.
fn counting_with(callee: &[u8], fixed: &Fixed) -> [Rewritten; 2] {
    // sub rsp, 8; nop; call 0x1020; nop; add rsp, 8; ret
    let code = b"\x48\x83\xec\x08\x90\xe8\x16\x00\x00\x00\x90\x48\x83\xc4\x08\xc3";
    with_procedures(&[code, callee], |flow, graphs| {
        let liveness = Liveness::new(flow, graphs, Convention::SystemV);
        let words = LinkAddr(0x9800);
        [0, 1].map(|number| {
            let mut plan = Plan::default();
            plan.call_in_copy(LinkAddr(BASE + 5));
            plan.give_words(true);
            let entry = BASE + 0x20 * number;
            let number = number as u32;
            plan.count_contexts(
                Contexts { number, entry, routine: ROUTINE, words, has_back_edges: false, may_go: false },
                number == 0,
            );
            let rewriter = Rewriter::new(flow, graphs, &liveness).with_fixed(fixed.clone());
            rewriter.copy(number as usize, COPY, &plan).unwrap()
        })
    })
}

#[test]
fn a_call_of_one_procedure_hands_it_its_node() {
    // mov eax, 1; ret
    let [mut caller, callee] = counting(b"\xb8\x01\x00\x00\x00\xc3");
    let to = callee.entered_with_node.expect("it can be handed a node");
    assert_eq!(
        from(&callee, to.0)[..4],
        ["test r11, r11", &from(&callee, to.0)[1], "mov rax, [r11]", "add [rax], 1"].map(str::to_owned),
    );
    // By whoever else calls it, too, with what was found by the mark.
    assert!(from(&callee, callee.entered_at.0).ends_with(&from(&callee, to.0)));
    let entries = callee.entries();
    caller.link_jumps(|jump| (jump.target == LinkAddr(BASE + 0x20)).then(|| entries.of(jump)));
    let lines = from(&caller, COPY.0);
    let call = lines.iter().position(|line| *line == format!("call {:#x}", to.0)).expect("it is called there");
    // The node of the caller; the second slot of the first site.
    assert_eq!(lines[call - 2..call], ["mov r11, [rsp+0x10]", "mov r11, [r11+0x50]"]);
    assert_eq!(callee.entered_by_linkage, callee.entered_with_node);
    // One that reads the register is handed it in another one, and in that one if it is called through the linkage table: mov rax, r11; ret
    let [mut caller, callee] = counting(b"\x4c\x89\xd8\xc3");
    let to = callee.entered_with_node.expect("it can be handed a node");
    assert_eq!(from(&callee, to.0)[0], "test rax, rax");
    let by_linkage = callee.entered_by_linkage.expect("by the linkage table, too");
    assert_eq!(from(&callee, by_linkage.0), ["mov rax, r11".to_owned(), format!("jmp {:#x}", to.0)]);
    let entries = callee.entries();
    caller.link_jumps(|jump| (jump.target == LinkAddr(BASE + 0x20)).then(|| entries.of(jump)));
    let lines = from(&caller, COPY.0);
    let call = lines.iter().position(|line| *line == format!("call {:#x}", to.0)).expect("it is called there");
    assert_eq!(lines[call - 2..call], ["mov rax, [rsp+0x10]", "mov rax, [rax+0x50]"]);
    // One that reads flags is entered as by anybody: setc al; ret
    let [caller, callee] = counting(b"\x0f\x92\xc0\xc3");
    assert_eq!(callee.entered_with_node, None);
    assert!(!from(&caller, COPY.0).contains(&lines[call - 1]));
    let [call] = caller.direct_jumps[..] else { panic!("{:?}", caller.direct_jumps) };
    assert_eq!(callee.entries().of(&call), callee.entered_at);
}

/// By the first node of the call site, else by that of the table, else as at home; each with its mark.
#[test]
fn a_call_through_a_pointer_enters_with_the_node_of_what_it_leads_to() {
    // sub rsp, 8; nop; a call; nop; add rsp, 8; ret
    let calling = |call: &[u8], calls: u64| {
        let code = [b"\x48\x83\xec\x08\x90", call, b"\x90\x48\x83\xc4\x08\xc3"].concat();
        with_procedures(&[&code, b"\xc3"], |flow, graphs| {
            let liveness = Liveness::new(flow, graphs, Convention::SystemV);
            let mut plan = Plan::default();
            plan.call_in_copy(LinkAddr(BASE + 5));
            plan.give_words(true);
            let (entry, words) = (BASE, LinkAddr(0x9800));
            plan.count_contexts(
                Contexts { number: 1, entry, routine: ROUTINE, words, has_back_edges: false, may_go: false },
                true,
            );
            let copy = Rewriter::new(flow, graphs, &liveness).copy(0, COPY, &plan).unwrap();
            let back = LinkAddr(BASE + 5 + call.len() as u64);
            assert_eq!(copy.returns.iter().map(|it| it.1).collect::<Vec<_>>(), vec![back; calls as usize], "{call:x?}");
            let mark = |&(at, _): &(u32, LinkAddr)| copy.code[at as usize..][..8].to_vec();
            let marks: BTreeSet<Vec<u8>> = copy.returns.iter().map(mark).collect();
            assert_eq!(marks.len(), 1, "{marks:x?}");
            for (at, _) in &copy.returns {
                assert_eq!(copy.origin_of(LinkAddr(COPY.0 + u64::from(*at) - 1)), Some(LinkAddr(BASE + 5)));
                assert_eq!(copy.origin_of(LinkAddr(COPY.0 + u64::from(*at))), Some(back));
            }
            let lines = listing(&copy.code, LinkAddr(COPY.0));
            let all: Vec<String> = lines.into_iter().map(|line| line.text.replace("qword ptr ", "")).collect();
            let at = all.iter().position(|line| line == "call [r11+0x18]").unwrap_or(0);
            let first = all[at.saturating_sub(9)..=at].to_vec();
            let last = all.iter().rposition(|line| line.starts_with("call") && !line.contains("0x9000"));
            (first, all[last.unwrap_or(0)].clone(), copy)
        })
    };
    // call [rax+0x10]; call r12; call [rsp]; call fs:[rdi+r8*8]; call [rip+0x10]
    let cases: [(&[u8], &str, &str); 5] = [
        (&[0xff, 0x50, 0x10], "[rax+0x10]", "call [rax+0x10]"),
        (&[0x41, 0xff, 0xd4], "r12", "call r12"),
        (&[0xff, 0x14, 0x24], "[rsp]", "call [rsp]"),
        (&[0x64, 0x42, 0xff, 0x14, 0xc7], "fs:[rdi+r8*8]", "call fs:[rdi+r8*8]"),
        (&[0xff, 0x15, 0x10, 0, 0, 0], "[0x101b]", "call [0x101b]"),
    ];
    let node = ["mov r11, [rsp+0x10]", "mov r11, [r11+0x48]", "test r11, r11"].map(str::to_owned);
    for (call, pointer, plain) in cases {
        let (first, last, _) = calling(call, 3);
        let is_register = pointer == "r12";
        let compared = match is_register {
            true => vec![format!("cmp [r11+0x10], {pointer}")],
            false => vec!["mov [rsp+0x20], r11".into(), "mov r11, [r11+0x10]".into(), format!("cmp r11, {pointer}")],
        };
        let first = if is_register { &first[3..] } else { &first[..] };
        let (first, rest) = first.split_at(3);
        // The node is loaded once: the slot may have another one at once.
        let rest: Vec<&String> = rest.iter().filter(|line| !line.starts_with('j')).collect();
        assert_eq!(first, node, "{call:x?}");
        let reloaded = (!is_register).then(|| "mov r11, [rsp+0x20]".to_owned());
        let expected: Vec<String> = compared.into_iter().chain(reloaded).chain(["call [r11+0x18]".into()]).collect();
        assert_eq!(rest, expected.iter().collect::<Vec<_>>(), "{call:x?}");
        assert_eq!(last, plain);
    }
    // One that needs the register itself: call [r11+8]
    let (_, last, _) = calling(&[0x41, 0xff, 0x53, 8], 1);
    assert_eq!(last, "call [r11+8]");
}

#[test]
fn a_call_through_the_linkage_table_hands_over_a_node_by_another_word() {
    // jmp [0x4000]
    let stub = b"\xff\x25\xda\x2f\x00\x00";
    let (word, ours) = (LinkAddr(0x4000), LinkAddr(0x9900));
    let stubs = vec![LinkAddr(BASE + 0x20)..LinkAddr(BASE + 0x30)];
    let fixed = Fixed { stubs, taking_nodes: [(word, ours)].into_iter().collect(), ..Fixed::default() };
    let [caller, _] = counting_with(stub, &fixed);
    let lines = from(&caller, COPY.0);
    let call = lines.iter().position(|line| line == "call [0x9900]").unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(lines[call - 2..call], ["mov r11, [rsp+0x10]", "mov r11, [r11+0x50]"]);
    // Without such a word it goes through that of the stub, as calls through pointers do.
    let [caller, _] = counting_with(stub, &Fixed { taking_nodes: FxHashMap::default(), ..fixed });
    assert_eq!(caller.returns.len(), 3);
    let lines = from(&caller, COPY.0);
    assert!(lines.iter().any(|line| line == "cmp r11, [0x4000]"), "{lines:?}");
    let lines = listing(&caller.code, LinkAddr(COPY.0));
    assert_eq!(lines.iter().filter(|line| line.text == "call qword ptr [0x4000]").count(), 1);
}

/// Numbers and text may look like addresses: what only a single word in data leads to, and only within the procedure's frame, is not entered.
#[test]
fn a_frame_is_larger_though_a_number_looks_like_an_address_inside() {
    // sub rsp, 8; nop; call 0x1020; nop; add rsp, 8; ret
    let code = b"\x48\x83\xec\x08\x90\xe8\x16\x00\x00\x00\x90\x48\x83\xc4\x08\xc3";
    let enlarged = |words: &[u64], relocated: &[u64]| {
        with_words(&[code, b"\xc3"], words, relocated, |flow, graphs| {
            let liveness = Liveness::new(flow, graphs, Convention::SystemV);
            let mut plan = Plan::default();
            plan.call_in_copy(LinkAddr(BASE + 5));
            plan.give_words(true);
            plan.insert(Place::Entry, Operation::Set(Cell::OfActivation(0), -1));
            let copy = Rewriter::new(flow, graphs, &liveness).copy(0, COPY, &plan);
            copy.map(|copy| copy.enlarged_at_home).map_err(|refusal| (refusal.at.0 - BASE, refusal.reason))
        })
    };
    let entered = |at: u64| Err((at, Reason::EnteredInside));
    assert_eq!(enlarged(&[], &[]), Ok(32));
    assert_eq!(enlarged(&[1, BASE + 11, 2], &[]), Ok(32));
    // Elsewhere, too, it is a single word.
    assert_eq!(enlarged(&[BASE + 11, 3, BASE + 4, 0, BASE + 11], &[]), Ok(32));
    // A table, whose first word it is, or whose last one.
    assert_eq!(enlarged(&[1, BASE + 4, BASE + 0x20], &[]), entered(4));
    assert_eq!(enlarged(&[1, BASE, BASE + 4], &[]), entered(4));
    assert_eq!(enlarged(&[BASE + 4, 0, BASE + 4, BASE], &[]), entered(4));
    // An address surely.
    assert_eq!(enlarged(&[BASE + 4], &[BASE + 4]), entered(4));
    // Where the frame is not there yet, or not any more: others may lead there.
    assert_eq!(enlarged(&[BASE + 15], &[]), entered(15));
}
