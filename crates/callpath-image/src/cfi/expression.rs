//! Partial evaluation of the DWARF expressions in call frame information.
//! An expression comes in, the plainest equation that says the same goes out.
//!
//! Nearly all expressions of compilers and linkers are `reg + disp` or `*(reg + disp) + add` in disguise. What is not
//! stays an expression, if the walk can evaluate it (`callpath-unwind`, `expression.rs`).

use callpath_format::recipe::Expression;
use callpath_format::register::Reg;
use gimli::{Encoding, EndianSlice, LittleEndian, Operation};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The pc of a module is known modulo this: load biases are multiples of it.
pub(super) const PAGE_LEN_BYTES: u64 = 4096;

const ENCODING: Encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
const STACK_LEN: usize = 16;

/// What an expression comes to. Displacements are in bytes, modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// A number.
    Constant(u64),
    /// `pc + disp`; where the module is loaded is not known.
    Pc(i64),
    /// `reg + disp`
    Register(Reg, i64),
    /// `*(reg + disp) + add`
    AtRegister(Reg, i64, i64),
    /// `CFA + disp`
    Cfa(i64),
    /// `*(CFA + disp) + add`
    AtCfa(i64, i64),
}

impl Value {
    fn plus(self, addend: i64) -> Value {
        match self {
            Value::Constant(value) => Value::Constant(value.wrapping_add_signed(addend)),
            Value::Pc(disp) => Value::Pc(disp.wrapping_add(addend)),
            Value::Register(reg, disp) => Value::Register(reg, disp.wrapping_add(addend)),
            Value::AtRegister(reg, disp, add) => Value::AtRegister(reg, disp, add.wrapping_add(addend)),
            Value::Cfa(disp) => Value::Cfa(disp.wrapping_add(addend)),
            Value::AtCfa(disp, add) => Value::AtCfa(disp, add.wrapping_add(addend)),
        }
    }

    fn deref(self) -> Option<Value> {
        match self {
            Value::Register(reg, disp) => Some(Value::AtRegister(reg, disp, 0)),
            Value::Cfa(disp) => Some(Value::AtCfa(disp, 0)),
            _ => None,
        }
    }
}

/// An expression's value, and how far it depends on the pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Partial {
    /// The value.
    pub(super) value: Value,
    /// It depends on the pc modulo this power of two only (1: not at all), at most [`PAGE_LEN_BYTES`].
    pub(super) pc_period_bytes: u64,
}

/// The value of `code` at `pc` (a link-time address) with `initial` on the stack; `None` if it is no plain equation.
pub(super) fn evaluate(code: &[u8], initial: Option<Value>, pc: u64) -> Option<Partial> {
    let mut stack = Stack { values: [Value::Constant(0); STACK_LEN], len: 0 };
    let mut pc_period_bytes = 1;
    if let Some(value) = initial {
        stack.push(value)?;
    }
    let mut operations = gimli::Expression(Slice::new(code, LittleEndian)).operations(ENCODING);
    while let Some(operation) = operations.next().ok()? {
        match operation {
            Operation::UnsignedConstant { value } => stack.push(Value::Constant(value))?,
            Operation::SignedConstant { value } => stack.push(Value::Constant(value as u64))?,
            Operation::RegisterOffset { register, offset, base_type } if base_type.0 == 0 => {
                stack.push(match Reg::from_dwarf(register.0) {
                    Some(reg) => Value::Register(reg, offset),
                    None if register.0 == Reg::RETURN_ADDRESS_COLUMN => Value::Pc(offset),
                    None => return None,
                })?;
            }
            Operation::Deref { size: 8, space: false, base_type } if base_type.0 == 0 => {
                let address = stack.pop()?;
                stack.push(address.deref()?)?;
            }
            Operation::PlusConstant { value } => {
                let top = stack.pop()?;
                stack.push(top.plus(value as i64))?;
            }
            Operation::Drop => {
                stack.pop()?;
            }
            Operation::Pick { index } => stack.push(stack.peek(usize::from(index))?)?,
            Operation::Swap => {
                let (a, b) = (stack.pop()?, stack.pop()?);
                stack.push(a)?;
                stack.push(b)?;
            }
            Operation::Nop => {}
            _ => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.push(match (&operation, a, b) {
                    (Operation::Plus, value, Value::Constant(c)) | (Operation::Plus, Value::Constant(c), value) => {
                        value.plus(c as i64)
                    }
                    (Operation::Minus, value, Value::Constant(c)) => value.plus((c as i64).wrapping_neg()),
                    (Operation::And, Value::Pc(disp), Value::Constant(mask))
                    | (Operation::And, Value::Constant(mask), Value::Pc(disp))
                        if mask < PAGE_LEN_BYTES =>
                    {
                        pc_period_bytes = pc_period_bytes.max((mask + 1).next_power_of_two());
                        Value::Constant(pc.wrapping_add_signed(disp) & mask)
                    }
                    (_, Value::Constant(a), Value::Constant(b)) => Value::Constant(arithmetic(&operation, a, b)?),
                    _ => return None,
                })?;
            }
        }
    }
    Some(Partial { value: stack.pop()?, pc_period_bytes })
}

