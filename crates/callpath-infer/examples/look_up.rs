//! Prints what a map takes for one answer, nanoseconds: the median of the identifiers that it has, asked in a random order; in brackets that
//! of the table alone, without what the code has.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use callpath_infer::{Identifier, PathMap};

fn main() {
    const ROUNDS: usize = 9;
    let path = std::env::args_os().nth(1).expect("a map");
    let map = PathMap::read(Path::new(&path)).expect("a map that can be read");
    let mut asked: Vec<Identifier> = map.answers().map(|(identifier, _)| identifier).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut asked);
    let median = |ask: &dyn Fn(Identifier)| {
        let round = || {
            let began = Instant::now();
            asked.iter().for_each(|identifier| ask(*identifier));
            began.elapsed().as_nanos() as f64 / asked.len().max(1) as f64
        };
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    };
    let whole = median(&|identifier| drop(black_box(map.answer(black_box(identifier)))));
    let table = median(&|identifier| {
        black_box(map.seen_paths(black_box(identifier)));
    });
    println!("{whole:.0} ({table:.0})");
}
