//! Inferred call paths (Mytkowicz, Coughlin and Diwan 2009): the map from context identifiers to call paths.
//!
//! A context identifier is a procedure and how high the stack is there: how far the procedure's CFA lies below a fixed place of
//! the thread's stack (section 3). A map knows call paths and what identifier each has: it answers which paths have one (section 7).
//! Paths are those of procedures, without call sites (section 8.4). Where paths come from, and whose stack was how high, does not belong here.
//!
//! Data flow: contexts that a run was in -> [`MapBuilder`] -> [`PathMap`] -> its [`file`](PathMap::encode), [`PathMap::answer`],
//! [`PathMap::precision`]; and, where code is known, [`Search::tell`].
#![forbid(unsafe_code)]

mod anneal;
mod builder;
mod call_graph;
mod clones;
mod doubt;
mod file;
mod frames;
mod map;
mod plan;
mod precision;
mod resize;
mod search;
#[cfg(test)]
mod tests;
mod told;
mod with_clones;

pub use builder::{MapBuilder, OtherBuild};
pub use clones::{CloneLink, ClonedProcedure, Clones, Cloning};
pub use file::{MAP_FILE, MapError, fuzz_path_map};
pub use map::{
    Answer, Called, Code, ContextNode, DirectCall, Identifier, MapModule, MapProcedure, PathMap, Pointed, PointerCall,
    Root, VariableCall, Weight,
};
pub use plan::{PLAN_FILE, PaddingPlan, PlannedClone, PlannedLink, PlannedPadding, fuzz_padding_plan};
pub use precision::{Degrees, Precision};
pub use resize::{Budget, Paddings, Resized};
pub use search::{CodePath, CodePaths, Search, Searched};
pub use told::{Certainty, Told};