fn arithmetic(operation: &Operation<Slice<'_>>, a: u64, b: u64) -> Option<u64> {
    let (signed_a, signed_b) = (a as i64, b as i64);
    Some(match operation {
        Operation::And => a & b,
        Operation::Or => a | b,
        Operation::Xor => a ^ b,
        Operation::Mul => a.wrapping_mul(b),
        Operation::Shl => a.checked_shl(u32::try_from(b).unwrap_or(u32::MAX)).unwrap_or(0),
        Operation::Shr => a.checked_shr(u32::try_from(b).unwrap_or(u32::MAX)).unwrap_or(0),
        Operation::Eq => u64::from(signed_a == signed_b),
        Operation::Ge => u64::from(signed_a >= signed_b),
        Operation::Gt => u64::from(signed_a > signed_b),
        Operation::Le => u64::from(signed_a <= signed_b),
        Operation::Lt => u64::from(signed_a < signed_b),
        Operation::Ne => u64::from(signed_a != signed_b),
        _ => return None,
    })
}

struct Stack {
    values: [Value; STACK_LEN],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: Value) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<Value> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    fn peek(&self, from_top: usize) -> Option<Value> {
        self.values.get(self.len.checked_sub(1)?.checked_sub(from_top)?).copied()
    }
}

/// Whether the walk can evaluate `code`. `DW_OP_addr` it could, but the address is a link-time one, which is nowhere.
pub(super) fn is_walkable(code: &[u8]) -> bool {
    let expression = gimli::Expression(Slice::new(code, LittleEndian));
    if code.is_empty() || code.len() > Expression::MAX_LEN_BYTES {
        return false;
    }
    let mut operations = expression.operations(ENCODING);
    loop {
        let opcode = code.get(operations.offset_from(&expression)).copied();
        match (operations.next(), opcode) {
            (Ok(None), _) => return true,
            (Ok(Some(Operation::Deref { size, .. })), Some(0x94)) if !matches!(size, 1 | 2 | 4 | 8) => return false,
            (Ok(Some(_)), Some(0x06 | 0x08..=0x17 | 0x19..=0x4f | 0x70..=0x80 | 0x94 | 0x96)) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(code: &[u8], initial: Option<Value>) -> Option<Value> {
        evaluate(code, initial, 0x1000).map(|partial| partial.value)
    }

    #[test]
    fn disguised_equations() {
        // DW_OP_breg6 (rbp): -8; DW_OP_deref: a frame that was realigned (gcc)
        assert_eq!(value(&[0x76, 0x78, 0x06], None), Some(Value::AtRegister(Reg::RBP, -8, 0)));
        // DW_OP_breg7 (rsp): 160; DW_OP_deref; DW_OP_plus_uconst 8: the signal restorer of glibc
        assert_eq!(value(&[0x77, 0xa0, 1, 0x06, 0x23, 8], None), Some(Value::AtRegister(Reg::RSP, 160, 8)));
        // DW_OP_breg7 (rsp): -8; DW_OP_deref; DW_OP_const1s 8; DW_OP_minus
        assert_eq!(value(&[0x77, 0x78, 0x06, 0x09, 8, 0x1c], None), Some(Value::AtRegister(Reg::RSP, -8, -8)));
        // DW_OP_plus_uconst 16 over the CFA
        assert_eq!(value(&[0x23, 16], Some(Value::Cfa(0))), Some(Value::Cfa(16)));
        // DW_OP_const1u 16; DW_OP_minus; DW_OP_deref over the CFA
        assert_eq!(value(&[0x08, 16, 0x1c, 0x06], Some(Value::Cfa(0))), Some(Value::AtCfa(-16, 0)));
    }

    #[test]
    fn not_plain() {
        assert_eq!(value(&[0x76, 0, 0x77, 0, 0x22], None), None); // rbp + rsp
        assert_eq!(value(&[0x76, 0x78, 0x06, 0x06], None), None); // two reads
        assert_eq!(value(&[0x77, 0, 0x09, 0xf0, 0x1a], None), None); // rsp & -16
        assert_eq!(value(&[0x22], None), None); // underflow
        assert_eq!(value(&[0x0e, 1], None), None); // cut
        assert_eq!(value(&[], None), None);
    }

    #[test]
    fn plt_expression_depends_on_pc_modulo_16() {
        // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
        let code = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        for pc in 0x1000..0x1040 {
            let disp = if pc & 15 >= 11 { 16 } else { 8 };
            let expected = Partial { value: Value::Register(Reg::RSP, disp), pc_period_bytes: 16 };
            assert_eq!(evaluate(&code, None, pc), Some(expected));
        }
        // The pc itself, which the load bias changes, is no equation between registers.
        assert_eq!(value(&[0x80, 8], None), Some(Value::Pc(8)));
        // breg16 0; const2u 0xffff; and: more than a page is not known
        assert_eq!(value(&[0x80, 0, 0x0a, 0xff, 0xff, 0x1a], None), None);
    }

    #[test]
    fn only_what_the_walk_knows_is_walkable() {
        assert!(is_walkable(&[0x77, 0, 0x09, 0xf0, 0x1a]));
        assert!(is_walkable(&[0x77, 0, 0x94, 4]));
        assert!(!is_walkable(&[0x77, 0, 0x94, 3]));
        assert!(!is_walkable(&[0x03, 0, 0, 0, 0, 0, 0, 0, 0])); // addr
        assert!(!is_walkable(&[0x92, 0x07, 0x08])); // bregx
        assert!(!is_walkable(&[0x9c])); // call_frame_cfa
        assert!(!is_walkable(&[0x0e, 1]));
        assert!(!is_walkable(&[]));
        assert!(!is_walkable(&[0x96; Expression::MAX_LEN_BYTES + 1]));
    }
}
