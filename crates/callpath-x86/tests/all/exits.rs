//! Exits of small procedures, and what is inserted there and around calls, compared with what was found by hand.

use callpath_format::address::LinkAddr;
use callpath_x86::listing::listing;
use callpath_x86::liveness::{Convention, Liveness};
use callpath_x86::rewrite::{Exit, ExitKind, LeftOut, Operation, Place, Plan, Reason, Rewriter, Rewritten, exits};
use small::{BASE, with_procedures};

use crate::small;

const ROUTINE: LinkAddr = LinkAddr(0x9000);
const COPY: LinkAddr = LinkAddr(0x8000);

/// Exits, and ways out that are none, as offsets in their procedure.
type Found = (Vec<(Place, ExitKind)>, Vec<(u64, LeftOut)>);

/// Of the first procedure.
fn found(procedures: &[&[u8]]) -> Found {
    with_procedures(procedures, |flow, graphs| {
        let exits = exits(flow, &graphs[0]);
        let place = |place| match place {
            Place::Before(at) => Place::Before(LinkAddr(at.0 - BASE)),
            Place::Edge(from, to) => Place::Edge(LinkAddr(from.0 - BASE), LinkAddr(to.0 - BASE)),
            other => other,
        };
        let found = exits.found.iter().map(|&Exit { place: at, kind }| (place(at), kind)).collect();
        (found, exits.left_out.iter().map(|&(at, why)| (at.0 - BASE, why)).collect())
    })
}

fn before(at: u64, kind: ExitKind) -> (Place, ExitKind) {
    (Place::Before(LinkAddr(at)), kind)
}

fn edge(from: u64, to: u64) -> (Place, ExitKind) {
    (Place::Edge(LinkAddr(from), LinkAddr(to)), ExitKind::TailCall)
}

#[test]
fn returns_of_every_kind() {
    use ExitKind::Return;
    for (code, at) in [
        (&b"\xc3"[..], 0),                            // ret
        (b"\xf3\xc3", 0),                             // rep ret
        (b"\xf2\xc3", 0),                             // bnd ret
        (b"\xc2\x08\x00", 0),                         // ret 8
        (b"\x55\x48\x89\xe5\xc9\xc3", 5),             // push rbp; mov rbp, rsp; leave; ret
        (b"\x48\x83\xec\x08\x48\x83\xc4\x08\xc3", 8), // sub rsp, 8; add rsp, 8; ret
    ] {
        assert_eq!(found(&[code]), (vec![before(at, Return)], vec![]), "{code:x?}");
    }
    // A callee that pops its argument: push rdi; call 0x20; ret
    let caller = b"\x57\xe8\x1a\x00\x00\x00\xc3";
    assert_eq!(found(&[caller, b"\xc2\x08\x00"]), (vec![before(6, Return)], vec![]));
}

#[test]
fn ways_out_that_are_no_exits() {
    let none = (vec![], vec![]);
    assert_eq!(found(&[b"\x0f\x0b"]), none); // ud2
    assert_eq!(found(&[b"\x90\xf4"]), none); // hlt
    // push rax; ret
    assert_eq!(found(&[b"\x50\xc3"]), (vec![], vec![(1, LeftOut::StackMoved)]));
    // call the next instruction; ret
    assert_eq!(found(&[b"\xe8\x00\x00\x00\x00\xc3"]), (vec![], vec![(5, LeftOut::StackMoved)]));
    // push rax; jmp 0x20
    assert_eq!(found(&[b"\x50\xe9\x1a\x00\x00\x00", b"\xc3"]), (vec![], vec![(1, LeftOut::StackMoved)]));
    // jmp 0x21, in the middle of another procedure
    assert_eq!(found(&[b"\xe9\x1c\x00\x00\x00", b"\x90\xc3"]), (vec![], vec![(0, LeftOut::IntoTheMiddle)]));
    // iretq
    assert_eq!(found(&[b"\x48\xcf"]).0, vec![]);
    // nop; jmp to its own entry
    assert_eq!(found(&[b"\x90\xeb\xfd"]), none);
}

