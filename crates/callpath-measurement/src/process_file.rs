//! The process file: a log of records, each with what has changed since the one before.
//!
//! ```text
//! record:  0   length    u64: of the payload, bytes
//!          8   checksum  u64: XXH3-64 of the payload; seed: the header's, plus where the record begins in the file
//!          16  payload   numbers as LEB128
//! ```
//!
//! The records before it give a state of the process; a record changes that to the state at its writing. The header's
//! length ends behind the last record that counts.

use std::path::Path;

use callpath_format::frame::FrameKey;
use callpath_format::shared::thread::Dropped;
use callpath_image::identity::ModuleIdentity;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::bytes::{HEADER_BYTES, Header, KIND_PROCESS, Reader, Writer};
use crate::error::MeasurementError;
use crate::session_file::MOST_METRICS;
use crate::tree::{PARTIAL_ROOT, PathTree};
use crate::{ModuleRecord, ProcessFile, SampleTally, Scaling, ThreadProfile};

/// Length and checksum before a record's payload.
const RECORD_HEADER_BYTES: usize = 16;

/// Flags of a process: it was forked; its control group follows.
const FORKED: u32 = 1;
const HAS_GROUP: u32 = 2;

/// The parts of a process that have been written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The process without its threads.
    head: Vec<u8>,
    /// Each thread without its tree.
    threads: Vec<Vec<u8>>,
}

impl Written {
    /// The payload of the record that leads to the process's current state; its threads are passed separately. Its
    /// trees count as written from now on. `None`: nothing has changed.
    pub(crate) fn changes(&mut self, process: &ProcessFile, threads: &mut [&mut ThreadProfile]) -> Option<Vec<u8>> {
        let head = process_head(process);
        let has_changed = head != self.head;
        let changes = self.change_threads(threads);
        (has_changed || changes.count > 0).then(|| self.payload(head, changes))
    }

    /// The payload of a record of the whole process, for a new file; second, the parts that are written with it.
    pub(crate) fn whole(process: &ProcessFile, threads: &mut [&mut ThreadProfile]) -> (Written, Vec<u8>) {
        threads.iter_mut().for_each(|thread| thread.tree.unsettle());
        let mut written = Written::default();
        let changes = written.change_threads(threads);
        let payload = written.payload(process_head(process), changes);
        (written, payload)
    }

    fn change_threads(&mut self, threads: &mut [&mut ThreadProfile]) -> Changes {
        let (mut w, mut count, mut last) = (Writer::default(), 0u64, 0);
        self.threads.resize(threads.len(), Vec::new());
        for (index, (thread, before)) in threads.iter_mut().zip(&mut self.threads).enumerate() {
            let head = thread_head(thread);
            if head == *before && !thread.tree.has_changed() {
                continue;
            }
            w.number((index - last) as u64);
            last = index;
            count += 1;
            w.number(u64::from(head != *before));
            if head != *before {
                w.bytes.extend(&head);
                *before = head;
            }
            encode_changes(&mut w, &mut thread.tree);
        }
        Changes { count, bytes: w.bytes }
    }

    fn payload(&mut self, head: Vec<u8>, changes: Changes) -> Vec<u8> {
        let mut payload = Writer::default();
        payload.number(u64::from(head != self.head));
        if head != self.head {
            payload.bytes.extend(&head);
            self.head = head;
        }
        payload.number(changes.count);
        payload.bytes.extend(changes.bytes);
        payload.bytes
    }
}

/// The changes of a process's threads.
struct Changes {
    /// How many have changed.
    count: u64,
    /// Their bytes in a record.
    bytes: Vec<u8>,
}

/// Length and checksum of a record at offset `at`.
pub(crate) fn record_header(seed: u64, at: u64, payload: &[u8]) -> [u8; RECORD_HEADER_BYTES] {
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..8].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    header[8..].copy_from_slice(&xxh3_64_with_seed(payload, seed.wrapping_add(at)).to_le_bytes());
    header
}

