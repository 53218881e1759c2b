//! Expressions over several number types, with traits, closures, iterators and collections: work for a compiler.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{self, Debug, Display};
use std::ops::{Add, Mul, Sub};

pub trait Number: Copy + Debug + Display + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + PartialOrd + From<u8> {}
impl<T> Number for T where
    T: Copy + Debug + Display + Add<Output = T> + Sub<Output = T> + Mul<Output = T> + PartialOrd + From<u8>
{
}

#[derive(Debug, Clone, PartialEq)]
pub enum Expression<N> {
    Number(N),
    Name(String),
    Apply(Operator, Box<Expression<N>>, Box<Expression<N>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    Plus,
    Minus,
    Times,
}

#[derive(Debug)]
pub enum Failure {
    Empty,
    Unknown(String),
    Odd(Vec<String>),
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Empty => f.write_str("nothing is there"),
            Failure::Unknown(name) => write!(f, "{name} is unknown"),
            Failure::Odd(words) => write!(f, "{} are left", words.join(", ")),
        }
    }
}

impl std::error::Error for Failure {}

pub fn parse<N: Number + std::str::FromStr>(text: &str) -> Result<Expression<N>, Failure> {
    let mut stack: Vec<Expression<N>> = Vec::new();
    for word in text.split_whitespace() {
        let operator = match word {
            "+" => Some(Operator::Plus),
            "-" => Some(Operator::Minus),
            "*" => Some(Operator::Times),
            _ => None,
        };
        match operator {
            Some(operator) => {
                let (right, left) = (stack.pop().ok_or(Failure::Empty)?, stack.pop().ok_or(Failure::Empty)?);
                stack.push(Expression::Apply(operator, Box::new(left), Box::new(right)));
            }
            None => stack.push(word.parse().map(Expression::Number).unwrap_or_else(|_| Expression::Name(word.to_owned()))),
        }
    }
    match stack.len() {
        0 => Err(Failure::Empty),
        1 => Ok(stack.remove(0)),
        _ => Err(Failure::Odd(stack.iter().map(|one| format!("{one:?}")).collect())),
    }
}

pub fn value<N: Number>(of: &Expression<N>, names: &HashMap<String, N>) -> Result<N, Failure> {
    Ok(match of {
        Expression::Number(number) => *number,
        Expression::Name(name) => *names.get(name).ok_or_else(|| Failure::Unknown(name.clone()))?,
        Expression::Apply(operator, left, right) => {
            let (left, right) = (value(left, names)?, value(right, names)?);
            match operator {
                Operator::Plus => left + right,
                Operator::Minus => left - right,
                Operator::Times => left * right,
            }
        }
    })
}

pub fn operators<N>(of: &Expression<N>) -> BTreeMap<Operator, usize> {
    let mut counts = BTreeMap::new();
    let mut left = VecDeque::from([of]);
    while let Some(one) = left.pop_front() {
        if let Expression::Apply(operator, a, b) = one {
            *counts.entry(*operator).or_default() += 1;
            left.extend([&**a, &**b]);
        }
    }
    counts
}

macro_rules! for_numbers {
    ($($name:ident: $number:ty),*) => {
        $(pub fn $name(text: &str, names: &[(&str, $number)]) -> Result<String, Box<dyn std::error::Error>> {
            let names: HashMap<String, $number> = names.iter().map(|(name, number)| (name.to_string(), *number)).collect();
            let tree = parse::<$number>(text)?;
            let mut counts: Vec<_> = operators(&tree).into_iter().collect();
            counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            Ok(format!("{} {counts:?}", value(&tree, &names)?))
        })*
    };
}

for_numbers!(of_u16: u16, of_u32: u32, of_u64: u64, of_u128: u128, of_i16: i16, of_i32: i32, of_i64: i64, of_f32: f32, of_f64: f64);
