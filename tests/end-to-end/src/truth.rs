//! What a program says of its own calls (tests/nasty/truth.h), beside what was counted.

use std::path::Path;

use crate::{Calls, Counts};

/// The calls of processes as these have counted them.
#[derive(Debug)]
pub struct Truth(Counts);

impl Truth {
    /// What programs have written in a directory. Panics if they have not.
    #[track_caller]
    pub fn in_directory(directory: &Path) -> Self {
        let text = std::fs::read_to_string(directory.join("truth")).expect("the program has written the truth");
        let mut counts = Counts::new();
        let mut process = 0;
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            match words[..] {
                ["process", pid] => process = pid.parse().expect("a number"),
                ["calls", count, path] => {
                    let count: u64 = count.parse().expect("a count");
                    *counts.entry(process).or_default().entry(path.to_owned()).or_insert(0) += count;
                }
                _ => panic!("not the truth: {line}"),
            }
        }
        Truth(counts)
    }

    /// Of calls of these functions only.
    #[must_use]
    pub fn of(mut self, functions: &[&str]) -> Self {
        for calls in self.0.values_mut() {
            calls.retain(|path, _| functions.contains(&path.rsplit(';').next().unwrap_or(path)));
        }
        self.0.retain(|_, calls| !calls.is_empty());
        self
    }

    /// Of these paths only.
    #[must_use]
    pub fn where_path(mut self, is_one: impl Fn(&str) -> bool) -> Self {
        self.0.values_mut().for_each(|calls| calls.retain(|path, _| is_one(path)));
        self.0.retain(|_, calls| !calls.is_empty());
        self
    }

    /// Asserts that the same was counted. The message has only what differs.
    #[track_caller]
    pub fn assert_counted(&self, counted: &Counts) {
        let pids = |counts: &Counts| counts.keys().copied().collect::<Vec<_>>();
        assert_eq!(pids(&self.0), pids(counted), "the processes in which calls were counted");
        let mut differ = Vec::new();
        for (pid, truth) in &self.0 {
            let counted = &counted[pid];
            for path in truth.keys().chain(counted.keys().filter(|path| !truth.contains_key(*path))) {
                let (truth, counted) = (truth.get(path).unwrap_or(&0), counted.get(path).unwrap_or(&0));
                if truth != counted {
                    differ.push(format!("{pid} {path}: {truth} calls, {counted} counted"));
                }
            }
        }
        let first: Vec<&String> = differ.iter().take(20).collect();
        assert!(differ.is_empty(), "{} paths differ: {first:#?}", differ.len());
    }

    /// All calls of a function.
    pub fn calls_of(&self, function: &str) -> u64 {
        let is_it = |path: &str| path.rsplit(';').next() == Some(function);
        let of = |calls: &Calls| calls.iter().filter(|(path, _)| is_it(path)).map(|(_, count)| *count).sum::<u64>();
        self.0.values().map(of).sum()
    }

    /// All calls of all processes.
    pub fn total(&self) -> u64 {
        self.0.values().flat_map(|calls| calls.values()).sum()
    }
}
