//! The meeting point of images, recipes and profiles: recipe tables and their cache, and questions asked of them.
//! Knows nothing of live processes and of rendering.
#![deny(unsafe_code)]

pub mod attribute;
mod error;
pub mod graphs;
mod leb128;
mod links;
pub mod measurement;
pub mod module_facts;
pub mod module_memo;
pub mod names;
mod plain;
pub mod recipes;
mod runtimes;
pub mod slices;
pub mod snapshot;
pub mod structure;
pub mod table_cache;
mod turns;

pub use error::AnalyzeError;
pub use plain::plain;
