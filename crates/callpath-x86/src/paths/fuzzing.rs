//! What holds of numbers of paths, whatever the bytes that were taken for code.

use super::{EdgePlan, MAX_PATHS, Numbering, PathOperation, Placement, Site, Ways};
use super::{sampled_blocks, weights, weights_by_samples};
use crate::graph::with_any_bytes;

/// For fuzzing: paths through procedures of any bytes have numbers that decode to them.
#[doc(hidden)]
pub fn fuzz_paths(bytes: &[u8]) {
    with_any_bytes(bytes, |flow, graphs| {
        for graph in graphs {
            let ways = Ways::new(flow, graph);
            let weights = weights(graph, &ways);
            let blocks = sampled_blocks(flow, graph, |code| code.start.0.wrapping_mul(code.end.0) % 7);
            let sampled = weights_by_samples(&ways, &weights, &blocks);
            assert!(sampled.iter().all(|sampled| sampled.len() == weights.len() && !sampled.contains(&0)));
            for limit in [16, MAX_PATHS] {
                let numbering = Numbering::with_limit(&ways, &weights, limit);
                let all = numbering.paths();
                assert!(numbering.decode(&ways, all).is_none());
                for number in [0, all / 2, all.saturating_sub(1)].into_iter().filter(|&number| number < all) {
                    let path = numbering.decode(&ways, number);
                    assert_eq!(path.and_then(|path| numbering.encode(&path)), Some(number));
                }
                let sorted = |placed: Vec<(Site, PathOperation)>| assert!(placed.is_sorted_by_key(|&(site, _)| site));
                for placement in [Placement::Simple, Placement::Tree] {
                    sorted(numbering.place(&ways, &weights, placement));
                }
                if let Some(sampled) = &sampled {
                    let placed = numbering.place_in_tree(&ways, sampled, &weights);
                    sorted(placed.operations(&numbering, &ways));
                    assert!(placed.increments_along(&numbering, all) == 0);
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
