//! A view as JSON, schema 2: one object with metrics, quality, what ran, and a flat array of nodes in preorder.
//! It leaves nothing out.
//!
//! Written as it goes, a line per node: a million nodes need no more memory than the view itself. Node 0 is the root;
//! `parent` is an index into the array. A flat array, because JSON parsers give up on deep nesting (Python's at about
//! 500 levels, serde_json's at 128).

mod inferred;

use std::borrow::Cow;
use std::io::{self, Write};

use crate::histogram::groups;
use crate::ranks_json;
use crate::text::acts_on_terminals;
use callpath_db::exact::ExactQuality;
use callpath_db::{
    CpuTime, Formula, Metric, MetricKind, MetricType, Name, ProbeAccount, Profile, Quality, RefusedProbe, Row,
    ScopeKind, Value, View,
};

/// The number that a reader checks before all else.
pub const SCHEMA: u32 = 2;

/// Output is passed on in pieces of about this size.
const BLOCK_BYTES: usize = 1 << 16;

/// Writes `view`, an answer of `profile`, to `out`, and a newline. Integers are exact; strings are escaped as JSON asks
/// and never shortened.
pub fn write(view: &View, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    write_columns(view, profile, profile.metrics.len(), out)
}

/// The same with the first `columns` metrics alone.
pub fn write_columns(view: &View, profile: &Profile, columns: usize, out: &mut dyn Write) -> io::Result<()> {
    let metrics = profile.metrics.get(..columns).unwrap_or(&profile.metrics);
    let certainties = inferred::certainties(view, profile);
    let shown = Shown { view, profile, metrics, certainties: &certainties };
    let mut json = Vec::with_capacity(2 * BLOCK_BYTES);
    head(&mut json, &shown)?;
    for node in 0..view.nodes.len() {
        json.extend_from_slice(if node == 0 { b"" } else { b",\n" });
        write_node(&mut json, &shown, node)?;
        if json.len() >= BLOCK_BYTES {
            out.write_all(&json)?;
            json.clear();
        }
    }
    json.extend_from_slice(b"\n]}\n");
    out.write_all(&json)
}

/// Writes how the samples of `profile` were accounted for, and what ran: what the JSON of each view has, too.
pub fn quality(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut json = format!("{{\"schema\":{SCHEMA},\"view\":\"quality\",\n\"quality\":").into_bytes();
    write_quality(&mut json, &profile.quality)?;
    json.extend_from_slice(b",\n\"run\":");
    run(&mut json, profile)?;
    json.extend_from_slice(b"}\n");
    out.write_all(&json)
}

/// What is written.
struct Shown<'a> {
    view: &'a View,
    profile: &'a Profile,
    metrics: &'a [Metric],
    /// Of each node, where call paths were inferred.
    certainties: &'a [Option<&'static str>],
}

fn head(json: &mut Vec<u8>, shown: &Shown<'_>) -> io::Result<()> {
    let Shown { view, profile, metrics, .. } = *shown;
    write!(json, "{{\"schema\":{SCHEMA},\"view\":\"{}\",\n\"metrics\":[", view.kind.word())?;
    for (first, columns) in groups(metrics) {
        let metric = &metrics[first];
        json.extend_from_slice(if first == 0 { b"{\"name\":" } else { b",{\"name\":" });
        string(json, &metric.name)?;
        json.extend_from_slice(b",\"unit\":");
        string(json, &metric.unit)?;
        let (kind, value, source) = (metric.kind.word(), metric.value.word(), metric.source.word());
        write!(json, ",\"kind\":\"{kind}\",\"type\":\"{value}\",\"source\":\"{source}\"")?;
        if matches!(metric.value, MetricType::Histogram { .. }) {
            write!(json, ",\"bins\":{columns}")?;
        }
        if let Some(note) = &metric.note {
            json.extend_from_slice(b",\"note\":");
            string(json, note)?;
        }
        if let MetricKind::Derived(Formula::Expression(expression)) = &metric.kind {
            json.extend_from_slice(b",\"formula\":");
            string(json, expression.text())?;
        }
        json.push(b'}');
    }
    json.extend_from_slice(b"],\n\"quality\":");
    write_quality(json, &profile.quality)?;
    json.extend_from_slice(b",\n\"run\":");
    run(json, profile)?;
    json.extend_from_slice(b",\n\"nodes\":[\n");
    Ok(())
}

