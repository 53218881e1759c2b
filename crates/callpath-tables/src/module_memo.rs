//! Memos: what a recorder needs of a module, stored on disk with the state of the module's file, so that the module
//! need not be read.
//!
//! A table belongs to content ([`crate::table_cache`]), and finding a table requires hashing the content: tens of
//! milliseconds for a large program, at each of its starts. The kernel changes a file's status time (`ctime`) with
//! every change of its content, and no program can set it. So a file with the same device, inode, length and status
//! time has the same content. For a file that was changed within the clock's resolution before it was read, no memo is
//! written.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callpath_format::address::LinkAddr;
use callpath_format::table::Table;
use callpath_image::elf::{Image, Segment};
use callpath_image::error::ImageError;
use callpath_image::identity::ModuleIdentity;
use callpath_image::return_use::ReturnUse;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::module::Module;
use crate::recipes::RecipeOptions;
use crate::slices::{Slices, Tables};
use crate::table_cache::{ANALYSER_VERSION, TableCache, write_new};

const MAGIC: [u8; 8] = *b"CPMEMO03";
/// Two changes closer than a tick of the clock that stamps them may have the same status time.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(100);
/// A memo is a few hundred bytes; a longer file is not a memo.
const LONGEST_BYTES: u64 = 1 << 16;

/// What a recorder needs of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedModule {
    /// Its build.
    pub identity: ModuleIdentity,
    /// Its loadable segments.
    pub segments: Vec<Segment>,
    /// How its code uses return addresses.
    pub return_use: ReturnUse,
    /// Its recipe table.
    pub table: Vec<u8>,
}

/// The state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileState {
    words: [u64; 6],
}

impl FileState {
    pub(crate) fn of(metadata: &fs::Metadata) -> FileState {
        let words = [
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.ctime() as u64,
            metadata.ctime_nsec() as u64,
            metadata.mtime_nsec() as u64 ^ metadata.mtime() as u64,
        ];
        FileState { words }
    }

    pub(crate) fn is_settled(&self) -> bool {
        let changed = SystemTime::UNIX_EPOCH + Duration::new(self.words[3], self.words[4] as u32);
        changed.elapsed().is_ok_and(|age| age > CLOCK_RESOLUTION)
    }

    pub(crate) fn bytes(&self, options: &RecipeOptions) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.extend(ANALYSER_VERSION.to_le_bytes());
        bytes.extend(format!("{options:?}").bytes());
        bytes
    }
}

/// The result of a first look at a module.
pub enum FirstLook {
    /// Everything, from a memo.
    Known(LoadedModule),
    /// Everything except its table, which is still to be built.
    New(Box<Unfinished>),
    /// A large module, whose table is built in slices, and its cached slices.
    Sliced(Arc<Slices>, Tables),
}

/// A module whose table is still to be built.
#[derive(Clone)]
pub struct Unfinished {
    /// `None`: the file can be read again.
    image: Option<Arc<Image>>,
    path: PathBuf,
    state: FileState,
    options: RecipeOptions,
    /// Without its table.
    module: LoadedModule,
}

impl Unfinished {
    pub(crate) fn new(path: &Path, state: FileState, options: &RecipeOptions, module: LoadedModule) -> Unfinished {
        Unfinished { image: None, path: path.to_owned(), state, options: *options, module }
    }

    /// The facts about the module; its table is empty.
    pub fn module(&self) -> &LoadedModule {
        &self.module
    }

    /// Builds the table, or finds it in the cache, and writes the memo. The table is empty if the file has changed
    /// since.
    pub fn finish(self, cache: &TableCache) -> LoadedModule {
        let mut module = self.module;
        let as_it_was = || fs::metadata(&self.path).is_ok_and(|m| FileState::of(&m) == self.state);
        let image = self.image.or_else(|| Image::read(&self.path).ok().filter(|_| as_it_was()).map(Arc::new));
        let Some(image) = image else { return module };
        let (build, key) = cache.table_and_key(&Module::new(image), &self.options);
        // If each recipe has this flag, the module's flag is not needed.
        module.return_use.catches &= !Table::new(&build.bytes).is_ok_and(|table| table.header().knows_pinned);
        module.table = build.bytes;
        let file = cache.directory().map(|dir| memo_path(dir, &self.state, &self.options));
        if let Some((file, key)) = file.zip(key).filter(|_| as_it_was() && self.state.is_settled()) {
            remember(&file, &module, key, &self.state.bytes(&self.options));
        }
        module
    }
}

