//! The processed profile format of profiler.firefox.com, version 57. Newer releases of the profiler bring it up to theirs when they load it:
//! <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md>.
//!
//! The samples of a thread are its contexts, each with its cost as its weight, one after the other in the order of the tree:
//! the time of a sample is what was spent up to its end. Inlined calls and loops are frames with an inline depth below their
//! procedure's symbol.

use std::hash::Hash;
use std::io::{self, Write};

use callpath_db::{MetricId, Name, ScopeKind};
use rustc_hash::FxHashMap;

use super::exported::{CREATOR, Exported};
use super::units::{Unit, Units};
use crate::json::string;
use crate::text::printable;

const VERSION: u32 = 57;

/// Output is passed on in pieces of about this size.
const BLOCK_BYTES: usize = 1 << 16;

/// Names and colours of the kinds of frames; a frame's category is the index. The first is the default.
const CATEGORIES: [(&str, &str); 6] = [
    ("Other", "grey"),
    ("Procedure", "yellow"),
    ("Inlined", "lightblue"),
    ("Loop", "green"),
    ("System call", "orange"),
    ("Incomplete path", "red"),
];

fn category(kind: ScopeKind) -> usize {
    match kind {
        ScopeKind::Procedure => 1,
        ScopeKind::Inlined => 2,
        ScopeKind::Loop => 3,
        ScopeKind::SystemCall => 4,
        ScopeKind::Partial | ScopeKind::Truncated | ScopeKind::Gap => 5,
        _ => 0,
    }
}

/// Rows that are kept once.
struct Table<T> {
    rows: Vec<T>,
    index: FxHashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { rows: Vec::new(), index: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn of(&mut self, row: T) -> u32 {
        if let Some(&known) = self.index.get(&row) {
            return known;
        }
        let number = self.rows.len() as u32;
        self.rows.push(row.clone());
        self.index.insert(row, number);
        number
    }
}

/// name (a string), file (a string), line, resource
type Func = (u32, Option<u32>, Option<u32>, Option<u32>);

/// A symbol of the procedure that a frame's code is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Symbol {
    lib: u32,
    address: u64,
    name: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Frame {
    func: u32,
    line: Option<u32>,
    inline_depth: u32,
    symbol: Option<u32>,
    category: usize,
}

/// What all threads have in common.
#[derive(Default)]
struct Shared {
    strings: Table<String>,
    /// Modules by name.
    libs: Table<Name>,
    /// By node, what it is as a frame, once that is known.
    shown: Vec<Option<Shown>>,
}

#[derive(Default)]
struct Thread {
    /// A lib each, and its name.
    resources: Table<(u32, u32)>,
    symbols: Table<Symbol>,
    funcs: Table<Func>,
    frames: Table<Frame>,
    /// Stack above, and frame.
    stacks: Table<(Option<u32>, u32)>,
    /// Stack and weight of each sample.
    samples: Vec<(u32, u64)>,
}

/// A node as a frame.
#[derive(Clone, Copy)]
struct Shown {
    /// The stack of its caller, at the line of the call.
    prefix: Option<u32>,
    /// The frame but for its line.
    frame: Frame,
}

pub(super) fn write(source: &Exported<'_>, out: &mut dyn Write) -> io::Result<()> {
    let units = Units::new(source);
    let mut shared = Shared { shown: vec![None; source.view.nodes.len()], ..Shared::default() };
    let mut json = Json { bytes: Vec::with_capacity(2 * BLOCK_BYTES), out };
    head(&mut json, source)?;
    let mut is_first = true;
    for (index, unit) in units.list.iter().enumerate().filter(|(_, unit)| unit.cost > 0) {
        json.bytes.extend_from_slice(if is_first { b"\n" } else { b",\n" });
        is_first = false;
        let thread = thread(source, &units, index, &mut shared);
        write_thread(&mut json, source, unit, &thread)?;
    }
    json.bytes.extend_from_slice(b"],\n\"libs\":[");
    let libs = std::mem::take(&mut shared.libs.rows);
    json.list(&libs, |bytes, module| {
        let name = source.profile.strings.get(*module);
        bytes.extend_from_slice(b"{\"arch\":null,\"codeId\":null,\"breakpadId\":\"\"");
        for key in ["name", "path", "debugName", "debugPath"] {
            write!(bytes, ",\"{key}\":")?;
            string(bytes, name)?;
        }
        bytes.push(b'}');
        Ok(())
    })?;
    json.bytes.extend_from_slice(b"],\n\"shared\":{\"stringArray\":[");
    json.list(&shared.strings.rows, |bytes, text| string(bytes, text))?;
    json.bytes.extend_from_slice(b"]}}\n");
    json.out.write_all(&json.bytes)
}

fn head(json: &mut Json<'_>, source: &Exported<'_>) -> io::Result<()> {
    let info = &source.profile.info;
    let bytes = &mut json.bytes;
    write!(bytes, "{{\"meta\":{{\"preprocessedProfileVersion\":{VERSION},\"version\":31,\"interval\":1")?;
    write!(bytes, ",\"startTime\":{},\"product\":", info.started_unix_ns / 1_000_000)?;
    string(bytes, &source.marked_name(0))?;
    bytes.extend_from_slice(b",\"importedFrom\":");
    string(bytes, CREATOR)?;
    bytes.extend_from_slice(b",\"arguments\":");
    string(bytes, &info.command.join(" "))?;
    bytes.extend_from_slice(b",\"processType\":0,\"stackwalk\":1,\"debug\":false,\"symbolicated\":true");
    bytes.extend_from_slice(b",\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true");
    bytes.extend_from_slice(
        b",\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"}\
          ,\"markerSchema\":[],\"extensions\":{\"baseURL\":[],\"id\":[],\"length\":0,\"name\":[]}",
    );
    bytes.extend_from_slice(b",\"categories\":[");
    json.list(&CATEGORIES, |bytes, (name, color)| {
        write!(bytes, "{{\"name\":\"{name}\",\"color\":\"{color}\",\"subcategories\":[\"Other\"]}}")
    })?;
    json.bytes.extend_from_slice(b"]},\n\"pages\":[],\"threads\":[");
    Ok(())
}

