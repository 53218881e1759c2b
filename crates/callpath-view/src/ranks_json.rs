//! What ranks of a parallel job cost as JSON, schema 1: each procedure and context with a value for each rank.

use std::io::{self, Write};

use callpath_db::{OverRanks, Profile, Query, RankCosts, RankRow};

use crate::ViewError;
use crate::json::string;

/// The number that a reader checks before all else.
pub const SCHEMA: u32 = 1;

/// Writes the ranks of what `query` selects, by the first metric that adds up in whole numbers, and a newline.
pub fn write(profile: &Profile, query: &Query, out: &mut dyn Write) -> Result<(), ViewError> {
    let column = OverRanks::metric_of(profile).ok_or(ViewError::NoRanks)?;
    let over = OverRanks::of(profile, query, column)?.ok_or(ViewError::NoRanks)?;
    Ok(answer(&over, profile, column, out)?)
}

fn answer(over: &OverRanks, profile: &Profile, column: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut json = Vec::new();
    write!(json, "{{\"schema\":{SCHEMA},\"view\":\"ranks\",\"metric\":")?;
    string(&mut json, &profile.metrics[column].name)?;
    json.extend_from_slice(b",\"unit\":");
    string(&mut json, &profile.metrics[column].unit)?;
    let ranks = over.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    write!(json, ",\n\"ranks\":[{ranks}],\"jobs\":")?;
    jobs(&mut json, profile)?;
    for (key, rows) in [("procedures", &over.procedures), ("contexts", &over.contexts)] {
        write!(json, ",\n\"{key}\":[")?;
        for (number, row) in rows.iter().enumerate() {
            json.extend_from_slice(if number == 0 { b"\n" } else { b",\n" });
            row_of(&mut json, over, profile, row)?;
            if json.len() > 1 << 16 {
                out.write_all(&json)?;
                json.clear();
            }
        }
        json.extend_from_slice(b"\n]");
    }
    json.extend_from_slice(b"}\n");
    out.write_all(&json)
}

fn row_of(json: &mut Vec<u8>, over: &OverRanks, profile: &Profile, row: &RankRow) -> io::Result<()> {
    let (scope, text) = (&row.scope, |name| profile.strings.get(name));
    json.push(b'{');
    if let Some(parent) = row.parent {
        write!(json, "\"parent\":{parent},")?;
    }
    write!(json, "\"kind\":\"{}\",\"name\":", scope.kind.word())?;
    string(json, text(scope.name))?;
    for (key, name) in [("module", scope.module), ("file", scope.file)] {
        if let Some(name) = name {
            write!(json, ",\"{key}\":")?;
            string(json, text(name))?;
        }
    }
    if let Some(line) = scope.line {
        write!(json, ",\"line\":{line}")?;
    }
    if let Some(address) = scope.address {
        write!(json, ",\"address\":\"{address:#x}\"")?;
    }
    let mut values = |key: &str, costs: &RankCosts| {
        let every = over.every(costs).iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        write!(json, ",\"{key}\":[{every}]")
    };
    values("inclusive", &row.inclusive)?;
    values("self", &row.self_cost)?;
    json.push(b'}');
    Ok(())
}

/// The jobs of a profile's runs.
pub(crate) fn jobs(json: &mut Vec<u8>, profile: &Profile) -> io::Result<()> {
    json.push(b'[');
    for (number, job) in profile.info.jobs.iter().enumerate() {
        json.extend_from_slice(if number == 0 { b"\n" } else { b",\n" });
        write!(json, "{{\"run\":{},\"launcher\":", job.run)?;
        string(json, &job.launcher)?;
        json.extend_from_slice(b",\"id\":");
        string(json, &job.id)?;
        if let Some(size) = job.size {
            write!(json, ",\"size\":{size}")?;
        }
        let missing = job.missing();
        let missing = missing.iter().map(|(first, last)| format!("[{first},{last}]")).collect::<Vec<_>>().join(",");
        write!(json, ",\"missing\":[{missing}],\"ranks\":[")?;
        for (number, rank) in job.ranks.iter().enumerate() {
            json.extend_from_slice(if number == 0 { b"\n" } else { b",\n" });
            write!(json, "{{\"rank\":{},\"host\":", rank.rank)?;
            string(json, &rank.host)?;
            write!(json, ",\"duration_ns\":{}", rank.duration_ns)?;
            if let Some(exit) = &rank.exit {
                json.extend_from_slice(b",\"exit\":");
                string(json, exit)?;
            }
            json.push(b'}');
        }
        json.extend_from_slice(b"]}");
    }
    json.push(b']');
    Ok(())
}
