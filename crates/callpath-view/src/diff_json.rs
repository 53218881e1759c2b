//! A difference as JSON, schema 1: the whole, every procedure, every context; costs in the metric's unit.

use std::io::{self, Write};

use callpath_db::diff::{Change, Diff, Expectation, RowChange, Test};

use crate::json::quoted;

/// The number that a reader checks before all else.
pub const SCHEMA: u32 = 1;

/// Writes a difference and a newline. Each view is a flat array in preorder; `parent` is an index into it.
pub fn write(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    let test = match diff.test {
        Test::Welch => "welch",
        Test::Paired => "paired",
        Test::Sampling => "sampling",
        Test::Counted => "counted",
    };
    let expectation = match diff.expectation {
        Expectation::Same => "same".to_owned(),
        Expectation::Strong(times) => format!("strong:{times}"),
        Expectation::Weak => "weak".to_owned(),
    };
    write!(out, "{{\"schema\":{SCHEMA},\"view\":\"diff\",\"metric\":{{\"name\":{}", quoted(&diff.metric.name)?)?;
    write!(out, ",\"unit\":{}}},\"runs\":[{},{}]", quoted(&diff.metric.unit)?, diff.runs[0], diff.runs[1])?;
    write!(out, ",\"test\":\"{test}\",\"false_discovery_rate\":{}", number(diff.false_discovery_rate))?;
    write!(out, ",\"expectation\":\"{expectation}\"")?;
    let matched = diff.matched;
    let shares = [
        ("matched", matched.both),
        ("compared_at_caller", matched.at_caller),
        ("unmatched_by_chance", matched.by_chance),
    ];
    for (key, [a, b]) in shares {
        write!(out, ",\"{key}\":[{},{}]", number(a), number(b))?;
    }
    write!(out, ",\n\"total\":")?;
    change(&diff.total, out)?;
    if let Some(share) = diff.fail_above {
        write!(out, ",\n\"fail_above\":{},\"total_is_regression\":{}", number(share), diff.total_is_regression)?;
    }
    write!(out, ",\n\"procedures\":[")?;
    for (place, procedure) in diff.procedures.iter().enumerate() {
        let (name, module) = (quoted(&procedure.name)?, quoted(&procedure.module)?);
        write!(out, "{}\n{{\"name\":{name},\"module\":{module},\"self\":", comma(place))?;
        change(&procedure.own, out)?;
        write!(out, ",\"inclusive\":")?;
        change(&procedure.inclusive, out)?;
        let moved = procedure.moved.iter().map(|name| quoted(name)).collect::<io::Result<Vec<_>>>()?;
        write!(out, ",\"moved\":[{}],\"is_regression\":{}", moved.join(","), procedure.is_regression)?;
        if let Some(calls) = procedure.calls {
            write!(out, ",\"returns\":")?;
            change(&calls.returns, out)?;
            write!(out, ",\"cost_each\":[{},{}]", number(calls.cost_each[0]), number(calls.cost_each[1]))?;
        }
        write!(out, "}}")?;
    }
    write!(out, "]")?;
    for (key, rows) in [("contexts", &diff.contexts), ("callers", &diff.callers), ("flat", &diff.flat)] {
        if !rows.is_empty() {
            write_rows(key, rows, out)?;
        }
    }
    writeln!(out, "}}")
}

fn write_rows(key: &str, rows: &[RowChange], out: &mut dyn Write) -> io::Result<()> {
    write!(out, ",\n\"{key}\":[")?;
    for (place, row) in rows.iter().enumerate() {
        write!(out, "{}\n{{", comma(place))?;
        if let Some(parent) = row.parent {
            write!(out, "\"parent\":{parent},")?;
        }
        write!(out, "\"kind\":\"{}\",\"name\":{}", row.kind.word(), quoted(&row.name)?)?;
        if !row.module.is_empty() {
            write!(out, ",\"module\":{}", quoted(&row.module)?)?;
        }
        write!(out, ",\"inclusive\":")?;
        change(&row.inclusive, out)?;
        write!(out, ",\"self\":")?;
        change(&row.own, out)?;
        write!(out, ",\"is_moved\":{}}}", row.is_moved)?;
    }
    write!(out, "]")
}

fn change(change: &Change, out: &mut dyn Write) -> io::Result<()> {
    let [a, b] = [change.a, change.b].map(number);
    let [low, high] = [-1.0, 1.0].map(|end| number(change.difference() + end * change.half_width));
    let (probability, is_found) = (number(change.probability), change.is_found);
    write!(
        out,
        "{{\"a\":{a},\"b\":{b},\"interval\":[{low},{high}],\"probability\":{probability},\"found\":{is_found}}}"
    )
}

fn comma(place: usize) -> &'static str {
    if place == 0 { "" } else { "," }
}

/// JSON has no number for NaN and infinity.
fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { "null".into() }
}
