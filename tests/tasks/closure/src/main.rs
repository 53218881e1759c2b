//! Reads words, scores them and keeps the best, all in parallel. The closure that scores is slow.

use rayon::prelude::*;

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let words: Vec<String> = (0..count).into_par_iter().map(|n| format!("word{}", n.wrapping_mul(2_654_435_761) % 9973)).collect();
    let scored: Vec<(u64, &str)> = words
        .par_iter()
        .map(|word| {
            // The slow one.
            let mut score = 7u64;
            for round in 0..4000 {
                for byte in word.bytes() {
                    score = score.rotate_left(5) ^ (u64::from(byte) + round);
                }
            }
            (score, word.as_str())
        })
        .collect();
    let best = scored.par_iter().max_by_key(|(score, _)| *score);
    println!("{best:?}");
}
