//! The recipe table of a large module, in slices: each is a table of a part of its code, built on request.
//!
//! A slice contains what call frame information provides. Recipes that require an analysis of the whole module's code
//! are unknown in it; the table of the whole module ([`Slices::whole`]) has them. So only modules are sliced whose call
//! frame information covers most of their code.
//!
//! ```text
//! DIR/<hash>.memo       which slices are cached, of a module in this state
//!
//! magic 8               "CPSLIC01"
//! as in a memo          up to the segments (`module_memo`); the key is 0
//! slices                count u32; each start u64, end u64, key of its table u128 (0: not built yet)
//! ```

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use callpath_format::address::LinkAddr;
use callpath_image::cfi::FrameEntries;
use callpath_image::elf::{Image, Segment};
use callpath_image::identity::ModuleIdentity;
use callpath_image::module_file::ModuleFile;
use callpath_image::plt;
use callpath_image::return_use::ReturnUse;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::module::Module;
use crate::module_memo::{FileState, LoadedModule, Unfinished, decode_facts, encode, read_memo, write_memo};
use crate::recipes::starts::Named;
use crate::recipes::{RecipeOptions, TablePart};
use crate::table_cache::{ANALYSER_VERSION, TableCache};

const MAGIC: [u8; 8] = *b"CPSLIC01";

/// The limits of slicing.
#[derive(Clone, Copy)]
struct Sizes {
    /// Modules with less code than this have one table: it is built in about a tenth of a second.
    least_code_bytes: u64,
    /// A slice ends at the first procedure that begins at least this far behind the slice's start.
    slice_bytes: u64,
}

const SIZES: Sizes = Sizes { least_code_bytes: 8 << 20, slice_bytes: 1 << 20 };

/// Slices by their index, and their tables.
pub type Tables = Vec<(u32, Vec<u8>)>;

/// A large module.
pub struct Slices {
    path: PathBuf,
    state: FileState,
    options: RecipeOptions,
    /// Its table is empty.
    module: LoadedModule,
    /// The ranges of the slices: sorted and disjoint; all executable code.
    ranges: Vec<Range<LinkAddr>>,
    /// For each slice, the key of its cached table.
    keys: Mutex<Vec<Option<u128>>>,
    opened: Mutex<Option<Arc<Opened>>>,
}

/// What slices are built from.
struct Opened {
    file: File,
    /// Without its code and other unused parts.
    image: Arc<Image>,
    /// The hash of the parts that were read.
    hash: u128,
    entries: FrameEntries,
    named: Named,
    starts: Vec<LinkAddr>,
}

impl Slices {
    /// The slices of the module in the file at `path`, which is in this state, if it is to be sliced; and the cached
    /// tables.
    pub(crate) fn find(
        cache: &TableCache,
        path: &Path,
        state: FileState,
        options: &RecipeOptions,
    ) -> Option<(Slices, Tables)> {
        if *options != RecipeOptions::default() || fs::metadata(path).ok()?.len() < SIZES.least_code_bytes {
            return None;
        }
        let recalled = cache.directory().and_then(|dir| {
            let bytes = read_memo(&memo_path(dir, &state, options), cache.user())?;
            decode(&bytes, &state.bytes(options))
        });
        let Some((module, ranges, mut keys)) = recalled else {
            return Slices::new(path, state, options, SIZES).map(|slices| (slices, Vec::new()));
        };
        let mut tables = Vec::new();
        for (index, key) in (0..).zip(&mut keys) {
            match key.and_then(|key| cache.cached(key)) {
                Some(table) => tables.push((index, table.bytes)),
                None => *key = None,
            }
        }
        let (keys, opened) = (Mutex::new(keys), Mutex::default());
        Some((Slices { path: path.to_owned(), state, options: *options, module, ranges, keys, opened }, tables))
    }

    fn new(path: &Path, state: FileState, options: &RecipeOptions, sizes: Sizes) -> Option<Slices> {
        // Large parts that are not needed.
        let is_superfluous = |name: &str, is_code: bool| {
            let kinds = [".debug_", ".zdebug_", ".gcc_except_table", ".symtab", ".bolt."];
            is_code && !plt::is_of_stubs(name) || kinds.iter().any(|kind| name.starts_with(kind))
        };
        let (image, _) = Image::read_partly(path, is_superfluous).ok()?;
        let file = ModuleFile::new(Arc::new(image));
        let image = file.image();
        let len = |ranges: &mut dyn Iterator<Item = &Range<LinkAddr>>| {
            ranges.fold(0u64, |sum, range| sum.saturating_add(range.end.0 - range.start.0))
        };
        let instructions = image.instruction_ranges();
        let code_bytes = len(&mut instructions.iter());
        if code_bytes < sizes.least_code_bytes {
            return None;
        }
        // Goroutines' starts can only be found from all of the code.
        let entries = FrameEntries::of_image(image).filter(|_| image.go_table().is_none())?;
        if len(&mut entries.all().iter().map(|entry| &entry.code)) < code_bytes / 2 {
            return None;
        }
        let identity = match image.build_id() {
            Some(_) => image.identity(),
            None => ModuleIdentity::of_content(path).ok()?,
        };
        let module = LoadedModule {
            identity,
            segments: image.segments().to_vec(),
            return_use: ReturnUse::of(image, path),
            table: Vec::new(),
        };
        let ranges: Vec<_> = file.code().iter().flat_map(|range| cut(range, &entries, sizes.slice_bytes)).collect();
        drop(file);
        let opened = Opened::new(path, &state, Some(entries))?;
        let (keys, opened) = (Mutex::new(vec![None; ranges.len()]), Mutex::new(Some(Arc::new(opened))));
        Some(Slices { path: path.to_owned(), state, options: *options, module, ranges, keys, opened })
    }

