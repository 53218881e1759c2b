//! From a measurement to a profile: structure, names, links, attribution.
//! No live processes, building of tables or rendering here.
#![forbid(unsafe_code)]

pub mod attribute;
pub mod exact;
pub mod functions;
pub mod infer;
pub mod instructions;
mod links;
pub mod names;
mod permits;
mod runtimes;
pub mod structure;
mod system_calls;
