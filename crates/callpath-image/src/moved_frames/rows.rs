//! The rows of a frame description entry, rule by rule as they are written, and the program that says them again.

use callpath_format::address::LinkAddr;
use gimli::{BaseAddresses, EhFrame, UnwindContext, UnwindExpression};
use gimli::{CfaRule, Encoding, EndianSlice, FrameDescriptionEntry, LittleEndian, Operation, RegisterRule};

use super::bytes::{sleb, uleb};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// rsp, rbp and rip by their DWARF numbers; rip's column is the return address's.
const RSP: u16 = 7;
const RBP: u16 = 6;
const RETURN_ADDRESS: u16 = 16;
/// What offsets are written in, bytes: the entries that are written say so.
pub(super) const DATA_ALIGNMENT: i64 = -8;

/// What holds from an address on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    cfa: Cfa,
    /// By ascending register. What is not there is not said.
    rules: Vec<(u16, Rule)>,
    /// Bytes of arguments on the stack that a landing pad does not expect there (`DW_CFA_GNU_args_size`).
    pub(super) arguments_len: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Cfa {
    Register { register: u16, offset: u64 },
    Expression(Vec<u8>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Rule {
    Same,
    /// Saved so many times [`DATA_ALIGNMENT`] above the CFA.
    Offset(i64),
    /// That address itself.
    ValueOffset(i64),
    Register(u16),
    Expression(Vec<u8>),
    ValueExpression(Vec<u8>),
}

/// `DW_CFA_*`
mod cfa {
    pub(super) const ADVANCE: u8 = 0x40;
    pub(super) const ADVANCE_1: u8 = 0x02;
    pub(super) const ADVANCE_2: u8 = 0x03;
    pub(super) const ADVANCE_4: u8 = 0x04;
    pub(super) const OFFSET: u8 = 0x80;
    pub(super) const OFFSET_EXTENDED: u8 = 0x05;
    pub(super) const UNDEFINED: u8 = 0x07;
    pub(super) const SAME_VALUE: u8 = 0x08;
    pub(super) const REGISTER: u8 = 0x09;
    pub(super) const DEF_CFA: u8 = 0x0c;
    pub(super) const DEF_CFA_OFFSET: u8 = 0x0e;
    pub(super) const DEF_CFA_EXPRESSION: u8 = 0x0f;
    pub(super) const EXPRESSION: u8 = 0x10;
    pub(super) const OFFSET_EXTENDED_SF: u8 = 0x11;
    pub(super) const VAL_OFFSET: u8 = 0x14;
    pub(super) const VAL_OFFSET_SF: u8 = 0x15;
    pub(super) const VAL_EXPRESSION: u8 = 0x16;
    pub(super) const ARGS_SIZE: u8 = 0x2e;
}

impl Row {
    /// That of a procedure's first instruction, which the entries that are written begin with.
    pub(super) fn at_entry() -> Row {
        let cfa = Cfa::Register { register: RSP, offset: 8 };
        Row { cfa, rules: vec![(RETURN_ADDRESS, Rule::Offset(1))], arguments_len: 0 }
    }

    /// The same where the frame is so many bytes larger, right below the return address. `None`: it cannot be said.
    pub(super) fn enlarged(&self, bytes: u32) -> Option<Row> {
        let mut row = self.clone();
        if bytes == 0 {
            return Some(row);
        }
        match &mut row.cfa {
            Cfa::Register { register: RSP | RBP, offset } => *offset = offset.checked_add(bytes.into())?,
            _ => return None,
        }
        for (register, rule) in &mut row.rules {
            match rule {
                Rule::Offset(1) if *register == RETURN_ADDRESS => {}
                Rule::Offset(times @ 2..) if *register != RETURN_ADDRESS => {
                    *times += i64::from(bytes) / -DATA_ALIGNMENT
                }
                Rule::Same => {}
                _ => return None,
            }
        }
        Some(row)
    }

    /// The same where rsp is so many bytes lower.
    pub(super) fn lowered(&self, bytes: u32) -> Row {
        let mut row = self.clone();
        if let Cfa::Register { register: RSP, offset } = &mut row.cfa {
            *offset = offset.saturating_add(bytes.into());
        }
        row
    }

    /// Writes what makes this row of another one.
    pub(super) fn write_changes(&self, before: &Row, out: &mut Vec<u8>) {
        match (&self.cfa, &before.cfa) {
            (new, old) if new == old => {}
            (Cfa::Register { register, offset }, Cfa::Register { register: old, .. }) if register == old => {
                out.push(cfa::DEF_CFA_OFFSET);
                uleb(out, *offset);
            }
            (Cfa::Register { register, offset }, _) => {
                out.push(cfa::DEF_CFA);
                uleb(out, (*register).into());
                uleb(out, *offset);
            }
            (Cfa::Expression(code), _) => {
                out.push(cfa::DEF_CFA_EXPRESSION);
                block(out, code);
            }
        }
        for (register, rule) in &self.rules {
            if before.rule(*register) != Some(rule) {
                rule.write(*register, out);
            }
        }
        for (register, _) in before.rules.iter().filter(|(register, _)| self.rule(*register).is_none()) {
            // An unwinder ends where the return address is undefined. Of others "undefined" and "the same" say nothing.
            out.push(if *register == RETURN_ADDRESS { cfa::UNDEFINED } else { cfa::SAME_VALUE });
            uleb(out, (*register).into());
        }
        if self.arguments_len != before.arguments_len {
            out.push(cfa::ARGS_SIZE);
            uleb(out, self.arguments_len);
        }
    }

    fn rule(&self, register: u16) -> Option<&Rule> {
        let found = self.rules.binary_search_by_key(&register, |(register, _)| *register).ok()?;
        self.rules.get(found).map(|(_, rule)| rule)
    }
}

impl Rule {
    fn write(&self, register: u16, out: &mut Vec<u8>) {
        let mut with = |operation: u8, operand: &dyn Fn(&mut Vec<u8>)| {
            out.push(operation);
            uleb(out, register.into());
            operand(out);
        };
        match self {
            Rule::Same => with(cfa::SAME_VALUE, &|_| {}),
            Rule::Offset(times @ 0..) if register < 64 => {
                out.push(cfa::OFFSET | register as u8);
                uleb(out, *times as u64);
            }
            Rule::Offset(times @ 0..) => with(cfa::OFFSET_EXTENDED, &|out| uleb(out, *times as u64)),
            Rule::Offset(times) => with(cfa::OFFSET_EXTENDED_SF, &|out| sleb(out, *times)),
            Rule::ValueOffset(times @ 0..) => with(cfa::VAL_OFFSET, &|out| uleb(out, *times as u64)),
            Rule::ValueOffset(times) => with(cfa::VAL_OFFSET_SF, &|out| sleb(out, *times)),
            Rule::Register(other) => with(cfa::REGISTER, &|out| uleb(out, (*other).into())),
            Rule::Expression(code) => with(cfa::EXPRESSION, &|out| block(out, code)),
            Rule::ValueExpression(code) => with(cfa::VAL_EXPRESSION, &|out| block(out, code)),
        }
    }
}

fn block(out: &mut Vec<u8>, code: &[u8]) {
    uleb(out, code.len() as u64);
    out.extend_from_slice(code);
}

/// Writes that the next row begins so many bytes later.
pub(super) fn advance(out: &mut Vec<u8>, by: u32) {
    match by {
        0 => {}
        1..64 => out.push(cfa::ADVANCE | by as u8),
        64..0x100 => out.extend([cfa::ADVANCE_1, by as u8]),
        0x100..0x1_0000 => {
            out.push(cfa::ADVANCE_2);
            out.extend((by as u16).to_le_bytes());
        }
        _ => {
            out.push(cfa::ADVANCE_4);
            out.extend(by.to_le_bytes());
        }
    }
}

/// The rows of an entry, by ascending first address. `None` if one of them cannot be said of moved code.
pub(super) fn rows(
    section: &EhFrame<Slice<'_>>,
    bases: &BaseAddresses,
    fde: &FrameDescriptionEntry<Slice<'_>>,
) -> Option<Vec<(LinkAddr, Row)>> {
    let mut context = UnwindContext::new();
    let mut table = fde.rows(section, bases, &mut context).ok()?;
    let mut rows: Vec<(LinkAddr, Row)> = Vec::new();
    while let Some(row) = table.next_row().ok()? {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Cfa::Register { register: register.0, offset: u64::try_from(*offset).ok()? }
            }
            CfaRule::Expression(expression) => Cfa::Expression(movable(section, expression)?),
        };
        let mut rules = Vec::new();
        for (register, rule) in row.registers() {
            let times = |bytes: i64| (bytes % DATA_ALIGNMENT == 0).then_some(bytes / DATA_ALIGNMENT);
            let rule = match rule {
                RegisterRule::Undefined => continue,
                RegisterRule::SameValue => Rule::Same,
                RegisterRule::Offset(bytes) => Rule::Offset(times(*bytes)?),
                RegisterRule::ValOffset(bytes) => Rule::ValueOffset(times(*bytes)?),
                RegisterRule::Register(other) if ![RSP, RETURN_ADDRESS].contains(&other.0) => Rule::Register(other.0),
                RegisterRule::Expression(expression) => Rule::Expression(movable(section, expression)?),
                RegisterRule::ValExpression(expression) => Rule::ValueExpression(movable(section, expression)?),
                _ => return None,
            };
            // Where rsp is lower, its own rule would have to say so.
            if register.0 == RSP && rule == Rule::Same {
                return None;
            }
            rules.push((register.0, rule));
        }
        rules.sort_unstable_by_key(|(register, _)| *register);
        rows.push((LinkAddr(row.start_address()), Row { cfa, rules, arguments_len: row.saved_args_size() }));
    }
    Some(rows)
}

/// An expression's bytes, if it means the same in moved code: neither where it is, nor rsp, which may be lower there.
fn movable(section: &EhFrame<Slice<'_>>, expression: &UnwindExpression<usize>) -> Option<Vec<u8>> {
    const ENCODING: Encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    let expression = expression.get(section).ok()?;
    let mut operations = expression.operations(ENCODING);
    while let Some(operation) = operations.next().ok()? {
        use Operation as O;
        match operation {
            O::RegisterOffset { register, .. } if ![RSP, RETURN_ADDRESS].contains(&register.0) => {}
            O::Deref { .. } | O::PlusConstant { .. } | O::UnsignedConstant { .. } | O::SignedConstant { .. } => {}
            O::Plus | O::Minus | O::And | O::Or | O::Xor | O::Shl | O::Shr | O::Shra | O::Mul | O::Neg | O::Not => {}
            O::Pick { .. } | O::Drop | O::Swap | O::Rot | O::Nop => {}
            O::Eq | O::Ge | O::Gt | O::Le | O::Lt | O::Ne => {}
            _ => return None,
        }
    }
    Some(expression.0.slice().to_vec())
}
