//! Expressions over a call's arguments, as a person types them, and their programs (`callpath_format::shared::expression`).
//!
//! ```text
//! EXPRESSION  numbers, arg1 ... arg6, + - * / % & | ^ << >> ~ and brackets, as in C with int64_t
//!             TYPE[EXPRESSION]   what is in memory at this address
//!             TYPE(EXPRESSION)   the lowest bits as a number of this type
//! TYPE        u8 u16 u32 u64 i8 i16 i32 i64
//! ```

use std::fmt;

use callpath_format::shared::expression::{ARGUMENTS, Binary, MOST_OPERANDS, MOST_WORDS, Step};

/// Brackets and signs stand inside each other at most so deep.
const MOST_LEVELS: usize = 50;

/// Why a text is no expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpressionError {
    /// Where in the text, bytes from its start.
    offset: usize,
    expected: &'static str,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at character {}", self.expected, self.offset + 1)
    }
}

/// A program, and whether there are calls of which it has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Program {
    pub(super) words: Vec<u64>,
    pub(super) can_fail: bool,
}

/// Operators by level, those that bind least first.
const LEVELS: [&[(&str, Binary)]; 6] = [
    &[("|", Binary::Or)],
    &[("^", Binary::Xor)],
    &[("&", Binary::And)],
    &[("<<", Binary::ShiftLeft), (">>", Binary::ShiftRight)],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)],
];

/// The program of an expression.
///
/// # Errors
/// Where it is none.
pub(super) fn compile(text: &str) -> Result<Program, ExpressionError> {
    let mut parser = Parser { text, at: 0, steps: Vec::new(), operands: 0, levels: 0 };
    parser.operation(0)?;
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.expected("an operator, or the end"));
    }
    let words = parser.steps.iter().map(|step| step.words());
    let words: Vec<u64> = words.flat_map(|(word, constant)| std::iter::once(word).chain(constant)).collect();
    if words.len() > MOST_WORDS {
        return Err(ExpressionError { offset: 0, expected: "a shorter expression" });
    }
    let can_fail = parser
        .steps
        .iter()
        .any(|step| matches!(step, Step::Load { .. } | Step::Binary(Binary::Divide) | Step::Binary(Binary::Remainder)));
    Ok(Program { words, can_fail })
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    steps: Vec<Step>,
    /// How many numbers there are on the stack.
    operands: usize,
    levels: usize,
}

