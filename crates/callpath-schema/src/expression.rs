//! Formulas that a person types: arithmetic over metrics.

use std::fmt;

/// A formula is at most this long, bytes.
const MOST_BYTES: usize = 1000;

/// Brackets, signs and functions stand inside each other at most so deep.
const MOST_LEVELS: usize = 50;

/// `instructions / cycles`, `100 * (loads - misses) / total(loads)`.
///
/// Numbers, names of metrics, `+ - * /`, brackets, `min(a, b)`, `max(a, b)`, and `total(a)`, which is what the metric is of
/// everything that is shown. A name may have `-` in it, so a minus between names has blanks around it. What cannot be
/// computed, as a division by 0, is 0.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    /// Each takes its operands off a stack and puts its value there.
    steps: Vec<Step>,
}

/// Equal if they read the same.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

#[derive(Clone, Debug)]
enum Step {
    Number(f64),
    Operand(Operand),
    Negate,
    Binary(Binary),
}

#[derive(Clone, Copy, Debug)]
enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Min,
    Max,
}

/// What a formula refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// The metric with this name, of the row at hand.
    Metric(String),
    /// The metric with this name, of everything that is shown.
    Total(String),
}

impl Operand {
    /// The metric's name.
    pub fn metric(&self) -> &str {
        match self {
            Operand::Metric(name) | Operand::Total(name) => name,
        }
    }
}

/// Why a text is no formula.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpressionError {
    /// Where in the text, bytes from its start.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at character {}", self.expected, self.offset + 1)
    }
}

impl std::error::Error for ExpressionError {}

impl Expression {
    /// Reads a formula.
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        if text.len() > MOST_BYTES {
            return Err(ExpressionError { offset: MOST_BYTES, expected: "the end of the formula" });
        }
        let mut parser = Parser { text, at: 0, levels: 0, steps: Vec::new() };
        parser.sum()?;
        parser.blanks();
        match parser.at == text.len() {
            true => Ok(Expression { text: text.trim().to_owned(), steps: parser.steps }),
            false => Err(parser.expected("an operator or the end of the formula")),
        }
    }

    /// As it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it refers to, in the order in which it stands there.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.steps.iter().filter_map(|step| match step {
            Step::Operand(operand) => Some(operand),
            _ => None,
        })
    }

    /// Its value, given those of [`Expression::operands`] by their place in that order. Always finite.
    pub fn evaluate(&self, operand: impl Fn(usize) -> f64) -> f64 {
        let (mut stack, mut operands) = (Vec::with_capacity(8), 0);
        for step in &self.steps {
            let value = match step {
                Step::Number(number) => *number,
                Step::Operand(_) => {
                    operands += 1;
                    operand(operands - 1)
                }
                Step::Negate => -stack.pop().unwrap_or(0.0),
                Step::Binary(how) => {
                    let (b, a) = (stack.pop().unwrap_or(0.0), stack.pop().unwrap_or(0.0));
                    how.of(a, b)
                }
            };
            stack.push(value);
        }
        stack.pop().filter(|value| value.is_finite()).unwrap_or(0.0)
    }
}

impl Binary {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Binary::Add => a + b,
            Binary::Subtract => a - b,
            Binary::Multiply => a * b,
            Binary::Divide => a / b,
            Binary::Min => a.min(b),
            Binary::Max => a.max(b),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    levels: usize,
    steps: Vec<Step>,
}