fn write_quality(json: &mut Vec<u8>, quality: &Quality) -> io::Result<()> {
    let (taken, full, partial, raw_kept) = (quality.taken, quality.full, quality.partial, quality.raw_kept);
    write!(json, "{{\"taken\":{taken},\"full\":{full},\"partial\":{partial},\"raw_kept\":{raw_kept}")?;
    json.extend_from_slice(b",\"dropped\":{");
    for (i, (reason, count)) in quality.dropped.iter().enumerate() {
        json.extend_from_slice(if i == 0 { b"" } else { b"," });
        string(json, reason)?;
        write!(json, ":{count}")?;
    }
    let links = quality.links;
    write!(
        json,
        "}},\"links\":{{\"valid\":{},\"likely\":{},\"invalid\":{}}}",
        links.valid, links.likely, links.invalid
    )?;
    write!(json, ",\"overhead_ns\":{}", quality.overhead_ns)?;
    write!(json, ",\"handlers\":{{\"longest_ns\":{}", quality.handlers.longest_ns)?;
    integers(json, b",\"histogram\":[", &quality.handlers.histogram);
    json.extend_from_slice(b"}");
    if let Some(probes) = &quality.probes {
        let ProbeAccount { hits, unmatched_exits, inside_when_set, refused } = probes;
        write!(json, ",\"probes\":{{\"hits\":{hits},\"unmatched_exits\":{unmatched_exits}")?;
        write!(json, ",\"inside_when_set\":{inside_when_set},\"refused\":[")?;
        for (number, RefusedProbe { function, reason }) in refused.iter().enumerate() {
            json.extend_from_slice(if number == 0 { b"{\"function\":" } else { b",{\"function\":" });
            string(json, function)?;
            json.extend_from_slice(b",\"reason\":");
            string(json, reason)?;
            json.push(b'}');
        }
        json.extend_from_slice(b"]}");
    }
    if let Some(exact) = &quality.exact {
        write!(json, ",\"exact\":{}", without_actions(&exact_quality(exact).to_string()))?;
    }
    if let Some(inferred) = &quality.inferred {
        write!(json, ",\"inferred\":{}", inferred::value(inferred))?;
    }
    json.push(b'}');
    Ok(())
}

/// How exact counts were made.
pub(crate) fn exact_quality(exact: &ExactQuality) -> serde_json::Value {
    let refused = exact
        .refused
        .iter()
        .map(|refused| serde_json::json!({ "function": refused.function, "module": refused.module, "reason": refused.reason }));
    serde_json::json!({
        "procedures": exact.counted,
        "refused": refused.collect::<Vec<_>>(),
        "cut_short": exact.cut_short,
        "lost": exact.lost,
        // Code between calls that is not counted: paths end at none; how many contexts are below some is not counted.
        "gaps": (exact.paths && !exact.in_contexts).then_some(0),
    })
}

/// What ran; members that are not known are left out.
pub(crate) fn run(json: &mut Vec<u8>, profile: &Profile) -> io::Result<()> {
    let info = &profile.info;
    json.extend_from_slice(b"{\"command\":");
    strings(json, &info.command)?;
    let words = [("working_directory", info.working_directory.as_str()), ("host", &info.host)];
    for (key, word) in words.into_iter().chain(info.exit.as_deref().map(|exit| ("exit", exit))) {
        if !word.is_empty() {
            write!(json, ",\"{key}\":")?;
            string(json, word)?;
        }
    }
    let times = [
        ("started_unix_ns", Some(info.started_unix_ns).filter(|&ns| ns > 0)),
        ("duration_ns", Some(info.duration_ns)),
        ("cpu_time_by_kernel_ns", info.cpu_time_by_kernel.map(CpuTime::total_ns)),
        ("user_time_by_kernel_ns", info.cpu_time_by_kernel.map(|time| time.user_ns)),
        ("system_time_by_kernel_ns", info.cpu_time_by_kernel.map(|time| time.system_ns)),
        ("recorder_cpu_ns", info.recorder_cpu_ns),
    ];
    for (key, ns) in times {
        if let Some(ns) = ns {
            write!(json, ",\"{key}\":{ns}")?;
        }
    }
    json.extend_from_slice(b",\"notes\":");
    strings(json, &[info.losses.as_slice(), &info.notes].concat())?;
    if !info.jobs.is_empty() {
        json.extend_from_slice(b",\n\"jobs\":");
        ranks_json::jobs(json, profile)?;
    }
    json.extend_from_slice(b",\n\"processes\":[");
    for (i, process) in info.processes.iter().enumerate() {
        json.extend_from_slice(if i == 0 { b"\n" } else { b",\n" });
        json.push(b'{');
        if let Some(rank) = process.rank {
            write!(json, "\"rank\":{rank},")?;
        }
        write!(json, "\"id\":{},\"parent_id\":{},\"name\":", process.pid, process.parent_pid)?;
        string(json, &process.name)?;
        json.extend_from_slice(b",\"command\":");
        strings(json, &process.command)?;
        if !process.control_group.is_empty() {
            json.extend_from_slice(b",\"control_group\":");
            string(json, &process.control_group)?;
        }
        let (started, lasted) = (process.started_ns, process.duration_ns);
        write!(json, ",\"started_ns\":{started},\"duration_ns\":{lasted},\"threads\":{}", process.threads)?;
        write!(json, ",\"continues\":{},\"quality\":", process.continues)?;
        write_quality(json, &process.quality)?;
        json.push(b'}');
    }
    json.extend_from_slice(b"]}");
    Ok(())
}

