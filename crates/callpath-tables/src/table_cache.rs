//! The cache of recipe tables on disk. A table belongs to the analysed content, whatever the file's name.
//!
//! ```text
//! DIR/<key>.table       mode 0600, in a directory of mode 0700
//!
//! magic      8          "CPCACH01"
//! key       16          xxh3-128 of what was analysed, options and the analyser's version included
//! stats     64          eight u64: `TableStats` in the order of its fields
//! checksum   8          xxh3-64 of key, stats and table
//! table      ...        up to the end of the file
//! ```
//!
//! All integers are little-endian. A file is written under another name and then renamed, so that readers see it
//! complete; of concurrent writers the last one wins, with the same bytes. A damaged, cut, foreign or old file is
//! replaced by a new table, and counted. A failure of the cache never prevents a table.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use callpath_format::table::Table;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

pub use crate::cache_trouble::CacheTrouble;
use crate::module::Module;
use crate::recipes::{RecipeDiagnostic, RecipeOptions, TableBuild, TableStats, build_table, machine_code, starts};

/// Raised whenever the same input may give another table.
pub(crate) const ANALYSER_VERSION: u32 = 29;

const MAGIC: [u8; 8] = *b"CPCACH01";
const STATS_LEN_BYTES: usize = 64;
const HEADER_LEN_BYTES: usize = 8 + 16 + STATS_LEN_BYTES + 8;

/// Stored tables, in a directory of the user's.
#[derive(Debug)]
pub struct TableCache {
    dir: Option<PathBuf>,
    trouble: Option<CacheTrouble>,
    user: u32,
}

impl TableCache {
    /// The cache in `dir`, which is created if needed; `None` stores nothing. Nothing is stored either in a directory
    /// that cannot be used, or that another user owns or may write to: [`TableCache::trouble`] has the reason.
    pub fn open(dir: Option<PathBuf>) -> TableCache {
        let user = effective_user();
        match dir {
            None => TableCache { dir: None, trouble: None, user },
            Some(path) => match usable(&path, user) {
                Ok(()) => TableCache { dir: Some(path), trouble: None, user },
                Err(reason) => TableCache { dir: None, trouble: Some(CacheTrouble::Directory { path, reason }), user },
            },
        }
    }

    /// Why nothing is stored, if a directory was asked for.
    pub fn trouble(&self) -> Option<&CacheTrouble> {
        self.trouble.as_ref()
    }

    /// The module's table: from the cache, or built and then stored.
    pub fn table_for(&self, module: &Module, options: &RecipeOptions) -> TableBuild {
        self.table_and_key(module, options).0
    }

    /// The same, with the table's key if tables are cached.
    pub(crate) fn table_and_key(&self, module: &Module, options: &RecipeOptions) -> (TableBuild, Option<u128>) {
        let Some(dir) = &self.dir else { return (build_table(module, options), None) };
        let key = key_of(module, options);
        let path = dir.join(format!("{key:032x}.table"));
        let found = read(&path, key, self.user);
        let mut trouble = match found {
            Ok(Some(build)) => return (build, Some(key)),
            Ok(None) => None,
            Err(reason) => Some(CacheTrouble::Rebuilt { path: path.clone(), reason }),
        };
        let mut build = build_table(module, options);
        if let Err(error) = write(&path, key, &build) {
            trouble = Some(CacheTrouble::NotStored { path, reason: error.to_string() });
        }
        build.stats.diagnostics += u64::from(trouble.is_some());
        build.diagnostics.extend(trouble.map(RecipeDiagnostic::Cache));
        (build, Some(key))
    }
}