impl<'a> Parser<'a> {
    fn expected(&self, expected: &'static str) -> ExpressionError {
        ExpressionError { offset: self.at, expected }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes one of these characters if it is the next.
    fn take(&mut self, of: &[char]) -> Option<char> {
        self.blanks();
        let next = self.rest().chars().next().filter(|c| of.contains(c))?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn sum(&mut self) -> Result<(), ExpressionError> {
        self.product()?;
        while let Some(operator) = self.take(&['+', '-']) {
            self.product()?;
            self.steps.push(Step::Binary(if operator == '+' { Binary::Add } else { Binary::Subtract }));
        }
        Ok(())
    }

    fn product(&mut self) -> Result<(), ExpressionError> {
        self.factor()?;
        while let Some(operator) = self.take(&['*', '/']) {
            self.factor()?;
            self.steps.push(Step::Binary(if operator == '*' { Binary::Multiply } else { Binary::Divide }));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<(), ExpressionError> {
        self.levels += 1;
        if self.levels > MOST_LEVELS {
            return Err(self.expected("fewer brackets inside each other"));
        }
        if self.take(&['-']).is_some() {
            self.factor()?;
            self.steps.push(Step::Negate);
        } else if self.take(&['(']).is_some() {
            self.sum()?;
            self.closed()?;
        } else {
            self.operand()?;
        }
        self.levels -= 1;
        Ok(())
    }

    fn closed(&mut self) -> Result<(), ExpressionError> {
        self.take(&[')']).map(drop).ok_or_else(|| self.expected("`)`"))
    }

    fn operand(&mut self) -> Result<(), ExpressionError> {
        self.blanks();
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let is_number = |c: char| c.is_ascii_digit() || c == '.';
            let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
            let number = rest[..end].parse().map_err(|_| self.expected("a number"))?;
            self.at += end;
            self.steps.push(Step::Number(number));
            return Ok(());
        }
        let name = name(rest);
        let begin = self.at;
        self.at += name.len();
        if name.is_empty() {
            return Err(self.expected("a number, a metric or `(`"));
        }
        if self.take(&['(']).is_none() {
            self.steps.push(Step::Operand(Operand::Metric(name.to_owned())));
            return Ok(());
        }
        match name {
            "total" => {
                self.blanks();
                let of = self::name(self.rest());
                if of.is_empty() {
                    return Err(self.expected("a metric"));
                }
                self.at += of.len();
                self.steps.push(Step::Operand(Operand::Total(of.to_owned())));
            }
            "min" | "max" => {
                self.sum()?;
                self.take(&[',']).ok_or_else(|| self.expected("`,`"))?;
                self.sum()?;
                self.steps.push(Step::Binary(if name == "min" { Binary::Min } else { Binary::Max }));
            }
            _ => return Err(ExpressionError { offset: begin, expected: "`min`, `max` or `total` before `(`" }),
        }
        self.closed()
    }
}

/// The name of a metric that `text` begins with. A `-` in it is followed by what belongs to it, too.
fn name(text: &str) -> &str {
    let is_inside = |(at, c): (usize, char)| {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':');
        is_part(c) || c == '-' && at > 0 && text[at + 1..].starts_with(is_part)
    };
    let end = text.char_indices().find(|(at, c)| !is_inside((*at, *c))).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> f64 {
        let expression = Expression::parse(text).expect(text);
        let operands: Vec<&Operand> = expression.operands().collect();
        expression.evaluate(|operand| match operands[operand] {
            Operand::Metric(name) => match name.as_str() {
                "cycles" => 8.0,
                "cpu-time" => 2.0,
                "x" => 3.0,
                other => panic!("{other}"),
            },
            Operand::Total(name) => name.len() as f64,
        })
    }

    #[test]
    fn arithmetic() {
        let cases = [
            ("cycles/cpu-time", 4.0),
            ("cycles - cpu-time - x", 3.0),
            ("cycles -cpu-time", 6.0),
            ("-cycles+1", -7.0),
            ("2 * (1.5 + x) / 3", 3.0),
            ("2+3*4", 14.0),
            ("12/3/2", 2.0),
            ("min(cycles, x) + max(cycles,x)", 11.0),
            ("100 * cycles / total( cpu-time )", 100.0),
            ("--x", 3.0),
            ("cycles/(x - 3)", 0.0),
            ("0/0", 0.0),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_formula() {
        let cases = [
            ("", 0),
            ("1 +", 3),
            ("(x", 2),
            ("x y", 2),
            ("sqrt(x)", 0),
            ("min(x)", 5),
            ("total(1+2)", 7),
            ("1.2.3", 0),
            ("x)", 1),
            ("é(", 0),
        ];
        for (text, offset) in cases {
            assert_eq!(Expression::parse(text).expect_err(text).offset, offset, "{text}");
        }
        assert!(Expression::parse(&"(".repeat(900)).is_err());
        assert!(Expression::parse(&"-".repeat(900)).is_err());
        assert!(Expression::parse(&format!("{}1", "1+".repeat(600))).is_err());
        assert!(Expression::parse(&format!("{}1", "1+".repeat(400))).is_ok());
    }

    #[test]
    fn any_text() {
        let alphabet = ["min(", "total(", ")", "(", "x", "-", "+", "1", ".", ",", " ", "é", "/", "*"];
        let mut seed = 1u64;
        for _ in 0..50_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text += alphabet[(seed >> 33) as usize % alphabet.len()];
            }
            if let Ok(expression) = Expression::parse(&text) {
                assert!(expression.evaluate(|operand| operand as f64).is_finite());
                assert_eq!(
                    Expression::parse(expression.text()).map(|again| again.steps.len()),
                    Ok(expression.steps.len())
                );
            }
        }
    }
}
