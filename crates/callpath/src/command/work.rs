//! Work to record, for the doctor and the demonstration.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use callpath_analyze::names::ModuleNames;
use callpath_format::table::Table;
use callpath_tables::module::Module;
use callpath_tables::recipes::{RecipeOptions, build_table};

use crate::outcome::Outcome;
use crate::output;

/// Uses up CPU time: what the doctor measures.
pub(super) fn busy(milliseconds: u32) {
    let used = || {
        // SAFETY: a valid place.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
            time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
        }
    };
    let begin = used();
    let mut work = 1u64;
    while used() < begin + u64::from(milliseconds) {
        for _ in 0..10_000 {
            work = std::hint::black_box(work.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// What the demonstration measures: recipe tables and names of modules, on as many threads as there are processors.
pub(super) fn analyse(files: &[PathBuf], rounds: u32) -> Outcome {
    let next = AtomicUsize::new(0);
    let work = files.len() * rounds as usize;
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    let totals = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                // One name: a report shows what they do as one tree.
                let worker = std::thread::Builder::new().name("analyse".into());
                worker.spawn_scoped(scope, || {
                    let (mut rows, mut named) = (0u64, 0u64);
                    while let Some(file) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < work) {
                        let (r, n) = analyse_one(&files[file % files.len()]);
                        rows += r;
                        named += n;
                    }
                    (rows, named)
                })
            })
            .collect();
        workers.into_iter().flatten().filter_map(|w| w.join().ok()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    });
    output::say(format_args!("{} modules: {} recipe rows, {} names", work, totals.0, totals.1));
    Ok(0)
}

fn analyse_one(file: &Path) -> (u64, u64) {
    const EVERY: u64 = 16;
    let Ok(module) = Module::read(file) else { return (0, 0) };
    let build = build_table(&module, &RecipeOptions::default());
    let names = ModuleNames::from_module(file, Ok(module), None, &[]);
    let (mut rows, mut named) = (0, 0);
    if let Ok(table) = Table::new(&build.bytes) {
        table.for_each_row(|start, _| {
            rows += 1;
            if rows % EVERY == 0 && names.procedure(start).named {
                named += 1;
            }
        });
    }
    (rows, named)
}
