//! speedscope's own format: <https://www.speedscope.app/file-format-schema.json>.
//!
//! A thread is a profile of type `evented`: each node opens and closes a frame once, at the cost that was spent before. So
//! the file grows with the tree, not with the tree times its depth. A node's own cost comes before that of its children.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::exported::{CREATOR, Exported};
use super::frames::Open;
use super::units::Units;
use crate::json::string;

/// Name, file, line.
type Frame = (String, Option<callpath_db::Name>, Option<u32>);

/// Output is passed on in pieces of about this size.
const BLOCK_BYTES: usize = 1 << 16;

pub(super) fn write(source: &Exported<'_>, out: &mut dyn Write) -> io::Result<()> {
    let units = Units::new(source);
    let mut frames: FxHashMap<Frame, usize> = FxHashMap::default();
    let mut list: Vec<Frame> = Vec::new();
    let mut json = Vec::with_capacity(2 * BLOCK_BYTES);
    json.extend_from_slice(b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":");
    string(&mut json, CREATOR)?;
    json.extend_from_slice(b",\"name\":");
    string(&mut json, &source.marked_name(0))?;
    json.extend_from_slice(b",\"activeProfileIndex\":0,\"profiles\":[");
    let unit = match source.unit() {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "none",
    };
    let shown: Vec<usize> = (0..units.list.len()).filter(|&unit| units.list[unit].cost > 0).collect();
    for (number, &index) in shown.iter().enumerate() {
        let of = &units.list[index];
        json.extend_from_slice(if number == 0 { b"\n{" } else { b",\n{" });
        json.extend_from_slice(b"\"type\":\"evented\",\"name\":");
        string(&mut json, &title(of, source.metric_name()))?;
        write!(json, ",\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{},\"events\":[", of.cost)?;
        let (mut at, mut open, mut is_first) = (0, Open::default(), true);
        let mut event = |json: &mut Vec<u8>, kind: char, frame: usize, at: u64| {
            json.extend_from_slice(if is_first { b"\n" } else { b",\n" });
            is_first = false;
            write!(json, "{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}}}")
        };
        for node in units.nodes(source, index) {
            // A unit's node is no frame: the profile has its name. What it costs itself still needs one.
            let is_unit = node == of.node;
            let parent = source.view.nodes[node].parent.filter(|parent| *parent != of.node);
            let cost = source.exclusive(node);
            if source.inclusive(node) == 0 || is_unit && cost == 0 {
                continue;
            }
            let mut closed = Ok(());
            open.close_for(parent, |_, frame| {
                if closed.is_ok() {
                    closed = event(&mut json, 'C', frame, at);
                }
            });
            closed?;
            let scope = &source.view.nodes[node].scope;
            let key = (source.marked_name(node), scope.file, scope.line);
            let frame = *frames.entry(key.clone()).or_insert_with(|| {
                list.push(key);
                list.len() - 1
            });
            event(&mut json, 'O', frame, at)?;
            at += cost;
            open.push(node, frame);
            if json.len() >= BLOCK_BYTES {
                out.write_all(&json)?;
                json.clear();
            }
        }
        let mut closed = Ok(());
        open.close_for(None, |_, frame| {
            if closed.is_ok() {
                closed = event(&mut json, 'C', frame, at);
            }
        });
        closed?;
        json.extend_from_slice(b"]}");
    }
    json.extend_from_slice(b"],\n\"shared\":{\"frames\":[");
    for (number, (name, file, line)) in list.iter().enumerate() {
        json.extend_from_slice(if number == 0 { b"\n{\"name\":" } else { b",\n{\"name\":" });
        string(&mut json, name)?;
        if let Some(file) = source.text(*file) {
            json.extend_from_slice(b",\"file\":");
            string(&mut json, file)?;
        }
        if let Some(line) = line {
            write!(json, ",\"line\":{line}")?;
        }
        json.push(b'}');
        if json.len() >= BLOCK_BYTES {
            out.write_all(&json)?;
            json.clear();
        }
    }
    json.extend_from_slice(b"]}}\n");
    out.write_all(&json)
}

/// What a profile is called.
fn title(unit: &super::units::Unit, metric: &str) -> String {
    let id = |word: &str, id: u64| if id == 0 { String::new() } else { format!(" ({word} {id})") };
    let (process, pid) = &unit.process;
    let process = format!("{process}{}", id("pid", *pid));
    match &unit.thread {
        Some((thread, tid)) => format!("{process}, thread {thread}{}: {metric}", id("tid", *tid)),
        None => format!("{process}: {metric}"),
    }
}
