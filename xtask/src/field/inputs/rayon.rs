//! Words made, counted and sorted in parallel.

use std::collections::HashMap;

use rayon::prelude::*;

fn word(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..3 + mixed % 4).map(|i| char::from(b'a' + ((mixed >> (4 * i)) % 16) as u8)).collect()
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1000);
    let mut words: Vec<String> = (0..count).into_par_iter().map(word).collect();
    words.par_sort();
    let counts = words
        .par_chunks(10_000)
        .map(|part| {
            part.iter().fold(HashMap::new(), |mut counts: HashMap<&str, u32>, word| {
                *counts.entry(word).or_default() += 1;
                counts
            })
        })
        .reduce(HashMap::new, |mut all, part| {
            part.into_iter().for_each(|(word, count)| *all.entry(word).or_default() += count);
            all
        });
    let most = counts.iter().max_by_key(|(word, count)| (**count, **word));
    println!("{} words, most often {most:?}", counts.len());
}
