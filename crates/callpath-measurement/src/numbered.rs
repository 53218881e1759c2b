//! Contexts by the numbers by which a program has asked for them (`-m context` of probes): a metric that is no cost.

use callpath_schema::{Metric, MetricId};

use crate::{FULL_ROOT, Measurement, PARTIAL_ROOT, PathTree, SampleTally, ThreadProfile};

/// Why no context is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoContext {
    /// The measurement has no numbers.
    NotNumbered,
    /// It has, but not this one.
    Unknown {
        /// How many it has.
        numbers: usize,
    },
}

/// Whether a metric is no cost, but holds the numbers of contexts.
pub fn is_number(metric: &Metric) -> bool {
    metric.id == Some(MetricId::CONTEXT)
}

impl Measurement {
    /// Leaves of all paths those that are the context with this number: one path in as many threads as were in it.
    ///
    /// # Errors
    /// If there is none. Nothing is left then.
    pub fn retain_context(&mut self, number: u64) -> Result<(), NoContext> {
        let columns: Vec<Option<usize>> =
            self.processes.iter().map(|p| self.session_of(p).metrics.iter().position(is_number)).collect();
        let mut numbers = std::collections::BTreeSet::new();
        for (process, column) in self.processes.iter_mut().zip(&columns) {
            let threads = std::mem::take(&mut process.threads);
            process.dropped_unrecorded = Default::default();
            let Some(column) = *column else { continue };
            for mut thread in threads {
                let number_of = |node| thread.tree.values(node).find(|(metric, _)| *metric == column);
                let all = (0..thread.tree.nodes().len() as u32).filter_map(|node| Some((node, number_of(node)?.1)));
                let mut found = None;
                for (node, its) in all {
                    numbers.insert(its);
                    found = found.or(Some(node).filter(|_| its == number));
                }
                let Some(node) = found else { continue };
                retain_path(&mut thread, node);
                process.threads.push(thread);
            }
        }
        self.processes.retain(|process| !process.threads.is_empty());
        match (self.processes.is_empty(), columns.iter().any(Option::is_some)) {
            (false, _) => Ok(()),
            (true, true) => Err(NoContext::Unknown { numbers: numbers.len() }),
            (true, false) => Err(NoContext::NotNumbered),
        }
    }
}

/// Leaves of a thread's tree the path to a node, and what that costs itself.
fn retain_path(thread: &mut ThreadProfile, node: u32) {
    let nodes = thread.tree.nodes();
    let (mut path, mut at) = (Vec::new(), node);
    while at > PARTIAL_ROOT {
        path.push(nodes[at as usize].key);
        at = nodes[at as usize].parent;
    }
    let samples = nodes[node as usize].samples;
    let mut values = Vec::new();
    for (metric, value) in thread.tree.values(node) {
        values.resize(metric + 1, 0);
        values[metric] = value;
    }
    let mut tree = PathTree::default();
    let end = path.iter().rev().fold(at, |node, key| tree.child(node, *key));
    tree.add(end, samples, &values);
    thread.tree = tree;
    let (full, partial) = if at == FULL_ROOT { (samples, 0) } else { (0, samples) };
    thread.tally = SampleTally { taken: samples, full, partial, ..SampleTally::default() };
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use callpath_format::frame::FrameKey;

    use super::*;
    use crate::{ProcessFile, SessionFile};

    /// Two threads of a process: the path 1, 2 has number 70 in both, 1 in one has 50, and 9 of no full path has 60.
    fn measurement(is_numbered: bool) -> Measurement {
        let thread = |tid, numbered: &[(u32, &[u64], u64)]| {
            let mut tree = PathTree::default();
            for (root, path, number) in numbered {
                let node = path.iter().fold(*root, |node, key| tree.child(node, FrameKey(*key)));
                tree.add(node, 3, &[3, *number]);
            }
            ThreadProfile { tid, tree, count: 1, ..ThreadProfile::default() }
        };
        let threads = vec![
            thread(1, &[(FULL_ROOT, &[1], 50), (FULL_ROOT, &[1, 2], 70)]),
            thread(2, &[(FULL_ROOT, &[1, 2], 70), (PARTIAL_ROOT, &[9], 60)]),
        ];
        let ids = [MetricId::CALLS, if is_numbered { MetricId::CONTEXT } else { MetricId::LONGEST }];
        Measurement {
            directory: PathBuf::from("M"),
            session: SessionFile { metrics: ids.map(Metric::of).into(), ..SessionFile::default() },
            processes: vec![ProcessFile { pid: 7, metric_count: 2, threads, ..ProcessFile::default() }],
            names: Vec::new(),
            unreadable: Vec::new(),
            ranks: None,
        }
    }

    fn paths(number: u64) -> Vec<(u32, Vec<u64>, u64)> {
        let mut found = measurement(true);
        found.retain_context(number).unwrap();
        let path = |thread: &ThreadProfile| {
            let nodes = thread.tree.nodes();
            let keys = nodes.iter().skip(2).map(|node| node.key.0).collect();
            (thread.tid, keys, thread.tree.total(0))
        };
        found.processes.iter().flat_map(|process| &process.threads).map(path).collect()
    }

    #[test]
    fn the_path_with_a_number_is_left_in_each_thread() {
        assert_eq!(paths(70), [(1, vec![1, 2], 3), (2, vec![1, 2], 3)]);
        assert_eq!(paths(50), [(1, vec![1], 3)]);
        let mut partial = measurement(true);
        partial.retain_context(60).unwrap();
        let tally = &partial.processes[0].threads[0].tally;
        assert_eq!((tally.taken, tally.full, tally.partial), (3, 0, 3));
    }

    #[test]
    fn what_is_unknown_is_said() {
        assert_eq!(measurement(true).retain_context(51), Err(NoContext::Unknown { numbers: 3 }));
        assert_eq!(measurement(false).retain_context(70), Err(NoContext::NotNumbered));
    }
}
