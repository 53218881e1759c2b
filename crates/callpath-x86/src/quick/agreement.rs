//! The quick decoder against the full one: whatever it says of an instruction, the full decoder says the same.
//! Knows nothing of how either decodes.

use callpath_format::address::LinkAddr;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::digest::Digester;
use super::{EQUAL, NONE, NOT_EQUAL, Op, Quick, RIP, WINDOW_BYTES};
use crate::decode::{Flow, Instructions, flow_of, is_padding};
use crate::effect::Effects;
use crate::flow::compared_with_rsp;
use crate::idioms::Context;
use crate::places::Places;
use crate::state::{RSP, State};
use crate::trial::Trial;
use crate::value::{Base, Value};

const AT: u64 = 0x40_0000;

/// Numbers that look random, always the same ones.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11 ^ self.0 >> 41
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn value(&mut self) -> Value {
        let offset = self.below(64) as i32 * 4 - 160;
        match self.below(9) {
            0 => Value::Unknown,
            1 => Value::Caller(self.below(17) as u8),
            2 => Value::Stack { base: Base::of_register(self.below(16) as usize), offset: 0 },
            3 => Value::Stack { base: Base::made_at(self.below(4) as u32), offset },
            4 => Value::Constant(self.below(3) * 8),
            5 => Value::TableWord(0x5000),
            6 => Value::Content { base: Base::of_register(RSP), offset: 8, plus: 0 },
            _ => Value::cfa(offset),
        }
    }

    fn state(&mut self) -> State {
        let mut state = match self.below(3) {
            0 => State::symbolic(),
            1 => State::at_entry(),
            _ => State::unknown(),
        };
        for register in 0..16 {
            if self.below(3) != 0 {
                let value = self.value();
                state.set(register, value, 7);
            }
        }
        for _ in 0..self.below(16) {
            let base = if self.below(4) == 0 { Base::made_at(self.below(4) as u32) } else { Base::CFA };
            let (offset, value) = (self.below(64) as i32 * 4 - 160, self.value());
            state.store(base, offset, 8, value);
        }
        state.after_system_call = self.below(2) == 0;
        state.bound = Some(77);
        state.is_changed = false;
        state
    }
}

struct Checker {
    numbers: Numbers,
    states: Vec<State>,
    effects: Effects,
    trial: Trial,
    digester: Digester,
    known: u64,
    digested: u64,
    seen: u64,
}

impl Checker {
    fn new() -> Checker {
        let mut numbers = Numbers(1);
        let states = (0..256).map(|_| numbers.state()).collect();
        Checker {
            numbers,
            states,
            effects: Effects::new(),
            trial: Trial::new(1, false),
            digester: Digester::new(),
            known: 0,
            digested: 0,
            seen: 0,
        }
    }

    /// Checks bytes that begin with `head`.
    fn check_filled(&mut self, head: &[u8]) {
        let mut bytes = [0; WINDOW_BYTES];
        bytes.fill_with(|| self.numbers.next() as u8);
        // Small numbers are frequent.
        let mask = [0xff, 0x07, 0x00][self.numbers.below(3) as usize];
        for byte in bytes.iter_mut().skip(head.len() + 1) {
            *byte &= mask;
        }
        bytes[..head.len()].copy_from_slice(head);
        self.check(&bytes);
    }

