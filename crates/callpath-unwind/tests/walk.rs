//! Walks over stacks that were laid out by hand: which frames come, at which addresses, and how the walk ends.
//! There are no tables: each procedure has one recipe.

use std::collections::HashMap;
use std::ops::ControlFlow;

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::frame::FrameKey;
use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use callpath_format::register::Reg;
use callpath_unwind::{CodeMap, Cursor, End, Located, MAX_SIGNAL_FRAMES, MAX_STACK_SWITCHES, Memory, Stop, walk};

/// Procedures of 256 bytes: that at 0x100 * n has recipe n.
struct Code(Vec<Recipe>);

impl CodeMap for Code {
    fn locate(&mut self, addr: RunAddr) -> Located {
        let wide = Packed { disp: 0, add: 0, head: Packed::WIDE, slots: [0; 6] };
        let unknown = Packed { head: Packed::UNKNOWN, ..wide };
        let recipe = self.0.get((addr.0 / 0x100) as usize).map_or(unknown, |r| Packed::pack(r).unwrap_or(wide));
        Located { key: FrameKey(addr.0), recipe, table: addr.0 / 0x100 }
    }

    fn open(&self, located: &Located) -> Option<Recipe> {
        self.0.get(located.table as usize).copied()
    }

    fn expression(&self, _: &Located, expression: Expression) -> Option<&[u8]> {
        // DW_OP_breg7 (rsp) 32
        (expression.len == 2).then_some(&[0x77, 32])
    }
}

#[derive(Default)]
struct Stack(HashMap<u64, u64>);

impl Memory for Stack {
    fn read_u64(&mut self, addr: u64) -> Option<u64> {
        self.0.get(&addr).copied()
    }

    fn true_return(&mut self, at: u64, found: u64) -> Option<u64> {
        // As the sentinel does: what looks like a stub stands for what it hides; that of an odd place is lost.
        match found {
            0x5_0000.. => at.is_multiple_of(16).then_some(found - 0x5_0000),
            _ => Some(found),
        }
    }
}

fn stack(words: &[(u64, u64)]) -> Stack {
    Stack(words.iter().copied().collect())
}

fn by_rsp(disp: i32) -> Recipe {
    Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp })
}

/// The keys of the frames, and the end, of a thread interrupted at `pc` with rsp 0x7000 and rbp 0x7100.
fn walked(recipes: &[Recipe], stack: &mut Stack, pc: u64) -> (Vec<u64>, End) {
    let mut values = [0; 16];
    (values[Reg::RSP.index()], values[Reg::RBP.index()]) = (0x7000, 0x7100);
    let mut keys = Vec::new();
    let end = walk(Cursor::interrupted(RunAddr(pc), values), &mut Code(recipes.to_vec()), stack, |_, located, _| {
        keys.push(located.key.0);
        ControlFlow::Continue(())
    });
    (keys, end)
}

#[test]
fn a_return_address_is_looked_up_in_its_call_and_an_interrupted_one_where_it_is() {
    // leaf <- middle, which has pushed two words <- start
    let recipes = [by_rsp(8), by_rsp(24), Recipe::OUTERMOST];
    let mut stack = stack(&[(0x7000, 0x110), (0x7018, 0x200)]);
    // The return address 0x200 is the first byte of what comes behind the caller: its call is the last byte before.
    let recipes_too = [by_rsp(8), by_rsp(24), by_rsp(8)];
    assert_eq!(walked(&recipes, &mut stack, 0x00), (vec![0x00, 0x10f, 0x1ff], End::Stopped(Stop::Unreadable)));
    stack.0.insert(0x7018, 0x250);
    assert_eq!(walked(&recipes, &mut stack, 0x00), (vec![0x00, 0x10f, 0x24f], End::Outermost));
    assert_eq!(walked(&recipes_too, &mut stack, 0x00).1, End::Stopped(Stop::Unreadable));
}

#[test]
fn a_frame_pointer_is_followed_from_where_a_callee_has_saved_it() {
    // The leaf has pushed rbp and changed it; its caller's CFA is by rbp.
    let mut leaf = by_rsp(16);
    leaf.registers[Reg::RBP.index()] = Rule::AtCfa(-16);
    let framed = Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: 16 });
    let mut lost = by_rsp(16);
    lost.registers[Reg::RBP.index()] = Rule::Lost;
    let words = [(0x7000, 0x7040), (0x7008, 0x110), (0x7048, 0x210)];
    let full = (vec![0x20, 0x10f, 0x20f], End::Outermost);
    assert_eq!(walked(&[leaf, framed, Recipe::OUTERMOST], &mut stack(&words), 0x20), full);
    let cut = (vec![0x20, 0x10f], End::Stopped(Stop::UnknownRegister));
    assert_eq!(walked(&[lost, framed, Recipe::OUTERMOST], &mut stack(&words), 0x20), cut);
}

#[test]
fn a_cfa_may_be_kept_in_memory_or_told_by_an_expression() {
    // A realigned frame: its caller's CFA is at rsp + 8. Then one by an expression: rsp + 32.
    let deref = Recipe::with_cfa(Cfa::Deref { reg: Reg::RSP, disp: 8, add: 16 });
    let expression = Recipe::with_cfa(Cfa::Expression(Expression { start: 0, len: 2 }));
    let words = [(0x7008, 0x7080), (0x7088, 0x120), (0x70a8, 0x230)];
    let full = (vec![0x40, 0x11f, 0x22f], End::Outermost);
    assert_eq!(walked(&[deref, expression, Recipe::OUTERMOST], &mut stack(&words), 0x40), full);
    let no_such = Recipe::with_cfa(Cfa::Expression(Expression { start: 0, len: 3 }));
    assert_eq!(walked(&[deref, no_such], &mut stack(&words), 0x40).1, End::Stopped(Stop::BadRecipe));
}

