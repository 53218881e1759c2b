//! From a measurement to a profile: structure, names, links, attribution.
//! Knows nothing of live processes, of how tables are built, and of rendering.
#![forbid(unsafe_code)]

pub mod attribute;
mod links;
pub mod names;
mod permits;
mod runtimes;
pub mod structure;