    fn check(&mut self, bytes: &[u8; WINDOW_BYTES]) {
        let mut full = Instruction::default();
        Decoder::with_ip(64, bytes, AT, DecoderOptions::NONE).decode_out(&mut full);
        self.seen += u64::from(!full.is_invalid());
        let decoded = Quick::decode(bytes);
        let digested = || if full.is_invalid() { None } else { self.digester.digest(&full) };
        let Some(quick) = decoded.or_else(digested) else { return };
        self.known += u64::from(decoded.is_some());
        self.digested += u64::from(decoded.is_none());
        let say = || format!("{bytes:02x?} {:?} {quick:?}", full.code());
        assert!(!full.is_invalid(), "{}", say());
        assert_eq!(usize::from(quick.len()), full.len(), "{}", say());
        assert_eq!(quick.is_padding(), is_padding(&full), "{}", say());
        assert_eq!(quick.op == Op::Trap, full.mnemonic() == Mnemonic::Int3, "{}", say());
        let mut code = [0; 256];
        code[100..][..WINDOW_BYTES].copy_from_slice(bytes);
        let slices = [(LinkAddr(AT - 100), &code[..])];
        let (places, _) = Places::new(&slices);
        let mut instructions = Instructions::new(&places, 100).expect("there is code");
        assert_eq!(instructions.quick(), decoded);
        if decoded.is_none() {
            instructions.decode(&mut Instruction::default());
        }
        let flow = flow_of(&full, &places);
        assert_eq!(instructions.flow_of(&quick, &places), flow, "{}", say());
        assert_eq!(quick.goes_on(), flow == Flow::Next, "{}", say());
        assert!(!full.is_privileged(), "{}", say());
        if decoded.is_some() {
            self.check_references(&quick, &full, &say);
        }
        for _ in 0..2 {
            let index = self.numbers.below(self.states.len() as u64) as usize;
            let state = self.states[index].clone();
            assert_eq!(Trial::uses_quick(&state, &quick), self.trial.uses(&state, &full), "{} {}", say(), show(&state));
            if matches!(flow, Flow::Next | Flow::Call(_)) {
                let (mut by_quick, mut by_full) = (state.clone(), state.clone());
                quick.apply(&mut by_quick, 9, AT);
                self.effects.apply(&mut by_full, &full, 9);
                assert!(
                    is_same(&by_quick, &by_full),
                    "{} {}\n{}\n{}",
                    say(),
                    show(&state),
                    show(&by_quick),
                    show(&by_full)
                );
            }
            let mut context = Context::default();
            for _ in 0..self.numbers.below(3) {
                let mut before = Instruction::default();
                // mov rsp, rdx; pop rcx; mov rsp, [rdx]
                const STEPS: [&[u8]; 3] = [&[0x48, 0x89, 0xd4], &[0x59], &[0x48, 0x8b, 0x22]];
                let step = STEPS[self.numbers.below(3) as usize];
                Decoder::with_ip(64, step, AT, DecoderOptions::NONE).decode_out(&mut before);
                context.note(&before);
            }
            let (mut by_quick, mut by_full) = (context, context);
            by_quick.note_quick(&quick);
            by_full.note(&full);
            // The sweep asks the full decoder itself.
            assert!(decoded.is_none() || by_quick == by_full, "{} {by_quick:?} {by_full:?}", say());
        }
    }

    fn check_references(&self, quick: &Quick, full: &Instruction, say: &dyn Fn() -> String) {
        let compared = if quick.op == Op::CompareStack { Some(usize::from(quick.reg)) } else { None };
        assert_eq!(compared, compared_with_rsp(full), "{}", say());
        let table = (quick.index != NONE && quick.base == NONE).then_some(i64::from(quick.disp) as u64);
        let full_table = (full.memory_index() != Register::None && full.memory_base() == Register::None)
            .then(|| full.memory_displacement64());
        assert_eq!(table, full_table, "{}", say());
        let made = match quick.op {
            Op::Lea if quick.base == RIP => Some((AT + u64::from(quick.len())).wrapping_add_signed(quick.disp.into())),
            Op::Constant | Op::StoreConstant if quick.size == 4 => Some(quick.imm()),
            _ => None,
        };
        let full_made = match full.mnemonic() {
            Mnemonic::Lea if full.memory_base() == Register::RIP => Some(full.ip_rel_memory_address()),
            Mnemonic::Mov if full.op1_kind() == OpKind::Immediate32 => Some(full.immediate32().into()),
            _ => None,
        };
        assert_eq!(made, full_made, "{}", say());
        if quick.op == Op::Branch {
            let condition = match full.code() {
                Code::Je_rel8_64 | Code::Je_rel32_64 => EQUAL,
                Code::Jne_rel8_64 | Code::Jne_rel32_64 => NOT_EQUAL,
                _ => NONE,
            };
            assert_eq!(matches!(quick.reg, EQUAL | NOT_EQUAL).then_some(quick.reg).unwrap_or(NONE), condition);
        }
    }
}

fn is_same(a: &State, b: &State) -> bool {
    let flags =
        |state: &State| (state.is_outermost, state.after_system_call, state.is_changed, state.pivot, state.bound);
    (0..16).all(|register| a.get(register) == b.get(register)) && a.slots() == b.slots() && flags(a) == flags(b)
}

