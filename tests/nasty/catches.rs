//! Panics at every level of a deep stack, caught at every level, through frames whose drops burn time in calls of their
//! own and panic and catch within: catches ROUNDS.
use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind};

#[inline(never)]
fn burn(steps: u32) {
    let mut x = 1u64;
    for _ in 0..steps {
        x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    black_box(x);
}

#[inline(never)]
fn work(depth: u32) -> u64 {
    burn(60);
    let below = if depth > 0 { work(depth - 1) + 1 } else { 0 };
    burn(20);
    black_box(below)
}

#[inline(never)]
fn inner(depth: u32) -> u64 {
    burn(40);
    if depth == 0 {
        resume_unwind(Box::new(3u64));
    }
    inner(depth - 1) + 1
}

struct Held<'a> {
    depth: u32,
    cleaned: &'a std::cell::Cell<u64>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut sum = work(self.depth % 4);
        if self.depth % 7 == 3 {
            let thrown = catch_unwind(|| inner(self.depth % 3)).unwrap_err();
            sum += *thrown.downcast::<u64>().unwrap();
        }
        self.cleaned.set(self.cleaned.get() + sum);
    }
}

#[inline(never)]
fn level(depth: u32, throws: u32, catches: u32, cleaned: &std::cell::Cell<u64>) -> u64 {
    let held = Held { depth, cleaned };
    burn(20);
    if depth == throws {
        burn(200);
        resume_unwind(Box::new(u64::from(depth)));
    }
    let below = std::panic::AssertUnwindSafe(|| level(depth + 1, throws, catches, cleaned));
    let result = if depth == catches {
        match catch_unwind(below) {
            Ok(result) => result,
            Err(thrown) => work(3) + *thrown.downcast::<u64>().unwrap(),
        }
    } else {
        below.0()
    };
    burn(20);
    result + u64::from(held.depth)
}

#[inline(never)]
fn base(depth: u32, round: u32, cleaned: &std::cell::Cell<u64>) -> u64 {
    if depth > 0 {
        return black_box(base(depth - 1, round, cleaned)) + 1;
    }
    let throws = round % 40 + 1;
    level(0, throws, round / 40 % throws, cleaned)
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).map_or(1000, |rounds| rounds.parse().unwrap());
    let threads: Vec<_> = (0..2)
        .map(|seed| {
            std::thread::spawn(move || {
                let cleaned = std::cell::Cell::new(0);
                let mut sum = 0u64;
                for round in 0..rounds {
                    sum = sum.wrapping_mul(31).wrapping_add(base(round % 150, round + seed, &cleaned));
                }
                (sum, cleaned.get())
            })
        })
        .collect();
    for thread in threads {
        println!("{:?}", thread.join().unwrap());
    }
}
