//! Recipe tables of modules, their cache, control flow graphs, and walks over snapshots by the tables. No measurements,
//! profiles or live processes here.
#![deny(unsafe_code)]

mod asked_names;
mod cache_trouble;
pub mod call_graph;
pub mod calls_in_copies;
mod contexts;
pub mod copies;
mod error;
pub mod graphs;
pub mod guide;
mod hashed;
pub mod heights;
mod linkage;
mod linked_unwinder;
pub mod module;
pub mod module_facts;
pub mod module_memo;
pub mod paths;
pub mod probes;
pub mod recipes;
pub mod return_users;
pub mod slices;
pub mod snapshot;
pub mod table_cache;
mod times;
pub mod unwinders;

pub use error::SnapshotError;
