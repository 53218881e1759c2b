//! What share of a program's time each of its procedures has, by gprof, by perf and by callpath.
//!
//! Of the executable's own procedures alone: gprof sees no others. A procedure's time is that of its body and what was
//! inlined into it. The parts that the compiler splits off (`f.cold`, `f.constprop.0`) are one procedure.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::bench::Recording;

/// Self time by procedure, in any unit.
pub type Times = BTreeMap<String, f64>;

fn add(times: &mut Times, name: &str, time: f64) {
    let name = name.split('.').next().unwrap_or(name);
    *times.entry(name.to_owned()).or_insert(0.0) += time;
}

/// Half of the sum of the differences is the share that stands at the wrong procedure; this is the sum, in percent.
pub fn difference(of: &Times, reference: &Times) -> f64 {
    let (sum, reference_sum): (f64, f64) = (of.values().sum(), reference.values().sum());
    let names: std::collections::BTreeSet<&String> = of.keys().chain(reference.keys()).collect();
    let share = |times: &Times, name: &String, sum: f64| times.get(name).copied().unwrap_or(0.0) / sum;
    names.into_iter().map(|name| (share(of, name, sum) - share(reference, name, reference_sum)).abs()).sum::<f64>()
        * 100.0
}

/// Adds gprof's flat profile of a run.
pub fn of_gprof(program: &Path, profile: &Path, times: &mut Times) -> anyhow::Result<()> {
    let said = Command::new("gprof").args(["-b", "-p"]).arg(program).arg(profile).output();
    let said = said.context("failed to run gprof (Debian: binutils)")?;
    ensure!(said.status.success(), "gprof: {}", String::from_utf8_lossy(&said.stderr).trim());
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        // % time, cumulative seconds, self seconds, [calls, ms each by itself, ms each in all,] name
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<f64> = words.iter().map_while(|word| word.parse().ok()).collect();
        if let (&[_, _, own, ..], Some(name)) = (&numbers[..], words.last()) {
            add(times, name, own);
        }
    }
    ensure!(!times.is_empty(), "gprof lists no procedure");
    Ok(())
}

/// Adds the samples of a `perf record` without call graphs.
pub fn of_perf(program: &Path, data: &Path, times: &mut Times) -> anyhow::Result<()> {
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(data).stderr(Stdio::null());
    let said = script.output().context("failed to run perf script")?;
    let module = format!("({})", program.display());
    for line in String::from_utf8_lossy(&said.stdout).lines().filter(|line| line.trim_end().ends_with(&module)) {
        if let Some(name) = line.split_whitespace().nth(1) {
            add(times, name, 1.0);
        }
    }
    ensure!(!times.is_empty(), "perf has no sample in {}", program.display());
    Ok(())
}

/// Adds a measurement of callpath's.
pub fn of_callpath(program: &Path, recording: &Recording, times: &mut Times) -> anyhow::Result<()> {
    let mut report = Command::new(&recording.callpath);
    report.args(["report", "--json", "--view", "flat", "--no-inlines", "--no-loops"]).arg(recording.output());
    let said = report.env("CALLPATH_CACHE_DIR", recording.cache()).output()?;
    ensure!(said.status.success(), "callpath report: {}", String::from_utf8_lossy(&said.stderr).trim());
    let view: Value = serde_json::from_slice(&said.stdout).context("failed to read the JSON of the report")?;
    let module = program.file_name().unwrap_or_default().to_string_lossy();
    for node in view["nodes"].as_array().context("the report has no nodes")? {
        if node["kind"] == "procedure" && node["module"] == *module {
            add(times, node["name"].as_str().unwrap_or_default(), node["self"][0].as_f64().unwrap_or(0.0));
        }
    }
    ensure!(!times.is_empty(), "callpath has no time in {module}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_shares() {
        let times = |list: &[(&str, f64)]| {
            let mut times = Times::new();
            list.iter().for_each(|(name, time)| add(&mut times, name, *time));
            times
        };
        let reference = times(&[("a", 50.0), ("b", 30.0), ("b.cold", 20.0)]);
        assert!((difference(&times(&[("a", 1.0), ("b", 1.0)]), &reference)).abs() < 1e-9);
        assert!((difference(&times(&[("a", 3.0), ("c", 1.0)]), &reference) - 100.0).abs() < 1e-9);
    }
}