    /// The facts about the module; its table is empty.
    pub fn module(&self) -> &LoadedModule {
        &self.module
    }

    /// The code of each slice: sorted, disjoint, together all executable code.
    pub fn ranges(&self) -> &[Range<LinkAddr>] {
        &self.ranges
    }

    /// The index of the slice that contains an address.
    pub fn slice_of(&self, at: LinkAddr) -> Option<u32> {
        let index = self.ranges.partition_point(|range| range.end <= at);
        self.ranges.get(index).filter(|range| range.contains(&at)).map(|_| index as u32)
    }

    /// The table of the whole module, which is still to be built.
    pub fn whole(&self) -> Unfinished {
        Unfinished::new(&self.path, self.state, &self.options, self.module.clone())
    }

    /// The table of a slice: from the cache, or built and then stored there. `None` if the file has changed.
    pub fn table(&self, index: u32, cache: &TableCache) -> Option<Vec<u8>> {
        let range = self.ranges.get(index as usize)?;
        let opened = self.opened()?;
        let bytes = if opened.entries.of(range).next().is_some() { opened.code(range)? } else { Vec::new() };
        let key = opened.key_of(range, &bytes);
        let table = match cache.cached(key) {
            Some(build) => build.bytes,
            None => {
                let Opened { image, entries, named, starts, .. } = &*opened;
                // Parts that this slice alone needs, such as relocations where it has stubs, are dropped with it.
                let file = &ModuleFile::new(Arc::clone(image));
                let table = TablePart { file, entries, named, starts, code: range.clone(), bytes: &bytes }.build();
                cache.store(key, &table);
                table
            }
        };
        if !self.is_as_it_was() {
            return None;
        }
        if let Some(dir) = cache.directory()
            && self.state.is_settled()
        {
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = keys.get_mut(index as usize) {
                *place = Some(key);
            }
            let state = self.state.bytes(&self.options);
            write_memo(&memo_path(dir, &self.state, &self.options), MAGIC, self.encoded(&keys, &state));
        }
        Some(table)
    }

    fn is_as_it_was(&self) -> bool {
        // A file in a process's own directory is gone with the process; this module's is still open here.
        let is_gone = self.path.starts_with("/proc") && !self.path.exists();
        is_gone || fs::metadata(&self.path).is_ok_and(|metadata| FileState::of(&metadata) == self.state)
    }

    fn opened(&self) -> Option<Arc<Opened>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_none() {
            *opened = Opened::new(&self.path, &self.state, None).map(Arc::new);
        }
        opened.clone()
    }

    fn encoded(&self, keys: &[Option<u128>], state: &[u8]) -> Vec<u8> {
        let mut body = encode(&self.module, 0, state);
        body.extend((self.ranges.len() as u32).to_le_bytes());
        for (range, key) in self.ranges.iter().zip(keys) {
            body.extend(range.start.0.to_le_bytes());
            body.extend(range.end.0.to_le_bytes());
            body.extend(key.unwrap_or(0).to_le_bytes());
        }
        body
    }
}

impl Opened {
    fn new(path: &Path, state: &FileState, entries: Option<FrameEntries>) -> Option<Opened> {
        // The parts that `Slices::new` leaves out, and those that only it needs.
        let is_superfluous = |name: &str, is_code: bool| {
            let needed = [
                ".eh_frame",
                ".dyn",
                ".rela",
                ".got",
                ".plt",
                ".iplt",
                ".data.rel.ro",
                ".init_array",
                ".symtab",
                ".strtab",
            ];
            is_code && !plt::is_of_stubs(name) || !needed.iter().any(|kind| name.starts_with(kind))
        };
        let file = File::open(path).ok()?;
        let is_the_same = file.metadata().is_ok_and(|metadata| FileState::of(&metadata) == *state);
        let (image, hash) = Image::read_partly(path, is_superfluous).ok().filter(|_| is_the_same)?;
        let entries = entries.or_else(|| FrameEntries::of_image(&image))?;
        let module = Module::from(image);
        let (named, starts) = (module.symbols().named(true).clone(), module.symbols().starts(true).collect());
        Some(Opened { file, image: Arc::clone(module.image()), hash, entries, named, starts })
    }

