//! Chains of inlined calls at random addresses of a large file, compared with another tool's; and what reading costs.
//!
//! `cargo run --release -p callpath-image --example inline_chains -- FILE COUNT [addr2line]`: FILE has DWARF, or a
//! debug file below /usr/lib/debug. `... -- FILE read` reads all units and says what that takes.

#[path = "../tests/all/tools/chains.rs"]
mod chains;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use callpath_image::debug_file::{DEFAULT_ROOT, DebugFiles};
use callpath_image::elf::Image;
use callpath_image::scopes::{Scopes, UnitId};
use chains::{Read, Said, Symbols, Tool, ask, difference, random_addrs};

/// Differences that are shown of each kind.
const SHOWN: usize = 5;
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, what, more @ ..] = &args[..] else {
        eprintln!("usage: inline_chains FILE COUNT [addr2line] | FILE read [THREADS]");
        std::process::exit(2);
    };
    let path = Path::new(file);
    let image = Image::read(path).expect("an ELF file");
    let ranges = image.instruction_ranges();
    let found = DebugFiles::find(&image, &[PathBuf::from(DEFAULT_ROOT)]);
    found.diagnostics.iter().for_each(|error| println!("failed to {error}"));
    let with_dwarf = found.debug_file.unwrap_or(image);
    let described = with_dwarf.origin().to_path_buf();
    let (image, supplement) = (Arc::new(with_dwarf), found.supplement.map(Arc::new));
    if what == "read" {
        let threads = more.first().and_then(|threads| threads.parse().ok()).unwrap_or(2);
        return read_all(image, supplement, path, threads);
    }
    let count = what.parse().expect("how many addresses");
    let tool = if more.first().is_some_and(|tool| tool == "addr2line") { Tool::Addr2line } else { Tool::Symbolizer };
    let addrs = random_addrs(&ranges, count, SEED);
    let begun = Instant::now();
    let theirs = ask(tool, &described, &addrs);
    println!(
        "{tool:?} took {:.1} s for {} addresses of {}",
        begun.elapsed().as_secs_f64(),
        addrs.len(),
        described.display()
    );
    let symbols = Symbols::read(&described);
    let begun = Instant::now();
    let mut read = Read::new(image, supplement, Some(path));
    let ours: Vec<_> = addrs.iter().map(|&addr| read.chain(addr)).collect();
    println!("callpath took {:.1} s", begun.elapsed().as_secs_f64());
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut frames, mut deepest) = (0, 0);
    for ((&addr, ours), theirs) in addrs.iter().zip(&ours).zip(&theirs) {
        frames += ours.len();
        deepest = deepest.max(ours.len());
        let Some(kind) = difference(ours, &Said { tool, addr, chain: theirs }, &symbols) else { continue };
        let seen = kinds.entry(kind).or_default();
        *seen += 1;
        if *seen <= SHOWN {
            println!("{kind} at {addr:#x}:");
            ours.iter().for_each(|(name, place)| println!("    ours   {name}  {place}"));
            theirs.iter().for_each(|(name, place)| println!("    theirs {name}  {place}"));
        }
    }
    read.diagnostics().iter().take(SHOWN).for_each(|error| println!("failed to {error}"));
    let different: usize = kinds.values().sum();
    println!(
        "{frames} frames, at most {deepest} at an address; {} chains equal, {different} differ: {kinds:?}",
        addrs.len() - different
    );
}

/// Reads all units on some threads, and keeps what they say.
fn read_all(image: Arc<Image>, supplement: Option<Arc<Image>>, program: &Path, threads: usize) {
    let file_len = image.file_len();
    let after_file = peak_bytes();
    let begun = Instant::now();
    let scopes = Scopes::new(image, supplement, Some(program));
    let indexed = begun.elapsed();
    let units: Vec<UnitId> = scopes.units().collect();
    let next = AtomicUsize::new(0);
    let read = |_| {
        let mut kept = Vec::new();
        while let Some(&unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            kept.push(scopes.read(unit));
        }
        kept
    };
    let kept: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || read(number))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let (broken, good): (Vec<_>, Vec<_>) = kept.iter().partition(|unit| unit.is_err());
    let good = || good.iter().filter_map(|unit| unit.as_ref().ok());
    let scopes_found: usize = good().map(|unit| unit.scopes().count()).sum();
    let procedures: usize = good().map(|unit| unit.procedures().count()).sum();
    let diagnostics: usize = good().map(|unit| unit.diagnostics().len()).sum();
    println!(
        "{}: {:.1} MB, {} units ({} broken), {procedures} procedures, {} inlined calls, {diagnostics} diagnostics",
        program.display(),
        file_len as f64 / 1e6,
        units.len(),
        broken.len(),
        scopes_found - procedures
    );
    let peak = peak_bytes();
    println!(
        "{seconds:.2} s on {threads} threads (units found after {:.2} s); {:.2} bytes of memory at most for each of the \
         file ({:.2} with the file alone), all units kept",
        indexed.as_secs_f64(),
        peak as f64 / file_len as f64,
        after_file as f64 / file_len as f64
    );
    good().flat_map(|unit| unit.diagnostics()).take(SHOWN).for_each(|error| println!("failed to {error}"));
}

/// The most memory that this process has had so far.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a kernel of this century");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}
