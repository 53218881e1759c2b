//! The program of an expression over a call's arguments: words that the recorder writes and the injected object runs, on a
//! stack of 64-bit integers with signs.

/// What a word of a program does. Its number is in the word's lowest byte, its operand in the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Pushes the word that follows.
    Constant(i64),
    /// Pushes an argument, from 1.
    Argument(u8),
    /// Replaces an address by what is there: so many bytes (1, 2, 4 or 8), with a sign or without.
    Load {
        /// How many bytes.
        bytes: u8,
        /// Whether the highest bit is a sign.
        signed: bool,
    },
    /// Replaces the two uppermost.
    Binary(Binary),
    /// Changes the sign.
    Negate,
    /// Inverts all bits.
    Invert,
}

/// What becomes of two numbers, as in C with `int64_t`; what overflows wraps.
#[allow(missing_docs)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    /// Rounds towards 0. By 0 there is no result.
    Divide,
    /// What [`Binary::Divide`] leaves.
    Remainder,
    And,
    Or,
    Xor,
    /// By the lowest six bits.
    ShiftLeft,
    /// The same, and the sign comes in.
    ShiftRight,
}

/// Numbers that a program has on its stack at most.
pub const MOST_OPERANDS: usize = 16;
/// The longest program, words.
pub const MOST_WORDS: usize = 255;
/// How many arguments are passed in registers (psABI).
pub const ARGUMENTS: usize = 6;

const BINARY: [Binary; 10] = [
    Binary::Add,
    Binary::Subtract,
    Binary::Multiply,
    Binary::Divide,
    Binary::Remainder,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::ShiftLeft,
    Binary::ShiftRight,
];

impl Step {
    /// Its words; the second one is of constants only.
    pub fn words(self) -> (u64, Option<u64>) {
        match self {
            Step::Constant(value) => (0, Some(value as u64)),
            Step::Argument(number) => (1 | u64::from(number) << 8, None),
            Step::Load { bytes, signed } => (2 | u64::from(bytes | u8::from(signed) << 4) << 8, None),
            Step::Binary(binary) => (3 | u64::from(binary as u8) << 8, None),
            Step::Negate => (4, None),
            Step::Invert => (5, None),
        }
    }

    /// The step that begins with a word. `None`: there is none.
    fn read(word: u64, rest: &mut impl Iterator<Item = u64>) -> Option<Step> {
        let operand = (word >> 8) as u8;
        Some(match word as u8 {
            0 => Step::Constant(rest.next()? as i64),
            1 => Step::Argument(operand),
            2 => Step::Load { bytes: operand & 15, signed: operand & 16 != 0 },
            3 => Step::Binary(*BINARY.get(usize::from(operand))?),
            4 => Step::Negate,
            5 => Step::Invert,
            _ => return None,
        })
    }
}

impl Binary {
    fn apply(self, a: i64, b: i64) -> Option<i64> {
        Some(match self {
            Binary::Add => a.wrapping_add(b),
            Binary::Subtract => a.wrapping_sub(b),
            Binary::Multiply => a.wrapping_mul(b),
            Binary::Divide if b == 0 => return None,
            Binary::Divide => a.wrapping_div(b),
            Binary::Remainder if b == 0 => return None,
            Binary::Remainder => a.wrapping_rem(b),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::ShiftLeft => a.wrapping_shl(b as u32),
            Binary::ShiftRight => a.wrapping_shr(b as u32),
        })
    }
}

/// The numbers of a program that runs.
struct Operands {
    all: [i64; MOST_OPERANDS],
    count: usize,
}