    /// The bytes of a range of code.
    fn code(&self, range: &Range<LinkAddr>) -> Option<Vec<u8>> {
        let holds = |segment: &&Segment| {
            let offset = range.start.0.checked_sub(segment.vaddr.0);
            offset.is_some_and(|offset| offset + (range.end.0 - range.start.0) <= segment.file_len)
        };
        let segment = self.image.segments().iter().find(holds)?;
        let mut bytes = vec![0; usize::try_from(range.end.0 - range.start.0).ok()?];
        self.file.read_exact_at(&mut bytes, segment.file_offset + (range.start.0 - segment.vaddr.0)).ok()?;
        Some(bytes)
    }

    /// The identity of a slice's analysis: its key in the cache.
    fn key_of(&self, range: &Range<LinkAddr>, bytes: &[u8]) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(&MAGIC);
        hash.update(&ANALYSER_VERSION.to_le_bytes());
        hash.update(&self.hash.to_le_bytes());
        hash.update(&range.start.0.to_le_bytes());
        hash.update(&range.end.0.to_le_bytes());
        hash.update(bytes);
        hash.digest128()
    }
}

/// Cuts code at beginnings of procedures, never inside an entry's code.
fn cut(code: &Range<LinkAddr>, entries: &FrameEntries, slice_bytes: u64) -> Vec<Range<LinkAddr>> {
    let mut cuts = vec![code.start];
    let mut start = code.start;
    // The end of the code described by the entries so far.
    let mut described = code.start;
    for entry in entries.of(code) {
        let at = entry.code.start;
        if at > start && at >= described && at.0 - start.0 >= slice_bytes {
            // A long gap becomes a slice, which costs nothing.
            let gap = Some(described).filter(|from| *from > start && at.0 - from.0 >= slice_bytes);
            cuts.extend(gap);
            cuts.push(at);
            start = at;
        }
        described = described.max(entry.code.end.min(code.end));
    }
    cuts.push(code.end);
    cuts.windows(2).map(|ends| ends[0]..ends[1]).filter(|range| !range.is_empty()).collect()
}

fn memo_path(dir: &Path, state: &FileState, options: &RecipeOptions) -> PathBuf {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(state.bytes(options));
    dir.join(format!("{:032x}.memo", xxh3_128(&bytes)))
}

type Recalled = (LoadedModule, Vec<Range<LinkAddr>>, Vec<Option<u128>>);

fn decode(bytes: &[u8], state: &[u8]) -> Option<Recalled> {
    let ((_, identity, segments, return_use), rest) = decode_facts(bytes, MAGIC, state)?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (records, []) = rest.as_chunks::<32>() else { return None };
    if records.len() != u32::from_le_bytes(*count) as usize {
        return None;
    }
    let word = |record: &[u8; 32], at: usize| u64::from_le_bytes(std::array::from_fn(|b| record[at + b]));
    let ranges: Vec<_> = records.iter().map(|r| LinkAddr(word(r, 0))..LinkAddr(word(r, 8))).collect();
    let is_sound = ranges.iter().all(|range| range.start < range.end)
        && ranges.is_sorted_by(|before, after| before.end <= after.start);
    let keys = records.iter().map(|r| Some(u128::from(word(r, 16)) | u128::from(word(r, 24)) << 64));
    let keys = keys.map(|key| key.filter(|key| *key != 0)).collect();
    let module = LoadedModule { identity, segments, return_use, table: Vec::new() };
    is_sound.then_some((module, ranges, keys))
}

