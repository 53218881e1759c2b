//! pprof's profile.proto, gzipped: <https://github.com/google/pprof/blob/main/proto/profile.proto>.
//!
//! A location is a frame of the stack: a line for its procedure, and one for each inlined call and loop around the
//! instruction, innermost first, as the format has it for inlined calls. Each metric that adds up is a sample type. Fields are
//! written in the order in which they are met, which the encoding allows.

use std::io::{self, Write};

use callpath_db::{MetricKind, MetricType, Name, ScopeKind};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;

use super::exported::Exported;
use super::protobuf::Message;
use super::units::Units;

/// Fields of `Profile`.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING: u32 = 6;
    pub(super) const TIME_NS: u32 = 9;
    pub(super) const DURATION_NS: u32 = 10;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Output is compressed in pieces of about this size.
const BLOCK_BYTES: usize = 1 << 16;

/// A chain of lines, from a procedure inwards: the chain around it (0: none), the function, the line in it.
type Chain = (u32, u32, u32);

/// A function: name, file, line, and the module that it is in.
type Function = (String, Option<Name>, u32, Option<Name>);

/// What was written already, and what was not passed on yet.
#[derive(Default)]
struct Tables {
    written: Message,
    strings: FxHashMap<String, u64>,
    functions: FxHashMap<Function, u32>,
    /// By node, its function once that is known; 0 before.
    function_of: Vec<u32>,
    /// For each function, the mapping of its module.
    mapping_of: Vec<u64>,
    mappings: FxHashMap<Name, u64>,
    chains: FxHashMap<Chain, u32>,
    /// By number less one.
    chain_list: Vec<Chain>,
    /// By chain less one, whether it is a location yet.
    is_location: Vec<bool>,
}

pub(super) fn write(source: &Exported<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    let mut tables = Tables::default();
    tables.string("");
    let metrics = metrics(source);
    head(&mut tables, source, &metrics);
    let units = Units::new(source);
    let mut tables = Tables { function_of: vec![0; source.view.nodes.len()], ..tables };
    let (mut locations, mut values) = (Vec::new(), Vec::new());
    for node in 0..source.view.nodes.len() {
        let cost = source.view.exclusive(node);
        values.clear();
        values.extend(metrics.iter().map(|metric| cost.get(*metric)));
        if values.iter().all(|value| *value == 0) {
            continue;
        }
        tables.path(source, node, &mut locations);
        let mut sample = Message::default();
        sample.packed(1, locations.iter().copied()).packed(2, values.iter().copied());
        let unit = &units.list[units.of(node)];
        let (process, pid) = (&unit.process.0, unit.process.1);
        let thread = unit.thread.as_ref().map(|(name, tid)| (name.as_str(), *tid));
        for (key, text) in [("process", Some(process.as_str())), ("thread", thread.map(|(name, _)| name))] {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                let (key, text) = (tables.string(key), tables.string(text));
                sample.message(3, Message::default().integer(1, key).integer(2, text));
            }
        }
        for (key, id) in [("pid", pid), ("tid", thread.map_or(0, |(_, tid)| tid))] {
            if id != 0 {
                let key = tables.string(key);
                sample.message(3, Message::default().integer(1, key).integer(3, id));
            }
        }
        tables.written.message(field::SAMPLE, &sample);
        if tables.written.len() >= BLOCK_BYTES {
            out.write_all(&tables.written.take())?;
        }
    }
    out.write_all(&tables.written.take())?;
    out.finish()?;
    Ok(())
}

/// The columns that are written, the one that was asked for first.
fn metrics(source: &Exported<'_>) -> Vec<usize> {
    let adds_up = |column: &usize| {
        let metric = &source.profile.metrics[*column];
        let is_integer = matches!(metric.value, MetricType::Integer | MetricType::Signed);
        metric.kind == MetricKind::Sum && is_integer
    };
    let fits = |column: &usize| source.view.inclusive(0).get(*column) <= i64::MAX as u64;
    let others = (0..source.profile.metrics.len()).filter(|column| *column != source.metric);
    std::iter::once(source.metric).chain(others.filter(adds_up).filter(fits)).collect()
}