#[test]
fn what_a_signal_has_interrupted_is_exact_and_has_all_its_registers() {
    // The handler's frame, then one as the kernel writes it: pc, rsp and rax at fixed places of it.
    let rax = Reg::from_dwarf(0).unwrap();
    let mut signal = by_rsp(0x100);
    signal.signal_frame = true;
    signal.return_address = Rule::AtCfa(-0x80);
    signal.registers[Reg::RSP.index()] = Rule::AtCfa(-0x78);
    signal.registers[rax.index()] = Rule::AtCfa(-0x70);
    // The interrupted procedure's CFA is in rax, which no ordinary frame would give back.
    let interrupted = Recipe::with_cfa(Cfa::Register { reg: rax, disp: 0 });
    let recipes = [by_rsp(8), signal, interrupted, Recipe::OUTERMOST];
    // handler's return to 0x110; the frame's CFA is 0x7008 + 0x100
    let words = [(0x7000, 0x110), (0x7088, 0x200), (0x7090, 0x7200), (0x7098, 0x7300), (0x72f8, 0x310)];
    let (keys, end) = walked(&recipes, &mut stack(&words), 0x00);
    // 0x200 is where the procedure begins: an exact address is not looked up one byte before.
    assert_eq!((keys, end), (vec![0x00, 0x10f, 0x200, 0x30f], End::Outermost));
}

#[test]
fn walks_end_whatever_the_stack_says() {
    // A frame that claims to lie where it is, and one that would go down.
    assert_eq!(walked(&[by_rsp(0)], &mut stack(&[(0x6ff8, 0x10)]), 0x00).1, End::Stopped(Stop::NoProgress));
    let down = Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: -0x200 });
    assert_eq!(walked(&[down], &mut stack(&[(0x6ef8, 0x10)]), 0x00).1, End::Stopped(Stop::NoProgress));
    assert_eq!(
        walked(&[by_rsp(8)], &mut stack(&[(0x7000, 0x900)]), 0x00),
        (vec![0, 0x8ff], End::Stopped(Stop::NoRecipe))
    );
    // Signal frames may lie anywhere: they are counted.
    let mut circle = by_rsp(0x100);
    circle.signal_frame = true;
    circle.return_address = Rule::AtCfa(-0x80);
    circle.registers[Reg::RSP.index()] = Rule::AtCfa(-0x78);
    let (keys, end) = walked(&[circle], &mut stack(&[(0x7080, 0x10), (0x7088, 0x7000)]), 0x00);
    assert_eq!((keys.len(), end), (MAX_SIGNAL_FRAMES as usize + 1, End::Stopped(Stop::TooManySignals)));
}

#[test]
fn a_caller_may_be_on_another_stack() {
    let cfa = Cfa::Register { reg: Reg::RBP, disp: -0x4000 };
    let switch = Recipe { switches_stack: true, begins_stack: true, ..Recipe::with_cfa(cfa) };
    // Far below, at 0x3100, another stack has the return address, and the next frame.
    let words = [(0x30f8, 0x110), (0x3100, 0x210)];
    let recipes = [switch, by_rsp(8), Recipe::OUTERMOST];
    assert_eq!(walked(&recipes, &mut stack(&words), 0x00), (vec![0x00, 0x10f, 0x20f], End::Outermost));
    // Not there, or nothing: the stack begins where it was switched to.
    for words in [&[][..], &[(0x30f8, 0)]] {
        assert_eq!(walked(&recipes, &mut stack(words), 0x00), (vec![0x00], End::Outermost));
    }
    // A caller is known to be there.
    let leaf = Recipe { begins_stack: false, ..switch };
    let (keys, end) = walked(&[leaf], &mut stack(&[]), 0x00);
    assert!(keys == [0x00] && matches!(end, End::Stopped(_)), "{end:?}");
    // Two that lead to each other.
    let (keys, end) = walked(&[switch], &mut stack(&[(0x30f8, 0x10)]), 0x00);
    assert_eq!((keys.len(), end), (MAX_STACK_SWITCHES as usize + 1, End::Stopped(Stop::TooManySwitches)));
}

#[test]
fn who_knows_better_says_what_a_return_address_stands_for() {
    let recipes = [by_rsp(8), by_rsp(16), Recipe::OUTERMOST];
    let mut hidden = stack(&[(0x7000, 0x5_0110), (0x7010, 0x5_0210)]);
    assert_eq!(walked(&recipes, &mut hidden, 0x00), (vec![0x00, 0x10f, 0x20f], End::Outermost));
    // Of the second one nothing is known where it stands now.
    let moved = [by_rsp(8), by_rsp(24), Recipe::OUTERMOST];
    let mut lost = stack(&[(0x7000, 0x5_0110), (0x7018, 0x5_0210)]);
    assert_eq!(walked(&moved, &mut lost, 0x00), (vec![0x00, 0x10f], End::Stopped(Stop::Unreadable)));
}

#[test]
fn a_visitor_that_has_seen_enough_is_not_called_again() {
    let mut seen = 0;
    let mut values = [0; 16];
    values[Reg::RSP.index()] = 0x7000;
    let mut cursor_points = Vec::new();
    let mut stack = stack(&[(0x7000, 0x110), (0x7008, 0x120)]);
    let end =
        walk(Cursor::interrupted(RunAddr(0x10), values), &mut Code(vec![by_rsp(8); 2]), &mut stack, |cursor, _, _| {
            seen += 1;
            cursor_points.push(cursor.point);
            if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    assert_eq!((seen, end), (2, End::Broken));
    assert_eq!(cursor_points, [CodePoint::Exact(RunAddr(0x10)), CodePoint::Return(RunAddr(0x110))]);
}
