//! DWARF expressions, as far as call frame information uses them.
//! Registers and memory come in, a value goes out.

use callpath_format::register::{Reg, Registers};

use crate::Memory;

const STACK_LEN: usize = 32;
/// Backward branches make loops; no expression of a compiler comes near this many operations.
const MAX_OPERATIONS: u32 = 512;

/// What an expression is evaluated in (DWARF 5, section 2.5.1), besides memory.
pub(crate) struct Context<'r> {
    /// What is on the stack at first.
    pub(crate) initial: Option<u64>,
    pub(crate) pc: u64,
    pub(crate) registers: &'r Registers,
}

/// The value of `code` (DWARF 5, section 2.5), if there is one.
///
/// Supported: deref, deref_size, const*, dup, drop, over, pick, swap, rot, abs, and, div, minus, mod, mul, neg,
/// not, or, plus, plus_uconst, shl, shr, shra, xor, bra, comparisons, skip, lit*, breg*, nop. `breg16` is `pc`.
/// Anything else, a stack that over- or underflows, or a read that fails gives `None`.
pub(crate) fn evaluate(code: &[u8], context: &Context<'_>, memory: &mut impl Memory) -> Option<u64> {
    let Context { initial, pc, registers } = *context;
    let mut stack = Stack { values: [0; STACK_LEN], len: 0 };
    if let Some(value) = initial {
        stack.push(value)?;
    }
    let mut reader = Reader { code, at: 0 };
    let mut operations = 0;
    while let Some(op) = reader.u8() {
        operations += 1;
        if operations > MAX_OPERATIONS {
            return None;
        }
        match op {
            0x06 => {
                let addr = stack.pop()?;
                stack.push(memory.read_u64(addr)?)?;
            }
            0x08 => stack.push(reader.unsigned(1)?)?,
            0x09 => stack.push(reader.signed(1)?)?,
            0x0a => stack.push(reader.unsigned(2)?)?,
            0x0b => stack.push(reader.signed(2)?)?,
            0x0c => stack.push(reader.unsigned(4)?)?,
            0x0d => stack.push(reader.signed(4)?)?,
            0x0e | 0x0f => stack.push(reader.unsigned(8)?)?,
            0x10 => stack.push(reader.uleb()?)?,
            0x11 => stack.push(reader.sleb()? as u64)?,
            0x12 => stack.push(stack.peek(0)?)?,
            0x13 => {
                stack.pop()?;
            }
            0x14 => stack.push(stack.peek(1)?)?,
            0x15 => {
                let index = reader.u8()?;
                stack.push(stack.peek(usize::from(index))?)?;
            }
            0x16 => {
                let (a, b) = (stack.pop()?, stack.pop()?);
                stack.push(a)?;
                stack.push(b)?;
            }
            0x17 => {
                let (a, b, c) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.push(a)?;
                stack.push(c)?;
                stack.push(b)?;
            }
            0x19 => stack.unary(|a| (a as i64).wrapping_abs() as u64)?,
            0x1a => stack.binary(|a, b| Some(a & b))?,
            0x1b => stack.binary(|a, b| (a as i64).checked_div(b as i64).map(|v| v as u64))?,
            0x1c => stack.binary(|a, b| Some(a.wrapping_sub(b)))?,
            0x1d => stack.binary(u64::checked_rem)?,
            0x1e => stack.binary(|a, b| Some(a.wrapping_mul(b)))?,
            0x1f => stack.unary(u64::wrapping_neg)?,
            0x20 => stack.unary(|a| !a)?,
            0x21 => stack.binary(|a, b| Some(a | b))?,
            0x22 => stack.binary(|a, b| Some(a.wrapping_add(b)))?,
            0x23 => {
                let addend = reader.uleb()?;
                stack.unary(|a| a.wrapping_add(addend))?;
            }
            0x24 => stack.binary(|a, b| Some(if b < 64 { a << b } else { 0 }))?,
            0x25 => stack.binary(|a, b| Some(if b < 64 { a >> b } else { 0 }))?,
            0x26 => stack.binary(|a, b| Some((a as i64 >> b.min(63)) as u64))?,
            0x27 => stack.binary(|a, b| Some(a ^ b))?,
            0x28 => {
                let by = reader.signed(2)? as i64;
                if stack.pop()? != 0 {
                    reader.skip(by)?;
                }
            }
            0x29 => stack.compare(|a, b| a == b)?,
            0x2a => stack.compare(|a, b| a >= b)?,
            0x2b => stack.compare(|a, b| a > b)?,
            0x2c => stack.compare(|a, b| a <= b)?,
            0x2d => stack.compare(|a, b| a < b)?,
            0x2e => stack.compare(|a, b| a != b)?,
            0x2f => {
                let by = reader.signed(2)? as i64;
                reader.skip(by)?;
            }
            0x30..=0x4f => stack.push(u64::from(op - 0x30))?,
            0x70..=0x80 => {
                let disp = reader.sleb()? as u64;
                let base = if op == 0x80 { pc } else { registers.get(Reg::from_dwarf(u16::from(op - 0x70))?)? };
                stack.push(base.wrapping_add(disp))?;
            }
            0x94 => {
                let size = reader.u8()?;
                let addr = stack.pop()?;
                let value = memory.read_u64(addr)?;
                stack.push(match size {
                    1 => value & 0xff,
                    2 => value & 0xffff,
                    4 => value & 0xffff_ffff,
                    8 => value,
                    _ => return None,
                })?;
            }
            0x96 => {}
            _ => return None,
        }
    }
    stack.pop()
}