impl TableCache {
    /// The directory, if tables are cached.
    pub fn directory(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// The user whose files are trusted.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Stores the table of an analysis. A failure is ignored: it only costs time later.
    pub(crate) fn store(&self, key: u128, table: &[u8]) {
        if let Some(dir) = &self.dir {
            let stats = TableStats { table_bytes: table.len() as u64, ..TableStats::default() };
            let build = TableBuild { bytes: table.to_vec(), diagnostics: Vec::new(), stats, from_cache: false };
            drop(write(&dir.join(format!("{key:032x}.table")), key, &build));
        }
    }

    /// The cached table of an analysis, if there is one.
    pub(crate) fn cached(&self, key: u128) -> Option<TableBuild> {
        let path = self.dir.as_ref()?.join(format!("{key:032x}.table"));
        // An unusable one is built again when it is requested by its image.
        read(&path, key, self.user).ok().flatten()
    }
}

/// The identity of an analysis: a hash of everything that its result depends on.
pub fn key_of(module: &Module, options: &RecipeOptions) -> u128 {
    let image = module.image();
    let mut hash = Xxh3::new();
    let number = |hash: &mut Xxh3, value: u64| hash.update(&value.to_le_bytes());
    number(&mut hash, ANALYSER_VERSION.into());
    let RecipeOptions { debug_frame, call_frames, machine_code } = *options;
    number(&mut hash, u64::from(debug_frame) | u64::from(call_frames) << 1 | u64::from(machine_code) << 2);
    number(&mut hash, image.entry().0);
    for segment in image.segments() {
        for value in [segment.vaddr.0, segment.mem_len, segment.file_offset, segment.file_len] {
            number(&mut hash, value);
        }
        let flags = [segment.readable, segment.writable, segment.executable];
        hash.update(&flags.map(u8::from));
    }
    for range in module.file().code() {
        let mut at = range.start;
        number(&mut hash, range.start.0);
        number(&mut hash, range.end.0);
        while let Some(bytes) = image.bytes_from(at).filter(|_| at < range.end) {
            let len = (range.end.0 - at.0).min(bytes.len() as u64);
            hash.update(&bytes[..len as usize]);
            at.0 += len;
        }
    }
    let eh_frame = image.eh_frame();
    number(&mut hash, eh_frame.map_or(u64::MAX, |eh_frame| eh_frame.addr.0));
    let eh_frame = eh_frame.map_or(&[][..], |eh_frame| eh_frame.data);
    let debug_frame = image.section(".debug_frame").filter(|_| options.debug_frame);
    let go_table = image.go_table().filter(|_| options.debug_frame);
    let bytes_of = |section: &Option<callpath_image::elf::Section<'_>>| {
        section.as_ref().map_or(&[][..], |section| &section.data).to_vec()
    };
    for bytes in [eh_frame, &bytes_of(&debug_frame), &bytes_of(&go_table)] {
        number(&mut hash, bytes.len() as u64);
        hash.update(bytes);
    }
    // The presence of section headers determines where `.eh_frame` ends; its pointers may be relative to the others.
    for name in [".eh_frame", ".text", ".got.plt", ".got"] {
        number(&mut hash, image.section(name).map_or(u64::MAX, |section| section.addr.0));
    }
    machine_code::identify(module, options.call_frames, &mut hash);
    starts::identify(image, module.symbols().named(options.call_frames), &mut hash);
    hash.digest128()
}

/// The table in a file. `Ok(None)`: there is no such file. Errors: why it cannot be used.
fn read(path: &Path, key: u128, user: u32) -> Result<Option<TableBuild>, String> {
    let Some(bytes) = read_file(path, user)? else { return Ok(None) };
    decode(bytes, key).map(Some).map_err(str::to_owned)
}

/// The contents of a file in the cache. `Ok(None)`: there is no such file. Errors: why it cannot be used.
pub fn read_file(path: &Path, user: u32) -> Result<Option<Vec<u8>>, String> {
    // Links are not followed, and a pipe does not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".into());
    }
    if metadata.uid() != user {
        return Err(format!("user {} owns it", metadata.uid()));
    }
    if metadata.len() > u64::from(u32::MAX) + HEADER_LEN_BYTES as u64 {
        return Err("it is too long".into());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(Some(bytes))
}

/// Decodes the bytes of a cache file.
fn decode(mut bytes: Vec<u8>, key: u128) -> Result<TableBuild, &'static str> {
    let header: &[u8; HEADER_LEN_BYTES] = bytes.first_chunk().ok_or("it is cut")?;
    let (magic, rest) = header.split_first_chunk().ok_or("it is cut")?;
    let (file_key, rest) = rest.split_first_chunk().ok_or("it is cut")?;
    let (stats, checksum) = rest.split_first_chunk::<STATS_LEN_BYTES>().ok_or("it is cut")?;
    if *magic != MAGIC {
        return Err("it is of another version, or no table");
    }
    if u128::from_le_bytes(*file_key) != key {
        return Err("it is of another module");
    }
    let table = bytes.get(HEADER_LEN_BYTES..).ok_or("it is cut")?;
    if checksum != checksum_of(key, stats, table).to_le_bytes() {
        return Err("it is damaged");
    }
    let stats = decode_stats(stats);
    Table::new(table).and_then(|table| table.check()).map_err(|_| "its table is malformed")?;
    bytes.drain(..HEADER_LEN_BYTES);
    Ok(TableBuild { bytes, diagnostics: Vec::new(), stats, from_cache: true })
}

