//! Counts for tests.

use callpath_schema::PathCategory;

use super::ExactPath;

/// Paths by number: the blocks of each, and how often it was executed.
pub(super) fn numbered(paths: &[(&[u32], u64)]) -> Vec<ExactPath> {
    let path = |(number, (blocks, executions)): (u64, &(&[u32], u64))| ExactPath {
        number,
        category: PathCategory::EntryExit,
        blocks: blocks.to_vec(),
        executions: *executions,
        contexts: Vec::new(),
        sampled: 0,
        times: Default::default(),
        interruptions: [0; 2],
    };
    (0..).zip(paths).map(path).collect()
}