/// The bytes of a file with one record, and the seed of its checksums.
pub(crate) fn whole_file(payload: &[u8]) -> (Vec<u8>, u64) {
    let seed = xxh3_64(payload);
    let len_bytes = (HEADER_BYTES + RECORD_HEADER_BYTES + payload.len()) as u64;
    let mut bytes = Header { len_bytes, checksum: seed }.bytes(KIND_PROCESS).to_vec();
    bytes.extend(record_header(seed, HEADER_BYTES as u64, payload));
    bytes.extend(payload);
    (bytes, seed)
}

/// The bytes of a process's file, all in one record.
pub fn encode_process(process: &ProcessFile) -> Vec<u8> {
    let mut threads = process.threads.clone();
    whole_file(&Written::whole(process, &mut threads.iter_mut().collect::<Vec<_>>()).1).0
}

fn process_head(process: &ProcessFile) -> Vec<u8> {
    let mut w = Writer::default();
    let has_group = !process.control_group.is_empty();
    let flags = if process.forked { FORKED } else { 0 } | if has_group { HAS_GROUP } else { 0 };
    for number in [process.pid, process.parent_pid, process.sequence, flags] {
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
    w.number(process.scalings.len() as u64);
    for scaling in &process.scalings {
        w.number(scaling.metric as u64);
        w.number(scaling.by);
        w.number(scaling.of);
    }
    if has_group {
        w.string(&process.control_group);
    }
    w.bytes
}

fn thread_head(thread: &ThreadProfile) -> Vec<u8> {
    let mut w = Writer::default();
    w.number(u64::from(thread.tid));
    w.number(thread.count);
    w.string(&thread.name);
    w.number(u64::from(thread.start.is_some()));
    if let Some(FrameKey(key)) = thread.start {
        w.number(key);
    }
    let tally = &thread.tally;
    for number in [tally.taken, tally.full, tally.partial, tally.raw_kept] {
        w.number(number);
    }
    w.number(tally.dropped.len() as u64);
    for number in tally.dropped {
        w.number(number);
    }
    for number in [tally.unfinished, tally.handler_ns, tally.handler_max_ns, tally.frames] {
        w.number(number);
    }
    w.number(tally.handler_histogram.len() as u64);
    for number in &tally.handler_histogram {
        w.number(*number);
    }
    w.bytes
}

/// New nodes: distance back to the parent, module and address, cost. Then the old
/// ones that have changed: how many lie between, cost.
fn encode_changes(w: &mut Writer, tree: &mut PathTree) {
    let (first, changed) = tree.settle();
    let nodes = tree.nodes();
    w.number((nodes.len() - first) as u64);
    for (index, node) in nodes.iter().enumerate().skip(first) {
        w.number(index as u64 - u64::from(node.parent));
        w.number(u64::from(node.key.module().0));
        w.number(node.key.address());
        encode_cost(w, tree, index as u32);
    }
    w.number(changed.len() as u64);
    let mut next = 0;
    for node in changed {
        w.number(u64::from(node - next));
        next = node;
        encode_cost(w, tree, node);
    }
}

/// Samples, and each metric that is not 0: how many metrics lie between and whether another one follows, value.
fn encode_cost(w: &mut Writer, tree: &PathTree, node: u32) {
    let samples = tree.nodes()[node as usize].samples;
    let mut values = tree.values(node).peekable();
    w.number(samples << 1 | u64::from(values.peek().is_some()));
    let mut last = 0;
    while let Some((metric, value)) = values.next() {
        w.number(((metric - last) as u64) << 1 | u64::from(values.peek().is_some()));
        w.number(value);
        last = metric;
    }
}

/// A process file from its bytes; second, the error if only its end cannot be read. `path` is for errors only.
pub fn decode_process(bytes: &[u8], path: &Path) -> Result<(ProcessFile, Option<MeasurementError>), MeasurementError> {
    let header = Header::read(bytes, path, KIND_PROCESS)?;
    let (mut process, mut at, mut tail) = (ProcessFile::default(), HEADER_BYTES, None);
    let end = usize::try_from(header.len_bytes).unwrap_or(usize::MAX);
    if end <= HEADER_BYTES {
        return Err(MeasurementError::NoRecord { path: path.to_owned() });
    }
    // Bytes behind the end are being written, or were when the recorder was killed.
    let records = Records { bytes: bytes.get(..end).unwrap_or(bytes), header: &header, found_bytes: bytes.len(), path };
    while at < end {
        match records.replay(at, &mut process) {
            Ok(next) => at = next,
            // Only a record that was not written, or was overwritten, is distinguished from one that was never valid.
            Err(error @ MeasurementError::Content { .. }) => return Err(error),
            Err(error) if at == HEADER_BYTES => return Err(error),
            Err(error) => {
                let why = error.to_string();
                tail = Some(MeasurementError::Tail { path: path.to_owned(), offset: at, why });
                break;
            }
        }
    }
    for scaling in &process.scalings {
        for thread in &mut process.threads {
            thread.tree.scale(scaling.metric, scaling.by, scaling.of);
        }
    }
    process.scalings.clear();
    Ok((process, tail))
}

/// The records of a file.
struct Records<'b> {
    /// The file, header included, up to the header's length.
    bytes: &'b [u8],
    header: &'b Header,
    /// How long the file is.
    found_bytes: usize,
    /// For errors only.
    path: &'b Path,
}

