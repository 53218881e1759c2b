//! Whatever part of a module is requested, each part of its file is parsed once.

use std::path::Path;
use std::sync::Arc;

use callpath_image::elf::Image;
use callpath_image::parse_counts::ImagePart;
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_tables::recipes::{RecipeOptions, build_table, disagreements, procedures};
use callpath_tables::table_cache::TableCache;

fn module() -> (Arc<Image>, Module) {
    let image = Arc::new(Image::read(Path::new("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")).unwrap());
    (Arc::clone(&image), Module::new(image))
}

fn parses(image: &Image) -> [u32; 4] {
    ImagePart::ALL.map(|part| image.parses(part))
}

#[test]
fn for_a_table_and_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let cache = TableCache::open(Some(directory.path().join("cache")));
    let (image, module) = module();
    assert_eq!(parses(&image), [0; 4]);
    assert!(!cache.table_for(&module, &RecipeOptions::default()).from_cache);
    assert_eq!(parses(&image), [1; 4]);
    // A cached table is found by relocations and symbols, which are part of its key.
    let (image, module) = self::module();
    assert!(cache.table_for(&module, &RecipeOptions::default()).from_cache);
    assert_eq!(parses(&image), [0, 0, 1, 1]);
}

#[test]
fn for_all_that_is_asked_together() {
    let (image, module) = module();
    let all = RecipeOptions::default();
    for options in [
        all,
        RecipeOptions { machine_code: false, ..all },
        RecipeOptions { call_frames: false, ..all },
        RecipeOptions { debug_frame: false, ..all },
    ] {
        assert!(build_table(&module, &options).stats.rows > 1000, "{options:?}");
    }
    assert!(with_flow(&module, |flow, _| flow.len()) > 1000);
    assert!(!procedures(&module).is_empty());
    disagreements(&module);
    assert_eq!(parses(&image), [1; 4]);
}

#[test]
fn from_many_threads() {
    let (image, module) = module();
    let found: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let ask = || (module.file().landing_pads().pads.len(), module.stack_starts().len());
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|all| *all == found[0] && all.0 > 1000), "{found:?}");
    assert_eq!(parses(&image), [1, 1, 0, 1]);
}
