//! Calls as a probe has counted them: by the names of a program's own procedures on the path.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Profile;
use crate::profile::Node;

/// How often something was called, by path: names from the outermost procedure on, with `;` between them.
pub type Calls = BTreeMap<String, u64>;

/// The calls of processes, by PID.
pub type Counts = BTreeMap<u64, Calls>;

/// Where every program begins, before its own procedures.
const START: [&str; 3] = ["_start", "__libc_start_main", "__libc_start_call_main"];

/// The beginning of a path of which only the inner part is known.
const PART: &str = "(part)";

impl Profile {
    /// Calls by paths of the procedures of these modules, others left out. Panics if one was counted on a path that is
    /// not whole.
    #[track_caller]
    pub fn calls(&self, modules: &[&str]) -> Counts {
        self.by_path("calls", modules)
    }

    /// The same of any metric.
    #[track_caller]
    pub fn by_path(&self, metric: &str, modules: &[&str]) -> Counts {
        let (counts, parts) = self.with_parts(metric, modules);
        assert!(parts.is_empty(), "{metric} on paths that are not whole: {parts:?}");
        counts
    }

    /// The same, and apart what was counted on parts of paths.
    #[track_caller]
    pub fn with_parts(&self, metric: &str, modules: &[&str]) -> (Counts, Counts) {
        self.of_procedures(metric, modules, |_| true)
    }

    /// Calls of these procedures of these modules alone, where all calls were counted.
    #[track_caller]
    pub fn calls_among_all(&self, functions: &[&str], modules: &[&str]) -> Counts {
        let is_one = |node: &Node| modules.contains(&&*node.module) && functions.contains(&&*node.name);
        let (counts, parts) = self.of_procedures("calls", modules, is_one);
        assert!(parts.is_empty(), "calls on paths that are not whole: {parts:?}");
        counts
    }

    #[track_caller]
    fn of_procedures(&self, metric: &str, modules: &[&str], is_one: impl Fn(&Node) -> bool) -> (Counts, Counts) {
        let column = self.metric(metric);
        let mut paths: Vec<(u64, String)> = Vec::with_capacity(self.nodes.len());
        let (mut counts, mut parts) = (Counts::new(), Counts::new());
        for node in &self.nodes {
            let (mut process, mut path) = node.parent.map(|parent| paths[parent].clone()).unwrap_or_default();
            if node.kind == "process" {
                process = node.id.expect("a process has a number");
            }
            if node.kind == "procedure" && modules.contains(&&*node.module) && !START.contains(&&*node.name) {
                if !path.is_empty() {
                    path.push(';');
                }
                path.push_str(&node.name);
            }
            if matches!(&*node.kind, "partial" | "truncated") {
                path.push_str(PART);
            }
            if node.exclusive[column] > 0 && is_one(node) {
                assert_eq!(node.kind, "procedure", "{metric} of what is no procedure: {node:?}");
                let counts = if path.starts_with(PART) { &mut parts } else { &mut counts };
                *counts.entry(process).or_default().entry(path.clone()).or_insert(0) += node.exclusive[column];
            }
            paths.push((process, path));
        }
        (counts, parts)
    }

    /// What a metric has at each such path, as it is in JSON; zeros and empty histograms left out. Of a profile with one
    /// process.
    pub fn cells(&self, metric: &str, modules: &[&str]) -> BTreeMap<String, Value> {
        let column = self.metric(metric);
        let mut paths: Vec<String> = Vec::with_capacity(self.nodes.len());
        let mut cells = BTreeMap::new();
        for node in &self.nodes {
            let mut path = node.parent.map(|parent| paths[parent].clone()).unwrap_or_default();
            if node.kind == "procedure" && modules.contains(&&*node.module) && !START.contains(&&*node.name) {
                path = if path.is_empty() { node.name.clone() } else { format!("{path};{}", node.name) };
            }
            if node.exclusive[column] != 0 {
                let earlier = cells.insert(path.clone(), node.cells[column].clone());
                assert_eq!(earlier, None, "{metric} of two contexts by one path: {path}");
            }
            paths.push(path);
        }
        cells
    }

    /// How often a procedure was called, by whatever path.
    pub fn calls_of(&self, name: &str) -> u64 {
        let calls = self.metric("calls");
        self.nodes.iter().filter(|node| node.kind == "procedure" && node.name == name).map(|n| n.exclusive[calls]).sum()
    }

    /// In how many contexts calls of a procedure were counted.
    pub fn contexts_of(&self, name: &str) -> usize {
        let calls = self.metric("calls");
        self.nodes
            .iter()
            .filter(|node| node.kind == "procedure" && node.name == name && node.exclusive[calls] > 0)
            .count()
    }

    /// The module of a procedure that stands in one only.
    #[track_caller]
    pub fn module_of(&self, name: &str) -> &str {
        let of_it = self.nodes.iter().find(|node| node.kind == "procedure" && node.name == name);
        &of_it.unwrap_or_else(|| panic!("there is no {name}")).module
    }
}