impl Records<'_> {
    /// Applies the record at `at` and returns where the next one begins. A record with a right checksum but invalid
    /// content is an error, which leaves the process in any state.
    fn replay(&self, at: usize, process: &mut ProcessFile) -> Result<usize, MeasurementError> {
        let Records { bytes, header, found_bytes: found, path } = *self;
        let cut =
            || MeasurementError::Length { path: path.to_owned(), expected: header.len_bytes, found: found as u64 };
        let payload_at = at + RECORD_HEADER_BYTES;
        let record: &[u8; RECORD_HEADER_BYTES] = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(cut)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let end = usize::try_from(word(0)).ok().and_then(|len| payload_at.checked_add(len)).ok_or_else(cut)?;
        let payload = bytes.get(payload_at..end).ok_or_else(cut)?;
        if word(8) != xxh3_64_with_seed(payload, header.checksum.wrapping_add(at as u64)) {
            return Err(MeasurementError::Checksum { path: path.to_owned(), offset: payload_at });
        }
        let mut r = Reader::part(&bytes[..end], payload_at, path);
        match r.number()? {
            0 if at == HEADER_BYTES => return Err(r.error("a first record that does not name the process")),
            0 => {}
            _ => decode_head(&mut r, process)?,
        }
        let mut index = 0usize;
        for place in 0..r.count(4)? {
            let gap = usize::try_from(r.number()?).map_err(|_| r.error("thread"))?;
            if place > 0 && gap == 0 {
                return Err(r.error("thread"));
            }
            index = index.saturating_add(gap);
            if index > process.threads.len() {
                return Err(r.error("thread"));
            }
            let has_head = r.number()? != 0;
            if index == process.threads.len() {
                process.threads.push(ThreadProfile { tree: PathTree::without_nodes(), ..ThreadProfile::default() });
            }
            let thread = &mut process.threads[index];
            if has_head {
                decode_thread_head(&mut r, thread)?;
            }
            decode_changes(&mut r, &mut thread.tree, process.metric_count)?;
        }
        r.finish()?;
        Ok(end)
    }
}

