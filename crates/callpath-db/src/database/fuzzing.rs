//! The entry of the fuzzer of databases.

use std::path::Path;

use super::map::Bytes;
use super::{Database, Mapped, StatisticsQuery, mapped, merge};

/// For a fuzzer: any bytes as a database whose checksums are right.
pub fn fuzz_database(bytes: &[u8]) {
    const MOST_NODES: usize = 1 << 20;
    let Ok(database) = Database::of(Bytes::Owned(bytes.to_vec()), Path::new("fuzz"), false) else { return };
    // So many threads may each have so deep a stack.
    if database.profiles().len().saturating_mul(database.len()) > MOST_NODES {
        return;
    }
    let Ok(profile) = database.to_profile() else { return };
    for view in [crate::ViewKind::Context, crate::ViewKind::Callers, crate::ViewKind::Flat] {
        drop(profile.view(&crate::Query { view, ..crate::Query::default() }));
    }
    drop(profile.to_database());
    if let Ok(mapped) = Database::of(Bytes::Owned(bytes.to_vec()), Path::new("fuzz"), false).and_then(Mapped::new) {
        mapped::ask(&mapped);
    }
    drop(merge::merged_in_memory(&database));
    for metric in 0..database.metrics().len().min(4) {
        let query = StatisticsQuery { metric, min_share: 0.0, max_depth: 8, fold: vec![crate::ScopeKind::Line] };
        drop(database.statistics_tree(&query));
    }
}
