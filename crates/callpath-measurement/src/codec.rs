//! A measurement's files as bytes.
//! Knows nothing of where files are.
//!
//! ```text
//! 0   magic     "CPMEAS" and two digits: the format's version
//! 8   kind      u32: 1 session, 2 process, 3 names
//! 12  zero      u32
//! 16  length    u64: of the whole file, bytes
//! 24  checksum  u64: XXH3-64 of all that follows
//! 32  payload   numbers as LEB128, strings and lists with their length before them
//! ```

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use callpath_format::frame::FrameKey;
use callpath_format::shared::MAX_METRICS;
use callpath_format::shared::thread::Dropped;
use callpath_image::identity::ModuleIdentity;

use crate::leb128;

use super::tree::{PARTIAL_ROOT, PathTree, TreeNode};
use super::{Account, MetricInfo, ModuleRecord, ProcessFile, SessionEnd, SessionFile, ThreadProfile};

pub(super) const MAGIC: &[u8; 8] = b"CPMEAS03";
const KIND_SESSION: u32 = 1;
const KIND_PROCESS: u32 = 2;
pub(super) const KIND_NAMES: u32 = 3;
const HEADER_BYTES: usize = 32;

/// Why a measurement cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MeasurementError {
    #[error("read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("write {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("read {path}: not a file of a callpath measurement (it does not begin with CPMEAS)")]
    Magic { path: PathBuf },
    #[error(
        "read {path}: it is of another version of the format ({found} at byte 6, not 03); use the callpath that recorded it"
    )]
    Version { path: PathBuf, found: String },
    #[error("read {path}: it holds something else than expected (kind {found} at byte 8)")]
    Kind { path: PathBuf, found: u32 },
    #[error("read {path}: it ends at byte {found}, not at byte {expected}; it was cut or is damaged")]
    Length { path: PathBuf, expected: u64, found: u64 },
    #[error("read {path}: what follows byte 32 does not match the checksum at byte 24; it is damaged")]
    Checksum { path: PathBuf },
    #[error("read {path}: nonsense at byte {offset} ({what})")]
    Content { path: PathBuf, offset: usize, what: &'static str },
    #[error("read {names} in {path}: not there, though the measurement had it")]
    Gone { path: PathBuf, names: String },
    #[error("read {path}: process {sequence} stands in the measurement twice; the first one counts")]
    Twice { path: PathBuf, sequence: u32 },
    #[error(
        "find a measurement in {path}: there is no file `session` in it; is it the directory that `callpath record` named?"
    )]
    NoSession { path: PathBuf },
    #[error("find a measurement: no *.callpath directory here; record one with: callpath record PROGRAM")]
    NoMeasurement,
}

/// The bytes of a session file.
pub fn encode_session(session: &SessionFile) -> Vec<u8> {
    let mut w = Writer::new(KIND_SESSION);
    w.path(&session.program);
    w.strings(&session.command);
    w.path(&session.working_directory);
    w.string(&session.host);
    w.string(&session.recorder);
    w.number(session.started_unix_ns);
    w.number(session.duration_ns);
    w.number(u64::from(session.ended.is_some()));
    if let Some(end) = session.ended {
        w.number(end.status as u64 & 0xffff);
        w.number(end.user_ns);
        w.number(end.kernel_ns);
    }
    w.number(session.metrics.len() as u64);
    for metric in &session.metrics {
        w.string(&metric.name);
        w.string(&metric.unit);
    }
    w.number(session.period_ns);
    w.strings(&session.notes);
    w.number(session.lost_processes);
    w.number(session.recorder_cpu_ns);
    w.number(session.processes);
    w.finish()
}