/// For a fuzzer: reads any bytes as a memo of slices.
#[doc(hidden)]
pub fn fuzz_slices_memo(bytes: &[u8]) {
    drop(decode(bytes, b"state"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes::build_table;
    use callpath_format::recipe::{Packed, Recipe};
    use callpath_format::table::{RecipeId, Table};

    /// A recipe as the walk uses it, without the bits about marks.
    fn recipe_at(table: &Table<'_>, id: Option<RecipeId>) -> Option<(Packed, Option<Recipe>)> {
        let mut packed = table.packed(id?)?;
        packed.head &= !(Packed::PINNED | Packed::PINS_CALLEE | Packed::TAIL_CALLS_ANY);
        if packed.kind() == Packed::UNKNOWN {
            return None;
        }
        let wide = (packed.kind() == Packed::WIDE).then(|| table.recipe(id?)).flatten();
        if wide.is_some() {
            // The position of its words differs between tables.
            packed.disp = 0;
        }
        Some((packed, wide))
    }

    fn rows(table: &Table<'_>) -> Vec<LinkAddr> {
        let mut starts = Vec::new();
        table.for_each_row(|start, _| starts.push(start));
        starts
    }

    /// Bytes of code for which the slices of a module agree with its whole table, and bytes for which only the latter
    /// has a recipe.
    fn compared(path: &Path) -> (u64, u64) {
        let (options, sizes) = (RecipeOptions::default(), Sizes { least_code_bytes: 0, slice_bytes: 64 << 10 });
        let module = Module::read(path).unwrap();
        let image = module.image();
        let whole = build_table(&module, &options).bytes;
        let whole = Table::new(&whole).unwrap();
        let state = FileState::of(&fs::metadata(path).unwrap());
        let slices = Slices::new(path, state, &options, sizes).unwrap_or_else(|| panic!("{path:?} is not sliced"));
        assert_eq!(slices.ranges.first().map(|r| r.start), image.executable_ranges().first().map(|r| r.start));
        let code_bytes: u64 = image.instruction_ranges().iter().map(|range| range.end.0 - range.start.0).sum();
        assert!(slices.ranges.len() as u64 >= code_bytes / (4 * sizes.slice_bytes), "{path:?}");
        let cache = TableCache::open(None);
        let (mut equal, mut silent) = (0, 0);
        for (index, range) in (0..).zip(slices.ranges()) {
            let bytes = slices.table(index, &cache).unwrap();
            let table = Table::new(&bytes).unwrap();
            table.check().unwrap();
            let mut starts = rows(&whole);
            starts.extend(rows(&table));
            starts.push(range.start);
            starts.retain(|start| range.contains(start));
            starts.sort_unstable();
            starts.dedup();
            for (place, at) in starts.iter().enumerate() {
                let len = starts.get(place + 1).unwrap_or(&range.end).0 - at.0;
                let (part, all) = (recipe_at(&table, table.find(*at)), recipe_at(&whole, whole.find(*at)));
                match (part, all) {
                    (None, None) => {}
                    (None, Some(_)) => silent += len,
                    (part, all) => {
                        assert_eq!(part, all, "{path:?} at {at}");
                        equal += len;
                    }
                }
            }
            assert_eq!(slices.slice_of(range.start), Some(index));
            assert_eq!(slices.slice_of(LinkAddr(range.end.0 - 1)), Some(index));
        }
        (equal, silent)
    }

    #[test]
    fn slices_say_what_the_whole_table_says() {
        let libraries = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];
        let libraries = libraries.iter().map(|name| Path::new("/lib/x86_64-linux-gnu").join(name));
        let programs = ["/bin/bash", "/bin/ls", "/usr/bin/gcc", "/usr/bin/ld", "/usr/bin/objdump"].map(PathBuf::from);
        let own = std::env::current_exe().unwrap();
        let mut compared_modules = 0;
        let files: Vec<_> = libraries.chain(programs).chain([own]).filter(|path| path.exists()).collect();
        for path in files.iter().map(|path| fs::canonicalize(path).unwrap()) {
            // ld.bfd may be a small program before a large library; all must have code.
            let (equal, silent) = compared(&path);
            assert!(equal > 1000, "{path:?}: {equal}");
            assert!(silent <= equal / 8, "{path:?}: of {silent} bytes against {equal} slices say nothing");
            compared_modules += 1;
        }
        assert!(compared_modules >= 7);
    }

    #[test]
    fn cached_slices_are_found_again_as_long_as_the_file_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let cache = TableCache::open(Some(dir.path().join("cache")));
        let path = dir.path().join("module");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(250));
        let (options, sizes) = (RecipeOptions::default(), Sizes { least_code_bytes: 0, slice_bytes: 64 << 10 });
        let state = FileState::of(&fs::metadata(&path).unwrap());
        let slices = Slices::new(&path, state, &options, sizes).unwrap();
        let wanted = [3, 1];
        let made = wanted.map(|index| slices.table(index, &cache).unwrap());
        let memo = memo_path(cache.directory().unwrap(), &state, &options);
        let bytes = read_memo(&memo, cache.user()).unwrap();
        let (module, ranges, keys) = decode(&bytes, &state.bytes(&options)).unwrap();
        assert_eq!((&module, &ranges), (slices.module(), &slices.ranges));
        for (index, key) in (0..).zip(keys) {
            let kept = key.map(|key| cache.cached(key).unwrap().bytes);
            assert_eq!(kept.as_ref(), wanted.iter().position(|w| *w == index).map(|at| &made[at]), "slice {index}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode(&changed, &state.bytes(&options)).is_none(), "byte {at}");
        }
        // Another program in the file: its memo is not used.
        fs::copy("/bin/true", &path).unwrap();
        assert_eq!(slices.table(5, &cache), None);
    }
}