struct Stack {
    values: [u64; STACK_LEN],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    fn peek(&self, from_top: usize) -> Option<u64> {
        self.values.get(self.len.checked_sub(1)?.checked_sub(from_top)?).copied()
    }

    fn unary(&mut self, f: impl FnOnce(u64) -> u64) -> Option<()> {
        let a = self.pop()?;
        self.push(f(a))
    }

    fn binary(&mut self, f: impl FnOnce(u64, u64) -> Option<u64>) -> Option<()> {
        let b = self.pop()?;
        let a = self.pop()?;
        self.push(f(a, b)?)
    }

    fn compare(&mut self, f: impl FnOnce(i64, i64) -> bool) -> Option<()> {
        self.binary(|a, b| Some(u64::from(f(a as i64, b as i64))))
    }
}

struct Reader<'a> {
    code: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let byte = self.code.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn unsigned(&mut self, bytes: u32) -> Option<u64> {
        let mut value = 0;
        for i in 0..bytes {
            value |= u64::from(self.u8()?) << (8 * i);
        }
        Some(value)
    }

    fn signed(&mut self, bytes: u32) -> Option<u64> {
        let unused = 64 - 8 * bytes;
        Some((((self.unsigned(bytes)? << unused) as i64) >> unused) as u64)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift < 64 {
                value |= i64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift + 7 < 64 {
                    value |= -1 << (shift + 7);
                }
                return Some(value);
            }
        }
        None
    }

    fn skip(&mut self, by: i64) -> Option<()> {
        let at = usize::try_from(i64::try_from(self.at).ok()?.checked_add(by)?).ok()?;
        if at > self.code.len() {
            return None;
        }
        self.at = at;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words<'a>(&'a [(u64, u64)]);
    impl Memory for Words<'_> {
        fn read_u64(&mut self, addr: u64) -> Option<u64> {
            self.0.iter().find(|w| w.0 == addr).map(|w| w.1)
        }
    }

    fn value(code: &[u8], initial: Option<u64>, pc: u64) -> Option<u64> {
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, 0x7000);
        registers.set(Reg::RBP, 0x7100);
        let context = Context { initial, pc, registers: &registers };
        evaluate(code, &context, &mut Words(&[(0x70d8, 42), (0x7010, 0x1_0000_0007)]))
    }

    #[test]
    fn linker_made_plt_expression() {
        // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus — as ld writes it for .plt
        let code = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(value(&code, None, 0x1000), Some(0x7008));
        assert_eq!(value(&code, None, 0x100a), Some(0x7008));
        assert_eq!(value(&code, None, 0x100b), Some(0x7010));
        assert_eq!(value(&code, None, 0x100f), Some(0x7010));
    }

    #[test]
    fn values_by_hand() {
        assert_eq!(value(&[0x76, 0x58, 0x06], None, 0), Some(42)); // breg6 -40; deref
        assert_eq!(value(&[0x77, 0x10, 0x94, 4], None, 0), Some(7)); // breg7 16; deref_size 4
        assert_eq!(value(&[0x23, 0x81, 0x01], Some(1), 0), Some(130)); // plus_uconst 129
        assert_eq!(value(&[0x35, 0x32, 0x1c], None, 0), Some(3)); // 5 - 2
        assert_eq!(value(&[0x31, 0x32, 0x33, 0x17], None, 0), Some(2)); // rot: 1 2 3 -> 3 1 2
        assert_eq!(value(&[0x31, 0x32, 0x16], None, 0), Some(1)); // swap
        assert_eq!(value(&[0x09, 0xff, 0x11, 0x7f, 0x29], None, 0), Some(1)); // const1s -1 == consts -1
        assert_eq!(value(&[0x2f, 1, 0, 0x31, 0x35], None, 0), Some(5)); // skip over lit1
    }

    #[test]
    fn hostile_expressions_end() {
        assert_eq!(value(&[0x2f, 0xfd, 0xff], None, 0), None); // jumps to itself
        assert_eq!(value(&[0x06], None, 0), None); // underflow
        assert_eq!(value(&[0x31; 64], None, 0), None); // overflow
        assert_eq!(value(&[0x31, 0x30, 0x1b], None, 0), None); // division by zero
        assert_eq!(value(&[0x70, 0], None, 0), None); // rax is not known
        assert_eq!(value(&[0xff], None, 0), None);
        assert_eq!(value(&[0x0e, 1, 2], None, 0), None); // cut
    }
}