/// A session file from its bytes; `path` is for errors only.
pub fn decode_session(bytes: &[u8], path: &Path) -> Result<SessionFile, MeasurementError> {
    let mut r = Reader::open(bytes, path, KIND_SESSION)?;
    let mut session = SessionFile {
        program: r.path()?,
        command: r.strings()?,
        working_directory: r.path()?,
        host: r.string()?,
        recorder: r.string()?,
        started_unix_ns: r.number()?,
        duration_ns: r.number()?,
        ..SessionFile::default()
    };
    if r.number()? != 0 {
        session.ended =
            Some(SessionEnd { status: r.number()? as u16 as i32, user_ns: r.number()?, kernel_ns: r.number()? });
    }
    for _ in 0..r.count(2)? {
        session.metrics.push(MetricInfo { name: r.string()?, unit: r.string()? });
    }
    if session.metrics.is_empty() || session.metrics.len() > MAX_METRICS {
        return Err(r.error("number of metrics"));
    }
    session.period_ns = r.number()?;
    session.notes = r.strings()?;
    session.lost_processes = r.number()?;
    session.recorder_cpu_ns = r.number()?;
    session.processes = r.number()?;
    r.finish()?;
    Ok(session)
}

/// The bytes of a process file.
pub fn encode_process(process: &ProcessFile) -> Vec<u8> {
    let mut w = Writer::new(KIND_PROCESS);
    for number in [process.pid, process.parent_pid, process.sequence, u32::from(process.forked)] {
        w.number(u64::from(number));
    }
    w.path(&process.program);
    w.strings(&process.command);
    w.number(process.started_ns);
    w.number(process.ended_ns.map_or(0, |ns| ns + 1));
    w.number(u64::from(process.metric_count));
    for count in process.dropped_unrecorded {
        w.number(count);
    }
    w.number(process.modules.len() as u64);
    for module in &process.modules {
        w.path(&module.path);
        match &module.identity {
            None => w.number(0),
            Some(ModuleIdentity::BuildId(id)) => {
                w.number(1);
                w.bytes(id);
            }
            Some(ModuleIdentity::Content(hash)) => {
                w.number(2);
                w.bytes(&hash.to_be_bytes());
            }
        }
    }
    w.number(process.threads.len() as u64);
    for thread in &process.threads {
        w.number(u64::from(thread.tid));
        w.number(thread.count);
        w.string(&thread.name);
        w.number(u64::from(thread.start.is_some()));
        if let Some(FrameKey(key)) = thread.start {
            w.number(key);
        }
        encode_account(&mut w, &thread.account);
        encode_tree(&mut w, &thread.tree, process.metric_count);
    }
    w.finish()
}

fn encode_account(w: &mut Writer, account: &Account) {
    for number in [account.taken, account.full, account.partial, account.raw_kept] {
        w.number(number);
    }
    w.number(account.dropped.len() as u64);
    for number in account.dropped {
        w.number(number);
    }
    for number in [account.unfinished, account.handler_ns, account.handler_max_ns, account.frames] {
        w.number(number);
    }
    w.number(account.handler_histogram.len() as u64);
    for number in &account.handler_histogram {
        w.number(*number);
    }
}

/// A node is: how far back its parent stands, its module and address, samples, and values if it has samples or values.
fn encode_tree(w: &mut Writer, tree: &PathTree, metric_count: u32) {
    let nodes = tree.nodes();
    w.number(nodes.len() as u64);
    for (index, node) in nodes.iter().enumerate() {
        w.number(index as u64 - u64::from(node.parent));
        w.number(u64::from(node.key.module().0));
        w.number(node.key.address());
        let values = node.values.get(..metric_count as usize).unwrap_or(&node.values);
        let any = values.iter().any(|v| *v != 0);
        w.number(node.samples << 1 | u64::from(any));
        if any {
            for value in values {
                w.number(*value);
            }
        }
    }
}

