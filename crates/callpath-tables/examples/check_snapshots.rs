//! Compares the answers to a stream of snapshots with the true paths: `check_snapshots STREAM TRUTH [CACHE_DIR]`.
//!
//! STREAM is a CPSNAP01 stream, `-` for standard input; TRUTH has a line `<id> <ra1> ... <raN>` for each snapshot. A
//! path is exact, partial (the innermost frames of the truth) or wrong. Exits with 1 if any path is wrong.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{Read, stdin};
use std::process::ExitCode;
use std::time::Instant;

use callpath_tables::recipes::RecipeOptions;
use callpath_tables::snapshot::answer;
use callpath_tables::table_cache::TableCache;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(stream), Some(truth)) = (args.next(), args.next()) else {
        return Err("usage: check_snapshots STREAM TRUTH [CACHE_DIR]".into());
    };
    let input: Box<dyn Read> = if stream == "-" { Box::new(stdin().lock()) } else { Box::new(File::open(stream)?) };
    let truth_text = std::fs::read_to_string(truth)?;
    let truth: HashMap<u64, Vec<u64>> = truth_text.lines().filter_map(path_of).collect();
    let mut answers = Vec::new();
    let start = Instant::now();
    let (answered, result) =
        answer(input, &mut answers, &TableCache::open(args.next().map(Into::into)), &RecipeOptions::default());
    result?;
    let elapsed = start.elapsed();
    let (mut exact, mut partial, mut wrong) = (0, 0, 0);
    for (id, path) in String::from_utf8(answers)?.lines().filter_map(path_of) {
        let expected = truth.get(&id).ok_or("the truth lacks a snapshot")?;
        match () {
            () if path == *expected => exact += 1,
            () if expected.starts_with(&path) => partial += 1,
            () => {
                wrong += 1;
                println!("wrong: snapshot {id}: {path:x?}, expected {expected:x?}");
            }
        }
    }
    for remark in &answered.remarks {
        println!("{remark}");
    }
    println!("{} snapshots, {exact} exact, {partial} partial, {wrong} wrong", answered.snapshots);
    println!("{} walks ended at an outermost frame; {:.3} s", answered.full, elapsed.as_secs_f64());
    let share = 100.0 * answered.table_bytes as f64 / answered.code_bytes.max(1) as f64;
    println!("{} tables, {} bytes, {share:.1}% of the code", answered.tables, answered.table_bytes);
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

fn path_of(line: &str) -> Option<(u64, Vec<u64>)> {
    let mut words = line.split_ascii_whitespace();
    let id = words.next()?.parse().ok()?;
    let frames = words.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    Some((id, frames.collect::<Option<_>>()?))
}