fn decode_head(r: &mut Reader<'_>, process: &mut ProcessFile) -> Result<(), MeasurementError> {
    let (pid, parent_pid, sequence) = (r.number()? as u32, r.number()? as u32, r.number()? as u32);
    let flags = u32::try_from(r.number()?).ok().filter(|flags| flags & !(FORKED | HAS_GROUP) == 0);
    let flags = flags.ok_or_else(|| r.error("flags of a process"))?;
    let head = ProcessFile {
        pid,
        parent_pid,
        sequence,
        forked: flags & FORKED != 0,
        program: r.path()?,
        command: r.strings()?,
        started_ns: r.number()?,
        ended_ns: r.number()?.checked_sub(1),
        metric_count: r.number()? as u32,
        ..ProcessFile::default()
    };
    *process = ProcessFile { threads: std::mem::take(&mut process.threads), ..head };
    for count in &mut process.dropped_unrecorded {
        *count = r.number()?;
    }
    if process.metric_count as usize > MOST_METRICS {
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
    for _ in 0..r.count(3)? {
        let metric = usize::try_from(r.number()?).unwrap_or(usize::MAX);
        process.scalings.push(Scaling { metric, by: r.number()?, of: r.number()? });
    }
    if flags & HAS_GROUP != 0 {
        process.control_group = r.string()?;
    }
    if process.scalings.len() > process.metric_count as usize {
        return Err(r.error("number of scalings"));
    }
    Ok(())
}

fn decode_thread_head(r: &mut Reader<'_>, thread: &mut ThreadProfile) -> Result<(), MeasurementError> {
    (thread.tid, thread.count, thread.name) = (r.number()? as u32, r.number()?, r.string()?);
    thread.start = if r.number()? != 0 { Some(FrameKey(r.number()?)) } else { None };
    thread.tally = decode_tally(r)?;
    Ok(())
}

fn decode_tally(r: &mut Reader<'_>) -> Result<SampleTally, MeasurementError> {
    let mut tally = SampleTally {
        taken: r.number()?,
        full: r.number()?,
        partial: r.number()?,
        raw_kept: r.number()?,
        ..SampleTally::default()
    };
    if r.number()? != Dropped::COUNT as u64 {
        return Err(r.error("number of reasons for dropping"));
    }
    for reason in &mut tally.dropped {
        *reason = r.number()?;
    }
    tally.unfinished = r.number()?;
    tally.handler_ns = r.number()?;
    tally.handler_max_ns = r.number()?;
    tally.frames = r.number()?;
    for _ in 0..r.count(1)? {
        tally.handler_histogram.push(r.number()?);
    }
    Ok(tally)
}

fn decode_changes(r: &mut Reader<'_>, tree: &mut PathTree, metric_count: u32) -> Result<(), MeasurementError> {
    let (before, count) = (tree.nodes().len(), r.count(4)?);
    tree.reserve(count);
    for index in before..before + count {
        let back = r.number()?;
        let parent = (index as u64).checked_sub(back).ok_or_else(|| r.error("parent"))? as u32;
        if (back == 0) != (index <= PARTIAL_ROOT as usize) {
            return Err(r.error("parent"));
        }
        let (module, address) = (r.number()?, r.number()?);
        if module > u64::from(u16::MAX) || address >> 48 != 0 {
            return Err(r.error("frame"));
        }
        // A path is in a tree once.
        if !tree.append(parent, FrameKey(module << 48 | address)) {
            return Err(r.error("node"));
        }
        decode_cost(r, tree, index as u32, metric_count)?;
    }
    if tree.nodes().len() <= PARTIAL_ROOT as usize {
        return Err(r.error("number of nodes"));
    }
    let mut node = 0u32;
    for _ in 0..r.count(2)? {
        let gap = u32::try_from(r.number()?).ok();
        node = gap.and_then(|gap| node.checked_add(gap)).ok_or_else(|| r.error("node"))?;
        if node as usize >= before {
            return Err(r.error("node"));
        }
        decode_cost(r, tree, node, metric_count)?;
    }
    Ok(())
}

fn decode_cost(r: &mut Reader<'_>, tree: &mut PathTree, node: u32, metric_count: u32) -> Result<(), MeasurementError> {
    let samples = r.number()?;
    tree.set_samples(node, samples >> 1);
    let (mut follows, mut metric, mut is_first) = (samples & 1 != 0, 0u64, true);
    while follows {
        let gap = r.number()?;
        follows = gap & 1 != 0;
        metric = metric.saturating_add(gap >> 1);
        if metric >= u64::from(metric_count) || (!is_first && gap >> 1 == 0) {
            return Err(r.error("metric"));
        }
        is_first = false;
        let value = r.number()?;
        tree.set_value(node, metric as usize, value);
    }
    Ok(())
}