/// A process file from its bytes; `path` is for errors only.
pub fn decode_process(bytes: &[u8], path: &Path) -> Result<ProcessFile, MeasurementError> {
    let mut r = Reader::open(bytes, path, KIND_PROCESS)?;
    let mut process = ProcessFile {
        pid: r.number()? as u32,
        parent_pid: r.number()? as u32,
        sequence: r.number()? as u32,
        forked: r.number()? != 0,
        program: r.path()?,
        command: r.strings()?,
        started_ns: r.number()?,
        ended_ns: r.number()?.checked_sub(1),
        metric_count: r.number()? as u32,
        ..ProcessFile::default()
    };
    for count in &mut process.dropped_unrecorded {
        *count = r.number()?;
    }
    if process.metric_count as usize > MAX_METRICS {
        return Err(r.error("number of metrics"));
    }
    for _ in 0..r.count(2)? {
        let path = r.path()?;
        let identity = match r.number()? {
            0 => None,
            1 => Some(ModuleIdentity::BuildId(r.bytes()?.to_vec())),
            2 => {
                let hash = r.bytes()?.try_into().map_err(|_| r.error("content hash"))?;
                Some(ModuleIdentity::Content(u128::from_be_bytes(hash)))
            }
            _ => return Err(r.error("kind of module identity")),
        };
        process.modules.push(ModuleRecord { path, identity });
    }
    for _ in 0..r.count(16)? {
        let (tid, count, name) = (r.number()? as u32, r.number()?, r.string()?);
        let start = if r.number()? != 0 { Some(FrameKey(r.number()?)) } else { None };
        let account = decode_account(&mut r)?;
        let tree = decode_tree(&mut r, process.metric_count)?;
        process.threads.push(ThreadProfile { tid, count, name, start, account, tree });
    }
    r.finish()?;
    Ok(process)
}

fn decode_account(r: &mut Reader<'_>) -> Result<Account, MeasurementError> {
    let mut account = Account {
        taken: r.number()?,
        full: r.number()?,
        partial: r.number()?,
        raw_kept: r.number()?,
        ..Account::default()
    };
    if r.number()? != Dropped::COUNT as u64 {
        return Err(r.error("number of reasons for dropping"));
    }
    for reason in &mut account.dropped {
        *reason = r.number()?;
    }
    account.unfinished = r.number()?;
    account.handler_ns = r.number()?;
    account.handler_max_ns = r.number()?;
    account.frames = r.number()?;
    for _ in 0..r.count(1)? {
        account.handler_histogram.push(r.number()?);
    }
    Ok(account)
}

fn decode_tree(r: &mut Reader<'_>, metric_count: u32) -> Result<PathTree, MeasurementError> {
    let count = r.count(4)?;
    let mut nodes: Vec<TreeNode> = Vec::with_capacity(count);
    for index in 0..count as u64 {
        let back = r.number()?;
        let parent = index.checked_sub(back).ok_or_else(|| r.error("parent"))? as u32;
        if (back == 0) != (index <= u64::from(PARTIAL_ROOT)) {
            return Err(r.error("parent"));
        }
        let (module, address) = (r.number()?, r.number()?);
        if module > u64::from(u16::MAX) || address >> 48 != 0 {
            return Err(r.error("frame"));
        }
        let mut node = TreeNode { parent, key: FrameKey(module << 48 | address), ..TreeNode::default() };
        let samples = r.number()?;
        node.samples = samples >> 1;
        if samples & 1 != 0 {
            for value in node.values.iter_mut().take(metric_count as usize) {
                *value = r.number()?;
            }
        }
        nodes.push(node);
    }
    if nodes.len() <= PARTIAL_ROOT as usize {
        return Err(r.error("number of nodes"));
    }
    let mut tree = PathTree::default();
    tree.merge(&nodes);
    Ok(tree)
}

pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new(kind: u32) -> Writer {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        Writer { bytes }
    }

    pub(super) fn number(&mut self, value: u64) {
        leb128::put(&mut self.bytes, value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    pub(super) fn string(&mut self, string: &str) {
        self.bytes(string.as_bytes());
    }

    fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    fn strings(&mut self, strings: &[String]) {
        self.number(strings.len() as u64);
        for string in strings {
            self.string(string);
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len() as u64;
        let checksum = xxhash_rust::xxh3::xxh3_64(&self.bytes[HEADER_BYTES..]);
        self.bytes[16..24].copy_from_slice(&len.to_le_bytes());
        self.bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8], path: &'a Path, kind: u32) -> Result<Reader<'a>, MeasurementError> {
        let owned = || path.to_owned();
        if bytes.get(..6) != Some(&MAGIC[..6]) {
            return Err(MeasurementError::Magic { path: owned() });
        }
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or_else(|| MeasurementError::Length {
            path: owned(),
            expected: HEADER_BYTES as u64,
            found: bytes.len() as u64,
        })?;
        if header[..8] != MAGIC[..] {
            let found = String::from_utf8_lossy(&header[6..8]).into_owned();
            return Err(MeasurementError::Version { path: owned(), found });
        }
        let found = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if word(16) != bytes.len() as u64 {
            return Err(MeasurementError::Length { path: owned(), expected: word(16), found: bytes.len() as u64 });
        }
        if word(24) != xxhash_rust::xxh3::xxh3_64(&bytes[HEADER_BYTES..]) {
            return Err(MeasurementError::Checksum { path: owned() });
        }
        if found != kind {
            return Err(MeasurementError::Kind { path: owned(), found });
        }
        Ok(Reader { bytes, at: HEADER_BYTES, path })
    }

    pub(super) fn error(&self, what: &'static str) -> MeasurementError {
        MeasurementError::Content { path: self.path.to_owned(), offset: self.at, what }
    }

    pub(super) fn number(&mut self) -> Result<u64, MeasurementError> {
        leb128::take(self.bytes, &mut self.at).ok_or_else(|| self.error("number"))
    }

    /// A number of things of at least `least_bytes` each: never more than the file can hold.
    pub(super) fn count(&mut self, least_bytes: usize) -> Result<usize, MeasurementError> {
        let count = self.number()?;
        let room = (self.bytes.len() - self.at) / least_bytes;
        usize::try_from(count).ok().filter(|c| *c <= room).ok_or_else(|| self.error("count"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], MeasurementError> {
        let len = self.count(1)?;
        let bytes = self.bytes.get(self.at..self.at + len).ok_or_else(|| self.error("length"))?;
        self.at += len;
        Ok(bytes)
    }

    pub(super) fn string(&mut self) -> Result<String, MeasurementError> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn path(&mut self) -> Result<PathBuf, MeasurementError> {
        Ok(PathBuf::from(std::ffi::OsString::from_vec(self.bytes()?.to_vec())))
    }

    fn strings(&mut self) -> Result<Vec<String>, MeasurementError> {
        (0..self.count(1)?).map(|_| self.string()).collect()
    }

    pub(super) fn finish(self) -> Result<(), MeasurementError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error("bytes after the end")) }
    }
}

/// Where the first of several files ends that stand one behind the other. `None`: there is no whole one.
pub(super) fn end_of_first(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(..8).filter(|magic| *magic == MAGIC).and_then(|_| bytes.get(16..24)?.first_chunk())?;
    usize::try_from(u64::from_le_bytes(*length)).ok().filter(|end| (HEADER_BYTES..=bytes.len()).contains(end))
}

/// For a fuzzer: any bytes as either file.
#[doc(hidden)]
pub fn fuzz_measurement(bytes: &[u8]) {
    for sealed in [bytes.to_vec(), seal(bytes)] {
        let path = Path::new("fuzz");
        // Only that it returns is of interest.
        drop(decode_session(&sealed, path));
        drop(decode_process(&sealed, path));
        drop(super::decode_names(&sealed, path));
        drop(super::together::read(&sealed, path, false));
    }
}

/// Gives bytes the right length and checksum, so that damage behind the header is looked at.
fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= HEADER_BYTES {
        sealed[..8].copy_from_slice(MAGIC);
        let len = sealed.len() as u64;
        let checksum = xxhash_rust::xxh3::xxh3_64(&sealed[HEADER_BYTES..]);
        sealed[16..24].copy_from_slice(&len.to_le_bytes());
        sealed[24..32].copy_from_slice(&checksum.to_le_bytes());
    }
    sealed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FULL_ROOT;
    use callpath_format::frame::ModuleIndex;

    fn process() -> ProcessFile {
        let mut tree = PathTree::default();
        let mut node = FULL_ROOT;
        for depth in 0..40u64 {
            node = tree.child(
                node,
                FrameKey::in_module(ModuleIndex(depth as u16 % 3), callpath_format::address::LinkAddr(0x1000 + depth)),
            );
            tree.add(node, depth, [depth * 1_000_003, 0, 0, 0, 0, 0, 0, 0]);
        }
        let partial = tree.child(PARTIAL_ROOT, FrameKey::outside(callpath_format::address::RunAddr(0x7fff_1234_5678)));
        tree.add(partial, 1, [5, 0, 0, 0, 0, 0, 0, 0]);
        let account = Account {
            taken: 7,
            full: 3,
            dropped: [1; Dropped::COUNT],
            handler_histogram: vec![1, 2, 3],
            ..Account::default()
        };
        ProcessFile {
            pid: 4711,
            sequence: 3,
            forked: true,
            program: PathBuf::from("/usr/bin/true"),
            command: vec!["true".into(), "ä b".into()],
            ended_ns: Some(0),
            metric_count: 1,
            modules: vec![
                ModuleRecord { path: "/a".into(), identity: Some(ModuleIdentity::BuildId(vec![1; 20])) },
                ModuleRecord { path: "/b".into(), identity: Some(ModuleIdentity::Content(1 << 100)) },
                ModuleRecord { path: "[vdso]".into(), identity: None },
            ],
            threads: vec![ThreadProfile {
                tid: 9,
                count: 2,
                name: "w".into(),
                start: Some(FrameKey(77)),
                account,
                tree,
            }],
            ..ProcessFile::default()
        }
    }

    fn session() -> SessionFile {
        SessionFile {
            program: "/usr/bin/xz".into(),
            command: vec!["xz".into(), "-9".into()],
            metrics: vec![MetricInfo { name: "cpu-time".into(), unit: "ns".into() }],
            ended: Some(SessionEnd { status: 137, user_ns: 1, kernel_ns: 2 }),
            notes: vec!["a note".into()],
            ..SessionFile::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let path = Path::new("f");
        assert_eq!(decode_process(&encode_process(&process()), path).unwrap(), process());
        assert_eq!(decode_session(&encode_session(&session()), path).unwrap(), session());
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        let path = Path::new("f");
        let whole = encode_process(&process());
        for len in 0..whole.len() {
            assert!(decode_process(&whole[..len], path).is_err(), "cut at {len}");
        }
        for at in 0..whole.len() {
            // Bytes 12 to 15 are kept for later and not looked at.
            if (12..16).contains(&at) {
                continue;
            }
            let mut changed = whole.clone();
            changed[at] ^= 0x41;
            assert!(decode_process(&changed, path).is_err(), "changed at {at}");
        }
        assert!(matches!(decode_session(&whole, path), Err(MeasurementError::Kind { found: 2, .. })));
        let mut newer = whole.clone();
        newer[7] = b'9';
        assert!(decode_process(&newer, path).unwrap_err().to_string().contains("another version"));
    }

    #[test]
    fn damage_behind_a_right_checksum_never_panics() {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for whole in [encode_process(&process()), encode_session(&session())] {
            for _ in 0..4000 {
                let mut changed = whole.clone();
                for _ in 0..=next() % 3 {
                    let at = HEADER_BYTES + next() as usize % (changed.len() - HEADER_BYTES);
                    changed[at] = next() as u8;
                }
                changed.truncate(changed.len() - (next() % 8) as usize);
                fuzz_measurement(&changed);
            }
        }
    }
}
