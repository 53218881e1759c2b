//! The tree against a map from paths to costs.

extern crate std;

use callpath_format::frame::FrameKey;
use callpath_format::shared::{ArenaRef, MetricSettings, Settings};
use core::sync::atomic::Ordering::Relaxed;
use std::collections::HashMap;
use std::vec::Vec;

use super::Tree;
use crate::process::Process;
use crate::testing::{Chance, costs, measured, metrics, path_of};
use crate::thread::Thread;

/// Chunks of a test's arena.
const CHUNKS: usize = 400;

fn settings(recursion: u32) -> Settings {
    Settings { recursion, ..Settings::default() }
}

fn two_metrics() -> Vec<MetricSettings> {
    metrics(&[Settings::CPU_TIME, Settings::WALL_TIME])
}

/// Adds a sample of a path; its node.
fn add(process: &Process<'_>, thread: Thread<'_>, keys: &[u64], values: [u64; 2]) -> ArenaRef {
    let mut tree = Tree::new(process, thread).expect("the thread is there");
    let root = ArenaRef(thread.record.full_root.load(Relaxed));
    let node = keys.iter().fold(root, |node, key| tree.child(node, FrameKey(*key)).expect("there is memory"));
    assert!(tree.count(node, 1, values.into_iter()));
    node
}

/// The collapsed path by definition: a call that is already active continues there.
fn collapsed(keys: &[u64]) -> Vec<u64> {
    let mut path: Vec<u64> = Vec::new();
    for key in keys {
        match path.iter().position(|active| active == key) {
            Some(at) => path.truncate(at + 1),
            None => path.push(*key),
        }
    }
    path
}

/// Random paths, the next one often with the beginning of the last; few keys make calls recur, many make the tree wide.
fn against_a_map(recursion: u32, keys: u64, paths: usize) {
    let (process, thread) = measured(settings(recursion), &two_metrics(), CHUNKS, &[]);
    let (mut chance, mut path) = (Chance(keys), Vec::new());
    let mut model: HashMap<Vec<u64>, (u64, Vec<u64>)> = HashMap::new();
    for _ in 0..paths {
        path.truncate(chance.below(path.len() as u64 + 1) as usize);
        for _ in 0..chance.below(12) {
            path.push(1 + chance.below(keys));
        }
        let values = [chance.below(1000), chance.below(2)];
        let node = add(&process, thread, &path, values);
        let is = if recursion == Settings::COLLAPSED { collapsed(&path) } else { path.clone() };
        assert_eq!(path_of(&process, thread.record, node), (true, is.clone()));
        let (samples, sums) = model.entry(is).or_insert_with(|| (0, std::vec![0; 2]));
        *samples += 1;
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    assert_eq!(costs(&process, thread), model);
}

#[test]
fn every_path_has_one_node_and_its_own_costs() {
    for keys in [1, 3, 20, 1000] {
        against_a_map(Settings::WHOLE, keys, 4000);
    }
}

#[test]
fn a_call_that_recurs_goes_back_to_the_one_that_is_active() {
    for keys in [1, 3, 20, 1000] {
        against_a_map(Settings::COLLAPSED, keys, 4000);
    }
}

/// More nodes than the first segments of buckets are for: each of them is split again and again.
#[test]
fn a_large_tree_is_found_again_by_every_path() {
    let (process, thread) = measured(settings(Settings::WHOLE), &two_metrics(), CHUNKS, &[]);
    let path = |n: u64| [n % 7, n % 1009, n];
    let nodes: Vec<ArenaRef> = (0..40_000).map(|n| add(&process, thread, &path(n), [1, 0])).collect();
    let again: Vec<ArenaRef> = (0..40_000).map(|n| add(&process, thread, &path(n), [1, 0])).collect();
    assert_eq!(nodes, again);
    let costs = costs(&process, thread);
    assert_eq!(costs.len(), 40_000);
    assert!(costs.values().all(|cost| *cost == (2, std::vec![2, 0])));
    // Two nodes a bucket, as many as are hashed: an only child is not.
    let (hashed, buckets) = (thread.record.hashed.load(Relaxed), thread.record.buckets.load(Relaxed));
    assert!(hashed > 40_000 && hashed.div_ceil(2) - buckets <= 1, "{hashed} {buckets}");
}

#[test]
fn where_memory_ends_nodes_end_and_what_was_counted_stays() {
    let (process, thread) = measured(settings(Settings::WHOLE), &two_metrics(), 4, &[]);
    let root = ArenaRef(thread.record.full_root.load(Relaxed));
    let mut tree = Tree::new(&process, thread).expect("the thread is there");
    let mut counted = 0;
    while let Some(node) = tree.child(root, FrameKey(counted + 1)) {
        assert!(tree.count(node, 1, [1; 2].into_iter()));
        counted += 1;
    }
    // Three chunks behind the thread's, of nodes of 48 bytes.
    assert!((4000..6000).contains(&counted), "{counted}");
    assert_eq!(tree.child(root, FrameKey(1)).map(|node| path_of(&process, thread.record, node).1), Some(std::vec![1]));
    assert_eq!(costs(&process, thread).len() as u64, counted);
}

/// A wild store of the program may make a bucket's list circular: a sample must end even so.
#[test]
fn a_damaged_tree_does_not_hold_a_sample_up() {
    for recursion in [Settings::WHOLE, Settings::COLLAPSED] {
        let (process, thread) = measured(settings(recursion), &two_metrics(), CHUNKS, &[]);
        let nodes: Vec<ArenaRef> = (0..3000).map(|n| add(&process, thread, &[n, n + 1], [1, 1])).collect();
        for node in nodes {
            let node: &callpath_format::shared::Node = process.arena.get(node).expect("it is there");
            node.next.store(thread.record.full_root.load(Relaxed), Relaxed);
        }
        let root: &callpath_format::shared::Node =
            process.arena.get(ArenaRef(thread.record.full_root.load(Relaxed))).expect("it is there");
        root.next.store(thread.record.full_root.load(Relaxed), Relaxed);
        for n in 0..3000 {
            add(&process, thread, &[n + 1, n], [1, 1]);
        }
    }
}