/// The tables of one unit.
fn thread(source: &Exported<'_>, units: &Units, unit: usize, shared: &mut Shared) -> Thread {
    let mut frames = Frames { source, shared, thread: Thread::default() };
    for node in units.nodes(source, unit) {
        if source.inclusive(node) == 0 {
            continue;
        }
        let here = &source.view.nodes[node];
        let above = here.parent.and_then(|parent| frames.shared.shown[parent]);
        let scope = &here.scope;
        let cost = source.exclusive(node);
        let is_unit = node == units.list[unit].node;
        let frame = match scope.kind {
            ScopeKind::Line => above,
            _ if is_unit && cost == 0 => None,
            ScopeKind::Loop => Some(frames.shown(node, above, scope.line)),
            _ => Some(frames.shown(node, above, scope.call_site.map(|site| site.line))),
        };
        // What is below a unit's own node is called by nothing.
        frames.shared.shown[node] = frame.filter(|_| !is_unit);
        if let (1.., Some(frame)) = (cost, frame) {
            let line = scope.line.filter(|_| matches!(scope.kind, ScopeKind::Line | ScopeKind::Loop));
            let stack = frames.thread.stack(frame, line);
            frames.thread.samples.push((stack, cost));
        }
    }
    frames.thread
}

/// A thread whose tables are being filled.
struct Frames<'a> {
    source: &'a Exported<'a>,
    shared: &'a mut Shared,
    thread: Thread,
}

