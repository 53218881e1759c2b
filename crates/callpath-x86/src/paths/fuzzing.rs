//! What holds of numbers of paths, whatever the bytes that were taken for code.

use super::{EdgePlan, MAX_PATHS, Numbering, Placement, Ways, weights};
use crate::graph::with_any_bytes;

/// For fuzzing: paths through procedures of any bytes have numbers that decode to them.
#[doc(hidden)]
pub fn fuzz_paths(bytes: &[u8]) {
    with_any_bytes(bytes, |flow, graphs| {
        for graph in graphs {
            let ways = Ways::new(flow, graph);
            let weights = weights(graph, &ways);
            for limit in [16, MAX_PATHS] {
                let numbering = Numbering::with_limit(&ways, &weights, limit);
                let all = numbering.paths();
                assert!(numbering.decode(&ways, all).is_none());
                for number in [0, all / 2, all.saturating_sub(1)].into_iter().filter(|&number| number < all) {
                    let path = numbering.decode(&ways, number);
                    assert_eq!(path.and_then(|path| numbering.encode(&path)), Some(number));
                }
                for placement in [Placement::Simple, Placement::Tree] {
                    let placed = numbering.place(&ways, &weights, placement);
                    assert!(placed.is_sorted_by_key(|&(site, _)| site));
                }
            }
            let plan = EdgePlan::new(&ways, &weights);
            let counters = vec![1; plan.counters().count()];
            for is_whole in [true, false] {
                assert_eq!(plan.solve(&ways, &counters, is_whole).blocks.len(), graph.blocks.len());
            }
        }
    });
}