impl Parser<'_> {
    fn expected(&self, expected: &'static str) -> ExpressionError {
        ExpressionError { offset: self.at, expected }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Whether a sign is next, which is then behind.
    fn takes(&mut self, sign: &str) -> bool {
        self.skip_blanks();
        let is_next = self.rest().starts_with(sign);
        self.at += if is_next { sign.len() } else { 0 };
        is_next
    }

    fn push(&mut self, step: Step) -> Result<(), ExpressionError> {
        self.operands += 1;
        if self.operands > MOST_OPERANDS {
            return Err(self.expected("fewer numbers that wait for each other"));
        }
        self.steps.push(step);
        Ok(())
    }

    /// Operators of this level and of those that bind more.
    fn operation(&mut self, level: usize) -> Result<(), ExpressionError> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        self.operation(level + 1)?;
        while let Some((_, binary)) = operators.iter().find(|(sign, _)| self.takes(sign)) {
            self.operation(level + 1)?;
            self.operands -= 1;
            self.steps.push(Step::Binary(*binary));
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<(), ExpressionError> {
        self.levels += 1;
        if self.levels > MOST_LEVELS {
            return Err(self.expected("fewer brackets inside each other"));
        }
        let signs = [("-", Step::Negate), ("~", Step::Invert)];
        if let Some((_, step)) = signs.into_iter().find(|(sign, _)| self.takes(sign)) {
            self.operand()?;
            self.steps.push(step);
        } else if self.takes("(") {
            self.until(")", "`)`")?;
        } else {
            self.primary()?;
        }
        self.levels -= 1;
        Ok(())
    }

    /// An expression up to a bracket.
    fn until(&mut self, bracket: &str, expected: &'static str) -> Result<(), ExpressionError> {
        self.operation(0)?;
        if self.takes(bracket) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// A number, an argument, or something of a type.
    fn primary(&mut self) -> Result<(), ExpressionError> {
        const WHAT: &str = "a number, arg1 to arg6, a type (u8 to u64, i8 to i64) or a bracket";
        self.skip_blanks();
        let len = self.rest().find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest().len());
        let word = self.rest().get(..len).unwrap_or_default().to_owned();
        let unknown = self.expected(WHAT);
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = match word.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => word.parse(),
            };
            let number = number.map_err(|_| self.expected("a number of 64 bits, decimal or 0x..."))?;
            self.at += len;
            return self.push(Step::Constant(number as i64));
        }
        if let Some(number) = word.strip_prefix("arg") {
            let number = number.parse::<u8>().ok().filter(|number| (1..=ARGUMENTS).contains(&usize::from(*number)));
            let number = number.ok_or_else(|| self.expected("arg1 to arg6"))?;
            self.at += len;
            return self.push(Step::Argument(number));
        }
        let signed = word.starts_with('i');
        let bits = word.strip_prefix(['i', 'u']).and_then(|bits| bits.parse::<u8>().ok());
        let bits = bits.filter(|bits| [8, 16, 32, 64].contains(bits)).ok_or(unknown)?;
        self.at += len;
        if self.takes("[") {
            self.until("]", "`]`")?;
            self.steps.push(Step::Load { bytes: bits / 8, signed });
        } else if self.takes("(") {
            self.until(")", "`)`")?;
            self.narrow(bits, signed);
        } else {
            return Err(self.expected("`[` and an address, or `(` and a number"));
        }
        Ok(())
    }

    /// Makes the uppermost number one of a type.
    fn narrow(&mut self, bits: u8, signed: bool) {
        let unused = 64 - i64::from(bits);
        if signed {
            for shift in [Binary::ShiftLeft, Binary::ShiftRight] {
                self.steps.extend([Step::Constant(unused), Step::Binary(shift)]);
            }
        } else if unused > 0 {
            self.steps.extend([Step::Constant((u64::MAX >> unused) as i64), Step::Binary(Binary::And)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callpath_format::shared::expression::run;

    fn value(text: &str) -> Option<i64> {
        let program = compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let arguments = [7, 0x1000, u64::MAX, 0xffff_fff6, 5, 6];
        run(program.words.into_iter(), &arguments, |at, bytes| {
            (at == 0x1008).then_some(0xfedc_ba98_8765_43f1 & (u64::MAX >> (64 - 8 * bytes)))
        })
    }

    /// Each value is what a C compiler makes of it with int64_t.
    #[test]
    fn expressions_are_as_in_c() {
        for (text, expected) in [
            ("arg1", 7),
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("10 - 4 - 3", 3),
            ("-arg1 + 1", -6),
            ("1 << 2 + 1", 8),
            ("6 & 3 | 8 ^ 12", 6),
            ("~0 & 0xff", 255),
            ("-7 / 2", -3),
            ("-7 % 4", -3),
            ("arg3", -1),
            ("arg3 >> 1", -1),
            ("i32(arg4)", -10),
            ("u16(arg4)", 0xfff6),
            ("u64(arg3)", -1),
            ("u32[arg2 + 8]", 0x8765_43f1),
            ("i8[arg2+8] * 2", -30),
            ("u32[ arg2 + arg1 + 1 ] >> 4 & 0xf", 15),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
        assert_eq!(value("u8[arg2]"), None);
        assert_eq!(value("1 / (arg1 - 7)"), None);
        assert_eq!(["arg1 + 1", "arg1 / 2", "u8[1]"].map(|text| compile(text).unwrap().can_fail), [false, true, true]);
    }

    #[test]
    fn what_is_no_expression_is_said_and_where() {
        let why = |text: &str| compile(text).expect_err(text).to_string();
        assert_eq!(why("arg7"), "expected arg1 to arg6 at character 1");
        assert_eq!(
            why("arg1 +"),
            "expected a number, arg1 to arg6, a type (u8 to u64, i8 to i64) or a bracket at character 7"
        );
        assert_eq!(why("(arg1"), "expected `)` at character 6");
        assert_eq!(why("u32"), "expected `[` and an address, or `(` and a number at character 4");
        assert_eq!(why("1 2"), "expected an operator, or the end at character 3");
        assert_eq!(why("99999999999999999999"), "expected a number of 64 bits, decimal or 0x... at character 1");
        assert!(why(&"(".repeat(5000)).contains("fewer brackets"));
        assert!(why(&"1+(".repeat(30)).contains("fewer numbers"));
        assert!(why(&vec!["1"; 200].join("+")).contains("shorter"));
        assert!(why("é").contains("a number"));
    }
}