impl Frames<'_> {
    /// A node that is called at `site`, a line of `above`.
    fn shown(&mut self, node: usize, above: Option<Shown>, site: Option<u32>) -> Shown {
        let Frames { source, shared, thread } = self;
        let scope = &source.view.nodes[node].scope;
        let prefix = above.map(|above| thread.stack(above, site));
        let is_inside = matches!(scope.kind, ScopeKind::Inlined | ScopeKind::Loop);
        let name = shared.strings.of(source.name(node));
        let lib = scope.module.map(|module| shared.libs.of(module));
        let file = source.text(scope.file).map(|file| shared.strings.of(file.to_owned()));
        let resource = lib.zip(source.text(scope.module)).map(|(lib, module)| {
            let name = shared.strings.of(printable(module));
            thread.resources.of((lib, name))
        });
        let func = thread.funcs.of((name, file, scope.line, resource));
        let (symbol, inline_depth) = match above {
            Some(above) if is_inside => (above.frame.symbol, above.frame.inline_depth + 1),
            _ => {
                let symbol = |lib| Symbol { lib, address: scope.address.unwrap_or(0), name };
                (lib.map(|lib| thread.symbols.of(symbol(lib))), 0)
            }
        };
        Shown { prefix, frame: Frame { func, line: None, inline_depth, symbol, category: category(scope.kind) } }
    }
}

impl Thread {
    /// The stack that ends in a line of this frame.
    fn stack(&mut self, shown: Shown, line: Option<u32>) -> u32 {
        let frame = self.frames.of(Frame { line, ..shown.frame });
        self.stacks.of((shown.prefix, frame))
    }
}

fn write_thread(json: &mut Json<'_>, source: &Exported<'_>, unit: &Unit, thread: &Thread) -> io::Result<()> {
    let (process, pid) = &unit.process;
    let (name, tid) = unit.thread.as_ref().map_or((process, *pid), |(name, tid)| (name, *tid));
    json.bytes.extend_from_slice(b"{\"name\":");
    string(&mut json.bytes, name)?;
    json.bytes.extend_from_slice(b",\"processName\":");
    string(&mut json.bytes, process)?;
    write!(json.bytes, ",\"pid\":\"{pid}\",\"tid\":{tid},\"isMainThread\":{}", *pid == tid)?;
    json.bytes.extend_from_slice(
        b",\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":null\
          ,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[]\
          ,\"markers\":{\"length\":0,\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],\"phase\":[],\"category\":[]}",
    );

    let in_ns = source.unit() == "ns";
    let weight_type = match source.unit() {
        "ns" => "tracing-ms",
        "bytes" => "bytes",
        _ => "samples",
    };
    json.table("samples", thread.samples.len())?;
    write!(json.bytes, ",\"weightType\":\"{weight_type}\"")?;
    json.column("stack", &thread.samples, |bytes, (stack, _)| write!(bytes, "{stack}"))?;
    json.column("weight", &thread.samples, |bytes, (_, cost)| amount(bytes, *cost, in_ns))?;
    let mut at = 0;
    json.column("time", &thread.samples, |bytes, (_, cost)| {
        at += cost;
        amount(bytes, at, in_ns)
    })?;
    if source.profile.metrics[source.metric].id == Some(MetricId::CPU_TIME) {
        json.column("threadCPUDelta", &thread.samples, |bytes, (_, cost)| write!(bytes, "{cost}"))?;
    }
    json.bytes.push(b'}');

    json.table("stackTable", thread.stacks.rows.len())?;
    json.column("prefix", &thread.stacks.rows, |bytes, (prefix, _)| number(bytes, *prefix))?;
    json.column("frame", &thread.stacks.rows, |bytes, (_, frame)| write!(bytes, "{frame}"))?;
    json.bytes.push(b'}');

    let frames = &thread.frames.rows;
    json.table("frameTable", frames.len())?;
    json.column("address", frames, |bytes, _| write!(bytes, "-1"))?;
    json.column("inlineDepth", frames, |bytes, frame| write!(bytes, "{}", frame.inline_depth))?;
    json.column("category", frames, |bytes, frame| write!(bytes, "{}", frame.category))?;
    json.column("subcategory", frames, |bytes, _| write!(bytes, "0"))?;
    json.column("func", frames, |bytes, frame| write!(bytes, "{}", frame.func))?;
    json.column("nativeSymbol", frames, |bytes, frame| number(bytes, frame.symbol))?;
    json.column("innerWindowID", frames, |bytes, _| write!(bytes, "0"))?;
    json.column("line", frames, |bytes, frame| number(bytes, frame.line))?;
    json.column("column", frames, |bytes, _| write!(bytes, "null"))?;
    json.bytes.push(b'}');

    let funcs = &thread.funcs.rows;
    json.table("funcTable", funcs.len())?;
    json.column("name", funcs, |bytes, (name, ..)| write!(bytes, "{name}"))?;
    json.column("isJS", funcs, |bytes, _| write!(bytes, "false"))?;
    json.column("relevantForJS", funcs, |bytes, _| write!(bytes, "false"))?;
    json.column("resource", funcs, |bytes, (.., resource)| match resource {
        Some(resource) => write!(bytes, "{resource}"),
        None => write!(bytes, "-1"),
    })?;
    json.column("fileName", funcs, |bytes, (_, file, ..)| number(bytes, *file))?;
    json.column("lineNumber", funcs, |bytes, (_, _, line, _)| number(bytes, *line))?;
    json.column("columnNumber", funcs, |bytes, _| write!(bytes, "null"))?;
    json.bytes.push(b'}');

    let resources = &thread.resources.rows;
    json.table("resourceTable", resources.len())?;
    json.column("lib", resources, |bytes, (lib, _)| write!(bytes, "{lib}"))?;
    json.column("name", resources, |bytes, (_, name)| write!(bytes, "{name}"))?;
    json.column("host", resources, |bytes, _| write!(bytes, "null"))?;
    // 1: a library.
    json.column("type", resources, |bytes, _| write!(bytes, "1"))?;
    json.bytes.push(b'}');

    let symbols = &thread.symbols.rows;
    json.table("nativeSymbols", symbols.len())?;
    json.column("libIndex", symbols, |bytes, symbol| write!(bytes, "{}", symbol.lib))?;
    json.column("address", symbols, |bytes, symbol| write!(bytes, "{}", symbol.address))?;
    json.column("name", symbols, |bytes, symbol| write!(bytes, "{}", symbol.name))?;
    json.column("functionSize", symbols, |bytes, _| write!(bytes, "null"))?;
    json.bytes.extend_from_slice(b"}}");
    Ok(())
}

