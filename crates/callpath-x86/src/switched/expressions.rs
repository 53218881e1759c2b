//! DWARF expressions (DWARF 5, section 2.5) for callers on another stack. One that meets something implausible reads at
//! address 0, which cannot be read: it then has no value.

use callpath_format::recipe::Expression;

use crate::recipe::dwarf;

const DEREF: u8 = 0x06;
const CONSTS: u8 = 0x11;
const DUP: u8 = 0x12;
const OVER: u8 = 0x14;
const PICK: u8 = 0x15;
const SWAP: u8 = 0x16;
const AND: u8 = 0x1a;
const MINUS: u8 = 0x1c;
const OR: u8 = 0x21;
const PLUS: u8 = 0x22;
const BRA: u8 = 0x28;
const EQ: u8 = 0x29;
const GT: u8 = 0x2b;
const LE: u8 = 0x2c;
const SKIP: u8 = 0x2f;
const LIT0: u8 = 0x30;
const BREG0: u8 = 0x70;
const PC: u8 = 0x80;

/// Where a value is while the frame is walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In a register, in the processor's order.
    Register(usize),
    /// On the stack, this many bytes above rsp.
    AboveRsp(i64),
}

/// The bytes of an expression under construction.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn op(mut self, op: u8) -> Code {
        self.0.push(op);
        self
    }

    fn ops(mut self, ops: &[u8]) -> Code {
        self.0.extend_from_slice(ops);
        self
    }

    fn signed(mut self, mut value: i64) -> Code {
        loop {
            let byte = value as u8 & 0x7f;
            value >>= 7;
            let is_last = matches!((value, byte & 0x40), (0, 0) | (-1, 0x40));
            self.0.push(if is_last { byte } else { byte | 0x80 });
            if is_last {
                return self;
            }
        }
    }

    fn constant(self, value: i64) -> Code {
        self.op(CONSTS).signed(value)
    }

    fn plus(self, value: i64) -> Code {
        if value == 0 { self } else { self.constant(value).op(PLUS) }
    }

    fn place(self, place: Place) -> Code {
        match place {
            Place::Register(register) => self.op(BREG0 + dwarf(register).index() as u8).signed(0),
            Place::AboveRsp(bytes) => self.op(BREG0 + 7).signed(bytes).op(DEREF),
        }
    }

    /// Pops a condition; without it there is no value.
    fn require(self) -> Code {
        self.ops(&[BRA, 2, 0, LIT0, DEREF])
    }

    fn finished(self) -> Option<Vec<u8>> {
        Some(self.0).filter(|code| code.len() <= Expression::MAX_LEN_BYTES)
    }
}

/// A stack pointer kept as the distance to the end of its stack.
pub(super) struct Depth {
    /// The record with the stack's bounds.
    pub(super) record: Place,
    /// Where the record has the stack's end, bytes. Its beginning is in the word before.
    pub(super) end_at: i64,
    /// The distance.
    pub(super) distance: Place,
    /// The CFA is the end, minus the distance, plus this.
    pub(super) plus: i64,
}

impl Depth {
    /// The CFA.
    pub(super) fn expression(&self) -> Option<Vec<u8>> {
        let bound = |code: Code, at: i64| code.place(self.record).plus(at).op(DEREF);
        let code = bound(Code::default(), self.end_at).place(self.distance).op(MINUS).plus(self.plus);
        let code = bound(code.op(DUP), self.end_at.checked_sub(8)?).op(GT);
        let code = bound(code.op(OVER), self.end_at).ops(&[LE, AND]);
        code.require().finished()
    }
}

/// A stack pointer in memory that is found from one record through others.
pub(super) struct Chain<'c> {
    /// The register with the first record, in the processor's order.
    pub(super) register: usize,
    /// Offsets of the words that lead from the first record to the last one's stack pointer, bytes.
    pub(super) words: &'c [i64],
    /// The same, back to the first record.
    pub(super) back: &'c [i64],
    /// The CFA is that stack pointer plus this.
    pub(super) plus: i64,
}

impl Chain<'_> {
    /// The CFA. The last record begins with the bounds of its stack.
    pub(super) fn expression(&self) -> Option<Vec<u8>> {
        let first = |code: Code| code.place(Place::Register(self.register));
        let follow = |code: Code, words: &[i64]| words.iter().fold(code, |code, at| code.plus(*at).op(DEREF));
        let (stack_pointer_at, records) = self.words.split_last()?;
        let code = first(follow(first(Code::default()), self.back)).op(EQ).require();
        // The last record, the CFA.
        let code = follow(first(code), records);
        let code = follow(code.op(DUP), &[*stack_pointer_at]).plus(self.plus);
        let code = code.ops(&[DUP, PICK, 2, DEREF, GT]);
        let code = code.ops(&[OVER, PICK, 3]).plus(8).ops(&[DEREF, LE, AND]);
        code.require().finished()
    }
}

/// The arguments of a procedure, of which copies are here, on the stack on which it was called: the second one points to a
/// little above them there.
pub(super) struct Arguments {
    pub(super) copies: [Place; 3],
    /// The return address below them, counted from the frame's pc where it is exact, and where it is a return address.
    pub(super) return_address: [i64; 2],
}

/// The least distance from the first argument to what the second one points to: the arguments and a return address.
const LEAST_BYTES: u64 = 32;

impl Arguments {
    /// The CFA: the address of the first argument.
    pub(super) fn expression(&self) -> Option<Vec<u8>> {
        let [first, second, third] = self.copies;
        // What the second argument points to, and where the first may be.
        let start = Code::default().place(second).op(DUP).plus(-(LEAST_BYTES as i64)).constant(-8).op(AND);
        let is_second = |code: Code| code.op(DUP).plus(8).ops(&[DEREF, PICK, 2, EQ]);
        let is_other = |code: Code| {
            let code = code.ops(&[DUP, DEREF]).place(first).ops(&[EQ, OVER]).plus(16).op(DEREF).place(third);
            let code = code.ops(&[EQ, AND, OVER]).plus(-8).ops(&[DEREF, PC, 0, MINUS]);
            let [exact, returned] = self.return_address;
            code.op(DUP).constant(exact).ops(&[EQ, SWAP]).constant(returned).ops(&[EQ, OR, AND])
        };
        let next = |code: Code| code.plus(-8);
        let test = is_second(Code::default()).0;
        let rest = is_other(Code::default()).0;
        let step = next(Code::default()).0;
        const JUMP_LEN: usize = 3;
        let jump = |code: Code, op: u8, by: usize, is_back: bool| {
            let by = i16::try_from(by).ok()?;
            Some(code.op(op).ops(&(if is_back { -by } else { by }).to_le_bytes()))
        };
        // test, bra hit, step, skip test; hit: rest, bra done, skip step; done:
        let code = jump(start.ops(&test), BRA, step.len() + JUMP_LEN, false)?;
        let code = jump(code.ops(&step), SKIP, test.len() + step.len() + 2 * JUMP_LEN, true)?;
        let code = jump(code.ops(&rest), BRA, JUMP_LEN, false)?;
        let code = jump(code, SKIP, rest.len() + step.len() + 3 * JUMP_LEN, true)?;
        code.finished()
    }
}