#[test]
fn jumps_to_other_procedures() {
    use ExitKind::{Return, TailCall};
    // jmp 0x20
    assert_eq!(found(&[b"\xe9\x1b\x00\x00\x00", b"\xc3"]).0, [before(0, TailCall)]);
    // jmp [rip + 0x10]
    assert_eq!(found(&[b"\xff\x25\x10\x00\x00\x00", b"\xc3"]).0, [before(0, TailCall)]);
    // mov rax, [rdi]; jmp rax
    assert_eq!(found(&[b"\x48\x8b\x07\xff\xe0", b"\xc3"]).0, [before(3, TailCall)]);
    // test edi, edi; je 0x20; ret
    let found_here = found(&[b"\x85\xff\x0f\x84\x18\x00\x00\x00\xc3", b"\xc3"]);
    assert_eq!(found_here, (vec![before(8, Return), edge(0, 0x20)], vec![]));
}

/// The copy of the first procedure, and its code in words.
fn copied(procedures: &[&[u8]], places: &[Place]) -> Result<(Rewritten, Vec<String>), Reason> {
    copied_with(procedures, places, Operation::Call(ROUTINE))
}

/// The same with any operation at these places.
fn copied_with(
    procedures: &[&[u8]],
    places: &[Place],
    operation: Operation,
) -> Result<(Rewritten, Vec<String>), Reason> {
    with_procedures(procedures, |flow, graphs| {
        let liveness = Liveness::new(flow, graphs, Convention::SystemV);
        let mut plan = Plan::default();
        places.iter().for_each(|&place| plan.insert(place, operation));
        let copy = Rewriter::new(flow, graphs, &liveness).copy(0, COPY, &plan).map_err(|refusal| refusal.reason)?;
        let lines = listing(&copy.code, COPY).into_iter().map(|line| line.text).collect();
        Ok((copy, lines))
    })
}

/// The place before the instruction at an offset.
fn at(offset: u64) -> Place {
    Place::Before(LinkAddr(BASE + offset))
}

#[test]
fn a_routine_is_called_with_what_is_live_saved() {
    // At a return nothing is below rsp.
    let (copy, lines) = copied(&[b"\x31\xc0\x90\x90\x90\xc3"], &[at(5)]).unwrap();
    assert_eq!(lines, ["xor eax, eax", "nop", "nop", "nop", "call 0x9000", "ret"]);
    assert_eq!(copy.lowered, []);
    // cmp rdi, rsi; mov rax, rdi; seto al; ret: flags are live before mov, ax is not.
    let code = b"\x48\x39\xf7\x48\x8b\xc7\x0f\x90\xc0\xc3";
    let (copy, lines) = copied(&[code], &[at(3)]).unwrap();
    let saved = ["lahf", "seto al", "call 0x9000", "add al, 0x7f", "sahf"];
    fn zone<'t>(inside: &[&'t str]) -> Vec<&'t str> {
        [&["lea rsp, [rsp-0x80]"], inside, &["lea rsp, [rsp+0x80]"]].concat()
    }
    assert_eq!(lines[1..8], zone(&saved));
    assert_eq!(copy.lowered, [(11, 128), (31, 0)]);
    // Before seto rax is live, too.
    let (copy, lines) = copied(&[code], &[at(6)]).unwrap();
    assert_eq!(lines[2..11], zone(&[&["push rax"][..], &saved, &["pop rax"]].concat()));
    assert_eq!(copy.lowered.iter().map(|lowered| lowered.1).collect::<Vec<_>>(), [128, 136, 128, 0]);
    let home = |text: &str| lines.iter().position(|line| line == text).unwrap();
    let address = listing(&copy.code, COPY)[home("call 0x9000")].address;
    assert_eq!((copy.lowered_by(address), copy.lowered_by(COPY)), (136, 0));
    assert_eq!(copy.origin_of(address), Some(LinkAddr(BASE + 6)));
    // A routine that keeps flags has nothing saved.
    let (_, lines) = copied_with(&[code], &[at(6)], Operation::CallKeepingFlags(ROUTINE)).unwrap();
    assert_eq!(lines[2..5], zone(&["call 0x9000"]));
    // At a return the red zone is over, also of a procedure that uses it: mov [rsp-8], rdi; nop; ret
    let (_, lines) = copied(&[b"\x48\x89\x7c\x24\xf8\x90\xc3"], &[at(6)]).unwrap();
    assert_eq!(lines[2..4], ["call 0x9000", "ret"]);
}