fn number(bytes: &mut Vec<u8>, value: Option<u32>) -> io::Result<()> {
    match value {
        Some(value) => write!(bytes, "{value}"),
        None => write!(bytes, "null"),
    }
}

/// Of nanoseconds, milliseconds with all their digits.
fn amount(bytes: &mut Vec<u8>, cost: u64, in_ns: bool) -> io::Result<()> {
    match in_ns {
        true => write!(bytes, "{}.{:06}", cost / 1_000_000, cost % 1_000_000),
        false => write!(bytes, "{cost}"),
    }
}

/// Output that is passed on in pieces.
struct Json<'a> {
    bytes: Vec<u8>,
    out: &'a mut dyn Write,
}

impl Json<'_> {
    /// Opens a table of the thread's.
    fn table(&mut self, name: &str, len: usize) -> io::Result<()> {
        write!(self.bytes, ",\n\"{name}\":{{\"length\":{len}")
    }

    fn column<T>(
        &mut self,
        name: &str,
        rows: &[T],
        value: impl FnMut(&mut Vec<u8>, &T) -> io::Result<()>,
    ) -> io::Result<()> {
        write!(self.bytes, ",\"{name}\":[")?;
        self.list(rows, value)?;
        self.bytes.push(b']');
        Ok(())
    }

    fn list<T>(&mut self, rows: &[T], mut value: impl FnMut(&mut Vec<u8>, &T) -> io::Result<()>) -> io::Result<()> {
        for (number, row) in rows.iter().enumerate() {
            if number > 0 {
                self.bytes.push(b',');
            }
            value(&mut self.bytes, row)?;
            if self.bytes.len() >= BLOCK_BYTES {
                self.out.write_all(&self.bytes)?;
                self.bytes.clear();
            }
        }
        Ok(())
    }
}
