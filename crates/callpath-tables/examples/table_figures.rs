//! Measures the cost of recipe tables: `table_figures FILE...` prints a line of a Markdown table for each.
//!
//! Columns: code in MB; then with call frame information and without it, on one core: the share of the code with a
//! recipe, MB of code a second of CPU time (the best of five), the table's length as a share of the code's; then rows
//! and distinct recipes (the wide ones in parentheses), and the time of a look-up: median and quartiles, nanoseconds.
//! Warm: 256 addresses in turn, as in a loop of samples. Cold: one address of the whole code, with the table in no
//! cache.
//!
//! The last line has the machine's own figures at the same time: a load that waits for memory, of which a cold look-up
//! has at least one, and dependent additions, of which a core executes one in a cycle.

use std::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callpath_format::address::LinkAddr;
use callpath_format::table::Table;
use callpath_image::elf::Image;
use callpath_tables::module::Module;
use callpath_tables::recipes::{RecipeOptions, TableBuild, build_table};

fn main() -> Result<(), Box<dyn Error>> {
    let with = RecipeOptions::default();
    let without = RecipeOptions { call_frames: false, ..with };
    println!(
        "| module | code MB | with CFI: covered | MB/s | table | without: covered | MB/s | table | rows | recipes (wide) | warm ns | cold ns |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for path in std::env::args().skip(1) {
        let image = Arc::new(Image::read(Path::new(&path))?);
        let (build, made) = best(|| build_table(&Module::new(Arc::clone(&image)), &with));
        let (build_without, made_without) = best(|| build_table(&Module::new(Arc::clone(&image)), &without));
        let stats = build.stats;
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!(
            "| {name} | {:.2} | {} | {} | {} | {} ({}) | {} | {} |",
            stats.code_bytes as f64 / 1e6,
            figures(&build, made),
            figures(&build_without, made_without),
            stats.rows,
            stats.recipes,
            stats.wide_recipes,
            spread(warm(&build.bytes)),
            spread(cold(&build.bytes)),
        );
    }
    println!(
        "\nthe machine: a load from memory {} ns, {:.2} dependent additions a ns",
        spread(loads()),
        additions_per_ns()
    );
    Ok(())
}

fn figures(build: &TableBuild, made: Duration) -> String {
    let stats = build.stats;
    let part = |bytes: u64| 100.0 * bytes as f64 / stats.code_bytes.max(1) as f64;
    let speed = stats.code_bytes as f64 / 1e6 / made.as_secs_f64();
    format!("{:.1}% | {speed:.0} | {:.1}%", part(stats.covered_bytes), part(stats.table_bytes))
}

fn best<T>(mut run: impl FnMut() -> T) -> (T, Duration) {
    let mut timed = || {
        let start = cpu_time();
        let value = run();
        (value, cpu_time() - start)
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

/// The CPU time of this thread: elapsed time depends on the machine's other work.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` only.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn spread(mut figures: Vec<f64>) -> String {
    figures.sort_by(f64::total_cmp);
    let at = |share: usize| figures.get(figures.len() * share / 4).copied().unwrap_or(f64::NAN);
    format!("{:.1} ({:.1}-{:.1})", at(2), at(1), at(3))
}

/// Addresses all over the table's code, by a linear congruential generator (Knuth's MMIX).
fn addresses(table: &Table<'_>, count: usize) -> Vec<LinkAddr> {
    let mut rows = Vec::new();
    table.for_each_row(|start, id| rows.extend(id.map(|_| start)));
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        rows.get((random >> 33) as usize % rows.len().max(1)).copied().unwrap_or(LinkAddr(0))
    };
    (0..count).map(|_| next()).collect()
}

fn look_up(table: &Table<'_>, addr: LinkAddr) -> bool {
    table.find(black_box(addr)).and_then(|id| table.packed(id)).is_some()
}

