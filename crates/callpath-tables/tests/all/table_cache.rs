//! The cache of recipe tables: what it returns, and how it treats files that it did not write.

use crate::tiny_elf;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;
use callpath_format::table::Table;
use callpath_image::elf::Image;
use callpath_tables::module::Module;
use callpath_tables::recipes::{RecipeDiagnostic, RecipeOptions, TableBuild, build_table};
use callpath_tables::table_cache::{CacheTrouble, TableCache, fuzz_cache_file};
use tiny_elf::{Fde, shared_object};

const PUSH_RBP: &[u8] = &[0x41, 0x0e, 16, 0x86, 2];

fn module(first_code: u8, fdes: &[Fde<'_>]) -> Module {
    Image::from_bytes(shared_object([first_code; 8], fdes), Path::new("tiny.so")).unwrap().into()
}

fn tiny() -> Module {
    module(0x55, &[(0..0x20, PUSH_RBP), (0x20..0x30, &[])])
}

struct CacheDirectory {
    dir: tempfile::TempDir,
}

impl CacheDirectory {
    fn new() -> CacheDirectory {
        CacheDirectory { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("a/cache")
    }

    fn cache(&self) -> TableCache {
        let cache = TableCache::open(Some(self.path()));
        assert_eq!(cache.trouble(), None);
        cache
    }

    fn table_for(&self, module: &Module) -> TableBuild {
        self.cache().table_for(module, &RecipeOptions::default())
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn only_file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

#[test]
fn the_tiny_object_has_recipes() {
    let build = build_table(&tiny(), &RecipeOptions { machine_code: false, ..RecipeOptions::default() });
    assert_eq!(build.diagnostics, []);
    assert_eq!((build.stats.contributions, build.stats.covered_bytes), (2, 0x30));
    let table = Table::new(&build.bytes).unwrap();
    let recipe = |addr| table.recipe(table.find(LinkAddr(addr)).unwrap()).unwrap();
    assert_ne!(recipe(0x1000), recipe(0x1001));
    assert_eq!(recipe(0x1030), Recipe::UNKNOWN);
}

#[test]
fn a_cached_table_is_the_same() {
    let directory = CacheDirectory::new();
    let made = directory.table_for(&tiny());
    let kept = directory.table_for(&tiny());
    assert!(!made.from_cache && kept.from_cache);
    assert_eq!((made.bytes, made.stats), (kept.bytes, kept.stats));
    let file = directory.only_file();
    assert!(file.file_name().unwrap().to_str().unwrap().len() == 32 + ".table".len());
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(directory.path()).unwrap().mode() & 0o777, 0o700);
}

/// Modules can have one build-id and different bytes: the key depends on the analysed content.
#[test]
fn another_byte_is_another_table() {
    let directory = CacheDirectory::new();
    let others = [
        tiny(),
        module(0x56, &[(0..0x20, PUSH_RBP), (0x20..0x30, &[])]),
        module(0x55, &[(0..0x21, PUSH_RBP), (0x20..0x30, &[])]),
        module(0x55, &[(0..0x20, &[]), (0x20..0x30, &[])]),
    ];
    for module in &others {
        assert!(!directory.table_for(module).from_cache);
    }
    assert!(
        !directory
            .cache()
            .table_for(&tiny(), &RecipeOptions { debug_frame: false, ..RecipeOptions::default() })
            .from_cache
    );
    assert_eq!(directory.files().len(), others.len() + 1);
    for module in &others {
        let kept = directory.table_for(module);
        assert!(kept.from_cache);
        assert_eq!(kept.bytes, build_table(module, &RecipeOptions::default()).bytes);
    }
}

/// Checks that a table is built again with a diagnostic, and then taken from the cache.
fn assert_rebuilt(directory: &CacheDirectory, module: &Module, why: &str) {
    let build = directory.table_for(module);
    assert!(!build.from_cache, "{why}");
    assert!(matches!(&build.diagnostics[..], [RecipeDiagnostic::Cache(CacheTrouble::Rebuilt { .. })]), "{why}");
    assert_eq!(build.stats.diagnostics, 1);
    assert_eq!(build.bytes, build_table(module, &RecipeOptions::default()).bytes);
    assert!(directory.table_for(module).from_cache, "{why}");
}

#[test]
fn damaged_and_cut_files_are_built_again() {
    let directory = CacheDirectory::new();
    let image = tiny();
    directory.table_for(&image);
    let file = directory.only_file();
    let good = fs::read(&file).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&file, &bad).unwrap();
        assert_rebuilt(&directory, &image, &format!("byte {at}"));
    }
    for len in (0..good.len()).step_by(7) {
        fs::write(&file, &good[..len]).unwrap();
        assert_rebuilt(&directory, &image, &format!("cut at {len}"));
    }
    fs::write(&file, [&good[..], b"more"].concat()).unwrap();
    assert_rebuilt(&directory, &image, "longer");
}

#[test]
fn foreign_files_are_built_again() {
    let directory = CacheDirectory::new();
    let (image, other) = (tiny(), module(0x56, &[]));
    directory.table_for(&other);
    let foreign = fs::read(directory.only_file()).unwrap();
    fs::remove_file(directory.only_file()).unwrap();
    directory.table_for(&image);
    let file = directory.only_file();
    fs::write(&file, &foreign).unwrap();
    assert_rebuilt(&directory, &image, "another module's");
    // A link is not followed, even to a good table; it is replaced.
    let elsewhere = directory.dir.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert_rebuilt(&directory, &image, "a link");
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    let good = fs::read(&elsewhere).unwrap();
    assert_eq!(good, fs::read(&file).unwrap());
}

#[test]
fn a_directory_that_cannot_be_used_stores_nothing() {
    let directory = CacheDirectory::new();
    let options = RecipeOptions::default();
    let refused = |path: PathBuf| {
        let cache = TableCache::open(Some(path.clone()));
        let Some(CacheTrouble::Directory { path: named, .. }) = cache.trouble() else {
            panic!("{path:?} was accepted")
        };
        assert_eq!(*named, path);
        assert_eq!(cache.table_for(&tiny(), &options), build_table(&tiny(), &options));
    };
    let file = directory.dir.path().join("file");
    fs::write(&file, "").unwrap();
    refused(file.clone());
    refused(file.join("below"));
    let open_to_all = directory.dir.path().join("open");
    fs::create_dir(&open_to_all).unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
    refused(open_to_all);
    let nothing = TableCache::open(None);
    assert_eq!(nothing.trouble(), None);
    assert_eq!(nothing.table_for(&tiny(), &options), build_table(&tiny(), &options));
    // The directory is removed in between.
    let cache = directory.cache();
    fs::remove_dir(directory.path()).unwrap();
    let build = cache.table_for(&tiny(), &options);
    assert!(matches!(&build.diagnostics[..], [RecipeDiagnostic::Cache(CacheTrouble::NotStored { .. })]));
}

#[test]
fn many_writers_at_once() {
    let directory = CacheDirectory::new();
    let cache = directory.cache();
    let (image, options) = (tiny(), RecipeOptions::default());
    let expected = build_table(&image, &options).bytes;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let build = cache.table_for(&image, &options);
                    assert_eq!(build.bytes, expected);
                    assert_eq!(build.diagnostics, []);
                }
            });
        }
    });
    directory.only_file();
}

#[test]
fn mutated_cache_files_never_panic() {
    let directory = CacheDirectory::new();
    directory.table_for(&tiny());
    let good = fs::read(directory.only_file()).unwrap();
    fuzz_cache_file(&good);
    let mut random = fastrand::Rng::with_seed(0x2545_f491_4f6c_dd1d);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..=random.usize(..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(bytes.len() - random.usize(..bytes.len()) * (random.usize(..4) / 3));
        fuzz_cache_file(&bytes);
    }
}
