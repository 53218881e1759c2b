//! What a report asks of a module, one question after the other: each part of its file is
//! parsed once, with and without what was kept.

use std::path::Path;
use std::sync::Arc;

use callpath_analyze::names::ModuleNames;
use callpath_analyze::structure::cached_structure;
use callpath_format::address::LinkAddr;
use callpath_image::parse_counts::ImagePart;
use callpath_tables::table_cache::TableCache;

/// How often each part was parsed: for the structure, and with what links ask after that.
fn parses(cache: &TableCache) -> [[u32; 4]; 2] {
    let names = ModuleNames::open(Path::new("/usr/lib/x86_64-linux-gnu/libstdc++.so.6"), None, &[]);
    let source = names.structure_source().unwrap();
    let image = Arc::clone(source.module.image());
    let wanted: Vec<LinkAddr> = names.starts().step_by(100).collect();
    let found = cached_structure(&source, Some(&wanted), cache, &|_, _| ());
    assert!(found.procedures.len() > 10);
    drop(source);
    names.end_analysis();
    let parses = || ImagePart::ALL.map(|part| image.parses(part));
    let of_structure = parses();
    assert!(names.landings(LinkAddr(0)..LinkAddr(u64::MAX)).count() > 1000);
    assert!(!names.exports("_ZSt9terminatev").is_empty());
    [of_structure, parses()]
}

#[test]
fn by_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let cache = TableCache::open(Some(directory.path().join("cache")));
    assert_eq!(parses(&cache), [[1; 4], [1; 4]]);
    // The structure is kept: its key takes relocations and symbols; links take the rest.
    assert_eq!(parses(&cache), [[0, 0, 1, 1], [1; 4]]);
    assert_eq!(parses(&TableCache::open(None)), [[1; 4], [1; 4]]);
}
