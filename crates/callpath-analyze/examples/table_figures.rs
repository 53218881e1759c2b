//! What recipe tables cost: `table_figures [--no-cfi] FILE...` prints a line for each.
//! Knows nothing of walks.
//!
//! Columns: code in MB, part of it with a recipe, FDEs, rows, recipes (wide ones), length of the table as a part of the
//! code, time to read the file, to make the table (the best of five), to get it from a cache, and oddities.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use callpath_analyze::recipes::{RecipeOptions, build_table};
use callpath_analyze::table_cache::TableCache;
use callpath_image::elf::Image;

fn main() -> Result<(), Box<dyn Error>> {
    let cache_dir = std::env::temp_dir().join(format!("callpath-figures-{}", std::process::id()));
    let cache = TableCache::open(Some(cache_dir.clone()));
    let mut options = RecipeOptions::default();
    for path in std::env::args().skip(1) {
        if path == "--no-cfi" {
            options.call_frames = false;
            continue;
        }
        let start = Instant::now();
        let image = Image::read(Path::new(&path))?;
        let read = start.elapsed();
        let (build, built) = best(|| build_table(&image, &options));
        cache.table_for(&image, &options);
        let (cached, hit) = best(|| cache.table_for(&image, &options));
        let stats = build.stats;
        let code_mb = stats.code_bytes as f64 / 1e6;
        println!(
            "{path}: {code_mb:.2} MB, {:.1}% covered, {} FDEs, {} rows, {} recipes ({} wide), table {:.1}%; read {:.1} ms, \
             made {:.1} ms ({:.0} MB/s), cached {:.1} ms{}; {} odd",
            100.0 * stats.covered_bytes as f64 / stats.code_bytes.max(1) as f64,
            stats.pieces,
            stats.rows,
            stats.recipes,
            stats.wide_recipes,
            100.0 * stats.table_bytes as f64 / stats.code_bytes.max(1) as f64,
            ms(read),
            ms(built),
            code_mb / built.as_secs_f64(),
            ms(hit),
            if cached.from_cache { "" } else { " (not kept)" },
            stats.diagnostics,
        );
        for diagnostic in build.diagnostics.iter().take(5) {
            println!("    {diagnostic}");
        }
    }
    Ok(std::fs::remove_dir_all(cache_dir)?)
}

fn best<T>(mut run: impl FnMut() -> T) -> (T, Duration) {
    let mut timed = || {
        let start = Instant::now();
        let value = run();
        (value, start.elapsed())
    };
    let mut best = timed();
    for _ in 0..4 {
        let next = timed();
        if next.1 < best.1 {
            best = next;
        }
    }
    best
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
