//! A Rust program: threads, panics that are caught, names in Rust's mangling, its own alternate stacks.
use std::hint::black_box;

#[inline(never)]
fn compute<T: Into<u64> + Copy>(seed: T, steps: u64) -> u64 {
    let mut x: u64 = seed.into();
    for _ in 0..steps {
        x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    x
}

#[inline(never)]
fn fails(depth: u32) -> u64 {
    let held = vec![depth; 10];
    if depth == 0 {
        std::panic::resume_unwind(Box::new("from the bottom"));
    }
    fails(depth - 1) + u64::from(held[3])
}

fn main() {
    let threads: Vec<_> = (0..2u32)
        .map(|seed| {
            std::thread::spawn(move || {
                let mut caught = 0;
                for round in 0..2000 {
                    compute(seed, 20_000);
                    caught += u32::from(std::panic::catch_unwind(|| fails(round % 20)).is_err());
                }
                caught
            })
        })
        .collect();
    let caught: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{caught} caught, {}", compute(7u8, 50_000_000) != 0);
}
