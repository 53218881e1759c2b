//! What must hold after each run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::programs::Subject;
use super::table::Tally;
use super::watch::Watched;
use super::workspace::Workspace;

/// More than the two windows and what the recorder itself needs at most: a recorder that grows beyond is not bounded.
const MOST_BYTES: u64 = 640 << 20;

/// A program that was run, bare unless it lasts, and recorded.
pub struct Run<'a> {
    pub workspace: &'a Workspace,
    pub subject: &'a Subject,
    pub bare: Option<Watched>,
    pub recorded: Watched,
    /// The cache of recipe tables that the recorder had.
    pub cache: PathBuf,
}

impl Run<'_> {
    /// What is wrong, as sentences; none if all holds. `tally` is that of its program.
    pub fn complaints(&self, tally: &mut Tally) -> Vec<String> {
        let Run { subject, bare, recorded, .. } = self;
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, sentence: String| {
            if !holds {
                wrong.push(sentence);
            }
        };
        expect(!recorded.hung, "it did not end".into());
        if let Some(bare) = bare {
            let (status, alone) = (recorded.status, bare.status);
            expect(status == alone, format!("status {status}, {alone} bare: {}", recorded.stderr.trim()));
            if subject.says_the_same {
                let same = recorded.stdout == bare.stdout;
                let (with, alone) = (recorded.stdout.len(), bare.stdout.len());
                expect(same, format!("its output is not what it is bare ({with} bytes, {alone} bare)"));
            }
            expect(recorded.left.len() <= bare.left.len(), format!("left behind: {}", recorded.left.join(", ")));
        } else {
            expect(recorded.status == 0, format!("status {}: {}", recorded.status, recorded.stderr.trim()));
            let (middle, end) = (recorded.middle, recorded.end);
            for (what, middle, end) in [
                ("the recorder's own memory", middle.own, end.own),
                ("the arena", middle.arena, end.arena),
                ("what is published", middle.published, end.published),
            ] {
                expect(end < middle * 3 / 2 + (16 << 20), format!("{what} grew from {middle} to {end} bytes"));
            }
            tally.long = Some((middle, end));
        }
        expect(!recorded.stderr.contains("panicked"), format!("a panic: {}", recorded.stderr));
        expect(recorded.peak_bytes < MOST_BYTES, format!("the recorder took {} bytes", recorded.peak_bytes));
        tally.peak_bytes = tally.peak_bytes.max(recorded.peak_bytes);
        tally.arena_bytes = tally.arena_bytes.max(recorded.end.arena);
        tally.published_bytes = tally.published_bytes.max(recorded.end.published);
        for left in self.leftovers() {
            expect(false, format!("a file was left behind: {left}"));
        }
        wrong.extend(self.check_quality(tally).err());
        wrong
    }

    /// Files that should be gone, or never have been.
    fn leftovers(&self) -> Vec<String> {
        let Run { workspace, cache, .. } = self;
        let names = |directory: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.path().display().to_string()).collect()
        };
        let mut left = names(&workspace.temporary());
        left.extend(names(&workspace.measurement()).into_iter().filter(|name| name.ends_with(".new")));
        left.extend(names(cache).into_iter().filter(|name| name.ends_with(".new")));
        left.extend(names(Path::new("/dev/shm")).into_iter().filter(|name| name.contains("callpath")));
        left
    }

    /// The report: every sample in one class, in each process and in all; every cost the sum of what is below it.
    fn check_quality(&self, tally: &mut Tally) -> Result<(), String> {
        let Run { workspace, cache, .. } = self;
        let mut report = Command::new(&workspace.callpath);
        report.args(["report", "--json"]).arg(workspace.measurement()).env("CALLPATH_CACHE_DIR", cache);
        let said = report.stdin(Stdio::null()).output().map_err(|error| format!("no report: {error}"))?;
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        if !said.status.success() {
            return Err(format!("the report ended with {}: {words}", said.status));
        }
        if words.contains("failed to") || words.contains("panicked") {
            return Err(format!("the report found damage: {words}"));
        }
        let view: Value =
            serde_json::from_slice(&said.stdout).map_err(|error| format!("the report is no JSON: {error}"))?;
        let whole = balanced(&view["quality"])?;
        let empty = Vec::new();
        let mut sum = 0;
        for process in view["run"]["processes"].as_array().unwrap_or(&empty) {
            sum += balanced(&process["quality"]).map_err(|error| format!("process {}: {error}", process["id"]))?;
        }
        if sum != whole {
            return Err(format!("the processes took {sum} samples, all together {whole}"));
        }
        let nodes = view["nodes"].as_array().unwrap_or(&empty);
        nodes_add_up(nodes)?;
        // What was walked stands in the tree, sample for sample, but for those during which the program was killed.
        let metrics = view["metrics"].as_array().unwrap_or(&empty);
        let samples = metrics.iter().position(|metric| metric["name"] == "samples").ok_or("no metric of samples")?;
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let quality = &view["quality"];
        let (walked, unfinished) =
            (number(&quality["full"]) + number(&quality["partial"]), number(&quality["dropped"]["unfinished"]));
        let in_tree = nodes.first().map_or(0, |root| number(&root["inclusive"][samples]));
        if !(walked..=walked + unfinished).contains(&in_tree) {
            return Err(format!("{in_tree} samples in the tree, {walked} walked, {unfinished} unfinished"));
        }
        tally.add(&view["quality"]);
        Ok(())
    }
}

/// The samples taken, if they are all accounted for.
fn balanced(quality: &Value) -> Result<u64, String> {
    let number = |name: &str| quality[name].as_u64().ok_or_else(|| format!("the quality has no {name}"));
    let dropped = quality["dropped"].as_object().ok_or("the quality has no dropped")?;
    let dropped: u64 = dropped.values().filter_map(Value::as_u64).sum();
    let taken = number("taken")?;
    let accounted = number("full")? + number("partial")? + number("raw_kept")? + dropped;
    if taken == accounted { Ok(taken) } else { Err(format!("{accounted} of {taken} samples are accounted for")) }
}

fn nodes_add_up(nodes: &[Value]) -> Result<(), String> {
    let numbers =
        |value: &Value| -> Vec<u64> { value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect() };
    let mut sums: Vec<Vec<u64>> = nodes.iter().map(|node| numbers(&node["exclusive"])).collect();
    for (index, node) in nodes.iter().enumerate().rev() {
        let inclusive = numbers(&node["inclusive"]);
        if sums[index] != inclusive {
            return Err(format!("node {index} ({}) is not the sum of what is below it", node["name"]));
        }
        match node["parent"].as_u64().map(|parent| parent as usize) {
            None => {}
            Some(parent) if parent < index => {
                sums[parent].iter_mut().zip(inclusive).for_each(|(sum, add)| *sum += add);
            }
            Some(_) => return Err(format!("node {index} stands before its parent")),
        }
    }
    Ok(())
}
