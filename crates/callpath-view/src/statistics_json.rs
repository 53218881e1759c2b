//! Statistics across profiles as JSON, schema 1: the metric, the profiles, and a flat array of nodes in preorder.

use std::io::{self, Write};

use callpath_db::Value;
use callpath_db::database::{Statistics, StatisticsTree, Unit};

use crate::json::string;

/// The number that a reader checks before all else.
pub const SCHEMA: u32 = 1;

/// Writes the tree and a newline. Totals are exact; the other numbers are doubles.
pub fn write(tree: &StatisticsTree, out: &mut dyn Write) -> io::Result<()> {
    let StatisticsTree { metric, members, rows } = tree;
    let mut json = Vec::new();
    write!(json, "{{\"schema\":{SCHEMA},\"view\":\"statistics\",\n\"metric\":{{\"name\":")?;
    string(&mut json, &metric.name)?;
    json.extend_from_slice(b",\"unit\":");
    string(&mut json, &metric.unit)?;
    write!(json, ",\"kind\":\"{}\",\"type\":\"{}\"}},\n\"profiles\":[", metric.kind.word(), metric.value.word())?;
    for (number, member) in members.iter().enumerate() {
        write!(json, "{}{{\"run\":{}", if number == 0 { "" } else { ",\n" }, member.run)?;
        for (key, unit) in [("process", &member.process), ("thread", &member.thread)] {
            if let Some(Unit { name, id }) = unit {
                write!(json, ",\"{key}\":{{\"name\":")?;
                string(&mut json, name)?;
                write!(json, ",\"id\":{id}}}")?;
            }
        }
        json.push(b'}');
    }
    json.extend_from_slice(b"],\n\"nodes\":[\n");
    for (number, row) in rows.iter().enumerate() {
        json.extend_from_slice(if number == 0 { b"{" } else { b",\n{" });
        if let Some(parent) = row.parent {
            write!(json, "\"parent\":{parent},")?;
        }
        write!(json, "\"kind\":\"{}\",\"name\":", row.kind.word())?;
        string(&mut json, &row.name)?;
        for (key, text) in [("module", &row.module), ("file", &row.file)] {
            if let Some(text) = text {
                write!(json, ",\"{key}\":")?;
                string(&mut json, text)?;
            }
        }
        if let Some(line) = row.line {
            write!(json, ",\"line\":{line}")?;
        }
        if let Some(address) = row.address {
            write!(json, ",\"address\":\"{address:#x}\"")?;
        }
        let Statistics { total, mean, min, max, deviation, present, greatest } = row.statistics;
        match metric.value(total) {
            Value::Integer(total) => write!(json, ",\"total\":{total}")?,
            Value::Signed(total) => write!(json, ",\"total\":{total}")?,
            Value::Real(total) => write!(json, ",\"total\":{}", finite(total))?,
        }
        for (key, value) in [("mean", mean), ("min", min), ("max", max), ("deviation", deviation)] {
            write!(json, ",\"{key}\":{}", finite(value))?;
        }
        write!(json, ",\"present\":{present}")?;
        if let Some(greatest) = greatest {
            write!(json, ",\"greatest\":{greatest}")?;
        }
        json.push(b'}');
    }
    json.extend_from_slice(b"\n]}\n");
    out.write_all(&json)
}

/// JSON has no infinity and no NaN.
fn finite(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { "null".into() }
}
