//! What rustc makes of closures, traits, collections, formatting, and panics that are caught.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};
use std::panic;

trait Shape {
    fn area(&self) -> f64;
    fn name(&self) -> String {
        String::from("shape")
    }
}

struct Circle(f64);
struct Rectangle {
    a: f64,
    b: f64,
}

impl Shape for Circle {
    fn area(&self) -> f64 {
        std::f64::consts::PI * self.0 * self.0
    }
}

impl Shape for Rectangle {
    fn area(&self) -> f64 {
        assert!(self.a >= 0.0, "negative: {}", self.a);
        self.a * self.b
    }
    fn name(&self) -> String {
        format!("{}x{}", self.a, self.b)
    }
}

struct Guard<'a>(&'a std::cell::Cell<u32>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[inline(never)]
fn deep(n: usize, dropped: &std::cell::Cell<u32>, list: &[u32]) -> u32 {
    let _guard = Guard(dropped);
    if n == 0 {
        return list[list.len() + dropped.get() as usize - 3];
    }
    deep(n - 1, dropped, list) + 1
}

#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Leaf(i64),
    Node(Box<Tree>, char, Box<Tree>),
}

#[derive(Debug)]
enum Fault {
    Unexpected(char),
    End,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unexpected(c) => write!(f, "unexpected {c:?}"),
            Fault::End => f.write_str("the end"),
        }
    }
}

fn expression(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, level: usize) -> Result<Tree, Fault> {
    const LEVELS: [&[char]; 2] = [&['+', '-'], &['*', '/']];
    let Some(operators) = LEVELS.get(level) else {
        return match chars.next() {
            Some('(') => {
                let inner = expression(chars, 0)?;
                chars.next_if_eq(&')').ok_or(Fault::End)?;
                Ok(inner)
            }
            Some(c) => c.to_digit(10).map(|d| Tree::Leaf(d.into())).ok_or(Fault::Unexpected(c)),
            None => Err(Fault::End),
        };
    };
    let mut left = expression(chars, level + 1)?;
    while let Some(operator) = chars.next_if(|c| operators.contains(c)) {
        left = Tree::Node(Box::new(left), operator, Box::new(expression(chars, level + 1)?));
    }
    Ok(left)
}

fn value(tree: &Tree) -> Option<i64> {
    match tree {
        Tree::Leaf(n) => Some(*n),
        Tree::Node(a, operator, b) => {
            let (a, b) = (value(a)?, value(b)?);
            match operator {
                '+' => a.checked_add(b),
                '-' => a.checked_sub(b),
                '*' => a.checked_mul(b),
                _ => a.checked_div(b),
            }
        }
    }
}

fn counted(text: &str) -> String {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    let sorted: BTreeMap<_, _> = counts.into_iter().collect();
    let mut out = String::new();
    for (word, count) in &sorted {
        write!(out, "{word}:{count:>3} ").unwrap();
    }
    out
}

fn main() {
    panic::set_hook(Box::new(|info| println!("panic at line {}", info.location().map_or(0, |l| l.line()))));
    let shapes: Vec<Box<dyn Shape>> =
        vec![Box::new(Circle(1.5)), Box::new(Rectangle { a: 2.0, b: 3.0 }), Box::new(Rectangle { a: -1.0, b: 3.0 })];
    for shape in &shapes {
        let area = panic::catch_unwind(panic::AssertUnwindSafe(|| shape.area()));
        println!("{} {:?}", shape.name(), area.ok());
    }
    for n in [0, 3, 8] {
        let dropped = std::cell::Cell::new(n as u32);
        let result = panic::catch_unwind(panic::AssertUnwindSafe(|| deep(n, &dropped, &[1, 2, 3])));
        println!("{} {}", result.is_ok(), dropped.get());
    }
    for text in ["1+2*3", "(1+2)*3-4/2", "((((7))))", "1+", "1/0", "x"] {
        match expression(&mut text.chars().peekable(), 0) {
            Ok(tree) => println!("{text} {:?} {tree:?}", value(&tree)),
            Err(fault) => println!("{text} {fault}"),
        }
    }
    println!("{}", counted("a walk is a path is a walk of a kind that is its own"));
    let mut numbers: Vec<u64> = (0..200u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50).collect();
    numbers.sort_unstable();
    numbers.sort_by_key(|n| std::cmp::Reverse(n % 17));
    numbers.dedup();
    println!("{:?} {:.3e}", &numbers[..5], numbers.iter().map(|n| *n as f64).sum::<f64>());
    let joined = std::thread::spawn(move || numbers.len()).join();
    println!("{joined:?} {:?}", "12x".parse::<i32>().map_err(|e| e.to_string()));
}
