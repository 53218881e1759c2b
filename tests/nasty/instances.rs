//! Two closures of one procedure, and two instantiations of another, on lines of their own.
use std::hint::black_box;

#[inline(never)]
fn apply<F: Fn(u64) -> u64>(count: u64, f: F) -> u64 {
    let mut sum = 0u64;
    for i in 0..count {
        sum = sum.wrapping_add(f(i));
    }
    sum
}

#[inline(never)]
fn add<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    let mut sum = 0.0;
    for value in values {
        sum += (*value).into().sqrt();
    }
    sum
}

fn main() {
    let a = apply(20_000_000, |x| black_box(black_box(x) / black_box(7) ^ 3));
    let b = apply(20_000_000, |x| black_box(black_box(x * 31) / black_box(5) >> 2));
    let floats: Vec<f32> = (0..1_000_000).map(|x| x as f32).collect();
    let integers: Vec<u32> = (0..1_000_000).collect();
    let mut c = 0.0;
    for _ in 0..80 {
        c += add(black_box(&floats));
        c += add(black_box(&integers));
    }
    println!("{a} {b} {c}");
}