#[test]
fn behind_a_call_only_its_return_passes() {
    // test edi, edi; je +5; call 0x20; lea rax, [rax + 1]; nop; nop; ret
    let code = b"\x85\xff\x74\x05\xe8\x17\x00\x00\x00\x48\x8d\x40\x01\x90\x90\xc3";
    let call = LinkAddr(BASE + 4);
    let (copy, lines) = copied(&[code, b"\xc3"], &[Place::AfterCall(call)]).unwrap();
    let springboard = copy.patches.iter().find(|patch| patch.at == LinkAddr(BASE + 9)).unwrap();
    let inserted = lines.iter().position(|line| line.starts_with("lea rsp")).unwrap();
    let inserted = listing(&copy.code, COPY)[inserted].address;
    assert_eq!(listing(&springboard.new, springboard.at)[0].text, format!("jmp {:#x}", inserted.0));
    // The jump over the call leads behind it.
    let behind = lines.iter().position(|line| line == "lea rax, [rax+1]").unwrap();
    let behind = listing(&copy.code, COPY)[behind].address;
    assert_eq!(lines[1], format!("je short {:#x}", behind.0));
    assert_eq!(lines.last(), Some(&format!("jmp {:#x}", behind.0)));
    // Not a call, the middle of an instruction, no edge.
    for place in [Place::AfterCall(LinkAddr(BASE)), at(1), Place::Edge(LinkAddr(BASE), LinkAddr(BASE + 13))] {
        assert_eq!(copied(&[code, b"\xc3"], &[place]).map(|_| ()), Err(Reason::NoSuchPlace), "{place:?}");
    }
    // A call right behind another is made at home: call 0x20; call 0x20; nop; nop; nop; nop; ret
    let code = b"\xe8\x1b\x00\x00\x00\xe8\x16\x00\x00\x00\x90\x90\x90\x90\xc3";
    assert_eq!(copied(&[code, b"\xc3"], &[at(5)]).map(|_| ()), Err(Reason::NoRoom));
    assert_eq!(copied(&[code, b"\xc3"], &[Place::AfterCall(LinkAddr(BASE))]).map(|_| ()), Err(Reason::NoRoom));
}

#[test]
fn code_that_nothing_leads_to_is_entered_from_outside_alone() {
    // xor eax, eax; three times, then ret; the same once more, which nobody is known to jump to.
    let code = b"\x31\xc0\x31\xc0\x31\xc0\xc3";
    let twice = [&code[..], code].concat();
    let behind = LinkAddr(BASE + 7);
    let (copy, lines) = copied(&[&twice], &[Place::Arrival(behind)]).unwrap();
    let calls: Vec<usize> = (0..lines.len()).filter(|&line| lines[line] == "call 0x9000").collect();
    let &[call] = &calls[..] else { panic!("{lines:?}") };
    // Both originals are behind it, and no copy falls into it.
    assert!(call > 8, "{lines:?}");
    let springboard = copy.patches.iter().find(|patch| patch.at == behind).unwrap();
    let to = listing(&springboard.new, behind)[0].text.clone();
    let inserted =
        listing(&copy.code, COPY).into_iter().map(|line| line.address).filter(|at| to == format!("jmp {:#x}", at.0));
    let inserted = inserted.map(|at| copy.origin_of(at)).collect::<Vec<_>>();
    assert_eq!(inserted, [Some(behind)]);
    for place in [Place::Arrival(LinkAddr(BASE)), Place::Arrival(LinkAddr(BASE + 2))] {
        assert_eq!(copied(&[&twice], &[place]).map(|_| ()), Err(Reason::NoSuchPlace), "{place:?}");
    }
}