fn show(state: &State) -> String {
    let registers: Vec<Value> = (0..16).map(|register| state.get(register)).collect();
    let State { is_outermost, after_system_call, is_changed, pivot, bound, .. } = state;
    format!("{registers:?} {:?} {is_outermost} {after_system_call} {is_changed} {pivot:?} {bound:?}", state.slots())
}

/// Every opcode of every map, with every prefix and `modrm`; what follows is random.
#[test]
fn every_opcode() {
    let mut checker = Checker::new();
    const PREFIXES: [&[u8]; 18] = [
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x64],
        &[0x66, 0x66],
        &[0x66, 0x2e],
        &[0xf0],
        &[0x67],
        &[0x2e],
        &[0x40],
        &[0x41],
        &[0x48],
        &[0x49],
        &[0x4c],
        &[0x4f],
        &[0x44],
        &[0x42],
    ];
    const BOTH: [&[u8]; 12] = [
        &[0x66, 0x48],
        &[0x66, 0x41],
        &[0x66, 0x44],
        &[0xf3, 0x48],
        &[0xf3, 0x41],
        &[0xf2, 0x48],
        &[0xf2, 0x45],
        &[0x64, 0x48],
        &[0x65, 0x4c],
        &[0x64, 0x66],
        &[0x48, 0x66],
        &[0xf3, 0x66],
    ];
    const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    for prefix in PREFIXES.iter().chain(&BOTH) {
        for map in MAPS {
            for opcode in 0..=255u8 {
                let mut head = [*prefix, map, &[opcode]].concat();
                let modrms = if prefix.is_empty() { 256 } else { 24 };
                for step in 0..modrms {
                    let modrm = if modrms == 256 { step as u8 } else { checker.numbers.next() as u8 };
                    head.push(modrm);
                    checker.check_filled(&head);
                    head.pop();
                }
            }
        }
    }
    assert!(checker.known > 100_000, "{}", checker.known);
}

/// The same of VEX.
#[test]
fn every_opcode_with_vex() {
    let mut checker = Checker::new();
    for opcode in 0..=255u8 {
        for second in 0..=255u8 {
            checker.check_filled(&[0xc5, second, opcode]);
        }
        for _ in 0..400 {
            let (map, third) = (
                (1 + checker.numbers.below(3) as u8) | (checker.numbers.next() as u8 & 0xe0),
                checker.numbers.next() as u8,
            );
            // Often with the register of none.
            let third = if third & 3 == 0 { third } else { third | 0x78 };
            checker.check_filled(&[0xc4, map, third, opcode]);
        }
    }
    assert!(checker.known > 10_000, "{}", checker.known);
}

/// And of EVEX, of which only the full decoder knows.
#[test]
fn every_opcode_with_evex() {
    let mut checker = Checker::new();
    for opcode in 0..=255u8 {
        for _ in 0..400 {
            let numbers = &mut checker.numbers;
            let first = numbers.below(8) as u8 | numbers.next() as u8 & 0xf0;
            // One of its bits is nearly always set.
            let second = numbers.next() as u8 | if numbers.below(8) == 0 { 0 } else { 4 };
            let third = numbers.next() as u8;
            checker.check_filled(&[0x62, first, second, third, opcode]);
        }
    }
    assert!(checker.digested > 1_000, "{}", checker.digested);
}

/// This program, as far as its code may go.
#[test]
fn a_program() {
    const LEN_BYTES: usize = 2 << 20;
    let program = std::fs::read(std::env::current_exe().expect("a program")).expect("readable");
    let mut checker = Checker::new();
    let mut at = 0;
    let program = &program[..program.len().min(LEN_BYTES)];
    while let Some(window) = program.get(at..).and_then(|rest| rest.first_chunk()) {
        let zeros = program[at..].iter().take_while(|&&byte| byte == 0).count();
        if zeros > 8 {
            at += zeros;
            continue;
        }
        checker.check(window);
        let instruction = Decoder::with_ip(64, window, AT, DecoderOptions::NONE).decode();
        at += if instruction.is_invalid() { 1 } else { instruction.len() };
    }
    let share = checker.known as f64 / checker.seen.max(1) as f64;
    assert!(share > 0.6, "{} of {}", checker.known, checker.seen);
}
