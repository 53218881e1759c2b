//! Paths through procedures: their numbers, and what has to be inserted so that a procedure counts them; the same for
//! edges. Pure computation on graphs: no processes, files or measurements here.
//!
//! Data flow: [`ProcedureGraph`](crate::graph::ProcedureGraph) -> [`Ways`] -> [`Numbering`] -> [`Numbering::place`]:
//! operations at sites, and [`Numbering::decode`]: a number's blocks. Or [`Ways`] -> [`EdgePlan`]. Weights of ways say where operations are
//! executed least: [`weights()`], a guess, or [`weights_by_samples`].
//!
//! A path begins at the procedure's entry or behind a back edge, and ends where control leaves the procedure or before a
//! back edge: every number stands for one sequence of blocks, and the blocks of all paths that an activation takes are
//! the blocks that it executes. Differences from the papers: any depth-first search's back edges do, so graphs need not
//! be reducible; jumps through tables that share targets end paths, since their targets cannot tell where control came
//! from; a landing pad begins a path, and the one before it is cut short; where there are too many paths, more ways are cut.

mod acyclic;
mod edges;
mod fuzzing;
mod numbering;
mod placement;
mod sampled;
mod site;
mod tree;
mod twice;
mod ways;
mod weights;

pub use edges::{EdgeBounds, EdgeCounts, EdgePlan};
pub use fuzzing::fuzz_paths;
pub use numbering::{Category, Counts, MAX_PATHS, Numbering, Path};
pub use placement::{Placed, Placement};
pub use sampled::{SampledBlock, sampled_blocks, weights_by_samples};
pub use site::{PathOperation, Site};
pub use twice::may_return_twice;
pub use ways::{Arrival, Dispatch, Way, Ways};
pub use weights::weights;