fn write_node(json: &mut Vec<u8>, shown: &Shown<'_>, index: usize) -> io::Result<()> {
    let Shown { view, profile, metrics, certainties } = *shown;
    let node = &view.nodes[index];
    let scope = &node.scope;
    let named = |json: &mut Vec<u8>, key: &[u8], name: Name| {
        json.extend_from_slice(key);
        string(json, profile.strings.get(name))
    };
    json.push(b'{');
    if let Some(parent) = node.parent {
        json.extend_from_slice(b"\"parent\":");
        integer(json, parent as u64);
        json.push(b',');
    }
    json.extend_from_slice(b"\"kind\":\"");
    json.extend_from_slice(scope.kind.word().as_bytes());
    json.extend_from_slice(b"\",\"name\":");
    string(json, &view.name(index, profile))?;
    // A process's or thread's number, where the node belongs to one alone.
    if matches!(scope.kind, ScopeKind::Process | ScopeKind::Thread) && scope.discriminator != 0
        || scope.kind == ScopeKind::Rank
    {
        json.extend_from_slice(b",\"id\":");
        integer(json, scope.unit_id());
    }
    if let Some(module) = scope.module {
        named(json, b",\"module\":", module)?;
    }
    if let Some(file) = scope.file {
        named(json, b",\"file\":", file)?;
    }
    if let Some(line) = scope.line {
        json.extend_from_slice(b",\"line\":");
        integer(json, u64::from(line));
    }
    if let Some(column) = scope.column {
        json.extend_from_slice(b",\"column\":");
        integer(json, u64::from(column.get()));
    }
    if let Some(address) = scope.address {
        write!(json, ",\"address\":\"{address:#x}\"")?;
    }
    if let Some(site) = scope.call_site {
        named(json, b",\"call_site\":{\"file\":", site.file)?;
        json.extend_from_slice(b",\"line\":");
        integer(json, u64::from(site.line));
        json.push(b'}');
    }
    if let Some(certainty) = certainties.get(index).copied().flatten() {
        write!(json, ",\"certainty\":\"{certainty}\"")?;
    }
    let costs = [view.inclusive(index), view.exclusive(index), view.self_cost(index)];
    for (key, cells) in [b",\"inclusive\":[".as_slice(), b",\"exclusive\":[", b",\"self\":["].into_iter().zip(costs) {
        json.extend_from_slice(key);
        values(json, metrics, cells)?;
    }
    json.push(b'}');
    Ok(())
}

fn strings(json: &mut Vec<u8>, texts: &[String]) -> io::Result<()> {
    json.push(b'[');
    for (i, text) in texts.iter().enumerate() {
        json.extend_from_slice(if i == 0 { b"" } else { b"," });
        string(json, text)?;
    }
    json.push(b']');
    Ok(())
}

/// A text as JSON writes it, in quotes.
pub fn quoted(text: &str) -> io::Result<String> {
    serde_json::to_string(text).map_err(io::Error::from)
}

/// Appends a text as JSON writes it, in quotes; no character in it acts on a terminal.
pub(crate) fn string(json: &mut Vec<u8>, text: &str) -> io::Result<()> {
    if text.is_ascii() && !text.contains('\x7f') {
        return serde_json::to_writer(json, text).map_err(io::Error::from);
    }
    json.extend_from_slice(without_actions(&quoted(text)?).as_bytes());
    Ok(())
}

/// JSON allows what a terminal acts on, beyond ASCII's control characters; written as escapes it is the same JSON.
pub(crate) fn without_actions(written: &str) -> Cow<'_, str> {
    if !written.chars().any(acts_on_terminals) {
        return Cow::Borrowed(written);
    }
    let mut escaped = String::with_capacity(written.len());
    let mut units = [0; 2];
    for c in written.chars() {
        if acts_on_terminals(c) {
            c.encode_utf16(&mut units).iter().for_each(|unit| escaped += &format!("\\u{unit:04x}"));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

fn integers(json: &mut Vec<u8>, open: &[u8], values: &[u64]) {
    json.extend_from_slice(open);
    for (i, &value) in values.iter().enumerate() {
        if i > 0 {
            json.push(b',');
        }
        integer(json, value);
    }
    json.push(b']');
}

/// A row of cells, one for each metric, and the closing bracket. A histogram is an array of
/// its bins up to the last that is not empty.
fn values(json: &mut Vec<u8>, metrics: &[Metric], costs: Row<'_>) -> io::Result<()> {
    for (first, columns) in groups(metrics) {
        if first > 0 {
            json.push(b',');
        }
        match metrics[first].value {
            MetricType::Histogram { .. } => {
                let bins: Vec<u64> = (first..first + columns).map(|metric| costs.get(metric)).collect();
                let end = bins.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
                integers(json, b"[", &bins[..end]);
            }
            MetricType::Integer => integer(json, costs.get(first)),
            _ => match metrics[first].value(costs.get(first)) {
                Value::Integer(value) => integer(json, value),
                Value::Signed(value) => write!(json, "{value}")?,
                // JSON has no number for NaN and infinity.
                Value::Real(value) if !value.is_finite() => json.extend_from_slice(b"null"),
                Value::Real(value) => write!(json, "{value:?}")?,
            },
        }
    }
    json.push(b']');
    Ok(())
}

/// Decimal digits; several times as fast as `write!`, and a view is mostly integers.
fn integer(json: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    json.extend_from_slice(&digits[start..]);
}