/// Looks up the module in the file at `path`, in its memo if the file is unchanged. Takes negligible time.
pub fn find(cache: &TableCache, path: &Path, options: &RecipeOptions) -> Result<FirstLook, ImageError> {
    let failed = |source| ImageError::Read { path: path.to_owned(), source };
    let state = FileState::of(&fs::metadata(path).map_err(failed)?);
    let file = cache.directory().map(|dir| memo_path(dir, &state, options));
    if let Some(module) = file.and_then(|file| recall(cache, &file, &state, options)) {
        return Ok(FirstLook::Known(module));
    }
    if let Some((slices, tables)) = Slices::find(cache, path, state, options) {
        return Ok(FirstLook::Sliced(Arc::new(slices), tables));
    }
    let image = Image::read(path)?;
    let module = LoadedModule {
        identity: image.identity(),
        segments: image.segments().to_vec(),
        return_use: ReturnUse::of(&image, path),
        table: Vec::new(),
    };
    // Many modules may wait for their tables. A file in a process's own directory disappears with the process.
    let image = Some(Arc::new(image)).filter(|_| path.starts_with("/proc"));
    Ok(FirstLook::New(Box::new(Unfinished { image, path: path.to_owned(), state, options: *options, module })))
}

pub(crate) fn memo_path(dir: &Path, state: &FileState, options: &RecipeOptions) -> PathBuf {
    dir.join(format!("{:032x}.memo", xxh3_128(&state.bytes(options))))
}

/// ```text
/// magic 8, checksum u64 of all behind it, table key u128, state (length u32, bytes), kind of identity and use of
/// return addresses (length u32: 2; u8: 0 build-id, 1 hash of the content; u8: `ReturnUse`), identity (length u32,
/// bytes), segments (count u32; each vaddr, mem_len, file_offset, file_len: u64, flags u8)
/// ```
fn remember(file: &Path, module: &LoadedModule, key: u128, state: &[u8]) {
    write_memo(file, MAGIC, encode(module, key, state));
}

/// Writes a memo whose checksum covers `body`. A failure is ignored: it only costs time later.
pub(crate) fn write_memo(file: &Path, magic: [u8; 8], body: Vec<u8>) {
    let header: Vec<u8> = magic.into_iter().chain(xxh3_64(&body).to_le_bytes()).collect();
    let temporary = file.with_extension(format!("{}.new", std::process::id()));
    if write_new(&temporary, &header, &body).and_then(|()| fs::rename(&temporary, file)).is_err() {
        drop(fs::remove_file(&temporary));
    }
}

/// Encodes the body of a memo.
pub(crate) fn encode(module: &LoadedModule, key: u128, state: &[u8]) -> Vec<u8> {
    let mut body = key.to_le_bytes().to_vec();
    let mut sized = |bytes: &[u8]| {
        body.extend((bytes.len() as u32).to_le_bytes());
        body.extend(bytes);
    };
    sized(state);
    let identity = module.identity.to_bytes();
    sized(&[u8::from(matches!(module.identity, ModuleIdentity::Content(_))), module.return_use.to_byte()]);
    sized(&identity);
    body.extend((module.segments.len() as u32).to_le_bytes());
    for segment in &module.segments {
        for word in [segment.vaddr.0, segment.mem_len, segment.file_offset, segment.file_len] {
            body.extend(word.to_le_bytes());
        }
        body.push(u8::from(segment.readable) | u8::from(segment.writable) << 1 | u8::from(segment.executable) << 2);
    }
    body
}

fn recall(cache: &TableCache, file: &Path, state: &FileState, options: &RecipeOptions) -> Option<LoadedModule> {
    let bytes = read_memo(file, cache.user())?;
    let (key, identity, segments, return_use) = decode(&bytes, &state.bytes(options))?;
    Some(LoadedModule { identity, segments, return_use, table: cache.cached(key)?.bytes })
}

/// The bytes of a memo. `None`: it cannot be read, or another user owns it.
pub(crate) fn read_memo(file: &Path, user: u32) -> Option<Vec<u8>> {
    let mut opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file).ok()?;
    let metadata = opened.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != user || metadata.len() > LONGEST_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    opened.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

type Facts = (u128, ModuleIdentity, Vec<Segment>, ReturnUse);

