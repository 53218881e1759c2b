//! Structures on disk: the same as those that are found, for whatever was asked before, with what was wrong in
//! the DWARF; damaged files are built again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callpath_analyze::structure::{ModuleSource, ModuleStructure, cached_structure, fuzz_cached_structure, structure};
use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_tables::module::Module;
use callpath_tables::table_cache::TableCache;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/structure/sources");

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program whose first units cannot be read to their ends: an entry in them has an abbreviation that does not exist.
fn broken_program(directory: &Path) -> PathBuf {
    let path = directory.join("program");
    let section = directory.join("info");
    let (program, sources) = (path.to_str().unwrap(), [format!("{SOURCES}/nests.c"), format!("{SOURCES}/vectors.c")]);
    run("gcc", &["-shared", "-nostdlib", "-fPIC", "-g", "-O2", &sources[0], &sources[1], "-o", program]);
    run("objcopy", &["--dump-section", &format!(".debug_info={}", section.display()), program]);
    let mut info = std::fs::read(&section).unwrap();
    // Two thirds of the first unit stay.
    let end = 4 + u32::from_le_bytes(*info.first_chunk().unwrap()) as usize;
    info[2 * end / 3..end].fill(0x7f);
    std::fs::write(&section, info).unwrap();
    run("objcopy", &["--update-section", &format!(".debug_info={}", section.display()), program]);
    path
}

fn source(program: &Path) -> ModuleSource {
    let image = Arc::new(Image::read(program).unwrap());
    ModuleSource { module: Arc::new(Module::new(Arc::clone(&image))), with_dwarf: image, supplement: None }
}

/// What the cache gives, and how many procedures had to be found for it.
fn asked(source: &ModuleSource, wanted: Option<&[LinkAddr]>, cache: &TableCache) -> (ModuleStructure, usize) {
    let found = AtomicUsize::new(0);
    let progress = |_, of| found.store(of, Ordering::Relaxed);
    let structure = cached_structure(source, wanted, cache, &progress);
    (structure, found.into_inner())
}

fn cache_file(directory: &Path) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "structure")).collect();
    assert_eq!(files.len(), 1);
    files.remove(0)
}

#[test]
fn what_is_cached_is_what_was_found() {
    let directory = tempfile::tempdir().unwrap();
    let source = source(&broken_program(directory.path()));
    let cache_directory = directory.path().join("cache");
    let cache = TableCache::open(Some(cache_directory.clone()));
    let all = structure(&source, None, &|_, _| {});
    assert!(!all.diagnostics.is_empty() && all.diagnostics.iter().all(|said| said.contains("unit")), "{all:?}");
    let entries: Vec<LinkAddr> = all.procedures.iter().map(|procedure| procedure.entry).collect();
    let of = |wanted: &[LinkAddr]| -> Vec<_> {
        all.procedures.iter().filter(|procedure| wanted.contains(&procedure.entry)).cloned().collect()
    };
    // A few, the same again, more of them; also an address where no code is.
    let is_broken = |entry: &&LinkAddr| !structure(&source, Some(&[**entry]), &|_, _| {}).diagnostics.is_empty();
    let few = [*entries.iter().find(is_broken).unwrap(), LinkAddr(0x10)];
    let others: Vec<LinkAddr> = entries.iter().filter(|entry| !few.contains(entry)).take(2).copied().collect();
    let (first, count) = asked(&source, Some(&few), &cache);
    assert_eq!((&first.procedures, count), (&of(&few), 1));
    assert!(!first.diagnostics.is_empty());
    let (again, count) = asked(&source, Some(&few), &cache);
    assert_eq!((again, count), (first.clone(), 0));
    let more = [few[0], others[0], others[1]];
    let (more_found, count) = asked(&source, Some(&more), &cache);
    assert_eq!((&more_found.procedures, count), (&of(&more), 2));
    // All: found anew, then cached, for those that ask for a few, too. Broken DWARF is reported each time.
    assert_eq!(asked(&source, None, &cache), (all.clone(), all.procedures.len()));
    assert_eq!(asked(&source, None, &cache), (all.clone(), 0));
    let (part, count) = asked(&source, Some(&few), &cache);
    assert_eq!((&part.procedures, &part.diagnostics, count), (&of(&few), &all.diagnostics, 0));
    // Nothing is read or stored without a cache.
    assert_eq!(asked(&source, None, &TableCache::open(None)).1, all.procedures.len());
    // Whatever is wrong with the file, it is built again.
    let file = cache_file(&cache_directory);
    let whole = std::fs::read(&file).unwrap();
    for damage in [0, 9, 25, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[damage] ^= 0x40;
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(asked(&source, None, &cache), (all.clone(), all.procedures.len()), "{damage}");
        assert_eq!(std::fs::read(&file).unwrap(), whole);
    }
}

#[test]
fn any_body() {
    let directory = tempfile::tempdir().unwrap();
    let source = source(&broken_program(directory.path()));
    let cache_directory = directory.path().join("cache");
    asked(&source, None, &TableCache::open(Some(cache_directory.clone())));
    let body = std::fs::read(cache_file(&cache_directory)).unwrap().split_off(32);
    fuzz_cached_structure(&body);
    for at in 0..body.len().min(4000) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = body.clone();
            bytes[at] = value;
            fuzz_cached_structure(&bytes);
        }
        fuzz_cached_structure(&body[..at]);
    }
}
