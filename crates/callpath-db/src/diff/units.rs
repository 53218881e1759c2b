//! What shared a run's work: its processes, and the threads that worked.

use super::error::DiffError;
use crate::{Profile, Query, ScopeKind, Value};

/// A thread that costs less than this share of what the busiest of its run costs waits for others.
const LEAST_SHARE: f64 = 0.05;

/// What shared a run's work.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Units {
    pub(super) processes: u64,
    pub(super) threads: u64,
}

/// By run of a profile. Where no thread has a cost of its own, all count.
pub(super) fn of(profile: &Profile, column: usize) -> Result<Vec<Units>, DiffError> {
    let count = profile.info.more_runs as usize + 1;
    let mut units = vec![Units::default(); count];
    for process in &profile.info.processes {
        let Some(units) = units.get_mut(process.run as usize) else { continue };
        units.processes += u64::from(!process.continues);
        units.threads += u64::from(process.threads);
    }
    let view = profile.view(&Query { per_thread: true, max_depth: Some(THREADS_AT), ..Query::default() })?;
    let mut runs = Vec::with_capacity(view.nodes.len());
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); count];
    for (number, node) in view.nodes.iter().enumerate() {
        let run = match node.scope.kind {
            ScopeKind::Process => node.scope.run() as usize,
            _ => node.parent.map_or(0, |parent| runs[parent]),
        };
        runs.push(run.min(count - 1));
        if node.scope.kind == ScopeKind::Thread {
            costs[run.min(count - 1)].push(real(profile.metrics[column].value(view.inclusive(number).get(column))));
        }
    }
    for (units, costs) in units.iter_mut().zip(costs) {
        let most = costs.iter().copied().fold(0.0, f64::max);
        if most > 0.0 {
            units.threads = costs.iter().filter(|cost| **cost >= LEAST_SHARE * most).count() as u64;
        }
    }
    Ok(units)
}

/// Levels that hold threads: rank, process, thread.
const THREADS_AT: usize = 3;

pub(super) fn real(value: Value) -> f64 {
    match value {
        Value::Integer(value) => value as f64,
        Value::Signed(value) => value as f64,
        Value::Real(value) => value,
    }
}