impl Operands {
    fn push(&mut self, value: i64) -> Option<()> {
        *self.all.get_mut(self.count)? = value;
        self.count += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<i64> {
        self.count = self.count.checked_sub(1)?;
        self.all.get(self.count).copied()
    }
}

/// Runs a program with a call's arguments. `read` gives so many bytes at an address, the rest of the word zeros. `None`:
/// it cannot read them, something is divided by 0, or the words are no program.
pub fn run(
    words: impl Iterator<Item = u64>,
    arguments: &[u64; ARGUMENTS],
    mut read: impl FnMut(u64, usize) -> Option<u64>,
) -> Option<i64> {
    let mut words = words.take(MOST_WORDS);
    let mut stack = Operands { all: [0; MOST_OPERANDS], count: 0 };
    while let Some(word) = words.next() {
        let value = match Step::read(word, &mut words)? {
            Step::Constant(value) => value,
            Step::Argument(number) => *arguments.get(usize::from(number).checked_sub(1)?)? as i64,
            Step::Load { bytes, signed } => {
                let unused = 64u32.checked_sub(u32::from(bytes).checked_mul(8)?).filter(|unused| *unused < 64)?;
                let bits = read(stack.pop()? as u64, usize::from(bytes))? << unused;
                if signed { bits as i64 >> unused } else { (bits >> unused) as i64 }
            }
            Step::Binary(binary) => {
                let b = stack.pop()?;
                binary.apply(stack.pop()?, b)?
            }
            Step::Negate => stack.pop()?.wrapping_neg(),
            Step::Invert => !stack.pop()?,
        };
        stack.push(value)?;
    }
    let value = stack.pop()?;
    (stack.count == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn words(steps: &[Step]) -> Vec<u64> {
        steps.iter().flat_map(|step| [Some(step.words().0), step.words().1]).flatten().collect()
    }

    #[test]
    fn steps_do_as_c_does() {
        let of = |a: i64, binary, b: i64| {
            let steps = [Step::Constant(a), Step::Constant(b), Step::Binary(binary)];
            run(words(&steps).into_iter(), &[0; 6], |_, _| None)
        };
        assert_eq!(of(7, Binary::Subtract, 9), Some(-2));
        assert_eq!(of(-7, Binary::Divide, 2), Some(-3));
        assert_eq!(of(-7, Binary::Remainder, 2), Some(-1));
        assert_eq!(of(i64::MIN, Binary::Divide, -1), Some(i64::MIN));
        assert_eq!([of(1, Binary::Divide, 0), of(1, Binary::Remainder, 0)], [None, None]);
        assert_eq!(of(-8, Binary::ShiftRight, 1), Some(-4));
        assert_eq!(of(3, Binary::ShiftLeft, 4), Some(48));
        assert_eq!(
            [of(12, Binary::And, 10), of(12, Binary::Or, 10), of(12, Binary::Xor, 10)].map(Option::unwrap),
            [8, 14, 6]
        );
    }

    #[test]
    fn memory_is_read_by_width_and_sign() {
        let load = |bytes, signed| {
            let steps = [Step::Argument(2), Step::Constant(8), Step::Binary(Binary::Add), Step::Load { bytes, signed }];
            run(words(&steps).into_iter(), &[0, 0x1000, 0, 0, 0, 0], |at, bytes| {
                (at == 0x1008).then_some(0xfedc_ba98_8765_43f1 & (u64::MAX >> (64 - 8 * bytes)))
            })
        };
        assert_eq!(load(1, false), Some(0xf1));
        assert_eq!(load(1, true), Some(-15));
        assert_eq!(load(4, true), Some(0x8765_43f1_u32 as i32 as i64));
        assert_eq!(load(8, false), Some(0xfedc_ba98_8765_43f1_u64 as i64));
    }

    /// Whatever the words are, it ends.
    #[test]
    fn no_words_do_harm() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 40
        };
        let mut ran = 0;
        for _ in 0..20_000 {
            let some: Vec<u64> = (0..random() % 6).map(|_| (random() % 7) | ((random() % 20) << 8)).collect();
            ran += u32::from(run(some.into_iter(), &[1; 6], |at, _| Some(at)).is_some());
        }
        assert!(ran > 0);
        let endless = core::iter::repeat(Step::Argument(1).words().0);
        assert_eq!(run(endless, &[1; 6], |_, _| None), None);
    }
}