fn head(tables: &mut Tables, source: &Exported<'_>, metrics: &[usize]) {
    for metric in metrics {
        let metric = &source.profile.metrics[*metric];
        let unit = if metric.unit == "ns" { "nanoseconds" } else { &metric.unit };
        let (name, unit) = (tables.string(&metric.name), tables.string(unit));
        tables.written.message(field::SAMPLE_TYPE, Message::default().integer(1, name).integer(2, unit));
    }
    let info = &source.profile.info;
    let name = tables.string(source.metric_name());
    tables.written.integer(field::DEFAULT_SAMPLE_TYPE, name);
    tables.written.integer(field::TIME_NS, info.started_unix_ns).integer(field::DURATION_NS, info.duration_ns);
    if !info.command.is_empty() {
        let comment = tables.string(&info.command.join(" "));
        tables.written.integer(field::COMMENT, comment);
    }
}

impl Tables {
    /// Puts the locations of `node`'s path into `locations`, innermost first.
    fn path(&mut self, source: &Exported<'_>, node: usize, locations: &mut Vec<u64>) {
        let mut lines = Vec::new();
        locations.clear();
        let mut line = None;
        let mut next = Some(node);
        while let Some(at) = next {
            let shown = &source.view.nodes[at];
            let scope = &shown.scope;
            next = shown.parent;
            match scope.kind {
                ScopeKind::Line => {
                    line = line.or(scope.line);
                    continue;
                }
                // Labels of the sample.
                ScopeKind::Root | ScopeKind::Process | ScopeKind::Rank | ScopeKind::Thread if at != node => break,
                _ => {}
            }
            if self.function_of[at] == 0 {
                self.function_of[at] = self.function(source, at);
            }
            let is_loop = scope.kind == ScopeKind::Loop;
            lines.push((self.function_of[at], line.or(scope.line.filter(|_| is_loop)).unwrap_or(0)));
            line = if is_loop { scope.line } else { scope.call_site.map(|site| site.line) };
            if !matches!(scope.kind, ScopeKind::Loop | ScopeKind::Inlined) {
                locations.push(self.location(&lines));
                lines.clear();
            }
        }
        if !lines.is_empty() {
            locations.push(self.location(&lines));
        }
    }

    /// A string's number. What is new is written.
    fn string(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let number = self.strings.len() as u64;
        self.strings.insert(text.to_owned(), number);
        self.written.bytes(field::STRING, text.as_bytes());
        number
    }

    /// The number of a node's function.
    fn function(&mut self, source: &Exported<'_>, node: usize) -> u32 {
        let scope = &source.view.nodes[node].scope;
        let key = (source.name(node), scope.file, scope.line.unwrap_or(0), scope.module);
        if let Some(&known) = self.functions.get(&key) {
            return known;
        }
        let name = self.string(&key.0);
        let file = source.text(scope.file).map_or(0, |file| self.string(file));
        let number = self.functions.len() as u32 + 1;
        let mut function = Message::default();
        function.integer(1, u64::from(number)).integer(2, name).integer(3, name).integer(4, file);
        function.integer(5, u64::from(key.2));
        self.written.message(field::FUNCTION, &function);
        self.functions.insert(key, number);
        let mapping = scope.module.map_or(0, |module| self.mapping(source, module));
        self.mapping_of.push(mapping);
        number
    }

    /// The number of a module's mapping.
    fn mapping(&mut self, source: &Exported<'_>, module: Name) -> u64 {
        if let Some(&known) = self.mappings.get(&module) {
            return known;
        }
        let number = self.mappings.len() as u64 + 1;
        let file = self.string(source.profile.strings.get(module));
        let mut mapping = Message::default();
        mapping.integer(1, number).integer(5, file);
        // It has functions, files, lines and inlined calls: pprof need not look for the binary.
        (7..=10).for_each(|field| {
            mapping.integer(field, 1);
        });
        self.written.message(field::MAPPING, &mapping);
        self.mappings.insert(module, number);
        number
    }

    /// The number of the location with these (function, line), innermost first.
    fn location(&mut self, lines: &[(u32, u32)]) -> u64 {
        let mut chain = 0;
        for &(function, line) in lines.iter().rev() {
            let key = (chain, function, line);
            let next = self.chain_list.len() as u32 + 1;
            chain = *self.chains.entry(key).or_insert(next);
            if chain == next {
                self.chain_list.push(key);
                self.is_location.push(false);
            }
        }
        let number = u64::from(chain);
        if !std::mem::replace(&mut self.is_location[chain as usize - 1], true) {
            let outermost = lines.last().map_or(0, |(function, _)| self.mapping_of[*function as usize - 1]);
            let mut location = Message::default();
            location.integer(1, number).integer(2, outermost);
            for &(function, line) in lines {
                location.message(4, Message::default().integer(1, u64::from(function)).integer(2, u64::from(line)));
            }
            self.written.message(field::LOCATION, &location);
        }
        number
    }
}