fn decode(bytes: &[u8], state: &[u8]) -> Option<Facts> {
    decode_facts(bytes, MAGIC, state).filter(|(_, rest)| rest.is_empty()).map(|(facts, _)| facts)
}

/// The facts in a memo with this magic, and the bytes after them.
pub(crate) fn decode_facts<'a>(bytes: &'a [u8], magic: [u8; 8], state: &[u8]) -> Option<(Facts, &'a [u8])> {
    let wanted = magic;
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (checksum, body) = rest.split_first_chunk::<8>()?;
    if *magic != wanted || u64::from_le_bytes(*checksum) != xxh3_64(body) {
        return None;
    }
    let (key, mut rest) = body.split_first_chunk::<16>()?;
    let mut sized = || {
        let (len, tail) = rest.split_first_chunk::<4>()?;
        let (bytes, tail) = tail.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        rest = tail;
        Some(bytes)
    };
    if sized()? != state {
        return None;
    }
    let &[is_content, return_use] = sized()? else { return None };
    let (is_content, return_use) = (is_content == 1, ReturnUse::from_byte(return_use)?);
    let identity = sized()?;
    let identity = if is_content {
        ModuleIdentity::Content(u128::from_be_bytes(identity.try_into().ok()?))
    } else {
        ModuleIdentity::BuildId(identity.to_vec())
    };
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (records, rest) = rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(33)?)?;
    let records = records.as_chunks::<33>().0;
    let segments = records.iter().map(|record| {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| record[8 * i + b]));
        let flag = |bit: u8| record[32] >> bit & 1 != 0;
        Segment {
            vaddr: LinkAddr(word(0)),
            mem_len: word(1),
            file_offset: word(2),
            file_len: word(3),
            readable: flag(0),
            writable: flag(1),
            executable: flag(2),
        }
    });
    Some(((u128::from_le_bytes(*key), identity, segments.collect(), return_use), rest))
}

/// For a fuzzer: reads any bytes as a memo.
#[doc(hidden)]
pub fn fuzz_memo(bytes: &[u8]) {
    drop(decode(bytes, b"state"));
    if let Some((head, body)) = bytes.split_at_checked(16) {
        let mut sealed = head.to_vec();
        sealed[..8].copy_from_slice(&MAGIC);
        sealed[8..16].copy_from_slice(&xxh3_64(body).to_le_bytes());
        sealed.extend(body);
        drop(decode(&sealed, b"state"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_and_again_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let cache = TableCache::open(Some(dir.path().join("cache")));
        let path = dir.path().join("module");
        fs::copy("/bin/true", &path).unwrap();
        std::thread::sleep(CLOCK_RESOLUTION * 2);
        let options = RecipeOptions::default();
        let load = || match find(&cache, &path, &options).unwrap() {
            FirstLook::Known(module) => module,
            FirstLook::New(unfinished) => unfinished.finish(&cache),
            FirstLook::Sliced(..) => panic!("it is small"),
        };
        let first = load();
        let memos = || {
            let names = fs::read_dir(dir.path().join("cache")).unwrap();
            names.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "memo")).count()
        };
        assert_eq!(memos(), 1);
        let state = FileState::of(&fs::metadata(&path).unwrap());
        let file = memo_path(&dir.path().join("cache"), &state, &options);
        assert_eq!(recall(&cache, &file, &state, &options).as_ref(), Some(&first));
        assert!(matches!(find(&cache, &path, &options), Ok(FirstLook::Known(module)) if module == first));
        // The same name with another program.
        fs::copy("/bin/cat", &path).unwrap();
        let other = load();
        assert_ne!(other.identity, first.identity);
        // It has only just changed: no memo is written.
        assert_eq!(memos(), 1);
        // A file that is replaced before its table is built gets no memo.
        fs::copy("/bin/ls", &path).unwrap();
        let Ok(FirstLook::New(unfinished)) = find(&cache, &path, &options) else { panic!("known, though it is new") };
        fs::copy("/bin/cat", &path).unwrap();
        assert!(unfinished.finish(&cache).table.is_empty());
        // A damaged memo is rejected.
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(decode(&changed, &state.bytes(&options)), None, "byte {at}");
            assert_eq!(decode(&whole[..at], &state.bytes(&options)), None, "cut at {at}");
            fuzz_memo(&changed);
        }
    }
}