fn checksum_of(key: u128, stats: &[u8; STATS_LEN_BYTES], table: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&key.to_le_bytes());
    hash.update(stats);
    hash.update(&xxh3_64(table).to_le_bytes());
    hash.digest()
}

fn encode_stats(stats: &TableStats) -> [u8; STATS_LEN_BYTES] {
    let TableStats { code_bytes, covered_bytes, table_bytes, rows, recipes, wide_recipes, contributions, diagnostics } =
        *stats;
    let fields = [code_bytes, covered_bytes, table_bytes, rows, recipes, wide_recipes, contributions, diagnostics];
    let mut bytes = [0; STATS_LEN_BYTES];
    for (chunk, field) in bytes.chunks_exact_mut(8).zip(fields) {
        chunk.copy_from_slice(&field.to_le_bytes());
    }
    bytes
}

fn decode_stats(bytes: &[u8; STATS_LEN_BYTES]) -> TableStats {
    let mut fields = [0; STATS_LEN_BYTES / 8];
    for (field, chunk) in fields.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *field = u64::from_le_bytes(*chunk);
    }
    let [code_bytes, covered_bytes, table_bytes, rows, recipes, wide_recipes, contributions, diagnostics] = fields;
    TableStats { code_bytes, covered_bytes, table_bytes, rows, recipes, wide_recipes, contributions, diagnostics }
}

fn write(path: &Path, key: u128, build: &TableBuild) -> io::Result<()> {
    let stats = encode_stats(&build.stats);
    let mut header = Vec::with_capacity(HEADER_LEN_BYTES);
    header.extend(MAGIC);
    header.extend(key.to_le_bytes());
    header.extend(stats);
    header.extend(checksum_of(key, &stats, &build.bytes).to_le_bytes());
    replace_file(path, &header, &build.bytes)
}

/// Writes a file of the cache under another name, then renames it.
pub fn replace_file(path: &Path, header: &[u8], body: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.new", std::process::id()));
    let written = write_new(&temporary, header, body).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Whether or not it is there: what counts is why it could not be written.
        match fs::remove_file(&temporary) {
            Ok(()) | Err(_) => {}
        }
    }
    written
}

pub(crate) fn write_new(path: &Path, header: &[u8], table: &[u8]) -> io::Result<()> {
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
    file.write_all(header)?;
    file.write_all(table)
}

/// Makes the directory, and looks whether it is the user's alone.
fn usable(dir: &Path, user: u32) -> Result<(), String> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| error.to_string())?;
    let metadata = fs::metadata(dir).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("it is not a directory".into());
    }
    if metadata.uid() != user {
        return Err(format!("user {} owns it", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("others may write to it (mode {:o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

#[allow(unsafe_code)]
fn effective_user() -> u32 {
    // SAFETY: geteuid takes nothing, touches no memory of ours and always succeeds.
    unsafe { libc::geteuid() }
}

/// For fuzzing: whatever a cache file holds, reading it ends without a panic, in a table that passes its check.
#[doc(hidden)]
pub fn fuzz_cache_file(bytes: &[u8]) {
    let key = bytes.get(8..24).and_then(|key| key.first_chunk()).map_or(0, |key| u128::from_le_bytes(*key));
    let asked = |bytes: Vec<u8>| {
        if let Ok(build) = decode(bytes, key) {
            assert!(Table::new(&build.bytes).and_then(|table| table.check()).is_ok());
        }
    };
    asked(bytes.to_vec());
    // And as if its checksum were right.
    let mut sealed = bytes.to_vec();
    if let Some((header, table)) = sealed.split_first_chunk_mut::<HEADER_LEN_BYTES>()
        && let Some((head, checksum)) = header.split_last_chunk_mut::<8>()
        && let Some(stats) = head.last_chunk()
    {
        *checksum = checksum_of(key, stats, table).to_le_bytes();
    }
    asked(sealed);
}