/// Nanoseconds of a look-up in each of 200 rounds over 256 addresses.
fn warm(bytes: &[u8]) -> Vec<f64> {
    const ADDRESSES: usize = 256;
    const ROUNDS: usize = 64;
    let Ok(table) = Table::new(bytes) else { return Vec::new() };
    let addresses = addresses(&table, ADDRESSES);
    let round = || {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            for addr in &addresses {
                black_box(look_up(&table, *addr));
            }
        }
        start.elapsed().as_secs_f64() * 1e9 / (ADDRESSES * ROUNDS) as f64
    };
    (0..200).map(|_| round()).collect()
}

/// Nanoseconds of each of 400 look-ups with the table in no cache; the time of reading the clock is subtracted.
fn cold(bytes: &[u8]) -> Vec<f64> {
    let Ok(table) = Table::new(bytes) else { return Vec::new() };
    let addresses = addresses(&table, 400);
    let lines: Vec<*const u8> = bytes.chunks(64).map(<[u8]>::as_ptr).collect();
    uncached(&lines, addresses.len(), |number| addresses.get(number).is_some_and(|addr| look_up(&table, *addr)))
}

/// Nanoseconds of a dependent load from memory, in each of 50 rounds of 64, all over 4 MiB that are in no cache.
fn loads() -> Vec<f64> {
    const LOADS: usize = 64;
    const LINE_WORDS: usize = 8;
    let mut memory = vec![0usize; (4 << 20) / size_of::<usize>()];
    let lines = memory.len() / LINE_WORDS;
    // The factor is coprime to the number of lines: an order that cannot be predicted, and no line twice.
    let place = |number: usize| number.wrapping_mul(2_654_435_761) % lines * LINE_WORDS;
    for number in 0..LOADS {
        memory[place(number)] = place(number + 1);
    }
    let bytes: Vec<*const u8> = memory.chunks(LINE_WORDS).map(|line| line.as_ptr().cast()).collect();
    let chain = |_| (0..LOADS).fold(place(0), |at, _| memory.get(at).copied().unwrap_or(0)) == place(LOADS);
    uncached(&bytes, 50, chain).into_iter().map(|all| all / LOADS as f64).collect()
}

/// Nanoseconds of each of `times` runs of `work`, each with the `lines` evicted from the caches; the time of reading
/// the clock is subtracted.
fn uncached(lines: &[*const u8], times: usize, work: impl Fn(usize) -> bool) -> Vec<f64> {
    let ticks_per_ns = ticks_per_ns();
    let timed = |work: &dyn Fn() -> bool| {
        for line in lines {
            // SAFETY: evicts a line of memory that is ours.
            unsafe { _mm_clflush(*line) };
        }
        // SAFETY: waits for all before, and reads the time stamp counter.
        let ticks = || unsafe {
            _mm_mfence();
            _mm_lfence();
            _rdtsc()
        };
        let start = ticks();
        black_box(work());
        ticks() - start
    };
    let mut empty: Vec<u64> = (0..50).map(|_| timed(&|| true)).collect();
    empty.sort_unstable();
    let clock = empty[empty.len() / 2];
    (0..times).map(|number| timed(&|| work(number)).saturating_sub(clock) as f64 / ticks_per_ns).collect()
}

fn additions_per_ns() -> f64 {
    const COUNT: u64 = 100_000_000;
    let start = cpu_time();
    black_box((0..COUNT).fold(0u64, |sum, _| black_box_add(sum)));
    COUNT as f64 / (cpu_time() - start).as_nanos() as f64
}

/// An addition that the compiler cannot fold with the next.
fn black_box_add(mut sum: u64) -> u64 {
    // SAFETY: adds one to a register.
    unsafe { std::arch::asm!("add {0}, 1", inout(reg) sum, options(nomem, nostack, pure)) };
    sum
}

fn ticks_per_ns() -> f64 {
    // SAFETY: reads the time stamp counter.
    let ticks = || unsafe { _rdtsc() };
    let (start, first) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_millis(20) {}
    (ticks() - first) as f64 / start.elapsed().as_nanos() as f64
}
